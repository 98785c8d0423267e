#!/bin/sh
# Pipelines whose gradients are late, as real processes: stale.sh PATH_OF_RUBATO PATH_OF_PIPE_RULE
#
#   1. stash, vertical and 2bw have the bits of their rules after 50 steps, on two and four stages; other rules have others; so with
#      several micro-batches in a step, and with several workers of a stage;
#   2. residuals, running statistics and a transformer too;
#   3. a checkpoint is of one step in all stages: a run that stops and goes on has the bits of the rule with that drain;
#   4. kill -9 of a worker: all stages start again from copies in memory or the newest checkpoint, to the bits of the rule;
#   5. what cannot be is refused before the first step.
. "$(dirname "$0")/parts.sh"

digits='data: {format: synthetic, generator: digits, count: 250, test_count: 30}'
cat >mlp.yaml <<JOB
name: mlp
model: {zoo: mlp, hidden: [90, 40, 30], dropout: 0.3}
$digits
train: {batch: 24, steps: 50, threads: 1, autotune: false, stale: true, eval_every: 20, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 4}}}
JOB
cat >conv.yaml <<JOB
name: conv
model: {zoo: resnet18, width: 4}
$digits
train: {batch: 12, steps: 12, threads: 1, autotune: false, stale: true, eval_every: 9, optimizer: {sgd: {lr: 0.05, momentum: 0.9}},
  groups: [{match: "conv1.*", freeze: true}]}
JOB
cat >gpt.yaml <<JOB
name: gpt
model: {zoo: gpt, layers: 3, heads: 2, width: 16, context: 16, tie: false}
data: {format: synthetic, generator: grammar, count: 300, test_count: 20}
train: {batch: 8, steps: 20, threads: 1, autotune: false, stale: true, eval_every: 8, optimizer: {adamw: {lr: 0.001}}}
JOB
pipe() { # JOB OUT WORKERS PIPELINE OPTIONS..
    job=$1
    out=$2
    w=$3
    p=$4
    shift 4
    timeout 300 "$rubato" train "$job.yaml" --out "$out" -w "$w" --set train.parallel=pipeline --set "train.pipeline={$p}" "$@" >"$out.log" 2>&1 ||
        fail "$out: $(tail -3 "$out.log")"
}
ruled() { # RUN [as KIND] [STEP..]
    timeout 300 "$rule" "$@" >rule.log 2>&1 || fail "$1 has not the bits of the rule: $(cat rule.log)"
}
differs() { # RUN KIND
    ! timeout 300 "$rule" "$1" as "$2" >rule.log 2>&1 || fail "$1 has the bits of the rule $2"
    grep -q 'differs from that of the rule' rule.log || fail "$1, $2: $(cat rule.log)"
}

for schedule in stash vertical; do
    pipe mlp $schedule-2 2 "cut: [fc3], schedule: $schedule"
    pipe mlp $schedule-4 4 "cut: [fc2, fc3, fc4], schedule: $schedule"
    for run in $schedule-2 $schedule-4; do
        ruled $run
        differs $run naive
        differs $run flush
    done
done
differs stash-4 vertical
differs vertical-4 stash
grep -q 'late by 3, 2, 1 and 0 steps, and they keep 5, 4, 3 and 1 versions' stash-4/log || fail "it is not told how late gradients are"
grep -q 'late by 3, 3, 3 and 3 steps, and they keep 5, 5, 5 and 5 versions' vertical-4/log || fail "it is not told how late gradients are"
"$rubato" explain stash-4 pipe --if network=x0.5 >explained.txt || fail "explain says nothing"
grep -q 'a step of 1 micro-batches (stash)' explained.txt || fail "explain shows another schedule"
[ "$(sed -n '/^memory of the stages/,/^links/p' explained.txt | awk '$1 ~ /^[1-4]$/ { printf "%s:%s ", $2, $3 }')" = "3:5 2:4 1:3 0:1 " ] ||
    fail "explain does not show the versions: $(cat explained.txt)"
# 2bw: one update late in all stages, with several workers and a parameter of two stages too.
pipe mlp two-2 2 'cut: [fc3], schedule: 2bw' --set train.accumulate=2
pipe mlp two-4 4 'cut: [fc2, fc3, fc4], schedule: 2bw' --set train.accumulate=8
pipe mlp two-21 3 'cut: [fc3], workers: [2, 1], schedule: 2bw' --set train.accumulate=4
pipe gpt two-gpt 2 'cut: [transformer.h.1], schedule: 2bw' --set train.accumulate=4 --set model.tie=true
pipe conv two-conv 3 'cut: [layer2, layer4], schedule: 2bw' --set train.accumulate=3
for run in two-2 two-4 two-21 two-gpt two-conv; do
    ruled $run
    differs $run flush
done
ruled two-4 as vertical # the same rule, with so many micro-batches
differs two-4 stash
grep -q 'late by 1, 1, 1 and 1 steps, and they keep 2, 2, 2 and 2 versions' two-4/log || fail "2bw does not tell how late gradients are"
"$rubato" explain two-4 pipe --if network=x0.5 >explained.txt || fail "explain says nothing of 2bw"
[ "$(sed -n '/^memory of the stages/,/^links/p' explained.txt | awk '$1 ~ /^[1-4]$/ { printf "%s:%s ", $2, $3 }')" = "1:2 1:2 1:2 1:2 " ] ||
    fail "explain does not show the versions of 2bw: $(cat explained.txt)"
# Several micro-batches in a step, and several workers of a stage: all of them update by the sum of their gradients.
pipe mlp stash-42 4 'cut: [fc2, fc3, fc4], schedule: stash' --set train.accumulate=2
pipe mlp vertical-42 4 'cut: [fc2, fc3, fc4], schedule: vertical' --set train.accumulate=2
pipe mlp stash-21 3 'cut: [fc3], workers: [2, 1], schedule: stash' --set train.accumulate=2
pipe mlp vertical-2111 5 'cut: [fc2, fc3, fc4], workers: [2, 1, 1, 1], schedule: vertical' --set train.accumulate=2
pipe mlp stash-431 8 'cut: [fc3, fc4], workers: [4, 3, 1], schedule: stash' --set train.accumulate=12
pipe gpt tied-21 4 'cut: [transformer.h.1, transformer.h.2], workers: [2, 1, 1], schedule: stash' --set train.accumulate=2 --set model.tie=true
for run in stash-42 vertical-42 stash-21 vertical-2111 stash-431 tied-21; do
    ruled $run
    differs $run flush
    differs $run naive
    differs $run 2bw
done
differs stash-42 vertical
differs vertical-42 stash
grep -q 'batches of 2 micro-batches of 12 samples .* late by 2, 1, 1 and 0 steps, and they keep 5, 4, 3 and 1 versions' stash-42/log ||
    fail "stash-42 does not tell how late gradients are: $(cat stash-42/log)"
grep -q 'workers .* and .* from the input.* late by 2, 2, 2 and 2 steps, and they keep 3, 3, 3 and 3 versions' vertical-2111/log ||
    fail "vertical-2111 does not tell how late gradients are: $(cat vertical-2111/log)"
"$rubato" explain stash-21 pipe >explained.txt || fail "explain says nothing of stash-21"
[ "$(sed -n '/^memory of the workers/,$p' explained.txt | awk '$1 ~ /^[12]$/ { printf "%s:%s:%s ", $1, $3, $4 }')" = "1:1:3 1:1:3 2:0:1 " ] ||
    fail "explain does not show what workers of a stage keep: $(cat explained.txt)"
# With forward parts that run again, with the weights of the first time.
pipe mlp again-21 3 'cut: [fc3], workers: [2, 1], schedule: stash' --set train.accumulate=2 --set train.recompute=true
pipe mlp again-42 4 'cut: [fc2, fc3, fc4], schedule: vertical' --set train.accumulate=2 --set train.recompute=true
same again-21 stash-21
same again-42 vertical-42
pipe mlp more 3 'cut: [fc3], workers: [2, 1], schedule: stash' --set train.accumulate=4 --set train.steps=7
pipe mlp more 3 'cut: [fc3], workers: [2, 1], schedule: stash' --resume --set train.accumulate=4 --set train.steps=17
ruled more 7
! timeout 300 "$rule" more >rule.log 2>&1 || fail "a resumed run of several workers has the bits of one that did not drain"
# With the least rate the gradients stay, so that running statistics are those of flush.
for schedule in 2bw flush; do
    pipe conv still-$schedule 3 "cut: [layer2, layer4], schedule: $schedule" --set train.accumulate=3 --set 'train.optimizer={sgd: {lr: 1e-30, momentum: 0.9}}'
done
same still-2bw still-flush
pipe mlp two-7 2 'cut: [fc3], schedule: 2bw' --set train.accumulate=2 --set train.steps=7
pipe mlp two-7 2 'cut: [fc3], schedule: 2bw' --resume --set train.accumulate=2 --set train.steps=17
ruled two-7 7
! timeout 300 "$rule" two-7 >rule.log 2>&1 || fail "a resumed run has the bits of one that did not drain"
pipe conv conv 3 'cut: [layer2, layer4], schedule: stash'
pipe gpt gpt 3 'cut: [transformer.h.1, transformer.h.2], schedule: stash'
pipe gpt tied 3 'cut: [transformer.h.1, transformer.h.2], schedule: stash' --set model.tie=true
pipe gpt tied-vertical 4 'cut: [transformer.h.0.mlp, transformer.h.1, transformer.h.2], schedule: vertical' --set model.tie=true
ruled conv
ruled gpt
for run in tied tied-vertical; do
    ruled $run
    differs $run flush
done
differs tied vertical
pipe gpt part 3 'cut: [transformer.h.1, transformer.h.2], schedule: stash' --set model.tie=true --set train.steps=10
pipe gpt part 3 'cut: [transformer.h.1, transformer.h.2], schedule: stash' --resume --set model.tie=true
ruled part 10
"$rubato" eval conv >/dev/null || fail "eval does not read its checkpoint"

start() { # OUT EVERY PIPELINE OPTIONS..: in the background, without end
    out=$1
    every=$2
    p=$3
    shift 3
    "$rubato" train mlp.yaml --out "$out" -w 3 --set train.parallel=pipeline --set "train.pipeline={$p, schedule: stash}" "$@" \
        --set train.steps=1000000 --set train.eval_every=10000000 --set checkpoint.every="$every" --set checkpoint.keep=1000 >"$out.log" 2>&1 &
    job_pid=$!
}
# The stop signal drains: where it does is the only place.
start stop 1h 'cut: [fc2, fc3]'
told_lines() { [ "$(cat stop/metrics.jsonl 2>/dev/null | wc -l)" -gt 20 ]; }
wait_until stop told_lines
ended stop
at=$(newest stop)
ruled stop
pipe mlp stop 3 'cut: [fc2, fc3], schedule: stash' --resume --set train.steps=$((at + 30)) --set train.eval_every=10000000
[ "$(newest stop)" = $((at + 30)) ] || fail "a stopped run does not go on: $(tail -3 stop.log)"
ruled stop "$at"
# Another cut, and a schedule that drains, from the same checkpoint.
pipe mlp stop 2 'cut: [fc3]' --resume --set train.steps=$((at + 33))

# Where it drained it has a checkpoint; drains whose checkpoint was lost were undone with the steps since then.
lose() { # OUT PIPELINE OPTIONS..
    run=$1
    shift
    start "$run" 0.5s "$@"
    wait_ckpt "$run" 0
    kill_one "$run" 2
    wait_restart "$run" 0
    from=$(sed -n 's/all stages start again from .* after step //p' "$run.log" | tail -1) # on a busy machine a second time
    wait_ckpt "$run" "${from:-0}"
    ended "$run"
    # shellcheck disable=SC2046
    ruled "$run" $(ls -d "$run"/checkpoints/0*[0-9] | sed 's/.*\/0*//')
}
lose lost 'cut: [fc2, fc3]'
lose lost-21 'cut: [fc3], workers: [2, 1]' --set train.accumulate=2

refused() { # SENTENCE WORKERS PIPELINE OPTIONS..
    says=$1
    w=$2
    p=$3
    shift 3
    code=0
    timeout 300 "$rubato" train mlp.yaml --out refused -w "$w" --set "train.pipeline={$p}" "$@" >refused.log 2>&1 || code=$?
    [ "$code" = 78 ] || fail "exit code $code instead of 78: $(tail -2 refused.log)"
    grep -q -e "$says" refused.log || fail "'$says' is not said: $(tail -2 refused.log)"
    rm -rf refused
}
for parallel in pipeline auto; do
    refused "allow it with 'stale: true'" 2 'cut: [fc2], schedule: stash' --set train.parallel=$parallel --set train.stale=false
done
refused 'accumulate is 1, expected a multiple of the 2 workers of stage 1' 3 'cut: [fc2], workers: [2, 1], schedule: vertical' --set train.parallel=pipeline
refused 'accumulate is 2, expected at least 3' 3 'cut: [fc2, fc3], schedule: 2bw' --set train.parallel=pipeline --set train.accumulate=2
refused 'has no norm of all gradients' 2 'cut: [fc2], schedule: stash' --set train.parallel=pipeline --set train.clip_norm=1

# Epochs of 250 samples end within a batch: the stages drain behind it.
pipe mlp epochs 3 'cut: [fc2, fc3], schedule: stash' --set train.eval_every=0 --set train.steps=0 --set train.epochs=2
timeout 300 "$rule" epochs 11 21 >rule.log 2>&1 || fail "epochs has not the bits of the rule: $(cat rule.log)"
# Drains that the leader asks for and those of the job meet: each has a checkpoint.
pipe mlp meet 4 'cut: [fc2, fc3, fc4], schedule: stash' --set train.steps=400 --set train.eval_every=9 --set checkpoint.every=1ms --set checkpoint.keep=1000
# shellcheck disable=SC2046
ruled meet $(ls -d meet/checkpoints/0*[0-9] | sed 's/.*\/0*//')
# Measured kernels and threads: another run, but it ends.
pipe conv tuned 3 'cut: [layer2, layer4], schedule: stash' --set train.autotune=true --set train.threads=2

# Rubato chooses the cut; auto takes a late schedule where the job allows it and names it.
timeout 300 "$rubato" train mlp.yaml --out chosen -w 2 --set train.parallel=pipeline --set train.pipeline.schedule=stash >chosen.log 2>&1 ||
    fail "chosen: $(tail -3 chosen.log)"
grep -q 'predicted for a step of 2 workers: .*trains as a pipeline' chosen.log || fail "no choice is told: $(head -2 chosen.log)"
ruled chosen

[ "$failed" = 0 ] && echo "stale.sh: all passed"
exit "$failed"
