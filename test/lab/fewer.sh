#!/bin/sh
# A pipeline and a placed step that go on with fewer workers: fewer.sh PATH_OF_RUBATO
#
#   1. without spares each lost worker leaves its layers to the others, down to one; losses are those of runs that are
#      resumed by hand with the same cut or devices from the same steps; --json tells each step once;
#   2. a replacement that is lost again and again before it makes a step is given up.
. "$(dirname "$0")/parts.sh"

cat >drop.yaml <<JOB
name: drop
model: {zoo: mlp, hidden: [90, 60, 40], dropout: 0.3}
data: {format: synthetic, generator: digits, count: 240, test_count: 30}
train: {batch: 24, accumulate: 4, steps: 1000000, eval_every: 10000000, threads: 1, autotune: false, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 40}}}
checkpoint: {every: 0s}
JOB

begin() { # RUN WORKERS OPTIONS..
    run=$1
    n=$2
    shift 2
    "$rubato" train "$job.yaml" --out "$run" -w "$n" --json "$@" >"$run.json" 2>"$run.log" &
    job_pid=$!
    wait_until "$run" past "$run" 5
}
# lose RUN WORKER PARTS: it is killed, and fewer go on
lose() {
    before=$(restarts "$1" "$3")
    kill_one "$1" "$2"
    wait_restart "$1" "$before" "$3"
    at=$(last_step "$1") # nobody tells a step meanwhile
    wait_until "$1" past "$1" $((at + 3))
}
froms() { sed -n 's/all .* start again from .* after step //p' "$1.log"; }
# by_hand JOB RUN WORKERS LAST OPTIONS..: RUN goes on to LAST as one would do it by hand
by_hand() {
    yaml=$1
    run=$2
    n=$3
    last=$4
    shift 4
    if [ "$n" -gt 1 ]; then set -- -w "$n" "$@"; else set -- --set train.parallel=data "$@"; fi
    train "$yaml" "$run" --set train.steps="$last" "$@"
}
alike() { # RUN CALM: the losses of all steps
    told "$1" | grep step/1 >a.txt
    told "$2" | grep step/1 >b.txt
    cmp -s a.txt b.txt || fail "losses of $1 are not those of $2: $(diff a.txt b.txt | head -4)"
    same "$1" "$2"
    [ -z "$(steps "$1" | uniq -d)" ] && steps "$1" | sort -nc || fail "--json of $1 tells a step twice"
}

pipeline="train.parallel=pipeline"
job=drop
begin lost 3 --set $pipeline --set 'train.pipeline={cut: [fc2, fc3]}' --set train.spare=false
lose lost 2 stages
lose lost 1 stages
ended lost
grep -q 'the job goes on with 2 workers, which divide the model anew' lost.log || fail "nobody says who goes on: $(cat lost.log)"
grep -q 'the job goes on with 1 worker, which divides the model anew' lost.log || fail "nobody says that one goes on: $(cat lost.log)"
two=$(sed -n 's/.*predicted for a step of 2 workers: .*cut at \([a-z0-9]*\).*/\1/p' lost.log)
set -- $(froms lost)
by_hand drop calm 3 "$1" --set $pipeline --set 'train.pipeline={cut: [fc2, fc3]}'
by_hand drop calm 2 "$2" --resume --set $pipeline --set "train.pipeline={cut: [$two]}"
by_hand drop calm 1 "$(newest lost)" --resume
alike lost calm

# Its job.yaml has the devices that Rubato chose; where one device would be as fast it is left alone.
sed 's/^model: .*/model: {zoo: resnet18, width: 8}/' drop.yaml >conv.yaml
free='train.placed={latency: 0s, byte_ns: 0, bytes_per_s: 1e15'
job=conv
begin placed 3 --set train.parallel=placed --set "$free, devices: {layer2: 2, layer3: 3}}" --set train.spare=false
lose placed 2 devices
cp placed/job.yaml fewer.yaml
ended placed
n=$(sed -n 's/the job goes on with \([0-9]*\) worker.*/\1/p' placed.log)
train conv calm-placed -w 3 --set train.steps="$(froms placed)" --set train.parallel=placed --set 'train.placed.devices={layer2: 2, layer3: 3}'
by_hand fewer calm-placed "$n" "$(newest placed)" --resume
alike placed calm-placed

# A worker that is lost before it makes a step, again and again, is given up.
job=drop
begin again 2 --set $pipeline --set 'train.pipeline={cut: [fc2]}'
given_up() {
    runs 2 && kill -9 "$victim"
    grep -q 'the job goes on with 1 worker' again.log
}
wait_until again given_up
wait_until again past again "$(($(last_step again) + 3))"
ended again
train drop calm-again --set train.steps="$(newest again)"
alike again calm-again
[ $failed = 0 ] && echo "ok: fewer workers go on, with the losses of runs that were resumed by hand"
exit $failed
