#include "cluster/book.h"

#include <string.h>

#include "base/conf.h"
#include "base/json.h"

/* A generation that lived longer began well: its failure is the first again. */
static const int64_t settled_ns = 60 * INT64_C(1000000000);

struct rui_book_plan {
    ru_alloc_share shares[RU_BOOK_LIVE_MAX];
    uint32_t of[RU_BOOK_LIVE_MAX];
    ru_alloc_part parts[RU_BOOK_LIVE_MAX + RU_BOOK_NODES_MAX * RU_ALLOC_PARTS_MAX];
    uint32_t n, n_parts;
};

static const ru_conf_field spec_fields[] = {
    RU_ROW(TEXT, ru_book_spec, name, NULL, "name of the job"),
    RU_ROW(TEXT, ru_book_spec, token, NULL, "secret of its workers"),
    RU_ROW(TEXT, ru_book_spec, out, NULL, "folder of the run"),
    RU_ROW(TEXT, ru_book_spec, yaml, NULL, "resolved job"),
    RU_ROW(U32, ru_book_spec, request, "0", "workers that it requests; 0: the most"),
};
static const ru_conf_table spec_table =
    RU_TABLE("submission", ru_book_spec, spec_fields, "a job of a cluster");

static const ru_conf_field user_fields[] = {
    RU_ROW(TEXT, ru_book_user, name, NULL, "name of the user"),
    RU_ROW(TEXT, ru_book_user, key, NULL, "its secret"),
};
static const ru_conf_table user_table =
    RU_TABLE("user", ru_book_user, user_fields, "a user of a cluster");

/* A struct of such texts and numbers, as JSON and back. */
static void put_texts(const ru_conf_table *t, const void *from, ru_text *into)
{
    ru_json j = ru_json_into(into);
    ru_json_open(&j, NULL, '{');
    for (uint32_t k = 0; k < t->n; k++) {
        const ru_conf_field *f = &t->fields[k];
        const char *at = (const char *)from + f->offset, *text;
        uint32_t number;
        if (f->type == RU_CONF_U32) {
            memcpy(&number, at, sizeof number);
            ru_json_i64(&j, f->name, number);
        } else {
            memcpy(&text, at, sizeof text);
            ru_json_str(&j, f->name, text);
        }
    }
    ru_json_close(&j);
}

static ru_status get_texts(const ru_conf_table *t, const char *text, ru_arena *arena, void *into,
                           ru_err *err)
{
    ru_conf *c;
    RU_TRY(ru_conf_new(t, arena, &c, err));
    RU_TRY(ru_conf_add_json(c, "journal", text, (int64_t)strlen(text), err));
    return ru_conf_apply(c, into, err);
}

void ru_book_spec_put(const ru_book_spec *s, ru_text *into)
{
    put_texts(&spec_table, s, into);
}

ru_status ru_book_spec_get(const char *text, ru_arena *arena, ru_book_spec *out, ru_err *err)
{
    return get_texts(&spec_table, text, arena, out, err);
}

void ru_book_user_put(const ru_book_user *u, ru_text *into)
{
    put_texts(&user_table, u, into);
}

ru_status ru_book_user_get(const char *text, ru_arena *arena, ru_book_user *out, ru_err *err)
{
    return get_texts(&user_table, text, arena, out, err);
}

const ru_book_user *ru_book_user_of(const ru_book *b, const char *name)
{
    for (uint32_t k = 0; k < b->n_users; k++) {
        if (strcmp(b->users[k].name, name) == 0) {
            return &b->users[k];
        }
    }
    return NULL;
}

uint32_t ru_book_weight(const ru_book *b, const char *owner)
{
    bool any = false;
    for (uint32_t k = 0; k < b->n_users; k++) {
        any = any || b->users[k].weight > 0;
    }
    const ru_book_user *u = any ? ru_book_user_of(b, owner) : NULL;
    return u != NULL && u->weight > 0 ? u->weight : any;
}

const char *ru_book_state_name(ru_book_state s)
{
    static const char *const names[] = {"none", "waits", "runs", "done", "cancelled", "held"};
    RU_CHECK(s < RU_BOOK_STATES);
    return names[s];
}

ru_status ru_book_init(ru_book *b, ru_arena *arena, ru_err *err)
{
    const ru_sched_spec spec = {
        .jobs_max = RU_BOOK_LIVE_MAX, .nodes_max = RU_BOOK_NODES_MAX, .resizes = true};
    memset(b, 0, sizeof *b);
    b->arena = arena;
    b->plan = RU_NEW(arena, struct rui_book_plan, 1);
    ru_arena *fx = RU_NEW(arena, ru_arena, 1);
    if (b->plan == NULL || fx == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a cluster");
    }
    ru_arena_init(fx, 0);
    ru_effects_init(&b->fx, fx);
    return ru_sched_init(&b->sched, &spec, (ru_time){0}, arena, err);
}

ru_book_job *ru_book_job_at(const ru_book *b, int64_t number)
{
    return number >= 1 && number <= b->jobs.n ? &b->jobs.at[number - 1] : NULL;
}

const ru_sched_job *ru_book_place(const ru_book *b, const ru_book_job *j)
{
    return j->state == RU_BOOK_WAITS || j->state == RU_BOOK_RUNS ? &b->sched.jobs[j->slot] : NULL;
}

uint32_t ru_book_request(const ru_book_job *j)
{
    uint32_t n = j->spec.request > 0 && j->spec.request < j->max ? j->spec.request : j->max;
    return n > j->min ? n : j->min;
}

uint32_t ru_book_granted(const ru_book *b, const ru_book_job *j, uint32_t node)
{
    const ru_sched_job *s = ru_book_place(b, j);
    for (uint32_t k = 0; s != NULL && k < s->n_parts; k++) {
        if (s->parts[k].node == node) {
            return s->parts[k].devices;
        }
    }
    return 0;
}

uint32_t ru_book_slots(const ru_book *b, bool drained)
{
    uint32_t of[RU_ALLOC_DEVICES_MAX + 1] = {0}, slots = 0, nodes = 0; /* nodes by slots */
    for (uint32_t k = 0; k < b->n_nodes; k++) {
        of[b->nodes[k].slots] += drained || !b->nodes[k].drained;
    }
    for (uint32_t n = RU_ALLOC_DEVICES_MAX; n > 0; n--) {
        for (; of[n] > 0 && nodes < RU_BOOK_SPREAD_MAX; of[n]--, nodes++) {
            slots += n;
        }
    }
    return slots;
}

uint32_t ru_book_node_of(const ru_book *b, const char *name)
{
    for (uint32_t k = 0; k < b->n_nodes; k++) {
        if (strcmp(b->nodes[k].name, name) == 0) {
            return k;
        }
    }
    return b->n_nodes;
}

/* -- the fold ------------------------------------------------------------------------------------
 */

/* A job that was scaled to more than it has may go on with its fewest from before. */
static void set_least(const ru_book *b, ru_book_job *j)
{
    const ru_sched_job *s = ru_book_place(b, j);
    bool lacks = s != NULL && s->replicas > 0 && s->replicas < j->min;
    j->least = lacks && j->least < j->min ? j->least : j->min;
}

static void on_effect(ru_book *b, const ru_effect *e)
{
    if (e->kind != RU_FX_LOCAL) {
        return; /* timers of rates and goals, which nobody reports here */
    }
    ru_book_job *j = ru_book_job_at(b, b->of[e->value]);
    RU_CHECK(j != NULL);
    set_least(b, j);
    if (e->what == RU_SCHED_START) {
        bool at_once = j->generation > 0 && j->waits_ns == b->at_ns;
        j->state = RU_BOOK_RUNS;
        j->generation++;
        j->moves += at_once;
        j->moved = at_once ? j->generation : j->moved;
        j->begun_ns = b->at_ns;
    } else if (e->what == RU_SCHED_STOP) {
        j->state = RU_BOOK_WAITS;
        j->waits_ns = b->at_ns;
    }
}

static void step(ru_book *b, ru_sched_word word, int64_t value, const void *data, int64_t n)
{
    const ru_event ev = {.kind = RU_EV_LOCAL,
                         .now = {b->at_ns},
                         .what = word,
                         .value = value,
                         .data = data,
                         .size_bytes = n};
    ru_sched_step(&b->sched, &ev, &b->fx);
    for (uint32_t k = 0; k < b->fx.n; k++) {
        on_effect(b, &b->fx.at[k]);
    }
    ru_effects_clear(&b->fx);
}

static ru_status odd(const ru_journal_event *e, const char *what, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA, "event %lld of the journal (kind %u, job %lld, node %lld): %s",
                   (long long)e->seq, e->kind, (long long)e->job, (long long)e->node, what);
}

static ru_status submit(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    ru_book_spec spec;
    uint32_t slot = 0;
    while (slot < RU_BOOK_LIVE_MAX && b->of[slot] != 0) {
        slot++;
    }
    if (e->job != (int64_t)b->jobs.n + 1 || slot == RU_BOOK_LIVE_MAX || e->a < 1 || e->b < e->a) {
        return odd(e, "no such submission can follow", err);
    }
    RU_TRY(ru_book_spec_get(e->text, b->arena, &spec, err));
    const char *owner = ru_arena_str(b->arena, e->who);
    ru_book_job *j = owner != NULL ? ru_book_jobs_push(&b->jobs, b->arena) : NULL;
    if (j == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a job");
    }
    *j = (ru_book_job){.state = RU_BOOK_WAITS,
                       .spec = spec,
                       .owner = owner,
                       .why = "",
                       .priority = e->node,
                       .min = (uint32_t)e->a,
                       .max = (uint32_t)e->b,
                       .least = (uint32_t)e->a,
                       .slot = slot,
                       .waits_ns = e->at_ns,
                       .submitted_wall_ns = e->wall_ns};
    b->of[slot] = (uint32_t)e->job;
    b->n_live++;
    step(b, RU_SCHED_SUBMIT, slot, NULL, 0);
    return RU_OK;
}

static ru_status set_node(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    if (e->node < 0 || e->node > b->n_nodes || e->node >= RU_BOOK_NODES_MAX || e->a < 0 ||
        e->a > RU_ALLOC_DEVICES_MAX || e->b < 0 || e->b > RU_SPOT_MARKETS_MAX) {
        return odd(e, "no such node can follow", err);
    }
    ru_book_node *n = &b->nodes[e->node];
    if (e->node == b->n_nodes) {
        n->name = ru_arena_str(b->arena, e->text);
        if (n->name == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for a node");
        }
        b->n_nodes++;
    }
    n->slots = (uint32_t)e->a;
    n->market = (uint32_t)e->b;
    const ru_sched_change c = {.node = (uint32_t)e->node,
                               .devices = n->slots,
                               .market = n->market > 0 ? n->market - 1 : RU_SCHED_OWNED};
    step(b, RU_SCHED_NODE, 0, &c, sizeof c);
    return RU_OK;
}

/* A new one, or another key and number of slots of one that is there. */
static ru_status set_user(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    ru_book_user u = {0};
    RU_TRY(ru_book_user_get(e->text, b->arena, &u, err));
    const ru_book_user *old = ru_book_user_of(b, u.name);
    uint32_t at = old != NULL ? (uint32_t)(old - b->users) : b->n_users;
    if (at == RU_BOOK_USERS_MAX || e->a < 0 || e->a > UINT32_MAX || e->b < 0 ||
        e->b > RU_BOOK_WEIGHT_MAX) {
        return odd(e, "no such user can follow", err);
    }
    u.slots = (uint32_t)e->a;
    u.weight = (uint32_t)e->b;
    b->users[at] = u;
    b->n_users += old == NULL;
    return RU_OK;
}

/* "0:2 3:1", nodes rising. */
static bool read_parts(const char *text, ru_alloc_part *parts, uint32_t *n)
{
    ru_str rest = ru_str_c(text), word;
    *n = 0;
    while (ru_str_next(&rest, ' ', &word)) {
        int64_t node, slots, colon = ru_str_find(word, ":");
        if (colon < 1 || *n == RU_ALLOC_PARTS_MAX || !ru_str_i64(ru_str_n(word.p, colon), &node) ||
            !ru_str_i64(ru_str_from(word, colon + 1), &slots) || node < 0 ||
            node >= RU_BOOK_NODES_MAX || slots < 1 || slots > RU_ALLOC_DEVICES_MAX) {
            return word.n == 0 && *n == 0;
        }
        parts[(*n)++] = (ru_alloc_part){(uint32_t)node, (uint32_t)slots};
    }
    return true;
}

/* Does the plan fit? Its jobs have given up what they had. */
static bool fits(const ru_book *b, const struct rui_book_plan *p)
{
    int64_t left[RU_BOOK_NODES_MAX];
    for (uint32_t k = 0; k < RU_BOOK_NODES_MAX; k++) {
        left[k] =
            k < b->sched.n_nodes ? (int64_t)b->sched.nodes[k].devices - b->sched.nodes[k].used : 0;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        const ru_sched_job *j = &b->sched.jobs[p->of[i]];
        for (uint32_t k = 0; k < j->n_parts; k++) {
            left[j->parts[k].node] += j->parts[k].devices;
        }
    }
    bool fit = true;
    for (uint32_t k = 0; k < p->n_parts; k++) {
        left[p->parts[k].node] -= p->parts[k].devices;
        fit = fit && left[p->parts[k].node] >= 0;
    }
    return fit;
}

static ru_status grant(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    struct rui_book_plan *p = b->plan;
    const ru_book_job *j = ru_book_job_at(b, e->job);
    ru_alloc_part parts[RU_ALLOC_PARTS_MAX];
    uint32_t n;
    if (j == NULL || ru_book_place(b, j) == NULL || p->n == RU_BOOK_LIVE_MAX ||
        !read_parts(e->text, parts, &n) || p->n_parts + n > RU_ARRAY_LEN(p->parts) || e->b < 0 ||
        e->b > UINT32_MAX) {
        return odd(e, "nothing can be granted so", err);
    }
    p->shares[p->n] =
        (ru_alloc_share){.first = p->n_parts, .n_parts = n, .demoted = (uint32_t)e->b};
    p->of[p->n++] = j->slot;
    memcpy(&p->parts[p->n_parts], parts, n * sizeof *parts);
    p->n_parts += n;
    if (e->a > 0) {
        return RU_OK;
    }
    const ru_alloc_plan plan = {
        .jobs = p->shares, .parts = p->parts, .n_jobs = p->n, .n_parts = p->n_parts};
    const ru_sched_grants g = {&plan, p->of};
    bool fit = fits(b, p);
    if (fit) {
        step(b, RU_SCHED_PLAN, 0, &g, sizeof g);
    }
    p->n = p->n_parts = 0;
    return fit ? RU_OK : odd(e, "the nodes have not so many slots", err);
}

static ru_status end(ru_book *b, ru_book_job *j, ru_book_state state, const ru_journal_event *e,
                     ru_err *err)
{
    if (ru_book_place(b, j) == NULL || state <= RU_BOOK_RUNS || state >= RU_BOOK_STATES) {
        return odd(e, "the job cannot end so", err);
    }
    step(b, RU_SCHED_END, j->slot, NULL, 0);
    b->of[j->slot] = 0;
    b->n_live--;
    j->state = state;
    j->ended_wall_ns = e->wall_ns;
    return RU_OK;
}

static ru_status why(ru_book *b, ru_book_job *j, const ru_journal_event *e, ru_err *err)
{
    j->why = ru_arena_str(b->arena, e->text);
    return j->why != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a sentence");
}

static ru_status fail(ru_book *b, ru_book_job *j, const ru_journal_event *e, ru_err *err)
{
    RU_TRY(why(b, j, e, err));
    j->failures = e->at_ns - j->begun_ns > settled_ns ? 1 : j->failures + 1;
    if (j->failures >= RU_BOOK_FAILURES_MAX) {
        return end(b, j, RU_BOOK_FAILED, e, err);
    }
    j->generation++;
    j->begun_ns = e->at_ns;
    return RU_OK;
}

static ru_status fold_job(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    ru_book_job *j = ru_book_job_at(b, e->job);
    if (j == NULL) {
        return odd(e, "there is no such job", err);
    }
    switch (e->kind) {
    case RU_BOOK_SCALE:
        if (e->a < 1 || e->b < e->a || e->b > UINT32_MAX) {
            return odd(e, "no such number of workers", err);
        }
        j->min = (uint32_t)e->a;
        j->max = (uint32_t)e->b;
        set_least(b, j);
        return RU_OK;
    case RU_BOOK_CANCEL:
        j->cancelled = true;
        return RU_OK;
    case RU_BOOK_FAIL:
        return fail(b, j, e, err);
    default:
        RU_TRY(why(b, j, e, err));
        return end(b, j, (ru_book_state)e->a, e, err);
    }
}

/* Time of workers on nodes of markets since the last event. */
static void account(ru_book *b, int64_t ns)
{
    for (uint32_t slot = 0; b->spot.begun && ns > 0 && slot < b->sched.n_jobs; slot++) {
        ru_book_job *j = ru_book_job_at(b, b->of[slot]);
        const ru_sched_job *p = j != NULL ? &b->sched.jobs[slot] : NULL;
        for (uint32_t k = 0; p != NULL && k < p->n_parts; k++) {
            int64_t more = b->nodes[p->parts[k].node].market > 0 ? p->parts[k].devices * ns : 0;
            j->spot_ns += more;
            b->spot_ns += more;
        }
    }
}

ru_status ru_book_fold(ru_book *b, const ru_journal_event *e, ru_err *err)
{
    if (e->at_ns < b->at_ns) {
        return odd(e, "it is earlier than the one before", err);
    }
    account(b, e->at_ns - b->at_ns);
    b->at_ns = e->at_ns;
    b->seq = e->seq;
    switch (e->kind) {
    case RU_BOOK_SUBMIT:
        return submit(b, e, err);
    case RU_BOOK_NODE:
        return set_node(b, e, err);
    case RU_BOOK_GRANT:
        return grant(b, e, err);
    case RU_BOOK_USER:
        return set_user(b, e, err);
    case RU_BOOK_MARKET:
        return ru_spot_fold(&b->spot, e, err);
    case RU_BOOK_DRAIN:
        if (e->node < 0 || e->node >= b->n_nodes) {
            return odd(e, "there is no such node", err);
        }
        b->nodes[e->node].drained = e->a != 0;
        b->nodes[e->node].leaves = e->a != 0 && strcmp(e->who, "scheduler") == 0;
        return RU_OK;
    case RU_BOOK_METHOD:
        if (e->a < 0 || e->a >= RU_ALLOC_METHODS || e->b < 0) {
            return odd(e, "there is no such method", err);
        }
        b->method = (ru_alloc_method)e->a;
        b->demote_ms = e->b;
        return RU_OK;
    case RU_BOOK_DOWN:
        b->down_seq = e->seq;
        return RU_OK;
    case RU_BOOK_RESIZE:
        if (e->a < 0 || e->a > 1) {
            return odd(e, "slots do not change so", err);
        }
        b->restarts = e->a == 1;
        b->sched.spec.resizes = !b->restarts;
        return RU_OK;
    case RU_BOOK_SCALE:
    case RU_BOOK_CANCEL:
    case RU_BOOK_FAIL:
    case RU_BOOK_END:
        return fold_job(b, e, err);
    default:
        return odd(e, "a later program wrote it", err);
    }
}
