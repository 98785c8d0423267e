/* A world file of the cluster, for `rubato capture`: its nodes and jobs, and what the last round
 * and the markets asked their policies, so that the same plans are made elsewhere. */
#include <stdlib.h>
#include <string.h>

#include "cluster/scheduler_impl.h"
#include "plan/row/policy.h"
#include "store/world_file.h"

enum { QUESTIONS_MAX = 64 }; /* of a round: the priorities of jobs */

typedef struct maker {
    const rui_scheduler *s;
    ru_arena *arena;
    ru_world_plan plans[QUESTIONS_MAX + 1];
    uint32_t n_plans;
} maker;

/* The plan of this question, with its id. */
static ru_status add_plan(maker *k, const ru_policy *p, ru_str input, int64_t wall_ns, ru_err *err)
{
    ru_conf *c;
    char id[33];
    void *in = ru_arena_zalloc(k->arena, p->in->size_bytes, 64);
    const char *text = ru_arena_strn(k->arena, input.p, input.n);
    if (in == NULL || text == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a world file");
    }
    RU_TRY(ru_conf_new(p->in, k->arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(ru_conf_add_json(c, p->name, text, input.n, err));
    RU_TRY(ru_conf_apply(c, in, err));
    ru_hash128_text(ru_policy_head(p, in).id, id);
    k->plans[k->n_plans++] = (ru_world_plan){.policy = p->name,
                                             .version = p->version,
                                             .id = ru_arena_str(k->arena, id),
                                             .job = "",
                                             .at_ns = wall_ns,
                                             .input = text};
    return k->plans[k->n_plans - 1].id != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for a world file");
}

static ru_status add_plans(maker *k, ru_err *err)
{
    const rui_scheduler *s = k->s;
    ru_str rest = ru_str_c(s->questions), line;
    while (ru_str_next(&rest, '\n', &line) && line.n > 0) {
        if (k->n_plans == QUESTIONS_MAX) {
            return RU_FAIL(err, RU_E_LIMIT,
                           "the last round planned more than %d priorities, which is all that a "
                           "world file takes",
                           QUESTIONS_MAX);
        }
        RU_TRY(add_plan(k, &ru_policy_alloc, line, s->planned_wall_ns, err));
    }
    int64_t wall_ns;
    const char *input = rui_market_question(s, &wall_ns);
    return input != NULL ? add_plan(k, &ru_policy_bid, ru_str_c(input), wall_ns, err) : RU_OK;
}

/* A host, and a device for each of its slots; their number. */
static uint32_t put_host(const rui_scheduler *s, uint32_t k, ru_arena *arena, ru_cluster_host *h,
                         ru_cluster_device *d)
{
    const ru_book_node *n = &s->book.nodes[k];
    uint32_t market, lease;
    bool rented = s->opt->spot != NULL && ru_spot_of(s->opt->spot, n->name, &market, &lease);
    RU_CHECK(k < s->book.n_nodes);
    *h = (ru_cluster_host){.name = n->name,
                           .cpu = "",
                           .cores = n->slots,
                           .availability = n->slots > 0,
                           .market = rented ? s->opt->spot->at[market].name : "",
                           .tier = rented ? RU_HOST_TRANSIENT : RU_HOST_RELIABLE};
    for (uint32_t i = 0; i < n->slots; i++) {
        const char *name = ru_arena_printf(arena, "%s/%u", n->name, i);
        d[i] = (ru_cluster_device){.name = name != NULL ? name : "",
                                   .host = n->name,
                                   .type = "cpu",
                                   .cores = 1,
                                   .votes = true,
                                   .availability = 1};
    }
    return n->slots;
}

static int by_market(const void *x, const void *y)
{
    const ru_price_fact *a = x, *b = y;
    int order = strcmp(a->market, b->market);
    return order != 0 ? order : (a->at_s > b->at_s) - (a->at_s < b->at_s);
}

/* Prices of the last week of the markets' clock. */
static ru_status put_prices(const rui_scheduler *s, ru_arena *arena, ru_world *w, ru_err *err)
{
    const ru_spot_options *o = s->opt->spot;
    const int64_t until_s = s->book.spot.job.now.ns / 1000000000, from_s = until_s - 7 * 86400;
    uint64_t most = 1;
    uint32_t n = 0;
    for (uint32_t m = 0; o != NULL && m < o->n; m++) {
        most += o->at[m].prices.n;
    }
    ru_price_fact *at = RU_NEW(arena, ru_price_fact, most);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a world file");
    }
    for (uint32_t m = 0; o != NULL && m < o->n; m++) {
        const ru_prices *p = &o->at[m].prices;
        for (uint32_t k = 0; k < p->n; k++) {
            bool last = k + 1 == p->n || p->at_s[k + 1] > p->at_s[k]; /* of its second */
            if (last && p->at_s[k] >= from_s && p->at_s[k] <= until_s) {
                at[n++] = (ru_price_fact){o->at[m].name, p->at_s[k], p->usd[k]};
            }
        }
    }
    qsort(at, n, sizeof *at, by_market);
    w->facts.prices.at = at;
    w->facts.prices.n = n;
    return RU_OK;
}

/* Of a job: what it asked for, and its steps by numbers of workers. */
static uint32_t put_job(rui_scheduler *s, uint32_t slot, ru_arena *arena, ru_world_job *out,
                        ru_step_fact *facts)
{
    const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
    const ru_cluster_figures *f = rui_scheduler_figures(s, j);
    const char *name = ru_arena_printf(arena, "%u %s", s->book.of[slot], j->spec.name);
    *out = (ru_world_job){.name = name != NULL ? name : "",
                          .model = "",
                          .data = "",
                          .batch = f->batch,
                          .workers_min = j->min,
                          .workers_max = j->max};
    for (uint32_t k = 0; k < f->n; k++) {
        double mean_ns = 1e9 * f->seen[k].step_s / f->seen[k].steps;
        facts[k] = (ru_step_fact){.job = out->name,
                                  .workers = f->seen[k].replicas,
                                  .samples = f->seen[k].local,
                                  .batch = (int64_t)f->seen[k].local * f->seen[k].replicas,
                                  .gradient_noise = f->noise,
                                  .took = {.count = (int64_t)f->seen[k].steps, .mean_ns = mean_ns}};
    }
    return f->n;
}

ru_status rui_scheduler_world(rui_scheduler *s, ru_arena *arena, ru_text *t, ru_err *err)
{
    const uint32_t n_nodes = s->book.n_nodes, n_live = s->book.n_live;
    maker *k = RU_NEW(arena, maker, 1);
    ru_cluster_host *hosts = RU_NEW(arena, ru_cluster_host, n_nodes + 1);
    ru_cluster_device *devices =
        RU_NEW(arena, ru_cluster_device, (int64_t)n_nodes * RU_ALLOC_DEVICES_MAX + 1);
    ru_world_job *jobs = RU_NEW(arena, ru_world_job, n_live + 1);
    ru_step_fact *steps = RU_NEW(arena, ru_step_fact, (int64_t)n_live * RU_FIGURES_SAMPLES + 1);
    uint32_t n_jobs = 0, n_steps = 0, n_devices = 0;
    if (k == NULL || hosts == NULL || devices == NULL || jobs == NULL || steps == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a world file");
    }
    *k = (maker){.s = s, .arena = arena};
    RU_TRY(add_plans(k, err));
    for (uint32_t i = 0; i < n_nodes; i++) {
        n_devices += put_host(s, i, arena, &hosts[i], &devices[n_devices]);
    }
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs && n_jobs < n_live; slot++) {
        if (ru_book_job_at(&s->book, s->book.of[slot]) != NULL) {
            n_steps += put_job(s, slot, arena, &jobs[n_jobs++], &steps[n_steps]);
        }
    }
    ru_world w = {.cluster = {.hosts = {hosts, n_nodes}, .devices = {devices, n_devices}},
                  .jobs = {jobs, n_jobs},
                  .plans = {k->plans, k->n_plans}};
    w.facts.steps.at = steps;
    w.facts.steps.n = n_steps;
    RU_TRY(put_prices(s, arena, &w, err));
    return ru_world_file_put(&w, t, err);
}
