/* Transfers with deadlines: Poisson arrivals at 60 % of the link, three classes and sizes.
 *
 * A deadline is feasible when an ideal link meets it: one that serves the smallest (class,
 * deadline), changes its mind at any byte and loses nothing. The transport gets MARGIN_NS on top
 * for what cannot be ideal (a chunk, the kernel's window, a round trip). In the second form all
 * transfers have one class and no deadline: first come, first served, over the same connections.
 * Sizes are those of the other cases: 64 MiB of bulk, 4 MiB that overtake. Each round draws other
 * arrivals, and both forms of a round the same: on average first come, first served misses half
 * (over 30 draws of 5 s by a model without losses, 53 %).
 *
 * Prints: feasible, feasible and missed, worst time of a background transfer over its time alone.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "bench/wire/net_client.h"

enum { JOBS_MAX = 4096, KINDS = 3, MARGIN_NS = 3000000 };

static const double load = 0.6;
static const struct {
    rui_net_stream stream;
    ru_chan_class class;
    int64_t bytes, slack_ns;
    double share; /* of the arrivals */
} kinds[KINDS] = {
    {RUI_NET_SMALL, RU_CLASS_URGENT, 256 << 10, 4000000, 0.79},
    {RUI_NET_URGENT, RU_CLASS_NORMAL, 4 << 20, 100000000, 0.19},
    {RUI_NET_BULK, RU_CLASS_BACKGROUND, 64 << 20, 2000000000, 0.02},
};

typedef struct job {
    uint32_t kind;
    int64_t at_ns, due_ns; /* since the start */
    int64_t ideal_ns;      /* when the ideal link is done with it */
    int64_t done_ns;       /* as measured; 0: not */
    double left_bytes;
} job;

typedef struct due {
    job *jobs; /* [n] */
    uint32_t n, next, done;
    bool ordered;
    ru_time start;
} due;

static uint32_t draw(due *d, double seconds, double rate, uint64_t seed)
{
    ru_rng rng = ru_rng_from(seed, 0);
    double mean = 0, t = 0;
    for (uint32_t k = 0; k < KINDS; k++) {
        mean += kinds[k].share * (double)kinds[k].bytes;
    }
    while (d->n < JOBS_MAX) {
        t += -log(1 - ru_rng_f64(&rng)) * mean / (load * rate);
        if (t > seconds) {
            break;
        }
        double u = ru_rng_f64(&rng);
        uint32_t kind = u < kinds[0].share ? 0 : u < kinds[0].share + kinds[1].share ? 1 : 2;
        int64_t at = (int64_t)(t * 1e9);
        int64_t alone = (int64_t)((double)kinds[kind].bytes / rate * 1e9);
        d->jobs[d->n++] = (job){.kind = kind,
                                .at_ns = at,
                                .due_ns = at + alone + kinds[kind].slack_ns,
                                .left_bytes = (double)kinds[kind].bytes};
    }
    return d->n;
}

/* The ideal link, from arrival to arrival. */
static void idealise(due *d, double rate)
{
    int64_t now = 0;
    for (uint32_t arrived = 0, left = d->n; left > 0;) {
        job *best = NULL;
        for (uint32_t k = 0; k < arrived; k++) {
            job *j = &d->jobs[k];
            bool better = best == NULL || j->kind < best->kind ||
                          (j->kind == best->kind && j->due_ns < best->due_ns);
            best = j->left_bytes > 0 && better ? j : best;
        }
        int64_t next = arrived < d->n ? d->jobs[arrived].at_ns : INT64_MAX;
        if (best == NULL) {
            now = next;
            arrived++;
            continue;
        }
        int64_t ends = now + (int64_t)(best->left_bytes / rate * 1e9) + 1;
        if (ends <= next) {
            best->left_bytes = 0;
            best->ideal_ns = now = ends;
            left--;
        } else {
            best->left_bytes -= (double)(next - now) * 1e-9 * rate;
            best->left_bytes = best->left_bytes > 1 ? best->left_bytes : 1;
            now = next;
            arrived++;
        }
    }
}

static void start_one(rui_client *c, due *d, uint32_t k)
{
    const job *j = &d->jobs[k];
    rui_net_stream stream = kinds[j->kind].stream;
    ru_span span = {c->bulk, kinds[j->kind].bytes};
    ru_chan_send_in in = {.to = c->end.peers[0],
                          .name = {stream, c->iter[0][stream]++},
                          .class = d->ordered ? kinds[j->kind].class : RU_CLASS_NORMAL,
                          .deadline = {d->ordered ? d->start.ns + j->due_ns : 0},
                          .spans = &span,
                          .n_spans = 1,
                          .fence = true,
                          .cookie = k};
    ru_xfer_id id;
    if (ru_chan_send(c->end.chan, &in, ru_clock_now(), &id) != RU_OK) {
        c->end.failed = true;
    }
}

static void arrive(void *self, uint32_t what, ru_time now)
{
    rui_client *c = self;
    due *d = c->kind;
    while (d->next < d->n && d->start.ns + d->jobs[d->next].at_ns <= now.ns) {
        start_one(c, d, d->next++);
    }
    if (d->next < d->n) {
        ru_loop_timer(c->end.loop, arrive, c, what,
                      ru_time_after(d->start, d->jobs[d->next].at_ns));
    }
}

static void done(rui_client *c, uint64_t cookie, ru_time now)
{
    due *d = c->kind;
    if (cookie < d->n) {
        d->jobs[cookie].done_ns = ru_time_since(now, d->start);
        d->done++;
    }
}

static void print(const due *d, double rate)
{
    uint32_t feasible = 0, missed = 0;
    double worst = 0;
    for (uint32_t k = 0; k < d->n; k++) {
        const job *j = &d->jobs[k];
        if (j->ideal_ns <= j->due_ns) {
            feasible++;
            missed += j->done_ns == 0 || j->done_ns > j->due_ns + MARGIN_NS;
        }
        double alone_ns = (double)kinds[j->kind].bytes / rate * 1e9;
        double times = (double)(j->done_ns - j->at_ns) / alone_ns;
        worst = kinds[j->kind].class == RU_CLASS_BACKGROUND && times > worst ? times : worst;
    }
    printf("%u %u %.3f\n", feasible, missed, worst);
}

ru_status rui_client_deadlines(rui_client *c, double seconds, double rate_bytes_per_s, bool ordered,
                               uint64_t seed, ru_err *err)
{
    due d = {.ordered = ordered};
    for (uint32_t k = 0; k < KINDS; k++) {
        c->config.bytes[kinds[k].stream] = kinds[k].bytes;
        c->config.depth[kinds[k].stream] = RUI_NET_DEPTH_MAX;
    }
    d.jobs = calloc(JOBS_MAX, sizeof *d.jobs);
    if (d.jobs == NULL || rate_bytes_per_s <= 0 || draw(&d, seconds, rate_bytes_per_s, seed) == 0) {
        free(d.jobs);
        return RU_FAIL(err, RU_E_ARG, "no transfers to measure");
    }
    idealise(&d, rate_bytes_per_s);
    c->kind = &d;
    c->sent = done;
    c->drain = true;
    ru_status st = rui_client_configure(c, err);
    d.start = ru_clock_now();
    arrive(c, 4, d.start);
    for (uint32_t k = 0; st == RU_OK && d.done < d.n && k < 40 + (uint32_t)(seconds * 10); k++) {
        st = rui_client_run(c, 0.1, err);
    }
    if (st == RU_OK) {
        print(&d, rate_bytes_per_s);
    }
    c->sent = NULL;
    free(d.jobs);
    return st;
}
