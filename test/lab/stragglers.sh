#!/bin/bash
# Executors that help each other, on real processes: stragglers.sh PATH_OF_RUBATO
#
#   1. a worker that is stopped most of the time hands work to others: the objective is that of workers
#      that wait for it. The times of both are printed; they fail nothing.
#   2. a worker that helps is killed: the others go on without a rollback, and the objective is nearly the same.
#   3. an app whose tasks cannot be divided says why.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-stragglers-XXXXXX")
slower=
cleanup() {
    [[ -z $slower ]] || kill "$slower" 2>/dev/null || true
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    for f in ./*.log; do echo "== $f" && tail -n 4 "$f"; done >&2
    exit 1
}
"$rubato" data make ratings --out data --count 200000 --test -1 --seed 4 >/dev/null 2>&1 || fail "data"
steps=8
cat >job.yaml <<YAML
name: lab
app: mf
data: {format: ratings, train: [data/train.csv]}
clocks: {executors: 3}
train: {steps: $steps, seed: 5, threads: 1}
mf: {update: adarevision, rank: 128, lr: 0.05, pieces: 1}
checkpoint: {every: 1s}
YAML
objective() { grep -o '"rmse":[0-9.]*' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
seconds() { grep -o '"wall_s":[0-9.]*' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
# same RUN [PART [OF]]: its objective is that of those who wait, up to this part of it
same() {
    local of=${3:-wait}
    awk -v a="$(objective "$1")" -v b="$(objective "$of")" -v part="${2:-0.005}" 'BEGIN { d = a - b; exit !(a > 0 && d * d < part * part * b * b) }' ||
        fail "$1 ends with $(objective "$1"), those who wait with $(objective "$of")"
}
# third RUN: a worker of it that does not lead, when all three are at work
third() {
    for _ in $(seq 1 6000); do
        ! grep -qs '"rubato.train.step/1".*"workers":3' "$1/metrics.jsonl" || break
        sleep 0.02
    done
    pgrep -f "worker --job $work/$1/job.yaml .*--rank 3( |\$)" || fail "$1 has no third worker"
}
# Stopped 3/4 of the time until it ends.
slow_down() {
    while kill -STOP "$1" 2>/dev/null; do
        sleep 0.03
        kill -CONT "$1" 2>/dev/null || break
        sleep 0.01
    done
}
turn() { # wait | reassign
    local s=$1
    rm -rf "$s"
    timeout --foreground 300 "$rubato" train job.yaml -w 3 -q -o "$work/$s" --set clocks.stragglers=$s --set recovery.method=rollback >"$s.log" 2>&1 &
    job=$!
    slow_down "$(third $s)" &
    slower=$!
    wait "$job" || true # on a loaded machine the others may go on without the slow one
    wait "$slower" || true
    slower=
}
turn wait
for try in 1 2 3 4; do # on a busy machine the slow one may be no slower than others, or lost before it has help
    turn reassign
    same reassign
    "$rubato" explain "$work/reassign" reassign >explain.log 2>&1 || fail "explain"
    ! grep -q '^  slice ' explain.log || ! grep -q '^  messages share ' explain.log || break
    [[ $try -lt 4 ]] || fail "explain shows no slices, or no share of messages"
done
echo "ok: a slow worker, the same objective; waiting $(seconds wait) s, helping $(seconds reassign) s"

steps=40 # many, so that none ends before the kill
timeout 300 "$rubato" train job.yaml -w 3 -q -o long --set train.steps=$steps --set clocks.stragglers=wait >long.log 2>&1 || fail "long"
timeout --foreground 300 "$rubato" train job.yaml -w 3 -q -o "$work/killed" --set train.steps=$steps --set clocks.stragglers=reassign >killed.log 2>&1 &
job=$!
kill -9 "$(third killed)"
wait "$job" || true # its exit code tells of the killed one
same killed 0.05 long # rows that only the dead worker had are older
"$rubato" explain "$work/killed" recover >recover.log 2>&1 || fail "explain recover"
grep -q '^  recovery ' recover.log || fail "the others did not go on without a rollback"
echo "ok: a helper killed, the others went on: nearly the same objective"

sed 's/update: adarevision, //' job.yaml >whole.yaml
code=0
timeout 300 "$rubato" train whole.yaml -w 2 -q -o whole --set clocks.stragglers=reassign >whole.log 2>&1 || code=$?
[[ $code -eq 78 ]] || fail "an app that cannot be divided ends with $code"
grep -q 'cannot hand parts of its work' whole.log || fail "an app that cannot be divided gives no reason"
echo "ok: an app that cannot be divided says why"
