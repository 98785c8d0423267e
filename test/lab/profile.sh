#!/bin/sh
# Types of device by profiles of jobs: profile.sh PATH_OF_RUBATO
#
#   1. two jobs are profiled here; the file is a world file with ops and steps of both, and a third is added;
#   2. under quotas, where control groups can be made, each is a type; else the sentence says what is missing;
#   3. what cannot be is refused.
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
    timeout --foreground 100 "$rubato" profile "$@" --steps 5 --least 1ms -t 1 >"$log" 2>&1
}

# 1.
profile one.log small.yaml wide.yaml --type here --out devices.json || fail "profile: $(cat one.log)"
profile two.log conv.yaml --type here --add devices.json --out devices.json || fail "add: $(cat two.log)"
for name in small wide conv; do
    has devices.json "\"job\":\"$name\""
done
has devices.json '"type":"here"'
[ "$(grep -o '"name":"here","host":"here"' devices.json | wc -l)" = 1 ] || fail "one type is one device"
has devices.json '"rank":2'

# 2.
if profile quota.log small.yaml --quota 20,50 --out quota.json; then
    has quota.json '"type":"cpu20"'
    has quota.json '"type":"cpu50"'
    [ ! -e quota.json.20.part ] || fail "a part is left"
else
    has quota.log 'a quota needs a control group'
fi

# 3.
! profile bad.log small.yaml --quota 20,none --out bad.json || fail "a quota of none"
has bad.log "whole percents of a core"
! profile bad.log small.yaml --set train.batch=500 --out bad.json || fail "more than the data"
has bad.log "the training data contains 200 samples"
! profile bad.log small.yaml --add missing.json --out bad.json || fail "added to nothing"
has bad.log missing.json
[ ! -e bad.json ] || fail "a file was written all the same"
[ $failed = 0 ] && echo "profile: ok"
exit $failed
