#!/bin/bash
# A link that becomes slower during a run: rate.sh PATH_OF_RUBATO
#
# Two workers on hosts of their own. The rate of both links falls to three tenths, once the job has
# measured its network: within the first ten steps, and behind them. Each time steps become as long as those of a job
# that never had the old rate, and a plan of sums that comes into force then does not rest on the old rate.
set -euo pipefail
rubato=$(realpath "$1")
most=${2:-} # percent that steps may differ, for a quiet machine (5); nothing: they are not judged
net=$(realpath "$(dirname "$0")/net.sh")
"$net" check || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-rate-XXXXXX")
lab=rurate$$
lab=${lab:0:12}
cd "$work"
export XDG_CACHE_HOME="$work/cache" RUBATO_TOKEN=of-two-hosts-of-the-laboratory
failed=0
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down "$lab" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
cat >job.yaml <<JOB
name: rate
model: {zoo: mlp, hidden: [300, 200]}
data: {format: synthetic, generator: digits, count: 1280, test_count: 20}
train: {optimizer: {sgd: {lr: 0.01}}, batch: 32, steps: 60, threads: 1, autotune: false}
checkpoint: {every: 0s}
JOB
fast=400mbit slow=120mbit

rate() {
    "$net" rate "$lab" 1 "$1"
    "$net" rate "$lab" 2 "$1"
}
# run NAME RATE STEPS [STEP]: slow from that step on
run() {
    local name=$1 k pid=()
    sed "s/steps: 60/steps: $3/" job.yaml >"$name.yaml"
    rate "$2"
    for k in 1 2; do
        local join=()
        [[ $k -eq 1 ]] || join=(--join 10.77.0.1:7740)
        "$net" in "$lab" $k "$rubato" worker --job "$work/$name.yaml" --out "$work/$name" --founders 2 --threads 1 \
            --equal-shares --rank $((k - 1)) --listen 10.77.0.$k:$((7739 + k)) "${join[@]}" >"$name.$k" 2>&1 &
        pid[k]=$!
    done
    if [[ $# -eq 4 ]]; then
        until grep -qs "\"rubato.train.step/1\",.*\"step\":$4," "$name/metrics.jsonl"; do
            kill -0 "${pid[1]}" 2>/dev/null || break
            sleep 0.02
        done
        rate $slow
    fi
    for k in 1 2; do
        wait "${pid[k]}" || fail "$name: worker $k ended with $?: $(tail -2 "$name.$k")"
    done
}
step_ms() { # median of the last twelve
    grep -h '"rubato.train.step/1"' "$1/metrics.jsonl" | tail -12 |
        sed 's/.*"step_s":\([0-9.e-]*\).*/\1/' | sort -g | awk '{ x[NR] = $1 } END { print 1000 * x[int((NR + 1) / 2)] }'
}
# The rate that the last plan rests on over that of the fast links; nothing: by rule. Not over what was measured at the start:
# beside other work that may be as little as the slow links carry. A rate above what the links ever carried says that other work
# disturbed the measurements, and nothing about the plan.
part() {
    tr ',{' '\n\n' <"$1/world.json" | sed -n 's/^"bytes_per_s":\([0-9.e+]*\).*/\1/p' |
        awk -v fast="${fast%mbit}" '$1 > 0 { now = $1 } END { if (now > 0) print now / (fast * 125000) }'
}

"$net" up "$lab" 2 --rate $fast >/dev/null
# Beside other work a sum may take any time: what is broken is so five times.
try() {
    local name ms is bad=0
    failed=0
    rm -rf fresh early later
    run fresh $slow 40
    run early $fast 40 4
    run later $fast 90 14
    ms=$(step_ms fresh)
    for name in early later; do
        is=$(step_ms $name)
        echo "$name: steps of $is ms, of a fresh run $ms ms; rate of the last plan over that of the fast links: $(part $name)"
        awk -v a="$is" -v b="$ms" -v most="$most" -v part="$(part $name)" 'BEGIN {
            d = 100 * (a / b - 1); exit (most != "" && (d > most + 0 || d < -most)) || (part > 0.7 && part < 1.1) }' || bad=1
    done
    return $((bad || failed))
}
try || try || try || try || try || fail "steps or plans do not follow the network"
exit $failed
