#include "serve/far/called.h"

#include <string.h>

/* The tensor of a value for so many rows. */
static ru_oip_tensor tensor_of(const ru_served_facts *f, const ru_served_value *v, int64_t rows,
                               const void *data)
{
    ru_oip_tensor t = {.name = ru_str_c(v->name), .type = v->type, .data = data};
    if (f->batched) {
        t.type.rank = v->type.rank + 1;
        t.type.dims[0] = rows;
        memcpy(t.type.dims + 1, v->type.dims, v->type.rank * sizeof *v->type.dims);
    }
    return t;
}

static int64_t rows_of(ru_served_part *const *parts, uint32_t n)
{
    int64_t rows = 0;
    for (uint32_t k = 0; k < n; k++) {
        rows += parts[k]->rows;
    }
    return rows;
}

ru_status ru_called_put(const ru_served_facts *f, ru_served_part *const *parts, uint32_t n,
                        ru_arena *arena, ru_text *into, ru_err *err)
{
    ru_oip_tensor in[RU_OIP_TENSORS_MAX];
    int64_t rows = rows_of(parts, n);
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        const ru_served_value *v = &f->inputs[k];
        if (v->texts) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "input '%s' is of texts, which functions do not take", v->name);
        }
        uint8_t *all = n > 1 ? ru_arena_alloc(arena, rows * v->row_bytes, 64) : NULL, *at = all;
        for (uint32_t i = 0; all != NULL && i < n; i++) {
            memcpy(at, parts[i]->in[k], (size_t)(parts[i]->rows * v->row_bytes));
            at += parts[i]->rows * v->row_bytes;
        }
        if (n > 1 && all == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a call of %lld rows", (long long)rows);
        }
        in[k] = tensor_of(f, v, rows, n > 1 ? (const void *)all : parts[0]->in[k]);
    }
    ru_oip_ask(in, f->n_inputs, into);
    return into->cut ? RU_FAIL(err, RU_E_MEM, "no memory for a call of %lld rows", (long long)rows)
                     : RU_OK;
}

static const ru_oip_tensor *find(const ru_oip_request *got, const char *name)
{
    for (uint32_t k = 0; k < got->n_inputs; k++) {
        if (ru_str_eq_c(got->inputs[k].name, name)) {
            return &got->inputs[k];
        }
    }
    return NULL;
}

ru_status ru_called_take(const ru_served_facts *f, ru_served_part *const *parts, uint32_t n,
                         const void *text, int64_t n_text, ru_arena *arena, ru_err *err)
{
    ru_oip_request got = {0};
    int64_t rows = rows_of(parts, n);
    ru_status st = ru_oip_read_answer(text, n_text, arena, &got, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st == RU_E_LIMIT ? st : RU_E_DATA, "the answer of the function");
    }
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        const ru_served_value *v = &f->outputs[k];
        const ru_oip_tensor *t = find(&got, v->name);
        ru_oip_tensor want = tensor_of(f, v, rows, NULL);
        if (t == NULL || t->type.dtype != want.type.dtype ||
            ru_type_bytes(&t->type) != ru_type_bytes(&want.type)) {
            return RU_FAIL(err, RU_E_DATA,
                           "the function answers with another type or shape of output '%s', or "
                           "without it",
                           v->name);
        }
        const uint8_t *at = t->data;
        for (uint32_t i = 0; i < n; i++) {
            memcpy(parts[i]->out[k], at, (size_t)(parts[i]->rows * v->row_bytes));
            at += parts[i]->rows * v->row_bytes;
        }
    }
    return RU_OK;
}

ru_status ru_called_answer(void *self, const uint8_t *body, int64_t body_bytes, ru_arena *arena,
                           ru_text *out, ru_err *err)
{
    ru_served *m = self;
    const ru_served_facts *f = ru_served_facts_get(m);
    ru_oip_request asked = {0};
    ru_oip_tensor answer[RU_OIP_TENSORS_MAX];
    uint32_t slot[RU_OIP_TENSORS_MAX];
    ru_served_part part = {0}, *parts[] = {&part};
    RU_TRY(ru_oip_read(body, body_bytes, -1, arena, &asked, err));
    RU_TRY(ru_served_fit(m, &asked, &part.rows, slot, err));
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        part.in[k] = asked.inputs[slot[k]].data;
    }
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        part.out[k] = ru_arena_alloc(arena, part.rows * f->outputs[k].row_bytes, 64);
        if (part.out[k] == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the answer");
        }
        answer[k] = tensor_of(f, &f->outputs[k], part.rows, part.out[k]);
    }
    ru_served_run(m, 0, parts, 1, err);
    RU_TRY(part.st);
    ru_oip_answer("function", "1", asked.id, answer, f->n_outputs, out);
    return RU_OK;
}
