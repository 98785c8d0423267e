#!/bin/bash
# A service on burstable machines by the hour: burst_fleet.sh PATH_OF_RUBATO [HOUR_SECONDS HOURS PART SLO_SECONDS]. Machines are processes of this one, each
# in a group of a fifth of a core at most; a day of requests comes at a rate of its own.
#
#   1. machines come and go by the plan of each hour and answer requests; what an hour expected, had and cost is told.
#   2. `rubato plan burst-fleet` gives the plan of an hour for the question that stands beside it, and for the world file of the fleet.
#   3. a machine that dies starts again; a fleet that is killed leaves none; wrong files are refused.
set -euo pipefail
rubato=$(realpath "$1")
hour_s=${2:-6} hours=${3:-4} part=${4:-5} slo_s=${5:-0.3} # slo_s: of what is told; part: one of so many of 80 requests a second at most
python=$(python3 -c 'import sys; print(sys.executable)') # what stands in PATH may be a script, which starts slowly
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-burst_fleet-XXXXXX")
fleet='' load='' failed=0
export PORT=$((6100 + $$ % 2800)) # where no other script listens, below those that the kernel gives to others
cleanup() {
    for p in $fleet $load; do kill -9 "$p" 2>/dev/null || true; done
    wait 2>/dev/null || true
    find /sys/fs/cgroup -depth -type d -path "*/rubato-fleet/lab$$-*" -exec rmdir {} + 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
trap 'echo "FAIL: line $LINENO: $BASH_COMMAND" >&2' ERR
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
cd "$work"
lines() { if [[ -s $1 ]]; then wc -l <"$1"; else echo 0; fi; }
until_lines() { # FILE N
    local k
    for ((k = 0; k < 3000; k++)); do [[ $(lines "$1") -lt $2 ]] || return 0; sleep 0.1; done
    fail "$1 has $(lines "$1") lines, not $2: $(tail -n 5 fleet.err)"
    exit 1
}
for ((h = 0; h < hours; h++)); do echo $(((30 + 50 * (h % 12 < 6 ? h % 6 : 6 - h % 6) / 5) / part)); done >rates.txt
cpu_s=$(awk "BEGIN{print 0.022 * $part}") # credits are spent as if there were all
cat >fleet.yaml <<FILE
name: lab$$
folder: out
start: exec $python $here/fleet_load.py serve 0.0015 $work
spread: exec $python $here/fleet_load.py spread $work/now
access_log: access.log
forecast: rates.txt
clock: $((3600 / hour_s))
core: 0.1
types:
  - {name: t2.nano, vcpus: 1, credits_per_h: 3, cap: 72, launch: 30, usd_per_h: 0.0058, rate_max: $((30 / part)), cpu_s: $cpu_s}
  - {name: t3.small, vcpus: 2, credits_per_h: 24, cap: 576, usd_per_h: 0.0208, rate_max: $((60 / part)), cpu_s: $cpu_s}
  - {name: c5.large, vcpus: 2, credits_per_h: 120, cap: 2880, usd_per_h: 0.085, rate_max: $((60 / part)), cpu_s: $cpu_s}
FILE
sed 's/clock: .*/clock: 0/' fleet.yaml >bad.yaml
! "$rubato" cluster fleet bad.yaml 2>err.txt || fail "a clock of 0 is taken"
echo x >bad.txt
sed 's/rates.txt/bad.txt/' fleet.yaml >bad.yaml
! "$rubato" cluster fleet bad.yaml 2>err.txt || fail "a forecast of no numbers is taken"
grep -q 'bad.txt:1: expected requests a second' err.txt || fail "$(cat err.txt)"
: >access.log
code=0
"$rubato" cluster fleet fleet.yaml --for 1s >/dev/null 2>err.txt || code=$?
if grep -qE 'control group|permission' err.txt; then
    echo "no control groups here: $(cat err.txt)"
    exit 77
fi
[[ $code -eq 0 ]] || fail "a fleet that ends by itself: code $code: $(cat err.txt)"
rm -rf out

# -- 1
"$rubato" cluster fleet fleet.yaml >fleet.txt 2>fleet.err &
fleet=$!
for ((k = 0; k < 1800; k++)); do [[ ! -s now ]] || break; sleep 0.1; done
[[ -s now ]] || fail "no machine serves: $(cat fleet.err)"
first=$(head -1 now | cut -d ' ' -f 1)
victim=$(pgrep -f -- "serve 0.0015 $work" | head -1)
kill -9 "$victim"
until_lines out/periods.jsonl 1
begun=$(lines out/periods.jsonl) # the day of the requests begins with the next hour of the forecast
{ tail -n +$((begun % hours + 1)) rates.txt && head -n $((begun % hours)) rates.txt; } >day.txt
"$python" "$here/fleet_load.py" load now access.log day.txt "$hour_s" &
load=$!
until_lines out/periods.jsonl $((begun + hours))
wait "$load" || fail "the load failed"
load=
until_lines out/periods.jsonl $(($(lines out/periods.jsonl) + 1)) # the hour in which the last answers came
cp out/periods.jsonl hours.jsonl
[[ $(lines access.log) -gt 0 ]] || fail "nobody was answered"
grep -q "starts again" fleet.err || fail "machine $first was not started again: $(cat fleet.err)"
python3 - "$begun" "$slo_s" <<'PY' || fail "the periods are not as they should be: $(cat out/periods.jsonl | head -c 2000)"
import json
import sys
rows = [json.loads(line) for line in open("hours.jsonl")]
for before, now in zip(rows, rows[1:]):
    assert now["period"] == before["period"] + 1
    assert abs(now["usd_all"] - before["usd_all"] - now["usd"]) < 1e-9
    assert now["usd"] >= now["machines"] * 0.0058 - 1e-9
    assert before["next_input"]["rate"] == now["expected"]
    assert len(before["next_input"]["machines"]) == before["machines"]
rates = [float(x) for x in open("rates.txt")]
assert all(row["expected"] == rates[row["period"] % len(rates)] for row in rows)
assert any(row["rate"] > 0 for row in rows)
first, last = rows[int(sys.argv[1]) - 1], rows[int(sys.argv[1]) + len(rates) - 1]
paid, replay = (last[key] - first[key] for key in ("usd_all", "replay_usd_all"))
late = sorted(row["latency_s"] for row in rows[1:] if row["latency_s"] is not None) or [0.0]
print(f"{len(rates)} hours: {paid:.4g} USD, the replay {replay:.4g} ({paid / max(replay, 1e-9):.3f}); p95 of an hour, median {late[len(late) // 2]:.4f} s, worst {late[-1]:.4f} s; {sum(x <= float(sys.argv[2]) for x in late)} of {len(late)} hours within {sys.argv[2]} s")
PY
tail -n 1 fleet.txt
echo "ok: machines follow the plan"

# -- 2
python3 - <<'PY'
import json
row = json.loads(open("out/periods.jsonl").readlines()[1])
json.dump(row["next_input"], open("question.json", "w"))
open("plan.txt", "w").write(row["next_plan"])
PY
"$rubato" plan question.json burst-fleet --json >answer.json || fail "the question of an hour is no input of the policy"
grep -q "$(cat plan.txt)" answer.json || fail "another plan: $(cat plan.txt), $(head -c 300 answer.json)"
"$rubato" capture out -o world.json || fail "no world file of the fleet"
id=$(sed -n 's/.*"id":"\([0-9a-f]*\)".*/\1/p' world.json)
"$rubato" plan world.json burst-fleet --json >answer.json || fail "the captured plan is not made again"
grep -q "\"next_plan\":\"$id\"" out/periods.jsonl && grep -q "\"$id\"" answer.json || fail "another plan than $id: $(head -c 300 answer.json)"
echo "ok: a plan can be asked for again"

# -- 3
kill -9 "$fleet"
wait "$fleet" 2>/dev/null || true
fleet=
for ((k = 0; k < 600; k++)); do [[ -n $(pgrep -f -- "serve 0.0015 $work") ]] || break; sleep 0.1; done
[[ -z $(pgrep -f -- "serve 0.0015 $work") ]] || fail "machines are left"
"$rubato" cluster fleet fleet.yaml --for 1s >/dev/null 2>err.txt || fail "a fleet after one that was killed: $(cat err.txt)"
[[ -z $(find /sys/fs/cgroup -type d -path "*/rubato-fleet/lab$$-*") ]] || fail "groups are left: $(find /sys/fs/cgroup -type d -path "*/rubato-fleet/lab$$-*")"
echo "ok: nothing is left"
exit $failed
