#!/bin/bash
# Training on what arrives, with real processes: follow.sh PATH_OF_RUBATO
#
#   1. the job waits for its first file; samples of files that come one by one are used once, in the order of arrival:
#      the model is that of one process that reads all of them in one file, with the same steps.
#   2. instances come with a queue and are gone while it is empty; the run ends at the stop signal, with a checkpoint.
#   3. kill -9 while it waits: --resume continues behind what was read, though files that were read are gone and new
#      ones are there; the model is the same.
#   4. --deadline and --budget end a run that would go on; top and explain tell the queue.
#   5. damaged files: the run ends with a sentence, or leaves them out with data.strict: false.
#   6. a file that is written in place while the job begins is not taken before nobody writes any more.
#   7. what does not go with data.follow is refused by name.
#   8. notes of a run that has no checkpoint, so read nothing, are forgotten: its files may be gone.
#   9. objects of a store come as files do, with lists in pages and odd keys; one that is gone before it is counted
#      is none, one that changes behind that ends the run with a sentence; a store that is away is asked again, one
#      whose list never ends is refused.
set -euo pipefail
rubato=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-follow-XXXXXX")
run=
store=
failed=0
cleanup() {
    kill -9 $run $store 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
cd "$work"
export XDG_CACHE_HOME="$work/cache"
cat >job.yaml <<'JOB'
name: follow
model: {zoo: mlp, hidden: [16]}
data: {format: csv, train: [in], follow: 100ms, follow_queue: 200, classes: 4}
train: {batch: 20, optimizer: {adam: {lr: 0.01}}, threads: 1}
checkpoint: {every: 0s}
JOB
rows() { # FIRST N: samples by number, the same every time
    python3 - "$1" "$2" <<'PY'
import random, sys
for i in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
    r = random.Random(i)
    c = r.randrange(4)
    print(",".join("%.6f" % (r.gauss(0, 1) + 2 * (k % 4 == c)) for k in range(8)) + ",%d" % c)
PY
}
comes() { # NAME FIRST N: a file with these samples appears
    rows "$2" "$3" >"in/.$1"
    mv "in/.$1" "in/$1"
}
start() { # OUT [OPTION...]: in the background
    local out=$1
    shift
    "$rubato" train job.yaml --functions local --memory 1000 --out "$out" "$@" >>"$out.log" 2>&1 &
    run=$!
}
until_true() { # WHAT COMMAND...: while the run lives
    local what=$1
    shift
    for _ in $(seq 1 20000); do
        "$@" && return
        kill -0 "$run" 2>/dev/null || break
        sleep 0.01
    done
    fail "$what: $(tail -3 ./*.log)"
    return 0
}
waits_after() { # OUT STEP: has it saved this step, and waits?
    [[ -s $1/checkpoints/$(printf %09d "$2")/state.json ]] &&
        tail -1 "$1/follow.jsonl" | grep -q "\"step\":$2,.*\"workers\":0"
}
noted() { # OUT NAME
    grep -qs " $2\$" "$1/follow.files"
}
written() { # a sample more much more often than a look, until the other file is noted
    noted slow a.csv || { cat line.txt >>in/b.csv && sleep 0.1 && return 1; }
}
no_instance() {
    ! pgrep -P "$run" >/dev/null
}
logged() { # OUT WORDS
    grep -q "$2" "$1.log"
}
ends() { # OUT
    wait "$run" || fail "$1 ends with $?: $(tail -3 "$1.log")"
    run=
}

# 1., 2.
mkdir in
start plain -w 1:2
until_true "no word that it waits" logged plain 'waits for the first file'
comes c.csv 0 70
until_true "three steps of 70 samples" waits_after plain 3
until_true "instances live while nothing is there" no_instance
comes a.csv 70 130
until_true "the rest of the second file" waits_after plain 10
comes b.csv 200 405
until_true "a long queue" waits_after plain 30
kill -TERM "$run"
ends plain
[[ $(tr '\n' ';' <plain/follow.files) == '70 c.csv;130 a.csv;405 b.csv;' ]] || fail "the order of arrival: $(cat plain/follow.files)"
grep -q '"step":0,"arrived":70,"queue":70,"workers":1' plain/follow.jsonl || fail "a short queue has other workers than one: $(cat plain/follow.jsonl)"
grep -q '"step":10,"arrived":605,"queue":405,"workers":2' plain/follow.jsonl || fail "a long queue has other workers than two: $(cat plain/follow.jsonl)"
rows 0 1000 >all.csv
sed 's/train: \[in\], follow: 100ms, follow_queue: 200/train: [all.csv], shuffle: none/' job.yaml >one.yaml
one() { # STEPS
    rm -rf one
    "$rubato" train one.yaml --set train.steps="$1" --out one >one.log 2>&1 || fail "one process: $(cat one.log)"
}
one 30
python3 "$here/same_model.py" plain one 1e-5 || fail "the model is another one than that of one process"

# 3.
start plain -w 1:2 --resume
until_true "it goes on where it was" logged plain 'continues after step 30'
comes d.csv 605 100
until_true "5 samples of before and a new file" waits_after plain 35
kill -9 "$run"
wait "$run" 2>/dev/null || true
rm in/a.csv in/b.csv in/c.csv
comes e.csv 705 95
start plain -w 2 --resume
until_true "the file that came meanwhile" waits_after plain 40
kill -TERM "$run"
ends plain
one 40
python3 "$here/same_model.py" plain one 1e-5 || fail "the model is another one after a kill"
rm -r in && mkdir in
comes f.csv 800 60
cp -r plain lost && echo '5 a.csv' >lost/follow.files
"$rubato" train job.yaml --functions local -w 1 --out lost --resume >lost.log 2>&1 && fail "notes that do not fit the checkpoint"
grep -q 'names files with 5 samples, but the run has read 800' lost.log || fail "notes that do not fit: $(cat lost.log)"

# 4.
start late -w 1 --deadline 6s
ends late
grep -q 'the time of --deadline is over' late.log || fail "the deadline: $(cat late.log)"
start cheap -w 1 --budget 0.0000001usd
ends cheap
grep -q 'its budget is spent' cheap.log || fail "the budget: $(cat cheap.log)"
"$rubato" explain plain >explain.txt || fail "explain"
grep -q 'samples that wait' explain.txt || fail "explain tells no queue: $(cat explain.txt)"
"$rubato" top plain --once >top.txt || fail "top"
grep -q 'waits for samples' top.txt || fail "top tells no queue: $(cat top.txt)"

# 5.
start strict -w 1
until_true "its steps" waits_after strict 3
printf '1,2\n3,x\n' >in/.bad && mv in/.bad in/bad.csv
wait "$run" && fail "a damaged file goes unnoticed"
run=
grep -q 'in/bad.csv' strict.log || fail "a damaged file has no name: $(cat strict.log)"
rm in/bad.csv
start loose -w 1 --set data.strict=false
until_true "its steps" waits_after loose 3
printf '1,2\n3,x\n' >in/.bad && mv in/.bad in/bad.csv
until_true "a damaged file is left out" logged loose 'bad.csv is left out'
comes g.csv 860 20
until_true "steps behind a damaged file" waits_after loose 4
kill -TERM "$run"
ends loose

# 6.
rm -r in && mkdir in
comes a.csv 0 40
rows 40 1 >line.txt
start slow -w 1 --set data.follow=8s
until_true "no line of the first file" written
until_true "no line of the second file" noted slow b.csv
kill -TERM "$run"
ends slow
grep -q ' 1 new file, 40 samples in all' slow.log || fail "a file that is written in place is taken: $(cat slow.log)"
[[ $(cat slow/follow.files) == "40 a.csv"$'\n'"$(wc -l <in/b.csv) b.csv" ]] || fail "of $(wc -l <in/b.csv) samples that were written in place: $(cat slow/follow.files)"

# 7.
refused() { # WORDS OPTION...
    local words=$1
    shift
    "$rubato" train job.yaml --out bad "$@" >bad.log 2>&1 && fail "not refused: $*"
    grep -q -- "$words" bad.log || fail "$*: $(cat bad.log)"
}
refused 'add --functions local'
refused 'does not go with train.epochs' --functions local -w 1 --set train.epochs=2
refused 'does not go with data.validation' --functions local -w 1 --set data.validation=0.1
refused 'needs one folder' --functions local -w 1 --set data.format=idx
refused 'is no folder' --functions local -w 1 --set 'data.train=[job.yaml]'
refused 'expected --memory MB' --functions local -w 1 --memory 512:1024

# 8.
rm -r in && mkdir in
comes a.csv 0 40
start anew -w 1
until_true "its steps" waits_after anew 2
kill -9 "$run"
wait "$run" 2>/dev/null || true
rm -r anew/checkpoints in/a.csv
comes b.csv 40 60
start anew -w 1 --resume
until_true "steps of what is there" waits_after anew 3
kill -TERM "$run"
ends anew
[[ $(cat anew/follow.files) == '60 b.csv' ]] || fail "notes of a run that read nothing: $(cat anew/follow.files)"

# 9.
python3 "$here/s3_store.py" page=2 >s3.port &
store=$!
for _ in $(seq 1 30000); do
    [[ -s s3.port ]] && break
    sleep 0.01
done
export AWS_ACCESS_KEY_ID=someone AWS_SECRET_ACCESS_KEY=something AWS_ENDPOINT_URL=http://127.0.0.1:$(head -1 s3.port)
store() { # METHOD PATH [FILE]
    python3 - "$AWS_ENDPOINT_URL" "$@" <<'PY' || fail "the store does not answer"
import sys, urllib.parse, urllib.request
method, path = sys.argv[2:4]
body = open(sys.argv[4], "rb").read() if len(sys.argv) > 4 else None
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + urllib.parse.quote(path, "/" if "_objects" in path else "/?"), body, method=method)).read()
PY
}
arrives() { # KEY FIRST N
    rows "$2" "$3" >object.csv
    store PUT "/_objects/$1" object.csv
}
sed -i 's|train: \[in\]|train: ["s3://bucket/in/"]|' job.yaml
: >empty.csv
store PUT /_objects/in/ empty.csv
store PUT /_objects/in/empty empty.csv
arrives in/.hidden 0 20
arrives in/folder/x.csv 0 20
arrives other/x.csv 0 20
start far -w 1:2
until_true "no word that it waits" logged far 'waits for the first file in s3://bucket/in/'
arrives "in/b & <c> 'ä' &#228;%41?#" 0 70
until_true "three steps of 70 samples" waits_after far 3
store GET '/_away?lists'
arrives in/z 70 10
arrives in/d.csv 80 10
arrives in/a 90 10
until_true "no word that the store is away" logged far 'waits for s3://bucket/in/, which has given no good answer yet'
store GET '/_away?'
until_true "what came meanwhile" waits_after far 5
store GET '/_away?objects'
arrives in/gone 100 20
until_true "no word that an object cannot be read" logged far 'it is asked again: a new file, s3://bucket/in/gone'
store DELETE /_objects/in/gone
arrives in/c.csv 100 20
store GET '/_away?'
until_true "what came behind an object that is gone" waits_after far 6
store GET '/_away?lists'
kill -TERM "$run"
ends far
[[ $(tr '\n' ';' <far/follow.files) == "70 b & <c> 'ä' &#228;%41?#;10 z;10 d.csv;10 a;20 c.csv;" ]] || fail "the order of objects: $(cat far/follow.files)"
one 6
python3 "$here/same_model.py" far one 1e-5 || fail "the model is another one than that of one process"
store GET '/_away?'
arrives in/e.csv 120 19
start far -w 1 --resume
until_true "the rest of it" noted far e.csv
arrives in/e.csv 120 9
arrives in/f.csv 139 41
wait "$run" && fail "an object that changed is read"
run=
grep -q 's3://bucket/in/e.csv and the files behind it have 50 samples, but they had 60' far.log || fail "an object that changed: $(tail -3 far.log)"
refused 'needs one folder' --functions local -w 1 --set 'data.train=["https://127.0.0.1/in"]'
AWS_SECRET_ACCESS_KEY=another refused 's3://bucket/in/: the server refuses access' --functions local -w 1
store GET '/_away?circle'
refused "s3://bucket/in/: the server's list of objects goes in a circle" --functions local -w 1
kill $store
store=
exit $failed
