#!/bin/sh
# Evaluations that go forward through the stages of a pipeline, as real processes: pipe_eval.sh PATH_OF_RUBATO
#
#   1. with every schedule, with late gradients, dropout, running statistics, a tied embedding and several workers of a stage, and
#      with a last batch that is shorter, the last evaluation has the figures of `rubato eval` of the checkpoint; all evaluations of
#      flush and gpipe have those of one process;
#   2. a target that an evaluation reaches ends the job with a checkpoint of that step; the best one is kept;
#   3. kill -9 of each worker within an evaluation, and a stop at last: losses and evaluations of an undisturbed run, and each is told
#      once.
. "$(dirname "$0")/parts.sh"

head='data: {format: synthetic, generator: digits, count: 240, test_count: 31}'
train='batch: 24, accumulate: 4, steps: 12, threads: 1, autotune: false, eval_every: 5, metrics: [top5, f1]'
cat >mlp.yaml <<JOB
name: mlp
model: {zoo: mlp, hidden: [90, 60, 40], dropout: 0.3}
$head
train: {$train, optimizer: {adam: {lr: 0.001}}}
JOB
cat >conv.yaml <<JOB
name: conv
model: {zoo: resnet18, width: 8}
$head
train: {$train, optimizer: {sgd: {lr: 0.05, momentum: 0.9}}}
JOB
cat >tied.yaml <<JOB
name: tied
model: {zoo: gpt, layers: 2, heads: 2, width: 16, context: 8, dropout: 0.1}
data: {format: synthetic, generator: grammar, count: 1000, test_count: 211}
train: {batch: 24, accumulate: 4, steps: 6, threads: 1, autotune: false, eval_every: 4, optimizer: {adamw: {lr: 0.003}}}
JOB
pipe() { # JOB OUT WORKERS PIPELINE OPTIONS..
    j=$1
    o=$2
    w=$3
    p=$4
    shift 4
    train "$j" "$o" -w "$w" --set train.parallel=pipeline --set "train.pipeline={$p}" "$@"
}
figures() { grep -o '"metric":{[^}]*}'; }
judged() { # RUN: its last evaluation is that of its checkpoint
    "$rubato" eval "$1" --json >"$1.eval" 2>"$1.eval.log" || fail "$1 cannot be evaluated: $(cat "$1.eval.log")"
    a=$(grep 'train.eval/1' "$1/metrics.jsonl" | tail -1 | figures)
    b=$(figures <"$1.eval")
    [ -n "$a" ] && [ "$a" = "$b" ] || fail "$1 evaluates to $a, and its checkpoint to $b"
    if grep -q 'evaluates the whole model by itself' "$1.log"; then fail "the leader of $1 evaluates alone: $(head -3 "$1.log")"; fi
}

for model in mlp conv tied; do
    train $model $model-one
done
pipe mlp mlp-2 2 'cut: [fc3]'
pipe mlp mlp-4 4 'cut: [fc2, fc3, fc4], schedule: gpipe'
pipe conv conv-4 4 'cut: [layer1.1.conv2, layer3.0.conv2, fc]'
pipe tied tied-3 3 'cut: [transformer.h.0.mlp, transformer.h.1.mlp]'
for run in mlp-2 mlp-4 conv-4 tied-3; do
    told ${run%-*}-one | grep eval/1 >a.txt
    told $run | grep eval/1 >b.txt
    [ -s a.txt ] || fail "${run%-*}-one has no evaluation"
    cmp -s a.txt b.txt || fail "$run evaluates to something else than one process: $(diff a.txt b.txt | head -4)"
    judged $run
done
pipe mlp mlp-several 4 'cut: [fc2, fc3], workers: [2, 1, 1]'
judged mlp-several
pipe mlp mlp-last 4 'cut: [fc3], workers: [2, 2]'
judged mlp-last
for schedule in stash vertical 2bw; do
    pipe mlp mlp-$schedule 3 "cut: [fc2, fc3], schedule: $schedule" --set train.stale=true
    judged mlp-$schedule
done
pipe mlp mlp-whole 3 'cut: [fc2, fc3], schedule: vertical' --set train.stale=true --set train.accumulate=1
judged mlp-whole
pipe tied tied-late 2 'cut: [transformer.h.1], schedule: stash' --set train.stale=true
judged tied-late

pipe mlp target 2 'cut: [fc3]' --set train.steps=1000000 --set 'train.until={loss: 100}' --set checkpoint.every=0s
[ "$(newest target)" = 5 ] || fail "a target that is reached at step 5 ends at $(newest target)"
judged target
pipe mlp best 2 'cut: [fc3]' --set checkpoint.keep_best=true
[ -e best/checkpoints/best ] || fail "the best checkpoint is not kept"
train mlp best-one --set checkpoint.keep_best=true
[ "$(readlink best/checkpoints/best)" = "$(readlink best-one/checkpoints/best)" ] || fail "another checkpoint is the best one"

# Batches of one sample, so that an evaluation takes long.
long='--set data.test_count=5003 --set train.eval_batch=1 --set checkpoint.every=0s --set train.parallel=pipeline'
# shellcheck disable=SC2086
"$rubato" train mlp.yaml --out hurt -w 3 --json $long --set 'train.pipeline={cut: [fc2, fc3]}' --set train.steps=1000000 >hurt.json 2>hurt.log &
job_pid=$!
evals() { grep -c 'train.eval/1' hurt.json || true; }
in_eval() {
    at=$(last_step hurt)
    [ "$at" -gt 0 ] && [ $((at % 5)) = 0 ] && [ "$(evals)" -lt $((at / 5)) ]
}
more_evals() { [ "$(evals)" -gt "$1" ]; }
within=0
for rank in 1 2 3; do
    hit=0
    for turn in 1 2 3 4 5 6 7 8; do
        wait_until hurt in_eval
        before=$(restarts hurt)
        n=$(evals)
        kill_one hurt $rank
        in_eval && hit=1 # it was not over
        wait_restart hurt "$before"
        wait_until hurt more_evals "$n"
        [ $hit = 0 ] || break
    done
    within=$((within + hit))
done
[ $within = 3 ] || fail "only $within of 3 workers were killed within an evaluation"
wait_until hurt in_eval # a stop comes behind it
ended hurt
[ "$(newest hurt)" = "$(last_step hurt)" ] || fail "a stop in the evaluation after step $(last_step hurt) saves $(newest hurt)"
# shellcheck disable=SC2086
train mlp calm -w 3 $long --set 'train.pipeline={cut: [fc2, fc3]}' --set train.steps="$(newest hurt)"
told hurt | grep step/1 >a.txt
told calm | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses are not those of an undisturbed run: $(diff a.txt b.txt | head -4)"
told hurt | grep eval/1 >a.txt
told calm | grep eval/1 | head -n "$(wc -l <a.txt)" >b.txt
cmp -s a.txt b.txt || fail "evaluations are not those of an undisturbed run: $(diff a.txt b.txt | head -4)"
[ "$(evals)" = "$(wc -l <a.txt)" ] || fail "--json tells $(evals) evaluations, and there are $(wc -l <a.txt)"
same hurt calm

[ "$failed" = 0 ] && echo "pipe_eval.sh: all passed"
exit "$failed"
