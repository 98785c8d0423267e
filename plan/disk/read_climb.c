/* Baselines of the tuner that look at windows: the published phases, hill climbing on the depth,
 * additive increase with multiplicative decrease, and the whole grid. */
#include <math.h>

#include "plan/disk/read_impl.h"

#define WAIT_FREE   4    /* latencies up to so many times the least one are not punished */
#define WAIT_LAMBDA 0.02 /* of the largest rate, for each further multiple */
#define AIMD_WAIT   2
#define CLIMB_AGAIN 20 /* windows between two tries at the top */

static int64_t one_sample(const ru_read_in *in)
{
    return in->sample_bytes < in->memory_max_bytes ? in->sample_bytes : in->memory_max_bytes;
}

/* The typical record, as a size of the grid. */
static int64_t record_size(const ru_read_in *in)
{
    int64_t size = rui_read_size_low(in);
    while (size < in->sample_bytes && size < rui_read_size_high(in)) {
        size *= 2;
    }
    return size;
}

void rui_read_climb_begin(const ru_read_in *in, ru_read_state *s)
{
    s->phase = RU_READ_DEEPEN;
    s->size_bytes = in->method == RU_READ_PHASES ? record_size(in)
                    : in->method == RU_READ_GRID ? rui_read_size_low(in)
                                                 : one_sample(in);
    s->depth = 1;
}

/* -- published phases -----------------------------------------------------------------------------
 */

/* Rate up to the need, less for each multiple of the least latency at this size beyond the fourth.
 */
static double phases_score(const ru_read_in *in, const ru_read_state *s, const ru_read_window *w)
{
    double least = w->latency_s, most = 0;
    for (uint32_t i = 0; i < s->n_seen; i++) {
        most = fmax(most, s->seen[i].bytes_per_s);
        least = s->seen[i].size_bytes == w->size_bytes ? fmin(least, s->seen[i].latency_s) : least;
    }
    double wait = least > 0 ? fmax(0, w->latency_s / least - WAIT_FREE) : 0;
    return rui_read_score(in, w) - WAIT_LAMBDA * most * wait;
}

/* Growth: the next point in the direction of the phase; false at the end of the grid. */
static bool grow(const ru_read_in *in, ru_read_state *s)
{
    int64_t size = s->best.size_bytes;
    uint32_t depth = s->best.depth;
    if (s->phase == RU_READ_DEEPEN) {
        depth *= 2;
    } else {
        size *= 2;
    }
    if (size > rui_read_size_high(in) || depth > rui_read_depth_high(in, size)) {
        return false;
    }
    s->size_bytes = size;
    s->depth = depth;
    return true;
}

static void phases_halve(ru_read_state *s)
{
    s->phase = RU_READ_SHRINK;
    if (s->best.depth == 1 || s->n_seen == RU_READ_SEEN) {
        rui_read_steady(s);
        return;
    }
    s->size_bytes = s->best.size_bytes;
    s->depth = s->best.depth / 2;
}

static void phases_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    rui_read_keep(s, w);
    double score = phases_score(in, s, w);
    double old = s->n_seen > 1 ? phases_score(in, s, &s->best) : 0;
    if (s->phase == RU_READ_SHRINK) {
        if (score < (1 - in->loss_max) * old) {
            rui_read_steady(s);
            return;
        }
        s->best = *w;
        phases_halve(s);
        return;
    }
    bool better = s->n_seen == 1 || score > old + in->gain_min * fabs(old);
    s->best = better ? *w : s->best;
    if (better && grow(in, s)) {
        return;
    }
    if (s->phase == RU_READ_DEEPEN) {
        s->phase = RU_READ_SIZE;
        if (grow(in, s)) {
            return;
        }
    }
    phases_halve(s);
}

/* -- climbing -------------------------------------------------------------------------------------
 */

static void climb_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    uint32_t high = rui_read_depth_high(in, s->size_bytes);
    bool first = s->n_seen++ == 0;
    if (s->phase == RU_READ_STEADY) {
        s->turn++;
        s->best = *w;
    } else if (first || w->bytes_per_s > s->best.bytes_per_s) {
        s->best = *w;
        s->turn = CLIMB_AGAIN;
    } else {
        s->turn = 0;
    }
    bool up = s->turn >= CLIMB_AGAIN && s->best.depth < high;
    s->n_seen = 1;
    s->phase = up ? RU_READ_DEEPEN : RU_READ_STEADY;
    s->depth = up ? s->best.depth + 1 : s->best.depth;
}

static void aimd_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    uint32_t high = rui_read_depth_high(in, s->size_bytes);
    bool first = s->n_seen == 0;
    s->n_seen = 1;
    s->most = first ? w->latency_s : fmin(s->most, w->latency_s);
    if (w->latency_s > AIMD_WAIT * s->most) {
        s->depth = s->depth > 1 ? s->depth / 2 : 1;
    } else {
        s->depth = s->depth < high ? s->depth + 1 : high;
    }
}

static void grid_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    if (s->phase == RU_READ_STEADY) {
        return;
    }
    s->best = s->n_seen == 0 || rui_read_score(in, w) > rui_read_score(in, &s->best) ? *w : s->best;
    s->n_seen = 1;
    if (s->depth < rui_read_depth_high(in, s->size_bytes)) {
        s->depth *= 2;
    } else if (s->size_bytes < rui_read_size_high(in)) {
        s->size_bytes *= 2;
        s->depth = 1;
    } else {
        rui_read_steady(s);
    }
}

void rui_read_climb_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s)
{
    switch (in->method) {
    case RU_READ_PHASES:
        phases_next(in, w, s);
        return;
    case RU_READ_CLIMB:
        climb_next(in, w, s);
        return;
    case RU_READ_AIMD:
        aimd_next(in, w, s);
        return;
    case RU_READ_GRID:
        grid_next(in, w, s);
        return;
    case RU_READ_MODEL:
    case RU_READ_ONE:
    case RU_READ_LOADER2:
    case RU_READ_LOADER8:
    case RU_READ_CORES:
    case RU_READ_FIXED16:
    case RU_READ_AHEAD:
        return;
    }
}
