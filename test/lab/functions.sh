# Sourced by scripts that train on functions: a folder of their own with a job of 40 or more steps.
# functions_job NAME STEPS: job.yaml in a new folder, which is the current one from here on
functions_job() {
    work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$1-XXXXXX")
    cd "$work"
    export XDG_CACHE_HOME="$work/cache"
    cat >job.yaml <<JOB
name: functions
model: {zoo: mlp, hidden: [24]}
data: {format: synthetic, generator: digits, count: 1000, test_count: 200}
train: {batch: 50, steps: $2, epochs: 0, eval_every: 250, optimizer: {adam: {lr: 0.003}}, threads: 1}
checkpoint: {every: 0s}
JOB
}
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
# reaches RUN STEPS: it ($run) has reported so many, and goes on
reaches() {
    for _ in $(seq 1 30000); do
        [[ $(grep -c '"step":' "$1/metrics.jsonl" 2>/dev/null || true) -ge $2 ]] && return
        kill -0 "$run" 2>/dev/null || break
        sleep 0.01
    done
    fail "$1 does not get to step $2: $(tail -5 "$1.log")"
}
