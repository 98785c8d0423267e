#!/bin/bash
# Data behind addresses, from a server in another process: ranges.sh PATH_OF_RUBATO PATH_OF_RANGE_SERVER
#
# Runs that read from a slow and faulty store end with the bytes of runs that read files, also when they
# are resumed and when the server is away for a while; other faults are one sentence and an exit code;
# S3 requests carry signatures that another implementation computes, too; doctor says which library is
# missing and how to get it.
set -euo pipefail
rubato=$(realpath "$1") server=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-ranges-XXXXXX")
pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache" HOME="$work" no_proxy=127.0.0.1
unset AWS_PROFILE AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION http_proxy HTTP_PROXY || true
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
serve() { # DIR OPTION...: sets $pid and $port
    "$server" "$@" >port.txt &
    pid=$!
    pids+=("$pid")
    for _ in $(seq 1 3000); do
        [[ ! -s port.txt ]] || break
        kill -0 "$pid" || break
        read -rt 0.02 <> <(:) || true
    done
    port=$(cat port.txt)
    rm port.txt
}
job() { # WHERE STEPS SHUFFLE
    cat <<JOB
name: ranges
model: {zoo: mlp, hidden: [16]}
data: {format: idx, train: [$1/train-images, $1/train-labels], shuffle: $3}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 64, steps: $2, autotune: false, threads: 1}
JOB
}
weights() { "$rubato" export "$1" --safetensors "$1.st" >/dev/null 2>&1; }

# More than the 64 MiB that are kept in memory.
"$rubato" data make digits --out digits --count 90000 --test 50 >/dev/null 2>&1
for shuffle in full block; do
    job "$work/digits" 40 $shuffle >near.yaml
    timeout 300 "$rubato" train near.yaml -q --out "near-$shuffle" >/dev/null
    weights "near-$shuffle"
done

# Faults that pass; the run is cut in two.
serve "$work/digits" delay=1 busy=211 cut=97 brief=61
for shuffle in full block; do
    job "http://127.0.0.1:$port" 20 $shuffle >far.yaml
    timeout 300 "$rubato" train far.yaml -q --out "far-$shuffle" >/dev/null 2>err.txt || fail "$shuffle: $(cat err.txt)"
    job "http://127.0.0.1:$port" 40 $shuffle >far.yaml
    timeout 300 "$rubato" train far.yaml -q --resume --out "far-$shuffle" >/dev/null 2>err.txt ||
        fail "$shuffle resumed: $(cat err.txt)"
    weights "far-$shuffle"
    cmp "near-$shuffle.st" "far-$shuffle.st" || fail "$shuffle: other weights than from files"
done
timeout 300 "$rubato" train far.yaml -q -w 2 --out far-two >/dev/null 2>err.txt || fail "two workers: $(cat err.txt)"
weights far-two
# Two workers add in an order that their speeds decide (1e-8 apart); another order of samples moves weights by 1e-2.
cat >same.py <<'PY'
import json, struct, sys

def weights(path):
    data = open(path, 'rb').read()
    begin = 8 + struct.unpack('<Q', data[:8])[0]
    entries = sorted((name, v) for name, v in json.loads(data[8:begin]).items() if name != '__metadata__')
    assert entries and all(v['dtype'] == 'F32' for _, v in entries), path
    return {(name, *v['shape']): memoryview(data)[begin + v['data_offsets'][0]:begin + v['data_offsets'][1]].cast('f')
            for name, v in entries}

a, b = weights(sys.argv[1]), weights(sys.argv[2])
assert a.keys() == b.keys(), 'other tensors'
apart = max((abs(x - y) for k in a for x, y in zip(a[k], b[k], strict=True)), default=9)
sys.exit(0 if apart <= 1e-6 else f'weights are {apart:.3g} apart')
PY
if command -v python3 >/dev/null; then
    python3 same.py near-block.st far-two.st || fail "two workers from a far store end elsewhere"
    ! python3 same.py near-full.st far-two.st 2>/dev/null || fail "another order of samples compares equal"
fi

# The server is away for a moment: the same port, a new process.
job "http://127.0.0.1:$port" 400 full >far.yaml
timeout --foreground 300 "$rubato" train far.yaml -q --out away >/dev/null 2>err.txt &
run=$!
pids+=($run)
for _ in $(seq 1 3000); do
    [[ ! -s away/metrics.jsonl ]] || break
    kill -0 $run 2>/dev/null || break
    read -rt 0.02 <> <(:) || true
done
kill -0 $run || fail "the run ended before its server did"
kill "$pid"
wait "$pid" 2>/dev/null || true
serve "$work/digits" port="$port"
wait $run || fail "a server that was away: $(cat err.txt)"

# Samples that were kept before the job begins are not fetched again.
{
    job "http://127.0.0.1:$port" 40 full | sed 's/shuffle: full/shuffle: full, cache: bytes/'
    echo 'storage: [{path: kept, quota: 200MB}]'
} >kept.yaml
timeout 300 "$rubato" data warm kept.yaml >out.txt 2>&1 || fail "data warm: $(cat out.txt)"
grep -q '90000 of 90000 are kept' out.txt || fail "data warm: $(cat out.txt)"
timeout 300 "$rubato" train kept.yaml --out kept-run >/dev/null 2>err.txt || fail "kept: $(cat err.txt)"
grep -q ' came from kept samples; 0 were added' err.txt || fail "kept samples are read again: $(cat err.txt)"
weights kept-run
cmp near-full.st kept-run.st || fail "kept: other weights than from files"

# Faults that stay: NAME CODE WORDS SERVER_OPTION
refuse() {
    local name=$1 code=$2 words=$3 rc=0
    shift 3
    serve "$work/digits" "$@"
    timeout 300 "$rubato" data info --format idx "http://127.0.0.1:$port/${path:-train-images}?key=hidden" \
        >out.txt 2>&1 || rc=$?
    [[ $rc -eq $code ]] || fail "$name: exit code $rc, not $code: $(cat out.txt)"
    grep -q "$words" out.txt || fail "$name: $(cat out.txt)"
    ! grep -q hidden out.txt || fail "$name: shows what stands behind '?'"
    kill "$pid"
}
path=none refuse missing 66 'no such object'
refuse forbidden 77 'refuses access' forbid=1
refuse 'no ranges' 65 'whole file' whole=1
refuse compressed 65 'compressed' gzip=1
refuse changed 65 'changed while it was read' twist=2

# A token goes along, and a file that others can read is refused.
serve "$work/digits" log="$work/http.log"
job "http://127.0.0.1:$port" 2 none >token.yaml
echo a-token-of-the-store >token
chmod 644 token
rc=0
timeout 300 "$rubato" train token.yaml -q --set data.token_file=token --out open >/dev/null 2>err.txt || rc=$?
[[ $rc -eq 78 ]] || fail "an open token file: exit code $rc: $(cat err.txt)"
chmod 600 token
timeout 300 "$rubato" train token.yaml -q --set data.token_file=token --out token-run >/dev/null 2>err.txt || fail "token: $(cat err.txt)"
grep -q '^Authorization: Bearer a-token-of-the-store' http.log || fail "no token was sent"
! grep -rq a-token-of-the-store token-run || fail "the run's folder holds the token"
kill "$pid"
if [[ $failed -eq 0 ]]; then echo "ok: http"; fi

# Signatures: the checker must first agree with the example that Amazon publishes for GET Object.
cat >sign.py <<'PY'
import hashlib, hmac, re, sys

def signature(secret, date, region, method, path, headers):
    names = sorted(headers)
    canonical = '\n'.join([method, path, ''] + [f'{n}:{headers[n]}' for n in names] +
                          ['', ';'.join(names), headers['x-amz-content-sha256']])
    scope = f'{date[:8]}/{region}/s3/aws4_request'
    text = '\n'.join(['AWS4-HMAC-SHA256', date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ('AWS4' + secret).encode()
    for word in (date[:8], region, 's3', 'aws4_request'):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()

nothing = hashlib.sha256(b'').hexdigest()
assert signature('wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY', '20130524T000000Z', 'us-east-1', 'GET', '/test.txt', {
    'host': 'examplebucket.s3.amazonaws.com', 'range': 'bytes=0-9', 'x-amz-content-sha256': nothing,
    'x-amz-date': '20130524T000000Z'}) == 'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41'
heads = re.sub(r'(?m)^sends: \d+\n', '', open(sys.argv[1], newline='').read())
requests = [r for r in heads.split('\r\n\r\n') if r]
for text in requests:
    lines = text.split('\r\n')
    method, path, _ = lines[0].split(' ')
    sent = {k.lower(): v.strip() for k, v in (line.split(':', 1) for line in lines[1:])}
    names = re.search('SignedHeaders=([^,]*)', sent['authorization']).group(1).split(';')
    want = signature('a secret/+', sent['x-amz-date'], 'eu-west-3', method, path, {n: sent[n] for n in names})
    assert want in sent['authorization'], text
    assert {'host', 'x-amz-date', 'x-amz-security-token'} <= set(names)
assert len(requests) > 2
PY
mkdir -p store/bucket
cp digits/train-images 'store/bucket/a b+c.idx'
serve "$work/store" log="$work/log"
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_REGION=eu-west-3
AWS_ACCESS_KEY_ID=AKEY AWS_SECRET_ACCESS_KEY='a secret/+' AWS_SESSION_TOKEN=a/token== \
    "$rubato" data info --format idx 's3://bucket/a b+c.idx' >out.txt 2>&1 || fail "s3: $(cat out.txt)"
if command -v python3 >/dev/null; then
    python3 sign.py log || fail "a signature is wrong"
fi
"$rubato" data info --format idx 's3://bucket/a b+c.idx' >out.txt 2>&1 || fail "s3, nobody: $(cat out.txt)"
kill "$pid"
if [[ $failed -eq 0 ]]; then echo "ok: s3"; fi

# Doctor: what it says of the libraries is what a command that needs them says. Files without a byte
# stand in for broken libraries.
says() { # CHECK HEALTH WORD
    grep -qE "^$2 +$1 .*$3" out.txt || fail "doctor, $1: $(cat out.txt)"
}
"$rubato" doctor >out.txt 2>&1 || fail "doctor: $(cat out.txt)"
says stores ok 'libcurl [0-9]'
says metrics '(ok|warn)' 'libmicrohttpd|--metrics'
mkdir broken
: >broken/libcurl.so.4
: >broken/libmicrohttpd.so.12
LD_LIBRARY_PATH=$work/broken "$rubato" doctor >out.txt 2>&1 || fail "doctor, no libraries: $(cat out.txt)"
says stores warn 'no data over http, https and s3'
says metrics warn 'no figures over HTTP'
for package in libcurl libmicrohttpd; do
    grep -qE "fix: apt-get install $package" out.txt || fail "doctor, no $package: $(cat out.txt)"
done
LD_LIBRARY_PATH=$work/broken "$rubato" data info --format idx "http://127.0.0.1:1/x" >out.txt 2>&1 && fail "no libcurl: no error"
grep -q 'need libcurl.*apt-get install libcurl4' out.txt || fail "no libcurl: $(cat out.txt)"
if [[ $failed -eq 0 ]]; then echo "ok: doctor"; fi
exit $failed
