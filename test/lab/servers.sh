#!/bin/sh
# Workers that add the gradients of the others, on real processes: servers.sh PATH_OF_RUBATO
#
#   1. one and two servers, every order: the losses of a run without servers within 1e-6;
#   2. --deterministic: the same bytes with train.barrier always and auto;
#   3. kill -9 and a freeze of a server, and of the leader: the run ends, nothing lost or repeated;
#   4. what is refused is refused with the line.
set -eu
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-servers-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAIL: $*" >&2
    failed=1
}

# Equal shares: the gradients of a worker are those of the same samples in each run.
train() { # JOB OUT OPTIONS..
    job=$1
    out=$2
    shift 2
    timeout 300 "$rubato" train "$job.yaml" --equal-shares --json -v --out "$out" "$@" >"$out.jsonl" 2>"$out.err" ||
        fail "$out: $(tail -n 3 "$out.err")"
}

losses() {
    grep '"rubato.train.step/1"' "$1/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/'
}

# near A B MOST: losses of the same steps, at most so far apart
near() {
    losses "$1" >1.txt
    losses "$2" >2.txt
    paste 1.txt 2.txt | awk -v most="$3" '
        $1 != $3 { print "step " $3 " beside " $1; bad = 1; exit }
        { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d }
        END { if (!bad && (NR == 0 || w > most)) print NR " steps, losses " w " apart" }' >bad.txt
    [ ! -s bad.txt ] || fail "$1 and $2: $(cat bad.txt)"
}

cat >net.yaml <<JOB
name: net
model: {zoo: mlp, hidden: [700, 300]}
data: {format: synthetic, generator: digits, count: 480, test_count: 60}
checkpoint: {every: 0s}
train: {batch: 24, steps: 60, threads: 1, autotune: false, eval_every: 17, optimizer: {adam: {lr: 0.001}}}
JOB
train net none -w 2 --sockets
for servers in 1 2; do
    train net s$servers -w $((2 + servers)) --set train.servers=$servers
    grep -q "$servers of $servers servers add the gradients of 2 workers" s$servers.err || fail "s$servers: $(grep servers s$servers.err)"
    near none s$servers 1e-6
    # What a server puts aside is what was said, within a twentieth.
    tr ',{}' '\n\n\n' <s$servers/world.json | awk -F: '
        $1 == "\"memory_of_a_server_bytes\"" { n++; x[n % 2] = $2 }
        END { d = x[0] - x[1]; exit !(n >= 2 && n % 2 == 0 && x[0] > 0 && d * d <= 0.0025 * x[0] * x[0]) }' ||
        fail "s$servers: memory of a server: $(tr ',{}' '\n\n\n' <s$servers/world.json | grep memory_of_a)"
done
for order in tac tic random fifo layer reverse smallest; do
    train net $order -w 4 --set train.servers=2 --set train.order=$order
    near none $order 1e-6
done
"$rubato" explain tac order 2>/dev/null | grep -q 'send 3 transfers to every worker in this order' || fail "explain order: no plan"
echo "ok: losses with servers"

for barrier in auto always; do
    train net det-$barrier -w 4 --deterministic --set train.servers=2 --set train.barrier=$barrier
done
for f in model.safetensors optimizer.safetensors; do
    cmp det-auto/checkpoints/000000060/$f det-always/checkpoints/000000060/$f || fail "$f differs"
done
echo "ok: the same bytes with and without the barrier"

# Rank 1 leads and computes, ranks 2 and 3 serve.
sed -e 's/name: net/name: hurt/' -e 's/steps: 60/steps: 200/' -e 's/count: 480/count: 2400/' -e 's/adam: {lr: 0.001}/sgd: {lr: 0.02}/' net.yaml >hurt.yaml
train hurt still -w 2 --sockets
hurt() { # HOW RANK
    name=$1-$2
    timeout --foreground 300 "$rubato" train hurt.yaml -w 5 --set train.servers=2 --json --out "$work/$name" >"$name.jsonl" 2>"$name.err" &
    run=$!
    until grep -q '"rubato.train.step/1",.*"step":20,' "$name/metrics.jsonl" 2>/dev/null; do
        kill -0 $run 2>/dev/null || break
        sleep 0.02
    done
    pid=$(pgrep -f "worker --job $work/$name/job.yaml .*--rank $2( |\$)") || fail "$name: no such worker"
    kill "-$1" "$pid"
    wait $run || fail "$name: $(tail -n 3 "$name.err")"
    [ "$1" != STOP ] || kill -KILL "$pid" 2>/dev/null || true
    tail -n 1 "$name/metrics.jsonl" | grep -q '"samples_lost":0,"samples_repeated":0' ||
        fail "$name: $(tail -n 1 "$name/metrics.jsonl" | cut -c1-200)"
    near still "$name" 1e-4
}
hurt KILL 2
hurt KILL 3
hurt KILL 1
hurt STOP 3
echo "ok: servers and a leader killed, a server frozen"

refused() { # SENTENCE OPTIONS..
    want=$1
    shift
    "$rubato" train net.yaml "$@" >refused.txt 2>&1 && fail "not refused: $*"
    grep -q "$want" refused.txt || fail "$*: $(cat refused.txt)"
}
sed 's/batch: 24/batch: 24, servers: 2/' net.yaml >many.yaml
"$rubato" train many.yaml -w 2 >refused.txt 2>&1 && fail "two servers of two"
grep -q 'many.yaml:5:[0-9]*: train.servers is 2, but 2 workers would start' refused.txt || fail "$(cat refused.txt)"
refused 'a job with train.servers has at most 64 workers, but up to 65 would start' -w 2:65 --set train.servers=1
sed 's/batch: 24/batch: 24, order: tac/' net.yaml >order.yaml
"$rubato" train order.yaml -w 2 >refused.txt 2>&1 && fail "an order without servers"
grep -q "order.yaml:5:20: 'order' is that of sums from servers" refused.txt || fail "$(cat refused.txt)"
refused "'order' is that of sums from servers" -w 2 --set train.order=tac
refused 'grouped by rule' -w 3 --set train.servers=1 --set train.sums=ddp
echo "ok: refusals"
exit $failed
