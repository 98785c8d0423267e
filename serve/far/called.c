#include "serve/far/called.h"

#include <string.h>

int64_t ru_called_bound(int64_t size_max, uint32_t sizes, uint32_t class_of)
{
    return (size_max * (class_of + 1) + sizes - 1) / sizes;
}

uint32_t ru_called_class(int64_t size_max, uint32_t sizes, int64_t size)
{
    uint32_t k = 0;
    while (k + 1 < sizes && ru_called_bound(size_max, sizes, k) < size) {
        k++;
    }
    return k;
}

/* The tensor of a value for so many rows. */
static ru_oip_tensor tensor_of(const ru_served_facts *f, const ru_served_value *v, int64_t rows,
                               int64_t size, const void *data)
{
    return (ru_oip_tensor){
        .name = ru_str_c(v->name), .type = ru_served_type(f, v, rows, size), .data = data};
}

static int64_t rows_of(ru_served_part *const *parts, uint32_t n)
{
    int64_t rows = 0;
    for (uint32_t k = 0; k < n; k++) {
        rows += parts[k]->rows;
    }
    return rows;
}

/* Rows of parts into rows of `bytes` each, zeros behind those that are shorter; NULL: no memory. */
static const void *gather(const ru_served_facts *f, uint32_t k, ru_served_part *const *parts,
                          uint32_t n, int64_t bytes, ru_arena *arena)
{
    uint8_t *all = ru_arena_zalloc(arena, rows_of(parts, n) * bytes, 64), *at = all;
    for (uint32_t i = 0; all != NULL && i < n; i++) {
        int64_t own = ru_served_row_bytes(f, &f->inputs[k], parts[i]->size);
        for (int64_t row = 0; row < parts[i]->rows; row++, at += bytes) {
            memcpy(at, (const uint8_t *)parts[i]->in[k] + row * own, (size_t)own);
        }
    }
    return all;
}

ru_status ru_called_put(const ru_served_facts *f, ru_served_part *const *parts, uint32_t n,
                        int64_t size, ru_arena *arena, ru_text *into, ru_err *err)
{
    ru_oip_tensor in[RU_OIP_TENSORS_MAX];
    int64_t rows = rows_of(parts, n);
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        const ru_served_value *v = &f->inputs[k];
        if (v->texts) {
            return RU_FAIL(err, RU_E_UNSUPPORTED,
                           "input '%s' is of texts, which functions do not take", v->name);
        }
        int64_t bytes = ru_served_row_bytes(f, v, size);
        bool as_is = n == 1 && ru_served_row_bytes(f, v, parts[0]->size) == bytes;
        in[k] = tensor_of(f, v, rows, size,
                          as_is ? parts[0]->in[k] : gather(f, k, parts, n, bytes, arena));
        if (in[k].data == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a call of %lld rows", (long long)rows);
        }
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
                         int64_t size, const void *text, int64_t n_text, ru_arena *arena,
                         ru_err *err)
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
        ru_oip_tensor want = tensor_of(f, v, rows, size, NULL);
        int64_t bytes = ru_served_row_bytes(f, v, size);
        if (t == NULL || t->type.dtype != want.type.dtype ||
            ru_type_bytes(&t->type) != ru_type_bytes(&want.type)) {
            return RU_FAIL(err, RU_E_DATA,
                           "the function answers with another type or shape of output '%s', or "
                           "without it",
                           v->name);
        }
        const uint8_t *at = t->data;
        for (uint32_t i = 0; i < n; i++) {
            int64_t own = ru_served_row_bytes(f, v, parts[i]->size);
            for (int64_t row = 0; row < parts[i]->rows; row++, at += bytes) {
                memcpy((uint8_t *)parts[i]->out[k] + row * own, at, (size_t)own);
            }
        }
    }
    return RU_OK;
}

ru_status ru_called_answer(void *self, const uint8_t *body, int64_t body_bytes, ru_time until,
                           ru_arena *arena, ru_text *out, ru_err *err)
{
    (void)until; /* a batch that was begun is not given up */
    const ru_called *all = self;
    ru_oip_request asked = {0};
    ru_oip_tensor answer[RU_OIP_TENSORS_MAX];
    uint32_t slot[RU_OIP_TENSORS_MAX];
    ru_served_part part = {0}, *parts[] = {&part};
    RU_TRY(ru_oip_read(body, body_bytes, -1, arena, &asked, err));
    uint32_t which = 0;
    while (which + 1 < all->n &&
           ru_served_fit(all->at[which], &asked, &part, slot, NULL) != RU_OK) {
        which++;
    }
    ru_served *m = all->at[which];
    const ru_served_facts *f = ru_served_facts_get(m);
    RU_TRY(ru_served_fit(m, &asked, &part, slot, err));
    if (part.size < f->size_max) {
        return RU_FAIL(err, RU_E_DATA,
                       "the request has size %lld, which this function does not take: sizes are "
                       "multiples of %lld/%u, up to %lld",
                       (long long)part.size, (long long)f->size_max, all->n,
                       (long long)f->size_max);
    }
    for (uint32_t k = 0; k < f->n_inputs; k++) {
        part.in[k] = asked.inputs[slot[k]].data;
    }
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        part.out[k] = ru_arena_alloc(arena, part.rows * f->outputs[k].row_bytes, 64);
        if (part.out[k] == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the answer");
        }
        answer[k] = tensor_of(f, &f->outputs[k], part.rows, 0, part.out[k]);
    }
    ru_served_run(m, 0, parts, 1, err);
    RU_TRY(part.st);
    ru_oip_answer("function", "1", asked.id, answer, f->n_outputs, out);
    return RU_OK;
}
