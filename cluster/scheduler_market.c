/* Nodes of markets: the clock of the market, what is asked of the policy `bid` and how much, what
 * markets tell of their nodes, and nodes that come and go as the journal has it. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "cluster/scheduler_impl.h"

enum { EVENTS_MAX = 1000 }; /* of the clock in one tick, so that people are answered meanwhile */

static const int64_t ask_ns = 120 * INT64_C(1000000000);
static const double phi_min = 0.05;
static const double ahead_max_ns = 3e18; /* of the market's clock: a century */

struct rui_spot {
    const ru_spot_options *opt;
    int64_t at_ns; /* the market's clock when ours was `at` */
    ru_time at;
    int64_t asked_ns;          /* on the market's clock; 0: not yet */
    uint32_t wants, evictions; /* when it was asked last */
    double sigma_sum_ns;
    uint32_t sigmas; /* nodes whose first worker came */
    ru_arena asked;  /* of `question` */
    const char *question;
    int64_t asked_wall_ns;
    rui_seat seats[RU_SPOT_MARKETS_MAX][RU_SPOT_NODES_MAX];
};

static int64_t clock_of(const struct rui_spot *m, ru_time now)
{
    double ns = m->opt->speed * (double)ru_time_since(now, m->at);
    return m->at_ns + (int64_t)fmin(ns, ahead_max_ns);
}

ru_status rui_market_open(rui_scheduler *s, ru_err *err)
{
    const ru_spot *spot = &s->book.spot;
    if (s->opt->spot == NULL) {
        return RU_OK;
    }
    struct rui_spot *m = s->spot = RU_NEW(s->arena, struct rui_spot, 1);
    if (m == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for markets");
    }
    m->opt = s->opt->spot;
    ru_arena_init(&m->asked, 0);
    m->at = ru_clock_now();
    m->at_ns = m->opt->begin_s * 1000000000;
    for (uint32_t k = 0; k < m->opt->n; k++) {
        RU_TRY(rui_provider_open(s, k, err));
    }
    if (spot->begun) { /* prices did not stand still while no scheduler ran */
        double gap_ns = fmax((double)(ru_clock_wall_ns() - spot->wall_ns), 0);
        m->at_ns = spot->clock_ns + (int64_t)fmin(m->opt->speed * gap_ns, ahead_max_ns);
    }
    for (uint32_t k = 0; k < m->opt->n; k++) {
        RU_TRY(ru_spot_reaches(m->opt->at[k].name, &m->opt->at[k].prices, m->at_ns, err));
    }
    return RU_OK;
}

void rui_market_close(rui_scheduler *s)
{
    for (uint32_t k = 0; s->spot != NULL && k < RU_SPOT_MARKETS_MAX * RU_SPOT_NODES_MAX; k++) {
        ru_command_close(&s->spot->seats[k / RU_SPOT_NODES_MAX][k % RU_SPOT_NODES_MAX].command);
    }
    if (s->spot != NULL) {
        ru_arena_fini(&s->spot->asked);
    }
}

/* -- what is there -------------------------------------------------------------------------------
 */

/* Number of the node; false: it is not there. */
static bool is_there(const rui_scheduler *s, uint32_t market, uint32_t lease, uint32_t *k)
{
    char name[80];
    ru_spot_name(s->spot->opt, market, lease, name);
    *k = ru_book_node_of(&s->book, name);
    RU_CHECK(*k <= s->book.n_nodes);
    return *k < s->book.n_nodes && (s->book.nodes[*k].slots > 0 || s->live[*k].guest.v != 0);
}

/* What is rented with this lease; NULL: nothing. */
static const ru_market_alloc *rented(const rui_scheduler *s, uint32_t market, uint32_t lease)
{
    const ru_market_job *j = &s->book.spot.job;
    uint32_t i = ru_market_alloc_of(j, market, lease);
    return i != UINT32_MAX ? &j->allocs[i] : NULL;
}

bool rui_market_goes(const rui_scheduler *s, const char *node)
{
    uint32_t market, lease;
    if (s->spot == NULL || !ru_spot_of(s->spot->opt, node, &market, &lease)) {
        return false;
    }
    const ru_market_alloc *a = rented(s, market, lease);
    return a == NULL || a->leaving;
}

bool rui_market_empty(const rui_scheduler *s)
{
    bool empty = true;
    uint32_t k;
    for (uint32_t m = 0; s->spot != NULL && m < s->spot->opt->n; m++) {
        empty = empty && rui_provider_empty(s, m);
        for (uint32_t lease = 1; lease <= s->spot->opt->at[m].nodes; lease++) {
            const rui_seat *t = &s->spot->seats[m][lease - 1];
            bool left = s->opt->providers[m].request != NULL && !t->gone;
            empty = empty && !left && !is_there(s, m, lease, &k) && t->command.p == NULL;
        }
    }
    return empty;
}

uint32_t rui_market_more(const rui_scheduler *s, uint32_t nodes)
{
    uint32_t slots = 0, k;
    for (uint32_t m = 0; s->spot != NULL && m < s->spot->opt->n; m++) {
        for (uint32_t lease = 1; lease <= s->spot->opt->at[m].nodes && nodes > 0; lease++) {
            bool more = !is_there(s, m, lease, &k);
            slots += more ? s->spot->opt->at[m].slots : 0;
            nodes -= more;
        }
    }
    return slots;
}

/* -- what jobs measure ---------------------------------------------------------------------------
 */

/* The part of its speed for each worker that a job gains by as many more on one more node. */
static double phi_of(const ru_goodput_model *m, uint32_t nodes, uint32_t workers, uint32_t more)
{
    RU_CHECK(workers > 0 && nodes <= workers && more > 0);
    double now = ru_goodput_best(m, nodes, workers).goodput;
    double then = ru_goodput_best(m, nodes + 1, workers + more).goodput;
    double phi = now > 0 ? (then - now) * workers / (now * more) : 1;
    return fmin(fmax(phi, phi_min), 1);
}

static void measure(rui_scheduler *s, ru_spot_facts *f)
{
    const struct rui_spot *m = s->spot;
    double samples_per_s = 0, workers = 0, phi = 0, weights = 0;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        if (j == NULL || j->state != RU_BOOK_RUNS) {
            continue;
        }
        const ru_cluster_figures *is = rui_scheduler_figures(s, j);
        uint32_t nodes = ru_book_place(&s->book, j)->n_parts;
        ru_goodput_model model;
        ru_figures_model(is, &model);
        samples_per_s += is->samples_per_s;
        workers += is->samples_per_s > 0 ? is->workers : 0;
        if (model.perf.overlap >= 1 && is->workers > 0) {
            nodes = nodes < is->workers ? nodes : is->workers;
            phi += is->workers * phi_of(&model, nodes, is->workers, m->opt->at[0].slots);
            weights += is->workers;
        }
    }
    f->wants = rui_scheduler_wants(s);
    f->phi = weights > 0 ? phi / weights : 1;
    /* Jobs write their figures themselves: whatever they say, it becomes a number to plan with. */
    f->work = workers > 0 ? samples_per_s / workers * 3600 / m->opt->speed : 1;
    f->work = fmin(fmax(f->work, 1e-6), 1e9);
    f->sigma_ns = m->sigmas > 0 ? (int64_t)(m->sigma_sum_ns / m->sigmas) : m->opt->sigma_ns;
    f->lambda_ns = m->opt->lambda_ns;
    if (s->book.pause_s > 0) {
        f->lambda_ns = (int64_t)fmin(s->book.pause_s * 1e9 * m->opt->speed, 3600e9);
    }
    for (uint32_t k = 0; k < m->opt->n; k++) {
        for (uint32_t i = 0; i < m->opt->at[k].nodes; i++) {
            uint32_t node;
            f->busy[k][i] = is_there(s, k, i + 1, &node) || m->seats[k][i].command.p != NULL;
        }
    }
}

/* The first worker that is in a job on a node ends its start. */
static void look_at_start(rui_scheduler *s, rui_seat *t, uint32_t k, int64_t now_ns)
{
    bool in = false;
    for (uint32_t i = 0; i < s->live[k].state.n; i++) {
        in = in || (s->live[k].state.procs[i].alive && s->live[k].state.procs[i].address[0] != 0);
    }
    if (in && t->bought_ns > 0) {
        s->spot->sigma_sum_ns += fmin((double)(now_ns - t->bought_ns), 3600e9);
        s->spot->sigmas++;
        t->bought_ns = 0;
    }
}

/* -- events --------------------------------------------------------------------------------------
 */

static bool happen(rui_scheduler *s, ru_journal_event *events, uint32_t n)
{
    ru_err err;
    for (uint32_t k = 0; k < n; k++) {
        events[k].kind = RU_BOOK_MARKET;
        events[k].who = "scheduler";
    }
    ru_status st = n > 0 ? rui_scheduler_append(s, events, n, &err) : RU_OK;
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "journal", "%s", err.text);
    }
    return st == RU_OK;
}

static void ask(rui_scheduler *s, int64_t now_ns, ru_arena *scratch)
{
    struct rui_spot *m = s->spot;
    ru_spot_facts *f = RU_NEW(scratch, ru_spot_facts, 1);
    ru_spot_answer a = {0};
    ru_err err;
    if (f == NULL) {
        return;
    }
    measure(s, f);
    m->asked_ns = now_ns;
    m->wants = f->wants;
    m->evictions = s->book.spot.job.evictions;
    ru_status st = ru_spot_ask(&s->book.spot, m->opt, f, now_ns, scratch, &a, &err);
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "market", "%s", err.text);
        return;
    }
    if (a.input != NULL) {
        ru_arena_fini(&m->asked);
        ru_arena_init(&m->asked, 0);
        m->question = ru_arena_str(&m->asked, a.input);
        m->asked_wall_ns = ru_clock_wall_ns();
    }
    if (happen(s, a.events, a.n)) {
        for (uint32_t k = 0; k < a.n; k++) {
            const ru_journal_event *e = &a.events[k];
            if (e->a == RU_MARKET_ACQUIRE) {
                m->seats[e->node][e->job - 1].bought_ns = now_ns;
            }
        }
    }
}

static void follow_prices(rui_scheduler *s, ru_time now)
{
    struct rui_spot *m = s->spot;
    int64_t now_ns = clock_of(m, now);
    ru_journal_event e;
    ru_arena scratch;
    bool fine = true, more = true;
    for (uint32_t k = 0; k < EVENTS_MAX && fine && more; k++) {
        ru_arena_init(&scratch, 0);
        more = ru_spot_next(&s->book.spot, m->opt, now_ns, &scratch, &e);
        fine = !more || happen(s, &e, 1);
        if (more && fine && !s->closing && ru_spot_due(&s->book.spot, e.b)) {
            ask(s, e.b, &scratch); /* the clock may run so fast that its hour ends in this tick */
        }
        ru_arena_fini(&scratch);
    }
    bool due = ru_spot_due(&s->book.spot, now_ns) || m->wants != rui_scheduler_wants(s) ||
               m->evictions != s->book.spot.job.evictions || now_ns - m->asked_ns >= ask_ns;
    if (fine && !more && due && !s->closing) {
        ru_arena_init(&scratch, 0);
        ask(s, now_ns, &scratch);
        ru_arena_fini(&scratch);
    }
}

const char *rui_market_question(const rui_scheduler *s, int64_t *wall_ns)
{
    *wall_ns = s->spot != NULL ? s->spot->asked_wall_ns : 0;
    return s->spot != NULL ? s->spot->question : NULL;
}

/* -- nodes ---------------------------------------------------------------------------------------
 */

/* What the market tells of a node is an event; false: it told nothing. */
static bool told(rui_scheduler *s, ru_market_word word, const rui_wished *w, const char *why,
                 int64_t now_ns)
{
    ru_journal_event events[2];
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const struct rui_spot *m = s->spot;
    uint32_t n = ru_spot_tell(&s->book.spot, m->opt, word, w->market, w->lease, why, now_ns,
                              &scratch, events);
    bool fine = n > 0 && happen(s, events, n);
    ru_arena_fini(&scratch);
    return fine;
}

/* A node that was asked for: is it there, or does it not come? */
static void await(rui_scheduler *s, const rui_wished *w, const ru_market_alloc *a,
                  const ru_cluster_state *state, int64_t now_ns)
{
    struct rui_spot *m = s->spot;
    const ru_spot_market *k = &m->opt->at[w->market];
    const double late_min = (double)(now_ns - a->from.ns) / 60e9;
    char why[400];
    if (state != NULL && !state->leaving) {
        (void)snprintf(why, sizeof why, "it came after %.1f min", late_min);
        (void)told(s, RU_MARKET_GIVEN, w, why, now_ns);
        return;
    }
    bool late = now_ns - a->from.ns > k->patience_ns;
    if (late || w->seat->refused) {
        (void)snprintf(why, sizeof why, "refused: %s%s%s",
                       w->seat->refused ? "" : "it did not come in time",
                       w->seat->said[0] != 0 && !w->seat->refused ? ": " : "", w->seat->said);
        if (told(s, RU_MARKET_TAKEN, w, why, now_ns)) {
            m->asked_ns = 0; /* another market may have one */
        }
    }
}

const char *rui_market_lost(const ru_market_alloc *a, const ru_book_node *n, const rui_live *l)
{
    RU_CHECK(!a->waits);
    bool said = l->known && l->state.leaving, drained = n->leaves && !a->leaving;
    bool gone = n->slots == 0 && l->guest.v == 0 && !a->leaving;
    return said || drained ? "evicted: it had its notice; its hour is refunded"
           : gone          ? "evicted: gone without a notice; its hour is refunded"
                           : NULL;
}

static void hear_node(rui_scheduler *s, const rui_wished *w, uint32_t node, int64_t now_ns)
{
    const ru_market_alloc *a = rented(s, w->market, w->lease);
    const ru_cluster_state *state = w->up && s->live[node].known ? &s->live[node].state : NULL;
    if (!s->spot->opt->at[w->market].told || a == NULL || s->closing) {
        return;
    }
    if (a->waits) {
        await(s, w, a, state, now_ns);
        return;
    }
    static const ru_book_node none;
    static const rui_live silent;
    bool known = node < s->book.n_nodes; /* else its market has another name now */
    const char *why =
        rui_market_lost(a, known ? &s->book.nodes[node] : &none, known ? &s->live[node] : &silent);
    if (why != NULL) {
        (void)told(s, RU_MARKET_TAKEN, w, why, now_ns);
    }
}

static void keep_seat(rui_scheduler *s, uint32_t market, uint32_t lease, ru_time now)
{
    char name[80];
    uint32_t k;
    int64_t now_ns = clock_of(s->spot, now);
    rui_wished w = {.seat = &s->spot->seats[market][lease - 1],
                    .name = name,
                    .market = market,
                    .lease = lease,
                    .lent = s->book.spot.lent[market][lease - 1]};
    ru_spot_name(s->spot->opt, market, lease, name);
    w.there = is_there(s, market, lease, &k);
    w.up = w.there && s->live[k].guest.v != 0;
    hear_node(s, &w, k, now_ns > s->book.spot.job.now.ns ? now_ns : s->book.spot.job.now.ns);
    const ru_market_alloc *a = rented(s, market, lease);
    if (w.there && a != NULL) {
        look_at_start(s, w.seat, k, now_ns);
    }
    if (w.there && (a == NULL || a->leaving) && !s->book.nodes[k].drained) {
        rui_scheduler_drain(s, k, true);
    }
    bool lives = w.there && rui_scheduler_lives_on(s, k); /* checkpoints first */
    bool gave = a != NULL && a->told && a->leaving && !w.there;
    bool told = s->spot->opt->at[market].told; /* its notice is longer than Slurm's for an end */
    w.wish = a != NULL && !gave && !s->closing ? RUI_COME
             : lives && (told || a != NULL)    ? RUI_STAY
                                               : RUI_GO;
    w.bid_usd = a != NULL && !isinf(a->bid_usd) ? a->bid_usd : 0;
    rui_provider_wish(s, &w, now);
}

void rui_market_tick(rui_scheduler *s, ru_time now)
{
    if (s->spot == NULL) {
        return;
    }
    if (s->opt->refresh != NULL) {
        s->opt->refresh(s->opt->prices, clock_of(s->spot, now));
    }
    follow_prices(s, now);
    for (uint32_t m = 0; m < s->spot->opt->n; m++) {
        bool known = rui_provider_tick(s, m, now);
        for (uint32_t lease = 1; known && lease <= s->spot->opt->at[m].nodes; lease++) {
            keep_seat(s, m, lease, now);
        }
    }
}

/* -- for people ----------------------------------------------------------------------------------
 */

void rui_market_explain(const rui_scheduler *s, const ru_book_job *j, ru_text *t)
{
    if (s->spot == NULL) {
        return;
    }
    int64_t now_ns = clock_of(s->spot, ru_clock_now());
    const ru_sched_job *p = ru_book_place(&s->book, j);
    for (uint32_t k = 0; p != NULL && k < p->n_parts; k++) {
        const char *name = s->book.nodes[p->parts[k].node].name;
        uint32_t market, lease;
        const ru_market_alloc *a =
            ru_spot_of(s->spot->opt, name, &market, &lease) ? rented(s, market, lease) : NULL;
        if (a == NULL || a->waits) {
            continue;
        }
        ru_text_putf(t, "  %s costs %.4g USD in this hour, of which %.0f min are left; ", name,
                     a->paid_usd, fmax((double)(a->hour_end.ns - now_ns) / 60e9, 0));
        if (isinf(a->bid_usd)) {
            ru_text_put(t, "rented on demand\n");
        } else {
            ru_text_putf(t, "the bid is %.4g, the price now %.4g%s\n", a->bid_usd,
                         ru_spot_price(&s->spot->opt->at[market], now_ns),
                         a->leaving ? "; given back at the end of the hour" : "");
        }
    }
    const ru_spot *spot = &s->book.spot;
    if (j->spot_ns > 0) {
        double part = (double)j->spot_ns / (double)s->book.spot_ns;
        double ahead =
            spot->job.n > 0 ? spot->hour_usd * (double)(now_ns - spot->job.now.ns) / 3600e9 : 0;
        ru_text_putf(t,
                     "nodes of markets have cost it %.4g USD, predicted %.4g: %.0f %% of what all "
                     "cost, by the time of its workers there\n",
                     part * ru_spot_cost(spot, now_ns), part * (spot->predicted_usd + ahead),
                     100 * part);
    }
}
