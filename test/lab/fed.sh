#!/bin/bash
# Federated training with real processes: fed.sh PATH_OF_RUBATO
#
#   1. two clients and a server on loopback: the model after the last round is that of a script that averages
#      by itself (fed_mean.py), within 1e-5; eval, predict, export, explain and top work on the run.
#   2. a token that others can read, a wrong one and one of another name are refused; the round goes on.
#   3. the server is killed with -9 between two rounds and during one, continues with --resume, and ends with
#      the same model: no update counts twice.
#   4. of three clients one is killed: the rounds go on without it.
#   5. FedProx, momentum of the server and the median are those of the script, also across a kill.
#   6. of three clients two are waited for: the third is told to stop and takes its next task all the same.
#   7. simulated clients do the same twice, and when they are killed twice on the way: model and snapshot to the bit.
#   8. privacy: the epsilon of each round is that of a closed form, also after a kill of the server, and the job ends
#      before it exceeds the bound; resumed, it ends at once.
#   9. a client out of its hours rests, is counted so, and takes part when they begin; a model that does not fit into
#      the memory of a client is refused with the figure.
. "$(dirname "$0")/feds.sh"
cleanup() {
    jobs -p | xargs -r kill -TERM 2>/dev/null || true # timeout hands it on
    sleep 0.3
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
python3 "$here/fed_mean.py" make
cat >job.yaml <<JOB
name: fed
model: {zoo: mlp, hidden: [8]}
data: {format: csv, train: [some.csv], test: [test.csv], shuffle: none}
train: {batch: 32, optimizer: {sgd: {lr: 0.2}}, threads: 1}
checkpoint: {keep: 40}
federated: {rounds: 12, per_round: 2, tiers: 1, epochs: 2, deadline: 60s}
JOB
clients alice bob carol
serve() { # OUT [OPTION...]: in the background; its address in OUT.log
    local out=$1
    shift
    touch "$out.log"
    timeout --foreground -s KILL 600 "$rubato" fed serve job.yaml --listen 127.0.0.1:${port:-0} --out "$out" "$@" >>"$out.log" 2>&1 &
    server=$!
}
kill_server() { # timeout, and what it started
    pkill -9 -P $server 2>/dev/null || true
    wait $server 2>/dev/null || true
}
join() { # NAME [TOKEN]
    "$rubato" fed join "$address" --token-file "${2:-$1.token}" --data "$1.yaml" -t 1 >>"$1.log" 2>&1 &
}

# 1. a plain job
serve plain
address_of plain
join alice
clients=$!
join bob
clients="$clients $!"
wait $server || fail "the server ends with $?: $(cat plain.log)"
wait $clients || fail "a client ends with $?: $(cat alice.log bob.log)"
python3 "$here/fed_mean.py" check plain 12 alice bob || fail "another model than that of the script"
"$rubato" eval plain >eval.txt || fail "eval"
grep -q '^accuracy *0\.9' eval.txt || fail "the model has learned nothing: $(cat eval.txt)"
"$rubato" predict plain test.csv >predicted.txt && [[ -s predicted.txt ]] || fail "predict"
"$rubato" export plain --onnx model.onnx >/dev/null && [[ -s model.onnx ]] || fail "export"
"$rubato" explain plain >explain.txt || fail "explain"
grep -qE '^ +12 .* 2 +2 +0 +0 +0 +2 of 0 ' explain.txt || fail "explain shows no rounds: $(cat explain.txt)"
grep -qE '^ +alice +0 .* 12$' explain.txt || fail "explain shows no clients: $(cat explain.txt)"
grep -q 'step 12 of 12' <<<"$("$rubato" top plain --once)" || fail "top"
grep -q 'waiting for 2 of 2 clients' plain.log || fail "it does not say for whom it waits"

# 2. who may not take part
serve closed --set federated.rounds=3
address_of closed
chmod 644 carol.token
"$rubato" fed join "$address" --token-file carol.token --data carol.yaml >carol.log 2>&1 && fail "an open token"
grep -q 'other users of this machine can read the token' carol.log || fail "open token: $(cat carol.log)"
chmod 600 carol.token
sed 's/^carol:/alice:/' carol.token >wrong.token
"$rubato" fed join "$address" --token-file wrong.token --data carol.yaml >carol.log 2>&1 && fail "another's name"
grep -q 'refuses this client' carol.log || fail "another's name: $(cat carol.log)"
"$rubato" fed join "$address" --token-file alice.token --data alice.yaml >>alice.log 2>&1 &
for _ in $(seq 1 3000); do
    grep -q 'client alice with' closed.log && break
    sleep 0.05
done
"$rubato" fed join "$address" --token-file alice.token --data alice.yaml >twice.log 2>&1 && fail "one token twice"
grep -q 'another process takes part as alice' twice.log || fail "one token twice: $(cat twice.log)"
join bob
wait $server || fail "strangers end the server: $(cat closed.log)"

# 3. kill -9 of the server; it has more rounds to go than a fast machine does meanwhile
serve killed --set federated.rounds=36
address_of killed
port=${address##*:}
join alice
join bob
for at in 3 5 8; do
    reaches killed $at
    kill_server
    serve killed --set federated.rounds=36 --resume
done
wait $server || fail "the resumed server ends with $?: $(tail -5 killed.log)"
port=0
cmp -s plain/checkpoints/000000012/model.safetensors killed/checkpoints/000000012/model.safetensors ||
    fail "killed and resumed, the model is another one"

# 4. one lost client
serve lost --set federated.rounds=100000 --set federated.clients_min=3
address_of lost
port=${address##*:}
join alice
join bob
join carol
carol=$!
reaches lost 3
kill -9 $carol
wait $carol 2>/dev/null || true
reaches lost $(($(rounds lost) + 20))
kill_server # to end with a few rounds more
last=$(($(rounds lost) + 10))
serve lost --set federated.rounds=$last --set federated.clients_min=2 --resume
wait $server || fail "a lost client ends the job: $(tail -5 lost.log)"
port=0
[[ -d lost/checkpoints/$(printf %09d $last) && $(rounds lost) -ge $last ]] || fail "there are $(rounds lost) rounds of $last"

# 5. FedProx and momentum of the server, across a kill; the median of three
moved=(--set federated.prox=0.5 --set federated.optimizer=momentum --set federated.beta1=0.5 --set federated.rounds=36)
serve moved "${moved[@]}"
address_of moved
port=${address##*:}
join alice
join bob
reaches moved 4
kill_server
serve moved "${moved[@]}" --resume
wait $server || fail "the moved server ends with $?: $(tail -5 moved.log)"
port=0
PROX=0.5 MOMENTUM=0.5 python3 "$here/fed_mean.py" check moved 12 alice bob || fail "FedProx and momentum: another model"
serve median --set federated.sum=median --set federated.per_round=3 --set federated.rounds=4
address_of median
join alice
join bob
join carol
wait $server || fail "the server of medians ends with $?: $(tail -5 median.log)"
MEDIAN=1 python3 "$here/fed_mean.py" check median 4 alice bob carol || fail "median: another model"

# 6. three are asked, two are waited for
serve over --set federated.method=over --set federated.clients_min=3 --set federated.rounds=30 --set federated.epochs=40
address_of over
join alice
join bob
join carol
wait $server || fail "the server that asks more ends with $?: $(tail -5 over.log)"
[[ $(grep -c '"sent":3,"answers":2' over/federation.jsonl) -eq 30 ]] || fail "one was left out: $(tail -5 over.log)"

# 7. simulated clients: learn, and do the same twice
for k in 1 2; do
    "$rubato" fed sim job.yaml --clients 2000 --samples 20 --split classes:2 --lost 0.05 --set federated.tiers=3 \
        --set federated.interval=4 --set federated.per_round=20 --set 'data.train=[alice.csv, bob.csv]' --out sim$k >/dev/null 2>sim$k.log ||
        fail "the simulation ends with $?: $(tail -3 sim$k.log)"
done
cmp -s sim1/checkpoints/000000012/model.safetensors sim2/checkpoints/000000012/model.safetensors || fail "two simulations differ"
long=(--clients 500 --samples 20 --split classes:2 --lost 0.05 --jitter 1.5 --set federated.tiers=3 --set federated.interval=4
    --set federated.per_round=20 --set federated.optimizer=adam --set federated.rounds=60 --set federated.epochs=20 --set 'federated.privacy={clip: 1, noise: 5}'
    --set 'data.train=[alice.csv, bob.csv]')
"$rubato" fed sim job.yaml "${long[@]}" --out whole >/dev/null 2>whole.log || fail "the long simulation ends with $?: $(tail -3 whole.log)"
for at in 15 35; do
    resume=$([[ -e cut ]] && echo --resume || true)
    touch cut.log
    "$rubato" fed sim job.yaml "${long[@]}" --out cut $resume >/dev/null 2>cut.log &
    sim=$!
    reaches cut $at
    kill -9 $sim || fail "the simulation ended before it was killed: $(tail -3 cut.log)"
    wait $sim 2>/dev/null || true
done
"$rubato" fed sim job.yaml "${long[@]}" --lost 0.1 --out cut --resume >/dev/null 2>other.log && fail "other clients go on"
grep -q 'is of other clients; resume with the --clients' other.log || fail "other clients: $(cat other.log)"
"$rubato" fed sim job.yaml "${long[@]}" --out cut --resume >/dev/null 2>cut.log || fail "the killed simulation ends with $?: $(tail -3 cut.log)"
cmp -s whole/checkpoints/000000060/model.safetensors cut/checkpoints/000000060/model.safetensors || fail "a simulation that was killed differs"
cmp -s whole/federation/000000060 cut/federation/000000060 || fail "the state of a simulation that was killed differs"
cmp -s <(sort -u whole/federation.jsonl) <(sort -u cut/federation.jsonl) || fail "rounds of a simulation that was killed differ"
python3 - <<'PY' || fail "people are told another accuracy than programs: $(grep '^epoch' sim1.log | tail -1)"
import json, re

told = re.findall(r"^epoch.* step (\d+)  train loss ([\d.]+) accuracy ([\d.]+) %", open("sim1.log").read(), re.M)
steps = {r["step"]: r for r in map(json.loads, open("sim1/metrics.jsonl")) if "accuracy" in r}
assert len(told) > 2 and all(abs(steps[int(s)]["accuracy"] - float(a) / 100) < 1e-4 for s, _, a in told), (told, steps)
PY
grep -q 'choice of a round' sim1.log || fail "the simulation does not say how long a choice took"
"$rubato" fed sim job.yaml --clients 5 --set federated.per_round=6 >/dev/null 2>few.log && fail "more in a round than clients"
grep -q '5 clients are too few for 6 in a round' few.log || fail "few clients: $(cat few.log)"
"$rubato" fed serve job.yaml --listen 127.0.0.1:0 --set federated.answers_min=3 2>few.log && fail "more answers than clients"
grep -q 'a round of 2 clients never has 3 answers' few.log || fail "answers: $(cat few.log)"
printf 'client,round,seconds\na,1,2\na,7,3\n' >trace.csv
"$rubato" fed sim job.yaml --clients 10 --latencies trace.csv --set 'data.train=[alice.csv, bob.csv]' --out traced >/dev/null 2>traced.log || fail "a trace: $(cat traced.log)"
[[ $(grep -c '"seconds":2,' traced/federation.jsonl) -eq 6 && $(grep -c '"seconds":3,' traced/federation.jsonl) -eq 6 ]] || fail "other times than in the trace"
printf 'client,seconds\na,2\nb,never\n' >trace.csv
"$rubato" fed sim job.yaml --clients 10 --latencies trace.csv --set 'data.train=[alice.csv]' --out bad >bad.log 2>&1 && fail "a damaged trace"
grep -q "trace.csv:3: expected seconds above 0.*'never'" bad.log || fail "a damaged trace: $(cat bad.log)"

# 8. both clients are in each round, so the divergence of a round is order / (2 (noise / 2)^2). Rounds are long, so that the kill falls
#    between them; clip is small, so that the model survives such noise.
private=(--set 'federated.privacy={clip: 0.001, noise: 60, delta: 1e-5, epsilon: 1.3}' --set federated.method=vanilla --set federated.rounds=200 --set federated.epochs=40)
serve private "${private[@]}"
address_of private
join alice
join bob
reaches private 2
kill_server
port=${address##*:} serve private "${private[@]}" --resume
wait $server || fail "the private federation ends with $?: $(tail -3 private.log)"
python3 - private/federation.jsonl <<'PY' || fail "epsilon is not that of the closed form"
import json, math, sys

def epsilon(rounds):
    orders = [1.1 + 0.1 * k for k in range(89)] + list(range(10, 257))
    return min(rounds * a / 1800 + math.log((a - 1) / a) - math.log(1e-5 * a) / (a - 1) for a in orders)

last = {r["round"]: r["epsilon"] for r in map(json.loads, open(sys.argv[1]))}
most = max(r for r in range(1, 201) if epsilon(r) <= 1.3)
assert 50 <= most < 200 and sorted(last) == list(range(1, most + 1)), (most, last)
assert all(abs(e - epsilon(r)) < 1e-6 for r, e in last.items()), last
for r in map(json.loads, open(sys.argv[1])):
    assert all(abs(c["epsilon"] - epsilon(c["picks"])) < 1e-6 for c in r["clients"]), r
PY
grep -q 'another round would exceed federated.privacy.epsilon' private.log || fail "nothing says why the rounds end: $(tail -3 private.log)"
"$rubato" explain private | grep -c 'what the models of all rounds so far tell' >/dev/null || fail "explain does not show epsilon"
grep -q 'clients in time, .* epsilon 1\.' <<<"$("$rubato" top private --once)" || fail "top does not show epsilon"
[[ ! -e private/federation/spent ]] && fail "nothing says that privacy ended the job"
timeout --foreground 300 "$rubato" fed serve job.yaml --listen 127.0.0.1:0 --out private "${private[@]}" --resume >spent.log 2>&1 ||
    fail "a job that privacy ended does not end when it is resumed: $(tail -3 spent.log)"
grep -q 'another round would exceed federated.privacy.epsilon' spent.log || fail "resumed, it does not say why it ends: $(cat spent.log)"
"$rubato" fed sim job.yaml --clients 5 --out sim1 2>again.log >/dev/null && fail "a simulation in the folder of another"
grep -q 'already contains a run; continue it with --resume' again.log || fail "no word of --resume: $(cat again.log)"
# 9. hours and memory
carol() { # HOURS
    TZ=UTC "$rubato" fed join "$address" --token-file carol.token --data carol.yaml -t 1 --hours "$1" >>carol.log 2>&1 &
    carol=$!
}
later() { # WHEN
    date -u -d "$1" +%H:%M
}
says() { # LOG TEXT
    for _ in $(seq 1 6000); do
        grep -qs "$2" "$1" && return
        sleep 0.05
    done
    fail "$1 does not say '$2': $(tail -5 "$1")"
}
: >carol.log
serve hours --set federated.rounds=4
address_of hours
carol "$(later '+2 hours')-$(later '+3 hours')"
says hours.log 'client carol is out of its hours for [12]:[0-9][0-9] h'
says carol.log 'client carol is out of its hours, .* UTC'
says hours/federation.jsonl 'fed.clients/1.*"resting":1'
grep -q '0 are here and 1 are out of their hours' <<<"$("$rubato" explain hours)" || fail "explain does not know who rests before the first round"
grep -q 'no round yet: 0 clients are here, 1 out of hours' <<<"$("$rubato" top hours --once)" || fail "top does not know who rests before the first round"
"$rubato" fed join "$address" --token-file alice.token --data alice.yaml -t 1 --memory 4GB --hours "$(later '-2 hours')-$(later '+2 hours')" >>alice.log 2>&1 &
join bob
wait $server || fail "a client that rests ends the job: $(tail -5 hours.log)"
wait $carol || fail "a client that rests ends with $?: $(tail -5 carol.log)"
[[ $(grep -c 'fed.round/1.*"resting":1' hours/federation.jsonl) -eq 4 ]] || fail "it is not counted: $(cat hours/federation.jsonl)"
grep -q '1 clients are out of their hours' <<<"$("$rubato" explain hours)" || fail "explain does not know who rests"
grep -q '1 out of hours' <<<"$("$rubato" top hours --once)" || fail "top does not know who rests"
serve morning --set federated.rounds=2 --set federated.per_round=3
address_of morning
carol "$(later '+1 minute')-$(later '+2 hours')"
join alice
join bob
wait $server || fail "nobody comes in the morning: $(tail -5 morning.log)"
grep -q 'client carol is in its hours' carol.log || fail "its hours do not begin: $(tail -5 carol.log)"
# a model of more than 1 MB goes to few clients at a time
serve wide --set federated.rounds=3 --set 'model.hidden=[600, 600]' --set federated.per_round=2
address_of wide
join alice
join bob
wait $server || fail "a large model: $(tail -5 wide.log)"
[[ $(rounds wide) -eq 3 && $(grep -c '"answers":2' wide/federation.jsonl) -eq 3 ]] || fail "rounds of a large model: $(cat wide/federation.jsonl)"
serve small --set federated.rounds=1
address_of small
"$rubato" fed join "$address" --token-file carol.token --data carol.yaml --memory 1MB >small-join.log 2>&1 && fail "a model that does not fit"
grep -qE 'needs [0-9]+ MB here: .*--memory is 1 MB' small-join.log || fail "memory: $(cat small-join.log)"
"$rubato" fed join "$address" --token-file carol.token --data carol.yaml --hours 25:00-6:00 >small-join.log 2>&1 && fail "hours that are none"
grep -q 'expected HH:MM-HH:MM' small-join.log || fail "hours: $(cat small-join.log)"
TZ=Europe/Nowhere "$rubato" fed join "$address" --token-file carol.token --data carol.yaml --hours 22:00-6:00 >small-join.log 2>&1 && fail "a zone that nobody knows"
grep -q 'does not know the time zone TZ=Europe/Nowhere' small-join.log || fail "zone: $(cat small-join.log)"
kill_server
exit $failed
