# Sourced by scripts of federations with real processes, in a folder of their own.
set -euo pipefail
rubato=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$(basename "$0" .sh)-XXXXXX")
cd "$work"
export XDG_CACHE_HOME="$work/cache"
umask 077
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
clients() { # NAME...: a token and data for each
    local name
    for name in "$@"; do
        "$rubato" fed token "$name" >"$name.token"
        printf 'data: {format: csv, train: [%s.csv], shuffle: none}\n' "$name" >"$name.yaml"
    done
}
address_of() { # OUT: of the server that was started last
    for _ in $(seq 1 6000); do
        address=$(sed -n 's/.*clients join at //p' "$1.log" | tail -1)
        [[ -n $address ]] && return
        sleep 0.05
    done
    fail "$1 does not listen: $(cat "$1.log")"
}
rounds() { # OUT
    grep -c . "$1/federation.jsonl" 2>/dev/null || true
}
reaches() { # OUT ROUNDS
    for _ in $(seq 1 15000); do
        [[ $(rounds "$1") -ge $2 ]] && return
        sleep 0.02
    done
    fail "$1 does not get to round $2: $(tail -3 "$1.log")"
}
