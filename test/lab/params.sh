#!/bin/bash
# Jobs with an app on several real processes: params.sh PATH_OF_RUBATO
#
#   1. two workers give the tables of one process, bit for bit, and eval, predict and export read them.
#   2. the leader is killed, then another worker: the tables are still the same.
#   3. a worker joins by hand and leaves while the job runs; explain shows the moves; still the same.
#   4. more executors than requests of one page, on two workers.
#   5. a run that has no clock left says so when it is resumed.
#   6. a run goes on with three workers, then in one process: the same tables, rules and states.
#   7. data with a value that is no number end the job with the sentence of one process.
set -euo pipefail
rubato=$(realpath "$1")
. "$(dirname "$0")/app.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-params-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
classes 3000 120
steps=6000
cat >job.yaml <<YAML
name: lab
app: mlr
data: {format: libsvm, train: [x.svm]}
clocks: {executors: 6}
train: {steps: $steps, seed: 5}
checkpoint: {every: 1s}
recovery: {method: rollback}
YAML
timeout 300 "$rubato" train job.yaml -q -o one >one.log 2>&1 || fail "one process"
same() { [[ $(tables "$1") == $(tables one) ]] || fail "the tables of $1 differ from those of one process"; }

timeout 300 "$rubato" train job.yaml -w 2 -o two >two.log 2>&1 || fail "two workers"
same two
"$rubato" eval two --data x.svm >eval.log 2>&1 || fail "eval of two workers' run"
"$rubato" export two --safetensors two.safetensors >export.log 2>&1 || fail "export of two workers' run"
"$rubato" top two --once >top.log 2>&1 || fail "top of two workers' run"
[[ $(grep -cE "^ +[12] +$steps " top.log) -eq 2 ]] || fail "top shows no ranks: $(cat top.log)"
[[ $("$rubato" trace two --json --rows 0 | grep -c '"category":"train","name":"step"') -eq 2 ]] || fail "the trace has no steps of two ranks"
echo "ok: two workers equal one process"

timeout --foreground 300 "$rubato" train job.yaml -w 3 -o "$work/killed" >killed.log 2>&1 &
job=$!
for rank in 1 2; do
    [[ $rank -eq 1 ]] || leads killed $rank
    until_step killed $((steps / 6))
    kill -9 "$(worker killed $rank)"
done
wait "$job" || true # its exit code tells of the killed ones
same killed
echo "ok: two leaders killed, the same tables"

timeout --foreground 300 "$rubato" train job.yaml -w 1:4 -o "$work/grown" >grown.log 2>&1 &
job=$!
until_step grown 1
lone=$(worker grown 1)
until_step grown $((steps / 8))
kill -STOP "$lone"
address=$(grep -o '127.0.0.1:[0-9]*' grown.log | head -1)
timeout --foreground 300 "$rubato" worker --join "$address" --token-file grown/token >joined.log 2>&1 &
guest=$!
kill -CONT "$lone"
slowly "$lone" grep -q '"what":"join"' grown/metrics.jsonl
until_step grown $(($(step grown) + 50))
kill -TERM "$(pgrep -P "$guest" -f 'worker --join')" || fail "the guest is gone before it is asked to leave"
wait "$guest" || fail "the guest left with an error"
wait "$job" || fail "a job that a worker joined and left"
grep -q '"what":"leave"' grown/metrics.jsonl || fail "the guest did not leave before the end"
same grown
"$rubato" explain grown moves >explain.log 2>&1 || fail "explain"
grep -q 'predicted and measured' explain.log || fail "explain shows no measured moves"
echo "ok: a worker joined and left, the same tables"

sed "s/executors: 6/executors: 1500/; s/steps: $steps/steps: 20/" job.yaml >many.yaml
for w in one two; do
    timeout 300 "$rubato" train many.yaml $([[ $w == two ]] && echo -w 2) -q -o "many-$w" >"many-$w.log" 2>&1 || fail "1500 executors, $w"
done
[[ $(steps=20 tables many-two) == $(steps=20 tables many-one) ]] || fail "1500 executors: two workers differ from one process"
echo "ok: 1500 executors"

for run in one two; do
    timeout 300 "$rubato" train job.yaml $([[ $run == two ]] && echo -w 2) --resume -o "$run" >again.log 2>&1 || fail "resume of $run"
    grep -q "has already completed its $steps clocks" again.log || fail "resume of $run does not say that it is complete"
done
timeout 300 "$rubato" train job.yaml --resume -o two >again.log 2>&1 || fail "one process does not resume a run of two workers"
timeout 300 "$rubato" train job.yaml -w 2 --resume -o one >again.log 2>&1 || fail "two workers do not resume a run of one process"
grep -q "has already completed its $steps clocks" again.log || fail "resume of one by two does not say that it is complete"
echo "ok: runs without a clock left"

# One process, three workers, one process: rows that rotate, local rows, states of executors, rules with a state.
awk 'BEGIN { srand(4); for (i = 0; i < 2000; i++) print int(rand() * 60), int(rand() * 40), rand() * 4 + 1 }' >ratings
awk 'BEGIN { srand(5); for (d = 0; d < 120; d++) { line = 0; for (c = 1 + int(rand() * 4); c <= 50; c += 1 + int(rand() * 9)) line = line " " c ":" 1 + int(rand() * 3); print line } }' >words.svm
hop() { # hop NAME SETTINGS: like a run that nobody interrupted
    printf 'app: %s\nclocks: {executors: 5}\n%s\n' "$1" "$2" >hop.yaml
    rm -rf whole hop
    "$rubato" train hop.yaml -s train.epochs=9 -q -o whole >hop.log 2>&1 || fail "whole $1"
    "$rubato" train hop.yaml -s train.epochs=3 -q -o hop >hop.log 2>&1 || fail "$1 in one process"
    "$rubato" train hop.yaml -s train.epochs=6 -q -o hop -w 3 --resume >hop.log 2>&1 || fail "$1 with three workers"
    "$rubato" train hop.yaml -s train.epochs=9 -q -o hop --resume >hop.log 2>&1 || fail "$1 in one process again"
    for f in $(cd whole/checkpoints && ls -d ./*/*.safetensors); do
        cmp "whole/checkpoints/$f" "hop/checkpoints/$f" || fail "$1 ends elsewhere by way of three workers"
    done
}
hop mf 'data: {format: ratings, train: ratings}'
hop mf 'data: {format: ratings, train: ratings}
mf: {update: adarevision}'
hop lda 'data: {format: libsvm, train: words.svm}
lda: {topics: 4, alpha: 0.1}'
echo "ok: one process, three workers, one process"

(head -50 x.svm; echo "1 3:nan") >bad.svm
sed 's/x.svm/bad.svm/' job.yaml >bad.yaml
code=0
timeout 300 "$rubato" train bad.yaml -w 2 -o bad >bad.log 2>&1 || code=$?
[[ $code -eq 65 ]] || fail "bad data end with $code, expected 65"
grep -q 'bad.svm:51: ' bad.log || fail "bad data are not named"
echo "ok: bad data are named"
