#!/bin/bash
# A Slurm of this machine, for tests: munged, slurmctld and N slurmd, all by their own ports and folders.
#
#   slurm.sh check           can this machine hold one? says why not, exit 77
#   slurm.sh up DIR N        starts it in the folder DIR; prints the path for SLURM_CONF. Two partitions of the same nodes n1 .. nN
#                            (2 cores each): `main` (default), and `urgent`, which takes nodes of main after a grace of 60 s
#                            (at once where the step has ended before)
#   slurm.sh stop DIR WHAT   kill -9 of slurmctld, or of slurmd.nK
#   slurm.sh start DIR WHAT  starts it again
#   slurm.sh down DIR        ends everything by number, jobs too
set -euo pipefail
die() {
    printf 'slurm.sh: %s\n' "$2" >&2
    exit "$1"
}
check() {
    local program
    [[ $(id -u) -eq 0 ]] || die 77 "skipped: Slurm's daemons need root here"
    for program in munged slurmctld slurmd sbatch; do
        command -v $program >/dev/null || die 77 "skipped: there is no $program (scripts/setup check)"
    done
}
alive() { [[ -e $1 ]] && kill -0 "$(cat "$1" 2>/dev/null)" 2>/dev/null; }
ports_free() { # FIRST LAST: nobody listens there; tests may run side by side
    local p
    for ((p = $1; p <= $2; p++)); do ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || return 1; done
}

start() { # DIR WHAT
    local d=$1
    case $2 in
        munged)
            munged --key-file="$d/munge.key" --socket="$d/run/munge.socket" --pid-file="$d/run/munged.pid" \
                --log-file="$d/munge/log" --seed-file="$d/munge/seed" --force >/dev/null 2>&1
            ;;
        slurmctld) slurmctld -f "$d/slurm.conf" >/dev/null 2>&1 ;;
        slurmd.n*) slurmd -N "${2#slurmd.}" -f "$d/slurm.conf" >/dev/null 2>&1 ;;
        *) die 2 "start munged, slurmctld or slurmd.nK" ;;
    esac
}

up() { # DIR N
    local d n=$2 host base k
    mkdir -p "$1"
    d=$(realpath "$1")
    host=$(hostname -s)
    mkdir -p "$d/run" "$d/state" "$d/log" "$d/munge"
    chmod 755 "$d" "$d/run"
    chmod 700 "$d/munge"
    head -c 1024 /dev/urandom >"$d/munge.key"
    chmod 400 "$d/munge.key"
    for ((k = 0; k < 100; k++)); do
        base=$((20000 + RANDOM % 10000))
        ! ports_free "$base" $((base + n)) || break
    done
    cat >"$d/slurm.conf" <<CONF
ClusterName=rubato
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
AuthType=auth/munge
AuthInfo=socket=$d/run/munge.socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$d/state
SlurmdSpoolDir=$d/spool.%n
SlurmctldPidFile=$d/run/slurmctld.pid
SlurmdPidFile=$d/run/slurmd.%n.pid
SlurmctldLogFile=$d/log/slurmctld
SlurmdLogFile=$d/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
KillWait=5
SlurmdParameters=config_overrides
NodeName=n[1-$n] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + n))] CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=n[1-$n] Default=YES MaxTime=60 State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60
PartitionName=urgent Nodes=n[1-$n] MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
CONF
    start "$d" munged
    start "$d" slurmctld
    for ((k = 1; k <= n; k++)); do start "$d" slurmd.n$k; done
    for ((k = 0; k < 1800; k++)); do
        [[ $(SLURM_CONF=$d/slurm.conf sinfo -h -N -p main -o %T 2>/dev/null | grep -c idle) -ne $n ]] || break
        sleep 0.1
    done
    [[ $k -lt 1800 ]] || die 1 "the nodes do not come up: $(SLURM_CONF=$d/slurm.conf sinfo -N 2>&1; tail -n 3 "$d"/log/*)"
    echo "$d/slurm.conf"
}

down() { # DIR
    local d f k
    d=$(realpath "$1")
    if alive "$d/run/slurmctld.pid"; then SLURM_CONF=$d/slurm.conf timeout 5 scancel --full -u root 2>/dev/null || true; fi
    for f in "$d"/run/slurmd.*.pid "$d/run/slurmctld.pid" "$d/run/munged.pid"; do
        ! alive "$f" || kill "$(cat "$f")" 2>/dev/null || true
    done
    for ((k = 0; k < 100; k++)); do
        for f in "$d"/run/*.pid; do ! alive "$f" || { sleep 0.1; continue 2; }; done
        break
    done
    # Who watches over a step goes on without slurmd, and so does the step; its log names the folder.
    for f in $(pgrep slurmstepd); do
        [[ -z $(find "/proc/$f/fd" -lname "$d/*" 2>/dev/null | head -1) ]] || kill -9 $(pgrep -P "$f") "$f" 2>/dev/null || true
    done
    for f in "$d"/run/*.pid; do ! alive "$f" || kill -9 "$(cat "$f")" 2>/dev/null || true; done
}

case ${1:-} in
    check) check ;;
    up) check; [[ $# -eq 3 && $3 -ge 1 ]] || die 2 "up DIR N"; up "$2" "$3" ;;
    stop) kill -9 "$(cat "$2/run/$3.pid")" ;;
    start) start "$(realpath "$2")" "$3" ;;
    down) [[ $# -eq 2 ]] || die 2 "down DIR"; down "$2" ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
