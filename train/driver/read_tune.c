#include "train/driver/read_tune.h"

#include <math.h>
#include <string.h>

#include "base/log.h"

enum { SCRATCH_BYTES = 1 << 20, FORGET = 64, SIZE_MIN = 64 << 10, SIZE_MAX_BYTES = 16 << 20 };
enum { FAR_DEPTH = 8 };
enum { STEPS_MIN = 5, DELIVERIES_MIN = 16 }; /* fewer say nothing */

/* The power of two at or above a file's mean size, within what a request may have. */
static int64_t size_of_files(const ru_read_in *in)
{
    int64_t size = in->size_min;
    while (size < in->sample_bytes && size < in->size_max) {
        size *= 2;
    }
    return size;
}

ru_status rui_read_tune_open(rui_read_tune *t, const rui_read_tune_options *opt, ru_arena *arena,
                             ru_err *err)
{
    int64_t size_max = SIZE_MIN;
    while (size_max < opt->run_bytes && size_max < SIZE_MAX_BYTES) {
        size_max *= 2;
    }
    ru_read_done *ended = t->ended;
    uint8_t *memory = t->scratch;
    *t = (rui_read_tune){
        .ended = ended != NULL ? ended : RU_NEW(arena, ru_read_done, RU_READS_KEPT),
        .scratch = memory != NULL ? memory : ru_arena_alloc(arena, SCRATCH_BYTES, 64),
        .in = {
            .q = {.sample_bytes = opt->sample_bytes > 0 ? opt->sample_bytes : 1,
                  .size_min = SIZE_MIN,
                  .size_max = size_max,
                  .memory_max_bytes = opt->memory_bytes > SIZE_MIN ? opt->memory_bytes : SIZE_MIN,
                  .depth_min = opt->far ? FAR_DEPTH : 1,
                  .depth_max = 256,
                  .cores = 2,
                  .method = RU_READ_MODEL,
                  .ahead_min = opt->ahead_min,
                  .ahead_max = opt->ahead_max,
                  .gain_min = 0.05,
                  .loss_max = 0.02,
                  .try_s = 10},
            .batch_mb = 1e-6 * (double)opt->batch_bytes}};
    if (t->ended == NULL || t->scratch == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the requests of the training data");
    }
    if (opt->files) {
        t->in.q.size_min = t->in.q.size_max = size_of_files(&t->in.q);
    }
    t->in.windows.at = t->window;
    ru_arena scratch;
    ru_arena_init_fixed(&scratch, t->scratch, SCRATCH_BYTES);
    const ru_policy_tools tools = {.scratch = &scratch};
    RU_TRY(ru_policy_read.plan(&t->in, &tools, &t->plan, err));
    ru_read_meter_begin(&t->meter, t->plan.size_bytes, t->plan.depth, 0);
    return RU_OK;
}

/* A window more, within the bound: what came soon after the search is forgotten first. */
static void keep(rui_read_tune *t, const ru_read_window *w)
{
    uint32_t n = t->in.windows.n, from = t->n_search > 0 ? t->n_search : n / 2;
    if (n == RUI_READ_WINDOWS) {
        uint32_t less = n - from < FORGET ? n - from : FORGET;
        memmove(t->window + from, t->window + from + less, (n - from - less) * sizeof *t->window);
        n -= less;
    }
    t->window[n] = (ru_read_policy_window){.w = *w,
                                           .mb_per_s = 1e-6 * w->bytes_per_s,
                                           .error_mb = 1e-6 * w->error,
                                           .latency_ms = 1e3 * w->latency_s};
    t->in.windows.n = n + 1;
}

/* -- how far ahead ---------------------------------------------------------------------------- */

static void times_add(rui_read_times *t, int64_t ns)
{
    t->ns[t->n++ % RUI_READ_DELIVERIES] = ns;
}

/* The middle one of the last steps: a pause for a checkpoint or an evaluation does not count. */
static int64_t middle(const rui_read_times *t)
{
    int64_t by_size[RUI_READ_STEPS];
    uint32_t n = 0;
    for (; n < RUI_READ_STEPS && n < t->n; n++) {
        int64_t ns = t->ns[(t->n - 1 - n) % RUI_READ_DELIVERIES];
        uint32_t k = n;
        for (; k > 0 && by_size[k - 1] > ns; k--) {
            by_size[k] = by_size[k - 1];
        }
        by_size[k] = ns;
    }
    return by_size[n / 2];
}

static void deliveries(const rui_read_times *t, double *mean_s, double *sd_s)
{
    uint32_t n = t->n < RUI_READ_DELIVERIES ? t->n : RUI_READ_DELIVERIES;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += 1e-9 * (double)t->ns[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        double d = 1e-9 * (double)t->ns[i] - sum / n;
        squares += d * d;
    }
    *mean_s = sum / n;
    *sd_s = sqrt(squares / (n - 1));
}

/* Steps and deliveries as the policy takes them. What the trainer needs stays as it was when the
 * search began to look at windows: the search must be the same when the policy repeats it. */
static void note(rui_read_tune *t, const rui_read_step *step)
{
    int64_t own_ns = step->step_ns - step->wait_ns; /* the trainer's own time */
    if (own_ns > 0) {
        times_add(&t->own, own_ns);
    }
    if (step->fill_ns > 0) {
        times_add(&t->filled, step->fill_ns);
    }
    if (t->own.n >= STEPS_MIN) {
        t->in.q.step_s = 1e-9 * (double)middle(&t->own);
        bool open = t->in.windows.n == 0 || !(t->in.need_mb_per_s > 0);
        t->in.need_mb_per_s = open ? t->in.batch_mb / t->in.q.step_s : t->in.need_mb_per_s;
    }
    if (t->filled.n >= DELIVERIES_MIN) {
        deliveries(&t->filled, &t->in.q.delivery_s, &t->in.q.delivery_sd_s);
    }
}

/* More is taken at once, less when it is half or less, so that noise changes nothing. */
static bool other_depth(uint32_t now, uint32_t next)
{
    return next > now || next <= now / 2;
}

/* The policy's answer to all windows so far. True: another setting. */
static bool decide(rui_read_tune *t, ru_decisions *decisions)
{
    ru_arena scratch;
    ru_err err = {0};
    ru_read_plan p;
    ru_arena_init_fixed(&scratch, t->scratch, SCRATCH_BYTES);
    const ru_policy_tools tools = {.scratch = &scratch};
    if (ru_policy_read.plan(&t->in, &tools, &p, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "read", "the data is read as before: %s", err.text);
        return false;
    }
    bool moved = p.size_bytes != t->plan.size_bytes || p.depth != t->plan.depth;
    bool settled = p.phase == RU_READ_STEADY && (t->n_search == 0 || t->plan.changes != p.changes);
    if (p.phase == RU_READ_STEADY && other_depth(t->ahead, p.read_ahead)) {
        t->ahead = p.read_ahead;
        settled = true;
    }
    t->n_search = p.phase == RU_READ_STEADY && t->n_search == 0 ? t->in.windows.n : t->n_search;
    t->plan = p;
    if (settled) {
        ru_decisions_add(decisions, &ru_policy_read, &t->in, false);
    }
    if (moved) {
        ru_read_meter_begin(&t->meter, p.size_bytes, p.depth, t->busy_ns);
    }
    return moved;
}

/* By the end, in place; batches come nearly in order. */
static void sort(ru_read_done *e, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2) {
        for (uint32_t i = gap; i < n; i++) {
            ru_read_done x = e[i];
            uint32_t k = i;
            for (; k >= gap && e[k - gap].ended_ns > x.ended_ns; k -= gap) {
                e[k] = e[k - gap];
            }
            e[k] = x;
        }
    }
}

bool rui_read_tune_take(rui_read_tune *t, ru_read_done *ended, uint32_t n,
                        const rui_read_step *step, ru_decisions *decisions)
{
    note(t, step);
    ru_read_meter_stall(&t->meter, step->wait_ns);
    sort(ended, n);
    bool due = false;
    for (uint32_t i = 0; i < n; i++) {
        const ru_read_done *e = &ended[i];
        int64_t from = e->issued_ns > t->until_ns ? e->issued_ns : t->until_ns;
        int64_t longer = e->ended_ns > from ? e->ended_ns - from : 0;
        t->busy_ns += longer;
        t->until_ns = e->ended_ns > t->until_ns ? e->ended_ns : t->until_ns;
        ru_read_window w;
        if (ru_read_meter_done(&t->meter, t->busy_ns - (e->ended_ns - e->issued_ns), e->size_bytes,
                               t->busy_ns, &w)) {
            keep(t, &w);
            due = true;
        }
    }
    return due && decide(t, decisions);
}

void rui_read_tune_step(rui_read_tune *t, ru_stream *stream, const rui_read_step *step,
                        ru_decisions *decisions)
{
    uint32_t n = ru_stream_reads_take(stream, t->ended, RU_READS_KEPT);
    uint32_t depth = ru_stream_reads_depth(stream), ahead = t->ahead;
    if (depth != t->meter.depth) { /* by order of a leader: it says nothing of the plan's setting */
        ru_read_meter_begin(&t->meter, t->plan.size_bytes, depth, t->busy_ns);
    }
    if (rui_read_tune_take(t, t->ended, n, step, decisions)) {
        ru_stream_reads_set(stream, t->plan.size_bytes, t->plan.depth);
    }
    if (t->ahead != ahead) {
        ru_stream_ahead_set(stream, t->ahead);
    }
}
