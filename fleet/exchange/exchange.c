#include "fleet/exchange/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "env/clock.h"
#include "web/keys.h"
#include "web/post.h"

/* The pieces of a block go out before those of the next one, so that its sum comes back while these
 * are on their way; what other blocks send meanwhile hides the round trip. */
enum { BLOCKS_AT_A_TIME = 8, PUTS_AT_A_TIME = 1, TRIES = 5 };

struct ru_exchange {
    ru_exchange_options opt;
    int64_t state_bytes;
    ru_shards shards; /* of the vector that is summed */
    ru_posts *posts;
    ru_keys *keys; /* bytes stand there; NULL: in the store */
    const char *url_put, *url_get;
};

/* -- one request ----------------------------------------------------------------------------------
 */

typedef struct asking asking;

/* What a step, or a worker that begins, waits for. */
typedef struct waits {
    ru_exchange *w;
    int64_t step, last;
    float *vec;
    uint32_t next_block, puts;       /* that begins next; pieces on their way */
    asking *open;                    /* requests under way */
    uint32_t left[BLOCKS_AT_A_TIME]; /* requests of the block at this place */
    void *state;
    ru_status st;
    ru_err *err;
} waits;

typedef enum asked { PUT_PIECES, GET_PIECES, PUT_SUM, GET_SUMS, GET_STATE } asked;

struct asking {
    struct asking *next, **at; /* of all under way */
    waits *of;
    asked what;
    uint32_t block, tries;
    uint32_t far;        /* keys whose bytes are on their way elsewhere */
    uint8_t *got;        /* [n_got] bytes of all; NULL: none elsewhere */
    struct piece *piece; /* [number of keys] */
    int64_t n_got;
    int64_t n;      /* of body */
    uint8_t body[]; /* [n] */
};

/* Bytes of a key in a store elsewhere. */
typedef struct piece {
    asking *of;
    ru_shard_key key;
    void *data; /* [n] */
    int64_t n;
} piece;

static void fail(waits *x, ru_status st, const char *text)
{
    if (x->st == RU_OK) {
        x->st = ru_err_set(x->err, st, "%s", text);
    }
}

static void asking_free(asking *q)
{
    *q->at = q->next;
    if (q->next != NULL) {
        q->next->at = q->at;
    }
    free(q->got);
    free(q->piece);
    free(q);
}

static void on_answer(void *self, const ru_post_answer *a);

static void post(asking *q)
{
    waits *x = q->of;
    ru_exchange *w = x->w;
    bool puts = q->what == PUT_PIECES || q->what == PUT_SUM;
    int64_t left = w->opt.until.ns > 0 ? ru_time_since(w->opt.until, ru_clock_now()) / 1000000 : 0;
    const ru_post p = {.url = puts ? w->url_put : w->url_get,
                       .body = q->body,
                       .body_bytes = q->n,
                       .type = "application/octet-stream",
                       .token = w->opt.token,
                       .note = RU_SHARD_LAST,
                       .patience_ms = w->opt.until.ns == 0 ? 0
                                      : left > 0           ? left
                                                           : 1,
                       .answer_max_bytes = q->what == GET_STATE ? w->state_bytes + 1 : 0,
                       .done = on_answer,
                       .self = q};
    ru_err err = {0};
    if (ru_posts_send(w->posts, &p, &err) != RU_OK) {
        fail(x, RU_E_MEM, err.text);
        asking_free(q);
    }
}

/* Keys of a block with the same kind: of all shards but the own one, or of all ranks but the own
 * one. */
static ru_shard_key key_of(const waits *x, asked what, uint32_t block, uint32_t k)
{
    const ru_exchange_options *o = &x->w->opt;
    ru_shard_key key = {.job = o->job, .epoch = o->epoch, .step = x->step, .block = block};
    key.kind = what == PUT_PIECES || what == GET_PIECES ? RU_SHARD_PIECE
               : what == GET_STATE                      ? RU_SHARD_STATE
                                                        : RU_SHARD_SUM;
    key.shard = what == GET_STATE ? 0 : what == GET_PIECES || what == PUT_SUM ? o->rank : k;
    key.rank = what == PUT_PIECES ? o->rank : what == GET_PIECES ? k : 0;
    return key;
}

/* A key of the request: with its bytes behind it, or where they are elsewhere. */
static void put_key(asking *q, uint32_t k, bool puts, ru_wire_out *o)
{
    const ru_exchange *w = q->of->w;
    const ru_shard_key key = key_of(q->of, q->what, q->block, k);
    int64_t first = 0, count = 0, bytes = w->state_bytes;
    if (q->what != GET_STATE) {
        ru_shards_range(&w->shards, q->block, key.shard, &first, &count);
        bytes = count * (int64_t)sizeof(float);
    }
    ru_shard_key_put(o, &key);
    if (puts) {
        ru_wire_put_u64(o, w->keys == NULL ? (uint64_t)bytes : 0);
        ru_wire_put_bytes(o, q->of->vec + first, w->keys == NULL ? bytes : 0);
    }
    if (w->keys != NULL) {
        q->piece[q->far++] =
            (piece){.of = q, .key = key, .data = puts ? q->of->vec + first : NULL, .n = bytes};
        q->n_got += puts ? 0 : bytes;
    }
}

static void far(asking *q);

static void ask(waits *x, asked what, uint32_t block)
{
    const ru_exchange *w = x->w;
    bool one = what == PUT_SUM || what == GET_STATE, puts = what == PUT_PIECES || what == PUT_SUM;
    uint32_t n = one ? 1 : w->opt.workers - 1;
    int64_t bytes = 4 + n * (int64_t)(RU_SHARD_KEY_BYTES + 8);
    bytes += puts && w->keys == NULL ? w->shards.block * (int64_t)sizeof(float) : 0;
    asking *q = malloc(sizeof *q + (size_t)bytes);
    piece *pieces = w->keys != NULL ? malloc(n * sizeof *pieces) : NULL;
    if (q == NULL || (w->keys != NULL && pieces == NULL)) {
        free(q);
        free(pieces);
        fail(x, RU_E_MEM, "no memory for gradients on their way");
        return;
    }
    *q = (asking){.next = x->open, .at = &x->open, .of = x, .what = what, .block = block};
    q->piece = pieces;
    if (q->next != NULL) {
        q->next->at = &q->next;
    }
    x->open = q;
    ru_wire_out o = ru_wire_out_into(q->body, bytes);
    ru_wire_put_u32(&o, n);
    for (uint32_t k = 0; k < w->opt.workers; k++) {
        if (one ? k == 0 : k != w->opt.rank) {
            put_key(q, k, puts, &o);
        }
    }
    RU_CHECK(!o.bad);
    q->n = ru_wire_size(&o);
    if (puts && w->keys != NULL) {
        far(q);
    } else {
        post(q);
    }
}

/* -- a block --------------------------------------------------------------------------------------
 */

static void begin_block(waits *x)
{
    const ru_exchange *w = x->w;
    uint32_t block = x->next_block++, place = block % BLOCKS_AT_A_TIME;
    if (w->opt.workers == 1) {
        x->left[place] = 1;
        ask(x, PUT_SUM, block);
        return;
    }
    x->left[place] = 4;
    x->puts++;
    ask(x, PUT_PIECES, block);
    ask(x, GET_PIECES, block);
    ask(x, GET_SUMS, block);
}

static void begin_blocks(waits *x)
{
    while (x->st == RU_OK && x->next_block < x->w->shards.blocks && x->puts < PUTS_AT_A_TIME &&
           x->left[x->next_block % BLOCKS_AT_A_TIME] == 0) {
        begin_block(x);
    }
}

/* The pieces of the own shard, by rank: sums have the same bits whoever comes first. */
static bool take_pieces(waits *x, uint32_t block, const char *text, int64_t n)
{
    const ru_exchange *w = x->w;
    int64_t first, count;
    ru_shards_range(&w->shards, block, w->opt.rank, &first, &count);
    if (n != (w->opt.workers - 1) * count * (int64_t)sizeof(float)) {
        return false;
    }
    float *own = x->vec + first;
    for (int64_t i = 0; i < count; i++) {
        float sum = 0;
        uint32_t at = 0;
        for (uint32_t r = 0; r < w->opt.workers; r++) {
            float v = own[i];
            if (r != w->opt.rank) {
                memcpy(&v, text + ((int64_t)at++ * count + i) * (int64_t)sizeof v, sizeof v);
            }
            sum = r == 0 ? v : sum + v;
        }
        own[i] = sum;
    }
    ask(x, PUT_SUM, block);
    return true;
}

static bool take_sums(waits *x, uint32_t block, const char *text, int64_t n)
{
    const ru_exchange *w = x->w;
    int64_t at = 0;
    for (uint32_t k = 0; k < w->opt.workers; k++) {
        int64_t first, count;
        ru_shards_range(&w->shards, block, k, &first, &count);
        int64_t bytes = count * (int64_t)sizeof(float);
        if (k != w->opt.rank && at + bytes <= n) {
            memcpy(x->vec + first, text + at, (size_t)bytes);
        }
        at += k != w->opt.rank ? bytes : 0;
    }
    return at == n;
}

static bool take_state(const waits *x, const char *text, int64_t n)
{
    if (n == x->w->state_bytes) {
        memcpy(x->state, text, (size_t)n);
    }
    return n == x->w->state_bytes;
}

static void took(waits *x, const asking *q)
{
    if (q->what != GET_STATE) {
        x->left[q->block % BLOCKS_AT_A_TIME]--;
        x->puts -= q->what == PUT_PIECES;
        begin_blocks(x);
    }
}

/* All bytes of a request are here. */
static void got(asking *q, const char *text, int64_t n)
{
    waits *x = q->of;
    bool fits = true;
    if (q->what == GET_PIECES) {
        fits = take_pieces(x, q->block, text, n);
    } else if (q->what == GET_SUMS) {
        fits = take_sums(x, q->block, text, n);
    } else if (q->what == GET_STATE) {
        fits = take_state(x, text, n);
    }
    if (!fits) {
        fail(x, RU_E_PEER, "the store gives another number of bytes than was put there");
    }
    took(x, q);
    asking_free(q);
}

static void on_answer(void *self, const ru_post_answer *a)
{
    asking *q = self;
    waits *x = q->of;
    bool gets = q->what != PUT_PIECES && q->what != PUT_SUM;
    int64_t last;
    char text[400];
    if (a->status == 0 && ++q->tries < TRIES && x->st == RU_OK) { /* puts count once */
        post(q);
        return;
    }
    if (a->note[0] != '\0' && ru_str_i64(ru_str_c(a->note), &last)) {
        x->last = last > x->last ? last : x->last;
    }
    if (a->status == 200 && gets && x->w->keys != NULL) {
        far(q);
    } else if (a->status == 200) {
        got(q, a->text, a->n);
    } else if (a->status == RU_SHARD_FENCED) {
        fail(x, RU_E_CANCELLED, "the epoch is over");
    } else {
        ru_text t = ru_text_into(text, sizeof text);
        ru_text_putf(&t, "the store at %s: %.*s (status %ld)", x->w->opt.store,
                     a->status != 0 && a->n < 200 ? (int)a->n : 200,
                     a->status != 0 ? a->text : a->why, a->status);
        fail(x, a->status == 401 || a->status == 403 ? RU_E_PERM : RU_E_PEER, text);
    }
}

/* -- bytes elsewhere ------------------------------------------------------------------------------
 */

static void on_far(void *self, ru_status st, const char *why, const void *data, int64_t n)
{
    piece *p = self;
    asking *q = p->of;
    bool gets = q->what != PUT_PIECES && q->what != PUT_SUM;
    if (st != RU_OK) { /* a key that is gone is there in the next epoch */
        fail(q->of, st == RU_E_MISSING ? RU_E_PEER : st, why);
    } else if (gets && n != p->n) {
        fail(q->of, RU_E_PEER, "the store gives another number of bytes than was put there");
    } else if (gets) {
        memcpy(p->data, data, (size_t)n);
    }
    if (--q->far > 0 || q->of->st != RU_OK) {
        return;
    }
    if (gets) {
        got(q, (const char *)q->got, q->n_got);
    } else {
        post(q);
    }
}

/* Puts the bytes of all keys there, or gets them. */
static void far(asking *q)
{
    ru_err err = {0};
    bool gets = q->what != PUT_PIECES && q->what != PUT_SUM;
    uint32_t n = q->far;
    int64_t at = 0;
    q->got = gets ? malloc((size_t)q->n_got + 1) : NULL;
    if (gets && q->got == NULL) {
        fail(q->of, RU_E_MEM, "no memory for gradients on their way");
        return;
    }
    for (uint32_t k = 0; k < n && q->of->st == RU_OK; k++) {
        piece *p = &q->piece[k];
        char name[RU_SHARD_NAME_BYTES];
        ru_shard_name(&p->key, name);
        p->data = gets ? q->got + at : p->data;
        at += p->n;
        const ru_keys_ask a = {.what = gets ? RU_KEYS_GET : RU_KEYS_PUT,
                               .key = name,
                               .data = p->data,
                               .n = p->n,
                               .done = on_far,
                               .self = p};
        ru_status st = ru_keys_send(q->of->w->keys, &a, &err);
        if (st != RU_OK) {
            fail(q->of, st, err.text);
        }
    }
}

static ru_status wait_all(waits *x, ru_err *err)
{
    ru_exchange *w = x->w;
    while (x->st == RU_OK && x->open != NULL) {
        ru_status st = ru_loop_round(w->opt.loop, -1, err);
        x->st = x->st == RU_OK ? st : x->st;
    }
    if (x->st != RU_OK) { /* the call ends: nobody waits for the rest */
        ru_posts_close(w->posts);
        ru_keys_close(w->keys);
        w->posts = NULL;
        w->keys = NULL;
    }
    while (x->open != NULL) {
        asking_free(x->open);
    }
    return x->st;
}

/* -- from outside ---------------------------------------------------------------------------------
 */

ru_status ru_exchange_open(const ru_exchange_options *opt, ru_arena *arena, ru_exchange **out,
                           ru_err *err)
{
    ru_exchange *w = RU_NEW(arena, ru_exchange, 1);
    if (w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an exchange");
    }
    *w = (ru_exchange){.opt = *opt};
    w->url_put = ru_arena_printf(arena, "%s/put", opt->store);
    w->url_get = ru_arena_printf(arena, "%s/get", opt->store);
    if (w->url_put == NULL || w->url_get == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for an exchange");
    }
    RU_TRY(ru_posts_open(opt->loop, NULL, arena, &w->posts, err));
    ru_status st =
        opt->keys[0] != '\0' ? ru_keys_open(opt->loop, opt->keys, arena, &w->keys, err) : RU_OK;
    if (st != RU_OK) {
        ru_exchange_close(w);
        return st;
    }
    *out = w;
    return RU_OK;
}

void ru_exchange_close(ru_exchange *w)
{
    if (w != NULL) {
        ru_posts_close(w->posts);
        ru_keys_close(w->keys);
        w->posts = NULL;
        w->keys = NULL;
    }
}

ru_status ru_exchange_sum(ru_exchange *w, int64_t step, float *vec, int64_t count, int64_t *last,
                          ru_err *err)
{
    waits x = {.w = w, .step = step, .last = -1, .vec = vec, .err = err};
    w->shards = ru_shards_of(count, w->opt.workers);
    begin_blocks(&x);
    RU_TRY(wait_all(&x, err));
    *last = x.last;
    return RU_OK;
}

ru_status ru_exchange_state(ru_exchange *w, int64_t step, void *state, int64_t n, ru_err *err)
{
    waits x = {.w = w, .step = step, .last = -1, .state = state, .err = err};
    w->state_bytes = n;
    ask(&x, GET_STATE, 0);
    return wait_all(&x, err);
}
