/* The leader asks plan/crew/reassign what executors that are slow for good shall give to their
 * helpers in every clock (sticky boundaries), from how fast each was in the last clocks, and tells
 * all members when that changes. */
#include <string.h>

#include "train/engine/engine_slice_impl.h"

/* No more often than this; with more executors the plan would take too long for the loop. */
#define AGAIN_NS INT64_C(100000000)
enum { EXECUTORS_MAX = 256 };

ru_reassign_method rui_slice_method(const ru_engine *e)
{
    return e->opt.stragglers == RU_ENGINE_REASSIGN ? RU_REASSIGN_STICKY
           : e->opt.stragglers == RU_ENGINE_STEAL  ? RU_REASSIGN_STEAL
           : e->driver_slack > 0                   ? RU_REASSIGN_FLEXRR
                                                   : RU_REASSIGN_SLICES;
}

ru_status rui_share_open(ru_engine *e, ru_err *err)
{
    rui_share *h = &e->slices->share;
    int64_t n = e->n_execs;
    ru_arena_init(&h->scratch, 0);
    h->took = RU_NEW(e->arena, double, n *RUI_SHARE_HISTORY);
    h->now = RU_NEW(e->arena, double, n);
    h->rtt_ns = RU_NEW(e->arena, int64_t, n);
    h->grant = RU_NEW(e->arena, uint32_t, n * e->slices->group + 1);
    return h->took != NULL && h->now != NULL && h->rtt_ns != NULL && h->grant != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the speeds of %u executors", e->n_execs);
}

void rui_share_reset(ru_engine *e, ru_time now)
{
    if (e->slices == NULL) {
        return;
    }
    rui_share *h = &e->slices->share;
    h->n_took = h->clocks = 0;
    h->slices = (ru_engine_slices){0};
    h->planned_at = h->told_at = now;
    memset(h->now, 0, e->n_execs * sizeof *h->now);
    memset(h->rtt_ns, 0, e->n_execs * sizeof *h->rtt_ns);
    memset(h->grant, 0, (size_t)e->n_execs * e->slices->group * sizeof *h->grant);
}

void rui_share_heard(ru_engine *e, const rui_engine_head *d)
{
    if (e->slices == NULL) {
        return;
    }
    rui_share *h = &e->slices->share;
    double took_s = (double)(d->unit_ns * e->slices->units) * 1e-9;
    h->now[d->executor] = took_s > 0 && took_s < 1e6 ? took_s : h->now[d->executor];
    bool told = d->rtt_ns > 0 && d->rtt_ns < INT64_C(1000000000000);
    h->rtt_ns[d->executor] = told ? d->rtt_ns : h->rtt_ns[d->executor];
    h->slices.n += d->slices.n;
    h->slices.units += d->slices.units;
    h->slices.of += d->slices.of;
    h->slices.predicted_ns += d->slices.predicted_ns;
    h->slices.took_ns += d->slices.took_ns;
    h->slices.bytes += d->slices.bytes;
    h->slices.row_bytes += d->slices.row_bytes;
    h->slices.all_bytes += d->slices.all_bytes;
}

static void tell(ru_engine *e, ru_time now, ru_effects *fx)
{
    const ru_view *v = ru_member_view(e->opt.member);
    const rui_share *h = &e->slices->share;
    for (uint32_t i = 0; i < v->n; i++) {
        rui_engine_head head = {0};
        int64_t bytes = (int64_t)sizeof head + (int64_t)e->n_execs * e->slices->group * 4;
        e->slices->sent.bytes += ru_node_is(v->at[i].node, e->opt.self) ? 0 : bytes;
        rui_engine_send(e, v->at[i].node, RUI_ENGINE_SHARES, &head, h->grant,
                        (int64_t)e->n_execs * e->slices->group * 4, now, fx);
    }
}

/* Of all executors that have measured it. */
static int64_t mean_rtt_ns(const ru_engine *e)
{
    const rui_share *h = &e->slices->share;
    int64_t sum = 0, n = 0;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        sum += h->rtt_ns[k];
        n += h->rtt_ns[k] > 0 ? 1 : 0;
    }
    return n > 0 ? sum / n : RUI_SLICE_RTT_NS;
}

static bool is_told(const rui_share *h)
{
    return (h->plans & (h->plans - 1)) == 0;
}

static void plan(ru_engine *e, ru_time now, ru_effects *fx)
{
    struct rui_slices *l = e->slices;
    rui_share *h = &l->share;
    const ru_reassign_method method = rui_slice_method(e);
    h->plans++;
    if (method != RU_REASSIGN_STICKY && !is_told(h)) {
        return; /* the baselines move no boundary: they are planned to be reported */
    }
    ru_arena_rewind(&h->scratch, (ru_arena_mark){0});
    const ru_reassign_in in = {.n = e->n_execs,
                               .clocks = h->n_took,
                               .items = l->units,
                               .took = h->took,
                               .tail = RUI_SLICE_TAIL,
                               .slack_max = e->driver_slack < 1 ? 0 : 1,
                               .rtt_ns = mean_rtt_ns(e),
                               .method = method};
    ru_reassign_plan p;
    ru_err err;
    ru_status st = ru_plan_reassign(&in, &h->scratch, &h->scratch, &p, &err);
    st = st == RU_OK ? ru_plan_reassign_check(&in, &p, &h->scratch, &err) : st;
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "executors keep their boundaries: %s", err.text);
        return;
    }
    RU_CHECK(method != RU_REASSIGN_STICKY || p.rules.group == l->group);
    size_t bytes = (size_t)e->n_execs * l->group * sizeof *p.grant;
    if (method == RU_REASSIGN_STICKY && memcmp(h->grant, p.grant, bytes) != 0) {
        memcpy(h->grant, p.grant, bytes);
        tell(e, now, fx);
    }
    if (is_told(h) && e->opt.reassigned != NULL) {
        e->opt.reassigned(e->opt.news_self, &in, &h->slices,
                          (now.ns - h->told_at.ns) / (h->clocks > 0 ? h->clocks : 1));
        h->slices = (ru_engine_slices){0};
        h->clocks = 0;
        h->told_at = now;
    }
}

void rui_share_closed(ru_engine *e, ru_time now, ru_effects *fx)
{
    if (e->slices == NULL) {
        return;
    }
    rui_share *h = &e->slices->share;
    uint32_t n = e->n_execs;
    h->clocks++;
    for (uint32_t k = 0; k < n; k++) {
        if (h->now[k] <= 0) {
            return; /* one has not worked yet */
        }
    }
    if (h->n_took == RUI_SHARE_HISTORY) {
        memmove(h->took, h->took + n, (size_t)n * (RUI_SHARE_HISTORY - 1) * sizeof *h->took);
        h->n_took--;
    }
    memcpy(h->took + (size_t)h->n_took++ * n, h->now, n * sizeof *h->now);
    bool may = n <= EXECUTORS_MAX && h->n_took >= 2;
    if (may && now.ns - h->planned_at.ns >= AGAIN_NS) {
        h->planned_at = now;
        plan(e, now, fx);
    }
}

void rui_share_end(ru_engine *e, ru_time now)
{
    if (e->slices != NULL && e->opt.reassigned != NULL && e->slices->share.clocks > 0) {
        const rui_share *h = &e->slices->share;
        e->opt.reassigned(e->opt.news_self, NULL, &h->slices, (now.ns - h->told_at.ns) / h->clocks);
    }
}

void rui_share_take(ru_engine *e, const void *grants, int64_t n, ru_time now, ru_effects *fx)
{
    struct rui_slices *l = e->slices;
    if (l == NULL || n == 0 || n != (int64_t)e->n_execs * l->group * 4) {
        return;
    }
    const uint32_t *grant = grants;
    for (uint32_t k = 0; k < e->n_execs; k++) {
        rui_slice *s = &l->at[k];
        memcpy(s->grant, grant + (size_t)k * l->group, l->group * sizeof *grant);
        for (uint32_t i = 0; i < s->n_helpees; i++) {
            const rui_slice *o = &l->at[s->helpee[i].id];
            for (uint32_t j = 0; j < o->n_helpers; j++) {
                if (o->helper[j] == k) {
                    s->expect[i] = grant[(size_t)s->helpee[i].id * l->group + j];
                }
            }
        }
        if (s->machine != NULL && s->begun) {
            rui_slice_granted(e, k, now, fx);
        }
    }
}
