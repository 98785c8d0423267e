#!/bin/bash
# Methods of a cluster beside Pollux: cluster_methods.sh PATH_OF_RUBATO.
#
#   1. tiresias: a job that has used up the upper queue makes room for one that has not, and comes back after it; a scheduler
#      that was killed, or ended, has the same queues; explain and audit tell the method; capture gives the plan with the same id.
#   2. the file names another method: the next scheduler plans by it, with the jobs that are there.
#   3. jobs that restart: a job that is scaled stops with a checkpoint and starts from it, also when the scheduler is killed
#      meanwhile; no step is lost or done twice; explain and audit say so. In place again, it goes on.
. "$(dirname "$0")/clusters.sh"
explains() { # JOB TEXT: says so, once its worker and its figures are known
    local k
    for ((k = 0; k < 900; k++)); do
        cluster explain "$1" >told
        ! grep -qF "$2" told || return 0
        sleep 0.2
    done
    fail "explain $1 does not say '$2': $(cat told)"
}
file() { # METHOD [RESIZE]
    cat >cluster.yaml <<FILE
folder: cl
accounts: shared
round: 1s
alloc: {method: $1, demote: 3, resize: ${2:-in_place}}
nodes: [{name: n1, slots: 2}]
FILE
}
cat >mlp.yaml <<JOB
name: long
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 100000000, autotune: false, threads: 1}
checkpoint: {every: 200ms}
JOB

# -- 1: each takes what it requests, whatever it could have; the generation of a job tells that it had its turn
file tiresias
cluster up cluster.yaml >/dev/null
cluster submit mlp.yaml -w 1:2 >/dev/null
cluster submit mlp.yaml -w 1:2 >/dev/null
if cluster submit mlp.yaml -w 1:2 --request 3 2>err; then fail "a request beyond the most workers is taken"; fi
grep -q 'requests 3: ask for a number between them' err || fail "a request beyond the most workers: $(cat err)"
becomes 2 generation 1
becomes 1 generation 2
becomes 1 workers 2
explains 1 "method tiresias"
explains 1 "lower queue, at place 1"
explains 2 "lower queue, at place 2"
explains 2 "waits: it needs 2 of 2 slots"
slay "$(pid_of cl/run/scheduler.pid)"
cluster up cluster.yaml >/dev/null
becomes 1 workers 2
explains 1 "lower queue, at place 1"
explains 2 "lower queue, at place 2"
[[ $(field 1 generation)$(field 2 generation) == 21 ]] || fail "a job was started again: $(cluster ps)"
grep -q 'scheduler *method *plans .*tiresias' <<<"$(cluster audit)" || fail "audit does not tell the method: $(cluster audit)"
"$rubato" capture cl -o world.json
id=$(grep -o '"id":"[0-9a-f]*"' world.json | head -1)
"$rubato" plan world.json alloc --json >plan.json
grep -qF "$id" plan.json || fail "another plan than that of the scheduler ($id): $(cat plan.json)"
cluster down
cluster up cluster.yaml >/dev/null
becomes 1 workers 2
explains 1 "lower queue, at place 1"
explains 2 "lower queue, at place 2"
echo "ok: queues of tiresias"

# -- 2
cluster down
file optimus
cluster up cluster.yaml >/dev/null
becomes 1 workers 1
becomes 2 workers 1
explains 1 "method optimus"
left() { grep -cF 'steps left' <<<"$(cluster explain 2)" || true; } # when its process is in the job
waits_for 1 left
grep -q 'scheduler *method *plans .*optimus' <<<"$(cluster audit)" || fail "audit does not tell the second method: $(cluster audit)"
for j in 1 2; do
    cluster cancel $j >/dev/null
    becomes $j state cancelled
done
cluster down
echo "ok: another method"

# -- 3: no checkpoint but those of stops, so a job whose worker was killed would begin where it began before
metrics=cl/jobs/3/metrics.jsonl
last_step() { { grep '"rubato.train.step/1"' $metrics || true; } | tail -n 2 | head -n 1 | sed 's/.*"step":\([0-9]*\),.*/\1/'; }
starts() { grep -c '"rubato.train.start/1"' $metrics || true; }
began_at() { grep '"rubato.train.start/1"' $metrics | tail -n 1 | sed 's/.*"resumed_step":\([0-9]*\).*/\1/'; }
goes_on() { # in `at`: a step that it has done since
    local from k
    from=$(last_step)
    for ((k = 0; k < 900; k++)); do
        at=$(last_step)
        [[ ${at:-0} -le $((${from:-0} + 20)) ]] || return 0
        sleep 0.2
    done
    fail "no step after ${from:-0}: $(cluster explain 3)"
}
file pollux restart
sed -i 's/every: 200ms/every: 0s/' mlp.yaml
cluster up cluster.yaml >/dev/null
cluster submit mlp.yaml >/dev/null
becomes 3 workers 1
explains 3 "resize restart"
explains 3 ", loss"
goes_on
cluster scale 3 2 >/dev/null
becomes 3 generation 2
waits_for 2 starts
becomes 3 workers 2
[[ $(began_at) -ge $at ]] || fail "a stop lost steps: from $at to $(began_at)"
explains 3 "it was stopped and started 1 time, as its slots changed; "
goes_on
cluster scale 3 1 >/dev/null
becomes 3 generation 3
slay "$(pid_of cl/run/scheduler.pid)"
cluster up cluster.yaml >/dev/null
waits_for 3 starts
becomes 3 workers 1
[[ $(began_at) -ge $at ]] || fail "a stop without a scheduler lost steps: from $at to $(began_at)"
goes_on
for n in 2 1 2; do cluster scale 3 $n >/dev/null; done
cluster down # whatever it is about to do
stop=$at
file pollux
cluster up cluster.yaml >/dev/null
becomes 3 workers 2
goes_on
[[ $(began_at) -ge $stop ]] || fail "a stop before another one lost steps: from $stop to $(began_at)"
audit=$(cluster audit)
grep -q 'scheduler *resize *plans .*restart' <<<"$audit" || fail "audit does not tell that jobs restart: $audit"
before=$(field 3 generation)
[[ $before -ge 4 ]] || fail "a job that was scaled did not restart: $(cluster ps)"
cluster scale 3 1 >/dev/null
becomes 3 workers 1
goes_on
[[ $(field 3 generation) == "$before" ]] || fail "a job restarts in place: $(cluster ps)"
cluster cancel 3 >/dev/null
becomes 3 state cancelled
grep '"rubato.train.step/1"' $metrics | sed 's/.*"step":\([0-9]*\),.*/\1/' |
    awk 'NR > 1 && $1 != last + 1 { print "step " $1 " after " last; exit 1 } { last = $1 }' ||
    fail "a step was lost or done twice"
if grep -q '"samples_lost":[1-9]' $metrics; then fail "samples were lost: $(grep '"samples_lost":[1-9]' $metrics)"; fi
audit=$(cluster audit)
if grep -q 'scheduler *fail' <<<"$audit"; then fail "a restart counts as a failure: $audit"; fi
cluster down
echo "ok: jobs that restart"
exit $failed
