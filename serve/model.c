#include "serve/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "env/clock.h"
#include "env/thread.h"
#include "exec/reads.h"
#include "world/pass/pass.h"

enum { WARM_RUNS = 3, ROWS_MAX = 1 << 30 /* of a request; rows of no bytes have no other bound */ };

#define OUTPUTS_MAX_BYTES (INT64_C(1) << 28) /* of a batch */

/* An executable of one batch size on one instance. */
typedef struct ready {
    ru_graph graph;
    ru_exe *exe;
    ru_time used; /* by its last batch; ns 0: it rests */
} ready;

struct ru_served {
    ru_arena arena;
    ru_source source;
    ru_served_options opt;
    ru_served_facts facts;
    ready *ready; /* [sizes * instances] size by size */
    uint32_t n_sizes;
    /* [instances] one row on kernels that keep NaN, where weights are constants: those are dropped
     * once all is open, so that no executable can open such kernels later. NULL: not needed. */
    ru_exe **keepers;
    ru_flag kept;   /* they are open */
    ru_flag opened; /* sizes that all instances have */
    ru_err first;   /* why the first opening failed */
    ru_flag stop;
    int64_t service_ns[RU_SERVED_SIZES_MAX];
};

/* -- signature ---------------------------------------------------------------------------------
 */

static bool same_but_rows(const ru_type *one, const ru_type *two)
{
    bool same = one->rank == two->rank && one->rank > 0 && one->dtype == two->dtype &&
                one->dims[0] == 1 && two->dims[0] == 2;
    for (uint32_t d = 1; same && d < one->rank; d++) {
        same = one->dims[d] == two->dims[d];
    }
    return same;
}

static bool follows_rows(const ru_graph *one, const ru_graph *two)
{
    bool all = one->n_inputs == two->n_inputs && one->n_outputs == two->n_outputs;
    for (uint32_t k = 0; all && k < one->n_inputs; k++) {
        all = same_but_rows(&ru_graph_value(one, one->inputs[k])->type,
                            &ru_graph_value(two, two->inputs[k])->type);
    }
    for (uint32_t k = 0; all && k < one->n_outputs; k++) {
        all = same_but_rows(&ru_graph_value(one, one->outputs[k])->type,
                            &ru_graph_value(two, two->outputs[k])->type);
    }
    return all && one->n_inputs > 0;
}

static ru_status values_of(ru_served *m, const ru_graph *g, const ru_value_id *ids, uint32_t n,
                           const char *const *names, const bool *texts, ru_served_value **out,
                           ru_err *err)
{
    ru_served_value *v = RU_NEW(&m->arena, ru_served_value, n);
    if (v == NULL || n > RU_OIP_TENSORS_MAX) {
        return RU_FAIL(err, v == NULL ? RU_E_MEM : RU_E_LIMIT,
                       "the model has %u inputs or outputs; at most %d can be served", n,
                       RU_OIP_TENSORS_MAX);
    }
    for (uint32_t k = 0; k < n; k++) {
        const ru_value *from = ru_graph_value(g, ids[k]);
        ru_type t = from->type;
        if (m->facts.batched) {
            memmove(t.dims, t.dims + 1, --t.rank * sizeof *t.dims);
        }
        v[k] = (ru_served_value){.name = names != NULL ? names[k] : from->name,
                                 .type = t,
                                 .row_bytes = ru_type_bytes(&t),
                                 .texts = texts != NULL && texts[k]};
        v[k].name = v[k].name != NULL ? v[k].name : ru_arena_printf(&m->arena, "output_%u", k);
        if (ru_oip_datatype(t.dtype) == NULL || v[k].name == NULL) {
            return RU_FAIL(err, RU_E_UNSUPPORTED, "'%s' has elements of type %s", v[k].name,
                           ru_dtype_name(t.dtype));
        }
    }
    *out = v;
    return RU_OK;
}

/* Which values grow with the length of sequences; none: *sized stays false. */
static bool mark_sized(const ru_graph *own, const ru_value_id *ids, const ru_graph *shorter,
                       const ru_value_id *others, uint32_t n, int64_t size, ru_served_value *v)
{
    bool fits = true;
    for (uint32_t k = 0; fits && k < n; k++) {
        const ru_type *a = &ru_graph_value(own, ids[k])->type;
        const ru_type *b = &ru_graph_value(shorter, others[k])->type;
        fits = a->rank == b->rank && a->dtype == b->dtype;
        for (uint32_t d = 0; fits && d < a->rank; d++) {
            bool same = a->dims[d] == b->dims[d];
            bool grows = d == 1 && a->dims[d] == size && b->dims[d] == size / 2;
            fits = same || grows;
            v[k].sized = v[k].sized || grows;
        }
    }
    return fits;
}

/* Does the source have the model for half the length, and what follows it? */
static ru_status find_sizes(ru_served *m, const ru_graph *one, ru_served_value *in,
                            ru_served_value *out, ru_err *err)
{
    const ru_type *first = &ru_graph_value(one, one->inputs[0])->type;
    int64_t size = m->facts.batched && first->rank > 1 ? first->dims[1] : 0;
    ru_arena scratch;
    ru_graph half;
    ru_err why = {0};
    if (!m->opt.sizes || size < 2) {
        return RU_OK;
    }
    ru_arena_init(&scratch, 0);
    ru_status st = m->source.ops->graph(m->source.self, 1, size / 2, &scratch, &half, &why);
    bool fits = st == RU_OK && half.n_inputs == one->n_inputs && half.n_outputs == one->n_outputs &&
                mark_sized(one, one->inputs, &half, half.inputs, one->n_inputs, size, in) &&
                mark_sized(one, one->outputs, &half, half.outputs, one->n_outputs, size, out) &&
                in[0].sized;
    m->facts.size_max = fits ? size : 0;
    ru_arena_fini(&scratch);
    return st == RU_OK || st == RU_E_UNSUPPORTED ? RU_OK : RU_FAIL(err, st, "%s", why.text);
}

static ru_status signature(ru_served *m, const ru_graph *one, ru_err *err)
{
    ru_arena scratch;
    ru_graph two;
    ru_err why = {0};
    ru_served_value *in, *out;
    ru_arena_init(&scratch, 0);
    ru_status st = m->source.ops->graph(m->source.self, 2, m->opt.length, &scratch, &two, &why);
    m->facts.batched = st == RU_OK && follows_rows(one, &two);
    m->facts.prepares = m->source.ops->before != NULL;
    ru_arena_fini(&scratch);
    if (st != RU_OK && st != RU_E_DATA && st != RU_E_UNSUPPORTED) { /* these: one row at a time */
        return RU_FAIL(err, st, "%s", why.text);
    }
    m->facts.platform = m->source.ops->name;
    m->facts.words = m->source.words;
    m->facts.n_inputs = one->n_inputs;
    m->facts.n_outputs = one->n_outputs;
    RU_TRY(values_of(m, one, one->inputs, one->n_inputs, NULL, m->source.texts_in, &in, err));
    RU_TRY(values_of(m, one, one->outputs, one->n_outputs, m->source.outputs, m->source.texts_out,
                     &out, err));
    m->facts.inputs = in;
    m->facts.outputs = out;
    return find_sizes(m, one, in, out, err);
}

/* -- executables -------------------------------------------------------------------------------
 */

static ready *at(const ru_served *m, uint32_t size, uint32_t instance)
{
    return &m->ready[size * m->opt.instances + instance];
}

/* Reading a model leaves more behind than its graph. */
static ru_status read_graph(ru_served *m, int64_t rows, ru_graph *out, ru_err *err)
{
    ru_arena scratch;
    ru_graph g;
    ru_arena_init(&scratch, 0);
    ru_status st = m->source.ops->graph(m->source.self, rows, m->opt.length, &scratch, &g, err);
    st = st == RU_OK ? ru_pass_dead(&g, &m->arena, out, err) : st;
    st = st == RU_OK ? ru_pass_keep(out, &scratch, err) : st;
    ru_arena_fini(&scratch);
    return st;
}

static ru_status open_exe(ru_served *m, uint32_t size, uint32_t instance, ru_err *err)
{
    ready *r = at(m, size, instance);
    ru_exe_options o = m->opt.exe;
    if (instance > 0) { /* a twin of its size: everything is shared */
        r->graph = at(m, size, 0)->graph;
        o.share = at(m, size, 0)->exe;
    } else if (size > 0) {
        RU_TRY(read_graph(m, INT64_C(1) << size, &r->graph, err));
        o.share = at(m, size - 1, 0)->exe; /* likely packed alike */
    } else if (m->opt.like != NULL) {
        o.share = at(m->opt.like, 0, 0)->exe;
    }
    o.once = m->keepers != NULL;
    RU_TRY(ru_exe_open(&at(m, size, 0)->graph, &o, &r->exe, err));
    return o.share == NULL && m->source.ops->load != NULL
               ? m->source.ops->load(m->source.self, &r->graph, r->exe, err)
               : RU_OK;
}

/* Inputs of zeros are legal for every model that takes numbers; one that refuses them is ready all
 * the same. */
static ru_status warm(ru_served *m, uint32_t size, uint32_t instance, ru_err *err)
{
    ready *r = at(m, size, instance);
    int64_t least = INT64_MAX;
    for (int k = 0; k < WARM_RUNS; k++) {
        ru_time from = ru_clock_now();
        ru_status st = ru_exe_run(r->exe, &(ru_run_args){0}, err);
        if (st != RU_OK && st != RU_E_DATA) {
            return st;
        }
        int64_t ns = ru_time_since(ru_clock_now(), from);
        least = ns < least ? ns : least;
    }
    m->service_ns[size] = least;
    return RU_OK;
}

static ru_status open_keepers(ru_served *m, ru_err *err)
{
    const ready *r = at(m, 0, 0);
    ru_exe_options o = m->opt.exe;
    o.keep_nan = true;
    o.autotune = false;
    o.share = r->exe;
    for (uint32_t i = 0; i < m->opt.instances && ru_exe_drops_nan(r->exe); i++) {
        RU_TRY(ru_exe_open(&r->graph, &o, &m->keepers[i], err));
        o.share = m->keepers[0]; /* the others are its twins */
    }
    ru_flag_set(&m->kept, 1);
    return RU_OK;
}

static ru_status open_size(ru_served *m, uint32_t size, ru_err *err)
{
    for (uint32_t i = 0; i < m->opt.instances; i++) {
        RU_TRY(open_exe(m, size, i, err));
        RU_TRY(warm(m, size, i, err));
        ru_exe_rest(at(m, size, i)->exe);
    }
    return RU_OK;
}

static bool differ(const float *a, const float *b, const ru_type *t)
{
    int64_t n = t->dtype == RU_F32 ? ru_type_count(t) : 0;
    double off = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        off += fabs((double)(a[i] - b[i]));
        size += fabs((double)a[i]);
    }
    return off > 1e-3 * size + 1e-6;
}

static void fill_random(void *into, const ru_type *t, ru_rng *rng)
{
    int64_t n = ru_type_count(t);
    for (int64_t i = 0; i < n && t->dtype == RU_F32; i++) {
        ((float *)into)[i] = (float)ru_rng_normal(rng);
    }
}

/* Does the answer for a row depend on the row beside it? The first of two rows of noise is computed
 * beside two others. */
static ru_status rows_meet(ru_served *m, ru_arena *scratch, bool *meet, ru_err *err)
{
    ready *two = at(m, 1, 0);
    ru_rng rng = ru_rng_from(1, ru_rng_label("served"));
    float *first[RU_OIP_TENSORS_MAX];
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
            const ru_served_value *v = &m->facts.inputs[k];
            uint8_t *x = ru_exe_input(two->exe, two->graph.inputs[k]);
            for (uint32_t row = turn; row < 2; row++) {
                fill_random(x + row * v->row_bytes, &v->type, &rng);
            }
        }
        RU_TRY(ru_exe_run(two->exe, &(ru_run_args){0}, err));
        for (uint32_t k = 0; k < m->facts.n_outputs; k++) {
            const ru_served_value *v = &m->facts.outputs[k];
            const float *y = ru_exe_output(two->exe, two->graph.outputs[k]);
            if (turn == 0) {
                first[k] = ru_arena_copy(scratch, y, v->row_bytes, 64);
                RU_TRY(first[k] != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory"));
            } else {
                *meet = *meet || differ(first[k], y, &v->type);
            }
        }
    }
    ru_exe_rest(two->exe);
    return RU_OK;
}

/* Inputs and outputs of one row. */
static ru_status row_of(const ru_served *m, ru_arena *arena, ru_served_part *p, ru_err *err)
{
    *p = (ru_served_part){.rows = 1};
    bool room = true;
    for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
        p->in[k] = ru_arena_zalloc(arena, m->facts.inputs[k].row_bytes, 64);
        room = room && p->in[k] != NULL;
    }
    for (uint32_t k = 0; k < m->facts.n_outputs; k++) {
        p->out[k] = ru_arena_zalloc(arena, m->facts.outputs[k].row_bytes, 64);
        room = room && p->out[k] != NULL;
    }
    return room ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a row");
}

/* Half a row, alone and with zeros behind it, which must change nothing. */
static ru_status try_half(ru_served *m, ru_served *half, ru_arena *arena, bool *same, ru_err *err)
{
    ru_served_part whole, part, *parts[] = {&whole, &part};
    ru_rng rng = ru_rng_from(1, ru_rng_label("sizes"));
    RU_TRY(row_of(m, arena, &whole, err));
    RU_TRY(row_of(half, arena, &part, err));
    for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
        const ru_served_value *v = &half->facts.inputs[k];
        fill_random((void *)(uintptr_t)part.in[k], &v->type, &rng);
        memcpy((void *)(uintptr_t)whole.in[k], part.in[k], (size_t)v->row_bytes);
    }
    ru_served_run(m, 0, parts, 1, err);
    RU_TRY(whole.st);
    ru_served_run(half, 0, parts + 1, 1, err);
    RU_TRY(part.st);
    for (uint32_t k = 0; k < m->facts.n_outputs; k++) {
        *same = *same && !differ(whole.out[k], part.out[k], &half->facts.outputs[k].type);
    }
    return RU_OK;
}

static ru_status check_sizes(ru_served *m, ru_err *err)
{
    ru_served_options o = m->opt;
    ru_served *half = NULL;
    ru_arena arena;
    bool same = true;
    o.like = m;
    o.length = m->facts.size_max / 2;
    o.instances = 1;
    o.rows_max = 1;
    o.late = o.sizes = false;
    ru_arena_init(&arena, 0);
    ru_status st = ru_served_open(&m->source, &o, &half, err);
    st = st == RU_OK ? try_half(m, half, &arena, &same, err) : st;
    ru_served_close(half);
    ru_arena_fini(&arena);
    if (st == RU_OK && !same) {
        ru_log(RU_LOG_WARN, "serve", "one_size",
               "answers depend on what stands behind a request, so that all must have size %lld",
               (long long)m->facts.size_max);
        m->facts.size_max = 0;
    }
    return st;
}

/* Once, also when it fails: a second try would meet what the first has left. */
ru_status ru_served_first(ru_served *m, ru_err *err)
{
    if (ru_flag_get(&m->opened) == 0 && m->first.status == RU_OK) {
        m->first.status = open_size(m, 0, &m->first);
        ru_flag_set(&m->opened, m->first.status == RU_OK ? 1 : 0);
        if (m->first.status == RU_OK && m->facts.size_max > 0) {
            m->first.status = check_sizes(m, &m->first);
        }
    }
    if (m->first.status != RU_OK) {
        *err = m->first;
    }
    return m->first.status;
}

static ru_status open_all(ru_served *m, ru_err *err)
{
    uint32_t sizes = 1;
    int64_t row_bytes = 1;
    while (sizes < RU_SERVED_SIZES_MAX && INT64_C(1) << sizes <= m->opt.rows_max) {
        sizes++;
    }
    m->ready = RU_NEW(&m->arena, ready, sizes * m->opt.instances);
    if (m->source.ops->load == NULL) {
        m->keepers = RU_NEW(&m->arena, ru_exe *, m->opt.instances);
    }
    if (m->ready == NULL || (m->source.ops->load == NULL && m->keepers == NULL)) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    RU_TRY(m->source.ops->graph(m->source.self, 1, m->opt.length, &m->arena, &at(m, 0, 0)->graph,
                                err));
    RU_TRY(signature(m, &at(m, 0, 0)->graph, err));
    for (uint32_t k = 0; k < m->facts.n_outputs; k++) {
        row_bytes += m->facts.outputs[k].row_bytes;
    }
    while (sizes > 1 && row_bytes << (sizes - 1) > OUTPUTS_MAX_BYTES) {
        sizes--; /* logits of whole texts: larger batches are computed in several runs */
    }
    m->n_sizes = m->facts.batched ? sizes : 1;
    m->facts.rows_max = m->facts.batched ? INT64_C(1) << (sizes - 1) : 1;
    return m->opt.late ? RU_OK : ru_served_first(m, err);
}

ru_status ru_served_open(const ru_source *source, const ru_served_options *opt, ru_served **out,
                         ru_err *err)
{
    ru_served *m = calloc(1, sizeof *m);
    if (m == NULL) {
        if (opt->like == NULL) {
            source->ops->close(source->self);
        }
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    ru_arena_init(&m->arena, 0);
    m->source = *source;
    m->opt = *opt;
    m->opt.instances = opt->instances > 0 ? opt->instances : 1;
    ru_status st = open_all(m, err);
    if (st != RU_OK) {
        ru_served_close(m);
        return st;
    }
    *out = m;
    return RU_OK;
}

static ru_status open_sizes(ru_served *m, ru_err *err)
{
    for (uint32_t k = 1; k < m->n_sizes && ru_flag_get(&m->stop) == 0; k++) {
        bool meet = false;
        RU_TRY(open_size(m, k, err));
        if (k == 1) {
            ru_arena scratch;
            ru_arena_init(&scratch, 0);
            ru_status st = rows_meet(m, &scratch, &meet, err);
            ru_arena_fini(&scratch);
            RU_TRY(st);
        }
        if (meet) {
            return RU_OK; /* no batch has more than one row */
        }
        ru_flag_set(&m->opened, k + 1);
    }
    return RU_OK;
}

/* All is open that will be: what was only packed, and what graphs are read from, goes. */
static ru_status drop_packed(ru_served *m, ru_err *err)
{
    uint32_t n = m->n_sizes * m->opt.instances, all = n + m->opt.instances;
    ru_exe **list = RU_NEW(&m->arena, ru_exe *, all);
    if (list == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    for (uint32_t k = 0; k < all; k++) {
        list[k] = k < n ? m->ready[k].exe : m->keepers[k - n];
    }
    ru_exe_drop_packed(list, all);
    return RU_OK;
}

ru_status ru_served_grow(ru_served *m, ru_err *err)
{
    if (ru_flag_get(&m->opened) == 0) {
        return RU_OK;
    }
    ru_status st = m->keepers != NULL ? open_keepers(m, err) : RU_OK;
    if (st != RU_OK) {
        ru_served_stop(m); /* else rows with NaN would wait for ever */
    }
    st = st == RU_OK ? open_sizes(m, err) : st;
    if (m->keepers != NULL && ru_flag_get(&m->kept) != 0) {
        st = drop_packed(m, st == RU_OK ? err : NULL) != RU_OK && st == RU_OK ? RU_E_MEM : st;
    }
    if (m->source.ops->rest != NULL) {
        m->source.ops->rest(m->source.self);
    }
    return st;
}

void ru_served_stop(ru_served *m)
{
    ru_flag_set(&m->stop, 1);
}

void ru_served_close(ru_served *m)
{
    if (m == NULL) {
        return;
    }
    for (uint32_t k = 0; m->ready != NULL && k < m->n_sizes * m->opt.instances; k++) {
        ru_exe_close(m->ready[k].exe);
    }
    for (uint32_t k = 0; m->keepers != NULL && k < m->opt.instances; k++) {
        ru_exe_close(m->keepers[k]);
    }
    if (m->opt.like == NULL) {
        m->source.ops->close(m->source.self);
    }
    ru_arena_fini(&m->arena);
    free(m);
}

const ru_served_facts *ru_served_facts_get(const ru_served *m)
{
    return &m->facts;
}

int64_t ru_served_service_ns(ru_served *m, int64_t rows)
{
    uint32_t size = 0, opened = ru_flag_get(&m->opened);
    while (size < RU_SERVED_SIZES_MAX && INT64_C(1) << size < rows) {
        size++;
    }
    return size < opened ? m->service_ns[size] : 0;
}

/* -- requests ----------------------------------------------------------------------------------
 */

int64_t ru_served_row_bytes(const ru_served_facts *f, const ru_served_value *v, int64_t size)
{
    return v->sized && size > 0 ? v->row_bytes / f->size_max * size : v->row_bytes;
}

ru_type ru_served_type(const ru_served_facts *f, const ru_served_value *v, int64_t rows,
                       int64_t size)
{
    ru_type t = v->type;
    if (v->sized && size > 0) {
        t.dims[0] = size;
    }
    if (f->batched) {
        memmove(t.dims + 1, t.dims, t.rank++ * sizeof *t.dims);
        t.dims[0] = rows;
    }
    return t;
}

static ru_status wrong_shape(const ru_served *m, const ru_served_value *v, const ru_oip_tensor *t,
                             ru_err *err)
{
    char want[256], got[256];
    ru_type_print(NULL, &v->type, want, sizeof want);
    ru_type_print(NULL, &t->type, got, sizeof got);
    return RU_FAIL(err, RU_E_DATA, "input '%s' is %s, but the model takes %s%s%s", v->name, got,
                   want, m->facts.size_max > 0 ? " or fewer of the first dimension" : "",
                   m->facts.batched ? " with the number of rows as a dimension before" : "");
}

/* Each dimension is the model's, but for the first of a sized one, which is the request's. */
static bool dims_fit(const ru_served *m, const ru_served_value *v, const ru_type *t,
                     uint32_t before, ru_served_part *part)
{
    bool fits = t->rank == v->type.rank + before;
    for (uint32_t d = 0; fits && d < v->type.rank; d++) {
        int64_t n = t->dims[d + before];
        bool sized = d == 0 && v->sized && m->facts.size_max > 0;
        fits = sized ? n >= 1 && n <= m->facts.size_max && (part->size == 0 || part->size == n)
                     : n == v->type.dims[d];
        part->size = sized && fits ? n : part->size;
    }
    return fits;
}

static ru_status fit_input(const ru_served *m, const ru_served_value *v, const ru_oip_tensor *t,
                           ru_served_part *part, ru_err *err)
{
    uint32_t before = m->facts.batched ? 1 : 0;
    int64_t *rows = &part->rows;
    bool fits = dims_fit(m, v, &t->type, before, part);
    if (v->texts != t->texts) {
        return RU_FAIL(err, RU_E_DATA, "input '%s' is of %s, but the model takes %s", v->name,
                       t->texts ? "BYTES" : "numbers", v->texts ? "BYTES" : "numbers");
    }
    if (!fits || t->type.dtype != v->type.dtype) {
        return wrong_shape(m, v, t, err);
    }
    int64_t n = before > 0 ? t->type.dims[0] : 1;
    if (n < 1 || n > ROWS_MAX || (*rows > 0 && n != *rows)) {
        return RU_FAIL(err, RU_E_DATA, "input '%s' has %lld rows, %s", v->name, (long long)n,
                       n < 1          ? "which is too few"
                       : n > ROWS_MAX ? "which is too many"
                                      : "but another input has another number");
    }
    *rows = n;
    return RU_OK;
}

ru_status ru_served_fit(const ru_served *m, const ru_oip_request *r, ru_served_part *part,
                        uint32_t *slot, ru_err *err)
{
    part->rows = part->size = 0;
    for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
        const ru_served_value *v = &m->facts.inputs[k];
        uint32_t i = 0;
        while (i < r->n_inputs && !ru_str_eq_c(r->inputs[i].name, v->name)) {
            i++;
        }
        if (i == r->n_inputs) {
            return RU_FAIL(err, RU_E_DATA, "the request has no input '%s', which the model needs",
                           v->name);
        }
        RU_TRY(fit_input(m, v, &r->inputs[i], part, err));
        slot[k] = i;
    }
    if (r->n_inputs > m->facts.n_inputs) {
        return RU_FAIL(err, RU_E_DATA, "the request has %u inputs, but the model has %u",
                       r->n_inputs, m->facts.n_inputs);
    }
    part->rows = part->rows > 0 ? part->rows : 1;
    return RU_OK;
}

/* -- computing ---------------------------------------------------------------------------------
 */

/* Where the walk over the rows of all parts stands. */
typedef struct walk {
    ru_served_part *const *parts;
    uint32_t n, part;
    int64_t row; /* of that part */
} walk;

/* Copy up to `most` rows between parts and the executable, from *w on; how many. */
static int64_t copy(const ru_served *m, const ready *r, walk *w, int64_t most, bool in)
{
    int64_t done = 0;
    while (w->part < w->n && done < most) {
        ru_served_part *p = w->parts[w->part];
        int64_t n = p->rows - w->row < most - done ? p->rows - w->row : most - done;
        for (uint32_t k = 0; k < (in ? m->facts.n_inputs : m->facts.n_outputs); k++) {
            int64_t bytes = in ? m->facts.inputs[k].row_bytes : m->facts.outputs[k].row_bytes;
            if (in) {
                uint8_t *to = ru_exe_input(r->exe, r->graph.inputs[k]);
                memcpy(to + done * bytes, (const uint8_t *)p->in[k] + w->row * bytes,
                       (size_t)(n * bytes));
            } else {
                const uint8_t *from = ru_exe_output(r->exe, r->graph.outputs[k]);
                memcpy((uint8_t *)p->out[k] + w->row * bytes, from + done * bytes,
                       (size_t)(n * bytes));
            }
        }
        done += n;
        w->row += n;
        if (w->row == p->rows) {
            w->part++;
            w->row = 0;
        }
    }
    return done;
}

/* Rows that nobody asked for are zeros: they cannot be out of any range. */
static void pad(const ru_served *m, const ready *r, int64_t from, int64_t to)
{
    for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
        int64_t bytes = m->facts.inputs[k].row_bytes;
        uint8_t *x = ru_exe_input(r->exe, r->graph.inputs[k]);
        memset(x + from * bytes, 0, (size_t)((to - from) * bytes));
    }
}

/* Rows of a batch that met NaN, one by one on kernels that keep it. */
static ru_status keep_nan(ru_served *m, uint32_t instance, const ready *r, int64_t rows,
                          ru_err *err)
{
    const ru_graph *g = &at(m, 0, 0)->graph;
    while (ru_flag_get(&m->kept) == 0 && ru_flag_get(&m->stop) == 0) {
        ru_clock_pause(1000000); /* the loader opens them next */
    }
    if (ru_flag_get(&m->kept) == 0) {
        return RU_FAIL(err, RU_E_LIMIT,
                       "the rows hold or make NaN, and the kernels that keep it are not open: the "
                       "server ends, or its log says why");
    }
    /* where kernels of one row keep NaN as they are, there is no keeper */
    ru_exe *one = m->keepers[instance] != NULL ? m->keepers[instance] : at(m, 0, instance)->exe;
    for (int64_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < m->facts.n_inputs; k++) {
            int64_t bytes = m->facts.inputs[k].row_bytes;
            const uint8_t *from = ru_exe_input(r->exe, r->graph.inputs[k]);
            void *to = ru_exe_input(one, g->inputs[k]);
            if (from != NULL && to != NULL) { /* else no step reads it */
                memcpy(to, from + row * bytes, (size_t)bytes);
            }
        }
        RU_TRY(ru_exe_run(one, &(ru_run_args){0}, err));
        for (uint32_t k = 0; k < m->facts.n_outputs; k++) {
            int64_t bytes = m->facts.outputs[k].row_bytes;
            uint8_t *to = (uint8_t *)(uintptr_t)ru_exe_output(r->exe, r->graph.outputs[k]);
            memcpy(to + row * bytes, ru_exe_output(one, g->outputs[k]), (size_t)bytes);
        }
    }
    return RU_OK;
}

/* Activations of sizes that no batch had for `for_ns` go back to the system: getting their pages
 * again takes 8 % of the time of such a batch (ResNet-18, 32 rows), so at most that of one in a
 * while. */
static void rest(ru_served *m, uint32_t instance, ru_time now, int64_t for_ns)
{
    for (uint32_t k = 0; k < m->n_sizes; k++) {
        ready *r = at(m, k, instance);
        if (r->used.ns > 0 && ru_time_since(now, r->used) >= for_ns) {
            ru_exe_rest(r->exe);
            r->used.ns = 0;
        }
    }
}

void ru_served_rest(ru_served *m, uint32_t instance)
{
    rest(m, instance, ru_clock_now(), 0);
    if (m->keepers != NULL && ru_flag_get(&m->kept) != 0 && m->keepers[instance] != NULL) {
        ru_exe_rest(m->keepers[instance]);
    }
}

/* The size whose run, with runs of the rest, takes least: 17 rows are 16 and 1, or 32 of which 15
 * are nobody's. */
static uint32_t size_for(const ru_served *m, uint32_t opened, int64_t left)
{
    uint32_t up = 0;
    while (up + 1 < opened && INT64_C(1) << up < left) {
        up++;
    }
    if (up == 0 || INT64_C(1) << up <= left) {
        return up;
    }
    int64_t pieces_ns = 0, rest = left;
    for (uint32_t k = up; k-- > 0 && rest > 0;) {
        if (INT64_C(1) << k <= rest) {
            pieces_ns += m->service_ns[k];
            rest -= INT64_C(1) << k;
        }
    }
    return pieces_ns < m->service_ns[up] ? up - 1 : up;
}

static ru_status run_parts(ru_served *m, uint32_t instance, ru_served_part *const *parts,
                           uint32_t n, ru_err *err)
{
    walk in = {.parts = parts, .n = n}, out = in;
    uint32_t opened = ru_flag_get(&m->opened);
    int64_t left = 0;
    RU_CHECK(opened > 0);
    for (uint32_t k = 0; k < n; k++) {
        left += parts[k]->rows;
    }
    while (left > 0) {
        uint32_t size = size_for(m, opened, left);
        const ready *r = at(m, size, instance);
        int64_t rows = copy(m, r, &in, INT64_C(1) << size, true);
        if (m->facts.batched) {
            pad(m, r, rows, INT64_C(1) << size);
        }
        if (m->source.ops->before != NULL) {
            m->source.ops->before(m->source.self, ru_exe_input(r->exe, r->graph.inputs[0]), rows);
        }
        RU_TRY(ru_exe_run(r->exe, &(ru_run_args){0}, err));
        if (m->keepers != NULL && ru_exe_invalid(r->exe) && ru_exe_drops_nan(r->exe)) {
            RU_TRY(keep_nan(m, instance, r, rows, err));
        }
        (void)copy(m, r, &out, rows, false);
        at(m, size, instance)->used = ru_clock_now();
        rest(m, instance, at(m, size, instance)->used, RU_SERVED_REST_NS);
        left -= rows;
    }
    return RU_OK;
}

void ru_served_run(ru_served *m, uint32_t instance, ru_served_part *const *parts, uint32_t n,
                   ru_err *err)
{
    ru_status st = run_parts(m, instance, parts, n, err);
    for (uint32_t k = 0; k < n; k++) {
        parts[k]->st = st != RU_OK && n > 1 ? run_parts(m, instance, &parts[k], 1, err) : st;
    }
}
