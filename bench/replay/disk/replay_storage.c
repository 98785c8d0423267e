/* Temporary files of published job traces on SSD and HDD: the first half of a day is history, the
 * second is placed. Saving in percent of what all files on HDD cost, for five quotas of the peak,
 * with and without the number of readers. The days without paths are held out: nothing was chosen
 * by them. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "bench/replay/replay_input.h"
#include "env/clock.h"
#include "plan/disk/storage.h"
#include "solve/solver.h"

enum { METHODS = 10, QUOTAS = 5 };

static const char *const methods[METHODS] = {"trees",     "history",  "first-fit", "cachesack",
                                             "lifetime",  "category", "hash",      "true-class",
                                             "hindsight", "greedy"};
static const double quotas[QUOTAS] = {0.01, 0.05, 0.1, 0.2, 0.5};

/* What a prototype measured on the first trace: first fit behind a plain sign model, without and
 * with readers. */
static const double prototype[2][QUOTAS] = {{6.2, 6.9, 5.6, 4.0, 0.9}, {7.6, 10.2, 9.1, 8.1, 5.8}};

typedef struct trace {
    const char *file, *name;
    bool paths; /* the one with acceptance figures */
} trace;

static ru_status play(ru_replay *r, rui_replay_input *g, uint32_t method, ru_storage_plan *p,
                      ru_err *err)
{
    rui_replay_set_u32(g, "method", method);
    const ru_policy_tools tools = {r->arena, r->arena, &ru_solver_library};
    RU_TRY(ru_policy_storage.plan(g->u.in, &tools, p, err));
    return ru_policy_storage.check(g->u.in, p, r->arena, err);
}

static double percent(const ru_storage_plan *p)
{
    return 100 * p->saving_usd / p->hdd_usd;
}

/* All bytes that live at one time, with every file on SSD. */
static ru_status peak_of(ru_replay *r, rui_replay_input *g, double *peak, ru_err *err)
{
    ru_storage_plan p;
    rui_replay_set_i64(g, "quota", (int64_t)1e18);
    double from_s = rui_replay_f64(g, "from_s");
    rui_replay_set_f64(g, "from_s", 0);
    RU_TRY(play(r, g, RU_STORAGE_FIRST_FIT, &p, err));
    rui_replay_set_f64(g, "from_s", from_s);
    *peak = p.peak_bytes;
    return RU_OK;
}

static ru_status one(ru_replay *r, rui_replay_input *g, const trace *t, uint32_t q, bool told,
                     double peak, ru_err *err)
{
    double saved[METHODS], most;
    ru_replay_row row = ru_replay_row_of("", "saved_percent", false);
    char name[96], note[96];
    ru_text text = ru_text_into(name, sizeof name), why = ru_text_into(note, sizeof note);
    ru_text_putf(&text, "%s, quota %g %%, readers %s", t->name, 100 * quotas[q],
                 told ? "told" : "hidden");
    row.name = name;
    rui_replay_set_i64(g, "quota", (int64_t)(quotas[q] * peak));
    rui_replay_set_u32(g, "readers", told ? 0 : 1);
    ru_arena_mark begun = ru_arena_mark_get(r->arena);
    RU_TRY(ru_storage_policy_bound(g->u.in, r->arena, &most, err));
    ru_arena_rewind(r->arena, begun);
    double hdd = 1;
    for (uint32_t m = 0; m < METHODS; m++) {
        ru_arena_mark mark = ru_arena_mark_get(r->arena);
        ru_storage_plan p;
        ru_status st = play(r, g, m, &p, err);
        saved[m] = st == RU_OK ? percent(&p) : RU_NAN;
        hdd = st == RU_OK ? p.hdd_usd : hdd;
        if (st != RU_OK && st != RU_E_UNSUPPORTED) {
            return st;
        }
        if (m == RU_STORAGE_TREES && st == RU_OK) {
            ru_text_putf(&why, "%u of %u on SSD, %u grow beyond their limit", p.admitted, p.n,
                         p.demoted);
        }
        ru_arena_rewind(r->arena, mark);
        if (m > RU_STORAGE_TREES) {
            ru_replay_baseline(r, &row, methods[m], saved[m]);
        }
    }
    row.ours = saved[RU_STORAGE_TREES];
    row.bound = 100 * most / hdd;
    row.note = note;
    row.goal = 0;
    if (t->paths) {
        double fit = saved[RU_STORAGE_FIRST_FIT];
        row.published = prototype[told ? 1 : 0][q];
        bool five = q == 1, ten = q == 2;
        row.goal = five ? (told ? fmax(10.2, 1.7 * fit) : 6.9) : ten ? (told ? 3.0 : 1.9) * fit : 0;
    }
    RU_TRY(ru_replay_add(r, &row, err));
    if (!t->paths || !told || q != 2) {
        return RU_OK;
    }
    ru_replay_row part = ru_replay_row_of(name, "part_of_greedy", false);
    part.ours = row.ours / saved[RU_STORAGE_GREEDY];
    part.bound = row.bound / saved[RU_STORAGE_GREEDY];
    part.goal = 0.9;
    part.note = "asked for beyond what is required";
    ru_replay_baseline(r, &part, "hindsight",
                       saved[RU_STORAGE_HINDSIGHT] / saved[RU_STORAGE_GREEDY]);
    return ru_replay_add(r, &part, err);
}

enum { GROUPS = 100 };

static ru_density_file *drawn(ru_replay *r, uint32_t n)
{
    ru_density_file *files = RU_NEW(r->arena, ru_density_file, n);
    ru_rng rng = ru_rng_from(1, 1);
    for (uint32_t i = 0; i < n && files != NULL; i++) {
        double size = ru_math_exp(ru_rng_uniform(&rng, 14, 28));
        files[i] = (ru_density_file){.open_s = 20.0 * i,
                                     .group = ru_rng_below(&rng, GROUPS),
                                     .input_bytes = size * ru_rng_uniform(&rng, 1, 10),
                                     .writers = 1.0 + ru_rng_below(&rng, 1000),
                                     .readers = 1.0 + ru_rng_below(&rng, 100),
                                     .size_bytes = size,
                                     .life_s = 600,
                                     .ops = size / 1e6 + ru_rng_below(&rng, 100000)};
    }
    return files;
}

/* How long an opening takes, with a full history: traits, then forests. */
static ru_status timed(ru_replay *r, ru_err *err)
{
    enum { FILES = RU_DENSITY_RECENT };
    ru_density_file *files = drawn(r, FILES);
    if (files == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %d files", FILES);
    }
    ru_density_model m;
    ru_density_history h;
    RU_TRY(ru_density_train(files, FILES, GROUPS, &ru_density_list, &ru_solver_library, 1, r->arena,
                            &m, err));
    RU_TRY(ru_density_history_init(&h, &ru_density_list, GROUPS, r->arena, err));
    for (uint32_t i = 0; i < FILES; i++) {
        ru_density_learn(&h, &files[i]);
    }
    double saved = 0;
    int64_t start = ru_clock_cpu_ns();
    for (uint32_t i = 0; i < FILES; i++) {
        float x[RU_DENSITY_TRAITS];
        ru_density_traits(&h, &files[i], x);
        saved += ru_density_ask(&m, x, 0, 1e18).saving_usd;
    }
    ru_replay_row row = ru_replay_row_of("a decision, 4000 files of history", "decision_us", true);
    row.timed = true;
    row.ours = (double)(ru_clock_cpu_ns() - start) * 1e-3 / FILES;
    row.goal = 100;
    row.note = saved > 0 ? NULL : "nothing was admitted";
    return ru_replay_add(r, &row, err);
}

/* A plan with its training: half of the files are history. */
static ru_status growth(ru_replay *r, uint32_t n, ru_err *err)
{
    ru_arena_mark mark = ru_arena_mark_get(r->arena);
    const ru_storage_in in = {.files = drawn(r, n),
                              .n = n,
                              .n_groups = GROUPS,
                              .from_s = 10.0 * n,
                              .quota_bytes = 1e12,
                              .prices = ru_density_list,
                              .stake = 0.25,
                              .solver = &ru_solver_library,
                              .seed = 1};
    ru_storage_plan p;
    if (in.files == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    int64_t start = ru_clock_cpu_ns();
    RU_TRY(ru_plan_storage(&in, r->arena, r->arena, &p, err));
    double took = (double)(ru_clock_cpu_ns() - start) * 1e-9;
    ru_arena_rewind(r->arena, mark);
    char name[64];
    ru_text t = ru_text_into(name, sizeof name);
    ru_text_putf(&t, "%u files, training included", n);
    ru_replay_row row = ru_replay_row_of(name, "plan_s", true);
    row.timed = true;
    row.ours = took;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_storage(ru_replay *r, ru_err *err)
{
    static const trace traces[] = {
        {"FB-2010_samples_24_times_1hr_withInputPaths_0.tsv.gz", "FB-2010", true},
        {"FB-2009_samples_24_times_1hr_0.tsv.gz", "FB-2009 day 0", false},
        {"FB-2009_samples_24_times_1hr_1.tsv.gz", "FB-2009 day 1", false},
    };
    for (uint32_t k = 0; k < (r->quick ? 1 : RU_ARRAY_LEN(traces)); k++) {
        const trace *t = &traces[k];
        const char *path = ru_replay_data(r, ru_arena_printf(r->arena, "io-traces-fb/%s", t->file));
        if (path == NULL) {
            return RU_FAIL(err, RU_E_MISSING, "a file of the published data is missing");
        }
        rui_replay_input g;
        double peak;
        RU_TRY(rui_replay_load(r, &ru_policy_storage, path, t->name, &g, err));
        RU_TRY(peak_of(r, &g, &peak, err));
        for (uint32_t told = 0; told < 2; told++) {
            for (uint32_t q = 0; q < QUOTAS; q++) {
                if (!ru_replay_have(r, "%s, quota %g, told %u", t->name, quotas[q], told)) {
                    RU_TRY(one(r, &g, t, q, told == 1, peak, err));
                    RU_TRY(ru_replay_keep(r, err));
                }
            }
        }
    }
    if (!ru_solver_has_trees()) {
        return RU_OK; /* the rows above say it */
    }
    RU_TRY(timed(r, err));
    RU_TRY(growth(r, 8000, err));
    return growth(r, 80000, err);
}
