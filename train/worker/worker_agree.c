/* What all workers of a job must agree on, as lines "name value" (comm/member): the resolved job
 * but for what each machine decides for itself, the data by count, types, size and a sample of
 * their content, the model's graph, and the program. */
#include <string.h>

#include "base/hash.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "train/worker/agree.h"

enum { DEPTH_MAX = 8, SAMPLES = 64, LABEL = 17 };

/* Each machine may have its own: places, threads, devices, and how often it saves. Of files the
 * content counts. */
static bool is_own(ru_str name)
{
    static const char *const own[] = {"name",
                                      "model.onnx",
                                      "model.weights",
                                      "data.train",
                                      "data.test",
                                      "data.threads",
                                      "train.threads",
                                      "train.device",
                                      "train.autotune",
                                      "train.poll",
                                      "train.early_update",
                                      "train.barrier",
                                      "checkpoint.every",
                                      "checkpoint.keep",
                                      "checkpoint.in_storage",
                                      "data.direct",
                                      "data.cache"};
    bool yes = ru_str_starts(name, "storage");
    for (uint32_t k = 0; k < RU_ARRAY_LEN(own); k++) {
        yes = yes || ru_str_eq_c(name, own[k]);
    }
    return yes;
}

static void put_line(ru_text *t, ru_str name, ru_str value)
{
    enum { VALUE_MAX = 160 };
    if (is_own(name)) {
        return;
    }
    ru_text_putf(t, "%.*s ", RU_STR_ARG(name));
    if (value.n <= VALUE_MAX) {
        ru_text_putf(t, "%.*s\n", RU_STR_ARG(value));
    } else {
        ru_text_putf(t, "%.*s... %016llx\n", VALUE_MAX, value.p,
                     (unsigned long long)ru_hash_bytes(value.p, value.n, LABEL));
    }
}

/* "a:\n  b: 1\n" as "a.b 1\n", and elements of a list as "a.0.b". The text is ru_job_dump's: two
 * blanks a level, one key a line. */
static void put_job(const char *yaml, ru_text *t)
{
    ru_str rest = ru_str_c(yaml), line, keys[DEPTH_MAX];
    char numbers[DEPTH_MAX][12];
    uint32_t elements[DEPTH_MAX] = {0};
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t blanks = 0, colon = ru_str_find(line, ":");
        while (blanks < line.n && line.p[blanks] == ' ') {
            blanks++;
        }
        uint32_t depth = (uint32_t)(blanks / 2);
        if (colon < 0) {
            continue;
        }
        RU_CHECK(depth + 1 < DEPTH_MAX);
        if (ru_str_starts(ru_str_from(line, blanks), "- ")) {
            ru_text number = ru_text_into(numbers[depth], sizeof numbers[depth]);
            ru_text_putf(&number, "%u", elements[depth]++);
            keys[depth] = ru_str_c(numbers[depth]);
            depth++;
            blanks += 2;
        } else {
            elements[depth + 1] = 0;
        }
        keys[depth] = ru_str_n(line.p + blanks, colon - blanks);
        ru_str value = ru_str_trim(ru_str_from(line, colon + 1));
        char name[256];
        ru_text full = ru_text_into(name, sizeof name);
        for (uint32_t k = 0; k <= depth; k++) {
            ru_text_putf(&full, "%s%.*s", k > 0 ? "." : "", RU_STR_ARG(keys[k]));
        }
        if (value.n > 0) {
            put_line(t, ru_str_n(full.p, full.n), value);
        }
    }
}

/* Samples from all over the set, decoded as the training sees them; one that cannot be read is an
 * error where it is used, not here. */
static uint64_t content(const ru_dataset *d, const ru_field *fields, uint32_t n_fields,
                        ru_arena *scratch)
{
    void *at[RU_FIELDS_MAX] = {0};
    ru_hasher h;
    ru_hasher_init(&h);
    for (uint32_t k = 0; k < n_fields; k++) {
        at[k] = ru_arena_zalloc(scratch, ru_type_bytes(&fields[k].type), 64);
        if (at[k] == NULL) {
            return 0;
        }
    }
    int64_t count = ru_dataset_count(d), n = count < SAMPLES ? count : SAMPLES;
    for (int64_t i = 0; i < n; i++) {
        ru_status st =
            ru_dataset_read(d, ru_order_sample(LABEL, 0, i * (count / n), count), at, NULL);
        ru_hasher_put_u64(&h, (uint64_t)st);
        for (uint32_t k = 0; st == RU_OK && k < n_fields; k++) {
            ru_hasher_put(&h, at[k], ru_type_bytes(&fields[k].type));
        }
    }
    return ru_hasher_get(&h).low;
}

static void put_data(const char *name, const ru_dataset *d, ru_arena *scratch, ru_text *t)
{
    const ru_field *fields;
    uint32_t n = ru_dataset_fields(d, &fields);
    ru_text_putf(t, "%s-samples %lld\n%s-bytes %lld\n%s-types", name,
                 (long long)ru_dataset_count(d), name, (long long)ru_dataset_bytes(d), name);
    for (uint32_t k = 0; k < n; k++) {
        char type[160];
        ru_type_print(NULL, &fields[k].type, type, sizeof type);
        ru_text_putf(t, "%s%s:%s", k > 0 ? "," : " ", fields[k].name, type);
    }
    ru_hasher classes;
    ru_hasher_init(&classes);
    for (int64_t k = 0; k < ru_dataset_classes(d) && ru_dataset_class_name(d, k) != NULL; k++) {
        ru_hasher_put_str(&classes, ru_dataset_class_name(d, k));
    }
    ru_text_putf(t, "\n%s-classes %lld:%016llx\n%s-content %016llx\n", name,
                 (long long)ru_dataset_classes(d), (unsigned long long)ru_hasher_get(&classes).low,
                 name, (unsigned long long)content(d, fields, n, scratch));
}

/* Workers that begin a job read start values each for itself. */
static void put_weights(const rui_trainer *w, bool begins, ru_text *t)
{
    const char *path = w->job->model.weights;
    ru_map_file map;
    ru_err ignored; /* it is told where the file is read */
    if (path[0] == 0 || !begins || ru_file_map(path, &map, &ignored) != RU_OK) {
        return;
    }
    ru_text_putf(t, "model.weights-content %016llx\n",
                 (unsigned long long)ru_hash_bytes(map.data, map.size_bytes, LABEL));
    ru_file_unmap(&map);
}

ru_status ru_worker_agreed(const rui_trainer *t, const ru_worker_options *opt, int64_t first_step,
                           ru_arena *arena, const char **out, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_text yaml = ru_text_arena(&scratch), text = ru_text_arena(arena);
    ru_job_dump(t->job, NULL, &yaml);
    char build[RU_SELF_BUILD_BYTES];
    ru_self_build(build);
    ru_text_putf(&text, "program %s\nprogram-build %.16s\n", RU_VERSION, build);
    put_job(yaml.p, &text);
    ru_text_putf(&text, "model-graph %016llx\n",
                 (unsigned long long)ru_graph_hash(&t->model.train));
    put_weights(t, !opt->shell.newcomer && first_step == 0, &text);
    put_data("training-data", t->train_set, &scratch, &text);
    if (t->test_set != NULL) {
        put_data("test-data", t->test_set, &scratch, &text);
    }
    ru_text_putf(&text, "--deterministic %s\n", opt->deterministic ? "given" : "not given");
    if (opt->n_begin > 1) {
        ru_text_putf(&text, "workers-to-begin-with %u\n", opt->n_begin);
    }
    if (!opt->shell.newcomer) { /* who takes the state from others is at no step yet */
        ru_text_putf(&text, "first-step %lld\n", (long long)first_step + 1);
    }
    bool whole = !yaml.cut && !text.cut;
    ru_arena_fini(&scratch);
    *out = text.p;
    return whole ? RU_OK : RU_FAIL(err, RU_E_MEM, "not enough memory to describe the job");
}
