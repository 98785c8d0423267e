#!/bin/bash
# Checkpoints in the folders of `storage`: ckpt_storage.sh PATH_OF_RUBATO
#
# A run whose fast folder fills up, killed and resumed, has the bits of a run that keeps its checkpoints in its own
# folder; eval and export read them; store ls, verify and rm know them; where one is damaged, its run goes on from the one before.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-ckpt-storage-XXXXXX")
pids=()
trap 'for p in "${pids[@]}"; do kill -9 "$p" 2>/dev/null || true; done; umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" HOME="$work"
unset RUBATO_STORAGE || true
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
job() { # STEPS IN_STORAGE EVERY
    cat <<JOB
name: stored
model: {zoo: mlp, hidden: [64]}
data: {format: images, train: pictures/train, test: pictures/train}
train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 50, steps: $1, autotune: false, threads: 1}
checkpoint: {every: $3, keep: 2, in_storage: $2}
storage: [{path: fast, quota: 1MiB}, {path: slow, quota: 50MB}]
JOB
}
train() { # JOB OUT OPTION...
    local job=$1 out=$2
    shift 2
    timeout 500 "$rubato" train "$job" -q --out "$out" "$@" >/dev/null 2>err.txt || fail "train $out: $(cat err.txt)"
}
same() { # RUN RUN
    for run in "$1" "$2"; do "$rubato" export "$run" --safetensors "$run.st" >/dev/null 2>err.txt || fail "export $run: $(cat err.txt)"; done
    cmp "$1.st" "$2.st" || fail "$1 and $2 differ"
}
stored() { # RUN: keys of its checkpoints in storage
    "$rubato" store ls --job job.yaml | awk -v run="^$1-[0-9a-f]*/" '$1 ~ run && $1 !~ /safetensors|json/ {print $1}'
}

"$rubato" data make digits --out made --count 400 --test 20 >/dev/null 2>&1
"$rubato" data import made --to images --out pictures --name train >/dev/null 2>&1

# The same bits as in the run's folder; the fast folder has room for a part of the files.
job 40 true 0s >job.yaml
job 40 false 0s >plain.yaml
train plain.yaml plain
train job.yaml run --set checkpoint.keep_best=true --set train.eval_every=8
same plain run
[[ -f run/checkpoints/best/storage.json ]] || fail "the best checkpoint is not there: $(ls run/checkpoints)"
[[ $(ls run/checkpoints/000000040) == $'manifest.json\nstate.json\nstorage.json' ]] || fail "the run's folder has $(ls run/checkpoints/000000040)"
"$rubato" eval run >/dev/null 2>err.txt || fail "eval: $(cat err.txt)"

# Killed while it writes checkpoints all the time, and resumed: the bits of a run that was not. Files of the killed one are gone.
job 100000000 true 1ms >long.yaml
"$rubato" train long.yaml -q --out cut >/dev/null 2>&1 &
pid=$!
pids+=("$pid")
until ls cut/checkpoints 2>/dev/null | grep -qx '0*[1-9][0-9]*'; do
    kill -0 $pid 2>/dev/null || { fail "the long run ended"; break; }
    sleep 0.02
done
kill -9 $pid
wait $pid 2>/dev/null || true
done=$(ls cut/checkpoints | grep -x '[0-9]*' | tail -1)
steps=$((10#$done + 40))
train job.yaml cut --resume --set train.steps=$steps --set checkpoint.every=0s
train plain.yaml whole --set train.steps=$steps
same whole cut
! ls cut/checkpoints | grep -q tmp || fail "left: $(ls cut/checkpoints)"
[[ $(stored cut | wc -l) -eq 2 ]] || fail "in storage stands: $(stored cut)"
parts=$(find fast slow -name '*.part' | wc -l)
[[ $parts -ge 9 && -n $(find fast -name '*.part') && -n $(find slow -name '*.part') ]] || fail "$parts parts: $(find fast slow -name '*.part')"

# Two workers that resume together.
train job.yaml pair -w 2
train job.yaml pair -w 2 --resume --set train.steps=60
"$rubato" eval pair >/dev/null 2>err.txt || fail "eval of two workers: $(cat err.txt)"
[[ -f pair/checkpoints/000000060/storage.json ]] || fail "two workers: $(ls pair/checkpoints)"

# What stands there is compared; a flipped bit is found, and the run goes on from the checkpoint before.
"$rubato" store verify --job job.yaml >out.txt 2>err.txt || fail "verify: $(cat err.txt)"
[[ $(grep -c '/checkpoints\|cut-' out.txt) -ge 2 ]] || fail "verify says $(cat out.txt)"
key=$(stored cut | tail -1)
"$rubato" store explain --job job.yaml "$key" >out.txt 2>err.txt || fail "explain: $(cat err.txt)"
grep -q "a checkpoint of the run in $PWD/cut, which still has it" out.txt && grep -q 'model.safetensors: .* in ' out.txt || fail "explain: $(cat out.txt)"
rc=0
"$rubato" store rm --job job.yaml "$key" >/dev/null 2>err.txt || rc=$?
[[ $rc -eq 75 ]] && grep -q 'is a checkpoint of the run in' err.txt || fail "rm of a run's checkpoint: $rc, $(cat err.txt)"
part=$(find fast slow -name '*.part' -size +100k -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2)
byte=$(od -An -tu1 -j50000 -N1 "$part")
printf "\\x$(printf %02x $((byte ^ 8)))" | dd of="$part" bs=1 seek=50000 conv=notrunc status=none
rc=0
"$rubato" store verify --job job.yaml >out.txt 2>err.txt || rc=$?
[[ $rc -eq 65 ]] && grep -q '1 checkpoints are damaged' err.txt || fail "verify of a flipped bit: $rc, $(cat err.txt)"
train job.yaml pair --resume --set train.steps=60
[[ -d pair/checkpoints/000000060.damaged && -d pair/checkpoints/000000060 ]] || fail "after a flipped bit: $(ls pair/checkpoints)"
"$rubato" eval pair >/dev/null 2>err.txt || fail "eval after a flipped bit: $(cat err.txt)"

# Without its folder a run's checkpoints can be removed.
rm -rf cut
for key in $(stored cut); do
    "$rubato" store rm --job job.yaml "$key" >/dev/null 2>err.txt || fail "rm $key: $(cat err.txt)"
done
[[ -z $(stored cut) ]] || fail "rm left $(stored cut)"

# A disk that is full before its quota is used: files go on on the next one, or begin there (needs root).
mkdir small
if mount -t tmpfs -o size=300k tmpfs small 2>/dev/null; then
    train job.yaml spills --set 'storage=[{path: small/kept, quota: 10MiB}, {path: slow, quota: 50MB}]'
    train plain.yaml run40
    same run40 spills
    [[ -n $(find small -name '*.part' -size +0) ]] || fail "the small disk has nothing"
    umount small
else
    echo "ok: no file system can be mounted here, so none of them is full"
fi

# No room anywhere, and no folders.
rc=0
"$rubato" train job.yaml -q --out full --set 'storage=[{path: tiny, quota: 1MiB}]' --set 'model.hidden=[1000]' >/dev/null 2>err.txt || rc=$?
[[ $rc -eq 73 ]] && grep -q 'no room for' err.txt || fail "no room: exit code $rc: $(cat err.txt)"
rc=0
"$rubato" train job.yaml -q --out none --set 'storage=[]' >/dev/null 2>err.txt || rc=$?
[[ $rc -eq 78 ]] && grep -q 'checkpoint.in_storage' err.txt || fail "no folder: exit code $rc: $(cat err.txt)"

# The disk is away: nothing is taken for damaged.
mv slow away
rc=0
"$rubato" eval run >/dev/null 2>err.txt || rc=$?
[[ $rc -eq 74 ]] && grep -q 'make the disk available' err.txt || fail "without the slow folder: exit code $rc: $(cat err.txt)"
mv away slow
"$rubato" eval run >/dev/null 2>err.txt || fail "eval again: $(cat err.txt)"
if [[ $failed -eq 0 ]]; then echo "ok: ckpt_storage"; fi
exit $failed
