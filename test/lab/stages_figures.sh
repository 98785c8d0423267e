#!/bin/bash
# Times of one reliable and fifteen transient workers (MEMBERS: 16): stages_figures.sh PATH_OF_RUBATO [PERCENT MBIT CLOCKS SECONDS LESS MEMBERS]
#
# Each worker is on a host of the laboratory with PERCENT of a core (10) and a link of MBIT (20). A phase has CLOCKS clocks (8), in which a
# worker computes about SECONDS (3). LESS transient workers come and go (12).
#
#   stages    median clock of: all workers reliable and without copies (`all`), stages 1, 2 and 3, auto
#   add       LESS workers join at once: the slowest clock over the median before
#   evict     LESS workers are asked to leave at once: the slowest clock over the median before
#   kill      LESS workers are killed at once; then a machine's worth of links goes down: clocks told again, longest pause
#
# The tables of all runs are compared with those of one process. Not a test: for a quiet machine; about 15 minutes.
set -euo pipefail
rubato=$(realpath "$1")
percent=${2:-10} mbit=${3:-20} clocks=${4:-8} seconds=${5:-3} less=${6:-12}
here=$(cd "$(dirname "$0")" && pwd)
net=$here/net.sh lab=stages n=${7:-16}
"$net" check
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-stages-XXXXXX")
declare -A pid=()
cleanup() {
    local k
    for k in "${!pid[@]}"; do kill -9 "${pid[$k]}" 2>/dev/null || true; done
    sleep 0.3
    "$net" down $lab || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
# 64 classes and 1,000 features: 256 KB of parameters, which every worker reads and changes in every clock.
awk 'BEGIN { srand(3); for (i = 0; i < 40000; i++) { line = i % 64; for (c = 1 + int(rand() * 40); c <= 1000; c += 1 + int(rand() * 40))
    line = line " " c ":" sprintf("%.2f", rand() + (c % 64 == i % 64)); print line } }' >x.svm
job() { # METHOD BATCH STEPS
    cat <<YAML
name: figures
app: mlr
data: {format: libsvm, train: [$work/x.svm]}
clocks: {executors: $n}
train: {steps: $3, seed: 5, threads: 1}
checkpoint: {every: 0s}
recovery: {method: rollback}
stages: {method: $1}
mlr: {batch: $2}
YAML
}
# Rows that a process computes in the time that a worker shall compute in a clock.
job off 4000 10 >probe.yaml
"$rubato" train probe.yaml -q -o probe >probe.log 2>&1
rate=$(grep -o '"samples_per_s":[0-9.]*' probe/metrics.jsonl | tail -1 | cut -d: -f2)
batch=$(awk -v r="$rate" -v p="$percent" -v n=$n -v s="$seconds" \
    'BEGIN { b = int(r * s * p / 100 * n); b = b < 160 ? 160 : b; print (b > 40000) ? 40000 : b }')
echo "$rate rows/s of one process; a clock has $batch rows"

token=$(printf 'f%.0s' {1..43})
start() { # RUN HOST TIER: a worker; those that join leave when they are told to stop
    local run=$1 k=$2 more=()
    if [[ $3 == reliable || $k -eq 1 ]]; then
        more=(--job "$work/$run.yaml" --out "$work/$run" --max 40 --rank $k --founders $([[ $3 == reliable ]] && echo $n || echo 1))
    else
        more=(--tier transient)
    fi
    [[ $k -eq 1 ]] || more+=(--join 10.77.0.1:7730)
    RUBATO_TOKEN=$token "$net" cpu $lab $k "$percent" "$rubato" worker --threads 1 --listen 10.77.0.$k:7730 "${more[@]}" >>"$run.$k.log" 2>&1 &
    pid[$k]=$!
}
step() { grep -o '"step":[0-9]*' "$1/metrics.jsonl" 2>/dev/null | tail -1 | cut -d: -f2 || true; }
until_step() {
    for _ in $(seq 1 3000); do
        [[ $(step "$1") -ge $2 ]] 2>/dev/null && return
        sleep 0.1
    done
    echo "$1 does not come to clock $2" >&2
    tail -n 3 "$1".*.log >&2
    exit 1
}
clocks_of() { # RUN FROM TO: their times
    grep -h '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"step_s":\([0-9.e-]*\).*/\1 \2/' |
        awk -v a="$2" -v b="$3" '$1 > a && $1 <= b { print $2 }'
}
median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
slowest() { sort -g | tail -1; }
run_all() { # RUN TIER COUNT: workers 1 .. COUNT; the job ends by itself or is ended
    local k
    mkdir -p "$1"
    (umask 077 && echo "$token" >"$1/token")
    start "$1" 1 "$2"
    for _ in $(seq 1 100); do [[ $2 == reliable || -s $1/metrics.jsonl ]] && break; sleep 0.1; done
    for ((k = 2; k <= $3; k++)); do start "$1" $k "$2"; done
}
finish() {
    local k
    for k in "${!pid[@]}"; do wait "${pid[$k]}" 2>/dev/null || true; done
    pid=()
}
same() { # RUN STEPS
    job off "$batch" "$2" >one.yaml
    rm -rf one
    "$rubato" train one.yaml -q -o one >one.log 2>&1
    cmp -s "$(ls -d "$1"/checkpoints/*"$2")/tables.safetensors" "$(ls -d one/checkpoints/*"$2")/tables.safetensors" && echo "same tables" || echo "OTHER TABLES"
}

"$net" up $lab $n --rate "${mbit}mbit" --burst 32kb --latency 100ms
for m in all stage1 stage2 stage3 auto; do
    method=$m tier=transient
    [[ $m == all ]] && method=off tier=reliable
    job $method "$batch" $((3 * clocks)) >"$m.yaml"
    run_all $m $tier $n
    until_step $m $((3 * clocks))
    finish
    printf '%-8s median clock %.3f s  %s\n' $m "$(clocks_of $m $((2 * clocks)) $((3 * clocks)) | median)" "$(same $m $((3 * clocks)))"
done | tee rows
awk '$1 == "all" { a = $4 } { printf "%s over all %.2f\n", $1, $4 / a }' rows

steps=$((7 * clocks))
job stage2 "$batch" $steps >more.yaml
run_all more transient $((n - less))
until_step more $clocks
for ((k = n - less + 1; k <= n; k++)); do start more $k transient; done
until_step more $((3 * clocks))
before=$(clocks_of more $((clocks / 2)) $clocks | median)
printf 'add %d: median %.3f s before, slowest of the next %d %.3f s, median after %.3f s\n' "$less" "$before" "$clocks" \
    "$(clocks_of more $clocks $((2 * clocks)) | slowest)" "$(clocks_of more $((2 * clocks)) $((3 * clocks)) | median)"
for ((k = n - less + 1; k <= n; k++)); do kill -INT "${pid[$k]}"; done
until_step more $((5 * clocks))
with=$(clocks_of more $((2 * clocks)) $((3 * clocks)) | median)
printf 'evict %d with notice: median %.3f s before, slowest of the next %d %.3f s, median after %.3f s, rolled back %d times\n' "$less" "$with" \
    "$clocks" "$(clocks_of more $((3 * clocks)) $((4 * clocks)) | slowest)" "$(clocks_of more $((4 * clocks)) $((5 * clocks)) | median)" \
    "$(grep -c '"restored"' more/metrics.jsonl)"
until_step more $steps
finish
same more $steps

for how in kill link; do
    job stage2 "$batch" $((3 * clocks)) >$how.yaml
    run_all $how transient $n
    until_step $how $clocks
    usual=$(clocks_of $how $((clocks / 2)) $clocks | median)
    for ((k = n - less + 1; k <= n; k++)); do
        if [[ $how == kill ]]; then kill -9 "${pid[$k]}"; else "$net" in $lab $k ip link set eth0 down; fi
    done
    until_step $how $((2 * clocks))
    for ((k = n - less + 1; k <= n; k++)); do
        kill -9 "${pid[$k]}" 2>/dev/null || true
        [[ $how == kill ]] || "$net" in $lab $k ip link set eth0 up
    done
    until_step $how $((3 * clocks))
    printf '%s %d: median %.3f s before, longest of the next %d %.3f s, restored %d times, ' $how "$less" "$usual" "$clocks" \
        "$(clocks_of $how $clocks $((2 * clocks)) | slowest)" "$(grep -c '"restored"' $how/metrics.jsonl)"
    for ((k = 1; k <= n - less; k++)); do wait "${pid[$k]}" || true; done
    pid=()
    same $how $((3 * clocks))
done
