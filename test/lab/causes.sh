#!/bin/bash
# Planted causes of lost time, on real processes, and what `rubato trace` says of them:
# causes.sh PATH_OF_RUBATO [ROUNDS [KIND...]]
#
# Each worker has a host of its own (a network namespace behind a shaped link), a part of a core
# (period 10 ms), and one reads its samples from a disk of its own (a loop device). In the middle of
# a run one thing becomes worse: the quota of one worker is halved, or its link, or what it may send
# falls to a quarter, or its disk becomes slow; or one worker starts late; or nothing happens.
#
# Shares of the batch stay equal: else the others soon take the work of a slow worker.
#
# Without ROUNDS: short runs with each cause once, in stronger form, which must be named with its
# rank. A cause that is missed is planted again, at most four times: other programs may have held the
# processors, and what a run measured is then no fault of the reader.
# With ROUNDS: so many of each, once each, whose step counts too.
# A line for each cause, the counts at the end.
# Other causes than the planted one may be real where other programs use the processors: they count
# as false here, so take figures on a quiet machine.
set -euo pipefail
rubato=$(realpath "$1")
rounds=${2:-0}
net=$(realpath "$(dirname "$0")/net.sh") group=$(realpath "$(dirname "$0")/group.sh")
"$net" check cpu io || exit $?
skip() {
    echo "skipped: $*" >&2
    exit 77
}
for tool in mke2fs losetup unshare python3; do
    command -v $tool >/dev/null || skip "no '$tool'"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-causes-XXXXXX")
lab=ruc$$
device=
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    wait 2>/dev/null || true
    "$net" down "$lab" >/dev/null 2>&1 || true
    umount "$work/disk" 2>/dev/null || true
    [[ -z $device ]] || losetup -d "$device" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" RUBATO_TOKEN=of-the-causes-of-the-laboratory

if [[ $rounds -eq 0 ]]; then
    n=3 steps=22 plant_at=11 width=4 quota=30 less=10 rate=100 half=30 late_s=1.2 slow_bps=1500000 batch=120
else
    n=4 steps=60 plant_at=25 width=8 quota=24 less=12 rate=160 half=80 late_s=2 slow_bps=1000000 batch=128
fi

# Images of 64 x 64 pixels, more than are kept in memory, each with a label.
mkdir data disk
python3 - <<'PY'
import random
n = 16500
random.seed(1)
with open("data/images", "wb") as f:
    f.write(bytes([0, 0, 8, 3]) + n.to_bytes(4, "big") + (64).to_bytes(4, "big") * 2 + random.randbytes(n * 4096))
with open("data/labels", "wb") as f:
    f.write(bytes([0, 0, 8, 1]) + n.to_bytes(4, "big") + bytes(random.randrange(10) for _ in range(n)))
PY
truncate -s 100M disk.img
mke2fs -q -t ext4 -d data disk.img
device=$(losetup --find --show disk.img)
numbers=$(stat -c '%Hr:%Lr' "$device")
# job STEPS
job() {
    cat >job.yaml <<JOB
name: causes
model: {zoo: lenet, width: $width}
data: {format: idx, train: [data/images, data/labels]}
train: {optimizer: {sgd: {lr: 0.001}}, batch: $batch, steps: $1, threads: 1, autotune: false}
checkpoint: {every: 0s, keep: 1}
JOB
}

told() { grep -c '"rubato.train.step/1"' "$1/metrics.jsonl" 2>/dev/null || true; }

# start RUN RANK DISK: worker RANK; DISK: the rank that reads from a disk of its own
start() {
    local run=$1 k=$2 join=() before=()
    [[ $k -eq 0 ]] || join=(--join 10.77.0.1:7740)
    # shellcheck disable=SC2016
    [[ $k -ne $3 ]] || before=(unshare -m sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' sh "$work/disk" "$work/data")
    "$net" cpu "$lab" $((k + 1)) $quota "${before[@]}" "$rubato" worker --job "$work/job.yaml" --out "$work/$run" \
        --founders $n --threads 1 --sockets --equal-shares --rank "$k" --listen 10.77.0.$((k + 1)):$((7740 + k)) "${join[@]}" \
        >"$run.d/$k" 2>&1 &
    pid[k]=$!
}

# run RUN KIND RANK LATE: sets `planted`, the step when it happened; LATE: the rank that starts late, or none
run() {
    local run=$1 kind=$2 rank=$3 late=$4 disk=$3 k
    [[ $kind == input ]] && job $((steps + 8)) || job "$steps" # some batches were read before
    pid=() planted=0
    mkdir -p "$run.d"
    mount "$device" disk # what it held before is forgotten
    "$net" up "$lab" $n --rate ${rate}mbit --burst 64kb >/dev/null
    "$group" make "$lab-$((disk + 1))" cpu io
    for ((k = 0; k < n; k++)); do
        [[ $k == "$late" ]] || start "$run" $k "$disk"
    done
    if [[ $late != none ]]; then
        sleep $late_s
        start "$run" "$late" "$disk"
    fi
    if [[ $kind != clean && $kind != start ]]; then
        while [[ $(told "$run") -lt $plant_at ]]; do
            kill -0 "${pid[0]}" 2>/dev/null || break
            sleep 0.02
        done
        case $kind in
            compute) "$net" quota "$lab" $((rank + 1)) $less ;;
            link) "$net" rate "$lab" $((rank + 1)) ${half}mbit ;;
            sender) "$net" rate "$lab" $((rank + 1)) $((rate / 4))mbit out ;;
            input) "$group" read "$lab-$((disk + 1))" "$numbers" $slow_bps ;;
        esac
        planted=$(told "$run")
    fi
    for ((k = 0; k < n; k++)); do
        wait "${pid[k]}" || { echo "$run: worker $k ended: $(tail -2 "$run.d/$k")" >&2; exit 1; }
    done
    "$net" down "$lab" >/dev/null
    umount disk
}

# judge RUN KIND RANK: what was said, "ok" or why not; counts
judge() {
    "$rubato" trace "$1" --json | grep '"rubato.trace.cause/1"' >"$1.causes" || true
    python3 - "$1.causes" "$2" "$3" "$planted" "$rounds" <<'PY'
import json, sys
path, kind, rank, at = sys.argv[1], sys.argv[2], int(sys.argv[3]) + 1, int(sys.argv[4])  # workers count from 1
timed = kind != "start" and sys.argv[5] != "0"  # short runs on a busy machine tell the step less well
said = [json.loads(line) for line in open(path)]
# A sender with one partner is told as its link to that one: nothing tells the end.
kinds = (kind, "path") if kind == "sender" else (kind,)
def hit(c):
    late = 15 if kind == "input" else 6  # batches that were read before
    return c["kind"] in kinds and c["rank"] == rank and (not timed or at - 4 <= c["since_step"] <= at + late)
found = any(map(hit, said))
others = sum(not hit(c) for c in said)
print("named" if found else "clean" if kind == "clean" else "MISSED", others, "; ".join(c["text"] for c in said) or "nothing is said")
PY
}

declare -A named false
kinds="compute link input sender start"
[[ $rounds -eq 0 ]] || kinds=${*:3}
[[ $rounds -eq 0 || -n $kinds ]] || kinds="compute link input sender start clean"
for kind in $kinds; do
    named[$kind]=0 false[$kind]=0
done
count() { # RUN KIND RANK
    local verdict others text
    read -r verdict others text < <(judge "$1" "$2" "$3")
    if [[ $verdict == MISSED ]]; then
        missed=$((missed + 1))
    else
        named[$2]=$((named[$2] + 1))
    fi
    false[$2]=$((false[$2] + (others > 0)))
    printf '%-8s rank %d at step %2d: %s. %s\n' "$2" $(($3 + 1)) "$planted" "$verdict" "$text"
}
for ((round = 0; round < (rounds > 0 ? rounds : 1); round++)); do
    for kind in $kinds; do
        rank=$(((round + 1) % n)) late=none
        run="$kind-$round"
        if [[ $rounds -eq 0 ]]; then
            [[ $kind != start ]] || continue
            [[ $kind != compute ]] || late=2 # two causes in one run
        elif [[ $kind == start ]]; then
            rank=$((1 + round % (n - 1)))
            late=$rank
        fi
        for again in 0 1 2 3 4; do
            missed=0
            run "$run" "$kind" "$rank" $late
            count "$run" "$kind" "$rank"
            [[ $rounds -gt 0 || $late == none ]] || count "$run" start $late
            [[ $rounds -eq 0 && $missed -gt 0 && $again -lt 4 ]] || break
            rm -rf "$run" "$run.d"
        done
        [[ -z ${KEEP:-} ]] || { rm -rf "${KEEP:?}/$run" && cp -r "$run" "$KEEP/"; }
        rm -rf "$run" "$run.d"
    done
done
failed=0
for kind in $kinds; do
    if [[ $kind == clean ]]; then
        printf '%-8s something is named in %d of %d\n' "$kind" "${false[$kind]}" "$round"
    else
        printf '%-8s named in %d of %d, something else too in %d\n' "$kind" "${named[$kind]}" "$round" "${false[$kind]}"
        [[ $rounds -gt 0 || ${named[$kind]} -ge $round ]] || failed=1
    fi
done
exit $failed
