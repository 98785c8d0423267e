/* Text of the files a user names: train.u8 and test.u8, one byte a token; with a tokenizer
 * train.u16 or train.u32 and so on, its tokens. */
#include "data/make/make_text.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "data/data_impl.h"
#include "data/make/write.h"
#include "store/tokenizer.h"

enum { FOLDER_DEPTH_MAX = 16, FILES_MAX = 1 << 20, LOOK_BYTES = 4096, TEST_PER_MILLE = 50 };
static const int64_t file_max_bytes = (int64_t)1 << 30;

typedef struct text_job {
    ru_arena arena; /* names; rewound around each file's content */
    rui_file train, test;
    int64_t files, left_out;
    bool split;
    int64_t left;            /* bytes still wanted; INT64_MAX: all */
    ru_tokenizer *tokenizer; /* NULL: bytes are tokens */
    int64_t token_bytes;
} text_job;

/* No zero byte in the first part: everything else is taken as text. */
static bool looks_like_text(const char *data, int64_t n)
{
    return n == 0 || memchr(data, 0, (size_t)(n < LOOK_BYTES ? n : LOOK_BYTES)) == NULL;
}

static ru_status put(text_job *j, rui_file *f, ru_str text, ru_err *err)
{
    int64_t *ids, n;
    if (j->tokenizer == NULL) {
        return rui_file_put(f, text.p, text.n, err);
    }
    RU_TRY(ru_tokenizer_split(j->tokenizer, text, &j->arena, &ids, &n, err));
    for (int64_t k = 0; k < n; k++) {
        uint8_t le[4] = {(uint8_t)ids[k], (uint8_t)(ids[k] >> 8), (uint8_t)(ids[k] >> 16),
                         (uint8_t)(ids[k] >> 24)};
        RU_TRY(rui_file_put(f, le, j->token_bytes, err));
    }
    return RU_OK;
}

static ru_status add_file(text_job *j, const char *path, bool named, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(&j->arena);
    char *data = NULL;
    int64_t n = 0;
    RU_TRY(ru_file_read(path, file_max_bytes, &j->arena, &data, &n, err));
    if (!looks_like_text(data, n)) {
        ru_arena_rewind(&j->arena, mark);
        j->left_out++;
        return named ? RU_FAIL(err, RU_E_DATA,
                               "%s: the file contains zero bytes, so it is not text", path)
                     : RU_OK;
    }
    n = n < j->left ? n : j->left;
    j->left -= n;
    j->files += n > 0;
    int64_t train = j->split ? n - n * TEST_PER_MILLE / 1000 : n;
    while (train > 0 && train < n && data[train - 1] != '\n') {
        train--; /* whole lines on both sides */
    }
    train = train == 0 ? n : train;
    RU_TRY(put(j, &j->train, ru_str_n(data, train), err));
    if (j->split && n > train) {
        RU_TRY(put(j, &j->test, ru_str_n(data + train, n - train), err));
    }
    ru_arena_rewind(&j->arena, mark);
    return RU_OK;
}

static ru_status add_path(text_job *j, const char *path, bool named, int depth, ru_err *err)
{
    if (!ru_path_is_dir(path)) {
        return add_file(j, path, named, err);
    }
    if (depth > FOLDER_DEPTH_MAX) {
        return RU_FAIL(err, RU_E_LIMIT, "%s: folders are nested deeper than %d", path,
                       FOLDER_DEPTH_MAX);
    }
    char **names = NULL;
    uint32_t n = 0;
    RU_TRY(ru_dir_list(path, &j->arena, &names, &n, err));
    for (uint32_t i = 0; i < n && j->left > 0; i++) {
        if (names[i][0] == '.') {
            continue; /* hidden: version control and the like */
        }
        char *inner = ru_path_join(&j->arena, path, names[i]);
        if (inner == NULL) {
            return rui_no_memory(err, path, 0);
        }
        RU_TRY(add_path(j, inner, false, depth + 1, err));
    }
    return RU_OK;
}

static ru_status save_truth(const ru_make_options *opt, const text_job *j, const ru_make_report *r,
                            ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text t = ru_text_arena(&arena);
    ru_text_putf(&t,
                 "{\n  \"schema\": \"rubato.truth/1\",\n  \"generator\": \"text\",\n  \"files\": "
                 "%lld,\n  \"count\": %lld,\n  \"test_count\": %lld,\n  \"token_bytes\": %lld,\n"
                 "  \"from\": [",
                 (long long)j->files, (long long)r->count, (long long)r->test_count,
                 (long long)j->token_bytes);
    for (uint32_t i = 0; i < opt->n_files; i++) {
        ru_text_put(&t, i > 0 ? ", " : "");
        ru_text_json(&t, ru_str_c(opt->files[i]));
    }
    ru_text_put(&t, "]\n}\n");
    rui_file f;
    ru_status st = rui_file_open(&f, opt->dir, "truth.json", err);
    if (st == RU_OK) {
        st = t.cut ? rui_no_memory(err, "truth.json", t.n) : rui_file_put(&f, t.p, t.n, err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&f, err);
    }
    rui_file_close(&f);
    ru_arena_fini(&arena);
    return st;
}

static ru_status collect(const ru_make_options *opt, text_job *j, ru_make_report *r, ru_err *err)
{
    char train[16], test[16];
    snprintf(train, sizeof train, "train.u%d", (int)j->token_bytes * 8);
    snprintf(test, sizeof test, "test.u%d", (int)j->token_bytes * 8);
    RU_TRY(rui_file_open(&j->train, opt->dir, train, err));
    if (j->split) {
        RU_TRY(rui_file_open(&j->test, opt->dir, test, err));
    }
    for (uint32_t i = 0; i < opt->n_files; i++) {
        RU_TRY(add_path(j, opt->files[i], true, 0, err));
    }
    r->count = j->train.written / j->token_bytes;
    r->test_count = j->test.written / j->token_bytes;
    r->bytes = j->train.written + j->test.written;
    if (r->count == 0) {
        return RU_FAIL(err, RU_E_DATA, "text: the named files contain no text");
    }
    RU_TRY(rui_file_finish(&j->train, err));
    return j->split ? rui_file_finish(&j->test, err) : RU_OK;
}

ru_status rui_make_text(const ru_make_options *opt, ru_make_report *report, ru_err *err)
{
    if (opt->n_files == 0) {
        return RU_FAIL(err, RU_E_CONFIG, "text: no files are named");
    }
    text_job j = {.split = opt->test_count >= 0,
                  .left = opt->count > 0 ? opt->count : INT64_MAX,
                  .token_bytes = 1};
    ru_arena own;
    ru_arena_init(&j.arena, 0);
    ru_arena_init(&own, 0);
    ru_status st = RU_OK;
    if (opt->tokenizer != NULL) {
        st = ru_tokenizer_open(opt->tokenizer, &own, &j.tokenizer, err);
        j.token_bytes = st == RU_OK && ru_tokenizer_facts_get(j.tokenizer).size > 65536 ? 4 : 2;
    }
    st = st == RU_OK ? collect(opt, &j, report, err) : st;
    rui_file_close(&j.train);
    rui_file_close(&j.test);
    ru_arena_fini(&j.arena);
    long long size = j.tokenizer != NULL ? (long long)ru_tokenizer_facts_get(j.tokenizer).size : 0;
    ru_arena_fini(&own);
    if (st != RU_OK) {
        return st;
    }
    int bits = (int)j.token_bytes * 8;
    ru_text t = ru_text_into(report->hint, sizeof report->hint);
    ru_text_putf(&t, "data:\n  format: tokens\n  train: [%s/train.u%d]\n", opt->dir, bits);
    if (j.split) {
        ru_text_putf(&t, "  test:  [%s/test.u%d]\n", opt->dir, bits);
    }
    ru_text_put(&t, "  context: 128\n");
    if (size > 0) {
        ru_text_putf(&t, "model: {vocab: %lld}\n", size);
    }
    return save_truth(opt, &j, report, err);
}
