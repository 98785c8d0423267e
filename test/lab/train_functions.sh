#!/bin/bash
# Training on function instances with real processes: train_functions.sh PATH_OF_RUBATO
#
#   1. two instances do what one process does, within 1e-5; eval, predict and explain work on the run; no
#      instance is left.
#   2. an instance is killed with -9: no minibatch is lost or counted twice, so the model is the same.
#   3. calls whose time is nearly up hand over, and none is given up: the model is the same.
#   4. a stop signal saves a checkpoint and ends the instances; --resume goes on to the same model.
#   5. an endpoint that speaks Lambda's Invoke is called; a second run takes nothing of the first one's state.
#   6. the handler of docs/train-functions.md, where Node is installed: two instances of it do the same, and none is left.
#   7. with a deadline the choices of the policy do the same, and explain shows what was predicted and measured; a price
#      that changes leads to another choice.
#   8. what workers on functions cannot do is refused by name.
#   9. a platform that starts the program itself and hands out calls over Lambda's runtime API: the same model, no
#      answer that the platform refuses, and a program that cannot begin says why.
#  10. train.batch_schedule: the same model as one process, also when resumed within a batch, and with a deadline.
set -euo pipefail
rubato=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/functions.sh"
run=
endpoint=
cleanup() {
    kill -9 $run $endpoint 2>/dev/null || true
    rm -rf "${work:-}"
}
trap cleanup EXIT
functions_job train-functions 800
start() { # OUT [OPTION...]: in the background
    local out=$1
    shift
    "$rubato" train job.yaml --functions local -w 2 --memory 1000 --out "$out" "$@" >"$out.log" 2>&1 &
    run=$!
}
ends() { # OUT
    wait "$run" || fail "$1 ends with $?: $(tail -5 "$1.log")"
    run=
}
instances() {
    pgrep -P "$run" -f 'function --train' || true
}
gone() { # PID...: have they ended?
    for _ in $(seq 1 15000); do
        ps -o pid= -p "$(tr '\n' ',' <<<"$*" | sed 's/,$//; s/ /,/g')" | grep -q . || return 0
        sleep 0.01
    done
    fail "instances live on: $*"
}
same() { # OUT: as the run of one process
    python3 "$here/same_model.py" "$1" one 1e-5 || fail "$1 is another model than that of one process"
}

# 1. the same model
"$rubato" train job.yaml --out one >one.log 2>&1 || fail "one process: $(cat one.log)"
start plain
reaches plain 3
pids=$(instances)
[[ $(wc -w <<<"$pids") == 2 ]] || fail "not two instances: $pids"
ends plain
gone $pids
same plain
"$rubato" eval plain >eval.txt || fail "eval"
grep -q '^accuracy *0\.[6-9]' eval.txt || fail "the model has learned nothing: $(cat eval.txt)"
"$rubato" explain plain >/dev/null || fail "explain"

# 2. kill -9 of an instance
start killed
reaches killed 3
kill -9 $(instances | head -1) || fail "no instance to kill"
ends killed
grep -q 'worker [01]: process [0-9]* of the function ended' killed.log || fail "nobody noticed: $(cat killed.log)"
same killed

# 3. hand-over: a step of 2 s leaves no time for three more of them in calls of 8 s
start short --life 8s
reaches short 3
slow=$(instances | head -1)
kill -STOP "$slow" || fail "no instance to stop"
sleep 2
kill -CONT "$slow"
ends short
same short
grep -q 'hand over after step' short.log || fail "nobody handed over: $(cat short.log)"
grep -qE ' ([2-9]|[1-9][0-9]+) epochs, 0 given up' short.log || fail "nobody handed over, or not in time: $(cat short.log)"

# 4. a stop signal
start stopped
reaches stopped 3
pids=$(instances)
kill -TERM "$run"
ends stopped
gone $pids
grep -q 'stopped after step' stopped.log || fail "no word about the stop: $(cat stopped.log)"
start stopped --resume
ends stopped
same stopped

# 5. an endpoint
"$rubato" function --train -l 0 --name digits >function.log 2>&1 &
endpoint=$!
for _ in $(seq 1 6000); do
    grep -q answers function.log && break
    sleep 0.05
done
address=$(sed 's#\(http://[^/]*\)/.*#\1#' function.log)
for out in far again; do
    "$rubato" train job.yaml --functions "$address" --function-name digits -w 1 --out $out >$out.log 2>&1 ||
        fail "an endpoint: $(tail -5 $out.log)"
    same $out
done
kill -TERM $endpoint

# 6. Lambda's Invoke over the handler: an instance, a process of its own, for each call that finds none free
if command -v node >/dev/null; then
    sed -n '/^```js$/,/^```$/p' "$here/../../docs/train-functions.md" | sed '/^```/d' >handler.js
    cat >platform.js <<'JS'
const http = require('http'), {fork} = require('child_process'), free = [];
if (process.send) {
  const {run} = require('./handler.js');
  process.on('disconnect', () => process.exit());
  process.on('message', (event) => run(event).then((value) => process.send({value}), (e) => process.send({error: e.message})));
} else {
  http.createServer((call, answer) => {
    const parts = [];
    call.on('data', (part) => parts.push(part)).on('end', () => {
      const instance = free.pop() || fork(__filename);
      instance.once('message', ({value, error}) => {
        free.push(instance);
        if (error) answer.setHeader('X-Amz-Function-Error', 'Unhandled');
        answer.end(JSON.stringify(error ? {errorMessage: error} : value));
      });
      instance.send(JSON.parse(Buffer.concat(parts)));
    });
  }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });
}
JS
    ln -s "$rubato" rubato-of-$$ # the name by which they are found
    : >node.port
    RUBATO=./rubato-of-$$ node platform.js >node.port 2>node.log &
    endpoint=$!
    for _ in $(seq 1 6000); do
        [[ -s node.port ]] && break
        sleep 0.05
    done
    "$rubato" train job.yaml --functions "http://127.0.0.1:$(cat node.port)" --function-name digits -w 2 --memory 1000 --out node >node-run.log 2>&1 ||
        fail "the handler: $(tail -5 node-run.log node.log)"
    same node
    programs=$(pgrep -f "^[.]/rubato-of-$$ function" || true)
    [[ $(wc -w <<<"$programs") == 2 ]] || fail "not two programs behind the handler: $programs"
    kill -9 $endpoint
    wait $endpoint 2>/dev/null || true
    gone $programs
fi

# 7. a deadline
start scaled -w 1:2 --memory 512:1536:512 --deadline 900s
ends scaled
same scaled
grep -q 'scale measures' scaled.log || fail "nothing is measured: $(cat scaled.log)"
"$rubato" explain scaled scale >scale.txt || fail "explain scale"
grep -A4 'predicted and measured' scale.txt | grep -q 'step .*s .*s .*%' || fail "no measured step: $(cat scale.txt)"
grep -q 'USD for .* calls' scaled.log || fail "no bill: $(cat scaled.log)"

# a new price leads to a new choice; top and explain tell choices and money
echo 1e-5 >price
start priced -w 1:2 --memory 512:1536:512 --deadline 3600s --set train.steps=200000 --usd-gb-s price
reaches priced 30
echo 2e-5 >price
# How many steps behind the new price the run chooses again; nothing: not yet.
steps_behind() { awk '/price 2e-05 USD a GB-s from step/ { sub(/.*from step /, ""); at = $1; next }
    at != "" && /functions scale/ { sub(/.*from step /, ""); print $1 - at; exit }' priced.log; }
for _ in $(seq 1 6000); do
    [[ -z $(steps_behind) ]] || break
    kill -0 "$run" || break
    sleep 0.05
done
behind=$(steps_behind)
kill -TERM "$run"
ends priced
[[ -n $behind && $behind -le 3 ]] || fail "the new price changes nothing: $(cat priced.log)"
grep -qE '(runs|measures) [12] functions? of [0-9]+ MB, .* USD spent in' <<<"$("$rubato" top priced --once)" || fail "top does not tell what was spent"
"$rubato" explain priced >priced.txt || fail "explain priced"
grep -qE ' measures +[12] +[0-9]+ +0\.00001' priced.txt || fail "explain does not tell what was measured: $(cat priced.txt)"
grep -qE ' (runs|measures) +[12] +[0-9]+ +0\.00002' priced.txt || fail "explain does not know the new price: $(cat priced.txt)"
"$rubato" train job.yaml --functions local -w 2 --usd-gb-s cheap >bad.log 2>&1 && fail "--usd-gb-s"
grep -q 'expected US dollars for a GB-s' bad.log || fail "--usd-gb-s: $(cat bad.log)"

# 8. refusals
"$rubato" train job.yaml --memory 512 >bad.log 2>&1 && fail "--memory alone"
grep -q 'memory goes with --functions' bad.log || fail "--memory alone: $(cat bad.log)"
"$rubato" train job.yaml --functions local -w 2 --set train.accumulate=2 --out bad >bad.log 2>&1 && fail "accumulate"
grep -q 'does not support train.accumulate' bad.log || fail "accumulate: $(cat bad.log)"
"$rubato" train job.yaml --functions local -w 2 --weights :0 >bad.log 2>&1 && fail "--weights"
grep -q 'does not go with --weights' bad.log || fail "--weights: $(cat bad.log)"
"$rubato" train job.yaml --functions http://192.0.2.1 -w 1 --out bad >bad.log 2>&1 && fail "--store-reach"
grep -q 'add --store-listen' bad.log || fail "--store-reach: $(cat bad.log)"

# 9. the runtime API
printf '#!/bin/sh\nexec "%s" function --train\n' "$rubato" >bootstrap
chmod +x bootstrap
platform() { # PROGRAM [ARG...]: in the background; $address
    : >lambda.port
    python3 "$here/lambda.py" "$@" >lambda.port 2>lambda.log &
    endpoint=$!
    for _ in $(seq 1 6000); do
        [[ -s lambda.port ]] && break
        sleep 0.05
    done
    address=http://127.0.0.1:$(cat lambda.port)
}
platform ./bootstrap
"$rubato" train job.yaml --functions "$address" --function-name digits -w 2 --out runtime >runtime.log 2>&1 ||
    fail "the runtime API: $(tail -5 runtime.log lambda.log)"
same runtime
kill -TERM $endpoint
wait $endpoint || fail "the platform ends with $?"
grep -qE '^instances 2 ends \[0, 0\] calls [0-9]+ failed 0 refused 0$' lambda.log || fail "the runtime API: $(cat lambda.log)"
platform "$rubato" function nothing.onnx
python3 - "$address/2015-03-31/functions/digits/invocations" >init.txt <<'PY' || fail "a call of nothing"
import sys, urllib.request
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], b"{}")).read().decode())
PY
grep -q 'nothing.onnx' init.txt || fail "a program that cannot begin: $(cat init.txt)"
kill -TERM $endpoint
wait $endpoint || true
endpoint=

# 10. batches that change
sed -i 's/batch: 50, steps: 800, epochs: 0/batch: 20, batch_schedule: {3: 40, 6: 80}, steps: 0, epochs: 9/' job.yaml
rm -r one
"$rubato" train job.yaml --out one >one.log 2>&1 || fail "one process: $(cat one.log)"
start grows
reaches grows 110
kill -TERM "$run"
ends grows
grep -q 'stopped after step' grows.log || fail "no word about the stop: $(cat grows.log)"
start grows --resume
ends grows
same grows
start grows-scaled -w 1:2 --memory 512:1536:512 --deadline 900s
ends grows-scaled
same grows-scaled
grep -q 'for this batch' grows-scaled.log || fail "the policy does not plan for a batch: $(cat grows-scaled.log)"
exit $failed
