/* The head as JSON, the columns behind it, both through gzip and base64 into the page. */
#include "tool/page/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/map.h"
#include "env/file/file.h"
#include "tool/page/embed.h"
#include "tool/page/page_impl.h"

enum { CHUNK_BYTES = 3 << 14, GZIP_WINDOW_BITS = 15 + 16, NAME_WAIT = 0x8000, NAME_IDS = 0x7fff };

/* Bytes on their way: z -> packed -> base64 -> file. */
typedef struct packer {
    z_stream z;
    uint8_t packed[CHUNK_BYTES];
    int64_t n_packed, put; /* put: bytes of columns, for the padding */
    ru_out *out;
    ru_err *err;
    ru_status st;
} packer;

static void put_base64(packer *p, bool last)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[CHUNK_BYTES / 3 * 4];
    int64_t whole = last ? p->n_packed : p->n_packed / 3 * 3, n = 0;
    for (int64_t i = 0; i < whole; i += 3) {
        uint32_t v = (uint32_t)p->packed[i] << 16;
        v |= i + 1 < whole ? (uint32_t)p->packed[i + 1] << 8 : 0;
        v |= i + 2 < whole ? (uint32_t)p->packed[i + 2] : 0;
        text[n++] = digits[v >> 18];
        text[n++] = digits[v >> 12 & 63];
        text[n++] = i + 1 < whole ? digits[v >> 6 & 63] : '=';
        text[n++] = i + 2 < whole ? digits[v & 63] : '=';
    }
    if (p->st == RU_OK) {
        p->st = ru_out_write(p->out, text, n, p->err);
    }
    memmove(p->packed, p->packed + whole, (size_t)(p->n_packed - whole));
    p->n_packed -= whole;
}

static void pack(packer *p, const void *data, int64_t size, bool last)
{
    const uint8_t *from = data;
    int64_t left = size;
    do {
        int64_t part = left < 1 << 30 ? left : 1 << 30;
        p->z.next_in = (z_const Bytef *)(uintptr_t)from;
        p->z.avail_in = (uInt)part;
        from = part > 0 ? from + part : from;
        left -= part;
        int rc;
        do {
            p->z.next_out = p->packed + p->n_packed;
            p->z.avail_out = (uInt)(CHUNK_BYTES - p->n_packed);
            rc = deflate(&p->z, last && left == 0 ? Z_FINISH : Z_NO_FLUSH);
            RU_CHECK(rc != Z_STREAM_ERROR);
            p->n_packed = CHUNK_BYTES - (int64_t)p->z.avail_out;
            if (p->n_packed == CHUNK_BYTES) {
                put_base64(p, false);
            }
        } while (p->z.avail_in > 0 || (last && left == 0 && rc != Z_STREAM_END));
    } while (left > 0);
    p->put += size;
}

/* A column ends at a multiple of 8 bytes. */
static void column(packer *p, const void *data, int64_t size)
{
    static const uint8_t zeros[8];
    pack(p, data, size, false);
    pack(p, zeros, (8 - p->put % 8) % 8, false);
}

static int trace_of_node(const ru_page_in *in, uint64_t node)
{
    for (uint32_t k = 0; node != 0 && k < in->n; k++) {
        if (in->traces[k].node == node) {
            return (int)k;
        }
    }
    return UINT16_MAX;
}

/* Names of all traces in one list without repetition; ids[k][i]: place of name i of trace k. */
static uint16_t **name_ids(const ru_page_in *in, ru_arena *arena, json_t *names)
{
    ru_map seen;
    ru_map_init(&seen, arena, 0);
    uint16_t **ids = RU_NEW(arena, uint16_t *, (int64_t)in->n + 1);
    json_array_append_new(names, json_pack("{s:s, s:s}", "c", "", "n", "other names"));
    for (uint32_t k = 0; ids != NULL && k < in->n; k++) {
        const ru_trace *t = &in->traces[k];
        ids[k] = RU_NEW(arena, uint16_t, (int64_t)t->n_names + 1);
        for (uint32_t i = 0; ids[k] != NULL && i < t->n_names; i++) {
            const char *category = t->names[i].category, *name = t->names[i].name;
            const char *key = ru_arena_printf(arena, "%zu:%s%s", strlen(category), category, name);
            bool fresh = false;
            uint64_t *id = key != NULL ? ru_map_put_c(&seen, key, &fresh) : NULL;
            if (id == NULL) {
                return NULL;
            }
            if (fresh && json_array_size(names) <= NAME_IDS) {
                *id = json_array_size(names);
                json_array_append_new(names, json_pack("{s:s, s:s}", "c", category, "n", name));
            }
            ids[k][i] = (uint16_t)*id;
        }
        if (ids[k] == NULL) {
            return NULL;
        }
    }
    return ids;
}

static uint16_t name_id(const rui_lane *l, uint16_t *const *ids, const ru_page_in *in,
                        const ru_record *r)
{
    uint16_t id = r->name < in->traces[l->trace].n_names ? ids[l->trace][r->name] : 0;
    return (uint16_t)(id | (r->kind == RU_REC_WAIT ? NAME_WAIT : 0u));
}

/* The columns that every span has. */
static void put_times(packer *p, const ru_page_in *in, const rui_lane *l, uint16_t *const *ids,
                      void *scratch)
{
    uint32_t *u32 = scratch;
    int64_t before = ru_trace_global(in->clocks, l->trace, l->spans[0]->start_ns), kept = before;
    for (int64_t i = 0; i < l->n; i++) {
        int64_t start = ru_trace_global(in->clocks, l->trace, l->spans[i]->start_ns);
        int64_t gap = start > kept ? (start - kept) / l->unit_ns : 0;
        u32[i] = (uint32_t)gap;
        kept += gap * l->unit_ns; /* what rounding leaves goes to the next gap */
    }
    column(p, u32, 4 * l->n);
    for (int64_t i = 0; i < l->n; i++) {
        u32[i] = (uint32_t)((l->spans[i]->end_ns - l->spans[i]->start_ns) / l->unit_ns);
    }
    column(p, u32, 4 * l->n);
    uint16_t *u16 = scratch;
    for (int64_t i = 0; i < l->n; i++) {
        u16[i] = name_id(l, ids, in, l->spans[i]->record);
    }
    column(p, u16, 2 * l->n);
}

static void put_more(packer *p, const ru_page_in *in, const rui_lane *l, void *scratch)
{
    const ru_trace_thread *t = &in->traces[l->trace].threads[l->thread];
    uint32_t *u32 = scratch;
    column(p, l->group, 4 * l->n);
    for (int64_t i = 0; i < l->n; i++) {
        const ru_record_more *m = ru_trace_more(t, l->spans[i]->record);
        u32[i] = m != NULL ? m->step : 0;
    }
    column(p, u32, 4 * l->n);
    uint16_t *u16 = scratch;
    for (int64_t i = 0; i < l->n; i++) {
        const ru_record_more *m = ru_trace_more(t, l->spans[i]->record);
        u16[i] = (uint16_t)(m != NULL ? trace_of_node(in, m->peer) : UINT16_MAX);
    }
    column(p, u16, 2 * l->n);
}

static void put_lane(packer *p, const ru_page_in *in, const rui_lane *l, uint16_t *const *ids,
                     void *scratch)
{
    uint32_t *u32 = scratch;
    put_times(p, in, l, ids, scratch);
    if (l->predicted) {
        for (int64_t i = 0; i < l->n; i++) {
            u32[i] = (uint32_t)(l->spans[i]->record->predicted_ns / l->unit_ns);
        }
        column(p, u32, 4 * l->n);
    }
    if (l->plan) {
        for (int64_t i = 0; i < l->n; i++) {
            u32[i] = l->spans[i]->record->plan;
        }
        column(p, u32, 4 * l->n);
    }
    if (l->value) {
        float *f32 = scratch;
        for (int64_t i = 0; i < l->n; i++) {
            const ru_record *r = l->spans[i]->record;
            f32[i] = r->kind == RU_REC_WAIT ? 0.0f : (float)r->value;
        }
        column(p, f32, 4 * l->n);
    }
    if (l->group != NULL) {
        put_more(p, in, l, scratch);
    }
}

static void put_steps(packer *p, const ru_rank_steps *s, int64_t page_ns, void *scratch)
{
    uint32_t *u32 = scratch;
    double *f64 = scratch;
    int32_t *i32 = scratch;
    float *f32 = scratch;
    for (int64_t i = 0; i < s->n; i++) {
        u32[i] = (uint32_t)s->at[i].step;
    }
    column(p, u32, 4 * s->n);
    for (int64_t i = 0; i < s->n; i++) {
        f64[i] = (double)(s->at[i].start_ns - page_ns);
    }
    column(p, f64, 8 * s->n);
    for (int64_t i = 0; i < s->n; i++) {
        f64[i] = (double)(s->at[i].end_ns - s->at[i].start_ns);
    }
    column(p, f64, 8 * s->n);
    for (int64_t i = 0; i < s->n; i++) {
        i32[i] = s->at[i].late == RU_STEP_NOBODY ? -1 : (int32_t)s->at[i].late;
    }
    column(p, i32, 4 * s->n);
    for (uint32_t k = 0; k < RU_STEP_PARTS; k++) {
        for (int64_t i = 0; i < s->n; i++) {
            f32[i] = (float)s->at[i].part_ns[k];
        }
        column(p, f32, 4 * s->n);
    }
}

static json_t *ops_of(const ru_page_in *in)
{
    json_t *ops = json_array();
    for (uint32_t k = 0; k < in->n; k++) {
        for (uint32_t i = 0; i < in->facts[k].n; i++) {
            const ru_span_fact *f = &in->facts[k].facts[i];
            bool told = f->predicted_total_ns > 0;
            json_t *error =
                told ? json_real(100.0 * (double)(f->actual_total_ns - f->predicted_total_ns) /
                                 (double)f->predicted_total_ns)
                     : json_null();
            json_array_append_new(
                ops,
                json_pack(
                    "{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "rank",
                    (int)ru_trace_number(&in->traces[k]), "c", f->category, "n", f->name, "count",
                    (json_int_t)f->took.count, "self", (json_int_t)f->self_ns, "total",
                    (json_int_t)f->total_ns, "median", (json_int_t)f->took.median_ns, "p90",
                    (json_int_t)f->took.p90_ns, "max", (json_int_t)f->took.max_ns, "predicted",
                    (json_int_t)(f->predicted_n > 0 ? f->predicted_total_ns / f->predicted_n : 0),
                    "error", error));
        }
    }
    return ops;
}

static json_t *memory_of(const ru_page_in *in)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < in->n_buffers; i++) {
        const ru_page_buffer *b = &in->buffers[i];
        json_array_append_new(list, json_pack("[I,I,i,i]", (json_int_t)b->offset,
                                              (json_int_t)b->bytes, (int)b->first, (int)b->last));
    }
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)in->arena_bytes, "buffers", list);
}

static json_t *lanes_of(const ru_page_in *in, const rui_lanes *lanes)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < lanes->n; i++) {
        const rui_lane *l = &lanes->at[i];
        json_array_append_new(
            list,
            json_pack("{s:i, s:i, s:s, s:i, s:b, s:I, s:I, s:I, s:b, s:b, s:b, s:b}", "rank",
                      (int)ru_trace_number(&in->traces[l->trace]), "trace", (int)l->trace, "label",
                      l->label, "depth", (int)l->depth, "async", l->async, "n", (json_int_t)l->n,
                      "unit", (json_int_t)l->unit_ns, "at", (json_int_t)l->at_ns, "predicted",
                      l->predicted, "plan", l->plan, "value", l->value, "group", l->group != NULL));
    }
    return list;
}

static json_t *head_of(const ru_page_in *in, const rui_lanes *lanes, json_t *names)
{
    json_t *ranks = json_array(), *steps = json_array(), *words = json_array();
    for (uint32_t k = 0; k < in->n; k++) {
        const ru_trace *t = &in->traces[k];
        int64_t bound = in->clocks != NULL ? ru_trace_bound_of(in->clocks, k, t) : -1;
        char note[96] = "";
        if (in->clocks != NULL && in->n > 1 && bound > 0) {
            snprintf(note, sizeof note, "clock within %.1f us", (double)bound * 1e-3);
        } else if (in->clocks != NULL && in->n > 1 && k != in->clocks->reference) {
            snprintf(note, sizeof note, "clock not measured");
        }
        json_array_append_new(
            ranks, json_pack("{s:i, s:s}", "rank", (int)ru_trace_number(t), "note", note));
        json_array_append_new(steps, json_pack("{s:i, s:I}", "rank", (int)ru_trace_number(t), "n",
                                               (json_int_t)in->steps[k].n));
    }
    for (uint32_t i = 0; i < in->n_words; i++) {
        json_array_append_new(words, json_pack("{s:s+, s:b}", "text", in->words[i].text, "",
                                               "cause", in->words[i].cause));
    }
    return json_pack("{s:s, s:I, s:i, s:O, s:o, s:o, s:o, s:o, s:o, s:o}", "about", in->about,
                     "length", (json_int_t)(lanes->end_ns - lanes->start_ns), "groups",
                     (int)lanes->groups, "names", names, "ranks", ranks, "steps", steps, "words",
                     words, "lanes", lanes_of(in, lanes), "ops", ops_of(in), "memory",
                     memory_of(in));
}

static void put_data(packer *p, const ru_page_in *in, const rui_lanes *lanes, ru_arena *arena)
{
    json_t *names = json_array();
    uint16_t **ids = name_ids(in, arena, names);
    json_t *head = head_of(in, lanes, names);
    char *text = head != NULL ? json_dumps(head, JSON_COMPACT) : NULL;
    int64_t most = 1;
    for (uint32_t i = 0; i < lanes->n; i++) {
        most = lanes->at[i].n > most ? lanes->at[i].n : most;
    }
    for (uint32_t k = 0; k < in->n; k++) {
        most = in->steps[k].n > most ? in->steps[k].n : most;
    }
    double *scratch = RU_NEW(arena, double, most);
    if (ids == NULL || text == NULL || scratch == NULL) {
        p->st = RU_FAIL(p->err, RU_E_LIMIT, "there is no memory for the page");
    } else {
        int64_t size = (int64_t)strlen(text);
        uint32_t word[2] = {(uint32_t)size, 0};
        pack(p, word, sizeof word, false);
        column(p, text, size);
        for (uint32_t i = 0; i < lanes->n; i++) {
            put_lane(p, in, &lanes->at[i], ids, scratch);
        }
        for (uint32_t k = 0; k < in->n; k++) {
            put_steps(p, &in->steps[k], lanes->start_ns, scratch);
        }
        pack(p, NULL, 0, true);
        put_base64(p, true);
    }
    free(text);
    json_decref(head);
    json_decref(names);
}

static ru_status put_text(ru_out *out, const char *s, ru_err *err)
{
    for (; *s != '\0'; s++) {
        const char *as = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;" : NULL;
        RU_TRY(as != NULL ? ru_out_write(out, as, (int64_t)strlen(as), err)
                          : ru_out_write(out, s, 1, err));
    }
    return RU_OK;
}

/* The page with every @WORD@ replaced. */
static ru_status put_page(packer *p, const ru_page_in *in, const rui_lanes *lanes, ru_arena *arena)
{
    const char *at = (const char *)rui_embed_page_html;
    for (const char *mark; (mark = strchr(at, '@')) != NULL;) {
        RU_TRY(ru_out_write(p->out, at, mark - at, p->err));
        const char *end = strchr(mark + 1, '@');
        RU_CHECK(end != NULL);
        ru_str word = ru_str_n(mark + 1, end - mark - 1);
        if (ru_str_eq_c(word, "TITLE")) {
            RU_TRY(put_text(p->out, in->title, p->err));
        } else if (ru_str_eq_c(word, "STYLE")) {
            RU_TRY(ru_out_write(p->out, rui_embed_page_css, rui_embed_page_css_bytes, p->err));
        } else if (ru_str_eq_c(word, "SCRIPT")) {
            RU_TRY(ru_out_write(p->out, rui_embed_page_js, rui_embed_page_js_bytes, p->err));
        } else {
            RU_CHECK(ru_str_eq_c(word, "DATA"));
            put_data(p, in, lanes, arena);
            RU_TRY(p->st);
        }
        at = end + 1;
    }
    return ru_out_write(p->out, at, (int64_t)strlen(at), p->err);
}

ru_status ru_page_write(const ru_page_in *in, const char *path, ru_arena *arena, ru_err *err)
{
    rui_lanes lanes;
    RU_TRY(rui_lanes_make(in, arena, &lanes, err));
    packer *p = RU_NEW(arena, packer, 1);
    if (p == NULL || deflateInit2(&p->z, Z_BEST_SPEED, Z_DEFLATED, GZIP_WINDOW_BITS, 8,
                                  Z_DEFAULT_STRATEGY) != Z_OK) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the page");
    }
    p->err = err;
    ru_status st = ru_out_open(path, &p->out, err);
    if (st == RU_OK) {
        st = put_page(p, in, &lanes, arena);
    }
    if (st == RU_OK) {
        st = ru_out_commit(p->out, err);
    }
    ru_out_close(p->out);
    deflateEnd(&p->z);
    return st;
}
