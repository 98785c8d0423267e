#!/bin/sh
# Pipelines of real worker processes on this machine: pipeline.sh PATH_OF_RUBATO
#
#   1. flush and gpipe on 2 to 4 stages have the bits of one process with as many micro-batches, losses,
#      evaluations and checkpoint, with dropout, clipped gradients, running statistics, residuals across cuts and frozen layers;
#   2. a checkpoint continues on one process, data parallel and with another cut; eval reads it;
#   3. a stop signal saves, and the run continues to the same bytes;
#   4. kill -9 of a worker: all stages start again from copies in memory or the newest checkpoint, to the same bytes;
#   5. what a pipeline cannot do is refused before the first step;
#   6. a parameter that two stages use, a tied embedding, has the bits of one process and is saved once;
#   7. cuts are chosen by measured layers, and auto says what it takes; explain shows what was predicted and what came.
. "$(dirname "$0")/parts.sh"

pipe() { # JOB OUT WORKERS PIPELINE OPTIONS..
    j=$1
    o=$2
    w=$3
    p=$4
    shift 4
    train "$j" "$o" -w "$w" --set train.parallel=pipeline --set "train.pipeline={$p}" "$@"
}

head='data: {format: synthetic, generator: digits, count: 240, test_count: 30}'
train='batch: 24, accumulate: 4, steps: 12, threads: 1, autotune: false, eval_every: 5, metrics: [top5, f1]'
cat >drop.yaml <<JOB
name: drop
model: {zoo: mlp, hidden: [90, 40], dropout: 0.3}
$head
train: {$train, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 4}}}
JOB
cat >conv.yaml <<JOB
name: conv
model: {zoo: resnet18, width: 8}
$head
train: {$train, optimizer: {sgd: {lr: 0.05, momentum: 0.9}}, groups: [{match: "conv1.*", freeze: true}, {match: "fc.*", lr: 0.5}]}
JOB
for model in drop conv; do
    train $model $model-one
done
pipe drop drop-2 2 'cut: [fc2]'
pipe drop drop-3 3 'cut: [fc2, fc3], schedule: gpipe'
pipe conv conv-4 4 'cut: [layer1.1.conv2, layer3.0.conv2, fc]'
for run in drop-2 drop-3 conv-4; do
    one=${run%-*}-one
    told $one >a.txt
    told $run >b.txt
    cmp -s a.txt b.txt || fail "$run tells another story than $one: $(diff a.txt b.txt | head -4)"
    same $one $run
done

# The norm of all stages: gradients are far above it in the first steps.
for model in drop conv; do
    train $model $model-clip --set train.clip_norm=0.5
    cmp -s $model-one/metrics.jsonl $model-clip/metrics.jsonl && fail "nothing is clipped"
done
pipe drop clip-3 3 'cut: [fc2, fc3]' --set train.clip_norm=0.5
pipe conv clip-4 4 'cut: [layer1.1.conv2, layer3.0.conv2, fc]' --set train.clip_norm=0.5
for run in clip-3:drop clip-4:conv; do
    told "${run#*:}-clip" >a.txt
    told "${run%:*}" >b.txt
    cmp -s a.txt b.txt || fail "with train.clip_norm ${run%:*} tells another story: $(diff a.txt b.txt | head -4)"
    same "${run#*:}-clip" "${run%:*}"
done

pipe drop more 3 'cut: [fc2, fc3]' --set train.steps=5
pipe drop more 2 'cut: [fc3]' --resume --set train.steps=9
train drop more --resume
same drop-one more
cp -r drop-2 wide
train drop wide -w 2 --resume --set train.steps=15
"$rubato" eval drop-2 >/dev/null || fail "eval does not read the checkpoint of a pipeline"

# Runs that last until they are told to stop; then one process with as many steps has the same bytes.
start() { # OUT OPTIONS..: in the background
    "$rubato" train drop.yaml --out "$@" -w 2 --set train.parallel=pipeline --set 'train.pipeline={cut: [fc2]}' \
        --set train.steps=1000000 --set train.eval_every=10000000 --set checkpoint.every=0.2s >"$1.log" 2>&1 &
    job_pid=$!
}
start stop
wait_ckpt stop 0
ended stop
at=$(newest stop)
pipe drop stop 3 'cut: [fc2, fc3]' --resume --set train.steps=$((at + 3)) --set train.eval_every=100000
train drop whole --set train.steps=$((at + 3)) --set train.eval_every=100000
same whole stop

for victim_rank in 1 2; do
    run=lost-$victim_rank
    start $run --metrics $((16000 + $$ % 3000)) # also when it starts again
    wait_ckpt $run 0
    kill_one $run $victim_rank
    wait_restart $run 0
    from=$(sed -n 's/all stages start again from .* after step //p' $run.log | tail -1) # on a busy machine a second time
    [ -n "$from" ] || fail "nobody says that the stages start again: $(tail -5 $run.log)"
    wait_ckpt $run "${from:-0}"
    ended $run
    train drop calm-$victim_rank --set train.steps="$(newest $run)" --set train.eval_every=10000000
    same calm-$victim_rank $run
done

refused() { # SENTENCE WORKERS OPTIONS..
    says=$1
    w=$2
    shift 2
    code=0
    timeout 300 "$rubato" train drop.yaml --out refused -w "$w" --set train.parallel=pipeline "$@" >refused.log 2>&1 || code=$?
    [ "$code" = 78 ] || fail "exit code $code instead of 78: $(tail -2 refused.log)"
    grep -q -e "$says" refused.log || fail "'$says' is not said: $(tail -2 refused.log)"
    rm -rf refused
}
refused 'start the job with -w 2' 3 --set 'train.pipeline={cut: [fc2]}'
refused "no layer 'fc9'; its layers are fc1, fc2, fc3" 2 --set 'train.pipeline={cut: [fc9]}'
refused 'leave out train.ema' 2 --set 'train.pipeline={cut: [fc2]}' --set train.ema=0.9
refused 'has no norm of all gradients' 2 --set 'train.pipeline={cut: [fc2], schedule: stash}' --set train.clip_norm=1 --set train.stale=true --set train.accumulate=1
refused 'start it with -w' 1:2 --set 'train.pipeline={cut: [fc2]}'
refused 'gives the weights of one worker' 2 --weights 127.0.0.1:0 --set 'train.pipeline={cut: [fc2]}'
timeout 300 "$rubato" train drop.yaml --find-lr --out rates --set train.parallel=pipeline >rates.log 2>&1 || fail "a pipeline's job finds no learning rate: $(tail -2 rates.log)"

"$rubato" cluster submit drop.yaml -w 2 --set train.parallel=pipeline >refused.log 2>&1 && fail "a cluster takes a pipeline"
grep -q 'a cluster starts them one after the other' refused.log || fail "a cluster does not say why it takes no pipeline: $(cat refused.log)"

# The cut is chosen by measured layers.
pipe conv chosen 2 'bytes_per_s: 1e15'
grep -q '21 layers measured; predicted for a step of 2 workers: .*, cut at .*; trains as a pipeline' chosen.log || fail "no choice is told: $(head -2 chosen.log)"
same conv-one chosen
"$rubato" explain chosen pipe >explained.txt || fail "a chosen cut is not explained"
grep -q '^installed; 1 plan' explained.txt || fail "the plan of the cut is not the one that explain makes: $(tail -8 explained.txt)"
grep -A 2 '^predicted and measured' explained.txt | grep -q '^  minibatch ' || fail "the step of the plan is not shown: $(cat explained.txt)"
grep -q 'a step: .* recorded, .* predicted before the run .* by the schedule' explained.txt || fail "predicted and measured are not side by side: $(cat explained.txt)"
"$rubato" explain drop-3 pipe --if network=x0.5 >explained.txt || fail "a cut of the job is not explained"
grep -q 'stages in a step of 4 micro-batches (gpipe)' explained.txt || fail "no stages are shown: $(cat explained.txt)"
[ "$(grep -c 'activations\|gradients' explained.txt)" = 4 ] || fail "not all links are shown: $(cat explained.txt)"
grep -q 'with --if: .* by the schedule' explained.txt || fail "--if has no answer: $(cat explained.txt)"
code=0
"$rubato" explain drop-3 pipe --if worker9=x2 >explained.txt 2>&1 || code=$?
[ $code = 2 ] || fail "an unknown worker is taken: $(cat explained.txt)"
train drop auto -w 2 --set train.parallel=auto --set 'train.pipeline={bytes_per_s: 1e15}'
grep -q '3 layers measured; .*; trains ' auto.log || fail "auto tells nothing: $(head -2 auto.log)"
code=0
timeout 300 "$rubato" train drop.yaml --out small -w 2 --set train.parallel=auto --set train.memory=1000 >small.log 2>&1 || code=$?
[ "$code" = 65 ] || fail "a job that fits nowhere ended with $code: $(tail -2 small.log)"
grep -q 'no way of 2 workers fits .*: data parallel .* which needs [0-9]* of the 1000 bytes of a worker, pipeline .* which needs' small.log || fail "nobody says what does not fit: $(cat small.log)"
pipe drop roomy 2 'cut: [fc2]' --set train.memory=1GB
# States of several pieces; and a leader without room for the copy of all of them.
cat >wide.yaml <<JOB
name: wide
model: {zoo: mlp, hidden: [1200, 1200]}
$head
train: {$train, optimizer: {adam: {lr: 0.001}}}
JOB
train wide wide-one
pipe wide wide-2 2 'cut: [fc2]'
pipe wide wide-disk 2 'cut: [fc2]' --set train.memory=60MB
grep -q 'stage 2 has no memory for the copy of the whole state, .* stands on the disk of the run' wide-disk.log || fail "nobody says where the copy is: $(cat wide-disk.log)"
for run in wide-2 wide-disk; do
    told wide-one >a.txt
    told $run >b.txt
    cmp -s a.txt b.txt || fail "$run tells another story than wide-one: $(diff a.txt b.txt | head -4)"
    same wide-one $run
done
refused 'stage [12] needs [0-9]* bytes, of which .* train.memory allows 1000' 2 --set 'train.pipeline={cut: [fc2]}' --set train.memory=1000
train drop norm -w 2 --set train.parallel=auto --set train.ema=0.9
grep -q 'trains data parallel: a pipeline keeps no moving means' norm.log || fail "auto does not say what is against a pipeline"
cat >tied.yaml <<JOB
name: tied
model: {zoo: gpt, layers: 2, heads: 2, width: 16, context: 8, dropout: 0.1}
data: {format: synthetic, generator: grammar, count: 1000, test_count: 200}
train: {batch: 24, accumulate: 4, steps: 6, threads: 1, eval_every: 4, optimizer: {adamw: {lr: 0.003}}}
JOB
train tied tied-one --deterministic
pipe tied tied-flush 3 'cut: [transformer.h.0.mlp, transformer.h.1.mlp]' --deterministic
pipe tied tied-gpipe 2 'cut: [transformer.h.1], schedule: gpipe' --deterministic
for run in tied-flush tied-gpipe; do
    told tied-one >a.txt
    told $run >b.txt
    cmp -s a.txt b.txt || fail "$run tells another story than tied-one: $(diff a.txt b.txt | head -4)"
    same tied-one $run
done
grep -a -o '"transformer.wte.weight"' tied-flush/checkpoints/000000006/model.safetensors | grep -c . | grep -q '^1$' || fail "the checkpoint does not hold the tied embedding once"
pipe tied tied-more 3 'cut: [transformer.h.0.mlp, transformer.h.1.mlp]' --deterministic --set train.steps=3
pipe tied tied-more 2 'cut: [transformer.h.1]' --deterministic --resume
same tied-one tied-more
"$rubato" eval tied-flush >/dev/null || fail "eval does not read the checkpoint of a tied model"
train tied late -w 2 --set train.parallel=pipeline --set train.stale=true --set train.accumulate=1 --set 'train.pipeline={schedule: stash}'
grep -q 'predicted for a step of 2 workers: .*trains as a pipeline' late.log || fail "no cut of a tied model is chosen for late gradients: $(head -2 late.log)"
train tied tied-auto -w 2 --set train.parallel=auto
grep -q 'layers measured; .* pipeline ' tied-auto.log || fail "auto does not compare a pipeline of a tied model: $(head -2 tied-auto.log)"
printf 'hosts:\n  - {name: a, net_bytes_per_s: 1e6}\n  - {name: b, net_bytes_per_s: 1e6}\n' >cluster.yaml
"$rubato" plan drop.yaml pipe --cluster cluster.yaml >plan.txt || fail "plan does not read a job"
grep -q 'data_parallel' plan.txt || fail "the plan does not show data parallel training"

[ "$failed" = 0 ] && echo "pipeline.sh: all passed"
exit "$failed"
