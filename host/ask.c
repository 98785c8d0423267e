/* Asking: a channel without a node, to one process of the job. */
#include "host/ask.h"

#include <string.h>

#include "base/hash.h"
#include "base/wire.h"
#include "env/process/self.h"
#include "host/shell_impl.h"

enum {
    TEXT_MAX = 4 << 20,
    WORLD_MAX = 16 << 20,
    FETCH_PEERS = 2,
};

static const int64_t fetch_ns = 10000000000;

typedef struct fetch {
    ru_loop *loop;
    ru_chan *chan;
    char *text; /* [total + 1] */
    ru_arena *arena;
    int64_t total, have;
    ru_status status;
    uint32_t ask, part; /* messages */
    int64_t max;
    char elsewhere[RU_LINK_TCP_ADDRESS_MAX]; /* asked to ask there; "": not so */
    uint32_t steps;                          /* of the window that is asked for */
    ru_ask_answer window;                    /* dir NULL: not taken yet */
    bool done, none;                         /* none: the leader has no such text */
} fetch;

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)address;
    fetch *f = self;
    uint8_t steps[4];
    ru_wire_out o = ru_wire_out_into(steps, sizeof steps);
    ru_wire_put_u32(&o, f->steps);
    f->status = ru_chan_message(f->chan, node, f->ask, steps,
                                f->steps > 0 ? (int64_t)sizeof steps : 0, now);
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    (void)node;
    (void)address;
    (void)now;
    fetch *f = self;
    f->status = why == RU_OK ? RU_E_PEER : why;
    ru_loop_stop(f->loop);
}

static void on_time(void *self, uint32_t what, ru_time now);

/* What the leader says of a window. */
static void on_window(fetch *f, uint32_t what, const void *data, int64_t size_bytes)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    if (what == RUI_MSG_TRACE_TAKEN && size_bytes > 0) {
        f->window.dir = ru_arena_strn(f->arena, data, size_bytes);
        ru_loop_timer_off(f->loop, on_time, f, 0); /* steps take as long as they take */
        return;
    }
    if (what == RUI_MSG_TRACE_DONE && f->window.dir != NULL) {
        f->window.saved = ru_wire_u32(&in);
        f->window.members = ru_wire_u32(&in);
        f->done = !in.bad;
    }
    f->status = f->done ? RU_OK : RU_E_AGAIN;
    ru_loop_stop(f->loop);
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    (void)from;
    (void)now;
    fetch *f = self;
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    int64_t total = ru_wire_u32(&in), at = ru_wire_u32(&in), n = ru_wire_left(&in);
    if (f->ask == RUI_MSG_TRACE_ASK &&
        (what == RUI_MSG_TRACE_TAKEN || what == RUI_MSG_TRACE_DONE)) {
        on_window(f, what, data, size_bytes);
        return;
    }
    if ((what == RUI_MSG_WORLD_AT && f->ask == RUI_MSG_WORLD_ASK) ||
        (what == RUI_MSG_TRACE_AT && f->ask == RUI_MSG_TRACE_ASK)) {
        int64_t most = (int64_t)sizeof f->elsewhere - 1;
        if (size_bytes > 0) { /* else it has no leader */
            memcpy(f->elsewhere, data, (size_t)(size_bytes < most ? size_bytes : most));
        }
        f->status = RU_E_AGAIN;
        ru_loop_stop(f->loop);
        return;
    }
    if (what != f->part) {
        return;
    }
    if (!in.bad && total == 0 && at == 0 && n == 0) {
        f->none = true;
        ru_loop_stop(f->loop);
        return;
    }
    if (in.bad || total < 2 || total > f->max || at != f->have || n < 1 || n > total - at ||
        (f->text != NULL && total != f->total)) {
        f->status = RU_E_DATA;
        ru_loop_stop(f->loop);
        return;
    }
    if (f->text == NULL) {
        f->text = ru_arena_zalloc(f->arena, total + 1, 1);
        f->total = total;
        if (f->text == NULL) {
            f->status = RU_E_MEM;
            ru_loop_stop(f->loop);
            return;
        }
    }
    memcpy(f->text + at, (const uint8_t *)data + (size_bytes - n), (size_t)n);
    f->have += n;
    if (f->have == f->total) {
        f->status = RU_OK;
        ru_loop_stop(f->loop);
    }
}

static void on_time(void *self, uint32_t what, ru_time now)
{
    fetch *f = self;
    if (what == 0) {
        f->status = RU_E_AGAIN;
        ru_loop_stop(f->loop);
        return;
    }
    ru_loop_timer(f->loop, on_time, f, 1, ru_chan_tick(f->chan, now));
}

static void ignore(void *self, uint64_t cookie, ru_time now)
{
    (void)self;
    (void)cookie;
    (void)now;
}

static void ignore_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    (void)why;
    ignore(self, cookie, now);
}

static ru_status open_chan(fetch *f, ru_link_tcp *link, const uint8_t *token, uint32_t token_bytes,
                           ru_err *err)
{
    ru_node_id self;
    ru_self_random(&self.v, sizeof self.v);
    const ru_chan_options co = {.self = self,
                                .address = "",
                                .job = ru_hash_bytes(token, token_bytes, 1),
                                .token = token,
                                .token_bytes = token_bytes,
                                .peers_max = FETCH_PEERS,
                                .streams_max = FETCH_PEERS,
                                .slots_max = FETCH_PEERS};
    const ru_chan_user user = {.self = f,
                               .up = on_up,
                               .down = on_down,
                               .message = on_message,
                               .sent = ignore,
                               .failed = ignore_failed,
                               .arrived = ignore};
    const ru_link l = ru_link_tcp_link(link);
    return ru_chan_open(&co, &l, &user, f->arena, &f->chan, err);
}

static const char *why_none(const fetch *f)
{
    ru_chan_stats s;
    ru_chan_stats_get(f->chan, &s);
    if (s.refused > 0 || f->status == RU_E_PERM) {
        return "a process listens there and refuses the connection; check that the token "
               "(RUBATO_TOKEN, --token-file) is the job's";
    }
    if (f->status == RU_E_PEER) {
        return "no worker listens there; check the address, and whether the job still runs";
    }
    return f->status == RU_OK || f->status == RU_E_AGAIN
               ? "the host does not exist or does not answer in time"
               : ru_status_name(f->status);
}

static ru_status run(fetch *f, const char *what, const char *address, ru_err *err)
{
    ru_time now = ru_clock_now();
    ru_loop_timer(f->loop, on_time, f, 0, ru_time_after(now, fetch_ns));
    RU_TRY(ru_chan_connect(f->chan, address, now, err));
    ru_loop_timer(f->loop, on_time, f, 1, ru_chan_tick(f->chan, now));
    RU_TRY(ru_loop_run(f->loop, err));
    if (f->elsewhere[0] != '\0' || f->done) {
        return RU_OK;
    }
    if (f->none) {
        return RU_FAIL(err, RU_E_PEER,
                       "the job at %s could not make its %s; its leader's log says why", address,
                       what);
    }
    if (f->window.dir != NULL) {
        return RU_FAIL(err, RU_E_PEER,
                       "%s was lost meanwhile; the workers that are left still save %s", address,
                       f->window.dir);
    }
    if (f->steps > 0 && f->status == RU_E_AGAIN) {
        return RU_FAIL(err, RU_E_AGAIN,
                       "the job at %s does not answer or saves another window; try again", address);
    }
    if (f->status != RU_OK || f->have != f->total || f->total == 0) {
        return RU_FAIL(err, RU_E_PEER, "cannot get the %s from %s: %s", what, address, why_none(f));
    }
    return RU_OK;
}

static ru_status fetch_text(fetch *f, const char *what, const char *address, const uint8_t *token,
                            uint32_t token_bytes, ru_err *err)
{
    ru_link_tcp *link = NULL;
    RU_TRY(ru_loop_open(&f->loop, err));
    ru_link_tcp_options lo = {
        .loop = f->loop, .psk = token, .psk_bytes = token_bytes, .conns_max = 8};
    ru_status st = ru_link_tcp_open(&lo, &link, err);
    if (st == RU_OK) {
        st = open_chan(f, link, token, token_bytes, err);
    }
    if (st == RU_OK) {
        ru_link_tcp_user(link, ru_chan_link_user(f->chan));
        st = run(f, what, address, err);
    }
    ru_chan_close(f->chan);
    ru_link_tcp_close(link);
    ru_loop_close(f->loop);
    return st;
}

/* Who does not lead says where the leader is, which may change meanwhile. */
static ru_status ask(fetch *f, const char *what, const char *address, const uint8_t *token,
                     uint32_t token_bytes, ru_err *err)
{
    enum { HOPS = 3 };
    const char *at = address;
    for (uint32_t hop = 0; hop < HOPS && at != NULL; hop++) {
        f->status = f->steps > 0 ? RU_E_PEER : RU_E_AGAIN;
        f->elsewhere[0] = '\0';
        RU_TRY(fetch_text(f, what, at, token, token_bytes, err));
        if (f->elsewhere[0] == '\0') {
            return RU_OK;
        }
        at = ru_arena_str(f->arena, f->elsewhere);
    }
    return at == NULL ? RU_FAIL(err, RU_E_MEM, "not enough memory to ask another worker")
                      : RU_FAIL(err, RU_E_AGAIN,
                                "the job at %s has no leader that answers at the moment; try again",
                                address);
}

ru_status ru_ask_job(const char *address, const uint8_t *token, uint32_t token_bytes,
                     ru_arena *arena, const char **yaml, const char **out, ru_err *err)
{
    fetch f = {.arena = arena, .ask = RUI_MSG_JOB_ASK, .part = RUI_MSG_JOB_PART, .max = TEXT_MAX};
    RU_TRY(ask(&f, "job", address, token, token_bytes, err));
    *out = f.text;
    *yaml = f.text + strlen(f.text) + 1;
    if (*yaml >= f.text + f.total) {
        return RU_FAIL(err, RU_E_DATA, "the job from %s is incomplete", address);
    }
    return RU_OK;
}

ru_status ru_ask_world(const char *address, const uint8_t *token, uint32_t token_bytes,
                       ru_arena *arena, const char **text, int64_t *size_bytes, ru_err *err)
{
    fetch f = {.arena = arena, .ask = RUI_MSG_WORLD_ASK, .part = RUI_MSG_WORLD, .max = WORLD_MAX};
    RU_TRY(ask(&f, "world file", address, token, token_bytes, err));
    *text = f.text;
    *size_bytes = f.total;
    return RU_OK;
}

ru_status ru_ask_window(const char *address, const uint8_t *token, uint32_t token_bytes,
                        uint32_t steps, ru_arena *arena, ru_ask_answer *into, ru_err *err)
{
    fetch f = {.arena = arena, .ask = RUI_MSG_TRACE_ASK, .part = UINT32_MAX, .steps = steps};
    RU_TRY(ask(&f, "window", address, token, token_bytes, err));
    *into = f.window;
    return RU_OK;
}
