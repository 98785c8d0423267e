#!/bin/bash
# Buckets of a service's disk and network: burst_meters.sh PATH_OF_RUBATO. Needs root, control groups and network namespaces; what
# this machine lacks ends it with 77.
#
#   1. network: a service sends through an interface that has 4.5 GB saved, earns 100 kB/s and bursts to 2.5 MB/s, an hour in a minute. It is bounded
#      to what it earns when they are spent, and still sends; the level is that of the bytes that the other end got within 2 % of the cap; the alarm comes before.
#      An interface that somebody shapes is refused.
#   2. the pacer is killed: its guard takes the queue away.
#   3. disk: what the service writes around the cache counts, and is bounded when the bucket is empty. The guard of a pacer that is killed
#      takes the limit away, and the bucket goes on where it was.
#   4. `speed: disk`: the speed of a service that waits for its disk alone is profiled, chosen and in force.
#   5. `speed: all`: one choice for processor, disk and network of a service that uses all three is in force in the kernel at once; a pacer that is killed
#      leaves none of them, and the next one goes on without a profile.
set -euo pipefail
rubato=$(realpath "$1")
lab=$(dirname "$(realpath "$0")")
bash "$lab/net.sh" check || exit $?
bash "$lab/group.sh" check cpu io || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-meters-XXXXXX")
net=m$(($$ % 10000)) name=meters$$
pids=() pacer='' failed=0
cleanup() {
    [[ -z $pacer ]] || kill -9 "$pacer" 2>/dev/null || true
    [[ ${#pids[@]} -eq 0 ]] || kill -9 "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    bash "$lab/net.sh" down "$net" 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path "*/rubato-burst/$name*" -exec rmdir {} + 2>/dev/null || true
    rm -rf "$work" "/dev/shm/${work##*/}"
}
trap cleanup EXIT
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    cat said log 2>/dev/null | tail -n 20 >&2 || true
    failed=1
}
waits() { # WHAT COMMAND...: until it is so
    local what=$1 k
    shift
    for ((k = 0; k < 3600; k++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    fail "$what"
}
bash "$lab/net.sh" up "$net" 2 --owner $$ >/dev/null
in1() { bash "$lab/net.sh" in "$net" 1 "$@"; }
to=$(bash "$lab/net.sh" addr "$net" 2)
card_of() { bash "$lab/net.sh" in "$net" "$1" ip -o -4 addr show | awk '$2 != "lo" { print $2; exit }' | cut -d@ -f1; }
card=$(card_of 1)
in1 tc qdisc del dev "$card" root 2>/dev/null || true
cat >sink.py <<'PY'
import socket, sys, threading, time
s = socket.create_server((sys.argv[1], 25077))
def count(): # what came through the interface, headers too, by the clock of the windows
    with open("got", "w", buffering=1) as log:
        while True:
            line = next(l for l in open("/proc/self/net/dev") if l.strip().startswith(sys.argv[2] + ":"))
            log.write("%d %s\n" % (time.time_ns(), line.split(":")[1].split()[0]))
            time.sleep(0.02)
threading.Thread(target=count, daemon=True).start()
c, _ = s.accept()
while c.recv(1 << 16):
    pass
PY
cat >send.py <<'PY'
import socket, sys, time
for k in range(100):
    try:
        c = socket.create_connection((sys.argv[1], 25077))
        break
    except OSError:
        time.sleep(0.1)
open("send.pid", "w").write(str(__import__("os").getpid()))
while True:
    t = time.time()
    c.sendall(b"x" * 20000)
    print("GET / 200 %.6f" % (time.time() - t), flush=True)
PY
bash "$lab/net.sh" in "$net" 2 python3 sink.py "$to" "$(card_of 2)" &
pids+=($!)
: >access.log
bash "$lab/net.sh" in "$net" 1 python3 send.py "$to" >>access.log 2>send.err &
pids+=($!)
waits 'the service does not begin' test -s send.pid
pids+=("$(cat send.pid)")
cat >service.yaml <<FILE
name: $name
folder: out
pid_file: send.pid
access_log: access.log
cpu: {cores: 1, credits_per_hour: 10, cap: 280, level: 200}
network: {interface: $card, earn: 100kB, burst: 2500kB, cap: 5GB, level: 4.5GB}
slo: 2s
window: 1s
clock: 60
reserve: 300s
FILE
in1 tc qdisc add dev "$card" root handle 1: tbf rate 1gbit burst 64kb latency 50ms
code=0
in1 "$rubato" cluster burst service.yaml >said 2>log || code=$?
[[ $code == 75 ]] && grep -q 'somebody set up' log || fail "a shaped interface: ended with $code"
in1 tc qdisc del dev "$card" root
nsenter --net="/run/netns/ru-$net-1" "$rubato" cluster burst service.yaml >said 2>log & # a number that is its own
pacer=$!
rate() { in1 tc qdisc show dev "$card" root | sed -n 's/.* tbf .*rate \([^ ]*\) .*/\1/p'; }
is_rate() { [[ $(rate) == "$1" ]]; }
bursts() { is_rate 20Mbit || { [[ -s out/windows.jsonl ]] && grep -q '"rate":2500000,"empty":false' out/windows.jsonl; }; } # or did, unseen
waits "the interface is not bounded to what it may burst" bursts
waits "it is not bounded to what it earns: $(rate)" is_rate 800Kbit
had=$(tail -n 1 got | cut -d' ' -f2)
sends() { local now; now=$(tail -n 1 got | cut -d' ' -f2); [[ $now -gt $((had + 200000)) ]]; }
waits 'nothing is sent any more' sends
waits 'no alarm as the bucket ran empty' grep -q 'credits of the network end in' log
cat >level.py <<'PY'
# The level after each window, from what the other side counted alone: KEY FOLDER FILE CAP EARN
import bisect, itertools, json, statistics, sys
key, folder, file, cap, earn = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])
rows = [json.loads(l) for l in open(folder + "/windows.jsonl") if l.endswith("\n")]
got = [tuple(map(int, l.split())) for l in open(file) if l.count(" ") == 1 and l.endswith("\n")]
times = [t for t, _ in got]
def at(t):
    k = min(max(bisect.bisect(times, t), 1), len(got) - 1)
    (a, x), (b, y) = got[k - 1], got[k]
    return x + (y - x) * (t - a) / (b - a)
def level(first, r, late): # had the window's counter been read so much before its line was written
    dt = (r["wall_ns"] - first["wall_ns"]) * 1e-9
    return first[key]["level"] + 60 * (earn * dt - (at(r["wall_ns"] - late) - at(first["wall_ns"])))
full = [r for r in itertools.takewhile(lambda r: not r[key]["empty"], rows)]
slack = 500 * 10**6 # a busy machine lets either side wait
def off(first): # of most windows: one that waited longer is no drift
    return statistics.median(max(level(first, r, -slack) - r[key]["level"], r[key]["level"] - level(first, r, slack)) / cap for r in full if r is not first)
worst = max(abs(level(full[0], r, 0) - r[key]["level"]) / cap for r in full)
print("%s: level off by at most %.2f %% of the cap in %d windows" % (key, 100 * worst, len(full) - 1))
sys.exit(not (len(full) > 3 and min(map(off, full)) <= 0.02))
PY
python3 level.py network out got 5e9 1e5 || fail "the level is not that of the bytes"
"$rubato" cluster explain service.yaml >told
grep -q '^network: .* of 5e+09 left' told || fail 'explain does not tell of the network'
[[ $failed -ne 0 ]] || echo "ok: a network's bucket"

# -- 2
kill -9 "$pacer"
wait "$pacer" 2>/dev/null || true
pacer=''
is_free() { [[ -z $(rate) ]]; }
waits 'the guard leaves a limit on the interface' is_free
[[ $failed -ne 0 ]] || echo "ok: the limit does not outlive its owner"

# -- 3
cat >write.py <<'PY'
import mmap, os, time
f = os.open("data", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
b = mmap.mmap(-1, 1 << 18)
open("write.pid", "w").write(str(os.getpid()))
k, log = 0, open("/dev/shm/" + os.path.basename(os.getcwd()), "w", buffering=1)
while True:
    t = time.time()
    k += os.pwrite(f, b, k % (64 << 20))
    log.write("%d %d\n" % (time.time_ns(), k))
    print("PUT / 200 %.6f" % (time.time() - t), flush=True)
PY
: >disk.log
python3 write.py >>disk.log 2>write.err &
pids+=($!)
waits 'nothing is written' test -s write.pid
cat >disk.yaml <<FILE
name: $name-disk
folder: disk
pid_file: write.pid
access_log: disk.log
cpu: {cores: 1, credits_per_hour: 10, cap: 280, level: 200}
disk: {path: $work, earn: 1MB, burst: 8MB, cap: 12GB, level: 10GB}
slo: 2s
window: 1s
clock: 60
FILE
"$rubato" cluster burst disk.yaml >said 2>log &
pacer=$!
emptied() { [[ -s disk/windows.jsonl ]] && grep -q '"empty":true,"empty_s"' disk/windows.jsonl; }
waits 'its bucket is never empty' emptied
python3 level.py disk disk "/dev/shm/${work##*/}" 12e9 1e6 || fail "the level is not that of the bytes"
n=$(wc -l <disk/windows.jsonl)
earns() {
    python3 - "$n" <<'PY'
import json, sys
rows = [json.loads(l) for l in open("disk/windows.jsonl") if l.endswith("\n")]
full = [r["disk"]["use"] for r in rows if not r["disk"]["empty"]]
burst = sum(full) / len(full)
late = min([r["disk"]["use"] for r in rows[int(sys.argv[1]):] if r["disk"]["empty"]], default=8e6)
print("used %.2f MB/s before, %.2f MB/s when empty" % (burst * 1e-6, late * 1e-6))
sys.exit(not (burst < 8e6 * 1.25 and late < 1.25e6))
PY
}
waits "the disk is not bounded to what it earns" earns >earned
tail -n 1 earned
kill -9 "$pacer"
wait "$pacer" 2>/dev/null || true
pacer=''
limits() { find /sys/fs/cgroup -path "*/rubato-burst/$name-disk/*" \( -name io.max -o -name 'blkio.throttle.*_device' \) -exec grep -h . {} +; }
unbound() { [[ -z $(limits) ]]; }
waits 'the guard leaves a limit on the disk' unbound
"$rubato" cluster burst disk.yaml >said 2>log &
pacer=$!
bound() { [[ -n $(limits) ]]; }
waits 'the next pacer does not bound the disk' bound
kill -TERM "$pacer"
code=0
wait "$pacer" || code=$?
pacer=''
[[ $code == 0 ]] || fail "told to stop it ended with $code"
unbound || fail "told to stop it leaves a limit on the disk: $(limits)"
[[ $failed -ne 0 ]] || echo "ok: a disk's bucket"

# -- 4: with a full bucket, so that nothing but the choice bounds it
cat >server.py <<'PY'
import mmap, os, socket, threading
f = os.open("data", os.O_CREAT | os.O_WRONLY | os.O_DIRECT, 0o600)
b = mmap.mmap(-1, 1 << 15)
s = socket.create_server(("127.0.0.1", 0), backlog=64)
open("port", "w").write(str(s.getsockname()[1]))
def serve(c, at): # a write around the cache for each request
    try:
        while c.recv(1):
            os.pwrite(f, b, at)
            c.sendall(b"y")
    except OSError: # a client that was killed
        pass
open("server.tmp", "w").write(str(os.getpid()))
os.rename("server.tmp", "server.pid")
k = 0
while True:
    k += 1
    threading.Thread(target=serve, args=(s.accept()[0], k % 64 << 20), daemon=True).start()
PY
cat >load.py <<'PY'
# CLIENTS clients for DURATION seconds, each with its next request at the answer to its last one.
import os, socket, threading, time
end = time.time() + float(os.environ["DURATION"])
log = os.open("requests.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
def ask():
    c = socket.create_connection(("127.0.0.1", int(open("port").read())))
    while time.time() < end:
        t = time.time()
        c.sendall(b"x")
        if not c.recv(1):
            break
        os.write(log, b"GET / 200 %.6f\n" % (time.time() - t))
threads = [threading.Thread(target=ask) for _ in range(int(os.environ["CLIENTS"]))]
[t.start() for t in threads]
[t.join() for t in threads]
PY
: >requests.log
python3 server.py 2>server.err &
pids+=($!)
waits 'the server does not begin' test -s server.pid
cat >chosen.yaml <<FILE
name: $name-disk
folder: chosen
pid_file: server.pid
access_log: requests.log
speed: disk
disk: {path: $work, earn: 400kB, burst: 4MB, cap: 10GB, level: 9GB}
slo: 2s
window: 2s
profile: {load: python3 load.py, clients: [4, 8, 16]}
FILE
sed 's/^speed:.*/&\ncpu: {cores: 1, credits_per_hour: 10, cap: 280}/' chosen.yaml >both.yaml
code=0
"$rubato" cluster burst both.yaml >said 2>log || code=$?
[[ $code == 78 ]] && grep -q 'leave `cpu` out' log || fail "two speeds: ended with $code"
"$rubato" cluster burst chosen.yaml >said 2>log &
pacer=$!
profiled() { [[ -s chosen/windows.jsonl ]] && grep -qv '"phase":"profile"' chosen/windows.jsonl; }
waits 'the profile does not end' profiled
CLIENTS=9 DURATION=600 python3 load.py &
pids+=($!)
held() { # the limit of the kernel is the speed of the last decision, which is below 0.9
    local speed
    speed=$(tail -n 1 chosen/windows.jsonl | sed -n 's/.*"phase":"held".*"next_speed":\([0-9.]*\),.*/\1/p')
    [[ -n $speed ]] && awk -v s="$speed" 'END { exit !(s < 0.9 && n > 0 && !bad) } { n++; d = $NF; sub(/.*wbps=/, "", d); d -= 4e6 * s; bad += d > 2 || d < -2 }' <(limits | sed 's/ [rw]iops=.*//')
}
waits "no speed of the disk is chosen, or it is not in force: $(limits)" held
"$rubato" cluster explain chosen.yaml >told
grep -q 'speed and credits are those of the disk' told || fail 'explain does not tell whose speed it is'
kill -TERM "$pacer"
code=0
wait "$pacer" || code=$?
pacer=''
[[ $code == 0 ]] || fail "told to stop it ended with $code"
unbound || fail "told to stop it leaves a limit on the disk: $(limits)"
[[ $failed -ne 0 ]] || echo "ok: the speed of a disk"

# -- 5: its clients come from the other end of the link
kill -9 "${pids[@]}" 2>/dev/null || true # what uses the same card and disk
wait 2>/dev/null || true
pids=()
from=$(bash "$lab/net.sh" addr "$net" 1)
sed -e "s/127.0.0.1/$from/; s/\"port\"/\"port3\"/; s/server\./server3./g; s/1 << 15/1 << 14/" \
    -e 's/c.sendall(b"y")/sum(range(3000)); c.sendall(b"y" * 2000)/' server.py >server3.py
sed -e "s/127.0.0.1/$from/; s/\"port\"/\"port3\"/; s/requests.log/requests3.log/; s/c.recv(1)/c.recv(2000, socket.MSG_WAITALL)/" load.py >load3.py
: >requests3.log
bash "$lab/net.sh" in "$net" 1 python3 server3.py 2>server3.err &
pids+=($!)
waits 'the third server does not begin' test -s server3.pid
pids+=("$(cat server3.pid)")
cat >all.yaml <<FILE
name: $name-disk
folder: all
pid_file: server3.pid
access_log: requests3.log
speed: all
cpu: {cores: 0.5, credits_per_hour: 1, cap: 280, level: 200}
disk: {path: $work, earn: 100kB, burst: 4MB, cap: 10GB, level: 9GB}
network: {interface: $card, earn: 10kB, burst: 1MB, cap: 10GB, level: 9GB}
slo: 2s
window: 2s
profile: {load: nsenter --net=/run/netns/ru-$net-2 python3 load3.py, clients: [4, 8, 16]}
FILE
start_all() {
    nsenter --net="/run/netns/ru-$net-1" "$rubato" cluster burst all.yaml >said 2>log &
    pacer=$!
}
start_all
profiled() { [[ -s all/windows.jsonl ]] && grep -qv '"phase":"profile"' all/windows.jsonl; }
waits 'the profile of three does not end' profiled
CLIENTS=9 DURATION=600 nsenter --net="/run/netns/ru-$net-2" python3 load3.py &
pids+=($!)
cores() { # quota and period
    local f
    f=$(find /sys/fs/cgroup -path "*/rubato-burst/$name-disk/*" \( -name cpu.max -o -name cpu.cfs_quota_us \))
    [[ -z $f ]] || { cat "$f"; [[ $f == *cpu.max ]] || cat "${f%quota_us}period_us"; }
}
cat >inforce.py <<'PY'
# Are the speeds of the last decision, which are not all full, those of the kernel? QUOTA_AND_PERIOD DISK TBF
import json, re, sys
r = json.loads([l for l in open("all/windows.jsonl") if l.endswith("\n")][-1])
speed = [r["next_speed"], r["disk"]["next_speed"], r["network"]["next_speed"]]
tbf = re.match(r"(\d+)([KMG]?)bit", sys.argv[3])
now = [int(sys.argv[1].split()[0]) / int(sys.argv[1].split()[1]) / 0.5, int(re.search(r"(?:wbps=|\d+:\d+ )(\d+)", sys.argv[2]).group(1)) / 4e6,
       int(tbf.group(1)) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}[tbf.group(2)] / 8e6]
print(r["phase"], speed, now)
sys.exit(not (r["phase"] == "held" and min(speed) < 0.9 and all(abs(a - b) < 0.01 for a, b in zip(speed, now))))
PY
inforce() { python3 inforce.py "$(cores)" "$(limits)" "$(rate)" >told 2>&1; }
waits "the choice for three is not in force" inforce
cat told
"$rubato" cluster explain all.yaml >told
grep -q '^disk: .*chosen with the others' told && grep -q '^network: .*chosen with the others' told || fail 'explain does not tell of the choice for three'
"$rubato" capture all -o world.json || fail 'no world file of the service'
id=$(sed -n 's/.*"id":"\([0-9a-f]*\)".*/\1/p' world.json)
"$rubato" plan world.json burst --json >again.json || fail 'the captured plan is not made again'
grep -q "\"plan\":\"$id\"" all/windows.jsonl && grep -q "\"$id\"" again.json || fail "another plan than $id: $(head -c 300 again.json)"
kill -9 "$pacer"
wait "$pacer" 2>/dev/null || true
pacer=''
none() { is_free && unbound && [[ ! $(cores) =~ ^[1-9] ]]; }
waits 'the guard leaves one of three limits' none
n=$(wc -l <all/windows.jsonl)
start_all
later() { [[ $(wc -l <all/windows.jsonl) -gt $n ]]; }
waits 'the next pacer does not go on' later
whole() { python3 -c 'import json, sys; sys.exit(len(json.load(open("all/state.json"))["measured"]) < 5 + 39 * 44)'; } # a busy machine leaves windows out
! whole || ! sed "1,${n}d" all/windows.jsonl | grep -q '"phase":"profile"' || fail 'it takes the profile again'
kill -TERM "$pacer"
code=0
wait "$pacer" || code=$?
pacer=''
[[ $code == 0 ]] && none || fail "told to stop it ended with $code, or leaves a limit"
[[ $failed -ne 0 ]] || echo "ok: one choice for processor, disk and network"
exit $failed
