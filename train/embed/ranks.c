#include "train/embed/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/thread.h"
#include "host/shell.h"
#include "train/embed/ranks_part.h"

enum { XFERS_MAX = 1 << 15, LINE = 2 * RU_RANKS_CALLS_MAX, TOKEN_MIN = 16, TOKEN_MAX = 64 };
#define BYE_NS INT64_C(50000000) /* what was said last is sent */
/* Nothing is more urgent than the tensors, and the loop thread shares its core with one that
 * computes: large chunks, which cost less of the core, and as much of them in the kernel that the
 * link is busy while the loop thread waits for its turn. */
#define QUEUE_NS INT64_C(20000000)
/* The end of a process shows in its connections at once. One that only says nothing is more likely
 * starved of its core than lost, and without it all others have to begin anew. */
#define SILENT_NS INT64_C(8000000000)
enum { CHUNK_BYTES = 256 << 10 };

struct ru_ranks {
    ru_ranks_options opt; /* texts in the arena */
    ru_arena arena;
    ru_shell_options options;
    ru_shell shell;
    ru_spsc line;
    ru_thread thread;
    char *address;
    rui_ranks_part part; /* loop thread */
    /* under lock */
    ru_mutex lock;
    ru_cond changed;
    uint64_t begun;                    /* calls */
    uint64_t slot[RU_RANKS_CALLS_MAX]; /* call that has the place; 0: free */
    uint32_t left[RU_RANKS_CALLS_MAX]; /* its pieces that are not done */
    bool met;
    ru_status why; /* the group ends; RU_OK: it does not */
    bool over;     /* ... and nobody reads or writes the callers' memory any more */
    char why_text[RU_ERR_TEXT_MAX];
};

/* -- the loop thread ------------------------------------------------------------------------------
 */

static void met(void *self)
{
    ru_ranks *g = self;
    ru_mutex_lock(&g->lock);
    g->met = true;
    ru_cond_broadcast(&g->changed);
    ru_mutex_unlock(&g->lock);
}

static void done(void *self, uint64_t call)
{
    ru_ranks *g = self;
    uint64_t k = call % RU_RANKS_CALLS_MAX;
    ru_mutex_lock(&g->lock);
    g->left[k]--;
    if (g->left[k] == 0) {
        g->slot[k] = 0;
        ru_cond_broadcast(&g->changed);
    }
    ru_mutex_unlock(&g->lock);
}

static void ended(void *self, ru_status st, const char *text, ru_time now)
{
    ru_ranks *g = self;
    ru_mutex_lock(&g->lock);
    if (g->why == RU_OK) {
        g->why = st;
        (void)snprintf(g->why_text, sizeof g->why_text, "%s", text);
    }
    ru_mutex_unlock(&g->lock);
    if (!g->shell.ended) {
        ru_shell_end(&g->shell, st, text, now);
        ru_shell_bye(&g->shell, BYE_NS, now);
    }
}

/* Call 0: this rank leaves. */
static void said(void *self, const void *element, ru_time now, ru_effects *fx)
{
    ru_ranks *g = self;
    const rui_ranks_call *t = element;
    (void)fx;
    if (t->call == 0) {
        ended(g, RU_E_PEER, "this rank has left the group", now);
    } else {
        rui_ranks_part_begin(&g->part, t, now);
    }
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)self;
    (void)now;
    if (level > RU_LOG_WARN) {
        ru_log((ru_log_level)level, "train", "group", "%s", line);
    }
}

static void run(void *self)
{
    ru_ranks *g = self;
    ru_err err = {0};
    ru_status st = ru_shell_run(&g->shell, &err);
    ru_mutex_lock(&g->lock);
    if (st != RU_OK && g->why == RU_OK) {
        g->why = st;
        (void)snprintf(g->why_text, sizeof g->why_text, "%s", err.text);
    }
    g->why = g->why != RU_OK ? g->why : RU_E_PEER;
    g->over = true;
    ru_cond_broadcast(&g->changed);
    ru_mutex_unlock(&g->lock);
}
/* -- opening -------------------------------------------------------------------------------------
 */

static ru_status check(const ru_ranks_options *o, ru_err *err)
{
    size_t token = o->token != NULL ? strlen(o->token) : 0;
    if (token < TOKEN_MIN || token > TOKEN_MAX) {
        return RU_FAIL(err, RU_E_ARG, "the token of a group has %zu bytes, expected %d to %d",
                       token, TOKEN_MIN, TOKEN_MAX);
    }
    if (o->n_ranks < 1 || o->n_ranks > RU_RANKS_RANKS_MAX || o->rank >= o->n_ranks ||
        (o->join == NULL) != (o->rank == 0)) {
        return RU_FAIL(err, RU_E_ARG,
                       "rank %u of %u in a group: expected 1 to %d ranks, and all but rank 0 join",
                       o->rank, o->n_ranks, RU_RANKS_RANKS_MAX);
    }
    return RU_OK;
}

static ru_status open_memory(ru_ranks *g, ru_err *err)
{
    ru_arena *a = &g->arena;
    ru_ranks_options *o = &g->opt;
    o->join = o->join != NULL ? ru_arena_str(a, o->join) : NULL;
    o->listen = o->listen != NULL ? ru_arena_str(a, o->listen) : NULL;
    o->token = ru_arena_str(a, o->token);
    return o->token != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a group");
}

static ru_status open_all(ru_ranks *g, ru_err *err)
{
    static const ru_shell_ops ops = {.said = said};
    static const rui_ranks_ops part_ops = {.met = met, .done = done, .ended = ended};
    RU_TRY(open_memory(g, err));
    g->options = (ru_shell_options){.join = g->opt.join,
                                    .listen = g->opt.listen,
                                    .token = (const uint8_t *)g->opt.token,
                                    .token_bytes = (uint32_t)strlen(g->opt.token),
                                    .n_max = g->opt.n_ranks,
                                    .number = g->opt.rank + 1,
                                    .queue_ns = QUEUE_NS};
    RU_TRY(ru_shell_open(&g->shell, &g->options, &ops, g, &g->arena, err));
    RU_TRY(ru_shell_line(&g->shell, &g->line, LINE, sizeof(rui_ranks_call), err));
    const ru_shell_node_options no = {
        .capacity = 1,
        .agreed = ru_arena_printf(&g->arena, "ranks of the group %u", g->opt.n_ranks),
        .xfers_max = XFERS_MAX,
        .chunk_bytes = CHUNK_BYTES,
        .silent_ns = SILENT_NS,
        .log = on_log};
    g->address = ru_arena_str(&g->arena, ru_link_tcp_address(g->shell.link));
    if (g->address == NULL || no.agreed == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group");
    }
    RU_TRY(ru_shell_node(&g->shell, &no, err));
    g->part = (rui_ranks_part){.ops = &part_ops,
                               .self = g,
                               .node = g->shell.timers.node,
                               .id = g->shell.id,
                               .rank = g->opt.rank,
                               .n_ranks = g->opt.n_ranks,
                               .silent_ns = SILENT_NS};
    RU_TRY(rui_ranks_part_open(&g->part, &g->arena, err));
    return ru_thread_start(&g->thread, "group", run, g, err);
}

ru_status ru_ranks_open(const ru_ranks_options *opt, ru_ranks **out, ru_err *err)
{
    RU_TRY(check(opt, err));
    ru_ranks *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a group");
    }
    g->opt = *opt;
    ru_arena_init(&g->arena, 0);
    ru_mutex_init(&g->lock);
    ru_cond_init(&g->changed);
    ru_status st = open_all(g, err);
    if (st != RU_OK) {
        ru_ranks_close(g);
        return st;
    }
    *out = g;
    return RU_OK;
}

void ru_ranks_close(ru_ranks *g)
{
    if (g == NULL) {
        return;
    }
    if (g->thread.started) {
        ru_mutex_lock(&g->lock);
        ru_shell_say(&g->shell, &g->line, &(rui_ranks_call){.call = 0});
        ru_mutex_unlock(&g->lock);
        ru_thread_join(&g->thread);
    }
    if (g->shell.timers.node != NULL) {
        ru_node_quiet(g->shell.timers.node);
        rui_ranks_part_close(&g->part, ru_clock_now());
    }
    ru_shell_close(&g->shell);
    ru_cond_fini(&g->changed);
    ru_mutex_fini(&g->lock);
    ru_arena_fini(&g->arena);
    free(g);
}

const char *ru_ranks_address(const ru_ranks *g)
{
    return g->address;
}

/* -- calls of the program ------------------------------------------------------------------------
 */

/* With the lock held. */
static ru_status why(const ru_ranks *g, ru_err *err)
{
    return g->why != RU_OK ? ru_err_set(err, g->why, "%s", g->why_text) : RU_OK;
}

/* With the lock held: one more turn of waiting. false: the time is over. */
static bool waits(ru_ranks *g, ru_time until)
{
    int64_t left = ru_time_since(until, ru_clock_now());
    if (left > 0) {
        (void)ru_cond_wait_for(&g->changed, &g->lock, left);
    }
    return left > 0;
}

ru_status ru_ranks_meet(ru_ranks *g, int64_t wait_ns, ru_err *err)
{
    ru_time until = ru_time_after(ru_clock_now(), wait_ns);
    ru_mutex_lock(&g->lock);
    while (!g->met && !g->over && waits(g, until)) {
    }
    ru_status st = g->met     ? RU_OK
                   : !g->over ? RU_FAIL(err, RU_E_AGAIN, "not all ranks are there yet")
                              : why(g, err);
    ru_mutex_unlock(&g->lock);
    return st;
}

ru_status ru_ranks_begin(ru_ranks *g, ru_coll_op op, ru_dtype dtype, uint32_t root, void *data,
                         int64_t n, uint64_t *call, ru_err *err)
{
    bool sums = op == RU_COLL_ALL_REDUCE || op == RU_COLL_REDUCE_SCATTER;
    bool moves = op == RU_COLL_ALL_GATHER || op == RU_COLL_BROADCAST;
    bool fits = sums ? dtype == RU_F32 || dtype == RU_BF16 : dtype == RU_U8;
    if (op == RU_COLL_BARRIER) { /* nobody has the sum before everybody began */
        op = RU_COLL_ALL_REDUCE, dtype = RU_F32, n = 0, fits = sums = true;
    }
    if (!fits || (!sums && !moves)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "a group does no %s of %s", ru_coll_op_name(op),
                       ru_dtype_name(dtype));
    }
    if (n < 0 || (n > 0 && data == NULL) || root >= g->opt.n_ranks) {
        return RU_FAIL(err, RU_E_ARG, "a collective of %lld elements from rank %u of %u",
                       (long long)n, root, g->opt.n_ranks);
    }
    rui_ranks_call t = {.op = op,
                        .dtype = dtype,
                        .root = op == RU_COLL_BROADCAST ? root : 0,
                        .data = data,
                        .n_bytes = n * ru_dtype_bytes(dtype)};
    ru_mutex_lock(&g->lock);
    ru_status st = why(g, err);
    uint64_t k = (g->begun + 1) % RU_RANKS_CALLS_MAX;
    if (st == RU_OK && g->slot[k] != 0) {
        st = RU_FAIL(err, RU_E_LIMIT, "more than %d collectives are begun and not done",
                     RU_RANKS_CALLS_MAX);
    }
    if (st == RU_OK) {
        t.call = *call = g->slot[k] = ++g->begun;
        g->left[k] = rui_ranks_pieces(t.n_bytes);
        ru_shell_say(&g->shell, &g->line, &t);
    }
    ru_mutex_unlock(&g->lock);
    return st;
}

ru_status ru_ranks_wait(ru_ranks *g, uint64_t call, int64_t wait_ns, ru_err *err)
{
    ru_time until = ru_time_after(ru_clock_now(), wait_ns);
    const uint64_t *slot = &g->slot[call % RU_RANKS_CALLS_MAX];
    ru_mutex_lock(&g->lock);
    while (*slot == call && !g->over && waits(g, until)) {
    }
    ru_status st = *slot != call ? RU_OK
                   : !g->over    ? RU_FAIL(err, RU_E_AGAIN, "the others are not there yet")
                                 : why(g, err);
    ru_mutex_unlock(&g->lock);
    return st;
}
