/* Where a file of a group begins: the policy `storage`, fed with files that ended. See tiers.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "cost/math/quantile.h"
#include "env/clock.h"
#include "env/thread.h"
#include "plan/disk/storage_live.h"
#include "solve/solver.h"
#include "store/tiers/tiers_impl.h"

enum {
    GROUPS_MAX = 1 << 12, /* more ones share numbers */
    FILES_MIN = 50,
    FILES_MAX = 2000, /* that forests learn: 140 trees and 20 for each class of sizes, twice */
    AGAIN_PART = 4,   /* they are trained again after so a part of what they know has ended */
};

/* Forests, and the thread that trains them. */
typedef struct training {
    ru_thread thread;
    ru_flag done;
    ru_arena arena;
    ru_storage_in in;
    ru_storage_forests out;
    ru_status st;
    ru_err err;
    uint64_t id;
    ru_time began;
} training;

typedef struct rui_learner {
    ru_arena arena; /* of what `live` remembers */
    ru_storage_in in;
    ru_storage_live *live;
    ru_map groups;            /* number + 1 */
    uint64_t seen, forgotten; /* ended files told to `live`; as the map was then */
    uint32_t fresh, known;    /* ended since training began; then */
    training *now, *next;
    ru_tier_by why; /* there are no forests */
} rui_learner;

static void train(void *arg)
{
    training *n = arg;
    n->st = ru_storage_train(&n->in, &n->arena, &n->out, &n->err);
    ru_flag_set(&n->done, 1);
}

static void free_training(training *n)
{
    if (n != NULL) {
        ru_thread_join(&n->thread);
        ru_arena_fini(&n->arena);
        free(n);
    }
}

void rui_tiers_learner_close(ru_tiers *t)
{
    rui_learner *l = t->learner;
    if (l != NULL) {
        free_training(l->next);
        free_training(l->now);
        ru_map_fini(&l->groups);
        ru_arena_fini(&l->arena);
        free(l);
        t->learner = NULL;
    }
}

static uint32_t group_of(rui_learner *l, const char *name)
{
    bool fresh = false;
    uint64_t *n = l->groups.count < GROUPS_MAX ? ru_map_put_c(&l->groups, name, &fresh)
                                               : ru_map_get_c(&l->groups, name);
    if (n == NULL) {
        return (uint32_t)(ru_hash_bytes(name, (int64_t)strlen(name), 0) % GROUPS_MAX);
    }
    *n = fresh ? l->groups.count : *n;
    return (uint32_t)*n - 1;
}

static ru_density_file file_of(rui_learner *l, const ru_tier_told *told, const char *group)
{
    return (ru_density_file){.open_s = told->open_s,
                             .group = group_of(l, group),
                             .input_bytes = told->input_bytes,
                             .writers = told->writers,
                             .readers = told->readers,
                             .size_bytes = told->size_bytes,
                             .life_s = told->life_s,
                             .ops = told->ops};
}

/* All that is remembered goes; what ended is told anew. */
static ru_status begin(rui_learner *l, const ru_tiers *t, ru_err *err)
{
    ru_arena_fini(&l->arena);
    ru_arena_init(&l->arena, 0);
    ru_map_fini(&l->groups);
    ru_map_init(&l->groups, NULL, GROUPS_MAX);
    l->in = (ru_storage_in){.n_groups = GROUPS_MAX,
                            .quota_bytes = (double)t->tiers[0].room.quota_bytes,
                            .prices = ru_density_list,
                            .method = RU_STORAGE_TREES,
                            .stake = 0.25,
                            .window_s = 3600,
                            .solver = t->solver,
                            .seed = 1};
    l->seen = t->dropped;
    l->live = NULL;
    RU_TRY(ru_storage_live_begin(&l->in, &l->arena, &l->live, err));
    ru_storage_live_train(l->live, l->why == RU_TIER_BY_TREES ? &l->now->out : NULL);
    return RU_OK;
}

/* What ended since, in the order of its end. */
static ru_status hear(rui_learner *l, const ru_tiers *t, ru_err *err)
{
    bool anew = l->live == NULL || l->forgotten != t->forgotten, first = l->live == NULL;
    RU_TRY(anew ? begin(l, t, err) : RU_OK);
    uint32_t from = l->seen > t->dropped ? (uint32_t)(l->seen - t->dropped) : 0;
    uint32_t n = t->n_ended - from;
    ru_arena_mark mark = ru_arena_mark_get(&l->arena);
    double *end = RU_NEW(&l->arena, double, n + 1);
    uint32_t *order = RU_NEW(&l->arena, uint32_t, n + 1);
    if (end == NULL || order == NULL) {
        return rui_tiers_no_memory(err);
    }
    for (uint32_t k = 0; k < n; k++) {
        end[k] = t->ended[from + k].told.open_s + t->ended[from + k].told.life_s;
    }
    ru_sort_order_f64(end, order, n);
    for (uint32_t k = 0; k < n; k++) {
        const rui_ended *e = &t->ended[from + order[k]];
        const ru_density_file f = file_of(l, &e->told, e->group);
        ru_storage_live_ended(l->live, &f, e->told.fast_bytes);
    }
    ru_arena_rewind(&l->arena, mark);
    l->seen = t->dropped + t->n_ended;
    l->forgotten = t->forgotten;
    l->fresh += anew && !first ? 0 : n;
    return RU_OK;
}

static ru_status start(rui_learner *l, const ru_tiers *t, ru_err *err)
{
    training *n = calloc(1, sizeof *n);
    uint32_t m = t->n_ended < FILES_MAX ? t->n_ended : FILES_MAX;
    l->fresh = 0; /* also when it fails: it is not tried again at each opening */
    if (n == NULL) {
        return rui_tiers_no_memory(err);
    }
    ru_arena_init(&n->arena, 0);
    l->next = n;
    ru_density_file *files = RU_NEW(&n->arena, ru_density_file, m);
    double *open = RU_NEW(&n->arena, double, m);
    uint32_t *order = RU_NEW(&n->arena, uint32_t, m);
    if (files == NULL || open == NULL || order == NULL) {
        return rui_tiers_no_memory(err);
    }
    const rui_ended *e = &t->ended[t->n_ended - m];
    for (uint32_t k = 0; k < m; k++) {
        open[k] = e[k].told.open_s;
    }
    ru_sort_order_f64(open, order, m);
    for (uint32_t k = 0; k < m; k++) {
        files[k] = file_of(l, &e[order[k]].told, e[order[k]].group);
    }
    n->in = l->in;
    n->in.files = files;
    n->in.n = l->known = m;
    n->id = ru_hash_bytes(open, m * (int64_t)sizeof *open, 0);
    n->began = ru_clock_now();
    return ru_thread_start(&n->thread, "ru storage", train, n, err);
}

static void failed(rui_learner *l, const char *why)
{
    ru_log(RU_LOG_WARN, "store", "tiers", "files begin where they fit: %s", why);
    free_training(l->next);
    l->next = NULL;
    l->why = RU_TIER_BY_FAILED;
    ru_storage_live_train(l->live, NULL);
}

/* Training that ended, that is late, that is due. */
static void follow(rui_learner *l, const ru_tiers *t)
{
    if (l->next != NULL && ru_flag_get(&l->next->done) != 0) {
        training *n = l->next;
        if (n->st != RU_OK) {
            failed(l, n->err.text);
        } else {
            ru_storage_live_train(l->live, &n->out);
            l->why = RU_TIER_BY_TREES;
            free_training(l->now);
            l->now = n;
            l->next = NULL;
        }
    } else if (l->next != NULL && l->why != RU_TIER_BY_LATE &&
               ru_time_since(ru_clock_now(), l->next->began) > t->late_ns) {
        ru_storage_live_train(l->live, NULL);
        l->why = RU_TIER_BY_LATE;
    }
    uint32_t due = l->known / AGAIN_PART > FILES_MIN ? l->known / AGAIN_PART : FILES_MIN;
    if (l->next == NULL && l->fresh >= due && ru_solver_has_trees()) {
        ru_err why = {0};
        l->why = l->why == RU_TIER_BY_TREES ? l->why : RU_TIER_BY_TRAINING;
        if (start(l, t, &why) != RU_OK) {
            failed(l, why.text);
        }
    }
}

void rui_tiers_choose(ru_tiers *t, const ru_tier_hint *hint, int64_t room_bytes, ru_tier_told *told)
{
    ru_err why = {0};
    if (t->n_tiers < 2 || t->tiers[0].off) {
        return;
    }
    if (t->learner == NULL) {
        t->learner = calloc(1, sizeof *t->learner);
    }
    rui_learner *l = t->learner;
    told->by = RU_TIER_BY_FAILED;
    if (l == NULL || hear(l, t, &why) != RU_OK) {
        rui_tiers_learner_close(t);
        return;
    }
    l->why = l->why != RU_TIER_BY_ROOM ? l->why
             : ru_solver_has_trees()   ? RU_TIER_BY_YOUNG
                                       : RU_TIER_BY_MISSING;
    follow(l, t);
    const ru_density_file f = file_of(l, told, hint->group);
    ru_time asked = ru_clock_now();
    ru_storage_wish w = ru_storage_live_open(l->live, &f, (double)hint->expected_bytes,
                                             fmax(0, (double)room_bytes));
    told->decide_s = 1e-9 * (double)ru_time_since(ru_clock_now(), asked);
    told->by = w.learned ? RU_TIER_BY_TREES : l->why;
    if (w.learned) {
        told->limit_bytes = w.limit_bytes;
        told->expected_usd = w.saving_usd;
        const uint64_t key[3] = {l->now->id, told->writer, told->serial};
        told->plan = ru_hash_bytes(key, sizeof key, 1);
    }
}

void rui_tiers_learn(ru_tiers *t, const rui_item *i)
{
    ru_err none = {0};
    ru_tier_told e = i->told;
    if (i->group == NULL || i->r.bytes < 1) {
        return;
    }
    e.size_bytes = (double)i->r.bytes;
    e.life_s = fmax(0, 1e-9 * (double)ru_clock_wall_ns() - e.open_s);
    e.ops += e.size_bytes / RUI_TIER_RUN_BYTES;
    for (uint32_t k = 0; k < i->r.n_parts; k++) {
        e.fast_bytes += i->parts[k].tier == t->tiers[0].id ? (double)i->parts[k].bytes : 0;
    }
    const ru_density_file f = {.size_bytes = e.size_bytes, .life_s = e.life_s, .ops = e.ops};
    e.measured_usd = ru_density_saving(&ru_density_list, &f) * (e.fast_bytes / e.size_bytes);
    (void)!rui_tiers_append_told(t, RUI_TIER_ENDED, &e, i->group, &none);
}
