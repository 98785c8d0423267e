#!/bin/bash
# Control groups of the laboratory: each bound binds, and nothing is left behind.
set -euo pipefail
group=$(dirname "$(realpath "$0")")/group.sh
name=test-$$
"$group" check cpu memory || exit $?
dir=$(mktemp -d)
device=
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    [[ -z $device ]] || losetup -d "$device" || true
    unset RUBATO_LAB_BASE
    "$group" down "$name"
    rm -rf "$dir"
}
trap cleanup EXIT
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
figure() { "$group" figures "$1" | sed -n "s/^$2 //p"; }

"$group" make "$name-cpu" cpu
"$group" cpu "$name-cpu" 20
[[ $(figure "$name-cpu" throttled) == 0 ]] || fail "an empty group was throttled"
"$group" in "$name-cpu" timeout 300 bash -c 'for ((k = 0; k < 50000; k++)); do :; done' # more than 2 ms
[[ $(figure "$name-cpu" throttled) -gt 0 ]] || fail "a busy process was never throttled"
echo "ok: the quota of processor time holds"
! "$group" figures "$name-none" >/dev/null 2>&1 || fail "a group that is not there has figures"

"$group" make "$name-memory" memory
"$group" memory "$name-memory" $((16 << 20))
# Where files are kept in memory the kernel ends the process, else it drops what was written.
"$group" in "$name-memory" dd if=/dev/zero of="$dir/file" bs=1M count=48 status=none 2>/dev/null || true
[[ $(figure "$name-memory" limited) -gt 0 ]] || fail "48 MiB of a file never met a limit of 16 MiB"
rm "$dir/file"
[[ $(figure "$name-memory" kills) =~ ^[0-9]+$ ]] || fail "nothing says how many processes the kernel ended"
echo "ok: the limit of memory holds"

truncate -s 4M "$dir/file"
if "$group" check io && device=$(losetup --find --show "$dir/file"); then
    "$group" make "$name-io" cpu io
    "$group" read "$name-io" "$(stat -c '%Hr:%Lr' "$device")" $((4 << 20))
    before=$EPOCHREALTIME
    "$group" in "$name-io" dd if="$device" of=/dev/null iflag=direct bs=256k count=8 status=none
    took=$(((${EPOCHREALTIME/[.,]/} - ${before/[.,]/}) / 1000))
    [[ $took -ge 300 ]] || fail "2 MiB at 4 MiB/s were read in $took ms"
    echo "ok: the rate of reading holds"
fi
"$group" down "$name"
for controller in cpu memory io; do
    ! "$group" enter "$name-$controller" $$ 2>/dev/null || fail "the group $name-$controller is left"
done

# A group that holds processes, as the root of a container does: they step aside and come back.
two=$(awk '{ for (i = 7; $i != "-"; i++) {} if ($(i + 1) == "cgroup2") { print $5; exit } }' /proc/self/mountinfo)
controller=$([[ -z $two ]] || cut -d' ' -f1 "$two/cgroup.subtree_control")
[[ -n $controller ]] || controller=$([[ -z $two ]] || cut -d' ' -f1 "$two/cgroup.controllers")
if [[ -z $controller || -e $two/cgroup.type ]]; then
    exit 0 # no version 2; or in a container, where processes have just stepped aside
fi
enabled=$(cat "$two/cgroup.subtree_control")
echo "+$controller" >"$two/cgroup.subtree_control"
mkdir "$two/rubato-$name"
sleep 100 &
sleeper=$!
echo $sleeper >"$two/rubato-$name/cgroup.procs"
export RUBATO_LAB_BASE=$two/rubato-$name
"$group" make "$name" "$controller"
grep -qx $sleeper "$RUBATO_LAB_BASE/rubato-rest/cgroup.procs" || fail "the process did not step aside"
"$group" make "$name" "$controller" # a second time
"$group" make "$name-other" "$controller"
"$group" in "$name" grep -q "/rubato-$name/rubato-lab/$name$" /proc/self/cgroup || fail "a command runs in another group"
"$group" down "$name"
[[ $(cat "$RUBATO_LAB_BASE/cgroup.procs") == "$sleeper" ]] || fail "the process did not come back"
[[ -z $(find "$RUBATO_LAB_BASE" -mindepth 1 -type d) ]] || fail "groups are left in $RUBATO_LAB_BASE"
kill -9 $sleeper
wait $sleeper 2>/dev/null || true
rmdir "$RUBATO_LAB_BASE"
grep -qw "$controller" <<<"$enabled" || echo "-$controller" >"$two/cgroup.subtree_control"
echo "ok: processes of a group step aside ($controller)"
