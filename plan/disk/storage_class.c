/* Published rules for SSD and HDD that keep a state: classes with a moving threshold, groups by
 * density, lifetimes. See storage.h. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "cost/math/norm.h"
#include "cost/math/quantile.h"
#include "cost/math/trees.h"
#include "plan/disk/storage_impl.h"

/* Of the threshold between two openings; the last ones count, and it moves by one. */
enum { MOVES_MAX = 100 };

static double density_of(const ru_density_file *f)
{
    return f->ops / (f->size_bytes * fmax(f->life_s, 1e-3));
}

static uint32_t class_of(const ru_storage_live *p, const ru_density_file *f)
{
    if (!(ru_density_saving(&p->in->prices, f) > 0)) {
        return 0;
    }
    uint32_t c = RUI_STORAGE_CLASSES - 1;
    for (double d = density_of(f); c > 1 && d < p->bound[c]; c--) {
    }
    return c;
}

/* Bounds from the past: classes 1 .. 14 hold equally many of the files that saved. */
ru_status rui_storage_classes_init(ru_storage_live *p, ru_err *err)
{
    const ru_storage_in *in = p->in;
    double *d = RU_NEW(p->scratch, double, in->n + 1);
    ru_density_file *past = RU_NEW(p->scratch, ru_density_file, in->n);
    p->recent = RU_NEW(p->scratch, rui_storage_recent, in->n);
    if (d == NULL || past == NULL || p->recent == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", in->n);
    }
    uint32_t n = 0, saved = 0;
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_density_file *f = &in->files[i];
        if (f->open_s + f->life_s <= in->from_s) {
            past[n++] = *f;
            if (ru_density_saving(&in->prices, f) > 0) {
                d[saved++] = density_of(f);
            }
        }
    }
    ru_sort_f64(d, saved);
    for (uint32_t c = 2; c < RUI_STORAGE_CLASSES && saved > 0; c++) {
        double share = (c - 1.0) / (RUI_STORAGE_CLASSES - 1);
        p->bound[c] = ru_quantile_sorted(d, saved, share, RU_QUANTILE_LINEAR);
    }
    p->threshold = 1;
    p->decided_s = in->from_s;
    if (in->method != RU_STORAGE_CATEGORY) {
        return RU_OK;
    }
    if (in->solver == NULL || in->solver->trees == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the trees need the library XGBoost; the method 'history' does not");
    }
    if (n < 50) {
        return RU_FAIL(err, RU_E_INFEASIBLE,
                       "only %u files have ended; the classes need at least 50", n);
    }
    float *x = RU_NEW(p->scratch, float, (int64_t)n *RU_DENSITY_TRAITS);
    float *y = RU_NEW(p->scratch, float, n);
    if (x == NULL || y == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u files", n);
    }
    ru_density_history h;
    RU_TRY(ru_density_history_init(&h, &in->prices, in->n_groups, p->scratch, err));
    RU_TRY(ru_density_rows(past, n, &h, x, RU_DENSITY_TRAITS, p->scratch, err));
    for (uint32_t i = 0; i < n; i++) {
        y[i] = (float)class_of(p, &past[i]);
    }
    const ru_trees_in t = {.x = x,
                           .y = y,
                           .m = n,
                           .n = RU_DENSITY_TRAITS,
                           .goal = RU_TREES_CLASSES,
                           .n_classes = RUI_STORAGE_CLASSES,
                           .rounds = 20, /* 300 trees in all, as published */
                           .depth = 6,
                           .seed = in->seed};
    return in->solver->trees(&t, p->scratch, &p->classes, err);
}

static uint32_t predicted_class(const ru_storage_live *p, const ru_density_file *f)
{
    float x[RU_DENSITY_TRAITS], each[RUI_STORAGE_CLASSES];
    ru_density_traits(&p->history, f, x);
    ru_trees_predict(&p->classes, x, each);
    uint32_t best = 0;
    for (uint32_t c = 1; c < RUI_STORAGE_CLASSES; c++) {
        best = each[c] > each[best] ? c : best;
    }
    return best;
}

/* Every decide_s: how much of the disk time that hints asked for went to HDD in the last look_s. */
static void move_threshold(ru_storage_live *p, double now_s)
{
    const ru_storage_in *in = p->in;
    double late = floor((now_s - p->decided_s) / in->decide_s) - MOVES_MAX;
    p->decided_s += late > 0 ? late * in->decide_s : 0;
    for (; p->decided_s + in->decide_s <= now_s; p->decided_s += in->decide_s) {
        double wanted = 0, spilled = 0, at_s = p->decided_s + in->decide_s;
        while (p->first_recent < p->n_recent &&
               p->recent[p->first_recent].open_s < at_s - in->look_s) {
            p->first_recent++;
        }
        for (uint32_t k = p->first_recent; k < p->n_recent; k++) {
            bool asked = p->recent[k].class >= p->threshold;
            wanted += asked ? p->recent[k].wanted_s : 0;
            spilled += asked ? p->recent[k].spilled_s : 0;
        }
        double share = wanted > 0 ? spilled / wanted : 0;
        if (share < in->spill_low && p->threshold > 1) {
            p->threshold--;
        } else if (share > in->spill_high && p->threshold + 1 < RUI_STORAGE_CLASSES) {
            p->threshold++;
        }
    }
}

ru_storage_wish rui_storage_by_class(ru_storage_live *p, const ru_density_file *f)
{
    move_threshold(p, f->open_s);
    if (p->in->method == RU_STORAGE_HASH) {
        uint64_t key[2] = {p->in->seed, (uint64_t)(f - p->in->files)};
        p->class = (uint32_t)(ru_hash_bytes(key, sizeof key, 1) % RUI_STORAGE_CLASSES);
    } else {
        p->class = p->in->method == RU_STORAGE_TRUE_CLASS ? class_of(p, f) : predicted_class(p, f);
    }
    return (ru_storage_wish){.limit_bytes = p->class >= p->threshold ? 1e18 : 0, .partial = true};
}

void rui_storage_spilled(ru_storage_live *p, const ru_density_file *f, double share)
{
    if (p->recent != NULL) {
        double disk_s =
            f->ops * p->in->prices.seek_s + 2 * f->size_bytes / p->in->prices.hdd_bytes_per_s;
        p->recent[p->n_recent++] =
            (rui_storage_recent){f->open_s, disk_s, disk_s * share, p->class};
    }
}

ru_status rui_storage_groups_init(ru_storage_live *p, ru_err *err)
{
    int64_t n = (int64_t)p->in->n_groups + 1;
    p->group_saving = RU_NEW(p->scratch, double, n);
    p->group_room = RU_NEW(p->scratch, double, n);
    p->group_life = RU_NEW(p->scratch, double, n);
    p->group_life2 = RU_NEW(p->scratch, double, n);
    p->group_n = RU_NEW(p->scratch, double, n);
    p->group_in = RU_NEW(p->scratch, bool, n);
    p->window_end_s = p->in->window_s;
    return p->group_saving != NULL && p->group_room != NULL && p->group_life != NULL &&
                   p->group_life2 != NULL && p->group_n != NULL && p->group_in != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_LIMIT, "no memory for %u groups", p->in->n_groups);
}

void rui_storage_group_ended(ru_storage_live *p, const ru_density_file *f)
{
    double log = ru_num_log(fmax(f->life_s, 1e-3));
    p->group_saving[f->group] += ru_density_saving(&p->in->prices, f);
    p->group_room[f->group] += f->size_bytes * f->life_s;
    p->group_life[f->group] += log;
    p->group_life2[f->group] += log * log;
    p->group_n[f->group] += 1;
}

/* At the end of a window: groups by saving for a byte and second until their mean room fills the
 * quota. Sums fade by half each window. */
static void choose_groups(ru_storage_live *p)
{
    uint32_t n = p->in->n_groups;
    ru_arena_mark mark = ru_arena_mark_get(p->scratch);
    double *key = RU_NEW(p->scratch, double, n + 1), room = 0;
    uint32_t *order = RU_NEW(p->scratch, uint32_t, n + 1);
    if (key == NULL || order == NULL) {
        return; /* the choice of the last window stays */
    }
    for (uint32_t g = 0; g < n; g++) {
        key[g] = p->group_room[g] > 0 ? -p->group_saving[g] / p->group_room[g] : 0;
        p->group_in[g] = false;
    }
    ru_sort_order_f64(key, order, n);
    for (uint32_t k = 0; k < n && key[order[k]] < 0; k++) {
        room += p->group_room[order[k]] / p->in->window_s / 2;
        p->group_in[order[k]] = room <= p->in->quota_bytes;
    }
    for (uint32_t g = 0; g < n; g++) {
        p->group_saving[g] /= 2;
        p->group_room[g] /= 2;
    }
    ru_arena_rewind(p->scratch, mark);
}

ru_storage_wish rui_storage_by_group(ru_storage_live *p, const ru_density_file *f)
{
    if (f->open_s >= p->window_end_s) {
        choose_groups(p);
        p->window_end_s = p->in->window_s * (1 + floor(f->open_s / p->in->window_s));
    }
    return (ru_storage_wish){.limit_bytes = p->group_in[f->group] ? 1e18 : 0};
}

/* The mean of the group's lives and their deviation, in logarithms. */
ru_storage_wish rui_storage_by_life(const ru_storage_live *p, const ru_density_file *f)
{
    double n = p->group_n[f->group];
    if (n < 1) {
        return (ru_storage_wish){.limit_bytes = 0};
    }
    double mean = p->group_life[f->group] / n;
    double spread = sqrt(fmax(0, p->group_life2[f->group] / n - mean * mean));
    return (ru_storage_wish){.limit_bytes = ru_num_exp(mean + spread) < p->in->ttl_s ? 1e18 : 0};
}
