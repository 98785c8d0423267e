#!/bin/bash
# Secure aggregation with real processes: secure.sh PATH_OF_RUBATO
#
#   1. ten clients, masked updates: of each round the model is the mean by samples of those that answered, within 1e-5 of a script
#      (fed_mean.py), while clients are lost: one that says nothing any more, three that are killed at the beginning of a round.
#      One is killed while it trains: its masks are taken out of the sum. The same with masks among neighbours.
#   2. too few are left: the job says so and waits, and goes on when another one joins.
#   3. the server is killed with -9 and goes on.
#   4. forty clients in each round agree on masks.
#   5. with noise the epsilon is told as without masks; what cannot be masked is refused; a simulation uses the same numbers.
. "$(dirname "$0")/feds.sh"
cleanup() {
    jobs -p | xargs -r kill -CONT 2>/dev/null || true
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
names=(c0 c1 c2 c3 c4 c5 c6 c7 c8 c9)
python3 "$here/fed_mean.py" make "${names[@]}"
cat >job.yaml <<JOB
name: secure
model: {zoo: mlp, hidden: [8]}
data: {format: csv, train: [some.csv], test: [test.csv], shuffle: none}
train: {batch: 32, optimizer: {sgd: {lr: 0.2}}, threads: 1}
checkpoint: {keep: 100}
federated: {rounds: 30, per_round: 10, clients_min: 10, tiers: 1, method: vanilla, epochs: 2, deadline: 60s, profiles: 1, secure: {threshold: 6}}
JOB
clients "${names[@]}"
serve() { # OUT [OPTION...]: in the background; its address in OUT.log
    local out=$1
    shift
    touch "$out.log"
    "$rubato" fed serve job.yaml --listen 127.0.0.1:${port:-0} --out "$out" "$@" >>"$out.log" 2>&1 &
    server=$!
    address_of "$out"
}
declare -A pid
join() { # NAME
    "$rubato" fed join "$address" --token-file $1.token --data $1.yaml -t 1 >>$1.log 2>&1 &
    pid[$1]=$!
}
lose() { # NAME
    kill -9 ${pid[$1]} || fail "$1 has ended: $(tail -3 $1.log)"
    wait ${pid[$1]} 2>/dev/null || true
}
ends() { # OUT
    wait $server || fail "$1 ends with $?: $(tail -5 "$1.log")"
}

# 1. rounds whose clients are lost: the next ones need fewer in a round, as there are fewer
serve lost --set federated.rounds=45 --set federated.per_round=7 --set federated.secure.threshold=4 --set federated.secure.wait=2s --set federated.deadline=20s # well below the time of `reaches`
for name in "${names[@]}"; do join $name; done
reaches lost 3
kill -STOP ${pid[c9]} # it says nothing any more: in one of the next rounds it has no keys
reaches lost 8
kill -CONT ${pid[c9]}
lose c8
reaches lost 14
lose c9
reaches lost 20
lose c7
ends lost
LISTED=1 python3 "$here/fed_mean.py" check lost 45 "${names[@]}" || fail "another model than that of the script"
python3 - lost/federation.jsonl <<'PY' || fail "a round has more answers than masks, or too few"
import json, sys

for r in map(json.loads, open(sys.argv[1])):
    assert 4 <= r["answers"] == len(r["clients"]) <= r["masked"] <= r["sent"] <= 7, r
PY
"$rubato" explain lost | grep -c 'the server saw the sum of' >/dev/null || fail "explain does not say what was masked"

# masks among neighbours in a ring
serve ring --set federated.per_round=8 --set federated.clients_min=8 --set federated.secure='{threshold: 5, neighbours: 6}' --set federated.rounds=30
for name in "${names[@]}"; do join $name; done
reaches ring 4
lose c9
reaches ring 8
lose c8
ends ring
LISTED=1 python3 "$here/fed_mean.py" check ring 30 "${names[@]}" || fail "neighbours: another model than that of the script"
grep -q '"masked":8' ring/federation.jsonl || fail "no round of eight has masks: $(cat ring/federation.jsonl)"

# a client that takes long, as it has many samples, is killed when all have masks, and another one joins
{ cat c9.csv && for _ in $(seq 1 99); do tail -n +2 c9.csv; done } >slow.csv
"$rubato" fed token slow >slow.token
echo 'data: {format: csv, train: [slow.csv], shuffle: none}' >slow.yaml
serve long -v --set federated.per_round=4 --set federated.clients_min=4 --set federated.secure.threshold=3 --set federated.rounds=6 \
    --set federated.epochs=150
for name in c0 c1 c2 slow; do join $name; done
for _ in $(seq 1 3000); do
    grep -q '4 of 4 clients have masks' long.log && break
    sleep 0.02
done
lose slow
join c3
ends long
python3 - <<'PY' || fail "no client was lost with its masks in the sum: $(cat long/federation.jsonl)"
import json

rounds = [json.loads(line) for line in open("long/federation.jsonl")]
assert len(rounds) == 6 and any(r["masked"] > r["answers"] for r in rounds)
PY

# the same among two neighbours: it is missed by two clients, which are asked for nothing and stay
serve beside -v --set federated.per_round=4 --set federated.clients_min=4 --set federated.secure='{threshold: 3, neighbours: 2}' \
    --set federated.rounds=3 --set federated.epochs=150
for name in c4 c5 c6 slow; do join $name; done
for _ in $(seq 1 3000); do
    grep -q '4 of 4 clients have masks' beside.log && break
    sleep 0.02
done
lose slow
join c7
ends beside
grep -q 'begins again: 2 clients of a neighbourhood are left to open the sum' beside.log || fail "a neighbourhood of two: $(tail -3 beside.log)"
[[ $(rounds beside) == 3 ]] || fail "rounds behind a neighbourhood of two: $(cat beside/federation.jsonl)"
for name in c4 c5 c6; do
    wait ${pid[$name]} || fail "$name ends with $?: $(tail -3 $name.log)"
done

# 2. and 3. six of six are needed, one is lost
serve few --set federated.per_round=6 --set federated.clients_min=6 --set federated.secure.threshold=6 --set federated.rounds=60
port=${address##*:}
for name in c0 c1 c2 c3 c4 c5; do join $name; done
reaches few 3
kill -9 $server
wait $server 2>/dev/null || true
serve few --set federated.per_round=6 --set federated.clients_min=6 --set federated.secure.threshold=6 --set federated.rounds=60 --resume
reaches few 6
lose c5
for _ in $(seq 1 6000); do
    grep -q 'waiting for 1 of 6 clients' few.log && break
    sleep 0.05
done
grep -q 'waiting for 1 of 6 clients' few.log || fail "five of six do not wait: $(tail -3 few.log)"
join c6
ends few
port=0
LISTED=1 python3 "$here/fed_mean.py" check few 60 "${names[@]}" || fail "killed and waiting: another model than that of the script"

# 4. forty, with the samples of ten
for k in $(seq 0 39); do
    "$rubato" fed token many$k >many$k.token
    cp c$((k % 10)).yaml many$k.yaml
done
serve many --set federated.per_round=40 --set federated.clients_min=40 --set federated.secure.threshold=21 --set federated.rounds=3
for k in $(seq 0 39); do join many$k; done
ends many
python3 - <<'PY' || fail "rounds of forty: $(cat many/federation.jsonl)"
import json

rounds = [json.loads(line) for line in open("many/federation.jsonl")]
assert len(rounds) == 3 and all(r["sent"] == 40 and 21 <= r["answers"] <= r["masked"] for r in rounds)
PY

# 5. noise on the sum; refusals; a simulation
noise=(--set 'federated.privacy={clip: 0.5, noise: 8, delta: 1e-5}' --set federated.rounds=4 --set federated.per_round=3 --set federated.clients_min=3
    --set federated.secure.threshold=3)
serve noise "${noise[@]}"
for name in c0 c1 c2; do join $name; done
ends noise
grep -q '"epsilon":' noise/federation.jsonl || fail "no epsilon with masks"
refuse() { # SENTENCE OPTION...
    local want=$1
    shift
    "$rubato" fed serve job.yaml --listen 127.0.0.1:0 --out refused "$@" >refused.log 2>&1 && fail "$*: taken"
    grep -q "$want" refused.log || fail "$*: $(cat refused.log)"
}
refuse "of which 'sum' has no median" --set federated.sum=median
refuse "of which 'sum' has no median" --set federated.sum=trimmed
refuse 'needs more than half' --set federated.secure.threshold=5
refuse 'needs more than half' --set federated.secure.threshold=11
refuse 'expected an even number' --set federated.secure.neighbours=5
refuse 'a threshold from 6 to 9' --set federated.secure.neighbours=8 --set federated.secure.threshold=5
refuse "whose rounds have per_round clients" --set federated.method=over
for k in 0 6; do
    "$rubato" fed sim job.yaml --clients 200 --lost 0.1 --set federated.rounds=8 --set federated.answers_min=6 --set federated.clients_min=0 \
        --set federated.secure.threshold=$k --set 'data.train=[c0.csv, c1.csv, c2.csv, c3.csv]' --out sim$k >/dev/null 2>sim.log ||
        fail "the simulation ends with $?: $(tail -3 sim.log)"
done
python3 - <<'PY' || fail "a simulation with masks learns something else"
import json, struct

def values(run):
    with open("%s/checkpoints/000000008/model.safetensors" % run, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        f.read(n)
        data = f.read()
    return struct.unpack("<%df" % (len(data) // 4), data)

far = max(abs(a - b) for a, b in zip(values("sim0"), values("sim6")))
print("largest difference of the simulations: %.3g" % far)
assert 0 < far < 1e-5
PY
exit $failed
