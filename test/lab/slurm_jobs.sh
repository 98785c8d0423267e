#!/bin/bash
# The same jobs on Slurm alone and in a cluster whose nodes are jobs of Slurm: slurm_jobs.sh PATH_OF_RUBATO [JOBS NODES PERCENT]. Figures, no
# judgement. Many jobs are small, few large; they come one after the other. Slurm alone gives each the workers that it requests, on one node (backfill); the
# cluster resizes them and lets them adapt their batch. A node has two slots of PERCENT of a core each, whoever uses them.
. "$(dirname "$0")/clusters.sh"
jobs=${2:-24} nodes=${3:-4} percent=${4:-20}
slurm=$here/slurm.sh group=$here/group.sh name=slurmjobs$$
bash "$slurm" check || exit $?
bash "$group" check cpu || exit $?
leaves() {
    bash "$slurm" down "$work/slurm" || true
    bash "$group" down $name || true
}
SLURM_CONF=$(bash "$slurm" up slurm "$nodes")
export SLURM_CONF
for ((k = 1; k <= nodes; k++)); do # what a node runs comes from its daemon
    bash "$group" make $name-$k cpu
    bash "$group" cpu $name-$k $((2 * percent))
    bash "$group" enter $name-$k "$(cat slurm/run/slurmd.n$k.pid)"
done
epochs=(7 30 7 90 7 7 30 7) requests=(1 2 1 2 1 1 2 1)
job_yaml() { # K ADAPT
    cat <<JOB
name: j$1
model: {zoo: mlp, hidden: [256]}
data: {format: synthetic, generator: gaussian, count: 4000, test_count: 400, features: 256, classes: 10}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 64, epochs: ${epochs[$((($1 - 1) % 8))]}, autotune: false, threads: 1$2}
checkpoint: {every: 5s, keep: 1}
JOB
}
now() { date +%s.%N; }
# Gaps from 0 to twice the mean, the same for both.
awk -v n="$jobs" 'BEGIN { srand(1); for (k = 0; k < n; k++) { print at; at += 5 * rand() } }' >arrivals
each_arrival() { # COMMAND: with the number of each job, when it comes
    local begun k=0 at
    begun=$(now)
    while read -r at; do
        k=$((k + 1))
        sleep "$(awk -v b="$begun" -v n="$(now)" -v a="${at:-0}" 'BEGIN { d = b + a - n; print (d > 0 ? d : 0) }')"
        "$1" $k
    done <arrivals
}
by_slurm() {
    job_yaml "$1" '' >alone-$1.yaml
    now >begun-$1
    sbatch --parsable -N1 -n1 -c "${requests[$((($1 - 1) % 8))]}" -J "j$1" -o alone-$1.log --wrap \
        "env -i PATH='$PATH' HOME='$HOME' XDG_CACHE_HOME=$XDG_CACHE_HOME $rubato train $work/alone-$1.yaml -w ${requests[$((($1 - 1) % 8))]} -q --out $work/alone-$1; date +%s.%N >$work/ended-$1" >/dev/null
}
by_cluster() {
    job_yaml "$1" ', adapt: {batch_max: 512}' >job.yaml
    cluster submit job.yaml -w "1:4" --request "${requests[$((($1 - 1) % 8))]}" >/dev/null
}
loss() { # FOLDER...: the mean of what their runs told last
    python3 - "$@" <<'PY'
import json, sys
last = []
for folder in sys.argv[1:]:
    rows = [json.loads(line) for line in open(folder + "/metrics.jsonl") if "train.summary/1" in line]
    last.append(rows[-1]["metric"]["loss"])
print(f"{sum(last) / len(last):.4f}")
PY
}
each_arrival by_slurm
ended() { ls ended-* 2>/dev/null | wc -l; }
waits_for "$jobs" ended
alone=$(for ((k = 1; k <= jobs; k++)); do echo "$(cat begun-$k) $(cat ended-$k)"; done | awk '{ s += $2 - $1 } END { printf "%.2f", s / NR }')
alone_loss=$(loss $(seq -f "alone-%.0f" "$jobs"))
echo "Slurm alone: mean completion $alone s, mean loss $alone_loss"
cat >cluster.yaml <<FILE
folder: cl
accounts: shared
round: 2s
slurm: {nodes: $nodes, nodes_min: $nodes, slots: 2, threads: 1, partition: main, options: [--time=30]}
FILE
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up: $(cat cl/log/scheduler)"
up_nodes() { cluster nodes | grep -c ' up$'; }
waits_for "$nodes" up_nodes
each_arrival by_cluster
done_jobs() { cluster ps --json | grep -o '"state":"done"' | wc -l; }
waits_for "$jobs" done_jobs
ours=$(cluster ps --json | python3 -c 'import json, sys; rows = json.load(sys.stdin)["rows"]; print("%.2f" % (sum(float(str(r["age"]).rstrip("s")) for r in rows) / len(rows)))')
ours_loss=$(loss $(seq -f "cl/jobs/%.0f" "$jobs"))
cluster down
awk -v a="$alone" -v o="$ours" -v n="$jobs" -v la="$alone_loss" -v lo="$ours_loss" \
    'BEGIN { printf "mean completion of %d jobs: %.2f s in the cluster, %.2f s on Slurm alone: %.3f (goal 0.6); mean loss %s and %s\n", n, o, a, o / a, lo, la }'
exit $failed
