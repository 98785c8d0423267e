/* Configuration: sources and their order, one-of, errors with places, dump and read back, JSON. */
#include "base/conf.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/unit.h"
#include "test/test.h"

typedef struct sgd {
    double lr, momentum;
    bool nesterov;
} sgd;

typedef struct adam {
    double lr;
    ru_conf_f64s betas;
} adam;

typedef struct optimizer {
    uint32_t which;
    sgd sgd;
    adam adam;
} optimizer;

typedef struct host {
    const char *name;
    uint32_t slots;
} host;

typedef struct job {
    const char *name;
    uint32_t model_which;
    struct {
        uint32_t which;
        const char *zoo, *onnx;
        ru_conf_i64s hidden;
    } model;
    optimizer optimizer;
    int64_t batch, every_ns, cache_bytes;
    uint32_t precision;
    ru_conf_texts train;
    ru_conf_pairs until;
    ru_conf_sections hosts;
} job;

static const ru_conf_field sgd_fields[] = {
    {.name = "lr",
     .type = RU_CONF_F64,
     .offset = offsetof(sgd, lr),
     .def = "0.1",
     .min = 0,
     .max = 100,
     .open = true,
     .help = "step size"},
    {.name = "momentum",
     .type = RU_CONF_F64,
     .offset = offsetof(sgd, momentum),
     .def = "0",
     .min = 0,
     .max = 1,
     .help = "share of the last step that is kept"},
    {.name = "nesterov",
     .type = RU_CONF_BOOL,
     .offset = offsetof(sgd, nesterov),
     .def = "false",
     .help = "look ahead"},
};
static ru_status sgd_check(const void *section, ru_err *err)
{
    const sgd *x = section;
    return x->nesterov && x->momentum <= 0
               ? RU_FAIL(err, RU_E_CONFIG, "'nesterov' looks ahead by 'momentum', which is 0")
               : RU_OK;
}

static const ru_conf_table sgd_table = {
    .name = "sgd", .fields = sgd_fields, .n = 3, .size_bytes = sizeof(sgd), .check = sgd_check};
static const ru_conf_field adam_fields[] = {
    {.name = "lr", .type = RU_CONF_F64, .offset = offsetof(adam, lr), .help = "step size"},
    {.name = "betas",
     .type = RU_CONF_F64_LIST,
     .offset = offsetof(adam, betas),
     .def = "[0.9, 0.999]",
     .min = 0,
     .max = 1,
     .help = "decay rates"},
};
static const ru_conf_table adam_table = {
    .name = "adam", .fields = adam_fields, .n = 2, .size_bytes = sizeof(adam)};
static ru_status optimizer_check(const void *section, ru_err *err)
{
    const optimizer *x = section;
    bool far = x->which == 1 && x->sgd.lr > 50 && x->sgd.momentum > 0.5;
    return far ? RU_FAIL(err, RU_E_CONFIG, "'sgd.lr' is %g with such a momentum", x->sgd.lr)
               : RU_OK;
}

static const ru_conf_field optimizer_fields[] = {
    {.name = "sgd",
     .type = RU_CONF_SECTION,
     .offset = offsetof(optimizer, sgd),
     .table = &sgd_table,
     .help = "plain steps"},
    {.name = "adam",
     .type = RU_CONF_SECTION,
     .offset = offsetof(optimizer, adam),
     .table = &adam_table,
     .help = "scaled steps"},
};
static const ru_conf_table optimizer_table = {.name = "optimizer",
                                              .fields = optimizer_fields,
                                              .n = 2,
                                              .size_bytes = sizeof(optimizer),
                                              .one_of = "sgd|adam",
                                              .check = optimizer_check,
                                              .which_offset = offsetof(optimizer, which)};

static const ru_conf_field model_fields[] = {
    {.name = "zoo",
     .type = RU_CONF_TEXT,
     .offset = offsetof(job, model.zoo) - offsetof(job, model),
     .help = "built-in model"},
    {.name = "onnx",
     .type = RU_CONF_TEXT,
     .offset = offsetof(job, model.onnx) - offsetof(job, model),
     .help = "model file"},
    {.name = "hidden",
     .type = RU_CONF_I64_LIST,
     .def = "[512, 512]",
     .min = 1,
     .max = 1e6,
     .offset = offsetof(job, model.hidden) - offsetof(job, model),
     .help = "widths"},
};
static const ru_conf_table model_table = {.name = "model",
                                          .fields = model_fields,
                                          .n = 3,
                                          .size_bytes = sizeof(((job *)0)->model),
                                          .one_of = "zoo|onnx",
                                          .which_offset = 0};

static const ru_conf_field host_fields[] = {
    {.name = "name", .type = RU_CONF_TEXT, .offset = offsetof(host, name), .help = "host name"},
    {.name = "slots",
     .type = RU_CONF_U32,
     .offset = offsetof(host, slots),
     .def = "1",
     .help = "workers there"},
};
static const ru_conf_table host_table = {
    .name = "host", .fields = host_fields, .n = 2, .size_bytes = sizeof(host)};

static const ru_conf_field job_fields[] = {
    {.name = "name",
     .type = RU_CONF_TEXT,
     .offset = offsetof(job, name),
     .def = "",
     .help = "name"},
    {.name = "model",
     .type = RU_CONF_SECTION,
     .offset = offsetof(job, model),
     .table = &model_table,
     .help = "the model"},
    {.name = "optimizer",
     .type = RU_CONF_SECTION,
     .offset = offsetof(job, optimizer),
     .table = &optimizer_table,
     .def = "sgd",
     .help = "how to step"},
    {.name = "batch",
     .type = RU_CONF_I64,
     .offset = offsetof(job, batch),
     .def = "128",
     .min = 1,
     .max = 1048576,
     .help = "global batch"},
    {.name = "every",
     .type = RU_CONF_TIME,
     .offset = offsetof(job, every_ns),
     .def = "60s",
     .min = 1e6,
     .max = 1e18,
     .help = "time between checkpoints"},
    {.name = "cache",
     .type = RU_CONF_SIZE,
     .offset = offsetof(job, cache_bytes),
     .def = "64KiB",
     .help = "cache"},
    {.name = "precision",
     .type = RU_CONF_CHOICE,
     .offset = offsetof(job, precision),
     .def = "f32",
     .choices = "f32|bf16",
     .help = "number format"},
    {.name = "train",
     .type = RU_CONF_TEXT_LIST,
     .offset = offsetof(job, train),
     .help = "training files"},
    {.name = "until",
     .type = RU_CONF_F64_MAP,
     .offset = offsetof(job, until),
     .def = "{}",
     .help = "targets"},
    {.name = "hosts",
     .type = RU_CONF_SECTIONS,
     .offset = offsetof(job, hosts),
     .def = "[]",
     .table = &host_table,
     .help = "where"},
};
static const ru_conf_table job_table = {
    .name = "job", .fields = job_fields, .n = RU_ARRAY_LEN(job_fields), .size_bytes = sizeof(job)};

static const char good[] = "name: digits\n"
                           "model: {zoo: lenet, hidden: 300}\n"
                           "optimizer:\n"
                           "  sgd: {lr: 5e-2}\n"
                           "train: [a.idx, \"b c\"]\n"
                           "until: {accuracy: 0.98}\n"
                           "every: 1.5s\n"
                           "hosts:\n"
                           "- {name: one}\n"
                           "- {name: two, slots: 4}\n";

static ru_status load(ru_arena *a, const char *text, const char *const *sets, uint32_t n_sets,
                      job *out, ru_conf **c, ru_err *err)
{
    RU_TRY(ru_conf_new(&job_table, a, c, err));
    RU_TRY(ru_conf_add_yaml(*c, "job.yaml", text, (int64_t)strlen(text), err));
    for (uint32_t i = 0; i < n_sets; i++) {
        RU_TRY(ru_conf_add_set(*c, sets[i], err));
    }
    return ru_conf_apply(*c, out, err);
}

static void test_file_fills_the_struct(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job j;
    assert_ok(load(&a, good, NULL, 0, &j, &c, &err), err);
    assert_string_equal(j.name, "digits");
    assert_int_equal(j.model.which, 1);
    assert_string_equal(j.model.zoo, "lenet");
    assert_true(j.model.hidden.n == 1 && j.model.hidden.at[0] == 300);
    assert_int_equal(j.optimizer.which, 1);
    assert_true(j.optimizer.sgd.lr == 0.05 && j.optimizer.sgd.momentum == 0);
    assert_true(j.optimizer.adam.betas.n == 2 && j.optimizer.adam.betas.at[1] == 0.999);
    assert_true(j.batch == 128 && j.every_ns == 1500000000 && j.cache_bytes == 65536);
    assert_true(j.train.n == 2);
    assert_string_equal(j.train.at[1], "b c");
    assert_true(j.until.n == 1 && j.until.at[0].value == 0.98);
    assert_int_equal(j.hosts.n, 2);
    const host *hosts = j.hosts.at;
    assert_true(hosts[0].slots == 1 && hosts[1].slots == 4);
    assert_string_equal(ru_conf_origin(c, "optimizer.sgd.lr"), "job.yaml:4:13");
    assert_string_equal(ru_conf_origin(c, "batch"), "default");
    assert_null(ru_conf_origin(c, "nothing"));
    assert_true(ru_conf_given(c, "model.zoo"));
    assert_false(ru_conf_given(c, "precision"));
    ru_arena_fini(&a);
}

static void test_stronger_sources_win(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job j;
    assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
    /* Added in the wrong order on purpose. */
    assert_ok(ru_conf_add_flag(c, "--batch", "batch", "512", &err), err);
    assert_ok(ru_conf_add_set(c, "batch=256", &err), err);
    assert_ok(ru_conf_add_set(c, "cache=1MB", &err), err);
    assert_ok(ru_conf_add_set(c, "cache=2MB", &err), err);
    assert_ok(ru_conf_add_set(c, "optimizer.adam.lr=0.001", &err), err);
    assert_ok(ru_conf_add_set(c, "until.loss=0.1", &err), err);
    assert_ok(ru_conf_add_set(c, "model.hidden=[1, 2, 3]", &err), err);
    assert_ok(ru_conf_add_set(c, "name=# 1: x", &err), err);
    setenv("RUBATO_PRECISION", "bf16", 1);
    setenv("RUBATO_BATCH", "64", 1);
    assert_ok(ru_conf_add_env(c, &err), err);
    unsetenv("RUBATO_PRECISION");
    unsetenv("RUBATO_BATCH");
    assert_ok(ru_conf_add_yaml(c, "job.yaml", good, (int64_t)strlen(good), &err), err);
    assert_ok(ru_conf_apply(c, &j, &err), err);
    assert_true(j.batch == 512 && j.cache_bytes == 2000000 && j.precision == 1);
    assert_int_equal(j.optimizer.which, 2);
    assert_true(j.optimizer.adam.lr == 0.001 && j.optimizer.sgd.lr == 0.1);
    assert_true(j.until.n == 2 && j.until.at[0].value == 0.98 && j.until.at[1].value == 0.1);
    assert_true(j.model.hidden.n == 3 && j.model.hidden.at[2] == 3);
    assert_string_equal(j.name, "# 1: x");
    assert_string_equal(ru_conf_origin(c, "batch"), "--batch");
    assert_string_equal(ru_conf_origin(c, "precision"), "RUBATO_PRECISION");
    assert_string_equal(ru_conf_origin(c, "cache"), "--set cache=2MB");
    ru_arena_fini(&a);
}

static void test_every_error_has_its_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* want: the whole sentence */
    } rows[] = {
        {"model: {zoo: a}\ntrain: x\nbacth: 3\n",
         "job.yaml:3:1: unknown key 'bacth'; did you mean 'batch'?"},
        {"model: {zoo: a}\ntrain: x\noptimizer: {sgd: {lr:0.1}}\n",
         "job.yaml:3:19: unknown key 'optimizer.sgd.lr:0.1'; a blank is missing behind ':'"},
        {"model: {zoo: a}\ntrain: x\noptimizer: {sgd: {lr: -1}}\n",
         "job.yaml:3:23: 'optimizer.sgd.lr' is -1, expected a number above 0, at most 100"},
        {"model: {zoo: a}\ntrain: x\noptimizer: {sgd: {}, adam: {lr: 1}}\n",
         "job.yaml:3:22: 'optimizer' has both sgd and adam; give one of them"},
        {"model: {zoo: a}\ntrain: x\noptimizer: adagrad\n",
         "job.yaml:3:12: 'optimizer' is adagrad, expected one of sgd, adam"},
        {"model: {zoo: a}\ntrain: x\noptimizer: sdg\n",
         "job.yaml:3:12: 'optimizer' is sdg, expected one of sgd, adam; did you mean 'sgd'?"},
        {"model: {zoo: a}\ntrain: x\noptimizer: adam\n",
         "job.yaml:3:12: key 'optimizer.adam.lr' is missing: step size"},
        {"model: {zoo: a}\ntrain: x\noptimizer:\n  sgd:\n    lr: 1\n    nesterov: true\n",
         "job.yaml:6:5: 'nesterov' looks ahead by 'momentum', which is 0"},
        {"model: {zoo: a}\ntrain: x\noptimizer:\n  sgd:\n    momentum: 0.9\n    lr: 60\n",
         "job.yaml:6:5: 'sgd.lr' is 60 with such a momentum"},
        {"model: {hidden: 5}\ntrain: x\n", "job.yaml:1:1: 'model' needs exactly one of: zoo, onnx"},
        {"model: {zoo: a}\n", "job.yaml:1:1: key 'train' is missing: training files"},
        {"model: {zoo: a}\ntrain: x\nbatch: \"12\"\n",
         "job.yaml:3:8: 'batch' is \"12\", expected a whole number from 1 to 1048576"},
        {"model: {zoo: a}\ntrain: x\nbatch:\n",
         "job.yaml:3:7: 'batch' has no value, expected a whole number from 1 to 1048576"},
        {"model: {zoo: a}\ntrain: x\nevery: 10\n",
         "job.yaml:3:8: 'every' is 10, expected a time such as 250us or 60s from 1ms to "
         "1000000000s"},
        {"model: {zoo: a}\ntrain: x\nprecision: bf61\n",
         "job.yaml:3:12: 'precision' is bf61, expected one of f32, bf16; did you mean 'bf16'?"},
        {"model: {zoo: a}\ntrain: x\nname: [1]\n",
         "job.yaml:3:7: 'name' is a list, expected a text"},
        {"model: {zoo: a, hidden: [1, x]}\ntrain: x\n",
         "job.yaml:1:29: 'model.hidden[1]' is x, expected a whole number from 1 to 1000000"},
        {"model: {zoo: a}\ntrain: x\nhosts: [{name: a}, {slot: 2}]\n",
         "job.yaml:3:21: unknown key 'hosts[1].slot'; did you mean 'slots'? (and 1 more)"},
        {"model: {zoo: a}\nmodel: {zoo: b}\n", "job.yaml:2:1: key 'model' is already in line 1"},
        {"model: &x {zoo: a}\ntrain: x\n", "job.yaml:1:8: anchors (&name) are not supported"},
        {"a: !!str b\n", "job.yaml:1:4: tags (!name) are not supported"},
        {"a: *b\n", "job.yaml:1:4: aliases (*name) are not supported; write the value again"},
        {"- 1\n", "job.yaml:1:1: 'job' is a list, expected a map"},
        {"a: 1\n---\nb: 2\n", "job.yaml:2:1: the file has a second document; only one is allowed"},
        {"? [a]\n: b\n", "job.yaml:1:3: a key must be a text, not a list or map"},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        ru_arena a;
        ru_arena_init(&a, 0);
        ru_err err = {0};
        ru_conf *c;
        job j, before;
        memset(&j, 0x5a, sizeof j);
        memset(&before, 0x5a, sizeof before);
        assert_int_equal(load(&a, rows[i].text, NULL, 0, &j, &c, &err), RU_E_CONFIG);
        assert_string_equal(err.text, rows[i].want);
        assert_memory_equal(&j, &before, sizeof j);
        ru_arena_fini(&a);
    }
}

static void test_all_problems_are_listed(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job j;
    const char *text = "model: {zo: a}\nbatch: 0\nevery: soon\nfoo: 1\n";
    assert_int_equal(load(&a, text, NULL, 0, &j, &c, &err), RU_E_CONFIG);
    uint32_t n;
    const char *const *all = ru_conf_problems(c, &n);
    assert_int_equal(n, 6); /* foo; zo; no alternative; batch; every; train */
    assert_non_null(strstr(all[0], "unknown key 'foo'; known keys here: name, model,"));
    assert_non_null(strstr(err.text, "(and 5 more)"));
    assert_int_equal(ru_conf_add_set(c, "optimizer.sgd.rl=1", &err), RU_E_CONFIG);
    assert_string_equal(err.text,
                        "--set optimizer.sgd.rl=1: unknown key 'optimizer.sgd.rl'; did you "
                        "mean 'lr'?");
    assert_int_equal(ru_conf_add_set(c, "batch", &err), RU_E_USAGE);
    assert_int_equal(ru_conf_add_set(c, "model.hidden=[1", &err), RU_E_CONFIG);
    ru_arena_fini(&a);
}

static void test_dump_reads_back(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c, *c2;
    job j, again;
    const char *sets[] = {"name=yes: \"no\"\n#", "cache=3MiB", "optimizer.sgd.lr=0.1234567890123"};
    assert_ok(load(&a, good, sets, 3, &j, &c, &err), err);
    assert_string_equal(ru_conf_peek(c, "cache"), "3MiB");
    assert_string_equal(ru_conf_peek(c, "optimizer.sgd.lr"), "0.1234567890123");
    assert_null(ru_conf_peek(c, "optimizer"));
    assert_null(ru_conf_peek(c, "optimizer.sgd.lr.more"));
    assert_null(ru_conf_peek(c, "optimizer.none"));
    ru_text first = ru_text_arena(&a), second = ru_text_arena(&a);
    ru_conf_dump(&job_table, &j, c, &first);
    assert_ok(load(&a, first.p, NULL, 0, &again, &c2, &err), err);
    ru_conf_dump(&job_table, &again, NULL, &second);
    ru_text plain = ru_text_arena(&a);
    ru_conf_dump(&job_table, &j, NULL, &plain);
    assert_string_equal(plain.p, second.p);
    assert_string_equal(again.name, "yes: \"no\"\n#");
    assert_non_null(strstr(first.p, "    lr: 0.1234567890123  # --set optimizer.sgd.lr="));
    assert_null(strstr(first.p, "adam"));
    ru_text help = ru_text_arena(&a);
    ru_conf_help(&job_table, 80, &help);
    assert_non_null(strstr(help.p,
                           "\nbatch:                    global batch (a whole number from 1 to "
                           "1048576;\n                          default 128)\n"));
    ru_arena_fini(&a);
}

/* An empty map puts a section back to its defaults; what comes later is merged with these. A word
 * that only names an alternative keeps what is set of it. */
static void test_empty_map_resets_a_section(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job j;
    const char *reset[] = {"optimizer.sgd={}", "until={}"};
    assert_ok(load(&a, good, reset, 2, &j, &c, &err), err);
    assert_true(j.optimizer.which == 1 && j.optimizer.sgd.lr == 0.1 && j.until.n == 0);
    assert_string_equal(ru_conf_origin(c, "optimizer.sgd.lr"), "default");
    const char *then[] = {"optimizer.sgd={}", "optimizer.sgd.momentum=0.5", "until={}",
                          "until.loss=2"};
    assert_ok(load(&a, good, then, 4, &j, &c, &err), err);
    assert_true(j.optimizer.sgd.lr == 0.1 && j.optimizer.sgd.momentum == 0.5);
    assert_true(j.until.n == 1 && j.until.at[0].value == 2);
    const char *before[] = {"optimizer.sgd.momentum=0.5", "optimizer={sgd: {}}"};
    assert_ok(load(&a, good, before, 2, &j, &c, &err), err);
    assert_true(j.optimizer.sgd.lr == 0.1 && j.optimizer.sgd.momentum == 0);
    const char *word[] = {"optimizer=sgd", "hosts=[]"};
    assert_ok(load(&a, good, word, 2, &j, &c, &err), err);
    assert_true(j.optimizer.sgd.lr == 0.05 && j.hosts.n == 0);
    const char *list[] = {"optimizer.sgd=[]"};
    assert_int_equal(load(&a, good, list, 1, &j, &c, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "is a list, expected a map"));
    ru_arena_fini(&a);
}

/* A list of maps is set as a whole, and a change of it is told on one line. */
static void test_lists_of_maps_are_settings(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job before, now;
    const char *one[] = {"hosts=[{name: a}]"},
               *two[] = {"hosts=[{name: a}, {name: b c, slots: 2}]"};
    assert_ok(load(&a, good, one, 1, &before, &c, &err), err);
    assert_ok(load(&a, good, two, 1, &now, &c, &err), err);
    assert_int_equal(now.hosts.n, 2);
    ru_text same = ru_text_arena(&a), changes = ru_text_arena(&a);
    ru_conf_changes(&job_table, &now, &now, &same);
    assert_int_equal(same.n, 0);
    ru_conf_changes(&job_table, &before, &now, &changes);
    assert_string_equal(changes.p, "hosts [{name: a, slots: 1}, {name: \"b c\", slots: 2}] (was "
                                   "[{name: a, slots: 1}])");
    assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
    assert_int_equal(ru_conf_add_set(c, "hosts.name=x", &err), RU_E_CONFIG);
    ru_arena_fini(&a);
}

static void test_json_is_the_same_schema(void **state)
{
    (void)state;
    ru_arena a;
    ru_arena_init(&a, 0);
    ru_err err;
    ru_conf *c;
    job j;
    const char *text =
        "{\"model\": {\"zoo\": \"lenet\\u0041\"},\n  \"train\": [\"\\ud83d\\ude00\", "
        "\"b\\\"]\"],\n  \"batch\": 64, \"optimizer\": {\"sgd\": {\"lr\": 1e-2}}}";
    assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
    assert_ok(ru_conf_add_file(c, "job.json", text, (int64_t)strlen(text), &err), err);
    assert_ok(ru_conf_apply(c, &j, &err), err);
    assert_string_equal(j.model.zoo, "lenetA");
    assert_string_equal(j.train.at[0], "\xf0\x9f\x98\x80");
    assert_string_equal(j.train.at[1], "b\"]");
    assert_true(j.batch == 64 && j.optimizer.sgd.lr == 0.01);
    assert_string_equal(ru_conf_origin(c, "batch"), "job.json:3:12");
    const char *bad = "{\"model\": {\"zoo\": \"a\"}, \"train\": 1,\n \"bath\": 3}";
    assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
    assert_ok(ru_conf_add_json(c, "x.json", bad, (int64_t)strlen(bad), &err), err);
    assert_int_equal(ru_conf_apply(c, &j, &err), RU_E_CONFIG);
    assert_string_equal(err.text, "x.json:2:2: unknown key 'bath'; did you mean 'batch'?");
    assert_int_equal(ru_conf_add_json(c, "x.json", "{\"a\":}", 6, &err), RU_E_CONFIG);
    assert_non_null(strstr(err.text, "x.json:1:6: unexpected token"));
    assert_int_equal(ru_conf_add_json(c, "x.json", NULL, 0, &err), RU_E_CONFIG);
    assert_string_equal(err.text, "x.json: the text is empty, expected JSON");
    /* The schema is JSON, and says what is required. */
    ru_text schema = ru_text_arena(&a);
    ru_conf_schema(&job_table, "job", &schema);
    json_error_t problem;
    json_t *root = json_loads(schema.p, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        fail_msg("schema line %d column %d: %s", problem.line, problem.column, problem.text);
    }
    assert_int_equal(json_array_size(json_object_get(root, "required")), 2);
    json_decref(root);
    ru_arena_fini(&a);
}

static void test_hostile_text(void **state)
{
    (void)state;
    ru_arena a;
    ru_err err;
    char *deep = malloc(200001);
    assert_non_null(deep);
    static const char opens[] = "[{\"";
    for (int k = 0; k < 2; k++) {
        ru_arena_init(&a, 0);
        ru_conf *c;
        assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
        memset(deep, opens[k], 200000);
        assert_int_equal(ru_conf_add_yaml(c, "x", deep, 200000, &err), RU_E_CONFIG);
        assert_int_equal(ru_conf_add_json(c, "x", deep, 200000, &err), RU_E_CONFIG);
        ru_arena_fini(&a);
    }
    free(deep);
    /* Every prefix of a good file, and every single byte changed: an error or a result, no crash.
     */
    char text[sizeof good];
    for (size_t i = 0; i < sizeof good; i++) {
        memcpy(text, good, sizeof good);
        text[i] = (char)(text[i] ^ (1 << (i % 7)));
        for (int k = 0; k < 2; k++) {
            ru_arena_init(&a, 0);
            ru_conf *c;
            job j;
            assert_ok(ru_conf_new(&job_table, &a, &c, &err), err);
            int64_t n = k == 0 ? (int64_t)i : (int64_t)sizeof good - 1;
            if (ru_conf_add_yaml(c, "x", k == 0 ? good : text, n, &err) == RU_OK) {
                ru_status st = ru_conf_apply(c, &j, &err);
                assert_true(st == RU_OK || st == RU_E_CONFIG);
            }
            ru_arena_fini(&a);
        }
    }
}

static void test_memory_may_run_out_anywhere(void **state)
{
    (void)state;
    ru_err err;
    bool done = false;
    for (int64_t size = 0; !done && size < 400000; size += 64 + size / 64) {
        ru_arena a;
        ru_arena_init(&a, size + 1);
        ru_conf *c;
        job j, before;
        memset(&j, 0x5a, sizeof j);
        before = j;
        ru_status st = load(&a, good, NULL, 0, &j, &c, &err);
        assert_true(st == RU_OK || st == RU_E_LIMIT);
        done = st == RU_OK;
        assert_true(done || memcmp(&j, &before, sizeof j) == 0);
        ru_arena_fini(&a);
    }
    assert_true(done);
}

static void test_units(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int64_t ns, bytes; /* -1: not such a word */
    } rows[] = {
        {"250us", 250000, -1},
        {"1.5s", 1500000000, -1},
        {"0", 0, 0},
        {"0.1ns", -1, -1},
        {"2h", 7200000000000, -1},
        {"1min", 60000000000, -1},
        {"64KiB", -1, 65536},
        {"1MB", -1, 1000000},
        {"0.5KiB", -1, 512},
        {"12", -1, 12},
        {"9223372036854775807", -1, INT64_MAX},
        {"9223372036854775808", -1, -1},
        {"9300000000s", -1, -1},
        {"", -1, -1},
        {"s", -1, -1},
        {"-1s", -1, -1},
        {"1 s", -1, -1},
        {".5s", -1, -1},
        {"1.s", -1, -1},
        {"8388608TiB", -1, -1},
        {"+5", -1, -1},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        int64_t v = -1;
        assert_true(ru_unit_time(ru_str_c(rows[i].word), &v) == (rows[i].ns >= 0));
        assert_true(v == rows[i].ns);
        v = -1;
        assert_true(ru_unit_size(ru_str_c(rows[i].word), &v) == (rows[i].bytes >= 0));
        assert_true(v == rows[i].bytes);
    }
    static const int64_t values[] = {0,          1,       999,           1000,      60000000000,
                                     5400000000, 1 << 20, 7200000000000, 123456789, 3 << 10};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(values); i++) {
        char buf[64];
        ru_text t = ru_text_into(buf, sizeof buf);
        int64_t back = -1;
        ru_text_time(&t, values[i]);
        assert_true(ru_unit_time(ru_str_c(buf), &back) && back == values[i]);
        t = ru_text_into(buf, sizeof buf);
        ru_text_size(&t, values[i]);
        assert_true(ru_unit_size(ru_str_c(buf), &back) && back == values[i]);
    }
    char buf[200];
    ru_text t = ru_text_into(buf, sizeof buf);
    static const int64_t times[] = {12,         1250,        999600,       45600000,
                                    1234000000, 61000000000, 150000000000, 7500000000000};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(times); i++) {
        ru_text_put(&t, i > 0 ? "|" : "");
        ru_text_time_short(&t, times[i]);
    }
    assert_string_equal(buf, "12 ns|1.25 us|1.00 ms|45.6 ms|1.23 s|61.0 s|2 min 30 s|2 h 5 min");
}

/* Numbers at their borders: which text each field takes. */
typedef struct borders {
    double open, free;
    int64_t from_2_to_5;
    uint32_t count;
} borders;

static const ru_conf_field border_fields[] = {
    {.name = "open",
     .type = RU_CONF_F64,
     .offset = offsetof(borders, open),
     .def = "1",
     .min = 0,
     .max = 100,
     .open = true,
     .help = "above 0"},
    {.name = "free",
     .type = RU_CONF_F64,
     .offset = offsetof(borders, free),
     .def = "0",
     .help = "any number"},
    {.name = "from_2_to_5",
     .type = RU_CONF_I64,
     .offset = offsetof(borders, from_2_to_5),
     .def = "2",
     .min = 2,
     .max = 5,
     .help = "two to five"},
    {.name = "count",
     .type = RU_CONF_U32,
     .offset = offsetof(borders, count),
     .def = "0",
     .help = "any count"},
};
static const ru_conf_table border_table = {.name = "borders",
                                           .fields = border_fields,
                                           .n = RU_ARRAY_LEN(border_fields),
                                           .size_bytes = sizeof(borders)};

static void test_numbers_at_their_borders(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool fits;
    } rows[] = {
        {"open: 1e-300", true},      {"open: 0", false},           {"open: -1", false},
        {"open: 100", true},         {"open: 100.1", false},       {"open: nan", false},
        {"free: -1e300", true},      {"free: inf", false},         {"free: -inf", false},
        {"free: nan", false},        {"free: 1e999", false},       {"from_2_to_5: 2", true},
        {"from_2_to_5: 5", true},    {"from_2_to_5: 5.0", true},   {"from_2_to_5: 1", false},
        {"from_2_to_5: 6", false},   {"from_2_to_5: 2.5", false},  {"from_2_to_5: '3'", false},
        {"count: 4294967295", true}, {"count: 4294967296", false}, {"count: -1", false},
        {"count: 1e3", true},        {"count: 1e18", false},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_arena a;
        ru_conf *c;
        ru_err err = {0};
        borders b;
        ru_arena_init(&a, 0);
        assert_ok(ru_conf_new(&border_table, &a, &c, &err), err);
        assert_ok(ru_conf_add_yaml(c, "t", rows[k].line, (int64_t)strlen(rows[k].line), &err), err);
        ru_status st = ru_conf_apply(c, &b, &err);
        if (st != (rows[k].fits ? RU_OK : RU_E_CONFIG)) {
            fail_msg("'%s' is %s", rows[k].line, st == RU_OK ? "taken" : err.text);
        }
        ru_arena_fini(&a);
    }
}

RU_TESTS(base_conf, cmocka_unit_test(test_numbers_at_their_borders),
         cmocka_unit_test(test_file_fills_the_struct), cmocka_unit_test(test_stronger_sources_win),
         cmocka_unit_test(test_every_error_has_its_place),
         cmocka_unit_test(test_all_problems_are_listed), cmocka_unit_test(test_dump_reads_back),
         cmocka_unit_test(test_json_is_the_same_schema),
         cmocka_unit_test(test_empty_map_resets_a_section),
         cmocka_unit_test(test_empty_map_resets_a_section),
         cmocka_unit_test(test_lists_of_maps_are_settings), cmocka_unit_test(test_hostile_text),
         cmocka_unit_test(test_memory_may_run_out_anywhere), cmocka_unit_test(test_units))
