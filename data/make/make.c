/* `rubato data make` and `import`: generators and readers into files. */
#include "data/make/make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/make/gen.h"
#include "data/make/make_text.h"
#include "data/make/write.h"

const char *ru_make_name(uint32_t k)
{
    const rui_gen *g = rui_gen_at(k);
    return g != NULL ? g->name : k > 0 && rui_gen_at(k - 1) != NULL ? "text" : NULL;
}

const char *ru_make_help(uint32_t k)
{
    const rui_gen *g = rui_gen_at(k);
    return g != NULL ? g->help
           : k > 0 && rui_gen_at(k - 1) != NULL
               ? "bytes of the text files you name, split into train.u8 and test.u8"
               : NULL;
}

static ru_status save_truth(const char *dir, const ru_text *text, ru_err *err)
{
    if (text->cut) {
        return rui_no_memory(err, "truth.json", text->n);
    }
    rui_file f;
    ru_status st = rui_file_open(&f, dir, "truth.json", err);
    if (st == RU_OK) {
        st = rui_file_put(&f, text->p, text->n, err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&f, err);
    }
    rui_file_close(&f);
    return st;
}

/* The grammar's two texts. */
static ru_status write_text_part(const ru_dataset *d, const char *dir, const char *name,
                                 int64_t index, int64_t n, ru_err *err)
{
    uint8_t *text = malloc((size_t)n);
    if (text == NULL) {
        return rui_no_memory(err, name, n);
    }
    rui_synthetic_text(d, index, text, n);
    rui_file f;
    ru_status st = rui_file_open(&f, dir, name, err);
    if (st == RU_OK) {
        st = rui_file_put(&f, text, n, err);
    }
    if (st == RU_OK) {
        st = rui_file_finish(&f, err);
    }
    rui_file_close(&f);
    free(text);
    return st;
}

static ru_status write_parts(ru_dataset *d, const rui_gen *g, const ru_make_options *opt,
                             const ru_make_report *r, ru_err *err)
{
    if (strcmp(g->file_format, "text") == 0) {
        RU_TRY(write_text_part(d, opt->dir, "train.txt", 0, r->count, err));
        return r->test_count > 0 ? write_text_part(d, opt->dir, "test.txt", 1, r->test_count, err)
                                 : RU_OK;
    }
    const rui_writer *w = rui_writer_find(g->file_format);
    RU_CHECK(w != NULL);
    rui_write_job job = {
        .d = d, .n = r->count, .dir = opt->dir, .prefix = "train", .threads = opt->threads};
    RU_TRY(w->write(&job, err));
    job.first = r->count;
    job.n = r->test_count;
    job.prefix = "test";
    return r->test_count > 0 ? w->write(&job, err) : RU_OK;
}

static void part_hint(ru_text *t, const rui_gen *g, const char *dir, const char *part)
{
    const char *form = g->file_format;
    ru_text_putf(t, "  %s:%s [", part, strcmp(part, "test") == 0 ? " " : "");
    if (strcmp(form, "idx") == 0) {
        ru_text_putf(t, "%s/%s-images, %s/%s-labels", dir, part, dir, part);
    } else if (strcmp(form, "npy") == 0) {
        ru_text_putf(t, "%s/%s-x.npy, %s/%s-y.npy", dir, part, dir, part);
    } else {
        ru_text_putf(t, "%s/%s.%s", dir, part,
                     strcmp(form, "libsvm") == 0 ? "svm"
                     : strcmp(form, "csv") == 0  ? "csv"
                                                 : "txt");
    }
    ru_text_put(t, "]\n");
}

static void make_hint(const rui_gen *g, const ru_make_options *opt, const ru_dataset *d,
                      ru_make_report *r)
{
    ru_text t = ru_text_into(r->hint, sizeof r->hint);
    bool text = strcmp(g->file_format, "text") == 0;
    const char *format = g->data_format != NULL ? g->data_format : g->file_format;
    ru_text_putf(&t, "data:\n  format: %s\n", text ? "tokens" : format);
    part_hint(&t, g, opt->dir, "train");
    if (r->test_count > 0) {
        part_hint(&t, g, opt->dir, "test");
    }
    if (text) {
        ru_text_put(&t, "  context: 128\n");
    }
    rui_synthetic_sizes(d, &t);
}

static ru_status make_generated(const rui_gen *g, const ru_make_options *opt, ru_make_report *r,
                                ru_err *err)
{
    r->count = opt->count > 0 ? opt->count : g->count;
    r->test_count = opt->test_count > 0 ? opt->test_count : opt->test_count < 0 ? 0 : g->test_count;
    ru_data_options data = {.format = "synthetic",
                            .generator = g->name,
                            .seed = opt->seed,
                            .features = opt->features,
                            .classes = opt->classes,
                            .gen = opt->gen,
                            .count = r->count + r->test_count,
                            .raw = true};
    ru_dataset *d = NULL;
    RU_TRY(ru_dataset_open(&data, &d, err));
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_text truth = ru_text_arena(&arena);
    ru_text_putf(&truth,
                 "{\n  \"schema\": \"rubato.truth/1\",\n  \"generator\": \"%s\",\n  \"seed\": "
                 "%llu,\n  \"count\": %lld,\n  \"test_count\": %lld",
                 g->name, (unsigned long long)opt->seed, (long long)r->count,
                 (long long)r->test_count);
    rui_synthetic_truth(d, r->count, r->test_count, &truth);
    ru_text_put(&truth, "\n}\n");
    ru_status st = write_parts(d, g, opt, r, err);
    if (st == RU_OK) {
        st = rui_synthetic_extra(d, opt->dir, err);
    }
    if (st == RU_OK) {
        st = save_truth(opt->dir, &truth, err);
    }
    make_hint(g, opt, d, r);
    ru_arena_fini(&arena);
    ru_dataset_close(d);
    return st;
}

ru_status ru_data_make(const ru_make_options *opt, ru_make_report *report, ru_err *err)
{
    *report = (ru_make_report){0};
    if (opt->count < 0 || opt->count > INT64_MAX / 4 || opt->test_count > INT64_MAX / 4) {
        return RU_FAIL(err, RU_E_CONFIG, "make: count is %lld; expected 1 or more",
                       (long long)opt->count);
    }
    if (strcmp(opt->name, "text") == 0) {
        RU_TRY(ru_dir_make(opt->dir, err));
        return rui_make_text(opt, report, err);
    }
    const rui_gen *g = rui_gen_find(opt->name);
    if (g == NULL) {
        const char *names[32];
        uint32_t n = 0;
        char list[512];
        ru_text t = ru_text_into(list, sizeof list);
        for (; n < RU_ARRAY_LEN(names) && ru_make_name(n) != NULL; n++) {
            names[n] = ru_make_name(n);
            ru_text_putf(&t, "%s%s", n > 0 ? ", " : "", names[n]);
        }
        int32_t near = ru_str_nearest(ru_str_c(opt->name), names, n);
        return RU_FAIL(err, RU_E_CONFIG, "there is no generator '%s'%s%s%s; expected one of %s",
                       opt->name, near >= 0 ? " (did you mean '" : "", near >= 0 ? names[near] : "",
                       near >= 0 ? "'?)" : "", list);
    }
    RU_TRY(ru_dir_make(opt->dir, err));
    return make_generated(g, opt, report, err);
}

/* -- import ------------------------------------------------------------------------------------ */

const char *ru_import_form(uint32_t k)
{
    const rui_writer *w = rui_writer_at(k);
    return w != NULL ? w->name : NULL;
}

ru_status ru_data_import(ru_dataset *d, const char *form, const char *dir, const char *prefix,
                         ru_err *err)
{
    const rui_writer *w = rui_writer_find(form);
    if (w == NULL) {
        char list[256];
        ru_text t = ru_text_into(list, sizeof list);
        for (uint32_t k = 0; rui_writer_at(k) != NULL; k++) {
            ru_text_putf(&t, "%s%s", k > 0 ? ", " : "", rui_writer_at(k)->name);
        }
        return RU_FAIL(err, RU_E_CONFIG, "cannot write the format '%s'; expected one of %s", form,
                       list);
    }
    RU_TRY(ru_dir_make(dir, err));
    rui_write_job job = {.d = d, .n = d->count, .dir = dir, .prefix = prefix};
    return w->write(&job, err);
}
