/* WebDataset: tar shards in which the members of one sample share their name up to the first dot.
 *
 *     0001.jpg 0001.cls 0002.jpg 0002.cls ...       shards: train-{000000..000099}.tar
 *
 *     .jpg .png ...    x, pixels [3, h, w]          .cls  y, a class number as text
 *     .npy             x, one array a sample        .txt  ids, bytes padded with 0 to `context`
 *
 * Opening reads the headers of all shards (and the labels); samples are read at their place. */
#include "base/vec.h"
#include "data/format/classes.h"
#include "data/format/image.h"
#include "data/format/tar_index.h"
#include "store/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS_MAX = 1 << 20, PATH_BYTES = 4096 };

typedef enum role {
    ROLE_IMAGE,
    ROLE_NPY,
    ROLE_CLS,
    ROLE_TXT,
    ROLE_COUNT,
    ROLE_OTHER = ROLE_COUNT,
} role;

typedef struct piece {
    int64_t at, size_bytes; /* size -1: not there */
} piece;

typedef struct tar_sample {
    const char *key;
    uint32_t shard;
    int64_t label;
    piece pieces[ROLE_COUNT];
} tar_sample;

RU_VEC(rui_tar_samples, tar_sample)
RU_VEC(rui_sources, rui_source)

typedef struct tar_set {
    rui_sources shards;
    rui_tar_samples samples;
    bool has[ROLE_COUNT]; /* what the first sample has, and so all */
    int64_t width, height;
    bool resize;
    ru_type array;   /* of .npy members */
    int64_t context; /* of .txt members */
} tar_set;

/* -- names ------------------------------------------------------------------------------------- */

static role role_of(const char *ending)
{
    static const struct {
        const char *ending;
        role role;
    } rows[] = {{"jpg", ROLE_IMAGE}, {"jpeg", ROLE_IMAGE}, {"png", ROLE_IMAGE},
                {"bmp", ROLE_IMAGE}, {"gif", ROLE_IMAGE},  {"webp", ROLE_IMAGE},
                {"npy", ROLE_NPY},   {"cls", ROLE_CLS},    {"txt", ROLE_TXT}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        if (strcmp(ending, rows[k].ending) == 0) {
            return rows[k].role;
        }
    }
    return ROLE_OTHER;
}

/* One more shard, or all of a range {from..to} (of equal width, counting up) and of those inside.
 */
static ru_status add_shards(ru_dataset *d, const ru_data_options *opt, const char *pattern,
                            int depth, ru_err *err)
{
    tar_set *s = d->self;
    const char *open = strchr(pattern, '{'), *close = open != NULL ? strchr(open, '}') : NULL;
    if (close == NULL) {
        rui_source *f = s->shards.n < SHARDS_MAX ? rui_sources_push(&s->shards, &d->arena) : NULL;
        if (f == NULL) {
            return rui_no_memory(err, pattern, 0);
        }
        f->file.fd = -1;
        int64_t small = ru_object_address(pattern) ? RUI_RESIDENT_MAX_BYTES : -1;
        int64_t resident = opt->resident_max_bytes != 0 ? opt->resident_max_bytes : small;
        RU_TRY(rui_source_open(&d->arena, &d->objects, pattern, resident, opt->direct, f, err));
        d->bytes += f->disk_bytes;
        return RU_OK;
    }
    const char *dots = strstr(open, "..");
    int64_t from, to;
    if (depth > 3 || dots == NULL || dots > close ||
        !ru_str_i64(ru_str_n(open + 1, dots - open - 1), &from) ||
        !ru_str_i64(ru_str_n(dots + 2, close - dots - 2), &to) || from < 0 || from > to ||
        to - from >= SHARDS_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: in braces a range like {000..099} was expected",
                       pattern);
    }
    int width = open[1] == '0' ? (int)(dots - open - 1) : 1;
    for (int64_t k = from; k <= to; k++) {
        char path[PATH_BYTES];
        int n = snprintf(path, sizeof path, "%.*s%0*lld%s", (int)(open - pattern), pattern, width,
                         (long long)k, close + 1);
        if (n < 0 || n >= (int)sizeof path) {
            return RU_FAIL(err, RU_E_CONFIG, "%s: the name is too long", pattern);
        }
        RU_TRY(add_shards(d, opt, path, depth + 1, err));
    }
    return RU_OK;
}

/* -- the index --------------------------------------------------------------------------------- */

static ru_status read_label(const rui_tar_member *m, const char *path, int64_t *label, ru_err *err)
{
    ru_str text =
        ru_str_trim(ru_str_n((const char *)m->look, m->size_bytes < 32 ? m->size_bytes : 32));
    if (!ru_str_i64(text, label) || *label < 0 || *label >= RUI_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: member '%s' at byte %lld holds '%.*s'; expected a class "
                       "number from 0 on",
                       path, m->name, (long long)m->at, RU_STR_ARG(text));
    }
    return RU_OK;
}

static ru_status add_member(ru_dataset *d, uint32_t shard, const rui_tar_member *m, ru_err *err)
{
    tar_set *s = d->self;
    const char *path = s->shards.at[shard].path;
    const char *slash = strrchr(m->name, '/'), *base = slash != NULL ? slash + 1 : m->name;
    const char *dot = strchr(base, '.');
    if (dot == NULL || dot == base) {
        return RU_OK;
    }
    role r = role_of(dot + 1);
    int64_t key_n = dot - m->name;
    if (r == ROLE_OTHER) {
        return RU_OK;
    }
    tar_sample *at = s->samples.n > 0 ? &s->samples.at[s->samples.n - 1] : NULL;
    if (at == NULL || at->shard != shard || (int64_t)strlen(at->key) != key_n ||
        memcmp(at->key, m->name, (size_t)key_n) != 0) {
        at = rui_tar_samples_push(&s->samples, &d->arena);
        if (at == NULL) {
            return rui_no_memory(err, path, 0);
        }
        at->key = ru_arena_strn(&d->arena, m->name, key_n);
        at->shard = shard;
        for (uint32_t k = 0; k < ROLE_COUNT; k++) {
            at->pieces[k].size_bytes = -1;
        }
        if (at->key == NULL) {
            return rui_no_memory(err, path, 0);
        }
    }
    if (at->pieces[r].size_bytes >= 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: sample '%s' has a second .%s at byte %lld", path,
                       at->key, dot + 1, (long long)m->at);
    }
    at->pieces[r] = (piece){m->at, m->size_bytes};
    return r == ROLE_CLS ? read_label(m, path, &at->label, err) : RU_OK;
}

/* A shard that is cut short may end within its last sample. */
static void drop_half(ru_dataset *d, uint32_t shard)
{
    tar_set *s = d->self;
    const tar_sample *last = s->samples.n > 1 ? &s->samples.at[s->samples.n - 1] : NULL;
    for (uint32_t r = 0; last != NULL && last->shard == shard && r < ROLE_COUNT; r++) {
        if ((last->pieces[r].size_bytes >= 0) != (s->samples.at[0].pieces[r].size_bytes >= 0)) {
            s->samples.n--;
            break;
        }
    }
}

static ru_status index_shard(ru_dataset *d, uint32_t shard, ru_err *err)
{
    const tar_set *s = d->self;
    rui_tar t = rui_tar_from(&s->shards.at[shard]);
    bool found = true;
    while (true) {
        rui_tar_member m;
        ru_status st = rui_tar_next(&t, &m, &found, err);
        if (st == RU_E_DATA && d->skip_damaged && t.at > 0) {
            rui_rest_note(d, t.file, t.at, err);
            drop_half(d, shard);
            return RU_OK;
        }
        RU_TRY(st);
        if (!found) {
            return RU_OK;
        }
        RU_TRY(add_member(d, shard, &m, err));
    }
}

/* All samples have what the first has. */
static ru_status check_samples(ru_dataset *d, ru_err *err)
{
    static const char *const names[ROLE_COUNT] = {".jpg or .png", ".npy", ".cls", ".txt"};
    tar_set *s = d->self;
    for (uint32_t i = 0; i < s->samples.n; i++) {
        const tar_sample *at = &s->samples.at[i];
        for (uint32_t r = 0; r < ROLE_COUNT; r++) {
            bool has = at->pieces[r].size_bytes >= 0;
            s->has[r] = i == 0 ? has : s->has[r];
            if (has != s->has[r]) {
                return RU_FAIL(err, RU_E_DATA,
                               "%s: sample '%s' has %s %s, unlike the first sample "
                               "('%s')",
                               s->shards.at[at->shard].path, at->key, has ? "a" : "no", names[r],
                               s->samples.at[0].key);
            }
        }
        if (at->label >= d->classes && s->has[ROLE_CLS]) {
            d->classes = at->label + 1;
        }
    }
    return RU_OK;
}

/* Classes that no sample has. */
static ru_status say_unused(const ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    const tar_set *s = d->self;
    rui_classes_said said;
    RU_TRY(rui_classes_open(&said, err));
    for (uint32_t i = 0; i < s->samples.n; i++) {
        rui_classes_put(&said, s->samples.at[i].label);
    }
    rui_classes_say(&said, opt, opt->paths[0], d->classes);
    rui_classes_close(&said);
    return RU_OK;
}

/* -- reading ----------------------------------------------------------------------------------- */

/* One member's bytes: a view of the shard, or *heap for the caller to free. */
static ru_status load(const ru_dataset *d, const tar_sample *at, role r, const uint8_t **bytes,
                      uint8_t **heap, ru_err *err)
{
    const tar_set *s = d->self;
    const rui_source *f = &s->shards.at[at->shard];
    const piece *p = &at->pieces[r];
    *heap = NULL;
    if (p->size_bytes > RUI_SAMPLE_BYTES_MAX) {
        return RU_FAIL(err, RU_E_DATA, "%s: sample '%s' has a member of %lld bytes", f->path,
                       at->key, (long long)p->size_bytes);
    }
    if (f->bytes == NULL) {
        *heap = malloc((size_t)p->size_bytes + 1);
        if (*heap == NULL) {
            return rui_no_memory(err, f->path, p->size_bytes);
        }
    }
    return rui_bytes_view(d, f, p->at, p->size_bytes, *heap, bytes, err);
}

static rui_place place_of(const tar_set *s, const tar_sample *at, role r)
{
    return (rui_place){s->shards.at[at->shard].path, at->key, at->pieces[r].at};
}

static ru_status put_image(const ru_dataset *d, const tar_sample *at, void *into, ru_err *err)
{
    const tar_set *s = d->self;
    const uint8_t *bytes = NULL;
    uint8_t *heap = NULL;
    ru_status st = load(d, at, ROLE_IMAGE, &bytes, &heap, err);
    if (st == RU_OK) {
        st = rui_image_decode(d, bytes, at->pieces[ROLE_IMAGE].size_bytes, s->width, s->height,
                              s->resize, into, err);
        rui_place where = place_of(s, at, ROLE_IMAGE);
        st = st == RU_OK ? st : rui_place_wrap(err, st, &where);
    }
    free(heap);
    return st;
}

static ru_status convert_array(const ru_dataset *d, const ru_array *a, void *into, ru_err *err)
{
    int64_t n = ru_type_count(&a->type);
    ru_dtype to = d->fields[0].type.dtype;
    if (to == a->type.dtype) {
        memcpy(into, a->data, (size_t)ru_type_bytes(&a->type));
    } else if (a->type.dtype == RU_U8) {
        rui_pixels_put(d, a->data, n, into);
    } else if (a->type.dtype == RU_F64) {
        for (int64_t i = 0; i < n; i++) {
            double v;
            memcpy(&v, (const uint8_t *)a->data + i * 8, sizeof v);
            ((float *)into)[i] = (float)v;
        }
    } else {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "elements of type %s; expected u8, f32, f64 or i64",
                       ru_dtype_name(a->type.dtype));
    }
    return RU_OK;
}

static ru_status with_array(const ru_dataset *d, const tar_sample *at, ru_type *measure, void *into,
                            ru_err *err)
{
    const tar_set *s = d->self;
    const uint8_t *bytes = NULL;
    uint8_t *heap = NULL;
    ru_arena arena;
    ru_arena_init(&arena, RUI_SAMPLE_BYTES_MAX);
    ru_array a = {0};
    ru_status st = load(d, at, ROLE_NPY, &bytes, &heap, err);
    if (st == RU_OK) {
        st = ru_npy_parse(bytes, at->pieces[ROLE_NPY].size_bytes, &arena, &a, err);
    }
    if (st == RU_OK && measure != NULL) {
        *measure = a.type;
    } else if (st == RU_OK && !ru_type_equal(&a.type, &s->array)) {
        st = RU_FAIL(err, RU_E_DATA, "type or shape differs from that of the first sample");
    } else if (st == RU_OK) {
        st = convert_array(d, &a, into, err);
    }
    if (st != RU_OK) {
        rui_place where = place_of(s, at, ROLE_NPY);
        st = rui_place_wrap(err, st, &where);
    }
    ru_arena_fini(&arena);
    free(heap);
    return st;
}

static ru_status put_text(const ru_dataset *d, const tar_sample *at, int64_t *into, ru_err *err)
{
    const tar_set *s = d->self;
    const uint8_t *bytes = NULL;
    uint8_t *heap = NULL;
    ru_status st = load(d, at, ROLE_TXT, &bytes, &heap, err);
    int64_t n = at->pieces[ROLE_TXT].size_bytes;
    for (int64_t i = 0; st == RU_OK && i < s->context; i++) {
        into[i] = i < n ? bytes[i] : 0;
    }
    free(heap);
    return st;
}

static ru_status tar_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    const tar_set *s = d->self;
    const tar_sample *at = &s->samples.at[index];
    uint32_t k = 0;
    if (s->has[ROLE_IMAGE]) {
        RU_TRY(put_image(d, at, fields[k++], err));
    } else if (s->has[ROLE_NPY]) {
        RU_TRY(with_array(d, at, NULL, fields[k++], err));
    }
    if (s->has[ROLE_TXT] && s->context > 0) {
        RU_TRY(put_text(d, at, fields[k++], err));
    }
    if (s->has[ROLE_CLS]) {
        rui_class_put(d, at->label, fields[k]);
    }
    return RU_OK;
}

/* -- open -------------------------------------------------------------------------------------- */

static ru_status add_image_field(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    tar_set *s = d->self;
    const tar_sample *first = &s->samples.at[0];
    s->resize = opt->image_size > 0;
    s->width = s->height = opt->image_size;
    if (!s->resize) {
        const uint8_t *bytes = NULL;
        uint8_t *heap = NULL;
        ru_status st = load(d, first, ROLE_IMAGE, &bytes, &heap, err);
        if (st == RU_OK) {
            st = rui_image_measure(d, bytes, first->pieces[ROLE_IMAGE].size_bytes, &s->width,
                                   &s->height, err);
            rui_place where = place_of(s, first, ROLE_IMAGE);
            st = st == RU_OK ? st : rui_place_wrap(err, st, &where);
        }
        free(heap);
        RU_TRY(st);
    }
    const int64_t dims[3] = {3, s->height, s->width};
    rui_field_add(d, "x", rui_pixel_dtype(d), 3, dims);
    return RU_OK;
}

static ru_status add_fields(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    tar_set *s = d->self;
    if (s->has[ROLE_IMAGE]) {
        RU_TRY(add_image_field(d, opt, err));
    } else if (s->has[ROLE_NPY]) {
        RU_TRY(with_array(d, &s->samples.at[0], &s->array, NULL, err));
        ru_dtype t = s->array.dtype;
        bool pixels = t == RU_U8 && s->array.rank >= 1;
        t = pixels ? rui_pixel_dtype(d) : !d->raw && t == RU_F64 ? RU_F32 : t;
        rui_field_add(d, "x", t, s->array.rank, s->array.dims);
    }
    if (s->has[ROLE_TXT] && opt->context > 0) {
        s->context = opt->context;
        rui_field_add(d, "ids", RU_I64, 1, &s->context);
    }
    if (d->n_fields == 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: samples have no .jpg, .png or .npy; for .txt members set "
                       "context",
                       opt->paths[0]);
    }
    if (s->has[ROLE_CLS]) {
        if (opt->classes > 0 && d->classes > opt->classes) {
            return RU_FAIL(err, RU_E_DATA, "%s: label %lld is outside 0..%lld", opt->paths[0],
                           (long long)d->classes - 1, (long long)opt->classes - 1);
        }
        if (opt->classes > 0) {
            d->classes = opt->classes;
        } else {
            RU_TRY(say_unused(d, opt, err));
        }
        rui_field_add_class(d);
    }
    return RU_OK;
}

static ru_status tar_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "tar: no files are named");
    }
    tar_set *s = d->self = RU_NEW(&d->arena, tar_set, 1);
    if (s == NULL) {
        return rui_no_memory(err, "tar", sizeof *s);
    }
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        RU_TRY(add_shards(d, opt, opt->paths[i], 0, err));
    }
    for (uint32_t i = 0; i < s->shards.n; i++) {
        RU_TRY(index_shard(d, i, err));
    }
    if (s->samples.n == 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: no members named like 0001.jpg, 0001.cls",
                       opt->paths[0]);
    }
    RU_TRY(check_samples(d, err));
    d->count = s->samples.n;
    return add_fields(d, opt, err);
}

static void tar_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    static const role read[] = {ROLE_IMAGE, ROLE_NPY, ROLE_TXT};
    const tar_set *s = d->self;
    for (int64_t i = first; i < first + n; i++) {
        const tar_sample *at = &s->samples.at[i];
        for (uint32_t k = 0; k < RU_ARRAY_LEN(read); k++) {
            const piece *p = &at->pieces[read[k]];
            if (s->has[read[k]] && p->size_bytes <= RUI_SAMPLE_BYTES_MAX) {
                fn(self, &s->shards.at[at->shard], p->at, p->size_bytes);
            }
        }
    }
}

static void tar_close(ru_dataset *d)
{
    tar_set *s = d->self;
    for (uint32_t i = 0; s != NULL && i < s->shards.n; i++) {
        rui_source_close(&s->shards.at[i]);
    }
    rui_image_close(d);
}

const rui_format rui_format_tar = {
    .name = "tar",
    .help = "WebDataset shards (jpg, png, cls, npy, txt): [train-{000..099}.tar, ...]",
    .open = tar_open,
    .read = tar_read,
    .where = tar_where,
    .close = tar_close,
};
