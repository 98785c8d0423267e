/* rubato bench clock: traces of four hosts with wrong clocks, bulk at line rate both ways between
 * neighbours, laid over each other. The clocks are wrong outside of the program (skew.c), so what
 * is true is known here alone. */
#include "trace/read/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/wire/net.h"
#include "env/file/file.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum { HOSTS = 4, SAMPLES = 2000, BYTES = 16 << 10, AHEAD = 32, BULK = 7 };

static const int64_t off_ns[HOSTS] = {0, 5000000000, 1250000000, 3600000000};
static const int64_t ppm[HOSTS] = {0, 50, -50, 20};
static const int64_t patience_ns = (int64_t)120 * 1000000000;

/* -- one host --------------------------------------------------------------------------------- */

typedef struct host {
    rui_net_end *end; /* first: what upcalls of the end look for */
    uint8_t *memory;  /* [2][BYTES] sent from, received into */
    uint32_t sent[RUI_NET_PEERS_MAX], posted[RUI_NET_PEERS_MAX]; /* by the peer's id */
    bool over;
} host;

static void post(host *h, ru_node_id peer, ru_time now)
{
    ru_span span = {h->memory + BYTES, BYTES};
    ru_xfer_id id;
    ru_chan_post_in in = {.from = peer,
                          .name = {BULK, h->posted[peer.v]},
                          .spans = &span,
                          .n_spans = 1,
                          .cookie = peer.v << 1};
    h->posted[peer.v] += ru_chan_post(h->end->chan, &in, now, &id) == RU_OK;
}

static void push(host *h, ru_node_id peer, ru_time now)
{
    ru_span span = {h->memory, BYTES};
    ru_xfer_id id;
    ru_chan_send_in in = {.to = peer,
                          .name = {BULK, h->sent[peer.v]},
                          .class = RU_CLASS_NORMAL,
                          .spans = &span,
                          .n_spans = 1,
                          .cookie = peer.v << 1 | 1};
    h->sent[peer.v] += !h->over && ru_chan_send(h->end->chan, &in, now, &id) == RU_OK;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    (void)data, (void)size_bytes, (void)what;
    host *h = self;
    for (uint32_t k = 0; k < AHEAD / 2; k++) {
        push(h, from, now); /* it has posted */
    }
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    push(self, (ru_node_id){cookie >> 1}, now);
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    post(self, (ru_node_id){cookie >> 1}, now);
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    (void)self, (void)cookie, (void)why, (void)now; /* the run ends */
}

static ru_status host_run(host *h, int64_t for_ns, ru_err *err)
{
    rui_net_end *e = h->end;
    while (e->n_peers < HOSTS - 1) {
        RU_TRY(ru_loop_round(e->loop, -1, err));
    }
    for (uint32_t k = 0; k < e->n_peers; k++) {
        for (uint32_t i = 0; i < AHEAD; i++) {
            post(h, e->peers[k], ru_clock_now());
        }
        RU_TRY(ru_chan_message(e->chan, e->peers[k], 1, "", 0, ru_clock_now()));
    }
    for (ru_time end = ru_time_after(ru_clock_now(), for_ns); ru_clock_now().ns < end.ns;) {
        RU_TRY(ru_loop_round(e->loop, 10000000, err));
    }
    h->over = true;
    for (ru_time end = ru_time_after(ru_clock_now(), 300000000); ru_clock_now().ns < end.ns;) {
        RU_TRY(ru_loop_round(e->loop, 10000000, err));
    }
    return RU_OK;
}

/* words: clock RANK SECONDS DIR ADDRESS... of those before; prints its own address. */
ru_status rui_net_clock(const char *const *words, uint32_t n, ru_err *err)
{
    if (n < 4) {
        return RU_FAIL(err, RU_E_USAGE, "clock RANK SECONDS DIR ADDRESS...");
    }
    uint32_t rank = (uint32_t)strtoul(words[1], NULL, 10);
    double seconds = strtod(words[2], NULL);
    rui_net_end end = {0};
    host h = {.end = &end};
    const ru_recorder_options ro = {.dir = words[3], .rank = rank, .process = "bench clock"};
    const ru_chan_user user = {.self = &h,
                               .message = on_message,
                               .sent = on_sent,
                               .failed = on_failed,
                               .arrived = on_arrived};
    h.memory = calloc(2, BYTES);
    ru_status st = h.memory != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a host");
    st = st == RU_OK ? ru_recorder_open(&ro, &end.recorder, err) : st;
    st = st == RU_OK ? rui_net_open(&end, rank + 1, "0.0.0.0:0", false, &user, err) : st;
    if (st == RU_OK) {
        printf("%s\n", ru_link_tcp_address(end.link));
        fflush(stdout);
    }
    for (uint32_t k = 4; k < n && st == RU_OK; k++) {
        st = rui_net_connect(&end, words[k], err);
    }
    st = st == RU_OK ? host_run(&h, (int64_t)(seconds * 1e9), err) : st;
    rui_net_close(&end);
    ru_recorder_close(end.recorder);
    free(h.memory);
    return st;
}

/* -- the driver -------------------------------------------------------------------------------- */

typedef struct bench_clock {
    ru_bench *b;
    const char *self, *script, *skew;
    char lab[16];
    int64_t at_ns; /* no clock was wrong then, but for its offset */
} bench_clock;

static int64_t shows(const bench_clock *t, uint32_t k, int64_t ns)
{
    return ns + off_ns[k] + (ns - t->at_ns) / 1000 * ppm[k] / 1000;
}

static ru_status quietly(const char *const *argv, ru_err *err)
{
    ru_process *p = NULL;
    const ru_process_options opt = {.argv = argv, .pipe_out = true, .quiet = true};
    RU_TRY(ru_process_start(&opt, &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK : RU_FAIL(err, RU_E_USER, "%s %s failed", argv[0], argv[1]);
}

static ru_status start(const bench_clock *t, uint32_t k, const char *dir, const char **addresses,
                       ru_process **p, ru_err *err)
{
    ru_arena *a = t->b->arena;
    const char *argv[32] = {t->script,
                            "in",
                            t->lab,
                            ru_arena_printf(a, "%u", k + 1),
                            "chrt",
                            "-r",
                            "1",
                            "env",
                            ru_arena_printf(a, "LD_PRELOAD=%s", t->skew)};
    uint32_t n = 9;
    argv[n++] = ru_arena_printf(a, "RUBATO_SKEW=%lld %lld %lld", (long long)t->at_ns,
                                (long long)off_ns[k], (long long)ppm[k]);
    const char *const rest[] = {t->self, "bench", "--worker", "net", "clock"};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rest); i++) {
        argv[n++] = rest[i];
    }
    argv[n++] = ru_arena_printf(a, "%u", k);
    argv[n++] = t->b->quick ? "6" : "20";
    argv[n++] = dir;
    for (uint32_t i = 0; i < k; i++) {
        argv[n++] = addresses[i];
    }
    const ru_process_options opt = {.argv = argv, .pipe_in = true, .pipe_out = true};
    const char *line = NULL;
    RU_TRY(ru_process_start(&opt, p, err));
    RU_TRY(ru_process_line(*p, patience_ns, &line, err));
    if (line == NULL) {
        return RU_FAIL(err, RU_E_USER, "host %u did not start", k + 1);
    }
    addresses[k] = ru_arena_str(a, line);
    return RU_OK;
}

static ru_status add(bench_clock *t, const char *form, const char *what, const char *unit,
                     bool lower, double x, double goal, ru_err *err)
{
    const ru_bench_row row = {.name = ru_arena_printf(t->b->arena, "%s: %s", form, what),
                              .unit = unit,
                              .lower = lower,
                              .goal = goal,
                              .ours = ru_bench_stat_of(&x, 1)};
    return ru_bench_add(t->b, &row, err);
}

static ru_status judge(bench_clock *t, const char *form, bool bands, const char *dir, ru_err *err)
{
    ru_trace *traces;
    ru_trace_clocks c;
    uint32_t n, within = 0, k_samples = 0;
    double *wrong = RU_NEW(t->b->arena, double, HOSTS *SAMPLES);
    double *bounds = RU_NEW(t->b->arena, double, HOSTS *SAMPLES);
    RU_TRY(ru_trace_run_load(dir, t->b->arena, &traces, &n, err));
    RU_TRY(ru_trace_align(traces, n, t->b->arena, &c, err));
    if (n != HOSTS || wrong == NULL || bounds == NULL) {
        return RU_FAIL(err, RU_E_USER, "%u of %d hosts left a trace", n, HOSTS);
    }
    /* All were up, and recorded, between the latest start and the earliest end. */
    int64_t from = INT64_MIN, to = INT64_MAX;
    for (uint32_t k = 0; k < n; k++) {
        int64_t a = traces[k].first_ns - off_ns[k], b = traces[k].last_ns - off_ns[k];
        from = a > from ? a : from;
        to = b < to ? b : to;
    }
    for (uint32_t k = 0; k < n; k++) {
        for (uint32_t i = 0; i < SAMPLES && k != c.reference; i++) {
            int64_t at = from + (to - from) / SAMPLES * i, own = shows(t, k, at);
            int64_t e = ru_trace_global(&c, k, own) - shows(t, c.reference, at);
            int64_t bound = ru_trace_bound(&c, k, own);
            e = e < 0 ? -e : e;
            wrong[k_samples] = (double)e * 1e-3;
            bounds[k_samples++] = (double)bound * 1e-3;
            within += bound >= 0 && e <= bound;
        }
    }
    double share = 100.0 * within / k_samples;
    RU_TRY(add(t, form, "error of the clocks, p99", "us", true,
               rui_net_percentile(wrong, k_samples, 0.99), bands ? 20 : 0, err));
    RU_TRY(add(t, form, "bound that is stated, p50", "us", true,
               rui_net_percentile(bounds, k_samples, 0.5), 0, err));
    RU_TRY(add(t, form, "errors within their bound", "%", false, share, 99, err));
    RU_TRY(add(t, form, "transfers with both ends", "", false, (double)c.flows,
               t->b->quick ? 0 : 100000, err));
    RU_TRY(add(t, form, "arrived before they were sent", "", true, (double)c.before, 0, err));
    return add(t, form, "the same after the repair", "", true, (double)c.after, 0.5, err);
}

static ru_status form_run(bench_clock *t, const char *form, bool bands, ru_err *err)
{
    char owner[16];
    snprintf(owner, sizeof owner, "%lld", (long long)ru_self_pid());
    const char *up[] = {t->script,   "up",   t->lab,    "4",       "--rate",
                        "1gbit",     "--at", "sender",  "--burst", "128kb",
                        "--latency", "10ms", "--owner", owner,     bands ? "--bands" : NULL,
                        NULL};
    const char *down[] = {t->script, "down", t->lab, NULL};
    const char *dir = ru_path_join(t->b->arena, t->b->dir, bands ? "clock-bands" : "clock-fifo");
    const char *addresses[HOSTS];
    ru_process *p[HOSTS] = {0};
    (void)!ru_path_remove(dir, NULL);
    RU_TRY(quietly(up, err));
    ru_status st = RU_OK;
    for (uint32_t k = 0; k < HOSTS && st == RU_OK; k++) {
        st = start(t, k, dir, addresses, &p[k], err);
    }
    for (uint32_t k = 0; k < HOSTS; k++) {
        int code = p[k] != NULL && st == RU_OK ? ru_process_wait(p[k]) : 0;
        if (code != 0) {
            st = RU_FAIL(err, RU_E_USER, "host %u ended with code %d", k + 1, code);
        }
        ru_process_close(p[k]);
    }
    (void)!quietly(down, NULL);
    return st == RU_OK ? judge(t, form, bands, dir, err) : st;
}

ru_status ru_bench_clock(ru_bench *b, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena), *self = ru_bench_rubato(b->arena);
    bench_clock t = {.b = b, .self = self, .at_ns = ru_clock_now().ns};
    const char *from = scripts != NULL ? scripts : ".";
    t.script = ru_path_join(b->arena, from, "../test/lab/net.sh");
    const char *slash = strrchr(self != NULL ? self : "/", '/');
    t.skew =
        ru_arena_printf(b->arena, "%.*s/../bench/librubato-skew.so", (int)(slash - self), self);
    snprintf(t.lab, sizeof t.lab, "k%lld", (long long)ru_self_pid());
    const char *check[] = {t.script, "check", NULL};
    b->told = true;
    if (!ru_path_exists(t.script) || quietly(check, NULL) != RU_OK || !ru_path_exists(t.skew)) {
        fprintf(stderr, "clocks are measured in the network laboratory of the source tree, which "
                        "cannot run here\n");
        return RU_OK;
    }
    RU_TRY(form_run(&t, "bulk both ways, bands", true, err));
    return form_run(&t, "bulk both ways", false, err);
}
