/* The row of `coll` in plan/row/policy.def: its input as a file, its baselines, its report. */
#include "plan/net/coll_policy.h"

#include <string.h>

#include "plan/row/policy.h"

enum { FASTEST, WHOLE, RING, HALVING, DOUBLING, DIRECT, METHODS };

enum { SIZES_MAX = 1 << 16 };

#define ALGOS "ring|halving|doubling|tree|double-tree|direct|hierarchy"

static const uint32_t only_of[METHODS] = {[RING] = 1 + RU_ALGO_RING,
                                          [HALVING] = 1 + RU_ALGO_HALVING,
                                          [DOUBLING] = 1 + RU_ALGO_DOUBLING,
                                          [DIRECT] = 1 + RU_ALGO_DIRECT};

static ru_status check_cost(const void *section, ru_err *err)
{
    const ru_coll_policy_cost *c = section;
    if (c->at_bytes.n != c->at_ns.n || c->at_bytes.n > RU_COLL_COST_POINTS_MAX) {
        return RU_FAIL(
            err, RU_E_ARG,
            "'at_bytes' has %u entries and 'at_ns' %u; expected equal numbers, at most %d",
            c->at_bytes.n, c->at_ns.n, RU_COLL_COST_POINTS_MAX);
    }
    for (uint32_t i = 1; i < c->at_bytes.n; i++) {
        if (c->at_bytes.at[i] <= c->at_bytes.at[i - 1]) {
            return RU_FAIL(err, RU_E_ARG, "'at_bytes' must rise");
        }
    }
    return RU_OK;
}

ru_status ru_coll_policy_costs_check(const ru_coll_policy_costs *in, ru_err *err)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        uint32_t bit = 1u << in->at[i].algo;
        if ((seen & bit) != 0) {
            return RU_FAIL(err, RU_E_ARG, "'costs' has %s twice",
                           ru_coll_algo_name((ru_coll_algo)in->at[i].algo));
        }
        seen |= bit;
    }
    return RU_OK;
}

static ru_status check_in(const void *section, ru_err *err)
{
    const ru_coll_policy_in *in = section;
    RU_TRY(ru_coll_policy_costs_check(&in->costs, err));
    if (in->sizes_bytes.n < 1 || in->sizes_bytes.n > SIZES_MAX) {
        return RU_FAIL(err, RU_E_ARG, "'sizes_bytes' has %u entries, expected 1 to %d",
                       in->sizes_bytes.n, SIZES_MAX);
    }
    if (in->given.n != 0 && in->given.n != in->sizes_bytes.n) {
        return RU_FAIL(err, RU_E_ARG, "'given' has %u entries, but there are %u buffers",
                       in->given.n, in->sizes_bytes.n);
    }
    if (in->n_hosts > 0 &&
        (in->n_hosts > in->n_ranks || in->host_most < 1 || in->host_most > in->n_ranks)) {
        return RU_FAIL(
            err, RU_E_ARG,
            "%u members cannot be on 'n_hosts' %u hosts with at most 'host_most' %u on one",
            in->n_ranks, in->n_hosts, in->host_most);
    }
    return RU_OK;
}

static const ru_conf_field cost_fields[] = {
    RU_ROW(CHOICE, ru_coll_policy_cost, algo, NULL, "algorithm", .choices = ALGOS),
    RU_ROW(U32, ru_coll_policy_cost, n_points, "2", "number of measurements behind the cost",
           RU_IN(1, 1e9)),
    RU_ROW(F64, ru_coll_policy_cost, alpha_ns, "0",
           "time of a step of the algorithm besides its bytes", RU_IN(0, 1e15)),
    RU_ROW(F64, ru_coll_policy_cost, beta_ns, "0", "time to move one byte over one link",
           RU_IN(0, 1e12)),
    RU_ROW(F64, ru_coll_policy_cost, gamma_ns, "0", "time to add one byte", RU_IN(0, 1e12)),
    RU_ROW(F64, ru_coll_policy_cost, error, "0", "largest relative error of the fit",
           RU_IN(0, 1e9)),
    RU_ROW(I64_LIST, ru_coll_policy_cost, at_bytes, "[]", "measured sizes, ascending",
           RU_IN(0, 1e15)),
    RU_ROW(I64_LIST, ru_coll_policy_cost, at_ns, "[]", "measured time of each size",
           RU_IN(1, 1e15)),
};

const ru_conf_table ru_coll_policy_cost_table = RU_TABLE(
    "cost", ru_coll_policy_cost, cost_fields, "what an algorithm costs", .check = check_cost);

static const ru_conf_field fields[] = {
    RU_ROW(CHOICE, ru_coll_policy_in, op, "all-reduce", "which collective",
           .choices = "all-reduce|reduce-scatter|all-gather|reduce|broadcast|all-to-all|barrier"),
    RU_ROW(U32, ru_coll_policy_in, n_ranks, NULL, "members of the group", RU_IN(2, 4096)),
    RU_ROW(I64_LIST, ru_coll_policy_in, sizes_bytes, NULL, "size of each buffer in bytes",
           RU_IN(0, 1e15)),
    RU_ROW(SECTIONS, ru_coll_policy_in, costs, "[]", "measured costs of each algorithm",
           .table = &ru_coll_policy_cost_table),
    RU_ROW(I64_LIST, ru_coll_policy_in, given, "",
           "algorithm of each buffer that another plan has: its place in the list of algorithms, "
           "ring is 1; 0: to be chosen; empty: all are",
           RU_IN(0, RU_COLL_ALGOS)),
    RU_ROW(BOOL, ru_coll_policy_in, assume, "false",
           "assume 30 us per step and 10 Gbit/s for algorithms without measurements"),
    RU_ROW(BOOL, ru_coll_policy_in, deterministic, "false",
           "use only algorithms that sum in rank order"),
    RU_ROW(U32, ru_coll_policy_in, n_hosts, "0",
           "number of hosts whose members share memory; 0: members do not share memory",
           RU_IN(0, 4096)),
    RU_ROW(U32, ru_coll_policy_in, host_most, "0",
           "largest number of members on one of these hosts", RU_IN(0, 4096)),
    RU_ROW(U32, ru_coll_policy_in, mesh_max, "0",
           "largest number of members for algorithms that connect all pairs; 0: no limit",
           RU_IN(0, 4096)),
    RU_ROW(F64, ru_coll_policy_in, overhead, "0.05",
           "largest fraction of the time that chunking may cost", RU_IN(0, 1)),
    RU_ROW(I64, ru_coll_policy_in, delay_max_ns, "0",
           "longest time that chunks in flight may occupy a link; 0: no limit", RU_IN(0, 1e15)),
    RU_ROW(CHOICE, ru_coll_policy_in, method, "fastest",
           "fastest: choose by predicted time; whole: the same without chunks; others: one "
           "algorithm for every size",
           .choices = "fastest|whole|ring|halving|doubling|direct"),
};

static const ru_conf_table table =
    RU_TABLE("coll", ru_coll_policy_in, fields, "sums of a group of workers", .check = check_in);

ru_status ru_coll_policy_costs_of(const ru_coll_cost *from, ru_arena *arena,
                                  ru_coll_policy_costs *out, ru_err *err)
{
    ru_coll_policy_cost *costs = RU_NEW(arena, ru_coll_policy_cost, RU_COLL_ALGOS);
    int64_t *points = RU_NEW(arena, int64_t, 2 * RU_COLL_ALGOS * RU_COLL_COST_POINTS_MAX);
    if (costs == NULL || points == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the costs of collectives");
    }
    uint32_t n = 0;
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        const ru_coll_cost *c = &from[a];
        if (c->n_points == 0) {
            continue;
        }
        int64_t *bytes = points + (size_t)2 * a * RU_COLL_COST_POINTS_MAX;
        int64_t *ns = bytes + RU_COLL_COST_POINTS_MAX;
        for (uint32_t k = 0; k < c->n_at; k++) {
            bytes[k] = c->at[k].size_bytes;
            ns[k] = c->at[k].ns;
        }
        costs[n++] = (ru_coll_policy_cost){.algo = a,
                                           .n_points = c->n_points,
                                           .alpha_ns = c->alpha_ns,
                                           .beta_ns = c->beta_ns,
                                           .gamma_ns = c->gamma_ns,
                                           .error = c->error,
                                           .at_bytes = {bytes, c->n_at},
                                           .at_ns = {ns, c->n_at}};
    }
    *out = (ru_coll_policy_costs){costs, n};
    return RU_OK;
}

void ru_coll_policy_costs_into(const ru_coll_policy_costs *in, ru_coll_cost *costs)
{
    memset(costs, 0, RU_COLL_ALGOS * sizeof *costs);
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_coll_policy_cost *c = &in->at[i];
        ru_coll_cost *to = &costs[c->algo];
        *to = (ru_coll_cost){.alpha_ns = c->alpha_ns,
                             .beta_ns = c->beta_ns,
                             .gamma_ns = c->gamma_ns,
                             .error = c->error,
                             .n_points = c->n_points,
                             .n_at = c->at_bytes.n};
        for (uint32_t k = 0; k < to->n_at; k++) {
            to->at[k] = (ru_coll_point){c->at_bytes.at[k], c->at_ns.at[k]};
        }
    }
}

ru_status ru_coll_policy_in_of(const ru_coll_choice_in *in, ru_arena *arena, ru_coll_policy_in *out,
                               ru_err *err)
{
    ru_coll_policy_costs costs;
    RU_TRY(ru_coll_policy_costs_of(in->costs, arena, &costs, err));
    *out = (ru_coll_policy_in){.op = in->op,
                               .n_ranks = in->n_ranks,
                               .method = in->whole ? WHOLE : FASTEST,
                               .sizes_bytes = {in->sizes_bytes, in->n_sizes},
                               .costs = costs,
                               .given = {in->given, in->given != NULL ? in->n_sizes : 0},
                               .assume = in->assume,
                               .deterministic = in->deterministic,
                               .n_hosts = in->n_hosts,
                               .host_most = in->host_most,
                               .mesh_max = in->mesh_max,
                               .overhead = in->overhead,
                               .delay_max_ns = in->delay_max_ns};
    return RU_OK;
}

/* The question by `method`; `costs` [RU_COLL_ALGOS] is the caller's. */
static ru_coll_choice_in question(const ru_coll_policy_in *in, uint32_t method, ru_coll_cost *costs)
{
    RU_CHECK(method < METHODS);
    ru_coll_policy_costs_into(&in->costs, costs);
    return (ru_coll_choice_in){.op = (ru_coll_op)in->op,
                               .n_ranks = in->n_ranks,
                               .costs = costs,
                               .assume = in->assume,
                               .n_hosts = in->n_hosts,
                               .host_most = in->host_most,
                               .mesh_max = in->mesh_max,
                               .sizes_bytes = in->sizes_bytes.at,
                               .n_sizes = in->sizes_bytes.n,
                               .given = method == FASTEST && in->given.n > 0 ? in->given.at : NULL,
                               .overhead = in->overhead,
                               .delay_max_ns = in->delay_max_ns,
                               .deterministic = in->deterministic,
                               .only = only_of[method],
                               .whole = method != FASTEST};
}

static ru_status plan_coll(const void *in, const ru_policy_tools *tools, void *plan, ru_err *err)
{
    const ru_coll_policy_in *p = in;
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_choice_in q = question(p, p->method, costs);
    return ru_plan_coll_choose(&q, tools->out, plan, err);
}

static ru_status check_coll(const void *in, const void *plan, ru_arena *scratch, ru_err *err)
{
    (void)scratch;
    const ru_coll_policy_in *p = in;
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_choice_in q = question(p, p->method, costs);
    return ru_plan_coll_choose_check(&q, plan, err);
}

static double total_s(const ru_coll_choice_plan *p)
{
    double ns = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        ns += (double)p->at[i].predicted_ns;
    }
    return ns * 1e-9;
}

static bool same(const ru_coll_choice *a, const ru_coll_choice *b, bool cut)
{
    return a->algo == b->algo && a->depth == b->depth &&
           (cut ? a->chunk_bytes == b->chunk_bytes : b->depth == 1);
}

/* One line for each run of neighbours that go the same way. */
static void put_choices(const ru_coll_policy_in *in, const ru_coll_choice_plan *p, ru_report *r)
{
    ru_table *t = ru_report_table(r, "choices");
    ru_table_col(t, "first", RU_TABLE_RIGHT);
    ru_table_col(t, "buffers", RU_TABLE_RIGHT);
    ru_table_col(t, "bytes", RU_TABLE_RIGHT);
    ru_table_col(t, "algorithm", RU_TABLE_LEFT);
    ru_table_col(t, "chunk", RU_TABLE_RIGHT);
    ru_table_col(t, "depth", RU_TABLE_RIGHT);
    ru_table_col(t, "predicted", RU_TABLE_RIGHT);
    for (uint32_t i = 0; i < p->n;) {
        bool cut = p->at[i].chunk_bytes < in->sizes_bytes.at[i];
        int64_t bytes = 0, ns = 0;
        uint32_t end = i;
        for (; end < p->n && same(&p->at[i], &p->at[end], cut) &&
               cut == (p->at[end].chunk_bytes < in->sizes_bytes.at[end]);
             end++) {
            bytes += in->sizes_bytes.at[end];
            ns += p->at[end].predicted_ns;
        }
        ru_table_i64(t, i);
        ru_table_i64(t, end - i);
        ru_table_bytes(t, bytes);
        ru_table_str(t, ru_coll_algo_name(p->at[i].algo));
        if (cut) {
            ru_table_bytes(t, p->at[i].chunk_bytes);
        } else {
            ru_table_none(t);
        }
        ru_table_i64(t, p->at[i].depth);
        ru_table_ns(t, ns);
        i = end;
    }
}

static void put_costs(const ru_coll_choice_in *q, ru_report *r)
{
    ru_table *t = ru_report_table(r, "costs");
    ru_table_col(t, "algorithm", RU_TABLE_LEFT);
    ru_table_col(t, "alpha_ns", RU_TABLE_RIGHT);
    ru_table_col(t, "beta_ns", RU_TABLE_RIGHT);
    ru_table_col(t, "points", RU_TABLE_RIGHT);
    ru_table_col(t, "error", RU_TABLE_RIGHT);
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        ru_coll_cost c = ru_plan_coll_cost(q, (ru_coll_algo)a);
        if (c.n_points > 0) {
            ru_table_str(t, ru_coll_algo_name((ru_coll_algo)a));
            ru_table_f64(t, c.alpha_ns, 0);
            ru_table_f64(t, c.beta_ns, 4);
            ru_table_i64(t, q->costs[a].n_points);
            ru_table_percent(t, c.error, 0);
        }
    }
}

/* Does a buffer in one piece hold up an urgent one for longer than it may? */
static bool holds_too_long(const ru_coll_choice_in *in, const ru_coll_choice_plan *p)
{
    bool late = false;
    for (uint32_t i = 0; i < p->n && in->delay_max_ns > 0; i++) {
        const ru_coll_cost c = ru_plan_coll_cost(in, p->at[i].algo);
        late = late || (in->sizes_bytes[i] > RU_COLL_CHUNK_MIN &&
                        c.beta_ns * (double)in->sizes_bytes[i] > (double)in->delay_max_ns);
    }
    return late;
}

static ru_status judge(ru_rival *v, const ru_policy_tools *tools, ru_err *err)
{
    (void)tools;
    (void)err;
    const ru_coll_policy_in *p = v->won_in;
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_choice_in q = question(p, p->method, costs);
    double s = total_s(v->plan), ours = total_s(v->won);
    double overhead = q.overhead > 0 ? q.overhead : RU_COLL_OVERHEAD;
    if (p->method == FASTEST && holds_too_long(&q, v->plan)) {
        ru_rival_is(v, s, false, "a whole buffer occupies a link longer than 'delay_max_ns'");
    } else if (p->method == FASTEST && s < ours && ours <= (1 + overhead) * s) {
        ru_rival_beside(v, s, "an urgent sum waits longer; to cut buffers may cost %.4g %%",
                        100 * overhead);
    } else {
        ru_rival_is(v, s, true, "%s",
                    p->method != FASTEST ? "the method was given"
                    : v->method == WHOLE
                        ? "an urgent sum waits for a whole buffer, because buffers are not cut"
                        : "one algorithm for every size");
    }
    return RU_OK;
}

#define CHOICE(type_, field_, ...)                           \
    RU_DECISION(type_, ru_coll_choice_plan, at, __VA_ARGS__, \
                RU_LIST_OF(ru_coll_choice_plan, n, ru_coll_choice, field_))
static const ru_report_row rows[] = {
    CHOICE(CHOICE, algo, "algorithm", .choices = ALGOS),
    CHOICE(I64, chunk_bytes, "chunk_bytes"),
    CHOICE(U32, depth, "depth"),
    CHOICE(NS, predicted_ns, "predicted_s"),
};

static ru_status report_coll(const void *in, const void *plan, const ru_policy_tools *tools,
                             ru_report *r, ru_err *err)
{
    const ru_coll_policy_in *p = in;
    const ru_coll_choice_plan *mine = plan;
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_choice_in q = question(p, p->method, costs);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p->sizes_bytes.n; i++) {
        bytes += p->sizes_bytes.at[i];
    }
    ru_report_answer(r, "%s %u buffers over %u members as the table says",
                     ru_coll_op_name((ru_coll_op)p->op), mine->n, p->n_ranks);
    ru_report_figure(r, "sums_s", total_s(mine));
    ru_report_figure(r, "gradient_bytes", (double)bytes);
    put_choices(p, mine, r);
    put_costs(&q, r);
    RU_TRY(ru_policy_rivals(&ru_policy_coll, in, plan, tools, judge, r, err));
    ru_report_assume(r, "each sum uses the network alone");
    if (p->assume) {
        ru_report_assume(r, "algorithms that were not measured take 30 us per step and 10 Gbit/s");
    }
    ru_report_trigger(r, "sums_s", 0.2);
    return RU_OK;
}

static uint32_t points_of(const ru_world *w, const ru_coll_fact *like, uint32_t algo,
                          ru_coll_point *into)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->facts.collectives.n && n < RU_COLL_COST_POINTS_MAX; i++) {
        const ru_coll_fact *f = &w->facts.collectives.at[i];
        bool alike = strcmp(f->op, like->op) == 0 && f->n_ranks == like->n_ranks;
        if (alike && f->chunk_bytes == 0 && ru_coll_algo_find(f->algo) == (ru_coll_algo)algo &&
            f->took.mean_ns >= 1) {
            into[n++] = (ru_coll_point){f->size_bytes, (int64_t)f->took.mean_ns};
        }
    }
    return n;
}

static void fit_all(const ru_world *w, const ru_coll_fact *like, ru_coll_cost *costs)
{
    ru_coll_point points[RU_COLL_COST_POINTS_MAX];
    for (uint32_t a = 0; a < RU_COLL_ALGOS; a++) {
        uint32_t n = points_of(w, like, a, points);
        costs[a] = (ru_coll_cost){0};
        if (n < 2 || ru_cost_coll_fit(ru_coll_op_find(like->op), (ru_coll_algo)a, like->n_ranks,
                                      points, n, &costs[a], NULL) != RU_OK) {
            costs[a] = (ru_coll_cost){0};
        }
    }
}

void ru_coll_policy_fits(const ru_world *w, ru_coll_cost *costs)
{
    const ru_coll_fact *like = w->facts.collectives.at;
    memset(costs, 0, RU_COLL_ALGOS * sizeof *costs);
    if (w->facts.collectives.n == 0 || ru_coll_op_find(like->op) != RU_COLL_ALL_REDUCE) {
        return;
    }
    fit_all(w, like, costs);
}

static void put_list(ru_json *j, const char *key, const ru_conf_i64s *list)
{
    ru_json_open(j, key, '[');
    for (uint32_t k = 0; k < list->n; k++) {
        ru_json_i64(j, NULL, list->at[k]);
    }
    ru_json_close(j);
}

void ru_coll_policy_costs_put(const ru_coll_policy_costs *in, ru_json *j)
{
    if (in->n == 0) {
        return;
    }
    ru_json_open(j, "costs", '[');
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_coll_policy_cost *c = &in->at[i];
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "algo", ru_coll_algo_name((ru_coll_algo)c->algo));
        ru_json_i64(j, "n_points", c->n_points);
        ru_json_f64(j, "alpha_ns", c->alpha_ns);
        ru_json_f64(j, "beta_ns", c->beta_ns);
        ru_json_f64(j, "error", c->error);
        put_list(j, "at_bytes", &c->at_bytes);
        put_list(j, "at_ns", &c->at_ns);
        ru_json_close(j);
    }
    ru_json_close(j);
}

/* Fits of what was measured of the first group, for the gradients of the first job. */
static ru_status derive_coll(const ru_world *w, ru_arena *scratch, ru_json *j, ru_err *err)
{
    const ru_coll_fact *like = w->facts.collectives.at;
    bool sized = w->jobs.n > 0 && w->jobs.at[0].gradient_bytes.n > 0;
    if (w->facts.collectives.n == 0 || !sized ||
        ru_coll_op_find(like->op) == (ru_coll_op)RU_COLL_OPS || like->n_ranks < 2) {
        return RU_FAIL(err, RU_E_MISSING,
                       "facts.collectives must hold measurements of a group of 2 or more, and "
                       "jobs[0].gradient_bytes the sizes to plan for");
    }
    ru_json_str(j, "op", like->op);
    ru_json_i64(j, "n_ranks", like->n_ranks);
    ru_json_bool(j, "assume", true);
    ru_json_open(j, "sizes_bytes", '[');
    for (uint32_t i = 0; i < w->jobs.at[0].gradient_bytes.n; i++) {
        ru_json_i64(j, NULL, w->jobs.at[0].gradient_bytes.at[i]);
    }
    ru_json_close(j);
    ru_coll_cost costs[RU_COLL_ALGOS];
    ru_coll_policy_costs fits;
    fit_all(w, like, costs);
    RU_TRY(ru_coll_policy_costs_of(costs, scratch, &fits, err));
    ru_coll_policy_costs_put(&fits, j);
    return RU_OK;
}

const ru_policy ru_policy_coll = {
    .name = "coll",
    .version = 1,
    .decides = "which algorithm, chunk and depth each sum of gradients takes",
    .source = "thakur-2005, rabenseifner-2004, sanders-2009",
    .in = &table,
    .plan_bytes = sizeof(ru_coll_choice_plan),
    .rows = rows,
    .n_rows = RU_ARRAY_LEN(rows),
    .plan = plan_coll,
    .check = check_coll,
    .report = report_coll,
    .derive = derive_coll,
    .example = "# Four workers on 1 Gbit/s; three algorithms were measured with two sizes.\n"
               "n_ranks: 4\n"
               "sizes_bytes: [512, 40000, 400000, 9437184, 9437184, 52428800]\n"
               "costs:\n"
               "  - {algo: ring, alpha_ns: 60000, beta_ns: 8.2, at_bytes: [4096, 1048576],\n"
               "     at_ns: [410000, 13500000]}\n"
               "  - {algo: halving, alpha_ns: 70000, beta_ns: 8.4, at_bytes: [4096, 1048576],\n"
               "     at_ns: [330000, 14300000]}\n"
               "  - {algo: doubling, alpha_ns: 65000, beta_ns: 8.3, at_bytes: [4096, 1048576],\n"
               "     at_ns: [200000, 17900000]}\n",
};
