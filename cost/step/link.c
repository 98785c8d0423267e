/* Links: times of transfers, max-min fair shares. */
#include "cost/step/link.h"

#include <math.h>
#include <stddef.h>

static int64_t whole_ns(double ns)
{
    return ns < (double)RU_LINK_NS_MAX ? (int64_t)floor(ns + 0.5) : RU_LINK_NS_MAX;
}

int64_t ru_cost_link_held_ns(const ru_link_cost *l, int64_t size_bytes)
{
    RU_CHECK(l->bytes_per_s > 0);
    RU_CHECK(size_bytes >= 0);
    return whole_ns((double)l->overhead_ns + (double)size_bytes / l->bytes_per_s * 1e9);
}

int64_t ru_cost_link_ns(const ru_link_cost *l, int64_t size_bytes)
{
    int64_t held = ru_cost_link_held_ns(l, size_bytes);
    return l->latency_ns < RU_LINK_NS_MAX - held ? held + l->latency_ns : RU_LINK_NS_MAX;
}

int64_t ru_cost_link_chunk_bytes(const ru_link_cost *l, double overhead_share)
{
    RU_CHECK(overhead_share > 0 && overhead_share < 1);
    double carried_ns = (double)l->overhead_ns * (1 - overhead_share) / overhead_share;
    double bytes = carried_ns * 1e-9 * l->bytes_per_s;
    return bytes < 1 ? 1 : bytes < 0x1p62 ? (int64_t)bytes : INT64_C(1) << 62;
}

static ru_status check_flows(const double *link_bytes_per_s, uint32_t n_links,
                             const ru_link_flow *flows, uint32_t n, ru_err *err)
{
    for (uint32_t l = 0; l < n_links; l++) {
        if (!(link_bytes_per_s[l] > 0) || !isfinite(link_bytes_per_s[l])) {
            return RU_FAIL(err, RU_E_ARG, "link %u has a bandwidth of %g, expected more than 0", l,
                           link_bytes_per_s[l]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const ru_link_flow *f = &flows[i];
        bool second =
            f->link[1] == RU_LINK_NONE || (f->link[1] < n_links && f->link[1] != f->link[0]);
        if (f->link[0] >= n_links || !second || !(f->bytes_per_s_max >= 0)) {
            return RU_FAIL(err, RU_E_ARG,
                           "flow %u crosses links %u and %u of %u, at most %g a "
                           "second",
                           i, f->link[0], f->link[1], n_links, f->bytes_per_s_max);
        }
    }
    return RU_OK;
}

typedef struct filling {
    const ru_link_flow *flows;
    uint32_t n, n_links;
    double *left;   /* [n_links] bandwidth that fixed flows leave */
    uint32_t *open; /* [n_links] flows that are not fixed yet */
    bool *fixed;    /* [n] */
    double *rate;
} filling;

/* The rate to which all open flows can rise together. */
static double level_of(const filling *f)
{
    double level = INFINITY;
    for (uint32_t l = 0; l < f->n_links; l++) {
        if (f->open[l] > 0) {
            level = fmin(level, f->left[l] / f->open[l]);
        }
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (!f->fixed[i] && f->flows[i].bytes_per_s_max > 0) {
            level = fmin(level, f->flows[i].bytes_per_s_max);
        }
    }
    return fmax(level, 0);
}

static bool is_full(const filling *f, uint32_t link, double level)
{
    return link != RU_LINK_NONE && f->left[link] / f->open[link] <= level;
}

/* Fix every flow that cannot rise above `level`; their number. Which links are full is judged
 * before any of their flows is fixed: `full` [n]. */
static uint32_t fix(filling *f, double level, bool *full)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const ru_link_flow *w = &f->flows[i];
        full[i] = !f->fixed[i] && ((w->bytes_per_s_max > 0 && w->bytes_per_s_max <= level) ||
                                   is_full(f, w->link[0], level) || is_full(f, w->link[1], level));
    }
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t k = 0; full[i] && k < 2 && f->flows[i].link[k] != RU_LINK_NONE; k++) {
            uint32_t l = f->flows[i].link[k];
            f->left[l] = fmax(f->left[l] - level, 0);
            f->open[l]--;
        }
        if (full[i]) {
            f->rate[i] = level;
            f->fixed[i] = true;
            found++;
        }
    }
    return found;
}

ru_status ru_cost_link_share(const double *link_bytes_per_s, uint32_t n_links,
                             const ru_link_flow *flows, uint32_t n, ru_arena *scratch, double *rate,
                             ru_err *err)
{
    RU_TRY(check_flows(link_bytes_per_s, n_links, flows, n, err));
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    filling f = {.flows = flows,
                 .n = n,
                 .n_links = n_links,
                 .left = RU_NEW(scratch, double, n_links),
                 .open = RU_NEW(scratch, uint32_t, n_links),
                 .fixed = RU_NEW(scratch, bool, n),
                 .rate = rate};
    bool *full = RU_NEW(scratch, bool, n);
    if (f.left == NULL || f.open == NULL || f.fixed == NULL || full == NULL) {
        ru_arena_rewind(scratch, mark);
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the rates of %u flows", n);
    }
    for (uint32_t l = 0; l < n_links; l++) {
        f.left[l] = link_bytes_per_s[l];
    }
    for (uint32_t i = 0; i < n; i++) {
        f.open[flows[i].link[0]]++;
        if (flows[i].link[1] != RU_LINK_NONE) {
            f.open[flows[i].link[1]]++;
        }
    }
    for (uint32_t done = 0; done < n;) {
        uint32_t found = fix(&f, level_of(&f), full);
        RU_CHECK(found > 0);
        done += found;
    }
    ru_arena_rewind(scratch, mark);
    return RU_OK;
}
