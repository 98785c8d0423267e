#!/bin/bash
# The network laboratory: hosts are network namespaces of this machine, joined by shaped links.
#
#   net.sh check [CONTROLLER...]        can this machine hold one (with control groups)? says why not, exit 77
#   net.sh up NAME N [options]          N hosts 10.77.x.y; an older laboratory of that name goes first
#       --rate R                        of every link, both ways, as tc writes it (1gbit); none: free
#       --at sender | router            where the queue stands: at the sending host (a switch joins
#                                       them), or one hop away in a router that the sender cannot see
#       --bands                         the queue has three bands by type of service
#       --burst B --latency T           of the token bucket (512kb, 20ms)
#       --relay PROGRAM --delay-us D [--rate-mbit R] [--loss-ppm L]
#                                       instead of --rate: a program carries the packets and holds them
#       --owner PID                     goes down once that process is gone: by the next up, or sweep
#   net.sh addr NAME K                  address of host K (1 .. N)
#   net.sh in NAME K COMMAND...         run it on host K
#   net.sh cpu NAME K PERCENT COMMAND.. the same with so much of one core (period 10 ms; group NAME-K of group.sh)
#   net.sh quota NAME K PERCENT         from now on so much, of what `cpu` started there
#   net.sh rate NAME K R [out|both [B]] from now on that rate on the link of host K, both ways or out alone, with that
#                                       burst (64kb); a packet that is larger, 64 KiB and headers, goes in 45 pieces
#   net.sh cut NAME K SECONDS           nothing comes to or from host K for so long
#   net.sh status [NAME]                what stands, what the queues hold
#   net.sh down NAME
#   net.sh sweep                        take down what killed owners left behind
#
# No netem: the kernels of some test machines have only tbf, so delay and loss come from the relay.
# Everything lives in namespaces of its own, the switch too: nothing of the machine changes.
set -euo pipefail
state=/run/rubato-lab
group=$(dirname "$(realpath "$0")")/group.sh

die() {
    printf 'net.sh: %s\n' "$2" >&2
    exit "$1"
}
ns() { printf 'ru-%s-%s' "$1" "$2"; }
enter() {
    local at=/run/netns/$1
    shift
    nsenter --net="$at" "$@"
}
whole() { [[ $1 =~ ^[0-9]+$ ]] || die 2 "'$1' is no whole number"; }

check() {
    [[ $(id -u) -eq 0 ]] || die 77 "skipped: network namespaces need root"
    local tool
    for tool in ip tc nsenter; do
        command -v $tool >/dev/null || die 77 "skipped: no '$tool'; apt-get install iproute2 util-linux"
    done
    local probe=ru-probe-$$
    ip netns add "$probe" 2>/dev/null || die 77 "skipped: this machine does not let us make network namespaces"
    local why=
    enter "$probe" ip link set lo up 2>/dev/null || why="links cannot be changed"
    [[ -n $why ]] || enter "$probe" tc qdisc add dev lo root tbf rate 1gbit burst 64kb latency 1ms 2>/dev/null ||
        why="the kernel has no token bucket (sch_tbf)"
    ip netns del "$probe"
    [[ -z $why ]] || die 77 "skipped: $why"
    [[ $# -eq 0 ]] || "$group" check "$@"
}

addr_of() { # kind host
    if [[ $1 == router ]]; then printf '10.77.%d.2' "$2"; else printf '10.77.0.%d' "$2"; fi
}

shape() { # namespace device
    [[ $rate != none ]] || return 0
    enter "$1" ip link set "$2" txqueuelen 256
    enter "$1" tc qdisc replace dev "$2" root handle 1: tbf rate "$rate" burst "$burst" latency "$latency"
    [[ $bands -eq 0 ]] || enter "$1" tc qdisc replace dev "$2" parent 1:1 handle 2: pfifo_fast
}

add_host() { # name: a namespace with loopback
    ip netns add "$1"
    enter "$1" ip link set lo up
}

up_wired() {
    local hub k h
    hub=$(ns "$name" hub)
    add_host "$hub"
    if [[ $at == sender ]]; then
        enter "$hub" ip link add switch type bridge
        enter "$hub" ip link set switch up
    else
        enter "$hub" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
    fi
    for ((k = 1; k <= n; k++)); do
        h=$(ns "$name" $k)
        add_host "$h"
        ip link add eth0 netns "$h" type veth peer name "p$k" netns "$hub"
        if [[ $at == sender ]]; then
            enter "$hub" ip link set "p$k" master switch up
            enter "$h" ip addr add "10.77.0.$k/24" dev eth0
            enter "$h" ip link set eth0 up
            shape "$h" eth0
        else
            enter "$hub" ip addr add "10.77.$k.1/24" dev "p$k"
            enter "$hub" ip link set "p$k" up
            enter "$h" ip addr add "10.77.$k.2/24" dev eth0
            enter "$h" ip link set eth0 up
            enter "$h" ip route add default via "10.77.$k.1"
        fi
        shape "$hub" "p$k"
    done
}

up_relay() {
    local k h words=()
    for ((k = 1; k <= n; k++)); do
        h=$(ns "$name" $k)
        add_host "$h"
        words+=("/run/netns/$h" "10.77.0.$k")
    done
    mkdir -p "$state/$name"
    "$relay" "$delay_us" "$rate_mbit" "$loss_ppm" "${words[@]}" >"$state/$name/relay.out" 2>&1 </dev/null &
    echo $! >"$state/$name/relay"
    local tries=0
    until grep -q ready "$state/$name/relay.out"; do
        kill -0 "$(cat "$state/$name/relay")" 2>/dev/null || die 74 "$(tail -1 "$state/$name/relay.out")"
        tries=$((tries + 1))
        [[ $tries -lt 30000 ]] || die 74 "the relay did not start"
        sleep 0.01
    done
    for ((k = 1; k <= n; k++)); do
        h=$(ns "$name" $k)
        enter "$h" ip addr add "10.77.0.$k/24" dev eth0
        enter "$h" ip link set eth0 up
    done
}

up() {
    name=$1 n=$2 rate=none at=sender bands=0 burst=512kb latency=20ms owner=0
    relay= delay_us=0 rate_mbit=0 loss_ppm=0
    [[ $name =~ ^[A-Za-z0-9]{1,12}$ ]] || die 2 "'$name' is no name (letters and digits, at most 12)"
    whole "$n"
    [[ $n -ge 1 && $n -le 64 ]] || die 2 "$n hosts: 1 .. 64"
    shift 2
    while [[ $# -gt 0 ]]; do
        case $1 in
            --bands) bands=1 && shift && continue ;;
            --rate) rate=$2 ;;
            --at) at=$2 ;;
            --burst) burst=$2 ;;
            --latency) latency=$2 ;;
            --owner) owner=$2 ;;
            --relay) relay=$2 ;;
            --delay-us) delay_us=$2 ;;
            --rate-mbit) rate_mbit=$2 ;;
            --loss-ppm) loss_ppm=$2 ;;
            *) die 2 "unknown option $1" ;;
        esac
        shift 2
    done
    [[ $at == sender || $at == router ]] || die 2 "--at $at: sender or router"
    check
    sweep
    down "$name"
    mkdir -p "$state/$name"
    local kind=$at
    [[ -z $relay ]] || kind=relay
    printf '%s\n' "$n" >"$state/$name/hosts"
    printf '%s\n' "$kind" >"$state/$name/kind"
    printf '%s\n' "$owner" >"$state/$name/owner"
    trap 'down "$name"' ERR
    if [[ -n $relay ]]; then up_relay; else up_wired; fi
    trap - ERR
}

down() {
    local name=$1 at="$state/$1" h pid
    if [[ -f $at/relay ]]; then
        pid=$(cat "$at/relay" || echo none) # another sweep may be at it
        # Only if that process is still the relay: numbers are used again.
        if grep -qs relay "/proc/$pid/comm"; then kill "$pid" 2>/dev/null || true; fi
    fi
    for h in $(ip netns list 2>/dev/null | awk '{print $1}' | grep -E "^ru-$name-(hub|[0-9]+)$" || true); do
        ip netns del "$h" || [[ ! -e /run/netns/$h ]]
    done
    "$group" down "$name"
    rm -rf "${at:?}"
}

sweep() {
    local d owner
    for d in "$state"/*; do
        [[ -f $d/owner ]] || continue
        owner=$(cat "$d/owner") || continue
        if [[ $owner != 0 && ! -d /proc/$owner ]]; then
            down "$(basename "$d")"
        fi
    done
}

status() {
    local d k name
    for d in "$state"/${1:-*}; do
        [[ -f $d/kind ]] || continue
        name=$(basename "$d")
        printf '%s: %s hosts, %s, owner %s\n' "$name" "$(cat "$d/hosts")" "$(cat "$d/kind")" "$(cat "$d/owner")"
        for ((k = 1; k <= $(cat "$d/hosts"); k++)); do
            printf '  host %d %s\n' $k "$(addr_of "$(cat "$d/kind")" $k)"
            enter "$(ns "$name" $k)" tc -s qdisc show dev eth0 | sed 's/^/    /'
        done
    done
}

in_host() { # name k command...
    local h
    h=$(ns "$1" "$2")
    [[ -e /run/netns/$h ]] || die 66 "there is no host $2 in the laboratory $1"
    shift 2
    exec nsenter --net="/run/netns/$h" "$@"
}

cpu() { # name k percent command...
    local name=$1 k=$2
    "$group" make "$name-$k" cpu
    "$group" cpu "$name-$k" "$3"
    shift 3
    [[ -e /run/netns/$(ns "$name" "$k") ]] || die 66 "there is no host $k in the laboratory $name"
    exec "$group" in "$name-$k" nsenter --net="/run/netns/$(ns "$name" "$k")" "$@"
}

rate() { # name k rate [out|both [burst]]
    change() { # namespace device
        enter "$1" tc qdisc change dev "$2" root handle 1: tbf rate "$rate" burst "$burst" latency "$latency"
    }
    rate=$3 burst=${5:-64kb} latency=20ms
    change "$(ns "$1" "$2")" eth0
    [[ ${4:-} == out ]] || change "$(ns "$1" hub)" "p$2"
}

cut() { # name k seconds: as if somebody pulled its plug
    local hub
    hub=$(ns "$1" hub)
    enter "$hub" ip link set "p$2" down
    sleep "$3"
    enter "$hub" ip link set "p$2" up
}

verb=${1:-}
shift || true
case $verb in
    check) check "$@" ;;
    up) [[ $# -ge 2 ]] || die 2 "up NAME N"; up "$@" ;;
    down) down "${1:?name}" ;;
    addr) addr_of "$(cat "$state/$1/kind")" "$2" ;;
    in) in_host "$@" ;;
    cpu) cpu "$@" ;;
    quota) [[ $# -eq 3 ]] || die 2 "quota NAME K PERCENT"; "$group" cpu "$1-$2" "$3" ;;
    rate) [[ $# -ge 3 ]] || die 2 "rate NAME K R [out|both [BURST]]"; rate "$@" ;;
    cut) [[ $# -eq 3 ]] || die 2 "cut NAME K SECONDS"; cut "$@" ;;
    status) status "$@" ;;
    sweep) sweep ;;
    *) sed -n '2,26s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
