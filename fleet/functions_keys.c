/* Gradients that cross in a store elsewhere: the owner takes the sums from there, puts the state
 * there, and removes what nobody needs any more. Keys cross the own store, which orders and fences
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fleet/functions_impl.h"

static const int64_t drain_ns = 3000000000;

/* A request under way. */
typedef struct moved {
    rui_functions *a;
    ru_shard_key key;
    float *into; /* [n]; NULL: a state that is put */
    int64_t n;   /* floats */
    uint8_t data[];
} moved;

/* An answer that waits. */
typedef struct rui_functions_held {
    struct rui_functions_held *next;
    ru_func_answer answer;
} held;

/* The epoch cannot go on: its calls end, and the next one does its step anew. */
static void lost(rui_functions *a, ru_status st, const char *why)
{
    if (st == RU_E_PERM || st == RU_E_CONFIG) { /* nobody can do it */
        rui_functions_fail(a, st, why);
    } else {
        ru_log(RU_LOG_WARN, "functions", "lost", "epoch %u: %s", a->epoch, why);
        ru_store_epoch(a->store, 0);
    }
}

static void release(rui_functions *a)
{
    while (a->fetching == 0 && a->held != NULL) {
        held *h = a->held;
        a->held = h->next;
        rui_functions_say(a, RU_FUNC_ANSWER, 0, &h->answer, sizeof h->answer);
        free(h);
        rui_functions_answered(a);
    }
}

bool rui_functions_holds(rui_functions *a, const ru_func_answer *ans)
{
    held *h = a->fetching > 0 ? malloc(sizeof *h) : NULL;
    if (h == NULL) {
        return false;
    }
    *h = (held){a->held, *ans};
    a->held = h;
    return true;
}

static void on_moved(void *self, ru_status st, const char *why, const void *data, int64_t n)
{
    moved *m = self;
    rui_functions *a = m->a;
    bool current = m->key.epoch == a->epoch && !a->ending;
    a->fetching -= m->into != NULL;
    if (current && st == RU_OK && m->into != NULL && n != m->n * (int64_t)sizeof(float)) {
        st = RU_E_PEER;
        why = "the store gives another number of bytes than was put there";
    }
    if (current && st != RU_OK) {
        lost(a, st, why);
    } else if (current && m->into != NULL) {
        memcpy(m->into, data, (size_t)n);
        rui_functions_part(a, m->key.step);
    } else if (current) {
        rui_functions_put_state(a, &m->key, "", 0);
    }
    free(m);
    release(a);
}

static void send(rui_functions *a, moved *m)
{
    char name[RU_SHARD_NAME_BYTES];
    ru_err err = {0};
    ru_shard_name(&m->key, name);
    const ru_keys_ask ask = {.what = m->into != NULL ? RU_KEYS_GET : RU_KEYS_PUT,
                             .key = name,
                             .data = m->data,
                             .n = m->into != NULL ? m->n * (int64_t)sizeof(float) : m->n,
                             .done = on_moved,
                             .self = m};
    ru_status st = ru_keys_send(a->keys, &ask, &err);
    if (st != RU_OK) {
        a->fetching -= m->into != NULL;
        free(m);
        rui_functions_fail(a, st, err.text);
    }
}

void rui_functions_fetch(rui_functions *a, const ru_shard_key *k, float *into, int64_t n)
{
    moved *m = malloc(sizeof *m);
    if (m == NULL) {
        rui_functions_fail(a, RU_E_MEM, "no memory for sums on their way");
        return;
    }
    *m = (moved){.a = a, .key = *k, .into = into, .n = n};
    a->fetching++;
    send(a, m);
}

void rui_functions_far_state(rui_functions *a, const ru_shard_key *k)
{
    moved *m = malloc(sizeof *m + (size_t)a->run.state_bytes);
    if (m == NULL) {
        rui_functions_fail(a, RU_E_MEM, "no memory for the state of the model");
        return;
    }
    *m = (moved){.a = a, .key = *k, .n = a->run.state_bytes};
    memcpy(m->data, a->state, (size_t)a->run.state_bytes);
    send(a, m);
}

void rui_functions_dropped(void *self, const ru_shard_key *k)
{
    const rui_functions *a = self;
    char name[RU_SHARD_NAME_BYTES];
    ru_err ignored = {0};
    ru_shard_name(k, name);
    const ru_keys_ask ask = {.what = RU_KEYS_REMOVE, .key = name};
    if (ru_keys_send(a->keys, &ask, &ignored) != RU_OK) {
        ru_log(RU_LOG_WARN, "functions", "left", "key %s stays in the store", name);
    }
}

/* -- from begin to end ----------------------------------------------------------------------------
 */

typedef struct asked {
    bool done;
    ru_status st;
    ru_err *err;
} asked;

static void on_asked(void *self, ru_status st, const char *why, const void *data, int64_t n)
{
    asked *q = self;
    (void)data;
    (void)n;
    q->done = true;
    q->st = st == RU_OK ? RU_OK : ru_err_set(q->err, st, "%s", why);
}

/* What cannot be written and removed is known before functions are paid for. */
ru_status rui_functions_keys_open(rui_functions *a, ru_err *err)
{
    static const ru_keys_what both[] = {RU_KEYS_PUT, RU_KEYS_REMOVE};
    const ru_shard_key k = {.job = a->job};
    char name[RU_SHARD_NAME_BYTES];
    ru_shard_name(&k, name);
    RU_TRY(ru_keys_open(a->loop, a->opt->keys, &a->loop_arena, &a->keys, err));
    for (uint32_t i = 0; i < RU_ARRAY_LEN(both); i++) {
        asked q = {.err = err};
        const ru_keys_ask ask = {
            .what = both[i], .key = name, .data = "", .done = on_asked, .self = &q};
        RU_TRY(ru_keys_send(a->keys, &ask, err));
        while (!q.done) {
            RU_TRY(ru_loop_round(a->loop, -1, err));
        }
        RU_TRY(q.st);
    }
    return RU_OK;
}

void rui_functions_keys_close(rui_functions *a)
{
    ru_err ignored = {0};
    ru_time until = ru_time_after(ru_clock_now(), drain_ns);
    ru_store_epoch(a->store, 0);
    for (int64_t left = drain_ns; ru_keys_busy(a->keys) > 0 && left > 0;
         left = ru_time_since(until, ru_clock_now())) {
        if (ru_loop_round(a->loop, left, &ignored) != RU_OK) {
            break;
        }
    }
}
