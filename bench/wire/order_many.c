/* A hundred thousand pulls from one, two and four servers, and a judge of the order in which their
 * chunks left. Each server records, between its channel and its link, every grant that comes and
 * every chunk that leaves; the judge sees these records alone.
 *
 *   link ---frames---> tap ---frames---> channel     a grant, once the channel has it
 *   link <--frames---- tap <--frames---- channel     a chunk, when it is handed to the link
 *
 * Of a server, an inversion is a chunk that leaves while a smaller rank is asked for by the same
 * worker, stands ready and has credit: bytes that were granted and did not leave yet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire.h"
#include "bench/wire/order.h"
#include "comm/chan/frame.h"
#include "env/file/file.h"

enum { CONNS = 4 * RUI_NET_PEERS_MAX, HOSTS = 256 };

typedef enum happened { GRANTED, LEFT } happened;

typedef struct record {
    uint32_t item;      /* the asker's number */
    uint16_t rank;      /* of a chunk */
    uint8_t host, what; /* host: of the asker; what: happened */
    int64_t bytes;      /* GRANTED: up to here; LEFT: so many more */
} record;

/* -- recording -----------------------------------------------------------------------------------
 */

typedef struct conn {
    ru_conn_id id;
    uint8_t host;
    rui_frame frame; /* whose body follows */
} conn;

struct rui_order_tap {
    ru_link_user real, seen; /* of the channel; with the tap before it */
    FILE *file;
    conn conns[CONNS];
    uint32_t n;
};

/* What stands in a header, read here once more: the channel's word is not taken for it. */
static rui_frame frame_of(const uint8_t *h)
{
    ru_wire_in w = ru_wire_in_from(h, RU_LINK_HEAD_BYTES);
    rui_frame f = {0};
    uint16_t magic = ru_wire_u16(&w);
    uint8_t version = ru_wire_u8(&w), type = ru_wire_u8(&w);
    (void)ru_wire_u16(&w); /* class, flags */
    f.rank = ru_wire_u16(&w);
    f.iter = ru_wire_u32(&w);
    f.len = ru_wire_u32(&w);
    f.stream = ru_wire_u64(&w);
    f.offset = ru_wire_u64(&w);
    bool known = magic == RUI_FRAME_MAGIC && version == RUI_FRAME_VERSION;
    f.type = known ? (rui_frame_type)type : RUI_FRAME_TYPES;
    return f;
}

static conn *conn_of(rui_order_tap *t, ru_conn_id id)
{
    for (uint32_t k = t->n; k-- > 0;) { /* the newest of a number that came again */
        if (memcmp(&t->conns[k].id, &id, sizeof id) == 0) {
            return &t->conns[k];
        }
    }
    RU_CHECK(t->n < CONNS);
    t->conns[t->n] = (conn){.id = id};
    return &t->conns[t->n++];
}

static void put(rui_order_tap *t, const conn *c, happened what, const rui_frame *f, int64_t bytes)
{
    const record r = {.item = (uint32_t)f->stream,
                      .rank = f->rank,
                      .host = c->host,
                      .what = (uint8_t)what,
                      .bytes = bytes};
    (void)fwrite(&r, sizeof r, 1, t->file); /* looked at when it is closed */
}

static void opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    rui_order_tap *t = self;
    const char *dot = strrchr(address, '.');
    conn_of(t, c)->host = dot != NULL ? (uint8_t)strtoul(dot + 1, NULL, 10) : 0;
    t->real.opened(t->real.self, c, accepted, address, now);
}

static void closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    rui_order_tap *t = self;
    t->real.closed(t->real.self, c, why, sentence, now);
}

static bool pull(void *self, ru_conn_id c, int64_t room, ru_link_tx *tx, ru_time now)
{
    rui_order_tap *t = self;
    if (!t->real.pull(t->real.self, c, room, tx, now)) {
        return false;
    }
    const rui_frame f = frame_of(tx->head);
    if (f.type == RUI_DATA) {
        put(t, conn_of(t, c), LEFT, &f, f.len);
    }
    return true;
}

static void sent(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    rui_order_tap *t = self;
    t->real.sent(t->real.self, c, cookie, now);
}

static ru_status head(void *self, ru_conn_id c, const uint8_t *h, ru_link_rx *rx, ru_time now)
{
    rui_order_tap *t = self;
    conn_of(t, c)->frame = frame_of(h);
    return t->real.head(t->real.self, c, h, rx, now);
}

static ru_status body(void *self, ru_conn_id c, ru_time now)
{
    rui_order_tap *t = self;
    const conn *at = conn_of(t, c);
    const rui_frame f = at->frame;
    ru_status st = t->real.body(t->real.self, c, now);
    if (f.type == RUI_GRANT) {
        put(t, at, GRANTED, &f, (int64_t)f.offset);
    }
    return st;
}

ru_status rui_order_tap_open(const char *path, rui_net_end *end, rui_order_tap **out, ru_err *err)
{
    static const ru_link_user calls = {
        .opened = opened, .closed = closed, .pull = pull, .sent = sent, .head = head, .body = body};
    rui_order_tap *t = RU_NEW(&end->arena, rui_order_tap, 1);
    FILE *file = t != NULL ? fopen(path, "wb") : NULL;
    if (file == NULL) {
        return RU_FAIL(err, RU_E_IO, "%s: cannot be written", path);
    }
    *t = (rui_order_tap){.real = *ru_chan_link_user(end->chan), .file = file};
    t->seen = calls;
    t->seen.self = t;
    ru_link_tcp_user(end->link, &t->seen);
    *out = t;
    return RU_OK;
}

ru_status rui_order_tap_close(rui_order_tap *t, ru_err *err)
{
    bool bad = t != NULL && ferror(t->file) != 0;
    bad = t != NULL && (fclose(t->file) != 0 || bad);
    return bad ? RU_FAIL(err, RU_E_IO, "records of chunks cannot be written") : RU_OK;
}

/* -- judging -------------------------------------------------------------------------------------
 */

/* An item as the records show it; `open`: of a worker, what was granted and has not all left. */
typedef struct line {
    int64_t limit, left;
    bool open;
} line;

typedef struct worker {
    line *at;               /* [n] by item */
    uint32_t *open, n_open; /* [n] */
} worker;

static ru_status worker_open(worker *w, uint32_t n, ru_arena *arena, ru_err *err)
{
    w->at = RU_NEW(arena, line, n);
    w->open = RU_NEW(arena, uint32_t, n);
    return w->at != NULL && w->open != NULL
               ? RU_OK
               : RU_FAIL(err, RU_E_MEM, "no memory for the records of %u items", n);
}

/* Credit that this chunk passed by; what has none is looked at again when it has. */
static uint64_t passed(worker *w, uint32_t item, uint32_t tensors)
{
    uint64_t n = 0;
    uint32_t keep = 0;
    for (uint32_t k = 0; k < w->n_open; k++) {
        uint32_t i = w->open[k];
        line *x = &w->at[i];
        x->open = x->left < x->limit;
        if (x->open) {
            n += i % tensors < item % tensors ? 1 : 0;
            w->open[keep++] = i;
        }
    }
    w->n_open = keep;
    return n;
}

static void judge(worker *w, const record *r, uint32_t tensors, rui_order_judged *j)
{
    line *x = &w->at[r->item];
    if (r->what == GRANTED) {
        x->limit = r->bytes > x->limit ? r->bytes : x->limit;
        if (!x->open && x->left < x->limit) {
            x->open = true;
            w->open[w->n_open++] = r->item;
        }
        return;
    }
    x->left += r->bytes;
    j->wrong += x->left > x->limit || r->rank != r->item % tensors ? 1 : 0;
    j->chunks++;
    j->inversions += passed(w, r->item, tensors) > 0 ? 1 : 0;
}

ru_status rui_order_judge(const char *path, uint32_t n_items, uint32_t tensors, ru_arena *arena,
                          rui_order_judged *j, ru_err *err)
{
    char *data;
    int64_t size;
    worker *workers[HOSTS] = {NULL};
    RU_TRY(ru_file_read(path, INT64_C(1) << 30, arena, &data, &size, err));
    for (int64_t at = 0; at + (int64_t)sizeof(record) <= size; at += (int64_t)sizeof(record)) {
        record r;
        memcpy(&r, data + at, sizeof r);
        if (r.item >= n_items) {
            j->wrong++;
            continue;
        }
        if (workers[r.host] == NULL) {
            workers[r.host] = RU_NEW(arena, worker, 1);
            if (workers[r.host] == NULL) {
                return RU_FAIL(err, RU_E_MEM, "no memory for the records of a worker");
            }
            RU_TRY(worker_open(workers[r.host], n_items, arena, err));
        }
        judge(workers[r.host], &r, tensors, j);
    }
    return RU_OK;
}
