#!/bin/bash
# Methods of a cluster beside Pollux: cluster_methods.sh PATH_OF_RUBATO.
#
#   1. tiresias: a job that has used up the upper queue makes room for one that has not, and comes back after it; a scheduler
#      that was killed, or ended, has the same queues; explain and audit tell the method; capture gives the plan with the same id.
#   2. the file names another method: the next scheduler plans by it, with the jobs that are there.
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
file() { # METHOD
    cat >cluster.yaml <<FILE
folder: cl
accounts: shared
round: 1s
alloc: {method: $1, demote: 3}
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
exit $failed
