#include "plan/crew/stage.h"

#include <math.h>
#include <stddef.h>

#define RATIO_TWO   1
#define RATIO_THREE 15

static ru_stage_in scaled(const ru_stage_in *in, double by)
{
    ru_stage_in q = *in;
    double *const sizes[] = {&q.job.model_bytes,      &q.job.read_bytes,        &q.job.write_bytes,
                             &q.job.link_bytes_per_s, &q.job.serve_bytes_per_s, &q.block_bytes};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(sizes); i++) {
        *sizes[i] *= by;
    }
    return q;
}

ru_stage_file ru_stage_to_file(const ru_stage_in *in)
{
    return (ru_stage_file){scaled(in, 1e-6)};
}

ru_stage_in ru_stage_of_file(const ru_stage_file *file)
{
    return scaled(&file->mb, 1e6);
}

ru_backup_layout ru_stage_layout(const ru_stage_in *in, uint32_t stage, uint32_t servers,
                                 uint32_t workers)
{
    uint32_t all = in->reliable + in->transient;
    if (stage == 0) {
        return (ru_backup_layout){.servers = all, .workers = all, .shared = all};
    }
    uint32_t most = stage == 3 ? in->transient : all;
    return (ru_backup_layout){.servers = servers,
                              .workers = workers > 0 ? workers : most,
                              .shared = servers,
                              .backups = stage >= 2 ? in->reliable : 0,
                              .backups_work = stage == 2};
}

uint32_t ru_stage_first_worker(const ru_stage_in *in, uint32_t stage, uint32_t workers)
{
    return stage == 2 ? in->reliable + in->transient - workers : stage == 3 ? in->reliable : 0;
}

static ru_status check_in(const ru_stage_in *in, ru_err *err)
{
    const ru_backup_job *j = &in->job;
    bool bytes = j->model_bytes >= 0 && j->read_bytes >= 0 && j->write_bytes >= 0 &&
                 in->block_bytes >= 0 && in->notice_s >= 0 && j->work_s >= 0;
    bool rates =
        j->link_bytes_per_s > 0 && j->serve_bytes_per_s > 0 && j->touched >= 0 && j->touched <= 1;
    double sum = j->model_bytes + j->read_bytes + j->write_bytes + j->work_s + j->link_bytes_per_s +
                 j->serve_bytes_per_s + in->block_bytes + in->notice_s;
    if (!bytes || !rates || !isfinite(sum)) {
        return RU_FAIL(err, RU_E_ARG,
                       "a job needs rates above 0, no negative sizes and a touched "
                       "part of 0 to 1");
    }
    if (in->reliable < 1 || in->reliable > RU_STAGE_MACHINES_MAX ||
        in->transient > RU_STAGE_MACHINES_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u reliable and %u transient machines; expected at least one "
                       "reliable machine, and at most %d of each kind",
                       in->reliable, in->transient, RU_STAGE_MACHINES_MAX);
    }
    if (in->partitions < 1 || in->partitions > RU_STAGE_PARTS_MAX || in->blocks < 1 ||
        in->blocks > RU_STAGE_PARTS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u partitions and %u blocks; expected 1 to %d of each",
                       in->partitions, in->blocks, RU_STAGE_PARTS_MAX);
    }
    if ((in->n_holder != 0 && in->n_holder != in->partitions) ||
        (in->n_owner != 0 && in->n_owner != in->blocks)) {
        return RU_FAIL(err, RU_E_ARG, "%u places of %u partitions and %u of %u blocks are told",
                       in->n_holder, in->partitions, in->n_owner, in->blocks);
    }
    return RU_OK;
}

/* Partitions and blocks are whole: the busiest of k machines holds this many times the mean. */
static double lumps(uint32_t n, uint32_t k)
{
    uint32_t most = (n + k - 1) / k;
    return (double)most * k / n;
}

ru_backup_clock ru_stage_clock(const ru_stage_in *in, uint32_t stage, uint32_t servers,
                               uint32_t workers)
{
    ru_backup_layout l = ru_stage_layout(in, stage, servers, workers);
    double part = lumps(in->partitions, l.servers);
    ru_backup_job j = in->job;
    j.work_s *= lumps(in->blocks, l.workers);
    ru_backup_clock even = ru_backup_clock_of(&j, &l);
    if (part <= 1 + 1e-12) {
        return even;
    }
    l.servers = (uint32_t)fmax(1, floor(l.servers / part));
    l.shared = l.shared < l.servers ? l.shared : l.servers;
    ru_backup_clock uneven = ru_backup_clock_of(&j, &l);
    return uneven.clock_s > even.clock_s ? uneven : even;
}

typedef struct choice {
    uint32_t stage, servers, workers;
    ru_backup_clock clock;
} choice;

static void offer(const ru_stage_in *in, choice *best, uint32_t stage, uint32_t servers,
                  uint32_t workers)
{
    servers = servers < in->partitions ? servers : in->partitions;
    ru_backup_layout l = ru_stage_layout(in, stage, servers, workers);
    choice c = {stage, l.servers, l.workers, ru_stage_clock(in, stage, servers, workers)};
    /* Whole nanoseconds; where the stream holds all up, less waiting besides; then the earlier. */
    double shorter = round(1e9 * best->clock.clock_s) - round(1e9 * c.clock.clock_s);
    double waits = best->clock.read_s + best->clock.write_s - c.clock.read_s - c.clock.write_s;
    bool better = best->servers == 0 || shorter > 0 || (!(shorter < 0) && round(1e9 * waits) > 0);
    *best = better ? c : *best;
}

/* With so many servers: all numbers of workers that matter. Of those whose busiest worker has as
 * many blocks the least has the least to exchange. In stage 2 a reliable machine works: else it is
 * stage 3. */
static void offer_workers(const ru_stage_in *in, choice *best, uint32_t stage, uint32_t servers)
{
    uint32_t most = stage == 3 ? in->transient : in->reliable + in->transient;
    uint32_t least = stage == 2 ? in->transient + 1 : servers;
    for (uint32_t w = most; w >= least && w > 0; w--) {
        uint32_t blocks = (in->blocks + w - 1) / w, enough = (in->blocks + blocks - 1) / blocks;
        w = enough > least ? enough : least;
        offer(in, best, stage, servers, w);
    }
}

static uint32_t half_of(uint32_t n)
{
    return n > 1 ? n / 2 : 1;
}

static choice choose(const ru_stage_in *in)
{
    choice c = {0};
    uint32_t t = in->transient, r = in->reliable;
    for (uint32_t stage = 1; stage <= 3; stage++) {
        bool asked = in->method == RU_STAGE_COST ||
                     (uint32_t)in->method == (uint32_t)RU_STAGE_ONE + stage - 1;
        uint32_t most = stage == 1 ? r : t;
        most = most < in->partitions ? most : in->partitions;
        for (uint32_t a = 1; asked && a <= most; a++) {
            offer_workers(in, &c, stage, a);
        }
    }
    if (c.servers > 0) {
        return c;
    }
    uint32_t stage = 0;
    if (in->method == RU_STAGE_RATIO) {
        double two = in->ratio_two > 0 ? in->ratio_two : RATIO_TWO;
        double three = in->ratio_three > 0 ? in->ratio_three : RATIO_THREE;
        stage = t <= two * r ? 1 : t <= three * r ? 2 : 3;
    }
    offer(in, &c, stage, stage == 0 ? r + t : stage == 1 ? r : half_of(t), 0);
    return c;
}

/* -- who holds what -------------------------------------------------------------------------------
 */

/* Spread `n` things over machines first .. first + k - 1: those that have a place there and are not
 * above the share keep it; the others go, in order, to the first machine with room. */
static ru_status spread(const int64_t *now, uint32_t n, uint32_t first, uint32_t k, uint32_t *to,
                        ru_arena *scratch, ru_err *err)
{
    uint32_t *held = RU_NEW(scratch, uint32_t, k);
    if (held == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", k);
    }
    uint32_t low = n / k, larger = n % k; /* so many machines may hold one more */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = now == NULL || now[i] < 0 ? UINT32_MAX : (uint32_t)now[i];
        to[i] = UINT32_MAX;
        if (m < first || m - first >= k || held[m - first] > low ||
            (held[m - first] == low && larger == 0)) {
            continue;
        }
        larger -= held[m - first] == low ? 1 : 0;
        held[m - first]++;
        to[i] = m;
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (to[i] != UINT32_MAX) {
            continue;
        }
        while (held[at] > low || (held[at] == low && larger == 0)) {
            at++;
            RU_CHECK(at < k);
        }
        larger -= held[at] == low ? 1 : 0;
        held[at]++;
        to[i] = first + at;
    }
    return RU_OK;
}

static double moved(const int64_t *now, const uint32_t *to, uint32_t n)
{
    double count = 0;
    for (uint32_t i = 0; i < n && now != NULL; i++) {
        count += now[i] != to[i] ? 1 : 0;
    }
    return count;
}

static ru_status assign(const ru_stage_in *in, const choice *c, ru_arena *out, ru_arena *scratch,
                        ru_stage_plan *p, ru_err *err)
{
    uint32_t *holder = RU_NEW(out, uint32_t, in->partitions);
    uint32_t *backup = RU_NEW(out, uint32_t, in->partitions);
    uint32_t *owner = RU_NEW(out, uint32_t, in->blocks);
    if (holder == NULL || backup == NULL || owner == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u partitions and %u blocks", in->partitions,
                       in->blocks);
    }
    ru_backup_layout l = ru_stage_layout(in, c->stage, c->servers, c->workers);
    ru_arena_mark m = ru_arena_mark_get(scratch);
    uint32_t server = c->stage >= 2 ? in->reliable : 0;
    uint32_t worker = ru_stage_first_worker(in, c->stage, c->workers);
    const int64_t *had = in->n_holder > 0 ? in->holder : NULL;
    const int64_t *owned = in->n_owner > 0 ? in->owner : NULL;
    RU_TRY(spread(had, in->partitions, server, l.servers, holder, scratch, err));
    RU_TRY(spread(owned, in->blocks, worker, l.workers, owner, scratch, err));
    for (uint32_t i = 0; i < in->partitions; i++) {
        backup[i] = l.backups > 0 ? i % l.backups : UINT32_MAX;
    }
    ru_arena_rewind(scratch, m);
    p->holder = holder;
    p->backup = backup;
    p->owner = owner;
    p->moved_bytes = moved(had, holder, in->partitions) * in->job.model_bytes / in->partitions +
                     moved(owned, owner, in->blocks) * in->block_bytes;
    return RU_OK;
}

ru_status ru_plan_stage(const ru_stage_in *in, ru_arena *out, ru_arena *scratch,
                        ru_stage_plan *plan, ru_err *err)
{
    RU_TRY(check_in(in, err));
    bool needs = in->method == RU_STAGE_TWO || in->method == RU_STAGE_THREE;
    if (needs && in->transient == 0) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "stage %d needs a transient machine",
                       in->method == RU_STAGE_TWO ? 2 : 3);
    }
    choice c = choose(in);
    ru_stage_plan p = {.stage = c.stage,
                       .servers = c.servers,
                       .workers = c.workers,
                       .clock = c.clock,
                       .partitions = in->partitions,
                       .blocks = in->blocks};
    RU_TRY(assign(in, &c, out, scratch, &p, err));
    p.in_notice = true;
    if (c.stage >= 2) { /* all servers leave at once: the copies take in a batch and the clock */
        double bytes = c.clock.stream_bytes * c.clock.batch + c.clock.stream_bytes;
        double narrow = fmin(c.servers, in->reliable);
        p.residual_s = bytes / narrow / in->job.link_bytes_per_s;
        p.in_notice = p.residual_s <= in->notice_s;
    }
    *plan = p;
    return RU_OK;
}
