/* Times of ops: a table of what was measured and models of groups. */
#include "cost/step/op.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "cost/math/lsq.h"
#include "cost/math/quantile.h"

enum { COLS = 3, KEY_MAX = 768, LEAVE_OUT_MAX = 64 };

/* Of a group nobody can leave facts out of, and of measured times of one run. */
#define ERROR_UNKNOWN 0.5

/* Keys: kind, device, then words, with a byte between that no word has. */
static ru_str key_of(char into[KEY_MAX], char kind, const ru_op_fact *f)
{
    ru_text t = ru_text_into(into, KEY_MAX);
    ru_text_putf(&t, "%c\x01%s", kind, f->device_type);
    if (kind == 'm' || kind == 'k') {
        ru_text_putf(&t, "\x01%s", f->kernel);
    }
    if (kind == 'm' || kind == 'k' || kind == 'o') {
        ru_text_putf(&t, "\x01%s", f->op);
    }
    if (kind == 'm') {
        ru_text_putf(&t, "\x01%s", f->shapes);
    }
    return ru_str_n(into, t.n);
}

/* -- fitting --------------------------------------------------------------------------------------
 */

typedef struct group {
    const ru_op_fact *const *at;
    uint32_t n;
} group;

/* One row a fact, divided by its time: the residual is relative. `without`: a row left out. */
static ru_status solve(const group *g, uint32_t without, ru_arena *out, ru_arena *scratch,
                       ru_op_fit *fit, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(out);
    double *a = RU_NEW(scratch, double, (int64_t)g->n *COLS), *b = RU_NEW(scratch, double, g->n);
    if (a == NULL || b == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to fit %u op times", g->n);
    }
    /* Columns of about equal size: a microsecond, a Mflop, a kilobyte. */
    uint32_t m = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        const ru_op_fact *f = g->at[i];
        if (i == without) {
            continue;
        }
        double ns = f->took.mean_ns;
        a[m * COLS] = 1e3 / ns;
        a[m * COLS + 1] = (double)f->flops * 1e-6 / ns;
        a[m * COLS + 2] = (double)f->bytes * 1e-3 / ns;
        b[m++] = 1;
    }
    ru_lsq_fit x;
    const ru_lsq_in in = {.a = a, .b = b, .m = m, .n = COLS, .nonneg = true};
    RU_TRY(ru_lsq_solve(&in, out, scratch, &x, err));
    fit->fixed_ns = x.x[0] * 1e3;
    fit->ns_per_flop = x.x[1] * 1e-6;
    fit->ns_per_byte = x.x[2] * 1e-3;
    ru_arena_rewind(out, mark);
    return RU_OK;
}

static double at(const ru_op_fit *f, double flops, double bytes)
{
    return f->fixed_ns + f->ns_per_flop * flops + f->ns_per_byte * bytes;
}

/* The median of the errors on facts that the fit did not see; of large groups every k-th. */
static ru_status expect_error(const group *g, ru_arena *out, ru_arena *scratch, double *error,
                              ru_err *err)
{
    *error = ERROR_UNKNOWN;
    if (g->n <= RU_OP_FACTS_MIN) {
        return RU_OK;
    }
    double off[LEAVE_OUT_MAX];
    uint32_t n = g->n < LEAVE_OUT_MAX ? g->n : LEAVE_OUT_MAX;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = (uint32_t)((uint64_t)k * g->n / n);
        const ru_op_fact *f = g->at[i];
        ru_op_fit fit = {0};
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        RU_TRY(solve(g, i, out, scratch, &fit, err));
        ru_arena_rewind(scratch, mark);
        off[k] = fabs(at(&fit, (double)f->flops, (double)f->bytes) / f->took.mean_ns - 1);
    }
    ru_sort_f64(off, n);
    *error = ru_quantile_sorted(off, n, 0.5, RU_QUANTILE_LINEAR);
    return RU_OK;
}

static ru_status fit_group(ru_op_model *m, const char *kinds, const ru_op_fact *const *ops,
                           uint32_t n, ru_arena *out, ru_arena *scratch, ru_err *err)
{
    for (const char *kind = kinds; *kind != '\0'; kind++) {
        char key[KEY_MAX], other[KEY_MAX];
        for (uint32_t i = 0; i < n; i++) {
            ru_str k = key_of(key, *kind, ops[i]);
            uint64_t *place = ru_map_get(&m->fits, k);
            if (place == NULL || m->fit[*place].n > 0) {
                continue;
            }
            ru_arena_mark mark = ru_arena_mark_get(scratch);
            const ru_op_fact **mine = RU_NEW(scratch, const ru_op_fact *, n - i);
            uint32_t n_mine = 0;
            if (mine == NULL) {
                return RU_FAIL(err, RU_E_LIMIT, "no memory to fit %u op times", n);
            }
            for (uint32_t o = i; o < n; o++) {
                if (ru_str_eq(k, key_of(other, *kind, ops[o]))) {
                    mine[n_mine++] = ops[o];
                }
            }
            const group g = {mine, n_mine};
            ru_op_fit *fit = &m->fit[*place];
            fit->n = n_mine;
            if (n_mine >= RU_OP_FACTS_MIN) {
                RU_TRY(solve(&g, UINT32_MAX, out, scratch, fit, err));
                RU_TRY(expect_error(&g, out, scratch, &fit->error, err));
            }
            ru_arena_rewind(scratch, mark);
        }
    }
    return RU_OK;
}

/* -- what was measured ----------------------------------------------------------------------------
 */

static ru_status note(ru_op_model *m, const ru_op_fact *f, ru_err *err)
{
    char key[KEY_MAX];
    bool fresh;
    uint64_t *place = ru_map_put(&m->known, key_of(key, 'm', f), &fresh);
    if (place == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for times of ops");
    }
    if (fresh) {
        *place = m->n_known++;
    }
    ru_op_known *k = &m->at[*place];
    double w = (double)f->took.count, ns = f->took.mean_ns;
    k->weight += w;
    k->ns += w * ns;
    k->squares += w * (ns * ns + f->took.stddev_ns * f->took.stddev_ns);
    for (const char *kind = "kod"; *kind != '\0'; kind++) {
        place = ru_map_put(&m->fits, key_of(key, *kind, f), &fresh);
        if (place == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for times of ops");
        }
        if (fresh) {
            *place = m->n_fits++;
        }
    }
    return RU_OK;
}

static ru_status check(const ru_op_fact *f, uint32_t i, ru_err *err)
{
    if (!isfinite(f->took.mean_ns) || f->took.mean_ns < 0 || f->flops < 0 || f->bytes < 0 ||
        f->took.count < 0 || !(f->took.stddev_ns >= 0)) {
        return RU_FAIL(err, RU_E_ARG, "op %u: %lld flops and %lld bytes in %g ns", i,
                       (long long)f->flops, (long long)f->bytes, f->took.mean_ns);
    }
    return RU_OK;
}

ru_status ru_cost_op_fit(const ru_op_fact *ops, uint32_t n, ru_arena *out, ru_arena *scratch,
                         ru_op_model *m, ru_err *err)
{
    if (n > RU_OP_FACTS_MAX) {
        return RU_FAIL(err, RU_E_ARG, "%u op instances, at most %d", n, RU_OP_FACTS_MAX);
    }
    *m = (ru_op_model){.at = RU_NEW(out, ru_op_known, n),
                       .fit = RU_NEW(out, ru_op_fit, (int64_t)3 * n)};
    ru_map_init(&m->known, out, 0);
    ru_map_init(&m->fits, out, 0);
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    const ru_op_fact **used = RU_NEW(scratch, const ru_op_fact *, n);
    uint32_t n_used = 0;
    if (m->at == NULL || m->fit == NULL || used == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u op instances", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        RU_TRY(check(&ops[i], i, err));
        if (ops[i].took.count > 0 && ops[i].took.mean_ns > 0) {
            RU_TRY(note(m, &ops[i], err));
            used[n_used++] = &ops[i];
        }
    }
    RU_TRY(fit_group(m, "kod", used, n_used, out, scratch, err));
    ru_arena_rewind(scratch, mark);
    for (uint32_t i = 0; i < m->n_known; i++) {
        ru_op_known *k = &m->at[i];
        k->ns /= k->weight;
        double spread = k->squares / k->weight - k->ns * k->ns;
        k->squares = spread > 0 ? sqrt(spread) / k->ns : 0;
        k->squares = k->weight < 2 ? ERROR_UNKNOWN : k->squares;
    }
    return RU_OK;
}

/* -- asking ---------------------------------------------------------------------------------------
 */

static const ru_op_fit *fit_of(const ru_op_model *m, const ru_op_fact *op, ru_op_source *source)
{
    static const struct {
        char kind;
        ru_op_source source;
    } rows[] = {{'k', RU_OP_BY_KERNEL}, {'o', RU_OP_BY_OP}, {'d', RU_OP_BY_DEVICE}};
    for (uint32_t r = 0; r < RU_ARRAY_LEN(rows); r++) {
        char key[KEY_MAX];
        const uint64_t *place = ru_map_get(&m->fits, key_of(key, rows[r].kind, op));
        if (place != NULL && m->fit[*place].n >= RU_OP_FACTS_MIN) {
            *source = rows[r].source;
            return &m->fit[*place];
        }
    }
    return NULL;
}

ru_op_time ru_cost_op(const ru_op_model *m, const ru_op_fact *op)
{
    RU_CHECK(op->flops >= 0 && op->bytes >= 0);
    char key[KEY_MAX];
    const uint64_t *place = ru_map_get(&m->known, key_of(key, 'm', op));
    if (place != NULL) {
        const ru_op_known *k = &m->at[*place];
        return (ru_op_time){.ns = k->ns, .error = k->squares, .source = RU_OP_MEASURED};
    }
    ru_op_time t = {0};
    const ru_op_fit *f = fit_of(m, op, &t.source);
    if (f != NULL) {
        t.ns = at(f, (double)op->flops, (double)op->bytes);
        t.error = f->error;
    }
    return t;
}

bool ru_cost_op_same(const ru_op_fact *a, const ru_op_fact *b)
{
    return strcmp(a->kernel, b->kernel) == 0 && strcmp(a->shapes, b->shapes) == 0 &&
           strcmp(a->op, b->op) == 0 && strcmp(a->device_type, b->device_type) == 0;
}

/* Is `other` of the group of this kind that `op` is in? */
static bool in_group(char kind, const ru_op_fact *op, const ru_op_fact *other)
{
    return strcmp(op->device_type, other->device_type) == 0 &&
           (kind == 'd' || strcmp(op->op, other->op) == 0) &&
           (kind != 'k' || strcmp(op->kernel, other->kernel) == 0);
}

static ru_status fit_apart(const ru_op_fact *ops, uint32_t n, const ru_op_fact *op,
                           ru_arena *scratch, ru_op_time *into, ru_err *err)
{
    static const ru_op_source sources[] = {RU_OP_BY_KERNEL, RU_OP_BY_OP, RU_OP_BY_DEVICE};
    const ru_op_fact **mine = RU_NEW(scratch, const ru_op_fact *, n);
    if (mine == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory to fit %u op times", n);
    }
    for (uint32_t r = 0; r < RU_ARRAY_LEN(sources); r++) {
        uint32_t n_mine = 0;
        for (uint32_t i = 0; i < n; i++) {
            RU_TRY(check(&ops[i], i, err));
            bool used = ops[i].took.count > 0 && ops[i].took.mean_ns > 0;
            if (used && in_group("kod"[r], op, &ops[i]) && !ru_cost_op_same(op, &ops[i])) {
                mine[n_mine++] = &ops[i];
            }
        }
        if (n_mine >= RU_OP_FACTS_MIN) {
            const group g = {mine, n_mine};
            ru_op_fit fit = {0};
            RU_TRY(solve(&g, UINT32_MAX, scratch, scratch, &fit, err));
            into->ns = at(&fit, (double)op->flops, (double)op->bytes);
            into->source = sources[r];
            return RU_OK;
        }
    }
    return RU_OK;
}

ru_status ru_cost_op_apart(const ru_op_fact *ops, uint32_t n, const ru_op_fact *op,
                           ru_arena *scratch, ru_op_time *into, ru_err *err)
{
    RU_CHECK(op->flops >= 0 && op->bytes >= 0);
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    *into = (ru_op_time){.error = ERROR_UNKNOWN};
    ru_status st = fit_apart(ops, n, op, scratch, into, err);
    ru_arena_rewind(scratch, mark);
    return st;
}

ru_op_time ru_cost_op_scaled(const ru_op_model *m, const ru_op_fact *op, double factor)
{
    RU_CHECK(factor >= 0);
    ru_op_time t = ru_cost_op(m, op);
    ru_op_source source = RU_OP_UNKNOWN;
    const ru_op_fit *f = fit_of(m, op, &source);
    double flops = (double)op->flops, bytes = (double)op->bytes;
    double here = f != NULL ? at(f, flops, bytes) : 0;
    if (here > 0 && (factor < 1 || factor > 1)) {
        t.ns *= at(f, flops * factor, bytes * factor) / here;
        t.error = t.error > f->error ? t.error : f->error;
        t.source = t.source == RU_OP_MEASURED ? source : t.source;
    }
    return t;
}
