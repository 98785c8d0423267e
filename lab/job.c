#include "lab/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "lab/job_impl.h"

#define EXIT_MAX_NS INT64_C(5000000)
#define UPDATE_NS   INT64_C(500000)
#define STEP_NS     INT64_C(200000) /* of a step without samples */
#define MS          INT64_C(1000000)
/* An eighth of the least of real ones: who holds 32 KiB of unacknowledged small sums of each of ten
 * peers, as the measurement of collectives does, still has room for messages. */
#define BUFFER_BYTES (1 << 20)
#define XFERS_MAX    (1 << 15) /* of a worker (train/worker/worker.c) */

void rui_simjob_say(const rui_simjob *j, const rui_simjob_node *n, const char *fmt, ...)
{
    if (!j->opt->say) {
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%12.6f ms %3d: ", (double)ru_sim_now(j->sim).ns * 1e-6,
            n == NULL ? -1 : (int)n->index);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
    va_end(ap);
}

void rui_simjob_fail(rui_simjob *j, const rui_simjob_node *n, const char *fmt, ...)
{
    if (j->failed != RU_OK || j->opt->mad_bytes > 0) {
        return;
    }
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    rui_simjob_say(j, n, "BROKEN: %s", text);
    j->failed =
        ru_err_set(&j->failure, RU_E_BUG, "process %d at %.6f ms: %s",
                   n == NULL ? -1 : (int)n->index, (double)ru_sim_now(j->sim).ns * 1e-6, text);
    ru_sim_stop(j->sim);
}

/* Are all founders on one host? Then their ways stay inside. */
static bool inside_one(const ru_sim_job *job)
{
    bool one = job->host != NULL;
    for (uint32_t k = 1; one && k < job->founders; k++) {
        one = job->host[k] == job->host[0];
    }
    return one && job->nic.local_bytes_per_s > 0;
}

/* A worker of a world file is lost though nothing failed: its links carry less than the job needs,
 * so there is nothing to measure. */
static void lost_one(rui_simjob *j, const rui_simjob_node *n, int64_t worker)
{
    const ru_sim_nic *nic = &j->opt->nic;
    double at_s = (double)ru_sim_now(j->sim).ns * 1e-9;
    bool inside = inside_one(j->opt);
    rui_simjob_say(j, n, "lost worker %lld", (long long)worker);
    if (j->opt->script == NULL || j->opt->chaos.crash_per_s > 0 || j->result->faults > 0 ||
        j->failed != RU_OK) {
        return;
    }
    j->failed = ru_err_set(
        &j->failure, RU_E_PEER,
        "the %u workers lost worker %lld after %.1f s, and nothing failed: %s of %.3g bytes/s, "
        "%.3g s one way, let them hear too little of each other; simulate fewer workers or faster "
        "links",
        j->opt->founders, (long long)worker, at_s, inside ? "ways inside of the host" : "links",
        inside ? nic->local_bytes_per_s : nic->bytes_per_s,
        (double)(inside ? nic->local_delay_ns : nic->delay_ns) * 1e-9);
    ru_sim_stop(j->sim);
}

/* -- processes ------------------------------------------------------------------------------------
 */

/* The process is over: its kernel closes what it had open. */
static void leave(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_node *n = self;
    ru_sim_process_exit(&n->process);
}

static void committed(rui_simjob_node *n, int64_t step, ru_time now)
{
    rui_simjob *j = n->job;
    if (step < n->committed) {
        rui_simjob_fail(j, n, "commits went back from %lld to %lld", (long long)n->committed,
                        (long long)step);
    }
    n->committed = step;
    rui_simjob_check_commit(j, n, now);
    if (j->first_commit_ns == 0) {
        j->first_commit_ns = now.ns;
    }
    if (!j->chaos_on) {
        j->chaos_on = true;
        ru_sim_chaos c = j->opt->chaos;
        c.until.ns = j->opt->chaos_ns > 0 ? now.ns + j->opt->chaos_ns : 0;
        c.told = rui_simjob_told;
        c.told_self = j;
        ru_sim_chaos_start(j->sim, &c);
    }
}

static int64_t batch_at(void *self, int64_t position)
{
    const rui_simjob_node *n = self;
    return rui_simjob_batch_at(n->job, position);
}

/* A worker measures again when its sums drift from their plan. Here it does so whenever members
 * change, so that faults meet that, too. */
static void drifts(const rui_simjob_node *n)
{
    if (n->job->chaos_on) {
        ru_elastic_measure(n->elastic);
    }
}

static void on_news(void *self, const ru_elastic_news *news, ru_time now)
{
    rui_simjob_node *n = self;
    rui_simjob *j = n->job;
    switch (news->what) {
    case RU_ELASTIC_COMMITTED:
        committed(n, news->step, now);
        rui_simjob_say(j, n, "committed %lld", (long long)news->step);
        break;
    case RU_ELASTIC_JOINED:
        j->result->joined++;
        j->result->seen[RU_SIM_SEEN_JOIN] += j->chaos_on ? 1 : 0; /* not the founders */
        break;
    case RU_ELASTIC_LOST:
        j->result->lost++;
        lost_one(j, n, news->a);
        drifts(n);
        break;
    case RU_ELASTIC_LED:
        j->result->led++;
        rui_simjob_see(j, RU_SIM_SEEN_LED);
        rui_simjob_say(j, n, "leads now");
        drifts(n);
        break;
    case RU_ELASTIC_LEFT:
        j->result->left++;
        rui_simjob_say(j, n, "worker %lld left", (long long)news->a);
        break;
    case RU_ELASTIC_WORKS:
        drifts(n);
        break;
    case RU_ELASTIC_MEMBER:
    case RU_ELASTIC_SLOW:
    case RU_ELASTIC_SHARES:
    case RU_ELASTIC_PLANNED:
    case RU_ELASTIC_READS:
    case RU_ELASTIC_VIEW:
        break;
    case RU_ELASTIC_ENDED:
        if (n->ended) {
            rui_simjob_fail(j, n, "ended twice");
        }
        n->ended = true;
        n->status = news->status;
        snprintf(n->sentence, sizeof n->sentence, "%s",
                 news->sentence == NULL ? "" : news->sentence);
        rui_simjob_say(j, n, "ended after %lld steps: %s, %s", (long long)news->step,
                       ru_status_name(news->status), n->sentence);
        ru_sim_at_node(j->sim, n->process.node,
                       (ru_time){now.ns + 1 + ru_rng_below(&j->rng, (uint32_t)EXIT_MAX_NS)}, leave,
                       n, 0);
        break;
    }
}

/* All members of a view follow one plan. */
static void on_summed(void *self, const ru_elastic_sum *sum)
{
    rui_simjob_node *n = self;
    rui_simjob *j = n->job;
    rui_simjob_plan *p = &j->plans[sum->epoch % RU_ARRAY_LEN(j->plans)];
    if (p->epoch < sum->epoch) {
        *p = (rui_simjob_plan){.epoch = sum->epoch, .plan = sum->plan};
    } else if (p->epoch == sum->epoch && p->plan != sum->plan) {
        rui_simjob_fail(j, n, "sums gradients by another plan than its view");
    }
    if (sum->ended.ns < sum->begun.ns || sum->plan == 0 || sum->predicted_ns <= 0) {
        rui_simjob_fail(j, n, "a sum without plan, prediction or duration");
    }
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    const rui_simjob_node *n = self;
    if (level >= RU_LOG_WARN) {
        n->job->last_said_ns = now.ns;
    }
    rui_simjob_say(n->job, n, "log %d: %s", level, line);
}

/* Everybody is connected to the four oldest, as a leader and those next in line are; others need
 * only whom their transfers need. Without faults the oldest stay the oldest. */
static uint32_t peers_max(const rui_simjob_node *n)
{
    const rui_simjob *j = n->job;
    return n->index < 4 || !j->opt->counted || j->n_max < 128 ? j->n_max + 8 : 128;
}

static void begin(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_node *n = self;
    ru_node_start(n->node, ru_sim_now(n->job->sim));
}

static uint32_t host_of(const rui_simjob_node *n)
{
    const ru_sim_job *o = n->job->opt;
    if (o->host != NULL) {
        return n->place < o->founders ? o->host[n->place] : n->job->n_max + n->place;
    }
    return n->place / (o->per_host > 0 ? o->per_host : 1);
}

/* What is the same for all processes of a job. */
static ru_node_options options_of(rui_simjob_node *n, const ru_link *link, const char *join)
{
    const rui_simjob *j = n->job;
    ru_node_id id = {ru_rng_u64(&n->job->rng) | 1};
    n->id = id;
    /* Small cuts of tensors are many sums at one time; the buckets of a real job as well. */
    bool many = j->opt->cuts.bytes > 0 && j->n_max < 64;
    uint32_t transfers = peers_max(n) + (j->opt->script != NULL ? XFERS_MAX : many ? 8192 : 1024);
    ru_node_options o = {.link = *link};
    o.chan = (ru_chan_options){.self = id,
                               .address = n->address,
                               .job = j->opt->seed,
                               .token = j->token,
                               .token_bytes = sizeof j->token,
                               .peers_max = peers_max(n),
                               .streams_max = transfers,
                               .slots_max = transfers,
                               .buffer_bytes = j->n_max < 64 ? BUFFER_BYTES : 0,
                               .chunk_bytes = j->opt->chunk_bytes,
                               .rate_bytes_per_s = j->opt->nic.bytes_per_s,
                               .crc = !j->opt->counted};
    o.member = (ru_member_options){.join = join, .n_max = j->n_max};
    o.member.self.node = id;
    o.member.self.capacity = 1;
    o.member.self.no_vote = !rui_simjob_votes(j, n);
    o.member.self.tier = o.member.self.no_vote ? RU_TIER_TRANSIENT : RU_TIER_RELIABLE;
    snprintf(o.member.self.address, sizeof o.member.self.address, "%s", n->address);
    snprintf(o.member.self.host, sizeof o.member.self.host, "host%u", host_of(n));
    o.timers = (ru_node_timer_ops){ru_sim_process_timer, ru_sim_process_timer_off, &n->process};
    o.log = on_log;
    o.log_self = n;
    return o;
}

static ru_elastic_options training_of(rui_simjob_node *n)
{
    const rui_simjob *j = n->job;
    return (ru_elastic_options){.node = n->node,
                                .device = {rui_simjob_device_ops(j->opt), &n->device},
                                .news = on_news,
                                .news_self = n,
                                .summed = on_summed,
                                .batch = j->opt->batch,
                                .batch_at = batch_at,
                                .steps_end = j->opt->steps,
                                .founders = j->opt->founders,
                                .tensor_bytes = j->tensor_bytes,
                                .n_tensors = j->n_tensors,
                                .state_bytes = j->state_bytes,
                                .state_group = j->state_group,
                                .n_state = 2 * j->n_tensors,
                                .sums = j->opt->sums,
                                .servers = j->opt->pace.servers,
                                .deterministic = j->opt->deterministic,
                                .equal_shares = j->opt->equal_shares,
                                .piece_bytes = j->opt->piece_bytes,
                                .join_part = j->opt->join_part,
                                .probe_bytes = j->opt->probe_bytes,
                                .counted = j->opt->counted};
}

static void fire(void *self, uint32_t what, ru_time now)
{
    rui_simjob_node *n = self;
    ru_node_timer(n->node, what, now);
}

/* Names are those of real workers, so that the same tools read both. */
static ru_status recorder_open(rui_simjob_node *n, ru_err *err)
{
    if (n->job->opt->trace_dir == NULL) {
        return RU_OK;
    }
    const ru_recorder_options o = {
        .dir = n->job->opt->trace_dir, .process = "rubato sim", .rank = n->index, .driven = true};
    RU_TRY(ru_recorder_open(&o, &n->recorder, err));
    ru_recorder_thread(n->recorder, "process");
    n->names.step = ru_recorder_name(n->recorder, "step", "train");
    n->names.sums = ru_recorder_name(n->recorder, "sums of gradients", "train");
    return RU_OK;
}

/* The cores of its host, which the first worker there brings. */
static ru_status share_cores(rui_simjob_node *n, ru_err *err)
{
    rui_simjob *j = n->job;
    uint32_t host = host_of(n);
    if (!(j->opt->host_cores > 0) || host >= j->n_max) { /* a host of its own */
        return RU_OK;
    }
    if (j->cpus[host] == NULL) {
        j->cpus[host] = ru_sim_cpu_add(j->sim, j->opt->host_cores);
    }
    if (j->cpus[host] == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the cores of a simulated host");
    }
    double cores = j->opt->worker_cores > 0 ? j->opt->worker_cores : 1;
    ru_sim_dev_cores(n->device.dev, j->cpus[host], cores);
    return RU_OK;
}

/* A table as an owner has it: every gradient in cuts. */
static ru_status table_in_cuts(rui_simjob_node *n, ru_err *err)
{
    const rui_simjob *j = n->job;
    ru_sums_cut *cuts;
    uint32_t n_cuts;
    if (j->opt->cuts.bytes == 0) {
        return RU_OK;
    }
    ru_sums_part *parts = RU_NEW(&n->process.arena, ru_sums_part, j->n_tensors);
    if (parts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u gradients", j->n_tensors);
    }
    for (uint32_t k = 0; k < j->n_tensors; k++) {
        parts[k] = (ru_sums_part){
            .first = k,
            .n = 1,
            .size_bytes = j->tensor_bytes[k],
            .chunk_bytes = j->opt->cuts.bytes,
            .only = j->opt->cuts.algo > 0 ? (j->opt->cuts.algo + k) % (1 + RU_ALGO_HIERARCHY) : 0};
    }
    RU_TRY(ru_sums_cuts(parts, j->n_tensors, j->tensor_bytes, RU_ELASTIC_CUTS_MAX,
                        &n->process.arena, &cuts, &n_cuts, err));
    return ru_elastic_table_set(n->elastic, cuts, n_cuts, j->opt->cuts.flight, NULL, err);
}

static ru_status node_add(rui_simjob *j, const char *join, bool founder, uint32_t place,
                          ru_err *err)
{
    RU_CHECK(j->n < j->n_max);
    rui_simjob_node *n = &j->nodes[j->n];
    *n = (rui_simjob_node){.job = j, .index = j->n, .place = place, .founder = founder};
    j->n++;
    snprintf(n->address, sizeof n->address, "10.%u.%u.%u:7", place >> 16, place >> 8 & 255,
             place & 255);
    ru_sim_nic nic = j->opt->nic;
    nic.host = 1 + host_of(n);
    nic.shared = j->opt->share_wire;
    RU_TRY(ru_sim_process_open(&n->process, j->sim, n->address, &nic, fire, n, err));
    RU_TRY(rui_simjob_device_open(n, founder, err));
    RU_TRY(share_cores(n, err));
    if (founder && j->opt->quotas != NULL && j->opt->quotas[n->index].quota_ns > 0) {
        ru_sim_quota_set(j->sim, n->process.node, &j->opt->quotas[n->index]);
    }
    RU_TRY(recorder_open(n, err));
    ru_node_options o = options_of(n, &n->process.link, join);
    o.chan.recorder = n->recorder;
    RU_TRY(ru_node_open(&o, &n->process.arena, &n->node, err));
    const ru_elastic_options training = training_of(n);
    RU_TRY(ru_elastic_open(&training, &n->process.arena, &n->elastic, err));
    RU_TRY(table_in_cuts(n, err));
    if (n->device.program != NULL) {
        rui_simjob_program_begin(n->device.program);
    }
    ru_sim_process_user(&n->process, ru_node_link_user(n->node));
    rui_simjob_say(j, n, "process with %lld KiB", (long long)n->process.arena.used_bytes >> 10);
    ru_sim_at_node(j->sim, n->process.node, ru_sim_now(j->sim), begin, n, 0);
    return RU_OK;
}

/* Its own, or that of somebody whose process is over. */
static uint32_t place_of(rui_simjob *j)
{
    uint32_t from = ru_rng_below(&j->rng, j->n), free = j->n;
    for (uint32_t k = 0; k < j->n && j->opt->returns; k++) {
        const rui_simjob_node *n = &j->nodes[(from + k) % j->n];
        if (!ru_sim_alive(j->sim, n->process.node) && !ru_sim_vanished(j->sim, n->process.node) &&
            free == j->n) {
            free = n->place;
        }
    }
    for (uint32_t k = 0; k < j->n && free != j->n; k++) { /* nobody else is there by now */
        const rui_simjob_node *n = &j->nodes[k];
        if (n->place == free && ru_sim_alive(j->sim, n->process.node)) {
            return j->n;
        }
    }
    if (free != j->n) {
        rui_simjob_see(j, RU_SIM_SEEN_RETURN);
    }
    return free;
}

/* Somebody comes, by the address of anybody who is in. */
static void join(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob *j = self;
    uint32_t from = ru_rng_below(&j->rng, j->n);
    const rui_simjob_node *to = NULL;
    for (uint32_t k = 0; k < j->n && to == NULL; k++) {
        const rui_simjob_node *n = &j->nodes[(from + k) % j->n];
        if (n->in && !n->ended && ru_sim_alive(j->sim, n->process.node)) {
            to = n;
        }
    }
    if (to == NULL || j->n == j->n_max) {
        return;
    }
    uint32_t place = place_of(j);
    rui_simjob_say(j, NULL, "process %u joins by %u at 10.%u.%u.%u", j->n, to->index, place >> 16,
                   place >> 8 & 255, place & 255);
    ru_err err;
    if (node_add(j, to->address, false, place, &err) != RU_OK) {
        rui_simjob_fail(j, to, "a process could not be added: %s", err.text);
    }
}

/* -- running --------------------------------------------------------------------------------------
 */

/* A third forward, then the gradients one after the other, or in portions. */
static bool plain_script(rui_simjob *j)
{
    const ru_sim_job *o = j->opt;
    uint32_t n = j->n_tensors, groups = o->pace.ready_groups;
    ru_script *x = RU_NEW(&j->arena, ru_script, 1);
    double *ready = RU_NEW(&j->arena, double, n);
    if (x == NULL || ready == NULL) {
        return false;
    }
    groups = groups == 0 || groups > n ? n : groups;
    for (uint32_t g = 0, k = 0; g < groups; g++) {
        for (; k < (uint32_t)((g + 1) * (uint64_t)n / groups); k++) {
            ready[k] = (1 + 2 * (g + 1.0) / groups) / 3;
        }
    }
    *x = (ru_script){.fixed_ns = STEP_NS,
                     .sample_ns = (double)o->sample_ns,
                     .update_ns = UPDATE_NS,
                     .idle_ns = STEP_NS,
                     .size_bytes = j->tensor_bytes,
                     .ready = ready,
                     .n = n,
                     .early = o->pace.ahead};
    j->script = x;
    return true;
}

static bool shapes(rui_simjob *j)
{
    const ru_sim_job *o = j->opt;
    const ru_script *x = o->script;
    ru_rng rng = ru_rng_from(o->seed, ru_rng_label("shapes"));
    uint32_t n = x != NULL ? x->n : o->n_tensors > 0 ? o->n_tensors : 1 + ru_rng_below(&rng, 6);
    j->n_tensors = n;
    j->tensor_n = RU_NEW(&j->arena, int64_t, n);
    j->tensor_bytes = RU_NEW(&j->arena, int64_t, n);
    j->state_bytes = RU_NEW(&j->arena, int64_t, 2 * (int64_t)n);
    j->state_group = RU_NEW(&j->arena, uint32_t, 2 * (int64_t)n);
    j->first = RU_NEW(&j->arena, int64_t, (int64_t)n + 1);
    j->cpus = RU_NEW(&j->arena, ru_sim_cpu *, j->n_max);
    if (j->tensor_n == NULL || j->tensor_bytes == NULL || j->state_bytes == NULL ||
        j->state_group == NULL || j->first == NULL || j->cpus == NULL) {
        return false;
    }
    for (uint32_t k = 0; k < n; k++) {
        int64_t small = x != NULL || o->tensor_n != NULL ? 0 : 1 + ru_rng_below(&rng, 200);
        int64_t elements = x != NULL             ? x->size_bytes[k] / 4
                           : o->tensor_n != NULL ? o->tensor_n[k]
                                                 : small;
        j->tensor_n[k] = elements;
        j->tensor_bytes[k] = 4 * elements;
        j->state_bytes[k] = j->state_bytes[n + k] = 4 * elements;
        j->state_group[k] = j->state_group[n + k] = k;
        j->first[k + 1] = j->first[k] + elements;
    }
    j->script = x;
    return x != NULL || plain_script(j);
}

/* A simulation that takes what the machine has would end by the kernel's hand, or end others. */
static ru_status memory_kept(const rui_simjob *j, ru_time now, ru_err *err)
{
    int64_t bytes = ru_self_rss_bytes() - j->memory_first_bytes;
    if (j->memory_max_bytes <= 0 || bytes <= j->memory_max_bytes) {
        return RU_OK;
    }
    return RU_FAIL(err, RU_E_LIMIT,
                   "the simulation of %u workers takes more than its %" PRId64
                   " MiB of memory, %.3f s into the job; give it more or simulate fewer workers",
                   j->opt->founders + j->opt->joiners, j->memory_max_bytes >> 20,
                   (double)now.ns * 1e-9);
}

static void memory_open(rui_simjob *j)
{
    int64_t free_bytes = j->opt->memory_max_bytes <= 0 ? ru_memory_free_bytes() : 0;
    j->memory_first_bytes = ru_self_rss_bytes();
    j->memory_max_bytes =
        j->opt->memory_max_bytes > 0 ? j->opt->memory_max_bytes : free_bytes / 4 * 3;
}

static ru_status after_event(void *self, ru_time now, ru_err *err)
{
    enum { EVENTS = 1 << 14 }; /* between two looks at the memory: some milliseconds */
    rui_simjob *j = self;
    if (ru_sim_events(j->sim) % EVENTS == 0) {
        RU_TRY(memory_kept(j, now, err));
    }
    return rui_simjob_invariant(j, now, err);
}

static ru_status start(rui_simjob *j, ru_err *err)
{
    const ru_sim_job *o = j->opt;
    const ru_sim_options so = {.seed = o->seed,
                               .nodes_max = j->n_max,
                               .events_max = o->events_max,
                               .halves = !o->counted && o->seed % 2 == 1,
                               .invariant = after_event,
                               .invariant_self = j};
    RU_TRY(ru_sim_open(&so, &j->sim, err));
    RU_TRY(rui_simjob_oracle_open(j, err));
    if (o->input != NULL) {
        o->input->open(o->input->self, j->sim);
    }
    for (uint32_t k = 0; k < sizeof j->token; k++) {
        j->token[k] = (uint8_t)ru_rng_u32(&j->rng);
    }
    for (uint32_t k = 0; k < o->founders; k++) {
        RU_TRY(node_add(j, k == 0 ? NULL : j->nodes[0].address, true, k, err));
        RU_TRY(k % 16 == 0 ? memory_kept(j, (ru_time){0}, err) : RU_OK);
    }
    for (uint32_t k = 0; k < o->joiners; k++) {
        double at = ru_rng_uniform(&j->rng, (double)o->join_from_ns, (double)o->join_to_ns + 1);
        ru_sim_at(j->sim, (ru_time){1 + (int64_t)at}, join, j, k);
    }
    for (uint32_t k = 0; k < o->leavers; k++) {
        double at = ru_rng_uniform(&j->rng, (double)o->join_from_ns, (double)o->join_to_ns + 1);
        ru_sim_at(j->sim, (ru_time){1 + (int64_t)at}, rui_simjob_leaves, j, k);
    }
    if (o->mad_bytes > 0) {
        ru_sim_at(j->sim, (ru_time){20 * MS}, rui_simjob_mad, j, 1);
    }
    return RU_OK;
}

static ru_status go(rui_simjob *j, ru_err *err)
{
    int64_t end_ns = j->opt->time_max_ns > 0 ? j->opt->time_max_ns : 60000 * MS;
    while (!rui_simjob_over(j) && !j->mad_done && j->failed == RU_OK &&
           ru_sim_now(j->sim).ns < end_ns) {
        int64_t until_ns = ru_sim_now(j->sim).ns + 100 * MS;
        RU_TRY(ru_sim_run(j->sim, (ru_time){until_ns < end_ns ? until_ns : end_ns}, err));
    }
    if (j->failed == RU_OK && j->opt->mad_bytes == 0) {
        rui_simjob_check_end(j);
    }
    return j->failed == RU_OK ? RU_OK : RU_FAIL(err, j->failed, "%s", j->failure.text);
}

static void result_of(rui_simjob *j, ru_sim_job_result *r)
{
    r->events = ru_sim_events(j->sim);
    r->time_ns = ru_sim_now(j->sim).ns;
    r->hash = ru_sim_hash(j->sim);
    r->memory_bytes = ru_sim_memory_bytes(j->sim);
    r->seen[RU_SIM_SEEN_OVERTAKE] = ru_sim_overtaken(j->sim) > 0 ? 1 : 0;
    r->seen[RU_SIM_SEEN_ELSEWHERE] = (uint32_t)ru_sim_redirected(j->sim);
    for (uint32_t k = 0; k < j->n; k++) {
        ru_member_facts f = {0};
        if (j->nodes[k].node != NULL) {
            ru_member_facts_get(ru_node_member(j->nodes[k].node), &f);
        }
        r->seen[RU_SIM_SEEN_REDIRECT] += f.redirects;
    }
    for (uint32_t k = 0; k < j->n; k++) {
        ru_sim_node_stats s;
        ru_sim_node_stats_get(j->sim, j->nodes[k].process.node, &s);
        r->wire_bytes += s.tx_bytes;
    }
    r->compute_ns = j->computed_n > 0 ? j->computed_ns / j->computed_n : 0;
    r->seen[RU_SIM_SEEN_REDONE] = r->redone;
    r->seen[RU_SIM_SEEN_EXPELLED] = r->expelled;
    r->step_ns =
        r->committed > 1 ? (j->last_commit_ns - j->first_commit_ns) / (r->committed - 1) : 0;
}

ru_status ru_sim_job_run(const ru_sim_job *job, ru_sim_job_result *into, ru_err *err)
{
    *into = (ru_sim_job_result){0};
    rui_simjob j = {.opt = job,
                    .rng = ru_rng_from(job->seed, ru_rng_label("job")),
                    .n_max = job->founders + job->joiners,
                    .result = into};
    ru_arena_init(&j.arena, 0);
    ru_map_init(&j.epochs, &j.arena, 0);
    ru_map_init(&j.committers, &j.arena, 0);
    j.nodes = RU_NEW(&j.arena, rui_simjob_node, j.n_max);
    RU_CHECK(job->script == NULL || job->counted);
    memory_open(&j);
    bool fits = j.nodes != NULL && shapes(&j);
    ru_status st = fits ? start(&j, err) : RU_FAIL(err, RU_E_MEM, "no memory for a simulated job");
    if (st == RU_OK) {
        st = go(&j, err);
    }
    if (j.sim != NULL) {
        result_of(&j, into);
    }
    for (uint32_t k = 0; k < j.n; k++) {
        j.nodes[k].process.gone = true;
        ru_node_quiet(j.nodes[k].node);
        ru_elastic_close(j.nodes[k].elastic);
        ru_node_close(j.nodes[k].node);
        for (uint32_t c = 0; j.nodes[k].device.copies != NULL && c < RUI_SIMJOB_COPIES; c++) {
            free(j.nodes[k].device.copies[c].data);
        }
        rui_simjob_program_close(j.nodes[k].device.program);
        ru_recorder_close(j.nodes[k].recorder);
        ru_sim_process_fini(&j.nodes[k].process);
    }
    ru_sim_close(j.sim);
    ru_arena_fini(&j.arena);
    if (st != RU_OK) {
        char replay[96];
        ru_sim_job_replay(job->seed, replay, sizeof replay);
        return ru_err_wrap(err, st, "seed %" PRIu64 " (%s)", job->seed,
                           job->replay != NULL ? job->replay : replay);
    }
    return RU_OK;
}

void ru_sim_job_replay(uint64_t seed, char *into, int64_t size_bytes)
{
    snprintf(into, (size_t)size_bytes, "rubato bench sim --only seed:%" PRIu64, seed);
}
