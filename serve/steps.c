#include "serve/steps.h"

#include <stdlib.h>
#include <string.h>

#include "env/clock.h"

enum { SIZES_MAX = 16, WARM_RUNS = 3 };
enum { IDS, SLOT, AT, WANT, INPUTS }; /* of the graph, in this order */

typedef struct sized {
    ru_graph graph;
    ru_exe *exe;
    int64_t rows, wanted;
    int64_t opened_ns; /* of a run without rows, when it was opened */
    int64_t *took_ns;  /* [n_ops] of each operation, in the last piece */
    uint32_t n_ops;
    bool whole; /* an operation may copy the caches: others must not run between them */
} sized;

struct ru_steps {
    ru_arena arena;
    ru_steps_facts facts;
    sized sizes[SIZES_MAX]; /* [n_sizes] of 1, 2, 4, ... rows */
    uint32_t n_sizes;
    void *one;    /* a cache of one head of one slot */
    sized *piece; /* under way; NULL: none */
    uint32_t op;  /* its next operation */
};

static int64_t *input(const sized *z, uint32_t k)
{
    return ru_exe_input(z->exe, z->graph.inputs[k]);
}

static ru_status check_graph(const sized *z, ru_steps_facts *f, ru_err *err)
{
    const ru_graph *g = &z->graph;
    const ru_type *y = g->n_outputs == 1 ? &ru_graph_value(g, g->outputs[0])->type : NULL;
    bool fits = g->n_inputs == INPUTS && y != NULL && y->dtype == RU_F32 && y->rank == 2 &&
                y->dims[0] == z->wanted;
    for (uint32_t k = 0; fits && k < INPUTS; k++) {
        const ru_type *t = &ru_graph_value(g, g->inputs[k])->type;
        fits =
            t->dtype == RU_I64 && t->rank == 1 && t->dims[0] == (k == WANT ? z->wanted : z->rows);
    }
    for (uint32_t v = 1; v < g->n_values; v++) {
        const ru_value *s = &g->values[v];
        f->context = s->role == RU_ROLE_CACHE ? s->type.dims[2] : f->context;
    }
    f->vocab = fits ? y->dims[1] : 0;
    return fits && f->context > 0 ? RU_OK
                                  : RU_FAIL(err, RU_E_BUG,
                                            "the model's form in steps has other "
                                            "inputs or outputs than expected");
}

/* Rows that are none: -1 as position. Tokens and slots stay legal. */
static void fill(const sized *z, const ru_steps_row *rows, int64_t n)
{
    int64_t *ids = input(z, IDS), *slot = input(z, SLOT), *at = input(z, AT),
            *want = input(z, WANT);
    int64_t wanted = 0;
    for (int64_t k = 0; k < z->rows; k++) {
        ids[k] = k < n ? rows[k].token : 0;
        slot[k] = k < n ? rows[k].slot : 0;
        at[k] = k < n ? rows[k].at : -1;
        if (k < n && rows[k].wanted) {
            RU_CHECK(wanted < z->wanted);
            want[wanted++] = k;
        }
    }
    while (wanted < z->wanted) {
        want[wanted++] = 0;
    }
}

static ru_status warm(sized *z, ru_err *err)
{
    fill(z, NULL, 0);
    z->opened_ns = INT64_MAX;
    for (int k = 0; k < WARM_RUNS; k++) {
        ru_time from = ru_clock_now();
        RU_TRY(ru_exe_run(z->exe, &(ru_run_args){0}, err));
        int64_t ns = ru_time_since(ru_clock_now(), from);
        z->opened_ns = ns < z->opened_ns ? ns : z->opened_ns;
    }
    return RU_OK;
}

static ru_status count_ops(ru_steps *s, sized *z, const ru_exe_options *o, ru_err *err)
{
    ru_exe_stats stats;
    ru_exe_stats_get(z->exe, &stats);
    z->n_ops = stats.n_steps;
    z->whole = o->device == RU_DEVICE_REF || stats.n_slow > 0;
    z->took_ns = RU_NEW(&s->arena, int64_t, z->n_ops);
    return z->took_ns != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the model");
}

static ru_status open_all(ru_steps *s, const ru_source *source, const ru_steps_options *opt,
                          ru_err *err)
{
    s->facts.slots = opt->slots;
    while (s->n_sizes < SIZES_MAX && (INT64_C(1) << s->n_sizes <= opt->rows_max ||
                                      s->facts.rows_max < 2 * (int64_t)opt->slots)) {
        sized *z = &s->sizes[s->n_sizes];
        ru_exe_options o = opt->exe;
        z->rows = INT64_C(1) << s->n_sizes;
        z->wanted = z->rows < opt->slots ? z->rows : opt->slots;
        RU_TRY(source->ops->steps(source->self, z->rows, z->wanted, opt->slots,
                                  o.precision == RU_PRECISION_BF16, &s->arena, &z->graph, err));
        RU_TRY(check_graph(z, &s->facts, err));
        o.share = s->n_sizes > 0 ? s->sizes[0].exe : NULL;
        RU_TRY(ru_exe_open(&z->graph, &o, &z->exe, err));
        s->n_sizes++;
        if (o.share == NULL && source->ops->load != NULL) {
            RU_TRY(source->ops->load(source->self, &z->graph, z->exe, err));
        }
        RU_TRY(warm(z, err));
        RU_TRY(count_ops(s, z, &o, err));
        s->facts.rows_max = z->rows;
    }
    while (s->facts.piece_min < opt->slots) {
        s->facts.piece_min = s->facts.piece_min == 0 ? 1 : 2 * s->facts.piece_min;
    }
    s->facts.piece_min *= 2;
    return RU_OK;
}

/* NULL, or the type of a cache [slots, heads, context, size]. */
static const ru_type *cache_of(const sized *z, uint32_t v)
{
    const ru_value *s = &z->graph.values[v];
    return s->role == RU_ROLE_CACHE ? &s->type : NULL;
}

static ru_status get_one(ru_steps *s, ru_err *err)
{
    int64_t bytes = 0;
    for (uint32_t v = 1; v < s->sizes[0].graph.n_values; v++) {
        const ru_type *t = cache_of(&s->sizes[0], v);
        int64_t one = t != NULL ? ru_type_bytes(t) / t->dims[0] / t->dims[1] : 0;
        bytes = one > bytes ? one : bytes;
    }
    s->one = ru_arena_alloc(&s->arena, bytes, 64);
    return s->one != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for the model");
}

void ru_steps_copy(ru_steps *s, int64_t from, int64_t to, int64_t n)
{
    const sized *z = &s->sizes[0];
    ru_err err = {0};
    for (uint32_t v = 1; v < z->graph.n_values; v++) {
        const ru_type *t = cache_of(z, v);
        for (int64_t h = 0; t != NULL && h < t->dims[1]; h++) {
            int64_t place = t->dims[3] * ru_dtype_bytes(t->dtype), head = t->dims[2] * place,
                    slot = t->dims[1] * head;
            ru_status st = ru_exe_state_read_part(z->exe, (ru_value_id){v}, from * slot + h * head,
                                                  n * place, s->one, &err);
            st = st != RU_OK
                     ? st
                     : ru_exe_state_write_part(z->exe, (ru_value_id){v}, to * slot + h * head,
                                               n * place, s->one, &err);
            RU_CHECK(st == RU_OK); /* a place inside of the cache */
        }
    }
}

ru_status ru_steps_open(const ru_source *source, const ru_steps_options *opt, ru_steps **out,
                        ru_err *err)
{
    if (source->ops->steps == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "the model has no form in steps");
    }
    ru_steps *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    ru_arena_init(&s->arena, 0);
    ru_status st = open_all(s, source, opt, err);
    st = st == RU_OK ? get_one(s, err) : st;
    if (st != RU_OK) {
        ru_steps_close(s);
        return st;
    }
    *out = s;
    return RU_OK;
}

void ru_steps_close(ru_steps *s)
{
    if (s == NULL) {
        return;
    }
    for (uint32_t k = 0; k < s->n_sizes; k++) {
        ru_exe_close(s->sizes[k].exe);
    }
    ru_arena_fini(&s->arena);
    free(s);
}

ru_steps_facts ru_steps_facts_get(const ru_steps *s)
{
    return s->facts;
}

static uint32_t of(const ru_steps *s, int64_t rows)
{
    uint32_t k = 0;
    while (k + 1 < s->n_sizes && s->sizes[k].rows < rows) {
        k++;
    }
    return k;
}

ru_status ru_steps_run(ru_steps *s, const ru_steps_row *rows, int64_t n, const float **logits,
                       ru_err *err)
{
    RU_CHECK(n > 0 && n <= s->facts.rows_max);
    sized *z = &s->sizes[of(s, n)];
    fill(z, rows, n);
    RU_TRY(ru_exe_run(z->exe, &(ru_run_args){0}, err));
    *logits = ru_exe_output(z->exe, z->graph.outputs[0]);
    return RU_OK;
}

void ru_steps_piece_begin(ru_steps *s, int64_t rows, const ru_steps_row *at, int64_t n)
{
    RU_CHECK(rows >= s->facts.piece_min && rows <= s->facts.rows_max && n > 0 && n <= rows);
    s->piece = &s->sizes[of(s, rows)];
    s->op = 0;
    fill(s->piece, at, n);
}

ru_status ru_steps_piece_go(ru_steps *s, int64_t budget_ns, const float **logits, ru_err *err)
{
    sized *z = s->piece;
    RU_CHECK(z != NULL);
    int64_t used = 0;
    do {
        ru_time from = ru_clock_now();
        int64_t *took = &z->took_ns[s->op];
        ru_status st = ru_exe_run_next(z->exe, &s->op, err);
        if (st != RU_OK) {
            s->piece = NULL;
            return st;
        }
        *took = ru_time_since(ru_clock_now(), from);
        used += *took;
    } while (s->op > 0 && (z->whole || used + z->took_ns[s->op] <= budget_ns));
    if (s->op == 0) {
        s->piece = NULL;
        *logits = ru_exe_output(z->exe, z->graph.outputs[0]);
    }
    return RU_OK;
}

int64_t ru_steps_piece_longest_ns(const ru_steps *s, int64_t rows)
{
    const sized *z = &s->sizes[of(s, rows)];
    int64_t most = 0;
    for (uint32_t k = 0; k < z->n_ops; k++) {
        most = z->took_ns[k] > most ? z->took_ns[k] : most;
    }
    return most;
}

int64_t ru_steps_opened_ns(const ru_steps *s, int64_t rows)
{
    return s->sizes[of(s, rows)].opened_ns;
}
