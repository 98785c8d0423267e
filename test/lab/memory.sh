#!/bin/bash
# What is read ahead stays within data.memory, measured by processes of a job in a memory control
# group: memory.sh PATH_OF_RUBATO
#
# A batch has 8 MiB. With 1 MiB of data.memory two batches and nothing more are held; that is the
# base. A job with 32 MiB may need so much more at most, also where the kernel enforces it; a job with
# much memory needs more than that, which shows that the bound is what holds the others back. A step
# takes longer than reading its batch, so that batches wait.
set -euo pipefail
rubato=$(realpath "$1")
group=$(realpath "$(dirname "$0")/group.sh") name=memory-$$
"$group" check memory || exit $?
dir=$(mktemp -d)
trap 'cd /; rm -rf "$dir"; "$group" down "$name"' EXIT
"$group" make "$name" memory
cd "$dir"

# npy NAME DESCR SHAPE BYTES: zeros that need no space on the disk
npy() {
    local head="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    {
        printf '\x93NUMPY\x01\x00\x76\x00'
        printf '%-117s\n' "$head"
    } > "$1"
    truncate -s $((128 + $4)) "$1"
}
npy x.npy '<f4' '1920, 16384' $((1920 * 16384 * 4))
npy y.npy '<i8' '1920,' $((1920 * 8))
cat > job.yaml <<'YAML'
model: {zoo: mlp, hidden: [64]}
data: {format: npy, train: [x.npy, y.npy], classes: 10}
train: {batch: 128, epochs: 3, threads: 1}
YAML

# run MEMORY LIMIT_MIB: peak memory of the job [MB]
run() {
    "$group" memory "$name" $(($2 << 20))
    rm -rf run
    "$group" in "$name" "$rubato" train job.yaml --set data.memory="$1" --out run > log 2>&1 || {
        cat log >&2
        echo "FAILED: the job with data.memory $1 and $2 MiB for all ended with code $?" >&2
        exit 1
    }
    sed -n 's/.*peak memory \([0-9]*\) MB.*/\1/p' log
}
base=$(run 1MiB 4096)
most=0
for _ in $(seq 10); do # on a busy machine the trainer may be as fast as the reading threads
    now=$(run 1GiB 4096)
    most=$((now > most ? now : most))
    [[ $most -le $((base + 34)) ]] || break
done
echo "base $base MB, without a bound $most MB"
[[ $most -gt $((base + 34)) ]] || { echo "FAILED: reading ahead takes no memory; the test shows nothing"; exit 1; }
for _ in 1 2 3; do # the base, too, is by some luck a page more or less
    bound=$(run 32MiB $((base + 34)))
    [[ $bound -gt $((base + 34)) ]] || break
    again=$(run 1MiB 4096)
    base=$((again > base ? again : base))
done
echo "with data.memory 32MiB in a group of $((base + 34)) MiB: $bound MB"
[[ $bound -le $((base + 34)) ]] || { echo "FAILED: more than 32 MiB above the base"; exit 1; }
kills=$("$group" figures "$name" | sed -n 's/^kills //p')
[[ $kills == 0 ]] || { echo "FAILED: the kernel ended ${kills:-an unknown number of} processes"; exit 1; }
echo "memory of reading ahead is bounded"

unset MALLOC_PERTURB_ # it touches memory that is set aside and never used

# A job that chooses how its workers divide it, in a group into which one worker's step hardly fits: what fits is taken.
cat > big.yaml <<'YAML'
model: {zoo: resnet18, width: 8}
data: {format: synthetic, generator: digits, count: 240}
train: {batch: 240, steps: 2, threads: 1, autotune: false}
YAML
"$group" memory "$name" $((360 << 20))
"$group" in "$name" "$rubato" train big.yaml -w 2 --set train.parallel=auto --out big > log 2>&1 || { cat log; echo "FAILED: what fits is ended"; exit 1; }
grep -q 'which needs [0-9]* of the [0-9]* bytes of a worker.*; trains ' log || { cat log; echo "FAILED: what does not fit is not told"; exit 1; }
kills=$("$group" figures "$name" | sed -n 's/^kills //p')
[[ $kills == 0 ]] || { echo "FAILED: the kernel ended ${kills:-an unknown number of} processes that chose how to run"; exit 1; }

# What a device of a placed step needs is what its executables planned.
device() { # BATCH: bytes that the leader's device planned, and the peak of its process
    rm -rf big
    "$rubato" train big.yaml -w 2 --set train.batch="$1" --set train.parallel=placed --set 'train.placed.devices={layer2: 2, layer3: 2, layer4: 2}' \
        --out big > log 2>&1 || { cat log >&2; echo "FAILED: a placed step of $1 samples" >&2; exit 1; }
    "$rubato" explain big place --json | grep -o '"planned_bytes":[0-9]*' | head -1 | sed 's/.*://'
    sed -n 's/.*peak memory \([0-9]*\) MB.*/\1000000/p' log
}
for _ in 1 2 3; do
    mapfile -t few < <(device 24)
    mapfile -t many < <(device 240)
    plan=$((many[0] - few[0])) peak=$((many[1] - few[1]))
    echo "240 samples instead of 24: $plan bytes more are planned, the peak is $peak higher"
    near=$((peak * 10 <= plan * 11 && peak * 10 >= plan * 9))
    [[ $near -eq 0 ]] || break
done
[[ $near -eq 1 ]] || { echo "FAILED: the peak is not what was planned"; exit 1; }
echo "parts of a step keep within their memory"
