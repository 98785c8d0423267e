#!/bin/sh
# Types of device by profiles of jobs: profile.sh PATH_OF_RUBATO
#
#   1. two jobs are profiled here; the file is a world file with ops and steps of both, and a third is added;
#   2. under quotas, where control groups can be made, each is a type; else the sentence says what is missing;
#   3. all ways on a cluster, and what auto takes with the same facts;
#   4. what cannot be is refused.
set -eu
rubato=$(realpath "$1")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-profile-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME="$work/cache"
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
has() { # FILE TEXT
    grep -qF -- "$2" "$1" || fail "$1 does not say '$2': $(tail -3 "$1")"
}
job() { # NAME MODEL
    cat >"$1.yaml" <<JOB
name: $1
model: $2
data: {format: synthetic, generator: digits, count: 200, test_count: 20}
train: {batch: 20, accumulate: 2, steps: 10, threads: 1, autotune: false}
JOB
}
job small '{zoo: mlp, hidden: [32]}'
job wide '{zoo: mlp, hidden: [96, 64]}'
job conv '{zoo: lenet, width: 4}'
profile() { # LOG OPTIONS..
    log=$1
    shift
    timeout --foreground 300 "$rubato" profile "$@" --steps 5 --least 1ms -t 1 >"$log" 2>&1
}

# 1.
profile one.log small.yaml wide.yaml --type here --out devices.json || fail "profile: $(cat one.log)"
profile two.log conv.yaml --type here --add devices.json --out devices.json || fail "add: $(cat two.log)"
for name in small wide conv; do
    has devices.json "\"job\":\"$name\""
done
has devices.json '"type":"here"'
[ "$(grep -o '"name":"here","host":"here"' devices.json | wc -l)" = 1 ] || fail "one type is one device"
python3 - devices.json <<P || fail "a profile is not a rank of its own"
import json, sys
facts = json.load(open(sys.argv[1]))["facts"]
for key in "ops", "steps", "processors":
    assert sorted({x.get("rank", 0) for x in facts[key]}) == [0, 1, 2], key
P

# 2.
if profile quota.log small.yaml --quota 20,50 --out quota.json; then
    has quota.json '"type":"cpu20"'
    has quota.json '"type":"cpu50"'
    "$rubato" profile small.yaml --quota 50 --least 60s --out ended.json >ended.log 2>&1 & # stopped in the middle
    pid=$!
    group() { find /sys/fs/cgroup -maxdepth 8 -name "rubato-profile-$pid-50"; }
    while kill -0 $pid && [ -z "$(group)" ]; do sleep 0.05; done 2>group.log
    kill -TERM $pid || fail "it ended before: $(cat ended.log)"
    wait $pid && fail "stopped, and done" || [ $? = 143 ] || fail "stopped: $(cat ended.log)"
    [ -z "$(group)" ] || [ -s ended.log ] || fail "a group is left, and not told: $(group)"
    [ ! -e ended.json ] || fail "a file was written all the same"
    [ -z "$(ls ./*.part 2>&- || :)" ] || fail "a part is left"
    ! profile bad.log small.yaml --quota 20 --set train.batch=500 --out bad.json || fail "more than the data, under a quota"
    [ "$(grep -c '^rubato profile' bad.log)" = 1 ] || fail "more than one sentence: $(cat bad.log)"
    has bad.log "the training data contains 200 samples"
    profile quiet.log small.yaml --quota 50 -q --out quiet.json || fail "quiet: $(cat quiet.log)"
    ! grep -q 'compute .* alone' quiet.log || fail "quiet, and told: $(cat quiet.log)"
else
    has quota.log 'a quota needs a control group'
fi

# 3.
cat >cluster.yaml <<C
hosts:
  - {name: a, cores: 1, net_bytes_per_s: 1e6, usd_per_h: 0.1}
  - {name: b, cores: 1, net_bytes_per_s: 1e6, usd_per_h: 0.1}
devices: [{name: a, host: a, type: here}, {name: b, host: b, type: here}]
C
timeout --foreground 300 "$rubato" plan wide.yaml --cluster cluster.yaml --facts devices.json --json >ways.json 2>ways.log || fail "ways: $(cat ways.log)"
timeout --foreground 300 "$rubato" plan wide.yaml --cluster cluster.yaml --facts devices.json >ways.txt 2>&1 || fail "ways: $(cat ways.txt)"
has ways.txt 'least time: '
has ways.txt 'predicted from profiles'
sed 's/accumulate: 2/accumulate: 2, ema: 0.9/' wide.yaml >ema.yaml
timeout --foreground 300 "$rubato" plan ema.yaml --cluster cluster.yaml --facts devices.json >ema.txt 2>&1 || fail "moving means: $(cat ema.txt)"
has ema.txt 'no pipeline is compared: a pipeline keeps no moving means'
timeout --foreground 300 "$rubato" plan wide.yaml --cluster cluster.yaml --goal money >money.txt 2>&1 || fail "measured: $(cat money.txt)"
has money.txt 'least money: single on 1 x here'
has money.txt 'measured here'
timeout --foreground 300 "$rubato" train wide.yaml -w 2 --out run --set train.parallel=auto \
    --set "train.pipeline={facts: $work/devices.json, type: here, bytes_per_s: 1e6}" >auto.log 2>&1 || fail "auto: $(tail -3 auto.log)"
python3 - ways.json auto.log <<P || fail "auto and plan differ: $(head -2 auto.log)"
import json, re, sys
ways = [w for w in json.load(open(sys.argv[1]))["ways"] if w["workers"] == 2]
said = open(sys.argv[2]).read()
data = next(w for w in ways if w["way"] == "data")
flush = next(w for w in ways if w["way"] == "flush")
got = re.search(r"layers predicted; .* data parallel ([0-9.e+-]+) ms, pipeline ([0-9.e+-]+) ms, cut at ([^ ,]+)", said)
assert abs(float(got[1]) / (1e3 * data["step_s"]) - 1) < 0.01, (got[1], data)
assert abs(float(got[2]) / (1e3 * flush["step_s"]) - 1) < 0.01, (got[2], flush)
assert got[3] == flush["cut"]
assert ("trains as a pipeline" in said) == (1.05 * flush["step_s"] < data["step_s"])
P

timeout --foreground 300 "$rubato" plan wide.yaml device --cluster cluster.yaml --facts devices.json --method squares >device.txt 2>&1 || fail "device: $(cat device.txt)"
has device.txt 'rent 1 x here'

# Layers on hosts of two types: one that takes twice as long for each op is half as fast, whichever stands first.
python3 - <<P
import copy, json
w = json.load(open("devices.json"))
f, c = w["facts"], w["cluster"]
last = 1 + max(x["rank"] for k in ("ops", "steps", "processors") for x in f[k])
ranks = {o["rank"] for o in f["ops"] if o["device_type"] == "here"}
for k in ("ops", "steps", "processors"):
    for x in [copy.deepcopy(x) for x in f[k] if x["rank"] in ranks]:
        x["rank"] += last
        for t, n in ((t, n) for t in [x] + [v for v in x.values() if isinstance(v, dict)] for n in list(t)):
            if n.endswith("_ns") and n not in ("quota_ns", "period_ns"):
                t[n] *= 2
        if "device_type" in x:
            x["device_type"] = "slow"
        f[k].append(x)
for k in ("hosts", "devices"):
    for x in [dict(x) for x in c[k] if x["name"] == "here"]:
        c[k].append(dict(x, name="slow", **({"host": "slow", "type": "slow"} if k == "devices" else {})))
json.dump(w, open("slow.json", "w"))
P
single() { # TYPE TYPE: the step on the faster of two
    sed "s/host: a, type: here/host: a, type: $1/; s/host: b, type: here/host: b, type: $2/" cluster.yaml >pair.yaml
    timeout --foreground 300 "$rubato" plan wide.yaml place --cluster pair.yaml --facts slow.json --method single --json >pair.json 2>pair.log ||
        fail "place on $1 and $2: $(cat pair.log)"
    python3 -c 'import json; print(json.load(open("pair.json"))["predicted"]["step_s"])'
}
python3 -c 'import sys; a, b, c = map(float, sys.argv[1:]); assert abs(b / a - 1) < 0.01 and abs(c / a - 2) < 0.02, (a, b, c)' \
    "$(single here slow)" "$(single slow here)" "$(single slow slow)" || fail 'a device of another type is not as fast as its facts say'

# 4.
! timeout --foreground 300 "$rubato" plan wide.yaml device >bad.log 2>&1 || fail "device without facts"
has bad.log 'give --cluster and --facts'
sed 's/, usd_per_h: 0.1//' cluster.yaml >free.yaml
! timeout --foreground 300 "$rubato" plan wide.yaml --cluster free.yaml --facts devices.json --goal money >bad.log 2>&1 || fail "money without prices"
has bad.log 'have no usd_per_h'
! profile bad.log small.yaml --type '' --out bad.json || fail "a type without a name"
has bad.log '--type is empty'
! timeout --foreground 300 "$rubato" plan wide.yaml --cluster cluster.yaml --facts missing.json >bad.log 2>&1 || fail "no facts"
has bad.log missing.json
sed 's/host: b, type: here/host: b, type: there/' cluster.yaml >two.yaml
! timeout --foreground 300 "$rubato" plan wide.yaml --cluster two.yaml >bad.log 2>&1 || fail "two types without facts"
has bad.log "'here' and 'there'"
! timeout --foreground 300 "$rubato" plan wide.yaml --cluster two.yaml --facts devices.json >bad.log 2>&1 || fail "a type without facts"
has bad.log "'there'"
! timeout --foreground 300 "$rubato" plan wide.yaml --cluster cluster.yaml --facts devices.json --set train.batch=40 >bad.log 2>&1 || fail "a key of a job"
has bad.log '--set and --method go with a policy'
! timeout --foreground 300 "$rubato" plan wide.yaml pipe --cluster cluster.yaml --facts devices.json >bad.log 2>&1 || fail "facts for pipe"
has bad.log '--facts with the last two'
! timeout --foreground 300 "$rubato" plan wide.yaml place --facts devices.json >bad.log 2>&1 || fail "place without hosts"
has bad.log 'give --cluster with a job'
! timeout --foreground 300 "$rubato" plan wide.yaml place --cluster two.yaml >bad.log 2>&1 || fail "place on two types without facts"
has bad.log "'here' and 'there'"
sed "s|threads: 1|threads: 1, pipeline: {facts: $work/slow.json}|" wide.yaml >told.yaml
timeout --foreground 60 "$rubato" plan told.yaml place --cluster pair.yaml --method single >told.txt 2>&1 || fail "the job's own facts: $(cat told.txt)"
for x in 'net_bytes_per_s: 1e6/net_bytes_per_s: 1e-9' 'net_bytes_per_s: 1e6/net_bytes_per_s: 1e17'; do
    sed "s/$x/" cluster.yaml >bad.yaml
    ! timeout --foreground 60 "$rubato" plan wide.yaml place --cluster bad.yaml >bad.log 2>&1 || fail "$x"
    has bad.log "bad.yaml: host 'a' has net_bytes_per_s 1e"
done
sed 's/cores: 1/cores: 1000000/' cluster.yaml >cores.yaml
for of in '' place; do
    timeout --foreground 60 "$rubato" plan wide.yaml $of --cluster cores.yaml --facts devices.json >cores.txt 2>&1 || fail "hosts with many cores: $(cat cores.txt)"
done
! profile bad.log small.yaml --quota 20,none --out bad.json || fail "a quota of none"
has bad.log "whole percents of a core"
! profile bad.log small.yaml --quota 99999 --out bad.json || fail "more than the cores"
has bad.log "expected at most"
! profile bad.log small.yaml --set train.batch=500 --out bad.json || fail "more than the data"
has bad.log "the training data contains 200 samples"
for to in 0 7; do # before versions, and of a later program
    sed "s/\"profiled\":[0-9]*/\"profiled\":$to/" devices.json >old.json
    ! profile bad.log small.yaml --type here --add old.json --out bad.json || fail "added to profiles of version $to"
    has bad.log "old.json has profiles of version $to"
    for of in '' place device; do
        ! timeout --foreground 300 "$rubato" plan wide.yaml $of --cluster cluster.yaml --facts old.json >bad.log 2>&1 || fail "'$of' takes profiles of version $to"
        has bad.log 'profile again'
    done
    for way in auto pipeline placed; do
        ! timeout --foreground 60 "$rubato" train wide.yaml -w 2 --out never --set train.parallel=$way --set "train.pipeline={facts: $work/old.json, type: here}" >bad.log 2>&1 || fail "a job, $way, takes profiles of version $to"
        has bad.log 'profile again'
    done
done
sed 's/"cpu":"[^"]*"/"cpu":"another"/' devices.json >another.json
! profile bad.log small.yaml --type here --add another.json --out bad.json || fail "one type, two machines"
has bad.log "the type 'here' was profiled on 'another'"
profile other.log small.yaml --type there --add another.json --out other.json || fail "two types, two machines: $(cat other.log)"
! profile bad.log small.yaml --add missing.json --out bad.json || fail "added to nothing"
has bad.log missing.json
[ ! -e bad.json ] || fail "a file was written all the same"
[ $failed = 0 ] && echo "profile: ok"
exit $failed
