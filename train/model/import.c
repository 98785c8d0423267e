/* ONNX files as models that train.
 *
 * A file for any size of image has symbols for them: all but the batch get their numbers from the
 * samples. The batch stays a symbol, because shares of workers and evaluations differ in it. */
#include <string.h>

#include "exec/ref.h"
#include "train/model/model_impl.h"
#include "world/pass/pass.h"

enum { FOLD_BYTES_MAX = 16 << 20 }; /* computed constants, such as masks, up to this size */

typedef struct sizes {
    ru_onnx_dim at[RU_RANK_MAX];
    uint32_t n;
} sizes;

static ru_status misfit(const ru_graph *g, const ru_type *want, const ru_type *x, const char *why,
                        ru_err *err)
{
    char w[160], h[160];
    ru_type_print(g, want, w, sizeof w);
    ru_type_print(NULL, x, h, sizeof h);
    return RU_FAIL(err, RU_E_CONFIG, "the model's input is %s but a sample of the data is %s; %s",
                   w, h, why);
}

/* Axis k of the input is a symbol that stands for `number`. */
static ru_status size_put(const ru_graph *g, const ru_type *t, uint32_t k, int64_t number,
                          const ru_type *x, sizes *s, ru_err *err)
{
    const char *symbol = g->symbols[ru_dim_sym(t->dims[k])];
    if (ru_dim_is_symbolic(t->dims[0]) && ru_dim_sym(t->dims[0]) == ru_dim_sym(t->dims[k])) {
        return misfit(g, t, x, "one symbol stands for the batch and for a size", err);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        if (strcmp(s->at[i].symbol, symbol) == 0) {
            return s->at[i].number == number
                       ? RU_OK
                       : misfit(g, t, x, "one symbol would have two sizes", err);
        }
    }
    s->at[s->n++] = (ru_onnx_dim){symbol, number};
    return RU_OK;
}

/* What the symbols of the input of `g` (a signature) are for samples of type x. */
static ru_status sizes_of(const ru_graph *g, const ru_type *x, sizes *s, ru_err *err)
{
    s->n = 0;
    if (g->n_inputs != 1) {
        return RU_OK; /* the step says so */
    }
    const ru_type *t = &ru_graph_value(g, g->inputs[0])->type;
    int64_t known = 1, all = ru_type_count(x);
    uint32_t open = 0, at = 0;
    for (uint32_t k = 1; k < t->rank; k++) {
        bool symbol = ru_dim_is_symbolic(t->dims[k]);
        known *= symbol ? 1 : t->dims[k];
        open += symbol;
        at = symbol ? k : at;
    }
    if (t->rank == x->rank + 1) {
        for (uint32_t k = 1; k < t->rank; k++) {
            if (ru_dim_is_symbolic(t->dims[k])) {
                RU_TRY(size_put(g, t, k, x->dims[k - 1], x, s, err));
            }
        }
        return RU_OK;
    }
    if (open == 1 && known > 0 && all % known == 0) {
        return size_put(g, t, at, all / known, x, s, err);
    }
    return open == 0
               ? RU_OK
               : misfit(g, t, x, "its sizes cannot be told from a sample of another rank", err);
}

ru_status ru_model_read_onnx(ru_onnx_file *file, const ru_type *x, ru_arena *arena, ru_graph *out,
                             ru_onnx_info *info, ru_err *err)
{
    ru_graph sign;
    sizes s;
    const ru_map_file *map = &file->model;
    ru_onnx_external external = ru_onnx_file_external(file);
    ru_onnx_options opt = {.external = &external, .signature = true};
    RU_TRY(ru_onnx_read(map->data, map->size_bytes, &opt, arena, &sign, NULL, err));
    RU_TRY(sizes_of(&sign, x, &s, err));
    opt = (ru_onnx_options){.external = &external, .train = true, .dims = s.at, .n_dims = s.n};
    return ru_onnx_read(map->data, map->size_bytes, &opt, arena, out, info, err);
}

/* Every size follows from the batch: none depends on data. */
static ru_status sizes_known(const ru_graph *g, ru_arena *arena, ru_err *err)
{
    const ru_type *t = g->n_inputs == 1 ? &ru_graph_value(g, g->inputs[0])->type : NULL;
    if (t == NULL || t->rank == 0) {
        return RU_OK; /* the step says so */
    }
    ru_fold_ops fold = ru_ref_fold_ops();
    ru_graph bound = *g;
    if (ru_dim_is_symbolic(t->dims[0])) {
        RU_TRY(ru_graph_bind(g, ru_dim_sym(t->dims[0]), 1, arena, &bound, err));
    }
    return ru_onnx_settle(&bound, &fold, arena, &bound, err);
}

ru_status rui_model_import(const ru_job *job, const char *path, ru_arena *arena, ru_model *m,
                           ru_err *err)
{
    RU_TRY(ru_onnx_file_open(path, &m->file, err));
    ru_status st = ru_model_read_onnx(&m->file, &m->facts.x, arena, &m->infer, NULL, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s", path);
    }
    ru_fold_ops fold = ru_ref_fold_ops();
    RU_TRY(ru_pass_untie(&m->infer, arena, &m->infer, err));
    RU_TRY(ru_pass_fold(&m->infer, &fold, FOLD_BYTES_MAX, arena, &m->infer, err));
    RU_TRY(ru_pass_dead(&m->infer, arena, &m->infer, err));
    RU_TRY(sizes_known(&m->infer, arena, err));
    RU_TRY(rui_model_head(job, arena, m, err));
    RU_TRY(ru_pass_train(&m->infer, arena, &m->train, err));
    RU_TRY(ru_pass_infer(&m->train, arena, &m->infer, err));
    RU_TRY(ru_pass_lift(&m->train, arena, &m->train, err));
    return ru_graph_verify(&m->train, err);
}
