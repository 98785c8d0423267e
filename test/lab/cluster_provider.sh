#!/bin/bash
# Nodes that a cluster rents from a provider that gives them late, refuses them and takes them back: cluster_provider.sh PATH_OF_RUBATO
#
#   1. a low-priority partition of Slurm is a market: nodes come when a job can use them, their hour begins when they are there; the
#      scheduler is killed while one waits for Slurm, and asks for it once. Another job of Slurm takes one back: its hour is refunded, its
#      job goes on from its checkpoint. Full, the partition gives none within `patience`: refused, and another one later. `down` leaves no job of Slurm.
#   2. two markets of Slurm share its commands: one runs at a time. Each remembers what Slurm refused it: it is told once.
#   3. two commands are a market: one that refuses says why, and the other market is asked; `release` runs for each node that was given.
#      The scheduler is killed between a request and its node: the node is there once. A machine that
#      is gone without a word comes again.
#
# Its jobs run until they are told to end: where the machine can bound a worker, each has a tenth of a core.
. "$(dirname "$0")/clusters.sh"
slurm=$here/slurm.sh
bash "$slurm" check || exit $?
leaves() { bash "$slurm" down "$work/slurm" || true; }
audit_n() { grep -c "$1" <<<"$(cluster audit)" || true; }
cat >mlp.yaml <<JOB
name: rents
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
checkpoint: {every: 200ms}
JOB

# -- 1
SLURM_CONF=$(bash "$slurm" up slurm 2)
export SLURM_CONF
full=$(sbatch --parsable -p urgent -N1 -n1 -c2 --job-name=other -o /dev/null --wrap 'exec sleep 600')
waits_for RUNNING squeue -h -j "$full" -o %T
cat >low.yaml <<FILE
folder: low
accounts: shared
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {speed: 60}
markets: [{name: spare, partition: main, options: [--time=30], usd: 0.2, evictions: 0.1, nodes: 2, slots: 1, threads: 2, cpu: 0.1, patience: 20min}]
FILE
cluster up low.yaml >/dev/null || fail "the cluster does not come up: $(cat low/log/scheduler)"
for _ in 1 2 3; do cluster submit mlp.yaml -w 1 >/dev/null; done
running() { cluster ps --json | grep -o '"state":"runs"' | wc -l; }
audit_nodes() { sed -n "s/.* $1 .*market \([0-9]* node [0-9]*\) .*/\1/p" <<<"$(cluster audit)" | sort -u | wc -l; } # EVENT
waits_for yes audit_has ' given .*market 0 node .*it came after'
waits_for 2 running
waits_for 2 audit_nodes rent
[[ $(audit_nodes given) == 1 ]] || fail "two nodes are asked for, one comes: $(cluster audit)"
pending() { squeue -h -p main -t PENDING -o %i | wc -l; }
waits_for 1 pending
slay "$(pid_of low/run/scheduler.pid)"
cluster up low.yaml >/dev/null || fail "the scheduler does not come back"
waits_for yes audit_has ' taken .*refused: it did not come in time'
waits_for 0 pending
# Each node that was asked for is at most one job of Slurm; one more is `other`. A refusal is good for 20 minutes of the market.
submitted=$(grep -c '_slurm_rpc_submit_batch_job: JobId=' slurm/log/slurmctld)
failures=$(grep -c '_job_complete: JobId=[0-9]* WEXITSTATUS [1-9]' slurm/log/slurmctld || true)
[[ $submitted -le $((1 + failures + $(audit_n ' rent '))) ]] || fail "Slurm was asked $submitted times: $(cluster audit)"
again() { # a node was asked for after a refusal; "too soon" if one was within 20 minutes of it
    awk '/ taken .*refused: it did/ {at = $10} / rent / && at > 0 {soon += $10 - at < 1199; n++}
         END {print (soon > 0 ? "too soon" : n > 0 ? "yes" : "")}' <<<"$(cluster audit)"
}
waits_for yes again
scancel "$full"
waits_for 3 running
[[ $failed -ne 0 ]] || echo "ok: nodes of a partition come, late or not"
node=$(squeue -h -p main -t RUNNING -o %N | sed -n 1p)
urgent=$(sbatch --parsable -p urgent -N1 -n1 -c2 -w "$node" --job-name=other -o /dev/null --wrap 'exec sleep 600')
waits_for yes audit_has ' taken .*evicted: it had its notice; its hour is refunded'
waits_for RUNNING squeue -h -j "$urgent" -o %T
waits_for 2 running
scancel "$urgent"
waits_for 3 running
cluster down || fail "down"
[[ -z $(squeue -h -p main -t RUNNING,PENDING) ]] || fail "down left jobs of Slurm: $(squeue)"
for k in 1 2 3; do
    grep '"rubato.train.step/1"' low/jobs/$k/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
    [[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "job $k did not do each step once"
done
[[ $failed -ne 0 ]] || echo "ok: a partition takes a node back"

# -- 2
mkdir shims
for program in squeue sbatch scancel; do
    printf '#!/bin/bash\nexec 9>"%s/shims/lock"\n%s -n 9 || echo "$0" >>"%s/shims/beside"\nexec %s "$@"\n' "$work" "$(command -v flock)" "$work" "$(command -v $program)" >shims/$program
    chmod +x shims/$program
done
cat >>shims/refuse <<'SCRIPT'
[[ ! -e deny ]] || { for word in "$@"; do [[ $word != --job-name=* ]] || name=$word; done; echo "$name" | tee -a denied | sed 's/.*-\([a-z]*\)-.*/no room for \1/' >&2; exit 1; }
SCRIPT
sed -i "2a cd $work; . shims/refuse" shims/sbatch
: >deny
cat >both.yaml <<FILE
folder: both
accounts: shared
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {speed: 60}
markets:
  - {name: left, partition: main, options: [--time=30], usd: 0.2, evictions: 0.1, nodes: 1, slots: 1, threads: 2, cpu: 0.1, patience: 1h}
  - {name: right, partition: main, options: [--time=30], usd: 0.2, evictions: 0.1, nodes: 1, slots: 1, threads: 2, cpu: 0.1, patience: 1h}
FILE
PATH="$work/shims:$PATH" cluster up both.yaml >/dev/null || fail "the cluster does not come up: $(cat both/log/scheduler)"
cluster submit mlp.yaml -w 3 >/dev/null
denied() { [[ $(grep -c left denied) -lt 2 || $(grep -c right denied) -lt 2 ]] || echo yes; }
waits_for yes denied
rm deny
for market in left right; do
    [[ $(grep -c "sbatch of market $market: no room for $market" both/log/scheduler) -eq 1 ]] || fail "each trouble is told once: $(cat both/log/scheduler)"
done
waits_for 3 field 1 workers
waits_for 2 audit_nodes given
# A command that cannot start is tried again.
mv shims/scancel hidden
ln -s scancel shims/scancel
cluster down &
down=$!
cannot() { ! grep -q 'cannot run scancel' both/log/scheduler || echo yes; }
waits_for yes cannot
mv -T hidden shims/scancel
wait "$down" || fail "down"
[[ ! -e shims/beside ]] || fail "commands of Slurm ran at a time: $(cat shims/beside)"
[[ -z $(squeue -h -p main -t RUNNING,PENDING) ]] || fail "down left jobs of Slurm: $(squeue)"
[[ $failed -ne 0 ]] || echo "ok: two partitions"

# -- 3
cat >give.sh <<'SCRIPT'
echo "$RUBATO_NODE $RUBATO_BID" >>requests
while [[ ! -e open ]]; do sleep 0.1; done
exec "$1" cluster agent --start --cluster "$RUBATO_CLUSTER" --node "$RUBATO_NODE"
SCRIPT
cat >take.sh <<'SCRIPT'
"$1" cluster agent --stop --cluster "$RUBATO_CLUSTER" --node "$RUBATO_NODE" || exit
echo "$RUBATO_NODE" >>releases
SCRIPT
cat >own.yaml <<FILE
folder: own
accounts: shared
silent: 5s
nodes: [{name: own, slots: 1, cpu: 0.1}]
market: {speed: 60}
markets:
  - {name: none, request: "echo no capacity in zone 1 >&2; exit 3", release: "bash $work/take.sh $rubato", usd: 0.1, on_demand: 0.5, nodes: 2, slots: 1, cpu: 0.1, patience: 24h}
  - {name: rack, request: "bash $work/give.sh $rubato", release: "bash $work/take.sh $rubato", usd: 0.2, on_demand: 0.5, nodes: 2, slots: 1, cpu: 0.1, patience: 30min}
FILE
cluster up own.yaml >/dev/null || fail "the cluster does not come up: $(cat own/log/scheduler)"
for _ in 1 2 3; do cluster submit mlp.yaml -w 1 >/dev/null; done
waits_for yes audit_has ' taken .*refused: no capacity in zone 1'
# A machine that comes after all is released again.
released() { ! grep -q none1 releases || echo yes; }
waits_for yes released
cluster agent --start --cluster own --node none1 || fail "the agent none1 does not start"
gone() { kill -0 "$(pid_of own/run/none1.pid)" 2>/dev/null || echo yes; }
waits_for yes gone
asked() { cut -d' ' -f1 requests | sort -u | wc -l; }
waits_for 2 asked
slay "$(pid_of own/run/scheduler.pid)"
cluster up own.yaml >/dev/null || fail "the scheduler does not come back"
: >open
waits_for 3 running
waits_for 2 audit_nodes given
# A machine that is gone with all that ran there: it comes again, and its job continues.
more() { [[ $(audit_n "$1") -le $2 ]] || echo yes; } # EVENT COUNT
gone=$(audit_n ' taken .*evicted: gone without a notice') given=$(audit_n ' given .*rack')
slay "$(pid_of own/run/rack1.pid)"
for worker in $(sed -n 's/.*worker_start .* pid //p' own/log/rack1); do
    ! grep -q "$work/own/jobs" "/proc/$worker/cmdline" 2>/dev/null || kill -9 "$worker" 2>/dev/null || true
done
waits_for yes more ' taken .*evicted: gone without a notice; its hour is refunded' "$gone"
waits_for yes more ' given .*rack' "$given"
waits_for 3 running
cluster down || fail "down"
[[ $(grep rack releases | sort -u | tr '\n' ' ') == 'rack1 rack2 ' ]] || fail "down releases what was given: $(cat releases)"
[[ $failed -ne 0 ]] || echo "ok: two commands are a market"
exit $failed
