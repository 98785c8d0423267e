#!/bin/bash
# A cluster whose nodes are jobs of Slurm: cluster_slurm.sh PATH_OF_RUBATO
#
#   1. no job, no node; a job that needs two gets two, and gives one back when it is scaled down.
#   2. the scheduler is killed: the next one finds its nodes in Slurm among 20,000 jobs of others, and asks for as many as the file now says.
#   3. preemption: another job of Slurm takes a node. The agent's step gets SIGTERM, the worker moves to a free node, the
#      other one stays, no sample is lost.
#   4. slurmctld is killed and starts again: no worker notices. `down` leaves no job of Slurm.
#   5. the script of slurm-script trains on Slurm alone.
#
# Its job runs until it is told to end: where the machine can bound a worker, each has a tenth of a core.
. "$(dirname "$0")/clusters.sh"
slurm=$here/slurm.sh
bash "$slurm" check || exit $?
leaves() { bash "$slurm" down "$work/slurm" || true; }
SLURM_CONF=$(bash "$slurm" up slurm 3)
export SLURM_CONF
agents() { squeue -h -t RUNNING -p main -o %i | wc -l; }
cat >mlp.yaml <<JOB
name: guest
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 400, test_count: 40}
train: {optimizer: {sgd: {lr: 0.02}}, batch: 40, epochs: 1000000, autotune: false, threads: 1}
checkpoint: {every: 200ms}
JOB
cat >cluster.yaml <<FILE
folder: cl
accounts: shared
round: 1s
slurm: {nodes: 3, slots: 1, threads: 2, cpu: 0.1, partition: main, idle: 1s, options: [--time=30]}
FILE

# -- 1
cluster up cluster.yaml >/dev/null || fail "the cluster does not come up: $(cat cl/log/scheduler)"
[[ $(squeue -h | wc -l) -eq 0 ]] || fail "nodes without a job: $(squeue)"
cluster submit mlp.yaml -w 2 >/dev/null
waits_for 2 field 1 workers
[[ $(agents) -eq 2 ]] || fail "agents are no jobs of Slurm: $(squeue)"
cluster scale 1 1 >/dev/null
waits_for 1 field 1 workers
waits_for 1 agents
[[ $(field 1 generation) == 1 ]] || fail "the job was started again"
echo "ok: nodes come and go with the jobs"

# -- 2
kept=$(squeue -h -p main -t RUNNING -o %i)
slay "$(pid_of cl/run/scheduler.pid)"
sed -i 's/nodes: 3/nodes: 3, nodes_min: 3/' cluster.yaml
mkdir shims
awk 'BEGIN { for (k = 1; k <= 20000; k++) printf "%d_%d|PENDING|somebody-elses-%d|Resources\n", 1000000 + k, k, k }' >others
printf '#!/bin/bash\ncat "%s/others"\nexec %s "$@"\n' "$work" "$(command -v squeue)" >shims/squeue
chmod +x shims/squeue
PATH="$work/shims:$PATH" cluster up cluster.yaml >/dev/null || fail "the cluster does not come up again"
waits_for 3 agents
grep -qx "$kept" <<<"$(squeue -h -p main -o %i)" || fail "the next scheduler does not know its node: $(squeue), not $kept"
up_nodes() { cluster nodes | grep -c ' up$'; }
waits_for 3 up_nodes
cluster scale 1 2 >/dev/null
waits_for 2 field 1 workers
[[ $(field 1 generation) == 1 ]] || fail "the job was started again"
echo "ok: another scheduler"

# -- 3
in_job() { cluster explain 1 | sed -n 's/.*; \([0-9]* of [0-9]*\) processes are in the job/\1/p'; }
settled() { [[ $(workers 1 | wc -l) -ne 2 ]] || in_job; } # who comes is there, who goes has gone
waits_for '2 of 2' settled
before=$(workers 1)
busy() { cluster nodes | awk '$4 == 1 { print substr($1, 6) }' | sed -n 1p; } # a seat with a worker
job_of() { squeue -h -p main -o '%i %j' | awk -v s="-$1" 'substr($2, length($2) - length(s) + 1) == s { print $1 }'; }
node=$(squeue -h -j "$(job_of "$(busy)")" -o %N)
urgent=$(sbatch --parsable -p urgent -N1 -n1 -c2 -w "$node" --job-name=other -o /dev/null --wrap 'exec sleep 600')
waits_for RUNNING squeue -h -j "$urgent" -o %T
waits_for '2 of 2' in_job
[[ -n $(comm -12 <(echo "$before") <(workers 1)) ]] || fail "no worker stayed through the preemption"
[[ $(workers 1) != "$before" ]] || fail "no worker was preempted on $node"
[[ $(field 1 generation) == 1 ]] || fail "the job was started again by the preemption"
grep -q 'notice node slurm' cl/log/slurm* || fail "no agent had a notice: $(cat cl/log/*)"
scancel "$urgent"
waits_for 3 up_nodes
echo "ok: preemption"

# -- 4
waits_for '2 of 2' settled
before=$(workers 1)
# It saves what it knows within 5 s, and forgets the rest.
mark=saved-$$
scontrol update JobId="$(squeue -h -p main -t RUNNING -o %i | sed -n 1p)" Comment=$mark || fail "no job of Slurm can be marked"
saved() { ! grep -qa $mark slurm/state/job_state || echo yes; }
waits_for yes saved
bash "$slurm" stop slurm slurmctld
bash "$slurm" start slurm slurmctld
waits_for 3 agents
[[ $(workers 1) == "$before" ]] || fail "workers changed while slurmctld was away"
cluster cancel 1 >/dev/null
waits_for cancelled field 1 state
grep '"rubato.train.step/1"' cl/jobs/1/metrics.jsonl | sed 's/.*"step":\([0-9]*\),.*/\1/' >steps
[[ $(sort -n steps | uniq -d | wc -l) -eq 0 && $(wc -l <steps) -eq $(tail -1 steps) ]] || fail "the job did not do each step once"
grep -q '"samples_lost":0,"samples_repeated":0' cl/jobs/1/metrics.jsonl || fail "lost samples, or no summary: $(tail -n 2 cl/jobs/1/metrics.jsonl cl/jobs/1/tell.* cl/log/*)"
cluster down || fail "down"
[[ -z $(squeue -h -t RUNNING,PENDING) ]] || fail "down left jobs of Slurm: $(squeue)"
echo "ok: slurmctld starts again, down"

# -- 5
cluster slurm-script mlp.yaml --threads 2 --set train.epochs=5 >alone.sh
id=$(sbatch --parsable alone.sh)
ended() { ! grep -q 'done: 50 steps' "guest-$id.log" || echo yes; }
waits_for yes ended
echo "ok: Slurm alone"
exit $failed
