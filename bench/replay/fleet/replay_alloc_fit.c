/* Parts of the replay of `alloc` without a workload: decisions of given sizes, fits, autoscaling.
 */
#include "bench/replay/fleet/replay_alloc.h"

#include <math.h>

#include "base/rng.h"
#include "env/clock.h"

/* -- decisions of given sizes -------------------------------------------------------------------*/

static void job_make(ru_alloc_job *j, ru_rng *r)
{
    double slow = ru_math_exp(ru_rng_uniform(r, -2, 2));
    *j =
        (ru_alloc_job){.model = {.perf = {.1 * slow, .005 * slow, ru_rng_uniform(r, .02, .8),
                                          ru_rng_uniform(r, 1e-4, .01), ru_rng_uniform(r, .005, .2),
                                          ru_rng_uniform(r, 1e-5, .005), ru_rng_uniform(r, 1, 3)},
                                 .sqr = .001,
                                 .var = .001 * ru_math_exp(ru_rng_uniform(r, -1, 5)),
                                 .batch_first = 128,
                                 .batch_max = 8192,
                                 .local_min = 32,
                                 .local_max = 512},
                       .replicas_max = 2u << ru_rng_below(r, 5),
                       .age_s = ru_rng_uniform(r, 60, 20000),
                       .service_s = ru_rng_uniform(r, 60, 60000),
                       .restarts = ru_rng_below(r, 8)};
}

/* A first round with nothing in force, then one with a tenth of the jobs new. */
static ru_status round_of(ru_replay *r, uint32_t nodes, uint32_t devices, uint32_t n_jobs,
                          double goal, ru_err *err)
{
    ru_alloc_job *jobs = RU_NEW(r->arena, ru_alloc_job, n_jobs);
    uint32_t *each = RU_NEW(r->arena, uint32_t, nodes);
    if (jobs == NULL || each == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u jobs", n_jobs);
    }
    ru_rng rng = ru_rng_from(7, n_jobs);
    for (uint32_t i = 0; i < n_jobs; i++) {
        job_make(&jobs[i], &rng);
    }
    for (uint32_t i = 0; i < nodes; i++) {
        each[i] = devices;
    }
    ru_alloc_in in = {.jobs = jobs,
                      .n_jobs = n_jobs,
                      .devices = each,
                      .n_nodes = nodes,
                      .power = -1,
                      .restart_s = 30,
                      .hold_s = 240,
                      .decay = 0.25,
                      .decay_s = 14400,
                      .seed = 1};
    ru_alloc_plan first, second;
    int64_t begin = ru_clock_cpu_ns();
    RU_TRY(ru_plan_alloc(&in, r->arena, r->arena, &first, err));
    int64_t middle = ru_clock_cpu_ns();
    for (uint32_t i = 0; i < n_jobs; i++) {
        if (i % 10 == 0) {
            job_make(&jobs[i], &rng);
        } else {
            jobs[i].now = &first.parts[first.jobs[i].first];
            jobs[i].n_now = first.jobs[i].n_parts;
        }
    }
    int64_t again = ru_clock_cpu_ns();
    RU_TRY(ru_plan_alloc(&in, r->arena, r->arena, &second, err));
    int64_t end = ru_clock_cpu_ns();
    RU_TRY(ru_plan_alloc_check(&in, &second, r->arena, err));
    const char *name = ru_arena_printf(r->arena, "%u devices, %u jobs", nodes * devices, n_jobs);
    ru_replay_row row = ru_replay_row_of(name, "round_ms", true);
    row.timed = true;
    row.ours = fmax((double)(middle - begin), (double)(end - again)) * 1e-6;
    row.published = nodes == 16 ? 1000 : RU_NAN;
    row.goal = goal;
    row.note =
        ru_arena_printf(r->arena, "%.1f ms from nothing, %.1f ms with a tenth new; %u used",
                        (double)(middle - begin) * 1e-6, (double)(end - again) * 1e-6, second.used);
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_alloc_rounds(ru_replay *r, ru_err *err)
{
    RU_TRY(round_of(r, 16, 4, 50, 50, err));
    RU_TRY(round_of(r, 160, 4, 500, RU_NAN, err));
    if (r->quick) {
        return RU_OK;
    }
    RU_TRY(round_of(r, 2000, 4, 5000, 1000, err));
    return round_of(r, 1000, 8, 5000, 1000, err);
}

/* -- fits ---------------------------------------------------------------------------------------*/

/* Loss of the published code's fit to all rows, and its mean error of a step's time. */
static const struct {
    const char *name;
    double loss, error;
} published_fits[RUI_APPS] = {{"bert", .12953, 6.5},        {"cifar10", .16451, 7.9},
                              {"ncf", .19590, 9.6},         {"imagenet", .13637, 7.3},
                              {"deepspeech2", .22123, 8.5}, {"yolov3", .32497, 9.0}};

static ru_status fit_of(ru_replay *r, const rui_app *a, uint32_t k, ru_err *err)
{
    ru_perf p, few;
    double loss, error = 0;
    RU_TRY(ru_perf_fit(a->samples, a->n_samples, NULL, r->arena, &p, &loss, err));
    for (uint32_t i = 0; i < a->n_samples; i++) {
        const ru_perf_sample *s = &a->samples[i];
        error += 100 / (double)a->n_samples *
                 fabs(ru_perf_step_s(&p, s->nodes, s->replicas, s->local, 0) / s->step_s - 1);
    }
    const char *name = ru_arena_printf(r->arena, "%s, %u rows", a->name, a->n_samples);
    ru_replay_row row = ru_replay_row_of(name, "fit_loss", true);
    row.ours = loss;
    row.published = published_fits[k].loss;
    row.goal = published_fits[k].loss + 0.005;
    row.note = ru_arena_printf(r->arena, "mean error of a step %.1f %%, published %.1f %%", error,
                               published_fits[k].error);
    RU_TRY(ru_replay_add(r, &row, err));
    ru_perf_sample some[100];
    for (uint32_t i = 0; i < RU_ARRAY_LEN(some); i++) {
        some[i] = a->samples[(size_t)i * a->n_samples / RU_ARRAY_LEN(some)];
    }
    int64_t begin = ru_clock_cpu_ns();
    RU_TRY(ru_perf_fit(some, RU_ARRAY_LEN(some), &p, r->arena, &few, NULL, err));
    row = ru_replay_row_of(a->name, "refit_of_100_ms", true);
    row.timed = true;
    row.ours = (double)(ru_clock_cpu_ns() - begin) * 1e-6;
    row.published = 200;
    row.goal = 5;
    return ru_replay_add(r, &row, err);
}

static ru_status search_of(ru_replay *r, ru_err *err)
{
    const ru_goodput_model m = {.perf = {.121, .00568, .0236, .00634, .0118, .00317, 1.14},
                                .sqr = .00136,
                                .var = .000502,
                                .batch_first = 128,
                                .batch_max = 1280,
                                .local_min = 64,
                                .local_max = 256};
    static const double want[] = {150.936276, 260.869015, 299.145479, 305.717199, 297.031909};
    double worst = 0, sum = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(want); k++) {
        uint32_t replicas = 1u << k, nodes = replicas > 4 ? replicas / 4 : 1;
        worst = fmax(worst, fabs(ru_goodput_best(&m, nodes, replicas).goodput / want[k] - 1));
    }
    ru_replay_row row = ru_replay_row_of("goodput of 1 to 16 replicas", "relative_error", true);
    row.ours = worst;
    row.goal = 1e-6;
    RU_TRY(ru_replay_add(r, &row, err));
    enum { TURNS = 2000 };
    int64_t begin = ru_clock_cpu_ns();
    for (uint32_t k = 0; k < TURNS; k++) {
        sum += ru_goodput_best(&m, 2, 5 + k % 12).goodput;
    }
    row = ru_replay_row_of("best batch of an allocation", "search_us", true);
    row.timed = true;
    row.ours = (double)(ru_clock_cpu_ns() - begin) * 1e-3 / TURNS;
    row.published = 400;
    row.goal = sum > 0 ? 20 : 0;
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_alloc_fits(ru_replay *r, const rui_app *apps, ru_err *err)
{
    RU_TRY(search_of(r, err));
    for (uint32_t k = 0; k < RUI_APPS; k++) {
        RU_TRY(fit_of(r, &apps[k], k, err));
    }
    return RU_OK;
}

/* -- autoscaling --------------------------------------------------------------------------------*/

/* Least time of an epoch on so many full nodes, with the best batch as it truly is. */
static double epoch_s(const rui_app *a, uint32_t epoch, uint32_t nodes)
{
    const ru_goodput_model m = {.batch_first = a->batch_first,
                                .batch_max = a->batch_max,
                                .local_min = a->local_min,
                                .local_max = a->local_max};
    uint32_t parts[RUI_APP_NODES_MAX];
    double least = (double)INFINITY, low = fmax(a->batch_first, 4.0 * nodes * a->local_min);
    for (uint32_t i = 0; i < nodes; i++) {
        parts[i] = 4;
    }
    for (uint32_t k = 0; k < 100; k++) {
        double batch = low * ru_math_exp(k / 99.0 * ru_math_log(a->batch_max / low));
        ru_goodput_choice c = ru_goodput_split(&m, 4 * nodes, batch);
        double step, sync, sqr, var, is = 4.0 * nodes * c.local * (c.passes + 1.0);
        rui_app_speed(a, parts, nodes, c.local, &step, &sync);
        rui_app_noise(a, is, epoch, &sqr, &var);
        double gain = (var + sqr) / (var * a->batch_first / is + sqr);
        least = fmin(least, (step + c.passes * (step - sync)) / gain);
    }
    return least * (rui_app_goal(a, epoch) - (epoch > 0 ? rui_app_goal(a, epoch - 1) : 0));
}

/* No plan that ends in `time_s` costs fewer node-seconds, even one that knows every epoch: for each
 * price of time, the least of cost + price * time over all plans, less price * time_s, is a bound;
 * the largest of them. */
static double cost_bound(const rui_app *a, double time_s)
{
    double low = 0, high = 1e6, best = 0;
    for (uint32_t k = 0; k < 40; k++) {
        double price = (low + high) / 2, sum = 0, time = 0;
        for (uint32_t e = 0; e < a->epochs; e++) {
            double least = (double)INFINITY, took = 0;
            for (uint32_t n = 1; n <= RUI_APP_NODES_MAX; n++) {
                double t = epoch_s(a, e, n);
                took = t * (n + price) < least ? t : took;
                least = fmin(least, t * (n + price));
            }
            sum += least;
            time += took;
        }
        best = fmax(best, sum - price * time_s);
        low = time > time_s ? price : low;
        high = time > time_s ? high : price;
    }
    return best;
}

static ru_status scaled(const rui_app *apps, double price, bool blind, rui_cluster_out *out,
                        ru_err *err)
{
    static const rui_row job = {"imagenet", 60, 3, 1, 200};
    const rui_cluster_in in = {.apps = apps,
                               .rows = &job,
                               .n_rows = 1,
                               .nodes = 16,
                               .devices = 4,
                               .method = RU_ALLOC_POLLUX,
                               .restart_s = 30,
                               .interval_s = 60,
                               .power = -1,
                               .hold_s = 240,
                               .time_price = price,
                               .blind = blind};
    return rui_cluster_run(&in, out, err);
}

/* One large job on nodes that are paid while they are there, beside a scaler by throughput, which
 * does not see what an example is worth. The price of time says how long a job may take: the least
 * cost within 1.06 of the other one's time, prices by bisection. */
static ru_status scale_to(ru_replay *r, const rui_app *apps, const char *rival, double blind_price,
                          ru_err *err)
{
    rui_cluster_out *out = RU_NEW(r->arena, rui_cluster_out, 1);
    double low = log(0.25), high = log(64), cost = (double)INFINITY, time = 0, at = 0;
    if (out == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for a cluster");
    }
    RU_TRY(scaled(apps, blind_price, true, out, err));
    double blind_cost = out->node_s, blind_time = out->jct_s[0];
    for (uint32_t k = 0; k < (r->quick ? 7 : 10); k++) {
        double price = exp((low + high) / 2);
        RU_TRY(scaled(apps, price, false, out, err));
        bool in_time = out->jct_s[0] <= 1.06 * blind_time;
        low = in_time ? low : log(price);
        high = in_time ? log(price) : high;
        if (in_time && out->node_s < cost) {
            cost = out->node_s;
            time = out->jct_s[0];
            at = price;
        }
    }
    const char *name = ru_arena_printf(r->arena, "imagenet, against %s", rival);
    ru_replay_row row = ru_replay_row_of(name, "cost_over_throughput_only", true);
    row.ours = cost / blind_cost;
    row.published = row.goal = 0.75;
    row.bound = cost_bound(&apps[3], 1.06 * blind_time) / blind_cost;
    row.note = ru_arena_printf(
        r->arena, "%.1f node-hours, time costs %.3g nodes; by throughput %.1f%s", cost / 3600, at,
        blind_cost / 3600, row.bound > row.goal ? "; no plan reaches the goal" : "");
    RU_TRY(ru_replay_add(r, &row, err));
    row = ru_replay_row_of(name, "time_over_throughput_only", true);
    row.ours = time / blind_time;
    row.published = row.goal = 1.06;
    row.note =
        ru_arena_printf(r->arena, "%.1f h, by throughput %.1f h", time / 3600, blind_time / 3600);
    return ru_replay_add(r, &row, err);
}

ru_status rui_replay_alloc_scales(ru_replay *r, const rui_app *apps, ru_err *err)
{
    RU_TRY(scale_to(r, apps, "throughput where time costs 4 nodes", 4, err));
    return scale_to(r, apps, "all nodes at once", 16, err);
}
