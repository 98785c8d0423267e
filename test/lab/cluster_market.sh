#!/bin/bash
# Nodes that a cluster rents on a market: cluster_market.sh PATH_OF_RUBATO. A file of prices is replayed at 720:1: an hour is
# five seconds. Nodes come when a job can use them, are renewed, taken back when the price rises above the bid (a job that still
# has a node goes on, the other one waits and continues), and given back at the end of their hour when nobody needs them. The scheduler is killed meanwhile.
. "$(dirname "$0")/clusters.sh"
explain_has() { ! grep -q "$1" <<<"$(cluster explain 2)" || echo yes; }
calm1_is() { cluster nodes | awk '$1 == "calm1" { print $5 }'; }
none_is_up() { cluster nodes | awk '/^spot/ { n++; out += / not rented/ } END { if (n == 3 && out == 3) print "yes" }'; }
cat >mlp.yaml <<JOB
name: rents
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
JOB
# A price each five minutes; for ten minutes of every second hour it is far above that of a node on demand.
awk 'BEGIN { for (s = 0; s < 4000000; s += 300) print 1000000 + s, (s % 7200 == 6600 || s % 7200 == 6900 ? 5 : 0.1) }' >prices.txt
cat >cluster.yaml <<FILE
folder: cl
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {speed: 720, notice: 96min}
markets: [{name: spot, prices: prices.txt, on_demand: 0.5, nodes: 3, slots: 2, cpu: 0.1}]
FILE
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
[[ $(cluster submit mlp.yaml -w 8 2>&1) == *'the cluster has 7 slots'* ]] || fail "a job that is too large for own nodes and market"
cluster submit mlp.yaml -w 1:5 >/dev/null
cluster submit mlp.yaml -w 2 >/dev/null
waits_for yes audit_has 'rent .*market 0 node 2.*of a worker costs'
slay "$(pid_of cl/run/scheduler.pid)"
cluster up cluster.yaml >/dev/null || fail "the scheduler does not come back"
waits_for yes explain_has '  spot[123] costs 0.[15] USD in this hour'
waits_for yes audit_has 'renew .*market 0 node'
waits_for yes audit_has 'evicted: above the bid; .* USD are refunded'
waits_for 2 field 2 workers
# Each has a tenth of a core, since jobs run until they are told to end; or its node says that it bounds nobody.
is_bound() {
    grep -qs 'does not bound\|is not bounded' cl/log/* || [[ $(workers 2 | sed 's|.*|/proc/&/cgroup|' | xargs -r grep -l '/rubato-[0-9a-f]*/2-' | wc -l) -eq 2 ]] || return 0
    echo yes
}
waits_for yes is_bound
waits_for yes explain_has 'nodes of markets have cost it [0-9.]* USD, predicted [0-9.]*: [0-9]* % of what all cost'
[[ $(field 1 generation) == 1 ]] || fail "a job that has a node of the cluster's own was started again"
# What the last round and the market asked makes the same plans elsewhere.
"$rubato" capture cl -o world.json || fail "no world file"
for policy in alloc bid; do
    id=$(cd / && "$rubato" plan "$work/world.json" $policy --json | sed 's/.*"id":"\([0-9a-f]*\)".*/\1/')
    [[ -n $id ]] && grep -q "\"policy\":\"$policy\",\"version\":[0-9]*,\"id\":\"$id\"" world.json || fail "$policy: plan '$id' is not in the world file"
done
python3 -c 'import json; w = json.load(open("world.json")); w["plans"] = []; json.dump(w, open("facts.json", "w"))' 2>/dev/null || cp world.json facts.json
for policy in alloc bid; do # from facts alone
    "$rubato" plan facts.json $policy >plan.txt || fail "facts give no plan of $policy"
done
cluster cancel 2 >/dev/null
cluster scale 1 1 >/dev/null
waits_for yes none_is_up
waits_for 1 field 1 workers
cluster down
left() { pgrep -f -- "--cluster $work/cl" || true; }
waits_for '' left
grep '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "the job did not do each step once"
[[ $failed -ne 0 ]] || echo "ok: nodes of a market"

# An hour that is paid belongs to the next job, whoever was killed meanwhile; no worker notices.
cat >calm.yaml <<FILE
folder: calm
nodes: [{name: own, slots: 1, cpu: 0.1}]
markets: [{name: calm, usd: 0.2, on_demand: 0.5, nodes: 3, slots: 2, cpu: 0.1}]
FILE
rents() { cluster audit | grep -c ' rent '; }
cluster up calm.yaml >/dev/null || fail "the cluster does not come up"
cluster submit mlp.yaml -w 5 >/dev/null
waits_for 5 field 1 workers
before=$(pgrep -f -- "--out $work/calm/jobs/1 " | sort)
slay "$(pid_of calm/run/calm1.pid)" "$(pid_of calm/run/scheduler.pid)"
cluster up calm.yaml >/dev/null || fail "the scheduler does not come back"
waits_for 'up' calm1_is
[[ $(pgrep -f -- "--out $work/calm/jobs/1 " | sort) == "$before" ]] || fail "workers changed when agent and scheduler were killed"
[[ $(rents) == 2 ]] || fail "$(rents) nodes were rented, not 2"
cluster cancel 1 >/dev/null
waits_for cancelled field 1 state
cluster submit mlp.yaml -w 5 >/dev/null
waits_for 5 field 2 workers
[[ $(rents) == 2 ]] || fail "the next job did not get the paid hours"
# Workers of an app on rented nodes have no vote.
"$rubato" data make ratings --out ratings --count 20000 --test -1 --seed 4 >/dev/null 2>&1 || fail "data"
cat >films.yaml <<JOB
name: films
app: mf
data: {format: ratings, train: ratings/train.csv}
clocks: {executors: 8}
train: {epochs: 1000000, threads: 1}
mf: {rank: 4}
JOB
cluster cancel 2 >/dev/null
waits_for cancelled field 2 state
cluster submit films.yaml -w 5 >/dev/null
waits_for 5 field 3 workers
transients() { cat calm/jobs/3/log.* | grep -c 'joined on a transient machine'; }
waits_for 4 transients
# The worker that has one leaves: the others get it, and go on in the same processes.
others=$(pgrep -f -- "--out $work/calm/jobs/3 .*--tier=rented" | sort)
cluster scale 3 4:5 >/dev/null
cluster drain own >/dev/null
led() { ! grep -qs 'worker [0-9]* leads now' calm/jobs/3/log.* || echo yes; }
waits_for yes led
clocks() { wc -l <calm/jobs/3/metrics.jsonl; }
more() { (($(clocks) < $1)) || echo yes; }
waits_for yes more $(($(clocks) + 20))
[[ $(field 3 generation) == 1 ]] || fail "an app whose only voter left was started again: $(cluster explain 3)"
for pid in $others; do kill -0 "$pid" || fail "worker $pid is gone"; done
[[ $(wc -w <<<"$others") == 4 ]] || fail "there were $(wc -w <<<"$others") workers without a vote, not 4"
cluster down
[[ $failed -ne 0 ]] || echo "ok: paid hours"

# A file of prices that changes is read again. A price that rose a while ago takes the node back; one that cannot be read changes nothing.
price() { printf '1000000 0.1\n%s2000000 0.1\n' "$1" >new.txt && mv new.txt live.txt; }
price ''
cat >live.yaml <<FILE
folder: live
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {begin: 1500000}
markets: [{name: live, prices: live.txt, on_demand: 0.5, nodes: 1, slots: 1, cpu: 0.1}]
FILE
said() { ! grep -q "$1" live/log/scheduler || echo yes; }
rented() { cluster explain 1 | sed -n 's/.*the bid is [0-9.]*, the price now \([0-9.]*\)$/\1/p'; }
cluster up live.yaml >/dev/null || fail "the cluster does not come up"
cluster submit mlp.yaml -w 2 >/dev/null
waits_for 0.1 rented
echo '1000000 nothing' >new.txt && mv new.txt live.txt
waits_for yes said "live.txt.*market 'live' keeps the prices before"
price $'1400000 0.09\n'
waits_for 0.09 rented
rm live.txt
waits_for yes said "cannot open .*live.txt.*market 'live' keeps the prices before"
mkfifo live.txt
waits_for yes said "live.txt is no file.*market 'live' keeps the prices before"
price $'1400000 5\n'
waits_for yes audit_has 'evicted: above the bid; .* USD are refunded'
[[ $(grep -c 'keeps the prices before' live/log/scheduler) == 3 ]] || fail "what cannot be read is told once: $(cat live/log/scheduler)"
# It may begin later than the first scheduler could use it: the next one goes on with the clock, not from `begin`.
echo '1496401 0.1' >new.txt && mv new.txt live.txt
slay "$(pid_of live/run/scheduler.pid)"
cluster up live.yaml >/dev/null || fail "the scheduler does not come back: $(tail -n 5 live/log/scheduler)"
cluster down
[[ $failed -ne 0 ]] || echo "ok: prices that change"
exit $failed
