#!/bin/bash
# A day of prices at 600:1, an app on one own node and 15 rented ones: market_day.sh PATH_OF_RUBATO PRICES [BEGIN SECONDS ON_DEMAND]. An hour is six seconds, a
# notice two. Figures; judged is that no clock is done twice or left out, that the app goes on, and that the hours cost what the same rents, renewals and bids cost by
# the file of prices (market_day.py, which shares nothing with the cluster).
prices=$(realpath "${2:?a file of prices: seconds since 1970 and USD, a line each}")
keep=${MARKET_DAY_KEEP:+$(realpath "$MARKET_DAY_KEEP")}
. "$(dirname "$0")/clusters.sh"
begin=${3:-1458518400} seconds=${4:-144} on_demand=${5:-2.394}
"$rubato" data make digits --out digits --count 8000 --test 500 >/dev/null
cat >mlr.yaml <<JOB
name: digits
app: mlr
data: {format: idx, train: [$work/digits/train-images, $work/digits/train-labels], test: [$work/digits/test-images, $work/digits/test-labels]}
clocks: {executors: 16}
train: {steps: 100000000, seed: 1, threads: 1}
mlr: {batch: 8000, lr: 0.1}
checkpoint: {every: 5s, keep: 1}
JOB
cat >cluster.yaml <<FILE
folder: cl
accounts: shared
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {speed: 600, notice: 20min, begin: $begin}
markets: [{name: spot, prices: $prices, on_demand: $on_demand, nodes: 15, slots: 1, cpu: 0.1}]
FILE
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
cluster submit mlr.yaml -w 1:16 >/dev/null
most=0
steps_done() { grep -c '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl 2>/dev/null || true; }
for ((k = 0; k < seconds / 6; k++)); do
    sleep 6
    now=$(field 1 workers)
    most=$((now > most ? now : most))
done
before=$(steps_done)
cluster explain 1 >explain.txt
cluster audit >audit.txt
sleep 6 # the last hour
[[ $(steps_done) -gt $before ]] || fail "the app stands still after clock $before: $(cluster explain 1)"
cluster cancel 1 >/dev/null
becomes 1 state cancelled
cluster down
grep '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "the app did not do each clock once"
python3 "$here/market_day.py" "$prices" audit.txt explain.txt || fail "the day cost something else: $(tail -n 3 explain.txt)"
echo "$(tail -1 steps) clocks, each once; at most $most workers"
[[ -z $keep ]] || cp audit.txt explain.txt cl/jobs/1/metrics.jsonl "$keep"
exit $failed
