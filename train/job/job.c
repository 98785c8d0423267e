#include "train/job/job.h"

#include <string.h>

#include "plan/net/sums.h"
#include "train/job/batch.h"
#include "train/job/job_impl.h"
#include "train/job/metric.h"
#include "train/pipe/order.h"

/* -- model ------------------------------------------------------------------------------------- */

static const char model_names[] =
    "mlp|lenet|resnet18|resnet34|resnet50|vgg11|vgg16|mobilenet|lstm|gpt|vit";
static const char *const activations[] = {"relu", "gelu", "tanh"};

static const ru_conf_field weight_rule_fields[] = {
    RU_ROW(TEXT, ru_weight_rule, from, NULL, "name in the file; * stands for any characters"),
    RU_ROW(TEXT, ru_weight_rule, to, NULL,
           "name in the model; each * is what the same * of 'from' stood for; empty: leave "
           "the tensor out"),
};
static const ru_conf_table weight_rule_table =
    RU_TABLE("weight_rule", ru_weight_rule, weight_rule_fields, "names of tensors");

static const ru_conf_field model_fields[] = {
    RU_ROW(CHOICE, ru_job_model, zoo, "mlp",
           "name of a model of the zoo; its options are keys beside this one",
           .choices = model_names),
    RU_ROW(TEXT, ru_job_model, onnx, "", "ONNX file to train"),
    RU_ROW(CHOICE, ru_job_model, head, "keep",
           "onnx: the last linear layer; new: it starts anew, with as many outputs as the "
           "data have classes (or model.classes); train.groups can freeze the others",
           .choices = "keep|new"),
    RU_ROW(TEXT, ru_job_model, weights, "",
           "safetensors file with the values to start from, by name: parameters and running "
           "statistics"),
    RU_ROW(SECTIONS, ru_job_model, weights_map, "[]",
           "how tensors of the file are called in the model, where names differ; of several "
           "that match the first one counts",
           .table = &weight_rule_table),
    RU_ROW(BOOL, ru_job_model, weights_partial, "false",
           "true: tensors of the file that do not fit are left out, and what the file lacks "
           "starts as without it, such as a new last layer; false: both are errors"),
    RU_ROW(I64_LIST, ru_job_model, hidden, "[]",
           "mlp: width of each hidden layer; empty: [512, 512]", RU_IN(1, 1 << 24)),
    RU_ROW(CHOICE, ru_job_model, activation, "relu",
           "mlp: activation function after each hidden layer", .choices = "relu|gelu|tanh"),
    RU_ROW(I64, ru_job_model, layers, "0",
           "lstm, gpt, vit: number of layers; 0: the model's default", RU_IN(0, 1024)),
    RU_ROW(I64, ru_job_model, heads, "0",
           "gpt, vit: attention heads; 0: one for each 64 of the width", RU_IN(0, 1024)),
    RU_ROW(I64, ru_job_model, width, "0",
           "lstm, gpt, vit: width; resnet, lenet: channels of the first stage; vgg: width of "
           "the hidden linear layers; 0: the model's default",
           RU_IN(0, 1 << 20)),
    RU_ROW(I64, ru_job_model, context, "0",
           "gpt, lstm: tokens of a sample; 0: the context of the data", RU_IN(0, 1 << 20)),
    RU_ROW(I64, ru_job_model, vocab, "0", "gpt, lstm: size of the vocabulary; 0: that of the data",
           RU_IN(0, 1 << 24)),
    RU_ROW(I64, ru_job_model, patch, "0",
           "vit: side of a patch in pixels; 0: 4 for images up to 64x64, else 16", RU_IN(0, 4096)),
    RU_ROW(I64, ru_job_model, channels, "0",
           "vgg: channels of the first stage, the others in proportion; 0: 64", RU_IN(0, 4096)),
    RU_ROW(I64, ru_job_model, classes, "0",
           "number of outputs of the model; 0: the number of classes of the data (zoo), or "
           "that of the file (onnx); a file with another number gets a new last layer",
           RU_IN(0, 1 << 24)),
    RU_ROW(F64, ru_job_model, dropout, "0", "fraction of activations set to zero", RU_IN(0, 0.999)),
    RU_ROW(BOOL, ru_job_model, bias, "true", "gpt: use biases in linear and normalisation layers"),
    RU_ROW(BOOL, ru_job_model, tie, "true",
           "gpt: share one table between the token embedding and the output layer"),
    RU_ROW(BOOL, ru_job_model, batch_norm, "false",
           "vgg: use batch normalisation after each convolution"),
};

static bool reads(const char *options, const char *key)
{
    ru_str rest = ru_str_c(options), word;
    while (ru_str_next(&rest, ' ', &word)) {
        if (ru_str_eq_c(word, key)) {
            return true;
        }
    }
    return false;
}

/* An option the chosen model does not read is an error, not a surprise. */
static ru_status model_check(const void *section, ru_err *err)
{
    const ru_job_model *m = section;
    const struct {
        const char *key;
        bool set;
    } options[] = {
        {"hidden", m->hidden.n > 0},    {"activation", m->activation != 0},
        {"layers", m->layers != 0},     {"heads", m->heads != 0},
        {"width", m->width != 0},       {"context", m->context != 0},
        {"vocab", m->vocab != 0},       {"patch", m->patch != 0},
        {"channels", m->channels != 0}, {"classes", m->classes != 0},
        {"dropout", m->dropout > 0},    {"batch_norm", m->batch_norm},
        {"head", m->head != 0},
    };
    uint32_t n;
    const ru_zoo_row *rows = ru_zoo_list(&n);
    bool zoo = m->source == RU_MODEL_ZOO;
    static const char onnx[] = "classes head"; /* the graph defines the rest */
    for (uint32_t k = 0; k < RU_ARRAY_LEN(options); k++) {
        if (options[k].set && !reads(zoo ? rows[m->zoo].options : onnx, options[k].key)) {
            return RU_FAIL(err, RU_E_CONFIG, "model %s has no option '%s'; its options are: %s",
                           zoo ? rows[m->zoo].name : m->onnx, options[k].key,
                           zoo ? rows[m->zoo].options : onnx);
        }
    }
    const ru_weight_rule *rules = m->weights_map.at;
    for (uint32_t k = 0; k < m->weights_map.n; k++) {
        RU_TRY(ru_weight_rule_check(&rules[k], err));
    }
    if (m->weights[0] == 0 && (m->weights_map.n > 0 || m->weights_partial)) {
        return RU_FAIL(err, RU_E_CONFIG, "%s needs model.weights, the file to start from",
                       m->weights_partial ? "weights_partial" : "weights_map");
    }
    return RU_OK;
}

static const ru_conf_table model_table = RU_TABLE(
    "model", ru_job_model, model_fields, "model to train", .one_of = "zoo|onnx",
    .which_offset = offsetof(ru_job_model, source),
    .called = "name=zoo|type=zoo|architecture=zoo|arch=zoo|num_classes=classes|num_layers=layers|n_"
              "layer=layers|"
              "n_head=heads|num_heads=heads|n_embd=width|hidden_size=width|block_size=context|"
              "vocab_size=vocab|"
              "pretrained=weights|checkpoint=weights|init_from=weights|path=onnx|file=onnx|patch_"
              "size=patch|dropout_rate=dropout",
    .check = model_check);

/* -- train ------------------------------------------------------------------------------------- */

static const ru_conf_field pipeline_fields[] = {
    RU_ROW(TEXT_LIST, ru_job_pipeline, cut, "[]",
           "layers, or modules, each of which begins another stage; a name is the beginning of "
           "the names of its parameters (layer3 of layer3.0.conv1.weight); none: the best cut for "
           "the workers, from measured layers"),
    RU_ROW(
        I64_LIST, ru_job_pipeline, workers, "[]",
        "workers of each stage, as in [2, 1]: they have its micro-batches in turn, and add their "
        "gradients; none: one each",
        RU_IN(1, 64)),
    RU_ROW(CHOICE, ru_job_pipeline, schedule, "flush",
           "order of the micro-batches (train.accumulate) on each worker: flush goes back as soon "
           "as it can, so that few of them are kept; gpipe goes forward with all of them first; "
           "with train.stale stash, vertical and 2bw never drain, so that gradients are late: of "
           "stash by fewer updates the later the stage is, of vertical by as many in all stages, "
           "of 2bw by one",
           .choices = "flush|gpipe|stash|vertical|2bw"),
    RU_ROW(F64, ru_job_pipeline, bytes_per_s, "0",
           "where Rubato chooses: bytes that a worker can send in a second; 0: 2e9",
           RU_IN(0, 1e15)),
    RU_ROW(
        TEXT, ru_job_pipeline, facts, "",
        "where Rubato chooses: file of `rubato profile` from which times of layers are predicted; "
        "none: they are measured here"),
    RU_ROW(TEXT, ru_job_pipeline, type, "cpu", "type of device of the workers, in `facts`"),
};

static const ru_conf_table pipeline_table =
    RU_TABLE("pipeline", ru_job_pipeline, pipeline_fields, "how a pipeline is cut");

static const ru_conf_field placed_fields[] = {
    RU_ROW(
        F64_MAP, ru_job_placed, devices, "{}",
        "device, a worker from 1, of each layer or module, as in {branch1: 1, branch2: 2}; a name "
        "is the beginning of the names of its parameters, the longest one counts; layers without "
        "a name here are on device 1, and what only joins layers is where its first input is "
        "made; none: the best placement on the workers, from measured layers"),
    RU_ROW(TEXT_LIST, ru_job_placed, back, "[]",
           "layers or modules in the order in which they go backward, where the model leaves it "
           "open; none: the reverse of their order forward, which is that of `devices`"),
    RU_ROW(F64, ru_job_placed, bytes_per_s, "2e9",
           "where Rubato chooses: bytes that a worker can send to another one in a second",
           RU_IN(1, 1e15)),
    RU_ROW_AS("memory", SIZE, ru_job_placed, memory_bytes, "0", "the older name of train.memory",
              RU_IN(0, 1e15)),
    RU_ROW_AS("latency", TIME, ru_job_placed, latency_ns, "100us",
              "where Rubato chooses: duration of a transfer without that of its bytes",
              RU_IN(0, 1e12)),
    RU_ROW(F64, ru_job_placed, byte_ns, "0.8",
           "where Rubato chooses: processor time in ns that a byte costs at each end of a link; "
           "where workers have few cores, it is missing for layers",
           RU_IN(0, 1e6)),
};

static const ru_conf_table placed_table =
    RU_TABLE("placed", ru_job_placed, placed_fields, "which worker has which layers");

static const ru_conf_field adapt_fields[] = {
    RU_ROW(I64, ru_job_adapt, batch_max, "0",
           "largest batch; the least is train.batch. 0: the batch stays", RU_IN(0, 1e9)),
    RU_ROW(I64, ru_job_adapt, local_max, "0",
           "most samples that a worker computes at once; 0: what its free memory allows",
           RU_IN(0, 1e9)),
    RU_ROW(
        CHOICE, ru_job_adapt, rule, "adascale",
        "learning rate of a batch that is S times as large: adascale: by what its step is worth, "
        "sqrt: the root of S, linear: S",
        .choices = "adascale|sqrt|linear"),
};
static const ru_conf_table adapt_table =
    RU_TABLE("adapt", ru_job_adapt, adapt_fields, "a batch that adapts");

static const ru_conf_field train_fields[] = {
    RU_ROW(CHOICE, ru_job_train, loss, "auto",
           "loss function to minimise; auto: next_token for models over tokens, else "
           "cross_entropy",
           .choices = "auto|cross_entropy|mse|binary_cross_entropy|next_token"),
    RU_ROW(SECTION, ru_job_train, optimizer, "{sgd: {}}", "algorithm that updates the parameters",
           .table = &rui_job_optimizer_table),
    RU_ROW(SECTION, ru_job_train, schedule, "{constant: {}}", "learning rate schedule",
           .table = &rui_job_schedule_table),
    RU_ROW(CHOICE, ru_job_train, decay, "all",
           "parameters with weight decay: all, or only matrices (no biases, no normalisation "
           "parameters)",
           .choices = "all|matrices"),
    RU_ROW(SECTIONS, ru_job_train, groups, "[]",
           "parameters with settings of their own; of a parameter that several groups match "
           "the first one counts",
           .table = &rui_job_group_table),
    RU_ROW(I64, ru_job_train, batch, "32", "samples of one step over all workers", RU_IN(1, 1e9)),
    RU_ROW(TEXT_LIST, ru_job_train, transient, "[]",
           "hosts that the provider may reclaim at any time: their workers have no vote, so "
           "the others continue even if all of them fail at once"),
    RU_ROW(SECTION, ru_job_train, adapt, "{}",
           "with workers: choose the batch that trains fastest, by the measured gradient noise",
           .table = &adapt_table),
    RU_ROW(F64_MAP, ru_job_train, batch_schedule, "{}",
           "later sizes of the batch: with {3: 256, 6: 512} a step has 256 samples from epoch "
           "3 on and 512 from epoch 6 on"),
    RU_ROW(I64, ru_job_train, accumulate, "1",
           "number of parts in which each batch is computed (gradient accumulation); more "
           "parts need less memory and give the same result",
           RU_IN(1, RU_ACCUMULATE_MAX)),
    RU_ROW(BOOL, ru_job_train, early_update, "true",
           "with workers on a network: update each parameter as soon as its gradient sum "
           "arrives; needs a second copy of parameters and optimizer state"),
    RU_ROW(CHOICE, ru_job_train, barrier, "auto",
           "with workers on a network: always: a step begins when all sums of the one before have "
           "arrived; auto: each operator waits only for the parameters that it reads",
           .choices = "auto|always"),
    RU_ROW(I64, ru_job_train, epochs, "0",
           "number of passes over the training data; 0: no limit, or 1 if steps and until are "
           "not given either",
           RU_IN(0, 1e9)),
    RU_ROW(I64, ru_job_train, steps, "0", "number of steps to train; 0: no limit", RU_IN(0, 1e15)),
    RU_ROW(F64_MAP, ru_job_train, until, "{}",
           "stop when an evaluation reaches all of these targets: accuracy, top5, precision, "
           "recall, f1, auc, r2 (at least), loss, mse, perplexity, mae, rmse (at most)"),
    RU_ROW(TEXT_LIST, ru_job_train, metrics, "[]",
           "further figures of each evaluation: top5, precision, recall, f1, auc (means over "
           "the classes); mae, rmse, r2 (numbers)"),
    RU_ROW(CHOICE, ru_job_train, metric, "auto",
           "metric that says which evaluation is the best, for train.patience and "
           "checkpoint.keep_best; auto takes accuracy for classes, else loss",
           .choices = "auto|" RU_METRIC_ALL),
    RU_ROW(I64, ru_job_train, patience, "0",
           "stop early after this many evaluations in a row without a better one; 0: never",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_job_train, min_delta, "0",
           "an evaluation is better when train.metric improves by more than this", RU_IN(0, 1e9)),
    RU_ROW(I64, ru_job_train, eval_every, "0",
           "number of steps between evaluations; 0: evaluate after each epoch", RU_IN(0, 1e12)),
    RU_ROW(I64, ru_job_train, eval_batch, "0",
           "samples of one evaluation step; 0: the batch, at most 256", RU_IN(0, 1e9)),
    RU_ROW(I64, ru_job_train, seed, "1", "seed of initial parameters, sample order and dropout",
           RU_IN(0, 9e15)),
    RU_ROW(CHOICE, ru_job_train, precision, "f32",
           "number format of activations and matrix operands; parameters stay f32",
           .choices = "f32|bf16"),
    RU_ROW(F64, ru_job_train, clip_norm, "0",
           "largest norm of the gradient; a larger gradient is scaled down to it; 0: no limit",
           RU_IN(0, 1e9)),
    RU_ROW(F64, ru_job_train, label_smoothing, "0",
           "fraction of the target probability spread over all classes", RU_IN(0, 0.999)),
    RU_ROW(TEXT_LIST, ru_job_train, class_weights, "[]",
           "cross_entropy: weight of each class in the loss of the training, in the order of "
           "the classes; balanced: in inverse proportion to how often it occurs (reads all "
           "labels once)"),
    RU_ROW(I64, ru_job_train, histograms, "0",
           "number of steps between two histograms of all gradients and parameters in the "
           "run's folder histograms, which `rubato trace --tensorboard` exports; 0: none",
           RU_IN(0, 1e12)),
    RU_ROW(F64, ru_job_train, ema, "0",
           "decay rate of a moving mean of the parameters, such as 0.999, which is then what "
           "is evaluated, exported and kept as the best; 0: none",
           RU_IN(0, 0.9999999)),
    RU_ROW(BOOL, ru_job_train, shuffle, "true", "false has the same effect as data.shuffle: none"),
    RU_ROW(CHOICE, ru_job_train, device, "cpu", "cpu, or ref: the slow reference in plain C",
           .choices = "cpu|ref"),
    RU_ROW(U32, ru_job_train, threads, "0",
           "number of compute threads; 0: all cores that this process may use", RU_IN(0, 1024)),
    RU_ROW(BOOL, ru_job_train, autotune, "true",
           "measure kernels at the start and use the fastest"),
    RU_ROW(
        CHOICE, ru_job_train, sums, "caramel",
        "several workers on several hosts: how gradients are grouped for their sums; caramel: by "
        "a plan from measured steps, as soon as it gains; rule: by size alone; or a published "
        "method (docs/policies/sums.md)",
        .choices = "caramel|rule|none|serial|fifo|ddp|horovod|mgwfbp|p3|bytescheduler"),
    RU_ROW(U32, ru_job_train, servers, "0",
           "several workers: so many of them compute nothing and add the gradients of the others, "
           "which get the sums from them; 0: the workers add among each other",
           RU_IN(0, 63)),
    RU_ROW(CHOICE, ru_job_train, order, "auto",
           "with servers: the order in which they send sums; auto, best: the one whose step is "
           "predicted to be the shortest; tac: by times of operators and transfers; tic: by the "
           "graph alone; others: baselines, random one for all workers (docs/policies/order.md)",
           .choices = "auto|best|tac|tic|random|fifo|layer|reverse|smallest"),
    RU_ROW(
        CHOICE, ru_job_train, parallel, "data",
        "what several workers divide: data: the samples of a batch, each has the whole model; "
        "pipeline: the layers of the model (docs/pipeline.md); placed: the layers, also branches "
        "of it side by side (docs/placed.md); auto: the one of these that is predicted to be "
        "fastest, from measured layers, of those that fit into memory",
        .choices = "data|pipeline|auto|placed"),
    RU_ROW(SECTION, ru_job_train, pipeline, NULL, "with parallel: pipeline",
           .table = &pipeline_table),
    RU_ROW(SECTION, ru_job_train, placed, NULL, "with parallel: placed", .table = &placed_table),
    RU_ROW_AS(
        "memory", SIZE, ru_job_train, memory_bytes, "0",
        "with parallel: pipeline, placed or auto: most memory of a worker for parameters, "
        "optimizer, gradients, activations and what crosses; a choice keeps it, and what needs "
        "more is refused; 0: what control groups and the machine allow",
        RU_IN(0, 1e15)),
    RU_ROW_AS("stale", BOOL, ru_job_train, pipeline.stale, "false",
              "with parallel: pipeline: allow schedules that never drain, whose gradients are of "
              "weights some steps old (train.pipeline.schedule stash, vertical, 2bw)"),
    RU_ROW_AS("recompute", BOOL, ru_job_train, pipeline.recompute, "false",
              "with parallel: pipeline: a stage keeps only the inputs of its micro-batches on "
              "their way, and computes each forward part again before its backward part"),
    RU_ROW_AS("spare", BOOL, ru_job_train, pipeline.spare, "true",
              "with parallel: pipeline or placed: a new process takes the place of a worker that "
              "was lost; false: the others divide the model anew, and go on without it"),
    RU_ROW_AS("poll", TIME, ru_job_train, poll_ns, "0s",
              "longest time for which a worker polls for messages before it sleeps; helps small "
              "models, keeps up to one core busy; 0s: do not poll",
              RU_IN(0, 1e7)),
};

static const char train_called[] =
    "batch_size=batch|batchsize=batch|global_batch_size=batch|mini_batch=batch|num_epochs=epochs|"
    "max_epochs=epochs|n_epochs=epochs|max_steps=steps|num_steps=steps|iterations=steps|"
    "optimiser=optimizer|solver=optimizer|criterion=loss|loss_function=loss|scheduler=schedule|"
    "lr_scheduler=schedule|lr=optimizer: {sgd: {lr: 0.1}}|"
    "learning_rate=optimizer: {sgd: {lr: 0.1}}|momentum=optimizer: {sgd: {momentum: 0.9}}|"
    "weight_decay=optimizer: {sgd: {weight_decay: 0.0001}}|wd=optimizer: {sgd: {weight_decay: "
    "0.0001}}|grad_clip=clip_norm|gradient_clip_val=clip_norm|max_grad_norm=clip_norm|"
    "accumulate_grad_batches=accumulate|gradient_accumulation_steps=accumulate|grad_accum="
    "accumulate|"
    "class_weight=class_weights|ema_decay=ema|"
    "early_stopping=patience|param_groups=groups|parameter_groups=groups|freeze="
    "groups: [{match: "
    "..., freeze: true}]|random_seed=seed|dtype=precision|amp=precision|monitor=metric|"
    "eval_steps=eval_every|val_check_interval=eval_every|num_threads=threads";

/* Schedules of pipelines whose gradients are late. */
static ru_status stale_check(const ru_job_train *t, ru_err *err)
{
    const ru_job_pipeline *p = &t->pipeline;
    const char *name = ru_pipe_schedule_names[p->schedule];
    return t->pipeline.stale || !ru_pipe_flows_on((ru_pipe_schedule)p->schedule)
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "'pipeline.schedule' is %s, whose gradients are late by some steps, so "
                         "the job would learn something else; allow it with 'stale: true', or set "
                         "flush",
                         name);
}

static ru_status train_check(const void *section, ru_err *err)
{
    const ru_job_train *t = section;
    if (t->servers == 0 && t->order != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'order' is that of sums from servers, but there are none; set 'servers' or "
                       "leave 'order' out");
    }
    if (t->adapt.batch_max > 0 && t->adapt.batch_max < t->batch) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'adapt.batch_max' is %lld, less than 'batch' (%lld), the least batch",
                       (long long)t->adapt.batch_max, (long long)t->batch);
    }
    if (t->adapt.batch_max > 0 && (t->batch_schedule.n > 0 || t->servers > 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "with 'adapt' there can be no '%s'; leave one of them out",
                       t->servers > 0 ? "servers" : "batch_schedule");
    }
    RU_TRY(stale_check(t, err));
    if (t->servers > 0 && t->sums > RU_SUMS_RULE) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "with 'servers' gradients are grouped by rule; leave 'sums' out");
    }
    return RU_OK;
}

static const ru_conf_table train_table =
    RU_TABLE("train", ru_job_train, train_fields, "training settings", .check = train_check,
             .called = train_called);

ru_status rui_job_name_check(const char *name, ru_err *err)
{
    const size_t max = 200; /* bytes; a folder's name has at most 255 */
    size_t n = strlen(name);
    return n <= max
               ? RU_OK
               : RU_FAIL(err, RU_E_CONFIG,
                         "the job's name has %zu bytes, expected at most %zu; choose a shorter "
                         "one",
                         n, max);
}

static ru_status check_class_weights(const ru_conf_texts *w, ru_err *err)
{
    for (uint32_t k = 0; k < w->n; k++) {
        double x;
        bool number = ru_str_f64(ru_str_c(w->at[k]), &x) && x >= 0 && x <= 1e9;
        if (!number && !(w->n == 1 && strcmp(w->at[0], "balanced") == 0)) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "train.class_weights: '%.40s' is no number from 0 to 1e9; expected one "
                           "for each class, or balanced",
                           w->at[k]);
        }
    }
    return RU_OK;
}

/* Twice the same folder would count its room twice. */
static ru_status check_folders(const ru_disk_tier *at, uint32_t n, ru_err *err)
{
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < k; i++) {
            if (strcmp(at[i].path, at[k].path) == 0) {
                return RU_FAIL(err, RU_E_CONFIG,
                               "storage[%u] and storage[%u] are the same folder, %s; name it once, "
                               "with all of its room as its quota",
                               i, k, at[k].path);
            }
        }
    }
    return RU_OK;
}

static ru_status job_check(const void *section, ru_err *err)
{
    static const char *const cache_words[] = {"none", "bytes", "decoded", "auto"};
    const ru_job *job = section;
    RU_TRY(rui_job_name_check(job->name, err));
    RU_TRY(ru_job_metrics_check(&job->train, err));
    RU_TRY(check_class_weights(&job->train.class_weights, err));
    RU_TRY(rui_job_follow_check(job, err));
    RU_TRY(check_folders(job->storage.at, job->storage.n, err));
    if (job->data.cache != RU_CACHE_NONE && job->storage.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "data.cache is %s, but there is no place to keep samples; name a folder: "
                       "storage: [{path: /data/rubato, quota: 100GB}], in the job or in a file "
                       "that RUBATO_STORAGE names",
                       cache_words[job->data.cache & 3]);
    }
    if (job->checkpoint.in_storage && (job->storage.n == 0 || job->storage.n > RU_TIERS_MAX)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "checkpoint.in_storage is true, but `storage` names %u folders; expected 1 "
                       "to %d: storage: [{path: /nvme/rubato, quota: 100GB}, {path: /data/rubato, "
                       "quota: 2TB}], in the job or in a file that RUBATO_STORAGE names",
                       job->storage.n, RU_TIERS_MAX);
    }
    if (job->checkpoint.copy_to[0] != '\0' && strncmp(job->checkpoint.copy_to, "s3://", 5) != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "checkpoint.copy_to is '%s'; expected an address of a store: "
                       "s3://BUCKET/FOLDER",
                       job->checkpoint.copy_to);
    }
    if (job->train.until.n > 0 && !ru_job_has_test(job)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.until needs test data; set data.test or data.validation");
    }
    if (!ru_job_has_test(job) &&
        (job->train.patience > 0 || job->checkpoint.keep_best || job->train.metrics.n > 0)) {
        return RU_FAIL(err, RU_E_CONFIG, "%s needs test data (data.test or data.validation)",
                       job->train.patience > 0     ? "train.patience"
                       : job->checkpoint.keep_best ? "checkpoint.keep_best"
                                                   : "train.metrics");
    }
    if (job->train.batch % job->train.accumulate != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "train.batch is %lld, which is not a multiple of train.accumulate %lld; "
                       "change one of them",
                       (long long)job->train.batch, (long long)job->train.accumulate);
    }
    return ru_job_batches_check(&job->train, err);
}

static const ru_conf_field checkpoint_fields[] = {
    RU_ROW_AS("every", TIME, ru_job_checkpoint, every_ns, "60s",
              "time between two checkpoints; 0s: save only at the end", RU_IN(0, 1e18)),
    RU_ROW(U32, ru_job_checkpoint, keep, "3", "number of newest checkpoints to keep",
           RU_IN(1, 1e6)),
    RU_ROW(BOOL, ru_job_checkpoint, keep_best, "false",
           "save after each evaluation that is the best so far by train.metric, and keep it: "
           "checkpoints/best is a symbolic link to it"),
    RU_ROW(
        BOOL, ru_job_checkpoint, in_storage, "false",
        "the tensors of checkpoints lie in the folders of `storage`: they begin in the first one "
        "that has room and go on in the next one"),
    RU_ROW(TEXT, ru_job_checkpoint, copy_to, "",
           "s3://BUCKET/FOLDER: each checkpoint is copied there after it is written, and `rubato "
           "train --resume-from` goes on from it on any machine"),
};
static const ru_conf_table checkpoint_table = RU_TABLE(
    "checkpoint", ru_job_checkpoint, checkpoint_fields, "checkpoints during training",
    .called = "interval=every|save_top_k=keep|max_to_keep=keep|save_best_only=keep_best|save_"
              "best=keep_best");

static const ru_conf_field tier_fields[] = {
    RU_ROW(TEXT, ru_disk_tier, path, NULL,
           "folder on a disk of this machine, made if it is missing, relative to the job file's "
           "folder"),
    RU_ROW_AS("quota", SIZE, ru_disk_tier, quota_bytes, NULL,
              "what Rubato may keep there at most, for all jobs together",
              RU_IN(1 << 20, INT64_C(1) << 50)),
};
static const ru_conf_table tier_table =
    RU_TABLE("storage", ru_disk_tier, tier_fields, "a folder for what is kept",
             .called = "dir=path|folder=path|size=quota|limit=quota|max_size=quota");
static const ru_conf_field storage_fields[] = {
    RU_ROW_AS("storage", SECTIONS, rui_job_storage, at, NULL,
              "folders for what is kept, the fastest first", .table = &tier_table),
};
static ru_status storage_check(const void *section, ru_err *err)
{
    const rui_job_storage *s = section;
    return check_folders(s->at.at, s->at.n, err);
}
const ru_conf_table rui_job_storage_table =
    RU_TABLE("storage", rui_job_storage, storage_fields, "a file that RUBATO_STORAGE names",
             .check = storage_check);

static const ru_conf_field job_fields[] = {
    RU_ROW(TEXT, ru_job, name, "job", "name of the job, used in the names of runs and in reports"),
    RU_ROW(SECTION, ru_job, model, NULL, "model to train", .table = &model_table),
    RU_ROW(SECTION, ru_job, data, NULL, "training and test data", .table = &rui_job_data_table),
    RU_ROW(SECTION, ru_job, train, NULL, "training settings", .table = &train_table),
    RU_ROW(SECTION, ru_job, checkpoint, NULL, "checkpoints during training",
           .table = &checkpoint_table),
    RU_ROW(SECTION, ru_job, federated, "{}",
           "rounds of clients that keep their data (`rubato fed`)",
           .table = &rui_job_federated_table),
    RU_ROW(SECTIONS, ru_job, storage, "[]",
           "folders for samples that are kept (data.cache) and for tensors of checkpoints "
           "(checkpoint.in_storage), the fastest first: when one is full, the next is used",
           .table = &tier_table),
};

const ru_conf_table ru_job_table = RU_TABLE(
    "job", ru_job, job_fields, "a training job", .check = job_check,
    .called = "training=train|dataset=data|datasets=data|network=model|net=model|checkpoints="
              "checkpoint|trainer=train|optimizer=train: {optimizer: ...}|epochs=train: "
              "{epochs: ...}|batch=train: {batch: ...}|batch_size=train: {batch: "
              "...}|lr=train: {optimizer: {sgd: {lr: 0.1}}}|seed=train: {seed: ...}");

/* -- from the job to the options of the parts -------------------------------------------------- */

const char *ru_job_zoo_name(const ru_job *job)
{
    uint32_t n;
    const ru_zoo_row *rows = ru_zoo_list(&n);
    return job->model.source == RU_MODEL_ZOO ? rows[job->model.zoo].name : NULL;
}

ru_zoo_options ru_job_zoo_options(const ru_job *job)
{
    const ru_job_model *m = &job->model;
    return (ru_zoo_options){
        .classes = m->classes,
        .layers = m->layers,
        .heads = m->heads,
        .width = m->width,
        .context = m->context,
        .vocab = m->vocab,
        .patch = m->patch,
        .channels = m->channels,
        .hidden = m->hidden.at,
        .hidden_n = m->hidden.n,
        .dropout = m->dropout,
        .activation = activations[m->activation],
        .bias = m->bias,
        .tie = m->tie,
        .batch_norm = m->batch_norm,
    };
}

ru_loss_kind ru_job_loss(const ru_job *job, bool tokens)
{
    if (job->train.loss == 0) {
        return tokens ? RU_LOSS_NEXT_TOKEN : RU_LOSS_CROSS_ENTROPY;
    }
    return (ru_loss_kind)(job->train.loss - 1);
}
