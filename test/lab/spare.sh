#!/bin/sh
# Workers that join a pipeline or a placed step are spares: spare.sh PATH_OF_RUBATO PATH_OF_PLACED_NET
#
#   1. a spare takes the place of a worker that was killed, then a new process that of the spare: losses of an
#      undisturbed run; a spare without a part ends with the job;
#   2. the same with a placed step, whose leader is killed;
#   3. a pipeline that Rubato cut takes a spare in when a step of three workers is predicted to be faster: losses of a
#      run that is resumed by hand with that cut from the same step;
#   4. a step of branches that Rubato placed takes a spare in: losses of the first placement, and the next step from its weights.
. "$(dirname "$0")/parts.sh"
spare_pid=
trap '[ -z "$spare_pid" ] || kill -9 $spare_pid 2>/dev/null; cleanup' EXIT

cat >mlp.yaml <<JOB
name: mlp
model: {zoo: mlp, hidden: [90, 60, 40], dropout: 0.3}
data: {format: synthetic, generator: digits, count: 240, test_count: 30}
train: {batch: 24, accumulate: 4, steps: 1000000, eval_every: 10000000, threads: 1, autotune: false, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 40}}}
checkpoint: {every: 0s}
JOB
job=mlp
goes_on() { wait_until "$1" past "$1" $(($(last_step "$1") + 5)); }
says() { grep -q -- "$2" "$1.log"; }
froms() { sed -n 's/all .* start again from .* after step //p' "$1.log"; }

begin() { # RUN WORKERS OPTIONS..
    run=$1
    n=$2
    shift 2
    "$rubato" train "$job.yaml" --out "$run" -w "$n" --json "$@" >"$run.json" 2>"$run.log" &
    job_pid=$!
    wait_until "$run" past "$run" 5
    at=$(sed -n 's/to add a worker, run: rubato worker --join \([^ ]*\) .*/\1/p' "$run.log")
}
waiting() { grep -c 'spares that wait' "$1.log" || true; }
more_wait() { [ "$(waiting "$1")" -gt "$2" ]; }
join() { # RUN NAME: a spare whose words are in NAME.log
    waited_for=$(waiting "$1")
    "$rubato" worker --join "$at" --token-file "$1/token" --out "$2" >"$2.out" 2>"$2.log" &
    spare_pid=$!
    wait_until "$1" more_wait "$1" "$waited_for"
    says "$2" 'waits as a spare' || fail "$2 does not say what it is: $(cat "$2.log")"
}
lose() { # RUN WORKER PARTS
    before=$(restarts "$1" "$3")
    kill_one "$1" "$2"
    wait_restart "$1" "$before" "$3"
    goes_on "$1"
}
alike() { # RUN CALM: the losses of all steps
    told "$1" | grep step/1 >a.txt
    told "$2" | grep step/1 >b.txt
    cmp -s a.txt b.txt || fail "losses of $1 are not those of $2: $(diff a.txt b.txt | head -4)"
    same "$1" "$2"
    [ -z "$(steps "$1" | uniq -d)" ] && steps "$1" | sort -nc || fail "--json of $1 tells a step twice"
}
pipeline="train.parallel=pipeline"

cut='train.pipeline={cut: [fc2]}'
begin kept 2:4 --set $pipeline --set "$cut"
join kept one
lose kept 2 stages
says kept '1 of the workers joined' || fail "nobody says who has the place: $(cat kept.log)"
says one 'joined as worker' || fail "the spare has no stage: $(cat one.log)"
before=$(restarts kept)
kill -9 $spare_pid
wait_restart kept "$before"
goes_on kept
join kept two
ended kept
wait $spare_pid || fail "a spare ended with $?: $(cat two.log)"
spare_pid=
says two 'was a spare' || fail "a spare does not say how it ended: $(cat two.log)"
train mlp calm -w 2 --set train.steps="$(newest kept)" --set $pipeline --set "$cut"
alike kept calm

devices='train.placed={devices: {fc2: 2}}'
begin placed 2:3 --set train.parallel=placed --set "$devices"
join placed three
lose placed 1 devices
says three 'joined as worker' || fail "the spare has no device: $(cat three.log)"
ended placed
wait $spare_pid || fail "a worker that joined ended with $?: $(cat three.log)"
spare_pid=
train mlp calm-placed -w 2 --set train.steps="$(newest placed)" --set train.parallel=placed --set "$devices"
alike placed calm-placed

# takes_in RUN SPARE PARTS OPTIONS..: RUN takes a spare in, and started again for nothing else. Where the machine is busy, a third worker may be predicted
# to gain nothing, and steps may drift or a worker be lost, so that all start again before or after: then a further run measures anew.
decided() { says "$1" 'stays a spare' || more_restarts "$1" 0 "$2"; }
takes_in() {
    grows=$1
    named=$2
    parts=$3
    shift 3
    for turn in 1 2 3 4 5 6 7 8; do
        rm -rf "$grows" "$grows.json" "$grows.log" "$named" "$named.log"
        begin "$grows" 2:3 "$@"
        cp "$grows/job.yaml" first.yaml
        join "$grows" "$named"
        wait_until "$grows" decided "$grows" "$parts"
        goes_on "$grows"
        ended "$grows"
        code=0
        wait $spare_pid || code=$?
        spare_pid=
        if [ "$(restarts "$grows" "$parts")" = 1 ] && says "$named" 'joined as worker' && ! cmp -s first.yaml "$grows/job.yaml"; then
            [ $code = 0 ] || fail "a worker that joined ended with $code: $(cat "$named.log")"
            return
        fi
        [ $failed = 0 ] || return 0
        echo "turn $turn: nobody was taken in, or not that alone: $(grep 'predicted for a step\|another .* takes\|start again' "$grows.log" | tail -4)"
    done
    fail "nobody was taken in: $(cat "$grows.log")"
}
takes_in grown four stages --set $pipeline --set 'model.hidden=[512, 512, 512, 512, 512, 512]' --set train.accumulate=12
says grown 'predicted for a step of 3 workers' || fail "nobody says why: $(cat grown.log)"
cp grown/job.yaml then.yaml # of three stages, or of two, one of which has two workers
train first calm-grown -w 2 --set train.steps="$(froms grown)"
train then calm-grown -w 3 --set train.steps="$(newest grown)" --resume
alike grown calm-grown

# Two devices have two branches each or more, three have one, or nearly.
branches 40 40 40
job=branches
takes_in wider five devices --set train.parallel=placed
says wider 'predicted for a step of 3 workers: .*; who joined gets a device' || fail "nobody says why: $(cat wider.log)"
says wider 'placed on 3 devices' || fail "the spare has no device: $(cat wider.log)"
"$rubato" explain wider place >explained.txt || fail "a placement with a worker that joined is not explained"
grep -q '^ *3 ' explained.txt || fail "explain shows another plan: $(cat explained.txt)"
placed_twice wider 2
[ $failed = 0 ] && echo "ok: workers that join are spares, take places, and are taken in when a step gains"
exit $failed
