#!/bin/bash
# A profile of layers as a script on real processes over shaped links, against the simulator and
# against costs alone: script.sh PATH_OF_RUBATO [ERROR_MAX_PERCENT]
#
# For each rate: four hosts with one process each, which compute nothing; `rubato sim --real` tells
# the step of the processes, of the simulator on links as they measured them, and of cost/step. The
# profile is a chain of ten layers with 11.9 MB of gradients, so that the machine is busy with waiting alone.
set -euo pipefail
rubato=$(realpath "$1")
most=${2:-90} # a figure off by more is broken; how close it is, a quiet machine tells: 10
net=$(realpath "$(dirname "$0")/net.sh")
"$net" check || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-script-XXXXXX")
lab=ruscript$$
lab=${lab:0:12}
cd "$work"
export RUBATO_TOKEN=of-the-scripts-of-the-laboratory
failed=0
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down "$lab" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT

# A chain of layers: time in ms forward and backward, bytes of parameters.
i=0
while read -r forward backward bytes; do
    i=$((i + 1))
    printf 'node%d -- Layer%d -- forward_compute_time=%s, backward_compute_time=%s, activation_size=0.0, parameter_size=%s.000\n' \
        $i $i "$forward" "$backward" "$bytes"
done >profile.graph.txt <<'LAYERS'
6.2 9.1 7168
14.1 28.3 147712
5.3 11.2 295424
8.4 17.1 590336
4.1 8.3 1180672
7.2 14.5 2360320
2.0 4.1 2360320
1.1 2.2 4110764
0.4 0.9 671088
0.1 0.2 163844
LAYERS
for k in 2 3 4 5 6 7 8 9 10; do printf '\tnode%d -- node%d\n' $((k - 1)) $k >>profile.graph.txt; done

value() { sed "s/.*\"$1\":\([^,}]*\).*/\1/" "$2"; }

# One rate; false: a figure is off by more than `most`.
try() {
    local rate=$1
    "$net" up "$lab" 4 --rate "$rate" >/dev/null
    words=(sim profile.graph.txt --real --workers 4 --batch 256 --steps 12)
    for k in 2 3 4; do
        "$net" in "$lab" $k "$rubato" "${words[@]}" --rank $k --join 10.77.0.1:7720 --listen 10.77.0.$k:7720 &
    done
    "$net" in "$lab" 1 "$rubato" "${words[@]}" --listen 10.77.0.1:7720 --json >out.json 2>err.txt || {
        cat err.txt >&2
        jobs -p | xargs -r kill -9 2>/dev/null || true
        wait || true
        return 1 # one that had no processor for long was left behind
    }
    wait
    "$net" down "$lab" >/dev/null
    awk -v rate="$rate" -v most="$most" -v real="$(value real_step_s out.json)" -v sim="$(value step_s out.json)" \
        -v said="$(value predicted_step_s out.json)" -v link="$(value link_bytes_per_s out.json)" 'BEGIN {
            a = 100 * (sim / real - 1); b = 100 * (said / real - 1)
            printf "%-8s real %.1f ms, simulated %.1f ms (%+.1f %%), by costs %.1f ms (%+.1f %%), link %.0f Mbit/s\n",
                rate, 1e3 * real, 1e3 * sim, a, 1e3 * said, b, 8e-6 * link
            exit (a > most || a < -most || b > most || b < -most)
        }'
}

# Beside other work the links are measured up to four times too fast (the shaper's bucket fills while processes wait):
# what is broken is so five times, and far off.
for rate in 1gbit 500mbit 200mbit; do
    try $rate || try $rate || try $rate || try $rate || try $rate || failed=1
done
exit $failed
