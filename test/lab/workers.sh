#!/bin/sh
# Real worker processes on this machine: workers.sh PATH_OF_RUBATO
#
#   1. 2 and 4 workers give the losses of one process (MLP, LeNet, GPT) within rounding, over shared
#      memory and over sockets;
#   2. the same workers twice with --deterministic: the same bytes in model and optimizer, which are
#      those of one process with as many micro-batches, with augmentation and held-out samples; the
#      same evaluations, figures that need every sample included;
#   3. kill -9 of a worker and of the leader: no sample lost or repeated, every step told once;
#      the reliable ones go on when all four without a vote are killed at once;
#   4. three kills and three joins in one epoch, a worker that leaves when asked: the final losses are
#      those of one process that nobody disturbed, within 1e-3;
#   5. Ctrl-C once saves at a step boundary, and the run goes on with another number of workers;
#   6. a peer without the token is refused; below the least number a worker is started again;
#   7. --hosts and torchrun's variables start the same job;
#   8. train.batch_schedule: the same batches and losses as one process, also when resumed.
set -eu
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-workers-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
pids=
cleanup() {
    for p in $pids; do kill -9 "$p" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "FAIL: $*" >&2
    failed=1
}

# losses A B TOLERANCE: the runs' losses agree at every step
losses() {
    grep '"rubato.train.step/1"' "$1" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/' >a.txt
    grep '"rubato.train.step/1"' "$2" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/' >b.txt
    [ "$(wc -l <a.txt)" = "$(wc -l <b.txt)" ] || fail "$2 tells $(wc -l <b.txt) steps, $1 $(wc -l <a.txt)"
    worst=$(paste a.txt b.txt | awk '
        $1 != $3 { print 9; exit }
        { d = $2 - $4; d = d < 0 ? -d : d; d /= ($2 > 1 ? $2 : 1); if (d > w) w = d }
        END { print w + 0 }' | head -1)
    if awk "BEGIN { exit !($worst <= $3) }"; then
        echo "ok: $2 against $1: worst difference $worst"
    else
        fail "$2 against $1: worst difference of losses $worst, at most $3"
    fi
}

# whole RUN STEPS: nothing lost, nothing repeated, every step told once and in order
whole() {
    tail -1 "$1/metrics.jsonl" | grep -q '"samples_lost":0,"samples_repeated":0' ||
        fail "$1: $(tail -1 "$1/metrics.jsonl" | cut -c1-200)"
    grep '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/' >told.txt
    seq 1 "$2" | cmp -s - told.txt || fail "$1: the steps told are not 1 to $2"
}

# final_loss RUN RUN TOLERANCE: of the last step and of the test set
final_loss() {
    for run in "$1" "$2"; do
        tail -1 "$run/metrics.jsonl" | sed 's/.*"loss":\([0-9.e-]*\),"metric":{[^}]*"loss":\([0-9.e-]*\)}.*/\1 \2/'
    done >final.txt
    if awk -v most="$3" '
        NF != 2 || $1 + 0 <= 0 || $2 + 0 <= 0 { bad = 1 }
        NR == 1 { step = $1; test = $2 }
        NR == 2 { a = $1 - step; b = $2 - test; if (a * a > most * most || b * b > most * most) bad = 1 }
        END { exit bad || NR != 2 }' final.txt; then
        echo "ok: $2 against $1, final losses of step and test set: $(tr '\n' ' ' <final.txt)"
    else
        fail "$2 against $1: final losses more than $3 apart: $(tr '\n' ' ' <final.txt)"
    fi
}

newest() {
    ls "$1/checkpoints" | grep -v tmp | tail -1
}

same_state() {
    for f in model.safetensors optimizer.safetensors; do
        cmp "$1/checkpoints/$(newest "$1")/$f" "$2/checkpoints/$(newest "$2")/$f" ||
            fail "$2 differs from $1 in $f"
    done
}

# told RUN WORDS [TIMES]: wait until the run has told them so often; run: its process
told() {
    n=0 dead=
    until n_told=$(grep -sc "$2" "$1/metrics.jsonl") && [ "$n_told" -ge "${3:-1}" ]; do
        n=$((n + 1))
        if [ $n -ge 6000 ] || [ -n "${dead:-}" ]; then
            fail "$1 never tells $2"
            return
        fi
        kill -0 "$run" 2>/dev/null || dead=1 # what it told last is looked at once more
        sleep 0.05
    done
}
started() {
    told "$1" "\"step\":$2,"
}
# further RUN STEPS: wait until it has done so many more
further() {
    told "$1" '"rubato.train.step/1"' $(($(grep -c '"rubato.train.step/1"' "$1/metrics.jsonl") + $2))
}
# all RUN: like whole, of a run that was stopped where it was
all() {
    whole "$1" "$(grep -c '"rubato.train.step/1"' "$1/metrics.jsonl")"
}

# process RUN RANK: of this test, not of one beside it
process() {
    for p in $(pgrep -f "worker --job $1/job.yaml .*--rank $2( |\$)"); do
        ! [ "/proc/$p/cwd" -ef "$work" ] || echo "$p"
    done
}
# kill_rank RUN RANK
kill_rank() {
    kill -9 "$(process "$1" "$2")" || fail "no worker $2 of $1"
}

"$rubato" data make digits --out digits --count 4000 --test 200 >/dev/null 2>&1
cat >lenet.yaml <<JOB
name: lab
model: {zoo: lenet, width: 8}
data:
  format: idx
  train: [digits/train-images, digits/train-labels]
  test: [digits/test-images, digits/test-labels]
train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 40, epochs: 1, autotune: false, threads: 1}
checkpoint: {every: 1s}
JOB
sed 's/model: .*/model: {zoo: mlp, hidden: [64]}/' lenet.yaml >mlp.yaml
sed -e 's/^  test: .*/  validation: 0.1\n  augment: {crop: 2, rotation: 9, cutout: 5, mixup: 0.3}/' \
    -e 's/^train: {/train: {metrics: [f1], /' lenet.yaml >augmented.yaml
cat >gpt.yaml <<JOB
name: lab
model: {zoo: gpt, layers: 2, heads: 2, width: 32, context: 32}
data: {format: synthetic, generator: grammar, count: 2000}
train: {optimizer: {adamw: {lr: 0.001}}, batch: 16, steps: 40, autotune: false, threads: 1, clip_norm: 1}
JOB

for model in mlp lenet gpt; do
    "$rubato" train $model.yaml --json --out $model-1 >$model-1.jsonl 2>err.txt || fail "$model: $(tail -1 err.txt)"
    for w in 2 4; do
        timeout 300 "$rubato" train $model.yaml -w $w --equal-shares --json --out $model-$w >$model-$w.jsonl 2>err.txt ||
            fail "$model -w $w: $(tail -3 err.txt)"
        [ $model = lenet ] || losses $model-1.jsonl $model-$w.jsonl 5e-5
    done
done
# A net that leaves a plateau amplifies the rounding of another order of sums a thousandfold, so
# LeNet is compared with one process that adds up the same parts.
for w in 2 4; do
    "$rubato" train lenet.yaml --set train.accumulate=$w --json --out lenet-1-$w >lenet-1-$w.jsonl 2>err.txt ||
        fail "lenet in $w parts: $(tail -1 err.txt)"
    losses lenet-1-$w.jsonl lenet-$w.jsonl 5e-6
done
timeout 300 "$rubato" train lenet.yaml -w 2 --sockets --equal-shares --json --out lenet-s >lenet-s.jsonl 2>err.txt ||
    fail "lenet over sockets: $(tail -3 err.txt)"
planned=$(sed -n 's/.*"policy":"coll","version":[0-9]*,"id":"\([0-9a-f]*\)".*/\1/p' lenet-s/plans/installed.jsonl | tail -1)
[ -n "$planned" ] || fail "lenet over sockets: no plan of sums was kept"
! grep -q "stops leading" lenet-s/log || fail "a leader that has just begun: $(grep 'stops leading' lenet-s/log)"
"$rubato" plan lenet-s/world.json coll | grep -q "^coll plan $planned " ||
    fail "lenet over sockets: the world file does not give plan $planned of sums again"
"$rubato" explain lenet-s coll | grep -q "^installed; " || fail "lenet over sockets: the plan of sums is not explained"
grep -q "\"id\":\"$planned\".*\"measured\":{\"queued_s\":" lenet-s/world.json ||
    fail "lenet over sockets: plan $planned of sums has no measured time"
losses lenet-1-2.jsonl lenet-s.jsonl 5e-6

# On a terminal progress is one line that moves; without, lines that stay.
if command -v script >/dev/null; then
    script -qc "stty cols 90; timeout 300 $rubato train mlp.yaml -w 2 --set train.epochs=60 --out moves" moves.raw \
        </dev/null >/dev/null || fail "on a terminal: $(tail -3 moves.raw)"
    tr '\r' '\n' <moves.raw >moves.txt
    [ "$(grep -c '^epoch .*\[[#.]*\]  loss' moves.txt)" -ge 2 ] || fail "nothing moves on a terminal: $(cat -v moves.raw)"
    ! grep -q '| epoch .* left' moves.txt || fail "lines that stay on a terminal: $(cat -v moves.raw)"
    grep -q '^worker 1 | done: 6000 steps' moves.txt || fail "the end is drawn over: $(cat -v moves.raw)"
fi
! grep -q "$(printf '\r')\|progress/1" err.txt lenet-s.jsonl || fail "something moves without a terminal: $(cat -v err.txt)"

# evaluations RUN: step and figures, without the time they took
evaluations() {
    grep '"rubato.train.eval/1"' "$1/metrics.jsonl" | sed 's/,"eval_s.*//'
}
for k in 2 2b 4; do
    timeout 300 "$rubato" train augmented.yaml -w ${k%b} --deterministic --json --out same-$k >same-$k.jsonl 2>err.txt ||
        fail "deterministic: $(tail -3 err.txt)"
done
same_state same-2 same-2b
for k in 2 4; do
    "$rubato" train augmented.yaml --set train.accumulate=$k --json --out micro-$k >micro.jsonl 2>/dev/null
    same_state micro-$k same-$k
    [ "$(evaluations micro-$k)" = "$(evaluations same-$k)" ] ||
        fail "$k workers evaluate to $(evaluations same-$k), one process to $(evaluations micro-$k)"
    evaluations same-$k | grep -q '"f1":0' || fail "no F1 in $(evaluations same-$k)"
done
echo "ok: the same workers, the same bytes and figures"

# Moving means, groups, weights of classes and of a file: one process, two workers, and two that were stopped.
base=$(ls -d "$work"/same-2/checkpoints/[0-9]*/model.safetensors | tail -1)
for o in lamb lion rmsprop; do
    sed -e "s/^train: {optimizer: {sgd: {[^}]*}}/train: {optimizer: {$o: {lr: 0.002}}, ema: 0.9, histograms: 30,\n  \
class_weights: balanced, groups: [{match: conv1.*, freeze: true}, {match: '*.bias', lr: 2}]/" \
        -e "s,^model: {,model: {weights: $base\, ," lenet.yaml >tuned.yaml
    "$rubato" train tuned.yaml --set train.accumulate=2 --json --out tuned-$o >tuned.jsonl 2>err.txt ||
        fail "tuned $o: $(tail -3 err.txt)"
    timeout 300 "$rubato" train tuned.yaml -w 2 --deterministic --json --out tuned-$o-2 >tuned.jsonl 2>err.txt ||
        fail "tuned $o -w 2: $(tail -3 err.txt)"
    timeout 300 "$rubato" train tuned.yaml -w 2 --deterministic --set train.steps=45 --json --out tuned-$o-r >tuned.jsonl \
        2>err.txt || fail "tuned $o, 45 steps: $(tail -3 err.txt)"
    timeout 300 "$rubato" train tuned.yaml -w 2 --deterministic --json --resume --out tuned-$o-r >tuned.jsonl 2>err.txt ||
        fail "tuned $o, resumed: $(tail -3 err.txt)"
    same_state tuned-$o tuned-$o-2
    same_state tuned-$o tuned-$o-r
    [ "$(evaluations tuned-$o)" = "$(evaluations tuned-$o-2)" ] || fail "tuned $o: two workers evaluate otherwise"
    cmp tuned-$o-2/histograms/000000090.json tuned-$o-r/histograms/000000090.json ||
        fail "tuned $o: a resumed run has other histograms"
done
echo "ok: moving means, groups, weights of classes and of a file"

for rank in 3 1; do
    "$rubato" train lenet.yaml -w 4 --set train.epochs=10000 --json --out kill-$rank >kill-$rank.jsonl 2>err.txt &
    run=$!
    pids="$pids $run"
    started kill-$rank 200
    kill_rank kill-$rank $rank
    told kill-$rank "\"lost\",\"worker\":$rank,"
    further kill-$rank 200
    kill -TERM $run
    wait $run || fail "kill -9 of worker $rank: $(tail -3 err.txt)"
    grep -q "\"lost\",\"worker\":$rank," kill-$rank/metrics.jsonl ||
        fail "worker $rank was killed, told: $(grep '"lost"' kill-$rank/metrics.jsonl)"
    grep -q "^worker $rank (pid [0-9]*) was ended by signal 9" err.txt || fail "worker $rank: $(cat err.txt)"
    [ -f kill-$rank/log.$rank ] || fail "no log.$rank"
    all kill-$rank
done
echo "ok: kill -9 of a worker and of the leader"

# A worker that was silent for too long is removed, and comes back by itself under the next number.
"$rubato" train lenet.yaml -w 3 --set train.epochs=100000 --json --out back >back.jsonl 2>err.txt &
run=$!
pids="$pids $run"
started back 100
silent=$(process back 3)
kill -STOP "$silent"
told back '"lost","worker":3'
kill -CONT "$silent"
told back '"join","worker":4'
told back '"works","worker":4'
kill -0 "$silent" || fail "the worker that was silent is gone: $(tail -3 err.txt)"
kill -TERM $run
wait $run || fail "a job whose worker came back: $(tail -3 err.txt)"
grep -q 'removed from the job .*; joining it again at' err.txt || fail "it came back untold: $(cat err.txt)"
all back
echo "ok: a worker that was silent came back"

# Workers without a vote, on two cores most of the job, are killed at once.
"$rubato" train mlp.yaml --set train.epochs=100000 -w "1:$(($(nproc) + 4))" --json --out bulk >bulk.jsonl 2>err.txt &
run=$!
pids="$pids $run"
started bulk 40
address=$(sed -n 's/.*rubato worker --join \([^ ]*\) .*/\1/p' err.txt | head -1)
transient=
for k in 1 2 3 4; do
    "$rubato" worker --join "$address" --token-file bulk/token --tier transient >/dev/null 2>join-$k.err &
    transient="$transient $!"
done
told bulk '"works","worker":[2-9]' 4
# shellcheck disable=SC2086 # several
kill -9 $transient
told bulk '"lost"' 4
further bulk 100
kill -TERM $run
wait $run || fail "those that vote are left: $(tail -3 err.txt)"
[ "$(grep -c '"join",.*"tier":"transient"' bulk/metrics.jsonl)" = 4 ] || fail "not four transient workers: $(grep '"join"' bulk/metrics.jsonl)"
[ "$(grep -c '"lost"' bulk/metrics.jsonl)" -le 6 ] || fail "four were killed, told: $(grep '"lost"' bulk/metrics.jsonl)"
all bulk
echo "ok: all workers without a vote are lost at once"

# The world file of a running job, to the job's token only; its plans are made again from it.
"$rubato" train mlp.yaml --set train.epochs=100000 -w 2:3 --sockets --json --out live >live.jsonl 2>err.txt &
run=$!
pids="$pids $run"
started live 40
n=0
until grep -qs '"policy":"coll"' live/plans/installed.jsonl || [ $n -ge 6000 ]; do
    n=$((n + 1))
    sleep 0.05
done
address=$(sed -n 's/.*rubato worker --join \([^ ]*\) .*/\1/p' err.txt | head -1)
"$rubato" capture "$address" --token-file live/token >captured.json 2>capture.txt ||
    fail "capture from $address: $(tail -1 capture.txt)"
"$rubato" explain captured.json coll 2>&1 | grep -q "^installed; " || fail "the plan of sums of a live job is not in its world file"
head -c 20 /dev/urandom | od -An -tx1 | tr -d ' \n' >other-token
chmod 600 other-token
"$rubato" capture "$address" --token-file other-token >/dev/null 2>capture.txt && fail "a stranger got the world file"
kill -TERM $run
wait $run || true
echo "ok: rubato capture takes the world file of a live job"

# Over sockets parameters are updated as sums come; what was updated in a step that lost a worker is
# taken back.
# The first layer has 18.8 MB: over sockets it is summed in cuts of 1.5 MB, as long as the rule holds.
sed -e 's/hidden: \[64\]/hidden: [6000]/' -e 's/lr: 0.02/lr: 0.005/' mlp.yaml >wide.yaml
timeout 300 "$rubato" train wide.yaml --set train.epochs=2 -w 2 --equal-shares --json --out wide-2 >wide-2.jsonl 2>err.txt ||
    fail "cuts in shared memory: $(tail -3 err.txt)"
"$rubato" train wide.yaml --set train.epochs=2 --json --out wide-1 >wide-1.jsonl 2>err.txt || fail "wide: $(tail -1 err.txt)"
# undisturbed COMMAND LOG: it succeeds. Survivors that had no processor meanwhile cannot know whether others went on: then the job ends.
# Not three times; and of two that are left behind each kill one is in time more often than the only one.
undisturbed() {
    for try in 1 2 3; do
        before=$failed
        ! "$1" || return 0
        grep -q 'they may have continued with others' "$2" && [ $try -lt 3 ] || break
        echo "note: $1: $(tail -1 "$2")"
        failed=$before
    done
    fail "$1: $(tail -3 "$2")"
}
kills_over_sockets() {
    rm -rf wide-4
    timeout --foreground 300 "$rubato" train wide.yaml -w 5 --sockets --set train.epochs=2 --json --out wide-4 >wide-4.jsonl 2>err.txt &
    run=$!
    for at in 40 80 120; do
        started wide-4 $at
        kill_rank wide-4 $((at / 40))
    done
    wait $run
}
undisturbed kills_over_sockets err.txt
whole wide-4 200
losses wide-1.jsonl wide-2.jsonl 5e-5
losses wide-1/metrics.jsonl wide-4/metrics.jsonl 5e-5
[ "$("$rubato" trace wide-4 --json | grep -c '"gradients [0-9.]* + 1*[0-9] MiB')" -gt 0 ] || fail "nothing was summed in cuts"
"$rubato" trace wide-4 --json --rows 0 | grep -q '"early update"' || fail "no parameter was updated early"
echo "ok: three kills over sockets, with parameters updated early"

# One epoch of 2500 steps at a rate at which rounding does not grow: two runs that nobody disturbs,
# on one and on three workers, end 2e-4 apart.
"$rubato" data make digits --out many --count 100000 --test 1000 >/dev/null 2>&1
sed -e 's/digits\//many\//g' -e 's/lr: 0.02/lr: 0.001/' lenet.yaml >epoch.yaml
"$rubato" train epoch.yaml --json --out still >still.jsonl 2>err.txt || fail "one epoch: $(tail -1 err.txt)"
join() {
    "$rubato" worker --join "$address" --token-file stir/token >/dev/null 2>join.err &
    joined=$!
    pids="$pids $joined"
}
three_kills_and_three_joins() {
    rm -rf stir
    timeout --foreground 300 "$rubato" train epoch.yaml -w 2:4 --json --out stir >stir.jsonl 2>stir.err &
    run=$!
    started stir 50
    address=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' stir.err | head -1)
    join
    told stir '"works","worker":3'
    kill -9 $joined
    told stir '"lost","worker":3'
    join
    told stir '"works","worker":4'
    further stir 50
    kill_rank stir 2
    told stir '"lost","worker":2'
    further stir 50
    kill -TERM $joined
    wait $joined || fail "a worker that leaves exits $?: $(cat join.err)"
    told stir '"leave","worker":4'
    # The one that is left stands still most of the time, so that it is not done before others have started.
    left=$(process stir 1)
    for k in 5 6; do
        [ $k -eq 5 ] || join
        while ! grep -q "\"works\",\"worker\":$k" stir/metrics.jsonl && kill -STOP "$left" 2>/dev/null; do
            sleep 0.1
            kill -CONT "$left" || break
            sleep 0.02
        done
        told stir "\"works\",\"worker\":$k"
    done
    kill_rank stir 1
    wait $run
}
undisturbed three_kills_and_three_joins stir.err
whole stir 2500
final_loss still stir 1e-3
lost=$(grep -c '"what":"lost"' stir/metrics.jsonl)
[ "$lost" -ge 3 ] && [ "$lost" -le 5 ] || fail "three workers were killed, told: $(grep '"lost"' stir/metrics.jsonl)" # one that had no processor for long is lost, too
grep -q 'starting another worker' stir.err || fail "nobody was started below the least number"
echo "ok: three kills, three joins, one leave"

RUBATO_TOKEN=0123456789abcdef0123456789abcdef
export RUBATO_TOKEN
"$rubato" train lenet.yaml -w 2 --set train.epochs=10000 --json --out stop >stop.jsonl 2>err.txt &
run=$!
pids="$pids $run"
started stop 300
kill -TERM $run
wait $run || fail "Ctrl-C: $(tail -3 err.txt)"
at=$(newest stop | sed 's/^0*//')
timeout 300 "$rubato" train lenet.yaml -w 3 --set train.epochs=10000 --set train.steps=$((at + 500)) --out stop --resume --json >stop2.jsonl 2>err.txt ||
    fail "resume with three: $(tail -3 err.txt)"
whole stop $((at + 500))
echo "ok: stopped after step $at, went on with three"

"$rubato" train lenet.yaml -w 1:4 --set train.epochs=10000 --json --out door >door.jsonl 2>door.err &
run=$!
pids="$pids $run"
started door 100
address=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' door.err | head -1)
set +e
timeout 300 "$rubato" worker --join "$address" >/dev/null 2>thief.err
code=$?
set -e
[ $code -eq 69 ] || fail "a worker with another token exits $code: $(cat thief.err)"
further door 100
kill -TERM $run
wait $run || fail "the job with a stranger at the door: $(tail -3 door.err)"
all door
echo "ok: a stranger is refused: $(tail -1 thief.err)"

# other launchers: ssh (a stand-in that runs the words here), and the words of torchrun
printf '#!/bin/sh\nshift\nexec "$@"\n' >ssh-here
chmod +x ssh-here
RUBATO_SSH=$work/ssh-here timeout 300 "$rubato" train lenet.yaml --hosts localhost:2,elsewhere:1 \
    --set train.epochs=10 --json --out hosts >hosts.jsonl 2>hosts.err || fail "--hosts: $(tail -3 hosts.err)"
whole hosts 1000
grep -q '"what":"works","worker":3' hosts/metrics.jsonl || fail "--hosts: the third worker never works"
port=$((11000 + $$ % 1000)) # where no other script listens, below those that the kernel gives to others
for rank in 1 0; do # the one that joins may be in the folder before the first one
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        timeout --foreground 300 "$rubato" train lenet.yaml --set train.epochs=4 --json --out rank >rank-$rank.jsonl 2>rank-$rank.err &
    eval "rank$rank=\$!"
    n=0
    until [ -s rank/lock ] || [ $n -ge 6000 ]; do
        n=$((n + 1))
        sleep 0.05
    done
done
wait $rank0 || fail "RANK=0: $(tail -3 rank-0.err)"
wait $rank1 || fail "RANK=1: $(tail -3 rank-1.err)"
whole rank 400
for wrong in "train lenet.yaml --hosts elsewhere.invalid:1" "worker --join nonsense" "worker --join 127.0.0.1:99999"; do
    rc=0
    RUBATO_TOKEN=0123456789abcdef timeout 300 "$rubato" $wrong >/dev/null 2>wrong.err || rc=$?
    [ "$rc" -eq 2 ] || fail "$wrong: expected exit code 2: $(cat wrong.err)"
done
echo "ok: hosts over ssh, torchrun's variables"

# another batch from epoch 2 and 3 on: the steps of one process, also when it is resumed
sed 's/epochs: 1/epochs: 4, batch_schedule: {2: 64, 3: 100}/; s/batch: 40/batch: 32/' mlp.yaml >grow.yaml
"$rubato" train grow.yaml --json --out grow-1 >grow-1.jsonl 2>err.txt || fail "batch_schedule: $(tail -1 err.txt)"
timeout 300 "$rubato" train grow.yaml -w 2 --json --out grow-2 >grow-2.jsonl 2>err.txt ||
    fail "batch_schedule -w 2: $(tail -3 err.txt)"
timeout 300 "$rubato" train grow.yaml -w 2 --out grow-3 --set train.steps=210 >/dev/null 2>err.txt ||
    fail "batch_schedule, first part: $(tail -3 err.txt)"
timeout 300 "$rubato" train grow.yaml -w 3 --out grow-3 --resume >/dev/null 2>err.txt ||
    fail "batch_schedule, resumed: $(tail -3 err.txt)"
for run in grow-1 grow-2 grow-3; do
    sed -n 's/.*"rubato.train.step\/1".*"step":\([0-9]*\),.*"samples":\([0-9]*\),.*/\1 \2/p' $run/metrics.jsonl >$run.at
done
cmp -s grow-1.at grow-2.at && cmp -s grow-1.at grow-3.at && [ -s grow-1.at ] ||
    fail "batch_schedule: $(diff grow-1.at grow-2.at | head -3; diff grow-1.at grow-3.at | head -3)"
losses grow-1/metrics.jsonl grow-2/metrics.jsonl 1e-4
losses grow-1/metrics.jsonl grow-3/metrics.jsonl 1e-4
whole grow-2 "$(grep -c '"rubato.train.step/1"' grow-1/metrics.jsonl)"

exit $failed
