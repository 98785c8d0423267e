#include "fleet/exchange/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "web/http.h"

enum { CONNS_EACH = 24, BODY_MAX = 64 << 20, SILENT_S = 3600 };

typedef struct entry {
    ru_shard_key key;
    int64_t n;
    uint32_t refs;
    uint8_t data[]; /* [n] */
} entry;

/* A request that waits: a get for its keys, a put for its step. */
typedef struct waiting {
    struct waiting *next, **at; /* of all */
    ru_http_request *r;
    bool puts;
    uint32_t n, have;    /* keys; the first of them that are there */
    ru_shard_key keys[]; /* [n] */
} waiting;

/* An answer on its way. */
typedef struct answering {
    uint32_t n;
    entry *at[]; /* [n] */
} answering;

struct ru_store {
    ru_store_options opt;
    ru_http *http;
    ru_map map; /* bytes of a key -> entry */
    waiting *waits;
    uint32_t epoch;
    int64_t low, high, last;
    bool looking;
    char last_text[24];
};

/* -- entries --------------------------------------------------------------------------------------
 */

static void pack(const ru_shard_key *k, uint8_t into[RU_SHARD_KEY_BYTES])
{
    ru_wire_out o = ru_wire_out_into(into, RU_SHARD_KEY_BYTES);
    ru_shard_key_put(&o, k);
}

static entry *find(const ru_store *s, const ru_shard_key *k)
{
    uint8_t key[RU_SHARD_KEY_BYTES];
    pack(k, key);
    const uint64_t *at = ru_map_get(&s->map, ru_str_n((const char *)key, sizeof key));
    return at != NULL ? (entry *)(uintptr_t)*at : NULL;
}

static void entry_put(entry *e)
{
    if (--e->refs == 0) {
        free(e);
    }
}

static void drop_below(ru_store *s, int64_t step, bool all)
{
    for (const ru_map_entry *m = NULL; (m = ru_map_next(&s->map, m)) != NULL;) {
        entry *e = (entry *)(uintptr_t)m->value;
        if (all || (e->key.step < step && e->key.kind != RU_SHARD_STATE)) {
            (void)ru_map_remove(&s->map, ru_str_n(m->key, m->key_bytes));
            if (s->opt.drop != NULL) {
                s->opt.drop(s->opt.self, &e->key);
            }
            entry_put(e);
        }
    }
}

static ru_status take(ru_store *s, const ru_shard_key *k, const void *data, int64_t n, ru_err *err)
{
    uint8_t key[RU_SHARD_KEY_BYTES];
    bool fresh = false;
    if (k->step < s->low && k->kind != RU_SHARD_STATE) { /* what was dropped stays so */
        return RU_OK;
    }
    pack(k, key);
    uint64_t *at = ru_map_put(&s->map, ru_str_n((const char *)key, sizeof key), &fresh);
    if (at != NULL && !fresh) {
        return RU_OK;
    }
    entry *e = at != NULL ? malloc(sizeof *e + (size_t)n) : NULL;
    if (e == NULL) {
        (void)(fresh && ru_map_remove(&s->map, ru_str_n((const char *)key, sizeof key)));
        return RU_FAIL(err, RU_E_MEM, "no memory for %lld bytes of gradients", (long long)n);
    }
    e->key = *k;
    e->n = n;
    e->refs = 1;
    memcpy(e->data, data, (size_t)n);
    *at = (uintptr_t)e;
    if (s->opt.put != NULL) {
        e->refs++;
        s->opt.put(s->opt.self, k, e->data, n);
        entry_put(e);
    }
    return RU_OK;
}

/* -- answers --------------------------------------------------------------------------------------
 */

static void sent(void *self)
{
    answering *a = self;
    for (uint32_t k = 0; k < a->n; k++) {
        entry_put(a->at[k]);
    }
    free(a);
}

static void answer(ru_store *s, ru_http_request *r, const ru_shard_key *keys, uint32_t n)
{
    ru_http_span spans[RU_SHARD_KEYS_MAX];
    answering *a = malloc(sizeof *a + n * sizeof a->at[0]);
    if (a == NULL) {
        ru_http_refuse(r, 503, "no memory for an answer", 0);
        return;
    }
    a->n = n;
    for (uint32_t k = 0; k < n; k++) {
        entry *e = find(s, &keys[k]);
        RU_CHECK(e != NULL);
        e->refs++;
        a->at[k] = e;
        spans[k] = (ru_http_span){e->data, e->n};
    }
    const ru_http_field fields[] = {{"Content-Type", "application/octet-stream"},
                                    {RU_SHARD_LAST, s->last_text}};
    ru_http_answer(r, &(ru_http_reply){.status = 200,
                                       .fields = fields,
                                       .n_fields = s->last >= 0 ? 2 : 1,
                                       .spans = spans,
                                       .n_spans = n,
                                       .done = sent,
                                       .self = a});
}

static void fenced(ru_http_request *r)
{
    ru_http_refuse(r, RU_SHARD_FENCED, "the key is of an older epoch", 0);
}

/* -- waiting --------------------------------------------------------------------------------------
 */

static void take_out(waiting *w)
{
    *w->at = w->next;
    if (w->next != NULL) {
        w->next->at = w->at;
    }
    w->r->mine = NULL;
}

static void put_all(ru_store *s, ru_http_request *r)
{
    ru_err err = {0};
    ru_wire_in in = ru_wire_in_from(r->body, r->body_bytes);
    uint32_t n = ru_wire_u32(&in), epoch = s->epoch;
    for (uint32_t k = 0; k < n; k++) {
        ru_shard_key key = ru_shard_key_get(&in);
        int64_t bytes = (int64_t)ru_wire_u64(&in);
        const uint8_t *data = ru_wire_bytes(&in, bytes);
        if (s->epoch != epoch) { /* one of them ended it */
            fenced(r);
            return;
        }
        if (data == NULL || take(s, &key, data, bytes, &err) != RU_OK) {
            ru_http_refuse(r, data == NULL ? 400 : 503,
                           data == NULL ? "the bytes of a key are cut" : err.text, 0);
            return;
        }
    }
    answer(s, r, NULL, 0);
}

/* What waits and can go on. Answers and puts may make more of them go on. */
static void look(ru_store *s)
{
    if (s->looking) {
        return;
    }
    s->looking = true;
    for (bool again = true; again;) {
        again = false;
        for (waiting *w = s->waits, *next; w != NULL && !again; w = next) {
            next = w->next;
            while (!w->puts && w->have < w->n && find(s, &w->keys[w->have]) != NULL) {
                w->have++;
            }
            bool stale = w->keys[0].epoch != s->epoch;
            if (!stale && (w->puts ? w->keys[0].step >= s->high : w->have < w->n)) {
                continue;
            }
            take_out(w);
            again = w->puts;
            if (stale) {
                fenced(w->r);
            } else if (w->puts) {
                put_all(s, w->r);
            } else {
                answer(s, w->r, w->keys, w->n);
            }
            free(w);
        }
    }
    s->looking = false;
}

/* Keys of a request; NULL: it makes no sense, or there is no memory, and it was answered. */
static waiting *read_keys(ru_store *s, ru_http_request *r, bool puts)
{
    ru_wire_in in = ru_wire_in_from(r->body, r->body_bytes);
    uint32_t n = ru_wire_u32(&in);
    bool fine = !in.bad && n > 0 && n <= RU_SHARD_KEYS_MAX;
    waiting *w = fine ? malloc(sizeof *w + n * sizeof w->keys[0]) : NULL;
    if (w == NULL) {
        ru_http_refuse(r, fine ? 503 : 400,
                       fine ? "no memory for a request" : "a request names too many keys, or none",
                       0);
        return NULL;
    }
    *w = (waiting){.r = r, .puts = puts, .n = n};
    for (uint32_t k = 0; k < n; k++) {
        w->keys[k] = ru_shard_key_get(&in);
        if (puts) {
            (void)ru_wire_bytes(&in, (int64_t)ru_wire_u64(&in));
        }
        fine = fine && w->keys[k].job == s->opt.job && w->keys[k].epoch == w->keys[0].epoch &&
               w->keys[k].kind <= RU_SHARD_STATE;
    }
    if (in.bad || ru_wire_left(&in) != 0 || !fine) {
        ru_http_refuse(r, 400, "keys of one epoch of this job, with their bytes", 0);
        free(w);
        return NULL;
    }
    return w;
}

static void on_request(void *self, ru_http_request *r)
{
    ru_store *s = self;
    bool puts = strcmp(r->path, "/put") == 0;
    if (strcmp(r->method, "POST") != 0 || (!puts && strcmp(r->path, "/get") != 0)) {
        ru_http_refuse(r, 404, "POST /put or /get", 0);
        return;
    }
    waiting *w = read_keys(s, r, puts);
    if (w == NULL) {
        return;
    }
    w->next = s->waits;
    w->at = &s->waits;
    if (w->next != NULL) {
        w->next->at = &w->next;
    }
    s->waits = w;
    r->mine = w;
    look(s);
}

static void on_gone(void *self, ru_http_request *r)
{
    (void)self;
    waiting *w = r->mine;
    if (w != NULL) {
        take_out(w);
        free(w);
    }
    ru_http_refuse(r, 503, "the client is gone", 0);
}

/* -- from outside ---------------------------------------------------------------------------------
 */

ru_status ru_store_open(const ru_store_options *opt, ru_arena *arena, ru_store **out, ru_err *err)
{
    ru_store *s = RU_NEW(arena, ru_store, 1);
    if (s == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a store");
    }
    *s = (ru_store){.opt = *opt, .last = -1};
    ru_map_init(&s->map, NULL, 0);
    const ru_http_options ho = {.loop = opt->loop,
                                .listen = opt->listen,
                                .token = opt->token,
                                .conns_max = 32 + CONNS_EACH * opt->workers_max,
                                .silent_max_s = SILENT_S,
                                .request = on_request,
                                .gone = on_gone,
                                .body_max_bytes = BODY_MAX,
                                .bodies_max_bytes = (int64_t)BODY_MAX * (1 + opt->workers_max),
                                .self = s};
    RU_TRY(ru_http_open(&ho, arena, &s->http, err));
    *out = s;
    return RU_OK;
}

void ru_store_close(ru_store *s)
{
    if (s == NULL) {
        return;
    }
    ru_store_epoch(s, 0);
    ru_http_close(s->http);
    ru_map_fini(&s->map);
}

const char *ru_store_address(const ru_store *s)
{
    return ru_http_address(s->http);
}

void ru_store_epoch(ru_store *s, uint32_t epoch)
{
    s->epoch = epoch;
    s->last = -1;
    drop_below(s, 0, true);
    look(s);
}

void ru_store_window(ru_store *s, int64_t low, int64_t high)
{
    s->low = low;
    s->high = high;
    drop_below(s, low, false);
    look(s);
}

void ru_store_last(ru_store *s, int64_t step)
{
    s->last = step;
    (void)snprintf(s->last_text, sizeof s->last_text, "%" PRId64, step);
}

ru_status ru_store_put(ru_store *s, const ru_shard_key *key, const void *data, int64_t size_bytes,
                       ru_err *err)
{
    RU_TRY(take(s, key, data, size_bytes, err));
    look(s);
    return RU_OK;
}
