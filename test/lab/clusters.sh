# Sourced by scripts of clusters with real processes, in a folder of their own. What a script leaves besides, its function
# `leaves` ends.
set -euo pipefail
rubato=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$(basename "$0" .sh)-XXXXXX")
export XDG_CACHE_HOME="$work/cache" XDG_CONFIG_HOME="$work/config"
failed=0
pid_of() { sed 's/.*"pid":\([0-9]*\).*/\1/' "$1"; } # FILE of one process
leaves() { :; }
slay() { # PID...: kill -9, until the kernel has ended them: a command that looks then finds none
    local p
    kill -9 "$@"
    for p in "$@"; do while grep -qs '^State:.[^ZX]' "/proc/$p/status"; do sleep 0.02; done; done
}
end_all() { # PATTERN of command lines: until none is left, as one may start another meanwhile
    local k pids
    for ((k = 0; k < 50; k++)); do
        pids=$(pgrep -f -- "$1" || true)
        [[ -n $pids ]] || break
        kill -9 $pids 2>/dev/null || true
    done
}
cleanup() {
    local f
    trap '' INT TERM HUP
    end_all "(cluster|worker) .*$work/"
    for f in "$work"/*/run/*.pid "$work"/*/jobs/*/tell.*; do
        [[ ! -f $f ]] || kill -9 "$(pid_of <(head -1 "$f"))" 2>/dev/null || true
    done
    leaves
    end_all "$work/"
    rm -rf "$work"
}
trap cleanup EXIT
trap 'echo "FAIL: line $LINENO: $BASH_COMMAND" >&2' ERR # else `set -e` ends a script without a word
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
cluster() { "$rubato" cluster "$@"; }
field() { # JOB KEY: of ps
    cluster ps --json | sed 's/},{/}\n{/g' | grep "\"job\":$1," | sed "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/"
}
audit_has() { ! grep -q "$1" <<<"$(cluster audit)" || echo yes; }
workers() { pgrep -f -- "--out $work/cl/jobs/$1 " | sort || true; } # JOB: its living processes
waits_for() { # TEXT COMMAND...: until it says so
    local want=$1 now='' k
    shift
    for ((k = 0; k < 900; k++)); do
        now=$("$@" 2>/dev/null || true)
        [[ $now != "$want" ]] || return 0
        sleep 0.2
    done
    fail "$*: '$now', not '$want'"
    {
        cluster ps
        cluster nodes
        [[ -z ${SLURM_CONF:-} ]] || squeue -a
        cluster audit | tail -n 30
        tail -n 8 ./*/log/*
    } >&2 || true
    exit 1
}
becomes() { waits_for "$3" field "$1" "$2"; } # JOB KEY VALUE
