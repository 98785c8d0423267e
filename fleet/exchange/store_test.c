/* The own store over HTTP: a get waits for its keys, the first put counts, a put too far ahead
 * waits, an epoch that is over is refused at once, as is what makes no sense or has another token.
 */
#include "fleet/exchange/store.h"

#include <string.h>

#include "base/str.h"
#include "test/test.h"
#include "web/post.h"

/* What goes on is answered at once, and not only when the server looks at its connections each
 * second. */
enum { ROUNDS = 500, BODY = 512, ASKED = 8 };

typedef struct asked {
    uint8_t body[BODY];
    int64_t n;
    bool done;
    long status;
    char text[64], note[RU_POST_NOTE_BYTES];
} asked;

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_store *store;
    ru_posts *posts;
    char put[128], get[128];
    uint32_t puts; /* that the owner was told */
    asked all[ASKED];
    uint32_t n;
} world;

static void on_put(void *self, const ru_shard_key *key, const void *data, int64_t size_bytes)
{
    world *w = self;
    (void)data;
    assert_true(key->job == 7 && size_bytes > 0);
    w->puts++;
}

static bool open_world(world *w)
{
    ru_err err = {0};
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    const ru_store_options so = {.loop = w->loop,
                                 .listen = "0",
                                 .token = "secret",
                                 .job = 7,
                                 .workers_max = 2,
                                 .put = on_put,
                                 .self = w};
    ru_status st = ru_store_open(&so, &w->arena, &w->store, &err);
    st = st == RU_OK ? ru_posts_open(w->loop, NULL, &w->arena, &w->posts, &err) : st;
    if (st == RU_E_UNSUPPORTED) {
        return false; /* a build without the libraries */
    }
    assert_ok(st, err);
    ru_text put = ru_text_into(w->put, sizeof w->put), get = ru_text_into(w->get, sizeof w->get);
    ru_text_putf(&put, "http://%s/put", ru_store_address(w->store));
    ru_text_putf(&get, "http://%s/get", ru_store_address(w->store));
    ru_store_epoch(w->store, 1);
    ru_store_window(w->store, 0, 3);
    return true;
}

static void close_world(world *w)
{
    ru_posts_close(w->posts);
    ru_store_close(w->store);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
}

static void on_done(void *self, const ru_post_answer *a)
{
    asked *q = self;
    q->done = true;
    q->status = a->status;
    ru_text t = ru_text_into(q->text, sizeof q->text);
    ru_text_putf(&t, "%.*s", (int)(a->n < 60 ? a->n : 60), a->text);
    memcpy(q->note, a->note, sizeof q->note);
}

static void send(world *w, asked *q, bool puts, const char *token)
{
    ru_err err = {0};
    const ru_post p = {.url = puts ? w->put : w->get,
                       .body = q->body,
                       .body_bytes = q->n,
                       .type = "application/octet-stream",
                       .token = token,
                       .note = RU_SHARD_LAST,
                       .done = on_done,
                       .self = q};
    assert_ok(ru_posts_send(w->posts, &p, &err), err);
}

/* text NULL: get. */
static asked *ask(world *w, uint32_t epoch, int64_t step, uint32_t rank, const char *text)
{
    assert_true(w->n < ASKED);
    asked *q = &w->all[w->n++];
    const ru_shard_key k = {.job = 7, .epoch = epoch, .step = step, .rank = rank};
    ru_wire_out o = ru_wire_out_into(q->body, BODY);
    ru_wire_put_u32(&o, 1);
    ru_shard_key_put(&o, &k);
    if (text != NULL) {
        ru_wire_put_u64(&o, strlen(text));
        ru_wire_put_bytes(&o, text, (int64_t)strlen(text));
    }
    q->n = ru_wire_size(&o);
    send(w, q, text != NULL, "secret");
    return q;
}

static void until(world *w, const asked *q)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < ROUNDS && !q->done; k++) {
        assert_ok(ru_loop_round(w->loop, 1000000, &err), err);
    }
    assert_true(q->done);
}

static void test_order(void **state)
{
    world w;
    (void)state;
    if (!open_world(&w)) {
        return;
    }
    const asked *get = ask(&w, 1, 0, 0, NULL), *first = ask(&w, 1, 0, 0, "first");
    until(&w, get);
    until(&w, first);
    assert_true(get->status == 200 && first->status == 200);
    assert_string_equal(get->text, "first");
    assert_string_equal(get->note, "");
    const asked *again = ask(&w, 1, 0, 0, "again");
    until(&w, again);
    assert_true(again->status == 200 && w.puts == 1);
    ru_store_last(w.store, 41);
    const asked *same = ask(&w, 1, 0, 0, NULL), *ahead = ask(&w, 1, 3, 0, "ahead");
    until(&w, same);
    assert_string_equal(same->text, "first");
    assert_string_equal(same->note, "41");
    assert_false(ahead->done);
    ru_store_window(w.store, 1, 4);
    until(&w, ahead);
    assert_int_equal(ahead->status, 200);
    const asked *dropped = ask(&w, 1, 0, 0, NULL); /* step 0 is gone */
    const asked *late = ask(&w, 1, 0, 1, "late");
    until(&w, late);
    assert_int_equal(late->status, 200);
    assert_true(w.puts == 2 && !dropped->done); /* and stays so */
    close_world(&w);
}

static void test_fence(void **state)
{
    world w;
    (void)state;
    if (!open_world(&w)) {
        return;
    }
    const asked *get = ask(&w, 1, 0, 0, NULL), *ahead = ask(&w, 1, 9, 0, "ahead");
    const asked *put = ask(&w, 1, 0, 1, "piece");
    until(&w, put);
    assert_false(get->done || ahead->done);
    ru_store_epoch(w.store, 2);
    until(&w, get);
    until(&w, ahead);
    assert_true(get->status == RU_SHARD_FENCED && ahead->status == RU_SHARD_FENCED);
    const asked *late = ask(&w, 1, 0, 0, "late");
    until(&w, late);
    assert_true(late->status == RU_SHARD_FENCED && w.puts == 1);
    ru_store_epoch(w.store, 1); /* nothing of it is there any more */
    const asked *gone = ask(&w, 1, 0, 1, NULL), *fresh = ask(&w, 1, 1, 0, "fresh");
    until(&w, fresh);
    assert_false(gone->done);
    close_world(&w);
}

static void test_refused(void **state)
{
    world w;
    (void)state;
    if (!open_world(&w)) {
        return;
    }
    asked *q = &w.all[w.n++];
    q->n = 3;
    send(&w, q, true, "secret");
    until(&w, q);
    assert_int_equal(q->status, 400);
    asked *cut = ask(&w, 1, 0, 0, "some");
    until(&w, cut);
    cut->done = false;
    cut->n -= 1;
    send(&w, cut, true, "secret");
    until(&w, cut);
    assert_int_equal(cut->status, 400);
    cut->done = false;
    send(&w, cut, true, "another");
    until(&w, cut);
    assert_int_equal(cut->status, 401);
    assert_int_equal(w.puts, 1);
    close_world(&w);
}

RU_TESTS(fleet_store, cmocka_unit_test(test_order), cmocka_unit_test(test_fence),
         cmocka_unit_test(test_refused))
