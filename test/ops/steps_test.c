/* Texts written on caches, many at one time: the same tokens as whole recomputation gives. */
#include "serve/streams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "test/test.h"
#include "train/model/model.h"

enum { CONTEXT = 24, VOCAB = 31, STREAMS = 9, SLOTS = 3 };

static const ru_zoo_options zoo = {
    .layers = 2, .heads = 2, .width = 16, .context = CONTEXT, .vocab = VOCAB, .bias = true};

static ru_status toy_steps(void *self, int64_t rows, int64_t wanted, int64_t slots, bool bf16,
                           ru_arena *arena, ru_graph *out, ru_err *err)
{
    (void)self;
    const ru_zoo_steps s = {.rows = rows, .wanted = wanted, .slots = slots, .bf16 = bf16};
    RU_TRY(ru_graph_init(out, arena, "gpt", err));
    return ru_zoo_build_steps("gpt", &zoo, &s, out, err);
}

/* Parameters by their names, larger than those of a model that begins: tokens then differ. */
static ru_status toy_load(void *self, const ru_graph *g, ru_exe *exe, ru_err *err)
{
    float data[4 * 16 * 64];
    (void)self;
    for (uint32_t v = 1; v < g->n_values; v++) {
        if (g->values[v].role != RU_ROLE_PARAM) {
            continue;
        }
        int64_t n = ru_type_count(&g->values[v].type);
        ru_rng rng = ru_rng_from(3, ru_rng_label(g->values[v].name));
        assert_true(n <= (int64_t)RU_ARRAY_LEN(data));
        for (int64_t k = 0; k < n; k++) {
            data[k] = (float)ru_rng_normal(&rng) * 0.5f;
        }
        RU_TRY(ru_exe_state_write(exe, (ru_value_id){v}, data, err));
    }
    return RU_OK;
}

static const ru_source_ops toy_ops = {.name = "toy", .steps = toy_steps, .load = toy_load};

/* The most likely token behind `n` others, by the form that sees whole sequences. */
typedef struct whole {
    float slack; /* how far two ways to round may lie apart; 0: none */
    ru_arena arena;
    ru_graph g;
    ru_exe *exe;
} whole;

static void whole_open(whole *w, const ru_exe_options *opt)
{
    ru_err err = {0};
    ru_graph free_batch;
    ru_zoo_model model;
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_graph_init(&free_batch, &w->arena, "gpt", &err), err);
    assert_ok(ru_zoo_build("gpt", &zoo, false, &free_batch, &model, &err), err);
    const ru_step_options so = {
        .loss = RU_LOSS_NEXT_TOKEN, .batch = 1, .x = ru_type_make(RU_I64, 1, (int64_t[]){CONTEXT})};
    ru_step_graph step;
    assert_ok(ru_step_build_eval(&free_batch, &so, &w->arena, &step, &err), err);
    w->g = step.graph;
    assert_ok(ru_exe_open(&w->g, opt, &w->exe, &err), err);
    w->slack = opt->precision == RU_PRECISION_BF16 ? 0.15f : 0;
    assert_ok(toy_load(NULL, &w->g, w->exe, &err), err);
}

static const float *whole_logits(whole *w, const int64_t *tokens, int64_t n)
{
    ru_err err = {0};
    int64_t *in = ru_exe_input(w->exe, w->g.inputs[0]);
    memset(in, 0, CONTEXT * sizeof *in);
    memcpy(in, tokens, (size_t)n * sizeof *in);
    assert_ok(ru_exe_run(w->exe, &(ru_run_args){0}, &err), err);
    return (const float *)ru_exe_output(w->exe, w->g.outputs[0]) + (n - 1) * VOCAB;
}

/* Is tokens[n] the most likely one behind the n before it? */
static bool is_next(whole *w, const int64_t *tokens, int64_t n)
{
    const float *y = whole_logits(w, tokens, n);
    int64_t best = 0;
    for (int64_t k = 1; k < VOCAB; k++) {
        best = y[k] > y[best] ? k : best;
    }
    return tokens[n] == best || y[tokens[n]] > y[best] - w->slack;
}

/* Log probabilities of the token at `at` and the likely ones, by all logits. */
static void compare_scores(whole *w, const ru_stream *t, int64_t at)
{
    const ru_scores *o = t->scores;
    const float *y = whole_logits(w, t->tokens, at);
    double sum = 0;
    for (int64_t k = 0; k < VOCAB; k++) {
        sum += exp((double)y[k]);
    }
    assert_float_equal(o->own[at], y[t->tokens[at]] - (float)log(sum), 1e-4f + w->slack);
    for (uint32_t i = 0; i < o->k; i++) {
        int64_t token = o->top[at * o->k + i], above = 0;
        for (int64_t k = 0; k < VOCAB; k++) {
            above += y[k] > y[token] + 1e-4f + w->slack ? 1 : 0;
        }
        assert_true(above <= i);
        assert_float_equal(o->top_own[at * o->k + i], y[token] - (float)log(sum), 1e-4f + w->slack);
        assert_true(i == 0 || o->top_own[at * o->k + i] <= o->top_own[at * o->k + i - 1]);
    }
}

static void compare_text(whole *w, const ru_stream *t)
{
    assert_true(t->end != RU_STREAM_RUNS && t->end != RU_STREAM_FAILED);
    assert_true(t->end != RU_STREAM_LENGTH || t->n == t->n_max);
    for (int64_t n = t->n_prompt; n < t->n; n++) {
        assert_true(is_next(w, t->tokens, n));
    }
    assert_true(t->end != RU_STREAM_STOP || t->tokens[t->n - 1] == t->end_token);
    int64_t scored = t->end == RU_STREAM_DROPPED ? 0 : t->n;
    for (int64_t at = t->scores == NULL   ? scored
                      : t->scores->prompt ? 1
                                          : t->n_prompt;
         at < scored; at++) {
        compare_scores(w, t, at);
    }
}

/* Streams ask at random steps, some leave; prompts of 1 .. CONTEXT tokens, some the same ones. */
static void write_and_compare(ru_rng *rng, ru_steps *steps, whole *w)
{
    ru_err err = {0};
    ru_streams *s;
    ru_stream t[STREAMS];
    int64_t tokens[STREAMS][CONTEXT + 1], asked = 0;
    ru_scores scores[STREAMS];
    float own[STREAMS][CONTEXT + 1], top_own[STREAMS][(CONTEXT + 1) * 3];
    uint32_t top[STREAMS][(CONTEXT + 1) * 3];
    assert_ok(ru_streams_open(steps, &s, &err), err);
    for (uint32_t k = 0; k < STREAMS; k++) {
        int64_t n = 1 + (int64_t)ru_rng_below(rng, CONTEXT);
        t[k] = (ru_stream){.tokens = tokens[k],
                           .n_prompt = n,
                           .n_max = CONTEXT + 1,
                           .end_token = -1,
                           .priority = ru_rng_below(rng, 3)};
        t[k].end_token = ru_rng_below(rng, 3) == 0 ? (int64_t)ru_rng_below(rng, VOCAB) : -1;
        t[k].kin = k + 1;
        if (k > 0 && ru_rng_below(rng, 2) == 0) { /* it has the prompt of another */
            t[k].kin = t[k - 1].kin;
            t[k].n_prompt = t[k - 1].n_prompt;
            memcpy(tokens[k], tokens[k - 1], sizeof tokens[k]);
        } else {
            for (int64_t i = 0; i < n; i++) {
                tokens[k][i] = (int64_t)ru_rng_below(rng, VOCAB);
            }
        }
        t[k].n_max = ru_rng_below(rng, 4) == 0 ? t[k].n_prompt : CONTEXT + 1;
        scores[k] =
            (ru_scores){ru_rng_below(rng, 4), t[k].kin == k + 1, own[k], top[k], top_own[k]};
        t[k].scores = ru_rng_below(rng, 2) == 0 ? &scores[k] : NULL;
    }
    while (asked < STREAMS || ru_streams_step(s, &err)) {
        if (asked < STREAMS && ru_rng_below(rng, 3) == 0) {
            ru_streams_ask(s, &t[asked++]);
        }
        uint32_t k = ru_rng_below(rng, 40);
        if ((int64_t)k < asked && t[k].end == RU_STREAM_RUNS) {
            ru_streams_drop(&t[k]);
        }
        if (asked < STREAMS) {
            (void)ru_streams_step(s, &err);
        }
    }
    for (uint32_t k = 0; k < STREAMS; k++) {
        compare_text(w, &t[k]);
    }
    ru_streams_close(s);
}

static void tokens_are_those_of_whole_recomputation(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 1);
    for (uint32_t way = 0; way < 3; way++) { /* the reference; kernels in f32 and in bf16 */
        ru_err err = {0};
        whole w;
        ru_steps *steps;
        const ru_source source = {.ops = &toy_ops};
        ru_steps_options o = {.slots = SLOTS, .rows_max = way == 0 ? 1 : 16};
        o.exe = (ru_exe_options){.device = way == 0 ? RU_DEVICE_REF : RU_DEVICE_CPU,
                                 .threads = 2,
                                 .precision = way == 2 ? RU_PRECISION_BF16 : RU_PRECISION_F32};
        whole_open(&w, &o.exe);
        assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
        assert_int_equal(ru_steps_facts_get(steps).context, CONTEXT);
        for (uint32_t round = 0; round < (way == 0 ? 1 : 8); round++) {
            write_and_compare(&rng, steps, &w);
        }
        ru_steps_close(steps);
        ru_exe_close(w.exe);
        ru_arena_fini(&w.arena);
    }
}

/* Three texts with one prompt of 20 tokens read it once: 5 steps of 4 rows, then one for each last
 * token. */
static void one_prompt_is_read_once(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_steps *steps;
    ru_streams *s;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = SLOTS, .rows_max = 4};
    int64_t tokens[SLOTS][CONTEXT] = {{0}}, n = 0;
    ru_stream t[SLOTS];
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_ok(ru_streams_open(steps, &s, &err), err);
    for (uint32_t k = 0; k < SLOTS; k++) {
        t[k] = (ru_stream){
            .tokens = tokens[k], .n_prompt = 20, .n_max = 21, .end_token = -1, .kin = 1};
        ru_streams_ask(s, &t[k]);
    }
    while (ru_streams_step(s, &err)) {
        n++;
    }
    assert_true(n <= 7);
    for (uint32_t k = 0; k < SLOTS; k++) {
        assert_int_equal(t[k].end, RU_STREAM_LENGTH);
        assert_int_equal(tokens[k][20], tokens[0][20]);
    }
    ru_streams_close(s);
    ru_steps_close(steps);
}

/* Of more texts than have places, the ones of the highest priority end first, then who asked first.
 */
static void urgent_texts_pass_others(void **state)
{
    (void)state;
    enum { N = 4 * SLOTS };
    ru_err err = {0};
    ru_steps *steps;
    ru_streams *s;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = SLOTS, .rows_max = 16};
    ru_stream t[N];
    int64_t tokens[N][3], ended[N], at = 0;
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_ok(ru_streams_open(steps, &s, &err), err);
    for (uint32_t k = 0; k < N; k++) {
        tokens[k][0] = k % VOCAB;
        t[k] = (ru_stream){
            .tokens = tokens[k], .n_prompt = 1, .n_max = 3, .end_token = -1, .priority = N - k / 2};
        ru_streams_ask(s, &t[k]);
        ended[k] = 0;
    }
    while (ru_streams_step(s, &err)) {
        at++;
        for (uint32_t k = 0; k < N; k++) {
            ended[k] = ended[k] == 0 && t[k].end != RU_STREAM_RUNS ? at : ended[k];
        }
    }
    for (uint32_t k = 0; k < N; k++) { /* how many stand before it, by pairs from the end */
        int64_t pair = k / 2, rank = N - 2 * (pair + 1) + k % 2;
        assert_int_equal(ended[k], 2 * (rank / SLOTS + 1));
    }
    ru_streams_close(s);
    ru_steps_close(steps);
}

/* The prompt of a text that has a place already waits for one of a higher priority. */
static void urgent_prompts_pass_others(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_steps *steps;
    ru_streams *s;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = SLOTS, .rows_max = 4};
    int64_t tokens[2][CONTEXT] = {0};
    ru_stream t[2];
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_ok(ru_streams_open(steps, &s, &err), err);
    for (uint32_t k = 0; k < 2; k++) {
        int64_t n = k == 0 ? 20 : 4;
        t[k] = (ru_stream){
            .tokens = tokens[k], .n_prompt = n, .n_max = n + 1, .end_token = -1, .priority = 2 - k};
        ru_streams_ask(s, &t[k]);
        assert_true(ru_streams_step(s, &err));
    }
    assert_int_equal(t[1].end, RU_STREAM_LENGTH);
    assert_int_equal(t[0].cached, 8 + 4); /* a whole step, then what the urgent one left */
    while (ru_streams_step(s, &err)) {
    }
    assert_int_equal(t[0].end, RU_STREAM_LENGTH);
    ru_streams_close(s);
    ru_steps_close(steps);
}

/* A prompt of 8 tokens in one step, and as a piece whose operations are computed one by one,
 * between steps of another text: the same logits, and the other text's are its own as well. */
static void pieces_go_on_between_steps(void **state)
{
    (void)state;
    enum { N = 8 };
    ru_err err = {0};
    ru_steps *steps;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = SLOTS, .rows_max = 8, .exe = {.threads = 1}};
    float wanted[VOCAB], text[CONTEXT][VOCAB];
    ru_steps_row prompt[N], row = {.slot = 1, .wanted = true};
    const float *y = NULL;
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_int_equal(ru_steps_facts_get(steps).piece_min, N);
    for (int64_t k = 0; k < N; k++) {
        prompt[k] = (ru_steps_row){.token = 3 * k + 1, .at = k, .wanted = k == N - 1};
    }
    assert_ok(ru_steps_run(steps, prompt, N, &y, &err), err);
    memcpy(wanted, y, sizeof wanted);
    for (row.at = 0; row.at < CONTEXT; row.at++) {
        row.token = row.at;
        assert_ok(ru_steps_run(steps, &row, 1, &y, &err), err);
        memcpy(text[row.at], y, sizeof text[0]);
    }
    for (uint32_t way = 0; way < 2; way++) {
        int64_t ops = 0;
        ru_steps_row other[N];
        for (int64_t k = 0; k < N; k++) { /* another prompt leaves its cache, or a piece begins */
            other[k] = (ru_steps_row){.token = k, .at = k};
        }
        ru_steps_piece_begin(steps, N, other, N);
        y = NULL;
        assert_ok(ru_steps_piece_go(steps, way == 0 ? INT64_MAX : 0, &y, &err), err);
        assert_int_equal(y != NULL, way == 0);
        ru_steps_piece_begin(steps, N, prompt, N);
        for (y = NULL, row.at = 0; y == NULL; ops++, row.at = ops % CONTEXT) {
            const float *of_text;
            row.token = row.at;
            assert_ok(ru_steps_run(steps, &row, 1, &of_text, &err), err);
            assert_memory_equal(of_text, text[row.at], sizeof text[0]);
            assert_ok(ru_steps_piece_go(steps, 0, &y, &err), err);
        }
        assert_true(ops > 8 && ru_steps_piece_longest_ns(steps, N) > 0);
        assert_memory_equal(y, wanted, sizeof wanted);
    }
    ru_steps_close(steps);
}

/* A token that there is not ends the streams of its step with the sentence. */
static void a_step_that_fails_says_why(void **state)
{
    (void)state;
    ru_err err = {0};
    ru_steps *steps;
    ru_streams *s;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = 1, .rows_max = 4, .exe = {.threads = 1}};
    int64_t tokens[3] = {1, VOCAB, 0};
    ru_stream t = {.tokens = tokens, .n_prompt = 2, .n_max = 3, .end_token = -1};
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_ok(ru_streams_open(steps, &s, &err), err);
    ru_streams_ask(s, &t);
    assert_true(ru_streams_step(s, &err));
    assert_int_equal(t.end, RU_STREAM_FAILED);
    assert_int_equal(err.status, RU_E_DATA);
    assert_false(ru_streams_step(s, &err));
    ru_streams_close(s);
    ru_steps_close(steps);
}

/* A step fails while a piece of another prompt is under way: the sentence is the step's, and the
 * other text is written as it is alone. */
static void a_piece_outlives_a_step_that_fails(void **state)
{
    (void)state;
    enum { N = 12 };
    ru_err err = {0};
    ru_steps *steps;
    ru_streams *s;
    const ru_source source = {.ops = &toy_ops};
    const ru_steps_options o = {.slots = 2, .rows_max = 4, .exe = {.threads = 1}};
    int64_t tokens[2][N + 2] = {{1}, {3, 1, 4, 1, 5, 2, 6, 5, 3, 5, 2, 3}}, wanted[2];
    ru_stream t[2];
    assert_ok(ru_steps_open(&source, &o, &steps, &err), err);
    assert_ok(ru_streams_open(steps, &s, &err), err);
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t k = 1 - way; k < 2; k++) {
            t[k] = (ru_stream){
                .tokens = tokens[k], .n_prompt = k == 0 ? 1 : N, .n_max = N + 2, .end_token = -1};
            ru_streams_ask(s, &t[k]);
        }
        if (way == 1) {
            assert_true(ru_streams_step(s, &err)); /* three rows are too few to join it */
            assert_true(t[0].n == 2 && t[1].cached < N);
            tokens[0][1] = VOCAB;
            assert_true(ru_streams_step(s, &err));
            assert_int_equal(t[0].end, RU_STREAM_FAILED);
            assert_int_equal(err.status, RU_E_DATA);
        }
        while (ru_streams_step(s, &err)) {
        }
        assert_int_equal(t[1].end, RU_STREAM_LENGTH);
        if (way == 0) {
            memcpy(wanted, tokens[1] + N, sizeof wanted);
        }
        assert_memory_equal(wanted, tokens[1] + N, sizeof wanted);
    }
    ru_streams_close(s);
    ru_steps_close(steps);
}

/* The rule by sorting everything. */
static int64_t draw_slowly(const ru_draw *d, const float *logits, int64_t n, uint64_t index)
{
    double p[64], all = 0, cut = 0, u;
    int64_t by[64], kept = 0;
    uint32_t w[4];
    for (int64_t k = 0; k < n; k++) {
        int64_t at = k;
        p[k] = exp((double)logits[k] / d->temperature);
        for (; at > 0 && p[by[at - 1]] < p[k]; at--) {
            by[at] = by[at - 1];
        }
        by[at] = k;
    }
    int64_t most = d->top_k > 0 && d->top_k < n ? d->top_k : n;
    for (int64_t k = 0; k < most; k++) {
        all += p[by[k]];
    }
    while (kept < most && (kept == 0 || cut < d->top_p * all)) {
        cut += p[by[kept++]];
    }
    ru_philox_at(d->seed, ru_rng_label("tokens"), index, w);
    u = ((double)w[0] + (double)w[1] * 0x1p-32) * 0x1p-32 * cut;
    for (int64_t k = 0; k < kept; k++) {
        u -= p[by[k]];
        if (u < 0) {
            return by[k];
        }
    }
    return by[kept - 1];
}

static void draws_are_those_of_sorting(void **state)
{
    (void)state;
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    float logits[64], scratch[64];
    uint32_t order[64];
    for (uint32_t round = 0; round < 2000; round++) {
        int64_t n = 2 + (int64_t)ru_rng_below(&rng, 63);
        ru_draw d = {.temperature = 0.25 + 0.25 * ru_rng_below(&rng, 8), .seed = round};
        d.top_p = round % 3 == 0 ? 1 : (1 + ru_rng_below(&rng, 99)) / 100.0;
        d.top_k = d.top_p < 1 && round % 2 == 0 ? 0 : 1 + (int64_t)ru_rng_below(&rng, 20);
        d.top_k = d.top_k >= n ? n - 1 : d.top_k;
        for (int64_t k = 0; k < n; k++) {
            logits[k] = (float)ru_rng_normal(&rng);
        }
        assert_int_equal(ru_draw_token(&d, logits, n, round, scratch, order),
                         draw_slowly(&d, logits, n, round));
    }
}

/* Witness: the chance of each token by its softmax, over many draws. */
static void tokens_are_drawn_by_their_chance(void **state)
{
    (void)state;
    const float logits[3] = {0.0f, 1.0986123f, 0.0f}; /* 1 : 3 : 1 */
    float scratch[3];
    ru_draw d = {.temperature = 1, .top_p = 1, .seed = 9};
    int64_t hits[3] = {0};
    for (uint64_t k = 0; k < 20000; k++) {
        hits[ru_draw_token(&d, logits, 3, k, scratch, NULL)]++;
    }
    assert_true(llabs(hits[1] - 12000) < 300 && llabs(hits[0] - 4000) < 300);
    d.temperature = 0;
    assert_int_equal(ru_draw_token(&d, logits, 3, 0, NULL, NULL), 1);
}

/* -- the pace of a prompt, on a clock of its own ------------------------------------------------
 */

enum { TEXTS = 7, LONG = 2000, LAYERS = 4, OPS = 2 * LAYERS };

typedef struct course {
    int64_t steps, late; /* late: above twice what the step takes without the prompt */
} course;

/* Every other operation reads weights, the others positions, which rows of a piece share. */
static double op_ns(uint32_t op, int64_t rows, int64_t positions)
{
    return op % 2 == 0 ? 2e5 + 6e3 * (double)rows
                       : 125 * (double)positions * (1 + 0.1 * (double)rows);
}

static double texts_ns(int64_t rows, int64_t see)
{
    return LAYERS * (2e5 + 6e3 * (double)rows + 125 * (double)see);
}

typedef struct under_way {
    int64_t rows; /* 0: no piece */
    uint32_t op;
    double took[16][OPS]; /* by the logarithm of rows */
} under_way;

static double noise(uint32_t odd, ru_rng *rng)
{
    return odd > 0 && ru_rng_below(rng, odd) == 0 ? 10 : 1;
}

/* Some operations of the piece; what they took without noise. */
static double go_on(ru_pace *p, under_way *u, int64_t cached, double budget, uint32_t odd,
                    ru_rng *rng)
{
    double used = 0, calm = 0, longest = 0;
    double *took = u->took[0];
    for (int64_t n = u->rows; n > 1; n /= 2) {
        took += OPS;
    }
    do {
        double ns = op_ns(u->op, u->rows, cached + u->rows);
        calm += ns;
        took[u->op] = ns * noise(odd, rng);
        used += took[u->op++];
    } while (u->op < OPS && used + took[u->op] <= budget);
    for (uint32_t k = 0; k < OPS; k++) {
        longest = took[k] > longest ? took[k] : longest;
    }
    if (u->op == OPS) {
        ru_pace_learn(p, (int64_t)longest);
    }
    return calm;
}

/* One prompt beside texts that stand at `at`; one time in `odd` is ten times as long, 0: none. */
static course one_course(ru_pace *p, int64_t at, uint32_t odd, ru_rng *rng)
{
    course c = {0};
    under_way u = {0};
    for (int64_t cached = 0; cached < LONG; c.steps++) {
        int64_t see = TEXTS * (at + c.steps), left = LONG - cached,
                joined = u.rows > 0 ? TEXTS : ru_pace_joined(p, TEXTS, see, cached, left),
                more = joined - TEXTS < left ? joined - TEXTS : left;
        double own = texts_ns(TEXTS, see), ns = own;
        assert_true(joined >= TEXTS && joined <= p->rows_max);
        if (more > 0) {
            ns = texts_ns(joined, see + cached + more);
            cached += more;
        } else {
            u = u.rows > 0 ? u : (under_way){.rows = p->rows};
            ns += go_on(p, &u, cached,
                        (double)ru_pace_budget_ns(p, (int64_t)(own * noise(odd, rng))), odd, rng);
            cached += u.op == OPS ? (u.rows < left ? u.rows : left) : 0;
            u.rows = u.op == OPS ? 0 : u.rows;
        }
        assert_true(p->rows >= p->rows_min && p->rows <= p->rows_max);
        c.late += ns > 2 * own ? 1 : 0;
    }
    return c;
}

static ru_pace pace_of(void)
{
    ru_pace p = {.rows = 16, .rows_min = 16, .rows_max = 256};
    for (uint32_t k = 0; k <= 8; k++) {
        p.opened_ns[k] = (int64_t)texts_ns(INT64_C(1) << k, 0);
    }
    return p;
}

static void a_prompt_ends_whatever_steps_take(void **state)
{
    (void)state;
    const int64_t bound = OPS * ((LONG + 15) / 16); /* one operation a step, smallest pieces */
    ru_rng rng = ru_rng_from(ru_test_seed(), 2);
    ru_pace p = pace_of();
    course calm = one_course(&p, 100, 0, &rng);
    assert_true(calm.steps < LONG / 4 && 100 * calm.late <= calm.steps);
    for (uint32_t odd = 1; odd < 20; odd++) {
        course c = one_course(&p, 100, odd, &rng);
        assert_true(c.steps <= bound);
    }
    course again = one_course(&p, 100, 0, &rng); /* and what it left is forgotten */
    assert_true(again.steps < calm.steps * 5 / 4 && 50 * again.late <= again.steps);
    p.alone_ns = 1; /* texts that take nothing: one operation a step */
    again = one_course(&p, 100, 0, &rng);
    assert_true(again.steps <= bound);
    p.alone_ns = 0;
    for (uint32_t k = 0; k < 3;
         k++) { /* operations that are too long: smaller pieces, one a step */
        int64_t budget = ru_pace_budget_ns(&p, 1000000), rows = p.rows;
        ru_pace_learn(&p, budget + 1);
        assert_int_equal(p.rows, rows > p.rows_min ? rows / 2 : rows);
    }
}

RU_TESTS(test_steps, cmocka_unit_test(tokens_are_drawn_by_their_chance),
         cmocka_unit_test(a_prompt_ends_whatever_steps_take),
         cmocka_unit_test(tokens_are_those_of_whole_recomputation),
         cmocka_unit_test(one_prompt_is_read_once), cmocka_unit_test(urgent_texts_pass_others),
         cmocka_unit_test(urgent_prompts_pass_others), cmocka_unit_test(pieces_go_on_between_steps),
         cmocka_unit_test(a_step_that_fails_says_why),
         cmocka_unit_test(a_piece_outlives_a_step_that_fails),
         cmocka_unit_test(draws_are_those_of_sorting))
