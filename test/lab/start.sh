#!/bin/bash
# One job on two hosts, started in every way: start.sh PATH_OF_RUBATO
#
#   host a: network 1 (nobody else is there) and network 2;  host b: network 2
#
#   1. workers join from b by hand, without a word about addresses: b cannot reach a's first network;
#      a job that is full says to who waits how long it has waited; another token is refused;
#   2. --hosts with the real ssh and sshd (skipped where they are missing): losses of one process;
#      nobody answers there: exit code 69;
#   3. two launchers with torchrun's flags and the same folder; ranks as torchrun and Slurm give
#      them, where one is killed and the others go on.
set -euo pipefail
rubato=$(realpath "$1")
if [[ $(id -u) -ne 0 ]] || ! ip netns add rustart$$ 2>/dev/null; then
    echo "skipped: no right to make network namespaces"
    exit 77
fi
ip netns del rustart$$
a=rusta$$ b=rustb$$
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-start-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    [[ ! -f $work/sshd.pid ]] || kill "$(cat "$work/sshd.pid")" 2>/dev/null || true
    for ns in $a $b; do ip netns del $ns 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
ip netns add $a
ip netns add $b
ip link add net1 netns $a type veth peer name far netns $a # nobody else is there
ip link add net2 netns $a type veth peer name net2 netns $b
ip -n $a addr add 10.78.1.1/24 dev net1
ip -n $a addr add 10.78.2.1/24 dev net2
ip -n $b addr add 10.78.2.2/24 dev net2
for ns in $a $b; do
    for link in lo net1 far net2; do ip -n $ns link set $link up 2>/dev/null || true; done
done
on_a() { ip netns exec $a "$@"; }
on_b() { ip netns exec $b "$@"; }

"$rubato" data make digits --out digits --count 4000 --test 200 >/dev/null 2>&1
cat >mlp.yaml <<JOB
name: start
model: {zoo: mlp, hidden: [64]}
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.02, momentum: 0.9}}, batch: 40, epochs: 4, autotune: false, threads: 1}
checkpoint: {every: 1s}
JOB
started() { # RUN STEPS
    for _ in $(seq 1 3000); do
        [[ -f $1/metrics.jsonl && $(grep -c '"rubato.train.step/1"' "$1/metrics.jsonl") -ge $2 ]] && return
        sleep 0.1
    done
    fail "$1 does not get to step $2"
}
told() { # RUN WORDS [FILE]
    for _ in $(seq 1 3000); do
        grep -qs "$2" "${3:-$1/metrics.jsonl}" && return
        sleep 0.1
    done
    fail "$1: '$2' was never told: $(tail -3 "${3:-$1/metrics.jsonl}")"
}
"$rubato" train mlp.yaml --json --out one >one.jsonl 2>err.txt || fail "one process: $(tail -1 err.txt)"
same() { # RUN: every step once, nothing lost, the losses of one process
    for run in one "$1"; do
        grep '"rubato.train.step/1"' $run/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/' >$run.txt
    done
    paste one.txt "$1.txt" | awk -v run="$1" '$1 != $3 { print run ": step " $3 " instead of " $1; exit 1 }
        { d = $2 - $4; d = d < 0 ? -d : d; if (d > w) w = d }
        END { print "ok: " run ": worst difference of losses " w; exit !(w <= 5e-5) }' || fail "$1: losses differ"
    grep '"rubato.train.summary/1"' "$1/metrics.jsonl" | tail -1 | grep -q '"samples_lost":0,"samples_repeated":0' ||
        fail "$1: samples"
}

# -- 1
ip netns exec $a "$rubato" train mlp.yaml -w 2:3 --listen 10.78.2.1:0 --set train.epochs=100000 --out hand >hand.out 2>hand.err &
run=$!
started hand 100
address=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' hand.err | head -1)
ip netns exec $b "$rubato" worker --join "$address" --token-file hand/token --out b1 >b1.out 2>b1.err &
first=$!
told hand '"works","worker":3'
told b1 "^joined as worker 3" b1.err
ip netns exec $b "$rubato" worker --join "$address" --token-file hand/token --out b2 >b2.out 2>b2.err &
second=$!
told b2 "has waited 5 s to join: the job has its largest number of workers" b2.err
kill -TERM $first
wait $first || fail "who leaves exits $?: $(cat b1.err)"
told hand '"works","worker":4'
code=0
RUBATO_TOKEN=0123456789abcdef on_b timeout 300 "$rubato" worker --join "$address" --out b3 >b3.out 2>b3.err || code=$?
[[ $code -eq 69 ]] || fail "with another token a worker exits $code: $(cat b3.err)"
kill -TERM $run
wait $run || fail "by hand: $(tail -3 hand.err)"
wait $second || fail "the second by hand exits $?: $(cat b2.err)"
grep -q "refused" hand/log.1 || fail "nobody told of the wrong token: $(cat hand/log.1)"
echo "ok: joined by hand from a host that sees one of two networks"

# -- 2
sshd=$(command -v sshd || true)
[[ -n $sshd ]] || [[ ! -x /usr/sbin/sshd ]] || sshd=/usr/sbin/sshd
if [[ -z $sshd ]] || ! command -v ssh >/dev/null || ! command -v ssh-keygen >/dev/null; then
    echo "skipped: ssh or sshd is missing (Debian: openssh-client, openssh-server)"
else
    ssh-keygen -q -t ed25519 -N '' -f host_key
    ssh-keygen -q -t ed25519 -N '' -f user_key
    cp user_key.pub keys
    mkdir -p /run/sshd bin
    printf '%s\n' "HostKey $work/host_key" "AuthorizedKeysFile $work/keys" "StrictModes no" "UsePAM no" \
        "PidFile $work/sshd.pid" "PermitRootLogin prohibit-password" >sshd_config
    printf '%s\n' "IdentityFile $work/user_key" "UserKnownHostsFile $work/known" "StrictHostKeyChecking no" \
        "LogLevel ERROR" "ConnectTimeout 5" >ssh_config
    printf '#!/bin/sh\nexec %s -F %s/ssh_config "$@"\n' "$(command -v ssh)" "$work" >bin/ssh
    chmod +x bin/ssh
    on_b "$sshd" -f "$work/sshd_config" -E "$work/sshd.log"
    PATH=$work/bin:$PATH on_a timeout 300 "$rubato" train mlp.yaml --hosts localhost:2,10.78.2.2:2 --equal-shares --out ssh \
        >ssh.out 2>ssh.err || fail "--hosts over ssh: $(tail -5 ssh.err) $(tail -3 sshd.log)"
    [[ $(grep -c '"what":"works"' ssh/metrics.jsonl) -eq 2 ]] || fail "two workers over ssh: $(grep '"what"' ssh/metrics.jsonl)"
    [[ -f ssh/log.4 ]] || fail "the fourth worker has no log: $(ls ssh)"
    ! grep -aqf ssh/token sshd.log ssh/log.* || fail "the token stands in a log"
    same ssh
    code=0
    PATH=$work/bin:$PATH on_a timeout 300 "$rubato" train mlp.yaml --hosts localhost:1,10.78.2.9:1 --out nossh \
        >nossh.out 2>nossh.err || code=$?
    [[ $code -eq 69 ]] || fail "a host without ssh: exit code $code: $(tail -3 nossh.err)"
    grep -q "no worker started on 10.78.2.9" nossh.err || fail "a host without ssh: $(cat nossh.err)"
    code=0
    PATH=$work/bin:$PATH on_a timeout 300 "$rubato" train mlp.yaml --hosts localhost:1,10.78.2.2:1 --listen 10.78.1.1:0 \
        --out nonet >nonet.out 2>nonet.err || code=$?
    [[ $code -eq 69 ]] || fail "an address that the other host does not reach: exit code $code: $(tail -3 nonet.err)"
    grep -q "10.78.2.2 cannot reach this machine" nonet.err || fail "an address out of reach: $(cat nonet.err)"
    echo "ok: --hosts over the real ssh"
fi

# -- 3
export RUBATO_TOKEN=0123456789abcdef0123456789abcdef
for k in 1 2; do
    on_a timeout 300 "$rubato" train mlp.yaml --nnodes 2 --nproc-per-node 2 --rdzv-endpoint 127.0.0.1:29411 --equal-shares \
        --out rdzv >rdzv.$k.out 2>rdzv.$k.err &
    eval "node$k=\$!"
done
for k in 1 2; do
    node=node$k
    wait ${!node} || fail "torchrun's flags, launcher $k: $(tail -3 rdzv.$k.err)"
done
same rdzv
for how in torchrun slurm; do
    for k in 0 1 2; do
        case $how in
        torchrun) words=(RANK=$k WORLD_SIZE=3 LOCAL_RANK=$k MASTER_ADDR=10.78.2.1 MASTER_PORT=29412) ;;
        slurm) words=(SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_PROCID=$k SLURM_LOCALID=$k SLURM_STEP_NUM_TASKS=3
            SLURM_NTASKS=3 "SLURM_STEP_NODELIST=10.78.2.[1-2]" "SLURM_STEP_TASKS_PER_NODE=2,1") ;;
        esac
        ns=$a
        [[ $k -lt 2 ]] || ns=$b
        ip netns exec $ns env "${words[@]}" "$rubato" train mlp.yaml --set train.epochs=20 --out $how >$how.$k.out 2>$how.$k.err &
        eval "rank$k=\$!"
    done
    started $how 100
    kill -9 $rank2
    wait $rank2 2>/dev/null || true
    wait $rank0 || fail "$how: rank 0 after a kill: $(tail -3 $how.0.err)"
    wait $rank1 || fail "$how: rank 1 after a kill: $(tail -3 $how.1.err)"
    grep -q '"what":"lost","worker":3' $how/metrics.jsonl || fail "$how: rank 2 is not lost as worker 3"
    grep -q "worker 1 of 3 (" $how.0.err || fail "$how: which source won? $(head -1 $how.0.err)"
    [[ $(grep -c '"rubato.train.step/1"' $how/metrics.jsonl) -eq 2000 ]] || fail "$how: steps"
    echo "ok: ranks of $how, one killed: $(head -1 $how.0.err)"
done
exit $failed
