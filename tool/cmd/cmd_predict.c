/* rubato predict: one prediction per line for rows or files; text from a language model. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "data/format/lines.h"
#include "data/norm.h"
#include "env/process/self.h"
#include "run/predict.h"
#include "serve/streams.h"
#include "serve/words.h"
#include "store/npy.h"
#include "tool/cmd.h"
#include "tool/cmd/from.h"
#include "tool/serve/source.h"
#include "train/app/app_run.h"

static const ru_opt opts[] = {
    RU_OPT(FLAG, "proba", NULL, "print probabilities of all classes instead of the class"),
    RU_OPT(TEXT, "in", "FILE",
           "read samples from one .npy array [n, ...] instead of rows from stdin; floats stand as "
           "before data.mean and data.std",
           .letter = 'i'),
    RU_OPT(TEXTS, "data", "FILE",
           "read samples from files in the job's format, the same as naming them behind the run "
           "(labels are ignored; pictures: files, and folders at any depth)",
           .letter = 'd'),
    RU_OPT(TEXT, "prompt", "TEXT", "language models: continue this text", .letter = 'p'),
    RU_OPT(TEXT, "tokenizer", "FILE",
           "language models: the tokenizer.json that the model was trained with (default: the one "
           "in the run's folder; without one tokens are bytes or numbers)"),
    RU_OPT(I64, "tokens", "N", "language models: number of tokens to generate", .letter = 'n',
           .def = "200", RU_IN(1, 1e9)),
    RU_OPT(F64, "temperature", "X",
           "language models: sampling temperature; 0 takes the most likely token", .letter = 't',
           .def = "0.8", RU_IN(0, 100)),
    RU_OPT(I64, "seed", "N",
           "the same seed gives the same text of a language model, and the same --order random",
           .def = "1", RU_IN(0, 9e15)),
    RU_OPT_THREADS(0),
    RU_OPT_FROM,
    RU_OPT(TEXT, "record", "FILE",
           "with --from: write the times of ops and tensors of the first samples as a world file, "
           "for `rubato explain FILE order`"),
};

static const ru_example examples[] = {
    {"rubato predict runs/iris-1 < rows.csv", "print one class for each row of numbers"},
    {"rubato predict runs/iris-1 --proba < rows.csv", "print probabilities, separated by commas"},
    {"rubato predict runs/digits-1 --in images.npy", "predict the samples of an array"},
    {"rubato predict runs/photos-1 new/*.jpg", "print file, class and probability of pictures"},
    {"rubato predict runs/text-1 --prompt 'The ' --tokens 300",
     "generate text with a language model"},
    {"rubato predict - --from 10.0.0.5:4100 --token-file token < rows.csv",
     "predict with weights that another process serves, while they come"},
};

typedef struct session {
    ru_cmd_in *in;
    ru_rundir run;
    ru_predictor *p;
    int64_t filled; /* samples in the input buffer */
    float *scratch; /* [outputs] */
    ru_norm norm;   /* data.mean and data.std of the job */
    bool proba;
    const ru_dataset *files; /* each sample is a file with a name of its own; NULL: no */
    int64_t done;            /* samples printed */
    int64_t left_out;        /* of them without an answer */
    int64_t damaged;         /* of those: because the sample is damaged */
} session;

/* -- printing ---------------------------------------------------------------------------------- */

/* The class; behind the name of a file also how probable it is. */
static void print_class(const session *s, const float *out, int64_t k)
{
    const ru_model_facts *f = &ru_predictor_model(s->p)->facts;
    if (k < f->n_class_names) {
        (void)printf("%s", f->class_names[k]);
    } else {
        (void)printf("%lld", (long long)k);
    }
    if (s->files != NULL) {
        memcpy(s->scratch, out, (size_t)ru_predictor_outputs(s->p) * sizeof *out);
        ru_softmax(s->scratch, ru_predictor_outputs(s->p));
        (void)printf("\t%.4f", (double)s->scratch[k]);
    }
    (void)printf("\n");
}

static void print_numbers(const float *x, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        (void)printf("%s%.6g", k > 0 ? "," : "", (double)x[k]);
    }
    (void)printf("\n");
}

static void print_name(const session *s)
{
    char where[4096];
    if (s->files != NULL) {
        (void)printf("%s\t", ru_dataset_where(s->files, s->done, where, sizeof where));
    }
}

/* An answer as long as the others, without values. */
static void print_empty(const session *s)
{
    bool numbers = s->proba || ru_predictor_model(s->p)->loss != RU_LOSS_CROSS_ENTROPY;
    print_name(s);
    if (!numbers && s->files != NULL) {
        (void)printf("\t");
    }
    for (int64_t k = 1; numbers && k < ru_predictor_outputs(s->p); k++) {
        (void)printf(",");
    }
    (void)printf("\n");
}

static void print_one(const session *s, const float *out)
{
    int64_t n = ru_predictor_outputs(s->p);
    ru_loss_kind loss = ru_predictor_model(s->p)->loss;
    print_name(s);
    memcpy(s->scratch, out, (size_t)n * sizeof *out);
    if (loss == RU_LOSS_MSE) {
        print_numbers(out, n);
    } else if (loss == RU_LOSS_BINARY_CROSS_ENTROPY) {
        for (int64_t k = 0; k < n; k++) {
            float y = 1.0f / (1.0f + expf(-out[k]));
            s->scratch[k] = s->proba ? y : (float)(y > 0.5f);
        }
        print_numbers(s->scratch, n);
    } else if (s->proba) {
        ru_softmax(s->scratch, n);
        print_numbers(s->scratch, n);
    } else {
        print_class(s, out, ru_draw_token(&(ru_draw){0}, out, n, 0, NULL, NULL));
    }
}

/* Run what is in the buffer and print it. */
static ru_status flush(session *s, ru_err *err)
{
    if (s->filled == 0) {
        return RU_OK;
    }
    const float *out;
    RU_TRY(ru_predictor_run(s->p, &out, err));
    for (int64_t k = 0; k < s->filled; k++) {
        bool empty = ru_predictor_left_out(s->p, k);
        if (empty) {
            print_empty(s);
        } else {
            print_one(s, out + k * ru_predictor_outputs(s->p));
        }
        s->left_out += empty;
        s->done++;
    }
    s->filled = 0;
    return RU_OK;
}

/* Place of the next sample; runs a full buffer first. */
static ru_status next_place(session *s, uint8_t **place, ru_err *err)
{
    if (s->filled == ru_predictor_batch(s->p)) {
        RU_TRY(flush(s, err));
    }
    *place = ru_predictor_input(s->p, s->filled++);
    return RU_OK;
}

/* -- rows of numbers --------------------------------------------------------------------------- */

/* Numbers of a row into `x`; how many there are, -1: a field is no number. */
static int64_t parse_row(ru_str row, int64_t n_max, float *x)
{
    int64_t n = 0;
    ru_str field;
    while (ru_str_next(&row, ',', &field)) {
        double v;
        if (!ru_str_f64(ru_str_trim(field), &v)) {
            return -1;
        }
        if (n < n_max) {
            x[n] = (float)v;
        }
        n++;
    }
    return n;
}

/* NaN in floats is a row without values. */
static bool is_held(ru_dtype dtype, float v)
{
    return dtype == RU_I64  ? v >= -0x1p63f && v < 0x1p63f
           : dtype == RU_U8 ? v >= 0.0f && v < 256.0f
                            : !isinf(v);
}

static void put_number(ru_dtype dtype, void *into, int64_t at, float v)
{
    if (dtype == RU_I64) {
        ((int64_t *)into)[at] = (int64_t)v;
    } else if (dtype == RU_U8) {
        ((uint8_t *)into)[at] = (uint8_t)v;
    } else {
        ((float *)into)[at] = v;
    }
}

/* A line of numbers without names: the features in the order of training. */
static ru_status plain_row(session *s, ru_str row, int64_t line, float *x, bool *found, ru_err *err)
{
    int64_t want = ru_predictor_inputs(s->p), n;
    row = ru_str_trim(row);
    *found = false;
    if (row.n == 0) {
        return RU_OK;
    }
    n = parse_row(row, want, x);
    if (n < 0 && line == 1) {
        return RU_OK; /* names of columns */
    }
    if (n != want) {
        return n < 0 ? RU_FAIL(err, RU_E_DATA,
                               "stdin:%lld: a field is not a number; give the features as "
                               "numbers, without the label",
                               (long long)line)
                     : RU_FAIL(err, RU_E_DATA,
                               "stdin:%lld: the row has %lld numbers; the model takes %lld (the "
                               "features in the order of training, without the label)",
                               (long long)line, (long long)n, (long long)want);
    }
    *found = true;
    return RU_OK;
}

/* One line of stdin into the buffer. */
static ru_status take_line(session *s, ru_rows *table, ru_str text, int64_t line, float *x,
                           ru_err *err)
{
    bool found;
    uint8_t *place;
    RU_TRY(table != NULL ? ru_rows_line(table, text, x, &found, err)
                         : plain_row(s, text, line, x, &found, err));
    if (!found) {
        return RU_OK;
    }
    ru_norm_apply(&s->norm, x, 1);
    ru_dtype dtype = ru_predictor_model(s->p)->facts.x.dtype;
    for (int64_t k = 0; k < ru_predictor_inputs(s->p); k++) {
        if (!is_held(dtype, x[k])) {
            return RU_FAIL(err, RU_E_DATA,
                           "stdin:%lld: number %lld of the row is %g for the model, which takes "
                           "finite numbers of type %s",
                           (long long)line, (long long)k + 1, (double)x[k], ru_dtype_name(dtype));
        }
    }
    RU_TRY(next_place(s, &place, err));
    for (int64_t k = 0; k < ru_predictor_inputs(s->p); k++) {
        put_number(dtype, place, k, x[k]);
    }
    return RU_OK;
}

static int64_t read_stdin(void *self, void *into, int64_t size_bytes)
{
    (void)self;
    ssize_t got;
    do {
        got = read(STDIN_FILENO, into, (size_t)size_bytes);
    } while (got < 0 && errno == EINTR && ru_self_stop_asked() == 0);
    return got < 0 && ru_self_stop_asked() != 0 ? RU_LINES_STOPPED : got;
}

static ru_status rows(session *s, ru_err *err)
{
    const ru_columns *columns = &ru_predictor_model(s->p)->facts.columns;
    int64_t line = 0;
    float *x = RU_NEW(s->in->arena, float, ru_predictor_inputs(s->p));
    ru_rows *table = NULL;
    ru_lines *lines = NULL;
    if (x == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for a row of the input");
    }
    if (columns->n > 0) { /* the files of the training have columns */
        RU_TRY(ru_rows_open(columns, "stdin", s->in->arena, &table, err));
    }
    ru_status st = ru_lines_open("stdin", read_stdin, NULL, s->in->arena, &lines, err);
    for (bool found = st == RU_OK; found;) {
        ru_str text;
        st = ru_lines_next(lines, &text, &found, err);
        if (st == RU_OK && found) {
            st = take_line(s, table, text, ++line, x, err);
        }
        found = found && st == RU_OK;
    }
    ru_lines_close(lines);
    ru_rows_close(table);
    return st == RU_OK ? flush(s, err) : st;
}

/* -- files ------------------------------------------------------------------------------------- */

/* Sample `k` of an array, as the reader of files would give it. */
static ru_status prepare(const session *s, const char *path, int64_t k, float *x, ru_err *err)
{
    ru_columns_normalize(&ru_predictor_model(s->p)->facts.columns, x);
    ru_norm_apply(&s->norm, x, 1);
    for (int64_t i = 0; i < ru_predictor_inputs(s->p); i++) {
        if (isinf(x[i])) {
            return RU_FAIL(err, RU_E_DATA,
                           "%s: element %lld of sample %lld is infinite, or becomes so when it is "
                           "normalised as the training data were",
                           path, (long long)i, (long long)k);
        }
    }
    return RU_OK;
}

static ru_status array_file(session *s, const char *path, ru_err *err)
{
    ru_map_file map = {0};
    ru_arrays arrays = {0};
    RU_TRY(ru_npz_open(path, s->in->arena, &map, &arrays, err));
    const ru_type *want = &ru_predictor_model(s->p)->facts.x;
    const ru_array *a = arrays.n > 0 ? &arrays.at[0] : NULL;
    int64_t per = ru_type_count(want), bytes = ru_type_bytes(want);
    ru_status st = RU_OK;
    if (a == NULL || arrays.n != 1 || a->type.rank == 0 || a->type.dtype != want->dtype ||
        ru_type_count(&a->type) != a->type.dims[0] * per) {
        char t[160];
        ru_type_print(NULL, want, t, sizeof t);
        st = RU_FAIL(err, RU_E_DATA, "%s: expected one array of n samples, each %s", path, t);
    }
    for (int64_t k = 0; st == RU_OK && k < a->type.dims[0]; k++) {
        uint8_t *place;
        st = next_place(s, &place, err);
        if (st == RU_OK) {
            memcpy(place, (const uint8_t *)a->data + k * bytes, (size_t)bytes);
            st = want->dtype == RU_F32 ? prepare(s, path, k, (float *)(void *)place, err) : RU_OK;
        }
    }
    if (st == RU_OK) {
        st = flush(s, err);
    }
    ru_file_unmap(&map);
    return st;
}

/* Damaged samples have empty answers, or, behind a cut, none. */
static void say_damaged(session *s, const ru_dataset *set)
{
    s->damaged = ru_dataset_skipped(set);
    if (s->damaged > 0) {
        ru_log(RU_LOG_WARN, "tool", "predict",
               "%lld damaged sample%s of the data %s no answer (data.strict: false); the first: %s",
               (long long)s->damaged, s->damaged == 1 ? "" : "s", s->damaged == 1 ? "has" : "have",
               ru_dataset_skipped_first(set));
    }
}

static ru_status data_files(session *s, const char *const *paths, uint32_t n, ru_err *err)
{
    const ru_model_facts *f = &ru_predictor_model(s->p)->facts;
    ru_dataset *set;
    ru_stream *stream;
    RU_TRY(ru_rundir_data(&s->run, paths, n, false, &set, err));
    s->files = strcmp(ru_dataset_format(set), "images") == 0 ? set : NULL;
    ru_stream_options so = {.batch = ru_predictor_batch(s->p), .epochs = 1, .partial_last = true};
    ru_status st = ru_stream_open(set, &so, &stream, err);
    if (st != RU_OK) {
        ru_dataset_close(set);
        return st;
    }
    for (;;) {
        ru_batch b = {0};
        st = ru_stream_next(stream, &b, err);
        if (st != RU_OK || b.n == 0) {
            break;
        }
        memcpy(ru_predictor_input(s->p, 0), b.fields[0], (size_t)(b.n * ru_type_bytes(&f->x)));
        s->filled = b.n;
        st = flush(s, err);
        if (st != RU_OK) {
            break;
        }
    }
    ru_stream_close(stream);
    say_damaged(s, set);
    ru_dataset_close(set);
    return st;
}

/* -- text -------------------------------------------------------------------------------------- */

static void put_token(const session *s, const ru_words *w, int64_t token)
{
    ru_arena_mark mark = ru_arena_mark_get(s->in->arena);
    ru_text t = ru_text_arena(s->in->arena);
    ru_words_put(w, token, &t);
    (void)fwrite(t.p, 1, (size_t)t.n, stdout);
    (void)fflush(stdout);
    ru_arena_rewind(s->in->arena, mark);
}

static ru_draw draw_of(const session *s)
{
    return (ru_draw){.temperature = ru_cmd_f64(s->in, "temperature"),
                     .top_p = 1,
                     .seed = (uint64_t)ru_cmd_i64(s->in, "seed")};
}

/* The prompt, then room for --tokens. */
static ru_status open_text(session *s, const ru_words *w, int64_t **ids, int64_t *n, ru_err *err)
{
    const char *prompt = ru_cmd_text(s->in, "prompt");
    int64_t *given;
    RU_TRY(ru_words_check(w, err));
    RU_TRY(ru_words_split(w, ru_str_c(prompt), s->in->arena, &given, n, err));
    *ids = RU_NEW(s->in->arena, int64_t, *n + ru_cmd_i64(s->in, "tokens"));
    if (*ids == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the tokens");
    }
    memcpy(*ids, given, (size_t)*n * sizeof **ids);
    (void)printf("%s", prompt);
    return RU_OK;
}

/* A model with a form in steps keeps what it has read in caches. A text that is longer than the
 * context goes on behind its last part, which is read again for each token: its positions change.
 */
static ru_status text_on_cache(session *s, const ru_tokenizer *tokenizer, ru_steps *steps,
                               ru_streams *streams, ru_err *err)
{
    ru_steps_facts f = ru_steps_facts_get(steps);
    const ru_words w = {f.vocab, tokenizer};
    int64_t left = ru_cmd_i64(s->in, "tokens"), n, *ids;
    RU_TRY(open_text(s, &w, &ids, &n, err));
    ru_stream t = {.end_token = -1, .draw = draw_of(s)};
    while (left > 0) {
        t.n_prompt = n < f.context ? n : f.context;
        t.tokens = ids + n - t.n_prompt;
        t.n_max = t.n_prompt + left;
        ru_streams_ask(streams, &t);
        for (int64_t seen = t.n; t.end == RU_STREAM_RUNS; seen = t.n) {
            if (ru_self_stop_asked() != 0) {
                (void)printf("\n");
                return RU_OK;
            }
            (void)ru_streams_step(streams, err);
            if (t.end == RU_STREAM_FAILED) {
                return err->status;
            }
            if (t.n > seen) {
                put_token(s, &w, t.tokens[seen]);
            }
        }
        left -= t.n - t.n_prompt;
        n += t.n - t.n_prompt;
        t.draw.first = t.draw.first + (uint64_t)(t.n - t.n_prompt);
    }
    (void)printf("\n");
    return RU_OK;
}

/* *done: the model has a form in steps, and the text is written. */
static ru_status try_cache(session *s, const ru_exe_options *eo, bool *done, ru_err *err)
{
    enum { ROWS = 128 }; /* of a piece of the prompt */
    const rui_served_source_options so = {.tokenizer = ru_cmd_text(s->in, "tokenizer"), .exe = *eo};
    const ru_steps_options o = {.exe = *eo, .slots = 1, .rows_max = ROWS};
    ru_source source;
    ru_steps *steps = NULL;
    ru_streams *streams = NULL;
    RU_TRY(rui_served_source_open(s->in->args[0], &so, &source, err));
    ru_status st = ru_steps_open(&source, &o, &steps, err);
    *done = st != RU_E_UNSUPPORTED;
    st = st == RU_OK ? ru_streams_open(steps, &streams, err) : *done ? st : RU_OK;
    st = st == RU_OK && *done ? text_on_cache(s, source.tokenizer, steps, streams, err) : st;
    ru_streams_close(streams);
    ru_steps_close(steps);
    source.ops->close(source.self);
    return st;
}

static ru_status text(session *s, ru_err *err)
{
    int64_t context = ru_predictor_inputs(s->p), vocab = ru_predictor_outputs(s->p) / context;
    int64_t left = ru_cmd_i64(s->in, "tokens"), n, *ids;
    const char *path = ru_cmd_text(s->in, "tokenizer");
    ru_tokenizer *tokenizer = NULL;
    RU_TRY(path != NULL ? ru_tokenizer_open(path, s->in->arena, &tokenizer, err) : RU_OK);
    const ru_words w = {vocab, tokenizer};
    const ru_draw d = draw_of(s);
    RU_TRY(open_text(s, &w, &ids, &n, err));
    for (uint64_t index = 0; left > 0 && ru_self_stop_asked() == 0; left--, index++) {
        int64_t used = n < context ? n : context;
        int64_t *in = ru_predictor_input(s->p, 0);
        memset(in, 0, (size_t)context * sizeof *in); /* what stands behind does not reach back */
        memcpy(in, ids + n - used, (size_t)used * sizeof *in);
        const float *logits;
        RU_TRY(ru_predictor_run(s->p, &logits, err));
        ids[n] = ru_draw_token(&d, logits + (used - 1) * vocab, vocab, index, s->scratch, NULL);
        put_token(s, &w, ids[n++]);
    }
    (void)printf("\n");
    return RU_OK;
}

/* -- the command ------------------------------------------------------------------------------- */

/* Files of --data and those behind the run. */
static ru_status named_files(ru_cmd_in *in, const char *const **out, uint32_t *n, ru_err *err)
{
    uint32_t given;
    const char *const *data = ru_cmd_texts(in, "data", &given);
    const char **all = RU_NEW(in->arena, const char *, given + in->n_args);
    if (all == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for the names of files");
    }
    for (uint32_t k = 0; k < given; k++) {
        all[k] = data[k];
    }
    for (uint32_t k = 1; k < in->n_args; k++) {
        all[given + k - 1] = in->args[k];
    }
    *out = all;
    *n = given + in->n_args - 1;
    return RU_OK;
}

static ru_status predict(session *s, ru_err *err)
{
    uint32_t n;
    const char *const *paths;
    RU_TRY(named_files(s->in, &paths, &n, err));
    bool tokens = ru_cmd_given(s->in, "prompt");
    ru_exe_options eo = {.device = (ru_device_kind)s->run.job.train.device,
                         .threads = (uint32_t)ru_cmd_i64(s->in, "threads"),
                         .profile = ru_cmd_given(s->in, "record")};
    if (tokens && !ru_cmd_given(s->in, "from")) {
        bool done = false;
        RU_TRY(try_cache(s, &eo, &done, err));
        if (done) {
            return RU_OK;
        }
    }
    RU_TRY(ru_predictor_open(&s->run, tokens ? 1 : 64, &eo, s->in->arena, &s->p, err));
    s->proba = ru_cmd_flag(s->in, "proba");
    s->scratch = RU_NEW(s->in->arena, float, ru_predictor_outputs(s->p));
    if (s->scratch == NULL) {
        return RU_FAIL(err, RU_E_MEM, "not enough memory for an output");
    }
    if (ru_predictor_model(s->p)->tokens != tokens) {
        return RU_FAIL(err, RU_E_USAGE,
                       tokens
                           ? "--prompt works with language models only; %s is not a language model"
                           : "%s is a language model: give it a text with --prompt",
                       ru_predictor_model(s->p)->name);
    }
    if (tokens) {
        return text(s, err);
    }
    const ru_data_options d = ru_job_data_options(&s->run.job, false);
    RU_TRY(ru_norm_open(&d, &ru_predictor_model(s->p)->facts.x, "the job", s->in->arena, &s->norm,
                        err));
    if (ru_cmd_given(s->in, "in")) {
        return array_file(s, ru_cmd_text(s->in, "in"), err);
    }
    return n > 0 ? data_files(s, paths, n, err) : rows(s, err);
}

/* A run with an app: one line for each row of files in the job's format. */
static ru_status run_app(ru_cmd_in *in, ru_err *err)
{
    static const char *const from_stdin[] = {"/dev/stdin"};
    uint32_t n;
    const char *const *paths;
    RU_TRY(named_files(in, &paths, &n, err));
    ru_app_model m;
    RU_TRY(ru_app_model_open(in->args[0], n > 0 ? paths : from_stdin, n > 0 ? n : 1, in->arena, &m,
                             err));
    ru_status st = RU_OK;
    for (int64_t r = 0; r < ru_app_model_rows(&m) && st == RU_OK; r++) {
        ru_arena_mark mark = ru_arena_mark_get(in->arena);
        ru_text t = ru_text_arena(in->arena);
        st = ru_app_model_predict(&m, r, &t, err);
        if (st == RU_OK && t.n > 0) {
            (void)printf("%s\n", t.p);
        }
        ru_arena_rewind(in->arena, mark);
    }
    ru_app_model_close(&m);
    return st;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    const char *name = in->args[0];
    bool from = ru_cmd_given(in, "from");
    rui_from source = {0};
    if (!from && ru_cmd_given(in, "record")) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--record FILE writes what --from HOST:PORT did; give both");
    }
    if (!from && ru_app_ckpt_is(name)) {
        return run_app(in, err);
    }
    session s = {.in = in};
    ru_status st = from ? rui_from_open(in, name, &source, &s.run, err)
                        : ru_rundir_open(name, in->arena, &s.run, err);
    source.late.seed = (uint64_t)ru_cmd_i64(in, "seed");
    st = st == RU_OK ? predict(&s, err) : st;
    if (s.left_out > s.damaged) {
        ru_log(RU_LOG_WARN, "tool", "predict",
               "%lld of %lld rows have an input without a value, so their answers are empty (%s)",
               (long long)(s.left_out - s.damaged), (long long)s.done,
               s.run.ckpt.facts.columns.missing == RU_MISSING_DROP ? "data.columns.missing: drop"
                                                                   : "data.strict: false");
    }
    if (st == RU_OK && from && ru_cmd_given(in, "record")) {
        st = ru_remote_record(&source.late, ru_cmd_text(in, "record"), err);
    }
    ru_predictor_close(s.p);
    rui_from_close(&source);
    return st;
}

const ru_cmd rui_cmd_predict = {
    .name = "predict",
    .summary = "use a trained model on rows, files or a prompt",
    .about =
        "Reads rows of numbers from stdin (the features in the order of training, or in any "
        "order below a line with their names), an array, or files in the job's format. Prints "
        "one prediction per line: the class (by name if "
        "names are known), or the number for regression. For pictures a line is the file, the "
        "class and its probability, separated by tabs. A row that data.columns.missing: drop "
        "leaves out, and a damaged sample with data.strict: false, gets an empty answer. "
        "A run that keeps its best checkpoint (checkpoint.keep_best) is used with that one. A "
        "language model continues the text of --prompt. With --from the weights come from another "
        "process, in the order in which the model needs them, and the first samples are "
        "computed meanwhile; the answers are the same bits.",
    RU_CMD_ARGS("RUN_OR_CHECKPOINT [FILE]...", 1, UINT32_MAX),
    RU_CMD_LISTS(opts, examples),
    .exits = "65 a row or the checkpoint is damaged, or --from serves other weights or another "
             "model|66 the run does not exist|69 nobody serves weights at --from, or it went",
    .computes = true,
    .run = run,
};
