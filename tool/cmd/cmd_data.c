/* rubato data: make data with known truth, look into data, bring it into another form, keep it. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "data/describe.h"
#include "data/detect.h"
#include "data/make/make.h"
#include "env/process/self.h"
#include "tool/cmd.h"
#include "train/job/job.h"

/* -- make -------------------------------------------------------------------------------------- */

static const ru_opt make_opts[] = {
    RU_OPT(TEXT, "out", "DIR", "folder for the files (default: the name)", .letter = 'o'),
    RU_OPT(I64, "count", "N", "training samples; for text and grammar: bytes", .letter = 'n',
           RU_IN(1, 1e12)),
    RU_OPT(I64, "test", "N", "test samples; -1: none", RU_IN(-1, 1e12)),
    RU_OPT(I64, "seed", "N", "the same seed gives the same bytes on every machine", .letter = 's',
           .def = "1", RU_IN(0, 9e15)),
    RU_OPT(I64, "features", "N",
           "features of a sample (gaussian, teacher, clicks) or side of the image (noise)",
           RU_IN(1, 1e9)),
    RU_OPT(I64, "classes", "N", "number of classes (gaussian, noise) or topics", RU_IN(1, 1e6)),
    RU_OPT(F64, "noise", "X", "standard deviation of the noise (gaussian, teacher, ratings)",
           RU_IN(0, 1e6)),
    RU_OPT(I64, "hidden", "N", "hidden units of the teacher network", RU_IN(1, 1e6)),
    RU_OPT(I64, "rank", "N", "rank of the rating matrix", RU_IN(1, 1e6)),
    RU_OPT(I64, "users", "N", "number of users", RU_IN(1, 1e9)),
    RU_OPT(I64, "items", "N", "number of items", RU_IN(1, 1e9)),
    RU_OPT(I64, "vocab", "N", "vocabulary of the topic model", RU_IN(2, 1e6)),
    RU_OPT(I64, "length", "N", "mean number of words in a document of the topic model",
           RU_IN(1, 1e6)),
    RU_OPT(
        TEXT, "tokenizer", "FILE",
        "text: write the tokens of this tokenizer.json (train.u16 or train.u32) instead of bytes"),
    RU_OPT(FLAG, "json", NULL, "print one JSON object instead of text"),
};

static void print_json(ru_cmd_in *in, const char *dir, const ru_make_report *r)
{
    ru_text t = ru_text_arena(in->arena);
    ru_text_put(&t, "{\"schema\":\"rubato.make/1\",\"name\":");
    ru_text_json(&t, ru_str_c(in->args[0]));
    ru_text_put(&t, ",\"out\":");
    ru_text_json(&t, ru_str_c(dir));
    ru_text_putf(&t, ",\"count\":%lld,\"test_count\":%lld}\n", (long long)r->count,
                 (long long)r->test_count);
    fputs(t.p, stdout);
}

/* Settings come from the command line alone here: a wrong one is wrong usage. */
static ru_status as_usage(ru_status st, ru_err *err)
{
    if (st != RU_E_CONFIG) {
        return st;
    }
    if (err != NULL) {
        err->status = RU_E_USAGE;
    }
    return RU_E_USAGE;
}

static ru_status run_make(ru_cmd_in *in, ru_err *err)
{
    if (in->n_args == 0) {
        for (uint32_t k = 0; ru_make_name(k) != NULL; k++) {
            printf("%-9s %s\n", ru_make_name(k), ru_make_help(k));
        }
        return RU_OK;
    }
    const char *dir = ru_cmd_text(in, "out") != NULL ? ru_cmd_text(in, "out") : in->args[0];
    ru_make_options opt = {.name = in->args[0],
                           .dir = dir,
                           .count = ru_cmd_i64(in, "count"),
                           .test_count = ru_cmd_i64(in, "test"),
                           .tokenizer = ru_cmd_text(in, "tokenizer"),
                           .seed = (uint64_t)ru_cmd_i64(in, "seed"),
                           .features = ru_cmd_i64(in, "features"),
                           .classes = ru_cmd_i64(in, "classes"),
                           .gen = {.hidden = ru_cmd_i64(in, "hidden"),
                                   .rank = ru_cmd_i64(in, "rank"),
                                   .users = ru_cmd_i64(in, "users"),
                                   .items = ru_cmd_i64(in, "items"),
                                   .vocab = ru_cmd_i64(in, "vocab"),
                                   .length = ru_cmd_i64(in, "length"),
                                   .noise = ru_cmd_f64(in, "noise"),
                                   .noise_given = ru_cmd_given(in, "noise")},
                           .files = in->args + 1,
                           .n_files = in->n_args - 1};
    if (opt.n_files > 0 && strcmp(opt.name, "text") != 0) {
        return RU_FAIL(err, RU_E_USAGE, "'%.60s' takes no files; only 'text' takes files",
                       opt.name);
    }
    if (ru_cmd_given(in, "test") && opt.test_count == 0) {
        opt.test_count = -1;
    }
    ru_make_report report;
    RU_TRY(as_usage(ru_data_make(&opt, &report, err), err));
    if (ru_cmd_flag(in, "json")) {
        print_json(in, dir, &report);
    } else {
        printf("# %lld for training, %lld for testing; the truth is in %s/truth.json\n%s",
               (long long)report.count, (long long)report.test_count, dir, report.hint);
    }
    return RU_OK;
}

/* -- options of reading, shared by info and import --------------------------------------------- */

#define READ_OPTS                                                                               \
    {.name = "format",                                                                          \
     .letter = 'f',                                                                             \
     .type = RU_OPT_TEXT,                                                                       \
     .word = "FORMAT",                                                                          \
     .help = "format of the files (default: detected): csv, libsvm, idx, cifar, npy, tokens, "  \
             "images, tar, tfrecord, packed"},                                                  \
        {.name = "part",                                                                        \
         .type = RU_OPT_TEXT,                                                                   \
         .word = "NAME",                                                                        \
         .def = "train",                                                                        \
         .help = "part of a folder that has both: train or test"},                              \
        {.name = "label",                                                                       \
         .type = RU_OPT_TEXT,                                                                   \
         .word = "COLUMN",                                                                      \
         .help = "csv: name or number of the label column; none: there is no label"},           \
        {.name = "context",                                                                     \
         .type = RU_OPT_I64,                                                                    \
         .word = "N",                                                                           \
         .def = "128",                                                                          \
         .min = 1,                                                                              \
         .max = 1e8,                                                                            \
         .help = "tokens: length of a sample"},                                                 \
        {.name = "image-size",                                                                  \
         .type = RU_OPT_I64,                                                                    \
         .word = "N",                                                                           \
         .min = 1,                                                                              \
         .max = 16384,                                                                          \
         .help =                                                                                \
             "images, tar, tfrecord: resize the shorter side to N pixels and crop the centre"}, \
        {.name = "count",                                                                       \
         .letter = 'n',                                                                         \
         .type = RU_OPT_I64,                                                                    \
         .word = "N",                                                                           \
         .min = 1,                                                                              \
         .max = 1e15,                                                                           \
         .help = "use only the first N samples"},                                               \
    {                                                                                           \
        .name = "skip-damaged", .type = RU_OPT_FLAG,                                            \
        .help = "replace a damaged sample by the next good one instead of stopping"             \
    }

static ru_status open_data(ru_cmd_in *in, bool raw, ru_dataset **out, ru_err *err)
{
    ru_data_options opt = {.label = ru_cmd_text(in, "label"),
                           .context = ru_cmd_i64(in, "context"),
                           .image_size = ru_cmd_i64(in, "image-size"),
                           .count = ru_cmd_i64(in, "count"),
                           .raw = raw,
                           .skip_damaged = ru_cmd_flag(in, "skip-damaged")};
    const char *format = ru_cmd_text(in, "format");
    if (format != NULL) {
        opt.format = format;
        opt.paths = in->args;
        opt.n_paths = in->n_args;
    } else {
        RU_TRY(ru_data_detect(in->args, in->n_args, ru_cmd_text(in, "part"), in->arena, &opt, err));
    }
    return as_usage(ru_dataset_open(&opt, out, err), err);
}

/* -- info -------------------------------------------------------------------------------------- */

static const ru_opt info_opts[] = {
    READ_OPTS,
    RU_OPT(I64, "samples", "N", "number of samples to show", .def = "3", RU_IN(0, 1e6)),
    RU_OPT(I64, "scan", "N", "number of samples to scan for ranges and classes", .def = "10000",
           RU_IN(1, 1e12)),
    RU_OPT(FLAG, "json", NULL, "print one JSON object instead of text"),
};

static ru_status run_info(ru_cmd_in *in, ru_err *err)
{
    ru_dataset *d = NULL;
    RU_TRY(open_data(in, false, &d, err));
    ru_text t = ru_text_arena(in->arena);
    int64_t samples = ru_cmd_i64(in, "samples");
    ru_describe_options opt = {.samples = samples == 0 ? -1 : samples,
                               .scan = ru_cmd_i64(in, "scan"),
                               .json = ru_cmd_flag(in, "json")};
    ru_status st = ru_data_describe(d, &opt, &t, err);
    ru_dataset_close(d);
    if (st == RU_OK) {
        fputs(t.p, stdout);
        st = t.cut ? RU_FAIL(err, RU_E_MEM, "not enough memory for the output text") : RU_OK;
    }
    return st;
}

/* -- import ------------------------------------------------------------------------------------ */

static const ru_opt import_opts[] = {
    READ_OPTS,
    RU_OPT(TEXT, "to", "FORM",
           "format to write: packed (fastest to read, with checksums), npy, idx, csv, libsvm, "
           "images (PNG files in a folder for each class)",
           .def = "packed"),
    RU_OPT(TEXT, "out", "DIR", "folder for the files", .letter = 'o'),
    RU_OPT(TEXT, "name", "NAME", "prefix of the file names (default: the part)"),
};

static ru_status run_import(ru_cmd_in *in, ru_err *err)
{
    const char *dir = ru_cmd_text(in, "out"), *name = ru_cmd_text(in, "name");
    if (dir == NULL) {
        return RU_FAIL(err, RU_E_USAGE, "name the folder to write with --out DIR");
    }
    ru_dataset *d = NULL;
    const char *form = ru_cmd_text(in, "to");
    bool raw = strcmp(form, "libsvm") != 0;
    RU_TRY(open_data(in, raw, &d, err));
    name = name != NULL ? name : ru_cmd_text(in, "part");
    ru_status st = as_usage(ru_data_import(d, form, dir, name, err), err);
    if (st == RU_OK) {
        printf("%lld samples in %s", (long long)ru_dataset_count(d), dir);
        if (ru_dataset_skipped(d) > 0) {
            printf(", %lld damaged ones replaced", (long long)ru_dataset_skipped(d));
        }
        printf("\n");
    }
    ru_dataset_close(d);
    return st;
}

/* -- warm -------------------------------------------------------------------------------------- */

static ru_status read_all(const ru_job *job, ru_dataset *d, int64_t *n, ru_err *err)
{
    enum { BATCH = 64 };
    ru_stream *s;
    ru_batch b = {.n = 1};
    const ru_stream_options so = {.batch = BATCH,
                                  .epochs = 1,
                                  .partial_last = true,
                                  .threads = job->data.threads,
                                  .bytes_max = job->data.memory};
    RU_TRY(ru_stream_open(d, &so, &s, err));
    ru_status st = RU_OK;
    for (*n = 0; st == RU_OK && b.n > 0; *n += b.n) {
        b.n = 0;
        st = ru_self_stop_asked() != 0 ? RU_E_CANCELLED : ru_stream_next(s, &b, err);
    }
    ru_stream_close(s);
    return st;
}

/* Fill the folders of `storage` before the job begins. What it kept until a stop signal stays. */
static ru_status run_warm(ru_cmd_in *in, ru_err *err)
{
    ru_job job;
    ru_dataset *d = NULL;
    int64_t n = 0;
    RU_TRY(ru_job_load(in->args[0], NULL, 0, in->arena, &job, NULL, err));
    ru_data_options o = ru_job_data_options(&job, false);
    if (o.cache.kind == RU_CACHE_NONE || o.cache.kind == RU_CACHE_AUTO) {
        return RU_FAIL(
            err, RU_E_USAGE,
            "%s keeps no samples by itself: data.cache is %s; set it to bytes or decoded",
            in->args[0], o.cache.kind == RU_CACHE_NONE ? "none" : "auto");
    }
    o.cache.waits = true;
    ru_self_stop_watch();
    ru_status st = as_usage(ru_dataset_open(&o, &d, err), err);
    st = st == RU_OK ? read_all(&job, d, &n, err) : st;
    ru_dataset_close(d); /* says what is kept */
    in->exit_code = st == RU_E_CANCELLED ? 128 + ru_self_stop_asked() : 0;
    ru_self_stop_unwatch();
    RU_TRY(st == RU_E_CANCELLED ? RU_OK : st);
    printf("%lld samples were read\n", (long long)n);
    return RU_OK;
}

/* -- the command ------------------------------------------------------------------------------- */

static const ru_example make_examples[] = {
    {"rubato data make digits --out digits", "make 30,000 images of digits as IDX files"},
    {"rubato data make text docs src --out corpus",
     "make tokens of one byte each from your own text"},
    {"rubato data make", "list the generators"},
};

static const ru_example info_examples[] = {
    {"rubato data info digits", "describe a folder that `rubato data make` wrote"},
    {"rubato data info 'train-{000000..000099}.tar' --image-size 224",
     "describe WebDataset shards"},
};

static const ru_example import_examples[] = {
    {"rubato data import photos --image-size 224 --out packed",
     "decode and resize the images once instead of in every epoch"},
    {"rubato data import train.csv --to npy --out arrays", "convert a CSV file to numpy arrays"},
};

static const ru_example warm_examples[] = {
    {"rubato data warm job.yaml", "keep the job's training samples before it begins"},
};

static const ru_cmd subs[] = {
    {.name = "make",
     .summary = "make synthetic data with a known best result",
     .about =
         "Writes data files and truth.json, which holds the best result that any model can reach "
         "(Bayes accuracy, noise floor, entropy per byte). Prints the data: section of a job file.",
     .args = "[NAME [FILE]...]",
     .arg_max = UINT32_MAX,
     RU_CMD_LISTS(make_opts, make_examples),
     .exits = "66 there is no such file|73 the output cannot be made or written",
     .run = run_make},
    {.name = "info",
     .summary = "describe files or folders: counts, shapes, classes, samples",
     RU_CMD_ARGS("PATH...", 1, UINT32_MAX),
     RU_CMD_LISTS(info_opts, info_examples),
     .exits = "65 the data is damaged or in no known format|66 there is no such file",
     .run = run_info},
    {.name = "import",
     .summary = "convert data of any supported format to one that reads fast",
     RU_CMD_ARGS("PATH...", 1, UINT32_MAX),
     RU_CMD_LISTS(import_opts, import_examples),
     .exits =
         "65 the data is damaged|66 there is no such file|73 the output cannot be made or written",
     .run = run_import},
    {.name = "warm",
     .summary = "read a job's training samples once, so that its first epoch finds them kept",
     .about =
         "The job's data.cache is bytes or decoded. As many samples as fit into the folders of "
         "`storage` are kept there; jobs with the same files and options read them from there.",
     RU_CMD_ARGS("JOB", 1, 1),
     .examples = warm_examples,
     .n_examples = RU_ARRAY_LEN(warm_examples),
     .exits = "65 the data is damaged|66 there is no such file|78 the job file is wrong",
     .run = run_warm},
};

const ru_cmd rui_cmd_data = {
    .name = "data",
    .summary = "make, inspect and convert data",
    .subs = subs,
    .n_subs = RU_ARRAY_LEN(subs),
};
