#include "fleet/client/masked.h"

#include <string.h>

#include "base/hash.h"
#include "env/process/self.h"

typedef struct rui_masked_updates {
    ru_masker m;
    ru_mask_stream *streams[2]; /* [per_round] of the task, and of the one that is masked now */
    uint32_t at, n_streams;     /* n_streams 0: not there yet */
    uint32_t opened;            /* streams so far */
    double share;
    uint8_t *boxes;   /* of bufs; NULL: none are sealed or opened now */
    rui_fed_job held; /* values NULL: it trains, or is done */
    float *from;      /* [count] Thread: the program's. */
} rui_masked_updates;

static void go_on(void *self, ru_time now);

ru_status rui_masked_open(ru_fed_client *c, ru_err *err)
{
    uint32_t n = c->start.per_round;
    rui_masked_updates *x = RU_NEW(&c->arena, rui_masked_updates, 1);
    ru_mask_stream *streams = RU_NEW(&c->arena, ru_mask_stream, 2 * (int64_t)n);
    float *from = RU_NEW(&c->arena, float, c->model.count);
    if (x == NULL || streams == NULL || from == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for masked updates");
    }
    *x = (rui_masked_updates){.streams = {streams, streams + n}, .from = from};
    RU_TRY(ru_masker_open(n, ru_self_random, &c->arena, &x->m, err));
    c->masked = x;
    return RU_OK;
}

void rui_masked_from(ru_fed_client *c, const rui_fed_job *w)
{
    if (c->masked != NULL && w->task.kind != RUI_FED_EVALUATE) {
        memcpy(c->masked->from, w->values, (size_t)c->model.count * sizeof *w->values);
    }
}

ru_status rui_masked_add(ru_fed_client *c, rui_fed_job *w, ru_err *err)
{
    const ru_mask_scale scale = {.range = c->start.range, .clip = c->start.clip, .share = w->share};
    int64_t count = c->model.count;
    uint32_t *into = (uint32_t *)(void *)w->values;
    ru_status st = ru_mask_encode(&scale, c->masked->from, w->values, count, into, err);
    for (uint32_t k = 0; k < w->n_streams && st == RU_OK; k++) {
        st = ru_cipher_stream(w->streams[k].key, w->streams[k].minus, into, count, err);
    }
    ru_cipher_wipe(w->streams, w->n_streams * (int64_t)sizeof *w->streams);
    return st;
}

/* What the server asks for cannot be done by an honest client, or there is no memory. */
static void end(ru_fed_client *c, const ru_err *err)
{
    rui_fed_client_end(c, err->status, err->text);
}

void rui_masked_give_up(ru_fed_client *c)
{
    rui_masked_updates *x = c->masked;
    if (x != NULL) {
        ru_loop_after_off(c->loop, go_on, c);
        ru_bufs_put(&c->bufs, x->boxes);
        ru_bufs_put(&c->bufs, x->held.values);
        x->boxes = NULL;
        x->held.values = NULL;
        ru_cipher_wipe(x->streams[x->at], c->start.per_round * (int64_t)sizeof **x->streams);
        x->n_streams = 0;
        ru_masker_forget(&x->m);
    }
}

void rui_masked_close(ru_fed_client *c)
{
    rui_masked_updates *x = c->masked;
    if (x != NULL) {
        rui_masked_give_up(c);
        ru_cipher_wipe(x->streams[1 - x->at], c->start.per_round * (int64_t)sizeof **x->streams);
    }
}

void rui_masked_begin(ru_fed_client *c, const void *data, int64_t size_bytes, ru_time now)
{
    ru_err err;
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    uint32_t task = ru_wire_u32(&w);
    uint8_t m[sizeof task + RU_MASK_PUBLIC_BYTES];
    rui_masked_give_up(c);
    memcpy(m, &task, sizeof task);
    if (ru_masker_begin(&c->masked->m, task, c->start.threshold, c->start.neighbours,
                        m + sizeof task, &err) != RU_OK) {
        end(c, &err);
        return;
    }
    rui_fed_client_say(c, RUI_FED_KEYS, m, sizeof m, now);
}

static void mask(ru_fed_client *c)
{
    rui_masked_updates *x = c->masked;
    x->held.kind = RUI_FED_DO_MASK;
    x->held.done = false;
    x->held.streams = x->streams[x->at];
    x->held.n_streams = x->n_streams;
    x->held.share = x->share;
    x->at = 1 - x->at;
    x->n_streams = 0; /* they hide one update */
    rui_fed_client_give(c, &x->held);
    x->held.values = NULL;
}

bool rui_masked_trained(ru_fed_client *c, const rui_fed_job *w)
{
    rui_masked_updates *x = c->masked;
    if (x == NULL || w->kind != RUI_FED_DO_TASK || w->task.kind != RUI_FED_TRAIN) {
        return false;
    }
    ru_bufs_put(&c->bufs, x->held.values); /* of a server that sends two tasks at one time */
    x->held = *w;
    if (x->n_streams > 0 && x->m.round == w->task.task) {
        mask(c);
    }
    return true;
}

/* Some of the boxes at a time; the last ones end it. */
static ru_status seal(ru_fed_client *c, uint32_t n, uint32_t self, const uint8_t *publics,
                      ru_time now, ru_err *err)
{
    rui_masked_updates *x = c->masked;
    bool more;
    RU_TRY(ru_masker_share(&x->m, n, self, publics, x->boxes, &more, err));
    if (more) {
        ru_loop_after(c->loop, go_on, c);
        return RU_OK;
    }
    uint8_t *boxes = x->boxes;
    x->boxes = NULL;
    rui_fed_client_parcel(c, RUI_FED_BOXES, &x->m.round, sizeof x->m.round, boxes,
                          (int64_t)x->m.n * RU_MASK_BOX_BYTES, now);
    return RU_OK;
}

static ru_status open_boxes(ru_fed_client *c, ru_err *err)
{
    rui_masked_updates *x = c->masked;
    bool more;
    RU_TRY(ru_masker_streams(&x->m, x->boxes, x->boxes + x->m.n, x->streams[x->at], &x->opened,
                             &more, err));
    if (more) {
        ru_loop_after(c->loop, go_on, c);
        return RU_OK;
    }
    ru_bufs_put(&c->bufs, x->boxes);
    x->boxes = NULL;
    x->n_streams = x->opened;
    if (x->held.values != NULL && x->held.task.task == x->m.round) {
        mask(c);
    }
    return RU_OK;
}

static void go_on(void *self, ru_time now)
{
    ru_fed_client *c = self;
    rui_masked_updates *x = c->masked;
    ru_err err;
    ru_status st = RU_OK;
    if (x->boxes != NULL) {
        st = x->m.stage == RU_MASKER_SEALING ? seal(c, x->m.n, x->m.self, NULL, now, &err)
                                             : open_boxes(c, &err);
    }
    if (st != RU_OK) {
        end(c, &err);
    }
}

static ru_status on_roster(ru_fed_client *c, ru_wire_in *w, const void *body, int64_t bytes,
                           ru_time now, ru_err *err)
{
    rui_masked_updates *x = c->masked;
    uint32_t n = ru_wire_u32(w), self = ru_wire_u32(w);
    double samples = ru_wire_f64(w), mine = c->desk.samples;
    if (w->bad || n > x->m.n_max || bytes != (int64_t)n * RU_MASK_PUBLIC_BYTES ||
        !(samples >= mine)) {
        return RU_FAIL(err, RU_E_DATA, "the server's list of keys is none");
    }
    x->share = c->start.clip > 0 ? 1.0 / n : mine / samples;
    x->boxes = ru_bufs_get(&c->bufs, (int64_t)n * RU_MASK_BOX_BYTES);
    return x->boxes != NULL ? seal(c, n, self, body, now, err)
                            : RU_FAIL(err, RU_E_MEM, "no memory for the keys of a round");
}

static ru_status on_row(ru_fed_client *c, const uint8_t *body, int64_t bytes, ru_err *err)
{
    rui_masked_updates *x = c->masked;
    uint32_t n = x->m.n;
    if (bytes != (int64_t)n * (1 + RU_MASK_BOX_BYTES)) {
        return RU_FAIL(err, RU_E_DATA, "the server's boxes are not valid");
    }
    x->boxes = ru_bufs_get(&c->bufs, bytes);
    if (x->boxes == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the boxes of a round");
    }
    memcpy(x->boxes, body, (size_t)bytes);
    return open_boxes(c, err);
}

void rui_masked_parcel(ru_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                       const void *body, int64_t body_bytes, ru_time now)
{
    rui_masked_updates *x = c->masked;
    ru_err err;
    ru_status st = RU_OK;
    ru_wire_in w = ru_wire_in_from(head, head_bytes);
    if (ru_wire_u32(&w) != x->m.round ||
        ru_wire_u64(&w) != ru_hash_bytes(body, body_bytes, x->m.round)) {
        return; /* of a task that is over: its body may be of two rounds */
    }
    if (what == RUI_FED_ROSTER && x->m.stage == RU_MASKER_BEGUN) {
        st = on_roster(c, &w, body, body_bytes, now, &err);
    } else if (what == RUI_FED_ROW && x->m.stage == RU_MASKER_SHARED && x->boxes == NULL) {
        st = on_row(c, body, body_bytes, &err);
    }
    if (st != RU_OK) {
        end(c, &err);
    }
}

void rui_masked_reveal(ru_fed_client *c, const void *data, int64_t size_bytes, ru_time now)
{
    rui_masked_updates *x = c->masked;
    ru_err err;
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    if (ru_wire_u32(&w) != x->m.round || x->m.stage != RU_MASKER_READY ||
        ru_wire_left(&w) != x->m.n) {
        return;
    }
    int64_t bytes = (int64_t)x->m.n * RU_SHAMIR_BYTES;
    uint8_t *parts = ru_bufs_get(&c->bufs, bytes);
    ru_status st = parts != NULL ? ru_masker_reveal(&x->m, ru_wire_bytes(&w, x->m.n), parts, &err)
                                 : RU_FAIL(&err, RU_E_MEM, "no memory for parts of keys");
    if (st != RU_OK) {
        ru_bufs_put(&c->bufs, parts);
        end(c, &err);
        return;
    }
    rui_fed_client_parcel(c, RUI_FED_PARTS, &x->m.round, sizeof x->m.round, parts, bytes, now);
}
