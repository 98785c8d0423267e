/* The Redis side of `rubato bench params --only redis`: a server, and one client that keeps several
 * batches under way on one connection.
 *
 * Layouts: a row is one binary string, and a batch is read by MGET and added to
 *     in the client     MGET, then MSET: right only for one batch at a time of one client
 *     in the server     a script that reads, adds and writes
 * or a row is a hash of its floats, and each float grows by HINCRBYFLOAT. Commands take 1 to BATCH
 * rows each, and travel over TCP or a socket file. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/str.h"
#include "bench/params/params_store.h"
#include "env/clock.h"
#include "env/link/link_tcp.h"
#include "env/process/process.h"
#include "web/redis.h"

enum { IN_BYTES = 1 << 20, START_MS = 5000, LOOK_MS = 10, SHA_BYTES = 40 };

typedef enum layout { STRINGS, SCRIPT, HASHES } layout;

typedef struct variant {
    layout layout;
    uint32_t rows; /* of one command; hashes: one float */
    bool file;     /* socket file, else TCP */
} variant;

static const uint32_t pieces[] = {10, 100, 1000};

uint32_t rui_redis_variants(rui_store_op op)
{
    uint32_t n = RU_ARRAY_LEN(pieces);
    return 2 * (op == RUI_STORE_READ ? n : op == RUI_STORE_TASK ? 2 * n : 2 * n + 1);
}

static variant variant_of(uint32_t k)
{
    uint32_t way = k / 2, n = RU_ARRAY_LEN(pieces);
    return (variant){.layout = way < n       ? STRINGS
                               : way < 2 * n ? SCRIPT
                                             : HASHES,
                     .rows = way < 2 * n ? pieces[way % n] : 1,
                     .file = k % 2 == 1};
}

uint32_t rui_redis_depth(rui_store_op op, uint32_t k)
{
    return op != RUI_STORE_READ && variant_of(k).layout == STRINGS ? 1 : RUI_STORE_DEPTH_MAX;
}

bool rui_redis_counts(uint32_t k)
{
    return variant_of(k).layout != HASHES;
}

const char *rui_redis_variant(rui_store_op op, uint32_t k, ru_arena *arena)
{
    variant v = variant_of(k);
    const char *how = v.layout == SCRIPT     ? op == RUI_STORE_TASK ? "MGET and script" : "script"
                      : v.layout == HASHES   ? "HINCRBYFLOAT"
                      : op == RUI_STORE_READ ? "MGET"
                                             : "MGET and MSET";
    return ru_arena_printf(arena, "%s of %u rows, %s", how, v.rows, v.file ? "socket file" : "TCP");
}

static const char script[] = "local w = tonumber(ARGV[1]) "
                             "local f = string.rep('f', w) "
                             "for i = 1, #KEYS do "
                             "  local a = {struct.unpack(f, redis.call('GET', KEYS[i]))} "
                             "  local d = {struct.unpack(f, ARGV[i + 1])} "
                             "  for j = 1, w do a[j] = a[j] + d[j] end "
                             "  redis.call('SET', KEYS[i], struct.pack(f, unpack(a, 1, w))) "
                             "end "
                             "return #KEYS";

/* Replies that a command brings, in the order of commands. */
typedef struct expected {
    uint32_t slot, n;  /* n: values of an array, or replies that say little */
    uint32_t row;      /* of the batch: where values go */
    bool values, open; /* open: the head of the array was read */
} expected;

typedef struct slot {
    const uint32_t *list;
    float *value; /* [BATCH * width] */
    uint32_t waits;
    bool writes; /* MSET is under way */
} slot;

enum { EXPECTED_MAX = RUI_STORE_DEPTH_MAX * 2 * RUI_STORE_BATCH };

typedef struct client {
    uint32_t width;
    ru_arena arena;
    int fd[2]; /* TCP, socket file */
    char sha[SHA_BYTES];
    const uint32_t *lists;
    uint8_t *out, *in;
    int64_t out_n, out_at, out_cap, in_n, in_at, in_cap;
    expected *expect; /* [EXPECTED_MAX] ring */
    uint64_t expect_first, expect_end;
    slot slot[RUI_STORE_DEPTH_MAX];
    variant v;
    rui_store_ask ask;
    int64_t begun, done;
    double sum;
} client;

/* -- commands ------------------------------------------------------------------------------------
 */

static void put(client *c, const void *bytes, int64_t n)
{
    if (c->out_n + n > c->out_cap) {
        c->out_cap = 2 * (c->out_n + n);
        c->out = realloc(c->out, (size_t)c->out_cap);
        RU_CHECK(c->out != NULL);
    }
    memcpy(c->out + c->out_n, bytes, (size_t)n);
    c->out_n += n;
}

static void put_head(client *c, char kind, int64_t n)
{
    char head[RU_REDIS_HEAD_BYTES];
    put(c, head, ru_redis_head(kind, n, head));
}

static void put_word(client *c, const void *bytes, int64_t n)
{
    put_head(c, '$', n);
    put(c, bytes, n);
    put(c, "\r\n", 2);
}

static void put_text(client *c, const char *text)
{
    put_word(c, text, (int64_t)strlen(text));
}

/* Keys of four bytes; those of hashes have one more. */
static void put_key(client *c, uint32_t row)
{
    char key[5];
    memcpy(key, &row, 4);
    key[4] = 'h';
    put_word(c, key, c->v.layout == HASHES ? 5 : 4);
}

static void expect(client *c, uint32_t k, uint32_t n, uint32_t row, bool values)
{
    RU_CHECK(c->expect_end - c->expect_first < EXPECTED_MAX);
    c->expect[c->expect_end++ % EXPECTED_MAX] =
        (expected){.slot = k, .n = n, .row = row, .values = values};
    c->slot[k].waits++;
}

static void get_rows(client *c, uint32_t k)
{
    for (uint32_t r = 0; r < RUI_STORE_BATCH; r += c->v.rows) {
        put_head(c, '*', 1 + c->v.rows);
        put_text(c, "MGET");
        for (uint32_t i = 0; i < c->v.rows; i++) {
            put_key(c, c->slot[k].list[r + i]);
        }
        expect(c, k, c->v.rows, r, true);
    }
}

static void set_rows(client *c, uint32_t k)
{
    int64_t bytes = 4 * (int64_t)c->width;
    for (uint32_t r = 0; r < RUI_STORE_BATCH; r += c->v.rows) {
        put_head(c, '*', 1 + 2 * (int64_t)c->v.rows);
        put_text(c, "MSET");
        for (uint32_t i = r; i < r + c->v.rows; i++) {
            put_key(c, c->slot[k].list[i]);
            put_word(c, c->slot[k].value + (int64_t)i * c->width, bytes);
        }
        expect(c, k, 1, 0, false);
    }
    c->slot[k].writes = true;
}

static void add_in_server(client *c, uint32_t k)
{
    char number[16];
    for (int64_t i = 0; i < c->width; i++) {
        c->slot[k].value[i] = 1.0F;
    }
    for (uint32_t r = 0; r < RUI_STORE_BATCH; r += c->v.rows) {
        put_head(c, '*', 4 + 2 * (int64_t)c->v.rows);
        put_text(c, "EVALSHA");
        put_word(c, c->sha, SHA_BYTES);
        (void)snprintf(number, sizeof number, "%u", c->v.rows);
        put_text(c, number);
        for (uint32_t i = 0; i < c->v.rows; i++) {
            put_key(c, c->slot[k].list[r + i]);
        }
        (void)snprintf(number, sizeof number, "%u", c->width);
        put_text(c, number);
        for (uint32_t i = 0; i < c->v.rows; i++) {
            put_word(c, c->slot[k].value, 4 * (int64_t)c->width);
        }
        expect(c, k, 1, 0, false);
    }
    c->slot[k].writes = true;
}

static void add_by_float(client *c, uint32_t k)
{
    char number[16];
    for (uint32_t r = 0; r < RUI_STORE_BATCH; r++) {
        for (uint32_t i = 0; i < c->width; i++) {
            put_head(c, '*', 4);
            put_text(c, "HINCRBYFLOAT");
            put_key(c, c->slot[k].list[r]);
            (void)snprintf(number, sizeof number, "%u", i);
            put_text(c, number);
            put_text(c, "1");
        }
        expect(c, k, c->width, 0, false);
    }
    c->slot[k].writes = true;
}

static void begin(client *c, uint32_t k)
{
    slot *s = &c->slot[k];
    s->list = c->lists + c->begun++ % RUI_STORE_LISTS * RUI_STORE_BATCH;
    s->writes = false;
    if (c->v.layout == STRINGS || c->ask.op == RUI_STORE_TASK) {
        get_rows(c, k);
    } else if (c->v.layout == SCRIPT) {
        add_in_server(c, k);
    } else {
        add_by_float(c, k);
    }
}

/* All replies of what the slot sent are here. */
static void advance(client *c, uint32_t k)
{
    slot *s = &c->slot[k];
    if (!s->writes) {
        for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
            c->sum += (double)s->value[(int64_t)i * c->width];
        }
    }
    if (!s->writes && c->ask.op != RUI_STORE_READ && c->v.layout == SCRIPT) {
        add_in_server(c, k);
        return;
    }
    if (!s->writes && c->ask.op != RUI_STORE_READ) {
        for (int64_t i = 0; i < (int64_t)RUI_STORE_BATCH * c->width; i++) {
            s->value[i] += 1.0F;
        }
        set_rows(c, k);
        return;
    }
    c->done++;
    if (c->begun < c->ask.batches) {
        begin(c, k);
    }
}

/* -- replies -------------------------------------------------------------------------------------
 */

static int64_t head_of(const client *c, int64_t at, char *kind, int64_t *n)
{
    return ru_redis_head_of(c->in, c->in_n, at, kind, n);
}

/* One string, number or status. *n: bytes of the string. 0: not whole yet. */
static int64_t reply(const client *c, int64_t at, char *kind, int64_t *begin_at, int64_t *n)
{
    int64_t to = head_of(c, at, kind, n);
    *begin_at = to;
    if (to > 0 && *kind == '$' && *n >= 0) {
        to += *n + 2;
    }
    return to <= c->in_n ? to : 0;
}

/* Take one more reply; false: none is whole. */
static ru_status take(client *c, bool *took, ru_err *err)
{
    expected *x = &c->expect[c->expect_first % EXPECTED_MAX];
    char kind = 0;
    int64_t from, n, to;
    *took = false;
    if (x->values && !x->open) {
        to = head_of(c, c->in_at, &kind, &n);
        if (to == 0 || kind != '*') {
            return to == 0 ? RU_OK
                           : RU_FAIL(err, RU_E_PEER, "redis answered %.60s", c->in + c->in_at);
        }
        x->open = true;
    } else {
        to = reply(c, c->in_at, &kind, &from, &n);
        if (to == 0) {
            return RU_OK;
        }
        bool fine = kind != '-' && (!x->values || (kind == '$' && n == 4 * (int64_t)c->width));
        if (!fine) {
            return RU_FAIL(err, RU_E_PEER, "redis answered %.*s",
                           (int)(to - c->in_at < 80 ? to - c->in_at : 80), c->in + c->in_at);
        }
        if (x->values) {
            memcpy(c->slot[x->slot].value + (int64_t)x->row++ * c->width, c->in + from, (size_t)n);
        }
        x->n--;
    }
    c->in_at = to;
    *took = true;
    if (x->n == 0) {
        uint32_t k = x->slot;
        c->expect_first++;
        if (--c->slot[k].waits == 0) {
            advance(c, k);
        }
    }
    return RU_OK;
}

/* -- bytes ---------------------------------------------------------------------------------------
 */

static ru_status broke(ru_err *err)
{
    return RU_FAIL(err, RU_E_PEER, "the connection to redis broke: %s", strerror(errno));
}

static ru_status write_some(client *c, int fd, ru_err *err)
{
    while (c->out_at < c->out_n) {
        ssize_t n = send(fd, c->out + c->out_at, (size_t)(c->out_n - c->out_at), MSG_NOSIGNAL);
        if (n < 0) {
            return errno == EAGAIN ? RU_OK : broke(err);
        }
        c->out_at += n;
    }
    c->out_at = c->out_n = 0;
    return RU_OK;
}

static ru_status read_some(client *c, int fd, bool *more, ru_err *err)
{
    if (c->in_at == c->in_n) {
        c->in_at = c->in_n = 0;
    } else if (c->in_at > c->in_cap / 2 || c->in_n == c->in_cap) {
        memmove(c->in, c->in + c->in_at, (size_t)(c->in_n - c->in_at));
        c->in_n -= c->in_at;
        c->in_at = 0;
    }
    ssize_t n = recv(fd, c->in + c->in_n, (size_t)(c->in_cap - c->in_n), 0);
    *more = n > 0;
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        return broke(err);
    }
    c->in_n += n > 0 ? n : 0;
    return RU_OK;
}

/* Until nothing is expected any more. */
static ru_status exchange(client *c, ru_err *err)
{
    int fd = c->fd[c->v.file];
    while (c->expect_first < c->expect_end) {
        bool took = true, more;
        RU_TRY(write_some(c, fd, err));
        RU_TRY(read_some(c, fd, &more, err));
        while (took && c->in_at < c->in_n && c->expect_first < c->expect_end) {
            RU_TRY(take(c, &took, err));
        }
        if (!more) {
            bool full = c->out_at < c->out_n;
            struct pollfd p = {fd, (short)(POLLIN | (full ? POLLOUT : 0)), 0};
            (void)poll(&p, 1, -1);
        }
    }
    return RU_OK;
}

static ru_status run(void *self, const rui_store_ask *ask, double *seconds, ru_err *err)
{
    client *c = self;
    c->ask = *ask;
    c->v = variant_of(ask->variant);
    c->begun = c->done = 0;
    ru_time from = ru_clock_now();
    for (uint32_t k = 0; k < ask->depth && c->begun < ask->batches; k++) {
        begin(c, k);
    }
    RU_TRY(exchange(c, err));
    RU_CHECK(c->done == ask->batches);
    *seconds = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
    return RU_OK;
}

/* Strings only: hashes are of a layout that is measured, then left. */
static ru_status sum(void *self, double *out, ru_err *err)
{
    client *c = self;
    uint32_t rows = rui_store_rows(c->width), list[RUI_STORE_BATCH];
    const uint32_t *lists = c->lists;
    const rui_store_ask ask = {RUI_STORE_READ, 0, 1, 1};
    ru_status st = RU_OK;
    double seconds;
    c->sum = 0;
    for (uint32_t at = 0; st == RU_OK && at < rows; at += RUI_STORE_BATCH) {
        for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
            list[i] = at + i;
        }
        c->lists = list;
        st = run(c, &ask, &seconds, err);
    }
    c->lists = lists;
    *out = c->sum;
    return st;
}

/* -- the server ----------------------------------------------------------------------------------
 */

static int dial(const char *file, const char *address)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(file != NULL ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc;
    if (file != NULL) {
        (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", file);
        rc = connect(fd, (const struct sockaddr *)&un, sizeof un);
    } else {
        in.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
        rc = connect(fd, (const struct sockaddr *)&in, sizeof in);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    if (rc != 0) {
        (void)close(fd);
        return -1;
    }
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

/* All rows are zero, the script is known. */
static ru_status fill(client *c, ru_err *err)
{
    const uint32_t *lists = c->lists;
    uint32_t list[RUI_STORE_BATCH];
    c->v = (variant){STRINGS, RUI_STORE_BATCH, true};
    c->ask = (rui_store_ask){.op = RUI_STORE_UPDATE};
    memset(c->slot[0].value, 0, (size_t)RUI_STORE_BATCH * c->width * 4);
    for (uint32_t at = 0; at < rui_store_rows(c->width); at += RUI_STORE_BATCH) {
        for (uint32_t i = 0; i < RUI_STORE_BATCH; i++) {
            list[i] = at + i;
        }
        c->slot[0].list = list;
        set_rows(c, 0);
        RU_TRY(exchange(c, err));
    }
    c->lists = lists;
    put_head(c, '*', 3);
    put_text(c, "SCRIPT");
    put_text(c, "LOAD");
    put_text(c, script);
    RU_TRY(write_some(c, c->fd[1], err));
    struct pollfd p = {c->fd[1], POLLIN, 0};
    bool more;
    while (c->in_n - c->in_at < 5 + SHA_BYTES + 2) {
        (void)poll(&p, 1, -1);
        RU_TRY(read_some(c, c->fd[1], &more, err));
    }
    memcpy(c->sha, c->in + c->in_at + 5, SHA_BYTES); /* after "$40\r\n" */
    c->in_at = c->in_n;
    return RU_OK;
}

static ru_status open_client(client *c, const char *dir, ru_process **server, ru_err *err)
{
    char address[RU_LINK_TCP_ADDRESS_MAX];
    int probe;
    RU_TRY(ru_link_tcp_listen("127.0.0.1:0", &probe, address, err)); /* a free port */
    (void)close(probe);
    const char *file = ru_arena_printf(&c->arena, "%s/redis.sock", dir);
    (void)unlink(file);
    const char *const argv[] = {"redis-server",
                                "--port",
                                strrchr(address, ':') + 1,
                                "--bind",
                                "127.0.0.1",
                                "--unixsocket",
                                file,
                                "--save",
                                "",
                                "--appendonly",
                                "no",
                                "--daemonize",
                                "no",
                                "--loglevel",
                                "warning",
                                NULL};
    const ru_process_options po = {.argv = argv, .quiet = true, .pipe_out = true};
    RU_TRY(ru_process_start(&po, server, err));
    c->fd[0] = c->fd[1] = -1;
    for (int ms = 0; ms < START_MS && (c->fd[0] < 0 || c->fd[1] < 0); ms += LOOK_MS) {
        c->fd[0] = c->fd[0] >= 0 ? c->fd[0] : dial(NULL, address);
        c->fd[1] = c->fd[1] >= 0 ? c->fd[1] : dial(file, NULL);
        (void)poll(NULL, 0, c->fd[1] < 0 ? LOOK_MS : 0);
    }
    if (c->fd[0] < 0 || c->fd[1] < 0) {
        return RU_FAIL(err, RU_E_PEER, "redis-server did not listen within %d ms", START_MS);
    }
    int64_t floats = (int64_t)RUI_STORE_BATCH * c->width;
    c->lists = rui_store_lists(c->width, &c->arena);
    c->in_cap = IN_BYTES;
    c->in = RU_NEW(&c->arena, uint8_t, c->in_cap);
    c->expect = RU_NEW(&c->arena, expected, EXPECTED_MAX);
    bool fine = c->lists != NULL && c->in != NULL && c->expect != NULL;
    for (uint32_t k = 0; k < RUI_STORE_DEPTH_MAX; k++) {
        c->slot[k].value = RU_NEW(&c->arena, float, floats);
        fine = fine && c->slot[k].value != NULL;
    }
    return fine ? fill(c, err) : RU_FAIL(err, RU_E_MEM, "no memory for a client of redis");
}

/* "Redis server v=7.0.15 ..." */
static ru_status version(char into[32], ru_err *err)
{
    const char *const argv[] = {"redis-server", "--version", NULL};
    const ru_process_options po = {.argv = argv, .pipe_out = true, .quiet = true};
    ru_process *p = NULL;
    const char *line = NULL;
    ru_status st = ru_process_start(&po, &p, err);
    st = st == RU_OK ? ru_process_line(p, 0, &line, err) : st;
    const char *v = st == RU_OK && line != NULL ? strstr(line, "v=") : NULL;
    (void)snprintf(into, 32, "redis %.*s", v != NULL ? (int)strcspn(v + 2, " ") : 1,
                   v != NULL ? v + 2 : "?");
    ru_process_close(p);
    return st;
}

ru_status rui_redis_worker(const char *const *words, uint32_t n, ru_err *err)
{
    char name[32];
    if (n != 4) {
        return RU_FAIL(err, RU_E_USAGE, "a client of redis needs: params redis WIDTH DIR");
    }
    client *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a client of redis");
    }
    ru_arena_init(&c->arena, 0);
    ru_process *server = NULL;
    c->width = (uint32_t)strtoul(words[2], NULL, 10);
    RU_CHECK(c->width >= 1 && c->width <= RUI_STORE_WIDTH_MAX);
    ru_status st = version(name, err);
    st = st == RU_OK ? open_client(c, words[3], &server, err) : st;
    if (st == RU_OK) {
        printf("{\"ready\":true,\"detail\":\"%s\"}\n", name);
        (void)fflush(stdout);
        const rui_store_client as = {c, run, sum, NULL};
        st = rui_store_answer(&as, err);
    } else if (err != NULL) {
        ru_text why = ru_text_arena(&c->arena);
        ru_text_json(&why, ru_str_c(err->text));
        printf("{\"ready\":false,\"why\":%s}\n", why.p);
        (void)fflush(stdout);
    }
    ru_process_close(server);
    free(c->out);
    ru_arena_fini(&c->arena);
    free(c);
    return st;
}
