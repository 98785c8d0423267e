#!/bin/bash
# Times of workers of which half get half the processor:
# stragglers_figures.sh PATH_OF_RUBATO [WORKERS PERCENT CLOCKS ROUNDS [METHOD]...]
#
# Each worker is in a control group of its own with PERCENT of a core, from the end of the first clock on: before, it opens its data. In the second
# half of the rows every second worker has half of that, from outside. All methods (or bsp and those named: "ssp 1", "reassign, bsp", ...) run in turns,
# with mf of rank 32 on 1.75 million ratings for each worker, so that a clock takes 1 s or more. Clocks count from the fourth on. At the end: medians of
# the mean clock, spread, time over the ideal (slow 0: over bsp's) and over bsp's, processor time of a clock and objective against bsp's. `ideal` is the time
# without slow workers over the mean speed. Not a test: for a quiet machine; 40 s for each row.
set -euo pipefail
rubato=$(realpath "$1")
workers=${2:-8} percent=${3:-20} clocks=${4:-15} rounds=${5:-1}
methods=("bsp" "ssp 1" "ssp 3" "reassign, bsp" "reassign, ssp 1" "paper, ssp 1" "steal, ssp 1")
only=("bsp" "${@:6}")
[[ $# -gt 5 ]] || only=("${methods[@]}")
# among NAME LIST...: is it one of them?
among() {
    local name=$1 k
    shift
    for k in "$@"; do [[ $k == "$name" ]] && return; done
    return 1
}
for name in "${only[@]}"; do
    among "$name" "${methods[@]}" || { echo "there is no method '$name'; methods: ${methods[*]/%/;}" >&2; exit 2; }
done
group=$(realpath "$(dirname "$0")/group.sh") groups=stragglers$$
"$group" check cpu || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-figures-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    sleep 0.2
    cd / && "$group" down $groups
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
"$rubato" data make ratings --out data --users 6040 --items 3706 --count $((workers * 1750000)) --test -1 --seed 4 >/dev/null
cat >job.yaml <<YAML
name: figures
app: mf
data: {format: ratings, train: [data/train.csv]}
clocks: {executors: $workers}
train: {steps: $clocks, seed: 5, threads: 1}
mf: {update: adarevision, rank: 32, lr: 0.05, pieces: 1}
checkpoint: {every: 0s}
YAML
last() { grep -o "\"$2\":[0-9.]*" "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
closed() { grep -c rubato.train.step run/metrics.jsonl 2>/dev/null || true; }
# until N: so many clocks are closed, or the job is over
until_closed() {
    while [[ $(closed) -lt $1 ]] && kill -0 "$job" 2>/dev/null; do sleep 0.01; done
}
# used PID...: clock ticks of the processor
used() { cut -d' ' -f14,15 "${@/#//proc/}" | awk '{ n += $1 + $2 } END { print n }'; }
died() {
    echo "a worker of '$1' has ended:" >&2
    tail -5 run.log >&2
    exit 1
}
# one NAME SLOW SETTINGS...: seconds of a clock, the objective at the end, processor seconds of a clock, share of messages
one() {
    local name=$1 slow=$2 k=0 pid pids quota before now n messages
    shift 2
    among "$name" "${only[@]}" || return 0
    rm -rf run
    "$rubato" train job.yaml -w "$workers" -q -o "$work/run" "$@" >run.log 2>&1 &
    job=$!
    until_closed 1
    mapfile -t pids < <(pgrep -f "worker --job $work/run/job.yaml")
    [[ ${#pids[@]} -eq $workers ]] || died "$name"
    for pid in "${pids[@]}"; do
        quota=$percent
        ((slow && k % 2 == 1)) && quota=$((quota / 2))
        "$group" make $groups-$k cpu
        "$group" cpu $groups-$k $quota 20000
        "$group" enter $groups-$k "$pid"
        k=$((k + 1))
    done
    until_closed 3
    before=$(used "${pids[@]/%//stat}") || died "$name"
    until_closed $((clocks - 1))
    now=$(used "${pids[@]/%//stat}") || died "$name"
    n=$(closed)
    wait "$job" || died "$name"
    "$rubato" explain run reassign >explained
    messages=$(awk '/^  messages share / { print $4; exit }' explained)
    grep rubato.train.step run/metrics.jsonl | sed 's/.*"step_s":\([0-9.]*\).*/\1/' | awk -v OFS='\t' -v name="$name" -v slow="$slow" \
        -v rest="$(last run rmse)	$(awk -v t=$((now - before)) -v n=$((n - 3)) -v hz="$(getconf CLK_TCK)" 'BEGIN { print t / hz / n }')	${messages:-0}" '
        NR > 3 { sum += $1 } END { printf "%s\t%d\t%.4f\t%s\n", name, slow, sum / (NR - 3), rest }'
}
for _ in $(seq 1 "$rounds"); do
    for slow in 0 1; do
        one "bsp" $slow --set clocks.order=bsp
        one "ssp 1" $slow --set clocks.order=ssp --set clocks.staleness=1
        one "ssp 3" $slow --set clocks.order=ssp --set clocks.staleness=3
        one "reassign, bsp" $slow --set clocks.stragglers=reassign
        one "reassign, ssp 1" $slow --set clocks.stragglers=reassign --set clocks.order=ssp --set clocks.staleness=1
        one "paper, ssp 1" $slow --set clocks.stragglers=paper --set clocks.order=ssp --set clocks.staleness=1
        one "steal, ssp 1" $slow --set clocks.stragglers=steal --set clocks.order=ssp --set clocks.staleness=1
    done
done | tee rows
# Fields are separated by tabs: name, slow, seconds of a clock, objective, processor seconds of it, part of messages about slices in all bytes (asked
# for: 0.005).
sort -t $'\t' -k1,1 -k2,2 -k3,3n rows | awk -F '\t' '
{ key = $1 "\t" $2; if (!(key in n)) order[++keys] = key; time[key, ++n[key]] = $3; objective[key] += $4; cpu[key] += $5; messages[key] += $6 }
function median(key) { return n[key] % 2 ? time[key, (n[key] + 1) / 2] : (time[key, n[key] / 2] + time[key, n[key] / 2 + 1]) / 2 }
END {
    bsp = "bsp\t0"
    ideal = median(bsp) * 4 / 3
    printf "%-18s %-4s %8s %17s %9s %9s %9s %10s %9s\n", "method", "slow", "clock s", "spread", "of ideal", "over bsp", "processor", "objective", "messages"
    for (k = 1; k <= keys; k++) {
        key = order[k]
        split(key, part, "\t")
        same = "bsp\t" part[2]
        printf "%-18s %-4s %8.3f %8.3f-%8.3f %9.3f %+8.1f%% %+8.1f%% %+9.2f%% %8.2f%%\n", part[1], part[2], median(key), time[key, 1], time[key, n[key]], \
            median(key) / (part[2] == 1 ? ideal : median(bsp)), 100 * (median(key) / median(same) - 1), \
            100 * (cpu[key] / n[key] / (cpu[same] / n[same]) - 1), 100 * (objective[key] / n[key] / (objective[same] / n[same]) - 1), 100 * messages[key] / n[key]
    }
    printf "ideal with slow workers: %.3f s\n", ideal
}'
