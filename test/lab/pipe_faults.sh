#!/bin/sh
# Pipelines whose machine misbehaves, as real processes: pipe_faults.sh PATH_OF_RUBATO
#
#   1. each worker is frozen for 3 s and woken, two neighbours are killed at once, and the leader again and again as soon as
#      steps are told, while its first sets complete: losses of an undisturbed run, and each step is told once;
#   2. a disk that is full at a checkpoint ends the job with a sentence, and --resume continues from the newest whole one to
#      the bytes of an undisturbed run (needs the right to mount);
#   3. fewer micro-batches than stages, and epochs that end within a batch: losses of one process.
. "$(dirname "$0")/parts.sh"
trap 'umount "$work/full/checkpoints" 2>/dev/null || true; cleanup' EXIT

cat >mlp.yaml <<JOB
name: mlp
model: {zoo: mlp, hidden: [90, 60, 40], dropout: 0.3}
data: {format: synthetic, generator: digits, count: 240, test_count: 30}
train: {batch: 24, accumulate: 4, steps: 1000000, eval_every: 10000000, threads: 1, autotune: false, parallel: pipeline, pipeline: {cut: [fc2, fc3]}, optimizer: {adam: {lr: 0.001}}}
checkpoint: {every: 0s}
JOB
"$rubato" train mlp.yaml --out hurt -w 3 --json >hurt.json 2>hurt.log &
job_pid=$!
goes_on() { wait_until hurt past hurt $(($(last_step hurt) + 5)); }
goes_on
for rank in 2 3 1; do
    wait_until hurt runs $rank
    frozen=$victim
    kill -STOP "$frozen" || fail "worker $rank does not run"
    sleep 3
    kill -CONT "$frozen" 2>/dev/null || true # another one may have its place
    goes_on
done
wait_until hurt runs 2
other=$victim
wait_until hurt runs 3
before=$(restarts hurt)
kill -9 "$other" "$victim" || fail "workers 2 and 3 do not run"
wait_restart hurt "$before"
goes_on
for k in 1 2 3 4 5 6; do
    before=$(restarts hurt)
    kill_one hurt 1
    wait_restart hurt "$before"
    wait_until hurt past hurt $(($(last_step hurt) + k % 3))
done
goes_on
ended hurt
grep -q 'all stages start again from their copies in memory after step' hurt.log || fail "nobody has copies: $(tail -5 hurt.log)"
train mlp calm -w 3 --set train.steps="$(newest hurt)"
told hurt | grep step/1 >a.txt
told calm | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses are not those of an undisturbed run: $(diff a.txt b.txt | head -4)"
same hurt calm
[ -z "$(steps hurt | uniq -d)" ] && steps hurt | sort -nc || fail "--json tells a step twice"

mkdir -p full/checkpoints
if mount -t tmpfs -o size=3m tmpfs full/checkpoints 2>/dev/null; then
    code=0
    timeout 300 "$rubato" train mlp.yaml --out full -w 3 --set checkpoint.every=50ms --set checkpoint.keep=1000 >full.log 2>&1 || code=$?
    [ "$code" = 73 ] && grep -q 'No space left' full.log || fail "a full disk ends with $code: $(tail -3 full.log)"
    at=$(newest full)
    [ "$at" -gt 0 ] || fail "the full disk has no checkpoint: $(tail -3 full.log)"
    mount -o remount,size=30m full/checkpoints
    train mlp full -w 3 --resume --set train.steps=$((at + 9))
    train mlp room -w 3 --set train.steps=$((at + 9))
    same full room
else
    echo "skipped: no right to mount a small disk, so a full one was not tried"
fi
# Fewer micro-batches than stages, and epochs that end within a batch.
train mlp odd -w 3 --set data.count=250 --set train.accumulate=2 --set train.steps=0 --set train.epochs=2
train mlp odd-one --set train.parallel=data --set data.count=250 --set train.accumulate=2 --set train.steps=0 --set train.epochs=2
told odd | grep step/1 >a.txt
told odd-one | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses of 2 micro-batches on 3 stages are not those of one process: $(diff a.txt b.txt | head -4)"
same odd odd-one
[ $failed = 0 ] && echo "ok: frozen and woken workers, two at once, the leader, and a full disk"
exit $failed
