#!/bin/bash
# The laboratory itself: net_test.sh PATH_OF_RELAY
# Comes up in every form, shapes, goes down without a trace, also after its owner was killed.
set -euo pipefail
net=$(dirname "$(realpath "$0")")/net.sh
relay=$(realpath "$1")
lab=t$$
"$net" check || exit 77
trap '"$net" down "$lab"' EXIT

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

# seconds FROM TO KB: one TCP connection carries so much, with the shell's own means
seconds() {
    local to kb=$3
    to=$("$net" addr "$lab" "$2")
    "$net" in "$lab" "$2" python3 -c '
import socket, sys
s = socket.create_server(("", 5000)); print("ready", flush=True)
c, _ = s.accept(); n = 0
while True:
    b = c.recv(1 << 16)
    if not b: break
    n += len(b)
c.close()
' >/tmp/$lab.server &
    for _ in $(seq 1 1500); do
        ! grep -qs ready /tmp/$lab.server || break
        sleep 0.02
    done
    "$net" in "$lab" "$1" python3 -c '
import socket, sys, time
t = time.time()
s = socket.create_connection((sys.argv[1], 5000)); s.sendall(bytes(int(sys.argv[2]) << 10))
s.shutdown(socket.SHUT_WR); s.recv(1); print("%.3f" % (time.time() - t))
' "$to" "$kb"
    wait $!
    rm -f /tmp/$lab.server
}
between() { awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }' || fail "$4: $1 is outside $2 .. $3"; }

# measure FROM TO KB MOST: seconds, again while it takes longer than MOST, three times at most: others use this machine too
measure() {
    local s
    for _ in 1 2 3; do
        s=$(seconds "$1" "$2" "$3")
        awk -v x="$s" -v b="$4" 'BEGIN { exit !(x > b) }' || break
    done
    echo "$s"
}
for form in "--at sender" "--at sender --bands" "--at router" "--at router --bands"; do
    # shellcheck disable=SC2086
    "$net" up "$lab" 3 --rate 80mbit --burst 64kb $form
    s=$(measure 1 3 2048 1.5) # 2 MiB at 10 MB/s
    between "$s" 0.19 1.5 "2 MiB at 80 Mbit/s, $form"
    echo "ok: $form, 2 MiB at 80 Mbit/s in $s s"
done
"$net" up "$lab" 2 --relay "$relay" --delay-us 20000
s=$(measure 1 2 1 0.5) # connect, and the answer to the end: two round trips of 40 ms
between "$s" 0.079 0.5 "two round trips of 40 ms"
echo "ok: relay, two round trips of 40 ms in $s s"

set +e
"$net" cpu "$lab" 1 20 true
code=$?
set -e
[[ $code -eq 0 || $code -eq 77 ]] || fail "cpu exits $code"

"$net" down "$lab"
grep -q "ru-$lab-" <<<"$(ip netns list)" && fail "namespaces of $lab are left"
sleep 100 &
owner=$!
"$net" up "$lab" 2 --rate 10mbit --owner $owner
"$net" sweep
grep -q "ru-$lab-1" <<<"$(ip netns list)" || fail "swept although its owner lives"
kill -9 $owner
wait $owner 2>/dev/null || true
"$net" sweep
grep -q "ru-$lab-" <<<"$(ip netns list)" && fail "left behind by a killed owner"
echo "ok: gone with its owner"

# The next laboratory takes it down as well, with the program that carried its packets.
sleep 100 &
owner=$!
"$net" up "$lab" 2 --relay "$relay" --delay-us 1000 --owner $owner
carrier=$(cat "/run/rubato-lab/$lab/relay")
kill -9 $owner
wait $owner 2>/dev/null || true
"$net" up "${lab}n" 1
"$net" down "${lab}n"
grep -q "ru-$lab-" <<<"$(ip netns list)" && fail "left behind by a killed owner, beside the next laboratory"
for _ in $(seq 1 15000); do
    grep -qs relay "/proc/$carrier/comm" || break
    sleep 0.02
done
grep -qs relay "/proc/$carrier/comm" && fail "the relay of a killed owner runs on"
echo "ok: gone with the next laboratory"
