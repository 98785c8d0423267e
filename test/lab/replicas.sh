#!/bin/sh
# Pipelines whose stages have several workers, as real processes: replicas.sh PATH_OF_RUBATO PATH_OF_PIPE_RULE
#
#   1. 2-1, 4-3-1 and 1-3-1 with flush and gpipe have the bits of the rule, which one process without replicas has not; so have 1-2 and 2-2-3, and
#      their losses are those of one process, last bits aside;
#   2. a run goes on from a checkpoint with other workers;
#   3. kill -9 of one of two workers of a stage, the last one too: all start again from copies in memory or the newest checkpoint, to the bits of the rule;
#   4. what cannot be is refused before the first step.
. "$(dirname "$0")/parts.sh"

cat >job.yaml <<JOB
name: replicas
model: {zoo: mlp, hidden: [90, 40], dropout: 0.3}
data: {format: synthetic, generator: digits, count: 250, test_count: 30}
train: {batch: 48, accumulate: 12, steps: 12, threads: 1, autotune: false, eval_every: 5, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 4}}}
JOB
train() { # OUT OPTIONS..
    out=$1
    shift
    timeout 300 "$rubato" train job.yaml --out "$out" "$@" >"$out.log" 2>&1 || fail "$out: $(tail -3 "$out.log")"
}
pipe() { # OUT WORKERS PIPELINE OPTIONS..
    o=$1
    w=$2
    p=$3
    shift 3
    train "$o" -w "$w" --set train.parallel=pipeline --set "train.pipeline={$p}" "$@"
}
losses() { # RUN: step and loss
    sed -n 's/.*train.step\/1","step":\([0-9]*\),.*"loss":\([0-9.e-]*\).*/\1 \2/p' "$1/metrics.jsonl"
}
near() { # RUN RUN: twelve losses are alike; half of one is not
    losses "$1" >a.txt
    losses "$2" >b.txt
    paste a.txt b.txt | awk '{n++; if ($1 != $3 || ($2 - $4) ^ 2 > (1e-3 * $2) ^ 2) bad = 1} END {exit bad || n != 12}' || fail "losses of $2 are not those of $1: $(paste a.txt b.txt | head -3)"
}
ruled() { # RUN
    timeout 300 "$rule" "$1" >rule.log 2>&1 || fail "$1 has not the bits of the rule: $(cat rule.log)"
}

train one
ruled one
pipe 2-1 3 'cut: [fc2], workers: [2, 1]'
pipe 4-3-1 8 'cut: [fc2, fc3], workers: [4, 3, 1]'
pipe 4-3-1-gpipe 8 'cut: [fc2, fc3], workers: [4, 3, 1], schedule: gpipe'
pipe 1-3-1 5 'cut: [fc2, fc3], workers: [1, 3, 1]'
pipe 1-2 3 'cut: [fc2], workers: [1, 2]'
pipe 2-2-3 7 'cut: [fc2, fc3], workers: [2, 2, 3]'
pipe 2-2-3-gpipe 7 'cut: [fc2, fc3], workers: [2, 2, 3], schedule: gpipe'
for run in 2-1 4-3-1 4-3-1-gpipe 1-3-1 1-2 2-2-3 2-2-3-gpipe; do
    ruled $run
    cmp -s one/checkpoints/000000012/model.safetensors $run/checkpoints/000000012/model.safetensors && fail "the sums of $run are those of one process"
done
train clip --set train.clip_norm=0.4
pipe 1-2-clip 3 'cut: [fc2], workers: [1, 2]' --set train.clip_norm=0.4
near one 1-2
near one 2-2-3
near clip 1-2-clip
cmp -s 4-3-1/checkpoints/000000012/model.safetensors 4-3-1-gpipe/checkpoints/000000012/model.safetensors || fail "the schedule changes bits"
grep -q 'pipeline of 3 stages: workers .* from the input, workers .* from fc2, worker 1 from fc3' 4-3-1/log || fail "the workers of the stages are not told"
"$rubato" eval 4-3-1 >/dev/null || fail "eval does not read its checkpoint"
"$rubato" explain 2-1 pipe >explained.txt || fail "explain says nothing"
grep -q 'some stages have several workers' explained.txt || fail "explain does not say what it cannot show"

pipe part 3 'cut: [fc2], workers: [2, 1]' --set train.steps=6
pipe part 3 'cut: [fc2], workers: [2, 1]' --resume
ruled part
pipe part 5 'cut: [fc3], workers: [2, 3]' --resume --set train.steps=15
train part --resume --set train.steps=17
# A tied embedding: replicas of the first stage add gradients that come from the last one.
cat >tied.yaml <<JOB
name: tied
model: {zoo: gpt, layers: 2, heads: 2, width: 16, context: 8, dropout: 0.1}
data: {format: synthetic, generator: grammar, count: 1000}
train: {batch: 24, accumulate: 4, steps: 6, threads: 1, autotune: false, optimizer: {adamw: {lr: 0.003}}}
JOB
timeout 300 "$rubato" train tied.yaml --out tied -w 3 --set train.parallel=pipeline --set 'train.pipeline={cut: [transformer.h.1], workers: [2, 1]}' >tied.log 2>&1 || fail "tied: $(tail -3 tied.log)"
ruled tied
timeout 300 "$rubato" train tied.yaml --out tied-last -w 3 --set train.parallel=pipeline --set 'train.pipeline={cut: [transformer.h.1], workers: [1, 2]}' >tied.log 2>&1 || fail "tied-last: $(tail -3 tied.log)"
ruled tied-last
# A stage in which nothing learns has no sums.
pipe frozen 4 'cut: [fc2, fc3], workers: [1, 2, 1]' --set 'train.groups=[{match: "fc2.*", freeze: true}]'
ruled frozen

lost() { # RUN WORKERS: worker 3 is killed
    "$rubato" train job.yaml --out "$1" -w 3 --set train.parallel=pipeline --set "train.pipeline={cut: [fc2], workers: [$2]}" \
        --set train.steps=1000000 --set train.eval_every=10000000 --set checkpoint.every=0.2s >"$1.log" 2>&1 &
    job_pid=$!
    wait_ckpt "$1" 0
    kill_one "$1" 3
    wait_restart "$1" 0
    grep -q 'worker 3[ ,].* was \(ended by signal 9\|lost\)' "$1.log" || fail "who was lost is not said: $(tail -3 "$1.log")"
    from=$(sed -n 's/all stages start again from .* after step //p' "$1.log" | tail -1) # on a busy machine a second time
    wait_ckpt "$1" "${from:-0}"
    ended "$1"
    ruled "$1"
}
lost lost '2, 1'
lost lost-last '1, 2'

refused() { # SENTENCE WORKERS PIPELINE OPTIONS..
    says=$1
    w=$2
    p=$3
    shift 3
    code=0
    timeout 300 "$rubato" train job.yaml --out refused -w "$w" --set train.parallel=pipeline --set "train.pipeline={$p}" "$@" >refused.log 2>&1 || code=$?
    [ "$code" = 78 ] || fail "exit code $code instead of 78: $(tail -2 refused.log)"
    grep -q -e "$says" refused.log || fail "'$says' is not said: $(tail -2 refused.log)"
    rm -rf refused
}
refused 'start the job with -w 3' 2 'cut: [fc2], workers: [2, 1]'
refused 'does not end with 1' 3 'cut: [fc2], workers: [1, 2], schedule: stash' --set train.stale=true
refused 'expected one for each of the 3 stages' 3 'cut: [fc2, fc3], workers: [2, 1]'
refused 'expected a multiple of the 5 workers of stage 1' 6 'cut: [fc2], workers: [5, 1]'
refused 'names no stages' 3 'workers: [2, 1]'
# Rubato chooses the cut, and workers of stages where that is predicted to be faster.
sed 's/^model: .*/model: {zoo: lenet, width: 48}/' job.yaml >conv.yaml
timeout 300 "$rubato" train conv.yaml --out chosen -w 3 --set train.parallel=pipeline --set 'train.pipeline={bytes_per_s: 2e8}' >chosen.log 2>&1 || fail "chosen: $(tail -3 chosen.log)"
grep -q '4 layers measured; predicted for a step of 3 workers: .*, cut at .*; trains as a pipeline' chosen.log || fail "no choice is told: $(head -2 chosen.log)"
sed 's/^model: .*/model: {zoo: resnet18, width: 4}/' job.yaml >conv.yaml
mv conv.yaml job.yaml
refused 'running statistics' 3 'cut: [layer2], workers: [2, 1]'

[ "$failed" = 0 ] && echo "replicas.sh: all passed"
exit "$failed"
