/* How right are steps that profiles of other nets predict? Some nets teach and others are held out,
 * under each quota of processor time; what is predicted of those stands beside what they took. Then
 * which quota, each a type of device with a price of its own, trains each net for the least money:
 * the chosen one, always the cheapest by the hour and always the largest, beside the best.
 *
 * Where others use the processors meanwhile, a step gets less of them than its quota allows, and
 * its time tells about them; the same comparison in processor time tells about the model alone. */
#include "bench/train/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cost/step/profile.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "store/world_file.h"
#include "train/pipe/profile.h"

#define DIGITS "{format: synthetic, generator: digits, count: 600}"
#define WORDS  "{format: synthetic, generator: grammar, count: 400}"

typedef struct net {
    const char *name, *model, *data;
    int batch;
    bool quick, held;
} net;

static const net nets[] = {
    {"mlp512", "{zoo: mlp, hidden: [512, 256]}", DIGITS, 64, true, false},
    {"mlp1024", "{zoo: mlp, hidden: [1024, 512]}", DIGITS, 32, true, false},
    {"lenet16", "{zoo: lenet, width: 16}", DIGITS, 32, true, false},
    {"lenet8", "{zoo: lenet, width: 8}", DIGITS, 64, true, false},
    {"resnet18", "{zoo: resnet18, width: 8}", DIGITS, 8, true, false},
    {"gpt2x32", "{zoo: gpt, layers: 2, heads: 2, width: 32}", WORDS, 4, true, false},
    {"resnet12w", "{zoo: resnet18, width: 12}", DIGITS, 4, false, false},
    {"lstm32", "{zoo: lstm, width: 32}", WORDS, 8, false, false},
    {"mlp768", "{zoo: mlp, hidden: [768, 384]}", DIGITS, 48, true, true},
    {"lenet12", "{zoo: lenet, width: 12}", DIGITS, 48, true, true},
    {"gpt1x48", "{zoo: gpt, layers: 1, heads: 2, width: 48}", WORDS, 6, true, true},
    {"resnet34", "{zoo: resnet34, width: 8}", DIGITS, 8, false, true},
    {"lstm48", "{zoo: lstm, width: 48}", WORDS, 6, false, true},
    {"lenet16b96", "{zoo: lenet, width: 16}", DIGITS, 96, false, true},
};

/* Prices do not follow speeds. */
static const struct {
    const char *type;
    double usd_per_h;
} prices[] = {
    {"cpu25", 0.012}, {"cpu50", 0.018}, {"cpu100", 0.030}, {"cpu150", 0.055}, {"cpu200", 0.080}};
enum { NETS = RU_ARRAY_LEN(nets), TYPES = RU_ARRAY_LEN(prices) };

static bool wants(const ru_bench *b, const net *n)
{
    return n->quick || !b->quick;
}

/* rubato profile NETS --quota ... --out FILE */
static ru_status profile(const ru_bench *b, bool held, ru_world *out, ru_err *err)
{
    const char *argv[NETS + 16];
    uint32_t n = 0;
    const char *file = ru_path_join(b->arena, b->dir, held ? "held.json" : "devices.json");
    argv[n++] = ru_bench_rubato(b->arena);
    argv[n++] = "profile";
    for (uint32_t k = 0; k < NETS; k++) {
        if (nets[k].held != held || !wants(b, &nets[k])) {
            continue;
        }
        const char *text =
            ru_arena_printf(b->arena,
                            "name: %s\nmodel: %s\ndata: %s\n"
                            "train: {batch: %d, autotune: false}\n",
                            nets[k].name, nets[k].model, nets[k].data, nets[k].batch);
        const char *path = ru_arena_printf(b->arena, "%s/%s.yaml", b->dir, nets[k].name);
        if (text == NULL || path == NULL || file == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "no memory for jobs");
        }
        RU_TRY(ru_file_replace(path, text, (int64_t)strlen(text), err));
        argv[n++] = path;
    }
    const char *const last[] = {"--quota", b->quick ? "50,100,200" : "25,50,100,150,200",
                                "--out",   file,
                                "--least", b->quick ? "300ms" : "1s",
                                NULL};
    memcpy(argv + n, last, sizeof last);
    ru_process *p;
    const ru_process_options po = {.argv = argv};
    RU_TRY(ru_process_start(&po, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? ru_world_file_load(file, b->arena, out, err)
                     : RU_FAIL(err, RU_E_PEER, "rubato profile ended with code %d", code);
}

/* The steps in processor time: each by what it got of the processors. Ops stand without stops. */
static ru_status in_processor_time(ru_world *w, ru_arena *arena, ru_err *err)
{
    ru_step_fact *steps = RU_NEW(arena, ru_step_fact, w->facts.steps.n + 1);
    if (steps == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for facts");
    }
    memcpy(steps, w->facts.steps.at, w->facts.steps.n * sizeof *steps);
    for (uint32_t i = 0; i < w->facts.steps.n; i++) {
        for (uint32_t k = 0; k < w->facts.processors.n; k++) {
            const ru_processor_fact *p = &w->facts.processors.at[k];
            steps[i].compute_ns *= steps[i].rank == p->rank ? p->compute_ns / p->took.mean_ns : 1;
        }
    }
    w->facts.steps.at = steps;
    ru_processor_fact *p = RU_NEW(arena, ru_processor_fact, w->facts.processors.n + 1);
    for (uint32_t k = 0; k < w->facts.processors.n && p != NULL; k++) {
        p[k] = w->facts.processors.at[k];
        p[k].compute_ns = 0; /* done: nothing is left of others */
    }
    w->facts.processors.at = p;
    return p != NULL ? RU_OK : RU_FAIL(err, RU_E_LIMIT, "no memory for facts");
}

static ru_status figure(ru_bench *b, const char *name, const char *unit, double *x, uint32_t n,
                        double goal, const char *peer, ru_bench_stat theirs, ru_err *err)
{
    const ru_bench_row row = {.name = ru_arena_str(b->arena, name),
                              .unit = unit,
                              .lower = true,
                              .goal = goal,
                              .peer = peer,
                              .theirs = theirs,
                              .ours = ru_bench_stat_of(x, n)};
    return ru_bench_add(b, &row, err);
}

typedef struct held {
    double predicted[NETS][TYPES], measured[NETS][TYPES]; /* ns; 0: none */
    double got[NETS][TYPES]; /* of the processor time that it could have got */
} held;

static uint32_t net_named(const char *name)
{
    uint32_t k = 0;
    while (k < NETS && strcmp(nets[k].name, name) != 0) {
        k++;
    }
    return k;
}

/* What a profile got of the processor time that it could have got: at most 1. */
static double got_of(const ru_facts *f, uint32_t rank)
{
    double could, got = ru_cost_profile_share(ru_cost_profile_processor(f, rank), &could);
    return got > 0 ? fmin(got / could, 1) : 1;
}

static ru_status predict(const ru_bench *b, const ru_world *taught, const ru_world *w, held *h,
                         ru_err *err)
{
    memset(h, 0, sizeof *h);
    for (uint32_t t = 0; t < TYPES; t++) {
        ru_profile_model m;
        ru_arena scratch;
        ru_arena_init(&scratch, 0);
        ru_status st = ru_cost_profile(&taught->facts, prices[t].type, b->arena, &scratch, &m, err);
        ru_arena_fini(&scratch);
        if (st == RU_E_INFEASIBLE) {
            continue;
        }
        RU_TRY(st);
        for (uint32_t i = 0; i < w->facts.ops.n;) {
            const ru_op_fact *op = &w->facts.ops.at[i];
            const ru_step_fact *s = ru_cost_profile_of(&w->facts, op->rank);
            uint32_t n = 0, k = s != NULL ? net_named(s->job) : NETS;
            while (i + n < w->facts.ops.n && w->facts.ops.at[i + n].rank == op->rank) {
                n++;
            }
            i += n;
            if (k < NETS && strcmp(op->device_type, prices[t].type) == 0) {
                h->predicted[k][t] = ru_cost_profile_step(&m, op, n).ns;
                h->measured[k][t] = s->compute_ns;
                h->got[k][t] = got_of(&w->facts, op->rank);
            }
        }
    }
    return RU_OK;
}

/* `only_alone`: those that were beside other programs are shown and not judged. */
static ru_status errors(ru_bench *b, const held *h, const char *what, bool only_alone, ru_err *err)
{
    double all[NETS * TYPES], worst = 0, sum = 0;
    uint32_t n = 0;
    char name[96];
    for (uint32_t k = 0; k < NETS; k++) {
        for (uint32_t t = 0; t < TYPES; t++) {
            double is = h->measured[k][t], off;
            if (!(is > 0)) {
                continue;
            }
            off = 100 * fabs(h->predicted[k][t] / is - 1);
            fprintf(stderr,
                    "%-12s %-8s %-16s predicted %8.3f ms, measured %8.3f ms, off %5.1f %%\n",
                    nets[k].name, prices[t].type, what, 1e-6 * h->predicted[k][t], 1e-6 * is, off);
            if (only_alone && h->got[k][t] < 0.9) {
                continue;
            }
            all[n++] = off;
            worst = fmax(worst, off);
            sum += off;
        }
    }
    if (n == 0) {
        fputs("no held-out profile had the processors for itself\n", stderr);
        return RU_OK;
    }
    double mean = sum / n;
    const ru_bench_stat none = {0};
    snprintf(name, sizeof name, "%s: error, mean of %u", what, n);
    RU_TRY(figure(b, name, "%", &mean, 1, 5, NULL, none, err));
    snprintf(name, sizeof name, "%s: error, worst", what);
    RU_TRY(figure(b, name, "%", &worst, 1, 12, NULL, none, err));
    snprintf(name, sizeof name, "%s: error, median", what);
    return figure(b, name, "%", all, n, 0, NULL, none, err);
}

static double alone(const held *h, uint32_t k, uint32_t t)
{
    return h->measured[k][t] * h->got[k][t];
}

/* Money of a step on each type over that on the best one, by what was measured: a step beside other
 * programs counts as with the processor time that it could have got. */
static ru_status choices(ru_bench *b, const held *h, ru_err *err)
{
    double ours[NETS], cheapest[NETS], largest[NETS], close = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < NETS; k++) {
        uint32_t chosen = TYPES, best = TYPES, first = TYPES, last = TYPES;
        for (uint32_t t = 0; t < TYPES; t++) {
            double usd = prices[t].usd_per_h;
            if (!(h->measured[k][t] > 0)) {
                continue;
            }
            first = first == TYPES ? t : first;
            last = t;
            chosen = chosen == TYPES || h->predicted[k][t] * usd <
                                            h->predicted[k][chosen] * prices[chosen].usd_per_h
                         ? t
                         : chosen;
            best =
                best == TYPES || alone(h, k, t) * usd < alone(h, k, best) * prices[best].usd_per_h
                    ? t
                    : best;
        }
        if (best == TYPES) {
            continue;
        }
        double least = alone(h, k, best) * prices[best].usd_per_h;
        ours[n] = alone(h, k, chosen) * prices[chosen].usd_per_h / least;
        cheapest[n] = alone(h, k, first) * prices[first].usd_per_h / least;
        largest[n] = alone(h, k, last) * prices[last].usd_per_h / least;
        close += ours[n++] <= 1.03 ? 1 : 0;
    }
    fprintf(stderr, "the chosen type is within 3 %% of the best for %.0f of %u nets\n", close, n);
    RU_TRY(figure(b, "money over the best, chosen", "times", ours, n, 1, "always cheapest",
                  ru_bench_stat_of(cheapest, n), err));
    return figure(b, "money over the best, chosen", "times", ours, n, 1, "always largest",
                  ru_bench_stat_of(largest, n), err);
}

ru_status ru_bench_device(ru_bench *b, ru_err *err)
{
    ru_world taught, w;
    held h;
    RU_TRY(profile(b, false, &taught, err));
    RU_TRY(profile(b, true, &w, err));
    RU_TRY(predict(b, &taught, &w, &h, err));
    RU_TRY(errors(b, &h, "step", true, err));
    RU_TRY(choices(b, &h, err));
    RU_TRY(in_processor_time(&taught, b->arena, err));
    RU_TRY(in_processor_time(&w, b->arena, err));
    RU_TRY(predict(b, &taught, &w, &h, err));
    return errors(b, &h, "processor time", false, err);
}
