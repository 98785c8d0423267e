# Sourced by scripts that run jobs with an app in a folder of their own.
fail() {
    echo "FAIL: $*" >&2
    for f in ./*.log; do echo "== $f" && tail -n 8 "$f"; done >&2
    exit 1
}
# classes ROWS COLUMNS: sparse rows of four classes, in x.svm
classes() {
    awk -v rows="$1" -v columns="$2" 'BEGIN { srand(3); for (i = 0; i < rows; i++) { line = i % 4; for (c = 1 + int(rand() * 9); c <= columns; c += 1 + int(rand() * 20))
        line = line " " c ":" sprintf("%.3f", rand() + (c % 4 == i % 4)); print line } }' >x.svm
}
# step RUN: the last one that was reported
step() { grep -o '"step":[0-9]*' "$1/metrics.jsonl" 2>/dev/null | tail -1 | cut -d: -f2 || true; }
# until_step RUN STEP: it has come so far, or has ended; job: its process
until_step() {
    for _ in $(seq 1 6000); do
        [[ $(step "$1") -ge $2 ]] 2>/dev/null && return
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    [[ $(step "$1") -ge $2 ]] 2>/dev/null ||
        fail "$1 does not come to step $2, but to $(step "$1")"
}
# worker RUN RANK: its process, where `train -w` started it
worker() {
    local pid
    pid=$(pgrep -f "worker --job $work/$1/job.yaml .*--rank $2( |\$)") || fail "no worker $2 of $1"
    echo "$pid"
}
# leads RUN RANK: waits until this one leads; job: its process
leads() {
    for _ in $(seq 1 6000); do
        [[ $(grep -o '"what":"lead","worker":[0-9]*' "$1/metrics.jsonl" | tail -1) != *:"$2" ]] || return 0
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    fail "worker $2 of $1 does not lead: $(grep '"event' "$1/metrics.jsonl" | tail -3)"
}
# slowly PID COMMAND...: until it succeeds that process stands still most of the time, so that its job is not over before
slowly() {
    local pid=$1
    shift
    until "$@"; do
        kill -STOP "$pid" 2>/dev/null || break
        sleep 0.1
        kill -CONT "$pid" || break
        sleep 0.02
    done
}
# tables RUN: those after $steps
tables() { cat "$1"/checkpoints/*"$steps"/tables.safetensors | sha256sum; }
