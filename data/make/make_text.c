/* Text of the files a user names: train.u8 and test.u8, one byte a token. */
#include "data/make/make_text.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "data/data_impl.h"
#include "data/make/write.h"

enum { FOLDER_DEPTH_MAX = 16, FILES_MAX = 1 << 20, LOOK_BYTES = 4096, TEST_PER_MILLE = 50 };
static const int64_t file_max_bytes = (int64_t)1 << 30;

typedef struct text_job {
    ru_arena arena; /* names; rewound around each file's content */
    rui_file train, test;
    int64_t files, left_out;
    bool split;
    int64_t left; /* bytes still wanted; INT64_MAX: all */
} text_job;

/* No zero byte in the first part: everything else is taken as text. */
static bool looks_like_text(const char *data, int64_t n)
{
    return n == 0 || memchr(data, 0, (size_t)(n < LOOK_BYTES ? n : LOOK_BYTES)) == NULL;
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
    RU_TRY(rui_file_put(&j->train, data, train, err));
    if (j->split && n > train) {
        RU_TRY(rui_file_put(&j->test, data + train, n - train, err));
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
                 "%lld,\n  \"count\": %lld,\n  \"test_count\": %lld,\n  \"token_bytes\": 1,\n"
                 "  \"from\": [",
                 (long long)j->files, (long long)r->count, (long long)r->test_count);
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
    RU_TRY(rui_file_open(&j->train, opt->dir, "train.u8", err));
    if (j->split) {
        RU_TRY(rui_file_open(&j->test, opt->dir, "test.u8", err));
    }
    for (uint32_t i = 0; i < opt->n_files; i++) {
        RU_TRY(add_path(j, opt->files[i], true, 0, err));
    }
    r->count = j->train.written;
    r->test_count = j->test.written;
    r->bytes = r->count + r->test_count;
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
    text_job j = {.split = opt->test_count >= 0, .left = opt->count > 0 ? opt->count : INT64_MAX};
    ru_arena_init(&j.arena, 0);
    ru_status st = collect(opt, &j, report, err);
    rui_file_close(&j.train);
    rui_file_close(&j.test);
    ru_arena_fini(&j.arena);
    if (st != RU_OK) {
        return st;
    }
    snprintf(report->hint, sizeof report->hint,
             "data:\n  format: tokens\n  train: [%s/train.u8]\n"
             "%s%s%s  context: 128\n",
             opt->dir, j.split ? "  test:  [" : "", j.split ? opt->dir : "",
             j.split ? "/test.u8]\n" : "");
    return save_truth(opt, &j, report, err);
}
