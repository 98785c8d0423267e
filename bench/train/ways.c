/* Which way wins: jobs on clusters of the network laboratory, each worker with 40 % of a core on a
 * host of its own behind a link of 100 Mbit/s or 1 Gbit/s.
 *
 * `rubato profile` measures each net under that quota, with the whole batch and with the shares of
 * data-parallel workers. By these facts the functions behind `rubato plan JOB --cluster` and
 * `train.parallel: auto` (train/pipe/ways.h) list the ways that the job may take, and choose. A
 * round then trains the job in each of them, in turns:
 *
 *   data     the batch is divided among all workers, sums overlap computing
 *   flush    a pipeline with the cut of the plan, 1F1B
 *   placed   layers where the plan has them, if it uses all workers
 *
 * The figure of a way is the median of its steps in all rounds but the first ones of each. What the
 * choice loses is how much longer its step takes than that of the fastest way, by these figures: a
 * second run of the same way would add the noise between two runs, which nobody chooses.
 *
 * Where a pipeline with one worker a stage wins, `rubato explain RUN pipe --if` is asked how long
 * its step would take with links of half the rate, and with the first worker at half its speed, and
 * the job runs once so: with half the quota for want of a slower processor.
 *
 * Nets are such as users have: many weights behind small activations, few weights and much
 * computing, towers that meet at the end. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/lab_run.h"
#include "bench/train/pipe.h"
#include "bench/train/placed.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "train/pipe/ways.h"
#include "train/worker/worker_pipe.h"

enum { ROUNDS = 3, ROUNDS_QUICK = 2, COUNTED_MAX = 200, STEPS_MAX = 256, WORKERS_MAX = 4 };

#define QUOTA   "40"
#define HALF    "20"
#define TYPE    "cpu" QUOTA
#define PAYLOAD 0.956 /* of a link's rate */
#define NEAR    5.0   /* percent: as good as the fastest */

#define DIGITS "{format: idx, train: [@digits/train-images, @digits/train-labels]}"
#define NOISE  "{format: npy, train: [@noise/train-x.npy, @noise/train-y.npy]}"
#define TEXT   "{format: tokens, train: [@text/train.txt], token_bytes: 1, context: 64}"
#define RESNET "{zoo: resnet18, width: 8, classes: 10}"
#define GPT    "{zoo: gpt, layers: 2, heads: 4, width: 64, context: 64, vocab: 256, tie: false}"

/* A share of the batch is a multiple of `micro`, too, so that profiles have the shapes of it. */
static const struct net {
    const char *name, *model, *data;
    int batch, micro;
    uint32_t towers; /* in place of `model` */
} nets[] = {
    {"mlp", "{zoo: mlp, hidden: [512, 512, 512]}", DIGITS, 128, 4, 0},
    {"small-mlp", "{zoo: mlp, hidden: [32]}", DIGITS, 768, 4, 0},
    {"lenet", "{zoo: lenet}", DIGITS, 96, 4, 0},
    {"resnet18", RESNET, NOISE, 32, 4, 0},
    {"resnet18-128", RESNET, NOISE, 128, 4, 0},
    {"gpt", GPT, TEXT, 24, 4, 0},
    {"towers2", NULL, NOISE, 96, 2, 2},
    {"towers3", NULL, NOISE, 96, 2, 3},
    {"towers4", NULL, NOISE, 96, 2, 4},
};

static const struct pair {
    const char *net;
    uint32_t workers;
    bool fast; /* 1 Gbit/s; else 100 Mbit/s */
} pairs[] = {
    {"mlp", 2, false},      {"mlp", 2, true},        {"mlp", 4, true},
    {"small-mlp", 2, true}, {"small-mlp", 3, false}, {"lenet", 2, true},
    {"lenet", 3, false},    {"lenet", 4, true},      {"resnet18", 2, false},
    {"resnet18", 4, true},  {"lenet", 2, false},     {"resnet18-128", 4, true},
    {"gpt", 2, false},      {"gpt", 2, true},        {"gpt", 3, false},
    {"towers2", 2, false},  {"towers2", 2, true},    {"towers3", 3, false},
    {"towers4", 4, false},  {"towers4", 4, true},
};

/* What `--if` is asked, and how the job runs then. */
static const struct question {
    const char *text, *quota; /* of the first worker */
    bool half;                /* of the rate of the links */
} questions[] = {{"network=x0.5", QUOTA, true}, {"worker1=x0.5", HALF, false}};

/* A way of a pair. */
typedef struct side {
    ru_way_kind kind;
    bool straight;            /* a pipeline with one worker a stage */
    const char *keys, *where; /* of the section train; for people */
    double predicted_s;
    double rounds_s[ROUNDS]; /* medians */
    double steps_s[ROUNDS * STEPS_MAX];
    uint32_t n_steps; /* 0: it did not run */
    double step_s;
} side;

typedef struct found {
    side sides[RU_WAY_KINDS]; /* [n] */
    uint32_t n, chosen;       /* chosen: one of them */
} found;

typedef struct bench_ways {
    ru_lab_run lab;
    uint32_t n, near, wins[RU_WAY_KINDS]; /* pairs with a figure of what was chosen */
    double worst, worst_data;             /* percent; worst_data: where data parallel wins */
    double errors[RU_ARRAY_LEN(pairs) * RU_WAY_KINDS]; /* [n_errors] percent */
    uint32_t n_errors, failed;
    double off[RU_ARRAY_LEN(questions)][RU_ARRAY_LEN(pairs)]; /* [n_off] percent */
    uint32_t n_off[RU_ARRAY_LEN(questions)];
    const char *last; /* pair that failed */
} bench_ways;

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the words of the benchmark");
}

static const struct net *net_of(const struct pair *p)
{
    uint32_t k = 0;
    while (k + 1 < RU_ARRAY_LEN(nets) && strcmp(nets[k].name, p->net) != 0) {
        k++;
    }
    RU_CHECK(strcmp(nets[k].name, p->net) == 0);
    return &nets[k];
}

static const char *name_of(const struct pair *p, const char *what, ru_arena *a)
{
    const char *rate = p->fast ? "1 Gbit/s" : "100 Mbit/s";
    const char *name = ru_arena_printf(a, "%s, %u workers, %s: %s", p->net, p->workers, rate, what);
    return name != NULL ? name : "";
}

static bool wanted(const ru_bench *b, const struct pair *p)
{
    return ru_bench_wants(b, name_of(p, "loss of the choice", b->arena));
}

/* -- facts ----------------------------------------------------------------------------------- */

static ru_status put_job(const bench_ways *t, const struct net *n, const char *file, int batch,
                         uint32_t steps, const char *more, const char **yaml, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *model =
        n->towers == 0 ? n->model : ru_arena_printf(a, "{onnx: %s/%s.onnx}", t->lab.dir, n->name);
    const char *train =
        ru_arena_printf(a, "batch: %d, accumulate: %d, steps: %u%s", batch, n->micro, steps, more);
    return model == NULL || train == NULL
               ? full(err)
               : ru_lab_run_job(&t->lab, file, model, n->data, train, yaml, err);
}

/* Is there a wanted pair of the net with so many workers? */
static bool has(const ru_bench *b, const struct net *n, uint32_t workers)
{
    bool is = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(pairs); k++) {
        const struct pair *p = &pairs[k];
        is = is || (net_of(p) == n && p->workers == workers && wanted(b, p));
    }
    return is;
}

/* Of the whole batch, whose micro-batches are those of stages, and of the shares. */
static ru_status profile(const bench_ways *t, const struct net *n, const char **facts, ru_err *err)
{
    ru_arena *a = t->lab.b->arena;
    const char *model = ru_arena_printf(a, "%s/%s.onnx", t->lab.dir, n->name);
    *facts = ru_arena_printf(a, "%s/%s-facts.json", t->lab.dir, n->name);
    const char *argv[32] = {t->lab.script, "cpu", t->lab.lab, "1",  QUOTA,       t->lab.self,
                            "profile",     "-q",  "--type",   TYPE, "--threads", "1",
                            "--steps",     "5",   "--least",  "1s", "--out",     *facts};
    uint32_t words = 18;
    if (model == NULL || *facts == NULL) {
        return full(err);
    }
    RU_TRY(n->towers > 0 ? rui_placed_towers(n->towers, model, a, err) : RU_OK);
    RU_TRY(put_job(t, n, n->name, n->batch, 1, "", &argv[words++], err));
    for (uint32_t w = 2; w <= WORKERS_MAX; w++) {
        const char *file = ru_arena_printf(a, "%s-of-%u", n->name, w);
        if (file == NULL) {
            return full(err);
        }
        if (has(t->lab.b, n, w)) {
            RU_TRY(put_job(t, n, file, n->batch / (int)w, 1, "", &argv[words++], err));
        }
    }
    RU_TRY(ru_lab_run_up(&t->lab, 1, NULL, err));
    ru_status st = ru_lab_run_command(&t->lab, argv, NULL, err);
    ru_lab_run_down(&t->lab);
    return st;
}

/* -- ways ------------------------------------------------------------------------------------ */

static void put_placed(const ru_units_choice *c, ru_text *t)
{
    ru_text_put(t, ", parallel: placed, placed: {devices: {");
    for (uint32_t k = 0; k < c->devices.n; k++) {
        const ru_conf_pair *x = &c->devices.at[k];
        ru_text_putf(t, "%s%s: %.0f", k > 0 ? ", " : "", x->key, x->value);
    }
    ru_text_put(t, "}, back: [");
    for (uint32_t k = 0; k < c->back.n; k++) {
        ru_text_putf(t, "%s%s", k > 0 ? ", " : "", c->back.at[k]);
    }
    ru_text_put(t, "]}");
}

static void put_cut(const ru_pipe_choice *c, bool several, ru_text *t)
{
    ru_text_put(t, "cut: [");
    for (uint32_t k = 0; k < c->n_cut; k++) {
        ru_text_putf(t, "%s%s", k > 0 ? ", " : "", c->cut[k]);
    }
    ru_text_put(t, "]");
    for (uint32_t k = 0; k <= c->n_cut && several; k++) {
        ru_text_putf(t, "%s%lld", k > 0 ? ", " : ", workers: [", (long long)c->workers[k]);
    }
    ru_text_put(t, several ? "]" : "");
}

/* What the job may take, and which of it `auto` takes. */
static ru_status keep(const ru_way *at, uint32_t n, ru_arena *a, found *f, ru_err *err)
{
    const ru_way *best = ru_ways_best(at, n, false);
    for (uint32_t k = 0; k < n; k++) {
        const ru_way *w = &at[k];
        ru_text keys = ru_text_arena(a), where = ru_text_arena(a);
        if (!w->same || !w->fits) {
            continue;
        }
        if (w->kind == RU_WAY_PLACED) {
            put_placed(&w->placed, &keys);
        } else if (w->c.n_cut > 0) {
            put_cut(&w->c, w->c.n_cut + 1 < w->workers, &where);
            ru_text_putf(&keys, ", parallel: pipeline, pipeline: {%s}", where.p);
        }
        if (keys.cut || where.cut) {
            return full(err);
        }
        f->chosen = w == best ? f->n : f->chosen;
        side *s = &f->sides[f->n++];
        s->kind = w->kind;
        s->straight = w->c.n_cut > 0 && w->c.n_cut + 1 == w->workers;
        s->keys = keys.n > 0 ? keys.p : "";
        s->where = where.n > 0 ? where.p : "";
        s->predicted_s = w->step_s;
    }
    return best != NULL ? RU_OK : RU_FAIL(err, RU_E_INFEASIBLE, "no way fits into memory");
}

static ru_status ask(const bench_ways *t, const struct pair *p, const char *facts, found *f,
                     ru_err *err)
{
    const struct net *n = net_of(p);
    double bytes_per_s = PAYLOAD * (p->fast ? 1e9 : 100e6) / 8;
    const char *yaml;
    ru_arena arena;
    ru_job job;
    ru_ways w;
    ru_way at[RU_WAY_KINDS];
    uint32_t n_ways = 0;
    RU_TRY(put_job(t, n, n->name, n->batch, 1, "", &yaml, err));
    ru_arena_init(&arena, 0);
    ru_status st = ru_job_load(yaml, NULL, 0, &arena, &job, NULL, err);
    if (st == RU_OK) {
        job.train.pipeline.facts = facts;
        job.train.pipeline.type = TYPE;
        st =
            ru_ways_open(&job, ru_pipe_job_against(&job), true, 1, &p->workers, 1, &arena, &w, err);
        st = st == RU_OK ? ru_ways_list(&w, p->workers, bytes_per_s, 0, at, &n_ways, err) : st;
        st = st == RU_OK ? keep(at, n_ways, t->lab.b->arena, f, err) : st;
        ru_ways_close(&w);
    }
    ru_arena_fini(&arena);
    return st;
}

/* -- runs ------------------------------------------------------------------------------------ */

/* Of links: whole, half; the buckets hold about 1 ms of it. */
static const char *const rates[][2] = {{"100mbit", "50mbit"}, {"1gbit", "500mbit"}};
static const char *const bursts[][2] = {{"16kb", "8kb"}, {"128kb", "64kb"}};

/* The folder of a run: of each way one, and one for what is asked. */
static const char *run_of(const bench_ways *t, const side *s, bool asked)
{
    const char *name = asked ? "asked" : ru_way_names[s->kind];
    return ru_arena_printf(t->lab.b->arena, "%s/run-%s", t->lab.dir, name);
}

/* Steps of some seconds, behind some that warm up. */
static uint32_t counted_of(const bench_ways *t, const side *s)
{
    double n = (t->lab.b->quick ? 2 : 5) / s->predicted_s;
    return n > COUNTED_MAX ? COUNTED_MAX : n < 2 ? 2 : (uint32_t)n;
}

/* Seconds [STEPS_MAX] of the steps behind those that warm up. `q`: as it asks; NULL: as the pair
 * is. */
static ru_status run_once(const bench_ways *t, const struct pair *p, const side *s,
                          const struct question *q, double *seconds, uint32_t *n, ru_err *err)
{
    const struct net *net = net_of(p);
    bool half = q != NULL && q->half;
    const char *const up[] = {"--rate", rates[p->fast][half], "--burst", bursts[p->fast][half],
                              NULL};
    const char *yaml, *out = run_of(t, s, q != NULL);
    uint32_t counted = counted_of(t, s), skipped = 1 + counted / 8;
    double all[STEPS_MAX];
    ru_lab_scene scene = {.workers = p->workers, .up = up};
    for (uint32_t k = 0; k < p->workers; k++) {
        scene.quota[k] = q != NULL && k == 0 ? q->quota : QUOTA;
    }
    RU_TRY(out == NULL ? full(err) : RU_OK);
    RU_TRY(put_job(t, net, net->name, net->batch, counted + skipped, s->keys, &yaml, err));
    RU_TRY(ru_lab_run_scene(&t->lab, &scene, yaml, out, NULL, err));
    RU_TRY(ru_lab_run_steps(&t->lab, out, all, STEPS_MAX, n, err));
    if (*n <= skipped) {
        return RU_FAIL(err, RU_E_PEER, "%s made %u steps only", ru_way_names[s->kind], *n);
    }
    *n -= skipped;
    memcpy(seconds, all + skipped, *n * sizeof *seconds);
    return RU_OK;
}

static ru_status run_side(const bench_ways *t, const struct pair *p, side *s, uint32_t round,
                          ru_err *err)
{
    double *seconds = s->steps_s + s->n_steps, sorted[STEPS_MAX];
    uint32_t n;
    RU_TRY(run_once(t, p, s, NULL, seconds, &n, err));
    memcpy(sorted, seconds, n * sizeof *seconds);
    s->n_steps += n;
    s->rounds_s[round] = ru_bench_stat_of(sorted, n).median;
    return RU_OK;
}

static void tell(const struct pair *p, const found *f, ru_arena *a)
{
    for (uint32_t k = 0; k < f->n; k++) {
        const side *s = &f->sides[k];
        fprintf(stderr, "%s: predicted %.1f ms%s%s%s\n", name_of(p, ru_way_names[s->kind], a),
                1e3 * s->predicted_s, s->where[0] != '\0' ? ", " : "", s->where,
                k == f->chosen ? ", chosen" : "");
    }
}

/* A way that does not run is told, and left out from then on. */
static void run_rounds(const bench_ways *t, const struct pair *p, found *f, uint32_t rounds)
{
    bool out[RU_WAY_KINDS] = {false};
    for (uint32_t k = 0; k < rounds; k++) {
        for (uint32_t i = 0; i < f->n; i++) {
            side *s = &f->sides[i];
            ru_err why = {0};
            if (!out[i] && run_side(t, p, s, k, &why) != RU_OK) {
                out[i] = true;
                s->n_steps = 0;
                fprintf(stderr, "%s did not run: %s\n",
                        name_of(p, ru_way_names[s->kind], t->lab.b->arena), why.text);
            }
        }
    }
}

/* -- what if --------------------------------------------------------------------------------- */

/* How many times as long a step would take. */
static ru_status times_of(const bench_ways *t, const char *run, const char *question, double *times,
                          ru_err *err)
{
    static const char before[] = "by the schedule, ";
    const char *argv[] = {t->lab.self, "explain", run, "pipe", "--if", question, NULL};
    const ru_process_options opt = {.argv = argv, .pipe_out = true};
    const char *line = "";
    ru_process *p = NULL;
    *times = 0;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_OK;
    while (st == RU_OK && line != NULL) {
        st = ru_process_line(p, 0, &line, err);
        const char *at = st == RU_OK && line != NULL && strncmp(line, "with --if: ", 11) == 0
                             ? strstr(line, before)
                             : NULL;
        *times = at != NULL ? strtod(at + strlen(before), NULL) : *times;
    }
    (void)ru_process_wait(p);
    ru_process_close(p);
    RU_TRY(st);
    return *times > 0 ? RU_OK
                      : RU_FAIL(err, RU_E_PEER, "%s --if %s: nothing predicted", run, question);
}

static ru_status add_question(bench_ways *t, const struct pair *p, const side *s, uint32_t which,
                              ru_err *err)
{
    const struct question *q = &questions[which];
    double times, seconds[STEPS_MAX];
    const char *run = run_of(t, s, false);
    uint32_t n;
    RU_TRY(run == NULL ? full(err) : RU_OK);
    RU_TRY(times_of(t, run, q->text, &times, err));
    RU_TRY(run_once(t, p, s, q, seconds, &n, err));
    double said = times * s->step_s, is = ru_bench_stat_of(seconds, n).median;
    double said_ms = 1e3 * said, is_ms = 1e3 * is;
    t->off[which][t->n_off[which]++] = 100 * fabs(said / is - 1);
    const ru_bench_row row = {.name = name_of(p, q->text, t->lab.b->arena),
                              .unit = "ms",
                              .lower = true,
                              .ours = ru_bench_stat_of(&said_ms, 1),
                              .theirs = ru_bench_stat_of(&is_ms, 1),
                              .peer = "measured"};
    return ru_bench_add(t->lab.b, &row, err);
}

/* -- rows ------------------------------------------------------------------------------------ */

static ru_status add_ways(bench_ways *t, const struct pair *p, found *f, uint32_t rounds,
                          ru_err *err)
{
    ru_bench *b = t->lab.b;
    for (uint32_t k = 0; k < f->n; k++) {
        side *s = &f->sides[k];
        double ms[ROUNDS];
        if (s->n_steps == 0) {
            continue;
        }
        s->step_s = ru_bench_stat_of(s->steps_s, s->n_steps).median;
        t->errors[t->n_errors++] = 100 * fabs(s->predicted_s / s->step_s - 1);
        for (uint32_t r = 0; r < rounds; r++) {
            ms[r] = 1e3 * s->rounds_s[r];
        }
        ru_bench_row row = {.name = name_of(p, ru_way_names[s->kind], b->arena),
                            .unit = "ms",
                            .lower = true,
                            .ours = ru_bench_stat_of(ms, rounds)};
        row.ours.median = 1e3 * s->step_s;
        RU_TRY(ru_bench_add(b, &row, err));
    }
    return RU_OK;
}

static ru_status add_pair(bench_ways *t, const struct pair *p, found *f, uint32_t rounds,
                          ru_err *err)
{
    const char *name = name_of(p, "loss of the choice", t->lab.b->arena);
    const side *best = NULL, *chosen = &f->sides[f->chosen];
    RU_TRY(add_ways(t, p, f, rounds, err));
    for (uint32_t k = 0; k < f->n; k++) {
        const side *s = &f->sides[k];
        best = s->n_steps > 0 && (best == NULL || s->step_s < best->step_s) ? s : best;
    }
    if (chosen->n_steps == 0) {
        t->failed++;
        t->last = name;
        return RU_OK;
    }
    double loss = 100 * (chosen->step_s / best->step_s - 1);
    t->n++;
    t->wins[best->kind]++;
    t->near += loss <= NEAR;
    t->worst = fmax(t->worst, loss);
    t->worst_data = best->kind == RU_WAY_DATA ? fmax(t->worst_data, loss) : t->worst_data;
    const ru_bench_row row = {
        .name = name, .unit = "%", .lower = true, .ours = ru_bench_stat_of(&loss, 1), .goal = 10};
    fprintf(stderr, "%s: the fastest is %s\n", name_of(p, "all ways", t->lab.b->arena),
            ru_way_names[best->kind]);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(questions) && best->straight; k++) {
        RU_TRY(add_question(t, p, best, k, err));
    }
    return ru_bench_add(t->lab.b, &row, err);
}

static ru_status add_one(const bench_ways *t, const char *name, const char *unit, bool lower,
                         double value, double goal, ru_err *err)
{
    const ru_bench_row row = {.name = name,
                              .unit = unit,
                              .lower = lower,
                              .ours = ru_bench_stat_of(&value, 1),
                              .goal = goal};
    return ru_bench_add(t->lab.b, &row, err);
}

/* Of the pairs that ran. */
static ru_status add_all(bench_ways *t, ru_err *err)
{
    const char *name;
    RU_TRY(add_one(t, "choices within 5 % of the fastest way", "pairs", false, t->near,
                   t->n > 1 ? t->n - 1.0 : 1, err));
    RU_TRY(add_one(t, "worst loss of a choice", "%", true, t->worst, 10, err));
    for (uint32_t k = 0; k < RU_WAY_KINDS; k++) {
        name = ru_arena_printf(t->lab.b->arena, "wins of %s", ru_way_names[k]);
        RU_TRY(name == NULL ? full(err) : RU_OK);
        RU_TRY(t->wins[k] > 0 ? add_one(t, name, "pairs", true, t->wins[k], t->n / 2, err) : RU_OK);
    }
    RU_TRY(t->wins[RU_WAY_DATA] > 0
               ? add_one(t, "worst loss where data parallel wins", "%", true, t->worst_data, 1, err)
               : RU_OK);
    for (uint32_t k = 0; k < RU_ARRAY_LEN(questions); k++) {
        const ru_bench_row off = {
            .name = ru_arena_printf(t->lab.b->arena, "--if %s, error", questions[k].text),
            .unit = "%",
            .lower = true,
            .ours = t->n_off[k] > 0 ? ru_bench_stat_of(t->off[k], t->n_off[k]) : (ru_bench_stat){0},
            .goal = 10};
        RU_TRY(off.name == NULL ? full(err) : RU_OK);
        RU_TRY(t->n_off[k] > 0 ? ru_bench_add(t->lab.b, &off, err) : RU_OK);
    }
    const ru_bench_row row = {.name = "predicted steps, median error",
                              .unit = "%",
                              .lower = true,
                              .ours = ru_bench_stat_of(t->errors, t->n_errors),
                              .goal = 5};
    return ru_bench_add(t->lab.b, &row, err);
}

static ru_status run_pair(bench_ways *t, const struct pair *p, const char *facts, ru_err *err)
{
    ru_arena arena;
    uint32_t rounds = t->lab.b->quick ? ROUNDS_QUICK : ROUNDS;
    ru_arena_init(&arena, 0);
    found *f = RU_NEW(&arena, found, 1);
    ru_status st = f != NULL ? ask(t, p, facts, f, err) : full(err);
    if (st == RU_OK) {
        tell(p, f, t->lab.b->arena);
        run_rounds(t, p, f, rounds);
        st = add_pair(t, p, f, rounds, err);
    }
    ru_arena_fini(&arena);
    return st;
}

ru_status ru_bench_ways(ru_bench *b, ru_err *err)
{
    bench_ways t = {0};
    const char *facts[RU_ARRAY_LEN(nets)] = {NULL};
    bool any = false;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(pairs); k++) {
        any = any || wanted(b, &pairs[k]);
    }
    if (!any) { /* the caller tells that there is no such row */
        return RU_OK;
    }
    RU_TRY(ru_lab_run_open(b, "ways", true, &t.lab, err));
    RU_TRY(ru_lab_run_inputs(&t.lab, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(pairs); k++) {
        const struct pair *p = &pairs[k];
        const char **of = &facts[net_of(p) - nets];
        if (wanted(b, p)) {
            RU_TRY(*of != NULL ? RU_OK : profile(&t, net_of(p), of, err));
            RU_TRY(run_pair(&t, p, *of, err));
        }
    }
    RU_TRY(t.n > 0 ? add_all(&t, err) : RU_OK);
    return t.failed == 0 ? RU_OK
                         : RU_FAIL(err, RU_E_PEER,
                                   "in %u pairs the chosen way did not run, the last of them is %s",
                                   t.failed, t.last);
}
