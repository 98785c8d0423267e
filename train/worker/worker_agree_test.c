/* What workers agree on: the same job gives the same lines wherever it runs, and whatever changes
 * the training changes the line that names it. */
#include <stdio.h>
#include <string.h>

#include "env/process/self.h"
#include "test/test.h"
#include "train/worker/agree.h"
#include "train/worker/worker_impl.h"

enum { TEXT_MAX = 8192 };

static const char job_yaml[] =
    "name: t\nmodel: {zoo: mlp, hidden: [8], dropout: 0.2}\n"
    "data: {format: synthetic, generator: gaussian, count: 200, test_count: 50, features: 6, "
    "classes: 3}\n"
    "train: {groups: [{match: fc1.*}, {match: fc2.*, lr: 0.5, freeze: true}], "
    "batch: 16, epochs: 2, threads: 1, until: {accuracy: 0.9}, "
    "optimizer: {adam: {lr: 0.01}}}\n";

typedef struct setting {
    const char *old, *new; /* part of the job, and what stands there instead; NULL: nothing */
    ru_worker_options options;
    const char *differs; /* names of the lines that differ, each behind a blank */
} setting;

static void agreed(const setting *s, char into[TEXT_MAX])
{
    ru_arena arena;
    ru_job job;
    ru_err err = {0};
    char yaml[TEXT_MAX];
    const char *at = s->old != NULL ? strstr(job_yaml, s->old) : NULL, *text;
    (void)snprintf(yaml, sizeof yaml, "%.*s%s%s", (int)(at != NULL ? at - job_yaml : 0), job_yaml,
                   at != NULL ? s->new : "", at != NULL ? at + strlen(s->old) : job_yaml);
    ru_arena_init(&arena, 0);
    assert_ok(ru_job_parse("t", yaml, &arena, &job, &err), err);
    rui_worker *w = RU_NEW(&arena, rui_worker, 1);
    assert_non_null(w);
    w->opt = &s->options;
    w->t.job = &job;
    ru_arena_init(&w->arena_loop, 0);
    const ru_data_options train = ru_job_data_options(&job, false);
    const ru_data_options test = ru_job_data_options(&job, true);
    ru_model_facts facts;
    assert_ok(ru_dataset_open(&train, &w->t.train_set, &err), err);
    assert_ok(ru_dataset_open(&test, &w->t.test_set, &err), err);
    assert_ok(ru_model_facts_from(w->t.train_set, &arena, &facts, &err), err);
    assert_ok(ru_model_open(&job, &facts, NULL, &arena, &w->t.model, &err), err);
    assert_ok(ru_worker_agreed(&w->t, w->opt, w->list.first_step, &w->arena_loop, &text, &err),
              err);
    assert_true(strlen(text) < TEXT_MAX);
    (void)snprintf(into, TEXT_MAX, "%s", text);
    ru_model_close(&w->t.model);
    ru_dataset_close(w->t.test_set);
    ru_dataset_close(w->t.train_set);
    ru_arena_fini(&w->arena_loop);
    ru_arena_fini(&arena);
}

/* The line of that name in the other text. */
static bool same_line(ru_str line, const char *other)
{
    ru_str rest = ru_str_c(other), l;
    bool same = false;
    while (ru_str_next(&rest, '\n', &l)) {
        same = same || ru_str_eq(l, line);
    }
    return same;
}

static void what_differs_is_named(void **state)
{
    (void)state;
    static const setting settings[] = {
        {.differs = ""},
        {.old = "name: t", .new = "name: other", .differs = ""},
        {.old = "threads: 1",
         .new = "threads: 2, device: ref, autotune: false, poll: 1ms",
         .differs = ""},
        {.old = "train: {", .new = "checkpoint: {every: 1s, keep: 9}\ntrain: {", .differs = ""},
        {.options = {.shell.newcomer = true}, .differs = " first-step"}, /* it has no such line */
        {.options = {.deterministic = true}, .differs = " --deterministic"},
        {.options = {.n_begin = 3}, .differs = ""},
        {.old = "lr: 0.01", .new = "lr: 0.02", .differs = " train.optimizer.adam.lr"},
        {.old = "batch: 16", .new = "batch: 32", .differs = " train.batch"},
        {.old = "accuracy: 0.9", .new = "accuracy: 0.8", .differs = " train.until"},
        {.old = "{match: fc1.*}", .new = "{match: fc1.*, lr: 2}", .differs = " train.groups.0.lr"},
        {.old = ", freeze: true", .new = "", .differs = " train.groups.1.freeze"},
        {.old = "dropout: 0.2", .new = "dropout: 0.1", .differs = " model.dropout model-graph"},
        {.old = "hidden: [8]", .new = "hidden: [9]", .differs = " model.hidden model-graph"},
        {.old = "count: 200",
         .new = "count: 201",
         .differs = " data.count training-data-samples test-data-content"},
        {.old = "test_count: 50",
         .new = "test_count: 51",
         .differs = " data.test_count test-data-samples test-data-content"},
        {.old = "classes: 3",
         .new = "classes: 3, seed: 2",
         .differs = " data.seed training-data-content test-data-content"},
    };
    char first[TEXT_MAX], other[TEXT_MAX], named[TEXT_MAX];
    agreed(&settings[0], first);
    char build[RU_SELF_BUILD_BYTES], words[64];
    ru_self_build(build);
    assert_int_equal(strspn(build, "0123456789abcdef"), strlen(build));
    assert_true(strlen(build) >= 16);
    (void)snprintf(words, sizeof words, "program-build %.16s\n", build);
    assert_non_null(strstr(first, "program " RU_VERSION "\n"));
    assert_non_null(strstr(first, words));
    assert_null(strstr(first, "\nname "));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(settings); k++) {
        agreed(&settings[k], other);
        ru_text t = ru_text_into(named, sizeof named);
        ru_str rest = ru_str_c(first), line;
        named[0] = '\0';
        while (ru_str_next(&rest, '\n', &line)) {
            if (!same_line(line, other)) {
                ru_text_putf(&t, " %.*s", (int)ru_str_find(line, " "), line.p);
            }
        }
        if (strcmp(named, settings[k].differs) != 0) {
            fail_msg("setting %u: '%s' instead of '%s'", k, named, settings[k].differs);
        }
    }
}

RU_TESTS(train_worker_agree, cmocka_unit_test(what_differs_is_named))
