#!/bin/bash
# What `rubato store` says of kept samples: store.sh PATH_OF_RUBATO
#
# A run keeps its samples; top, ls and explain say what, why and what that saved; a flipped bit is found and the next
# run reads that sample from its source; a dataset is not removed while a job uses it, and is when the job is gone.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-store-XXXXXX")
pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; umount "$work/fixed" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" HOME="$work"
unset RUBATO_STORAGE || true
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
job() { # CACHE STEPS
    cat <<JOB
name: store
model: {zoo: mlp, hidden: [16]}
data: {format: images, train: pictures/train, cache: $1}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 50, steps: $2, autotune: false, threads: 1}
storage: [{path: kept, quota: 20MB}, {path: slow, quota: 20MB}]
JOB
}
"$rubato" data make digits --out made --count 400 --test 20 >/dev/null 2>&1
"$rubato" data import made --to images --out pictures --name train >/dev/null 2>&1

rc=0
"$rubato" store ls >out.txt 2>err.txt || rc=$?
[[ $rc -eq 2 ]] || fail "without a folder: exit code $rc: $(cat err.txt)"
job decoded 24 >job.yaml
"$rubato" store ls --job job.yaml >out.txt || fail "before the first run"
"$rubato" train job.yaml -q --out one >/dev/null 2>err.txt || fail "train: $(cat err.txt)"
"$rubato" store ls --job job.yaml >out.txt || fail "ls"
key=$(awk '/pictures.train/ {print $1}' out.txt | sort -u)
[[ $key =~ ^[0-9a-f]{12}$ ]] || fail "ls shows no key: $(cat out.txt)"
grep -q 'decoded.*kept  *400  *400 ' out.txt || fail "ls: $(cat out.txt)"
echo 'storage: [{path: kept, quota: 20MB}, {path: slow, quota: 20MB}]' >folders.yaml
RUBATO_STORAGE=folders.yaml "$rubato" store ls >named.txt || fail "folders that RUBATO_STORAGE names"
diff <(awk '{print $1, $2, $3, $4}' out.txt) <(awk '{print $1, $2, $3, $4}' named.txt) || fail "RUBATO_STORAGE: other folders"
"$rubato" store top --job job.yaml --json >out.txt || fail "top"
grep -qE '"records":400,"reads":[0-9]{4},"hits":0.[0-9]+' out.txt || fail "top: $(cat out.txt)"
"$rubato" store explain --job job.yaml "${key:0:6}" >out.txt || fail "explain"
grep -q 'data.cache: decoded in the job' out.txt || fail "explain says no reason: $(cat out.txt)"
grep -qE '[0-9]+ of [0-9]{4} reads of 1 processes' out.txt || fail "explain says not what was measured: $(cat out.txt)"
"$rubato" store verify --job job.yaml >out.txt || fail "verify of what is whole: $(cat out.txt)"

# Folders of others among those of programs.
mkdir -p "slow/files/not ours"
"$rubato" store ls --job job.yaml >out.txt || fail "ls beside a folder of somebody else"

# One bit of a record.
segment=$(ls kept/samples/*/*.seg)
byte=$(od -An -tu1 -j5000 -N1 "$segment")
printf "\\x$(printf %02x $((byte ^ 8)))" | dd of="$segment" bs=1 seek=5000 conv=notrunc status=none
rc=0
"$rubato" store verify --job job.yaml "$key" >out.txt 2>err.txt || rc=$?
[[ $rc -eq 65 ]] && grep -q '1 of 400 kept records are damaged' err.txt || fail "verify of a flipped bit: $rc, $(cat err.txt)"
"$rubato" train job.yaml -q --out two >/dev/null 2>err.txt || fail "train on a flipped bit: $(cat err.txt)"
grep -q '1 kept samples of' err.txt || fail "a flipped bit is not told: $(cat err.txt)"
for run in one two; do "$rubato" export $run --safetensors $run.st >/dev/null 2>&1; done
cmp one.st two.st || fail "a flipped bit changes the weights"

# A job that uses it.
job decoded 100000000 >long.yaml
"$rubato" train long.yaml -q --out long >/dev/null 2>&1 &
pid=$!
pids+=("$pid")
for _ in $(seq 1 6000); do
    ! grep -q '"in_use":true' <<<"$("$rubato" store ls --job job.yaml --json)" || break
    kill -0 $pid || break
    sleep 0.05
done
rc=0
"$rubato" store rm --job job.yaml "$key" >out.txt 2>err.txt || rc=$?
[[ $rc -eq 75 ]] && grep -q 'uses' err.txt || fail "rm under a job: exit code $rc: $(cat err.txt)"
kill -9 $pid
wait $pid 2>/dev/null || true
"$rubato" store rm --job job.yaml "$key" >out.txt 2>err.txt || fail "rm: $(cat err.txt)"
"$rubato" store ls --job job.yaml >out.txt
! grep -q "$key" out.txt || fail "rm left $(cat out.txt)"
[[ -z $(find kept slow -name '*.seg') ]] || fail "rm left segments"

# What the policy chose says so.
job auto 24 >auto.yaml
"$rubato" train auto.yaml -q --out auto >/dev/null 2>err.txt || fail "auto: $(cat err.txt)"
"$rubato" store explain --job auto.yaml >out.txt || fail "explain of auto"
if [[ -n $(find kept slow -name '*.seg') ]]; then
    id=$(awk '/plan [0-9a-f]+$/ {print $NF}' out.txt | head -n 1)
    [[ -n $id ]] && grep -q "$id" auto/plans/installed.jsonl || fail "the plan is none of the run: $(cat out.txt)"
fi

# Links, `..`, letters of other scripts: one folder by several names, and two jobs in it at one time.
mkdir -p "wahr ä"
ln -s "wahr ä" link
job decoded 24 >here.yaml
sed -i 's|^storage: .*|storage: [{path: "link/../wahr ä/日", quota: 20MB}]|' here.yaml
sed 's|link/../wahr ä|link|' here.yaml >there.yaml
"$rubato" train here.yaml -q --out here >/dev/null 2>here.txt &
one=$!
"$rubato" train there.yaml -q --out there >/dev/null 2>there.txt &
two=$!
pids+=("$one" "$two")
wait "$one" || fail "a folder with ..: $(cat here.txt)"
wait "$two" || fail "a folder behind a link: $(cat there.txt)"
"$rubato" export here --safetensors here.st >/dev/null && "$rubato" export there --safetensors there.st >/dev/null && cmp here.st there.st ||
    fail "two jobs with one folder learned other things"
"$rubato" train there.yaml --out again >/dev/null 2>err.txt || fail "once more: $(cat err.txt)"
grep -q '400 of 400 are kept' err.txt || fail "what two jobs kept is not found: $(cat err.txt)"
"$rubato" store verify --job there.yaml >out.txt 2>&1 || fail "verify after two jobs: $(cat out.txt)"

# A file system that is read-only: its folder is left out with a warning, the next one is used, and store tells both.
mkdir -p fixed
if mount -t tmpfs -o size=1m tmpfs fixed 2>/dev/null && mount -o remount,ro fixed 2>/dev/null; then
    job decoded 24 | sed 's|path: kept|path: fixed|; s|path: slow|path: after|' >fixed.yaml
    "$rubato" train fixed.yaml --out fixed-run >/dev/null 2>err.txt || fail "a read-only folder ends the run: $(cat err.txt)"
    grep -q 'Read-only file system' err.txt || fail "a read-only folder is not told: $(cat err.txt)"
    if grep -q 'does not say what it holds' err.txt; then fail "a folder that holds nothing should say so: $(cat err.txt)"; fi
    [[ -n $(find after -name '*.seg') ]] || fail "the next folder is not used"
    for what in top ls verify explain; do
        "$rubato" store $what --job fixed.yaml >out.txt 2>err.txt || fail "store $what beside a read-only folder: $(cat err.txt)"
    done
fi
umount fixed 2>/dev/null || true
if [[ $failed -eq 0 ]]; then echo "ok: store"; fi
exit $failed
