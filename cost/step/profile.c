#include "cost/step/profile.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "cost/math/quantile.h"
#include "world/dtype.h"

enum { KIND_MAX = 128, SHAPES_MAX = 32, RANK_MAX = 8, OPERANDS_MAX = 8 };

/* Nets that nobody could leave out: as wrong as half. */
#define ERROR_UNKNOWN 0.5
/* An op with so many times the bytes of the largest one of its kind is of another kind: a launch is
 * most of what a sum of two numbers takes, and tells nothing of a sum of two matrices. */
#define FAR 16
/* Less of the time than this is not worth another error. */
#define KNOWN_ALL 0.98

/* -- an op as kind and sizes ----------------------------------------------------------------------
 */

typedef struct operand {
    int64_t dim[RANK_MAX];
    uint32_t rank;
    double bytes;
} operand;

/* "f32[64,1,28,28]"; false: no tensor. */
static bool read_operand(ru_str word, operand *o)
{
    ru_str name, number;
    *o = (operand){0};
    if (!ru_str_next(&word, '[', &name) || !ru_str_ends(word, "]")) {
        return false;
    }
    for (int t = 1; t < RU_DTYPE_COUNT && o->bytes <= 0; t++) {
        o->bytes =
            ru_str_eq_c(name, ru_dtype_name((ru_dtype)t)) ? (double)ru_dtype_bytes((ru_dtype)t) : 0;
    }
    word.n--;
    while (word.n > 0 && o->rank < RANK_MAX && ru_str_next(&word, ',', &number)) {
        if (!ru_str_i64(number, &o->dim[o->rank])) {
            return false;
        }
        o->bytes *= (double)o->dim[o->rank++];
    }
    return true;
}

static uint32_t read_operands(ru_str list, operand *o)
{
    ru_str word;
    uint32_t n = 0;
    list = ru_str_trim(list);
    while (n < OPERANDS_MAX && ru_str_next(&list, ' ', &word)) {
        n += read_operand(word, &o[n]) ? 1 : 0;
    }
    return n;
}

/* Op, and the words of the kernel that name library and algorithm, from general to special. */
static void put_kind(const ru_op_fact *op, char *kind)
{
    ru_text t = ru_text_into(kind, KIND_MAX);
    ru_str rest = ru_str_c(op->kernel), word;
    ru_text_putf(&t, "%.40s", op->op);
    for (uint32_t k = 0; k < 3 && ru_str_next(&rest, ' ', &word); k++) {
        ru_text_putf(&t, "%s%.*s", k == 1 ? " " : "/", word.n > 24 ? 24 : (int)word.n, word.p);
    }
}

void ru_cost_profile_op(const ru_op_fact *op, char *kind, ru_timing_op *into)
{
    operand in[OPERANDS_MAX] = {0}, out[OPERANDS_MAX] = {0};
    ru_str from = {0}, to = ru_str_c(op->shapes);
    bool some = ru_str_next(&to, '>', &from);
    uint32_t n_in = some ? read_operands(from, in) : 0, n_out = some ? read_operands(to, out) : 0;
    double bytes = (double)op->bytes, flops = (double)op->flops, written = 0;
    for (uint32_t k = 0; k < n_out; k++) {
        written += out[k].bytes;
    }
    put_kind(op, kind);
    /* Of several tensors that one step handles the text has the first. */
    written = written > 0 && written < bytes && 4 * written > bytes / 4 ? written : bytes / 2;
    *into = (ru_timing_op){.in_bytes = bytes - written, .out_bytes = written, .flops = flops};
    bool conv = strncmp(op->op, "Conv", 4) == 0,
         product = strcmp(op->op, "Gemm") == 0 || strcmp(op->op, "MatMul") == 0;
    if (conv && n_in >= 2) { /* the weights are the second operand, or the third */
        const operand *w = strcmp(op->op, "ConvGradW") == 0 ? &out[0] : &in[1];
        into->param_bytes = w->bytes;
        into->channels_out = w->rank > 2 ? (double)w->dim[0] : 0;
        into->channels_in = w->rank > 2 ? (double)w->dim[1] : 0;
        into->taps = 1;
        for (uint32_t k = 2; k < w->rank; k++) {
            into->taps *= (double)w->dim[k];
        }
    } else if (product && n_in >= 2 && n_out > 0 && out[0].rank > 0) {
        const operand *y = &out[0];
        double wide = (double)y->dim[y->rank - 1], elements = y->bytes / 4;
        into->param_bytes = in[1].bytes;
        into->channels_out = wide;
        into->channels_in = elements > 0 ? flops / 2 / elements : 0;
    }
    into->in_bytes = fmax(into->in_bytes - into->param_bytes, 0);
}

/* -- fitting --------------------------------------------------------------------------------------
 */

typedef struct fitting {
    const ru_facts *facts;
    const char *type;
    const char *without; /* net that no fit sees; NULL: none */
    ru_arena *out, *scratch;
} fitting;

const ru_step_fact *ru_cost_profile_of(const ru_facts *f, uint32_t rank)
{
    for (uint32_t i = 0; i < f->steps.n; i++) {
        if (f->steps.at[i].rank == rank) {
            return &f->steps.at[i];
        }
    }
    return NULL;
}

const ru_processor_fact *ru_cost_profile_processor(const ru_facts *f, uint32_t rank)
{
    for (uint32_t i = 0; i < f->processors.n; i++) {
        if (f->processors.at[i].rank == rank) {
            return &f->processors.at[i];
        }
    }
    return NULL;
}

double ru_cost_profile_own(const ru_facts *f, const ru_op_fact *op)
{
    const ru_processor_fact *p = ru_cost_profile_processor(f, op->rank);
    double ns = (double)op->took.min_ns;
    if (p != NULL && p->period_ns > 0 && p->quota_ns > 0) {
        /* A thread ran for its part of the quota, and was stopped to the period's end. */
        double period = p->period_ns, cores = p->quota_ns / period, part = cores / ceil(cores);
        double whole = floor(ns / period), rest = ns - whole * period;
        ns = whole * part * period + fmin(rest, part * period);
    }
    return ns > 0 ? ns : op->took.mean_ns;
}

/* A step of one worker whose ops were measured on the type. */
static bool is_of(const fitting *f, const ru_op_fact *op)
{
    return op->took.count > 0 && op->took.mean_ns > 0 && strcmp(op->device_type, f->type) == 0;
}

static bool is_left_out(const fitting *f, uint32_t rank)
{
    const ru_step_fact *s = f->without != NULL ? ru_cost_profile_of(f->facts, rank) : NULL;
    return s != NULL && strcmp(s->job, f->without) == 0;
}

/* As cost/step/op.h takes it: ops without shapes are told apart by their bytes. */
static ru_op_fact plain(const ru_op_fact *op, double ns, char shapes[SHAPES_MAX])
{
    ru_op_fact f = *op;
    f.took = (ru_fact){.count = 1, .mean_ns = ns};
    if (f.shapes[0] == '\0') {
        ru_text t = ru_text_into(shapes, SHAPES_MAX);
        ru_text_putf(&t, "%lld bytes", (long long)op->bytes);
        f.shapes = shapes;
    }
    return f;
}

/* The number of a kind, and those of the kinds above it; `kinds` grows. */
static ru_status kind_of(ru_map *kinds, char *kind, uint32_t *number, ru_err *err)
{
    for (bool first = true; kind[0] != '\0'; first = false) {
        bool fresh;
        uint64_t *place = ru_map_put_c(kinds, kind, &fresh);
        if (place == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "more than %d kinds of ops", RU_TIMING_KINDS_MAX);
        }
        *place = fresh ? kinds->n - 1 : *place;
        *number = first ? (uint32_t)*place : *number;
        char *slash = strrchr(kind, '/');
        *(slash != NULL ? slash : kind) = '\0';
    }
    return RU_OK;
}

/* A kind without ops of its own has the model of those below. */
static double most_of(const ru_profile_kind *k)
{
    return k->n > 0 ? k->most_bytes : k->below_bytes;
}

/* The largest op of a kind and of those above it; `kind` is lost. */
static void keep_most(const ru_map *kinds, char *kind, double bytes, ru_profile_kind *sums)
{
    while (kind[0] != '\0') {
        char *slash = strrchr(kind, '/');
        double *most = &sums[*ru_map_get_c(kinds, kind)].below_bytes;
        *most = fmax(*most, bytes);
        *(slash != NULL ? slash : kind) = '\0';
    }
}

static double predicted_ns(const ru_profile_model *m, const ru_op_fact *op, bool *known)
{
    char shapes[SHAPES_MAX], kind[KIND_MAX];
    double x[RU_TIMING_COLUMNS] = {0};
    ru_op_fact f = plain(op, 0, shapes);
    f.device_type = "";
    const ru_op_time t = ru_cost_op(&m->one, &f);
    const uint64_t *at;
    ru_timing_op sizes;
    *known = t.source == RU_OP_MEASURED;
    ru_cost_profile_op(op, kind, &sizes);
    if (*known) {
        return t.ns;
    }
    bool near = true; /* ops of about this size were measured with this kernel */
    while ((at = ru_map_get_c(&m->kinds, kind)) == NULL ||
           (kind[0] != '?' && (double)op->bytes > FAR * most_of(&m->sums[*at]))) {
        char *slash = strrchr(kind, '/');
        near = near && at == NULL;
        if (slash == NULL) {
            kind[0] = '?'; /* all kinds together */
            slash = kind + 1;
        }
        *slash = '\0';
    }
    const ru_profile_kind *k = &m->sums[*at];
    bool by_kernel = near && (t.source == RU_OP_BY_KERNEL || t.source == RU_OP_BY_OP);
    if (k->n < RU_TIMING_ROWS_MIN && by_kernel) {
        return t.ns;
    }
    if (k->n > 0 && k->n < RU_TIMING_ROWS_MIN) { /* one or two: in proportion */
        return k->flops > 0 ? k->ns * (double)op->flops / k->flops
                            : k->ns * (double)op->bytes / fmax(k->bytes, 1);
    }
    ru_timing_add(&sizes, 1, x);
    const ru_timing_row row = {.kind = (uint32_t)*at, .x = x};
    return 1e9 * ru_timing_at(&m->ops, &row);
}

static ru_status fit_ops(const fitting *f, ru_profile_model *m, ru_err *err)
{
    uint32_t n = f->facts->ops.n, rows = 0, number;
    char kind[KIND_MAX] = "?";
    ru_timing_row *row = RU_NEW(f->scratch, ru_timing_row, (int64_t)n + 1);
    double *x = RU_NEW(f->scratch, double, (int64_t)(n + 1) * RU_TIMING_COLUMNS);
    ru_op_fact *one = RU_NEW(f->scratch, ru_op_fact, (int64_t)n + 1);
    char *shapes = RU_NEW(f->scratch, char, (int64_t)(n + 1) * SHAPES_MAX);
    ru_profile_kind *sums = RU_NEW(f->out, ru_profile_kind, RU_TIMING_KINDS_MAX);
    m->sums = sums;
    ru_map_init(&m->kinds, f->out, RU_TIMING_KINDS_MAX);
    if (row == NULL || x == NULL || one == NULL || shapes == NULL || sums == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u op instances", n);
    }
    RU_TRY(kind_of(&m->kinds, kind, &number, err));
    for (uint32_t i = 0; i < n; i++) {
        const ru_op_fact *op = &f->facts->ops.at[i];
        if (!is_of(f, op) || is_left_out(f, op->rank)) {
            continue;
        }
        ru_timing_op sizes;
        double own = ru_cost_profile_own(f->facts, op);
        ru_cost_profile_op(op, kind, &sizes);
        row[rows] =
            (ru_timing_row){.x = x + (size_t)rows * RU_TIMING_COLUMNS, .seconds = 1e-9 * own};
        ru_timing_add(&sizes, 1, x + (size_t)rows * RU_TIMING_COLUMNS);
        one[rows] = plain(op, own, shapes + (size_t)rows * SHAPES_MAX);
        one[rows].device_type = "";
        RU_TRY(kind_of(&m->kinds, kind, &row[rows].kind, err));
        ru_profile_kind *k = &sums[row[rows++].kind];
        *k = (ru_profile_kind){k->n + 1,
                               k->ns + own,
                               k->flops + (double)op->flops,
                               k->bytes + (double)op->bytes,
                               fmax(k->most_bytes, (double)op->bytes),
                               k->below_bytes};
        ru_cost_profile_op(op, kind, &sizes);
        keep_most(&m->kinds, kind, (double)op->bytes, sums);
    }
    if (rows == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "no op was measured on the type '%s'", f->type);
    }
    RU_TRY(ru_cost_op_fit(one, rows, f->out, f->scratch, &m->one, err));
    const char **names = RU_NEW(f->scratch, const char *, m->kinds.n);
    for (const ru_map_entry *e = NULL; names != NULL && (e = ru_map_next(&m->kinds, e)) != NULL;) {
        names[e->value] = e->key;
    }
    const ru_timing_in in = {.rows = row,
                             .n = rows,
                             .kinds = names,
                             .n_kinds = m->kinds.n,
                             .method = RU_TIMING_SQUARES,
                             .seed = 1};
    return names == NULL ? RU_FAIL(err, RU_E_LIMIT, "no memory for %u kinds", m->kinds.n)
                         : ru_timing_fit(&in, f->out, f->scratch, &m->ops, err);
}

/* -- steps ----------------------------------------------------------------------------------------
 */

typedef struct profile {
    uint32_t rank, n;
    const ru_op_fact *ops; /* [n] */
    const ru_step_fact *step;
} profile;

/* The next profile on the type from op *at on. */
static bool next_profile(const fitting *f, uint32_t *at, profile *p)
{
    const ru_facts *x = f->facts;
    while (*at < x->ops.n) {
        uint32_t first = *at, rank = x->ops.at[first].rank;
        bool mine = true;
        for (; *at < x->ops.n && x->ops.at[*at].rank == rank; *at += 1) {
            mine = mine && strcmp(x->ops.at[*at].device_type, f->type) == 0;
        }
        *p = (profile){rank, *at - first, x->ops.at + first, ru_cost_profile_of(x, rank)};
        if (mine && p->step != NULL && p->step->compute_ns > 0) {
            return true;
        }
    }
    return false;
}

double ru_cost_profile_share(const ru_processor_fact *p, double *could)
{
    double quota =
        p != NULL && p->period_ns > 0 && p->quota_ns > 0 ? p->quota_ns / p->period_ns : 1;
    *could = quota < 1 ? quota : 1;
    return p != NULL && p->took.mean_ns > 0 ? p->compute_ns / p->took.mean_ns : 0;
}

double ru_cost_profile_alone(const ru_facts *f, const ru_step_fact *s)
{
    double could, got = ru_cost_profile_share(ru_cost_profile_processor(f, s->rank), &could);
    return got > 0 && got < could ? s->compute_ns * got / could : s->compute_ns;
}

static double sum_of(const ru_profile_model *m, const ru_op_fact *ops, uint32_t n, double *known)
{
    double sum = 0, of_known = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is;
        double ns = predicted_ns(m, &ops[i], &is);
        sum += ns;
        of_known += is ? ns : 0;
    }
    *known = sum > 0 ? of_known / sum : 0;
    return sum;
}

/* The median of measured over predicted sums. */
static ru_status fit_step(const fitting *f, ru_profile_model *m, ru_err *err)
{
    double *ratio = RU_NEW(f->scratch, double, (int64_t)f->facts->steps.n + 1), known, spread = 0;
    uint32_t n = 0;
    profile p;
    if (ratio == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u steps", f->facts->steps.n);
    }
    for (uint32_t at = 0; next_profile(f, &at, &p) && n < f->facts->steps.n;) {
        double sum = is_left_out(f, p.rank) ? 0 : sum_of(m, p.ops, p.n, &known);
        if (sum > 0) {
            const ru_fact *took = &p.step->took;
            spread += took->mean_ns > 0 ? took->stddev_ns / took->mean_ns : 0;
            ratio[n++] = ru_cost_profile_alone(f->facts, p.step) / sum;
        }
    }
    m->nets = n;
    m->step = 1;
    m->spread = n > 0 ? spread / n : 0;
    return n == 0 ? RU_OK
                  : ru_quantile(ratio, n, 0.5, RU_QUANTILE_LINEAR, f->scratch, &m->step, err);
}

static ru_status fit(const fitting *f, ru_profile_model *m, ru_err *err)
{
    *m = (ru_profile_model){.error = ERROR_UNKNOWN};
    RU_TRY(fit_ops(f, m, err));
    return fit_step(f, m, err);
}

/* Each net by the others. */
static ru_status expect_error(const fitting *all, ru_profile_model *m, ru_err *err)
{
    double *off = RU_NEW(all->scratch, double, (int64_t)m->nets + 1);
    uint32_t n = 0;
    profile p;
    if (off == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u nets", m->nets);
    }
    for (uint32_t at = 0; next_profile(all, &at, &p) && n < m->nets;) {
        ru_arena_mark mark = ru_arena_mark_get(all->scratch), of_out = ru_arena_mark_get(all->out);
        const fitting f = {all->facts, all->type, p.step->job, all->scratch, all->out};
        ru_profile_model other;
        double known;
        ru_status st = fit(&f, &other, err);
        if (st == RU_E_INFEASIBLE) { /* there is no other net */
            ru_arena_rewind(all->scratch, mark);
            ru_arena_rewind(all->out, of_out);
            return RU_OK;
        }
        RU_TRY(st);
        double ns = other.step * sum_of(&other, p.ops, p.n, &known);
        off[n++] = fabs(ns / ru_cost_profile_alone(all->facts, p.step) - 1);
        ru_arena_rewind(all->scratch, mark);
        ru_arena_rewind(all->out, of_out);
    }
    return n == 0 ? RU_OK
                  : ru_quantile(off, n, 0.5, RU_QUANTILE_LINEAR, all->scratch, &m->error, err);
}

ru_status ru_cost_profile(const ru_facts *facts, const char *type, ru_arena *out, ru_arena *scratch,
                          ru_profile_model *m, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    const fitting f = {facts, type, NULL, out, scratch};
    RU_TRY(fit(&f, m, err));
    RU_TRY(expect_error(&f, m, err));
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}

ru_profile_step ru_cost_profile_step(const ru_profile_model *m, const ru_op_fact *ops, uint32_t n)
{
    ru_profile_step s = {0};
    s.ns = m->step * sum_of(m, ops, n, &s.known);
    s.error = s.known >= KNOWN_ALL ? m->spread : m->error;
    return s;
}
