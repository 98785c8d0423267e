#!/bin/sh
# A pipeline and a placed step on two hosts that share no folder, joined by a link: pipe_hosts.sh PATH_OF_RUBATO
#
#   1. `--hosts` trains them, with the losses and the checkpoint of one process;
#   2. kill -9 of a worker here, and of one there: all start again from copies that the first host keeps, and those there get their
#      state from it, to the same bits; also of a schedule that does not drain;
#   3. a host that is gone for good is left out, and the others divide the model anew; one that loses a worker again and again
#      keeps its other one;
#   4. a loss while the leader evaluates leaves out no evaluation;
#   5. a part of a placed step that has no state, and a checkpoint in place of copies that have no room;
#   6. a link that is cut for 0.5 s;
#   7. the machine of the launcher is lost: --resume with its checkpoint, which no other host has.
net=$(dirname "$(realpath "$0")")/net.sh
"$net" check || exit $?
. "$(dirname "$0")/parts.sh"
lab=rupipe$$
down() {
    cleanup
    "$net" down "$lab" >/dev/null 2>&1 || true
}
trap down EXIT
"$net" up "$lab" 2 --rate 1gbit >/dev/null
mkdir far
# The other host: its own network, and an empty folder over that of the runs. A file `gone` there: it does not answer.
cat >ssh <<SSH
#!/bin/sh
shift
[ ! -e $work/gone ] || exit 255
exec $net in $lab 2 unshare -m sh -c 'mount -t tmpfs none $work/runs; cd $work/far; exec "\$@"' sh "\$@"
SSH
chmod +x ssh
export RUBATO_SSH="$work/ssh"
mkdir runs

cat >drop.yaml <<JOB
name: drop
model: {zoo: mlp, hidden: [90, 60, 40], dropout: 0.3}
data: {format: synthetic, generator: digits, count: 240, test_count: 30}
train: {batch: 24, accumulate: 4, steps: 30, eval_every: 12, threads: 1, autotune: false, optimizer: {adam: {lr: 0.001}}}
checkpoint: {every: 0s}
JOB
hosts() { # OUT HERE THERE OPTIONS..
    o=runs/$1
    h=10.77.0.1:$2,10.77.0.2:$3
    shift 3
    "$net" in "$lab" 1 timeout --foreground 300 "$rubato" train drop.yaml --out "$o" --hosts "$h" "$@" >"$o.log" 2>&1
}
alike() { # RUN CALM [KIND]
    told "$1" | grep "${3:-/1}" >a.txt
    told "$2" | grep "${3:-/1}" >b.txt
    cmp -s a.txt b.txt || fail "losses of $1 are not those of $2: $(diff a.txt b.txt | head -4)"
    same "$1" "$2"
}
train drop one
hosts pipe 2 1 --set train.parallel=pipeline --set 'train.pipeline={cut: [fc2, fc3]}' || fail "pipe: $(tail -3 runs/pipe.log)"
hosts placed 1 2 --set train.parallel=placed --set 'train.placed.devices={fc2: 2, fc3: 3}' || fail "placed: $(tail -3 runs/placed.log)"
alike runs/pipe one
alike runs/placed one

lines_of() { if [ -e "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
more_lines() { [ "$(lines_of "$1")" -gt $(($2 + 3)) ]; }
wait_steps() { wait_until "$1" more_lines "$1" "$(lines_of "$1")"; }
job=drop
way=pipeline
here=2
there=1
begin() { # OUT OPTIONS..: job_pid is the launcher
    o=$1
    shift
    "$net" in "$lab" 1 "$rubato" train "$job.yaml" --out "$o" --hosts "10.77.0.1:$here,10.77.0.2:$there" \
        --set "train.parallel=$way" --set train.steps=1000000 "$@" >"$o.log" 2>&1 &
    job_pid=$!
    wait_steps "$o"
}
lose() { # OUT WORKER [PARTS]
    before=$(restarts "$1" "${3:-stages}")
    kill_one "$1" "$2"
    wait_restart "$1" "$before" "${3:-stages}"
    wait_steps "$1"
}
begin runs/lost --set train.eval_every=10000000 --set 'train.pipeline={cut: [fc2, fc3]}'
wait_steps runs/lost
for rank in 3 2 1 3; do lose runs/lost $rank; done
grep -q 'all stages start again from their copies in memory after step' runs/lost.log || fail "nobody has copies: $(tail -5 runs/lost.log)"
touch gone
lose runs/lost 3
rm gone
grep -q 'the job goes on with 2 workers, which divide the model anew' runs/lost.log || fail "a host that is gone is not left out: $(tail -8 runs/lost.log)"
ended runs/lost
train drop calm --set train.steps="$(newest runs/lost)" --set train.eval_every=10000000
alike runs/lost calm step/1

here=1
there=2
begin runs/again --set train.eval_every=10000000 --set 'train.pipeline={cut: [fc2, fc3]}'
given_up() {
    runs 3 && kill -9 "$victim"
    grep -q 'the job goes on with 2 workers' runs/again.log
}
wait_until runs/again given_up
wait_steps runs/again
far=0
for pid in $(pgrep -P "$job_pid"); do
    tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- '--token-file -' && far=$((far + 1))
done
[ "$far" = 1 ] || fail "$far workers of 2 are on the other host, expected 1"
ended runs/again
train drop calm-again --set train.steps="$(newest runs/again)" --set train.eval_every=10000000
alike runs/again calm-again step/1

here=2
there=1
begin runs/plug --set train.eval_every=10000000 --set 'train.pipeline={cut: [fc2, fc3]}' --set checkpoint.every=200ms
for k in 1 2 3; do
    "$net" cut "$lab" 2 0.5
    wait_steps runs/plug
done
# All of the first host at once; what runs on the other one ends by itself.
wait_ckpt runs/plug 0
here_now=$(pgrep -P "$job_pid" | while read -r pid; do tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- '--token-file -' || echo "$pid"; done)
# shellcheck disable=SC2086
kill -9 "$job_pid" $here_now
wait "$job_pid" 2>/dev/null || true
job_pid=
at=$(newest runs/plug)
hosts plug 2 1 --resume --set train.parallel=pipeline --set 'train.pipeline={cut: [fc2, fc3]}' --set train.eval_every=10000000 --set train.steps=$((at + 9)) ||
    fail "a run does not go on on hosts that lack its folder: $(tail -5 runs/plug.log)"
grep -q "continues after step $at" runs/plug.log || fail "not from the checkpoint after step $at: $(cat runs/plug.log)"
train drop calm-plug --set train.eval_every=10000000 --set train.steps=$((at + 9))
alike runs/plug calm-plug step/1

# Most of the time the leader evaluates.
sed 's/test_count: 30/test_count: 10000/' drop.yaml >eval.yaml
job=eval
here=1
begin runs/eval --set train.eval_every=3 --set 'train.pipeline={cut: [fc2]}'
for k in 1 2 3; do lose runs/eval 2; done
ended runs/eval
train eval calm-eval --set train.steps="$(newest runs/eval)" --set train.eval_every=3
told runs/eval | grep eval/1 >a.txt || true
told calm-eval | grep eval/1 | head -n "$(wc -l <a.txt)" >b.txt # that at its end is one more
[ -s a.txt ] && cmp -s a.txt b.txt || fail "evaluations of eval are not those of a calm run: $(diff a.txt b.txt | head -4)"

# The sum behind layer2.0 waits for the other device, so it is a part of its own.
sed 's/^model: .*/model: {zoo: resnet18, width: 8}/' drop.yaml >conv.yaml
job=conv
way=placed
begin runs/join --set train.eval_every=10000000 --set 'train.placed.devices={layer2.0: 2, layer2.0.downsample.0: 1}'
lose runs/join 2 devices
grep -q 'all devices start again from their copies in memory after step' runs/join.log || fail "devices have no copies: $(tail -5 runs/join.log)"
ended runs/join
train conv calm-join --set train.steps="$(newest runs/join)" --set train.eval_every=10000000
alike runs/join calm-join step/1

way=pipeline
here=2
sed 's/\[90, 60, 40\]/[8, 400, 400]/' drop.yaml >late.yaml
job=late
begin runs/tight --set train.eval_every=10000000 --set 'train.pipeline={cut: [fc2, fc3]}' --set train.memory=6MB --set checkpoint.every=100ms
wait_ckpt runs/tight 0
lose runs/tight 3
grep -q 'has no memory for two copies' runs/tight.log || fail "there is room for copies"
grep -q 'all stages start again from the checkpoint after step' runs/tight.log || fail "not from a checkpoint: $(tail -5 runs/tight.log)"
ended runs/tight
train late calm-tight --set train.steps="$(newest runs/tight)" --set train.eval_every=10000000
alike runs/tight calm-tight step/1

# Drains, and so copies, come with evaluations.
job=drop
begin runs/stash --set train.eval_every=10 --set train.stale=true --set train.accumulate=1 --set 'train.pipeline={cut: [fc2, fc3], schedule: stash}'
copied() { [ "$(lines_of runs/stash)" -gt 30 ]; }
wait_until runs/stash copied
lose runs/stash 3
grep -q 'all stages start again from their copies in memory after step [1-9][0-9]*0$' runs/stash.log || fail "stash has no copies: $(tail -5 runs/stash.log)"
ended runs/stash
at=$(newest runs/stash)
timeout 300 "$rubato" train drop.yaml --out calm-stash -w 3 --set train.eval_every=10 --set train.stale=true --set train.accumulate=1 --set train.parallel=pipeline \
    --set 'train.pipeline={cut: [fc2, fc3], schedule: stash}' --set train.steps=$((at / 10 * 10)) >calm-stash.log 2>&1 || fail "calm-stash: $(tail -3 calm-stash.log)"
told runs/stash | grep step/1 | head -n $((at / 10 * 10)) >a.txt
told calm-stash | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses of stash are not those of a calm run: $(diff a.txt b.txt | head -4)"
[ $failed = 0 ] && echo "ok: a pipeline and a placed step on two hosts, with losses of both"
exit $failed
