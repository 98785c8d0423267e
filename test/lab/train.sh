#!/bin/sh
# Real processes, killed and stopped: train.sh PATH_OF_RUBATO
#
#   1. a run killed with SIGKILL three times within one epoch and resumed ends with the same bytes in
#      model and optimizer as one that was never killed;
#   2. one Ctrl-C saves and exits 0, and the resumed run ends with the same bytes again; a second one
#      ends the process at once with 128 + the signal's number;
#   3. a full disk, a file size limit, a missing file, truncated data, wrong shapes, a loss that is not
#      a number: one sentence, the right exit code, and the last checkpoint stays readable.
set -eu
# Mounts of its own, where that may be had: small disks come and go with this process.
if [ -z "${LAB_MOUNTS:-}" ]; then
    for how in -m -Urm; do
        if unshare $how true 2>/dev/null; then
            export LAB_MOUNTS=$how
            exec unshare $how "$0" "$@"
        fi
    done
fi
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-lab-XXXXXX")
trap 'rm -rf "$work"' EXIT
. "$(dirname "$(realpath "$0")")/expect.sh"
cd "$work"
export XDG_CACHE_HOME="$work/cache"


newest() {
    ls "$1/checkpoints" | grep -v tmp | tail -1
}

same_state() {
    a=$1/checkpoints/$(newest "$1") b=$2/checkpoints/$(newest "$2")
    [ "$(basename "$a")" = "$(basename "$b")" ] || fail "$1 ends at $a, $2 at $b"
    for f in model.safetensors optimizer.safetensors; do
        cmp "$a/$f" "$b/$f" || fail "$2 differs from $1 in $f"
    done
}

"$rubato" data make digits --out digits --count 6000 --test 200 >/dev/null 2>&1
cat >job.yaml <<JOB
name: lab
model: {zoo: lenet, width: 8, dropout: 0.1}
data:
  format: idx
  train: [digits/train-images, digits/train-labels]
  test: [digits/test-images, digits/test-labels]
  augment: {flip: both, crop: 3, rotation: 20, cutout: 4, mixup: 0.2}
train:
  optimizer: {adamw: {lr: 0.002}}
  schedule: {cosine: {warmup: 5}}
  batch: 2
  epochs: 1
  threads: ${LAB_THREADS:-1}
checkpoint: {every: 20ms, keep: 2}
JOB
train="$rubato train job.yaml -q"

# -- 1: three kills in one epoch
$train --out whole
kills=0
resume=
while [ "$kills" -lt 3 ]; do
    rm -f steps.jsonl
    $train --out killed $resume --json >steps.jsonl 2>/dev/null &
    pid=$!
    # wait until this process has made some steps past a checkpoint of its own, then kill it
    tries=0
    while ! grep -q checkpoint_written steps.jsonl 2>/dev/null && [ "$tries" -lt 24000 ]; do
        tries=$((tries + 1))
        sleep 0.005
    done
    resume=--resume
    if kill -KILL "$pid" 2>/dev/null; then
        kills=$((kills + 1))
    fi
    wait "$pid" 2>/dev/null || true
    echo "killed at $(grep -c rubato.train.step steps.jsonl || true) steps of this process, newest checkpoint $(newest killed)"
    [ "$(newest killed)" = "$(newest whole)" ] && break
done
[ "$kills" -eq 3 ] || fail "the run ended after $kills kills; make it longer"
$train --out killed --resume
same_state whole killed

# -- 2: Ctrl-C
rm -f steps.jsonl err.txt
$train --out stopped --json >steps.jsonl 2>err.txt &
pid=$!
tries=0
while ! grep -q rubato.train.step steps.jsonl 2>/dev/null && [ "$tries" -lt 6000 ]; do
    tries=$((tries + 1))
    sleep 0.02
done
kill -TERM "$pid"
set +e
wait "$pid"
code=$?
set -e
[ "$code" -eq 0 ] || fail "a drained run exits $code: $(cat err.txt)"
grep -q '"ended":"stopped"' steps.jsonl || fail "the summary does not say stopped"
$train --out stopped --resume
same_state whole stopped

# Steps of a second: the second Ctrl-C comes while the first still drains. A machine that others use may be late with either
# signal: three tries at most.
for try in 1 2 3; do
    rm -rf err.txt twice
    : >twice.jsonl
    "$rubato" train job.yaml -q --json --out twice --set model.zoo=resnet50 --set model.width=64 --set model.dropout=0 \
        --set train.batch=64 --set data.test=[] >twice.jsonl 2>err.txt &
    pid=$!
    tries=0
    while ! grep -q rubato.train.start twice.jsonl && [ "$tries" -lt 6000 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill -TERM "$pid"
    sleep 0.1
    bad=
    kill -0 "$pid" 2>/dev/null || bad="the slow run ended at the first signal"
    began=$(date +%s%N)
    kill -TERM "$pid" 2>/dev/null || true
    set +e
    wait "$pid"
    code=$?
    set -e
    took=$((($(date +%s%N) - began) / 1000000))
    [ "$code" -eq 143 ] || bad="${bad:-a second signal exits $code, expected 143: $(cat err.txt)}"
    [ "$took" -lt 500 ] || bad="${bad:-the second signal took $took ms}"
    [ -n "$bad" ] || break
done
[ -z "$bad" ] || fail "$bad"

# -- 3: errors
# A rate that is too high, though the loss stays a number.
cat >rise.yaml <<JOB
name: rise
model: {zoo: mlp, hidden: [4]}
data: {format: idx, train: [digits/train-images, digits/train-labels], count: 3000}
train: {optimizer: {sgd: {lr: 1000}}, batch: 64, epochs: 1, threads: 1, autotune: false}
JOB
expect 0 'warning: the loss rose from 2\.' "$rubato" train rise.yaml --out rise

expect 2 "already contains a run" "$rubato" train job.yaml --out whole
expect 66 "No such file\|no such file" "$rubato" train job.yaml --out e1 --set "data.train=[nothing, digits/train-labels]"
expect 66 "No such file\|no such file" "$rubato" train nothing.yaml
expect 78 "job.yaml\|--set" "$rubato" train job.yaml --out e2 --set train.bach=3
expect 78 "model mlp has no option" "$rubato" train job.yaml --out e2 --set model.zoo=mlp --set model.width=3 --set model.dropout=0
head -c 100000 digits/train-images >cut-images
expect 65 "cut-images" "$rubato" train job.yaml --out e3 --set "data.train=[$work/cut-images, $work/digits/train-labels]"
expect 78 "vit: images" "$rubato" train job.yaml --out e4 --set model.zoo=vit --set model.width=0 --set model.patch=5
expect 1 "training diverged" "$rubato" train job.yaml --out e5 --set model.zoo=mlp --set model.width=0 \
    --set model.activation=tanh --set data.one_hot=true \
    --set train.loss=mse --set "train.optimizer={sgd: {lr: 3}}" --set train.schedule=constant
for d in e5/checkpoints/0*; do
    [ ! -e "$d" ] || "$rubato" eval e5 >/dev/null 2>&1 || fail "e5: the checkpoint before the divergence cannot be read"
done

# outputs below a file, which no command can make
: >file
expect 73 "cannot make the folder file" "$rubato" train job.yaml --out file/run
expect 73 "cannot make the folder file" "$rubato" train job.yaml -w 2 --out file/run
expect 73 "cannot make the folder file" "$rubato" data make digits --out file/digits
expect 73 "cannot make the folder file" "$rubato" demo --out file
expect 73 "cannot create file/m.onnx" "$rubato" export whole --onnx file/m.onnx
expect 73 "cannot create file/m" "$rubato" export whole --safetensors file/m
expect 73 "cannot create file/p" "$rubato" trace whole --perfetto file/p
expect 73 "cannot create file/c" "$rubato" trace whole --chrome file/c
expect 73 "cannot make the folder file" "$rubato" trace whole --tensorboard file/t
"$rubato" export whole --onnx whole.onnx >/dev/null 2>&1
expect 73 "cannot create file/y.npz" "$rubato" run whole.onnx --random --dim N=1 --out file/y.npz
expect 2 "which the demo did not create" "$rubato" demo --out digits

# a file may not grow past 64 KiB: checkpoints do not fit
expect 73 "too large" sh -c "ulimit -f 128; exec $rubato train job.yaml --out e6"

# a disk of 3 MB (needs the right to mount)
mkdir small
if mount -t tmpfs -o size=3m tmpfs small 2>/dev/null; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    $train --out small/run --set train.steps=20 --set checkpoint.keep=1 || fail "3 MB should do for one checkpoint"
    before=$(newest small/run)
    free=$(df -k small | awk 'NR == 2 {print $4}')
    dd if=/dev/zero of=small/fill bs=1k count=$((free - 250)) 2>/dev/null # too little for a second one
    expect 73 "No space left" "$rubato" train job.yaml --out small/run --resume --set train.steps=60
    [ "$(newest small/run)" = "$before" ] || fail "the checkpoint of the full disk is gone"
    "$rubato" eval small/run >/dev/null || fail "the checkpoint on the full disk cannot be read"
    mount -o remount,ro small
    expect 73 "Read-only\|read-only" "$rubato" train job.yaml --out small/run --resume --set train.steps=60
else
    echo "skipped: no right to mount a small disk, so a full and a read-only one were not tried"
fi
if [ "$failed" -eq 0 ]; then
    echo "lab: all as it should be"
fi
exit "$failed"
