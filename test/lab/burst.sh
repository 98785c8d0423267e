#!/bin/bash
# A service at the pace of its processor credits: burst.sh PATH_OF_RUBATO. Needs control groups that can be made (root or a
# delegated subtree); ends with 77 without.
#
#   1. its processes get a quota; windows are told and explained; a second process for the same service, another service of its
#      name, a pid file that is stale or names who started the pacer, and more cores than there are: refused.
#   2. the guard is killed: another one starts. The pacer is killed: its guard takes the quota away, and the service goes on.
#   3. the next pacer goes on with the credits that were left, follows a service that begins again, and takes the quota away when it is told to stop.
#   4. pacer and guard are killed: the quota that they leave is taken away by the next pacer's end; windows.jsonl is not too long.
#   5. a load of the profile that cannot be run is told.
#   6. an agent of a cluster paces it: ps and explain tell of it, a pacer that was killed begins again, the agent's end is the pacer's.
set -euo pipefail
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-burst-XXXXXX")
name=lab$$
service='' pacer='' child=''
cleanup() {
    [[ -z $pacer ]] || kill -9 "$pacer" 2>/dev/null || true
    for f in "$work"/cl/run/*.pid; do
        [[ ! -f $f ]] || kill -9 "$(sed 's/.*"pid":\([0-9]*\).*/\1/' "$f")" 2>/dev/null || true
    done
    [[ -z $service ]] || kill -9 "$service" $child 2>/dev/null || true
    wait 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path "*/rubato-burst/$name" -exec rmdir {} + 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
fail() {
    echo "FAIL: $*" >&2
    cat said log 2>/dev/null >&2 || true
    exit 1
}
waits() { # WHAT COMMAND...: until it is so
    local what=$1 k
    shift
    for ((k = 0; k < 1800; k++)); do
        ! "$@" || return 0
        sleep 0.1
    done
    fail "$what"
}
# One client that asks again at once; each request counts to 3,000.
cat >serve.sh <<'SERVE'
while :; do
    t=${EPOCHREALTIME/./}
    for ((i = 0; i < 3000; i++)); do :; done
    printf 'GET / 200 %d.%06d\n' $(((${EPOCHREALTIME/./} - t) / 1000000)) $(((${EPOCHREALTIME/./} - t) % 1000000))
done
SERVE
: >access.log
bash serve.sh >>access.log &
service=$!
echo "$service" >service.pid
cat >service.yaml <<FILE
name: $name
folder: out
pid_file: service.pid
access_log: access.log
cpu: {cores: 0.2, credits_per_hour: 1.2, cap: 28, level: 20}
slo: 2s
window: 1s
clock: 60
FILE
quota() { # of the group: -1 or max is none
    local f
    for f in $(find /sys/fs/cgroup -path "*/rubato-burst/$name/cpu.cfs_quota_us" -o -path "*/rubato-burst/$name/cpu.max" 2>/dev/null); do
        cut -d' ' -f1 "$f"
        return
    done
    echo gone
}
bound() { [[ $(quota) =~ ^[1-9] ]]; }
free() { [[ ! $(quota) =~ ^[1-9] ]]; }
start() {
    "$rubato" cluster burst service.yaml >said 2>log &
    pacer=$!
}
windows() { [[ -s out/windows.jsonl ]] && (($(wc -l <out/windows.jsonl) >= $1)); }
begun() { bound || ! kill -0 "$pacer" 2>/dev/null; }

start
waits 'it does not begin' begun
if ! bound; then
    code=0
    wait "$pacer" || code=$?
    pacer=''
    grep -qE 'control group' log || fail "it ended with $code"
    echo "burst.sh: skipped, no control groups can be made here: $(cat log)"
    exit 77
fi
waits 'no window ended' windows 2
grep -q "rubato-burst/$name" "/proc/$service/cgroup" || fail 'the service is not in its group'
code=0
"$rubato" cluster burst service.yaml >second 2>&1 || code=$?
[[ $code == 75 ]] || fail "a second one ended with $code: $(cat second)"
refused() { # CODE TEXT KEY: VALUE...: service.yaml with other lines
    local code=0 want=$1 text=$2 line
    cp service.yaml odd.yaml
    for line in "${@:3}"; do sed -i "s|^${line%%:*}:.*|$line|" odd.yaml; done
    "$rubato" cluster burst odd.yaml >odd.txt 2>&1 || code=$?
    [[ $code == "$want" ]] && grep -q "$text" odd.txt || fail "${*:3}: ended with $code, expected $want: $(cat odd.txt)"
}
kill -STOP "$pacer" # it may change the quota at the end of a window
was=$(quota)
refused 75 "give one of the two another name" 'folder: twin'
now=$(quota)
kill -CONT "$pacer"
[[ $now == "$was" ]] || fail "one that was refused changed the quota: $was, now $now"
echo $$ >odd.pid
refused 78 'would pace itself' "name: $name-x" 'folder: odd' 'pid_file: odd.pid'
echo "$service" >odd.pid
touch -d '2000-01-01' odd.pid
refused 66 'began after' "name: $name-x" 'folder: odd' 'pid_file: odd.pid'
refused 78 'this machine has' 'folder: odd' 'cpu: {cores: 1000, credits_per_hour: 1, cap: 1}'
refused 78 'disk: give `path`, too' 'folder: odd' 'slo: 1s\ndisk: {ops_earn: 100}'
refused 78 'not both' 'folder: odd' 'slo: 1s\ndisk: {path: /, earn: 1MB, ops_earn: 100}'
refused 78 'network: give `interface`, too' 'folder: odd' 'slo: 1s\nnetwork: {earn: 1MB}'
"$rubato" cluster explain service.yaml >told
grep -q '^ *0  profile' told || fail "explain does not show the first window: $(cat told)"

guard=$(pgrep -P "$pacer" | head -1)
kill -9 "$guard"
other() { [[ -n $(pgrep -P "$pacer") && $(pgrep -P "$pacer" | head -1) != "$guard" ]] && bound; }
waits 'no guard in place of one that was killed' other
kill -9 "$pacer"
wait "$pacer" 2>/dev/null || true
pacer=''
waits 'the guard leaves a quota' free
kill -0 "$service" || fail 'the service ended'

sed -i 's/"level":[0-9.]*/"level":3/' out/state.json # what no first start has
n=$(wc -l <out/windows.jsonl)
start
waits 'it does not begin again' bound
waits 'no window ended again' windows $((n + 1))
now=$(sed 's/.*"level":\([0-9.]*\).*/\1/' out/state.json)
((${now%.*} < 15)) || fail "it does not go on with 3 credits but with $now" # ten minutes earn 12
kill -9 "$service"
wait "$service" 2>/dev/null || true
bash -c 'bash serve.sh & wait' >>access.log &
service=$!
waits 'the service has no child' pgrep -P "$service" >/dev/null
child=$(pgrep -P "$service")
echo "$service" >service.pid
waits 'a service that began again is not in the group' grep -q "rubato-burst/$name" "/proc/$child/cgroup"
kill -TERM "$pacer"
code=0
wait "$pacer" || code=$?
pacer=''
[[ $code == 0 ]] || fail "told to stop it ended with $code"
free || fail 'it leaves a quota'
kill -0 "$service" || fail 'the service ended'

start
waits 'it does not begin a third time' bound
guard=$(pgrep -P "$pacer" | head -1)
kill -STOP "$guard"
kill -9 "$pacer" "$guard"
wait "$pacer" 2>/dev/null || true
pacer=''
bound || fail 'there is no quota to be taken away'
truncate -s 65M out/windows.jsonl
"$rubato" cluster burst service.yaml --for 1s >said 2>log || fail 'the next one failed'
[[ -e out/windows.jsonl.1 ]] && (($(stat -c %s out/windows.jsonl) < 1000000)) || fail 'windows.jsonl grows without bound'
free || fail 'a quota of killed ones stays'

sed 's/^folder: out/folder: other/' service.yaml >load.yaml
echo 'profile: {load: "no-such-program -c$CLIENTS", clients: [1, 2, 3]}' >>load.yaml
code=0
"$rubato" cluster burst load.yaml --for 60s >said 2>log || code=$?
[[ $code == 66 ]] && grep -q no-such-program log || fail "a load that cannot be run ended it with $code"
free || fail 'a quota stays when no load can be run'
sed 's/^folder: out/folder: paced/' service.yaml >web.yaml
echo 'name: x' >broken.yaml
cat >cluster.yaml <<FILE
folder: cl
nodes: [{name: n1}]
bursts: [{node: n1, service: web.yaml}, {node: n1, service: broken.yaml}]
FILE
export XDG_CACHE_HOME="$work/cache" XDG_CONFIG_HOME="$work/config"
cluster() { "$rubato" cluster "$@"; }
pid_of() { sed 's/.*"pid":\([0-9]*\).*/\1/' "cl/run/$1.pid"; }
sed 's/node: n1, service: web/node: n2, service: web/' cluster.yaml >bad.yaml
code=0
cluster up bad.yaml >said 2>log || code=$?
[[ $code == 78 ]] && grep -q "there is no node 'n2'" log || fail "a service on no node: $code"
cluster up cluster.yaml >said 2>log || fail 'the cluster does not come up'
agent=$(pid_of n1)
waits 'the agent does not pace the service' bound
tells() { cluster ps >said 2>log && grep -q '^web .*n1 .*paced .*window ' said && grep -q '^broken .*waits .*broken.yaml' said; }
waits 'ps does not tell of the services' tells
cluster ps --json >said && grep -q '"services":\[{"service":"web","node":"n1","state":"paced"' said || fail 'ps --json does not tell of the services'
cluster explain web >said && grep -q "service 'web' on node n1: its pace is set" said || fail 'explain does not tell of the service'
code=0
cluster explain none >said 2>log || code=$?
[[ $code == 66 ]] && grep -q "no service 'none'" log || fail "explain of no service: $code"
pacers() { pgrep -P "$agent" -f 'cluster burst .*web.yaml' | head -1; }
first=$(pacers)
kill -9 "$first"
second() { [[ -n $(pacers) && $(pacers) != "$first" ]] && bound; }
waits 'a pacer that was killed does not begin again' second
kill -9 "$agent"
waits 'a quota stays when the agent is killed' free
cluster up cluster.yaml >said 2>log || fail 'the agent does not start again'
agent=$(pid_of n1)
waits 'the next agent does not pace the service' bound
kill -STOP "$(pacers)" # one that does not end is not waited for
cluster down >said 2>log || fail 'the cluster does not go down with a pacer that hangs'
waits 'the cluster leaves a quota' free
kill -0 "$service" || fail 'the service ended with the cluster'
echo ok
