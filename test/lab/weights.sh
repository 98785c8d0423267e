#!/bin/bash
# Weights of a running job: weights.sh PATH_OF_RUBATO
#
#   1. Guests on another host get one version of the weights each, while the job computes: their predictions are the
#      bits of a run that ends after that step. Guests change nothing: the job's last checkpoint is the one
#      of a run without them.
#   2. Another token, another model, a job with an app, a taken address: one sentence and the exit code.
#   3. The worker is killed, and stands still, while weights are on their way.
set -euo pipefail
rubato=$(realpath "$1")
net=$(dirname "$(realpath "$0")")/net.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-weights-XXXXXX")
lab=ruwgt
"$net" check || exit $?
cleanup() {
    pgrep -f -- "--out $work/" | xargs -r kill -9 2>/dev/null || true
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down $lab >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
at=10.77.0.1:4100
there() { # a command of the guest's host
    timeout 60 "$net" in $lab 2 "$rubato" "$@"
}
# expect CODE WORDS COMMAND...
expect() {
    local code=$1 words=$2 got=0
    shift 2
    "$@" >out.txt 2>err.txt || got=$?
    if [[ $got -ne $code ]]; then
        fail "'$*' exits $got, expected $code: $(tail -1 err.txt)"
    elif ! grep -q -- "$words" err.txt; then
        fail "'$*' does not say '$words': $(tail -1 err.txt)"
    else
        echo "ok: $code $(grep -- "$words" err.txt | tail -1)"
    fi
}
images=(digits/test-images digits/test-labels)
model=lenet
train() { # OUT STEPS OPTIONS...
    local out=$1 steps=$2
    shift 2
    "$net" in $lab 1 "$rubato" train job.yaml --set model.zoo=$model --out "$work/$out" --set train.steps="$steps" -w 2 \
        --sockets --deterministic "$@" >"$out.txt" 2>&1
}
begin() { # OUT: a job that lasts; waits until it gives weights
    train "$1" 1000000 --weights $at &
    job=$!
    for _ in $(seq 1 300); do
        there predict - --from $at --token-file "$1/weights-token" "${images[@]}" >/dev/null 2>&1 && return
        sleep 0.1
    done
    fail "the job gives no weights: $(tail -2 "$1.txt")"
}

"$net" up $lab 2 --rate 100mbit >/dev/null
"$rubato" data make digits --out digits --count 320 --test 40 >/dev/null 2>&1
cat >job.yaml <<JOB
data: {format: idx, train: [digits/train-images, digits/train-labels], test: [digits/test-images, digits/test-labels]}
model: {zoo: lenet}
train: {batch: 32, threads: 1, eval_every: 1000000}
checkpoint: {keep: 1}
JOB
begin lives
for k in 1 2; do
    there predict -v - --from $at --token-file lives/weights-token --proba "${images[@]}" >guest$k.txt 2>said$k.txt ||
        fail "guest $k: $(tail -1 said$k.txt)"
done
expect 0 '' there eval - --from $at --token-file lives/weights-token
expect 69 "$at: a process listens there and refuses" there predict - --from $at --token-file lives/token "${images[@]}"
model=mlp train other 1
expect 65 "$at serves another model" there predict other --from $at --token-file lives/weights-token "${images[@]}"
kill -INT $(pgrep -f "^$rubato train job.yaml .*--out $work/lives " | head -1)
wait $job || true
step() {
    sed -n 's/.* gives the weights after step \([0-9]*\).*/\1/p' "$1"
}
[[ $(step said1.txt) -lt $(step said2.txt) ]] || fail "a later guest has no later weights"
train short "$(step said2.txt)"
"$rubato" predict short --proba "${images[@]}" >here.txt
cmp here.txt guest2.txt || fail "a guest's weights after step $(step said2.txt) are not those of a run that ends there"
last=$(ls lives/checkpoints | tail -1)
train alone $((10#$last))
cmp lives/checkpoints/$last/model.safetensors alone/checkpoints/$last/model.safetensors ||
    fail "guests change what the job learns"
echo "ok: guests of steps $(step said1.txt) and $(step said2.txt), the job ended after step $((10#$last))"

# 2.3 MB at 1 Mbit/s take 19 s, so that the worker goes in the middle.
for how in KILL STOP; do
    "$net" rate $lab 1 100mbit
    begin to-$how
    "$net" rate $lab 1 1mbit
    there predict - --from $at --token-file to-$how/weights-token "${images[@]}" >out.txt 2>err.txt &
    guest=$!
    sleep 2
    worker=$(pgrep -f "worker --job $work/to-$how/.*--weights" | head -1)
    kill -$how "$worker"
    code=0
    wait $guest || code=$?
    [[ $code -eq 69 ]] || fail "a worker that got $how: the guest exits $code, expected 69"
    grep -q "$at went away or stands still before all weights were here (" err.txt ||
        fail "a worker that got $how: $(tail -1 err.txt)"
    echo "ok: $code $(tail -1 err.txt)"
    kill -9 "$worker" 2>/dev/null || true
    kill -INT "$(pgrep -f "^$rubato train job.yaml .*--out $work/to-$how " | head -1)"
    wait $job || true
done
exit $failed
