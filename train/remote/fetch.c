#include "train/remote/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/wire.h"
#include "comm/node/guest.h"
#include "env/link/link_tcp.h"
#include "env/process/self.h"
#include "env/thread.h"
#include "train/remote/remote_impl.h"

enum { TIMER_STILL = 1, MODEL_BYTES_MAX = 256 << 20, MODEL_ITEM = 0 };

static const int64_t still_ns = 10000000000, hello_ns = 10000000000;

typedef struct part {
    void *data;       /* [bytes] of malloc */
    const char *name; /* as asked */
    bool here, asked;
    ru_fetch_times times;
} part;

struct ru_fetch {
    ru_fetch_options opt;
    char address[RU_LINK_TCP_ADDRESS_MAX];
    ru_arena arena;
    ru_loop *loop;
    ru_link_tcp *link;
    ru_guest *guest;
    ru_ask *ask;       /* of the description, then of the tensors */
    uint32_t *tensors; /* [n_asked] which tensor an item is; NULL: the description is fetched */
    ru_ask_item *items;
    uint32_t waker;
    uint8_t *model; /* of malloc */
    int64_t model_bytes;
    uint64_t model_hash;
    bool met, helloed; /* a connection stood; HEAD came */
    bool heard;        /* ... something since the timer before */
    ru_remote w;
    ru_thread thread;
    /* Under `lock` once the thread runs. */
    ru_mutex lock;
    ru_cond changed;
    part *parts; /* [w.n] */
    uint32_t n_asked, n_here;
    int64_t bytes_asked, bytes_here;
    ru_err why; /* status RU_OK: nothing failed */
};

/* -- errors --------------------------------------------------------------------------------------
 */

static void fail(ru_fetch *f, ru_status st, const char *fmt, ...) RU_PRINTF(3, 4);
static void fail(ru_fetch *f, ru_status st, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ru_mutex_lock(&f->lock);
    if (f->why.status == RU_OK) { /* the first one is the cause */
        (void)ru_err_set(&f->why, st, "%s", text);
    }
    ru_cond_broadcast(&f->changed);
    ru_mutex_unlock(&f->lock);
    ru_loop_stop(f->loop);
}

static ru_status why_of(ru_fetch *f, ru_err *err)
{
    if (err != NULL) {
        *err = f->why;
    }
    return f->why.status;
}

/* -- upcalls of the guest ------------------------------------------------------------------------
 */

static void on_timer(void *self, uint32_t what, ru_time now);

static void on_up(void *self, ru_time now)
{
    ru_fetch *f = self;
    uint8_t m[4];
    f->met = true;
    ru_wire_out o = ru_wire_out_into(m, sizeof m);
    ru_wire_put_u32(&o, RU_REMOTE_VERSION);
    ru_status st = ru_guest_send(f->guest, RUI_REMOTE_HELLO, m, sizeof m, now);
    if (st != RU_OK || ru_guest_send(f->guest, RUI_REMOTE_STILL, NULL, 0, now) != RU_OK) {
        fail(f, RU_E_PEER, "%s takes no messages", f->address);
    }
}

static const char *why_none(const ru_fetch *f, ru_status why)
{
    ru_chan_stats s;
    ru_chan_stats_get(ru_guest_chan(f->guest), &s);
    return s.denied > 0 || why == RU_E_PERM
               ? "a process listens there and refuses the connection; check that the "
                 "token (RUBATO_TOKEN, --token-file) is that of `rubato export --listen`, or "
                 "OUT/weights-token of a running job"
               : "no process listens there, or it does not answer in time";
}

/* The connection is gone, or stands still for so long that it counts as gone. */
static void went(ru_fetch *f, ru_status why, const char *sentence)
{
    ru_mutex_lock(&f->lock);
    uint32_t asked = f->n_asked, here = f->n_here;
    double mb = (double)f->bytes_here * 1e-6, all_mb = (double)f->bytes_asked * 1e-6;
    ru_mutex_unlock(&f->lock);
    if (asked > 0 && here < asked) {
        fail(f, RU_E_PEER,
             "%s went away or stands still before all weights were here (%u of %u tensors, %.1f of "
             "%.1f MB came): %s",
             f->address, here, asked, mb, all_mb, sentence);
    } else if (asked == 0 && why == RU_E_PERM && f->met) {
        fail(f, RU_E_PEER, "%s refuses this program: %s", f->address, sentence);
    } else if (asked == 0 && f->helloed) {
        fail(f, RU_E_PEER,
             "%s went away or stands still before the description of its weights (%.1f MB) was "
             "here: %s",
             f->address, (double)f->model_bytes * 1e-6, sentence);
    } else if (asked == 0) {
        fail(f, RU_E_PEER, "no weights from %s: %s", f->address, why_none(f, why));
    }
}

static void on_down(void *self, ru_status why, const char *sentence, ru_time now)
{
    (void)now;
    went(self, why, sentence);
}

/* Ask for the description, whose size the server said. */
static void on_head(ru_fetch *f, const void *data, int64_t size_bytes, ru_time now)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    ru_err err;
    uint32_t version = ru_wire_u32(&in), n = 0;
    uint64_t bytes = ru_wire_u64(&in);
    f->model_hash = ru_wire_u64(&in);
    const char *program = ru_wire_text(&in, 60, &n);
    if (version != RU_REMOTE_VERSION && version != 0) {
        fail(f, RU_E_UNSUPPORTED,
             "%s serves weights in version %u of the protocol, this program knows version %d; run "
             "the same version of rubato on both sides",
             f->address, version, RU_REMOTE_VERSION);
        return;
    }
    if (program == NULL || bytes == 0 || bytes > MODEL_BYTES_MAX || f->helloed) {
        fail(f, RU_E_DATA, "%s answers with what is no head of weights", f->address);
        return;
    }
    f->helloed = true;
    f->model_bytes = (int64_t)bytes;
    f->model = malloc(bytes);
    const ru_ask_item item = {.name = RUI_REMOTE_MODEL,
                              .size_bytes = f->model_bytes,
                              .into = f->model,
                              .from = ru_guest_host(f->guest)};
    ru_status st = f->model != NULL ? ru_ask_for(f->ask, &item, 1, now, &err) : RU_E_MEM;
    if (st != RU_OK) {
        fail(f, st, "the description of the weights cannot be asked for: %s", ru_status_name(st));
    }
}

/* Goes to a terminal. */
static void on_no(ru_fetch *f, const char *text, int64_t size_bytes)
{
    char why[200];
    int64_t n = 0;
    for (; n < size_bytes && n + 1 < (int64_t)sizeof why; n++) {
        why[n] = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
    }
    why[n] = '\0';
    fail(f, RU_E_PEER, "%s gives no weights: %s", f->address, why);
}

static void on_message(void *self, uint32_t what, const void *data, int64_t size_bytes, ru_time now)
{
    ru_fetch *f = self;
    f->heard = true;
    if (what == RUI_REMOTE_HEAD) {
        on_head(f, data, size_bytes, now);
    } else if (what == RUI_REMOTE_NO) {
        on_no(f, data, size_bytes);
    } else if (what >= RUI_REMOTE_ASK && what < RUI_REMOTE_END) {
        ru_ask_hear(f->ask, &(ru_event){.kind = RU_EV_MESSAGE,
                                        .now = now,
                                        .node = ru_guest_host(f->guest),
                                        .what = what,
                                        .data = data,
                                        .size_bytes = size_bytes});
    }
}

static void stream_arrived(void *self, uint64_t cookie, ru_time now)
{
    ru_fetch *f = self;
    ru_ask_arrived(f->ask, cookie, now);
}

static void stream_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_fetch *f = self;
    ru_ask_failed(f->ask, cookie, why, now);
}

static void timers_set(void *self, uint32_t what, ru_time at)
{
    ru_fetch *f = self;
    ru_loop_timer(f->loop, on_timer, f, what + TIMER_STILL, at);
}

static void timers_off(void *self, uint32_t what)
{
    ru_fetch *f = self;
    ru_loop_timer_off(f->loop, on_timer, f, what + TIMER_STILL);
}

/* A guest that says nothing for long is refused; a server that says nothing gives no weights. A
 * worker gives them after its step, and says STILL until then. */
static void on_timer(void *self, uint32_t what, ru_time now)
{
    ru_fetch *f = self;
    if (what != TIMER_STILL) {
        ru_guest_timer(f->guest, now);
        return;
    }
    if (f->w.n == 0 && !f->heard) {
        fail(f, RU_E_PEER, "%s does not answer in time", f->address);
        return;
    }
    f->heard = false;
    (void)!ru_guest_send(f->guest, RUI_REMOTE_STILL, NULL, 0, now);
    ru_loop_timer(f->loop, on_timer, f, TIMER_STILL, ru_time_after(now, still_ns));
}

/* -- what was asked for --------------------------------------------------------------------------
 */

static void arrived(void *self, uint32_t item, ru_time now)
{
    ru_fetch *f = self;
    if (f->tensors == NULL) {
        ru_loop_stop(f->loop); /* ru_fetch_open goes on */
        return;
    }
    uint32_t i = f->tensors[item];
    const ru_remote_tensor *t = &f->w.at[i];
    int64_t bytes = ru_type_bytes(&t->type);
    if (ru_hash_bytes(f->parts[i].data, bytes, 0) != t->hash) {
        fail(f, RU_E_DATA, "tensor '%s' from %s does not have the hash it was announced with",
             t->name, f->address);
        return;
    }
    ru_mutex_lock(&f->lock);
    f->parts[i].here = true;
    f->parts[i].times.arrived = now;
    f->n_here++;
    f->bytes_here += bytes;
    bool all = f->n_here == f->n_asked;
    ru_cond_broadcast(&f->changed);
    ru_mutex_unlock(&f->lock);
    if (all) {
        ru_chan_drop(ru_guest_chan(f->guest), ru_guest_host(f->guest), now);
        ru_loop_stop(f->loop);
    }
}

static void failed(void *self, uint32_t item, ru_status why, const char *sentence, ru_time now)
{
    ru_fetch *f = self;
    const char *name = f->tensors != NULL ? f->w.at[f->tensors[item]].name : RUI_REMOTE_MODEL;
    (void)now;
    if (why == RU_E_MISSING) {
        fail(f, why, "%s does not give '%s': %s", f->address, name, sentence);
    } else { /* whatever ended its stream: the tensor is missing from here on */
        went(f, why, "the connection was lost");
    }
}

static ru_status open_ask(ru_fetch *f, uint32_t n, ru_err *err)
{
    const ru_ask_options ao = {.chan = ru_guest_chan(f->guest),
                               .n_max = n,
                               .what_first = RUI_REMOTE_ASK,
                               .self = f,
                               .arrived = arrived,
                               .failed = failed};
    return ru_ask_open(&ao, &f->arena, &f->ask, err);
}

static ru_status open_guest(ru_fetch *f, ru_err *err)
{
    RU_TRY(ru_loop_open(&f->loop, err));
    const ru_link_tcp_options lo = {.loop = f->loop,
                                    .psk = f->opt.token,
                                    .psk_bytes = f->opt.token_bytes,
                                    .conns_max = ru_guest_conns() + RU_LINK_TCP_STRANGERS};
    RU_TRY(ru_link_tcp_open(&lo, &f->link, err));
    ru_guest_options o = {.address = "",
                          .job = RUI_REMOTE_JOB,
                          .token = f->opt.token,
                          .token_bytes = f->opt.token_bytes,
                          .link = ru_link_tcp_link(f->link),
                          .timers = {timers_set, timers_off, f},
                          .up = on_up,
                          .message = on_message,
                          .down = on_down,
                          .slots_max = RU_GIVE_OUT_MAX,
                          .arrived = stream_arrived,
                          .failed = stream_failed,
                          .self_up = f};
    ru_self_random(&o.self.v, sizeof o.self.v);
    RU_TRY(ru_guest_open(&o, &f->arena, &f->guest, err));
    ru_link_tcp_user(f->link, ru_guest_link_user(f->guest));
    return open_ask(f, 1, err);
}

/* The list of tensors is ready, or it is over. */
static void on_wake(void *self, ru_time now)
{
    ru_fetch *f = self;
    ru_err err;
    ru_mutex_lock(&f->lock);
    ru_ask_item *items = f->items;
    f->items = NULL;
    ru_mutex_unlock(&f->lock);
    if (items == NULL) {
        return;
    }
    for (uint32_t k = 0; k < f->n_asked; k++) {
        items[k].from = ru_guest_host(f->guest);
        f->parts[f->tensors[k]].times.asked = now;
    }
    ru_status st = open_ask(f, f->n_asked, &err);
    st = st == RU_OK ? ru_ask_for(f->ask, items, f->n_asked, now, &err) : st;
    if (st != RU_OK) {
        fail(f, st, "%s is gone: %s", f->address, err.text);
    }
}

static void receive(void *self)
{
    ru_fetch *f = self;
    ru_err err;
    ru_thread_prompt();
    ru_status st = ru_loop_run(f->loop, &err);
    if (st != RU_OK) {
        fail(f, st, "%s", err.text);
    }
}

static ru_status get_model(ru_fetch *f, ru_err *err)
{
    const ru_time now = ru_clock_now();
    ru_loop_timer(f->loop, on_timer, f, TIMER_STILL, ru_time_after(now, hello_ns));
    RU_TRY(ru_guest_dial(f->guest, f->address, now, err));
    RU_TRY(ru_loop_run(f->loop, err));
    if (f->why.status != RU_OK) {
        return why_of(f, err);
    }
    if (ru_hash_bytes(f->model, f->model_bytes, 0) != f->model_hash) {
        return RU_FAIL(err, RU_E_DATA,
                       "the description of the weights from %s does not have the hash it was "
                       "announced with",
                       f->address);
    }
    RU_TRY(ru_remote_parse(f->address, f->model, f->model_bytes, &f->arena, &f->w, err));
    f->parts = RU_NEW(&f->arena, part, f->w.n);
    if (f->parts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u tensors", f->w.n);
    }
    RU_TRY(ru_loop_waker(f->loop, on_wake, f, &f->waker, err));
    return ru_thread_start(&f->thread, "weights", receive, f, err);
}

ru_status ru_fetch_open(const ru_fetch_options *opt, ru_fetch **out, ru_err *err)
{
    ru_fetch *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to fetch weights");
    }
    f->opt = *opt;
    (void)snprintf(f->address, sizeof f->address, "%s", opt->address);
    ru_arena_init(&f->arena, 0);
    ru_mutex_init(&f->lock);
    ru_cond_init(&f->changed);
    ru_status st = open_guest(f, err);
    st = st == RU_OK ? get_model(f, err) : st;
    if (st != RU_OK) {
        ru_fetch_close(f);
        return st;
    }
    *out = f;
    return RU_OK;
}

void ru_fetch_close(ru_fetch *f)
{
    if (f == NULL) {
        return;
    }
    if (f->thread.started) {
        ru_loop_stop(f->loop);
        ru_thread_join(&f->thread);
    }
    ru_guest_close(f->guest);
    ru_link_tcp_close(f->link);
    ru_loop_close(f->loop);
    for (uint32_t i = 0; f->parts != NULL && i < f->w.n; i++) {
        free(f->parts[i].data);
    }
    free(f->model);
    ru_cond_fini(&f->changed);
    ru_mutex_fini(&f->lock);
    ru_arena_fini(&f->arena);
    free(f);
}

const ru_remote *ru_fetch_weights(const ru_fetch *f)
{
    return &f->w;
}

/* -- tensors -------------------------------------------------------------------------------------
 */

typedef struct ranked {
    uint32_t rank, tensor;
} ranked;

static int by_rank(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->rank != y->rank ? (x->rank < y->rank ? -1 : 1)
                              : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* Tensors that are wanted, the smallest rank first; memory for each. */
static ru_status list(ru_fetch *f, const uint32_t *ranks, ru_ask_item *items, ru_err *err)
{
    ranked *order = RU_NEW(&f->arena, ranked, f->w.n);
    if (order == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u tensors", f->w.n);
    }
    for (uint32_t i = 0; i < f->w.n; i++) {
        if (ranks[i] != RU_FETCH_NO_RANK) {
            order[f->n_asked++] = (ranked){ranks[i], i};
        }
    }
    qsort(order, f->n_asked, sizeof *order, by_rank);
    for (uint32_t k = 0; k < f->n_asked; k++) {
        uint32_t i = order[k].tensor;
        part *p = &f->parts[i];
        int64_t bytes = ru_type_bytes(&f->w.at[i].type);
        p->name = ru_arena_printf(&f->arena, "%s%s", RUI_REMOTE_TENSOR, f->w.at[i].name);
        p->data = malloc((size_t)bytes);
        if (p->data == NULL || p->name == NULL) {
            return RU_FAIL(err, RU_E_MEM, "no memory for the %lld bytes of '%s'", (long long)bytes,
                           f->w.at[i].name);
        }
        p->asked = true;
        f->bytes_asked += bytes;
        f->tensors[k] = i;
        items[k] = (ru_ask_item){
            .name = p->name,
            .size_bytes = bytes,
            .into = p->data,
            .rank = (uint16_t)(order[k].rank < UINT16_MAX ? order[k].rank : UINT16_MAX)};
    }
    return RU_OK;
}

ru_status ru_fetch_ask(ru_fetch *f, const uint32_t *ranks, ru_err *err)
{
    RU_CHECK(f->tensors == NULL);
    uint32_t *tensors = RU_NEW(&f->arena, uint32_t, f->w.n);
    ru_ask_item *items = RU_NEW(&f->arena, ru_ask_item, f->w.n);
    if (tensors == NULL || items == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u tensors", f->w.n);
    }
    ru_mutex_lock(&f->lock);
    f->tensors = tensors;
    ru_status st = list(f, ranks, items, err);
    f->items = st == RU_OK && f->n_asked > 0 ? items : NULL;
    ru_mutex_unlock(&f->lock);
    RU_TRY(st);
    ru_loop_wake(f->loop, f->waker);
    return RU_OK;
}

ru_status ru_fetch_wait(ru_fetch *f, uint32_t i, const void **data, ru_err *err)
{
    RU_CHECK(i < f->w.n);
    part *p = &f->parts[i];
    if (!p->asked) { /* only a later executable of the model reads it */
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "tensor '%s' from %s is needed now, but was not when the list was sent; use "
                       "the model from a file",
                       f->w.at[i].name, f->address);
    }
    ru_mutex_lock(&f->lock);
    if (p->times.needed.ns == 0) {
        p->times.needed = ru_clock_now();
    }
    while (!p->here && f->why.status == RU_OK) {
        ru_cond_wait(&f->changed, &f->lock);
    }
    ru_status st = p->here ? RU_OK : why_of(f, err);
    ru_mutex_unlock(&f->lock);
    *data = p->data;
    return st;
}

ru_fetch_times ru_fetch_times_of(ru_fetch *f, uint32_t i)
{
    ru_mutex_lock(&f->lock);
    ru_fetch_times t = f->parts[i].times;
    ru_mutex_unlock(&f->lock);
    return t;
}
