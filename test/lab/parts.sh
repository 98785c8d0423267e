# Sourced by scripts that run jobs whose step is cut into parts, in a folder of their own; $2, if given: pipe-rule.
set -eu
rubato=$(realpath "$1")
[ $# -lt 2 ] || rule=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$(basename "$0" .sh)-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
job_pid=
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
