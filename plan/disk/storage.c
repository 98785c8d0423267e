/* Files on SSD or HDD, one opening after another. See storage.h. */
#include "plan/disk/storage.h"

#include <math.h>
#include <string.h>

#include "base/heap.h"
#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "plan/disk/storage_impl.h"

/* Before anything was saved, one file may lose a share of this part of what the history cost. */
#define FIRST_STAKE 1e-4

static bool within(double v, double low, double high)
{
    return v >= low && v <= high;
}

static ru_status check_in(const ru_storage_in *in, ru_err *err)
{
    if (in->n < 1 || in->n > RU_STORAGE_FILES_MAX || !(in->quota_bytes > 0) ||
        !within(in->quota_bytes, 0, 1e24)) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u files and a quota of %g bytes; expected 1 to %d files and a "
                       "quota of 0 or more",
                       in->n, in->quota_bytes, RU_STORAGE_FILES_MAX);
    }
    if (!(in->prices.hdd_bytes_per_s > 0) ||
        (in->method == RU_STORAGE_CACHESACK && !(in->window_s > 0)) ||
        ((in->method == RU_STORAGE_CATEGORY || in->method == RU_STORAGE_HASH ||
          in->method == RU_STORAGE_TRUE_CLASS) &&
         !(in->decide_s > 0)) ||
        (in->method == RU_STORAGE_TREES && !(in->stake >= 0))) {
        return RU_FAIL(err, RU_E_ARG,
                       "the disk is not valid: %g bytes/s, a decision every %g s, windows of %g s, "
                       "a stake of %g",
                       in->prices.hdd_bytes_per_s, in->decide_s, in->window_s, in->stake);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        if (!within(f->open_s, 0, 4e9) || (i > 0 && f->open_s < in->files[i - 1].open_s)) {
            return RU_FAIL(
                err, RU_E_ARG,
                "file %u is opened at %g s; expected 0 to 4e9 s, and files sorted by open_s", i,
                f->open_s);
        }
        if (f->group >= in->n_groups || !within(f->input_bytes, 0, 1e18) ||
            !within(f->writers, 0, 1e9) || !within(f->readers, 0, 1e9) ||
            !within(f->size_bytes, 1, 1e18) || !within(f->life_s, 0, 4e9) ||
            !within(f->ops, 0, 1e18)) {
            return RU_FAIL(err, RU_E_ARG,
                           "file %u is not valid: %g bytes for %g s with %g operations", i,
                           f->size_bytes, f->life_s, f->ops);
        }
    }
    return RU_OK;
}

/* The record of the group, else of jobs that read about as much; four times the size that they
 * say. */
static ru_storage_wish by_history(const ru_storage_live *p, const ru_density_file *f)
{
    const ru_density_group *g = &p->history.groups[f->group];
    float x[RU_DENSITY_TRAITS];
    if (g->n > 0) {
        return (ru_storage_wish){.limit_bytes = g->saving > 0 ? 4 * g->last_size : 0};
    }
    ru_density_traits(&p->history, f, x);
    bool most = x[20] > 0.5f; /* of the neighbours saved */
    return (ru_storage_wish){.limit_bytes = most ? 4 * ru_num_exp((double)x[22]) : 0};
}

/* What a byte on SSD loses if its file needs no operations on disk. */
static double byte_loss(const ru_density_prices *p)
{
    return p->wear_byte - 2 * p->hdd_io_s / p->hdd_bytes_per_s;
}

static ru_storage_wish by_trees(const ru_storage_live *p, const ru_density_file *f,
                                double expected_bytes, double room_bytes)
{
    float x[RU_DENSITY_TRAITS];
    double loss = byte_loss(&p->in->prices), most = room_bytes;
    if (loss > 0) {
        most = fmin(most, p->in->stake * fmax(0, p->saved_usd) / loss);
    }
    ru_density_traits(&p->history, f, x);
    ru_density_answer a = ru_density_ask(p->model, x, expected_bytes, most);
    return (ru_storage_wish){
        .limit_bytes = a.limit_bytes, .saving_usd = a.saving_usd, .learned = true};
}

ru_storage_wish ru_storage_live_open(ru_storage_live *p, const ru_density_file *f,
                                     double expected_bytes, double room_bytes)
{
    switch (p->in->method) {
    case RU_STORAGE_TREES:
        if (p->model != NULL) {
            return by_trees(p, f, expected_bytes, room_bytes);
        }
        break;
    case RU_STORAGE_HISTORY:
        return by_history(p, f);
    case RU_STORAGE_CACHESACK:
        return rui_storage_by_group(p, f);
    case RU_STORAGE_LIFETIME:
        return rui_storage_by_life(p, f);
    case RU_STORAGE_CATEGORY:
    case RU_STORAGE_HASH:
    case RU_STORAGE_TRUE_CLASS:
        return rui_storage_by_class(p, f);
    case RU_STORAGE_HINDSIGHT:
        return (ru_storage_wish){.limit_bytes = p->limit_bytes[f - p->in->files]};
    case RU_STORAGE_FIRST_FIT:
    case RU_STORAGE_GREEDY:
        break;
    }
    return (ru_storage_wish){.limit_bytes = 1e18};
}

void ru_storage_live_grown(ru_storage_live *p, const ru_density_file *f, bool wanted,
                           double ssd_bytes)
{
    rui_storage_spilled(p, f, wanted ? 1 - ssd_bytes / f->size_bytes : 1);
}

void ru_storage_live_ended(ru_storage_live *p, const ru_density_file *f, double ssd_bytes)
{
    double usd = ru_density_saving(&p->in->prices, f) * (ssd_bytes / f->size_bytes);
    p->saved_usd += usd;
    p->placed_usd += usd;
    ru_density_learn(&p->history, f);
    rui_storage_group_ended(p, f);
}

void ru_storage_live_train(ru_storage_live *p, const ru_storage_forests *to)
{
    p->model = to != NULL ? &to->model : NULL;
    p->saved_usd = (to != NULL ? to->credit_usd : 0) + p->placed_usd;
}

static void add(const ru_storage_in *in, ru_storage_plan *plan, uint32_t file, double limit,
                double ssd)
{
    const ru_density_file *f = &in->files[file];
    plan->places[plan->n++] = (ru_storage_place){file, limit, ssd};
    plan->admitted += ssd > 0 ? 1 : 0;
    plan->demoted += ssd > 0 && ssd < f->size_bytes ? 1 : 0;
    plan->hdd_usd += ru_density_hdd(&in->prices, f);
    plan->saving_usd += ru_density_saving(&in->prices, f) * (ssd / f->size_bytes);
}

static int64_t key_of(double s)
{
    return (int64_t)floor(s * 1e6);
}

static ru_status run(ru_storage_live *p, ru_storage_plan *plan, ru_err *err)
{
    const ru_storage_in *in = p->in;
    double *held = RU_NEW(p->scratch, double, in->n), used = 0;
    ru_heap_item *items = RU_NEW(p->scratch, ru_heap_item, in->n);
    if (held == NULL || items == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->n);
    }
    ru_heap open;
    ru_heap_init(&open, items, in->n);
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        ru_heap_item gone;
        const ru_heap_item *next;
        while ((next = ru_heap_peek(&open)) != NULL && next->key <= key_of(f->open_s)) {
            RU_CHECK(ru_heap_pop(&open, &gone));
            used -= held[gone.value];
            ru_storage_live_ended(p, &in->files[gone.value], held[gone.value]);
        }
        used = open.n == 0 ? 0 : used; /* no rounding is carried over an empty disk */
        if (f->open_s >= in->from_s) {
            double room = fmax(0, in->quota_bytes - used);
            ru_storage_wish w = ru_storage_live_open(p, f, 0, room);
            double want = fmin(f->size_bytes, w.limit_bytes);
            held[i] = want <= room ? want : w.partial ? room : 0;
            ru_storage_live_grown(p, f, want > 0, held[i]);
            used += held[i];
            plan->peak_bytes = fmax(plan->peak_bytes, used);
            add(in, plan, i, held[i] > 0 ? w.limit_bytes : 0, held[i]);
        }
        RU_CHECK(ru_heap_push(&open, key_of(f->open_s + f->life_s), i) == RU_OK);
    }
    return RU_OK;
}

ru_status ru_storage_live_begin(const ru_storage_in *in, ru_arena *arena, ru_storage_live **out,
                                ru_err *err)
{
    ru_storage_live *p = RU_NEW(arena, ru_storage_live, 1);
    if (p == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a pass");
    }
    *p = (ru_storage_live){.in = in, .scratch = arena};
    RU_TRY(ru_density_history_init(&p->history, &in->prices, in->n_groups, arena, err));
    RU_TRY(rui_storage_groups_init(p, err));
    *out = p;
    return RU_OK;
}

/* What forests that know the first half of these files save with the second one. */
static ru_status back_test(const ru_storage_in *in, const ru_density_file *ended, uint32_t n,
                           ru_arena *scratch, double *usd, ru_err *err)
{
    ru_storage_in half = *in;
    ru_storage_plan plan = {.places = RU_NEW(scratch, ru_storage_place, n)};
    double *end = RU_NEW(scratch, double, n);
    ru_density_file *before = RU_NEW(scratch, ru_density_file, n);
    ru_storage_live *p;
    ru_density_model model;
    uint32_t known = 0;
    if (plan.places == NULL || end == NULL || before == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        end[i] = ended[i].open_s + ended[i].life_s;
    }
    ru_sort_f64(end, n);
    half.files = ended;
    half.n = n;
    half.from_s = end[n / 2];
    half.quota_bytes = 1e24;
    for (uint32_t i = 0; i < n; i++) {
        if (ended[i].open_s + ended[i].life_s <= half.from_s) {
            before[known++] = ended[i];
        }
    }
    RU_TRY(ru_storage_live_begin(&half, scratch, &p, err));
    ru_status st = ru_density_train(before, known, in->n_groups, &in->prices, in->solver, in->seed,
                                    scratch, &model, err);
    if (st == RU_E_INFEASIBLE) {
        return RU_OK; /* too few files for forests */
    }
    RU_TRY(st);
    p->model = &model;
    p->saved_usd = INFINITY;
    RU_TRY(run(p, &plan, err));
    *usd += fmax(0, plan.saving_usd);
    return RU_OK;
}

ru_status ru_storage_train(const ru_storage_in *in, ru_arena *arena, ru_storage_forests *out,
                           ru_err *err)
{
    *out = (ru_storage_forests){0};
    for (uint32_t i = 0; i < in->n; i++) {
        out->credit_usd += FIRST_STAKE * ru_density_hdd(&in->prices, &in->files[i]);
    }
    RU_TRY(ru_density_train(in->files, in->n, in->n_groups, &in->prices, in->solver, in->seed,
                            arena, &out->model, err));
    ru_arena_mark mark = ru_arena_mark_get(arena);
    RU_TRY(back_test(in, in->files, in->n, arena, &out->credit_usd, err));
    ru_arena_rewind(arena, mark);
    return RU_OK;
}

/* Files that are still open at from_s have no known end: forests learn from those that ended. */
static ru_status trees_init(ru_storage_live *p, ru_err *err)
{
    const ru_storage_in *in = p->in;
    ru_density_file *ended = RU_NEW(p->scratch, ru_density_file, in->n);
    ru_storage_forests *forests = RU_NEW(p->scratch, ru_storage_forests, 1);
    ru_storage_in known = *in;
    known.n = 0;
    known.files = ended;
    if (ended == NULL || forests == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        if (in->files[i].open_s + in->files[i].life_s <= in->from_s) {
            ended[known.n++] = in->files[i];
        }
    }
    RU_TRY(ru_storage_train(&known, p->scratch, forests, err));
    ru_storage_live_train(p, forests);
    return RU_OK;
}

static ru_status method_init(ru_storage_live *p, ru_err *err)
{
    ru_storage_method m = p->in->method;
    bool classes = m == RU_STORAGE_CATEGORY || m == RU_STORAGE_HASH || m == RU_STORAGE_TRUE_CLASS;
    return m == RU_STORAGE_TREES       ? trees_init(p, err)
           : m == RU_STORAGE_HINDSIGHT ? rui_storage_hindsight_init(p, err)
           : classes                   ? rui_storage_classes_init(p, err)
                                       : RU_OK;
}

/* Every file by its true saving for a byte and second, while the disk has room over all its life.
 */
static ru_status run_greedy(const ru_storage_in *in, ru_arena *scratch, ru_storage_plan *plan,
                            ru_err *err)
{
    uint32_t first = 0;
    while (first < in->n && in->files[first].open_s < in->from_s) {
        first++;
    }
    uint32_t n = in->n - first;
    double *key = RU_NEW(scratch, double, n + 1), *used = RU_NEW(scratch, double, n + 1);
    uint32_t *order = RU_NEW(scratch, uint32_t, n + 1);
    bool *in_ssd = RU_NEW(scratch, bool, n + 1);
    if (key == NULL || used == NULL || order == NULL || in_ssd == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ru_density_file *f = &in->files[first + i];
        key[i] = -ru_density_saving(&in->prices, f) / (f->size_bytes * fmax(f->life_s, 1e-3));
    }
    ru_sort_order_f64(key, order, n);
    for (uint32_t k = 0; k < n && key[order[k]] < 0; k++) {
        uint32_t i = order[k], end = i;
        const ru_density_file *f = &in->files[first + i];
        /* used[j]: on the disk just after file j is opened; the peak is at an opening. */
        bool fits = true;
        for (; end < n && in->files[first + end].open_s < f->open_s + f->life_s; end++) {
            fits = fits && used[end] + f->size_bytes <= in->quota_bytes;
        }
        end = end == i ? i + 1 : end;
        fits = fits && used[i] + f->size_bytes <= in->quota_bytes;
        for (uint32_t j = i; fits && j < end; j++) {
            used[j] += f->size_bytes;
        }
        in_ssd[i] = fits;
    }
    for (uint32_t i = 0; i < n; i++) {
        double size = in->files[first + i].size_bytes;
        plan->peak_bytes = fmax(plan->peak_bytes, used[i]);
        add(in, plan, first + i, in_ssd[i] ? size : 0, in_ssd[i] ? size : 0);
    }
    return RU_OK;
}

ru_status ru_plan_storage(const ru_storage_in *in, ru_arena *out, ru_arena *scratch,
                          ru_storage_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    ru_storage_plan made = {.places = RU_NEW(out, ru_storage_place, in->n)};
    if (made.places == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->n);
    }
    if (in->method == RU_STORAGE_GREEDY) {
        RU_TRY(run_greedy(in, scratch, &made, err));
    } else {
        ru_storage_live *p;
        RU_TRY(ru_storage_live_begin(in, scratch, &p, err));
        RU_TRY(method_init(p, err));
        RU_TRY(run(p, &made, err));
    }
    *plan = made;
    return RU_OK;
}
