#!/bin/bash
# Workers that real launchers start, on this machine alone: launchers.sh PATH_OF_RUBATO
#
#   1. --hosts over ssh to an sshd of its own port, keys and folder. Then a connection that is cut (sshd killed with -9), one
#      that stands still, and a host that is gone with its worker: the command ends with the job and its code, and says which
#      host does not answer;
#   2. mpirun of Open MPI, 3. srun of Slurm, 4. torchrun of PyTorch.
#
# Each starts two workers, whose losses are those of one process. A launcher that is missing is told and left out.
set -euo pipefail
rubato=$(realpath "$1")
slurm=$(realpath "$(dirname "$0")/slurm.sh")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-launchers-XXXXXX")
below() { # PID: every process below it
    local p
    for p in $(pgrep -P "$1"); do
        echo "$p"
        below "$p"
    done
}
joins() { [[ $(tr '\0' ' ' 2>/dev/null <"/proc/$1/cmdline") == *"rubato worker --join"* ]]; } # PID
far=''
cleanup() {
    local p
    if [[ -f $work/sshd.pid ]]; then
        # shellcheck disable=SC2046
        kill -9 $(below "$(cat "$work/sshd.pid")") "$(cat "$work/sshd.pid")" 2>/dev/null || true
    fi
    [[ ! -d $work/slurm/run ]] || "$slurm" down "$work/slurm" 2>/dev/null || true
    jobs -p | xargs -r kill -9 2>/dev/null || true
    for p in $far; do # which nobody waits for when its sshd is gone
        ! joins "$p" || kill -9 "$p" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" XDG_CONFIG_HOME="$work/config"
failed=0 ran=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
free_port() {
    local p
    for _ in $(seq 1 100); do
        p=$((21000 + RANDOM % 10000))
        (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || break
    done
    echo "$p"
}
"$rubato" data make digits --out digits --count 2000 --test 200 >/dev/null 2>&1
cat >job.yaml <<'JOB'
name: launchers
model: {zoo: mlp, hidden: [32]}
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.05}}, batch: 64, steps: 60, threads: 1}
JOB
steps() { grep -c '"rubato.train.step/1"' "$1/metrics.jsonl" 2>/dev/null || true; }
reaches() { # RUN STEPS PID: who must live until then
    local n
    for _ in $(seq 1 6000); do
        n=$(steps "$1")
        [[ ${n:-0} -lt $2 ]] || return 0
        kill -0 "$3" 2>/dev/null || break
        sleep 0.1
    done
    fail "$1 does not get to step $2: $(tail -3 "$1.err")"
    return 1
}
losses() { grep '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }
same() { # RUN: each step once, by two workers, with the losses of one process
    losses one >one.txt
    losses "$1" >"$1.txt"
    [[ $(wc -l <"$1.txt") -eq 60 ]] || fail "$1: $(wc -l <"$1.txt") steps are told"
    paste one.txt "$1.txt" | awk -v run="$1" '$1 != $3 { print run ": step " $3 " instead of " $1; exit 1 }
        { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d }
        END { print "ok: " run ": two workers, worst difference of losses " w; exit !(w <= 5e-5) }' || fail "$1: losses differ"
    tail -1 "$1/metrics.jsonl" | grep -q '"samples_lost":0,"samples_repeated":0' || fail "$1: samples"
    ls "$1"/log.2 >/dev/null 2>&1 || grep -q 'worker 2 of 2' "$1.err" || fail "$1: there was no second worker"
    ran=$((ran + 1))
}
"$rubato" train job.yaml --out one >one.out 2>one.err || fail "one process: $(tail -2 one.err)"

# -- 1
sshd=$(PATH=$PATH:/usr/sbin command -v sshd || true)
serve() { # an sshd that is up
    "$sshd" -f "$work/sshd_config" -E "$work/sshd.log"
    for _ in $(seq 1 3000); do
        [[ ! -s sshd.pid ]] || return 0
        sleep 0.1
    done
    fail "sshd does not come up: $(tail -3 sshd.log)"
}
connections() { # the processes of sshd that hold connections
    local p
    for p in $(below "$(cat sshd.pid)"); do
        [[ $(cat "/proc/$p/comm" 2>/dev/null) != sshd ]] || echo "$p"
    done
}
far_worker() { # the worker that runs over there
    local p
    for p in $(below "$(cat sshd.pid)"); do
        ! joins "$p" || echo "$p"
    done
}
begin() { # RUN STEPS [SIGNAL]: a job on this host and the far one; pid: the command; held: connections, which get the signal
    timeout --foreground 300 "$rubato" train job.yaml --hosts localhost:1,far:1 --set train.steps="$2" --set checkpoint.every=0s --out "$1" >"$1.out" 2>"$1.err" &
    pid=$!
    reaches "$1" 5 $pid || return
    held=$(connections)
    # shellcheck disable=SC2086
    [[ -z ${3:-} ]] || kill -"$3" $held
    far="$far $(far_worker | paste -sd' ')"
}
ends() { # RUN CODE SENTENCE: it ends so, and says so
    local got=0
    wait "$pid" || got=$?
    [[ $got -eq $2 ]] || fail "$1 ends with $got, not $2: $(tail -3 "$1.err")"
    grep -q "$3" "$1.err" || fail "$1 does not say '$3': $(cat "$1.err")"
}
if [[ -z $sshd ]] || ! command -v ssh >/dev/null || ! command -v ssh-keygen >/dev/null; then
    echo "skipped: there is no ssh or no sshd (scripts/setup check)"
else
    ssh-keygen -q -t ed25519 -N '' -f host_key
    ssh-keygen -q -t ed25519 -N '' -f user_key
    cp user_key.pub keys
    [[ $(id -u) -ne 0 ]] || mkdir -p /run/sshd # it stays: start.sh has it, too
    port=$(free_port)
    printf '%s\n' "ListenAddress 127.0.0.1:$port" "HostKey $work/host_key" "AuthorizedKeysFile $work/keys" "StrictModes no" \
        "UsePAM no" "PidFile $work/sshd.pid" "PermitRootLogin prohibit-password" "PasswordAuthentication no" \
        "SetEnv XDG_CACHE_HOME=$work/cache" >sshd_config
    printf '%s\n' "Host far" "HostName 127.0.0.1" "Port $port" "IdentityFile $work/user_key" \
        "UserKnownHostsFile $work/known" "StrictHostKeyChecking no" "LogLevel ERROR" >ssh_config
    mkdir bin
    # ssh itself would end a connection that stands still for 15 s, and so long jobs take on a slow machine.
    printf '#!/bin/sh\nexec %s -o ServerAliveInterval=0 -F %s/ssh_config "$@"\n' "$(command -v ssh)" "$work" >bin/ssh
    chmod +x bin/ssh
    before=$PATH
    PATH=$work/bin:$PATH
    serve
    timeout 300 "$rubato" train job.yaml --hosts localhost:1,far:1 --equal-shares --out ssh >ssh.out 2>ssh.err ||
        fail "--hosts over ssh: $(tail -3 ssh.err) $(tail -3 sshd.log)"
    same ssh
    # The connection ends, the worker does not: it stays in the job.
    if begin cut 1000000; then
        # shellcheck disable=SC2046
        kill -9 $(connections) "$(cat sshd.pid)"
        rm -f sshd.pid
        for _ in $(seq 1 3000); do ! grep -q "the connection to far, where worker 2 runs, ended" cut.err || break; sleep 0.1; done
        reaches cut $(($(steps cut) + 30)) $pid || true
        kill -TERM $pid
        ends cut 0 "the connection to far, where worker 2 runs, ended"
    fi
    serve
    # Nothing comes from there any more, and nobody says so: the command ends with its job all the same.
    if begin still 4000 STOP; then
        ends still 0 "far does not answer"
        # shellcheck disable=SC2086
        kill -KILL $held
    fi
    # The same when it is asked to stop: its own worker ends, and nothing tells that the other one has.
    if begin asked 1000000 STOP; then
        kill -TERM $pid
        ends asked 0 "far does not answer"
        # shellcheck disable=SC2086
        kill -KILL $held
    fi
    # The host is gone, with its worker.
    if begin gone 1000000; then
        # shellcheck disable=SC2046
        kill -9 $(connections) "$(cat sshd.pid)" $(far_worker)
        rm -f sshd.pid
        for _ in $(seq 1 3000); do ! grep -q '"what":"lost","worker":2' gone/metrics.jsonl || break; sleep 0.1; done
        reaches gone $(($(steps gone) + 30)) $pid || true
        kill -TERM $pid
        ends gone 0 "the connection to far, where worker 2 runs, ended"
        grep -q '"what":"lost","worker":2' gone/metrics.jsonl || fail "gone: worker 2 is not lost"
    fi
    code=0
    timeout 300 "$rubato" train job.yaml --hosts localhost:1,far:1 --out none >none.out 2>none.err || code=$?
    [[ $code -eq 69 ]] || fail "a host where nobody listens: exit code $code: $(tail -3 none.err)"
    grep -q "no worker started on far" none.err || fail "a host where nobody listens: $(cat none.err)"
    PATH=$before
    [[ $failed -ne 0 ]] || echo "ok: --hosts over ssh, also of hosts that vanish"
fi

# -- 2
if ! command -v mpirun >/dev/null; then
    echo "skipped: there is no mpirun (scripts/setup check)"
else
    root=()
    [[ $(id -u) -ne 0 ]] || root=(--allow-run-as-root)
    timeout 300 mpirun "${root[@]}" --oversubscribe -x MASTER_PORT="$(free_port)" -n 2 "$rubato" train job.yaml --equal-shares --out mpirun \
        >mpirun.out 2>mpirun.err || fail "mpirun: $(tail -5 mpirun.err)"
    same mpirun
fi

# -- 3
if "$slurm" check; then
    SLURM_CONF=$("$slurm" up "$work/slurm" 1) || fail "Slurm does not come up"
    export SLURM_CONF
    timeout 300 srun -n 2 "$rubato" train job.yaml --equal-shares --out srun >srun.out 2>srun.err || fail "srun: $(tail -5 srun.err)"
    same srun
fi

# -- 4
if ! command -v torchrun >/dev/null; then
    echo "skipped: there is no torchrun (PyTorch)"
else
    timeout 300 torchrun --standalone --nproc-per-node 2 --no-python "$rubato" train job.yaml --equal-shares --out torchrun \
        >torchrun.out 2>torchrun.err || fail "torchrun: $(tail -5 torchrun.err)"
    same torchrun
fi
[[ $ran -gt 0 || $failed -ne 0 ]] || exit 77
exit $failed
