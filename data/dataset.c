/* Datasets: open by format name, check what a format says, read by index. */
#include "data/cache.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static const rui_format *const formats[] = {
#define RUI_X(name) &rui_format_##name,
    RUI_FORMAT_LIST(RUI_X)
#undef RUI_X
};

const rui_format *rui_format_find(const char *name)
{
    for (uint32_t k = 0; k < RU_ARRAY_LEN(formats); k++) {
        if (strcmp(formats[k]->name, name) == 0) {
            return formats[k];
        }
    }
    return NULL;
}

static ru_status unknown_format(const char *name, ru_err *err)
{
    char list[256] = "";
    size_t n = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(formats); k++) {
        size_t m = strlen(formats[k]->name);
        if (n + m + 3 < sizeof list) {
            memcpy(list + n, k == 0 ? "" : ", ", k == 0 ? 0 : 2);
            n += k == 0 ? 0 : 2;
            memcpy(list + n, formats[k]->name, m + 1);
            n += m;
        }
    }
    return RU_FAIL(err, RU_E_CONFIG, "data format '%s' is unknown; expected one of %s", name, list);
}

/* -- helpers of formats ------------------------------------------------------------------------ */

void rui_field_add(ru_dataset *d, const char *name, ru_dtype dtype, uint32_t rank,
                   const int64_t *dims)
{
    RU_CHECK(d->n_fields < RU_FIELDS_MAX);
    RU_CHECK(rank <= RU_RANK_MAX);
    ru_field *f = &d->fields[d->n_fields++];
    *f = (ru_field){.name = name, .type = {.dtype = dtype, .rank = rank}};
    for (uint32_t i = 0; i < rank; i++) {
        f->type.dims[i] = dims[i];
    }
}

void rui_field_add_class(ru_dataset *d)
{
    RU_CHECK(d->classes > 0);
    d->y_field = (int32_t)d->n_fields;
    if (d->one_hot) {
        rui_field_add(d, "y", RU_F32, 1, &d->classes);
    } else {
        rui_field_add(d, "y", RU_I64, 0, NULL);
    }
}

void rui_class_put(const ru_dataset *d, int64_t label, void *into)
{
    RU_DCHECK(label >= 0 && label < d->classes);
    if (!d->one_hot) {
        memcpy(into, &label, sizeof label);
        return;
    }
    float *row = into; /* [classes] */
    memset(row, 0, (size_t)d->classes * sizeof *row);
    row[label] = 1.0f;
}

static int by_name(const void *a, const void *b, void *names)
{
    const char *const *n = names;
    return strcmp(n[*(const uint32_t *)a], n[*(const uint32_t *)b]);
}

ru_status rui_class_names_take(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    uint32_t n = opt->n_class_names;
    if (n == 0) {
        return RU_OK;
    }
    if (n > RUI_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "data: there are too many class names (%u)", n);
    }
    const char **names = RU_NEW(&d->arena, const char *, n);
    uint32_t *order = RU_NEW(&d->arena, uint32_t, n);
    if (names == NULL || order == NULL) {
        return rui_no_memory(err, "class names", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        names[i] = ru_arena_str(&d->arena, opt->class_names[i]);
        if (names[i] == NULL) {
            return rui_no_memory(err, "class names", n);
        }
    }
    qsort_r(order, n, sizeof *order, by_name, names);
    for (uint32_t i = 1; i < n; i++) {
        if (strcmp(names[order[i - 1]], names[order[i]]) == 0) {
            return RU_FAIL(err, RU_E_CONFIG, "data: the class name '%s' is given twice",
                           names[order[i]]);
        }
    }
    d->class_names = names;
    d->class_order = order;
    d->classes = n;
    return RU_OK;
}

int64_t rui_class_find(const ru_dataset *d, ru_str name)
{
    int64_t lo = 0, hi = d->classes - 1;
    while (lo <= hi) {
        int64_t mid = lo + (hi - lo) / 2;
        int64_t k = d->class_order != NULL ? d->class_order[mid] : mid;
        ru_str at = ru_str_c(d->class_names[k]);
        int c = memcmp(name.p, at.p, (size_t)(name.n < at.n ? name.n : at.n));
        c = c != 0 ? c : (name.n > at.n) - (name.n < at.n);
        if (c == 0) {
            return k;
        }
        lo = c > 0 ? mid + 1 : lo;
        hi = c < 0 ? mid - 1 : hi;
    }
    return -1;
}

void rui_skip_note(const ru_dataset *d, int64_t index, const ru_err *why)
{
    rui_guard *g = d->guard;
    ru_mutex_lock(&g->lock);
    bool again = index >= 0 && g->seen != NULL && (g->seen[index / 8] >> index % 8 & 1) != 0;
    if (index >= 0 && g->seen != NULL) {
        g->seen[index / 8] |= (uint8_t)(1 << index % 8);
    }
    if (!again && g->skipped++ == 0 && why != NULL) {
        ru_text t = ru_text_into(g->first, sizeof g->first);
        ru_text_put(&t, why->text);
    }
    ru_mutex_unlock(&g->lock);
}

void rui_rest_note(const ru_dataset *d, const rui_source *f, int64_t at, const ru_err *why)
{
    rui_skip_note(d, -1, why);
    ru_log(RU_LOG_WARN, "data", "cut", "%s; the last %lld bytes are not read", why->text,
           (long long)(f->size_bytes - at));
}

ru_dtype rui_pixel_dtype(ru_dataset *d)
{
    d->pixels |= 1u << d->n_fields;
    return d->raw ? RU_U8 : RU_F32;
}

void rui_pixels_put(const ru_dataset *d, const uint8_t *from, int64_t n, void *into)
{
    if (d->raw || d->as_stored) {
        memcpy(into, from, (size_t)n);
        return;
    }
    float scale = (float)d->scale, shift = (float)d->shift;
    float *RU_RESTRICT out = into;
    if (shift == 0.0f) { /* plain x/255 and the like: also keeps -0.0 away */
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)from[i] * scale;
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            out[i] = (float)from[i] * scale + shift;
        }
    }
}

/* -- open and close ---------------------------------------------------------------------------- */

static ru_status check_options(const ru_data_options *opt, ru_err *err)
{
    if (opt->context < 0 || opt->stride < 0 || opt->features < 0 || opt->classes < 0 ||
        opt->count < 0 || opt->image_size < 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data: context, stride, features, classes, count and "
                       "image_size must not be negative");
    }
    if (opt->classes > RUI_CLASSES_MAX) {
        return RU_FAIL(err, RU_E_CONFIG, "data: classes is %lld, at most %d are allowed",
                       (long long)opt->classes, RUI_CLASSES_MAX);
    }
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        if (opt->paths[i] == NULL || opt->paths[i][0] == '\0') {
            return RU_FAIL(err, RU_E_CONFIG, "data: file name %u is empty", i + 1);
        }
    }
    return RU_OK;
}

/* -- parts ------------------------------------------------------------------------------------- */

enum { HELD_STREAM = 0x68656c64 }; /* "held": the stream of the permutation */

/* The permutation is the same for every run. */
ru_status rui_part_init(rui_part *p, const ru_data_options *opt, int64_t count, const char *where,
                        ru_err *err)
{
    if (opt->count > count) {
        return RU_FAIL(err, RU_E_CONFIG, "%s: there are %lld samples, but count is %lld", where,
                       (long long)count, (long long)opt->count);
    }
    *p = (rui_part){.count = opt->count > 0 ? opt->count : count};
    if (!(opt->held > 0)) {
        return RU_OK;
    }
    int64_t n = (int64_t)(opt->held * (double)p->count + 0.5);
    if (n < 1 || n >= p->count) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "%s: to hold out %g of %lld samples leaves %s; take another fraction or "
                       "more samples",
                       where, opt->held, (long long)p->count,
                       n < 1 ? "none out" : "none to train on");
    }
    rui_order_init(&p->order, 1, HELD_STREAM, 0, p->count);
    p->drawn = true;
    p->first = opt->held_out ? 0 : n;
    p->count = opt->held_out ? n : p->count - n;
    return RU_OK;
}

int64_t rui_part_row(const rui_part *p, int64_t sample)
{
    return p->drawn ? rui_order_at(&p->order, sample + p->first) : sample;
}

static int64_t place(const ru_dataset *d, int64_t index)
{
    return d->kept != NULL ? d->kept[index] : rui_part_row(&d->part, index);
}

bool rui_in_order(const ru_dataset *d)
{
    return !d->part.drawn && d->kept == NULL;
}

/* What every format must have filled, and the sizes that follow from it. */
static ru_status finish(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    const char *where = opt->n_paths > 0 ? opt->paths[0] : d->format->name;
    if (d->count <= 0) {
        return RU_FAIL(err, RU_E_DATA, "%s: there are no samples; expected at least one", where);
    }
    if (d->skip_damaged) {
        d->guard->seen = RU_NEW(&d->arena, uint8_t, d->count / 8 + 1);
        if (d->guard->seen == NULL) {
            return rui_no_memory(err, where, d->count / 8 + 1);
        }
    }
    RU_CHECK(d->n_fields > 0);
    RU_TRY(rui_part_init(&d->part, opt, d->count, where, err));
    if (d->part.drawn) {
        int64_t of = opt->count > 0 ? opt->count : d->count;
        d->bytes = (int64_t)((double)d->bytes * (double)d->part.count / (double)of);
    }
    d->all = d->count;
    d->count = d->part.count;
    if (!opt->raw && (opt->n_mean > 0 || opt->n_std > 0)) {
        RU_TRY(ru_norm_open(opt, &d->fields[0].type, where, &d->arena, &d->norm, err));
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        int64_t bytes = ru_type_bytes(&d->fields[k].type);
        if (bytes <= 0 || bytes > RUI_SAMPLE_BYTES_MAX) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: field '%s' has %lld bytes per sample; expected 1 to %d", where,
                           d->fields[k].name, (long long)bytes, RUI_SAMPLE_BYTES_MAX);
        }
        d->field_bytes[k] = bytes;
    }
    return RU_OK;
}

/* Reads each sample once, and leaves out the damaged ones. */
static ru_status keep_good(ru_dataset *d, ru_err *err)
{
    void *fields[RU_FIELDS_MAX] = {NULL};
    int64_t *kept = RU_NEW(&d->arena, int64_t, d->count), n = 0;
    ru_status st = kept != NULL ? RU_OK : rui_no_memory(err, "places of samples", d->count * 8);
    for (uint32_t k = 0; st == RU_OK && k < d->n_fields; k++) {
        fields[k] = malloc((size_t)d->field_bytes[k]);
        st = fields[k] != NULL ? RU_OK : rui_no_memory(err, d->fields[k].name, d->field_bytes[k]);
    }
    for (int64_t i = 0; st == RU_OK && i < d->count; i++) {
        ru_err why = {0};
        int64_t at = place(d, i);
        st = d->format->read(d, at, fields, &why);
        if (st == RU_OK) {
            kept[n++] = at;
        } else if (st == RU_E_DATA && !ru_objects_failed(d->objects)) {
            rui_skip_note(d, at, &why);
            st = RU_OK;
        } else {
            st = RU_FAIL(err, st, "%s", why.text);
        }
    }
    for (uint32_t k = 0; k < d->n_fields; k++) {
        free(fields[k]);
    }
    RU_TRY(st);
    d->kept = kept;
    d->count = n;
    return n > 0
               ? RU_OK
               : RU_FAIL(err, RU_E_DATA, "every sample is damaged; the first: %s", d->guard->first);
}

/* The token for http and https addresses goes to whoever asks for them. */
static ru_status take_token(ru_dataset *d, const char *path, ru_err *err)
{
    char *text = NULL;
    int64_t n = 0;
    if (!ru_path_is_private(path)) {
        return RU_FAIL(
            err, RU_E_CONFIG,
            "data.token_file: other users of this machine can read %s; run: chmod 600 %s", path,
            path);
    }
    RU_TRY(ru_file_read(path, 16 << 10, &d->arena, &text, &n, err));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) {
        text[--n] = '\0';
    }
    bool plain = n > 0;
    for (int64_t i = 0; i < n; i++) {
        plain = plain && text[i] > ' ' && text[i] < 127;
    }
    if (!plain) {
        return RU_FAIL(err, RU_E_CONFIG, "data.token_file: %s holds no token; expected one word",
                       path);
    }
    const ru_objects_options opt = {.token = text};
    return ru_objects_open(&opt, &d->objects, err);
}

/* Addresses may hold a secret behind '?': they are opened here, and the format knows their names.
 */
static ru_status hide_queries(ru_dataset *d, ru_data_options *opt, ru_err *err)
{
    const char **paths = RU_NEW(&d->arena, const char *, opt->n_paths);
    if (paths == NULL) {
        return rui_no_memory(err, "addresses", opt->n_paths);
    }
    for (uint32_t k = 0; k < opt->n_paths; k++) {
        ru_object *b = NULL;
        paths[k] = opt->paths[k];
        if (ru_object_address(paths[k]) && paths[k][0] == 'h' && strchr(paths[k], '?') != NULL) {
            RU_TRY(rui_object_open(&d->objects, paths[k], &b, err));
            paths[k] = ru_object_name(b);
        }
    }
    opt->paths = paths;
    return RU_OK;
}

ru_status ru_dataset_open(const ru_data_options *opt, ru_dataset **out, ru_err *err)
{
    if (opt->format == NULL) {
        return RU_FAIL(err, RU_E_CONFIG, "data: format is missing");
    }
    const rui_format *format = rui_format_find(opt->format);
    if (format == NULL) {
        return unknown_format(opt->format, err);
    }
    RU_TRY(check_options(opt, err));
    ru_dataset *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return rui_no_memory(err, opt->format, sizeof *d);
    }
    ru_arena_init(&d->arena, 0);
    d->format = format;
    d->y_field = -1;
    d->raw = opt->raw;
    d->one_hot = opt->one_hot;
    d->skip_damaged = opt->skip_damaged;
    d->blank_damaged = opt->skip_damaged && opt->blank_damaged;
    bool plain = opt->scale == 0.0 && opt->shift == 0.0;
    d->scale = plain ? 1.0 / 255.0 : opt->scale;
    d->shift = plain ? 0.0 : opt->shift;
    d->guard = RU_NEW(&d->arena, rui_guard, 1);
    if (d->guard == NULL) {
        ru_arena_fini(&d->arena);
        free(d);
        return rui_no_memory(err, opt->format, sizeof(rui_guard));
    }
    ru_mutex_init(&d->guard->lock);
    d->n_paths = opt->n_paths;
    ru_data_options shown = *opt;
    ru_status st = opt->token_file != NULL ? take_token(d, opt->token_file, err) : RU_OK;
    st = st == RU_OK && opt->n_paths > 0 ? hide_queries(d, &shown, err) : st;
    if (st == RU_OK) {
        d->path = opt->n_paths > 0 ? ru_arena_str(&d->arena, shown.paths[0]) : NULL;
        st = format->open(d, &shown, err);
    }
    if (st == RU_OK) {
        st = finish(d, &shown, err);
    }
    if (st == RU_OK && opt->skip_damaged && opt->only_good) {
        st = keep_good(d, err);
    }
    if (st == RU_OK && opt->cache.kind != RU_CACHE_NONE) {
        st = rui_cache_open(d, &shown, &d->cache, err);
    }
    if (st != RU_OK) {
        ru_dataset_close(d);
        return st;
    }
    *out = d;
    return RU_OK;
}

bool ru_data_is_address(const char *path)
{
    return ru_object_address(path);
}

void ru_dataset_close(ru_dataset *d)
{
    if (d == NULL) {
        return;
    }
    rui_cache_close(d->cache);
    if (d->format->close != NULL) {
        d->format->close(d);
    }
    ru_objects_close(d->objects);
    ru_mutex_fini(&d->guard->lock);
    ru_arena_fini(&d->arena);
    free(d);
}

/* -- reading and facts ------------------------------------------------------------------------- */

/* Largest bits of x without the sign; from 0x7f800000 on one of them is no finite number. */
static int32_t top_bits(const float *x, int64_t n)
{
    enum { LANES = 16 };
    int32_t top[LANES] = {0}, u[LANES];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(u, x + i, sizeof u);
        for (int j = 0; j < LANES; j++) {
            int32_t v = u[j] & 0x7fffffff;
            top[j] = v > top[j] ? v : top[j];
        }
    }
    memset(u, 0, sizeof u);
    memcpy(u, x + i, (size_t)(n - i) * sizeof *u);
    int32_t most = 0;
    for (int j = 0; j < LANES; j++) {
        int32_t v = u[j] & 0x7fffffff;
        v = v > top[j] ? v : top[j];
        most = v > most ? v : most;
    }
    return most;
}

ru_status rui_numbers_check(const ru_dataset *d, uint32_t k, const void *floats, int64_t n,
                            ru_err *err)
{
    const float *x = floats;
    if (d->raw || top_bits(x, n) < 0x7f800000) {
        return RU_OK;
    }
    int64_t i = 0;
    while (isfinite(x[i])) {
        i++;
    }
    return RU_FAIL(err, RU_E_DATA,
                   "element %lld of '%s' is %s, which cannot be used for training; replace it, "
                   "remove the sample, or set data.strict: false",
                   (long long)i, d->fields[k].name, isnan(x[i]) ? "not a number" : "infinite");
}

enum { SKIP_TRIES_MAX = 1000 };

/* NaN as the sample, which is damaged for this reason. */
static ru_status read_blank(const ru_dataset *d, int64_t index, float *x, const ru_err *why)
{
    if (d->fields[0].type.dtype != RU_F32) {
        return RU_E_DATA;
    }
    rui_skip_note(d, place(d, index), why);
    for (int64_t i = 0; i < ru_type_count(&d->fields[0].type); i++) {
        x[i] = RU_NAN;
    }
    return RU_OK;
}

/* Sample `at` of the format. */
static ru_status read_one(const ru_dataset *d, int64_t at, void *const *fields, ru_err *err)
{
    return d->cache != NULL ? rui_cache_read(d, at, fields, err)
                            : d->format->read(d, at, fields, err);
}

ru_status rui_read_stored(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    RU_CHECK(index >= 0 && index < d->count);
    ru_err why = {0};
    err = err != NULL ? err : &why;
    ru_status st = read_one(d, place(d, index), fields, err);
    if (st == RU_E_DATA && d->blank_damaged && !ru_objects_failed(d->objects)) {
        return read_blank(d, index, fields[0], err);
    }
    for (int64_t k = 1; st == RU_E_DATA && d->skip_damaged && !ru_objects_failed(d->objects) &&
                        k <= SKIP_TRIES_MAX && k < d->count;
         k++) {
        rui_skip_note(d, place(d, (index + k - 1) % d->count), err);
        st = read_one(d, place(d, (index + k) % d->count), fields, err);
    }
    if (st != RU_E_DATA || !d->skip_damaged || ru_objects_failed(d->objects)) {
        return st;
    }
    return ru_err_wrap(err, st, "%d samples in a row are damaged", SKIP_TRIES_MAX);
}

ru_status rui_normalize(const ru_dataset *d, void *const *fields, int64_t n, ru_err *err)
{
    const float *x = fields[0];
    int64_t all = n * d->norm.channels * d->norm.inner, i = 0;
    ru_norm_apply(&d->norm, fields[0], n);
    if (d->norm.mul == NULL || top_bits(x, all) < 0x7f800000) {
        return RU_OK;
    }
    while (i < all && !isinf(x[i])) { /* NaN: a sample without values */
        i++;
    }
    return i == all ? RU_OK
                    : RU_FAIL(err, RU_E_DATA,
                              "element %lld of '%s' is too large for a 32-bit number after "
                              "data.mean and data.std; correct them or the sample",
                              (long long)(i % (all / n)), d->fields[0].name);
}

ru_status ru_dataset_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    RU_TRY(rui_read_stored(d, index, fields, err));
    return rui_normalize(d, fields, 1, err);
}

void rui_format_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    if (rui_in_order(d)) {
        d->format->where(d, first, n, fn, self);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        d->format->where(d, place(d, first + i), 1, fn, self);
    }
}

void rui_dataset_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    if (d->cache == NULL) {
        rui_format_where(d, first, n, fn, self);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(d, first + i);
        if (!rui_cache_where(d->cache, at, fn, self)) {
            d->format->where(d, at, 1, fn, self);
        }
    }
}

int64_t rui_sample_bytes(const ru_dataset *d)
{
    int64_t kept = d->cache != NULL ? rui_cache_record_bytes(d->cache) : 0;
    return d->bytes / d->count > kept ? d->bytes / d->count : kept;
}

const char *ru_dataset_where(const ru_dataset *d, int64_t index, char *into, int64_t size_bytes)
{
    ru_text t = ru_text_into(into, size_bytes);
    index = place(d, index);
    if (d->format->path != NULL) {
        ru_text_put(&t, d->format->path(d, index));
    } else {
        ru_text_putf(&t, "sample %lld (counted from 0) of %s%s", (long long)index,
                     d->path != NULL ? d->path : d->format->name, d->n_paths > 1 ? ", ..." : "");
    }
    return into;
}

int64_t ru_dataset_count(const ru_dataset *d)
{
    return d->count;
}

uint32_t ru_dataset_fields(const ru_dataset *d, const ru_field **fields)
{
    *fields = d->fields;
    return d->n_fields;
}

const char *ru_dataset_not_classes(const ru_dataset *d)
{
    return d->not_classes;
}

const ru_columns *ru_dataset_columns(const ru_dataset *d)
{
    return d->columns;
}

int64_t ru_dataset_classes(const ru_dataset *d)
{
    return d->classes;
}

const char *ru_dataset_class_name(const ru_dataset *d, int64_t k)
{
    return d->class_names != NULL && k >= 0 && k < d->classes ? d->class_names[k] : NULL;
}

int64_t ru_dataset_bytes(const ru_dataset *d)
{
    return d->bytes;
}

int64_t ru_dataset_skipped(const ru_dataset *d)
{
    ru_mutex_lock(&d->guard->lock);
    int64_t n = d->guard->skipped;
    ru_mutex_unlock(&d->guard->lock);
    return n;
}

const char *ru_dataset_skipped_first(const ru_dataset *d)
{
    return d->guard->first;
}

const char *ru_dataset_format(const ru_dataset *d)
{
    return d->format->name;
}
