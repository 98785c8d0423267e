#!/bin/bash
# What a run directory is safe from: rundir.sh PATH_OF_RUBATO
#
#   1. two jobs in one folder, of one process or several: the second ends with 75 and changes nothing;
#      a job that was killed leaves the folder free at once; two jobs without --out get two folders.
#   2. --resume with a mistyped folder, or with damaged checkpoints only, fails and changes nothing;
#      settings that differ are named.
#   3. metrics.jsonl and --json tell every step once, whoever leads: after a kill and a resume, after the
#      leader's death, and after a leader stood still while another took over; wall time, samples/s and
#      time left count from the job's start.
#   4. a full disk under the traces ends the recording of each worker with one warning; training goes
#      on (needs root, for a small file system of its own).
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-rundir-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    umount "$work/full" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
. "$(dirname "$(realpath "$0")")/expect.sh"
cd "$work"
export XDG_CACHE_HOME="$work/cache"
started() { # RUN STEPS
    for _ in $(seq 1 1200); do
        [[ -f $1/metrics.jsonl && $(grep -c '"rubato.train.step/1"' "$1/metrics.jsonl") -ge $2 ]] && return
        sleep 0.1
    done
    fail "$1 does not get to step $2"
}
newest() { # RUN: its last whole checkpoint; one that is being written has .tmp behind its name
    ls "$1/checkpoints" 2>/dev/null | grep -x '[0-9]*' | tail -1 || true
}
# Everything a run holds, but the files that a running job writes all the time.
contents() { # RUN
    (cd "$1" && find . -type f ! -path './checkpoints/*' ! -path './trace/*' ! -name '*.jsonl' ! -name 'log*' ! -name 'world.json*' -exec md5sum {} + | sort)
}

"$rubato" data make digits --out digits --count 2000 --test 50 >/dev/null 2>&1
cat >mlp.yaml <<JOB
name: place
model: {zoo: mlp, hidden: [64]}
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 40, epochs: 2000, autotune: false, threads: 1}
checkpoint: {every: 100ms}
JOB
train="$rubato train mlp.yaml"

# -- 1
for workers in 1 2; do
    $train --out used -w $workers --set train.epochs=100000 >/dev/null 2>used.err &
    first=$!
    started used 20
    before=$(contents used)
    expect 75 "another job uses used (process $first on" $train --out used -w $((3 - workers))
    expect 75 "another job uses used" $train --out used -w $workers --resume
    [[ $before == "$(contents used)" ]] || fail "the refused job changed: $(diff <(echo "$before") <(contents used))"
    for _ in $(seq 1 3000); do [[ -n $(newest used) ]] && break || sleep 0.1; done
    kill -KILL $first
    wait $first 2>/dev/null || true
    steps=$(newest used)
    expect 0 "continues after step" $train --out used --resume -w $workers --set train.steps=$((10#$steps + 10))
    rm -rf used
done
for k in 1 2 3; do
    $train --set train.epochs=1 >folder.$k 2>folder.err.$k &
done
for k in 1 2 3; do wait -n || fail "jobs side by side: $(cat folder.err.*)"; done
[[ $(cat folder.? | sort -u | wc -l) -eq 3 ]] || fail "three jobs side by side have the folders $(cat folder.?)"

# -- 2
everything() { (cd "$1" && find . -type f ! -name lock -exec md5sum {} + | sort); }
for workers in 1 2; do
    expect 66 "there is nothing to resume: the folder mistyped does not exist" $train --out mistyped -w $workers --resume
    [[ ! -e mistyped ]] || fail "a mistyped folder was made"
    expect 0 . $train --out kept -w $workers --set train.steps=30
    expect 0 "with changed settings: train.steps 40 (was 30)" $train --out kept -w $workers --resume --set train.steps=40
    [[ $(ls kept/trace/*.trace | wc -l) -eq $((2 * workers)) ]] || fail "traces after a resume: $(ls kept/trace)"
    if [[ $workers -eq 1 ]]; then
        expect 0 "with changed settings: train.batch 20 (was 40)" $train --out kept --resume --set train.steps=50 --set train.batch=20
    else
        before=$(everything kept)
        expect 78 "a resumed run must keep its batch" $train --out kept -w 2 --resume --set train.steps=50 --set train.batch=20
        [[ $before == "$(everything kept)" ]] || fail "another batch changed: $(diff <(echo "$before") <(everything kept))"
    fi
    for dir in kept/checkpoints/*; do printf x | dd of="$dir/model.safetensors" bs=1 seek=200 conv=notrunc status=none; done
    before=$(everything kept)
    expect 65 "checkpoints.* damaged" $train --out kept -w $workers --resume --set train.steps=60
    [[ $before == "$(everything kept)" ]] || fail "a resume that failed changed: $(diff <(echo "$before") <(everything kept))"
    rm -rf kept
done

# -- 3
each_once() { # FILE WHAT: steps from 1 on, each once
    grep '"rubato.train.step/1"' "$1" | sed 's/.*"step":\([0-9]*\),.*/\1/' | awk -v what="$2" '
        $1 != NR { print "FAIL: " what ": step " $1 " stands where " NR " belongs"; exit 1 }
        END { print "ok: " what ": " NR " steps, each once" }' || failed=1
}
job="$train --set train.epochs=100000 --set checkpoint.every=300ms"
$job --out killed -w 1 >/dev/null 2>&1 &
pid=$!
started killed 50
for _ in $(seq 1 3000); do [[ -n $(newest killed) ]] && break || sleep 0.1; done
kill -KILL $pid
wait $pid 2>/dev/null || true
printf '{"schema":"rubato.train.step/1","step":12' >>killed/metrics.jsonl # half a line
last=$(newest killed)
told=$(grep -c '"rubato.train.step/1"' killed/metrics.jsonl)
expect 0 . $train --out killed --resume --set train.epochs=100000 --set train.steps=$((told + 100))
[[ $told -gt $((10#$last)) ]] || echo "note: nothing was told past the checkpoint"
each_once killed/metrics.jsonl "killed and resumed"

goes_on() { # RUN STEPS PID: it gets there; false: it ended before
    for _ in $(seq 1 3000); do
        [[ $(grep -c '"rubato.train.step/1"' "$1/metrics.jsonl") -ge $2 ]] && return 0
        kill -0 "$3" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}
for how in KILL STOP; do
    # A survivor that had no processor meanwhile cannot know what the other one did: then the job may end. Not three times.
    for try in 1 2 3; do
        run=leader$how$try
        begun=$(date +%s%N)
        $job --out $run -w 3 --json >$run.jsonl 2>$run.err &
        pid=$!
        started $run 100
        sleep 3 # the job gets old, so that its start and the takeover differ
        leader=$(pgrep -P $pid | head -1)
        kill -$how "$leader"
        for _ in $(seq 1 3000); do
            grep -q '"what":"lead"' $run/metrics.jsonl && break
            kill -0 $pid 2>/dev/null || break
            sleep 0.1
        done
        taken=$(grep -c '"rubato.train.step/1"' $run/metrics.jsonl)
        kill -CONT "$leader" 2>/dev/null || true
        goes_on $run $((taken + 200)) $pid && break
        echo "note: $run does not go on behind step $taken: $(tail -2 $run.err)"
        [[ $try -lt 3 ]] || fail "$run: the job does not outlive its leader: $(tail -5 $run.err)"
        kill -KILL $pid 2>/dev/null || true
        wait $pid || true
    done
    kill -TERM $pid
    wait $pid || [[ $how == STOP ]] || fail "$run exits $?: $(tail -2 $run.err)"
    took=$(($(date +%s%N) - begun))
    each_once $run/metrics.jsonl "SIG$how of the leader, metrics.jsonl"
    each_once $run.jsonl "SIG$how of the leader, --json"
    grep '"rubato.train.summary/1"' $run/metrics.jsonl | sed 's/.*"samples":\([0-9]*\),.*"wall_s":\([0-9.e+]*\),"samples_per_s":\([0-9.e+]*\),.*/\1 \2 \3/' |
        awk -v took="$((took / 1000000))" '
            { bad = $2 < 3 || $2 * 1000 > took || $3 * $2 < 0.99 * $1 || $3 * $2 > 1.01 * $1 }
            END { print (NR != 1 || bad ? "FAIL" : "ok") ": " NR " summary: " $1 " samples in " $2 " s of " took / 1000 " s, " $3 " samples/s"; exit NR != 1 || bad }' ||
        failed=1
done
mkdir full traced
if mount -t tmpfs -o size=200k tmpfs full 2>/dev/null; then
    ln -s "$work/full" traced/trace
    timeout 300 "$rubato" train mlp.yaml -w 2 --equal-shares -o traced --set train.epochs=0 --set train.steps=600 --set checkpoint.every=0s >out.txt 2>err.txt ||
        fail "a job whose traces fill their disk exits $?: $(tail -2 err.txt)"
    [[ $(grep -c '"rubato.train.step/1"' traced/metrics.jsonl) -eq 600 ]] || fail "a job whose traces fill their disk lacks steps"
    if [[ $(grep -c 'recording has stopped, and the run continues' err.txt) -eq 2 && $(grep -c 'No space left' err.txt) -eq 2 ]]; then
        echo "ok: two workers, a full disk, $(grep -c warn err.txt) warnings"
    else
        fail "a full disk under the traces: $(grep warn err.txt)"
    fi
    umount full
fi
exit $failed
