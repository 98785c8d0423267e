/* Time between the tokens of texts that are streamed, while a long prompt beside them is read, over
 * that between the same tokens without it: what a token costs grows with its place. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hist.h"
#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve/bench_serve.h"
#include "bench/serve/load.h"
#include "env/clock.h"

enum { STREAMS = 7, CONTEXT = 2304, PROMPT = 2000, VOCAB = 512, FIRST = 8, BEFORE = 108 };
#define PATIENCE_NS INT64_C(120000000000)

typedef struct line {
    int fd;
    char before;  /* the byte before what comes */
    int64_t n;    /* events so far */
    int64_t last; /* when the last one came */
} line;

typedef struct beside {
    line lines[STREAMS + 1]; /* the last one: the prompt's */
    uint32_t n;
    ru_hist gaps;
    bool answered; /* the prompt's whole answer is there */
    const char *address;
    ru_err *err;
} beside;

static ru_status ask(beside *w, int64_t prompt, int64_t tokens, bool stream, ru_arena *arena)
{
    line *l = &w->lines[w->n];
    ru_text body = ru_text_arena(arena), t = ru_text_arena(arena);
    ru_text_put(&body, "{\"prompt\":[");
    for (int64_t k = 0; k < prompt; k++) {
        ru_text_putf(&body, "%s%lld", k > 0 ? "," : "", (long long)((7 * k + w->n) % VOCAB));
    }
    ru_text_putf(&body, "],\"max_tokens\":%lld,\"temperature\":0,\"stream\":%s}", (long long)tokens,
                 stream ? "true" : "false");
    ru_text_putf(&t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %lld\r\n\r\n%s",
                 (long long)body.n, body.p);
    *l = (line){.fd = -1};
    if (t.cut) {
        return RU_FAIL(w->err, RU_E_MEM, "no memory for a request");
    }
    RU_TRY(rui_load_dial(w->address, &l->fd, w->err));
    w->n++;
    return send(l->fd, t.p, (size_t)t.n, MSG_NOSIGNAL) == t.n
               ? RU_OK
               : RU_FAIL(w->err, RU_E_PEER, "%s: send: %s", w->address, strerror(errno));
}

/* Events end in an empty line; a token and what comes with it are one. */
static ru_status hear(beside *w, uint32_t which)
{
    line *l = &w->lines[which];
    char bytes[16 << 10];
    ssize_t n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n <= 0) {
        return n < 0 && errno == EAGAIN ? RU_OK
                                        : RU_FAIL(w->err, RU_E_PEER, "%s ended a text", w->address);
    }
    int64_t now = ru_clock_now().ns;
    if (which == STREAMS) {
        if (n < 12 || memcmp(bytes + 9, "200", 3) != 0) {
            return RU_FAIL(w->err, RU_E_PEER, "%s refuses the prompt: %.*s", w->address,
                           (int)(n < 300 ? n : 300), bytes);
        }
        w->answered = true;
    }
    for (ssize_t k = 0; k < n; k++) {
        if (bytes[k] == '\n' && l->before == '\n') {
            if (l->n++ > 0) {
                ru_hist_add(&w->gaps, now - l->last);
            }
            l->last = now;
        }
        l->before = bytes[k];
    }
    return RU_OK;
}

static ru_status turn(beside *w)
{
    struct pollfd fds[STREAMS + 1];
    for (uint32_t k = 0; k < w->n; k++) {
        fds[k] = (struct pollfd){.fd = w->lines[k].fd, .events = POLLIN};
    }
    (void)poll(fds, w->n, 100);
    for (uint32_t k = 0; k < w->n; k++) {
        if (fds[k].revents != 0) {
            RU_TRY(hear(w, k));
        }
    }
    return RU_OK;
}

static void end(beside *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->lines[i].fd >= 0) {
            close(w->lines[i].fd);
        }
        w->lines[i].fd = -1;
    }
    w->n = 0;
}

static int64_t fewest(const beside *w)
{
    int64_t n = INT64_MAX;
    for (uint32_t k = 0; k < STREAMS; k++) {
        n = w->lines[k].n < n ? w->lines[k].n : n;
    }
    return n;
}

/* Until each text has so many tokens; 0: until the prompt is answered. */
static ru_status until(beside *w, int64_t tokens)
{
    ru_time most = ru_time_after(ru_clock_now(), PATIENCE_NS);
    while (tokens > 0 ? fewest(w) < tokens : !w->answered) {
        RU_TRY(turn(w));
        if (ru_time_since(ru_clock_now(), most) > 0) {
            return RU_FAIL(w->err, RU_E_PEER, "%s writes too slowly", w->address);
        }
    }
    return RU_OK;
}

static ru_status begin_texts(beside *w, ru_arena *arena)
{
    for (uint32_t k = 0; k < STREAMS; k++) {
        RU_TRY(ask(w, FIRST, CONTEXT - FIRST, true, arena));
    }
    RU_TRY(until(w, BEFORE));
    w->gaps = (ru_hist){0};
    return RU_OK;
}

static ru_status read_prompt(beside *w, double *ms, ru_arena *arena)
{
    ru_time from = ru_clock_now();
    w->answered = false;
    RU_TRY(ask(w, PROMPT, 1, false, arena));
    RU_TRY(until(w, 0));
    *ms = (double)ru_time_since(ru_clock_now(), from) * 1e-6;
    return RU_OK;
}

enum { WITH, WITHOUT, SIDES };
typedef struct times {
    double gap[SIDES], first[SIDES]; /* ms */
} times;

/* The 99th percentile of the gaps while the prompt is read, and until its answer; the same tokens
 * without it; the prompt by itself. */
static ru_status measure(beside *w, times *t, ru_arena *arena)
{
    RU_TRY(begin_texts(w, arena));
    RU_TRY(read_prompt(w, &t->first[WITH], arena));
    int64_t to = fewest(w);
    t->gap[WITH] = (double)ru_hist_quantile(&w->gaps, 0.99) * 1e-6;
    end(w);
    RU_TRY(begin_texts(w, arena));
    RU_TRY(until(w, to));
    t->gap[WITHOUT] = (double)ru_hist_quantile(&w->gaps, 0.99) * 1e-6;
    end(w);
    w->n = STREAMS; /* the prompt's line */
    return read_prompt(w, &t->first[WITHOUT], arena);
}

static ru_status put(ru_bench *b, const char *name, double goal, double *const x[SIDES],
                     uint32_t rounds, ru_err *err)
{
    return ru_bench_add(b,
                        &(ru_bench_row){.name = name,
                                        .unit = goal > 0 ? "ms, p99" : "ms",
                                        .lower = true,
                                        .peer = "without",
                                        .goal = goal,
                                        .ours = ru_bench_stat_of(x[WITH], rounds),
                                        .theirs = ru_bench_stat_of(x[WITHOUT], rounds)},
                        err);
}

ru_status rui_bench_prompt(ru_bench *b, uint32_t rounds, ru_err *err)
{
    static const char name[] = "gpt 4x256, time between tokens of 7 texts beside a prompt of 2,000";
    static const char first_name[] = "gpt 4x256, first token of a prompt of 2,000 beside 7 texts";
    double gap[SIDES][RU_BENCH_ROUNDS_MAX], first[SIDES][RU_BENCH_ROUNDS_MAX];
    const char *run = NULL;
    rui_side s = {0};
    if (!ru_bench_wants(b, name) && !ru_bench_wants(b, first_name)) {
        return RU_OK;
    }
    const char *job = ru_arena_printf(
        b->arena,
        "name: prompt\n"
        "model: {zoo: gpt, layers: 4, heads: 4, width: 256, context: %d, vocab: %d}\n"
        "data: {format: tokens, train: serve-prompt.u8}\n"
        "train: {batch: 1, steps: 1, threads: 1, autotune: false}\n",
        CONTEXT, VOCAB);
    beside *w = RU_NEW(b->arena, beside, 1);
    if (job == NULL || w == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the model");
    }
    RU_TRY(rui_bench_run_of_tokens(b, "prompt", job, 256, &run, err));
    const char *argv[] = {
        ru_bench_rubato(b->arena), "serve", run, "-l", "0", "--json", "--batch", "1", NULL};
    ru_status st = rui_side_begin(argv, &s, err);
    for (uint32_t k = 0; st == RU_OK && k < rounds; k++) {
        times t = {0};
        *w = (beside){.address = s.address, .err = err};
        st = measure(w, &t, b->arena);
        for (uint32_t i = 0; i < SIDES; i++) {
            gap[i][k] = t.gap[i];
            first[i][k] = t.first[i];
        }
        end(w);
    }
    rui_side_end(&s);
    RU_TRY(st);
    RU_TRY(put(b, name, 0.5, (double *const[]){gap[WITH], gap[WITHOUT]}, rounds, err));
    return put(b, first_name, 0, (double *const[]){first[WITH], first[WITHOUT]}, rounds, err);
}
