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
bound=$(run 32MiB $((base + 34)))
echo "with data.memory 32MiB in a group of $((base + 34)) MiB: $bound MB"
[[ $bound -le $((base + 34)) ]] || { echo "FAILED: more than 32 MiB above the base"; exit 1; }
kills=$("$group" figures "$name" | sed -n 's/^kills //p')
[[ $kills == 0 ]] || { echo "FAILED: the kernel ended ${kills:-an unknown number of} processes"; exit 1; }
echo "memory of reading ahead is bounded"
