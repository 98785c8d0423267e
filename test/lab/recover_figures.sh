#!/bin/bash
# What failures cost in clocks on real workers, and what the running checkpoint costs: recover_figures.sh PATH_OF_RUBATO [TRIALS FIGURE...]
#
#   two       two of four workers, drawn at random, are killed at a random clock; each also holds a quarter of the rows
#   leader    the leader and one other worker are killed together
#   most      the leader and two others are killed together
#   overhead  time of a clock with the running checkpoint over that without, in pairs of runs that alternate
#
# Logistic regression on digits (of RUBATO_DATA, else generated), a row of weights is a block. Each worker is on a host of its own with PERCENT
# of a core, on links of 100 Mbit/s. Lost progress of a trial: clocks until the loss is that of an undisturbed run after 100 clocks, less 100;
# clocks that are made twice count twice. Full checkpoints are made by time, so a run without failures says how long 8 clocks take.
# Source: qiao-2019 sec 5 (failures at a geometric clock, mean 50). Not a test: for a quiet machine (100 trials: about half an hour for a figure).
set -euo pipefail
rubato=$(realpath "$1")
trials=${2:-100}
shift $(($# < 2 ? $# : 2))
[[ $# -gt 0 ]] || set -- two leader most overhead
net=$(realpath "$(dirname "$0")/net.sh")
"$net" check || exit $?
percent=${PERCENT:-20} target=100 last=400
short=rec
. "$(dirname "$net")/figures.sh"
pid=()
fail() {
    echo "FAIL: $*" >&2
    tail -n 3 "$work"/*.log >&2 || true
    exit 1
}
"$net" up "$lab" 4 --rate 100mbit >/dev/null
if [[ -n ${RUBATO_DATA:-} ]]; then
    data="format: csv, train: [$RUBATO_DATA/federated/optdigits_train_a.csv]" lr=0.002
else
    "$rubato" data make digits --out digits --count 1500 --test 10 --seed 4 >/dev/null
    data="format: idx, train: [$work/digits/train-images, $work/digits/train-labels]" lr=0.1
fi
# job FILE STEPS EVERY RECOVERY
job() {
    cat >"$1" <<YAML
app: mlr
data: {$data}
clocks: {executors: 16}
train: {steps: $2, seed: 5, threads: 1}
mlr: {batch: 1000000, lr: $lr}
checkpoint: {every: $3}
recovery: {block: 40, cost: 0, $4}
YAML
}
# start RUN JOB: four workers; the first leads, and says on OUT that a clock is over
start() {
    local k join
    rm -rf "$1"
    for k in 1 2 3 4; do
        join=(--listen "10.77.0.$k:$((7700 + k))" --founders 4 --job "$work/$2" --threads 1 --out "$work/$1")
        [[ $k -eq 1 ]] || join+=(--join 10.77.0.1:7701)
        if [[ $k -eq 1 ]]; then
            rm -f says && mkfifo says
            "$net" cpu "$lab" 1 "$percent" "$rubato" worker "${join[@]}" >says 2>"$k.log" &
        else
            "$net" cpu "$lab" "$k" "$percent" "$rubato" worker "${join[@]}" >/dev/null 2>"$k.log" &
        fi
        pid[k]=$!
    done
    exec 3<says
}
stop() {
    exec 3<&-
    kill -9 "${pid[@]}" 2>/dev/null || true
    wait "${pid[@]}" 2>/dev/null || true
    pid=()
}
# clocks RUN TARGET KILLED: made until the loss is TARGET, with those that were made twice; nothing: not yet. KILLED: the last clock before the
# failure; a new leader removes from the file what it begins again.
clocks() {
    awk -v target="$2" -v killed="$3" '
        function number(key) { return match($0, "\"" key "\":[-0-9.e+]+") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0 }
        /"what":"restored"/ { if (step < killed) step = killed; killed = 0; if (step > number("step")) twice += step - number("step"); step = number("step") }
        /rubato.train.step/ {
            step = number("step"); loss = number("loss")
            if (loss <= target) { part = before > loss ? (before - target) / (before - loss) : 1; print step - 1 + (part < 0 ? 0 : part) + twice; exit }
            before = loss
        }' "$1/metrics.jsonl" 2>/dev/null || true
}
loss_at() { awk -v at="$2" -F'"loss":' '/rubato.train.step/ && ++n == at { split($2, v, ","); print v[1] }' "$1/metrics.jsonl"; }
bytes() { # RUN: written by checkpoints, by its traces
    "$rubato" trace "$1" --json 2>/dev/null | awk '/"name":"write (log|object)"/ { match($0, /"value":[0-9]+/); n += substr($0, RSTART + 8, RLENGTH - 8) } END { print n + 0 }'
}
# trial METHOD VICTIMS CLOCK: kills these workers when the first says that this clock is over
trial() {
    local line at now begun=$SECONDS killed=0
    start run "$1.yaml"
    while read -r line <&3; do
        [[ $line == *train.step/1* && $line =~ \"step\":([0-9]+) ]] || continue
        killed=${BASH_REMATCH[1]}
        [[ $killed -lt $3 ]] || break
    done
    [[ $2 == none ]] || for at in $2; do echo "${pid[at]}"; done | xargs kill -9
    if [[ " $2 " == *" 1 "* ]]; then
        while read -r line <&3; do
            [[ $line != *train.step/1* || ! $line =~ \"step\":([0-9]+) ]] || killed=${BASH_REMATCH[1]}
        done
    else
        cat <&3 >/dev/null &
    fi
    while [[ $((SECONDS - begun)) -lt 120 ]]; do
        now=$(clocks run "$goal" "$killed")
        [[ -z $now ]] || break
        sleep 0.1
    done
    stop
    [[ -n $now ]] || fail "$1, workers $2 killed at clock $3: the loss of clock $target is not reached"
    awk -v a="$now" -v b="$target" 'BEGIN { printf "%.4f\n", a - b }'
}
# Settings of each method; without a checkpoint by time unless it is the only one.
methods=(full full+partial random round_robin priority priority+caches none oracle)
settings() {
    case $1 in
    full) echo "method: rollback" ;;
    full+partial) echo "method: partial, save: full" ;;
    none) echo "method: reset, save: none" ;;
    priority+caches | oracle) echo "method: newest, save: priority" ;;
    *) echo "method: partial, save: $1" ;;
    esac
}
whole() { # JOB: a run to its end
    start run "$1"
    cat <&3 >/dev/null
    wait "${pid[@]}" || fail "a run without failures, $1"
    exec 3<&-
    pid=()
}
prepare() {
    local m every=0s
    job whole.yaml $((target + 20)) 0s "method: rollback"
    whole whole.yaml
    goal=$(loss_at run "$target")
    every=$(grep -o '"step_s":[0-9.e-]*' run/metrics.jsonl | cut -d: -f2 | sort -g | awk '{ v[NR] = $1 } END { printf "%dus", 8e6 * v[int((NR + 1) / 2)] }')
    echo "loss $goal after $target clocks; 8 clocks take $every; lost with two of four: $data"
    for m in "${methods[@]}"; do
        job "$m.yaml" "$last" "$([[ $m == full ]] && echo "$every" || echo 0s)" "$(settings "$m")"
        sed "s/steps: $last/steps: $target/" "$m.yaml" >once.yaml
        whole once.yaml
        echo "$m $(bytes run)" >>written
    done
}
draw() { # FIGURE TRIAL: "victims clock", the same for all methods
    awk -v kind="$1" -v seed="$2" 'BEGIN {
        srand(1000 + seed); rand()
        do { at = 1 + int(log(1 - rand()) / log(1 - 1 / 50)) } while (at < 1 || at >= '"$target"')
        a = kind == "two" ? 1 + int(4 * rand()) : 1
        do { b = 1 + int(4 * rand()) } while (b == a)
        do { c = 1 + int(4 * rand()) } while (c == a || c == b)
        print a, b (kind == "most" ? " " c : "") ":" at }'
}
lost() { # FIGURE
    local k m d
    rm -f trials.txt
    [[ -f written ]] || prepare
    for ((k = 0; k < trials; k++)); do
        d=$(draw "$1" "$k")
        for m in "${methods[@]}"; do
            if [[ $m == oracle ]]; then # as if nobody had died
                [[ $k -gt 0 ]] || echo "$m $(trial oracle none 1)" >>trials.txt
            else
                echo "$m $(trial "$m" "${d%:*}" "${d#*:}")" >>trials.txt
            fi
        done
    done
    echo "figure $1, $trials trials: lost clocks, half of the interval of 95 %, the most; less than full; bytes written in a clock, without the last checkpoint"
    awk -v target="$target" 'NR == FNR { written[$1] = $2; next }
        { if (!($1 in n)) order[++kinds] = $1; n[$1]++; sum[$1] += $2; square[$1] += $2 * $2; most[$1] = n[$1] == 1 || $2 > most[$1] ? $2 : most[$1] }
        END { for (i = 1; i <= kinds; i++) { m = order[i]; mean = sum[m] / n[m]; v = square[m] / n[m] - mean * mean
            if (m == "full") full = mean
            printf "  %-16s %7.2f +- %5.2f  %7.2f  %s  %7.0f\n", m, mean, 1.96 * sqrt((v > 0 ? v : 0) / n[m]), most[m], (m == "full" || full <= 0 ? "        " : sprintf("%6.1f %%", 100 * (1 - mean / full))), (written[m] - written["none"]) / target } }' written trials.txt
}
# Mean time of a clock after the first ones, of a run that ends.
pace() { awk -F'"step_s":' '/rubato.train.step/ && ++n > 20 { split($2, v, ","); sum += v[1] } END { print sum / (n - 20) }' run/metrics.jsonl; }
overhead() {
    local k a b kind
    # Clocks of some ms alone, and of as much work as a step of a larger model has.
    "$rubato" data make digits --out large --count 10000 --test 10 --seed 4 >/dev/null
    for kind in small large; do
        rm -f pairs.txt
        [[ $kind == small ]] || data="format: idx, train: [$work/large/train-images, $work/large/train-labels]" lr=0.1
        job with.yaml $([[ $kind == small ]] && echo 400 || echo 120) 0s "method: newest, save: priority"
        sed 's/save: priority/save: none/' with.yaml >without.yaml
        for ((k = 0; k < (trials < 20 ? trials : 20); k++)); do
            if ((k % 2)); then whole with.yaml && a=$(pace) && whole without.yaml && b=$(pace); else whole without.yaml && b=$(pace) && whole with.yaml && a=$(pace); fi
            echo "$a $b" >>pairs.txt
        done
        # The median of the pairs' ratios; its interval of 95 % by order statistics.
        awk '{ print 100 * ($1 / $2 - 1), $2 }' pairs.txt | sort -g | awk -v kind="$kind" '{ v[NR] = $1; t += $2 } END {
            lo = int((NR + 1 - 1.96 * sqrt(NR)) / 2); hi = NR + 1 - lo
            lo = lo < 1 ? 1 : lo; hi = hi > NR ? NR : hi
            printf "overhead, %s: clocks of %.1f ms are %.2f %% longer with the running checkpoint [%.2f, %.2f], %d pairs\n", kind, 1000 * t / NR, NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2, v[lo], v[hi], NR }'
    done
}
for figure in "$@"; do
    case $figure in
    two | leader | most) lost "$figure" ;;
    overhead) overhead ;;
    *) fail "figures are two, leader, most, overhead" ;;
    esac
done
