#!/bin/sh
# train.recompute: recompute.sh PATH_OF_RUBATO
#
#   A pipeline that computes forward parts again has the bits of one that keeps its activations, with dropout, running
#   statistics and all schedules, and its stages before the last plan less memory. Where nothing could be computed
#   again it is refused.
. "$(dirname "$0")/parts.sh"
unset MALLOC_PERTURB_ # it touches memory that is set aside and never used

job() { # NAME MODEL
    cat >"$1.yaml" <<JOB
name: $1
model: $2
data: {format: synthetic, generator: digits, count: 960, test_count: 30}
train: {batch: 192, accumulate: 6, steps: 12, eval_every: 6, threads: 1, autotune: false, parallel: pipeline, optimizer: {adam: {lr: 0.001}}}
JOB
}
job mlp '{zoo: mlp, hidden: [300, 200, 100], dropout: 0.3}'
job conv '{zoo: resnet18, width: 4}'
# planned RUN: MiB that its first stage plans
planned() { "$rubato" explain "$1" pipe 2>/dev/null | awk '/^memory of the stages/ {here = 1} here && $1 == 1 && $8 == "MiB" {print $7; exit}'; }
both() { # JOB CUT SCHEDULE OPTIONS..
    job=$1
    run=$1-$3
    p="train.pipeline={cut: [$2], schedule: $3}"
    shift 3
    train "$job" "$run" -w 2 --set "$p" "$@"
    train "$job" "$run-again" -w 2 --set "$p" "$@" --set train.recompute=true
    told "$run" >a.txt
    told "$run-again" >b.txt
    [ "$(grep -c step/1 a.txt)" = 12 ] || fail "$run made $(wc -l <a.txt) steps"
    cmp -s a.txt b.txt || fail "$run: $(diff a.txt b.txt | head -4)"
    same "$run" "$run-again"
}
both mlp fc3 flush
both mlp fc3 gpipe
both conv layer2 gpipe
both conv layer3 flush
for schedule in stash vertical 2bw; do
    micro=1
    [ $schedule != 2bw ] || micro=6
    both mlp fc3 $schedule --set train.stale=true --set train.batch=96 --set train.accumulate=$micro
    both conv layer2 $schedule --set train.stale=true --set train.batch=48 --set train.accumulate=$micro
    late=$(planned conv-$schedule-again)
    awk "BEGIN {exit !($late > 0 && $late < 0.8 * $(planned conv-$schedule))}" || fail "with $schedule a stage plans $late MiB in place of $(planned conv-$schedule)"
done
all=$(planned conv-gpipe)
less=$(planned conv-gpipe-again)
awk "BEGIN {exit !($less > 0 && 3 * $less < $all)}" || fail "a stage with 6 micro-batches on their way plans $less MiB in place of $all"
for bad in 'train.parallel=data' 'train.parallel=auto' 'train.parallel=placed'; do
    code=0
    "$rubato" train mlp.yaml --out bad -w 2 --set train.recompute=true --set train.stale=true --set "$bad" >bad.log 2>&1 || code=$?
    [ $code = 78 ] && grep -q 'train.recompute' bad.log || fail "$bad ended with $code: $(cat bad.log)"
done
[ $failed = 0 ] && echo "ok: forward parts that run again have the same bits, in $less MiB in place of $all"
exit $failed
