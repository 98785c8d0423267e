#!/bin/bash
# Weights from another process: from.sh PATH_OF_RUBATO
#
#   1. predict --from and eval --from give the bits of the file, in the laboratory over an encrypted link.
#   2. Another token, nobody there, another model, other weights: one sentence that names the address,
#      and the exit code.
#   3. The server is killed, and stands still, while its description or weights are on their way: the sentence
#      says who and how much came.
set -euo pipefail
rubato=$(realpath "$1")
net=$(dirname "$(realpath "$0")")/net.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-from-XXXXXX")
lab=rufrom$$
lab=${lab:0:12}
"$net" check || exit $?
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    "$net" down $lab >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
. "$(dirname "$(realpath "$0")")/expect.sh"
cd "$work"
export XDG_CACHE_HOME="$work/cache"
there=("$net" in $lab 2 "$rubato") # the guest's host
serve() { # RUN OPTIONS...: on host 1; sets `server` and `at`
    local run=$1
    shift
    at=
    : >serve.txt # it is read before the server has made it
    "$net" in $lab 1 "$rubato" export "$run" --listen 10.77.0.1:0 --token-file "$work/token" "$@" >serve.txt 2>&1 &
    server=$!
    until at=$(sed -n 's/^serving weights at \(.*\) until.*/\1/p' serve.txt) && [[ -n $at ]]; do
        kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    [[ -n $at ]] || fail "export does not serve: $(tail -1 serve.txt)"
}
ended() { # by SIGTERM: 128 + 15
    local code=0
    kill "$server"
    wait $server || code=$?
    [[ $code -eq 143 ]] || fail "a stop signal ends the server with $code"
}
came() { # bytes at the guests' host
    "$net" in $lab 2 cat /proc/net/dev | sed 's/:/ /' | awk 'NR > 2 && $1 != "lo" { n += $2 } END { print n + 0 }'
}
# interrupt HOW NAME COMMAND..: the server gets that signal when 100 KB are at the guest. The link is slow
# until then, so that most is still on its way.
interrupt() {
    local how=$1 name=$2 before
    shift 2
    "$net" rate $lab 1 1mbit
    before=$(came)
    "${there[@]}" "$@" --from "$at" --token-file token >"$name.out" 2>"$name.err" &
    guest=$!
    until [[ $(came) -gt $((before + 100000)) ]]; do
        kill -0 $guest 2>/dev/null || break
        sleep 0.02
    done
    kill -"$how" "$server"
    "$net" rate $lab 1 20mbit
}
gone() { # NAME GUEST ADDRESS WORDS
    local code=0
    wait "$2" || code=$?
    [[ $code -eq 69 ]] || fail "$1: the guest exits $code, expected 69"
    [[ ! -s $1.out ]] || fail "$1: answers without all weights: $(head -1 "$1.out")"
    grep -q "$3$4" "$1.err" || fail "$1: $(tail -1 "$1.err")"
    [[ $(grep -c "^rubato .*$3" "$1.err") -eq 1 ]] || fail "$1: more than one sentence: $(cat "$1.err")"
    echo "ok: $code $(tail -1 "$1.err")"
}

"$net" up $lab 2 --rate 20mbit >/dev/null
"$rubato" data make digits --out digits --count 64 --test 40 >/dev/null 2>&1
job() { # NAME MODEL
    cat >"$1.yaml" <<JOB
data: {format: idx, train: [digits/train-images, digits/train-labels], test: [digits/test-images, digits/test-labels]}
model: {zoo: $2}
train: {epochs: 1, batch: 32}
JOB
    "$rubato" train "$1.yaml" --out "$1" >/dev/null 2>&1
}
job small lenet
job other mlp
cp -r small twin
"$rubato" train small.yaml --out again --set train.seed=7 >/dev/null 2>&1
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >token
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >wrong
chmod 600 token wrong
images=(digits/test-images digits/test-labels)

serve small
"$rubato" predict small --proba "${images[@]}" >here.txt
"${there[@]}" predict small --proba --from "$at" --token-file token --record came.json "${images[@]}" >there.txt
cmp here.txt there.txt || fail "other bits than with the file"
ranks() { # SEED of a random order
    "${there[@]}" predict small --from "$at" --token-file token --order random --seed "$1" --record drawn.json "${images[@]}" >/dev/null
    tr '{' '\n' <drawn.json | sed -n 's/.*"name":"\([^"]*\)".*"rank":\([0-9]*\),"arrived.*/\1 \2/p' | sort
}
[[ $(ranks 1) == *' 3'* && $(ranks 1) == "$(ranks 1)" && $(ranks 1) != "$(ranks 2)" ]] || fail "random orders do not follow --seed: $(ranks 1) $(ranks 2)"
"$rubato" eval small >here.txt
"${there[@]}" eval - --from "$at" --token-file token >there.txt
cmp here.txt there.txt || fail "eval gives other figures than with the file"
"$rubato" explain came.json order >explained.txt
grep -q 'a perfect order saves' explained.txt || fail "explain does not show what an order saves"
ended
"$rubato" export small --onnx model.onnx >/dev/null
sed 's/^model: .*/model: {onnx: model.onnx}/' small.yaml >imported.yaml
"$rubato" train imported.yaml --out imported >/dev/null 2>&1
serve imported
"$rubato" eval imported >here.txt
"${there[@]}" eval - --from "$at" --token-file token >there.txt
cmp here.txt there.txt || fail "an imported model gives other figures than with the file"
ended
serve small
echo "ok: the same bits over the link"

expect 69 "$at: a process listens there and refuses" "${there[@]}" predict - --from "$at" --token-file wrong "${images[@]}"
expect 69 '10.77.0.1:9: no process listens' "${there[@]}" predict - --from 10.77.0.1:9 --token-file token "${images[@]}"
expect 65 "$at serves another model" "${there[@]}" predict other --from "$at" --token-file token "${images[@]}"
expect 65 "$at serves other weights" "${there[@]}" predict again/checkpoints/00* --from "$at" --token-file token "${images[@]}"
expect 2 'HOST:PORT' "${there[@]}" predict - --from nowhere --token-file token "${images[@]}"
"${there[@]}" predict twin/checkpoints/00* --from "$at" --token-file token "${images[@]}" >/dev/null || fail "the same weights are refused"
ended

# The one that stands still is noticed after ten seconds without a byte; the others come meanwhile.
serve small
interrupt STOP stands predict - "${images[@]}"
stands=($guest "$server" "$at")
half=' went away or stands still before all weights were here ([1-7] of 8 tensors'
serve small
interrupt KILL killed predict - "${images[@]}"
gone killed $guest "$at" "$half"
serve small
interrupt KILL killed-eval eval -
gone killed-eval $guest "$at" "$half"
serve imported # its description holds the model's file
interrupt KILL killed-description predict - "${images[@]}"
gone killed-description $guest "$at" ' went away or stands still before the description of its weights ([1-9]'
gone stands "${stands[0]}" "${stands[2]}" "$half"
kill -9 "${stands[1]}"
exit $failed
