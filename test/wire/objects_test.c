/* Objects read over loopback from a server that answers wrongly: the bytes are right, or there is
 * one sentence and no byte. */
#include "web/objects.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "bench/reader/range_server.h"
#include "env/file/file.h"
#include "test/scratch.h"
#include "test/test.h"

enum { BYTES = 700001, PIECES = 90 };

typedef struct rig {
    ru_scratch *s;
    ru_range_server *server;
    ru_objects *objects;
    ru_log_options log;
    uint8_t *data; /* [BYTES] */
    char url[256];
} rig;

static const char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

static void save(rig *r, int64_t n)
{
    const char *path = ru_path_join(&r->s->arena, r->s->root, "a file");
    assert_ok(ru_file_replace(path, r->data, n, &r->s->err), r->s->err);
}

static void open_rig(rig *r, void **state, const ru_range_server_options *server,
                     const ru_objects_options *client)
{
    ru_err err = {0};
    *r = (rig){.s = *state};
    r->log = ru_log_get();
    ru_log_options quiet = r->log;
    quiet.level = RU_LOG_OFF;
    ru_log_set(&quiet);
    r->data = ru_arena_alloc(&r->s->arena, BYTES, 1);
    ru_rng rng = ru_rng_from(ru_test_seed(), 3);
    for (uint32_t i = 0; i < BYTES; i++) {
        r->data[i] = (uint8_t)ru_rng_below(&rng, 256);
    }
    save(r, BYTES);
    ru_range_server_options so = *server;
    ru_objects_options co = *client;
    so.dir = r->s->root;
    co.env = no_env;
    co.patience_first_ms = co.patience_first_ms > 0 ? co.patience_first_ms : 3000;
    assert_ok(ru_range_server_open(&so, &r->server, &err), err);
    assert_ok(ru_range_server_start(r->server, &err), err);
    assert_ok(ru_objects_open(&co, &r->objects, &err), err);
    (void)snprintf(r->url, sizeof r->url, "http://127.0.0.1:%u/a%%20file?secret=1",
                   ru_range_server_port(r->server));
}

static void close_rig(rig *r)
{
    ru_objects_close(r->objects);
    ru_range_server_close(r->server);
    ru_log_set(&r->log);
}

/* Pieces of any place and size, many at a time. */
static void read_pieces(rig *r, ru_object *b, uint32_t depth, uint64_t seed)
{
    ru_err err = {0};
    ru_ranges *q = NULL;
    ru_read_piece p[PIECES];
    ru_rng rng = ru_rng_from(seed, 5);
    assert_ok(ru_ranges_open(r->objects, 0, &q, &err), err);
    for (uint32_t k = 0; k < PIECES; k++) {
        int64_t at = ru_rng_below(&rng, BYTES), most = BYTES - at < 40000 ? BYTES - at : 40000;
        int64_t n = 1 + ru_rng_below(&rng, (uint32_t)most);
        p[k] = (ru_read_piece){
            .object = b, .offset = at, .size_bytes = n, .into = ru_arena_alloc(&r->s->arena, n, 1)};
        assert_non_null(p[k].into);
    }
    ru_ranges_begin(q, p, PIECES, depth);
    ru_ranges_end(q);
    for (uint32_t k = 0; k < PIECES; k++) {
        if (p[k].got_bytes != p[k].size_bytes) {
            (void)ru_object_failed(b, &err);
            fail_msg("%lld of %lld bytes: %s", (long long)p[k].got_bytes,
                     (long long)p[k].size_bytes, err.text);
        }
        assert_true(p[k].issued_ns > 0 && p[k].ended_ns >= p[k].issued_ns);
        assert_memory_equal(p[k].into, r->data + p[k].offset, (size_t)p[k].size_bytes);
    }
    ru_ranges_close(q);
}

static void test_reads(void **state)
{
    rig r;
    ru_object *b = NULL;
    ru_err err = {0};
    open_rig(&r, state, &(ru_range_server_options){0}, &(ru_objects_options){.requests_max = 20});
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    assert_int_equal(ru_object_bytes(b), BYTES);
    assert_null(strstr(ru_object_name(b), "secret"));
    uint8_t *all = ru_arena_alloc(&r.s->arena, BYTES, 1), small[100];
    assert_ok(ru_object_read(b, 0, all, BYTES, &err), err);
    assert_memory_equal(all, r.data, BYTES);
    for (int64_t at = 0; at + 100 < BYTES; at += 1777) { /* as an index is read */
        assert_ok(ru_object_read(b, at, small, 100, &err), err);
        assert_memory_equal(small, r.data + at, 100);
    }
    assert_int_equal(ru_object_read(b, BYTES - 99, small, 100, &err), RU_E_DATA);
    assert_int_equal(ru_object_read(b, -1, small, 1, &err), RU_E_DATA);
    read_pieces(&r, b, 1, 1);
    read_pieces(&r, b, 7, 2);
    read_pieces(&r, b, 1000, 3);
    assert_int_equal(ru_objects_count(r.objects).again, 0);
    close_rig(&r);
}

/* As many requests as fit the bound, and not one more; a larger one goes alone. */
static void test_bound(void **state)
{
    enum { BUDGET = 120000, LARGEST = 40000 };
    rig r;
    ru_object *b = NULL;
    ru_err err = {0};
    open_rig(&r, state, &(ru_range_server_options){.delay_ns = 1000000},
             &(ru_objects_options){.bytes_max = BUDGET});
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    read_pieces(&r, b, 1000, 4);
    int64_t most = ru_objects_count(r.objects).outstanding_most;
    assert_true(most > BUDGET - LARGEST && most <= BUDGET);
    uint8_t *all = ru_arena_alloc(&r.s->arena, BYTES, 1);
    assert_ok(ru_object_read(b, 0, all, BYTES, &err), err);
    assert_int_equal(ru_objects_count(r.objects).outstanding_most, BYTES);
    close_rig(&r);
}

/* A request that stands still is sent again, for the bytes that are missing. They are few: libcurl
 * looks at the mean speed of five seconds. */
static void test_stall(void **state)
{
    enum { SIZE = 400 };
    rig r;
    ru_object *b = NULL;
    ru_ranges *q = NULL;
    ru_err err = {0};
    ru_scratch *scratch = *state;
    ru_range_server_options so = {0};
    so.every[RU_RANGE_stall] = 2;
    so.log = ru_path_join(&scratch->arena, scratch->root, "log");
    open_rig(&r, state, &so, &(ru_objects_options){.stall_s = 1});
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    assert_ok(ru_ranges_open(r.objects, 0, &q, &err), err);
    uint8_t got[SIZE];
    ru_read_piece p = {.object = b, .offset = 300000, .size_bytes = SIZE, .into = got};
    ru_ranges_begin(q, &p, 1, 1);
    ru_ranges_end(q);
    assert_int_equal(p.got_bytes, SIZE);
    assert_memory_equal(got, r.data + 300000, SIZE);
    assert_int_equal(ru_objects_count(r.objects).requests, 3);
    assert_int_equal(ru_objects_count(r.objects).again, 1);
    char *asked = NULL;
    int64_t n = 0;
    assert_ok(ru_file_read(so.log, 1 << 20, &r.s->arena, &asked, &n, &err), err);
    assert_non_null(strstr(asked, "Range: bytes=300000-300399\r\n"));
    assert_non_null(strstr(asked, "Range: bytes=300200-300399\r\n"));
    ru_ranges_close(q);
    close_rig(&r);
}

/* What passes when it is tried again. */
static void test_again(void **state)
{
    static const ru_range_fault faults[] = {RU_RANGE_busy,  RU_RANGE_cut,  RU_RANGE_brief,
                                            RU_RANGE_noise, RU_RANGE_wide, RU_RANGE_flood,
                                            RU_RANGE_send};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(faults); k++) {
        rig r;
        ru_object *b = NULL;
        ru_err err = {0};
        ru_range_server_options so = {0};
        so.every[faults[k]] = faults[k] == RU_RANGE_send ? 1 : 13;
        open_rig(&r, state, &so, &(ru_objects_options){0});
        assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
        read_pieces(&r, b, 16, 10 + k);
        bool again = ru_objects_count(r.objects).again > 0;
        assert_int_equal(again, faults[k] != RU_RANGE_send);
        close_rig(&r);
    }
}

/* What never passes: the first answer says so. */
static void test_refused(void **state)
{
    static const struct {
        ru_range_fault fault;
        ru_status status;
        const char *words;
    } rows[] = {{RU_RANGE_whole, RU_E_UNSUPPORTED, "whole file"},
                {RU_RANGE_gzip, RU_E_UNSUPPORTED, "compressed"},
                {RU_RANGE_lie, RU_E_UNSUPPORTED, "Content-Range"},
                {RU_RANGE_mute, RU_E_UNSUPPORTED, "Content-Range"},
                {RU_RANGE_forbid, RU_E_PERM, "refuses access"},
                {RU_RANGE_busy, RU_E_PEER, "503"},
                {RU_RANGE_noise, RU_E_PEER, "no answer for"}};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        rig r;
        ru_object *b = NULL;
        ru_err err = {0};
        ru_range_server_options so = {0};
        so.every[rows[k].fault] = 1;
        open_rig(&r, state, &so, &(ru_objects_options){.patience_first_ms = 150});
        assert_int_equal(ru_object_open(r.objects, r.url, &b, &err), rows[k].status);
        if (strstr(err.text, rows[k].words) == NULL || strstr(err.text, "secret") != NULL) {
            fail_msg("%s", err.text);
        }
        close_rig(&r);
    }
}

static void test_addresses(void **state)
{
    rig r;
    ru_object *b = NULL;
    ru_err err = {0};
    open_rig(&r, state, &(ru_range_server_options){0},
             &(ru_objects_options){.patience_first_ms = 100});
    char url[300];
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/none", ru_range_server_port(r.server));
    assert_int_equal(ru_object_open(r.objects, url, &b, &err), RU_E_MISSING);
    assert_int_equal(ru_object_open(r.objects, "http://127.0.0.1:1/x", &b, &err), RU_E_PEER);
    assert_int_equal(ru_object_open(r.objects, "http://me:pass@127.0.0.1/x", &b, &err),
                     RU_E_CONFIG);
    assert_null(strstr(err.text, "pass@"));
    save(&r, 0); /* nothing in it */
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    assert_int_equal(ru_object_bytes(b), 0);
    close_rig(&r);
}

/* Another version of the object: no byte of it, now and later. */
static void check_changed(void **state, bool twist, int64_t size)
{
    rig r;
    ru_object *b = NULL;
    ru_err err = {0};
    ru_range_server_options so = {0};
    uint8_t got[50000];
    so.every[RU_RANGE_twist] = twist ? 2 : 0;
    open_rig(&r, state, &so, &(ru_objects_options){0});
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    if (!twist) {
        r.data[100000] ^= 1;
        save(&r, size);
    }
    assert_int_equal(ru_object_read(b, 100000, got, sizeof got, &err), RU_E_DATA);
    if (strstr(err.text, "changed while it was read") == NULL) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(ru_object_read(b, 200000, got, sizeof got, &err), RU_E_DATA);
    assert_int_equal(ru_object_failed(b, &err), RU_E_DATA);
    close_rig(&r);
}

static void test_changed(void **state)
{
    check_changed(state, true, BYTES);
    check_changed(state, false, BYTES);
    check_changed(state, false, BYTES - 1);
    check_changed(state, false, 1000);
}

/* A store that is away does not hold up the end of a stream. */
static void test_cancel(void **state)
{
    rig r;
    ru_object *b = NULL;
    ru_ranges *q = NULL;
    ru_err err = {0};
    ru_range_server_options so = {0};
    so.every[RU_RANGE_stall] = 2;
    open_rig(&r, state, &so, &(ru_objects_options){.stall_s = 100});
    assert_ok(ru_object_open(r.objects, r.url, &b, &err), err);
    assert_ok(ru_ranges_open(r.objects, 0, &q, &err), err);
    uint8_t got[2][50000];
    ru_read_piece p[2] = {{.object = b, .size_bytes = 50000, .into = got[0]},
                          {.object = b, .size_bytes = 50000, .into = got[1]}};
    ru_ranges_begin(q, p, 2, 1);
    ru_ranges_cancel(q);
    ru_ranges_end(q);
    assert_int_equal(p[1].got_bytes, -1);
    assert_int_equal(ru_object_failed(b, &err), RU_OK);
    ru_ranges_close(q);
    close_rig(&r);
}

#define F(t) cmocka_unit_test_setup_teardown(t, ru_scratch_open, ru_scratch_close)
RU_TESTS(test_objects, F(test_reads), F(test_bound), F(test_stall), F(test_again), F(test_refused),
         F(test_addresses), F(test_changed), F(test_cancel))
