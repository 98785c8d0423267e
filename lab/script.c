#include "lab/script.h"

#include <stdlib.h>
#include <string.h>

#include "cost/step/coll.h"
#include "cost/step/op.h"
#include "cost/step/step.h"
#include "train/elastic/elastic.h"

/* The list of op instances of the worker that the first step fact is of, else of the first worker:
 * before the update, and it. */
typedef struct list {
    const ru_op_fact *at;
    uint32_t n, update_from;
} list;

static list list_of(const ru_world *w)
{
    uint32_t rank = w->facts.steps.n > 0 ? w->facts.steps.at[0].rank : 0;
    uint32_t n = w->facts.ops.n, first = 0;
    while (first < n && w->facts.ops.at[first].rank != rank) {
        first++;
    }
    first = first < n ? first : 0;
    list l = {.at = n > 0 ? w->facts.ops.at + first : NULL};
    while (first + l.n < n && l.at[l.n].rank == l.at[0].rank) {
        l.n++;
    }
    l.update_from = l.n;
    for (uint32_t i = 0; i < w->facts.transfers.n; i++) {
        int64_t needed = w->facts.transfers.at[i].needed_by;
        for (uint32_t k = 0; k < l.update_from && needed >= 0; k++) {
            l.update_from = l.at[k].step >= needed ? k : l.update_from;
        }
    }
    return l;
}

/* Time of ops [from, to) with `factor` times the samples. */
static double time_of(const ru_op_model *m, const list *l, uint32_t from, uint32_t to,
                      double factor)
{
    double ns = 0;
    for (uint32_t i = from; i < to; i++) {
        ns += ru_cost_op_scaled(m, &l->at[i], factor).ns;
    }
    return ns;
}

static void note_errors(const ru_op_model *m, const list *l, ru_sim_world *out)
{
    double off = 0, all = 0;
    for (uint32_t i = 0; i < l->update_from; i++) {
        ru_op_time t = ru_cost_op(m, &l->at[i]);
        out->measured += t.source == RU_OP_MEASURED;
        off += t.error * t.ns;
        all += t.ns;
    }
    out->n_ops = l->update_from;
    out->error = all > 0 ? off / all : 0;
}

/* -- gradients ------------------------------------------------------------------------------------
 */

static bool comes_before(const ru_transfer_fact *a, const ru_transfer_fact *b)
{
    return a->made_by < b->made_by;
}

static ru_status no_memory(uint32_t n, ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "no memory for %u gradients", n);
}

/* Room for n gradients in the script. */
static bool put_room(ru_script *x, uint32_t n, ru_arena *arena, int64_t **size_bytes,
                     double **ready)
{
    *size_bytes = RU_NEW(arena, int64_t, n);
    *ready = RU_NEW(arena, double, n);
    x->size_bytes = *size_bytes;
    x->ready = *ready;
    return *size_bytes != NULL && *ready != NULL;
}

/* Gradients in the order in which they are made. */
static ru_status put_tensors(const ru_world *w, const ru_op_model *m, const list *l,
                             ru_arena *arena, ru_arena *scratch, ru_script *script, ru_err *err)
{
    uint32_t n = w->facts.transfers.n, n_made = 0;
    int64_t *size_bytes;
    double *ready;
    const ru_transfer_fact **at = RU_NEW(scratch, const ru_transfer_fact *, n);
    if (at == NULL || !put_room(script, n, arena, &size_bytes, &ready)) {
        return no_memory(n, err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ru_transfer_fact *x = &w->facts.transfers.at[i];
        uint32_t k = n_made;
        if (x->made_by < 0 || x->size_bytes < 4) {
            continue;
        }
        for (; k > 0 && comes_before(x, at[k - 1]); k--) {
            at[k] = at[k - 1];
        }
        at[k] = x;
        n_made++;
    }
    double all = time_of(m, l, 0, l->update_from, 1), before = 0;
    uint32_t step = 0;
    for (uint32_t i = 0; i < n_made; i++) {
        for (; step < l->update_from && l->at[step].step <= at[i]->made_by; step++) {
            before += ru_cost_op(m, &l->at[step]).ns;
        }
        size_bytes[i] = at[i]->size_bytes / 4 * 4;
        ready[i] = all > 0 ? before / all : 1;
    }
    script->n = n_made;
    return RU_OK;
}

static ru_status put_device(const ru_world *w, const ru_op_model *m, const list *l,
                            const ru_step_fact *s, ru_arena *arena, ru_arena *scratch,
                            ru_sim_world *out, ru_err *err)
{
    ru_script *x = &out->script;
    double n = (double)(s->samples > 0 ? s->samples : 1);
    double whole = time_of(m, l, 0, l->update_from, 1);
    double half = time_of(m, l, 0, l->update_from, 0.5);
    out->compute_ns = (int64_t)whole;
    x->sample_ns = whole > half ? (whole - half) / (n / 2) : whole / n;
    x->fixed_ns = (int64_t)(whole - n * x->sample_ns);
    x->fixed_ns = x->fixed_ns > 0 ? x->fixed_ns : 0;
    x->update_ns = (int64_t)time_of(m, l, l->update_from, l->n, 1);
    note_errors(m, l, out);
    return put_tensors(w, m, l, arena, scratch, x, err);
}

/* No op instance was measured: the step facts' compute time, gradients at equal distances. */
static ru_status put_plain(const ru_world *w, const ru_step_fact *s, ru_arena *arena,
                           ru_sim_world *out, ru_err *err)
{
    const ru_conf_i64s *bytes = &w->jobs.at[0].gradient_bytes;
    int64_t *size_bytes;
    double *ready;
    ru_script *x = &out->script;
    if (!put_room(x, bytes->n, arena, &size_bytes, &ready)) {
        return no_memory(bytes->n, err);
    }
    for (uint32_t i = 0; i < bytes->n; i++) {
        if (bytes->at[i] >= 4) {
            size_bytes[x->n++] = bytes->at[i] / 4 * 4;
        }
    }
    for (uint32_t k = 0; k < x->n; k++) {
        ready[k] = (1 + 2 * (k + 1.0) / x->n) / 3; /* a third is forward */
    }
    out->compute_ns = (int64_t)s->compute_ns;
    x->sample_ns = s->compute_ns / (double)(s->samples > 0 ? s->samples : 1);
    return RU_OK;
}

/* -- the step as a path ---------------------------------------------------------------------------
 */

/* A sum on links of this latency and rate, by the fastest algorithm. */
static int64_t sum_ns(const ru_sim_job *job, const ru_sim_world *x, int64_t size_bytes)
{
    static const ru_coll_algo algos[] = {RU_ALGO_RING, RU_ALGO_HALVING, RU_ALGO_DOUBLING,
                                         RU_ALGO_DIRECT};
    bool inside = x->hosts == 1 && job->nic.local_bytes_per_s > 0;
    const ru_coll_cost c = {
        .alpha_ns = (double)(inside ? job->nic.local_delay_ns : job->nic.delay_ns),
        .beta_ns = 1e9 / (inside ? job->nic.local_bytes_per_s : job->nic.bytes_per_s),
        .n_points = 2};
    int64_t best_ns = INT64_MAX;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(algos); k++) {
        int64_t ns = ru_cost_coll_ns(&c, RU_COLL_ALL_REDUCE, algos[k], job->founders, size_bytes);
        best_ns = ns < best_ns ? ns : best_ns;
    }
    return job->founders > 1 ? best_ns : 0;
}

/* The compute of the slowest share cut where buckets become ready, each bucket's sum behind it, its
 * part of the update behind that; then the leader hears of it and says that the step counts. What
 * the simulator plays with messages, played with costs alone. */
static ru_status put_path(const ru_sim_job *job, ru_arena *arena, ru_arena *scratch,
                          ru_sim_world *out, ru_err *err)
{
    const ru_script *s = &out->script;
    ru_sums_part *parts;
    ru_sums_cut *at;
    uint32_t n, n_edges = 0;
    RU_TRY(ru_sums_first(s->size_bytes, s->n, job->sums, scratch, &parts, &n, err));
    RU_TRY(ru_sums_cuts(parts, n, s->size_bytes, RU_ELASTIC_CUTS_MAX, scratch, &at, &n, err));
    ru_step_task *tasks = RU_NEW(arena, ru_step_task, 3 * (int64_t)n);
    ru_step_edge *edges = RU_NEW(arena, ru_step_edge, 4 * (int64_t)n);
    if (tasks == NULL || edges == NULL) {
        return no_memory(s->n, err);
    }
    int64_t share = (job->batch + job->founders - 1) / job->founders;
    double whole_ns = ((double)s->fixed_ns + (double)share * s->sample_ns) * out->slower;
    int64_t at_ns = 0, all_bytes = 0;
    for (uint32_t b = 0; b < n; b++) {
        all_bytes += at[b].size_bytes;
    }
    for (uint32_t b = 0; b < n; b++) {
        const ru_sums_cut *u = &at[b];
        double part = u->first + u->n == s->n ? 1 : s->ready[u->first + u->n - 1];
        int64_t until_ns = (int64_t)(whole_ns * part);
        tasks[b] = (ru_step_task){.ns = until_ns > at_ns ? until_ns - at_ns : 0, .rank = b};
        tasks[n + b] =
            (ru_step_task){.ns = sum_ns(job, out, u->size_bytes), .rank = b, .server = 1};
        double update = (double)u->size_bytes / (double)all_bytes;
        tasks[2 * n + b] = (ru_step_task){
            .ns = (int64_t)((double)s->update_ns * out->slower * update), .rank = n + b};
        at_ns += tasks[b].ns;
        edges[n_edges++] = (ru_step_edge){b, n + b};
        edges[n_edges++] = (ru_step_edge){s->early ? n + b : 2 * n - 1, 2 * n + b};
        if (b > 0) {
            edges[n_edges++] = (ru_step_edge){b - 1, b};
        }
    }
    const ru_step_in in = {
        .tasks = tasks, .n = 3 * n, .edges = edges, .n_edges = n_edges, .n_servers = 2};
    ru_step_times t;
    RU_TRY(ru_cost_step(&in, arena, scratch, &t, err));
    out->path_ns = t.makespan_ns + (job->founders > 1 ? 2 * job->nic.delay_ns : 0);
    return RU_OK;
}

/* -- links ----------------------------------------------------------------------------------------
 */

/* The measurements of one flat algorithm on one number of ranks: its smallest and its largest. */
typedef struct measured {
    const ru_coll_fact *small, *large;
} measured;

static bool is_plain(const ru_coll_fact *f, const char *algo, uint32_t ranks)
{
    return strcmp(f->algo, algo) == 0 && strcmp(f->op, "all-reduce") == 0 && f->chunk_bytes == 0 &&
           f->n_ranks == ranks && f->took.count > 0 && f->took.mean_ns >= 1 &&
           f->took.predicted_ns <= 0;
}

static measured measured_of(const ru_world *w, const char *algo, uint32_t ranks)
{
    measured m = {NULL, NULL};
    for (uint32_t i = 0; i < w->facts.collectives.n; i++) {
        const ru_coll_fact *f = &w->facts.collectives.at[i];
        if (is_plain(f, algo, ranks)) {
            m.small = m.small == NULL || f->size_bytes < m.small->size_bytes ? f : m.small;
            m.large = m.large == NULL || f->size_bytes > m.large->size_bytes ? f : m.large;
        }
    }
    return m.small != m.large ? m : (measured){NULL, NULL};
}

static int by_rate(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

/* What the largest sums say of the link's rate. Each algorithm was measured once: waiting for a
 * processor makes some slower, a link that saved up for bursts the first one faster, so the second
 * fastest of the four flat ones counts. A step of the fastest of the smallest sums is the delay. */
static bool fit_link(const ru_world *w, double *bytes_per_s, int64_t *delay_ns, double *error)
{
    static const ru_coll_algo algos[] = {RU_ALGO_RING, RU_ALGO_HALVING, RU_ALGO_DOUBLING,
                                         RU_ALGO_DIRECT};
    double rates[RU_ARRAY_LEN(algos)], step_ns = 0;
    uint32_t n = 0, ranks = w->facts.collectives.n > 0 ? w->facts.collectives.at[0].n_ranks : 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(algos) && ranks >= 2; k++) {
        measured m = measured_of(w, ru_coll_algo_name(algos[k]), ranks);
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algos[k], ranks);
        if (m.large != NULL && t.steps > 0) {
            double ns = m.small->took.mean_ns / t.steps;
            step_ns = step_ns == 0 || ns < step_ns ? ns : step_ns;
        }
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(algos) && step_ns > 0; k++) {
        measured m = measured_of(w, ru_coll_algo_name(algos[k]), ranks);
        ru_coll_terms t = ru_cost_coll_terms(RU_COLL_ALL_REDUCE, algos[k], ranks);
        double ns = m.large != NULL ? m.large->took.mean_ns - t.steps * step_ns : 0;
        if (ns > 0) {
            rates[n++] = t.busy * (double)m.large->size_bytes * 1e9 / ns;
        }
    }
    qsort(rates, n, sizeof *rates, by_rate);
    if (n == 0) {
        return false;
    }
    *bytes_per_s = rates[(n - 1) * 3 / 4];
    *error = (rates[(n - 1) * 3 / 4] - rates[(n - 1) / 2]) / *bytes_per_s;
    *delay_ns = (int64_t)step_ns > 0 ? (int64_t)step_ns : 1;
    return true;
}

/* Measured collectives tell of the way between the workers that ran: inside of their host when they
 * had only one. */
static void put_link(const ru_world *w, uint32_t workers, ru_sim_job *job, ru_sim_world *out)
{
    ru_sim_nic *nic = &job->nic;
    bool inside = w->cluster.hosts.n == 1 && workers > 1;
    double *rate = inside ? &nic->local_bytes_per_s : &nic->bytes_per_s;
    int64_t *delay = inside ? &nic->local_delay_ns : &nic->delay_ns;
    out->link_measured = fit_link(w, rate, delay, &out->link_error);
    if (nic->bytes_per_s <= 0 && w->cluster.hosts.n > 0) {
        nic->bytes_per_s = w->cluster.hosts.at[0].net_bytes_per_s;
        nic->delay_ns = w->cluster.hosts.at[0].net_latency_ns;
    }
    if (nic->bytes_per_s <= 0) {
        nic->bytes_per_s = 1.25e9;
        out->link_assumed = out->hosts > 1;
    }
    nic->delay_ns = nic->delay_ns > 0 ? nic->delay_ns : 10000;
}

/* -- hosts ----------------------------------------------------------------------------------------
 */

/* So many of the workers that ran were on one host. */
static uint32_t per_host_of(const ru_world *w, uint32_t workers)
{
    uint32_t hosts = w->cluster.hosts.n;
    return hosts == 0 ? 1 : (workers + hosts - 1) / hosts;
}

static ru_status put_hosts(const ru_world *w, uint32_t workers, ru_arena *arena, ru_sim_job *job,
                           ru_sim_world *out, ru_err *err)
{
    const ru_cluster *c = &w->cluster;
    uint32_t *host = RU_NEW(arena, uint32_t, job->founders);
    uint32_t per = job->per_host > 0 ? job->per_host : per_host_of(w, workers);
    bool listed = job->per_host == 0 && c->devices.n >= job->founders && c->devices.n >= workers;
    if (host == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", job->founders);
    }
    for (uint32_t k = 0; k < job->founders; k++) {
        host[k] = listed ? ru_cluster_host_find(c, c->devices.at[k].host) : k / per;
        out->hosts = host[k] + 1 > out->hosts ? host[k] + 1 : out->hosts;
    }
    out->slower = 1;
    job->host = host;
    job->share_wire = out->hosts < job->founders;
    if (c->hosts.n == 0 || c->hosts.at[0].cores == 0) {
        return RU_OK;
    }
    uint32_t cores = c->hosts.at[0].cores, ran = per_host_of(w, workers);
    uint32_t mine = c->devices.n > 0 && c->devices.at[0].cores > 0 ? c->devices.at[0].cores : cores;
    job->host_cores = cores;
    job->worker_cores = mine;
    /* What was measured while workers waited for cores of their host is longer than it takes. */
    double wanted = (double)ran * mine, alone = wanted > cores ? cores / wanted : 1;
    double want = (double)((job->founders + out->hosts - 1) / out->hosts) * mine;
    out->slower = want > cores ? want / cores : 1;
    out->script.fixed_ns = (int64_t)((double)out->script.fixed_ns * alone);
    out->script.sample_ns *= alone;
    out->script.update_ns = (int64_t)((double)out->script.update_ns * alone);
    return RU_OK;
}

/* -- devices --------------------------------------------------------------------------------------
 */

static const ru_processor_fact *processor_of(const ru_world *w, uint32_t rank)
{
    for (uint32_t k = 0; k < w->facts.processors.n; k++) {
        const ru_processor_fact *p = &w->facts.processors.at[k];
        if (p->rank == rank && p->compute_ns > 0) {
            return p;
        }
    }
    return NULL;
}

/* Arithmetic a ns of one worker's ops before the update; 0: not measured. A worker with a quota
 * takes longer than it computes: then a ns of processor time. */
static double rate_of(const ru_world *w, uint32_t rank, uint32_t update_from)
{
    double flops = 0, ns = 0, all_ns = 0;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        const ru_op_fact *f = &w->facts.ops.at[i];
        if (f->rank == rank && f->took.count > 0) {
            bool before = f->step < update_from;
            flops += before ? (double)f->flops : 0;
            ns += before ? f->took.mean_ns : 0;
            all_ns += f->took.mean_ns;
        }
    }
    const ru_processor_fact *p = processor_of(w, rank);
    if (p != NULL && p->quota_ns > 0 && all_ns > p->compute_ns) {
        ns *= p->compute_ns / all_ns;
    }
    return ns > 0 ? flops / ns : 0;
}

/* Each worker as fast as it was against the one whose list this is; more workers: as fast as those,
 * in turn. */
static ru_status put_speeds(const ru_world *w, const list *l, ru_arena *arena, ru_sim_job *job,
                            ru_err *err)
{
    double *speeds = RU_NEW(arena, double, job->founders),
           *known = RU_NEW(arena, double, w->facts.ops.n);
    if (speeds == NULL || known == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", job->founders);
    }
    double mine = l->n > 0 ? rate_of(w, l->at[0].rank, l->update_from) : 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.ops.n; i++) {
        uint32_t rank = w->facts.ops.at[i].rank;
        if (i == 0 || rank != w->facts.ops.at[i - 1].rank) {
            double rate = rate_of(w, rank, l->update_from);
            known[n++] = mine > 0 && rate > 0 ? rate / mine : 1;
        }
    }
    for (uint32_t k = 0; k < job->founders; k++) {
        speeds[k] = n > 0 ? known[k % n] : 1;
    }
    job->speeds = speeds;
    return RU_OK;
}

/* Processor time that a byte takes, both ways: a worker sends and receives nearly all its
 * gradients twice, once to sum them and once to share the sums. */
static double byte_ns_of(const ru_processor_fact *p, const ru_sim_world *out, uint32_t workers)
{
    double bytes = 0;
    for (uint32_t k = 0; k < out->script.n; k++) {
        bytes += (double)out->script.size_bytes[k];
    }
    bytes *= 4 * (double)(workers - 1) / workers;
    return bytes > 0 ? p->message_ns / bytes : 0;
}

/* Does the worker, on so many cores, ever use its quota up? */
static bool binds(const ru_processor_fact *p, double cores)
{
    return p->quota_ns >= 1 && p->period_ns >= 1 && p->quota_ns < cores * p->period_ns;
}

/* Quotas of the workers; more workers: those of the others in turn. With a quota an op's time has
 * pauses in it, which come again when the simulated quota is used up: durations become processor
 * time. */
static ru_status put_quotas(const ru_world *w, const list *l, uint32_t workers, ru_arena *arena,
                            ru_sim_job *job, ru_sim_world *out, ru_err *err)
{
    const ru_processor_fact *mine =
        processor_of(w, out->n_ops > 0 ? l->at[0].rank : w->facts.steps.at[0].rank);
    ru_script *x = &out->script;
    double all = (double)out->compute_ns + (double)x->update_ns;
    double cores = job->worker_cores > 0 ? job->worker_cores : 1;
    if (mine == NULL || !(all > 0)) {
        return RU_OK;
    }
    double part = binds(mine, cores) ? mine->compute_ns / (cores * all) : 1;
    part = part < 1 ? part : 1;
    x->fixed_ns = (int64_t)((double)x->fixed_ns * part);
    x->sample_ns *= part;
    x->update_ns = (int64_t)((double)x->update_ns * part);
    ru_sim_quota *quotas = RU_NEW(arena, ru_sim_quota, job->founders);
    if (quotas == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u workers", job->founders);
    }
    ru_rng rng = ru_rng_from(job->seed, ru_rng_label("quotas"));
    for (uint32_t k = 0; k < job->founders; k++) {
        const ru_processor_fact *p = &w->facts.processors.at[k % w->facts.processors.n];
        if (binds(p, cores)) {
            uint64_t period_ns = (uint64_t)p->period_ns;
            quotas[k] = (ru_sim_quota){.quota_ns = (int64_t)p->quota_ns,
                                       .period_ns = (int64_t)period_ns,
                                       .phase_ns = (int64_t)ru_rng_below_u64(&rng, period_ns),
                                       .byte_ns = byte_ns_of(p, out, workers)};
            out->quota = true;
        }
    }
    job->quotas = out->quota ? quotas : NULL;
    return RU_OK;
}

static ru_status fill(const ru_world *w, ru_arena *arena, ru_arena *scratch, ru_sim_job *job,
                      ru_sim_world *out, ru_err *err)
{
    const ru_step_fact *s = w->facts.steps.n > 0 ? w->facts.steps.at : NULL;
    if (w->jobs.n == 0 || w->jobs.at[0].batch < 1 || s == NULL || s->samples < 1) {
        return RU_FAIL(err, RU_E_MISSING,
                       "the world file lacks jobs[0].batch or facts.steps; a run writes them after "
                       "its first steps");
    }
    list l = list_of(w);
    ru_op_model m;
    uint32_t workers = s->workers > 0 ? s->workers : 1;
    RU_TRY(ru_cost_op_fit(l.at, l.n, arena, scratch, &m, err));
    bool ops = m.n_known > 0 && w->facts.transfers.n > 0 && l.update_from > 0;
    RU_TRY(ops ? put_device(w, &m, &l, s, arena, scratch, out, err)
               : put_plain(w, s, arena, out, err));
    if (out->script.n == 0 || !(out->script.sample_ns > 0)) {
        return RU_FAIL(err, RU_E_MISSING,
                       "the world file lacks gradients (facts.transfers or jobs[0].gradient_bytes) "
                       "or compute times (facts.ops or facts.steps)");
    }
    job->batch = job->batch > 0 ? job->batch : w->jobs.at[0].batch;
    job->founders = job->founders > 0 ? job->founders : workers;
    job->deterministic = job->deterministic || w->jobs.at[0].deterministic;
    job->equal_shares = job->equal_shares || w->jobs.at[0].equal_shares;
    RU_TRY(put_hosts(w, workers, arena, job, out, err));
    RU_TRY(put_speeds(w, &l, arena, job, err));
    RU_TRY(put_quotas(w, &l, workers, arena, job, out, err));
    put_link(w, workers, job, out);
    out->script.idle_ns = 200000;
    out->script.early = out->hosts > 1 || out->link_measured;
    RU_TRY(put_path(job, arena, scratch, out, err));
    job->counted = true;
    job->script = &out->script;
    job->time_max_ns = INT64_C(86400000000000);
    out->measured_ns = (int64_t)s->took.mean_ns;
    return RU_OK;
}

ru_status ru_sim_job_of_world(const ru_world *w, ru_arena *arena, ru_sim_job *job,
                              ru_sim_world *out, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    memset(out, 0, sizeof *out);
    ru_status st = fill(w, arena, &scratch, job, out, err);
    ru_arena_fini(&scratch);
    return st;
}
