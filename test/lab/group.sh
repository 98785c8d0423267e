#!/bin/bash
# Control groups of the laboratory. Each controller is used in the version that this machine mounts.
#
#   group.sh check CONTROLLER...      can groups with these (cpu, memory, io) be made? says why not, exit 77
#   group.sh make NAME CONTROLLER...  a group of that name; if it exists, these controllers are added
#   group.sh cpu NAME PERCENT [US]    so much of one core, in periods of US (10000)
#   group.sh memory NAME BYTES        so much memory
#   group.sh read NAME DEVICE RATE    so many bytes/s from block device MAJOR:MINOR; 0: no limit
#   group.sh in NAME COMMAND...       run it in the group
#   group.sh enter NAME PID           move a process there
#   group.sh figures NAME             throttled N: periods in which the quota was used up; limited N: allocations
#                                     that met the limit of memory; kills N: processes that the kernel ended for it.
#                                     Of the controllers that the group has; none: exit 66
#   group.sh down NAME                remove the groups NAME and NAME-*
#
# Version 1: each controller has a tree of its own, with groups rubato-NAME at its top.
#
# Version 2: one tree; its groups are rubato-lab/NAME in RUBATO_LAB_BASE, or else in the topmost folder
# between the root and our own group that we may write: the root of a host, that of a container, a
# subtree that was delegated. A group of which controllers bound the groups below may not hold
# processes itself, except the root of the host; so processes of the base wait in rubato-rest until the
# last group goes. rubato-lab bounds nothing. It keeps a controller enabled in the base: a manager of
# services that wants to switch it off is refused.
set -euo pipefail

die() {
    printf 'group.sh: %s\n' "$2" >&2
    exit "$1"
}
whole() { [[ $1 =~ ^[0-9]+$ ]] || die 2 "'$1' is no whole number"; }

declare -A top=() # of each controller of version 1: where its groups are
root='' base=''   # of version 2

find_mounts() {
    local at kind options mounted='' own part c
    while read -r at kind options part; do
        if [[ $kind == cgroup2 ]]; then
            [[ -n $root ]] || { root=$at mounted=$part; }
            continue
        fi
        for c in ${options//,/ }; do
            [[ $c != blkio ]] || c=io
            [[ $c != cpu && $c != memory && $c != io || -n ${top[$c]:-} ]] || top[$c]=$at
        done
    done < <(awk '{ for (i = 7; $i != "-"; i++) {} if ($(i + 1) ~ /^cgroup2?$/) print $5, $(i + 1), $(i + 3), $4 }' /proc/self/mountinfo)
    base=${RUBATO_LAB_BASE:-}
    [[ -n $root && -z $base ]] || return 0
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    [[ $mounted == / ]] || own=${own#"$mounted"} # a container may have its own group mounted
    at=$root
    for part in ${own//\// } ''; do
        if [[ -w $at && -w $at/cgroup.subtree_control ]]; then
            base=$at
            break
        fi
        at+=/$part
    done
}

# dir_of CONTROLLER NAME
dir_of() { if [[ -n ${top[$1]:-} ]]; then printf '%s' "${top[$1]}/rubato-$2"; else printf '%s' "$base/rubato-lab/$2"; fi; }
# The folders of a group, one for each tree.
dirs_of() {
    local c
    for c in cpu memory io; do dir_of $c "$1" && echo; done | sort -u | while read -r c; do [[ ! -d $c ]] || echo "$c"; done
    # A tree of version 2 beside three of version 1: other controllers only.
    [[ ${#top[@]} -lt 3 || -z $base || ! -d $base/rubato-lab/$1 ]] || echo "$base/rubato-lab/$1"
}

# put FILE VALUE...: each with one write
put() {
    local file=$1 value
    shift
    for value in "$@"; do { printf '%s\n' "$value" >"$file"; } 2>/dev/null || return 1; done
}

lock() { # of the base: two laboratories may come and go at once
    exec 9<"$base"
    flock 9
}
# Moves all processes; new ones may be born meanwhile.
move_all() { # from to
    local pid tries
    for ((tries = 0; tries < 100; tries++)); do
        [[ -n $(cat "$1/cgroup.procs") ]] || return 0
        while read -r pid; do put "$2/cgroup.procs" "$pid" || true; done <"$1/cgroup.procs"
    done
    return 1
}
enable() { # controller: in the base and in rubato-lab
    local c=$1
    [[ -n $root ]] || die 77 "skipped: no control groups with '$c' are mounted"
    [[ -n $base ]] || die 77 "skipped: we may not write the control groups at $root ('$c'): be root, or in a container with a writable subtree"
    grep -qsw "$c" "$base/cgroup.controllers" ||
        die 77 "skipped: the control groups at $base have no '$c', only '$(cat "$base/cgroup.controllers" 2>/dev/null)': enable it in cgroup.subtree_control of the group above"
    # The kernel lets a group with processes enable cpu, but then the groups below it take none.
    if [[ -e $base/cgroup.type && -n $(cat "$base/cgroup.procs") ]]; then # not the root of the host
        mkdir -p "$base/rubato-rest"
        move_all "$base" "$base/rubato-rest" || {
            give_back
            die 77 "skipped: some processes cannot be moved out of $base, so '$c' cannot be enabled there"
        }
    fi
    grep -qw "$c" "$base/cgroup.subtree_control" || put "$base/cgroup.subtree_control" "+$c" || {
        give_back
        die 77 "skipped: the kernel refuses to enable '$c' in $base/cgroup.subtree_control"
    }
    mkdir -p "$base/rubato-lab"
    put "$base/rubato-lab/cgroup.subtree_control" "+$c" || die 77 "skipped: '$c' cannot be enabled in $base/rubato-lab"
    # Beside others it counts like ten groups: the laboratory's hosts are many.
    [[ $c != cpu ]] || put "$base/rubato-lab/cpu.weight" 1000
}
# After the last group: the processes go back to where they were.
give_back() {
    local c
    [[ -z $(find "$base/rubato-lab" -mindepth 1 -type d 2>/dev/null) ]] || return 0
    [[ ! -d $base/rubato-lab ]] || rmdir "$base/rubato-lab"
    [[ -d $base/rubato-rest ]] || return 0
    for c in $(cat "$base/cgroup.subtree_control"); do put "$base/cgroup.subtree_control" "-$c" || return 0; done
    ! move_all "$base/rubato-rest" "$base" || rmdir "$base/rubato-rest"
}

make() { # name controller...
    local name=$1 c
    [[ $name =~ ^[A-Za-z0-9-]{1,40}$ ]] || die 2 "'$name' is no name (letters, digits and -, at most 40)"
    shift
    for c in "$@"; do
        if [[ -z ${top[$c]:-} ]]; then
            [[ -z $base ]] || lock
            enable "$c"
        fi
        mkdir -p "$(dir_of "$c" "$name")" 2>/dev/null || die 77 "skipped: no control group with '$c' can be made at $(dir_of "$c" "$name")"
    done
}

cpu() { # name percent us
    local d
    d=$(dir_of cpu "$1")
    whole "$2"
    whole "$3"
    if [[ -n ${top[cpu]:-} ]]; then
        # Beside others it counts like a hundred groups: what bounds it is the quota.
        put "$d/cpu.cfs_period_us" "$3" && put "$d/cpu.cfs_quota_us" $(($2 * $3 / 100)) && put "$d/cpu.shares" 102400
    else
        put "$d/cpu.max" "$(($2 * $3 / 100)) $3"
    fi || die 74 "the kernel refuses $2 % of a core in periods of $3 us in $d"
}
memory() { # name bytes
    whole "$2"
    if [[ -n ${top[memory]:-} ]]; then
        put "$(dir_of memory "$1")/memory.limit_in_bytes" "$2"
    else
        put "$(dir_of memory "$1")/memory.max" "$2"
    fi || die 74 "the kernel refuses a limit of $2 bytes in $(dir_of memory "$1")"
}
read_rate() { # name device rate
    whole "$3"
    if [[ -n ${top[io]:-} ]]; then
        put "$(dir_of io "$1")/blkio.throttle.read_bps_device" "$2 $3"
    else
        put "$(dir_of io "$1")/io.max" "$2 rbps=$([[ $3 -eq 0 ]] && echo max || echo "$3")"
    fi || die 74 "the kernel refuses $3 bytes/s from device $2 in $(dir_of io "$1")"
}

check() { # controller...
    local name=probe-$$ c
    trap 'down probe-$$' EXIT
    make "$name" "$@"
    for c in "$@"; do
        case $c in # the kernel may have been built without one
            cpu) cpu "$name" 50 10000 ;;
            memory) memory "$name" $((1 << 30)) ;;
            io) [[ -e $(dir_of io "$name")/io.max || -e $(dir_of io "$name")/blkio.throttle.read_bps_device ]] ||
                die 77 "skipped: the kernel cannot bound reads of block devices" ;;
        esac
    done
}

enter() { # name pid
    local d some=0
    for d in $(dirs_of "$1"); do
        put "$d/cgroup.procs" "$2" || die 74 "process $2 cannot be moved to $d"
        some=1
    done
    [[ $some -eq 1 ]] || die 66 "there is no control group $1"
}

figures() { # name
    local c d=() some=0
    for c in cpu memory; do d+=("$(dir_of $c "$1")"); done
    figure() { # name file key: where the group has the controller; no key: all of the file
        local n
        n=$(sed -n "s/^${3:+$3 }//p" "$2" 2>/dev/null) || return 0
        [[ -n $n ]] || return 0
        printf '%s %d\n' "$1" "$n"
        some=1
    }
    figure throttled "${d[0]}/cpu.stat" nr_throttled
    if [[ -n ${top[memory]:-} ]]; then
        figure limited "${d[1]}/memory.failcnt" ''
        figure kills "${d[1]}/memory.oom_control" oom_kill
    else
        figure limited "${d[1]}/memory.events" max
        figure kills "${d[1]}/memory.events" oom_kill
    fi
    [[ $some -eq 1 ]] || die 66 "there is no control group $1 with cpu or memory"
}

down() { # name
    local c d tries
    [[ -z $base ]] || lock
    for c in "${top[@]/%//rubato-}" ${base:+"$base/rubato-lab/"}; do
        for d in "$c$1" "$c$1"-*; do
            # A process that was killed leaves its group a little later.
            for ((tries = 0; tries < 50; tries++)); do
                [[ -d $d ]] && ! rmdir "$d" 2>/dev/null || break
                sleep 0.02
            done
            [[ ! -d $d ]] || printf 'group.sh: %s still holds processes\n' "$d" >&2
        done
    done
    [[ -z $base ]] || give_back
}

verb=${1:-}
shift || true
find_mounts
case $verb in
    check) [[ $# -ge 1 ]] || die 2 "check CONTROLLER..."; check "$@" ;;
    make) [[ $# -ge 2 ]] || die 2 "make NAME CONTROLLER..."; make "$@" ;;
    cpu) [[ $# -ge 2 ]] || die 2 "cpu NAME PERCENT [US]"; cpu "$1" "$2" "${3:-10000}" ;;
    memory) [[ $# -eq 2 ]] || die 2 "memory NAME BYTES"; memory "$@" ;;
    read) [[ $# -eq 3 ]] || die 2 "read NAME DEVICE RATE"; read_rate "$@" ;;
    in) [[ $# -ge 2 ]] || die 2 "in NAME COMMAND..."; enter "$1" $$; shift; exec "$@" ;;
    enter) [[ $# -eq 2 ]] || die 2 "enter NAME PID"; enter "$@" ;;
    figures) figures "${1:?name}" ;;
    down) down "${1:?name}" ;;
    *) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
