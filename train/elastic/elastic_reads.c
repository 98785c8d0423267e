/* Is delivery fair at the storage that the members read from?
 *
 *   member: READS (so far: bytes, stalls, ...) --once a second--> leader
 *   leader, when all have told: policy `read-share` --READ_SHARE: bytes outstanding--> members
 *
 * Members tell by a timer, not with DONE: who waits for its samples has no DONE to tell with, and
 * the others, which wait for its gradients, have none either. What they tell is counted from some
 * beginning, so that a lost message loses nothing; two of them are a window. After an order a
 * window begins with the next message, which may have crossed the order: the one behind it tells
 * of the new outstanding bytes. An order holds while the members stay. A member whose samples are
 * in memory tells nothing, and nobody asks the policy then.
 *
 * Source: hashemi-2020 (unfair delivery and its repair by outstanding bytes). */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "plan/disk/read_share_policy.h"
#include "train/elastic/elastic_impl.h"

#define LEAST     1e-9 /* a rate or time of 0 */
#define WINDOW_NS INT64_C(900000000)

static void put(ru_wire_out *w, int64_t v)
{
    ru_wire_put_u64(w, (uint64_t)v);
}

static int64_t take(ru_wire_in *w)
{
    uint64_t v = ru_wire_u64(w);
    w->bad = w->bad || v > INT64_MAX / 4;
    return w->bad ? 0 : (int64_t)v;
}

/* -- orders ------------------------------------------------------------------------------------ */

static void obey(ru_elastic *e, int64_t outstanding_bytes, uint64_t plan)
{
    e->shared = outstanding_bytes > 0;
    e->opt.device.ops->read_share(e->opt.device.self, outstanding_bytes, plan);
}

void rui_el_reads_share(ru_elastic *e, ru_wire_in *w)
{
    int64_t outstanding = take(w);
    uint64_t plan = ru_wire_u64(w);
    if (!w->bad && e->opt.device.ops->reads != NULL) {
        obey(e, outstanding, plan);
    }
}

void rui_el_reads_view(ru_elastic *e, const rui_el_view *next)
{
    bool same = e->v.n == next->n;
    for (uint32_t i = 0; same && i < next->n; i++) {
        same = ru_node_is(e->v.at[i].node, next->at[i].node);
    }
    if (same) {
        return;
    }
    if (e->shared) {
        obey(e, 0, 0);
    }
    e->lead.fair = (rui_el_fair){.wait_next_s = -1};
}

static void order(ru_elastic *e, const rui_el_member *m, double outstanding, uint64_t plan,
                  ru_effects *fx)
{
    int64_t bytes = outstanding < 1 ? 1 : (int64_t)outstanding;
    if (ru_node_is(m->node, e->opt.self)) {
        obey(e, bytes, plan);
        return;
    }
    uint8_t buf[32];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    put(&w, bytes);
    ru_wire_put_u64(&w, plan);
    ru_fx_send(fx, m->node, RUI_EL_READ_SHARE_MSG, buf, ru_wire_size(&w));
}

/* -- a window ---------------------------------------------------------------------------------- */

/* A member that waits for samples tells here. */
static bool reads(const rui_el_member *m)
{
    return m->share.n > 0;
}

/* Has everybody told of a window? *longest_ns: of computing a step, 0: somebody has not yet. */
static bool window_is_full(ru_elastic *e, int64_t *longest_ns)
{
    uint32_t n = 0;
    bool computed = true;
    *longest_ns = 0;
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        if (!reads(m)) {
            continue;
        }
        const rui_el_known *k = rui_el_lead_known(e, m->node, false);
        if (k == NULL || k->told.at_ns - k->taken.at_ns < WINDOW_NS) {
            return false;
        }
        computed = computed && k->compute_ns > 0;
        *longest_ns = k->compute_ns > *longest_ns ? k->compute_ns : *longest_ns;
        n++;
    }
    *longest_ns = computed ? *longest_ns : 0;
    return n > 1;
}

/* The part of a second, at most all of it. */
static double part(int64_t ns, double seconds)
{
    return fmin(fmax(1e-9 * (double)ns / seconds, 0), 1);
}

/* Before the first step is computed, all need what the best served gets. */
static void need_of_best(ru_read_share_policy_worker *w, uint32_t n)
{
    double most = 0; /* batches in a second */
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, w[i].mb_per_s / w[i].need_mb_per_s);
    }
    for (uint32_t i = 0; i < n; i++) {
        w[i].need_mb_per_s *= most;
    }
}

/* What the members told since the last decision, as rates and parts of a second. False: nothing
 * that could be compared. */
static bool worker_of(const rui_el_known *m, int64_t longest_ns, ru_read_share_policy_worker *w,
                      double *mb_per_s, double *busy)
{
    const rui_el_reads *a = &m->taken, *b = &m->told;
    double seconds = 1e-9 * (double)(b->at_ns - a->at_ns);
    double mb = 1e-6 * (double)(b->r.bytes - a->r.bytes);
    *busy = part(b->r.busy_ns - a->r.busy_ns, seconds);
    *mb_per_s = mb / seconds;
    double step_s = longest_ns > 0 ? 1e-9 * (double)longest_ns : 1;
    w->need_mb_per_s = 1e-6 * (double)b->r.batch_bytes / step_s;
    w->mb_per_s = fmax(mb / seconds / fmax(*busy, 0.02), LEAST);
    w->outstanding_mb = 1e-6 * (double)b->r.outstanding_bytes;
    w->stall_s = part(b->r.stall_ns - a->r.stall_ns, seconds);
    w->late_s = part(b->work_ns - a->work_ns, seconds); /* of the first one is taken off below */
    return a->at_ns > 0 && mb >= 0 && w->need_mb_per_s > 0 && w->outstanding_mb > 0;
}

static bool question(ru_elastic *e, int64_t longest_ns, ru_arena *arena,
                     ru_read_share_policy_in *in)
{
    ru_read_share_policy_worker *w = RU_NEW(arena, ru_read_share_policy_worker, e->v.n);
    char(*name)[24] = ru_arena_alloc(arena, 24 * (int64_t)e->v.n, 1);
    if (w == NULL || name == NULL) {
        return false;
    }
    uint32_t n = 0;
    bool usable = true;
    double all = 0, first = 1;
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        if (!reads(m)) {
            continue;
        }
        rui_el_known *k = rui_el_lead_known(e, m->node, false); /* it told */
        double mb_per_s, busy;
        snprintf(name[n], sizeof name[n], "worker %u", m->number);
        w[n].name = name[n];
        usable = worker_of(k, longest_ns, &w[n], &mb_per_s, &busy) && usable;
        all += mb_per_s;
        first = fmin(first, w[n].late_s);
        k->taken = k->told;
        n++;
    }
    for (uint32_t i = 0; i < n; i++) {
        w[i].late_s -= first;
    }
    if (usable && longest_ns == 0) {
        need_of_best(w, n);
    }
    rui_el_fair *f = &e->lead.fair;
    f->capacity_mb_per_s = usable ? fmax(f->capacity_mb_per_s, all) : f->capacity_mb_per_s;
    *in = (ru_read_share_policy_in){.workers = {.at = w, .n = n},
                                    .seconds = 1,
                                    .capacity_mb_per_s = f->capacity_mb_per_s,
                                    .windows = f->windows,
                                    .method = RU_READ_SHARE_BALANCE,
                                    .repairs = f->repairs};
    return usable;
}

/* The plan of the window before said how long all would wait now. */
static void tell_wait(ru_elastic *e, const ru_read_share_plan *p, const ru_read_share_policy_in *in,
                      ru_time now)
{
    rui_el_fair *f = &e->lead.fair;
    const ru_read_share_policy_worker *w = in->workers.at;
    if (e->opt.news != NULL && f->wait_next_s >= 0) {
        e->opt.news(
            e->opt.news_self,
            &(ru_elastic_news){.what = RU_ELASTIC_READS,
                               .step = e->committed,
                               .a = (int64_t)(f->wait_next_s * 1e9),
                               .b = (int64_t)(p->wait_s * 1e9),
                               .sentence = p->repairs && !f->repairs ? w[p->worst].name : NULL},
            now);
    }
}

static void decide(ru_elastic *e, const ru_read_share_policy_in *in, ru_arena *arena, ru_time now,
                   ru_effects *fx)
{
    rui_el_fair *f = &e->lead.fair;
    const ru_policy *policy = &ru_policy_read_share;
    const ru_policy_tools tools = {.out = arena, .scratch = arena};
    ru_read_share_plan p;
    ru_err err;
    ru_status st = policy->plan(in, &tools, &p, &err);
    st = st == RU_OK ? policy->check(in, &p, arena, &err) : st;
    if (st != RU_OK) {
        ru_fx_log(fx, RU_LOG_WARN, "delivery to the workers cannot be compared: %s", err.text);
        return;
    }
    tell_wait(e, &p, in, now);
    f->wait_next_s = -1;
    if (p.repairs || f->repairs || !f->told) {
        rui_el_tell_plan(e, policy, in, now);
        f->wait_next_s = p.wait_next_s;
        f->told = true;
    }
    f->windows = p.windows;
    f->repairs = p.repairs;
    uint64_t id = ru_policy_head(policy, in).id.low;
    for (uint32_t i = 0, n = 0; p.repairs && i < e->v.n; i++) {
        if (reads(&e->v.at[i])) {
            order(e, &e->v.at[i], p.outstanding_bytes[n++], id, fx);
            rui_el_lead_known(e, e->v.at[i].node, false)->ordered = true; /* it told */
        }
    }
}

static void look(ru_elastic *e, ru_time now, ru_effects *fx)
{
    int64_t longest_ns;
    if (!window_is_full(e, &longest_ns)) {
        return;
    }
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_read_share_policy_in in;
    if (question(e, longest_ns, &scratch, &in)) {
        decide(e, &in, &scratch, now, fx);
    }
    ru_arena_fini(&scratch);
}

/* -- what members tell ------------------------------------------------------------------------- */

static void keep(ru_elastic *e, ru_node_id from, const rui_el_reads *told)
{
    rui_el_known *m = rui_el_lead_known(e, from, true);
    if (m == NULL) {
        return;
    }
    if (told->at_ns < m->told.at_ns || told->r.bytes < m->told.r.bytes) {
        m->taken = (rui_el_reads){0}; /* it began anew */
    }
    m->told = *told;
    m->taken = m->taken.at_ns == 0 || m->ordered ? *told : m->taken;
    m->ordered = false;
}

void rui_el_reads_hear(ru_elastic *e, ru_node_id from, ru_wire_in *w)
{
    rui_el_reads told = {0};
    told.at_ns = take(w);
    told.work_ns = take(w);
    told.r.bytes = take(w);
    told.r.busy_ns = take(w);
    told.r.stall_ns = take(w);
    told.r.batch_bytes = take(w);
    told.r.outstanding_bytes = take(w);
    if (!w->bad && rui_el_member_of(e, from) != NULL) {
        keep(e, from, &told);
    }
}

void rui_el_reads_tell(ru_elastic *e, ru_time now, ru_effects *fx)
{
    const ru_elastic_device_ops *ops = e->opt.device.ops;
    rui_el_reads told = {.at_ns = now.ns, .work_ns = e->work_ns};
    if (e->v.me >= e->v.n || e->v.n < 2 || ops->reads == NULL ||
        !ops->reads(e->opt.device.self, &told.r)) {
        return;
    }
    const rui_el_step *s = rui_el_older(e);
    bool works = e->phase == RUI_EL_STEP && e->steps.depth == 1 && !s->computed;
    told.work_ns += works ? now.ns - s->begun_ns : 0;
    uint8_t buf[64];
    ru_wire_out w = rui_el_word(e, buf, sizeof buf);
    put(&w, told.at_ns);
    put(&w, told.work_ns);
    put(&w, told.r.bytes);
    put(&w, told.r.busy_ns);
    put(&w, told.r.stall_ns);
    put(&w, told.r.batch_bytes);
    put(&w, told.r.outstanding_bytes);
    rui_el_say(e, RUI_EL_READS_MSG, &w, now, fx);
    if (rui_el_leads(e)) {
        look(e, now, fx);
    }
}
