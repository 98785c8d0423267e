/* The scheduler's process: a node without members whose only part hears agents, a server for
 * people, the journal, rounds. */
#include "cluster/scheduler.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "cluster/scheduler_impl.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"

static const int64_t tick_ns = 500000000, minute_ns = 60 * INT64_C(1000000000);
static const int64_t wait_ns = 200000000;

/* -- journal -------------------------------------------------------------------------------------
 */

int64_t rui_scheduler_clock(const rui_scheduler *s)
{
    int64_t at = s->opened_at_ns + ru_time_since(ru_clock_now(), s->opened);
    return at > s->book.at_ns ? at : s->book.at_ns;
}

ru_status rui_scheduler_append(rui_scheduler *s, ru_journal_event *events, uint32_t n, ru_err *err)
{
    int64_t at = rui_scheduler_clock(s), wall = ru_clock_wall_ns();
    for (uint32_t k = 0; k < n; k++) {
        events[k].at_ns = at;
        events[k].wall_ns = wall;
        events[k].who = events[k].who != NULL ? events[k].who : "scheduler";
        events[k].text = events[k].text != NULL ? events[k].text : "";
    }
    RU_TRY(s->journal.ops->append(s->journal.self, events, n, err));
    for (uint32_t k = 0; k < n; k++) {
        ru_status st = ru_book_fold(&s->book, &events[k], err);
        if (st != RU_OK) { /* it is in the journal: what goes on without it would contradict it */
            ru_log(RU_LOG_ERROR, "cluster", "fold", "%s", err->text);
        }
        RU_CHECK(st == RU_OK);
    }
    return RU_OK;
}

ru_status rui_scheduler_event(rui_scheduler *s, ru_journal_event e, ru_err *err)
{
    return rui_scheduler_append(s, &e, 1, err);
}

static ru_status fold_one(void *arg, const ru_journal_event *e, ru_err *err)
{
    rui_scheduler *s = arg;
    return ru_book_fold(&s->book, e, err);
}

/* -- agents --------------------------------------------------------------------------------------
 */

static void set_slots(rui_scheduler *s, uint32_t k, const char *name, uint32_t slots)
{
    ru_err err;
    uint32_t market, lease;
    bool rented = s->opt->spot != NULL && ru_spot_of(s->opt->spot, name, &market, &lease);
    const ru_journal_event e = {.kind = RU_BOOK_NODE,
                                .node = k,
                                .a = slots,
                                .b = rented ? 1 + (int64_t)market : 0,
                                .text = name};
    if (rui_scheduler_event(s, e, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "journal", "%s", err.text);
    }
    s->plan_due = true;
}

static void refuse(const ru_event *ev)
{
    uint32_t version = ru_cluster_version(ev->data, ev->size_bytes);
    if (version != RU_CLUSTER_VERSION) {
        ru_log(RU_LOG_WARN, "cluster", "node",
               "an agent sends messages of version %u, this scheduler reads version %d: start both "
               "with one build of Rubato",
               version, RU_CLUSTER_VERSION);
        return;
    }
    ru_log(RU_LOG_WARN, "cluster", "node",
           "an agent sent a state that is none, or of one node too many (at most %d)",
           RU_BOOK_NODES_MAX);
}

static void on_state(rui_scheduler *s, const ru_event *ev)
{
    ru_arena arena;
    ru_cluster_state st;
    ru_arena_init(&arena, 0);
    bool fine = ru_cluster_state_get(ev->data, ev->size_bytes, &arena, &st) && st.name[0] != 0 &&
                st.slots >= 1 && st.slots <= RU_ALLOC_DEVICES_MAX;
    uint32_t k = fine ? ru_book_node_of(&s->book, st.name) : RU_BOOK_NODES_MAX;
    if (k >= RU_BOOK_NODES_MAX) {
        refuse(ev);
        ru_arena_fini(&arena);
        return;
    }
    rui_live *l = &s->live[k];
    if (l->guest.v != ev->node.v) {
        l->told_hash = 0; /* another process: it has heard nothing */
        l->guest = ev->node;
    }
    ru_arena_fini(&l->arena);
    l->arena = arena;
    l->state = st;
    l->known = true;
    l->heard = ev->now;
    if (!s->leads) {
        return; /* it says so again */
    }
    bool gone = st.leaving && !rui_scheduler_lives_on(s, k);
    uint32_t slots = gone ? 0 : st.slots;
    if (k == s->book.n_nodes || s->book.nodes[k].slots != slots) {
        set_slots(s, k, st.name, slots);
    }
    const ru_book_node *n = &s->book.nodes[k];
    if (k < s->book.n_nodes &&
        (st.leaving ? !n->drained : n->leaves && !rui_scheduler_seat_goes(s, n->name))) {
        rui_scheduler_drain(s, k, st.leaving);
    }
}

bool rui_scheduler_lives_on(const rui_scheduler *s, uint32_t k)
{
    bool lives = false;
    for (uint32_t i = 0; i < s->live[k].state.n; i++) {
        lives = lives || s->live[k].state.procs[i].alive;
    }
    return lives;
}

void rui_scheduler_drain(rui_scheduler *s, uint32_t k, bool drain)
{
    ru_err err;
    const ru_journal_event e = {.kind = RU_BOOK_DRAIN, .node = k, .a = drain, .who = "scheduler"};
    if (rui_scheduler_event(s, e, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "journal", "%s", err.text);
    }
    s->plan_due = true;
}

static void on_down(rui_scheduler *s, ru_node_id guest)
{
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        s->live[k].guest.v = ru_node_is(s->live[k].guest, guest) ? 0 : s->live[k].guest.v;
    }
}

static void part_guest(void *self, const ru_event *ev, ru_effects *fx)
{
    rui_scheduler *s = self;
    (void)fx;
    if (ev->kind == RU_EV_MESSAGE && ev->what == RU_CLUSTER_STATE) {
        on_state(s, ev);
    } else if (ev->kind == RU_EV_DOWN) {
        on_down(s, ev->node);
    }
    rui_scheduler_settle(s, ev->now);
}

static const ru_part_ops part_ops = {.name = "agents", .guest = part_guest};

/* Orders that are other than those told before, to each node that is there and follows those: whom
 * a node tells to leave is known before the next ones. */
static void tell_all(rui_scheduler *s, ru_time now)
{
    ru_effects *fx = ru_node_enter(s->bridge.node, now);
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_cluster_orders *o = RU_NEW(&scratch, ru_cluster_orders, 1);
    void *bytes = ru_arena_alloc(&scratch, RU_CLUSTER_MESSAGE_BYTES, 8);
    for (uint32_t k = 0; o != NULL && bytes != NULL && k < s->book.n_nodes; k++) {
        rui_live *l = &s->live[k];
        if (l->guest.v == 0 || (l->told_hash != 0 && l->state.heard != l->told.number)) {
            continue;
        }
        rui_scheduler_orders(s, k, o);
        int64_t n = ru_cluster_orders_put(o, bytes);
        uint64_t hash = ru_hash_bytes(bytes, n, 1);
        if (n > 0 && hash != l->told_hash) {
            l->told_hash = hash;
            o->number = ++s->number;
            o->epoch = s->epoch;
            l->told = *o;
            n = ru_cluster_orders_put(o, bytes);
            ru_fx_send(fx, l->guest, RU_CLUSTER_ORDERS, bytes, n);
        }
    }
    ru_arena_fini(&scratch);
    ru_node_leave(s->bridge.node, now);
}

/* -- rounds --------------------------------------------------------------------------------------
 */

const ru_cluster_figures *rui_scheduler_figures(rui_scheduler *s, const ru_book_job *j)
{
    const ru_sched_job *p = ru_book_place(&s->book, j);
    RU_CHECK(p != NULL);
    if (s->figures[j->slot].job != s->book.of[j->slot]) {
        memset(&s->figures[j->slot], 0, sizeof s->figures[j->slot]);
        s->figures[j->slot].job = s->book.of[j->slot];
    }
    if (j->state == RU_BOOK_RUNS) {
        ru_figures_look(&s->figures[j->slot].is, j->spec.out, p->n_parts);
    }
    return &s->figures[j->slot].is;
}

/* Generations that began in place of one that ran, as soon as their first worker is in the job:
 * what a change of slots takes where jobs stop and start. */
static void note_moves(rui_scheduler *s)
{
    for (uint32_t slot = 0; s->book.restarts && slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        uint32_t ready;
        if (j == NULL || j->state != RU_BOOK_RUNS || j->moved != j->generation ||
            j->begun_ns <= s->opened_at_ns || /* by an earlier scheduler, whose clock stood still */
            (s->figures[slot].job == s->book.of[slot] &&
             s->figures[slot].stopped == j->generation)) {
            continue;
        }
        (void)rui_scheduler_alive(s, j, &ready, NULL);
        if (ready > 0) {
            double took_s = 1e-9 * (double)(rui_scheduler_clock(s) - j->begun_ns);
            (void)rui_scheduler_figures(s, j); /* of this job from now on */
            s->figures[slot].stopped = j->generation;
            s->figures[slot].stopped_s += took_s;
            s->figures[slot].stops++;
            ru_log(RU_LOG_INFO, "cluster", "restart", "job %u generation %u took %.3f s",
                   s->book.of[slot], j->generation, took_s);
        }
    }
}

/* The mean of all changes that live jobs tell of. After a stop workers come one after the other:
 * what that takes is part of each start, the first one too. */
static double pause_of(const rui_scheduler *s)
{
    double sum = 0, n = 0;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        double stops = s->figures[slot].stops, paused_s = s->figures[slot].is.paused_s;
        if (s->book.restarts) {
            sum += s->figures[slot].stopped_s + paused_s * stops / (stops + 1);
            n += stops;
        } else {
            sum += paused_s;
            n += s->figures[slot].is.pauses;
        }
    }
    return n > 0 ? sum / n : s->book.pause_s;
}

/* With how many workers a job is fastest, as far as it has measured: nobody rents more for it. */
static uint32_t most_of(const rui_scheduler *s, const ru_goodput_model *m, uint32_t min,
                        uint32_t max)
{
    uint32_t best = 0, slots = 1;
    double most = 0;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        slots = s->book.nodes[k].slots > slots ? s->book.nodes[k].slots : slots;
    }
    for (uint32_t n = min; m->perf.overlap >= 1 && n <= max; n++) {
        double is = ru_goodput_best(m, 1 + (n - 1) / slots, n).goodput;
        best = is > most ? n : best;
        most = is > most ? is : most;
    }
    return best;
}

/* Without memory the model tells the steps. */
static void steps_of(const rui_scheduler *s, const ru_cluster_figures *f, uint32_t max,
                     ru_arena *scratch, ru_book_measured *of)
{
    enum { MOST = 64 };
    double *step_s = RU_NEW(scratch, double, MOST);
    uint32_t slots = 1;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        slots = s->book.nodes[k].slots > slots ? s->book.nodes[k].slots : slots;
    }
    if (step_s != NULL) {
        of->n_step = ru_figures_steps(f, &of->model, slots, step_s, max < MOST ? max : MOST);
        of->step_s = step_s;
    }
}

/* By slot. NULL: no memory. */
static ru_book_measured *measured_of(rui_scheduler *s, ru_arena *scratch)
{
    ru_book_measured *of = RU_NEW(scratch, ru_book_measured, s->book.sched.n_jobs + 1);
    const bool always = s->book.method == RU_ALLOC_SRTF; /* else a fixed size leaves no choice */
    for (uint32_t slot = 0; of != NULL && slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        if (j != NULL && (j->min < j->max || always)) {
            const ru_cluster_figures *f = rui_scheduler_figures(s, j);
            ru_figures_model(f, &of[slot].model);
            of[slot].remaining = ru_figures_remaining(f);
            if (s->book.method == RU_ALLOC_OPTIMUS) {
                steps_of(s, f, j->max, scratch, &of[slot]);
            }
            if (s->spot != NULL || s->slurm != NULL) {
                s->figures[slot].most = most_of(s, &of[slot].model, j->min, j->max);
            }
        }
    }
    return of;
}

/* What it asked stays until the next one: for `rubato capture`. */
static void plan(rui_scheduler *s)
{
    ru_journal_event *events;
    uint32_t n;
    ru_err err;
    const ru_time begun = ru_clock_now();
    s->plan_due = false;
    ru_arena_fini(&s->round);
    ru_arena_init(&s->round, 0);
    ru_text asks = ru_text_arena(&s->round);
    const ru_book_measured *measured = measured_of(s, &s->round);
    s->book.pause_s = pause_of(s);
    s->book.asks = &asks;
    ru_status st = measured == NULL ? RU_FAIL(&err, RU_E_MEM, "no memory to plan")
                                    : ru_book_plan(&s->book, measured, rui_scheduler_clock(s),
                                                   &s->round, &events, &n, &err);
    s->book.asks = NULL;
    s->questions = st == RU_OK && !asks.cut ? asks.p : "";
    s->planned_wall_ns = ru_clock_wall_ns();
    if (st == RU_OK && n > 0) {
        st = rui_scheduler_append(s, events, n, &err);
    }
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "plan", "%s", err.text);
    }
    s->planned = ru_clock_now();
    s->gap_ns = 4 * ru_time_since(s->planned, begun); /* people and agents come first */
}

void rui_scheduler_settle(rui_scheduler *s, ru_time now)
{
    if (!s->leads) {
        return;
    }
    rui_scheduler_judge(s);
    note_moves(s);
    if (s->plan_due && !s->closing && ru_time_since(now, s->planned) >= s->gap_ns) {
        plan(s);
    }
    tell_all(s, now);
    if (s->closing && rui_scheduler_silence(s) && rui_market_empty(s) &&
        (s->slurm == NULL || ru_slurm_empty(s->slurm))) {
        const ru_journal_event e = {.kind = RU_BOOK_DOWN, .who = "admin"};
        ru_err err;
        if (s->book.down_seq < s->book.seq && rui_scheduler_event(s, e, &err) != RU_OK) {
            ru_log(RU_LOG_ERROR, "cluster", "journal", "%s", err.text);
        }
        ru_loop_stop(s->loop);
    }
}

/* Whole copies of the journal: a minute after the start, each hour, and at the end. */
static void copy(rui_scheduler *s)
{
    ru_err err;
    if (s->journal.ops->snapshot == NULL || s->copied_seq == s->book.seq) {
        return;
    }
    s->copied_seq = s->book.seq;
    if (s->journal.ops->snapshot(s->journal.self, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "cluster", "copy", "%s", err.text);
    }
}

/* Does it still lead, or again? What was written when the database was lost is in the book then. */
static bool keep_lead(rui_scheduler *s)
{
    ru_err err = {0};
    uint64_t epoch = s->epoch;
    if (s->journal.ops->lead == NULL) {
        return true;
    }
    s->lead = s->journal.ops->lead(s->journal.self, &epoch, &err);
    if (s->lead == RU_OK && (!s->leads || epoch != s->epoch)) { /* it may not have seen the loss */
        s->lead = s->journal.ops->read(s->journal.self, s->book.seq, fold_one, s, &err);
        if (s->lead == RU_OK) {
            ru_log(RU_LOG_INFO, "cluster", "lead", "leads again, epoch %llu",
                   (unsigned long long)epoch);
            s->plan_due = true;
        }
    }
    if (s->leads && s->lead != RU_OK) {
        ru_log(RU_LOG_WARN, "cluster", "lead", "%s; jobs go on, nothing else is done", err.text);
    }
    if (s->lead == RU_E_AGAIN || s->lead == RU_E_DATA) {
        s->ousted = true; /* what it knows is not what has happened */
        ru_loop_stop(s->loop);
    }
    s->leads = s->lead == RU_OK;
    s->epoch = s->leads ? epoch : s->epoch;
    return s->leads;
}

/* While this process stood still it heard nobody: that time is no silence of theirs. */
static void forgive(rui_scheduler *s, ru_time now)
{
    int64_t still_ns = s->ticked.ns > 0 ? ru_time_since(now, s->ticked) - tick_ns : 0;
    s->ticked = now;
    if (still_ns < tick_ns) {
        return;
    }
    s->still_ns += still_ns;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        ru_time heard = ru_time_after(s->live[k].heard, still_ns);
        s->live[k].heard = ru_time_since(now, heard) > 0 ? heard : now; /* heard since it woke */
    }
}

static void on_tick(void *self, uint32_t what, ru_time now)
{
    rui_scheduler *s = self;
    (void)what;
    ru_loop_timer(s->loop, on_tick, s, 0, ru_time_after(now, tick_ns));
    forgive(s, now);
    if (!keep_lead(s)) {
        return;
    }
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        rui_live *l = &s->live[k];
        ru_time heard = l->known ? l->heard : ru_time_after(s->opened, s->still_ns);
        if (s->book.nodes[k].slots > 0 && ru_time_since(now, heard) > s->opt->silent_ns) {
            ru_log(RU_LOG_WARN, "cluster", "node_lost", "%s is silent; its jobs go on without it",
                   s->book.nodes[k].name);
            l->state.n = 0;
            set_slots(s, k, s->book.nodes[k].name, 0);
        }
    }
    rui_scheduler_seats(s, now);
    rui_market_tick(s, now);
    s->plan_due = s->plan_due || ru_time_since(now, s->planned) > s->opt->round_ns;
    if (now.ns >= s->copy_at.ns) {
        s->copy_at = ru_time_after(now, 60 * minute_ns);
        copy(s);
    }
    rui_scheduler_settle(s, now);
}

ru_status rui_scheduler_close(rui_scheduler *s, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_journal_event *events = RU_NEW(&scratch, ru_journal_event, s->book.n_live + 1);
    uint32_t n = 0;
    for (uint32_t slot = 0; events != NULL && slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        if (j != NULL && s->book.sched.jobs[slot].n_parts > 0) {
            events[n++] = (ru_journal_event){.kind = RU_BOOK_GRANT,
                                             .job = s->book.of[slot],
                                             .b = s->book.sched.jobs[slot].demoted};
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        events[k].a = n - 1 - k;
    }
    ru_status st = events == NULL ? RU_FAIL(err, RU_E_MEM, "no memory to end the jobs")
                   : n > 0        ? rui_scheduler_append(s, events, n, err)
                                  : RU_OK;
    s->closing = st == RU_OK;
    ru_arena_fini(&scratch);
    return st;
}

/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status open_agents(rui_scheduler *s, ru_err *err)
{
    const char *key = s->opt->agent_key;
    const ru_link_tcp_options lo = {.loop = s->loop,
                                    .listen = s->opt->agents,
                                    .psk = (const uint8_t *)key,
                                    .psk_bytes = (uint32_t)strlen(key),
                                    .conns_max =
                                        ru_guests_conns(RU_BOOK_NODES_MAX) + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &s->link, err));
    const ru_guests_options go = {.address = ru_link_tcp_address(s->link),
                                  .job = RU_CLUSTER_SERVICE,
                                  .token = lo.psk,
                                  .token_bytes = lo.psk_bytes,
                                  .link = ru_link_tcp_link(s->link),
                                  .n_max = RU_BOOK_NODES_MAX,
                                  .message_bytes = RU_CLUSTER_MESSAGE_BYTES,
                                  .messages_per_s = 1000,
                                  .bytes_per_s = 16 << 20,
                                  .unanswered_max = UINT32_MAX}; /* states have no answers */
    const ru_part part = {.ops = &part_ops,
                          .self = s,
                          .guest_first = RU_CLUSTER_STATE,
                          .guest_end = RU_CLUSTER_MESSAGES_END};
    RU_TRY(ru_node_loop_alone(&s->bridge, &part, &go, s->arena, err));
    ru_link_tcp_user(s->link, ru_node_guests_link_user(s->bridge.node));
    ru_node_start(s->bridge.node, ru_clock_now());
    return RU_OK;
}

static ru_status put_address(rui_scheduler *s, const char *name, const char *address, ru_err *err)
{
    const char *path = ru_path_join(s->arena, s->opt->folder, name);
    return path != NULL ? ru_file_own(path, address, (int64_t)strlen(address), err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for a scheduler");
}

/* The journal tells which method planned what, and how jobs were resized. */
static ru_status set_method(rui_scheduler *s, ru_err *err)
{
    const ru_scheduler_options *o = s->opt;
    const ru_journal_event e = {.kind = RU_BOOK_METHOD,
                                .a = o->method,
                                .b = (int64_t)(1e3 * o->demote_s + 0.5),
                                .text = ru_alloc_method_name(o->method)};
    const ru_journal_event resize = {
        .kind = RU_BOOK_RESIZE, .a = o->restarts, .text = o->restarts ? "restart" : "in place"};
    bool same =
        s->book.method == o->method && (s->book.demote_ms == e.b || o->method != RU_ALLOC_TIRESIAS);
    RU_TRY(s->book.restarts == o->restarts ? RU_OK : rui_scheduler_event(s, resize, err));
    return same ? RU_OK : rui_scheduler_event(s, e, err);
}

static void on_stop(void *self, int fd, uint32_t events, ru_time now)
{
    (void)fd;
    (void)events;
    (void)now;
    ru_loop_stop(self);
}

/* A database may come back, and a password be put right. */
static bool waits(const rui_scheduler *s)
{
    return s->lead != RU_OK && s->lead != RU_E_DATA && s->lead != RU_E_MEM;
}

/* Fold what the leader writes, until this one leads. */
static void on_wait(void *self, uint32_t what, ru_time now)
{
    rui_scheduler *s = self;
    (void)what;
    ru_status was = s->lead;
    s->lead = s->journal.ops->lead(s->journal.self, &s->epoch, s->err);
    if (s->lead != was && waits(s)) {
        ru_log(RU_LOG_INFO, "cluster", "wait", "%s", s->err->text);
    }
    if (s->lead == RU_OK || s->lead == RU_E_AGAIN) {
        ru_status st = s->journal.ops->read(s->journal.self, s->book.seq, fold_one, s, s->err);
        s->lead = st == RU_OK ? s->lead : st;
    }
    if (waits(s)) {
        ru_loop_timer(s->loop, on_wait, s, 0, ru_time_after(now, wait_ns));
    } else {
        ru_loop_stop(s->loop);
    }
}

/* *goes: it leads; else the cluster went down, or this process shall end. */
static ru_status get_lead(rui_scheduler *s, bool *goes, ru_err *err)
{
    int64_t began = s->book.seq;
    s->err = err;
    if (s->journal.ops->lead != NULL) {
        s->lead = RU_E_PEER;
        ru_loop_timer(s->loop, on_wait, s, 0, ru_clock_now());
        RU_TRY(ru_loop_run(s->loop, err));
        RU_TRY(waits(s) ? RU_OK : s->lead);
    }
    s->leads = s->lead == RU_OK;
    *goes = s->leads && (s->book.down_seq <= began || s->book.down_seq < s->book.seq);
    return RU_OK;
}

static ru_status run(rui_scheduler *s, ru_err *err)
{
    int fd = ru_self_stop_fd();
    bool goes;
    RU_TRY(ru_journal_open(s->opt->journal, s->opt->folder, s->arena, &s->journal, err));
    RU_TRY(ru_book_init(&s->book, s->arena, err));
    s->figures = ru_arena_zalloc(s->arena, RU_BOOK_LIVE_MAX * (int64_t)sizeof *s->figures, 8);
    if (s->figures == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a scheduler");
    }
    RU_TRY(s->journal.ops->read(s->journal.self, 0, fold_one, s, err));
    if (fd >= 0) {
        RU_TRY(ru_loop_fd(s->loop, fd, 1, on_stop, s->loop, err));
    }
    RU_TRY(get_lead(s, &goes, err));
    if (!goes) {
        return RU_OK;
    }
    s->opened = ru_clock_now();
    s->opened_at_ns = s->book.at_ns;
    RU_TRY(set_method(s, err));
    s->bridge.loop = s->loop;
    RU_TRY(open_agents(s, err));
    const ru_http_options ho = {.loop = s->loop,
                                .listen = s->opt->listen,
                                .request = rui_scheduler_request,
                                .body_max_bytes = 4 << 20,
                                .conns_max = RUI_SCHEDULER_CONNS,
                                .self = s};
    RU_TRY(ru_http_open(&ho, s->arena, &s->http, err));
    RU_TRY(put_address(s, "agents", ru_link_tcp_address(s->link), err));
    RU_TRY(put_address(s, "http", ru_http_address(s->http), err));
    s->plan_due = true;
    s->seats_enough = ru_clock_now();
    RU_TRY(ru_slurm_shell_open(s->loop, s->arena, &s->shell, err));
    if (s->opt->slurm != NULL) {
        RU_TRY(ru_slurm_open(s->opt->slurm, s->shell, s->arena, &s->slurm, err));
    }
    RU_TRY(rui_market_open(s, err));
    on_tick(s, 0, ru_clock_now());
    RU_TRY(ru_loop_run(s->loop, err));
    return !s->ousted ? RU_OK : RU_FAIL(err, RU_E_CANCELLED, "another scheduler leads");
}

ru_status ru_scheduler_run(const ru_scheduler_options *opt, ru_arena *arena, ru_err *err)
{
    rui_scheduler *s = RU_NEW(arena, rui_scheduler, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a scheduler");
    }
    s->opt = opt;
    s->arena = arena;
    s->opened = ru_clock_now();
    s->copy_at = ru_time_after(s->opened, minute_ns);
    s->number = (uint64_t)ru_clock_wall_ns(); /* no agent heard it from an earlier scheduler */
    for (uint32_t k = 0; k < RU_BOOK_NODES_MAX; k++) {
        ru_arena_init(&s->live[k].arena, 0);
    }
    ru_arena_init(&s->round, 0);
    s->questions = "";
    ru_self_stop_watch();
    ru_status st = ru_loop_open(&s->loop, err);
    st = st == RU_OK ? run(s, err) : st;
    ru_self_stop_unwatch();
    ru_http_close(s->http);
    rui_market_close(s);
    ru_slurm_shell_close(s->shell);
    if (s->bridge.node != NULL) {
        ru_node_quiet(s->bridge.node);
    }
    ru_node_close(s->bridge.node);
    ru_link_tcp_close(s->link);
    ru_loop_close(s->loop);
    if (st == RU_OK) {
        copy(s);
    }
    if (s->journal.ops != NULL) {
        s->journal.ops->close(s->journal.self);
    }
    if (s->book.fx.arena != NULL) {
        ru_arena_fini(s->book.fx.arena);
    }
    for (uint32_t k = 0; k < RU_BOOK_NODES_MAX; k++) {
        ru_arena_fini(&s->live[k].arena);
    }
    ru_arena_fini(&s->round);
    return st;
}
