/* Our side of the training and inference benchmarks: one model, fixed random inputs, steps on
 * demand. It stands in a process of its own so that memory and threads are counted as the peer's
 * are. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/params/params.h"
#include "bench/reader/reader.h"
#include "bench/train/zoo.h"
#include "bench/wire/bare.h"
#include "bench/wire/collective.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "exec/exe.h"
#include "trace/record/recorder.h"
#include "train/model/step.h"
#include "train/model/zoo.h"
#include "world/onnx/onnx.h"

typedef struct workload {
    const char *name, *zoo;
    int64_t batch;
    int64_t input[3];
    uint32_t input_rank;
    int64_t context; /* > 0: tokens of a vocabulary of 256 */
    bool adamw;
} workload;

/* The models of bench/models.py, line by line. */
static const workload workloads[] = {
    {"mlp", "mlp", 128, {784}, 1, 0, false},
    {"lenet", "lenet", 64, {1, 28, 28}, 3, 0, false},
    {"resnet18", "resnet18", 64, {3, 32, 32}, 3, 0, false},
    {"gpt", "gpt", 16, {0}, 0, 128, true},
    {"lstm", "lstm", 32, {0}, 0, 64, true},
};

typedef struct worker {
    ru_arena arena;
    ru_map_file file;
    ru_exe *exe;
    ru_value_id lr, step, loss; /* absent in inference */
    int64_t steps;
    bool train;
    ru_recorder *recorder; /* of bench trace; NULL: none yet */
    bool recording;
    ru_zoo_side zoo; /* path NULL: not a model of a zoo */
} worker;

static void fill_random(void *into, const ru_type *t, int64_t classes)
{
    int64_t n = ru_type_count(t);
    ru_rng rng = ru_rng_from(1, 1);
    for (int64_t i = 0; i < n; i++) {
        if (t->dtype == RU_F32) {
            ((float *)into)[i] = (float)ru_rng_normal(&rng);
        } else if (t->dtype == RU_I64) {
            ((int64_t *)into)[i] = (int64_t)(ru_rng_u64(&rng) % (uint64_t)classes);
        } else if (t->dtype == RU_I32) {
            ((int32_t *)into)[i] = (int32_t)(ru_rng_u64(&rng) % (uint64_t)classes);
        }
    }
}

static ru_status build_step(worker *w, const workload *k, int64_t batch, ru_step_graph *s,
                            const ru_init **inits, uint32_t *n_inits, ru_graph *model, ru_err *err)
{
    ru_zoo_options zoo = {.classes = 10,
                          .context = k->context,
                          .vocab = k->context > 0 ? 256 : 0,
                          .input_rank = k->input_rank,
                          .bias = true};
    memcpy(zoo.input, k->input, sizeof k->input);
    ru_zoo_model info;
    RU_TRY(ru_graph_init(model, &w->arena, k->name, err));
    RU_TRY(ru_zoo_build(k->zoo, &zoo, true, model, &info, err));
    *inits = info.inits;
    *n_inits = info.n_inits;
    ru_step_options opt = {
        .loss = k->context > 0 ? RU_LOSS_NEXT_TOKEN : RU_LOSS_CROSS_ENTROPY,
        .batch = batch,
        .optimizer = k->adamw
                         ? (ru_optimizer){.kind = RU_OPTIMIZER_ADAMW,
                                          .lr = 3e-4,
                                          .beta1 = 0.9,
                                          .beta2 = 0.999,
                                          .epsilon = 1e-8,
                                          .weight_decay = 0.01}
                         : (ru_optimizer){.kind = RU_OPTIMIZER_SGD, .lr = 0.01, .momentum = 0.9},
    };
    opt.x = k->context > 0 ? ru_type_make(RU_I64, 1, &k->context)
                           : ru_type_make(RU_F32, k->input_rank, k->input);
    opt.y = k->context > 0 ? opt.x : ru_type_scalar(RU_I64);
    return ru_step_build(model, &opt, &w->arena, s, err);
}

static ru_status start_values(worker *w, const ru_graph *model, const ru_step_graph *s,
                              const ru_init *inits, uint32_t n_inits, ru_err *err)
{
    for (uint32_t k = 0; k < n_inits; k++) {
        const ru_value *v = ru_graph_value(model, inits[k].param);
        int64_t count = ru_type_count(&v->type);
        float *data = malloc((size_t)count * sizeof *data);
        if (data == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the parameter %s", v->name);
        }
        ru_init_fill(&inits[k], 1, k, count, data);
        ru_status st = ru_exe_state_write(w->exe, ru_graph_find(&s->graph, v->name), data, err);
        free(data);
        RU_TRY(st);
    }
    return RU_OK;
}

static ru_status open_train(worker *w, const char *name, int64_t batch, const ru_exe_options *opt,
                            ru_err *err)
{
    const workload *k = NULL;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(workloads); i++) {
        k = strcmp(workloads[i].name, name) == 0 ? &workloads[i] : k;
    }
    if (k == NULL) {
        return RU_FAIL(err, RU_E_USAGE, "unknown workload '%s'", name);
    }
    ru_step_graph *s = RU_NEW(&w->arena, ru_step_graph, 1);
    ru_graph *model = RU_NEW(&w->arena, ru_graph, 1);
    const ru_init *inits;
    uint32_t n_inits;
    if (s == NULL || model == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the workload");
    }
    RU_TRY(build_step(w, k, batch > 0 ? batch : k->batch, s, &inits, &n_inits, model, err));
    RU_TRY(ru_exe_open(&s->graph, opt, &w->exe, err));
    RU_TRY(start_values(w, model, s, inits, n_inits, err));
    fill_random(ru_exe_input(w->exe, s->x[0]), &ru_graph_value(&s->graph, s->x[0])->type, 256);
    fill_random(ru_exe_input(w->exe, s->y[0]), &ru_graph_value(&s->graph, s->y[0])->type,
                k->context > 0 ? 256 : 10);
    w->lr = s->lr;
    w->step = s->step;
    w->loss = s->loss;
    *(float *)ru_exe_input(w->exe, w->lr) = k->adamw ? 3e-4f : 0.01f;
    return RU_OK;
}

/* Every symbolic dimension of a benchmark model is the batch. */
static ru_status bind_batch(worker *w, const ru_graph *model, int64_t batch, ru_graph **bound,
                            ru_err *err)
{
    const ru_graph *from = model;
    *bound = NULL;
    for (uint32_t sym = 0; sym < model->n_symbols; sym++) {
        ru_graph *next = RU_NEW(&w->arena, ru_graph, 1);
        if (next == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the model");
        }
        RU_TRY(ru_graph_bind(from, sym, batch, &w->arena, next, err));
        from = *bound = next;
    }
    return RU_OK;
}

static ru_status open_infer(worker *w, const char *path, int64_t batch, const ru_exe_options *opt,
                            ru_err *err)
{
    ru_graph *model = RU_NEW(&w->arena, ru_graph, 1), *g;
    if (model == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    RU_TRY(ru_file_map(path, &w->file, err));
    ru_onnx_options read = {.external = NULL};
    RU_TRY(ru_onnx_read(w->file.data, w->file.size_bytes, &read, &w->arena, model, NULL, err));
    RU_TRY(bind_batch(w, model, batch, &g, err));
    g = g != NULL ? g : model;
    RU_TRY(ru_exe_open(g, opt, &w->exe, err));
    for (uint32_t k = 0; k < g->n_inputs; k++) {
        fill_random(ru_exe_input(w->exe, g->inputs[k]), &ru_graph_value(g, g->inputs[k])->type,
                    256);
    }
    w->loss = g->outputs[0];
    return RU_OK;
}

static ru_status run_steps(worker *w, int64_t n, double *loss, ru_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        w->steps++;
        if (w->step.v != 0) {
            *(int64_t *)ru_exe_input(w->exe, w->step) = w->steps;
        }
        RU_TRY(ru_exe_run(w->exe, &(ru_run_args){.seed = 1, .step = w->steps}, err));
    }
    if (w->zoo.path != NULL) {
        return RU_OK;
    }
    const float *out = ru_exe_output(w->exe, w->loss);
    *loss = out != NULL ? (double)out[0] : RU_NAN;
    return RU_OK;
}

/* Record steps from now on, in a folder; "off": do not. */
static ru_status record(worker *w, const char *line, ru_err *err)
{
    const char *dir = ru_arena_strn(&w->arena, line, (int64_t)strcspn(line, "\n"));
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory");
    }
    w->recording = strcmp(dir, "off") != 0;
    if (!w->recording) {
        ru_exe_record(w->exe, NULL);
        return RU_OK;
    }
    if (w->recorder == NULL) {
        const ru_recorder_options opt = {.dir = dir};
        RU_TRY(ru_recorder_open(&opt, &w->recorder, err));
    }
    ru_exe_record(w->exe, w->recorder);
    return RU_OK;
}

static ru_status answer(worker *w, const char *line, bool *quit, ru_err *err)
{
    long long n;
    if (sscanf(line, "run %lld", &n) == 1) {
        double loss = 0;
        int64_t t0 = ru_clock_now().ns, cpu0 = ru_clock_cpu_ns();
        RU_TRY(run_steps(w, n, &loss, err));
        if (w->recording) {
            ru_recorder_sync(w->recorder); /* these steps pay for writing what they recorded */
        }
        double seconds = (double)(ru_clock_now().ns - t0) * 1e-9;
        double cpu = (double)(ru_clock_cpu_ns() - cpu0) * 1e-9;
        printf("%.9f %.9g %.9f\n", seconds, w->zoo.path != NULL ? ru_bench_zoo_mean(&w->zoo) : loss,
               cpu);
    } else if (strncmp(line, "record ", 7) == 0) {
        RU_TRY(record(w, line + 7, err));
        printf("recorded\n");
    } else if (strncmp(line, "rss", 3) == 0) {
        printf("%lld\n", (long long)ru_self_rss_peak_bytes());
    } else if (sscanf(line, "profile %lld", &n) == 1) {
        double loss;
        ru_exe_profile(w->exe, true);
        RU_TRY(run_steps(w, n, &loss, err));
        ru_exe_profile(w->exe, false);
        fputs(ru_exe_print(w->exe, &w->arena), stderr);
    } else if (strncmp(line, "print", 5) == 0) {
        fputs(ru_exe_print(w->exe, &w->arena), stderr);
    } else {
        *quit = true;
    }
    fflush(stdout);
    return RU_OK;
}

ru_status ru_bench_worker(const char *const *words, uint32_t n, ru_err *err)
{
    if (n > 1 && strcmp(words[0], "collective") == 0 && strcmp(words[1], "bare") == 0) {
        return ru_bench_coll_bare_worker(words, n, err);
    }
    if (n > 1 && strcmp(words[0], "collective") == 0) {
        return strcmp(words[1], "net") == 0 ? ru_bench_coll_net_worker(words, n, err)
                                            : ru_bench_coll_shm_worker(words, n, err);
    }
    if (n > 0 && strcmp(words[0], "params") == 0) {
        return ru_bench_params_worker(words, n, err);
    }
    if (n > 0 && strcmp(words[0], "storage") == 0) {
        return rui_bench_loop_worker(words + 1, n - 1, err);
    }
    if (n != 5) {
        return RU_FAIL(err, RU_E_USAGE, "a worker needs: train|infer MODEL THREADS f32|bf16 BATCH");
    }
    worker w = {.train = strcmp(words[0], "train") == 0};
    ru_arena_init(&w.arena, 0);
    ru_exe_options opt = {
        .threads = (uint32_t)strtoul(words[2], NULL, 10),
        .precision = strcmp(words[3], "bf16") == 0 ? RU_PRECISION_BF16 : RU_PRECISION_F32,
        .autotune = true,
    };
    int64_t batch = strtoll(words[4], NULL, 10);
    ru_status st = RU_OK;
    if (strcmp(words[0], "zoo") == 0) {
        w.zoo.path = words[1];
        st = ru_bench_zoo_open(&w.zoo, &opt, &w.arena, err);
        w.exe = w.zoo.exe;
    } else {
        st = w.train ? open_train(&w, words[1], batch, &opt, err)
                     : open_infer(&w, words[1], batch, &opt, err);
    }
    if (st == RU_OK) {
        printf("{\"ready\":true,\"detail\":\"rubato " RU_VERSION "\"}\n");
        fflush(stdout);
    } else if (err != NULL) {
        ru_text why = ru_text_arena(&w.arena);
        ru_text_json(&why, ru_str_c(err->text));
        printf("{\"ready\":false,\"why\":%s}\n", why.p);
        fflush(stdout);
    }
    char line[256];
    bool quit = false;
    while (st == RU_OK && !quit && fgets(line, sizeof line, stdin) != NULL) {
        st = answer(&w, line, &quit, err);
    }
    if (w.zoo.path != NULL) {
        ru_bench_zoo_close(&w.zoo);
    } else {
        ru_exe_close(w.exe);
    }
    ru_recorder_close(w.recorder);
    ru_file_unmap(&w.file);
    ru_arena_fini(&w.arena);
    return st;
}
