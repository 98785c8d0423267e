# Sourced by scripts that run jobs whose step is cut into parts, in a folder of their own; $2, if given: pipe-rule, or placed-net.
set -eu
rubato=$(realpath "$1")
[ $# -lt 2 ] || rule=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$(basename "$0" .sh)-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
job_pid=
# branches WIDTH..: job branches.yaml, of a model with a branch for each width. A device adds the gradients of its branches
# first, so bits depend on the placement.
branches() {
    "$rule" branches.onnx "$@" && "$rubato" data make noise --out noise --count 480 --test 24 --features 32 --classes 10 >/dev/null 2>&1 || fail "no model with branches"
    cat >branches.yaml <<JOB
name: branches
model: {onnx: branches.onnx}
data: {format: npy, train: [noise/train-x.npy, noise/train-y.npy]}
train: {batch: 12, steps: 1000000, eval_every: 10000000, threads: 1, autotune: false, optimizer: {sgd: {lr: 0.01, momentum: 0.9}}, placed: {latency: 0s, byte_ns: 0, bytes_per_s: 1e15}}
checkpoint: {every: 0s}
JOB
}
cleanup() {
    [ -z "$job_pid" ] || kill "$job_pid" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "FAIL: $*" >&2
    failed=1
}

told() {
    grep -E '"rubato.train.(step|eval)/1"' "$1/metrics.jsonl" | sed -e 's/"[a-z_]*_s":[^,}]*//g' -e 's/"samples_per_s":[^,}]*//g' -e 's/"workers":[0-9]*//'
}

# same A B: checkpoints after the last step
same() {
    a=$(ls -d "$1"/checkpoints/0* | tail -1)
    b=$(ls -d "$2"/checkpoints/0* | tail -1)
    for f in model optimizer; do
        cmp -s "$a/$f.safetensors" "$b/$f.safetensors" || fail "$f of $1 and $2 differ"
    done
}

train() { # JOB OUT OPTIONS..
    job=$1
    out=$2
    shift 2
    timeout 300 "$rubato" train "$job.yaml" --out "$out" "$@" >"$out.log" 2>&1 || fail "$out: $(tail -3 "$out.log")"
}

newest() { # RUN: step of its newest checkpoint; 0: none
    at=$(ls -d "$1"/checkpoints/0*[0-9] 2>/dev/null | tail -1 | sed 's/.*\/0*//')
    echo "${at:-0}"
}

# wait_until RUN COMMAND...: it succeeds, within five minutes
wait_until() {
    waited=$1
    shift
    k=0
    until "$@"; do
        k=$((k + 1))
        [ $k -lt 3000 ] || { fail "$waited: '$*' does not come: $(tail -5 "$waited.log")"; return 0; }
        sleep 0.1
    done
}
# Of a job that tells its steps in RUN.json.
steps() { sed -n 's/.*train.step\/1","step":\([0-9]*\).*/\1/p' "$1.json"; }
last_step() { steps "$1" | tail -1 | grep . || echo 0; }
past() { [ "$(last_step "$1")" -gt "$2" ]; }
later_ckpt() { [ "$(newest "$1")" -gt "$2" ]; }
wait_ckpt() { wait_until "$1" later_ckpt "$1" "$2"; } # RUN STEP: it has a later checkpoint

# kill_one RUN WORKER: kill -9 of its newest process under $job_pid
runs() {
    victim=
    for pid in $(pgrep -P "$job_pid"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "--rank $1 " && victim=$pid
    done
    [ -n "$victim" ]
}
kill_one() {
    wait_until "$1" runs "$2"
    kill -9 "$victim" || fail "worker $2 of $1 does not run"
}

# restarts RUN [PARTS]: how often its log says that all stages (or PARTS) start again
restarts() { grep -c "all ${2:-stages} start again" "$1.log" || true; }
more_restarts() { [ "$(restarts "$1" "$3")" -gt "$2" ]; }
wait_restart() { wait_until "$1" more_restarts "$1" "$2" "${3:-stages}"; } # RUN BEFORE [PARTS]

# placed_twice RUN N: until it started again its losses are those of N devices with the placement of first.yaml, and the step after that
# has the loss of the same weights: last bits aside
placed_twice() {
    from=$(sed -n 's/all devices start again from .* after step //p' "$1.log" | tail -1)
    train first "$1-calm" -w "$2" --set train.steps=$((from + 1))
    told "$1" | grep step/1 | head -n "$from" >a.txt
    told "$1-calm" | grep step/1 | head -n "$from" >b.txt
    cmp -s a.txt b.txt || fail "losses of $1 are not those of a calm run: $(diff a.txt b.txt | head -4)"
    for run in "$1" "$1-calm"; do told "$run" | sed -n "s/.*\"step\":$((from + 1)),.*\"loss\":\([0-9.e-]*\).*/\1/p"; done | tr '\n' ' ' >c.txt
    awk '{exit !(NF == 2 && $1 > 0 && ($1 - $2) ^ 2 <= (1e-5 * $1) ^ 2)}' c.txt || fail "the step after the restart of $1 has another loss: $(cat c.txt)"
}

# ended RUN: the job was told to stop, and ends with 0
ended() {
    kill -TERM "$job_pid"
    code=0
    wait "$job_pid" || code=$?
    job_pid=
    [ "$code" = 0 ] || fail "$1 ended with $code: $(tail -5 "$1.log")"
}
