/* rubato demo: about a minute that shows what there is, with the commands a user would type.
 *
 * Every step is a command of this program, run as a child process and printed first, so that what
 * is shown can be repeated by hand and nothing is staged. */
#include <stdio.h>
#include <string.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "tool/cmd.h"

typedef struct demo {
    ru_cmd_in *in;
    const char *dir, *text_root;
} demo;

static const char gpt_job[] = "# A small GPT on bytes of text.\n"
                              "name: demo-gpt\n"
                              "model: {zoo: gpt, layers: 4, heads: 4, width: 128, context: 128}\n"
                              "data:\n"
                              "  format: tokens\n"
                              "  train: [text/train.u8]\n"
                              "  test: [text/test.u8]\n"
                              "  context: 128\n"
                              "train:\n"
                              "  loss: next_token\n"
                              "  optimizer: {adamw: {lr: 0.004, weight_decay: 0.01}}\n"
                              "  schedule: {cosine: {warmup: 30}}\n"
                              "  batch: 8\n"
                              "  steps: 1300\n"
                              "checkpoint: {every: 60s, keep: 1}\n";

static const char lenet_job[] = "# LeNet on digits drawn from strokes.\n"
                                "name: demo-lenet\n"
                                "model: {zoo: lenet}\n"
                                "data:\n"
                                "  format: idx\n"
                                "  train: [digits/train-images, digits/train-labels]\n"
                                "  test: [digits/test-images, digits/test-labels]\n"
                                "train:\n"
                                "  loss: cross_entropy\n"
                                "  optimizer: {sgd: {lr: 0.05, momentum: 0.9}}\n"
                                "  schedule: {cosine: {warmup: 20}}\n"
                                "  batch: 64\n"
                                "  epochs: 2\n"
                                "checkpoint: {every: 60s, keep: 1}\n";

static void heading(const demo *d, const char *text)
{
    printf(d->in->color ? "\n\033[1m%s\033[0m\n" : "\n%s\n", text);
    fflush(stdout);
}

/* Show the command line as a user would type it, quoting words with spaces. */
static void show(const demo *d, const char *const *words)
{
    printf(d->in->color ? "\033[2m$ rubato" : "$ rubato");
    for (uint32_t k = 0; words[k] != NULL; k++) {
        printf(strpbrk(words[k], " '\"") != NULL ? " \"%s\"" : " %s", words[k]);
    }
    printf(d->in->color ? "\033[0m\n" : "\n");
    fflush(stdout);
}

/* Run `rubato WORDS...`; the child writes where we write. */
static ru_status step(const demo *d, const char *const *words, ru_err *err)
{
    const char *argv[32] = {"/proc/self/exe"};
    uint32_t n = 0;
    for (; words[n] != NULL; n++) {
        RU_CHECK(n + 2 < RU_ARRAY_LEN(argv));
        argv[n + 1] = words[n];
    }
    show(d, words);
    ru_process *p = NULL;
    RU_TRY(ru_process_start(&(ru_process_options){.argv = argv}, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    if (code != 0) {
        return RU_FAIL(err, RU_E_USER,
                       "`rubato %s` failed with exit code %d; see its message above", words[0],
                       code);
    }
    return RU_OK;
}

#define STEP(d, err, ...) step((d), (const char *const[]){__VA_ARGS__, NULL}, (err))

static const char *in_dir(const demo *d, const char *name)
{
    const char *p = ru_path_join(d->in->arena, d->dir, name);
    return p != NULL ? p : "";
}

static ru_status write_job(const demo *d, const char *name, const char *text, ru_err *err)
{
    return ru_file_replace(in_dir(d, name), text, (int64_t)strlen(text), err);
}

/* The corpus: the documentation and sources of this project, where the program was built. */
static ru_status make_text(const demo *d, ru_err *err)
{
    static const char *const parts[] = {"README.md", "docs", "base",  "world", "env",   "trace",
                                        "plan",      "exec", "store", "data",  "train", "tool"};
    const char *words[32] = {"data", "make", "text", "--out", in_dir(d, "text")};
    uint32_t n = 5;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(parts); k++) {
        const char *path = ru_path_join(d->in->arena, d->text_root, parts[k]);
        if (path != NULL && ru_path_exists(path)) {
            words[n++] = path;
        }
    }
    if (n == 5) {
        return RU_FAIL(err, RU_E_MISSING,
                       "there is no text to train on in %s; name a folder of text with --text DIR",
                       d->text_root);
    }
    return step(d, words, err);
}

static ru_status write_with_gpt(const demo *d, ru_err *err)
{
    heading(d, "1. A small GPT learns this project's own text, then generates text");
    RU_TRY(make_text(d, err));
    RU_TRY(write_job(d, "gpt.yaml", gpt_job, err));
    RU_TRY(STEP(d, err, "train", in_dir(d, "gpt.yaml"), "--out", in_dir(d, "gpt")));
    return STEP(d, err, "predict", in_dir(d, "gpt"), "--prompt", "static ru_status ", "--tokens",
                "400", "--temperature", "0.7", "--seed", "7");
}

static ru_status read_with_lenet(const demo *d, ru_err *err)
{
    heading(d, "2. LeNet learns to classify images of digits");
    RU_TRY(STEP(d, err, "data", "make", "digits", "--out", in_dir(d, "digits"), "--count", "20000",
                "--test", "4000"));
    RU_TRY(write_job(d, "lenet.yaml", lenet_job, err));
    RU_TRY(STEP(d, err, "train", in_dir(d, "lenet.yaml"), "--out", in_dir(d, "lenet")));
    heading(d, "3. Which digits it confuses, one that it gets wrong, and how it learned");
    RU_TRY(STEP(d, err, "eval", in_dir(d, "lenet"), "--classes", "--mistakes", "1"));
    return STEP(d, err, "plot", in_dir(d, "lenet"));
}

static void next_commands(const demo *d, double seconds)
{
    heading(d, "Next commands");
    printf("  rubato train %s --set train.epochs=4 --out %s   another run with one key changed\n  "
           "rubato trace %s --perfetto gpt.perfetto-trace   every op on a timeline\n  rubato train "
           "--help-job                     all keys of a job file, to train on your own data\n",
           in_dir(d, "lenet.yaml"), in_dir(d, "lenet4"), in_dir(d, "gpt"));
    printf("\nThe demo took %.0f s; all its files are in %s.\n", seconds, d->dir);
}

/* What an earlier demo left is replaced; nobody else's files are touched. */
static ru_status clear(const demo *d, ru_err *err)
{
    static const char mark[] = "made-by-rubato-demo";
    if (ru_path_is_dir(d->dir)) {
        char **names;
        uint32_t n;
        RU_TRY(ru_dir_list(d->dir, d->in->arena, &names, &n, err));
        if (n > 0 && !ru_path_exists(in_dir(d, mark))) {
            return RU_FAIL(
                err, RU_E_USAGE,
                "%s contains '%s', which the demo did not create; name a new folder with --out DIR",
                d->dir, names[0]);
        }
        for (uint32_t k = 0; k < n; k++) {
            bool is_mark = strcmp(names[k], mark) == 0;
            RU_TRY(is_mark ? RU_OK : ru_path_remove(in_dir(d, names[k]), err));
        }
    }
    RU_TRY(ru_dir_make(d->dir, err));
    return ru_file_replace(in_dir(d, mark), "", 0, err);
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    demo d = {.in = in, .dir = ru_cmd_text(in, "out"), .text_root = ru_cmd_text(in, "text")};
    if (d.text_root == NULL && ru_path_exists(RU_SOURCE "/README.md")) {
        d.text_root = RU_SOURCE;
    }
    if (d.text_root == NULL) {
        return RU_FAIL(err, RU_E_MISSING,
                       "the project's own text is not installed with this program; name a folder "
                       "of text with --text DIR");
    }
    ru_time t0 = ru_clock_now();
    RU_TRY(clear(&d, err));
    RU_TRY(write_with_gpt(&d, err));
    RU_TRY(read_with_lenet(&d, err));
    heading(&d, "4. Where the time went");
    RU_TRY(STEP(&d, err, "trace", in_dir(&d, "lenet"), "--rows", "10"));
    next_commands(&d, (double)ru_time_since(ru_clock_now(), t0) * 1e-9);
    return RU_OK;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "out", "DIR",
           "folder for data and runs; files of an earlier demo there are replaced", .letter = 'o',
           .def = "out/demo"),
    RU_OPT(TEXT, "text", "DIR", "folder of text to train on instead of the project's own text"),
};

const ru_cmd rui_cmd_demo = {
    .name = "demo",
    .summary = "train a small GPT and LeNet in about a minute and show the results",
    .about = "The demo prints each step as the command that you would type. At the end it prints "
             "results and three commands to try next.",
    .opts = opts,
    .n_opts = RU_ARRAY_LEN(opts),
    .exits = "1 a step failed; its message tells why|66 there is no text to train on|73 the folder "
             "cannot be created or written",
    .run = run,
};
