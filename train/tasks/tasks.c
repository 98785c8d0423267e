#include "train/tasks/tasks.h"

#include <string.h>

#include "train/tasks/tasks_impl.h"

enum { SAMPLE = 8, SAMPLES_MAX = 40 };

ru_tasks_act *rui_tasks_tell(ru_tasks *t, ru_tasks_word word, uint32_t n_accepted)
{
    ru_tasks_act *a = ru_fx_local(t->fx, t->opt.what_first + (uint32_t)word, 0, NULL,
                                  (int64_t)(sizeof *a + n_accepted * sizeof *a->accepted));
    a->n_accepted = n_accepted;
    return a;
}

ru_tasks_act *rui_tasks_send(ru_tasks *t, uint32_t to, ru_tasks_kind kind,
                             const ru_tasks_range *range)
{
    ru_tasks_act *a = rui_tasks_tell(t, RU_TASKS_SEND, 0);
    a->to = to;
    a->msg = (ru_tasks_msg){.kind = kind,
                            .idle = t->idle_ns >= 0,
                            .progress_ppm = rui_tasks_progress(t),
                            .item_ns = t->item_ns,
                            .share = rui_tasks_share(t)};
    if (range != NULL) {
        a->msg.range = *range;
    }
    t->stats.sent[kind]++;
    return a;
}

rui_tasks_peer *rui_tasks_peer_of(rui_tasks_peer *peers, uint32_t n, uint32_t id)
{
    for (uint32_t i = 0; i < n; i++) {
        if (peers[i].id == id) {
            return &peers[i];
        }
    }
    return NULL;
}

uint32_t rui_tasks_mine(const ru_tasks *t)
{
    uint32_t n = t->open ? t->tail - t->pos : 0;
    for (uint32_t i = 0; i < t->n_loose; i++) {
        n += t->loose[i].hi - t->loose[i].lo;
    }
    bool loose = t->working && !t->head && t->work.owner == t->opt.me;
    return n + (loose ? t->work.hi - t->reached : 0);
}

uint32_t rui_tasks_share(const ru_tasks *t)
{
    int64_t share = t->opt.items;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        share -= t->helper[i].grant;
    }
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        share += t->helpee[i].grant;
    }
    return share < 1 ? 1 : share > RU_REASSIGN_ITEMS_MAX ? RU_REASSIGN_ITEMS_MAX : (uint32_t)share;
}

int64_t rui_tasks_progress(const ru_tasks *t)
{
    int64_t share = rui_tasks_share(t), rest = (int64_t)rui_tasks_mine(t) + rui_tasks_taken_on(t);
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        rest -= t->open ? t->helper[i].left : 0;
    }
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        rest += t->open ? t->helpee[i].left : 0;
    }
    rest = rest < 0 ? 0 : rest;
    return ((int64_t)t->clock + (t->open ? 1 : 0)) * RUI_TASKS_ONE - rest * RUI_TASKS_ONE / share;
}

static rui_tasks_peer *peers_new(const uint32_t *ids, uint32_t n, ru_arena *a)
{
    rui_tasks_peer *p = RU_NEW(a, rui_tasks_peer, (int64_t)n + 1);
    for (uint32_t i = 0; p != NULL && i < n; i++) {
        p[i].id = ids[i];
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            p[i].seq[s] = s;
        }
    }
    return p;
}

ru_status ru_tasks_open(const ru_tasks_options *opt, ru_arena *arena, ru_tasks **out, ru_err *err)
{
    if (opt->items < 1 || opt->items > RU_REASSIGN_ITEMS_MAX ||
        opt->n_helpers > RU_REASSIGN_GROUP_MAX || opt->n_helpees > RU_REASSIGN_GROUP_MAX ||
        opt->rules->grain_ppm < 1) {
        return RU_FAIL(err, RU_E_ARG,
                       "%u items, %u helpers and %u helpees, expected 1 to %d and at most %d each",
                       opt->items, opt->n_helpers, opt->n_helpees, RU_REASSIGN_ITEMS_MAX,
                       RU_REASSIGN_GROUP_MAX);
    }
    ru_tasks *t = RU_NEW(arena, ru_tasks, 1);
    if (t != NULL) {
        t->opt = *opt;
        t->rules = opt->rules;
        t->helper = peers_new(opt->helpers, opt->n_helpers, arena);
        t->helpee = peers_new(opt->helpees, opt->n_helpees, arena);
        t->loose = RU_NEW(arena, ru_tasks_range, RUI_TASKS_LOOSE_MAX);
        t->accepted = RU_NEW(arena, ru_tasks_range, RU_TASKS_ACCEPTED_MAX);
        t->idle_ns = -1;
        t->told.ns = INT64_MAX;
        t->clock = opt->first;
        for (uint32_t i = 0; t->helper != NULL && opt->numbers != NULL && i < opt->n_helpers; i++) {
            memcpy(t->helper[i].seq, opt->numbers + (size_t)i * RUI_TASKS_SLOTS,
                   sizeof t->helper[i].seq);
        }
    }
    if (t == NULL || t->helper == NULL || t->helpee == NULL || t->loose == NULL ||
        t->accepted == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for the tasks of worker %u", opt->me);
    }
    *out = t;
    return RU_OK;
}

bool ru_tasks_done(const ru_tasks *t)
{
    return t->clock == t->opt.clocks;
}

bool ru_tasks_quiet(const ru_tasks *t, uint32_t closed)
{
    bool quiet = !t->open && !t->working;
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            const rui_tasks_slot *slot = &t->helpee[i].slot[s];
            quiet = quiet && (slot->state == RUI_TASKS_NEVER || slot->state == RUI_TASKS_UNDONE ||
                              (slot->state == RUI_TASKS_ENDED && slot->range.clock < closed));
        }
    }
    return quiet;
}

void ru_tasks_numbers(const ru_tasks *t, uint32_t *into)
{
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        memcpy(into + (size_t)i * RUI_TASKS_SLOTS, t->helper[i].seq, sizeof t->helper[i].seq);
    }
}

const ru_tasks_stats *ru_tasks_stats_of(const ru_tasks *t)
{
    return &t->stats;
}

/* -- clocks -------------------------------------------------------------------------------------
 */

/* Also beside a slice of another worker: what is to do can be handed out. */
static bool may_begin(const ru_tasks *t)
{
    bool own = t->working && t->work.owner == t->opt.me;
    return t->begun && !t->open && !own && !ru_tasks_done(t) &&
           t->closed_by_all + t->rules->slack >= t->clock;
}

static void begin_clock(ru_tasks *t)
{
    t->open = true;
    t->pos = 0;
    t->tail = t->opt.items;
    t->n_accepted = 0;
    t->asked = false;
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        t->helper[i].left = t->helper[i].dead ? 0 : t->helper[i].grant;
        t->helper[i].next_items =
            (uint32_t)(t->rules->first_ppm * t->opt.items / RUI_TASKS_ONE + 1);
    }
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        t->helpee[i].left = t->helpee[i].dead ? 0 : t->helpee[i].grant;
    }
    if (t->rules->push) {
        rui_tasks_report(t, RU_TASKS_STARTED);
        rui_tasks_consider_all(t);
    }
}

static bool clock_over(const ru_tasks *t)
{
    return t->open && !t->working && rui_tasks_mine(t) == 0 && !rui_tasks_given_out(t);
}

static void close_clock(ru_tasks *t)
{
    RU_CHECK(t->pos == t->tail && t->n_loose == 0 && t->clock < t->opt.clocks);
    ru_tasks_act *a = rui_tasks_tell(t, RU_TASKS_CLOSE, t->n_accepted);
    a->range = (ru_tasks_range){.owner = t->opt.me, .clock = t->clock};
    memcpy(a->accepted, t->accepted, t->n_accepted * sizeof *a->accepted);
    t->clock++;
    t->open = false;
}

/* Workers of backup: the others have gone on without this clock. */
static void drop_clocks(ru_tasks *t)
{
    if (t->rules->backup > 0 && t->closed_by_all > t->clock) {
        t->stats.dropped += t->open ? t->opt.items : 0;
        t->clock = t->closed_by_all < t->opt.clocks ? t->closed_by_all : t->opt.clocks;
        t->open = t->head = false;
        t->n_loose = 0;
        t->work.hi = t->working && t->work.owner == t->opt.me ? t->reached : t->work.hi;
    }
}

/* -- work ---------------------------------------------------------------------------------------
 */

static void work_on(ru_tasks *t, ru_tasks_range range)
{
    if (t->idle_ns >= 0) {
        t->stats.wait_ns += t->now.ns - t->idle_ns;
        t->idle_ns = -1;
    }
    RU_CHECK(!t->working && range.lo < range.hi);
    t->working = true;
    t->work = range;
    t->reached = t->sampled = t->said = range.lo;
    t->work_ns = t->sampled_ns = t->now.ns;
    t->told_idle = false;
    t->asked = false;
    t->told_work = rui_tasks_tell(t, RU_TASKS_WORK, 0);
    t->told_work->range = range;
}

/* Slices of others come first: their owners are behind. Then own items from the head, then those
 * that came back. Each is worked on to its end, unless something comes up (interrupt). */
static bool choose_work(ru_tasks *t)
{
    const rui_tasks_slot *s = rui_tasks_next_slice(t);
    if (s != NULL) {
        ru_tasks_range r = s->range;
        r.lo = s->at;
        t->head = false;
        work_on(t, r);
        return true;
    }
    if (!t->open) {
        return false;
    }
    ru_tasks_range r = {.owner = t->opt.me, .helper = t->opt.me, .clock = t->clock};
    if (t->pos < t->tail) {
        r.lo = t->pos;
        r.hi = t->tail;
        t->head = true;
        work_on(t, r);
        return true;
    }
    if (t->n_loose > 0) {
        const ru_tasks_range *l = &t->loose[--t->n_loose];
        r.lo = l->lo;
        r.hi = l->hi;
        t->head = false;
        work_on(t, r);
        return true;
    }
    return false;
}

/* The slice of another worker that is under way; NULL: none, or it counts for nothing any more. */
static rui_tasks_slot *slice_under_way(const ru_tasks *t)
{
    rui_tasks_peer *o = t->working && t->work.owner != t->opt.me
                            ? rui_tasks_peer_of(t->helpee, t->opt.n_helpees, t->work.owner)
                            : NULL;
    rui_tasks_slot *s = o != NULL ? &o->slot[t->work.seq % RUI_TASKS_SLOTS] : NULL;
    return s != NULL && s->state == RUI_TASKS_WORKING && s->range.seq == t->work.seq ? s : NULL;
}

/* Time of an item, by those since the last sample. A sample in the midst of work has SAMPLE grains
 * at least: what is under way counts as done. */
static void sample(ru_tasks *t, bool over)
{
    int64_t grain = t->rules->grain_ppm * (int64_t)t->opt.items / RUI_TASKS_ONE;
    int64_t n = (int64_t)t->reached - t->sampled;
    grain = grain < 1 ? 1 : grain;
    if (t->reached == t->work.lo) {
        t->sampled_ns = t->now.ns; /* it has not begun */
    } else if (n > 0 && (over || n >= SAMPLE * grain)) {
        int64_t each = (t->now.ns - t->sampled_ns) / n;
        for (int64_t k = n / grain < SAMPLES_MAX ? n / grain : SAMPLES_MAX; k >= 0; k--) {
            t->item_ns = t->item_ns == 0 ? each : (7 * t->item_ns + each) / 8;
        }
        t->sampled = t->reached;
        t->sampled_ns = t->now.ns;
    }
}

/* Work under way has come so far. */
static void follow(ru_tasks *t, uint32_t reached, bool over)
{
    RU_CHECK(reached >= t->reached && reached <= t->work.hi);
    t->reached = reached;
    rui_tasks_slot *s = slice_under_way(t);
    if (s != NULL) {
        s->at = reached;
    }
    t->pos = t->head ? reached : t->pos;
    sample(t, over);
}

static void worked(ru_tasks *t)
{
    RU_CHECK(t->working);
    rui_tasks_slot *s = slice_under_way(t);
    uint32_t n = t->work.hi - t->work.lo;
    t->working = t->head = false;
    t->stats.busy_ns += t->now.ns - t->work_ns;
    if (t->work.owner == t->opt.me) {
        t->stats.worked += n;
        return;
    }
    t->stats.helped += n;
    if (s != NULL && s->at == s->range.hi) {
        s->state = RUI_TASKS_FLUSHING;
        rui_tasks_tell(t, RU_TASKS_FLUSH, 0)->range = s->range;
    }
}

/* Own work ends for a slice of another worker, and a slice whose owner is gone ends at once. */
static void interrupt(ru_tasks *t)
{
    bool own = t->work.owner == t->opt.me;
    if (t->reached == t->work.hi || (own ? !rui_tasks_waits(t) : slice_under_way(t) != NULL)) {
        return;
    }
    if (own && !t->head) {
        RU_CHECK(t->n_loose < RUI_TASKS_LOOSE_MAX);
        t->loose[t->n_loose] = t->work;
        t->loose[t->n_loose++].lo = t->reached;
    }
    t->head = false; /* the rest from pos on stays to do */
    t->work.hi = t->reached;
}

/* When to look again how far work is: a report may be due, or a slice to be taken back. */
static void look_again(ru_tasks *t)
{
    int64_t grain_ns = t->item_ns * (t->rules->grain_ppm * (int64_t)t->opt.items / RUI_TASKS_ONE);
    int64_t step_ns = t->item_ns * (t->rules->report_ppm * (int64_t)t->opt.items / RUI_TASKS_ONE);
    int64_t until_ns = t->item_ns > 0 ? step_ns / 2 : t->rules->rtt_ns;
    int64_t spare = rui_tasks_spare(t);
    bool sooner = spare >= 0 && t->item_ns > 0 && spare * t->item_ns < until_ns;
    until_ns = sooner ? spare * t->item_ns : until_ns;
    until_ns = until_ns > grain_ns ? until_ns : grain_ns;
    int64_t at_ns = t->now.ns + (until_ns > 0 ? until_ns : 1);
    sooner = t->wake_ns == 0 || at_ns < t->wake_ns;
    t->wake_ns = sooner ? at_ns : t->wake_ns;
}

/* Progress of somebody who works on, as it is expected; not far beyond what was told, because who
 * is stopped cannot tell. */
int64_t rui_tasks_expected(const ru_tasks *t, int64_t ppm, double clock_ns, int64_t since_ns)
{
    int64_t most = RUI_TASKS_TRUST * t->rules->report_ppm,
            end = RUI_TASKS_ONE - ppm % RUI_TASKS_ONE;
    double more = clock_ns > 0 ? (double)(t->now.ns - since_ns) * RUI_TASKS_ONE / clock_ns : 0;
    most = most < end ? most : end;
    return ppm + (more < (double)most ? (int64_t)more : most);
}

/* Look at those who may help, and tell whom one may help when progress is not what they expect. */
static void report(ru_tasks *t)
{
    if (!t->rules->push) {
        return;
    }
    int64_t at = rui_tasks_progress(t), step = t->rules->report_ppm;
    int64_t off = at - rui_tasks_expected(t, t->told_ppm, t->told_clock_ns, t->told_ns);
    bool known = t->told_clock_ns > 0 ? off < step && -off < step : at < t->told_ppm + step;
    if (!known || at >= t->told_ppm + RUI_TASKS_TRUST * step) {
        rui_tasks_report(t, RU_TASKS_THIS_FAR);
    }
    rui_tasks_consider_all(t);
}

static void settle(ru_tasks *t)
{
    drop_clocks(t);
    for (bool more = true; more;) {
        if (clock_over(t)) {
            close_clock(t);
        } else if (may_begin(t)) {
            begin_clock(t);
        } else {
            more = !t->working && choose_work(t);
        }
    }
    if (t->working) {
        interrupt(t);
    }
    if (t->open) {
        rui_tasks_cancel(t);
    }
    if (t->working) {
        report(t);
    } else if (t->begun) {
        t->idle_ns = t->idle_ns < 0 ? t->now.ns : t->idle_ns;
        if (t->rules->push && !t->told_idle) {
            t->told_idle = true;
            rui_tasks_report(t, RU_TASKS_THIS_FAR);
        }
        if (t->rules->pull) {
            rui_tasks_pull(t);
        }
    }
    if (t->open && rui_tasks_mine(t) == 0 && rui_tasks_given_out(t)) {
        rui_tasks_ask_again(t);
    }
    if (t->working && t->rules->push && t->opt.n_helpers + t->opt.n_helpees > 0) {
        look_again(t);
    }
}

/* Where work under way ends now: items that were offered in this step are not part of it. */
static void set_end(ru_tasks *t)
{
    if (t->head && t->work.hi > t->tail) {
        t->work.hi = t->tail;
    }
    if (t->told_work != NULL) {
        t->told_work->range.hi = t->work.hi;
    }
}

static void heard(ru_tasks *t, uint32_t from, const ru_tasks_msg *m)
{
    static const bool to_helper[RU_TASKS_KINDS] = {
        [RU_TASKS_DO_THIS] = true, [RU_TASKS_CANCEL] = true};
    bool sane = m->progress_ppm >= -RUI_TASKS_PPM_MAX && m->progress_ppm <= RUI_TASKS_PPM_MAX &&
                m->item_ns >= 0 && m->share <= RU_REASSIGN_ITEMS_MAX;
    if (m->kind >= RU_TASKS_KINDS || !sane) {
        return;
    }
    bool answer = m->kind == RU_TASKS_THIS_FAR || m->kind == RU_TASKS_REFUSE;
    bool helper_hears = to_helper[m->kind] || (t->rules->pull && answer && m->range.seq == 0);
    rui_tasks_peer *p = helper_hears ? rui_tasks_peer_of(t->helpee, t->opt.n_helpees, from)
                                     : rui_tasks_peer_of(t->helper, t->opt.n_helpers, from);
    if (p == NULL || p->dead) {
        return; /* of no group of mine, or sent before it died */
    }
    if (helper_hears) {
        rui_tasks_helper_heard(t, p, m);
    } else {
        rui_tasks_owner_heard(t, p, m);
    }
}

static void lost(ru_tasks *t, uint32_t worker)
{
    rui_tasks_peer *h = rui_tasks_peer_of(t->helper, t->opt.n_helpers, worker);
    rui_tasks_peer *o = rui_tasks_peer_of(t->helpee, t->opt.n_helpees, worker);
    if (h != NULL) {
        rui_tasks_helper_lost(t, h);
    }
    if (o != NULL) {
        o->dead = true;
        o->grant = o->left = 0;
        for (uint32_t s = 0; s < RUI_TASKS_SLOTS; s++) {
            o->slot[s].state = RUI_TASKS_NEVER;
        }
    }
}

bool ru_tasks_more(const ru_tasks *t, uint32_t owner, uint32_t clock)
{
    const rui_tasks_peer *o = rui_tasks_peer_of(t->helpee, t->opt.n_helpees, owner);
    bool more = false;
    for (uint32_t s = 0; o != NULL && s < RUI_TASKS_SLOTS; s++) {
        bool to_do = o->slot[s].state == RUI_TASKS_QUEUED || o->slot[s].state == RUI_TASKS_WORKING;
        more = more || (to_do && o->slot[s].range.clock == clock);
    }
    return more;
}

uint32_t ru_tasks_anew(ru_tasks *t, uint32_t worker, ru_tasks_range *into, uint32_t *n_done)
{
    rui_tasks_peer *h = rui_tasks_peer_of(t->helper, t->opt.n_helpers, worker);
    rui_tasks_peer *o = rui_tasks_peer_of(t->helpee, t->opt.n_helpees, worker);
    uint32_t n = 0;
    for (uint32_t i = 0; h != NULL && i < t->n_accepted; i++) {
        if (t->accepted[i].helper == worker) {
            into[n++] = t->accepted[i];
        }
    }
    *n_done = n;
    for (uint32_t s = 0; h != NULL && s < RUI_TASKS_SLOTS; s++) {
        if (h->slot[s].state != RUI_TASKS_FREE) {
            into[n++] = h->slot[s].range;
            t->stats.reclaimed += h->slot[s].range.hi - h->slot[s].range.lo;
            h->slot[s].state = RUI_TASKS_FREE;
        }
    }
    if (h != NULL) {
        h->progress_ppm = h->item_ns = 0;
        h->idle = false;
    }
    if (o != NULL) {
        memset(o->slot, 0, sizeof o->slot);
        o->progress_ppm = 0;
        o->idle = o->answered = false;
    }
    return n;
}

static void shares(ru_tasks *t, const ru_tasks_said *s)
{
    for (uint32_t i = 0; i < t->opt.n_helpers; i++) {
        t->helper[i].grant = t->helper[i].dead ? 0 : s->grant[i];
    }
    for (uint32_t i = 0; i < t->opt.n_helpees; i++) {
        t->helpee[i].grant = t->helpee[i].dead ? 0 : s->expect[i];
    }
}

static void hear(ru_tasks *t, uint32_t word, const ru_tasks_said *s)
{
    switch (word) {
    case RU_TASKS_BEGIN:
        t->begun = true;
        break;
    case RU_TASKS_WORKED:
        worked(t);
        break;
    case RU_TASKS_HEARD:
        heard(t, s->worker, &s->msg);
        break;
    case RU_TASKS_FLUSHED:
        rui_tasks_flushed(t, &s->range);
        break;
    case RU_TASKS_CLOCKS:
        t->closed_by_all = s->clock > t->closed_by_all ? s->clock : t->closed_by_all;
        break;
    case RU_TASKS_LOST:
        lost(t, s->worker);
        break;
    case RU_TASKS_SHARES:
        shares(t, s);
        break;
    case RU_TASKS_LEAVES:
        t->leaves = true;
        rui_tasks_refuse_all(t);
        break;
    case RU_TASKS_STAYS:
        t->leaves = false;
        break;
    default:
        break;
    }
}

void ru_tasks_reached(ru_tasks *t, uint32_t item)
{
    t->said = item;
}

uint32_t ru_tasks_end(const ru_tasks *t)
{
    return t->working ? t->work.hi : 0;
}

void ru_tasks_step(ru_tasks *t, const ru_event *ev, ru_effects *fx)
{
    uint32_t word = ru_word(ev->what, t->opt.what_first, RU_TASKS_WORDS);
    bool local = ev->kind == RU_EV_LOCAL && word < RU_TASKS_TIMER;
    if (!local && (ev->kind != RU_EV_TIMER || word != RU_TASKS_TIMER)) {
        return;
    }
    t->now = ev->now;
    t->fx = fx;
    t->told_work = NULL;
    t->wake_ns = 0;
    if (t->working) {
        bool over = local && word == RU_TASKS_WORKED;
        follow(t, over ? t->work.hi : t->said, over);
    }
    if (local) {
        hear(t, word, ru_event_data(ev, sizeof(ru_tasks_said)));
    } else {
        t->told.ns = INT64_MAX;
    }
    settle(t);
    set_end(t);
    ru_fx_wake(fx, t->opt.what_first + RU_TASKS_TIMER,
               (ru_time){t->wake_ns == 0 ? INT64_MAX : t->wake_ns}, &t->told);
    t->fx = NULL;
}
