#include "train/job/job.h"

#include <string.h>

#include "train/job/batch.h"
#include "train/job/job_impl.h"
#include "train/job/metric.h"

#define ROW   RUI_ROW
#define TABLE RUI_TABLE

/* -- model ------------------------------------------------------------------------------------- */

static const char model_names[] =
    "mlp|lenet|resnet18|resnet34|resnet50|vgg11|vgg16|mobilenet|lstm|gpt|vit";
static const char *const activations[] = {"relu", "gelu", "tanh"};

static const ru_conf_field weight_rule_fields[] = {
    ROW(TEXT, ru_weight_rule, from, .help = "name in the file; * stands for any characters"),
    ROW(TEXT, ru_weight_rule, to,
        .help = "name in the model; each * is what the same * of 'from' stood for; empty: leave "
                "the tensor out"),
};
static const ru_conf_table weight_rule_table =
    TABLE(weight_rule, ru_weight_rule, .help = "names of tensors");

static const ru_conf_field model_fields[] = {
    ROW(CHOICE, ru_job_model, zoo, .def = "mlp", .choices = model_names,
        .help = "name of a model of the zoo; its options are keys beside this one"),
    ROW(TEXT, ru_job_model, onnx, .def = "", .help = "ONNX file to train"),
    ROW(CHOICE, ru_job_model, head, .def = "keep", .choices = "keep|new",
        .help = "onnx: the last linear layer; new: it starts anew, with as many outputs as the "
                "data have classes (or model.classes); train.groups can freeze the others"),
    ROW(TEXT, ru_job_model, weights, .def = "",
        .help = "safetensors file with the values to start from, by name: parameters and running "
                "statistics"),
    ROW(SECTIONS, ru_job_model, weights_map, .def = "[]", .table = &weight_rule_table,
        .help = "how tensors of the file are called in the model, where names differ; of several "
                "that match the first one counts"),
    ROW(BOOL, ru_job_model, weights_partial, .def = "false",
        .help = "true: tensors of the file that do not fit are left out, and what the file lacks "
                "starts as without it, such as a new last layer; false: both are errors"),
    ROW(I64_LIST, ru_job_model, hidden, .def = "[]", .min = 1, .max = 1 << 24,
        .help = "mlp: width of each hidden layer; empty: [512, 512]"),
    ROW(CHOICE, ru_job_model, activation, .def = "relu", .choices = "relu|gelu|tanh",
        .help = "mlp: activation function after each hidden layer"),
    ROW(I64, ru_job_model, layers, .def = "0", .min = 0, .max = 1024,
        .help = "lstm, gpt, vit: number of layers; 0: the model's default"),
    ROW(I64, ru_job_model, heads, .def = "0", .min = 0, .max = 1024,
        .help = "gpt, vit: attention heads; 0: one for each 64 of the width"),
    ROW(I64, ru_job_model, width, .def = "0", .min = 0, .max = 1 << 20,
        .help = "lstm, gpt, vit: width; resnet, lenet: channels of the first stage; vgg: width of "
                "the hidden linear layers; 0: the model's default"),
    ROW(I64, ru_job_model, context, .def = "0", .min = 0, .max = 1 << 20,
        .help = "gpt, lstm: tokens of a sample; 0: the context of the data"),
    ROW(I64, ru_job_model, vocab, .def = "0", .min = 0, .max = 1 << 24,
        .help = "gpt, lstm: size of the vocabulary; 0: that of the data"),
    ROW(I64, ru_job_model, patch, .def = "0", .min = 0, .max = 4096,
        .help = "vit: side of a patch in pixels; 0: 4 for images up to 64x64, else 16"),
    ROW(I64, ru_job_model, channels, .def = "0", .min = 0, .max = 4096,
        .help = "vgg: channels of the first stage, the others in proportion; 0: 64"),
    ROW(I64, ru_job_model, classes, .def = "0", .min = 0, .max = 1 << 24,
        .help = "number of outputs of the model; 0: the number of classes of the data (zoo), or "
                "that of the file (onnx); a file with another number gets a new last layer"),
    ROW(F64, ru_job_model, dropout, .def = "0", .min = 0, .max = 0.999,
        .help = "fraction of activations set to zero"),
    ROW(BOOL, ru_job_model, bias, .def = "true",
        .help = "gpt: use biases in linear and normalisation layers"),
    ROW(BOOL, ru_job_model, tie, .def = "true",
        .help = "gpt: share one table between the token embedding and the output layer"),
    ROW(BOOL, ru_job_model, batch_norm, .def = "false",
        .help = "vgg: use batch normalisation after each convolution"),
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

static const ru_conf_table model_table = {
    .name = "model",
    .fields = model_fields,
    .n = RU_ARRAY_LEN(model_fields),
    .size_bytes = sizeof(ru_job_model),
    .one_of = "zoo|onnx",
    .which_offset = offsetof(ru_job_model, source),
    .called = "name=zoo|type=zoo|architecture=zoo|arch=zoo|num_classes=classes|num_layers=layers|n_"
              "layer=layers|"
              "n_head=heads|num_heads=heads|n_embd=width|hidden_size=width|block_size=context|"
              "vocab_size=vocab|"
              "pretrained=weights|checkpoint=weights|init_from=weights|path=onnx|file=onnx|patch_"
              "size=patch|dropout_rate=dropout",
    .check = model_check,
    .help = "model to train",
};

/* -- data -------------------------------------------------------------------------------------- */

static const char *const formats[] = {"csv",      "libsvm", "idx",      "cifar",
                                      "npy",      "tokens", "images",   "tar",
                                      "tfrecord", "packed", "synthetic"};

static const ru_conf_field data_fields[] = {
    ROW(CHOICE, ru_job_data, format, .def = NULL,
        .choices = "csv|libsvm|idx|cifar|npy|tokens|images|tar|tfrecord|packed|synthetic",
        .help = "format of the files"),
    ROW(TEXT_LIST, ru_job_data, train, .def = "[]",
        .help = "files or folders of the training data, relative to the job file's folder, or "
                "addresses (https://, s3://)"),
    ROW(TEXT_LIST, ru_job_data, test, .def = "[]", .help = "files or folders of the test data"),
    ROW(TEXT, ru_job_data, token_file, .def = "",
        .help = "file with the bearer token for https addresses; readable by its owner only"),
    ROW(F64, ru_job_data, validation, .def = "0", .min = 0, .max = 0.9,
        .help = "fraction of the training samples that is held out for the evaluations, when "
                "there is no test data; the same samples in every run"),
    ROW(F64_LIST, ru_job_data, mean, .def = "[]", .min = -1e30, .max = 1e30,
        .help = "subtracted from the inputs, after data.scale: one number, or one for each channel "
                "of images or each feature of vectors"),
    ROW(F64_LIST, ru_job_data, std, .def = "[]", .min = 0, .max = 1e30, .open = true,
        .help = "the inputs are divided by it, after data.mean is subtracted"),
    ROW(SECTION, ru_job_data, augment, .table = &rui_augment_table,
        .help = "random changes of the training samples, the same for every number of workers and "
                "after a resume"),
    ROW(SECTION, ru_job_data, columns, .table = &ru_job_columns_table,
        .help = "csv: how columns become inputs; the run keeps what it learns from the training "
                "samples (not from those of data.validation) and uses it wherever it reads data"),
    ROW(TEXT, ru_job_data, generator, .def = "",
        .help = "synthetic: name of the generator, as in `rubato data make`"),
    ROW(I64, ru_job_data, count, .def = "0", .min = 0, .max = 1e15,
        .help = "number of training samples to use; 0: all; synthetic: number to generate"),
    ROW(I64, ru_job_data, test_count, .def = "0", .min = 0, .max = 1e15,
        .help = "number of test samples to use or to generate; 0: all"),
    ROW(I64, ru_job_data, seed, .def = "1", .min = 0, .max = 9e15,
        .help = "synthetic: seed of the generator"),
    ROW(I64, ru_job_data, context, .def = "0", .min = 0, .max = 1 << 20,
        .help = "tokens: tokens of a sample; 0: the context of the model"),
    ROW(I64, ru_job_data, stride, .def = "0", .min = 0, .max = 1 << 30,
        .help = "tokens: distance between the starts of two samples; 0: the context"),
    ROW(I64, ru_job_data, token_bytes, .def = "0", .min = 0, .max = 4,
        .help = "tokens: bytes of a token: 1, 2 or 4; 0: by the file's name, else 1"),
    ROW(I64, ru_job_data, features, .def = "0", .min = 0, .max = 1 << 30,
        .help = "libsvm: number of features; 0: scan the files"),
    ROW(I64, ru_job_data, classes, .def = "0", .min = 0, .max = 1 << 24,
        .help = "number of classes; 0: scan the labels"),
    ROW(TEXT, ru_job_data, label, .def = "",
        .help = "csv: name or number of the label column; empty: the last column"),
    ROW(BOOL, ru_job_data, header, .def = "false",
        .help = "csv: the first line holds column names; needed only if all names are numbers"),
    ROW(I64, ru_job_data, image_size, .def = "0", .min = 0, .max = 8192,
        .help = "images, tar: resize and crop images to this side in pixels; 0: all images must "
                "have one size"),
    ROW(F64, ru_job_data, scale, .def = "0", .min = -1e9, .max = 1e9,
        .help = "pixels become value * scale + shift; if both are 0, pixels lie between 0 and 1"),
    ROW(F64, ru_job_data, shift, .def = "0", .min = -1e9, .max = 1e9, .help = "see scale"),
    ROW(BOOL, ru_job_data, one_hot, .def = "false",
        .help = "encode labels as one-hot vectors (for mse)"),
    ROW(CHOICE, ru_job_data, shuffle, .def = "full", .choices = "none|full|block",
        .help = "order of the training samples; block is for data larger than memory: it reads "
                "large blocks and shuffles within 64 blocks at a time"),
    ROW(BOOL, ru_job_data, strict, .def = "true",
        .help =
            "true: a damaged sample stops the run; false: Rubato skips damaged samples, warns and "
            "counts them in the summary"),
    ROW(U32, ru_job_data, threads, .def = "1", .min = 1, .max = 256,
        .help = "number of threads that read and decode samples"),
    ROW(SIZE, ru_job_data, memory, .def = "256MiB", .min = 1 << 20, .max = INT64_C(1) << 40,
        .help = "memory of one worker for training data that is read ahead: decoded batches (at "
                "least two) and bytes of files that are requested or wait to be decoded"),
    ROW(BOOL, ru_job_data, direct, .def = "false",
        .help = "true: read files that are not kept in memory past the system's cache (O_DIRECT); "
                "it is an error where the file system does not allow that"),
};

static bool prepares(const ru_job_data *d)
{
    const ru_columns_options *c = &d->columns;
    return c->ignore.n > 0 || c->categorical.n > 0 || c->missing != RU_MISSING_ERROR ||
           c->normalize != 0;
}

static ru_status columns_check(const ru_job_data *d, ru_err *err)
{
    if (!prepares(d)) {
        return RU_OK;
    }
    if (strcmp(formats[d->format], "csv") != 0) {
        return RU_FAIL(err, RU_E_CONFIG, "'columns' works with format csv only, not with %s",
                       formats[d->format]);
    }
    if (d->columns.normalize != 2 && (d->mean.n > 0 || d->std.n > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'columns' normalises the inputs, and so do 'mean' and 'std'; leave those "
                       "out, or set columns.normalize to false");
    }
    return RU_OK;
}

static ru_status data_check(const void *section, ru_err *err)
{
    const ru_job_data *d = section;
    bool synthetic = strcmp(formats[d->format], "synthetic") == 0;
    if (synthetic && (d->generator[0] == 0 || d->count == 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "format synthetic needs the keys 'generator' and 'count' (`rubato data "
                       "make` lists the generators)");
    }
    if (!synthetic && d->train.n == 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "format %s needs the key 'train' with at least one file or folder",
                       formats[d->format]);
    }
    if (!synthetic && d->generator[0] != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "the key 'generator' works with format synthetic only, not with %s",
                       formats[d->format]);
    }
    if (d->validation > 0 && (d->test.n > 0 || d->test_count > 0)) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "there are both test data and 'validation'; leave one of them out");
    }
    if (d->validation > 0 && d->shuffle == RU_SHUFFLE_BLOCK) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "'validation' draws single samples, which 'shuffle: block' cannot read in "
                       "large pieces; put the validation samples into a file of their own");
    }
    return columns_check(d, err);
}

static const ru_conf_table data_table = {
    .name = "data",
    .fields = data_fields,
    .n = RU_ARRAY_LEN(data_fields),
    .size_bytes = sizeof(ru_job_data),
    .called =
        "val_split=validation|validation_split=validation|split=validation|num_workers=threads|"
        "workers=threads|path=train|paths=train|files=train|root=train|dataset=format|type=format|"
        "normalize=columns: {normalize: "
        "true}|variance=std|stddev=std|resize=image_size|seq_len=context|"
        "sequence_length=context|num_classes=classes|validation_data=test|val=test|augmentation="
        "augment|transform=augment|transforms=augment|flip=augment: {flip: horizontal}|mixup="
        "augment: {mixup: 0.2}|cutout=augment: {cutout: 8}",
    .check = data_check,
    .help = "training and test data",
};

/* -- train ------------------------------------------------------------------------------------- */

static const ru_conf_field train_fields[] = {
    ROW(CHOICE, ru_job_train, loss, .def = "auto",
        .choices = "auto|cross_entropy|mse|binary_cross_entropy|next_token",
        .help = "loss function to minimise; auto: next_token for models over tokens, else "
                "cross_entropy"),
    ROW(SECTION, ru_job_train, optimizer, .def = "{sgd: {}}", .table = &rui_job_optimizer_table,
        .help = "algorithm that updates the parameters"),
    ROW(SECTION, ru_job_train, schedule, .def = "{constant: {}}", .table = &rui_job_schedule_table,
        .help = "learning rate schedule"),
    ROW(CHOICE, ru_job_train, decay, .def = "all", .choices = "all|matrices",
        .help = "parameters with weight decay: all, or only matrices (no biases, no normalisation "
                "parameters)"),
    ROW(SECTIONS, ru_job_train, groups, .def = "[]", .table = &rui_job_group_table,
        .help = "parameters with settings of their own; of a parameter that several groups match "
                "the first one counts"),
    ROW(I64, ru_job_train, batch, .def = "32", .min = 1, .max = 1e9,
        .help = "samples of one step over all workers"),
    ROW(TEXT_LIST, ru_job_train, transient, .def = "[]",
        .help = "hosts that the provider may reclaim at any time: their workers have no vote, so "
                "the others continue even if all of them fail at once"),
    ROW(F64_MAP, ru_job_train, batch_schedule, .def = "{}",
        .help = "later sizes of the batch: with {3: 256, 6: 512} a step has 256 samples from epoch "
                "3 on and 512 from epoch 6 on"),
    ROW(I64, ru_job_train, accumulate, .def = "1", .min = 1, .max = RU_ACCUMULATE_MAX,
        .help = "number of parts in which each batch is computed (gradient accumulation); more "
                "parts need less memory and give the same result"),
    ROW(BOOL, ru_job_train, early_update, .def = "true",
        .help = "with workers on a network: update each parameter as soon as its gradient sum "
                "arrives; needs a second copy of parameters and optimizer state"),
    ROW(I64, ru_job_train, epochs, .def = "0", .min = 0, .max = 1e9,
        .help = "number of passes over the training data; 0: no limit, or 1 if steps and until are "
                "not given either"),
    ROW(I64, ru_job_train, steps, .def = "0", .min = 0, .max = 1e15,
        .help = "number of steps to train; 0: no limit"),
    ROW(F64_MAP, ru_job_train, until, .def = "{}",
        .help = "stop when an evaluation reaches all of these targets: accuracy, top5, precision, "
                "recall, f1, auc, r2 (at least), loss, mse, perplexity, mae, rmse (at most)"),
    ROW(TEXT_LIST, ru_job_train, metrics, .def = "[]",
        .help = "further figures of each evaluation: top5, precision, recall, f1, auc (means over "
                "the classes); mae, rmse, r2 (numbers)"),
    ROW(CHOICE, ru_job_train, metric, .def = "auto",
        .choices = "auto|" RU_METRIC_BASIC "|" RU_METRIC_CLASSES "|" RU_METRIC_NUMBERS,
        .help = "metric that says which evaluation is the best, for train.patience and "
                "checkpoint.keep_best; auto takes accuracy for classes, else loss"),
    ROW(I64, ru_job_train, patience, .def = "0", .min = 0, .max = 1e9,
        .help = "stop early after this many evaluations in a row without a better one; 0: never"),
    ROW(F64, ru_job_train, min_delta, .def = "0", .min = 0, .max = 1e9,
        .help = "an evaluation is better when train.metric improves by more than this"),
    ROW(I64, ru_job_train, eval_every, .def = "0", .min = 0, .max = 1e12,
        .help = "number of steps between evaluations; 0: evaluate after each epoch"),
    ROW(I64, ru_job_train, eval_batch, .def = "0", .min = 0, .max = 1e9,
        .help = "samples of one evaluation step; 0: the batch, at most 256"),
    ROW(I64, ru_job_train, seed, .def = "1", .min = 0, .max = 9e15,
        .help = "seed of initial parameters, sample order and dropout"),
    ROW(CHOICE, ru_job_train, precision, .def = "f32", .choices = "f32|bf16",
        .help = "number format of activations and matrix operands; parameters stay f32"),
    ROW(F64, ru_job_train, clip_norm, .def = "0", .min = 0, .max = 1e9,
        .help =
            "largest norm of the gradient; a larger gradient is scaled down to it; 0: no limit"),
    ROW(F64, ru_job_train, label_smoothing, .def = "0", .min = 0, .max = 0.999,
        .help = "fraction of the target probability spread over all classes"),
    ROW(TEXT_LIST, ru_job_train, class_weights, .def = "[]",
        .help = "cross_entropy: weight of each class in the loss of the training, in the order of "
                "the classes; balanced: in inverse proportion to how often it occurs (reads all "
                "labels once)"),
    ROW(I64, ru_job_train, histograms, .def = "0", .min = 0, .max = 1e12,
        .help = "number of steps between two histograms of all gradients and parameters in the "
                "run's folder histograms, which `rubato trace --tensorboard` exports; 0: none"),
    ROW(F64, ru_job_train, ema, .def = "0", .min = 0, .max = 0.9999999,
        .help = "decay rate of a moving mean of the parameters, such as 0.999, which is then what "
                "is evaluated, exported and kept as the best; 0: none"),
    ROW(BOOL, ru_job_train, shuffle, .def = "true",
        .help = "false has the same effect as data.shuffle: none"),
    ROW(CHOICE, ru_job_train, device, .def = "cpu", .choices = "cpu|ref",
        .help = "cpu, or ref: the slow reference in plain C"),
    ROW(U32, ru_job_train, threads, .def = "0", .min = 0, .max = 1024,
        .help = "number of compute threads; 0: all cores that this process may use"),
    ROW(BOOL, ru_job_train, autotune, .def = "true",
        .help = "measure kernels at the start and use the fastest"),
    {.name = "poll",
     .type = RU_CONF_TIME,
     .offset = offsetof(ru_job_train, poll_ns),
     .def = "0s",
     .min = 0,
     .max = 1e7,
     .help = "longest time for which a worker polls for messages before it sleeps; helps small "
             "models, keeps up to one core busy; 0s: do not poll"},
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

static const ru_conf_table train_table =
    TABLE(train, ru_job_train, .called = train_called, .help = "training settings");

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

static ru_status job_check(const void *section, ru_err *err)
{
    const ru_job *job = section;
    RU_TRY(rui_job_name_check(job->name, err));
    RU_TRY(ru_job_metrics_check(&job->train, err));
    RU_TRY(check_class_weights(&job->train.class_weights, err));
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
    {.name = "every",
     .type = RU_CONF_TIME,
     .offset = offsetof(ru_job_checkpoint, every_ns),
     .def = "60s",
     .min = 0,
     .max = 1e18,
     .help = "time between two checkpoints; 0s: save only at the end"},
    ROW(U32, ru_job_checkpoint, keep, .def = "3", .min = 1, .max = 1e6,
        .help = "number of newest checkpoints to keep"),
    ROW(BOOL, ru_job_checkpoint, keep_best, .def = "false",
        .help = "save after each evaluation that is the best so far by train.metric, and keep it: "
                "checkpoints/best is a symbolic link to it"),
};
static const ru_conf_table checkpoint_table =
    TABLE(checkpoint, ru_job_checkpoint,
          .called = "interval=every|save_top_k=keep|max_to_keep=keep|save_best_only=keep_best|save_"
                    "best=keep_best",
          .help = "checkpoints during training");

static const ru_conf_field job_fields[] = {
    ROW(TEXT, ru_job, name, .def = "job",
        .help = "name of the job, used in the names of runs and in reports"),
    ROW(SECTION, ru_job, model, .table = &model_table, .help = "model to train"),
    ROW(SECTION, ru_job, data, .table = &data_table, .help = "training and test data"),
    ROW(SECTION, ru_job, train, .table = &train_table, .help = "training settings"),
    ROW(SECTION, ru_job, checkpoint, .table = &checkpoint_table,
        .help = "checkpoints during training"),
};

const ru_conf_table ru_job_table =
    TABLE(job, ru_job, .check = job_check,
          .called = "training=train|dataset=data|datasets=data|network=model|net=model|checkpoints="
                    "checkpoint|trainer=train|optimizer=train: {optimizer: ...}|epochs=train: "
                    "{epochs: ...}|batch=train: {batch: ...}|batch_size=train: {batch: "
                    "...}|lr=train: {optimizer: {sgd: {lr: 0.1}}}|seed=train: {seed: ...}",
          .help = "a training job");

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

bool ru_job_prepares(const ru_job *job)
{
    return prepares(&job->data);
}

bool ru_job_has_test(const ru_job *job)
{
    return job->data.validation > 0 || job->data.test.n > 0 ||
           (job->data.generator[0] != 0 && job->data.test_count > 0);
}

const char *ru_job_metric(const ru_job *job, ru_loss_kind loss)
{
    static const char *const names[] = {"accuracy", "loss",      "mse",    "perplexity",
                                        "top5",     "precision", "recall", "f1",
                                        "auc",      "mae",       "rmse",   "r2"};
    if (job->train.metric > 0) {
        return names[job->train.metric - 1];
    }
    return loss == RU_LOSS_CROSS_ENTROPY || loss == RU_LOSS_BINARY_CROSS_ENTROPY ? "accuracy"
                                                                                 : "loss";
}

ru_shuffle ru_job_shuffle(const ru_job *job)
{
    return job->train.shuffle ? (ru_shuffle)job->data.shuffle : RU_SHUFFLE_NONE;
}

ru_data_options ru_job_data_options(const ru_job *job, bool test)
{
    const ru_job_data *d = &job->data;
    bool own = test && !(d->validation > 0); /* the test data are files of their own */
    const ru_conf_texts *paths = own ? &d->test : &d->train;
    return (ru_data_options){
        .format = formats[d->format],
        .paths = paths->at,
        .n_paths = paths->n,
        .context = d->context != 0 ? d->context : job->model.context,
        .stride = d->stride,
        .features = d->features,
        .classes = d->classes,
        .label = d->label[0] != 0 ? d->label : NULL,
        .token_file = d->token_file[0] != 0 ? d->token_file : NULL,
        .header = d->header,
        .image_size = d->image_size,
        .scale = d->scale,
        .shift = d->shift,
        .generator = d->generator[0] != 0 ? d->generator : NULL,
        .seed = (uint64_t)d->seed,
        .first = own ? d->count : 0,
        .count = own ? d->test_count : d->count,
        .held = d->validation,
        .held_out = test,
        .mean = d->mean.at,
        .n_mean = d->mean.n,
        .std = d->std.at,
        .n_std = d->std.n,
        .one_hot = d->one_hot || d->augment.mixup > 0,
        .skip_damaged = !d->strict,
        .regression = job->train.loss == 1 + RU_LOSS_MSE,
        .whole_classes = job->train.loss == 0 || job->train.loss == 1 + RU_LOSS_CROSS_ENTROPY,
        .token_bytes = d->token_bytes,
        .direct = d->direct,
        .prepare = prepares(d) ? &d->columns : NULL,
    };
}

ru_loss_kind ru_job_loss(const ru_job *job, bool tokens)
{
    if (job->train.loss == 0) {
        return tokens ? RU_LOSS_NEXT_TOKEN : RU_LOSS_CROSS_ENTROPY;
    }
    return (ru_loss_kind)(job->train.loss - 1);
}
