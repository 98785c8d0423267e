#include "train/model/weights.h"

#include <string.h>

#include "base/map.h"
#include "base/str.h"
#include "store/safetensors.h"

enum { STARS_MAX = 8, NAMED_MAX = 3, LIST_BYTES = 300 };

/* A list of names for people: the first few, and how many more there are. */
typedef struct names {
    uint32_t n;
    char text[LIST_BYTES];
    ru_text out;
} names;

typedef struct loading {
    const ru_weights_options *opt;
    const ru_graph *g;
    ru_exe *exe;
    ru_arena scratch;
    const ru_array **from; /* [g->n_values] the tensor of each state */
    uint32_t n_read;
    names missing, extra, misshaped;
} loading;

static void names_init(names *l)
{
    l->out = ru_text_into(l->text, sizeof l->text);
}

/* Begins the next item; false: there are enough. */
static bool name_next(names *l)
{
    l->n++;
    if (l->n > NAMED_MAX) {
        return false;
    }
    ru_text_put(&l->out, l->n > 1 ? ", " : "");
    return true;
}

static void names_end(names *l)
{
    if (l->n > NAMED_MAX) {
        ru_text_putf(&l->out, " and %u more", l->n - NAMED_MAX);
    }
}

static bool is_weight(const ru_value *v)
{
    return v->kind == RU_VALUE_STATE && v->role != RU_ROLE_SLOT && v->name != NULL;
}

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_LIMIT, "not enough memory to read weights");
}

/* -- names ------------------------------------------------------------------------------------- */

static uint32_t stars_in(const char *s)
{
    uint32_t n = 0;
    for (; *s != '\0'; s++) {
        n += *s == '*';
    }
    return n;
}

ru_status ru_weight_rule_check(const ru_weight_rule *r, ru_err *err)
{
    uint32_t from = stars_in(r->from), to = stars_in(r->to);
    if (to > from || from > STARS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "model.weights_map: '%s' has %u *, but '%s' has %u; each * of 'to' needs "
                       "one of 'from', and %d are possible",
                       r->to, to, r->from, from, STARS_MAX);
    }
    return RU_OK;
}

/* The name of a tensor in the model; empty: it is left out. NULL: no memory. */
static const char *name_in_model(loading *w, const char *name)
{
    if (ru_str_ends(ru_str_c(name), "num_batches_tracked")) {
        return "";
    }
    for (uint32_t k = 0; k < w->opt->n_rules; k++) {
        const ru_weight_rule *r = &w->opt->rules[k];
        ru_str stars[STARS_MAX];
        uint32_t at = 0;
        if (!ru_str_match(ru_str_c(name), r->from, stars, STARS_MAX)) {
            continue;
        }
        ru_text to = ru_text_arena(&w->scratch);
        ru_text_put(&to, "");
        for (const char *p = r->to; *p != '\0'; p++) {
            if (*p == '*') {
                RU_CHECK(at < STARS_MAX);
                ru_text_put_n(&to, stars[at].p, stars[at].n);
                at++;
            } else {
                ru_text_char(&to, *p, 1);
            }
        }
        return to.cut ? NULL : to.n > 0 ? to.p : "";
    }
    return name;
}

/* -- what belongs to what ---------------------------------------------------------------------- */

static void misshaped(loading *w, const ru_array *a, const ru_value *v)
{
    char have[160], want[160];
    if (name_next(&w->misshaped)) {
        ru_text_putf(&w->misshaped.out, "%.60s is %s in the file and %s in the model", v->name,
                     ru_type_print(NULL, &a->type, have, sizeof have),
                     ru_type_print(w->g, &v->type, want, sizeof want));
    }
}

static bool same_shape(const ru_type *a, const ru_type *b)
{
    bool same = a->rank == b->rank && ru_dtype_is_float(a->dtype) == ru_dtype_is_float(b->dtype);
    for (uint32_t d = 0; same && d < a->rank; d++) {
        same = a->dims[d] == b->dims[d];
    }
    return same && (a->dtype == b->dtype || (b->dtype == RU_F32 && ru_dtype_is_float(a->dtype)));
}

static ru_status place(loading *w, const ru_map *states, const ru_array *a, ru_err *err)
{
    const char *name = name_in_model(w, a->name);
    if (name == NULL) {
        return full(err);
    }
    if (name[0] == '\0') {
        return RU_OK;
    }
    const uint64_t *v = ru_map_get_c(states, name);
    if (v == NULL) {
        if (name_next(&w->extra)) {
            ru_text_putf(&w->extra.out, "%.60s", a->name);
        }
        return RU_OK;
    }
    if (w->from[*v] != NULL) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s: both '%.80s' and '%.80s' become '%.80s' by model.weights_map",
                       w->opt->path, w->from[*v]->name, a->name, name);
    }
    w->from[*v] = a;
    return RU_OK;
}

static ru_status match(loading *w, const ru_arrays *tensors, ru_err *err)
{
    ru_map states;
    ru_map_init(&states, &w->scratch, 0);
    for (uint32_t v = 1; v < w->g->n_values; v++) {
        if (is_weight(&w->g->values[v])) {
            uint64_t *at = ru_map_put_c(&states, w->g->values[v].name, NULL);
            if (at == NULL) {
                return full(err);
            }
            *at = v;
        }
    }
    for (uint32_t k = 0; k < tensors->n; k++) {
        RU_TRY(place(w, &states, &tensors->at[k], err));
    }
    for (uint32_t v = 1; v < w->g->n_values; v++) {
        const ru_value *s = &w->g->values[v];
        if (!is_weight(s)) {
            continue;
        }
        if (w->from[v] == NULL && name_next(&w->missing)) {
            ru_text_putf(&w->missing.out, "%.60s", s->name);
        } else if (w->from[v] != NULL && !same_shape(&w->from[v]->type, &s->type)) {
            misshaped(w, w->from[v], s);
            w->from[v] = NULL;
        } else {
            w->n_read += w->from[v] != NULL;
        }
    }
    return RU_OK;
}

/* -- values ------------------------------------------------------------------------------------ */

static void to_f32(const ru_array *a, float *out)
{
    int64_t n = ru_type_count(&a->type);
    for (int64_t e = 0; e < n; e++) {
        switch ((uint32_t)a->type.dtype) {
        case RU_F16:
            out[e] = ru_f16_to_f32(((const uint16_t *)a->data)[e]);
            break;
        case RU_BF16:
            out[e] = ru_bf16_to_f32(((const uint16_t *)a->data)[e]);
            break;
        default:
            out[e] = (float)((const double *)a->data)[e];
            break;
        }
    }
}

static ru_status write_all(loading *w, ru_err *err)
{
    for (uint32_t v = 1; v < w->g->n_values; v++) {
        const ru_array *a = w->from[v];
        if (a == NULL) {
            continue;
        }
        const ru_type *want = &w->g->values[v].type;
        ru_arena_mark mark = ru_arena_mark_get(&w->scratch);
        const void *data = a->data;
        if (a->type.dtype != want->dtype) {
            float *converted = ru_arena_alloc(&w->scratch, ru_type_bytes(want), 64);
            if (converted == NULL) {
                return full(err);
            }
            to_f32(a, converted);
            data = converted;
        }
        RU_TRY(ru_exe_state_write(w->exe, (ru_value_id){v}, data, err));
        ru_arena_rewind(&w->scratch, mark);
    }
    return RU_OK;
}

/* -- what is said ------------------------------------------------------------------------------ */

/* "; the file lacks 2 tensors of the model: fc.weight, fc.bias; ..." */
static void put_odd(const loading *w, ru_text *out)
{
    const names *m = &w->missing, *x = &w->extra, *s = &w->misshaped;
    if (m->n > 0) {
        ru_text_putf(out, "; the file lacks %u tensor%s of the model: %s", m->n,
                     m->n == 1 ? "" : "s", m->text);
    }
    if (x->n > 0) {
        ru_text_putf(out, "; the model lacks %u tensor%s of the file: %s", x->n,
                     x->n == 1 ? "" : "s", x->text);
    }
    if (s->n > 0) {
        ru_text_putf(out, "; %u tensor%s another shape or type: %s", s->n,
                     s->n == 1 ? " has" : "s have", s->text);
    }
}

static ru_status judge(loading *w, ru_arena *arena, const char **said, ru_err *err)
{
    char odd[3 * LIST_BYTES + 300] = "";
    ru_text text = ru_text_into(odd, sizeof odd);
    names_end(&w->missing);
    names_end(&w->extra);
    names_end(&w->misshaped);
    put_odd(w, &text);
    if (odd[0] != '\0' && !w->opt->partial) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s does not fit the model%s (model.weights_map renames tensors, "
                       "model.weights_partial: true takes what fits)",
                       w->opt->path, odd);
    }
    if (w->n_read == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s has no tensor that fits the model%s", w->opt->path, odd);
    }
    *said = ru_arena_printf(arena, "%u tensor%s from %s%s", w->n_read, w->n_read == 1 ? "" : "s",
                            w->opt->path, odd);
    return *said != NULL ? RU_OK : full(err);
}

ru_status ru_weights_load(const ru_weights_options *opt, const ru_graph *step, ru_exe *exe,
                          ru_arena *arena, const char **said, ru_err *err)
{
    loading w = {.opt = opt, .g = step, .exe = exe};
    ru_map_file map = {0};
    ru_safetensors file;
    ru_arena_init(&w.scratch, 0);
    names_init(&w.missing);
    names_init(&w.extra);
    names_init(&w.misshaped);
    w.from = RU_NEW(&w.scratch, const ru_array *, step->n_values);
    ru_status st = w.from != NULL ? RU_OK : full(err);
    st = st == RU_OK ? ru_safetensors_open(opt->path, &w.scratch, &map, &file, err) : st;
    st = st == RU_OK ? match(&w, &file.tensors, err) : st;
    st = st == RU_OK ? judge(&w, arena, said, err) : st;
    st = st == RU_OK ? write_all(&w, err) : st;
    ru_file_unmap(&map);
    ru_arena_fini(&w.scratch);
    return st;
}
