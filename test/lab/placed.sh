#!/bin/sh
# Placed steps of real worker processes on this machine: placed.sh PATH_OF_RUBATO
#
#   1. branches and blocks of a net on 2 and 4 devices have the bits of one process: losses, evaluations and checkpoint,
#      with running statistics, groups, frozen layers, micro-batches, dropout, and an imported model;
#   2. a checkpoint continues on one process and with another placement; eval reads it;
#   3. kill -9 of each worker: all devices start again from copies in memory, or from the newest checkpoint, to the same bytes, and a stop signal saves;
#   4. what a placed step cannot do is refused before the first step;
#   5. without names devices are chosen by measured layers within their memory; explain shows what was predicted and what came.
. "$(dirname "$0")/parts.sh"

place() { # JOB OUT WORKERS DEVICES OPTIONS..
    j=$1
    o=$2
    w=$3
    d=$4
    shift 4
    train "$j" "$o" -w "$w" --set train.parallel=placed --set "train.placed.devices={$d}" "$@"
}

alike() { # ONE RUN
    told "$1" >a.txt
    told "$2" >b.txt
    cmp -s a.txt b.txt || fail "$2 tells another story than $1: $(diff a.txt b.txt | head -4)"
    same "$1" "$2"
}

head='data: {format: synthetic, generator: digits, count: 240, test_count: 30}'
train='batch: 24, steps: 9, threads: 1, autotune: false, eval_every: 4'
cat >conv.yaml <<JOB
name: conv
model: {zoo: resnet18, width: 8}
$head
train: {$train, optimizer: {sgd: {lr: 0.05, momentum: 0.9}}, groups: [{match: "conv1.*", freeze: true}, {match: "fc.*", lr: 0.5}]}
JOB
cat >drop.yaml <<JOB
name: drop
model: {zoo: mlp, hidden: [90, 40], dropout: 0.3}
$head
train: {$train, accumulate: 4, optimizer: {adam: {lr: 0.001}}, schedule: {step: {every: 4}}}
JOB
train conv conv-one
train conv micro-one --set train.accumulate=3
train drop drop-one
place conv conv-2 2 'layer2.0.downsample.0: 2, layer3.0.downsample.0: 2, layer4.0.conv2: 2'
place conv micro-2 2 'layer1.1: 2, layer3: 2' --set train.accumulate=3
place conv conv-4 4 'layer2.0.downsample.0: 2, layer3: 3, layer4: 2, fc: 4, layer4.0.downsample.0: 1'
place drop drop-2 2 'fc2: 2'
alike conv-one conv-2
train conv clip-one --set train.clip_norm=0.5
place conv clip-2 2 'layer2.0.downsample.0: 2, layer3.0.downsample.0: 2, layer4.0.conv2: 2' --set train.clip_norm=0.5
alike clip-one clip-2
alike conv-one conv-4
alike micro-one micro-2
alike drop-one drop-2
# The leader's first part only reshapes samples, and has nothing to learn.
train drop once-one --set train.steps=1
place drop once-2 2 'fc1: 2' --set train.steps=1
alike once-one once-2
grep -q 'placed on 4 devices in .* device 3 is worker . with layer3.0.conv1' conv-4.log || fail "nobody says what is where: $(cat conv-4.log)"

"$rubato" export conv-one --onnx conv.onnx >/dev/null
sed 's/^model: .*/model: {onnx: conv.onnx}/' conv.yaml >imported.yaml
train imported imported-one
place imported imported-2 2 'layer2.0.downsample.0: 2, layer4: 2'
alike imported-one imported-2

# Where links cost nothing, branches go to another device.
train conv chosen -w 2 --set train.parallel=placed --set train.placed.latency=0s --set train.placed.byte_ns=0 --set train.placed.bytes_per_s=1e15
grep -q '29 layers measured; predicted for a step of 2 devices: .* (one device: ' chosen.log || fail "no choice is told: $(head -2 chosen.log)"
alike conv-one chosen
"$rubato" explain chosen place >explained.txt || fail "a chosen placement is not explained"
grep -q '^installed; 1 plan' explained.txt || fail "the plan of the placement is not the one that explain makes: $(tail -8 explained.txt)"
grep -q 'devices in a step, means of [1-9][0-9]* recorded steps' explained.txt || fail "devices are not shown: $(cat explained.txt)"
grep -A 3 '^links in a step' explained.txt | grep -q '^     2   1 .* [KM]iB' || fail "links are not shown: $(cat explained.txt)"
grep -A 2 '^predicted and measured' explained.txt | grep -q '^  step ' || fail "the step of the plan is not shown: $(tail -8 explained.txt)"

train conv auto -w 2 --set train.parallel=auto --set train.placed.latency=0s --set train.placed.byte_ns=0 --set train.steps=2 --set train.eval_every=0 --set 'train.pipeline={bytes_per_s: 1e15}'
grep -q 'predicted for a step of 2 workers: data parallel .*, pipeline .*, placed .* ms (one worker: .*); trains ' auto.log || fail "auto compares no placement: $(head -2 auto.log)"

# Two parts of device 2 read what layer1 makes: 24 samples of 8 x 28 x 28 numbers come once, and back go gradients of 16 x 14 x 14 for conv1
# and the downsampling.
place conv once 2 'layer2.0.conv1: 2, layer2.0.downsample.0: 2'
alike conv-one once
"$rubato" explain once place >explained.txt || fail "a placement with two readers is not explained"
grep -A 3 '^links in a step' explained.txt | grep -q '^     1   2 .* 1.15 MiB ' || fail "a value crosses more than once: $(grep -A 3 '^links' explained.txt)"

"$rubato" explain conv-4 place >explained.txt || fail "a placement of the job is not explained"
grep -q 'the job names its devices' explained.txt || fail "nobody says that nothing was predicted: $(cat explained.txt)"

place conv more 2 'layer3: 2' --set train.steps=3
place conv more 3 'layer3: 2, layer4.0.downsample.0: 3' --resume --set train.steps=6
train conv more --resume
same conv-one more
"$rubato" eval conv-2 >/dev/null || fail "eval does not read the checkpoint of a placed run"

lines_of() { if [ -e early/metrics.jsonl ]; then wc -l <early/metrics.jsonl; else echo 0; fi; }
more_lines() { [ "$(lines_of)" -gt $(($1 + 2)) ]; } # a start is a line, too
wait_steps() { wait_until early more_lines "$1"; } # LINES: more steps were reported
begin() { # OPTIONS..: three devices
    "$rubato" train drop.yaml --out early -w 3 --deterministic --set train.parallel=placed --set 'train.placed.devices={fc2: 2, fc3: 3}' \
        --set train.steps=1000000 --set train.eval_every=10000000 "$@" >early.log 2>&1 &
    job_pid=$!
    [ -z "${begin_early:-}" ] || kill_one early 2
    wait_steps 0
}
lose() { # WORKER: it is killed, and all start again
    said=$(restarts early devices)
    kill_one early "$1"
    wait_restart early "$said" devices
    grep -q "worker $1 .* was ended by signal 9\|worker $1[ ,].* was lost\|worker $1 .* was closed" early.log || fail "nobody says who was lost: $(tail -5 early.log)"
}
# Each of three workers is lost, twice, and once before any step after the last loss. There is no checkpoint, so all go on from copies in memory.
begin --set checkpoint.every=0s
for rank in 2 1 3 1 3 2; do
    lose $rank
    wait_steps "$(lines_of)"
done
lose 3
lose 1
wait_steps "$(lines_of)"
grep -q 'all devices start again from their copies in memory after step [1-9]' early.log || fail "nobody has a copy: $(cat early.log)"
lose 2
ended early # while they start again: their copies become a checkpoint
from=$(sed -n 's/all devices start again from their copies in memory after step //p' early.log | tail -1)
[ "$(newest early)" -gt "${from:-0}" ] || fail "a stop signal lost the copies after step $from: $(tail -5 early.log)"
train drop calm-early --set train.steps="$(newest early)" --set train.eval_every=10000000
told calm-early | grep step/1 >a.txt
told early | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses are not those of a calm run: $(diff a.txt b.txt | head -4)"
same calm-early early
# Without room for copies all go on from the newest checkpoint.
rm -rf early
begin --set checkpoint.every=0.2s --set train.memory=3MB
wait_ckpt early 0
lose 2
grep -q 'device [123] has no memory for two copies of its state' early.log || fail "nobody says that there are no copies: $(cat early.log)"
grep -q 'all devices start again from the checkpoint after step' early.log || fail "a loss does not lead to the checkpoint: $(tail -5 early.log)"
wait_steps "$(lines_of)"
ended early
rm -rf early
begin_early=1
begin # a worker is lost as soon as it runs, most often before the first step
begin_early=
wait_restart early 0 devices
wait_steps 0
ended early
rm -rf early
begin
said=$(restarts early devices) # of a busy machine
mkdir -p early/checkpoints/0000000001 # a damaged one: not none
kill_one early 2
code=0
wait "$job_pid" || code=$?
job_pid=
[ "$code" != 0 ] || fail "a job with a damaged checkpoint went on: $(tail -3 early.log)"
[ "$(restarts early devices)" = "$said" ] || fail "a damaged checkpoint counts as none: $(tail -3 early.log)"

refused() { # SENTENCE WORKERS DEVICES OPTIONS..
    says=$1
    w=$2
    d=$3
    shift 3
    code=0
    timeout 300 "$rubato" train drop.yaml --out refused -w "$w" --set train.parallel=placed --set "train.placed.devices={$d}" "$@" >refused.log 2>&1 || code=$?
    [ "$code" = 78 ] || fail "exit code $code instead of 78: $(tail -2 refused.log)"
    grep -q -e "$says" refused.log || fail "'$says' is not said: $(tail -2 refused.log)"
    rm -rf refused
}
refused "no layer 'fc9'; its layers are fc1, fc2, fc3" 2 'fc9: 2'
refused "'fc2' is on device 3, expected a whole number from 1 to 2" 2 'fc2: 3'
refused 'gives device 3 of 3 nothing to compute' 3 'fc2: 2'
refused 'a placed step keeps no moving means; leave out train.ema' 2 'fc2: 2' --set train.ema=0.9
refused 'leave out train.servers' 2 'fc2: 2' --set train.servers=1
refused 'train.stale is for pipelines' 2 'fc2: 2' --set train.stale=true
refused 'train.pipeline.cut is for pipelines' 2 'fc2: 2' --set 'train.pipeline.cut=[fc2]'
refused "device [12] needs .* the part that begins with '[a-z0-9.]*', and train.memory allows 1000" 2 'fc2: 2' --set train.memory=1000
refused 'start it with -w' 1:2 'fc2: 2'
unplaced() { # SENTENCE JOB OPTIONS..
    says=$1
    j=$2
    shift 2
    code=0
    timeout 300 "$rubato" train "$j.yaml" --out refused -w 2 --set train.parallel=placed "$@" >refused.log 2>&1 || code=$?
    [ "$code" = 65 ] || fail "exit code $code instead of 65: $(tail -2 refused.log)"
    grep -q -e "$says" refused.log || fail "'$says' is not said: $(tail -2 refused.log)"
}
unplaced '2 devices of 100000 bytes (train.memory) cannot hold the measured layers' conv --set train.memory=100kB
unplaced 'one device takes the shortest step, .* leave out train.parallel, or name layers' drop --set train.placed.latency=10s
cat >tied.yaml <<JOB
name: tied
model: {zoo: gpt, layers: 1, heads: 2, width: 16, context: 8}
data: {format: synthetic, generator: grammar, count: 1000, test_count: 200}
train: {batch: 8, steps: 5, threads: 1, autotune: false, eval_every: 3, optimizer: {adamw: {lr: 0.003}}}
JOB
# A tied embedding: its two uses in two parts of one device, and on two devices with micro-batches.
train tied tied-one
train tied tied-two --set train.accumulate=2
place tied tied-here 2 'transformer.h.0.mlp: 2'
place tied tied-there 2 'transformer.h: 2, transformer.wte@2: 2' --set train.accumulate=2
alike tied-one tied-here
alike tied-two tied-there

[ "$failed" = 0 ] && echo "placed.sh: all passed"
exit "$failed"
