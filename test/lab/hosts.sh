#!/bin/bash
# Two hosts of two workers each on a link of 1 Gbit/s: hosts.sh PATH_OF_RUBATO
#
#   1. the losses are those of one process within rounding, whether members of a host read each
#      other's memory or all sums go over sockets; both step times are told;
#      `cache: auto` counts both hosts, and both workers of each;
#   2. when a host leaves, and when one comes, what `cache: auto` predicts follows;
#   3. kill -9 of a member of a host, and of the worker that its host sends through: no sample lost
#      or repeated, every step told once, the losses as before.
set -euo pipefail
rubato=$(realpath "$1")
net=$(realpath "$(dirname "$0")/net.sh")
"$net" check || exit $?
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-hosts-XXXXXX")
lab=ruhosts$$
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
steps=30
"$rubato" data make digits --out digits --count 1000 --test 200 >/dev/null 2>&1
cat >job.yaml <<JOB
name: hosts
model: {zoo: mlp, hidden: [1500, 1500]}
data: {format: idx, train: [digits/train-images, digits/train-labels], cache: auto}
storage: [{path: kept, quota: 1GB}]
train: {optimizer: {sgd: {lr: 0.02}}, batch: 256, steps: $steps, threads: 1}
checkpoint: {every: 0s, keep: 1}
JOB
"$net" up "$lab" 2 --rate 1gbit >/dev/null

# start RUN OPTIONS: four workers, numbers 0 and 1 on the first host; pid[k] is worker k's
start() {
    local run=$1 k host
    shift
    mkdir -p "$run.d"
    for k in 0 1 2 3; do
        host=$((k / 2 + 1))
        local join=()
        [[ $k -eq 0 ]] || join=(--join 10.77.0.1:7710)
        "$net" in "$lab" $host "$rubato" worker --job "$work/job.yaml" --out "$work/$run" --founders 4 --threads 1 \
            --equal-shares --rank $k --listen 10.77.0.$host:$((7710 + k)) "${join[@]}" "$@" >"$run.d/$k" 2>&1 &
        pid[k]=$!
    done
}
finish() { # RUN: all that were not killed
    local k
    for k in 0 1 2 3; do
        [[ -n ${pid[k]:-} ]] || continue
        wait "${pid[k]}" || fail "$1: worker $k ended with $?: $(tail -2 "$1.d/$k")"
    done
}
told() { grep -h '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'; }
same() { # RUN: the losses of `one`, nothing lost
    told one >a.txt
    told "$1" >b.txt
    seq 1 $steps | cmp -s - <(cut -d' ' -f1 b.txt) || fail "$1: the steps told are not 1 to $steps"
    paste a.txt b.txt | awk -v run="$1" '{ d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d }
        END { print run ": worst difference of losses " w; exit !(w <= 1e-4) }' || fail "$1: losses differ"
    tail -1 "$1/metrics.jsonl" | grep -q '"samples_lost":0,"samples_repeated":0' || fail "$1: samples"
}
step_ms() { # RUN: median of the steps after the tenth
    grep -h '"rubato.train.step/1"' "$1/metrics.jsonl" | tail -n +11 |
        sed 's/.*"step_s":\([0-9.e-]*\).*/\1/' | sort -g | awk '{ x[NR] = $1 } END { print 1000 * x[int((NR + 1) / 2)] }'
}

"$rubato" train job.yaml --out one >one.log 2>&1 || fail "one process: $(tail -2 one.log)"
sent() { "$net" in "$lab" 1 awk '/eth0:/ { print $10 }' /proc/net/dev; }
at0=$(sent)
pid=()
start near
finish near
same near
keeps() { grep -h '"policy":"keep"' "$1/plans/installed.jsonl" | tail -1 | grep -q "$2" || fail "$1: keep was not asked with $2"; }
keeps one '"hosts":1,"readers":1,"threads":1,'
keeps near '"hosts":2,"readers":2,"threads":2,'
at1=$(sent)
pid=()
start flat --sockets
finish flat
same flat
at2=$(sent)
echo "sent by the first host: $(((at1 - at0) / 1000000)) MB with shared memory inside of hosts, $(((at2 - at1) / 1000000)) MB over sockets"
echo "step: $(step_ms near) ms with shared memory inside of hosts, $(step_ms flat) ms over sockets"

# Worker 3 is the second of its host, worker 2 its first, whom the host sends through.
for victim in 3 2; do
    pid=()
    start kill$victim
    for _ in $(seq 1 3000); do
        [[ $(told kill$victim 2>/dev/null | wc -l) -ge 10 ]] && break
        sleep 0.1
    done
    kill -9 "${pid[victim]}"
    wait "${pid[victim]}" 2>/dev/null || true
    unset 'pid[victim]'
    finish kill$victim
    same kill$victim
done

# Both workers of the second host go, one after the other: `cache: auto` predicts with one host. It does so at once where
# nothing is kept, else at the end of an epoch, of which many follow.
pid=()
start gone
for victim in 3 2; do
    n=$(told gone 2>/dev/null | wc -l) || true
    for _ in $(seq 1 3000); do
        [[ $(told gone 2>/dev/null | wc -l) -ge $((n + 3)) ]] && break
        sleep 0.02
    done
    kill -9 "${pid[victim]}"
    wait "${pid[victim]}" 2>/dev/null || true
    unset 'pid[victim]'
done
finish gone
same gone
keeps gone '"hosts":1,"readers":2,"threads":2,'

# The second host comes while the first trains: `cache: auto` counts both of its workers. Then all are told to end.
sed "s/steps: $steps/steps: 100000/" job.yaml >long.yaml
pid=()
for k in 0 1 2 3; do
    join=()
    [[ $k -eq 0 ]] || join=(--join 10.77.0.1:7710)
    [[ $k -lt 2 ]] || join+=(--newcomer)
    for _ in $(seq 1 3000); do
        [[ $k -ne 2 || $(told come 2>/dev/null | wc -l) -ge 3 ]] && break
        sleep 0.1
    done
    host=$((k / 2 + 1))
    "$net" in "$lab" $host "$rubato" worker --job "$work/long.yaml" --out "$work/come" --founders 2 --threads 1 \
        --equal-shares --rank $k --listen 10.77.0.$host:$((7710 + k)) "${join[@]}" >"come.$k" 2>&1 &
    pid[k]=$!
done
for _ in $(seq 1 3000); do
    grep -h '"policy":"keep"' come/plans/installed.jsonl 2>/dev/null | tail -1 | grep -q '"hosts":2,"readers":2,"threads":2,' && break
    sleep 0.1
done
kill -TERM "${pid[@]}"
wait "${pid[@]}" || fail "come: a worker ended with $?: $(tail -qn 2 come.?)"
keeps come '"hosts":2,"readers":2,"threads":2,'
told come | cut -d' ' -f1 | awk '$1 != NR { exit 1 }' || fail "come: the steps told are not 1 to the last"
exit $failed
