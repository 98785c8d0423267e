#!/bin/bash
# What a run survives, and what it leaves alone: hold.sh PATH_OF_RUBATO
#
#   1. a signal that is ignored at the start (nohup, a background job of a shell) stays ignored; a reader of
#      its output that goes away, and closed streams, end the output and not the job.
#   2. an app's metrics.jsonl holds every clock once, and who joined, left, was lost and leads, also when
#      the leader dies and no checkpoint was made.
#   3. the command ends with its job: if a host vanishes whose ssh never returns, if a worker is suspended;
#      it says what still runs, also when its own workers died and joined ones go on.
#   4. ranks of torchrun find each other without a token; what waits for others can be ended.
#   5. files of others in its folder stay as they are; a folder that is deleted under a run is begun anew.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-hold-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
steps() { # RUN: steps in its metrics file
    grep -c '"rubato.train.step/1"' "$1/metrics.jsonl" 2>/dev/null || true
}
reaches() { # RUN STEPS; pid: its process
    for _ in $(seq 1 3000); do
        [[ $(steps "$1") -ge $2 ]] && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    [[ $(steps "$1") -ge $2 ]] || fail "$1 does not get to step $2"
}
saved() { # RUN: its last whole checkpoint
    ls "$1/checkpoints" 2>/dev/null | grep -x '[0-9]*' | tail -1 || true
}
cat >mlp.yaml <<JOB
name: hold
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 5, autotune: false, threads: 1}
JOB
for ((k = 0; k < 200; k++)); do echo "$((k % 20)) $((k % 13)) $((k % 5))"; done >ratings
cat >mf.yaml <<JOB
name: hold
app: mf
data: {format: ratings, train: ratings}
clocks: {executors: 4}
train: {epochs: 5}
mf: {rank: 4}
JOB

# -- 1
for workers in 1 2; do
    for signal in HUP INT; do
        (
            trap '' $signal
            exec setsid "$rubato" train mlp.yaml --out ignores -w $workers --set train.epochs=100000
        ) >/dev/null 2>&1 &
        pid=$!
        reaches ignores 20
        kill -$signal -- -$pid
        reaches ignores $(($(steps ignores) + 50))
        kill -TERM $pid
        wait $pid || fail "-w $workers without $signal ends with $? after SIGTERM"
        [[ -n $(saved ignores) ]] || fail "-w $workers without $signal: no checkpoint"
        rm -rf ignores
    done
    for job in mlp mf; do
        got=0
        "$rubato" train $job.yaml --out $job-head -w $workers --json 2>/dev/null | head -1 >/dev/null || got=$?
        [[ $got -eq 0 && -n $(saved $job-head) ]] || fail "$job -w $workers --json | head -1: $got"
        "$rubato" train $job.yaml --out $job-mute -w $workers 2>&1 | true || got=$?
        [[ $got -eq 0 && -n $(saved $job-mute) ]] || fail "$job -w $workers 2>&1 | true: $got"
        "$rubato" train $job.yaml --out $job-closed -w $workers --json <&- >&- 2>&- || got=$?
        [[ $got -eq 0 && -n $(saved $job-closed) ]] || fail "$job -w $workers with closed streams: $got"
        if grep -qv '^{' $job-closed/metrics.jsonl; then fail "$job -w $workers: words in metrics.jsonl"; fi
        rm -rf $job-head $job-mute $job-closed
    done
done
got=0
"$rubato" train mlp.yaml --out full --json >/dev/full 2>/dev/null || got=$?
[[ $got -eq 74 ]] || fail "--json into a full device: $got"
echo "ok: ignored signals and closed streams"

# -- 2
pids_of() { # PARENT WORD: its workers, by their arguments
    pgrep -P "$1" -f "$2" || true
}
has() { # RUN EVENT WORKER; pid: its process
    for _ in $(seq 1 3000); do
        grep -q "\"what\":\"$2\",\"worker\":$3" "$1/metrics.jsonl" && return
        kill -0 $pid 2>/dev/null || break
        sleep 0.1
    done
    fail "$1 does not tell '$2' of worker $3: $(grep '"event"' "$1/metrics.jsonl" | head -5)"
}
"$rubato" train mf.yaml --out shared -w 2:4 --listen 127.0.0.1:0 --set train.epochs=100000 --set checkpoint.every=0s --set train.threads=1 >/dev/null 2>shared.err &
pid=$!
reaches shared 20
join=$(sed -n 's/.*--join \([^ ]*\).*/\1/p' shared.err | head -1)
comes() { # NUMBER: a worker joins
    "$rubato" worker --join "$join" --token-file shared/token >joined.txt 2>&1 &
    joined=$!
    has shared join "$1"
}
comes 3
kill -TERM $joined
wait $joined || fail "the worker that leaves ends with $?: $(tail -1 joined.txt)"
has shared leave 3
# Two of three go on, also one that had no processor for a while: who is alone then cannot know what the other did.
comes 4
# As if the leader had died before it told its last clocks: what it tells from here on goes where nobody looks.
ln shared/metrics.jsonl told.jsonl
head -n "$(wc -l <told.jsonl)" told.jsonl >shared/cut && mv shared/cut shared/metrics.jsonl
first=$(($(steps shared) + 1))
for _ in $(seq 1 3000); do [[ $(grep -c '"rubato.train.step/1"' told.jsonl) -ge $((first + 20)) ]] && break || sleep 0.1; done
kill -KILL "$(pids_of $pid "rank 1 ")"
has shared lost 1
has shared lead '[24]'
last=$(grep -c '"rubato.train.step/1"' told.jsonl)
reaches shared $((last + 20))
kill -TERM $pid
wait $pid || fail "the app ends with $?: $(tail -1 shared.err)"
wait $joined || true # with the job
grep -o '"rubato.train.step/1","step":[0-9]*' shared/metrics.jsonl | sed 's/.*://' | awk '
    $1 != last + 1 { print "step " $1 " after " last; exit 1 } { last = $1 }' >each.txt ||
    fail "an app after its leader's death: $(cat each.txt)"
# Nobody begins a clock before it knows the one before to be closed: the new leader knows all that were told but the
# last one, and has their sums no more. Of the last one it may know nothing, and then it does it again.
nulls=$(sed -n '/"rubato.train.step\/1".*"rmse":null/s/.*"step":\([0-9]*\).*/\1/p' shared/metrics.jsonl | tr '\n' ' ')
[[ "$nulls" == "$(seq -s ' ' $first "$last") " || "$nulls" == "$(seq -s ' ' $first $((last - 1))) " ]] ||
    fail "the dead leader did not tell clocks $first to $last; without a value stand: ${nulls:0:100}"
head -1 shared/metrics.jsonl | grep -q 'rubato.train.start/1' || fail "the history of the app is lost"
echo "ok: an app whose leader died: $(steps shared) clocks"

# -- 3
cat >ssh <<'SSH'
#!/bin/bash
# A host that vanishes: its worker ends, and nobody hears of it.
shift
trap '' TERM INT
"$@" <&0 & wait
exec sleep 1000
SSH
chmod +x ssh
got=0
RUBATO_SSH=$work/ssh timeout 300 "$rubato" train mlp.yaml --out vanishes --hosts localhost:1,far:1 >/dev/null 2>vanishes.err || got=$?
[[ $got -eq 0 ]] || fail "a job whose host vanishes ends with $got: $(tail -2 vanishes.err)"
late=$(($(date +%s) - $(stat -c %Y vanishes/metrics.jsonl)))
[[ $late -lt 200 ]] || fail "a command whose host vanishes ends $late s after its job"
grep -q "far does not answer" vanishes.err || fail "nobody says what still runs: $(cat vanishes.err)"
RUBATO_SSH=$work/ssh timeout --foreground 300 "$rubato" train mlp.yaml --out stops --hosts localhost:1,far:1 --set train.epochs=100000 >/dev/null 2>stops.err &
pid=$!
reaches stops 20
kill -TERM "$(pgrep -P $pid -f 'train mlp')"
wait $pid || fail "a job whose host vanishes ends with $? after SIGTERM: $(tail -2 stops.err)"
[[ -n $(saved stops) ]] || fail "no checkpoint after SIGTERM"
# A job that fails, and nobody of the far host tells: it ends with the job's code.
got=0
RUBATO_SSH=$work/ssh timeout -k 1 300 "$rubato" train mlp.yaml --out diverges --hosts localhost:1,far:1 --set 'model.hidden=[64,64,64]' --set train.optimizer.sgd.lr=1000 >/dev/null 2>diverges.err || got=$?
[[ $got -eq 1 ]] || fail "a job that diverges, whose host vanishes, ends with $got: $(tail -2 diverges.err)"
grep -q "far does not answer" diverges.err || fail "nobody says what still runs: $(cat diverges.err)"
# A worker that is suspended when the job ends, and joined ones that go on.
"$rubato" train mlp.yaml --out rest -w 2 --listen 127.0.0.1:0 --set train.epochs=2000 >/dev/null 2>rest.err &
pid=$!
reaches rest 20
kill -STOP "$(pgrep -P $pid -f 'rank 2 ')"
got=0
wait $pid || got=$?
[[ $got -eq 0 ]] || fail "a job with a suspended worker ends with $got: $(tail -2 rest.err)"
grep -q "did not end with the job; ending it" rest.err || fail "the suspended worker is not named: $(tail -3 rest.err)"
"$rubato" train mlp.yaml --out goes -w 1:4 --listen 127.0.0.1:0 --set train.epochs=100000 >/dev/null 2>goes.err &
pid=$!
reaches goes 20
join=$(sed -n 's/.*--join \([^ ]*\).*/\1/p' goes.err | head -1)
"$rubato" worker --join "$join" --token-file goes/token >/dev/null 2>&1 &
joined=$!
for _ in $(seq 1 3000); do grep -q '"works","worker":[2-9]' goes/metrics.jsonl && break || sleep 0.1; done
# shellcheck disable=SC2046
kill -KILL $(pgrep -P $pid -f 'worker --job')
got=0
wait $pid || got=$?
[[ $got -eq 1 ]] || fail "a command whose workers died ends with $got"
grep -q "the job goes on with 1 other" goes.err || fail "it does not say who goes on: $(tail -3 goes.err)"
kill -TERM $joined
wait $joined || fail "the worker that went on ends with $?"
echo "ok: commands end with their jobs"
# A worker of an app that was suspended joins again; so does its leader.
for rank in 3 1; do
    rm -rf wakes
    "$rubato" train mf.yaml --out wakes -w 3 --listen 127.0.0.1:0 --set train.epochs=100000 --set checkpoint.every=0s --set train.threads=1 >/dev/null 2>wakes.err &
    pid=$!
    reaches wakes 20
    worker=$(pids_of $pid "rank $rank ")
    kill -STOP "$worker"
    has wakes lost $rank
    kill -CONT "$worker"
    has wakes join 4
    kill -0 "$worker" || fail "the suspended worker $rank ended: $(tail -3 wakes.err)"
    reaches wakes $(($(steps wakes) + 20))
    kill -TERM $pid
    wait $pid || fail "an app with a suspended worker ends with $?: $(tail -2 wakes.err)"
    grep -q "removed from the job" wakes.err || fail "nobody says that worker $rank was removed: $(cat wakes.err)"
done
# A program with the same version and other bytes, here another build id, is refused.
id=$("${READELF:-readelf}" -n "$rubato" | sed -n 's/.*Build ID: //p')
perl -0777 -pe 'BEGIN { $id = pack("H*", shift) } s/\Q$id\E/"\0" . substr($id, 1)/e' "$id" "$rubato" >other
chmod +x other
for job in mlp mf; do
    rm -rf builds
    "$rubato" train $job.yaml --out builds -w 1:3 --listen 127.0.0.1:0 --set train.epochs=100000 --set train.threads=1 >/dev/null 2>builds.err &
    pid=$!
    reaches builds 20
    join=$(sed -n 's/.*--join \([^ ]*\).*/\1/p' builds.err | head -1)
    got=0
    timeout -k 1 300 ./other worker --join "$join" --token-file builds/token >/dev/null 2>other.err || got=$?
    [[ $got -eq 78 ]] || fail "$job: another build ends with $got: $(tail -2 other.err)"
    grep -q "program-build is 00${id:2:14} here, ${id:0:16} there" other.err || fail "$job: builds are not named: $(cat other.err)"
    kill -TERM $pid
    wait $pid || fail "$job that refused another build ends with $?"
done
echo "ok: suspended workers join again, other builds do not"

# Ranks that another launcher starts know each other without a token: by the user's secret, for an app too.
# Their port lies below those that the kernel gives to others (other scripts run beside this one).
for job in mlp mf; do
    for rank in 1 0; do
        HOME=$work/home XDG_CONFIG_HOME='' TORCHELASTIC_RUN_ID=none RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((12000 + $$ % 3000)) \
            timeout --foreground 300 "$rubato" train $job.yaml --out $job-ranks --set train.epochs=300 >/dev/null 2>$job-rank$rank.err &
        ranks[rank]=$!
    done
    for rank in 0 1; do wait "${ranks[rank]}" || fail "$job, rank $rank without a token: $(tail -2 $job-rank$rank.err)"; done
    grep -q "derived from $work/home/.config/rubato/secret" $job-rank1.err || fail "$job: the secret is not named: $(cat $job-rank1.err)"
    # shellcheck disable=SC2012
    [[ $(ls $job-ranks/trace | wc -l) -ge 2 ]] || fail "$job: one rank worked alone"
done
[[ $(stat -c %a home/.config/rubato/secret) == 600 ]] || fail "others can read the secret"
got=0
env RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 timeout 300 "$rubato" train mlp.yaml --out left >/dev/null 2>left.err || got=$?
[[ $got -eq 2 ]] && grep -q "unset these variables" left.err || fail "leftover variables: $got, $(cat left.err)"
# A worker that waits for others ends when it is asked to.
mkdir waits
RUBATO_TOKEN=0123456789abcdef timeout --foreground -k 1 300 "$rubato" worker --messages run --job mf.yaml --out waits --founders 2 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 1 3000); do [[ -e waits/trace ]] && break || sleep 0.1; done
waiting=$(pgrep -P $pid)
listens() { # PID: it waits for others at a socket
    local inode
    inode=$(find "/proc/$1/fd" -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n' | paste -sd'|')
    [[ -n $inode ]] && awk -v inode="^($inode)\$" '$4 == "0A" && $10 ~ inode { found = 1 } END { exit !found }' /proc/net/tcp
}
for _ in $(seq 1 3000); do ! listens "$waiting" || break; sleep 0.1; done
listens "$waiting" || fail "a founder of an app does not wait for others"
begin=$SECONDS
kill -TERM "$waiting" && wait $pid || fail "a founder of an app that waits ends with $?"
[[ $((SECONDS - begin)) -lt 200 ]] || fail "a founder of an app that waits ends after $((SECONDS - begin)) s"
echo "ok: ranks without a token"

# A link, a FIFO, a folder and another program's file where the run writes: refused, and untouched.
echo precious >target
for name in metrics.jsonl log job.yaml world.json follow.files federation.jsonl; do
    for kind in link fifo folder; do
        rm -rf taken && mkdir taken
        case $kind in link) ln -s ../target taken/$name ;; fifo) mkfifo taken/$name ;; folder) mkdir taken/$name ;; esac
        got=0
        timeout 300 "$rubato" train mlp.yaml --out taken >/dev/null 2>taken.err || got=$?
        [[ $got -eq 73 ]] || fail "$kind as $name ends with $got: $(cat taken.err)"
        grep -q "taken/$name is" taken.err || fail "$kind as $name is not named: $(cat taken.err)"
    done
done
[[ $(cat target) == precious ]] || fail "the target of a link was written"
# The same after the start: a worker of rank 2 that becomes the leader, and what is written anew at the end.
for job in "mlp 1" "mf 1" "mlp 2"; do
    read -r what workers <<<"$job"
    rm -rf later
    "$rubato" train $what.yaml --out later -w "$workers" --set train.epochs=100000 >/dev/null 2>later.err &
    pid=$!
    reaches later 20
    ln -sfT ../target later/world.json # at once: the job may write it anew between two steps of it
    if [[ $workers -eq 2 ]]; then
        ln -sfT ../target later/metrics.jsonl
        kill -KILL "$(pids_of $pid "rank 1 ")"
        for _ in $(seq 1 3000); do ! grep -q 'worker 2 leads now' later.err || break; sleep 0.1; done
        grep -q 'worker 2 leads now' later.err || fail "nobody leads after the leader's end: $(tail -3 later.err)"
    fi
    kill -TERM $pid
    got=0
    wait $pid || got=$?
    [[ $got -eq 0 ]] || fail "$job with links put there later ends with $got: $(tail -2 later.err)"
    [[ $(cat target) == precious ]] || fail "$job: the target of a later link was written"
    [[ $what == mf || ! -L later/world.json ]] || fail "$job: world.json is still a link"
done
rm -rf taken && mkdir taken && echo theirs >taken/metrics.jsonl
got=0
"$rubato" train mf.yaml --out taken >/dev/null 2>taken.err || got=$?
[[ $got -eq 2 && $(cat taken/metrics.jsonl) == theirs ]] || fail "another program's folder: $got, $(cat taken.err)"
for job in "mlp 1" "mlp 2" "mf 2"; do
    read -r what workers <<<"$job"
    rm -rf gone
    "$rubato" train $what.yaml --out gone -w "$workers" --set train.epochs=100000 --set checkpoint.every=300ms >/dev/null 2>gone.err &
    pid=$!
    reaches gone 20
    for _ in $(seq 1 1000); do rm -rf gone 2>/dev/null && break; done # files may come while they go
    for _ in $(seq 1 3000); do [[ -e gone/job.yaml && -n $(saved gone) ]] && break || sleep 0.1; done
    kill -TERM "$(pgrep -P $pid -f "train $what" || echo $pid)" 2>/dev/null || kill -TERM $pid 2>/dev/null || true
    got=0
    wait $pid || got=$?
    [[ $got -eq 74 ]] || fail "$job: a deleted folder ends with $got: $(tail -2 gone.err)"
    grep -q "gone was deleted while the run used it" gone.err || fail "$job: a deleted folder is not named: $(tail -2 gone.err)"
    last=$(saved gone)
    timeout 300 "$rubato" train $what.yaml --out gone --resume --set train.epochs=100000 --set train.steps=$((10#$last + 5)) >/dev/null 2>gone.err ||
        fail "$job: no resume after step $last: $(tail -2 gone.err)"
done
echo "ok: files of others stay, and deleted folders are begun anew"

exit $failed
