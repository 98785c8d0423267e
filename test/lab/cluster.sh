#!/bin/bash
# A shared cluster: cluster.sh PATH_OF_RUBATO [STORM_SECONDS]
#
#   1. a job is handed in, runs and ends; ps, logs, nodes and audit tell of it; wrong requests are refused.
#   2. a job grows and shrinks over two nodes: the worker that stays is the same process all the time.
#   3. scheduler and agents are killed again and again: no job notices, each step is done once, no sample is lost.
#   4. all workers of a job are killed: it goes on from its checkpoint, under the next generation; one that fails
#      three times is held, with its last sentence.
#   5. the cluster goes down and up again: jobs continue from their checkpoints; a higher priority takes slots.
#   6. a node bounds its workers: one that needs more memory is held, and told so; its groups are gone afterwards.
#      As root: the workers of a user run under the user's account, without more rights, in a folder that is the user's alone.
#   7. a hundred connections hand in jobs while the scheduler is killed: each answered number is a job of its own, for good.
. "$(dirname "$0")/clusters.sh"
storm_s=${2:-12}
victim=
leaves() { [[ -z $victim ]] || kill -9 "$victim" 2>/dev/null || true; }
told() { # FILE that a worker tells in: its number
    local k
    for ((k = 0; k < 1200; k++)); do [[ ! -s $1 ]] || break; sleep 0.1; done
    pid_of <(head -1 "$1")
}
post() { # FILE: to /jobs, past the program's own checks; prints the first line of the answer
    local http line=''
    http=$(cat cl/http)
    exec 3<>"/dev/tcp/${http%:*}/${http##*:}"
    printf 'POST /jobs HTTP/1.1\r\nHost: cluster\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n' "$(cat cl/keys/admin)" "$(wc -c <"$1")" >&3
    cat "$1" >&3
    read -r -t 60 line <&3 || true
    exec 3>&-
    echo "$line"
}
metrics() { # of the scheduler, for Prometheus
    local http
    http=$(cat cl/http)
    exec 3<>"/dev/tcp/${http%:*}/${http##*:}"
    printf 'GET /metrics HTTP/1.1\r\nHost: cluster\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$(cat cl/keys/admin)" >&3
    cat <&3
    exec 3>&-
}
cat >mlp.yaml <<JOB
name: count
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 5, autotune: false, threads: 1}
checkpoint: {every: 200ms}
JOB
# Where the machine can bound them, workers have a fifth of a core: most run until they are told to end.
long=(--set train.epochs=1000000)
cat >cluster.yaml <<FILE
folder: cl
accounts: shared
nodes: [{name: n1, slots: 2, cpu: 0.2}, {name: n2, slots: 2, cpu: 0.2}]
FILE

# -- 1
cluster up cluster.yaml >/dev/null &
cluster up cluster.yaml >/dev/null || fail "two that start the cluster at once"
wait $! || fail "two that start the cluster at once"
[[ $(cluster submit mlp.yaml) == 1 ]] || fail "the first job is not number 1"
becomes 1 state done
grep -q 'done: 50 steps' <<<"$(cluster logs 1)" || fail "the log of job 1 does not tell its end"
got=$(cluster logs -f 1 | tail -1)
[[ $got == *done:* ]] || fail "logs -f of a job that ended: $got"
grep -q '^n2 .* up' <<<"$(cluster nodes)" || fail "n2 is not up: $(cluster nodes)"
grep -q 'submit *job 1' <<<"$(cluster audit)" || fail "audit does not tell of job 1"
if grep -q "$(cat cl/jobs/1/token)" <<<"$(cluster audit)"; then fail "audit shows a token"; fi
got=$(metrics)
[[ $got == *'rubato_cluster_jobs{state="done"} 1'* && $got == *'rubato_cluster_node_up{node="n2"} 1'* ]] || fail "metrics: $got"
cluster drain n2 >/dev/null
grep -q '^n2 .*drained' <<<"$(cluster nodes)" || fail "n2 is not drained: $(cluster nodes)"
cluster up cluster.yaml >/dev/null || fail "a drained node keeps the cluster from coming up"
cluster drain n2 --resume >/dev/null
refused() { # CODE COMMAND...
    local code=0 want=$1
    shift
    cluster "$@" >out.txt 2>err.txt || code=$?
    [[ $code -eq $want && $(wc -l <err.txt) -eq 1 ]] || fail "$*: code $code, expected $want: $(cat err.txt)"
}
refused 66 cancel 7
grep -q 'there is no job 7' err.txt || fail "a job that is none: $(cat err.txt)"
refused 66 logs 7
refused 2 submit mlp.yaml -w 5:9
grep -q 'has 4 slots' err.txt || fail "a job that is too large: $(cat err.txt)"
refused 2 submit mlp.yaml -w 0
sed 's/^name:.*/name: "two\\nlines"/' mlp.yaml >lines.yaml
refused 2 submit lines.yaml
grep -q 'with control characters' err.txt || fail "a name of two lines: $(cat err.txt)"
[[ $(cluster slurm-script lines.yaml -w 2 | grep -c '^#SBATCH --job-name=two_lines$') -eq 1 ]] || fail "a script with a name of two lines"
refused 69 scheduler --held </dev/null # as when `up` is killed before it noted its number
refused 2 cancel 1
grep -q 'job 1 has ended: done' err.txt || fail "a job that has ended: $(cat err.txt)"
(umask 077 && cluster user add alice --slots 3 >alice.key)
export RUBATO_CLUSTER_KEY=$PWD/alice.key
refused 77 cancel 1
grep -q 'job 1 is of admin, and you are alice' err.txt || fail "a job of another user: $(cat err.txt)"
refused 77 audit
refused 77 user add bob
refused 2 submit mlp.yaml -w 4
grep -q 'alice may have 3' err.txt || fail "a job beyond the user's slots: $(cat err.txt)"
grep -q '^ *1 .*admin' <<<"$(cluster ps)" || fail "alice does not see the jobs"
(umask 077 && echo 0123456789abcdef0123456789abcdef >nobody.key)
RUBATO_CLUSTER_KEY=$PWD/nobody.key refused 77 ps
unset RUBATO_CLUSTER_KEY
grep -q 'T[0-9:]*Z *admin *user *user alice' <<<"$(cluster audit)" || fail "audit does not tell when alice was added"
if grep -q "$(cat alice.key)" <<<"$(cluster audit)"; then fail "audit shows a key"; fi
echo "ok: a job runs and ends"

# -- 2
cluster submit mlp.yaml -w 1:3 "${long[@]}" >/dev/null
becomes 2 workers 3
grep -q '^ *2 .* count' <<<"$(cluster top)" || fail "top does not show job 2: $(cluster top)"
first=$(pid_of <(head -1 cl/jobs/2/tell.1))
cluster scale 2 1 >/dev/null
becomes 2 workers 1
cluster scale 2 4 >/dev/null
becomes 2 workers 4
[[ $(workers 2 | wc -l) -eq 4 ]] || fail "job 2 has $(workers 2 | wc -l) processes"
kill -0 "$first" || fail "the first worker of job 2 was started again"
[[ $(field 2 generation) == 1 ]] || fail "job 2 was started again"
cluster cancel 2 >/dev/null
becomes 2 state cancelled
[[ -z $(workers 2) ]] || fail "processes of job 2 are left"
[[ -n $(ls cl/jobs/2/checkpoints) ]] || fail "job 2 left no checkpoint"
echo "ok: a job grows and shrinks in place"

# -- 3
cluster submit mlp.yaml -w 2 "${long[@]}" >/dev/null
cluster submit mlp.yaml -w 2 "${long[@]}" >/dev/null
becomes 3 workers 2
becomes 4 workers 2
before=$(workers 3)$(workers 4)
end=$((SECONDS + storm_s))
while [[ $SECONDS -lt $end ]]; do
    for name in scheduler n1 n2; do
        [[ $((RANDOM % 3)) -eq 0 ]] || kill -9 "$(pid_of cl/run/$name.pid)" 2>/dev/null || true
    done
    sleep "0.$((RANDOM % 5))"
    cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
    sleep "0.$((RANDOM % 9))"
done
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up" # one that was dying may have looked as if it ran
becomes 3 workers 2
becomes 4 workers 2
[[ $(workers 3)$(workers 4) == "$before" ]] || fail "workers changed in the storm"
[[ $(field 3 generation)$(field 4 generation) == 11 ]] || fail "a job was started again in the storm"
for j in 3 4; do
    cluster cancel $j >/dev/null
    becomes $j state cancelled
    grep '"rubato.train.step/1"' cl/jobs/$j/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
    [[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] ||
        fail "job $j did not do each step once"
    grep -q '"samples_lost":0,"samples_repeated":0' cl/jobs/$j/metrics.jsonl || fail "job $j lost samples"
done
echo "ok: nobody notices that scheduler and agents are killed"

# -- 4
cluster submit mlp.yaml -w 2 "${long[@]}" >/dev/null
becomes 5 workers 2
for ((k = 0; k < 1200; k++)); do ! grep -q checkpoint_written cl/jobs/5/metrics.jsonl || break; sleep 0.1; done
kill -9 $(workers 5)
becomes 5 generation 2
becomes 5 workers 2
[[ $(cat cl/jobs/5/generation) == 2 ]] || fail "the folder of job 5 has generation $(cat cl/jobs/5/generation)"
for ((k = 0; k < 1200; k++)); do ! grep -q '"resumed_step":[1-9]' cl/jobs/5/metrics.jsonl || break; sleep 0.1; done
[[ $k -lt 1200 ]] || fail "job 5 did not resume: $(tail -n 3 cl/log/* cl/jobs/5/metrics.jsonl)"
for f in cl/jobs/5/tell.*; do echo '{"torn' >>"$f"; done # a damaged line hides no other
echo 9 >cl/jobs/5/generation # as if it had been started again where no agent sees it
for ((k = 0; k < 1200; k++)); do ! grep -q 'was started again' cl/jobs/5/tell.* || break; sleep 0.1; done
grep -q 'was started again' cl/jobs/5/tell.* || fail "the old generation of job 5 goes on"
becomes 5 generation 3
grep -q '^ *5 .*was started again' <<<"$(cluster ps)" || fail "ps does not say why job 5 failed: $(cluster ps)"
becomes 5 workers 2
sed 's|^data: .*|data: {format: idx, train: [/no/x, /no/y]}|' mlp.yaml >lost.yaml
cluster submit lost.yaml >/dev/null
becomes 6 state held
grep -q '^ *6 .*/no/x' <<<"$(cluster ps)" || fail "ps does not say why job 6 is held: $(cluster ps)"
echo "ok: failures"

# -- 5
# What no later scheduler could read is not written: its control characters take six times their bytes in the journal.
{
    printf '{"yaml":"'
    head -c 800000 /dev/zero | tr '\0' '\177'
    printf '"}'
} >body
got=$(post body)
[[ $got == 'HTTP/1.1 4'* ]] || fail "a job that is too large for the journal: $got"
cluster down
[[ $(cluster ps 2>&1) == *"is not up; start it by"* ]] || fail "nobody says that the cluster is down"
[[ -z $(workers 5) ]] || fail "down left workers"
for name in n1 n2; do
    if grep -qs '^State:.[^Z]' "/proc/$(pid_of cl/run/$name.pid)/status"; then fail "down left the agent $name"; fi
done
cluster up cluster.yaml >/dev/null
becomes 5 workers 2
[[ $(field 5 generation) == 4 ]] || fail "job 5 has generation $(field 5 generation) after down and up"
cluster submit mlp.yaml -w 4 --priority 5 "${long[@]}" >/dev/null
becomes 7 workers 4
[[ $(field 5 state) == waits ]] || fail "job 5 does not wait: $(cluster ps)"
cluster cancel 7 >/dev/null
becomes 5 workers 2
export RUBATO_CLUSTER_KEY=$PWD/alice.key
for k in 1 2 3 4 5 6; do cluster submit mlp.yaml --priority=-5 "${long[@]}" >number.$k & done
wait
[[ $(sort -n number.* | tr '\n' ' ') == '8 9 10 11 12 13 ' ]] || fail "jobs handed in at once: $(sort -n number.*)"
refused 2 scale 8 4
grep -q 'alice may have 3' err.txt || fail "a job scaled beyond the user's slots: $(cat err.txt)"
unset RUBATO_CLUSTER_KEY
echo '{"name":"odd","priority":9,"yaml":"nonsense: 1"}' >body
[[ $(post body) == 'HTTP/1.1 200'* ]] || fail "a job is not taken"
becomes 14 state held
grep -q '^ *14 .*nonsense' <<<"$(cluster ps)" || fail "ps does not say why job 14 is held: $(cluster ps)"
# Workers that cannot be started: on one of two nodes the job goes on and tells of it, on both it is held.
broken=$(cluster nodes | tail -1 | cut -d ' ' -f 1)
break_node() { mv "cl/run/$1" "cl/run/$1.away" && : >"cl/run/$1"; } # its agent cannot write records
break_node "$broken"
cluster submit mlp.yaml -w 4 --priority 9 "${long[@]}" >/dev/null
becomes 15 workers 2
for ((k = 0; k < 1200; k++)); do ! grep -q "a worker on $broken failed: .*run/$broken/15-" <<<"$(cluster explain 15)" || break; sleep 0.1; done
[[ $k -lt 1200 ]] || fail "explain does not tell of the worker that failed: $(cluster explain 15)"
sleep 2 # it tries again after 10 s
awk '/worker_start job 15: / { if (n++ && $1 - last < 9) bad = 1; last = $1 } END { exit bad || !n }' "cl/log/$broken" || fail "$broken does not wait before it tries again: $(tail -n 5 "cl/log/$broken")"
cluster cancel 15 >/dev/null
becomes 15 state cancelled
for name in n1 n2; do [[ $name == "$broken" ]] || break_node $name; done
cluster submit mlp.yaml --priority 9 "${long[@]}" >/dev/null
becomes 16 state held
grep -q '^ *16 .*run/n./16-' <<<"$(cluster ps)" || fail "ps does not say why job 16 is held: $(cluster ps)"
for name in n1 n2; do rm "cl/run/$name" && mv "cl/run/$name.away" "cl/run/$name"; done
cluster down
echo "ok: down, up, priority, submissions at once, workers that cannot be started"

# -- 6
unset MALLOC_PERTURB_ # it fills memory that is otherwise only set aside
cat >tight.yaml <<FILE
folder: tight
nodes: [{name: t1, slots: 1, memory: 64MiB, pids: 64, cpu: 0.5}]
FILE
# Without a process; those of other clusters, which are not this script's to judge, have one.
groups() {
    local d
    { find /sys/fs/cgroup -type d -path "*/rubato-*/1-*" 2>/dev/null || true; } | while read -r d; do
        [[ ! -d $d || -n $(cat "$d/cgroup.procs" 2>/dev/null) ]] || echo "$d"
    done | sort
}
before=$(groups)
cluster up tight.yaml >/dev/null
cluster submit mlp.yaml --set 'model.hidden=[3000, 3000]' >/dev/null
for ((k = 0; k < 1200; k++)); do [[ $(field 1 state) != held && $(field 1 state) != done ]] || break; sleep 0.1; done
if grep -q 'this node does not bound' tight/log/t1; then
    echo "skipped: $(grep -m 1 'this node does not bound' tight/log/t1)"
else
    [[ $(field 1 state) == held ]] || fail "a worker takes more memory than its node gives: $(cluster ps)"
    grep -q 'out of memory: the kernel ended a worker at its limit of 64 MiB on node t1' <<<"$(cluster ps)" ||
        fail "ps does not tell of the memory: $(cluster ps)"
    for ((k = 0; k < 1200; k++)); do # what was killed takes its time to end
        left=$(comm -13 <(echo "$before") <(groups) | grep . || true)
        [[ -n $left ]] || break
        sleep 0.1
    done
    [[ -z $left ]] || fail "control groups are left: $left"
    [[ -z $(pgrep -f -- "--out $work/tight/jobs/1 ") ]] || fail "workers are left: $(pgrep -af -- "--out $work/tight/jobs/1 ")"
    echo "ok: a node bounds its workers"
fi
if [[ $(id -u) -eq 0 ]] && getent passwd nobody >/dev/null; then
    chmod 711 "$work"
    (umask 077 && cluster user add nobody >nobody.key && cluster user add no-account >stranger.key)
    RUBATO_CLUSTER_KEY=$PWD/stranger.key refused 77 submit mlp.yaml
    grep -q "no account 'no-account'" err.txt || fail "a user without an account: $(cat err.txt)"
    RUBATO_CLUSTER_KEY=$PWD/nobody.key cluster submit mlp.yaml "${long[@]}" >/dev/null
    becomes 2 workers 1
    pid=$(told tight/jobs/2/tell.1)
    [[ $(stat -c %U "/proc/$pid") == nobody ]] || fail "the worker of nobody runs as $(stat -c %U "/proc/$pid")"
    grep -q '^NoNewPrivs:.1' "/proc/$pid/status" || fail "the worker of nobody may get more rights"
    [[ $(stat -c '%U %a' tight/jobs/2) == 'nobody 700' ]] || fail "the folder of a run: $(stat -c '%U %a' tight/jobs/2)"
    kill -9 "$pid"
    becomes 2 generation 2
    becomes 2 workers 1
    pid=$(told tight/jobs/2/tell.2)
    mkfifo fifo
    kill -STOP "$pid"
    mv -f fifo tight/jobs/2/tell.2 # the agent must not wait for who writes there
    kill -9 "$pid"
    becomes 2 state held
    grep -q '^ *2 .*is a FIFO' <<<"$(cluster ps)" || fail "ps does not say why job 2 is held: $(cluster ps)"
    RUBATO_CLUSTER_KEY=$PWD/nobody.key cluster submit mlp.yaml "${long[@]}" >/dev/null
    becomes 3 workers 1
    pid=$(told tight/jobs/3/tell.1)
    # A process of another account is not taken for a worker, whatever the folder says while the agent is away.
    env --default-signal sleep 600 &
    victim=$!
    disown
    slay "$(pid_of tight/run/t1.pid)" "$pid"
    mark=$(cat /proc/sys/kernel/random/boot_id)/$(sed 's/.*) //' /proc/$victim/stat | cut -d ' ' -f 20)
    echo "{\"pid\":$victim,\"mark\":\"$mark\"}" >tight/jobs/3/tell.1
    cluster up tight.yaml >/dev/null || fail "the agent t1 does not start again"
    for ((k = 0; k < 1200; k++)); do ! grep -q 'adopt job 3' tight/log/t1 || break; sleep 0.1; done
    grep -q 'adopt job 3 worker 1 has ended' tight/log/t1 || fail "the agent takes any process: $(tail -n 3 tight/log/t1)"
    RUBATO_CLUSTER_KEY=$PWD/nobody.key cluster cancel 3 >/dev/null
    becomes 3 state cancelled
    for ((k = 0; k < 1200; k++)); do # one that the agent started before it heard of the end may still write its log
        ln -sfn ../../keys/admin tight/jobs/3/log || true
        [[ -n $(pgrep -f -- "--out $work/tight/jobs/3 ") ]] || break
        sleep 0.1
    done
    ln -sfn ../../keys/admin tight/jobs/3/log
    refused 74 logs 3
    grep -q 'is a symbolic link' err.txt || fail "a log that is a link: $(cat err.txt)"
    kill -9 "$victim" || fail "the agent ended a process of another account"
    echo "ok: workers run under the account of their user"
fi
cluster down
printf 'folder: odd\nlisten: "192.0.2.1:7000"\nnodes: [{name: n1}]\n' >odd.yaml
! cluster up odd.yaml 2>err.txt || fail "a scheduler that cannot listen is up"
grep -q 'the scheduler ended: .*cannot listen' err.txt || fail "why it ended: $(cat err.txt)"
[[ $(grep -c 'cannot listen' odd/log/scheduler) == 1 ]] || fail "a scheduler that was refused is started again: $(cat odd/log/scheduler)"
[[ -z $(pgrep -f -- "--cluster $work/odd ") ]] || fail "the agents of a cluster that did not come up are left"
printf 'folder: many\nnodes: [{name: n1}]\n' >many.yaml
cluster up many.yaml >/dev/null
cluster drain n1 >/dev/null
python3 "$here/submissions.py" many mlp.yaml 2000 100 >answers.txt &
asker=$!
for ((k = 0; k < 1200; k++)); do [[ $(wc -l <answers.txt) -lt 500 ]] || break; sleep 0.1; done
slay "$(pid_of many/run/scheduler.pid)"
cluster up many.yaml >/dev/null || fail "the scheduler does not come back among submissions"
wait "$asker" || fail "submissions were not answered"
[[ $(sort -u answers.txt | wc -l) -eq 2000 ]] || fail "two submissions have one number"
cluster ps --json | grep -o '"job":[0-9]*,' | tr -dc '0-9\n' | sort >jobs.txt
[[ -z $(sort answers.txt | comm -23 - jobs.txt) ]] || fail "answered, and not there: $(sort answers.txt | comm -23 - jobs.txt | head -3)"
cluster down
echo "ok: answered submissions are there for good"
exit $failed
