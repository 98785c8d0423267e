/* The checker of `stage`: places by counting, the clock summed anew per machine, and no other stage
 * that is shorter. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/rng.h"
#include "plan/crew/stage.h"

static bool near(double a, double b)
{
    return a == b || (isfinite(a - b) && fabs(a - b) <= 1e-8 * fmax(fabs(a), fabs(b)) + 1e-15);
}

typedef struct traffic {
    double clock_s, read_s, write_s, compute_s, stream, phases_s;
    uint32_t batch;
} traffic;

/* The clock is a fixed point: what of the stream comes while a worker reads makes it longer. By
 * bisection: a longer clock carries less of the stream at a time. */
static double read_beside(const ru_backup_job *j, const traffic *t, uint32_t copies)
{
    double link = j->link_bytes_per_s, low = t->clock_s, high = low + t->stream / copies / link;
    for (uint32_t i = 0; i < 200; i++) {
        double mid = 0.5 * (low + high);
        double queued = j->read_bytes + t->stream / copies * (t->read_s / mid);
        double clock = queued / link + t->compute_s + t->write_s;
        low = clock > mid ? mid : low;
        high = clock > mid ? high : mid;
    }
    return low;
}

/* Bytes through the busiest server's, worker's and reliable machine's link, with so many servers,
 * all alike. */
static traffic even(const ru_stage_in *in, uint32_t stage, uint32_t servers, uint32_t workers)
{
    const ru_backup_job *j = &in->job;
    double part_r = j->read_bytes / servers, part_w = j->write_bytes / servers;
    double others = workers - 1.0;
    bool lone = servers == workers; /* every worker has a part at hand */
    double read_in = j->read_bytes - (lone ? part_r : 0);
    double write_out = j->write_bytes - (lone ? part_w : 0);
    double link = j->link_bytes_per_s, serve = j->serve_bytes_per_s;
    double blocks = (in->blocks + workers - 1) / workers; /* of the busiest one */
    traffic t = {.compute_s = blocks * (j->work_s / in->blocks), .batch = 1};
    t.read_s = fmax(fmax(part_r * others, read_in) / link, part_r * workers / serve);
    t.write_s = fmax(fmax(part_w * others, write_out) / link, part_w * workers / serve);
    t.clock_s = t.phases_s = t.read_s + t.write_s + t.compute_s;
    for (uint32_t b = 1; stage >= 2; b = 2 * b < j->clocks_max ? 2 * b : j->clocks_max) {
        double same = 1 - j->touched;
        double kept = same <= 1e-12 ? 0 : ru_math_exp(fmax(-700, ru_math_log(same) * workers * b));
        t.batch = b;
        t.stream = j->model_bytes * (1 - kept) / b;
        double out = part_r * others + j->write_bytes + t.stream / servers;
        double into = t.stream / in->reliable + (stage == 2 ? j->read_bytes : 0);
        t.clock_s = fmax(t.phases_s, fmax(out, into) / link);
        t.clock_s = stage == 2 ? read_beside(j, &t, in->reliable) : t.clock_s;
        if (t.clock_s <= 1.01 * t.phases_s || b >= j->clocks_max) {
            break;
        }
    }
    return t;
}

/* The busiest server holds whole partitions. */
static traffic uneven(const ru_stage_in *in, uint32_t stage, uint32_t servers, uint32_t workers)
{
    servers = stage == 0 ? in->reliable + in->transient : servers;
    traffic t = even(in, stage, servers, workers);
    uint32_t most = (in->partitions + servers - 1) / servers;
    double part = (double)most * servers / in->partitions;
    if (part <= 1 + 1e-12) {
        return t;
    }
    uint32_t fewer = (uint32_t)fmax(1, floor(servers / part));
    traffic u = even(in, stage, fewer, workers);
    return u.clock_s > t.clock_s ? u : t;
}

/* No other layout is shorter: every number of servers, and of workers where there are few machines;
 * else all workers and half as many. */
static ru_status check_shortest(const ru_stage_in *in, double clock_s, ru_err *err)
{
    uint32_t all = in->reliable + in->transient;
    for (uint32_t stage = 1; stage <= 3; stage++) {
        bool asked =
            in->method == RU_STAGE_COST || (uint32_t)in->method == RU_STAGE_ONE + stage - 1;
        uint32_t most = !asked ? 0 : stage == 1 ? in->reliable : in->transient;
        most = most < in->partitions ? most : in->partitions;
        uint32_t high = stage == 3 ? in->transient : all;
        for (uint32_t a = 1; a <= most; a++) {
            uint32_t low = stage == 2 ? in->transient + 1 : a, step = all <= 24 ? 1 : high / 2;
            for (uint32_t w = high; w >= low && w > 0; w -= step < w ? step : w) {
                if (uneven(in, stage, a, w).clock_s < clock_s * (1 - 1e-8) - 1e-9) {
                    return RU_FAIL(err, RU_E_INFEASIBLE,
                                   "stage %u with %u servers and %u workers has a shorter clock",
                                   stage, a, w);
                }
            }
        }
    }
    return RU_OK;
}

static ru_status check_clock(const ru_stage_in *in, const ru_stage_plan *p, ru_err *err)
{
    traffic t = uneven(in, p->stage, p->servers, p->workers);
    const ru_backup_clock *c = &p->clock;
    double lag = p->stage >= 2 ? t.batch * t.clock_s +
                                     t.batch * t.stream / in->reliable / in->job.link_bytes_per_s
                               : 0;
    if (!near(c->clock_s, t.clock_s) || !near(c->read_s, t.read_s) ||
        !near(c->write_s, t.write_s) || !near(c->compute_s, t.compute_s) || c->batch != t.batch ||
        !near(c->stream_bytes, t.stream) || !near(c->behind_s, lag)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "a clock of %.6g s was predicted, %.6g s follow",
                       c->clock_s, t.clock_s);
    }
    double narrow = p->servers < in->reliable ? p->servers : in->reliable;
    double rest =
        p->stage >= 2 ? t.stream * (t.batch + 1.0) / narrow / in->job.link_bytes_per_s : 0;
    bool in_time = p->stage < 2 || rest <= in->notice_s * (1 + 1e-12);
    if (!near(p->residual_s, rest) || (p->in_notice != in_time && !near(rest, in->notice_s))) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "the rest of a stream takes %.6g s, not %.6g", rest,
                       p->residual_s);
    }
    return check_shortest(in, t.clock_s, err);
}

static ru_status check_stage(const ru_stage_in *in, const ru_stage_plan *p, ru_err *err)
{
    uint32_t t = in->transient, r = in->reliable;
    double two = in->ratio_two > 0 ? in->ratio_two : 1;
    double three = in->ratio_three > 0 ? in->ratio_three : 15;
    uint32_t ratio = t > three * r ? (t > two * r ? 3 : 1) : t > two * r ? 2 : 1;
    uint32_t want = in->method == RU_STAGE_ALL     ? 0
                    : in->method == RU_STAGE_RATIO ? ratio
                    : in->method == RU_STAGE_COST  ? p->stage
                                                   : (uint32_t)in->method - RU_STAGE_ONE + 1;
    uint32_t most = p->stage == 0 ? r + t : p->stage == 1 ? r : t;
    bool fixed = in->method == RU_STAGE_RATIO && p->stage >= 2;
    uint32_t half = t / 2 > 0 ? t / 2 : 1;
    half = half < in->partitions ? half : in->partitions;
    bool spare = p->stage != 0 && p->servers > in->partitions;
    uint32_t high = p->stage == 3 ? t : r + t, low = p->stage == 2 ? t + 1 : p->servers;
    bool free = in->method != RU_STAGE_RATIO && in->method != RU_STAGE_ALL;
    if (p->workers > high || p->workers < (free ? low : high)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "stage %u with %u workers is not possible", p->stage,
                       p->workers);
    }
    if (spare || p->stage != want || p->stage > 3 || p->servers < 1 || p->servers > most ||
        (fixed && p->servers != half) || (p->stage == 0 && p->servers != most)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "stage %u with %u servers is not possible", p->stage,
                       p->servers);
    }
    return RU_OK;
}

/* Every machine of the range holds its share, and what moved could not have stayed. */
static ru_status check_places(const int64_t *now, const uint32_t *to, uint32_t n, uint32_t first,
                              uint32_t k, const char *what, ru_arena *scratch, double *moved,
                              ru_err *err)
{
    uint32_t *held = RU_NEW(scratch, uint32_t, k);
    uint32_t *had = RU_NEW(scratch, uint32_t, k);
    if (held == NULL || had == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", k);
    }
    double kept = 0, could = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (to[i] < first || to[i] - first >= k) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "%s %u is on machine %u", what, i, to[i]);
        }
        held[to[i] - first]++;
        bool there = now != NULL && now[i] >= first && now[i] - first < k;
        if (there) {
            had[now[i] - first]++;
        }
        kept += there && now[i] == to[i] ? 1 : 0;
    }
    uint32_t larger = n % k, room = n % k;
    for (uint32_t m = 0; m < k; m++) {
        if (held[m] != n / k && (held[m] != n / k + 1 || larger-- == 0)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "machine %u has %u of %u %ss", first + m, held[m],
                           n, what);
        }
        bool one_more = had[m] > n / k && room > 0;
        room -= one_more ? 1 : 0;
        could += fmin(had[m], n / k + (one_more ? 1 : 0));
    }
    if (kept < could) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g %ss stay, %g could", kept, what, could);
    }
    *moved = now != NULL ? n - kept : 0;
    return RU_OK;
}

ru_status ru_plan_stage_check(const ru_stage_in *in, const ru_stage_plan *p, ru_arena *scratch,
                              ru_err *err)
{
    if (p->partitions != in->partitions || p->blocks != in->blocks) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%u partitions and %u blocks of %u and %u",
                       p->partitions, p->blocks, in->partitions, in->blocks);
    }
    RU_TRY(check_stage(in, p, err));
    uint32_t all = in->reliable + in->transient, r = in->reliable;
    uint32_t first = p->stage == 3 ? r : p->stage == 2 ? all - p->workers : 0;
    double parts, blocks;
    RU_TRY(check_places(in->n_holder > 0 ? in->holder : NULL, p->holder, in->partitions,
                        p->stage >= 2 ? r : 0, p->servers, "partition", scratch, &parts, err));
    RU_TRY(check_places(in->n_owner > 0 ? in->owner : NULL, p->owner, in->blocks, first, p->workers,
                        "block", scratch, &blocks, err));
    uint32_t *copies = RU_NEW(scratch, uint32_t, r);
    if (copies == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u machines", r);
    }
    for (uint32_t i = 0; i < in->partitions; i++) {
        bool copy = p->stage >= 2;
        if ((p->backup[i] != UINT32_MAX) != copy || (copy && p->backup[i] >= r) ||
            (copy && ++copies[p->backup[i]] > (in->partitions + r - 1) / r)) {
            return RU_FAIL(err, RU_E_INFEASIBLE, "partition %u has its copy on machine %u", i,
                           p->backup[i]);
        }
    }
    double bytes = parts * (in->job.model_bytes / in->partitions) + blocks * in->block_bytes;
    if (!near(bytes, p->moved_bytes)) {
        return RU_FAIL(err, RU_E_INFEASIBLE, "%g bytes move, not %g", bytes, p->moved_bytes);
    }
    return check_clock(in, p, err);
}
