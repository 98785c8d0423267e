#!/bin/bash
# Training on functions whose gradients cross in a store elsewhere: train_stores.sh PATH_OF_RUBATO
#
#   1. S3 (signatures are checked) that is busy and cuts puts: the model has the bits of the own store's; no
#      key is left there; another secret is refused with a sentence.
#   2. Redis with a password, where redis-server is installed: the same; killed with -9 and started anew while
#      it is used, it costs steps that are done again; full, it ends the run with a sentence and a checkpoint.
#   3. Redis over TLS: the same; a certificate that nobody trusts, or of another host, is refused with a sentence.
# No log has a secret.
set -euo pipefail
rubato=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
. "$here/functions.sh"
run=
server=
s3=
cleanup() {
    kill -9 $run $server $s3 2>/dev/null || true
    rm -rf "${work:-}"
}
trap cleanup EXIT
command -v python3 >/dev/null || { echo "skipped: there is no python3"; exit 77; }
functions_job train-stores 40
train() { # OUT [OPTION...]
    local out=$1
    shift
    "$rubato" train job.yaml --functions local -w 2 --memory 1000 --out "$out" "$@" >"$out.log" 2>&1
}
same() { # OUT OTHER: to the bit
    python3 "$here/same_model.py" "$1" "$2" 0 || fail "$1 is another model than $2"
}
train own || fail "the own store: $(tail -5 own.log)"

# 1. S3
export AWS_ACCESS_KEY_ID=someone AWS_SECRET_ACCESS_KEY=something
python3 "$here/s3_store.py" busy=29 cut=31 >s3.port &
s3=$!
for _ in $(seq 1 30000); do
    [[ -s s3.port ]] && break
    sleep 0.01
done
export AWS_ENDPOINT_URL=http://127.0.0.1:$(head -1 s3.port)
train far --store s3://bucket/runs || fail "S3: $(tail -5 far.log)"
same far own
python3 - "$AWS_ENDPOINT_URL" >keys.txt <<'PY' || fail "the store does not answer"
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1] + "/_log").read().decode())
print("left:", urllib.request.urlopen(sys.argv[1] + "/_keys").read().decode().replace("\n", " "))
PY
grep -q '^PUT /bucket/runs/rubato-[0-9a-f]*/1/0/' keys.txt || fail "nothing crossed there"
grep -q '^left: $' keys.txt || fail "keys are left: $(grep left keys.txt)"
AWS_SECRET_ACCESS_KEY=another train bad --store s3://bucket/runs && fail "another secret is taken"
grep -q 's3://bucket/runs: the server refuses access (status 403' bad.log || fail "no word of it: $(cat bad.log)"
kill $s3
s3=

# 2. Redis
if ! command -v redis-server >/dev/null; then
    echo "the part of Redis is skipped: there is no redis-server"
    exit $failed
fi
export REDISCLI_AUTH=verysecret
redis() { # PORT: does it listen there?
    port=$1
    redis-server - >redis.log 2>&1 <<CONF &
${2:-}port $port
bind 127.0.0.1
requirepass verysecret
save ""
$([[ -z ${2:-} ]] || printf 'port 0\ntls-cert-file cert.pem\ntls-key-file key.pem\ntls-auth-clients no\n')
CONF
    server=$!
    for _ in $(seq 1 30000); do
        kill -0 $server 2>/dev/null || return 1 # another program has the port
        [[ $(redis-cli -p "$port" ${2:+--tls --insecure} ping 2>/dev/null) == PONG ]] && return
        sleep 0.01
    done
    return 1
}
for _ in 1 2 3 4 5; do
    redis $((20000 + RANDOM % 10000)) && break
done
kill -0 $server 2>/dev/null || { echo "redis-server does not start: $(cat redis.log)" >&2; exit 1; }
train red --store redis://127.0.0.1:$port || fail "Redis: $(tail -5 red.log)"
same red own
[[ $(redis-cli -p "$port" dbsize) == 0 ]] || fail "keys are left in Redis"
REDISCLI_AUTH=wrong train bad2 --store redis://127.0.0.1:$port && fail "another password is taken"
grep -q 'refuses access: NOAUTH' bad2.log || fail "no word of it: $(cat bad2.log)"

"$rubato" train job.yaml --set train.steps=1500 --out one2 >one2.log 2>&1 || fail "one process: $(tail -5 one2.log)"
train hurt --set train.steps=1500 --store redis://127.0.0.1:$port &
run=$!
reaches hurt 3
kill -9 $server
wait $server 2>/dev/null || true
redis "$port" || fail "redis-server does not start again: $(cat redis.log)"
wait $run || fail "after a restart: $(tail -5 hurt.log)"
run=
python3 "$here/same_model.py" hurt one2 1e-5 || fail "another model after a restart"

redis-cli -p "$port" config set maxmemory 1 >/dev/null
redis-cli -p "$port" config set maxmemory-policy noeviction >/dev/null
train full --store redis://127.0.0.1:$port && fail "a full store is no error"
grep -q "redis://127.0.0.1:$port answers: OOM" full.log || fail "no word of a full store: $(cat full.log)"
kill $server
wait $server 2>/dev/null || true

# 3. Redis over TLS
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 30 -subj /CN=store \
    -addext subjectAltName=IP:127.0.0.1 2>/dev/null
for _ in 1 2 3 4 5; do
    redis $((20000 + RANDOM % 10000)) tls- && break
done
if grep -q "Bad directive\|tls.*not supported" redis.log; then
    echo "the part of TLS is skipped: this redis-server has none"
    exit $failed
fi
kill -0 $server 2>/dev/null || { echo "redis-server does not start: $(cat redis.log)" >&2; exit 1; }
SSL_CERT_FILE=$PWD/cert.pem train tls --store rediss://127.0.0.1:$port || fail "Redis over TLS: $(tail -5 tls.log)"
same tls own
train strange --store rediss://127.0.0.1:$port && fail "a certificate that nobody trusts is taken"
grep -q "rediss://127.0.0.1:$port: TLS: its certificate: self-signed certificate" strange.log || fail "no word of it: $(cat strange.log)"
SSL_CERT_FILE=$PWD/cert.pem train other --store rediss://localhost:$port && fail "the certificate of another host is taken"
grep -q 'its certificate: hostname mismatch' other.log || fail "no word of the host: $(cat other.log)"
! grep -l -e verysecret -e something ./*.log || fail "a log has a secret"
kill $server
wait $server 2>/dev/null || true
server=
exit $failed
