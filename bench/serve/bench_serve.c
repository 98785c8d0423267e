/* rubato serve beside servers on ONNX Runtime (uvicorn alone, MLServer, BentoML), and against its
 * own promises. */
#include "bench/serve/bench_serve.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve/load.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/memory.h"
#include "env/process/process.h"
#include "env/thread.h"
#include "web/fetch.h"

/* CROWD: an open loop needs as many as requests are under way within a promise. */
enum { CONNS = 32, MANY = 256, CROWD = 2048, URGENT_OF = 10 };
#define PROMISE_NS INT64_C(20000000)

/* A model, and requests for one row of it. */
typedef struct model {
    const char *name, *job;
    int64_t elements;
    bool ids;    /* they are tokens, INT64; else FP32 */
    double goal; /* of rows a second over the peer's */
    const char *path;
    ru_text binary, json, urgent, traced, plain, x; /* plain, x: of peers */
} model;

typedef struct bench {
    ru_bench *b;
    const char *rubato;
    double seconds;
    uint32_t rounds;
    ru_err *err;
    rui_load_out out; /* of the last load */
} bench;

/* -- models and requests ------------------------------------------------------------------------
 */

static ru_status command(const char *const *argv, ru_err *err)
{
    struct ru_process *p = NULL;
    RU_TRY(ru_process_start(&(ru_process_options){.argv = argv, .pipe_out = true, .quiet = true},
                            &p, err));
    int code = ru_process_wait(p);
    ru_process_close(p);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_USER, "%s %s ended with code %d", argv[0], argv[1], code);
}

static ru_status train(ru_bench *b, const char *name, const char *job, const char **run,
                       ru_err *err)
{
    const char *rubato = ru_bench_rubato(b->arena);
    const char *file = ru_arena_printf(b->arena, "%s/serve-%s.yaml", b->dir, name);
    *run = ru_arena_printf(b->arena, "%s/serve-%s", b->dir, name);
    if (rubato == NULL || file == NULL || *run == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for names");
    }
    RU_TRY(ru_file_replace(file, job, (int64_t)strlen(job), err));
    if (ru_path_exists(*run)) {
        RU_TRY(ru_path_remove(*run, err));
    }
    return command((const char *const[]){rubato, "train", file, "--out", *run, "-q", NULL}, err);
}

ru_status rui_bench_model(ru_bench *b, const char *name, const char *job, const char *form,
                          const char *path, ru_err *err)
{
    const char *rubato = ru_bench_rubato(b->arena), *run = NULL;
    RU_TRY(train(b, name, job, &run, err));
    return path != NULL
               ? command((const char *const[]){rubato, "export", run, form, path, NULL}, err)
               : RU_FAIL(err, RU_E_MEM, "no memory for names");
}

ru_status rui_bench_run_of_tokens(ru_bench *b, const char *name, const char *job, int64_t vocab,
                                  const char **run, ru_err *err)
{
    enum { TOKENS = 4096 };
    const char *path = ru_arena_printf(b->arena, "%s/serve-%s.u8", b->dir, name);
    uint8_t bytes[TOKENS];
    for (int64_t k = 0; k < TOKENS; k++) {
        bytes[k] = (uint8_t)(k * k % vocab);
    }
    RU_TRY(path != NULL ? ru_file_replace(path, bytes, TOKENS, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for names"));
    return train(b, name, job, run, err);
}

static int64_t bytes_of(const model *m)
{
    return m->elements * (m->ids ? 8 : 4);
}

static void put_request(ru_text *t, const model *m, const char *shape, bool json,
                        const char *parameters)
{
    char head[512], raw[16];
    ru_text h = ru_text_into(head, sizeof head);
    ru_text body = ru_text_arena(t->arena);
    ru_text_putf(&h, "{\"inputs\":[{\"name\":\"%s\",\"shape\":%s,\"datatype\":\"%s\",",
                 m->ids ? "ids" : "x", shape, m->ids ? "INT64" : "FP32");
    if (!json) {
        ru_text_putf(&h,
                     "\"parameters\":{\"binary_data_size\":%lld}}],\"parameters\":{%s"
                     "\"binary_data_output\":true}}",
                     (long long)bytes_of(m), parameters);
    } else {
        ru_text_put(&h, "\"data\":[");
    }
    ru_text_put_n(&body, h.p, h.n);
    for (int64_t k = 0; k < m->elements; k++) {
        int64_t id = k % 17;
        float x = (float)id * 0.0625f;
        memcpy(raw, m->ids ? (const void *)&id : &x, m->ids ? sizeof id : sizeof x);
        if (json) {
            ru_text_putf(&body, m->ids ? "%s%.0f" : "%s%.4f", k > 0 ? "," : "",
                         m->ids ? (double)id : (double)x);
        } else {
            ru_text_put_n(&body, raw, m->ids ? (int64_t)sizeof id : (int64_t)sizeof x);
        }
    }
    ru_text_put(&body, json ? "]}]}" : "");
    ru_text_putf(t, "POST /v2/models/%s/infer HTTP/1.1\r\nHost: bench\r\nContent-Length: %lld\r\n",
                 m->name, (long long)body.n);
    if (!json) {
        ru_text_putf(t, "Inference-Header-Content-Length: %lld\r\n", (long long)h.n);
    }
    ru_text_put(t, "\r\n");
    ru_text_put_n(t, body.p, body.n);
}

void rui_bench_request(ru_text *t, const char *model_name, int64_t elements, const char *shape)
{
    const model m = {.name = model_name, .elements = elements};
    put_request(t, &m, shape, false, "");
}

static ru_status requests(bench *w, model *m)
{
    const char *shape = m->ids ? "[1,32]" : m->elements == 784 ? "[1,1,28,28]" : "[1,3,32,32]";
    ru_text *all[] = {&m->binary, &m->json, &m->urgent, &m->traced, &m->plain, &m->x};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(all); k++) {
        *all[k] = ru_text_arena(w->b->arena);
    }
    put_request(&m->binary, m, shape, false, "");
    put_request(&m->json, m, shape, true, "");
    put_request(&m->urgent, m, shape, false, "\"priority\":1,");
    const char *end_of_line = strstr(m->binary.p, "\r\n");
    ru_text_put_n(&m->traced, m->binary.p, end_of_line - m->binary.p);
    ru_text_put(&m->traced,
                "\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    ru_text_put_n(&m->traced, end_of_line, m->binary.n - (end_of_line - m->binary.p));
    ru_text_putf(&m->plain, "POST / HTTP/1.1\r\nHost: bench\r\nContent-Length: %lld\r\n\r\n",
                 (long long)bytes_of(m));
    ru_text_put_n(&m->plain, m->binary.p + m->binary.n - bytes_of(m), bytes_of(m));
    const char *data = strstr(m->json.p, "\"data\":[") + 8; /* to "]}]}" */
    int64_t n = m->json.p + m->json.n - 4 - data;
    ru_text_putf(&m->x,
                 "POST /infer HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
                 "Content-Length: %lld\r\n\r\n{\"x\":[[%.*s]]}",
                 (long long)n + 10, (int)n, data);
    return m->plain.cut ? RU_FAIL(w->err, RU_E_MEM, "no memory for requests") : RU_OK;
}

/* -- servers -----------------------------------------------------------------------------------
 */

ru_status rui_side_begin(const char *const *argv, rui_side *s, ru_err *err)
{
    const char *line = NULL;
    *s = (rui_side){0};
    RU_TRY(ru_process_start(
        &(ru_process_options){.argv = argv, .pipe_in = true, .pipe_out = true, .quiet = true},
        &s->process, err));
    RU_TRY(ru_process_line(s->process, INT64_C(120000000000), &line, err));
    const char *at = line != NULL ? strstr(line, "127.0.0.1:") : NULL;
    if (line == NULL) {
        return RU_FAIL(err, RU_E_PEER, "%s did not begin to serve", argv[0]);
    }
    int n = at != NULL ? (int)strspn(at, "0123456789.:") : 0;
    snprintf(s->address, sizeof s->address, "%.*s", n, at != NULL ? at : "");
    snprintf(s->detail, sizeof s->detail, "%s", n > 0 && at[n] == ' ' ? at + n + 1 : "");
    return RU_OK;
}

void rui_side_end(rui_side *s)
{
    if (s->process != NULL) {
        ru_process_kill(s->process, SIGTERM);
        ru_process_close(s->process);
        s->process = NULL;
    }
}

/* option NULL: none. */
static ru_status ours(bench *w, const model *m, const char *option, const char *value, rui_side *s)
{
    const char *const argv[] = {w->rubato, "serve", m->path, "-l", "0",
                                "--json",  option,  value,   NULL};
    return rui_side_begin(argv, s, w->err);
}

/* Memory of a server that no other process has too, in MB, when it has been the same for a while:
 * what opening a model took goes late. */
static ru_status memory_mb(bench *w, const rui_side *s, double *mb)
{
    enum { SAME = 15, TRIES = 100 };
    ru_arena *a = w->b->arena;
    const char *path =
        ru_arena_printf(a, "/proc/%lld/smaps_rollup", (long long)ru_process_id(s->process));
    *mb = 0;
    for (uint32_t same = 0, tries = 0; same < SAME && tries < TRIES; tries++) {
        char *text = NULL;
        int64_t n = 0;
        RU_TRY(path != NULL ? ru_file_read(path, 0, a, &text, &n, w->err)
                            : RU_FAIL(w->err, RU_E_MEM, "no memory"));
        const char *at = strstr(text, "\nAnonymous:");
        double now = at != NULL ? strtod(at + 11, NULL) / 1024 : 0;
        same = fabs(now - *mb) <= 0.002 * now ? same + 1 : 0;
        *mb = now;
        ru_clock_pause(INT64_C(100000000));
    }
    return *mb > 0 ? RU_OK : RU_FAIL(w->err, RU_E_IO, "%s does not say how much memory", path);
}

static ru_status closed(bench *w, const rui_side *s, const ru_text *request, uint32_t conns,
                        rui_load_out *out)
{
    const rui_load l = {.address = s->address,
                        .request = request->p,
                        .size_bytes = request->n,
                        .conns = conns,
                        .seconds = w->seconds};
    RU_TRY(rui_load_run(&l, out, w->err));
    return out->ok > 0
               ? RU_OK
               : RU_FAIL(w->err, RU_E_PEER, "%s answered no request with outputs", s->address);
}

/* Rows a second, of the better of few and many connections: batches are larger with many. */
static ru_status saturation(bench *w, const rui_side *s, const ru_text *request, double *per_s)
{
    const uint32_t conns[] = {CONNS, MANY};
    *per_s = 0;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(conns); k++) {
        RU_TRY(closed(w, s, request, conns[k], &w->out));
        double now = (double)w->out.ok / w->out.seconds;
        *per_s = now > *per_s ? now : *per_s;
    }
    return RU_OK;
}

static ru_status at_rate(bench *w, const rui_side *s, const ru_text *request, double per_s,
                         rui_load_out *out)
{
    const rui_load l = {.address = s->address,
                        .request = request->p,
                        .size_bytes = request->n,
                        .conns = MANY,
                        .per_s = per_s,
                        .seconds = w->seconds,
                        .seed = 1};
    return rui_load_run(&l, out, w->err);
}

/* -- rows --------------------------------------------------------------------------------------
 */

/* The median of a run of one row on one thread, in us. */
static ru_status executable_us(bench *w, const model *m, double *us)
{
    const char *argv[] = {w->rubato, "run",  m->path, "--random", "--dim",  "N=1",
                          "-n",      "2000", "-t",    "1",        "--json", NULL};
    struct ru_process *p = NULL;
    const char *line = NULL;
    RU_TRY(ru_process_start(&(ru_process_options){.argv = argv, .pipe_out = true, .quiet = true},
                            &p, w->err));
    ru_status st = ru_process_line(p, INT64_C(60000000000), &line, w->err);
    const char *at = st == RU_OK && line != NULL ? strstr(line, "\"median_s\":") : NULL;
    *us = at != NULL ? strtod(at + 11, NULL) * 1e6 : 0;
    ru_process_close(p);
    RU_TRY(st);
    return *us > 0 ? RU_OK : RU_FAIL(w->err, RU_E_PEER, "rubato run did not say how long a run is");
}

/* What the server adds to the executable, one connection. */
static ru_status hop(bench *w, const model *m, bool json)
{
    char name[64];
    double us[RU_BENCH_ROUNDS_MAX], run = 0;
    rui_side s = {0};
    snprintf(name, sizeof name, "hop %s %s", m->name, json ? "json" : "binary");
    if (!ru_bench_wants(w->b, name)) {
        return RU_OK;
    }
    RU_TRY(executable_us(w, m, &run));
    ru_status st = ours(w, m, NULL, NULL, &s);
    for (uint32_t k = 0; st == RU_OK && k < w->rounds; k++) {
        st = closed(w, &s, json ? &m->json : &m->binary, 1, &w->out);
        us[k] = (double)ru_hist_quantile(&w->out.latency, 0.5) * 1e-3 - run;
    }
    rui_side_end(&s);
    RU_TRY(st);
    return ru_bench_add(w->b,
                        &(ru_bench_row){.name = ru_arena_str(w->b->arena, name),
                                        .unit = "us",
                                        .lower = true,
                                        .goal = json ? 250 : 150,
                                        .ours = ru_bench_stat_of(us, w->rounds)},
                        w->err);
}

static ru_status figure(bench *w, const model *m, const char *what, const char *unit, bool lower,
                        double value, double goal)
{
    return ru_bench_add(
        w->b,
        &(ru_bench_row){.name = ru_arena_printf(w->b->arena, "%s %s", m->name, what),
                        .unit = unit,
                        .lower = lower,
                        .goal = goal,
                        .ours = {value, value, value, 1}},
        w->err);
}

static double percent(uint64_t part, uint64_t of)
{
    return of > 0 ? 100 * (double)part / (double)of : 0;
}

/* The server of `m` on all cores but the last, and this thread on that one from now on: a client
 * that waits for a core would count as a late server. `all`: the cores that it had. */
static ru_status apart(bench *w, const model *m, rui_side *s, uint64_t *all)
{
    uint32_t core[64], n = ru_thread_cores_list(core, RU_ARRAY_LEN(core));
    uint64_t last = 0;
    *all = 0;
    for (uint32_t k = 0; n > 1 && k < n && core[k] < 64; k++) {
        last = UINT64_C(1) << core[k];
        *all |= last;
    }
    ru_thread_cores(*all & ~last);
    ru_status st = ours(w, m, "--slo", "p99=20ms", s);
    ru_thread_cores(*all & last);
    return st;
}

/* The promise below and beyond saturation. */
static ru_status promise(bench *w, const model *m)
{
    rui_side s = {0};
    if (!ru_bench_wants(w->b, ru_arena_printf(w->b->arena, "%s promise", m->name))) {
        return RU_OK;
    }
    uint64_t cores;
    ru_status st = apart(w, m, &s, &cores);
    st = st == RU_OK ? closed(w, &s, &m->binary, CONNS, &w->out) : st;
    double top = w->out.seconds > 0 ? (double)w->out.ok / w->out.seconds : 0;
    rui_load l = {.address = s.address,
                  .request = m->binary.p,
                  .size_bytes = m->binary.n,
                  .conns = CROWD,
                  .per_s = 0.7 * top,
                  .seconds = 2 * w->seconds,
                  .seed = 2,
                  .greets = true,
                  .promise_ns = PROMISE_NS};
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    uint64_t all = w->out.ok + w->out.full + w->out.over + w->out.other;
    st = st == RU_OK ? figure(w, m, "promise, 0.7 of saturation: late", "%", true,
                              percent(w->out.late, all), 1)
                     : st;
    st = st == RU_OK ? figure(w, m, "promise, 0.7 of saturation: refused", "%", true,
                              percent(all - w->out.ok, all), 1)
                     : st;
    l.per_s = 1.5 * top;
    l.urgent = m->urgent.p;
    l.urgent_bytes = m->urgent.n;
    l.urgent_of = URGENT_OF;
    st = st == RU_OK ? rui_load_run(&l, &w->out, w->err) : st;
    rui_side_end(&s);
    ru_thread_cores(cores);
    RU_TRY(st);
    uint64_t urgent = w->out.urgent_ok + w->out.urgent_other;
    RU_TRY(figure(w, m, "promise, 1.5 of saturation: accepted late", "%", true,
                  percent(w->out.late, w->out.ok), 1));
    RU_TRY(figure(w, m, "promise, 1.5 of saturation: in time / saturation", "", false,
                  (double)(w->out.ok - w->out.late + w->out.urgent_ok - w->out.urgent_late) /
                      w->out.seconds / top,
                  0.9));
    return figure(w, m, "promise, 1.5 of saturation: urgent late or refused", "%", true,
                  percent(w->out.urgent_late + w->out.urgent_other, urgent), 1);
}

/* A server beside ours, and the requests of both. */
typedef struct kind {
    const char *name, *install;
    const ru_text *theirs, *ours;
} kind;

/* The greatest rate, in steps of a tenth of our saturation, whose p99 is at most p99_ns. */
static ru_status rate_for(bench *w, const rui_side *s, const kind *p, double top, int64_t p99_ns,
                          double *rate)
{
    *rate = 0;
    for (double part = 0.95; part > 0.04 && *rate == 0; part -= 0.1) {
        RU_TRY(at_rate(w, s, p->ours, part * top, &w->out));
        if (ru_hist_quantile(&w->out.latency, 0.99) <= p99_ns && w->out.full + w->out.other == 0) {
            *rate = part * top;
        }
    }
    return RU_OK;
}

/* Rates of both at the p99 that the peer has at 0.7 of its saturation, and our saturation. */
typedef struct rates {
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX], top[RU_BENCH_ROUNDS_MAX];
} rates;

static ru_status rounds(bench *w, const kind *p, const rui_side *we, const rui_side *they, rates *r)
{
    for (uint32_t k = 0; k < w->rounds; k++) {
        int64_t p99_ns = 0;
        if (they->process != NULL) {
            RU_TRY(saturation(w, they, p->theirs, &r->theirs[k]));
            r->theirs[k] *= 0.7;
            RU_TRY(at_rate(w, they, p->theirs, r->theirs[k], &w->out));
            p99_ns = ru_hist_quantile(&w->out.latency, 0.99);
        }
        RU_TRY(saturation(w, we, p->ours, &r->top[k]));
        r->ours[k] = r->top[k];
        RU_TRY(they->process != NULL ? rate_for(w, we, p, r->top[k], p99_ns, &r->ours[k]) : RU_OK);
    }
    return RU_OK;
}

static ru_status memory_row(bench *w, const model *m, const rui_side *we, const rui_side *they)
{
    double held[2];
    RU_TRY(memory_mb(w, we, &held[0]));
    RU_TRY(memory_mb(w, they, &held[1]));
    return ru_bench_add(w->b,
                        &(ru_bench_row){.name = ru_arena_printf(w->b->arena, "%s memory", m->name),
                                        .unit = "MB",
                                        .lower = true,
                                        .peer = ru_arena_str(w->b->arena, they->detail),
                                        .goal = m->elements == 784 ? 3 : 2,
                                        .ours = {held[0], held[0], held[0], 1},
                                        .theirs = {held[1], held[1], held[1], 1}},
                        w->err);
}

static ru_status beside(bench *w, const model *m, const kind *p)
{
    ru_arena *a = w->b->arena;
    bool first = p->theirs == &m->plain;
    const char *name = ru_arena_printf(a, "%s rows/s at the p99 of %s", m->name, p->name);
    const char *scripts = ru_bench_scripts(a);
    const char *script = ru_path_join(a, scripts != NULL ? scripts : "", "serve_peer.py");
    const char *argv[] = {"python3", script, p->name, m->path, "1", NULL};
    rui_side we = {0}, they = {0};
    rates *r = RU_NEW(a, rates, 1);
    if (name == NULL || r == NULL) {
        return RU_FAIL(w->err, RU_E_MEM, "no memory for rounds");
    }
    if (!ru_bench_wants(w->b, name)) {
        return RU_OK;
    }
    ru_bench_row row = {.name = name, .unit = "rows/s", .goal = m->goal, .peer = p->name};
    if (scripts == NULL || rui_side_begin(argv, &they, w->err) != RU_OK) {
        rui_side_end(&they);
        row.missing = p->install;
    }
    ru_status st = ours(w, m, NULL, NULL, &we);
    st = st == RU_OK ? rounds(w, p, &we, &they, r) : st;
    if (st == RU_OK && they.process != NULL) {
        row.peer = ru_arena_str(a, they.detail);
        row.theirs = ru_bench_stat_of(r->theirs, w->rounds);
        st = first ? memory_row(w, m, &we, &they) : RU_OK;
    }
    rui_side_end(&we);
    rui_side_end(&they);
    RU_TRY(st);
    row.ours = ru_bench_stat_of(r->ours, w->rounds);
    RU_TRY(ru_bench_add(w->b, &row, w->err));
    double top = ru_bench_stat_of(r->top, w->rounds).median;
    return first ? figure(w, m, "saturation", "rows/s", false, top, 0) : RU_OK;
}

static ru_status peers(bench *w, const model *m)
{
    const kind kinds[] = {
        {"uvicorn",
         "python3 with uvicorn, onnxruntime and numpy is not installed (pip install uvicorn uvloop "
         "httptools onnxruntime numpy)",
         &m->plain, &m->binary},
        {"mlserver",
         "python3 with mlserver and onnxruntime is not installed (pip install mlserver "
         "onnxruntime)",
         &m->json, &m->json},
        {"bentoml",
         "python3 with bentoml and onnxruntime is not installed (pip install bentoml onnxruntime)",
         &m->x, &m->json},
    };
    for (uint32_t k = 0; k < (m->ids ? 1 : RU_ARRAY_LEN(kinds));
         k++) { /* logits as JSON are large */
        RU_TRY(beside(w, m, &kinds[k]));
    }
    return RU_OK;
}

/* From the start of the program to the line that says it answers, and the slowest of the first
 * requests. */
static ru_status first_answer(bench *w, const model *m)
{
    double ms[RU_BENCH_ROUNDS_MAX];
    bench once = *w;
    once.seconds = 0.05;
    if (!ru_bench_wants(w->b, ru_arena_printf(w->b->arena, "%s first answer", m->name))) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < w->rounds; k++) {
        rui_side s = {0};
        ru_time from = ru_clock_now();
        ru_status st = ours(w, m, NULL, NULL, &s);
        int64_t ready_ns = ru_time_since(ru_clock_now(), from);
        st = st == RU_OK ? closed(&once, &s, &m->binary, 1, &once.out) : st;
        ms[k] = (double)(ready_ns + ru_hist_quantile(&once.out.latency, 1)) * 1e-6;
        rui_side_end(&s);
        RU_TRY(st);
    }
    return ru_bench_add(
        w->b,
        &(ru_bench_row){.name = ru_arena_printf(w->b->arena, "%s first answer", m->name),
                        .unit = "ms",
                        .lower = true,
                        .goal = 50,
                        .ours = ru_bench_stat_of(ms, w->rounds)},
        w->err);
}

/* Requests that an access log and a trace cost, of those without. */
static ru_status log_cost(bench *w, const model *m)
{
    const char *log = ru_path_join(w->b->arena, w->b->dir, "serve-access");
    double cost[RU_BENCH_ROUNDS_MAX];
    rui_side s[2] = {{0}, {0}};
    if (!ru_bench_wants(w->b, ru_arena_printf(w->b->arena, "%s log and trace", m->name))) {
        return RU_OK;
    }
    ru_status st = ours(w, m, NULL, NULL, &s[0]);
    st = st == RU_OK ? ours(w, m, "--access-log", log, &s[1]) : st;
    for (uint32_t k = 0; st == RU_OK && k < w->rounds; k++) {
        double per_s[2] = {0};
        for (uint32_t i = 0; st == RU_OK && i < 2; i++) {
            st = closed(w, &s[i], i == 0 ? &m->binary : &m->traced, CONNS, &w->out);
            per_s[i] = st == RU_OK ? (double)w->out.ok / w->out.seconds : 1;
        }
        cost[k] = 100 * (1 - per_s[1] / per_s[0]);
    }
    rui_side_end(&s[0]);
    rui_side_end(&s[1]);
    RU_TRY(st);
    return ru_bench_add(
        w->b,
        &(ru_bench_row){.name = ru_arena_printf(w->b->arena, "%s log and trace", m->name),
                        .unit = "%",
                        .lower = true,
                        .goal = 2,
                        .ours = ru_bench_stat_of(cost, w->rounds)},
        w->err);
}

/* p99 of others beside connections that ask nothing, as many as the system allows up to 10^4, over
 * that without them. */
static ru_status beside_silent(bench *w, const model *m)
{
    enum { SILENT = 10000, OWN = 1000 };
    const char *name = ru_arena_printf(w->b->arena, "%s p99 beside silent sockets", m->name);
    double p99[2][RU_BENCH_ROUNDS_MAX];
    uint32_t files = ru_files_max(SILENT + OWN);
    rui_side s = {0};
    if (!ru_bench_wants(w->b, name)) {
        return RU_OK;
    }
    ru_status st = ours(w, m, NULL, NULL, &s);
    st = st == RU_OK ? closed(w, &s, &m->binary, CONNS, &w->out) : st;
    rui_load l = {.address = s.address,
                  .request = m->binary.p,
                  .size_bytes = m->binary.n,
                  .conns = CONNS,
                  .per_s = 0.3 * (double)w->out.ok / w->out.seconds,
                  .seconds = w->seconds,
                  .seed = 1,
                  .greets = true};
    for (uint32_t k = 0; st == RU_OK && k < 2 * w->rounds; k++) {
        l.silent = k % 2 == 0 ? 0 : files >= SILENT + OWN ? SILENT : files > OWN ? files - OWN : 0;
        st = rui_load_run(&l, &w->out, w->err);
        p99[k % 2][k / 2] = (double)ru_hist_quantile(&w->out.latency, 0.99) * 1e-3;
    }
    rui_side_end(&s);
    RU_TRY(st);
    return ru_bench_add(w->b,
                        &(ru_bench_row){.name = name,
                                        .unit = "us",
                                        .lower = true,
                                        .peer = "without them",
                                        .goal = 1 / 1.2,
                                        .ours = ru_bench_stat_of(p99[1], w->rounds),
                                        .theirs = ru_bench_stat_of(p99[0], w->rounds)},
                        w->err);
}

/* Until batches of so many rows are open. */
static ru_status until_grown(bench *w, const rui_side *s, int64_t rows)
{
    ru_arena *a = w->b->arena;
    const char *url = ru_arena_printf(a, "http://%s/metrics", s->address);
    const char *want = ru_arena_printf(a, "rows=\"%lld\"", (long long)rows);
    for (uint32_t k = 0; url != NULL && want != NULL && k < 600; k++) {
        char *text = NULL;
        int64_t n = 0;
        RU_TRY(ru_http_fetch(&(ru_fetch){.url = url}, a, &text, &n, w->err));
        if (strstr(text, want) != NULL) {
            return RU_OK;
        }
        ru_clock_pause(INT64_C(100000000));
    }
    return RU_FAIL(w->err, RU_E_PEER, "%s does not open batches of %lld rows", s->address,
                   (long long)rows);
}

/* What a further batch size (2, 4, 8, 16, 32 rows) costs on average, of the model's file. */
static ru_status batch_size(bench *w, const model *m)
{
    double held[2] = {0};
    ru_in_file file;
    if (!ru_bench_wants(w->b, ru_arena_printf(w->b->arena, "%s further batch size", m->name))) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < 2; k++) {
        rui_side s = {0};
        ru_status st = ours(w, m, "--batch", k == 0 ? "1" : "32", &s);
        st = st == RU_OK ? until_grown(w, &s, k == 0 ? 1 : 32) : st;
        st = st == RU_OK ? memory_mb(w, &s, &held[k]) : st;
        rui_side_end(&s);
        RU_TRY(st);
    }
    RU_TRY(ru_in_open(m->path, &file, w->err));
    double mb = (double)file.size_bytes / 1048576;
    ru_in_close(&file);
    return figure(w, m, "further batch size, of the weights", "%", true,
                  100 * (held[1] - held[0]) / 5 / mb, 5);
}

ru_status ru_bench_serve(ru_bench *b, ru_err *err)
{
    model models[] = {
        {.name = "mlp",
         .elements = 784,
         .goal = 3,
         .job = "name: mlp\nmodel: {zoo: mlp, hidden: [256]}\n"
                "data: {format: synthetic, generator: digits, count: 256}\n"
                "train: {batch: 64, steps: 1, threads: 1}\n"},
        {.name = "lenet",
         .elements = 784,
         .goal = 3,
         .job = "name: lenet\nmodel: {zoo: lenet}\n"
                "data: {format: synthetic, generator: digits, count: 256}\n"
                "train: {batch: 64, steps: 1, threads: 1}\n"},
        {.name = "resnet18",
         .elements = 3072,
         .goal = 1.3,
         .job = "name: resnet18\nmodel: {zoo: resnet18}\n"
                "data: {format: synthetic, generator: noise, count: 64}\n"
                "train: {batch: 16, steps: 1, threads: 1}\n"},
        {.name = "gpt-scoring",
         .elements = 32,
         .ids = true,
         .goal = 1.3,
         .job = "name: gpt-scoring\n"
                "model: {zoo: gpt, layers: 4, heads: 4, width: 256, context: 32, vocab: 256}\n"
                "data: {format: tokens, train: serve-text.u8}\n"
                "train: {batch: 2, steps: 1, threads: 1, autotune: false}\n"},
    };
    bench w = {.b = b,
               .rubato = ru_bench_rubato(b->arena),
               .seconds = b->quick ? 1 : 4,
               .rounds = b->quick ? 3 : 5,
               .err = err};
    RU_TRY(rui_bench_tokens(b, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(models); k++) {
        model *m = &models[k];
        m->path = ru_arena_printf(b->arena, "%s/%s.onnx", b->dir, m->name);
        RU_TRY(rui_bench_model(b, m->name, m->job, "--onnx", m->path, err));
        RU_TRY(requests(&w, m));
        if (k == 0) {
            RU_TRY(hop(&w, m, false));
            RU_TRY(hop(&w, m, true));
        }
        RU_TRY(peers(&w, m));
        if (k < 2) {
            RU_TRY(promise(&w, m));
        }
        const rui_load load = {.request = m->binary.p,
                               .size_bytes = m->binary.n,
                               .conns = CONNS,
                               .seconds = w.seconds,
                               .seed = 3};
        RU_TRY(k == 1 ? rui_bench_simulate(b, &load, m->path, w.rounds, err) : RU_OK);
        RU_TRY(k == 1 ? beside_silent(&w, m) : RU_OK);
        RU_TRY(k == 0 ? log_cost(&w, m) : k == 1 ? first_answer(&w, m) : RU_OK);
        RU_TRY(batch_size(&w, m));
    }
    RU_TRY(rui_bench_generate(b, w.rounds, w.seconds, err));
    return rui_bench_prompt(b, w.rounds, err);
}
