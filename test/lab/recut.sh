#!/bin/sh
# A pipeline, or a placed step, whose worker becomes slow is planned again: recut.sh PATH_OF_RUBATO PATH_OF_PLACED_NET
#
#   Two hosts with quotas of a core. Rubato chooses the cut; then the second host gets an eighth of its quota, and all start again
#   from a set with a cut that gives it fewer layers. The losses are those of one process. In a further run the worker of that host
#   cannot start with the other cut: the job goes on with the earlier one. A step of branches is placed again in the same way.
net=$(dirname "$(realpath "$0")")/net.sh
"$net" check cpu || exit $?
. "$(dirname "$0")/parts.sh"
lab=rurecut$$
down() {
    cleanup
    "$net" down "$lab" >/dev/null 2>&1 || true
}
trap down EXIT
"$net" up "$lab" 2 --rate 1gbit >/dev/null
echo 80 >quota
cat >ssh <<SSH
#!/bin/sh
shift
cd $work
mv refuse refused 2>/dev/null && exit 1
exec $net cpu $lab 2 \$(cat quota) "\$@"
SSH
chmod +x ssh
cat >job.yaml <<JOB
name: recut
model: {zoo: mlp, hidden: [512, 512, 512, 512, 512, 512, 512, 512]}
data: {format: synthetic, generator: digits, count: 2400, test_count: 100}
train: {batch: 64, accumulate: 4, steps: 1000000, eval_every: 10000000, threads: 1, autotune: false, optimizer: {sgd: {lr: 0.01, momentum: 0.9}}}
checkpoint: {every: 0s}
JOB
# begin RUN [JOB WAY]: until its steps tell enough
begin() {
    echo 80 >quota
    "$net" quota "$lab" 2 80 2>/dev/null || true
    RUBATO_SSH=$work/ssh "$net" cpu "$lab" 1 80 "$rubato" train "${2:-job}.yaml" --out "$1" --hosts 10.77.0.1:1,10.77.0.2:1 --set "train.parallel=${3:-pipeline}" >"$1.log" 2>&1 &
    job_pid=$!
    wait_until "$1" past "$1" 120
}
lines_of() { if [ -e "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
past() { [ "$(lines_of "$1")" -gt "$2" ]; }
# layers: the cuts so far, by their number among fc1 to fc9
layers() { sed -n 's/.*worker 2 from the input, worker 1 from fc\([1-9]\).*/\1/p' run.log; }
begin run
first=$(layers | tail -1) # on a busy machine there may have been another cut already
echo 10 >quota
"$net" quota "$lab" 2 10
fewer() { last=$(layers | tail -1) && [ "$last" -lt "$first" ]; }
wait_until run fewer
wait_until run past run $(($(lines_of run) + 30))
ended run
grep -q 'a step takes .* ms were predicted; with the recorded times another cut takes' run.log || fail "nobody says why: $(tail -5 run.log)"
grep -q 'all stages start again from their copies in memory' run.log || fail "not from a set: $(tail -5 run.log)"
grep -q '"speeds":\[' run/plans/pipe.json || fail "the policy was not asked with speeds of workers: $(head -c 300 run/plans/pipe.json)"
"$rubato" explain run pipe >explained.txt || fail "explain says nothing of the other cut"
grep -q 'cut the layers into 2 stages' explained.txt || fail "explain shows no plan of the other cut: $(head -5 explained.txt)"
train job one --set train.steps="$(newest run)"
told run | grep step/1 >a.txt
told one | grep step/1 >b.txt
cmp -s a.txt b.txt || fail "losses are not those of one process: $(diff a.txt b.txt | head -4)"
same run one

# On a busy machine a loss may have the start that is refused: the host counts as gone then, and a further run is to show it.
for try in 1 2 3 4; do
    rm -rf back back.log refuse
    begin back
    touch refuse
    echo 10 >quota
    "$net" quota "$lab" 2 10
    wait_until back grep -q 'goes back to the earlier one\|the job goes on with 1 worker' back.log
    ! grep -q 'goes back to the earlier one' back.log || break
    ended back
    [ $try -lt 4 ] || fail "no start with another cut was refused: $(tail -5 back.log)"
done
wait_until back past back $(($(lines_of back) + 10))
ended back
train job two --set train.steps="$(newest back)"
told back | grep step/1 >c.txt
told two | grep step/1 >d.txt
cmp -s c.txt d.txt || fail "losses of the earlier cut are not those of one process: $(diff c.txt d.txt | head -4)"
same back two
# Equal branches: with a third of its quota the second device gets fewer of them, and not none.
branches 24 24 24 24 24 24 24 24
begin place branches placed
cp place/job.yaml first.yaml
echo 27 >quota
"$net" quota "$lab" 2 27
again() { # placed otherwise for this reason; a loss makes all start again, too
    grep -q 'a step takes .* ms were predicted; with the recorded times another placement takes' place.log &&
        [ "$(restarts place devices)" -gt 0 ] && [ "$(grep 'placed on 2 devices' place.log | sort -u | wc -l)" -ge 2 ]
}
wait_until place again
wait_until place past place $(($(lines_of place) + 10))
ended place
grep -q 'all devices start again from their copies in memory' place.log || fail "not from a set: $(tail -5 place.log)"
"$rubato" explain place place >explained.txt || fail "another placement is not explained"
grep -q '^installed' explained.txt || fail "explain has no plan for another placement: $(tail -8 explained.txt)"
if [ "$(restarts place devices)" = 1 ]; then placed_twice place 2; else echo "placed again more than once, so bits were not compared"; fi
[ $failed = 0 ] && echo "ok: cut at fc$first, then at fc$last, with the losses of one process; back when a worker cannot start"
exit $failed
