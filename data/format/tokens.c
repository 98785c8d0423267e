/* Token files: one long row of numbers, cut into samples of `context` tokens.
 *
 *     tokens   t0 t1 t2 t3 t4 t5 t6 ...          sample k starts at k * stride
 *     ids      t0 t1 t2 t3                       context 4
 *     y           t1 t2 t3 t4                    the same, one further
 *
 * Several files follow each other as if they were one, but no sample crosses a border. Tokens are
 * u8 (also any plain text: its bytes), u16 or u32, little-endian. ids and y are i64, with `raw` in
 * the file's own width. */
#include "data/data_impl.h"

#include <string.h>

typedef struct tokens_set {
    rui_source *files; /* [n] */
    int64_t *starts;   /* [n + 1] index of each file's first sample */
    uint32_t n;
    int64_t width; /* bytes of a token */
    int64_t context, stride;
    bool check; /* a token may be >= classes */
} tokens_set;

static int64_t width_by_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot == NULL) {
        return 1;
    }
    return strcmp(dot, ".u16") == 0 || strcmp(dot, ".bin") == 0 ? 2
           : strcmp(dot, ".u32") == 0                           ? 4
                                                                : 1;
}

static int64_t token_at(const uint8_t *p, int64_t width)
{
    return width == 1   ? p[0]
           : width == 2 ? (int64_t)(p[0] | p[1] << 8)
                        : (int64_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                    (uint32_t)p[3] << 24);
}

static ru_status open_file(ru_dataset *d, const ru_data_options *opt, tokens_set *s, uint32_t i,
                           ru_err *err)
{
    int64_t resident =
        opt->resident_max_bytes != 0 ? opt->resident_max_bytes : RUI_RESIDENT_MAX_BYTES;
    const char *path = opt->paths[i];
    rui_source *f = &s->files[i];
    RU_TRY(rui_source_open(&d->arena, &d->objects, path, resident, opt->direct, f, err));
    if (f->size_bytes % s->width != 0) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: %lld bytes are not a multiple of %lld-byte tokens; the file is cut "
                       "short, or token_bytes is wrong",
                       path, (long long)f->size_bytes, (long long)s->width);
    }
    int64_t tokens = f->size_bytes / s->width;
    int64_t count = tokens <= s->context ? 0 : (tokens - s->context - 1) / s->stride + 1;
    if (count == 0 && opt->n_paths == 1) {
        return RU_FAIL(err, RU_E_DATA,
                       "%s: %lld tokens are too few for a context of %lld (one more is "
                       "needed for the last target)",
                       path, (long long)tokens, (long long)s->context);
    }
    s->starts[i + 1] = s->starts[i] + count;
    d->bytes += f->disk_bytes;
    return RU_OK;
}

static ru_status scan_largest(const rui_source *f, int64_t width, int64_t *most, ru_err *err)
{
    uint8_t buf[65536];
    for (int64_t at = 0; at < f->size_bytes; at += (int64_t)sizeof buf) {
        int64_t n =
            f->size_bytes - at < (int64_t)sizeof buf ? f->size_bytes - at : (int64_t)sizeof buf;
        const uint8_t *p = NULL;
        RU_TRY(rui_source_view(f, at, n, buf, &p, err));
        for (int64_t i = 0; i < n; i += width) {
            int64_t t = token_at(p + i, width);
            *most = t > *most ? t : *most;
        }
    }
    return RU_OK;
}

static ru_status find_classes(ru_dataset *d, const ru_data_options *opt, tokens_set *s, ru_err *err)
{
    static const int64_t all_of_width[5] = {0, 256, 65536, 0, (int64_t)1 << 32};
    d->classes = opt->classes;
    if (d->classes == 0 && s->width == 1) {
        d->classes = 256;
    }
    if (d->classes == 0) {
        int64_t most = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            RU_TRY(scan_largest(&s->files[i], s->width, &most, err));
        }
        if (most >= RUI_CLASSES_MAX) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: the file contains the token %lld; expected less than %d (is "
                           "token_bytes right?)",
                           opt->paths[0], (long long)most, RUI_CLASSES_MAX);
        }
        d->classes = most + 1;
    }
    s->check = d->classes < all_of_width[s->width];
    return RU_OK;
}

static ru_status tokens_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "tokens: no files are named");
    }
    if (opt->context < 1 || opt->context > RUI_SAMPLE_BYTES_MAX / 8) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "tokens: context is %lld; expected the length of a sample, "
                       "1 or more",
                       (long long)opt->context);
    }
    int64_t width = opt->token_bytes != 0 ? opt->token_bytes : width_by_name(opt->paths[0]);
    if (width != 1 && width != 2 && width != 4) {
        return RU_FAIL(err, RU_E_CONFIG, "tokens: token_bytes is %lld; expected 1, 2 or 4",
                       (long long)width);
    }
    tokens_set *s = d->self = RU_NEW(&d->arena, tokens_set, 1);
    rui_source *files = RU_NEW(&d->arena, rui_source, opt->n_paths);
    int64_t *starts = RU_NEW(&d->arena, int64_t, opt->n_paths + 1);
    if (s == NULL || files == NULL || starts == NULL) {
        return rui_no_memory(err, "tokens", sizeof *s);
    }
    *s = (tokens_set){.files = files,
                      .starts = starts,
                      .n = opt->n_paths,
                      .width = width,
                      .context = opt->context,
                      .stride = opt->stride > 0 ? opt->stride : opt->context};
    for (uint32_t i = 0; i < s->n; i++) {
        RU_TRY(open_file(d, opt, s, i, err));
    }
    RU_TRY(find_classes(d, opt, s, err));
    d->count = s->starts[s->n];
    ru_dtype dtype = !d->raw ? RU_I64 : width == 1 ? RU_U8 : width == 2 ? RU_U16 : RU_U32;
    rui_field_add(d, "ids", dtype, 1, &s->context);
    rui_field_add(d, "y", dtype, 1, &s->context);
    return RU_OK;
}

static void widen(const uint8_t *RU_RESTRICT p, int64_t width, int64_t n, int64_t *RU_RESTRICT out)
{
    if (width == 1) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = p[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = token_at(p + i * width, width);
    }
}

static ru_status check_tokens(const ru_dataset *d, const rui_source *f, int64_t at,
                              const uint8_t *p, ru_err *err)
{
    const tokens_set *s = d->self;
    for (int64_t i = 0; i <= s->context; i++) {
        int64_t t = token_at(p + i * s->width, s->width);
        if (t >= d->classes) {
            return RU_FAIL(err, RU_E_DATA, "%s: token %lld at byte %lld is outside 0..%lld",
                           f->path, (long long)t, (long long)(at + i * s->width),
                           (long long)d->classes - 1);
        }
    }
    return RU_OK;
}

static ru_status put_sample(const ru_dataset *d, const rui_source *f, int64_t at, const uint8_t *p,
                            void *ids, void *y, ru_err *err)
{
    const tokens_set *s = d->self;
    if (s->check) {
        RU_TRY(check_tokens(d, f, at, p, err));
    }
    if (d->raw) {
        memcpy(ids, p, (size_t)(s->context * s->width));
        memcpy(y, p + s->width, (size_t)(s->context * s->width));
    } else {
        widen(p, s->width, s->context, ids);
        memcpy(y, (const int64_t *)ids + 1, (size_t)(s->context - 1) * 8);
        widen(p + s->context * s->width, s->width, 1, (int64_t *)y + s->context - 1);
    }
    return RU_OK;
}

/* Samples of one file, read in pieces that stay in the cache while they are spread out. */
static ru_status read_piecewise(const ru_dataset *d, const rui_source *f, int64_t first, int64_t n,
                                uint8_t *ids, uint8_t *y, ru_err *err)
{
    const tokens_set *s = d->self;
    uint8_t small[65536];
    int64_t step = s->stride * s->width, sample = (s->context + 1) * s->width;
    int64_t per = step > (int64_t)sizeof small || sample > (int64_t)sizeof small
                      ? 1
                      : ((int64_t)sizeof small - sample) / step + 1;
    rui_scratch tmp;
    RU_TRY(rui_scratch_get(&tmp, small, sizeof small, sample + (per - 1) * step, err));
    ru_status st = RU_OK;
    for (int64_t i = 0; st == RU_OK && i < n; i += per) {
        int64_t m = n - i < per ? n - i : per, at = (first + i) * step;
        const uint8_t *p = NULL;
        st = rui_bytes_view(d, f, at, sample + (m - 1) * step, tmp.p, &p, err);
        for (int64_t j = 0; st == RU_OK && j < m; j++) {
            st = put_sample(d, f, at + j * step, p + j * step, ids + (i + j) * d->field_bytes[0],
                            y + (i + j) * d->field_bytes[1], err);
        }
    }
    rui_scratch_put(&tmp);
    return st;
}

static uint32_t file_of(const tokens_set *s, int64_t index)
{
    uint32_t lo = 0, hi = s->n - 1;
    while (lo <
           hi) { /* last file that starts at or before index; empty files start where the next */
        uint32_t mid = lo + (hi - lo + 1) / 2;
        if (s->starts[mid] <= index) {
            lo = mid;
        } else {
            hi = mid - 1;
        }
    }
    return lo;
}

static ru_status tokens_read_run(const ru_dataset *d, int64_t first, int64_t n, void *const *fields,
                                 ru_err *err)
{
    const tokens_set *s = d->self;
    uint8_t *ids = fields[0], *y = fields[1];
    while (n > 0) {
        uint32_t f = file_of(s, first);
        int64_t m = s->starts[f + 1] - first < n ? s->starts[f + 1] - first : n;
        RU_TRY(read_piecewise(d, &s->files[f], first - s->starts[f], m, ids, y, err));
        first += m;
        n -= m;
        ids += m * d->field_bytes[0];
        y += m * d->field_bytes[1];
    }
    return RU_OK;
}

static ru_status tokens_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    return tokens_read_run(d, index, 1, fields, err);
}

static void tokens_where(const ru_dataset *d, int64_t first, int64_t n, rui_where_fn fn, void *self)
{
    const tokens_set *s = d->self;
    int64_t step = s->stride * s->width;
    while (n > 0) {
        uint32_t f = file_of(s, first);
        int64_t m = s->starts[f + 1] - first < n ? s->starts[f + 1] - first : n;
        fn(self, &s->files[f], (first - s->starts[f]) * step,
           (m - 1) * step + (s->context + 1) * s->width);
        first += m;
        n -= m;
    }
}

static void tokens_close(ru_dataset *d)
{
    tokens_set *s = d->self;
    for (uint32_t i = 0; s != NULL && i < s->n; i++) {
        rui_source_close(&s->files[i]);
    }
}

const rui_format rui_format_tokens = {
    .name = "tokens",
    .help = "rows of u8, u16 or u32 tokens, or plain text as bytes: [file, ...], with context",
    .open = tokens_open,
    .read = tokens_read,
    .read_run = tokens_read_run,
    .where = tokens_where,
    .close = tokens_close,
};
