#include "serve/server.h"

#include <arpa/inet.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/thread.h"
#include "serve/server_impl.h"
#include "test/scratch.h"
#include "test/test.h"
#include "world/graph/build.h"

/* A model: s = a + a, k = item i of a table of 4 (an index out of it fails its run). */
typedef struct toy {
    uint32_t closed, graphs;
    bool breaks, alone; /* alone: it takes one row */
    ru_flag waits, go;  /* waits: it computes when `go` is set */
} toy;

static ru_status toy_graph(void *self, int64_t rows, int64_t length, ru_arena *arena, ru_graph *out,
                           ru_err *err)
{
    static const float table[] = {10, 11, 12, 13};
    toy *t = self;
    (void)length;
    t->graphs++;
    if (t->breaks || (t->alone && rows > 1)) {
        return RU_FAIL(err, RU_E_DATA, "the toy is broken");
    }
    RU_TRY(ru_graph_init(out, arena, "toy", err));
    ru_build b;
    ru_build_init(&b, out);
    const int64_t four[] = {4}, ab[] = {rows, 2}, i1[] = {rows};
    ru_value_id a = ru_build_input(&b, "a", ru_type_make(RU_F32, 2, ab));
    ru_value_id i = ru_build_input(&b, "i", ru_type_make(RU_I64, 1, i1));
    ru_value_id c = ru_build_const(&b, ru_type_make(RU_F32, 1, four), table);
    ru_build_output(&b, ru_build_op2(&b, RU_OP_Add, a, a, NULL), "s");
    ru_build_output(&b, ru_build_op2(&b, RU_OP_Gather, c, i, (ru_attr[]){RU_AI(axis, 0), RU_A_END}),
                    "k");
    return ru_build_finish(&b, err);
}

static void toy_before(void *self, void *rows, int64_t n)
{
    toy *t = self;
    (void)rows;
    (void)n;
    while (ru_flag_get(&t->waits) != 0 && ru_flag_get(&t->go) == 0) {
        (void)sched_yield();
    }
}

static void toy_close(void *self)
{
    toy *t = self;
    t->closed++;
}

static const ru_source_ops toy_ops = {
    .name = "toy", .graph = toy_graph, .before = toy_before, .close = toy_close};
static const ru_source_ops short_ops = {.name = "toy", .graph = toy_graph, .close = toy_close};

typedef struct world {
    ru_arena arena;
    ru_loop *loop;
    ru_server *server;
    toy toy;
    uint32_t loaded, failed, stopped;
    uint32_t opens; /* of a repository */
    ru_flag go;     /* its second open may end */
    char answer[1 << 16];
} world;

static ru_status toy_open(void *self, const char *path, ru_source *out, ru_err *err)
{
    world *w = self;
    (void)err;
    assert_string_equal(path, "a path");
    *out = (ru_source){.ops = &toy_ops, .self = &w->toy};
    return RU_OK;
}

/* Its batches are computed by the loop. */
static ru_status short_open(void *self, const char *path, ru_source *out, ru_err *err)
{
    RU_TRY(toy_open(self, path, out, err));
    out->ops = &short_ops;
    return RU_OK;
}

/* The second one is damaged, and stays open until the test has asked for more. */
static ru_status repository_open(void *self, const char *path, ru_source *out, ru_err *err)
{
    world *w = self;
    if (++w->opens == 2) {
        while (ru_flag_get(&w->go) == 0) {
            (void)sched_yield();
        }
        return RU_FAIL(err, RU_E_DATA, "%s is damaged", path);
    }
    *out = (ru_source){.ops = &toy_ops, .self = &w->toy};
    return RU_OK;
}

static void on_loaded(void *self, const ru_err *err)
{
    world *w = self;
    w->loaded += err == NULL ? 1 : 0;
    w->failed += err != NULL ? 1 : 0;
}

static void on_stopped(void *self)
{
    world *w = self;
    w->stopped++;
}

static void turn(world *w, const uint32_t *count)
{
    ru_err err = {0};
    for (uint32_t k = 0; k < 4000 && *count == 0; k++) {
        assert_ok(ru_loop_round(w->loop, 5000000, &err), err);
    }
    assert_int_equal(*count, 1);
}

typedef ru_status (*open_fn)(void *self, const char *path, ru_source *out, ru_err *err);

static bool open_world_within(world *w, open_fn open, ru_server_options o)
{
    ru_err err = {0};
    *w = (world){0};
    ru_arena_init(&w->arena, 0);
    assert_ok(ru_loop_open(&w->loop, &err), err);
    o.loop = w->loop;
    o.listen = "0";
    o.open = open;
    o.open_self = w;
    o.served = (ru_served_options){.exe = {.threads = 1}, .instances = 2, .rows_max = 8};
    ru_status st = ru_server_open(&o, &w->arena, &w->server, &err);
    if (st == RU_E_UNSUPPORTED) {
        ru_loop_close(w->loop);
        ru_arena_fini(&w->arena);
        return false; /* no libmicrohttpd here */
    }
    assert_ok(st, err);
    return true;
}

static bool open_world_of(world *w, open_fn open)
{
    return open_world_within(w, open, (ru_server_options){0});
}

static bool open_world(world *w)
{
    return open_world_of(w, toy_open);
}

static void load_toy(world *w)
{
    ru_err err = {0};
    assert_ok(ru_server_load(w->server, "toy", "1", "a path", on_loaded, w, &err), err);
}

static void close_world_of(world *w, uint32_t opened)
{
    ru_server_close(w->server);
    ru_loop_close(w->loop);
    ru_arena_fini(&w->arena);
    assert_int_equal(w->toy.closed, opened);
}

static void close_world(world *w)
{
    close_world_of(w, 1);
}

static int dial(const world *w)
{
    const char *colon = strrchr(ru_server_address(w->server), ':');
    int64_t port = 0;
    assert_true(ru_str_i64(ru_str_c(colon + 1), &port));
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static void ask(int fd, const char *method, const char *path, const char *body)
{
    char head[256];
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\n\r\n",
                     method, path, strlen(body));
    assert_int_equal(send(fd, head, (size_t)n, MSG_NOSIGNAL), n);
    assert_int_equal(send(fd, body, strlen(body), MSG_NOSIGNAL), strlen(body));
}

/* Head and body of an answer; its body. */
static const char *hear(world *w, int fd)
{
    ru_err err = {0};
    size_t n = 0;
    const char *body = NULL;
    w->answer[0] = '\0';
    for (uint32_t k = 0; k < 4000; k++) {
        assert_ok(ru_loop_round(w->loop, 5000000, &err), err);
        ssize_t got = recv(fd, w->answer + n, sizeof w->answer - 1 - n, MSG_DONTWAIT);
        n += got > 0 ? (size_t)got : 0;
        w->answer[n] = '\0';
        const char *length = strstr(w->answer, "Content-Length: ");
        body = strstr(w->answer, "\r\n\r\n");
        int64_t bytes = -1;
        if (body != NULL && length != NULL) {
            ru_str line = ru_str_c(length + 16), number;
            assert_true(ru_str_next(&line, '\r', &number) && ru_str_i64(number, &bytes));
            if ((int64_t)strlen(body + 4) >= bytes) {
                return body + 4;
            }
        }
    }
    fail_msg("no answer: %s", w->answer);
    return NULL;
}

static const char *get(world *w, int fd, const char *path)
{
    ask(fd, "GET", path, "");
    return hear(w, fd);
}

#define GOOD "{" GOOD_MEMBERS
#define GOOD_MEMBERS                                                                             \
    "\"inputs\":[{\"name\":\"a\",\"shape\":[3,2],\"datatype\":\"FP32\",\"data\":[1,2,3,4,5,6]}," \
    "{\"name\":\"i\",\"shape\":[3],\"datatype\":\"INT64\",\"data\":[3,0,1]}]}"

/* After what `speaks_the_protocol` asked: one request that is too late, then every count. */
static void counts_what_came(world *w, int fd)
{
    ask(fd, "POST", "/v2/models/toy/infer",
        "{\"parameters\":{\"timeout\":1}," GOOD_MEMBERS); /* a microsecond */
    assert_non_null(strstr(hear(w, fd), "not computed"));
    assert_non_null(strstr(w->answer, " 504 "));
    assert_non_null(
        strstr(get(w, fd, "/v2/models/toy/stats"), "\"inference_count\":4,\"execution_count\":2,"));
    assert_null(strstr(w->answer, "\"last_inference\":0,"));
    assert_non_null(strstr(get(w, fd, "/v2/models/stats"), "\"success\":{\"count\":1,"));
    const char *page = get(w, fd, "/metrics");
    assert_non_null(strstr(page, "_batch_rows_count{model=\"toy\",version=\"1\"} 2\n"));
    assert_non_null(strstr(page, "refused_total{model=\"toy\",version=\"1\",reason=\"bad\"} 4\n"));
    assert_non_null(strstr(page, "refused_total{model=\"toy\",version=\"1\",reason=\"late\"} 1\n"));
    assert_non_null(strstr(page, "rubato_serve_requests{model=\"toy\",version=\"1\"} 0\n"));
}

static void speaks_the_protocol(void **state)
{
    (void)state;
    world w;
    if (!open_world(&w)) {
        skip();
    }
    int fd = dial(&w);
    assert_non_null(strstr(get(&w, fd, "/v2/health/live"), "true"));
    (void)get(&w, fd, "/v2/health/ready");
    assert_non_null(strstr(w.answer, " 503 "));
    load_toy(&w);
    turn(&w, &w.loaded);
    assert_non_null(strstr(get(&w, fd, "/v2/health/ready"), "\"ready\":true"));
    assert_non_null(strstr(get(&w, fd, "/v2"), "binary_tensor_data"));
    assert_non_null(strstr(get(&w, fd, "/v2/models/toy/versions/1/ready"), "\"name\":\"toy\""));
    assert_non_null(strstr(get(&w, fd, "/v2/models/toy/stats"), "\"last_inference\":0,"));
    assert_string_equal(
        get(&w, fd, "/v2/models/toy"),
        "{\"name\":\"toy\",\"versions\":[\"1\"],\"platform\":\"toy\",\"inputs\":[{\"name\":\"a\","
        "\"datatype\":\"FP32\",\"shape\":[-1,2]},{\"name\":\"i\",\"datatype\":\"INT64\","
        "\"shape\":[-1]}],\"outputs\":[{\"name\":\"s\",\"datatype\":\"FP32\",\"shape\":[-1,2]},"
        "{\"name\":\"k\",\"datatype\":\"FP32\",\"shape\":[-1]}]}");
    assert_non_null(strstr(get(&w, fd, "/v2/models/toy/config"),
                           "\"input\":[{\"name\":\"a\",\"data_type\":\"TYPE_FP32\",\"dims\":[2]},"
                           "{\"name\":\"i\",\"data_type\":\"TYPE_INT64\",\"dims\":[]}],"));
    ask(fd, "POST", "/v2/models/toy/infer", GOOD);
    assert_string_equal(
        hear(&w, fd),
        "{\"model_name\":\"toy\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"s\","
        "\"datatype\":\"FP32\",\"shape\":[3,2],\"data\":[2,4,6,8,10,12]},{\"name\":\"k\","
        "\"datatype\":\"FP32\",\"shape\":[3],\"data\":[13,10,11]}]}");
    static const struct {
        const char *method, *path, *body, *says;
        int status;
    } bad[] = {
        {"GET", "/v3", "", "/v2", 404},
        {"GET", "/v2/models/none", "", "no model none", 404},
        {"POST", "/v2/models/toy/versions/2/infer", GOOD, "no model toy", 404},
        {"GET", "/v2/models/toy/else", "", "infer, generate, ready, config and stats", 404},
        {"GET", "/v2/models/toy/infer", "", "asked by POST", 405},
        {"GET", "/v2/repository/index", "", "asked by POST", 405},
        {"PUT", "/v2/health/live", "", "asked by GET", 405},
        {"PUT", "/", "", "asked by GET", 405},
        {"POST", "/metrics", "", "asked by GET", 405},
        {"POST", "/v2/rubato/explain/p99/json", "", "asked by GET", 405},
        {"GET", "/v2/rubato/beside", "", "asked by POST", 405},
        {"POST", "/v2/models/toy/infer", "{", "damaged", 400},
        {"POST", "/v2/models/toy/infer", "{\"inputs\":[]}", "no input 'a'", 400},
        {"POST", "/v2/models/toy/infer",
         "{\"inputs\":[{\"name\":\"a\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1,2]},"
         "{\"name\":\"i\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[9]}]}",
         "9", 400},
        {"POST", "/v2/models/toy/infer",
         "{\"inputs\":[{\"name\":\"a\",\"shape\":[1,3],\"datatype\":\"FP32\",\"data\":[1,2,3]}]}",
         "but the model takes f32[2]", 400},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(bad); k++) {
        char status[8];
        ask(fd, bad[k].method, bad[k].path, bad[k].body);
        const char *body = hear(&w, fd);
        snprintf(status, sizeof status, " %d ", bad[k].status);
        if (strstr(w.answer, status) == NULL || strstr(body, bad[k].says) == NULL) {
            fail_msg("%s %s: %s", bad[k].path, bad[k].body, w.answer);
        }
        const char *allow =
            strstr(bad[k].says, "by GET") ? "Allow: GET, HEAD\r\n" : "Allow: POST\r\n";
        assert_true((strstr(w.answer, allow) != NULL) == (bad[k].status == 405));
    }
    counts_what_came(&w, fd);
    close(fd);
    close_world(&w);
}

/* A request of more rows than a batch, one that leaves, and the end: everything is answered once.
 */
static void drains(void **state)
{
    (void)state;
    world w;
    if (!open_world(&w)) {
        skip();
    }
    load_toy(&w);
    turn(&w, &w.loaded);
    int fd = dial(&w), left = dial(&w);
    char body[4096];
    ru_text t = ru_text_into(body, sizeof body);
    ru_text_put(&t, "{\"inputs\":[{\"name\":\"a\",\"shape\":[50,2],\"datatype\":\"FP32\","
                    "\"data\":[");
    for (uint32_t k = 0; k < 100; k++) {
        ru_text_putf(&t, "%s%u", k > 0 ? "," : "", k);
    }
    ru_text_put(&t, "]},{\"name\":\"i\",\"shape\":[50],\"datatype\":\"INT64\",\"data\":[");
    for (uint32_t k = 0; k < 50; k++) {
        ru_text_putf(&t, "%s%u", k > 0 ? "," : "", k % 4);
    }
    ru_text_put(&t, "]}],\"outputs\":[{\"name\":\"k\"}]}");
    ask(left, "POST", "/v2/models/toy/infer", GOOD);
    close(left);
    ask(fd, "POST", "/v2/models/toy/infer", body);
    const char *got = hear(&w, fd);
    assert_non_null(strstr(got, "\"shape\":[50],\"data\":[10,11,12,13,10,"));
    assert_non_null(strstr(got, "12,13,10,11]}]}"));
    ru_server_stop(w.server, on_stopped, &w);
    turn(&w, &w.stopped);
    ask(fd, "POST", "/v2/models/toy/infer", GOOD);
    (void)hear(&w, fd);
    assert_non_null(strstr(w.answer, " 503 "));
    close(fd);
    close_world(&w);
}

/* Batches that the loop computes itself: the answers of a thread, also for a row that fails, and no
 * time that is less than none. */
static void computes_short_batches_itself(void **state)
{
    (void)state;
    world w;
    if (!open_world_of(&w, short_open)) {
        skip();
    }
    load_toy(&w);
    turn(&w, &w.loaded);
    int fd = dial(&w), other = dial(&w);
    const rui_version *v = w.server->versions;
    while (!v->grown) {
        (void)get(&w, fd, "/v2/health/live");
    }
    for (uint32_t k = 0; k < 8; k++) {
        ask(fd, "POST", "/v2/models/toy/infer", GOOD);
        ask(other, "POST", "/v2/models/toy/infer",
            "{\"id\":\"b\",\"inputs\":[{\"name\":\"a\",\"shape\":[1,2],\"datatype\":\"FP32\","
            "\"data\":[1,2]},{\"name\":\"i\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[9]}]}");
        assert_non_null(strstr(hear(&w, fd), "[13,10,11]"));
        (void)hear(&w, other);
        assert_non_null(strstr(w.answer, " 400 "));
    }
    const char *page = get(&w, fd, "/v2/rubato/explain/b/json");
    assert_non_null(strstr(page, "\"answered_s\":"));
    assert_null(strstr(page, "_s\":-"));
    ru_server_stop(w.server, on_stopped, &w);
    turn(&w, &w.stopped);
    close(fd);
    close(other);
    close_world(&w);
}

static void says_why_a_model_failed(void **state)
{
    (void)state;
    world w;
    if (!open_world(&w)) {
        skip();
    }
    w.toy.breaks = true;
    load_toy(&w);
    turn(&w, &w.failed);
    int fd = dial(&w);
    ask(fd, "POST", "/v2/models/toy/infer", GOOD);
    assert_non_null(strstr(hear(&w, fd), "not ready: the toy is broken"));
    close(fd);
    close_world(&w);
}

static void serves_a_model_of_one_row(void **state)
{
    (void)state;
    world w;
    if (!open_world(&w)) {
        skip();
    }
    w.toy.alone = true;
    load_toy(&w);
    turn(&w, &w.loaded);
    int fd = dial(&w);
    assert_non_null(strstr(get(&w, fd, "/v2/models/toy"), "\"shape\":[1,2]"));
    ask(fd, "POST", "/v2/models/toy/infer",
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[1,2],\"datatype\":\"FP32\",\"data\":[1,2]},"
        "{\"name\":\"i\",\"shape\":[1],\"datatype\":\"INT64\",\"data\":[3]}]}");
    assert_non_null(strstr(hear(&w, fd), "\"data\":[13]"));
    close(fd);
    close_world(&w);
}

/* Two versions of a model. While they are loaded again the old ones answer, also when the first new
 * one is ready; the second fails, so they stay. Pages have one row for each of them. */
static void a_load_is_whole_or_nothing(void **state)
{
    ru_scratch *t = *state;
    static const char config[] = "version_policy { all { } }", ready[] = "\"ready\":true";
    world w;
    if (!open_world_of(&w, repository_open)) {
        skip();
    }
    w.opens = UINT32_MAX - 1; /* the fourth is damaged */
    for (const char *const *v = (const char *const[]){"m/1", "m/2", NULL}; *v != NULL; v++) {
        const char *version = ru_path_join(&t->arena, t->root, *v);
        assert_non_null(version);
        assert_ok(ru_dir_make(version, &t->err), t->err);
    }
    const char *path = ru_path_join(&t->arena, t->root, "m/config.pbtxt");
    assert_non_null(path);
    assert_ok(ru_file_replace(path, config, sizeof config - 1, &t->err), t->err);
    assert_ok(ru_server_repository(w.server, t->root, &t->err), t->err);
    int a = dial(&w), fd = dial(&w);
    while (strstr(get(&w, fd, "/v2/models/m/versions/1/ready"), ready) == NULL ||
           strstr(get(&w, fd, "/v2/models/m/versions/2/ready"), ready) == NULL) {
    }
    ask(a, "POST", "/v2/repository/models/m/load", "");
    for (uint32_t n = 0; n < 3;) { /* until one of the new ones is ready */
        ask(fd, "POST", "/v2/repository/index", "");
        n = 0;
        for (const char *p = strstr(hear(&w, fd), "READY"); p != NULL; p = strstr(p + 1, "READY")) {
            n++;
        }
    }
    for (uint32_t version = 1; version <= 2; version++) {
        char infer[64];
        snprintf(infer, sizeof infer, "/v2/models/m/versions/%u/infer", version);
        ask(fd, "POST", infer, GOOD);
        assert_non_null(strstr(hear(&w, fd), "[13,10,11]"));
    }
    const char *row = strstr(get(&w, fd, "/metrics"), "promise_seconds{model=\"m\",version=\"1\"");
    assert_true(row != NULL &&
                strstr(row + 1, "promise_seconds{model=\"m\",version=\"1\"") == NULL);
    ru_flag_set(&w.go, 1);
    assert_non_null(strstr(hear(&w, a), "is damaged"));
    const char *stats = get(&w, fd, "/v2/models/m/stats");
    stats = strstr(stats, "\"success\":{\"count\":1,");
    assert_true(stats != NULL && strstr(stats + 1, "\"success\":{\"count\":1,") != NULL);
    close(a);
    close(fd);
    close_world_of(&w, 3);
}

/* Two loads of a model at one time, of which the first fails: the second goes on. */
static void a_load_ends_no_later_one(void **state)
{
    ru_scratch *t = *state;
    static const char again[] = "/v2/repository/models/m/load";
    world w;
    if (!open_world_of(&w, repository_open)) {
        skip();
    }
    const char *version = ru_path_join(&t->arena, t->root, "m/1");
    assert_non_null(version);
    assert_ok(ru_dir_make(version, &t->err), t->err);
    assert_ok(ru_server_repository(w.server, t->root, &t->err), t->err);
    int a = dial(&w), b = dial(&w), fd = dial(&w);
    while (strstr(get(&w, fd, "/v2/models/m/ready"), "\"ready\":true") == NULL) {
    }
    ask(a, "POST", again, "");
    ask(b, "POST", again, "");
    for (const char *loading = NULL; loading == NULL;) { /* until both are there */
        ask(fd, "POST", "/v2/repository/index", "");
        loading = strstr(hear(&w, fd), "LOADING");
        loading = loading != NULL ? strstr(loading + 1, "LOADING") : NULL;
    }
    ru_flag_set(&w.go, 1);
    assert_non_null(strstr(hear(&w, a), "is damaged"));
    assert_string_equal(hear(&w, b), "{}");
    ask(fd, "POST", "/v2/models/m/infer", GOOD);
    assert_non_null(strstr(hear(&w, fd), "[13,10,11]"));
    close(a);
    close(b);
    close(fd);
    close_world_of(&w, 2);
}

/* Who asked for a load that a stop ends hears so. */
static void a_stop_ends_loads(void **state)
{
    ru_scratch *t = *state;
    world w;
    if (!open_world_of(&w, repository_open)) {
        skip();
    }
    const char *version = ru_path_join(&t->arena, t->root, "m/1");
    assert_non_null(version);
    assert_ok(ru_dir_make(version, &t->err), t->err);
    assert_ok(ru_server_repository(w.server, t->root, &t->err), t->err);
    int a = dial(&w), fd = dial(&w);
    while (strstr(get(&w, fd, "/v2/models/m/ready"), "\"ready\":true") == NULL) {
    }
    ask(a, "POST", "/v2/repository/models/m/load", ""); /* until `go` */
    do {
        ask(fd, "POST", "/v2/repository/index", "");
    } while (strstr(hear(&w, fd), "LOADING") == NULL);
    ru_server_stop(w.server, on_stopped, &w);
    assert_non_null(strstr(hear(&w, a), "the server stops"));
    assert_non_null(strstr(w.answer, " 503 "));
    turn(&w, &w.stopped);
    ru_flag_set(&w.go, 1);
    close(a);
    close(fd);
    close_world(&w);
}

/* A model that opens for too long has failed, though it opens in the end. */
static void a_load_has_an_end(void **state)
{
    (void)state;
    world w;
    if (!open_world_within(&w, repository_open, (ru_server_options){.load_max_ns = 1000000})) {
        skip();
    }
    w.opens = 1; /* the next one waits for `go` */
    int fd = dial(&w);
    load_toy(&w);
    turn(&w, &w.failed);
    (void)get(&w, fd, "/v2/models/toy/ready");
    assert_non_null(strstr(w.answer, " 503 "));
    assert_non_null(strstr(w.answer, "not open after the 0.001 s that --load-max allows"));
    ru_flag_set(&w.go, 1);
    ru_server_stop(w.server, on_stopped, &w);
    turn(&w, &w.stopped);
    assert_int_equal(w.loaded, 0);
    assert_int_equal(close(fd), 0);
    close_world_of(&w, 0);
}

/* Every door of a model that does not answer yet, or no more, says why, and when to come again
 * where that helps. */
static void expect_not_ready(world *w, int fd, const char *why, bool again)
{
    static const char *const doors[][3] = {
        {"GET", "/v2/models/toy", ""},
        {"GET", "/v2/models/toy/ready", ""},
        {"GET", "/v2/models/toy/config", ""},
        {"GET", "/v2/models/toy/versions/1/ready", ""},
        {"POST", "/v2/models/toy/infer", GOOD},
        {"POST", "/v2/models/toy/generate", "{\"text_input\":\"a\"}"},
        {"POST", "/v2/models/toy/generate_stream", "{\"text_input\":\"a\"}"},
        {"POST", "/v1/completions", "{\"prompt\":\"a\"}"},
        {"POST", "/v1/completions", "{\"prompt\":\"a\",\"model\":\"toy\",\"stream\":true}"},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(doors); k++) {
        ask(fd, doors[k][0], doors[k][1], doors[k][2]);
        assert_non_null(strstr(hear(w, fd), why));
        assert_non_null(strstr(w->answer, " 503 "));
        assert_true((strstr(w->answer, "Retry-After: 1\r\n") != NULL) == again);
    }
    (void)get(w, fd, "/v2/health/ready");
    assert_non_null(strstr(w->answer, " 503 "));
    assert_non_null(strstr(w->answer, "Retry-After: 1\r\n"));
    assert_string_equal(get(w, fd, "/v2/models/toy/stats"), "{\"model_stats\":[]}");
    assert_string_equal(get(w, fd, "/v1/models"), "{\"object\":\"list\",\"data\":[]}");
}

static void a_model_that_is_not_ready_says_so(void **state)
{
    (void)state;
    world w;
    if (!open_world_of(&w, repository_open)) {
        skip();
    }
    w.opens = 1; /* the next one waits for `go`, and fails */
    int fd = dial(&w);
    load_toy(&w);
    expect_not_ready(&w, fd, "it loads", true);
    ask(fd, "POST", "/v2/repository/index", "");
    assert_non_null(strstr(hear(&w, fd), "\"LOADING\""));
    ru_flag_set(&w.go, 1);
    turn(&w, &w.failed);
    expect_not_ready(&w, fd, "a path is damaged", false);
    w.toy = (toy){0};
    load_toy(&w);
    turn(&w, &w.loaded);
    ask(fd, "POST", "/v1/completions", "{\"prompt\":\"a\",\"model\":\"toy\"}");
    assert_non_null(strstr(hear(&w, fd), "writes no texts"));
    ru_server_stop(w.server, on_stopped, &w);
    turn(&w, &w.stopped);
    ask(fd, "POST", "/v1/completions", "{\"prompt\":\"a\",\"model\":\"toy\"}");
    assert_non_null(strstr(hear(&w, fd), "the server stops"));
    assert_non_null(strstr(w.answer, "Retry-After: 1\r\n"));
    assert_int_equal(close(fd), 0);
    close_world_of(&w, 1);
}

/* Outputs have 12 bytes a row, all requests together at most 36. */
static void outputs_have_a_bound(void **state)
{
    (void)state;
    world w;
    if (!open_world_within(&w, toy_open, (ru_server_options){.outputs_max_bytes = 36})) {
        skip();
    }
    load_toy(&w);
    turn(&w, &w.loaded);
    int a = dial(&w), b = dial(&w);
    ask(b, "POST", "/v2/models/toy/infer",
        "{\"inputs\":[{\"name\":\"a\",\"shape\":[4,2],\"datatype\":\"FP32\",\"data\":[1,2,3,4,5,6,"
        "7,"
        "8]},{\"name\":\"i\",\"shape\":[4],\"datatype\":\"INT64\",\"data\":[0,0,0,0]}]}");
    assert_non_null(strstr(hear(&w, b), "at most 3 rows, not 4"));
    assert_non_null(strstr(w.answer, " 400 "));
    for (uint32_t round = 0; round < 2; round++) { /* what was held is given back */
        ru_flag_set(&w.toy.go, 0);
        ru_flag_set(&w.toy.waits, 1);
        ask(a, "POST", "/v2/models/toy/infer", GOOD);
        while (strstr(get(&w, b, "/metrics"), "serve_requests{model=\"toy\",version=\"1\"} 1\n") ==
               NULL) {
        }
        ask(b, "POST", "/v2/models/toy/infer", GOOD);
        assert_non_null(strstr(hear(&w, b), "outputs of other requests"));
        assert_non_null(strstr(w.answer, " 503 "));
        ru_flag_set(&w.toy.go, 1);
        assert_non_null(strstr(hear(&w, a), "[13,10,11]"));
    }
    close(a);
    close(b);
    close_world(&w);
}

/* What would be refused anyway is not read, but for what may say that it is urgent. */
static void a_full_server_reads_nothing(void **state)
{
    (void)state;
    world w;
    if (!open_world_within(
            &w, toy_open,
            (ru_server_options){.requests_max = 1, .slo_ns = INT64_C(3600000000000)})) {
        skip();
    }
    load_toy(&w);
    turn(&w, &w.loaded);
    int a = dial(&w), b = dial(&w);
    while (!w.server->versions->grown) {
        (void)get(&w, b, "/v2/health/live");
    }
    ask(b, "POST", "/v2/models/toy/infer", "no JSON");
    assert_non_null(strstr(hear(&w, b), "JSON"));
    assert_non_null(strstr(w.answer, " 400 "));
    ru_flag_set(&w.toy.waits, 1);
    ask(a, "POST", "/v2/models/toy/infer", GOOD);
    while (strstr(get(&w, b, "/metrics"), "serve_requests{model=\"toy\",version=\"1\"} 1\n") ==
           NULL) {
    }
    for (uint32_t k = 0; k < 2; k++) {
        ask(b, "POST", "/v2/models/toy/infer", "no JSON");
        assert_non_null(strstr(hear(&w, b), "too many requests wait"));
        assert_true(strstr(w.answer, " 429 ") && strstr(w.answer, "Retry-After: "));
    }
    ask(b, "POST", "/v2/models/toy/infer", "no \"priority\"");
    (void)hear(&w, b);
    assert_non_null(strstr(w.answer, " 400 "));
    assert_non_null(strstr(get(&w, b, "/metrics"), "reason=\"full\"} 2\n"));
    ru_flag_set(&w.toy.go, 1);
    assert_non_null(strstr(hear(&w, a), "[13,10,11]"));
    ask(b, "POST", "/v2/models/toy/infer", "no JSON");
    (void)hear(&w, b);
    assert_non_null(strstr(w.answer, " 400 "));
    close(a);
    close(b);
    close_world(&w);
}

#define ROWS_OF(n, a, i)                                                                  \
    "{\"inputs\":[{\"name\":\"a\",\"shape\":[" n ",2],\"datatype\":\"FP32\",\"data\":[" a \
    "]},{\"name\":\"i\",\"shape\":[" n "],\"datatype\":\"INT64\",\"data\":[" i "]}]}"

/* Of those that come in one round of the loop: the middle one is refused, the others are not. */
static void a_large_request_holds_nobody_up(void **state)
{
    (void)state;
    enum { SMALL = 2, CONNS = 5 };
    static const int64_t minutes = INT64_C(60000000000);
    static const char one[] = ROWS_OF("1", "1,2", "3");
    static const char eight[] = ROWS_OF("8", "1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8", "0,0,0,0,0,0,0,0");
    world w;
    if (!open_world_within(&w, toy_open, (ru_server_options){.slo_ns = 60 * minutes})) {
        skip();
    }
    load_toy(&w);
    turn(&w, &w.loaded);
    int fd[CONNS];
    for (uint32_t k = 0; k < CONNS; k++) {
        fd[k] = dial(&w);
        (void)get(&w, fd[k], "/v2/health/live");
    }
    rui_version *v = w.server->versions;
    while (!v->grown) {
        (void)get(&w, fd[0], "/v2/health/live");
    }
    for (uint32_t k = 0; k < RU_SERVE_SIZES; k++) {
        v->service_ns[k] = (k == 0 ? 20 : 40) * minutes;
    }
    rui_infer_pace(v);
    assert_int_equal(v->pace.batch, 1);
    ru_flag_set(&w.toy.waits, 1);
    for (uint32_t k = 0; k < SMALL; k++) { /* both instances have work */
        ask(fd[k], "POST", "/v2/models/toy/infer", one);
    }
    while (strstr(get(&w, fd[CONNS - 1], "/metrics"),
                  "serve_requests{model=\"toy\",version=\"1\"} 2\n") == NULL) {
    }
    for (uint32_t k = SMALL; k < CONNS; k++) {
        ask(fd[k], "POST", "/v2/models/toy/infer", k == 3 ? eight : one);
    }
    assert_non_null(strstr(hear(&w, fd[3]), "too many requests wait"));
    ru_flag_set(&w.toy.go, 1);
    for (uint32_t k = 0; k < CONNS; k++) {
        assert_true(k == 3 || strstr(hear(&w, fd[k]), "[13]") != NULL);
        close(fd[k]);
    }
    close_world(&w);
}

RU_TESTS(
    serve_server, cmocka_unit_test(a_full_server_reads_nothing),
    cmocka_unit_test(a_large_request_holds_nobody_up),
    cmocka_unit_test(a_model_that_is_not_ready_says_so), cmocka_unit_test(outputs_have_a_bound),
    cmocka_unit_test(a_load_has_an_end), cmocka_unit_test(speaks_the_protocol),
    cmocka_unit_test(drains), cmocka_unit_test(computes_short_batches_itself),
    cmocka_unit_test(says_why_a_model_failed), cmocka_unit_test(serves_a_model_of_one_row),
    cmocka_unit_test_setup_teardown(a_load_is_whole_or_nothing, ru_scratch_open, ru_scratch_close),
    cmocka_unit_test_setup_teardown(a_stop_ends_loads, ru_scratch_open, ru_scratch_close),
    cmocka_unit_test_setup_teardown(a_load_ends_no_later_one, ru_scratch_open, ru_scratch_close))
