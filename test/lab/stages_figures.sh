#!/bin/bash
# Times of one reliable and fifteen transient workers (MEMBERS: 16): stages_figures.sh PATH_OF_RUBATO [PERCENT MBIT CLOCKS SECONDS LESS MEMBERS PARTS]
#
# Each worker is on a host of the laboratory with PERCENT of a core (10) and a link of MBIT (20). A phase has CLOCKS clocks (8), in which a
# worker of MEMBERS computes about SECONDS (3): the rows of a clock are chosen by the speed of this machine. LESS transient workers come and
# go (12). PARTS names those of the following that are done (all of them).
#
#   stages    median clock of: all workers reliable and without copies (`all`), stages 1, 2 and 3, auto. In stage 3 the reliable worker
#             does not compute, so that job has one executor less. And in a clock: bytes sent by the busiest worker, processor time of all
#   more      LESS workers join at once: the slowest clock over the longer one of the medians before and after. Then they are asked to
#             leave at once: the same
#   kill      LESS workers are killed at once: time until the job goes on from the copies, slowest clock after that over the median of those
#             who stay, clocks told again
#   link      the same with links that go down
#
# The tables of all runs are compared with those of one process. Not a test: for a quiet machine; about 20 minutes.
set -euo pipefail
rubato=$(realpath "$1")
percent=${2:-10} mbit=${3:-20} clocks=${4:-8} seconds=${5:-3} less=${6:-12}
here=$(cd "$(dirname "$0")" && pwd)
net=$here/net.sh lab=${LAB:-stages} n=${7:-16} parts=${8:-stages more kill link}
"$net" check
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-stages-XXXXXX")
declare -A pid=() known=()
cleanup() {
    local k
    for k in "${!pid[@]}"; do kill -9 "${pid[$k]}" 2>/dev/null || true; done
    sleep 0.3
    "$net" down $lab || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
# 1,024 classes and 64 features: 260 KB of parameters, which every worker reads and changes in every clock, and 66,560 products for each
# row of 64 numbers. The file is named as often as a clock needs rows.
each=2048
awk -v n=$each 'BEGIN { srand(3); for (i = 0; i < n; i++) { line = i % 1024; for (c = 1; c <= 64; c++)
    line = line " " c ":" sprintf("%.2f", rand() + (c % 64 == i % 64)); print line } }' >x.svm
times=1
job() { # METHOD EXECUTORS STEPS
    local k files=x.svm
    for ((k = 2; k <= times; k++)); do files+=", x.svm"; done
    cat <<YAML
name: figures
app: mlr
data: {format: libsvm, train: [${files//x.svm/$work/x.svm}]}
clocks: {executors: $2}
train: {steps: $3, seed: 5, threads: ${threads:-1}}
checkpoint: {every: 0s}
recovery: {method: rollback}
stages: {method: $1}
mlr: {batch: $((times * each))}
YAML
}
# Rows that a process computes in the time that all workers shall compute in a clock.
job off 1 12 >probe.yaml
"$rubato" train probe.yaml -q -o probe >probe.log 2>&1
rate=$(grep -o '"samples_per_s":[0-9.]*' probe/metrics.jsonl | cut -d: -f2 | sort -g | tail -1)
times=$(awk -v r="$rate" -v p="$percent" -v n=$n -v s="$seconds" -v e=$each \
    'BEGIN { k = int(r * s * p / 100 * n / e + 0.5); print (k < 1 ? 1 : k > 200 ? 200 : k) }')
awk -v r="$rate" -v p="$percent" -v n=$n -v b=$((times * each)) \
    'BEGIN { printf "%.0f rows/s of one process; a clock has %d rows, %.2f s of each worker\n", r, b, b / r / n * 100 / p }'

token=$(printf 'f%.0s' {1..43})
start() { # RUN HOST TIER [FOUNDERS]: a worker; those that join later leave when they are told to stop
    local run=$1 k=$2 more=()
    [[ $3 == reliable || $k -eq 1 ]] || more+=(--tier transient)
    [[ -z ${4:-} ]] || more+=(--job "$work/$run.yaml" --out "$work/$run" --max 40 --rank $k --founders $4)
    [[ $k -eq 1 ]] || more+=(--join 10.77.0.1:7730)
    RUBATO_TOKEN=$token "$net" cpu $lab $k "$percent" "$rubato" worker --threads 1 --listen 10.77.0.$k:7730 "${more[@]}" >>"$run.$k.log" 2>&1 &
    pid[$k]=$!
}
step() { grep -o '"step":[0-9]*' "$1/metrics.jsonl" 2>/dev/null | tail -1 | cut -d: -f2 || true; }
until_step() {
    for _ in $(seq 1 9000); do
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
    for ((k = 1; k <= $3; k++)); do start "$1" $k "$2" $3; done
}
finish() {
    local k
    for k in "${!pid[@]}"; do wait "${pid[$k]}" 2>/dev/null || true; done
    pid=()
}
tables_of() { sha256sum <"$(ls -d "$1"/checkpoints/*"$2")/tables.safetensors"; }
same() { # RUN EXECUTORS STEPS
    if [[ -z ${known[$2-$3]:-} ]]; then
        threads=$(nproc) job off "$2" "$3" >one.yaml
        rm -rf one
        "$rubato" train one.yaml -q -o one >one.log 2>&1
        known[$2-$3]=$(tables_of one "$3")
    fi
    [[ $(tables_of "$1" "$3") == "${known[$2-$3]}" ]] && result="same tables" || result="OTHER TABLES"
}
sent_of() { "$net" in $lab "$1" ip -s link show eth0 | awk 'tx { print $1; exit } /TX:/ { tx = 1 }'; }
cpu_of() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) / hz }' "/proc/$1/stat" 2>/dev/null || echo 0; }
meter() { # RUN COUNT: clock, bytes that each host has sent, and processor time of its worker
    local k
    for ((k = 1; k <= $2; k++)); do echo "$(step $1) $(sent_of $k) $(cpu_of "${pid[$k]}")"; done
}

"$net" up $lab $n --rate "${mbit}mbit" --burst 32kb --latency 100ms
stages() {
    local m method tier execs from
    for m in all stage1 stage2 stage3 auto; do
        method=$m tier=transient execs=$n
        [[ $m == all ]] && method=off tier=reliable
        [[ $m == stage3 ]] && execs=$((n - 1))
        job $method $execs $((2 * clocks)) >"$m.yaml"
        run_all $m $tier $n
        until_step $m $clocks
        meter $m $n >from
        until_step $m $((2 * clocks - clocks / 4))
        paste -d ' ' from <(meter $m $n) >meters
        until_step $m $((2 * clocks))
        finish
        same $m $execs $((2 * clocks))
        printf '%-8s median clock %.3f s  %s; in a clock %s; %s\n' $m "$(clocks_of $m $clocks $((2 * clocks)) | median)" "$result" \
            "$(awk '{ c = $4 - $1; b = $5 - $2; most = b > most ? b : most; cpu += $6 - $3; over = over || $6 < $3 || c < 1 } END {
                if (over) print "(too short to be measured)"
                else printf "%.0f KB sent by the busiest, %.2f s of processors", most / c / 1e3, cpu / c }' meters)" \
            "$("$rubato" explain "$work/$m" stage 2>/dev/null | grep -o 'stage [123]: [0-9]* [a-z]* machines serve' | tail -1)" >>rows
        tail -n 1 rows
    done
    awk '$1 == "all" { a = $4 } { printf "%s over all %.2f\n", $1, $4 / a }' rows
}

longer() { awk -v a="$1" -v b="$2" 'BEGIN { print (a > b ? a : b) }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
workers_in() { grep -o '"workers":[0-9]*' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
more() {
    local steps=$((5 * clocks)) k from before with after slow
    job stage2 $n $steps >more.yaml
    run_all more transient $((n - less))
    until_step more $((clocks / 2))
    from=$(step more) before=$(clocks_of more 1 "$from" | median)
    for ((k = n - less + 1; k <= n; k++)); do start more $k transient; done
    while [[ $(workers_in more) -lt $n && $(step more) -lt $((3 * clocks)) ]]; do sleep 0.1; done
    k=$(step more)
    until_step more $((k + clocks))
    with=$(clocks_of more $((k + 2)) $((k + clocks)) | median) slow=$(clocks_of more "$from" $((k + clocks)) | slowest)
    printf 'add %d: median %.3f s before and %.3f s after, slowest until all are there and the next %d %.3f s: %s\n' "$less" "$before" "$with" \
        $clocks "$slow" "$(ratio "$slow" "$(longer "$before" "$with")")"
    from=$(step more)
    for ((k = n - less + 1; k <= n; k++)); do kill -TERM "${pid[$k]}" || echo "worker $k is gone already" >&2; done
    until_step more $((from + clocks))
    after=$(clocks_of more $((from + clocks / 2)) $((from + clocks)) | median) slow=$(clocks_of more "$from" $((from + clocks)) | slowest)
    until_step more $steps
    finish
    same more $n $steps
    printf 'evict %d with notice: median %.3f s before and %.3f s after, slowest of the next %d %.3f s: %s; rolled back %d times, %s\n' \
        "$less" "$with" "$after" $clocks "$slow" "$(ratio "$slow" "$(longer "$with" "$after")")" "$(grep -c '"restored"' more/metrics.jsonl)" "$result"
}

lose() { # kill | link
    local how=$1 k at usual went last after slow now count=0
    job stage2 $n $((2 * clocks)) >$how.yaml
    run_all $how transient $n
    until_step $how $clocks
    usual=$(clocks_of $how $((clocks / 2)) $clocks | median)
    sleep "$(awk -v u="$usual" 'BEGIN { print u / 2 }')" # in the middle of a clock
    at=$(step $how)
    disown -a
    if [[ $how == kill ]]; then
        for ((k = n - less + 1; k <= n; k++)); do kill -9 "${pid[$k]}"; done
    else
        for ((k = n - less + 1; k <= n; k++)); do "$net" in $lab $k ip link set eth0 down & done
    fi
    went=$(date +%s%N)
    until [[ $count -gt 0 && $(step $how) -gt $at ]]; do # some may be found dead after others
        now=$(grep -c '"restored"' $how/metrics.jsonl || true)
        [[ $now -eq $count ]] || last=$(date +%s%N)
        count=$now
        sleep 0.02
    done
    went=$(awk -v a="$went" -v b="$last" 'BEGIN { print (b - a) / 1e9 }')
    until_step $how $((2 * clocks))
    for ((k = n - less + 1; k <= n; k++)); do
        kill -9 "${pid[$k]}" 2>/dev/null || true
        [[ $how == kill ]] || "$net" in $lab $k ip link set eth0 up
    done
    for ((k = 1; k <= n - less; k++)); do while kill -0 "${pid[$k]}" 2>/dev/null; do sleep 0.1; done; done
    pid=()
    after=$(clocks_of $how $((at + 1)) $((2 * clocks)) | median) slow=$(clocks_of $how $at $((2 * clocks)) | slowest)
    same $how $n $((2 * clocks))
    printf '%s %d: goes on after %.2f s; median %.3f s before and %.3f s after, slowest after it %.3f s: %.2f; restored %d times, %s\n' \
        $how "$less" "$went" "$usual" "$after" "$slow" "$(ratio "$slow" "$after")" \
        "$(grep -c '"restored"' $how/metrics.jsonl)" "$result"
}

for part in $parts; do
    case $part in
        stages) stages ;;
        more) more ;;
        kill | link) lose $part ;;
        *) echo "unknown part '$part': stages, more, kill, link" >&2 && exit 2 ;;
    esac
done
