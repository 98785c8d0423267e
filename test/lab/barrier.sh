#!/bin/sh
# Two steps under way on real worker processes, over sockets: barrier.sh PATH_OF_RUBATO [KILLS LIMIT_S]
#
#   1. --deterministic with train.barrier always and auto: the same bytes in model and optimizer, the
#      same losses and evaluations, with batch norm, dropout, Adam, a schedule, micro-batches, bf16,
#      and with other sums after a view of their own;
#   2. what keeps a step behind the barrier is said: the job, clipping;
#   3. kill -9 of followers and leaders at random moments (KILLS of them, 6; 40 for figures), and for
#      every third one a freeze of up to two seconds: no sample lost or repeated, every step told
#      once, the losses of a run that nobody disturbed;
#   4. a loss that is no number is named, with the step.
set -eu
rubato=$(realpath "$1")
kills=${2:-6} limit_s=${3:-300} # limit_s: of a run
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-barrier-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*" >&2
    failed=1
}

# told RUN: losses of all steps, evaluations; not the estimate of noise, whose last digits follow
# the order of arrival
told() {
    grep -E '"rubato.train.(step|eval)/1"' "$1/metrics.jsonl" | sed -e 's/"[a-z_]*_s":[^,}]*//g' -e 's/"samples_per_s":[^,}]*//g' -e 's/"gradient_noise":[^,}]*//g'
}

train() { # JOB OUT OPTIONS..
    job=$1
    out=$2
    shift 2
    timeout 300 "$rubato" train "$job.yaml" --sockets --deterministic --json -v --out "$out" "$@" >"$out.jsonl" 2>"$out.err" ||
        fail "$out: $(tail -3 "$out.err")"
}

head='data: {format: synthetic, generator: digits, count: 480, test_count: 60}
checkpoint: {every: 1s}'
train='batch: 24, steps: 44, threads: 1, autotune: false, sums: rule, eval_every: 17'
cat >conv.yaml <<JOB
name: conv
model: {zoo: resnet18, width: 8}
$head
train: {$train, accumulate: 2, precision: bf16, histograms: 25, optimizer: {adamw: {lr: 0.001}}, schedule: {cosine: {}}}
JOB
cat >drop.yaml <<JOB
name: drop
model: {zoo: mlp, hidden: [700, 300], dropout: 0.3}
$head
train: {$train, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 20}}}
JOB
cat >lamb.yaml <<JOB
name: lamb
model: {zoo: lenet, width: 8}
$head
train: {$train, optimizer: {lamb: {lr: 0.002}}, groups: [{match: "conv1.*", freeze: true}, {match: "fc1.*", lr: 0.5}]}
JOB
for model in conv drop lamb; do
    train $model $model-auto -w 2
    train $model $model-always -w 2 --set train.barrier=always
    grep -q 'a step begins while the sums' $model-auto.err || fail "$model: $(grep 'sums of the one' $model-auto.err)"
    grep -q 'waits for all sums of the one before: the job asks for it' $model-always.err || fail "$model: no reason"
    for f in model.safetensors optimizer.safetensors; do
        cmp "$model-auto/checkpoints/000000044/$f" "$model-always/checkpoints/000000044/$f" ||
            fail "$model: $f differs"
    done
    told $model-auto >a.txt
    told $model-always >b.txt
    [ "$(wc -l <a.txt)" -ge 46 ] || fail "$model: $(wc -l <a.txt) lines"
    cmp a.txt b.txt || fail "$model: losses or evaluations differ"
done
# A plan of other sums comes with a view; one with a barrier of its own as well.
for sums in p3 ddp; do
    train drop view-$sums -w 2 --set train.sums=$sums
    grep -q 'sums by plan' view-$sums/log || fail "$sums: no plan"
    # The memory of two steps is what was said, within a twentieth.
    tr ',{}' '\n\n\n' <view-$sums/world.json | awk -F: '
        $1 == "\"memory_of_two_steps_bytes\"" { n++; x[n % 2] = $2 }
        END { d = x[0] - x[1]; exit !(n >= 2 && n % 2 == 0 && x[0] > 0 && d * d <= 0.0025 * x[0] * x[0]) }' ||
        fail "$sums: memory of two steps: $(tr ',{}' '\n\n\n' <view-$sums/world.json | grep memory_of_two)"
    for f in model.safetensors optimizer.safetensors; do
        cmp view-$sums/checkpoints/000000044/$f drop-always/checkpoints/000000044/$f || fail "$sums: $f differs"
    done
done
grep -q 'waits for all sums of the one before: the method of train.sums has it so' view-ddp.err || fail "ddp: no barrier"
echo "ok: the same bytes with and without the barrier"

train drop clip -w 2 --set train.clip_norm=1 --set train.steps=5
grep -q 'waits for all sums of the one before: the update needs all gradients at once' clip.err ||
    fail "clipping: $(grep 'sums of the one' clip.err)"
echo "ok: the reason for the barrier"

# Rank 1 leads. A worker is killed after a random number of steps, and at a random moment of one.
cat >kill.yaml <<JOB
name: kill
model: {zoo: mlp, hidden: [800, 300], dropout: 0.2}
data: {format: synthetic, generator: digits, count: 2400, test_count: 60}
train: {batch: 24, steps: 240, threads: 1, autotune: false, sums: rule, optimizer: {adam: {lr: 0.0003}}}
checkpoint: {every: 0s}
JOB
timeout 300 "$rubato" train kill.yaml --json --out still >still.jsonl 2>still.err || fail "still: $(tail -1 still.err)"
losses() {
    grep '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'
}
losses still >still.txt

# hurt HOW K: the K-th worker killed, or frozen and woken up to two seconds later
hurt() {
    out=$1-$2
    rank=$(($2 % 2 == 0 ? 1 : 2))
    timeout --foreground "$limit_s" "$rubato" train kill.yaml -w 3 --sockets --json --out "$work/$out" >$out.jsonl 2>$out.err &
    run=$!
    at=$((20 + $(od -An -N2 -tu2 /dev/urandom) % 60)) # so that it has long to go, whenever this script gets the processor
    until grep -q "\"rubato.train.step/1\",.*\"step\":$at," $out/metrics.jsonl 2>/dev/null; do
        kill -0 $run 2>/dev/null || break
        sleep 0.02
    done
    sleep "0.0$(($(od -An -N1 -tu1 /dev/urandom) % 90 + 10))"
    pid=$(pgrep -f "worker --job $work/$out/job.yaml .*--rank $rank( |\$)") || fail "$out: no worker $rank"
    if [ "$1" = kill ]; then
        kill -9 "$pid" || fail "$out: worker $rank is gone"
    else
        kill -STOP "$pid" || fail "$out: worker $rank is gone"
        sleep "$(($(od -An -N1 -tu1 /dev/urandom) % 2)).$(($(od -An -N1 -tu1 /dev/urandom) % 9))"
        kill -CONT "$pid" 2>/dev/null || true
    fi
    wait $run || fail "$out: worker $rank after step $at: $(tail -3 $out.err)"
    tail -1 $out/metrics.jsonl | grep -q '"samples_lost":0,"samples_repeated":0' ||
        fail "$out: $(tail -1 $out/metrics.jsonl | cut -c1-200)"
    losses $out >now.txt
    paste still.txt now.txt | awk '
        $1 != $3 { print "step " $3 " after " $1; bad = 1; exit }
        { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d }
        END { if (!bad && (NR != 240 || w > 2e-3)) print NR " steps, losses " w " apart" }' >bad.txt
    [ ! -s bad.txt ] || fail "$out: worker $rank after step $at: $(cat bad.txt)"
}
k=0
while [ $k -lt "$kills" ]; do
    k=$((k + 1))
    hurt kill $k
    [ $((k % 3)) -ne 0 ] || hurt freeze $k
done
echo "ok: $kills kills of followers and leaders, $((kills / 3)) freezes"

sed -e 's/lr: 0.001/lr: 1000/' -e 's/adam: /sgd: /' drop.yaml >odd.yaml
timeout 300 "$rubato" train odd.yaml -w 2 --sockets --json --out odd >odd.jsonl 2>odd.err && fail "a loss that is no number goes on"
grep -q 'the first value that is not finite is the result of' odd.err || fail "no number: $(tail -3 odd.err)"
echo "ok: a loss that is no number is named"
exit $failed
