#!/bin/bash
# A cluster over hosts: cluster_hosts.sh PATH_OF_RUBATO. Hosts are network namespaces; what ssh would do, nsenter does.
#
#   1. `up` starts an agent on each host; a job lies on both, grows and shrinks; the worker that stays is the same process.
#   2. the agent of a host is killed and `up` starts it again there: it finds its worker.
#   3. a host that nobody reaches is told as such, with what ssh said; `down` leaves nothing.
. "$(dirname "$0")/clusters.sh"
net=$here/net.sh lab=ruclh$$
"$net" check || exit $?
leaves() { "$net" down "$lab" >/dev/null 2>&1 || true; }
"$net" up "$lab" 3 --rate 1gbit >/dev/null
cat >ssh <<SSH
#!/bin/bash
host=\${1#*@}
shift
case \$host in
    h[1-3].lab) exec "$net" in "$lab" "\$(expr "\$host" : 'h\(.\)')" "\$@" ;;
    *) echo "ssh: connect to host \$host port 22: No route to host" >&2; exit 255 ;;
esac
SSH
chmod +x ssh
export RUBATO_SSH="$work/ssh"
cluster() { "$net" in "$lab" 1 "$rubato" cluster "$@"; }
cat >mlp.yaml <<JOB
name: far
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
JOB
cat >cluster.yaml <<FILE
folder: cl
nodes: [{name: here, slots: 1}, {host: root@h2.lab, slots: 1}, {host: h3.lab, name: third, slots: 1}]
FILE

# -- 1
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
cluster nodes >nodes.txt
[[ $(grep -c ' up' nodes.txt) -eq 3 ]] || fail "not all nodes are up: $(cat nodes.txt)"
grep -q '^h2 ' nodes.txt || fail "a node has the name of its host: $(cat nodes.txt)"
home() { readlink "/proc/$(pid_of "cl/run/$1.pid")/ns/net"; }
[[ $(home h2) != "$(home third)" && $(home h2) != "$(home here)" ]] || fail "agents run on the same host"
cluster submit mlp.yaml -w 1:3 >/dev/null
becomes 1 workers 3
first=$(pid_of <(head -1 cl/jobs/1/tell.1))
cluster scale 1 1 >/dev/null
becomes 1 workers 1
cluster scale 1 3 >/dev/null
becomes 1 workers 3
kill -0 "$first" 2>/dev/null || fail "the worker that stays was started again"
[[ $(field 1 generation) == 1 ]] || fail "the job was started again"
echo "ok: a job over three hosts"

# -- 2
before=$(workers 1)
old=$(pid_of cl/run/h2.pid)
slay "$old"
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up again"
[[ $(pid_of cl/run/h2.pid) != "$old" ]] || fail "the agent h2 was not started again"
adopted() { ! grep -q 'adopt job 1' cl/log/h2 || echo yes; }
waits_for yes adopted
[[ $(workers 1) == "$before" ]] || fail "the agent h2 did not find its worker: $(cat cl/log/h2)"
echo "ok: an agent of another host starts again"

# -- 3
sed 's/third/fourth/; s/h3.lab/h9.lab/; s/folder: cl/folder: other/' cluster.yaml >lost.yaml
code=0
cluster up lost.yaml >/dev/null 2>err.txt || code=$?
[[ $code -eq 69 ]] || fail "a host that nobody reaches: code $code"
grep -q 'cannot start the agent fourth on host h9.lab: ssh: connect to host h9.lab port 22: No route to host' err.txt ||
    fail "what ssh said is not told: $(cat err.txt)"
grep -q 'what was started here has been ended' err.txt || fail "what became of the others: $(cat err.txt)"
for f in other/run/*.pid; do
    if grep -qs '^State:.[^Z]' "/proc/$(pid_of "$f")/status"; then fail "an up that gave up left $f"; fi
done
cluster down --cluster "$work/cl" || fail "down"
[[ -z $(workers 1) ]] || fail "down left workers"
for f in cl/run/*.pid; do
    if grep -qs '^State:.[^Z]' "/proc/$(pid_of "$f")/status"; then fail "down left $f"; fi
done
echo "ok: down"
exit $failed
