#!/bin/bash
# Figures of a training on two functions whose calls end after 20 s and which are killed with -9 every 30 s:
# functions_figures.sh PATH_OF_RUBATO [SECONDS]
#
# A run that nobody disturbs (calls without end), one whose calls end, and one that is killed as well; each about SECONDS (100) long.
# Prints the time of each and its part of the first, and fails if the model of one of the others differs from that of the first by more than
# 1e-5: a minibatch that is lost or counted twice makes another model. train_functions.sh compares with one process, over fewer steps.
set -euo pipefail
rubato=$(realpath "$1")
seconds=${2:-100}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/functions.sh"
trap 'kill -9 ${run:-} 2>/dev/null || true; rm -rf "$work"' EXIT
functions_job functions-figures 300
sed -i 's/hidden: \[24\]/hidden: [512]/; s/batch: 50/batch: 100/; s/eval_every: 250/eval_every: 0/' job.yaml
took() { # OUT [OPTION...]: the seconds that its steps take
    local out=$1 begun
    shift
    begun=$(date +%s.%N)
    "$rubato" train job.yaml --functions local -w 2 --memory 1769 --out "$out" "$@" >"$out.log" 2>&1 &
    run=$!
    while [[ $kills == yes ]] && kill -0 $run 2>/dev/null; do
        sleep 0.1
        if awk -v a="$begun" -v b="$(date +%s.%N)" -v n="$killed" 'BEGIN { exit !(b - a >= 30 * (n + 1)) }'; then
            kill -9 "$(pgrep -P $run -f 'function --train' | shuf -n 1)" 2>/dev/null && killed=$((killed + 1))
        fi
    done
    wait $run || fail "$out ends with $?: $(tail -5 "$out.log")"
    run=
    awk -v a="$begun" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }' >"$out.s"
}
kills=no killed=0
took short
steps=$(awk -v s="$(cat short.s)" -v t="$seconds" 'BEGIN { print int(300 / s * t) }')
sed -i "s/steps: 300/steps: $steps/" job.yaml
for out in calm life killed; do
    [[ $out == killed ]] && kills=yes
    [[ $out == calm ]] && took $out || took $out --life 20s
    awk -v out=$out -v s="$(cat $out.s)" -v of="$(cat calm.s)" -v steps="$steps" -v kills=$killed \
        'BEGIN { printf "%s: %d steps in %.1f s, %.3f of undisturbed, %d kills, ", out, steps, s, s / of, kills }'
    grep -oE '[0-9]+ epochs, [0-9]+ given up' $out.log | tr '\n' ' '
    [[ $out == calm ]] || python3 "$here/same_model.py" $out calm 1e-5 || fail "$out is another model"
done
exit $failed
