#include "tool/plan/ways.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/table.h"
#include "base/vec.h"
#include "env/file/file.h"
#include "train/pipe/ways.h"
#include "train/worker/worker_pipe.h"

enum { ALL_UP_TO = 8, THREADS_MAX = 1024 /* of a worker, as train.threads allows */ };

#define RATE_MAX 1e15 /* that policies take */

/* Hosts with one type of device. */
typedef struct group {
    const char *type;
    uint32_t n, threads;
    double bytes_per_s, usd_per_h; /* of the slowest, of the dearest */
    int64_t memory_bytes;          /* of the smallest; 0: not known */
    double error, read_s;
} group;

typedef struct way {
    const group *of;
    ru_way w;
    double epoch_s, usd;
    bool taken, close; /* by `auto` with so many workers; faster, but by too little */
} way;

RU_VEC(ways, way)

typedef struct table_of {
    const rui_ways_ask *ask;
    ru_arena *arena;
    ru_job job;
    int64_t samples;
    bool told;     /* why there is no pipeline */
    group *groups; /* [n] */
    uint32_t n;
    ways all;
} table_of;

/* -- the cluster
 * -----------------------------------------------------------------------------------
 */

ru_status rui_cluster_read(const char *path, ru_arena *arena, ru_cluster *out, ru_err *err)
{
    char *text;
    int64_t size;
    ru_conf *c;
    RU_TRY(ru_file_read(path, RU_CONF_BULK_BYTES_MAX, arena, &text, &size, err));
    RU_TRY(ru_conf_new(&ru_cluster_table, arena, &c, err));
    RU_TRY(ru_conf_add_yaml(c, path, text, size, err));
    RU_TRY(ru_conf_apply(c, out, err));
    for (uint32_t k = 0; k < out->hosts.n; k++) {
        const ru_cluster_host *h = &out->hosts.at[k];
        if (!(h->net_bytes_per_s > 0)) {
            return RU_FAIL(err, RU_E_CONFIG, "%s: host '%s' has no net_bytes_per_s", path, h->name);
        }
        if (h->net_bytes_per_s < 1 || h->net_bytes_per_s > RATE_MAX) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s: host '%s' has net_bytes_per_s %g, expected a number from 1 to %g",
                           path, h->name, h->net_bytes_per_s, RATE_MAX);
        }
    }
    return out->hosts.n > 0 ? RU_OK : RU_FAIL(err, RU_E_CONFIG, "%s names no host", path);
}

const ru_cluster_device *rui_cluster_device(const ru_cluster *c, const char *host)
{
    for (uint32_t i = 0; i < c->devices.n; i++) {
        if (strcmp(c->devices.at[i].host, host) == 0) {
            return &c->devices.at[i];
        }
    }
    return NULL;
}

uint32_t rui_cluster_threads(const ru_cluster_host *h, const ru_cluster_device *d)
{
    RU_CHECK(d == NULL || strcmp(d->host, h->name) == 0);
    uint32_t cores = d != NULL && d->cores > 0 ? d->cores : h->cores;
    return cores < THREADS_MAX ? cores : THREADS_MAX;
}

/* The smaller one; 0: not known. */
static int64_t least(int64_t a, int64_t b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

/* A worker a host, on its first device. */
static ru_status group_hosts(table_of *t, const ru_cluster *c, ru_err *err)
{
    t->groups = RU_NEW(t->arena, group, c->hosts.n);
    if (t->groups == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u hosts", c->hosts.n);
    }
    for (uint32_t i = 0; i < c->hosts.n; i++) {
        const ru_cluster_host *h = &c->hosts.at[i];
        const ru_cluster_device *d = rui_cluster_device(c, h->name);
        const char *type = d != NULL ? d->type : "cpu";
        int64_t memory = d != NULL && d->memory_bytes > 0 ? d->memory_bytes : h->memory_bytes;
        double usd = h->usd_per_h + (d != NULL ? d->usd_per_h : 0);
        uint32_t k = 0, cores = rui_cluster_threads(h, d);
        while (k < t->n && strcmp(t->groups[k].type, type) != 0) {
            k++;
        }
        group *g = &t->groups[k];
        if (k == t->n) {
            *g = (group){type, 0, cores, h->net_bytes_per_s, usd, memory, 0, 0};
            t->n++;
        }
        g->n++;
        g->threads = (uint32_t)least(g->threads, cores);
        g->bytes_per_s = fmin(g->bytes_per_s, h->net_bytes_per_s);
        g->usd_per_h = fmax(g->usd_per_h, usd);
        g->memory_bytes = least(g->memory_bytes, memory);
    }
    for (uint32_t k = 0; k < t->n && t->ask->least_money; k++) {
        if (!(t->groups[k].usd_per_h > 0)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "%s: hosts of type '%s' have no usd_per_h, which --goal money compares",
                           t->ask->cluster, t->groups[k].type);
        }
    }
    if (t->n > 1 && t->ask->facts == NULL) {
        return RU_FAIL(err, RU_E_USAGE,
                       "%s has devices of %u types, '%s' and '%s' among them; steps here tell "
                       "nothing of them: name a file of `rubato profile` with --facts",
                       t->ask->cluster, t->n, t->groups[0].type, t->groups[1].type);
    }
    return RU_OK;
}

/* -- the ways
 * --------------------------------------------------------------------------------------
 */

static ru_status add_workers(table_of *t, const group *g, const ru_ways *from, uint32_t n,
                             ru_err *err)
{
    ru_way at[RU_WAY_KINDS];
    uint32_t n_ways;
    double steps = ceil((double)t->samples / (double)t->job.train.batch);
    RU_TRY(ru_ways_list(from, n, g->bytes_per_s, g->memory_bytes, at, &n_ways, err));
    const ru_way *best = ru_ways_best(at, n_ways, false);
    for (uint32_t k = 0; k < n_ways; k++) {
        way *x = ways_push(&t->all, t->arena);
        if (x == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for the ways");
        }
        double epoch_s = at[k].step_s * steps;
        *x = (way){.of = g, .w = at[k], .epoch_s = epoch_s};
        x->usd = epoch_s / 3600 * g->usd_per_h * n;
        x->taken = &at[k] == best;
        x->close = best != NULL && at[k].same && at[k].fits && at[k].step_s < best->step_s;
    }
    return RU_OK;
}

/* Why there is no pipeline, or no placed step. */
static void tell_left_out(table_of *t, const ru_ways *w, uint32_t n)
{
    if (n > 0 && !t->told && w->no_pipeline != NULL) {
        fprintf(stderr, "no pipeline is compared: %s\n", w->no_pipeline);
    } else if (n > 0 && !t->told && w->no_placed != NULL) {
        fprintf(stderr, "no placed step is compared: %s\n", w->no_placed);
    }
    t->told = true;
}

/* All numbers of workers; of many hosts powers of two, and all. */
static ru_status add_group(table_of *t, group *g, ru_err *err)
{
    uint32_t counts[ALL_UP_TO + 32], n = 0;
    for (uint32_t k = 2; k <= g->n; k = k < ALL_UP_TO ? k + 1 : 2 * k) {
        counts[n++] = k;
    }
    if (n > 0 && counts[n - 1] != g->n) {
        counts[n++] = g->n;
    }
    while (n > 0 && counts[n - 1] > t->job.train.batch) {
        n--; /* a worker has a sample at least */
    }
    ru_job *job = RU_NEW(t->arena, ru_job, 1);
    ru_ways w;
    if (job == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a job");
    }
    *job = t->job;
    if (t->ask->facts != NULL) {
        job->train.pipeline.facts = t->ask->facts;
        job->train.pipeline.type = g->type;
    }
    ru_status st =
        ru_ways_open(job, ru_pipe_job_against(job), true, g->threads, counts, n, t->arena, &w, err);
    if (st == RU_OK) {
        t->samples = w.layers.samples;
        g->read_s = 1e-9 * (double)w.layers.read_ns;
        g->error = w.layers.error;
        tell_left_out(t, &w, n);
        st = add_workers(t, g, &w, 1, err);
    }
    for (uint32_t k = 0; k < n && st == RU_OK; k++) {
        st = add_workers(t, g, &w, counts[k], err);
    }
    ru_ways_close(&w);
    return st;
}

static uint32_t winner_of(const table_of *t)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < t->all.n; i++) {
        const way *w = &t->all.at[i], *b = best != UINT32_MAX ? &t->all.at[best] : NULL;
        double first = 0, then = 0;
        if (b != NULL) {
            first = t->ask->least_money ? w->usd - b->usd : w->epoch_s - b->epoch_s;
            then = t->ask->least_money ? w->epoch_s - b->epoch_s : w->usd - b->usd;
        }
        bool better = b == NULL || first < 0 || (first <= 0 && then < 0);
        best = w->taken && better ? i : best;
    }
    return best;
}

/* -- what is shown
 * ---------------------------------------------------------------------------------
 */

static void put_cut(const way *x, ru_text *t)
{
    const ru_way *w = &x->w;
    const ru_conf_pairs *p = &w->placed.devices;
    for (uint32_t k = 0; k < w->c.n_cut; k++) {
        ru_text_putf(t, "%s%s", k > 0 ? ", " : "", w->c.cut[k]);
    }
    for (uint32_t k = 0; k <= w->c.n_cut && w->c.n_cut > 0 && w->c.n_cut + 1 < w->workers; k++) {
        ru_text_putf(t, "%s%lld", k > 0 ? "-" : "; workers ", (long long)w->c.workers[k]);
    }
    for (uint32_t d = 1; d <= w->workers && w->kind == RU_WAY_PLACED; d++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < p->n; k++) {
            n += p->at[k].value == d;
        }
        ru_text_putf(t, "%s%u", d > 1 ? " + " : "", n);
    }
    ru_text_put(t, w->kind == RU_WAY_PLACED ? " layers" : "");
}

/* What its time is made of, or why it cannot be taken. */
static void put_why(const way *x, ru_text *o)
{
    const ru_way *w = &x->w;
    const ru_pipe_choice *c = &w->c;
    if (w->memory_bytes == RU_PIPE_FIXED_BATCH) {
        ru_text_put(o, "would divide the model's fixed batch");
    } else if (w->memory_bytes < 0) {
        ru_text_putf(o, "needs more memory than is free here%s",
                     w->step_s > 0 ? "" : ", so it was not measured");
    } else if (!w->fits) {
        ru_text_putf(o, "needs %.3g MB of the %.3g MB of a host", 1e-6 * (double)w->memory_bytes,
                     1e-6 * (double)x->of->memory_bytes);
    } else if (w->why != NULL) {
        ru_text_put(o, w->why);
    } else if (!w->same) {
        ru_text_putf(o, "%s; not taken unless train.pipeline.schedule names it",
                     w->kind >= RU_WAY_STASH ? "gradients are late" : "another schedule");
    } else if (x->close) {
        ru_text_putf(o, "gains less than %d %% over data parallel", RU_WAY_GAIN);
    } else if (w->kind == RU_WAY_SINGLE) {
        ru_text_putf(o, "%s",
                     w->step_s <= x->of->read_s ? "waits for reading" : "computes all alone");
    } else if (w->kind == RU_WAY_DATA) {
        ru_text_putf(o, "computes %.3g ms, sums gradients for %.3g ms", 1e3 * c->compute_s,
                     1e3 * c->sum_s);
    } else if (w->kind == RU_WAY_PLACED) {
        ru_text_put(o, "branches side by side, one micro-batch after the other");
    } else {
        ru_text_putf(o, "slowest stage %.3g ms, slowest cut %.3g ms, and filling and draining",
                     1e3 * c->slowest_s, 1e3 * c->cut_s);
    }
}

static ru_table table_in(const table_of *t)
{
    static const char *const columns[] = {"type",    "workers", "way",          "step_s",
                                          "epoch_s", "usd",     "memory_bytes", "net_bytes",
                                          "error",   "factor",  "cut",          "why"};
    ru_table r = ru_table_in(t->arena);
    uint32_t best = winner_of(t);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(columns); k++) {
        bool left = k == 0 || k == 2 || k >= 10;
        ru_table_col(&r, columns[k], left ? RU_TABLE_LEFT : RU_TABLE_RIGHT);
    }
    for (uint32_t i = 0; i < t->all.n; i++) {
        const way *w = &t->all.at[i], *b = &t->all.at[best];
        ru_text cut = ru_text_arena(t->arena), why = ru_text_arena(t->arena);
        put_cut(w, &cut);
        put_why(w, &why);
        ru_table_str(&r, w->of->type);
        ru_table_i64(&r, w->w.workers);
        ru_table_str(&r, ru_way_names[w->w.kind]);
        if (w->w.step_s > 0) {
            ru_table_ns(&r, (int64_t)(1e9 * w->w.step_s));
            ru_table_ns(&r, (int64_t)(1e9 * w->epoch_s));
            ru_table_f64(&r, w->usd, 6);
        } else { /* it was not measured */
            ru_table_absent(&r, "s");
            ru_table_absent(&r, "s");
            ru_table_absent(&r, NULL);
        }
        if (w->w.memory_bytes >= 0) {
            ru_table_bytes(&r, w->w.memory_bytes);
        } else {
            ru_table_absent(&r, "bytes");
        }
        ru_table_bytes(&r, (int64_t)w->w.net_bytes);
        ru_table_percent(&r, w->of->error, 1);
        if (w->w.step_s > 0) {
            ru_table_f64(&r, t->ask->least_money ? w->usd / b->usd : w->epoch_s / b->epoch_s, 2);
        } else {
            ru_table_absent(&r, NULL);
        }
        ru_table_str(&r, cut.p);
        ru_table_str(&r, why.p);
    }
    return r;
}

static ru_status show(const table_of *t, ru_err *err)
{
    ru_text out = ru_text_arena(t->arena);
    ru_table r = table_in(t);
    const way *w = &t->all.at[winner_of(t)];
    ru_text sets = ru_text_arena(t->arena);
    ru_text_putf(&sets, "train.pipeline={bytes_per_s: %.6g", w->of->bytes_per_s);
    if (t->ask->facts != NULL) {
        ru_text_putf(&sets, ", facts: %s, type: %s", t->ask->facts, w->of->type);
    }
    ru_text_put(&sets, "}");
    if (t->ask->json) {
        ru_json j = ru_json_into(&out);
        ru_json_open(&j, NULL, '{');
        ru_json_str(&j, "schema", "rubato.ways/1");
        ru_json_str(&j, "goal", t->ask->least_money ? "money" : "time");
        ru_json_i64(&j, "chosen", winner_of(t));
        ru_json_f64(&j, "read_s", w->of->read_s);
        ru_json_str(&j, "set", sets.p);
        RU_TRY(ru_table_json(&r, &j, "ways", err));
        ru_json_close(&j);
        ru_text_put(&out, "\n");
    } else {
        ru_text cut = ru_text_arena(t->arena);
        put_cut(w, &cut);
        ru_text_putf(&out, "%s: %s on %u x %s%s%s, a step takes %.3g ms\n",
                     t->ask->least_money ? "least money" : "least time", ru_way_names[w->w.kind],
                     w->w.workers, w->of->type, cut.n > 0 ? ", cut at " : "",
                     cut.n > 0 ? cut.p : "", 1e3 * w->w.step_s);
        RU_TRY(ru_table_print(&r, 2, &out, err));
        ru_text_putf(&out,
                     "times are %s; reading a batch alone takes %.3g ms; sums overlap the backward "
                     "part, and workers are of one type\n",
                     t->ask->facts != NULL ? "predicted from profiles" : "measured here",
                     1e3 * w->of->read_s);
        if (w->w.workers > 1) {
            ru_text_putf(&out, "rubato train %s -w %u --set train.parallel=auto --set '%s'\n",
                         t->ask->job, w->w.workers, sets.p);
        }
    }
    fputs(out.p, stdout);
    return RU_OK;
}

ru_status rui_ways(const rui_ways_ask *ask, ru_arena *arena, ru_err *err)
{
    ru_cluster c;
    table_of t = {.ask = ask, .arena = arena};
    RU_TRY(rui_cluster_read(ask->cluster, arena, &c, err));
    RU_TRY(ru_job_load(ask->job, NULL, 0, arena, &t.job, NULL, err));
    RU_TRY(group_hosts(&t, &c, err));
    for (uint32_t k = 0; k < t.n; k++) {
        RU_TRY(add_group(&t, &t.groups[k], err));
    }
    if (winner_of(&t) == UINT32_MAX) {
        const way *w = &t.all.at[0];
        if (w->w.memory_bytes < 0) {
            return RU_FAIL(err, RU_E_INFEASIBLE,
                           "no way fits into memory: one worker needs more than is free here; "
                           "lower train.batch or raise train.accumulate");
        }
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "no way fits into the memory of the hosts: one worker needs %.4g MB, and "
                       "'%s' has %.4g MB; lower train.batch or raise train.accumulate",
                       1e-6 * (double)w->w.memory_bytes, w->of->type,
                       1e-6 * (double)w->of->memory_bytes);
    }
    return show(&t, err);
}
