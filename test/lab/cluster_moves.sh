#!/bin/bash
# Jobs that move: cluster_moves.sh PATH_OF_RUBATO. A job of one worker with 12 MB of state is driven from node to node and back,
# each time as soon as the one before is empty: who has the state stays until the successor has it, so the job never starts again.
# Workers are slow where the machine can bound them (a tenth of a core), so that the state takes its time.
# Then an agent is frozen until its node is given up, and woken: its job, which needs both nodes, waits meanwhile, goes on afterwards,
# and does each step once.
. "$(dirname "$0")/clusters.sh"
until_is() { # WHAT TEXT COMMAND...: until what it prints has the text
    local what=$1 text=$2 k
    shift 2
    for ((k = 0; k < 1800; k++)); do
        cluster "$@" --json >out
        ! grep -q "$text" out || return 0
        sleep 0.1
    done
    fail "$what: $(cat out)"
    cluster ps >&2
}
cat >cluster.yaml <<FILE
folder: cl
accounts: shared
nodes: [{name: n1, slots: 1, cpu: 0.1}, {name: n2, slots: 1, cpu: 0.1}]
FILE
cat >job.yaml <<JOB
name: moves
model: {zoo: mlp, hidden: [1200, 1200]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 40, epochs: 100000000, autotune: false, threads: 1}
checkpoint: {every: 1s, keep: 1}
JOB
cluster up cluster.yaml >/dev/null
cluster drain n2 >/dev/null
cluster submit job.yaml >/dev/null
until_is "the job does not run" '"processes":1' nodes
from=n1 to=n2
for move in 1 2 3 4; do
    cluster drain $to --resume >/dev/null
    cluster drain $from >/dev/null
    until_is "move $move: $from is not left" "\"node\":\"$from\",\"slots\":1,\"granted\":0,\"processes\":0" nodes
    from=$to
    [[ $from == n1 ]] && to=n2 || to=n1
done
cluster ps --json >out
grep -q '"state":"runs".*"generation":1,' out || fail "the job was started again: $(cat out)"
cluster audit >out
if grep -q 'scheduler *fail' out; then fail "a move failed: $(grep 'fail' out)"; fi
cluster cancel 1 >/dev/null
until_is "the job does not end" '"state":"cancelled"' ps
grep -q '"samples_lost":0,"samples_repeated":0' cl/jobs/1/metrics.jsonl || fail "samples were lost: $(tail -1 cl/jobs/1/metrics.jsonl)"
cluster down
[[ $failed -ne 0 ]] || echo "ok: a job moves from node to node"

cat >frozen.yaml <<FILE
folder: fz
accounts: shared
silent: 10s
round: 1s
nodes: [{name: n1, slots: 1, cpu: 0.1}, {name: n2, slots: 1, cpu: 0.1}]
FILE
sed 's/hidden: .*/hidden: [16]}/; s/every: 1s/every: 200ms/' job.yaml >small.yaml
cluster up frozen.yaml >/dev/null
cluster submit small.yaml -w 2 >/dev/null
until_is "two workers do not run" '"state":"runs".*"workers":2,' ps
steps() { { grep '"rubato.train.step/1"' fz/jobs/1/metrics.jsonl || true; } | sed 's/.*"step":\([0-9]*\),.*/\1/'; }
until_step() { # BEYOND
    local k last
    for ((k = 0; k < 1800; k++)); do
        last=$(steps 2>/dev/null | tail -1)
        [[ ${last:-0} -le $1 ]] || return 0
        sleep 0.1
    done
    fail "no step beyond $1"
}
until_step 20
agent=$(pid_of fz/run/n2.pid)
kill -STOP "$agent"
until_is "a frozen agent's node is not given up" '"node":"n2",.*"state":"lost"' nodes
until_is "a job without its node does not wait" '"state":"waits"' ps
before=$(steps | tail -1)
kill -CONT "$agent"
until_is "the job does not go on" '"state":"runs".*"workers":2,' ps
if grep -q '"generation":1,' out; then fail "the job goes on with workers that nobody saw: $(cat out)"; fi
until_step "$before"
# A scheduler that stood still for longer than `silent` gives no node up.
cluster ps --json >out
began=$(grep -o '"generation":[0-9]*' out)
scheduler=$(pid_of fz/run/scheduler.pid)
losses() { grep -c node_lost fz/log/scheduler || true; }
lost=$(losses)
kill -STOP "$scheduler"
sleep 14
kill -CONT "$scheduler"
until_step "$(steps | tail -1)"
until_is "the job changed with its scheduler" "\"state\":\"runs\".*\"workers\":2,.*$began," ps
[[ $(losses) -eq $lost ]] || fail "a scheduler that stood still gave a node up"
cluster cancel 1 >/dev/null
until_is "the job does not end" '"state":"cancelled"' ps
steps >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "the job did not do each step once"
cluster down
[[ $failed -ne 0 ]] || echo "ok: an agent that was frozen, and a scheduler"
exit $failed
