/* The tuner, the part of ours: the search by a model of the storage, and the steady phase that it
 * shares with the published one. */
#include "plan/disk/read.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "plan/disk/read_impl.h"

#define MIB             INT64_C(1048576)
#define FIRST_SIZE      MIB
#define FIRST_BYTES     (16 * MIB)
#define FAR_LOW         0.75 /* a window this far from the chosen one's is odd, */
#define FAR_HIGH        1.25
#define ODD_MAX         3  /* so many in a row start the search again */
#define CALM_S          30 /* the trainer did not wait for so long: nothing more to gain */
#define SOON_S          0.5
#define STANDARD_ERRORS 2

enum { SIZE_TURNS = 4 };

static int64_t power_below(int64_t v)
{
    int64_t p = 1;
    while (p <= v / 2) {
        p *= 2;
    }
    return p;
}

int64_t rui_read_size_high(const ru_read_in *in)
{
    int64_t high = power_below(in->size_max);
    int64_t room = power_below(in->memory_max_bytes);
    return high < room ? high : room;
}

int64_t rui_read_size_low(const ru_read_in *in)
{
    int64_t low = power_below(in->size_min);
    low = low < in->size_min ? 2 * low : low;
    int64_t high = rui_read_size_high(in);
    return low < high ? low : high;
}

uint32_t rui_read_depth_high(const ru_read_in *in, int64_t size_bytes)
{
    int64_t room = in->memory_max_bytes / size_bytes;
    room = room < in->depth_max ? room : in->depth_max;
    return (uint32_t)power_below(room > 1 ? room : 1);
}

/* The least depth that the search tries. */
static uint32_t depth_low(const ru_read_in *in, int64_t size_bytes)
{
    uint32_t low = 1, high = rui_read_depth_high(in, size_bytes);
    while (low < in->depth_min && low < high) {
        low *= 2;
    }
    return low;
}

double rui_read_score(const ru_read_in *in, const ru_read_window *w)
{
    return in->need_bytes_per_s > 0 ? fmin(w->bytes_per_s, 1.1 * in->need_bytes_per_s)
                                    : w->bytes_per_s;
}

bool rui_read_better(const ru_read_in *in, const ru_read_window *w, const ru_read_window *old)
{
    double gain = rui_read_score(in, w) - rui_read_score(in, old);
    return gain > in->gain_min * rui_read_score(in, old) &&
           gain > STANDARD_ERRORS * hypot(w->error, old->error);
}

void rui_read_keep(ru_read_state *s, const ru_read_window *w)
{
    if (s->n_seen < RU_READ_SEEN) {
        s->seen[s->n_seen++] = *w;
    }
}

static void set(ru_read_state *s, int64_t size_bytes, uint32_t depth)
{
    s->size_bytes = size_bytes;
    s->depth = depth;
}

void rui_read_steady(ru_read_state *s)
{
    s->phase = RU_READ_STEADY;
    set(s, s->best.size_bytes, s->best.depth);
    s->tried_s = s->calm_s = 0;
    s->odd = 0;
}

static uint32_t depth_for(const ru_read_in *in, int64_t size_bytes, int64_t outstanding)
{
    int64_t q = outstanding / size_bytes, low = depth_low(in, size_bytes);
    int64_t high = rui_read_depth_high(in, size_bytes);
    return (uint32_t)power_below(q < low ? low : q < high ? q : high);
}

static int64_t size_within(const ru_read_in *in, int64_t v)
{
    int64_t low = rui_read_size_low(in), high = rui_read_size_high(in);
    return v < low ? low : v > high ? high : v;
}

static uint32_t cores_of(const ru_read_in *in)
{
    return in->cores > 0 ? in->cores : 1;
}

/* Baselines that do not look at windows. */
static void begin_fixed(const ru_read_in *in, ru_read_state *s)
{
    uint32_t depth = in->method == RU_READ_ONE       ? 1
                     : in->method == RU_READ_LOADER2 ? 2
                     : in->method == RU_READ_LOADER8 ? 8
                     : in->method == RU_READ_CORES   ? cores_of(in)
                     : in->method == RU_READ_FIXED16 ? 16
                                                     : 2;
    int64_t size = in->method == RU_READ_AHEAD ? 131072 : in->sample_bytes;
    size = size < in->memory_max_bytes ? size : in->memory_max_bytes;
    int64_t room = in->memory_max_bytes / size;
    depth = depth < room ? depth : (uint32_t)room;
    s->phase = RU_READ_STEADY;
    set(s, size, depth);
}

void ru_read_begin(const ru_read_in *in, ru_read_state *s)
{
    memset(s, 0, sizeof *s);
    switch (in->method) {
    case RU_READ_MODEL:
        set(s, size_within(in, FIRST_SIZE), 0);
        s->depth = depth_for(in, s->size_bytes, FIRST_BYTES);
        s->first_size = s->size_bytes;
        return;
    case RU_READ_PHASES:
    case RU_READ_CLIMB:
    case RU_READ_AIMD:
    case RU_READ_GRID:
        rui_read_climb_begin(in, s);
        return;
    case RU_READ_ONE:
    case RU_READ_LOADER2:
    case RU_READ_LOADER8:
    case RU_READ_CORES:
    case RU_READ_FIXED16:
    case RU_READ_AHEAD:
        begin_fixed(in, s);
        return;
    }
}

/* -- ours -----------------------------------------------------------------------------------------
 */

static ru_status fit(ru_read_state *s, ru_arena *scratch, ru_err *err)
{
    ru_disk_sample sample[RU_READ_SEEN];
    for (uint32_t i = 0; i < s->n_seen; i++) {
        const ru_read_window *w = &s->seen[i];
        sample[i] = (ru_disk_sample){w->size_bytes, w->depth, w->bytes_per_s};
    }
    return ru_disk_fit(sample, s->n_seen, scratch, &s->disk, err);
}

/* The next depth to try: where the model has its knee, but between what is known to fit and what
 * is not; then by halves and doubles. */
static ru_status shrink_to(const ru_read_in *in, ru_read_state *s, ru_arena *scratch, ru_err *err)
{
    uint32_t least = depth_low(in, s->best.size_bytes);
    if (s->fits <= 2 * s->fits_not || s->fits <= least || s->n_seen == RU_READ_SEEN) {
        rui_read_steady(s);
        return RU_OK;
    }
    s->phase = RU_READ_SHRINK;
    uint32_t depth = least;
    if (s->turn == 1) {
        RU_TRY(fit(s, scratch, err));
        double knee = ru_disk_knee(&s->disk, s->best.size_bytes);
        depth = (uint32_t)power_below((int64_t)ceil(fmin(knee, s->fits)));
        depth = depth < knee && depth < s->fits ? 2 * depth : depth;
    } else if (s->turn > 1) {
        depth = s->best.depth == s->fits ? s->fits / 2 : 2 * s->fits_not;
    }
    uint32_t low = s->turn == 0 || 2 * s->fits_not < least ? least : 2 * s->fits_not;
    depth = depth < low ? low : depth;
    depth = depth > s->fits / 2 ? s->fits / 2 : depth;
    s->turn++;
    set(s, s->best.size_bytes, depth);
    return RU_OK;
}

static ru_status begin_shrink(const ru_read_in *in, ru_read_state *s, ru_arena *scratch,
                              ru_err *err)
{
    s->turn = 0;
    s->fits = s->best.depth;
    s->fits_not = 0;
    s->most = rui_read_score(in, &s->best);
    return shrink_to(in, s, scratch, err);
}

/* Sizes far from the first one, then next to the best one, at the same outstanding bytes; larger
 * ones at the same depth, where that many bytes pass soon. */
static ru_status next_size(const ru_read_in *in, ru_read_state *s, ru_arena *scratch, ru_err *err)
{
    int64_t outstanding = s->best.size_bytes * s->best.depth;
    while (s->turn < SIZE_TURNS) {
        uint32_t turn = s->turn++;
        int64_t from = turn < 2 ? s->first_size : s->best.size_bytes;
        int64_t size = turn == 0   ? from / 4
                       : turn == 1 ? from * 4
                       : turn == 2 ? from / 2
                                   : from * 2;
        bool seen = size < rui_read_size_low(in) || size > rui_read_size_high(in);
        for (uint32_t i = 0; i < s->n_seen; i++) {
            seen = seen || s->seen[i].size_bytes == size;
        }
        if (!seen) {
            s->phase = RU_READ_SIZE;
            int64_t larger = size > s->best.size_bytes ? size * s->best.depth : outstanding;
            bool soon = (double)larger < SOON_S * s->best.bytes_per_s;
            set(s, size, depth_for(in, size, soon ? larger : outstanding));
            return RU_OK;
        }
    }
    return begin_shrink(in, s, scratch, err);
}

static ru_status deepen(const ru_read_in *in, const ru_read_window *w, ru_read_state *s,
                        ru_arena *scratch, ru_err *err)
{
    bool first = s->n_seen == 1;
    if (first || rui_read_better(in, w, &s->best)) {
        s->best = *w;
        uint32_t high = rui_read_depth_high(in, w->size_bytes);
        if (w->depth < high) {
            set(s, w->size_bytes, w->depth > high / 4 ? high : 4 * w->depth);
            return RU_OK;
        }
    }
    return next_size(in, s, scratch, err);
}

static ru_status shrunk(const ru_read_in *in, const ru_read_window *w, ru_read_state *s,
                        ru_arena *scratch, ru_err *err)
{
    double score = rui_read_score(in, w);
    if (score >= (1 - in->loss_max) * s->most) {
        s->fits = w->depth;
        s->best = *w;
    } else {
        s->fits_not = w->depth;
    }
    return shrink_to(in, s, scratch, err);
}

static ru_status search(const ru_read_in *in, const ru_read_window *w, ru_read_state *s,
                        ru_arena *scratch, ru_err *err)
{
    rui_read_keep(s, w);
    if (s->phase == RU_READ_DEEPEN) {
        return deepen(in, w, s, scratch, err);
    }
    if (s->phase == RU_READ_SHRINK) {
        return shrunk(in, w, s, scratch, err);
    }
    s->best = rui_read_better(in, w, &s->best) ? *w : s->best;
    return next_size(in, s, scratch, err);
}

/* -- steady ---------------------------------------------------------------------------------------
 */

/* One of the four neighbours, by seed; those outside the grid are not tried. */
static void try_neighbour(const ru_read_in *in, ru_read_state *s)
{
    ru_rng rng = ru_rng_from(in->seed, s->tries++);
    uint32_t k = ru_rng_below(&rng, 4);
    int64_t size = k == 0   ? s->best.size_bytes * 2
                   : k == 1 ? s->best.size_bytes / 2
                            : s->best.size_bytes;
    uint32_t depth = k == 2 ? s->best.depth * 2 : k == 3 ? s->best.depth / 2 : s->best.depth;
    s->tried_s = 0;
    bool inside = size >= rui_read_size_low(in) && size <= rui_read_size_high(in) &&
                  depth >= depth_low(in, size) && depth <= rui_read_depth_high(in, size);
    if (inside) {
        s->phase = RU_READ_TRY;
        set(s, size, depth);
    }
}

/* The search starts again from what is in force: deeper first. */
static void again(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    s->n_seen = 0;
    s->odd = 0;
    s->changes++;
    if (in->method == RU_READ_PHASES) {
        rui_read_climb_begin(in, s);
        return;
    }
    rui_read_keep(s, w);
    s->best = *w;
    s->first_size = w->size_bytes;
    s->turn = 2; /* sizes next to this one */
    uint32_t high = rui_read_depth_high(in, w->size_bytes);
    s->phase = RU_READ_DEEPEN;
    set(s, w->size_bytes, w->depth > high / 4 ? high : 4 * w->depth);
}

static void steady(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    if (s->phase == RU_READ_TRY) {
        if (rui_read_better(in, w, &s->best)) {
            s->best = *w;
            s->changes++;
        }
        s->phase = RU_READ_STEADY;
        set(s, s->best.size_bytes, s->best.depth);
        return;
    }
    bool odd = w->bytes_per_s < FAR_LOW * s->best.bytes_per_s ||
               w->bytes_per_s > FAR_HIGH * s->best.bytes_per_s ||
               w->latency_s < FAR_LOW * s->best.latency_s;
    s->odd = odd ? s->odd + 1 : 0;
    s->tried_s += w->seconds;
    s->calm_s = w->stall_s > 0 ? 0 : s->calm_s + w->seconds;
    bool enough = in->need_bytes_per_s > 0 && s->calm_s >= CALM_S;
    if (s->odd >= ODD_MAX) {
        again(in, w, s);
    } else if (s->tried_s >= in->try_s && !enough) {
        try_neighbour(in, s);
    }
}

ru_status ru_read_next(const ru_read_in *in, const ru_read_window *w, ru_arena *scratch,
                       ru_read_state *s, ru_err *err)
{
    if (w->size_bytes != s->size_bytes || w->depth != s->depth) {
        s->tried_s += w->seconds; /* measured under another setting */
        return RU_OK;
    }
    bool tuned = in->method == RU_READ_MODEL || in->method == RU_READ_PHASES;
    if (tuned && (s->phase == RU_READ_STEADY || s->phase == RU_READ_TRY)) {
        steady(in, w, s);
        return RU_OK;
    }
    if (in->method == RU_READ_MODEL) {
        return search(in, w, s, scratch, err);
    }
    rui_read_climb_next(in, w, s);
    return RU_OK;
}

/* -- the plan -------------------------------------------------------------------------------------
 */

static ru_status check_windows(const ru_read_in *in, ru_err *err)
{
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_window *w = &in->window[i];
        bool right = w->size_bytes >= 1 && w->depth >= 1 && w->depth <= RU_READ_DEPTH_MAX &&
                     w->seconds > 0 && w->bytes_per_s > 0 && w->error >= 0 && w->latency_s >= 0 &&
                     w->stall_s >= 0;
        bool finite = isfinite(w->seconds + w->bytes_per_s + w->error + w->latency_s + w->stall_s);
        if (!right || !finite) {
            return RU_FAIL(
                err, RU_E_ARG,
                "window %u must have bytes, requests, seconds and a rate above 0, and no "
                "negative time",
                i);
        }
    }
    return RU_OK;
}

ru_status ru_read_in_check(const ru_read_in *in, ru_err *err)
{
    if (in->size_min < 1 || in->size_max < in->size_min || in->sample_bytes < 1) {
        return RU_FAIL(err, RU_E_ARG,
                       "sizes go from %lld to %lld and a sample has %lld bytes; expected 1 or "
                       "more, the smallest size first",
                       (long long)in->size_min, (long long)in->size_max,
                       (long long)in->sample_bytes);
    }
    if (in->memory_max_bytes < in->size_min) {
        return RU_FAIL(err, RU_E_ARG,
                       "%lld bytes of memory are too few for a request of %lld bytes",
                       (long long)in->memory_max_bytes, (long long)in->size_min);
    }
    if (in->depth_max < 1 || in->depth_max > RU_READ_DEPTH_MAX || in->n > RU_READ_WINDOWS_MAX) {
        return RU_FAIL(err, RU_E_ARG,
                       "there are %u outstanding requests and %u windows; expected 1 to %d "
                       "requests and at most %d windows",
                       in->depth_max, in->n, RU_READ_DEPTH_MAX, RU_READ_WINDOWS_MAX);
    }
    bool orderly = in->ahead_max == 0 || in->ahead_max >= in->ahead_min;
    if (in->ahead_min > RU_READ_AHEAD_MAX || in->ahead_max > RU_READ_AHEAD_MAX || !orderly) {
        return RU_FAIL(err, RU_E_ARG,
                       "%u to %u batches are read ahead; expected at most %d, the least first",
                       in->ahead_min, in->ahead_max, RU_READ_AHEAD_MAX);
    }
    return check_windows(in, err);
}

/* Batches to hold so that the buffer is hardly ever empty: mean and three deviations of a batch's
 * delivery, in steps. Before deliveries were measured the rate says how long they take. */
static uint32_t read_ahead(const ru_read_in *in, double bytes_per_s, double error)
{
    double least = fmax(in->ahead_min, 1), longest = 0;
    if (in->delivery_s > 0) {
        longest = in->delivery_s + 3 * in->delivery_sd_s;
    } else if (bytes_per_s > 0) {
        longest = in->batch_bytes / bytes_per_s * (1 + 3 * error / bytes_per_s);
    }
    if (!(in->step_s > 0) || !(longest > 0)) {
        return (uint32_t)least;
    }
    double room = in->ahead_max > 0     ? in->ahead_max
                  : in->batch_bytes > 0 ? floor((double)in->memory_max_bytes / in->batch_bytes)
                                        : RU_READ_AHEAD_MAX;
    room = fmin(room, RU_READ_AHEAD_MAX);
    return (uint32_t)fmax(fmin(ceil(longest / in->step_s), room), least);
}

static ru_status fit_all(const ru_read_in *in, ru_arena *scratch, ru_read_plan *plan, ru_err *err)
{
    ru_disk_sample *sample = RU_NEW(scratch, ru_disk_sample, in->n);
    if (sample == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u windows", in->n);
    }
    for (uint32_t i = 0; i < in->n; i++) {
        const ru_read_window *w = &in->window[i];
        sample[i] = (ru_disk_sample){w->size_bytes, w->depth, w->bytes_per_s};
    }
    plan->fitted = true;
    return ru_disk_fit(sample, in->n, scratch, &plan->disk, err);
}

ru_status ru_plan_read(const ru_read_in *in, ru_arena *scratch, ru_read_plan *plan, ru_err *err)
{
    RU_TRY(ru_read_in_check(in, err));
    ru_read_state s;
    ru_read_begin(in, &s);
    for (uint32_t i = 0; i < in->n; i++) {
        RU_TRY(ru_read_next(in, &in->window[i], scratch, &s, err));
    }
    ru_read_plan p = {.phase = s.phase, .size_bytes = s.size_bytes, .depth = s.depth};
    p.changes = s.changes;
    if (in->n > 0) {
        RU_TRY(fit_all(in, scratch, &p, err));
        p.bytes_per_s = ru_disk_rate(&p.disk, p.size_bytes, p.depth);
        p.latency_s = ru_disk_request_s(&p.disk, p.size_bytes, p.depth);
    }
    double error = p.disk.error * p.bytes_per_s;
    for (uint32_t i = 0; i < in->n; i++) { /* the latest one counts */
        const ru_read_window *w = &in->window[i];
        if (w->size_bytes == p.size_bytes && w->depth == p.depth) {
            p.bytes_per_s = w->bytes_per_s;
            p.latency_s = w->latency_s;
            error = w->error;
        }
    }
    p.read_ahead = read_ahead(in, p.bytes_per_s, error);
    *plan = p;
    return RU_OK;
}
