#include "train/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "exec/pool.h"
#include "train/model/model_impl.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "the arena of the model is full");
}

ru_status ru_model_facts_from(const ru_dataset *d, ru_arena *arena, ru_model_facts *out,
                              ru_err *err)
{
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(d, &fields);
    if (n < 2) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "a sample of the data has %u field%s; training needs an input and a label",
                       n, n == 1 ? "" : "s");
    }
    ru_model_facts f = {.x = fields[0].type, .y = fields[1].type, .classes = ru_dataset_classes(d)};
    const char *odd = ru_dataset_not_classes(d);
    f.not_classes = odd != NULL ? ru_arena_str(arena, odd) : NULL;
    if (ru_dataset_columns(d) != NULL) {
        RU_TRY(ru_columns_copy(ru_dataset_columns(d), arena, &f.columns, err));
    }
    if (f.classes > 0 && ru_dataset_class_name(d, 0) != NULL) {
        const char **names = RU_NEW(arena, const char *, f.classes);
        if (names == NULL) {
            return full(err);
        }
        for (int64_t k = 0; k < f.classes; k++) {
            const char *name = ru_dataset_class_name(d, k);
            names[k] = ru_arena_str(arena, name != NULL ? name : "");
            if (names[k] == NULL) {
                return full(err);
            }
        }
        f.class_names = names;
        f.n_class_names = (uint32_t)f.classes;
    }
    *out = f;
    return RU_OK;
}

/* -- the zoo ----------------------------------------------------------------------------------- */

int64_t rui_model_outputs_wanted(const ru_job *job, const ru_model_facts *f)
{
    uint32_t loss = job->train.loss;
    bool by_class = loss == 0 || loss - 1 == RU_LOSS_CROSS_ENTROPY;
    return by_class ? f->classes : f->y.dtype == RU_NONE ? 0 : ru_type_count(&f->y);
}

/* What the job leaves open is taken from the data. */
static ru_status zoo_options(const ru_job *job, const ru_model_facts *f, ru_zoo_options *out,
                             ru_err *err)
{
    ru_zoo_options o = ru_job_zoo_options(job);
    if (f->x.rank > RU_ARRAY_LEN(o.input)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "samples have %u dimensions; models of the zoo take at most 4", f->x.rank);
    }
    o.input_rank = f->x.rank;
    memcpy(o.input, f->x.dims, f->x.rank * sizeof *o.input);
    bool integers = ru_dtype_is_int(f->x.dtype) && f->x.rank == 1;
    if (integers && o.vocab == 0) {
        o.vocab = f->classes;
    }
    if (integers && o.context == 0) {
        o.context = f->x.dims[0];
    }
    if (o.classes == 0) {
        o.classes = rui_model_outputs_wanted(job, f);
    }
    *out = o;
    return RU_OK;
}

static ru_status open_zoo(const ru_job *job, ru_arena *arena, ru_model *m, ru_err *err)
{
    ru_zoo_options opt;
    ru_zoo_model train, infer;
    const char *name = ru_job_zoo_name(job);
    RU_TRY(zoo_options(job, &m->facts, &opt, err));
    RU_TRY(ru_graph_init(&m->train, arena, name, err));
    RU_TRY(ru_zoo_build(name, &opt, true, &m->train, &train, err));
    RU_TRY(ru_graph_init(&m->infer, arena, name, err));
    RU_TRY(ru_zoo_build(name, &opt, false, &m->infer, &infer, err));
    m->name = name;
    m->inits = train.inits;
    m->n_inits = train.n_inits;
    m->tokens = train.tokens;
    return RU_OK;
}

ru_status ru_model_steps(const ru_job *job, const ru_model_facts *facts, const ru_zoo_steps *steps,
                         ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_zoo_options opt;
    if (job->model.source == RU_MODEL_ONNX) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "an imported model has no form in steps");
    }
    RU_TRY(zoo_options(job, facts, &opt, err));
    RU_TRY(ru_graph_init(out, arena, ru_job_zoo_name(job), err));
    return ru_zoo_build_steps(ru_job_zoo_name(job), &opt, steps, out, err);
}

ru_status ru_model_of_length(const ru_job *job, const ru_model_facts *facts, int64_t length,
                             ru_arena *arena, ru_graph *out, ru_err *err)
{
    ru_zoo_options opt;
    ru_zoo_model infer;
    bool zoo = job->model.source != RU_MODEL_ONNX;
    if (!zoo || strcmp(ru_job_zoo_name(job), "gpt") != 0) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "%s takes samples of one size, only gpt takes others",
                       zoo ? ru_job_zoo_name(job) : "an imported model");
    }
    RU_TRY(zoo_options(job, facts, &opt, err));
    opt.length = length;
    RU_TRY(ru_graph_init(out, arena, ru_job_zoo_name(job), err));
    return ru_zoo_build(ru_job_zoo_name(job), &opt, false, out, &infer, err);
}

/* -- state ------------------------------------------------------------------------------------- */

typedef struct filling {
    const ru_init *init;
    uint64_t seed;
    uint32_t k;
    int64_t count;
    float *data;
} filling;

static void fill_part(void *arg, uint32_t thread, uint32_t threads)
{
    const filling *f = arg;
    int64_t begin, end;
    ru_pool_split(f->count, 4, thread, threads, &begin, &end);
    ru_init_fill_part(f->init, f->seed, f->k, begin, end - begin, f->data + begin);
}

static ru_status fill_all(const ru_model *m, uint64_t seed, const ru_graph *step, ru_exe *exe,
                          ru_pool *pool, float *data, ru_err *err)
{
    for (uint32_t k = 0; k < m->n_inits; k++) {
        const ru_value *p = ru_graph_value(&m->train, m->inits[k].param);
        ru_value_id id = ru_graph_find(step, p->name);
        if (id.v != 0) {
            filling f = {&m->inits[k], seed, k, ru_type_count(&p->type), data};
            ru_pool_run(pool, fill_part, &f);
            RU_TRY(ru_exe_state_write(exe, id, data, err));
        }
    }
    return RU_OK;
}

ru_status ru_model_init(const ru_model *m, uint64_t seed, const ru_graph *step, ru_exe *exe,
                        uint32_t threads, ru_err *err)
{
    int64_t most = 1;
    ru_pool *pool;
    for (uint32_t k = 0; k < m->n_inits; k++) {
        int64_t n = ru_type_count(&ru_graph_value(&m->train, m->inits[k].param)->type);
        most = n > most ? n : most;
    }
    RU_TRY(ru_pool_new(threads, &pool, err));
    float *data = malloc((size_t)most * sizeof *data);
    ru_status st = data != NULL
                       ? fill_all(m, seed, step, exe, pool, data, err)
                       : RU_FAIL(err, RU_E_MEM, "not enough memory for initial values (%lld bytes)",
                                 (long long)most * 4);
    free(data);
    ru_pool_free(pool);
    return st;
}

ru_value_id ru_model_ema(const ru_graph *step, const ru_value *p)
{
    char name[512];
    if (p->kind != RU_VALUE_STATE || p->role != RU_ROLE_PARAM || p->name == NULL) {
        return (ru_value_id){0};
    }
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%s." RU_EMA_SUFFIX, p->name);
    ru_value_id v = t.cut ? (ru_value_id){0} : ru_graph_find(step, name);
    return v.v != 0 && step->values[v.v].role == RU_ROLE_SLOT ? v : (ru_value_id){0};
}

ru_status ru_model_ema_begin(const ru_graph *step, ru_exe *exe, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = RU_OK;
    for (uint32_t v = 1; v < step->n_values && st == RU_OK; v++) {
        ru_value_id mean = ru_model_ema(step, &step->values[v]);
        if (mean.v == 0) {
            continue;
        }
        ru_arena_mark mark = ru_arena_mark_get(&scratch);
        void *data = ru_arena_alloc(&scratch, ru_type_bytes(&step->values[v].type), 64);
        st = data != NULL ? ru_exe_state_read(exe, (ru_value_id){v}, data, err) : full(err);
        st = st == RU_OK ? ru_exe_state_write(exe, mean, data, err) : st;
        ru_arena_rewind(&scratch, mark);
    }
    ru_arena_fini(&scratch);
    return st;
}

ru_status ru_model_state_copy(const ru_graph *from_graph, ru_exe *from, const ru_graph *to_graph,
                              ru_exe *to, ru_arena *scratch, ru_err *err)
{
    for (uint32_t v = 1; v < to_graph->n_values; v++) {
        const ru_value *q = &to_graph->values[v];
        if (q->kind != RU_VALUE_STATE || q->role == RU_ROLE_SLOT || q->name == NULL) {
            continue;
        }
        ru_value_id id = ru_graph_find(from_graph, q->name);
        if (id.v == 0 || !ru_type_equal(&from_graph->values[id.v].type, &q->type)) {
            return RU_FAIL(err, RU_E_BUG, "the trained model has no '%s' of the same shape",
                           q->name);
        }
        ru_value_id mean = ru_model_ema(from_graph, &from_graph->values[id.v]);
        id = mean.v != 0 ? mean : id;
        ru_arena_mark mark = ru_arena_mark_get(scratch);
        void *data = ru_arena_alloc(scratch, ru_type_bytes(&q->type), 64);
        if (data == NULL) {
            return full(err);
        }
        RU_TRY(ru_exe_state_read(from, id, data, err));
        RU_TRY(ru_exe_state_write(to, (ru_value_id){v}, data, err));
        ru_arena_rewind(scratch, mark);
    }
    return RU_OK;
}

/* -- ONNX -------------------------------------------------------------------------------------- */

static ru_status open_imported(const ru_job *job, const char *path, ru_arena *arena, ru_model *m,
                               ru_err *err)
{
    const char *slash = strrchr(job->model.onnx, '/');
    m->name = ru_arena_str(arena, slash != NULL ? slash + 1 : job->model.onnx);
    if (m->name == NULL) {
        return full(err);
    }
    return rui_model_import(job, path != NULL ? path : job->model.onnx, arena, m, err);
}

/* Does the loss fit what the data have for labels? Before the model, which takes the number of its
 * outputs from them. */
static ru_status check_loss(const ru_job *job, const ru_model_facts *f, ru_err *err)
{
    char y[160];
    ru_type_print(NULL, &f->y, y, sizeof y);
    bool tokens = ru_dtype_is_int(f->x.dtype) && f->x.rank == 1;
    bool said = job->train.loss != 0, float_y = f->y.dtype == RU_F32 && f->classes == 0;
    ru_loss_kind loss = ru_job_loss(job, false);
    if (loss == RU_LOSS_CROSS_ENTROPY && float_y && !(tokens && !said)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.loss %s needs class numbers starting at 0, but the labels of the "
                       "data are numbers, %s%s%s; set train.loss to mse for regression",
                       said ? "cross_entropy" : "(auto: cross_entropy)", y,
                       f->not_classes != NULL ? ": " : "",
                       f->not_classes != NULL ? f->not_classes : "");
    }
    if (loss == RU_LOSS_NEXT_TOKEN && (!tokens || !ru_dtype_is_int(f->y.dtype) || f->y.rank != 1)) {
        char x[160];
        ru_type_print(NULL, &f->x, x, sizeof x);
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.loss next_token needs tokens as data (data.format tokens), but a "
                       "sample is %s with a label %s",
                       x, y);
    }
    if (loss == RU_LOSS_BINARY_CROSS_ENTROPY && f->classes > 2) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.loss binary_cross_entropy needs labels 0 and 1, but the data has "
                       "%lld classes; set train.loss to cross_entropy",
                       (long long)f->classes);
    }
    return RU_OK;
}

int64_t ru_model_outputs(const ru_model *m)
{
    const ru_graph *g = &m->infer;
    const ru_type *t = g->n_outputs > 0 ? &ru_graph_value(g, g->outputs[0])->type : NULL;
    bool row = t != NULL && t->rank == 2 && t->dims[1] > 0;
    return m->loss == RU_LOSS_CROSS_ENTROPY && m->facts.classes > 0 && row ? t->dims[1] : 0;
}

static ru_status check_outputs(const ru_model *m, ru_err *err)
{
    int64_t n = ru_model_outputs(m);
    if (n > 0 && n < m->facts.classes) {
        return RU_FAIL(
            err, RU_E_CONFIG, "the model has %lld output%s, but the data have %lld classes; %s",
            (long long)n, n == 1 ? "" : "s", (long long)m->facts.classes,
            m->file.model.data != NULL ? "model.head: new gives it a new last layer for them"
                                       : "leave out model.classes, or raise it");
    }
    return RU_OK;
}

ru_status ru_model_open(const ru_job *job, const ru_model_facts *facts, const char *onnx_path,
                        ru_arena *arena, ru_model *out, ru_err *err)
{
    ru_model m = {.facts = *facts};
    RU_TRY(check_loss(job, facts, err));
    ru_status st = job->model.source == RU_MODEL_ONNX
                       ? open_imported(job, onnx_path, arena, &m, err)
                       : open_zoo(job, arena, &m, err);
    if (st != RU_OK) {
        ru_model_close(&m);
        return st;
    }
    m.loss = ru_job_loss(job, m.tokens);
    st = check_outputs(&m, err);
    if (st != RU_OK) {
        ru_model_close(&m);
        return st;
    }
    *out = m;
    return RU_OK;
}

void ru_model_close(ru_model *m)
{
    ru_onnx_file_close(&m->file);
}
