#!/bin/bash
# Workers on machines that are taken away, on real processes: stages.sh PATH_OF_RUBATO
#
#   One reliable worker and five transient ones, which hold the parameters. The transient ones are killed, all at
#   once: the job goes on from the copies in memory of the reliable one, and ends with the tables of a job that
#   nothing happened to. Five others join, and leave when asked: nothing rolls back.
set -euo pipefail
rubato=$(realpath "$1")
. "$(dirname "$0")/app.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-stages-XXXXXX")
pids=()
cleanup() {
    [[ ${#pids[@]} -eq 0 ]] || kill "${pids[@]}" 2>/dev/null || true # each is a timeout, which passes it on
    sleep 0.1
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
classes 4000 240
steps=10000
cat >job.yaml <<YAML
name: stages
app: mlr
data: {format: libsvm, train: [x.svm]}
clocks: {executors: 12}
train: {steps: $steps, seed: 5, threads: 1}
checkpoint: {every: 0s}
stages: {method: stage2}
YAML
timeout 300 "$rubato" train job.yaml -q -o one >one.log 2>&1 || fail "one process"

timeout --foreground 300 "$rubato" train job.yaml -w 1:12 -o "$work/run" >run.log 2>&1 &
job=$!
pids+=($job)
until_step run 2
address=$(grep -o '127.0.0.1:[0-9]*' run.log | head -1)
guests=()
join() {
    local k
    for k in 1 2 3 4 5; do
        timeout --foreground 300 "$rubato" worker --join "$address" --token-file run/token --tier transient >"$1-$k.log" 2>&1 &
        guests+=($!)
        pids+=($!)
    done
}
members() { grep -o '"workers":[0-9]*' run/metrics.jsonl | tail -n 1 | cut -d: -f2; }
came() { [[ $(members) -ge $1 ]] || [[ $((++looks)) -gt 2000 ]]; }
# all_in WHICH BEFORE: five more than BEFORE are members: on a busy machine that takes long, so the first worker works little meanwhile.
all_in() {
    looks=0
    slowly "$(worker run 1)" came $(($2 + 5))
    [[ $(members) -ge $(($2 + 5)) ]] || fail "the five workers of $1 are not all members"
}
workers_of() { pgrep -f "worker --join $address" | while read -r p; do [[ $(cat /proc/$p/comm) == rubato ]] && echo $p; done; }
before=$(members)
join first
all_in first "$before"
at=$(step run)
until_step run $((at + steps / 16))
grep -q '"restored"' run/metrics.jsonl && fail "it rolled back before"
victims=$(workers_of)
[[ $(wc -w <<<"$victims") -eq 5 ]] || fail "not five workers to kill"
disown -a
kill -9 $victims
at=$(step run)
until_step run $((at + steps / 16))
grep -q '"restored"' run/metrics.jsonl || fail "nothing was lost"
awk -F'"step":' '/rubato.train.step/ { split($2, a, ","); if (a[1] != n + 1) bad = 1; n = a[1] } END { exit bad }' run/metrics.jsonl ||
    fail "a step was told twice, or not at all"
lost=$(grep -c '"restored"' run/metrics.jsonl)
guests=()
before=$(members)
join second
all_in second "$before"
at=$(step run)
until_step run $((at + steps / 16))
kill -TERM $(workers_of) || fail "no workers to ask"
for g in "${guests[@]}"; do
    wait "$g" || fail "a worker that was asked to leave ends with an error"
done
for _ in $(seq 1 4000); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.05
done
[[ $(grep -c '"restored"' run/metrics.jsonl) -eq $lost ]] || fail "it rolled back when workers left"
[[ $("$rubato" explain one reassign) == *"this method plans nothing"* ]] || fail "explain does not say that nothing was planned"
[[ $(tables run) == "$(tables one)" ]] || fail "the tables differ from those of one process"
echo "ok: five of six workers killed ($lost generations from copies), five joined and left: the same tables"
