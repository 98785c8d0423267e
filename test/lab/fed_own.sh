#!/bin/bash
# The client library of federations: fed_own.sh PATH_OF_RUBATO SOURCE_DIR BUILD_DIR
#
#   1. The example of docs/fleet-client.md, built against an installed tree, is a client beside one of `rubato fed join`: the model is
#      that of a script (fed_mean.py) within 1e-5; with masked updates, too. The library is small, has no part of what computes,
#      and shows its doors alone.
#   2. Refusals: a wrong token, none, a model of another size, a larger one, no server, no samples. One sentence each.
#   3. A stop signal ends it with 0 while it trains, and the rounds of the others go on.
#   4. The server is killed and comes again: it is joined again.
. "$(dirname "$0")/feds.sh"
cd - >/dev/null
source=$(realpath "$2") build=$(realpath "$3")
cd "$work"
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
meson=/usr/bin/meson
[[ -x $meson ]] || meson=meson
exec 9<"$build" # one script at a time: each puts the log back
flock 9
log=$build/meson-logs/install-log.txt # what `make uninstall` removes stays what it is
[[ ! -f $log ]] || cp "$log" "$work/log"
DESTDIR=$work/root "$meson" install -C "$build" --no-rebuild --quiet >/dev/null
if [[ -f $work/log ]]; then cp "$work/log" "$log"; else rm -f "$log"; fi
exec 9<&-
PKG_CONFIG_SYSROOT_DIR=$work/root PKG_CONFIG_PATH=$(dirname "$(find "$work/root" -name rubato-client.pc)")
export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
library=$(find "$work/root" -name librubato-client.so)
LD_LIBRARY_PATH=$(dirname "$library")
export LD_LIBRARY_PATH
[[ $(stat -Lc %s "$library") -lt 2000000 ]] || fail "the library has $(stat -Lc %s "$library") bytes"
ldd "$library" >needs.txt
! grep -E 'dnnl|gomp|curl|microhttpd|yaml|jansson|librubato.so' needs.txt || fail "the library needs more than a client does"
# Only the doors of its header, and the errors that they take.
nm -D --defined-only "$library" | awk '{ sub(/@@.*/, "", $3); print $3 }' | grep -v '^RUBATO_CLIENT_0$' | sort >shows.txt
{ grep -oE '\bru_fed_client_[a-z]+\(' "$(find "$work/root" -path '*/fleet/client.h')" | tr -d '('
    printf '%s\n' ru_err_set ru_err_wrap ru_panic ru_status_exit_code ru_status_name; } | sort -u >doors.txt
cmp -s shows.txt doors.txt || fail "the library shows other doors than its header: $(diff shows.txt doors.txt)"
sed -n '/^```c$/,/^```$/p' "$source/docs/fleet-client.md" | sed '/^```/d' >own.c
cflags=$(pkg-config --cflags rubato-client) libs=$(pkg-config --libs rubato-client)
# shellcheck disable=SC2086
${CC:-cc} -std=c17 -O1 -Wall -Wextra -Wpedantic -Werror $cflags own.c -o own $libs -lm || { fail "the example of docs/fleet-client.md does not build"; exit 1; }

python3 "$here/fed_mean.py" make
cat >job.yaml <<JOB
name: own
model: {zoo: mlp, hidden: [8]}
data: {format: csv, train: [some.csv], test: [test.csv], shuffle: none}
train: {batch: 32, optimizer: {sgd: {lr: 0.2}}, threads: 1}
checkpoint: {keep: 40}
federated: {rounds: 12, per_round: 2, tiers: 1, epochs: 2, deadline: 60s, method: vanilla}
JOB
clients alice bob carol
serve() { # OUT [OPTION...]: in the background; its address in OUT.log
    local out=$1
    shift
    touch "$out.log"
    "$rubato" fed serve job.yaml --listen 127.0.0.1:${port:-0} --out "$out" "$@" >>"$out.log" 2>&1 &
    server=$!
    address_of "$out"
}
join() { # NAME
    "$rubato" fed join "$address" --token-file "$1.token" --data "$1.yaml" -t 1 >>"$1.log" 2>&1 &
}
own() { # NAME
    ./own "$address" "$(cat "$1.token")" "$1.csv" >>"$1.log" 2>&1 &
    pid=$!
}

# 1. one of each; then three with masks
serve plain
own alice
join bob
wait $server || fail "the server ends with $?: $(tail -3 plain.log)"
wait $pid || fail "the example ends with $?: $(cat alice.log)"
python3 "$here/fed_mean.py" check plain 12 alice bob || fail "another model than that of the script"
python3 - <<'PY' || fail "the accuracy of the rounds is not that of the client that tells it"
import json

told = [json.loads(line) for line in open("plain/metrics.jsonl")]
accuracy = [r["accuracy"] for r in told if r.get("accuracy") is not None]
assert accuracy and min(accuracy) >= 0 and max(accuracy) > 0.5, accuracy
PY
[[ ! -s alice.log ]] || fail "the example says something: $(cat alice.log)"
serve masked --set federated.per_round=3 --set federated.secure.threshold=2
own alice
own carol
join bob
wait $server || fail "with masks the server ends with $?: $(tail -3 masked.log)"
LISTED=1 python3 "$here/fed_mean.py" check masked 12 alice bob carol || fail "with masks: another model than that of the script"
grep -q '"masked":3' masked/federation.jsonl || fail "nothing was masked: $(tail -1 masked/federation.jsonl)"

# 2. refusals
refused() { # CODE SENTENCE PROGRAM ARGUMENT...
    local code=0 want=$1 text=$2
    shift 2
    timeout --foreground 300 "$@" >refused.log 2>&1 || code=$?
    [[ $code -eq $want ]] && grep -qF "$text" refused.log && [[ $(wc -l <refused.log) -eq 1 ]] ||
        fail "$*: ends with $code, not $want and '$text': $(cat refused.log)"
}
serve closed --set federated.rounds=40
refused 77 'the token is not valid' ./own "$address" "alice:$(cut -d: -f2 carol.token)" alice.csv
refused 2 'which prints NAME:KEY' ./own "$address" secret alice.csv
refused 2 'expected HOST:PORT' ./own nowhere "$(cat alice.token)" alice.csv
refused 2 '1 to 1000000000 samples' ./own "$address" "$(cat alice.token)" missing.csv
sed 's/\.values_max = 1000000/.values = 77/' own.c >other.c
sed 's/\.values_max = 1000000/.values_max = 82/' own.c >small.c
sed 's/\.wait_ns = 30000000000/.wait_ns = 1/' own.c >brief.c
for name in other small brief; do
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c17 $cflags $name.c -o $name $libs -lm
done
refused 65 'has 83 values; this program trains one of 77' ./other "$address" "$(cat bob.token)" bob.csv
refused 75 'has 83 values, more than the 82' ./small "$address" "$(cat carol.token)" carol.csv
refused 69 'there is no server at 127.0.0.1:1 for' ./brief 127.0.0.1:1 "$(cat alice.token)" alice.csv

# 3. a client that is stopped, 4. a server that is killed
port=${address##*:}
kill -9 $server
wait $server 2>/dev/null || true
serve again --set federated.rounds=100000 --set federated.clients_min=3
own alice
stopped=$pid
own carol
join bob
reaches again 3
kill -TERM $stopped
wait $stopped || fail "a client that is stopped ends with $?: $(cat alice.log)"
kill -9 $server
wait $server 2>/dev/null || true
serve again --set federated.rounds=$(($(rounds again) + 20)) --set federated.clients_min=2 --resume
wait $server || fail "after a kill the server ends with $?: $(tail -3 again.log)"
wait $pid || fail "the client of a killed server ends with $?: $(cat carol.log)"
[[ $(tail -1 again/federation.jsonl) == *'"name":"carol"'* ]] || fail "nobody came again: $(tail -1 again/federation.jsonl)"
exit $failed
