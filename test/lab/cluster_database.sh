#!/bin/bash
# A cluster whose journal is in PostgreSQL: cluster_database.sh PATH_OF_RUBATO [STORM_SECONDS JOBS]. Starts a server of its own, for an
# unprivileged user, on a Unix socket; 77 where PostgreSQL or libpq is not there.
#
#   1. addresses with a password, a wrong password, no server: refused in a sentence; no password anywhere that others see.
#   2. the leader is killed: the scheduler that waits goes on with the job, whose workers notice nothing.
#   3. the server hangs, is killed and starts again: the job goes on, submissions are refused meanwhile, everything works afterwards.
#   4. the database is full: the same, without a break.
#   5. the connection ends between the commit and its answer: what was asked is refused as not known, and is done once.
#   6. a leader that is frozen while its session ends finds another one, and waits from then on; old or new, one leads.
#   7. with STORM_SECONDS, and instead of 2 to 6: beside JOBS (24) jobs of a fiftieth of a core each the scheduler, agents and the server are
#      killed with kill -9 every ten seconds: no worker notices, each step is done once, no sample is lost.
#   8. the cluster goes down, with all its schedulers, and up again; another version, another cluster, an older copy are refused.
#
# Its job runs until it is told to end: where the machine can bound a worker, each has a tenth of a core.
. "$(dirname "$0")/clusters.sh"
storm_s=${2:-0} storm_jobs=${3:-24}
bin=$(dirname "$(realpath "$(command -v initdb || ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1 || true)" 2>/dev/null || true)")
[[ -x $bin/postgres ]] || { echo "skipped: there is no PostgreSQL (scripts/setup check)"; exit 77; }
as=() account=$(id -un)
if [[ $(id -u) -eq 0 ]]; then
    account=$(getent passwd postgres nobody | head -1 | cut -d: -f1)
    as=(setpriv --reuid="$account" --regid="$(id -g "$account")" --clear-groups)
fi
server='' others=()
leaves() {
    [[ ${#others[@]} -eq 0 ]] || kill -9 "${others[@]}" 2>/dev/null || true
    if [[ -n $server ]] && kill -QUIT "$server" 2>/dev/null; then
        tail -f /dev/null --pid="$server" -s 0.1 # else it writes into what is removed
    fi
    wait 2>/dev/null || true
}
fail() {
    echo "FAIL: $*" >&2
    tail -n 4 cl/log/* standby.a server.log >&2 2>/dev/null || true
    failed=1
}
until_so() { # COMMAND...
    local k
    for ((k = 0; k < 1200; k++)); do
        ! "$@" >out.txt 2>err.txt || return 0
        sleep 0.1
    done
    fail "never: $*: $(cat err.txt)"
    exit 1
}
refused() { # CODE TEXT COMMAND...: in one sentence that has the text
    local code=0 want=$1 text=$2
    shift 2
    cluster "$@" >out.txt 2>err.txt || code=$?
    [[ $code -eq $want && $(wc -l <err.txt) -eq 1 ]] && grep -q "$text" err.txt || fail "$*: code $code, expected $want: $(cat err.txt)"
    if grep -q "$secret" err.txt; then fail "$* tells the password"; fi
}
db() { "$bin/psql" -q -h "$work/s" -U rubato -d rubato -v ON_ERROR_STOP=1 -Atc "$1"; }

# -- the server
secret=open-sesame-$$
mkdir s pg
[[ ${#as[@]} -eq 0 ]] || { chmod 711 .; chown "$account" s pg; }
"${as[@]}" "$bin/initdb" -D pg -U rubato -A trust --no-sync -E UTF8 --no-locale >server.log 2>&1 || { cat server.log >&2; exit 1; }
cat >hba <<HBA
local all rubato trust
local all guarded scram-sha-256
HBA
cat hba >pg/pg_hba.conf
start_server() { # again until no process of a killed one is left
    local k
    for ((k = 0; k < 1800; k++)); do
        if [[ -z $server ]] || ! kill -0 "$server" 2>/dev/null; then
            "${as[@]}" "$bin/postgres" -D pg -k "$work/s" -c listen_addresses= -c shared_buffers=16MB -c max_connections=20 >>server.log 2>&1 &
            server=$!
            disown
        fi
        ! "$bin/psql" -q -h "$work/s" -U rubato -d template1 -c 'SELECT 1' >/dev/null 2>&1 || return 0
        sleep 0.1
    done
    fail "the server does not start"
    exit 1
}
start_server
"$bin/psql" -q -h "$work/s" -U rubato -d template1 -c 'CREATE DATABASE rubato' -c "CREATE ROLE guarded LOGIN PASSWORD '$secret'" \
    -c 'ALTER DATABASE rubato OWNER TO guarded'
at=guarded@${work//\//%2F}%2Fs/rubato
cat >mlp.yaml <<JOB
name: count
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
JOB
yaml() { # ADDRESS [FOLDER]
    cat <<FILE
folder: ${2:-cl}
journal: $1
accounts: shared
nodes: [{name: n1, slots: 2, cpu: 0.1}, {name: n2, slots: 2, cpu: 0.1}]
FILE
}

# -- 1
yaml events one >cluster.yaml # a path
code=0
cluster up cluster.yaml >out.txt 2>err.txt || code=$?
if [[ $code -eq 0 ]]; then
    [[ -s events && ! -e one/journal ]] || fail "the journal is not where CLUSTER.yaml says"
    cluster down || fail "a cluster with another path does not go down"
else
    grep -q 'SQLite' err.txt || fail "a journal in a file: $(cat err.txt)"
fi
yaml "postgres://guarded:$secret@${at#*@}" >told.yaml
refused 78 'an address with a password' up told.yaml
yaml "postgres://$at?password=$secret" >told.yaml
refused 78 'an address with a password' up told.yaml
yaml mysql://somewhere >told.yaml
refused 78 'expected a path or postgres' up told.yaml
yaml "postgres://$at" >cluster.yaml
code=0
PGPASSFILE=$work/none cluster up cluster.yaml >out.txt 2>err.txt || code=$?
if grep -q 'built without libpq\|needs libpq' err.txt; then
    echo "skipped: $(cat err.txt)"
    exit 77
fi
[[ $code -ne 0 ]] && grep -q 'pgpass' err.txt || fail "no password: code $code: $(cat err.txt)"
(umask 077 && echo "*:*:*:*:wrong" >wrong && echo "*:*:*:*:$secret" >right)
PGPASSFILE=$work/wrong refused 69 'password authentication failed' up cluster.yaml
export PGPASSFILE=$work/right
yaml "postgres://$at" >nowhere.yaml
sed -i 's|%2Fs/|%2Fnone/|' nowhere.yaml
refused 69 'is not there' up nowhere.yaml
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up"
[[ $(cluster submit mlp.yaml -w 2) == 1 ]] || fail "the first job is not number 1"
waits_for 2 field 1 workers
before=$(workers 1)
echo "ok: a cluster over a database"

# -- 7
if [[ $storm_s -gt 0 ]]; then
    cluster cancel 1 >/dev/null
    waits_for cancelled field 1 state
    cluster down
    yaml "postgres://$at" | sed "s/slots: 2, cpu: 0.1/slots: $(((storm_jobs + 1) / 2)), cpu: 0.02/g" >cluster.yaml
    until_so cluster up cluster.yaml
    for ((j = 2; j <= storm_jobs + 1; j++)); do cluster submit mlp.yaml >/dev/null; done
    working() { local j n=0; for ((j = 2; j <= storm_jobs + 1; j++)); do ! grep -qs 'train.step/1' cl/jobs/$j/metrics.jsonl || n=$((n + 1)); done; echo $n; }
    waits_for "$storm_jobs" working
    all_workers() { pgrep -f -- "--out $work/cl/jobs/" | sort; }
    before=$(all_workers) kills=0 end=$((SECONDS + storm_s))
    while [[ $SECONDS -lt $end ]]; do
        for name in scheduler n1 n2; do
            [[ $((RANDOM % 3)) -eq 0 ]] || { kill -9 "$(pid_of cl/run/$name.pid)" 2>/dev/null && kills=$((kills + 1)); } || true
        done
        if [[ $((RANDOM % 3)) -ne 0 ]]; then
            kill -9 "$server" 2>/dev/null && kills=$((kills + 1))
            sleep "0.$((RANDOM % 9))"
            start_server
        fi
        until_so cluster up cluster.yaml
        sleep $((10 - RANDOM % 3))
    done
    [[ $(all_workers) == "$before" ]] || fail "workers changed in the storm"
    for ((j = 2; j <= storm_jobs + 1; j++)); do
        [[ $(field $j generation) == 1 ]] || fail "job $j was started again in the storm"
        until_so cluster cancel $j
    done
    steps=0
    for ((j = 2; j <= storm_jobs + 1; j++)); do
        waits_for cancelled field $j state
        grep '"rubato.train.step/1"' cl/jobs/$j/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
        [[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "job $j did not do each step once"
        grep -q '"samples_lost":0,"samples_repeated":0' cl/jobs/$j/metrics.jsonl || fail "job $j lost samples"
        steps=$((steps + $(wc -l <steps)))
    done
    cluster down || fail "the cluster does not go down after the storm"
    [[ $failed -ne 0 ]] || echo "ok: a storm of $storm_s s: $kills kills, $storm_jobs jobs, $steps steps"
    exit $failed
fi

# -- 2
"$rubato" cluster scheduler --cluster cl >>standby.a 2>&1 &
a=$!
others=("$a")
until_so grep -q 'another scheduler leads' standby.a
leader=$(pid_of cl/run/scheduler.pid)
http=$(cat cl/http)
kill -9 "$leader"
another() { [[ $(cat cl/http) != "$http" ]] && cluster ps >/dev/null; }
until_so another
cluster scale 1 3 >/dev/null || fail "the second scheduler does not scale"
waits_for 3 field 1 workers
[[ -z $(comm -23 <(echo "$before") <(workers 1)) ]] || fail "a worker was started again: $before, now $(workers 1)"
before=$(workers 1)
grep -q 'submit *job 1' <<<"$(cluster audit)" || fail "audit does not tell of job 1"
grep -q 'count' <<<"$(cluster explain 1)" || fail "explain: $(cluster explain 1)"
echo "ok: another scheduler takes over"

# -- 3
session=$(db "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")
kill -STOP "$session" # as if the network between them were gone
refused 75 'the journal postgres' submit mlp.yaml # lost while it is written, unless something else was written before
refused 75 'is not there' submit mlp.yaml
cluster ps >/dev/null || fail "ps needs the database"
kill -CONT "$session"
until_so cluster user add someone
n=1
if [[ -n $(field 2 state || true) ]]; then # the server had heard of it
    n=2
    cluster cancel 2 >/dev/null
    waits_for cancelled field 2 state
fi
kill -9 "$server"
explains() { grep -q 'the journal is not there' <<<"$(cluster explain 1)"; }
until_so explains
refused 75 'is not there, so nothing was changed' submit mlp.yaml
cluster ps >/dev/null || fail "ps needs the database"
start_server
until_so cluster submit mlp.yaml
[[ $(cat out.txt) == $((n + 1)) ]] || fail "after the server came back the job is number $(cat out.txt)"
waits_for 1 field $((n + 1)) workers
[[ $(workers 1) == "$before" ]] || fail "workers changed with the server: $before, now $(workers 1)"
cluster cancel $((n + 1)) >/dev/null # three jobs would want more slots than there are
waits_for cancelled field $((n + 1)) state
echo "ok: the server dies and comes back"

# -- 4
db "CREATE FUNCTION full_() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END \$\$;
    CREATE TRIGGER full_ BEFORE INSERT ON rubato_journal FOR EACH STATEMENT EXECUTE FUNCTION full_()"
refused 74 'cannot be written: No space left on device' submit mlp.yaml
db 'DROP TRIGGER full_ ON rubato_journal'
[[ $(cluster submit mlp.yaml) == $((n + 2)) ]] || fail "after the database had room again"
[[ $(workers 1) == "$before" ]] || fail "workers changed with the full database"
cluster cancel $((n + 2)) >/dev/null
waits_for cancelled field $((n + 2)) state
waits_for 3 field 1 workers
echo "ok: a full database"

# -- 5: it waits for a standby that there is none of, on the disk already; what connects later does not
db 'ALTER ROLE guarded SET synchronous_commit = local' # who connects from now on
session=$(db "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted")
db "ALTER SYSTEM SET synchronous_standby_names = 'nobody'"
db 'SELECT pg_reload_conf()' >/dev/null
held() { [[ -n $(db "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'$1") ]]; }
knows() { # the server has seen the setting: a commit waits
    local probe
    db "COMMENT ON DATABASE rubato IS 'waits'" >/dev/null 2>&1 &
    probe=$!
    while kill -0 "$probe" 2>/dev/null; do
        ! held '' || return 0
        sleep 0.1
    done
    return 1
}
until_so knows
cluster submit mlp.yaml >/dev/null 2>told.txt &
ask=$!
until_so held " AND pid = $session"
db "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'" >/dev/null
code=0
wait "$ask" || code=$?
[[ $code -eq 0 ]] || { [[ $code -eq 75 ]] && grep -q 'was lost while this was written' told.txt; } || # 0: it lost a plan before
    fail "an answer that was lost: code $code: $(cat told.txt)"
waits_for 1 field $((n + 3)) workers # it was done
until_so cluster submit mlp.yaml
[[ $(cat out.txt) == $((n + 4)) ]] || fail "after an answer that was lost the job is number $(cat out.txt)"
cluster cancel $((n + 3)) >/dev/null
cluster cancel $((n + 4)) >/dev/null
db 'ALTER SYSTEM RESET synchronous_standby_names'
db 'SELECT pg_reload_conf()' >/dev/null
db 'ALTER ROLE guarded RESET synchronous_commit' # waits until the server has seen it
echo "ok: an answer that was lost"

# -- 6
cluster up cluster.yaml >/dev/null || fail "up beside a leader that it did not start"
b=$(pid_of cl/run/scheduler.pid)
until_so grep -q 'another scheduler leads' cl/log/scheduler
http=$(cat cl/http)
kill -STOP "$a"
db "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted" >/dev/null
until_so another
: >standby.a
kill -CONT "$a"
until_so grep -q 'another scheduler leads' standby.a
kill -0 "$a" || fail "a leader that lost the lead ended"
cluster user add another >/dev/null || fail "the one that leads now writes nothing"
for k in 1 2 3; do
    db "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted" >/dev/null
    until_so cluster scale 1 $((4 - k)) # whoever leads by then; fewer each time, so none is started
done
waits_for 1 field 1 workers
[[ -z $(comm -13 <(echo "$before") <(workers 1)) ]] || fail "a worker was started: $before, now $(workers 1)"
[[ $(field 1 generation) == 1 ]] || fail "the job was started again"
kill -0 "$a" "$b" || fail "a scheduler ended"
echo "ok: one leads"

# -- 8
if grep -rqs "$secret" cl cluster.yaml standby.a server.log /proc/[0-9]*/cmdline; then fail "the password is told: $(grep -rls "$secret" cl cluster.yaml standby.a server.log)"; fi
until_so cluster down # a database that is slow may refuse it
gone() { ! kill -0 "$1" 2>/dev/null; }
until_so gone "$a"
until_so gone "$b"
[[ -z $(workers 1) ]] || fail "down left workers"
others=()
seq=$(db 'SELECT count(*) = max(seq) FROM rubato_journal')
[[ $seq == t ]] || fail "the journal has holes"
db 'UPDATE rubato_cluster SET version = 9'
refused 69 'has version 9, this program knows version 1' up cluster.yaml
db 'UPDATE rubato_cluster SET version = 1'
yaml "postgres://$at" other >other.yaml
refused 69 'is that of the cluster in' up other.yaml
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up again"
waits_for 1 field 1 workers
[[ $(field 1 generation) == 2 ]] || fail "job 1 has generation $(field 1 generation) after down and up"
cluster cancel 1 >/dev/null
waits_for cancelled field 1 state
grep '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "job 1 did not do each step once"
cluster down || fail "the cluster does not go down a second time"
[[ $failed -ne 0 ]] || echo "ok: down with all schedulers, and up again"
exit $failed
