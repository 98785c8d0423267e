#!/bin/bash
# Predictions of `rubato explain --if` against what is then measured: whatif.sh PATH_OF_RUBATO [MODEL...]
#
# Each worker has a host of its own (a network namespace behind 200 Mbit/s) and 40 % of a core. From
# the trace of one run of two workers: half and twice the rate, four workers, one worker at 20 % of a
# core. A line for each case: predicted, its interval, measured, error. Exit code 0 when it ran: the
# machine may be busy. Jobs: mlp, lenet.
set -euo pipefail
rubato=$(realpath "$1")
shift
models=${*:-mlp lenet}
net=$(realpath "$(dirname "$0")/net.sh")
"$net" check || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-whatif-XXXXXX")
lab=ruwhat$$
lab=${lab:0:12}
cd "$work"
export XDG_CACHE_HOME="$work/cache" RUBATO_TOKEN=of-the-questions-of-the-laboratory
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down "$lab" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
"$rubato" data make digits --out digits --count 4000 --test 200 >/dev/null 2>&1
job() { # NAME MODEL BATCH STEPS
    cat >"$1.yaml" <<JOB
name: $1
model: $2
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.01}}, batch: $3, steps: $4, threads: 1, autotune: false}
checkpoint: {every: 0s, keep: 1}
JOB
}
job mlp "{zoo: mlp, hidden: [256, 256]}" 128 60
job lenet "{zoo: lenet, width: 8}" 64 40

# run RUN JOB WORKERS RATE QUOTA_OF_THE_FIRST: all workers, each on its host
run() {
    local k join pid=()
    "$net" up "$lab" "$3" --rate "$4" --burst 128kb >/dev/null
    mkdir -p "$1.d"
    for ((k = 0; k < $3; k++)); do
        join=() quota=40
        [[ $k -eq 0 ]] && quota=$5 || join=(--join 10.77.0.1:7730)
        "$net" cpu "$lab" $((k + 1)) "$quota" "$rubato" worker --job "$work/$2.yaml" --out "$work/$1" --founders "$3" \
            --threads 1 --sockets --equal-shares --rank $k --listen 10.77.0.$((k + 1)):$((7730 + k)) "${join[@]}" \
            >"$1.d/$k" 2>&1 &
        pid[k]=$!
    done
    for ((k = 0; k < $3; k++)); do
        wait "${pid[k]}" || { echo "$1: worker $k ended: $(tail -2 "$1.d/$k")" >&2; exit 1; }
    done
    "$net" down "$lab" >/dev/null
}
# Mean of the steps, without the first five.
measured() {
    grep -h '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step_s":\([^,}]*\).*/\1/' |
        awk 'NR > 5 { s += $1; n++ } END { print s / n }'
}
case_of() { # JOB NAME RUN WORDS...
    local name=$1 what=$2 run=$3 line
    shift 3
    line=$("$rubato" explain "$name-was" "$@" | grep '^predicted step')
    awk -v line="$line" -v took="$(measured "$run")" -v name="$name: $what" 'BEGIN {
        split(line, w, " ")
        said = w[3]; low = w[6]; high = w[8]
        note = (took + 0 >= low + 0 && took + 0 <= high + 0) ? "" : ", outside"
        printf "%-34s predicted %7.1f ms (%.1f .. %.1f), measured %7.1f ms, error %+5.1f %%%s\n", name, 1e3 * said,
            1e3 * low, 1e3 * high, 1e3 * took, 100 * (said / took - 1), note
    }'
}
for m in $models; do
    run "$m-was" "$m" 2 200mbit 40
    printf '%-34s measured %.1f ms\n' "$m: as recorded" "$(measured "$m-was" | awk '{ print 1e3 * $1 }')"
    run "$m-half" "$m" 2 100mbit 40
    case_of "$m" "network halved" "$m-half" --if network=x0.5
    run "$m-twice" "$m" 2 400mbit 40
    case_of "$m" "network doubled" "$m-twice" --if network=x2
    run "$m-four" "$m" 4 200mbit 40
    case_of "$m" "2 to 4 workers" "$m-four" --if workers=4
    run "$m-slow" "$m" 2 200mbit 20
    case_of "$m" "worker 1 at half its quota" "$m-slow" --if quota=1:x0.5
done
