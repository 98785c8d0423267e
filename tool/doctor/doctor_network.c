/* Doctor's checks of what several workers need (connections with TLS, shared memory, ssh), and of
 * the libraries for HTTP. */
#include <string.h>

#include "base/conf.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/link/link_tcp.h"
#include "env/process/shm.h"
#include "tool/doctor/doctor.h"
#include "web/fetch.h"
#include "web/http.h"

enum { PATIENCE_NS = 2000000000, ROUND_NS = 50000000 };

typedef struct end {
    uint32_t opened;
    ru_conn_id conn;
    bool closed;
    ru_text *why;
} end;

static void on_opened(void *self, ru_conn_id c, bool accepted, const char *address, ru_time now)
{
    (void)accepted, (void)address, (void)now;
    end *e = self;
    e->opened++;
    e->conn = c;
}

static void on_closed(void *self, ru_conn_id c, ru_status why, const char *sentence, ru_time now)
{
    (void)c, (void)why, (void)now;
    end *e = self;
    e->closed = true;
    ru_text_put(e->why, sentence);
}

static bool on_pull(void *self, ru_conn_id c, int64_t room_bytes, ru_link_tx *tx, ru_time now)
{
    (void)self, (void)c, (void)room_bytes, (void)tx, (void)now;
    return false;
}

static void on_sent(void *self, ru_conn_id c, uint64_t cookie, ru_time now)
{
    (void)self, (void)c, (void)cookie, (void)now;
}

static ru_status on_head(void *self, ru_conn_id c, const uint8_t *head, ru_link_rx *rx, ru_time now)
{
    (void)self, (void)c, (void)head, (void)rx, (void)now;
    return RU_E_DATA;
}

static ru_status on_body(void *self, ru_conn_id c, ru_time now)
{
    (void)self, (void)c, (void)now;
    return RU_E_DATA;
}

static ru_link_user user_of(end *e)
{
    return (ru_link_user){.self = e,
                          .opened = on_opened,
                          .closed = on_closed,
                          .pull = on_pull,
                          .sent = on_sent,
                          .head = on_head,
                          .body = on_body};
}

/* A connection of this process to itself, encrypted as between hosts. */
static ru_status connect_ends(ru_loop *loop, ru_link_tcp *a, ru_link_tcp *b, rui_check *c,
                              ru_err *err)
{
    end ends[2] = {{.why = &c->fix}, {.why = &c->fix}};
    const ru_link_user users[2] = {user_of(&ends[0]), user_of(&ends[1])};
    ru_link_tcp_user(a, &users[0]);
    ru_link_tcp_user(b, &users[1]);
    ru_link l = ru_link_tcp_link(b);
    ru_conn_id id;
    ru_time begun = ru_clock_now();
    RU_TRY(l.ops->connect(l.self, ru_link_tcp_address(a), RU_LINK_BULK, &id, err));
    while (ends[0].opened == 0 || ends[1].opened == 0) {
        RU_TRY(ru_loop_round(loop, ROUND_NS, err));
        if (ends[0].closed || ends[1].closed ||
            ru_time_since(ru_clock_now(), begun) > PATIENCE_NS) {
            return RU_FAIL(err, RU_E_PEER, "%s", c->fix.n > 0 ? c->fix.p : "no answer within 2 s");
        }
    }
    double ms = (double)ru_time_since(ru_clock_now(), begun) * 1e-6;
    bool kernel = strcmp(ru_link_tcp_guard(b, ends[1].conn), "ktls") == 0;
    ru_text_putf(&c->text, "a TCP connection with TLS 1.3 took %.1f ms, encrypted by %s", ms,
                 kernel ? "the kernel" : "this program (the kernel offers no TLS)");
    return RU_OK;
}

static ru_status try_link(rui_check *c, ru_err *err)
{
    static const uint8_t key[32] = {1};
    ru_loop *loop = NULL;
    ru_link_tcp *a = NULL, *b = NULL;
    RU_TRY(ru_loop_open(&loop, err));
    ru_link_tcp_options o = {
        .loop = loop, .psk = key, .psk_bytes = sizeof key, .tls_always = true, .conns_max = 4};
    ru_status st = ru_link_tcp_open(&o, &b, err);
    o.listen = "127.0.0.1:0";
    st = st == RU_OK ? ru_link_tcp_open(&o, &a, err) : st;
    st = st == RU_OK ? connect_ends(loop, a, b, c, err) : st;
    ru_link_tcp_close(a);
    ru_link_tcp_close(b);
    ru_loop_close(loop);
    return st;
}

static ru_status try_memory(ru_err *err)
{
    ru_shm *own = NULL, *other = NULL;
    RU_TRY(ru_shm_create("doctor", 4096, &own, err));
    ru_status st = ru_shm_map(ru_shm_handle(own), 4096, &other, err);
    if (st == RU_OK) {
        *(uint32_t *)ru_shm_data(own) = 0x5eed;
        if (*(const uint32_t *)ru_shm_data(other) != 0x5eed) {
            st = RU_FAIL(err, RU_E_BUG, "two mappings of one segment differ");
        }
    }
    ru_shm_close(other);
    ru_shm_close(own);
    return st;
}

static bool on_path(ru_arena *arena, const char *program)
{
    const char *path = ru_conf_env("PATH");
    ru_str rest = ru_str_c(path != NULL ? path : ""), dir;
    while (ru_str_next(&rest, ':', &dir)) {
        const char *folder = ru_arena_strn(arena, dir.p, dir.n);
        const char *file = folder == NULL ? NULL : ru_path_join(arena, folder, program);
        if (file != NULL && ru_path_exists(file)) {
            return true;
        }
    }
    return false;
}

void rui_doctor_workers(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)dir, (void)m;
    ru_err err;
    if (try_link(c, &err) != RU_OK) {
        c->health = RUI_WARN;
        c->text.n = c->fix.n = 0;
        ru_text_putf(&c->text, "workers cannot reach each other: %s", err.text);
        ru_text_put(&c->fix, "allow processes to listen on and connect to 127.0.0.1; -w needs it");
        return;
    }
    if (try_memory(&err) != RU_OK) {
        c->health = RUI_WARN;
        ru_text_putf(&c->text, "; no shared memory: %s", err.text);
        ru_text_put(&c->fix,
                    "mount /proc; without it workers of one host sum gradients over sockets");
        return;
    }
    ru_text_put(&c->text, "; shared memory works");
    char *algorithms;
    int64_t n;
    if (ru_file_read("/proc/sys/net/ipv4/tcp_available_congestion_control", 0, arena, &algorithms,
                     &n, NULL) == RU_OK) {
        ru_str all = ru_str_trim((ru_str){algorithms, n});
        ru_text_putf(&c->text, "; congestion control %.*s", (int)all.n, all.p);
    }
    ru_text_putf(&c->text, "; %s",
                 on_path(arena, "ssh") ? "ssh for --hosts" : "no ssh for --hosts");
}

/* "what is wrong; what to do": two texts. */
static void put_missing(rui_check *c, const char *what, const ru_err *err)
{
    const char *repair = strstr(err->text, "; run ");
    c->health = RUI_WARN;
    ru_text_putf(&c->text, "%s: %.*s", what,
                 (int)(repair != NULL ? repair - err->text : (ptrdiff_t)strlen(err->text)),
                 err->text);
    ru_text_put(&c->fix, repair != NULL ? repair + strlen("; run ") : "install it again");
}

void rui_doctor_stores(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)arena, (void)dir, (void)m;
    ru_err err;
    bool tls = false;
    if (ru_http_fetch_ready(&c->text, &tls, &err) != RU_OK) {
        c->text.n = 0;
        put_missing(c, "no data over http, https and s3", &err);
    } else if (!tls) {
        c->health = RUI_WARN;
        ru_text_put(&c->text, ", which cannot read https and s3: it was built without TLS");
        ru_text_put(&c->fix, "apt-get install libcurl4");
    } else {
        ru_text_put(&c->text, " reads data over http, https and s3");
    }
}

void rui_doctor_metrics(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)arena, (void)dir, (void)m;
    ru_err err;
    if (ru_http_ready(&c->text, &err) != RU_OK) {
        c->text.n = 0;
        put_missing(c, "no figures over HTTP (--metrics)", &err);
    } else {
        ru_text_put(&c->text, " serves --metrics");
    }
}
