#!/bin/bash
# Where outputs go: outputs.sh PATH_OF_RUBATO
#
# Every command that writes a file writes the same bytes through a symbolic link (also to a file that
# is not there yet) and into a FIFO; links, FIFOs and devices stay what they are.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-outputs-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}

"$rubato" data make digits --out digits --count 200 --test 50 >/dev/null 2>&1
cat >mlp.yaml <<JOB
name: outputs
model: {zoo: mlp, hidden: [16]}
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, steps: 4, autotune: false, threads: 1}
JOB
"$rubato" train mlp.yaml -q --out trained >/dev/null
"$rubato" export trained --onnx model.onnx >/dev/null
# Of our own: whoever replaces one must not hurt the machine. A folder mounted nodev has none.
mknod device c 1 3 2>/dev/null && { : >device; } 2>/dev/null || rm -f device
ln -s /dev/full full

try() { # NAME COMMAND... with FILE where the output's name belongs
    local name=$1
    shift
    put() { # PATH
        local words=() word
        for word in "${command[@]}"; do words+=("${word/#FILE/$1}"); done
        timeout 300 "$rubato" "${words[@]}" >out.txt 2>&1 || fail "$name into $1: exit code $?: $(cat out.txt)"
    }
    local command=("$@")
    put "$name.plain"
    mkdir -p far
    ln -s "far/$name.end" "$name.link"
    put "$name.link"
    [[ -L $name.link ]] || fail "$name: the link was replaced"
    cmp "$name.plain" "far/$name.end" || fail "$name: other bytes through a link"
    echo old >"far/$name.end"
    put "$name.link"
    [[ -L $name.link ]] || fail "$name: the link to a file was replaced"
    cmp "$name.plain" "far/$name.end" || fail "$name: other bytes through a link to a file"
    mkfifo "$name.fifo"
    timeout 300 cat "$name.fifo" >"$name.read" &
    local reader=$!
    put "$name.fifo"
    [[ -p $name.fifo ]] || fail "$name: the FIFO was replaced"
    # Nobody opened a FIFO that was replaced: end its reader.
    [[ -p $name.fifo ]] && wait $reader || kill $reader 2>/dev/null || true
    cmp "$name.plain" "$name.read" || fail "$name: other bytes through a FIFO"
    if [[ -e device ]]; then
        put device
        [[ -c device ]] || fail "$name: the device was replaced"
    fi
    [[ -z $(find . -name '*.tmp-*') ]] || fail "$name: left $(find . -name '*.tmp-*')"
    if timeout 300 "$rubato" "${command[@]/#FILE/full}" >out.txt 2>&1; then
        fail "$name: a full device does not fail"
    elif ! grep -q 'No space left' out.txt; then
        fail "$name: a full device: $(cat out.txt)"
    fi
    if [[ $failed -eq 0 ]]; then echo "ok: $name"; fi
}
try npz run model.onnx --random --seed 1 --out FILE
try onnx export trained --onnx FILE
try safetensors export trained --safetensors FILE
try perfetto trace trained --perfetto FILE
try chrome trace trained --chrome FILE
exit $failed
