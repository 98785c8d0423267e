#!/bin/bash
# Weights of a running job: weights.sh PATH_OF_RUBATO
#
#   1. Guests on another host get one version of the weights each, while the job computes: their predictions are the
#      bits of a run that ends after that step. Guests change nothing: the job's last checkpoint is the one
#      of a run without them.
#   2. Another token, another model, no address, a job with an app: one sentence and the exit code.
#   3. The worker is killed, and stands still, while weights are on their way.
set -euo pipefail
rubato=$(realpath "$1")
net=$(dirname "$(realpath "$0")")/net.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-weights-XXXXXX")
lab=ruw$$
"$net" check || exit $?
cleanup() {
    pgrep -f -- "$work/" | xargs -r kill -9 2>/dev/null || true
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down $lab >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
. "$(dirname "$(realpath "$0")")/expect.sh"
cd "$work"
export XDG_CACHE_HOME="$work/cache"
there() { # a command of the guest's host
    timeout 300 "$net" in $lab 2 "$rubato" "$@"
}
images=(digits/test-images digits/test-labels)
model=lenet
train() { # HOST WORKERS OUT STEPS OPTIONS...
    local host=$1 workers=$2 out=$3 steps=$4
    shift 4
    "$net" in $lab "$host" "$rubato" train job.yaml --set model.zoo=$model --out "$work/$out" --set train.steps="$steps" \
        -w "$workers" --sockets --deterministic "$@" >"$out.txt" 2>&1
}
begin() { # HOST WORKERS OUT: a job that lasts; waits until it gives weights at $at
    at=10.77.0.$1:4100
    train "$1" "$2" "$3" 1000000 --weights $at &
    job=$!
    for _ in $(seq 1 3000); do
        there predict - --from $at --token-file "$3/weights-token" "${images[@]}" >/dev/null 2>&1 && return
        sleep 0.05
    done
    fail "the job gives no weights: $(tail -2 "$3.txt")"
}
came() { # bytes at the guests' host
    "$net" in $lab 2 cat /proc/net/dev | sed 's/:/ /' | awk 'NR > 2 && $1 != "lo" { n += $2 } END { print n + 0 }'
}
# go HOW HOST OUT: its worker gets that signal while its weights are on the way to $guest: 2.3 MB at 1 Mbit/s take 19 s.
go() {
    local before
    before=$(came)
    "$net" rate $lab "$2" 1mbit
    there predict - --from $at --token-file "$3/weights-token" "${images[@]}" >"$3.out" 2>"$3.err" &
    guest=$!
    until [[ $(came) -gt $((before + 100000)) ]]; do
        kill -0 $guest 2>/dev/null || break
        sleep 0.05
    done
    kill -"$1" "$(pgrep -f "worker --job $work/$3/.*--weights" | head -1)"
    "$net" rate $lab "$2" 100mbit # what has left the worker comes soon
}
gone() { # HOW OUT GUEST
    local code=0
    wait "$3" || code=$?
    [[ $code -eq 69 ]] || fail "a worker that got $1: the guest exits $code, expected 69"
    grep -q "$at went away or stands still before all weights were here (" "$2.err" ||
        fail "a worker that got $1: $(tail -1 "$2.err")"
    echo "ok: $code $(tail -1 "$2.err")"
}
step() {
    sed -n 's/.* gives the weights after step \([0-9]*\).*/\1/p' "$1"
}

"$net" up $lab 3 --rate 100mbit >/dev/null
"$rubato" data make digits --out digits --count 320 --test 40 >/dev/null 2>&1
cat >job.yaml <<JOB
data: {format: idx, train: [digits/train-images, digits/train-labels], test: [digits/test-images, digits/test-labels]}
model: {zoo: lenet}
train: {batch: 32, threads: 1, eval_every: 1000000}
checkpoint: {keep: 1}
JOB

# Its guest waits for ten seconds without a byte; the rest goes on meanwhile.
begin 3 1 stands
go STOP 3 stands
stands=$guest

begin 1 2 lives
for k in 1 2; do
    # The second one comes when the job has done more steps.
    [[ $k -eq 1 ]] || until grep -q "\"rubato.train.step/1\",\"step\":$(($(step said1.txt) + 2))," lives/metrics.jsonl; do
        kill -0 $job || break
        sleep 0.05
    done
    there predict -v - --from $at --token-file lives/weights-token --proba "${images[@]}" >guest$k.txt 2>said$k.txt ||
        fail "guest $k: $(tail -1 said$k.txt)"
done
kill -INT $(pgrep -f "^$rubato train job.yaml .*--out $work/lives " | head -1)
wait $job || true
[[ $(step said1.txt) -lt $(step said2.txt) ]] || fail "a later guest has no later weights"
train 1 2 alone "$(step said2.txt)"
"$rubato" predict alone --proba "${images[@]}" >here.txt
cmp here.txt guest2.txt || fail "a guest's weights after step $(step said2.txt) are not those of a run that ends there"
last=$(ls lives/checkpoints | tail -1)
train 1 2 alone $((10#$last)) --resume
cmp lives/checkpoints/$last/model.safetensors alone/checkpoints/$last/model.safetensors ||
    fail "guests change what the job learns"
echo "ok: guests of steps $(step said1.txt) and $(step said2.txt), the job ended after step $((10#$last))"

model=mlp train 1 1 other 1
echo 'app: mf' >app.yaml
expect 2 "expected HOST:PORT" "$rubato" train job.yaml --weights 4100
expect 2 "are for models" "$rubato" train app.yaml --weights :0
begin 1 1 goes
expect 0 '' there eval - --from $at --token-file goes/weights-token
expect 69 "$at: a process listens there and refuses" there predict - --from $at --token-file goes/token "${images[@]}"
expect 65 "$at serves another model" there predict other --from $at --token-file goes/weights-token "${images[@]}"
go KILL 1 goes
gone KILL goes $guest

at=10.77.0.3:4100
gone STOP stands $stands
exit $failed
