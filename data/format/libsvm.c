/* libsvm: one sample a line, a label and the features that are not zero.
 *
 *     +1 3:0.5 17:1 204:-2.25      # a comment
 *
 * Numbers of features rise along a line; they count from 1, unless a 0 is found anywhere. Kept as
 * compressed rows, handed out dense as f32 [features].
 *
 * Source: chang-lin-2011 (LIBSVM, data format). */
#include "data/format/table.h"

#include <math.h>
#include <string.h>

enum { FEATURES_MAX = 1 << 28 };

typedef struct entry {
    uint32_t feature; /* from 0 */
    float value;
} entry;

typedef struct libsvm_set {
    rui_buf entries; /* entry each */
    rui_buf starts;  /* int64_t [count + 1] index of each row's first entry */
    const void *y;
    rui_labels labels;
    int64_t least, most; /* feature numbers found */
    uint32_t base;       /* what the first feature is called: 0 or 1 */
} libsvm_set;

typedef struct place {
    const char *path;
    int64_t line;
} place;

static ru_status item_fail(place at, ru_str item, const char *expected, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "%s:%lld: found '%.*s', expected %s", at.path,
                   (long long)at.line, item.n > 60 ? 60 : (int)item.n, item.p, expected);
}

static ru_status add_item(libsvm_set *s, place at, ru_str item, int64_t *last, ru_err *err)
{
    int64_t colon = ru_str_find(item, ":"), feature;
    double v;
    if (colon < 1 || !ru_str_i64(ru_str_n(item.p, colon), &feature)) {
        return item_fail(at, item, "feature:value", err);
    }
    if (!rui_number(item.p + colon + 1, item.n - colon - 1, &v) || !isfinite((float)v)) {
        return item_fail(at, item, "a finite number after the colon", err);
    }
    if (feature < 0 || feature > FEATURES_MAX) {
        return item_fail(at, item, "a feature number from 0 to 2^28", err);
    }
    if (feature <= *last) {
        return item_fail(at, item, "a larger feature number than the one before it", err);
    }
    *last = feature;
    s->least = feature < s->least ? feature : s->least;
    s->most = feature > s->most ? feature : s->most;
    entry *e = rui_buf_push(&s->entries, sizeof *e);
    if (e == NULL) {
        return rui_no_memory(err, at.path, s->entries.n);
    }
    *e = (entry){(uint32_t)feature, (float)v};
    return RU_OK;
}

/* The next word of `rest`, cut at blanks; false at the end. */
static bool next_word(ru_str *rest, ru_str *word)
{
    while (rest->n > 0 && (*rest->p == ' ' || *rest->p == '\t' || *rest->p == '\r')) {
        *rest = ru_str_from(*rest, 1);
    }
    int64_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t' && rest->p[n] != '\r') {
        n++;
    }
    *word = ru_str_n(rest->p, n);
    *rest = ru_str_from(*rest, n);
    return n > 0;
}

static ru_status add_line(libsvm_set *s, place at, uint32_t file, ru_str line, ru_err *err)
{
    const char *hash = line.n > 0 ? memchr(line.p, '#', (size_t)line.n) : NULL;
    line.n = hash != NULL ? hash - line.p : line.n;
    ru_str word;
    if (!next_word(&line, &word)) {
        return RU_OK;
    }
    double v;
    if (!rui_number(word.p, word.n, &v)) {
        return item_fail(at, word, "a label (a number)", err);
    }
    RU_TRY(rui_labels_add(&s->labels, word, file, at.line, err));
    int64_t last = -1;
    while (next_word(&line, &word)) {
        if (last < 0 && ru_str_starts(word, "qid:")) {
            return item_fail(at, word, "feature:value (ranking groups are not supported)", err);
        }
        RU_TRY(add_item(s, at, word, &last, err));
    }
    int64_t *start = rui_buf_push(&s->starts, sizeof *start);
    if (start == NULL) {
        return rui_no_memory(err, at.path, s->starts.n);
    }
    *start = s->entries.n / (int64_t)sizeof(entry);
    return RU_OK;
}

static ru_status parse_file(ru_dataset *d, const ru_data_options *opt, const rui_source *file,
                            uint32_t index, ru_err *err)
{
    libsvm_set *s = d->self;
    const char *p = (const char *)file->bytes, *end = p + file->size_bytes;
    for (place at = {opt->paths[index], 1}; p < end; at.line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop != NULL ? stop : end;
        int64_t entries_n = s->entries.n, labels_n = s->labels.rows.n;
        ru_status st = add_line(s, at, index, ru_str_n(p, stop - p), err);
        if (st == RU_E_DATA && d->skip_damaged && !d->blank_damaged) {
            s->entries.n = entries_n;
            s->labels.rows.n = labels_n;
            rui_skip_note(d, -1, err);
        } else if (st != RU_OK) {
            return st;
        }
        p = stop + (stop < end);
    }
    return RU_OK;
}

static ru_status find_width(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    libsvm_set *s = d->self;
    s->base = s->most >= 0 && s->least == 0 ? 0 : 1;
    int64_t found = s->most + 1 - s->base;
    int64_t features = opt->features > 0 ? opt->features : found;
    if (features < 1) {
        return RU_FAIL(err, RU_E_DATA, "%s: no line has a feature", opt->paths[0]);
    }
    if (found > features) {
        return RU_FAIL(err, RU_E_DATA, "%s: feature %lld is used, but features is set to %lld",
                       opt->paths[0], (long long)s->most, (long long)features);
    }
    rui_field_add(d, "x", RU_F32, 1, &features);
    return RU_OK;
}

static ru_status parse_all(ru_dataset *d, const ru_data_options *opt, rui_source *files,
                           ru_err *err)
{
    libsvm_set *s = d->self;
    int64_t *zero = rui_buf_push(&s->starts, sizeof *zero);
    if (zero == NULL) {
        return rui_no_memory(err, "libsvm", sizeof *zero);
    }
    *zero = 0;
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        RU_TRY(rui_source_open(&d->arena, &d->objects, opt->paths[i], INT64_MAX, false, &files[i],
                               err));
        d->bytes += files[i].disk_bytes;
        RU_TRY(parse_file(d, opt, &files[i], i, err));
    }
    d->count = s->starts.n / (int64_t)sizeof(int64_t) - 1;
    if (d->count == 0) {
        return RU_OK;
    }
    RU_TRY(find_width(d, opt, err));
    return rui_labels_resolve(d, opt, &s->labels, &s->y, err);
}

static ru_status libsvm_open(ru_dataset *d, const ru_data_options *opt, ru_err *err)
{
    if (opt->n_paths < 1) {
        return RU_FAIL(err, RU_E_CONFIG, "libsvm: no files are named");
    }
    libsvm_set *s = d->self = RU_NEW(&d->arena, libsvm_set, 1);
    rui_source *files = RU_NEW(&d->arena, rui_source, opt->n_paths);
    if (s == NULL || files == NULL) {
        return rui_no_memory(err, "libsvm", sizeof *s);
    }
    s->labels.paths = opt->paths;
    s->least = INT64_MAX;
    s->most = -1;
    ru_status st = parse_all(d, opt, files, err);
    for (uint32_t i = 0; i < opt->n_paths; i++) {
        rui_source_close(&files[i]);
    }
    rui_buf_free(&s->labels.rows);
    rui_buf_fit(&s->entries);
    return st;
}

static ru_status libsvm_read(const ru_dataset *d, int64_t index, void *const *fields, ru_err *err)
{
    (void)err;
    const libsvm_set *s = d->self;
    const int64_t *starts = s->starts.p;
    const entry *entries = s->entries.p;
    float *x = fields[0]; /* [features] */
    memset(x, 0, (size_t)d->field_bytes[0]);
    for (int64_t i = starts[index]; i < starts[index + 1]; i++) {
        x[entries[i].feature - s->base] = entries[i].value;
    }
    rui_label_put(d, s->y, index, fields[1]);
    return RU_OK;
}

static void libsvm_close(ru_dataset *d)
{
    libsvm_set *s = d->self;
    if (s != NULL) {
        rui_buf_free(&s->entries);
        rui_buf_free(&s->starts);
    }
}

const rui_format rui_format_libsvm = {
    .name = "libsvm",
    .help = "sparse rows 'label feature:value ...': [file, ...]",
    .open = libsvm_open,
    .read = libsvm_read,
    .close = libsvm_close,
};
