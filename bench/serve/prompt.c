/* Time between the tokens of texts that are streamed, with and without a long prompt beside them.
 */
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

enum { STREAMS = 7, CONTEXT = 2304, PROMPT = 2000, VOCAB = 512, FIRST = 8, GAPS = 700 };
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

static bool all_begun(const beside *w)
{
    bool begun = true;
    for (uint32_t k = 0; k < STREAMS; k++) {
        begun = begun && w->lines[k].n >= FIRST;
    }
    return begun;
}

/* The 99th percentile of the gaps without the prompt, then until its answer is there. */
static ru_status measure(beside *w, double p99_ms[2], ru_arena *arena)
{
    ru_time until = ru_time_after(ru_clock_now(), PATIENCE_NS);
    for (uint32_t k = 0; k < STREAMS; k++) {
        RU_TRY(ask(w, FIRST, CONTEXT - FIRST, true, arena));
    }
    for (uint32_t part = 0; part < 3; part++) {
        w->gaps = (ru_hist){0};
        RU_TRY(part == 2 ? ask(w, PROMPT, 1, false, arena) : RU_OK);
        while (part == 0 ? !all_begun(w) : part == 1 ? w->gaps.n < GAPS : !w->answered) {
            RU_TRY(turn(w));
            if (ru_time_since(ru_clock_now(), until) > 0) {
                return RU_FAIL(w->err, RU_E_PEER, "%s writes too slowly", w->address);
            }
        }
        p99_ms[part == 2 ? 1 : 0] = (double)ru_hist_quantile(&w->gaps, 0.99) * 1e-6;
    }
    return RU_OK;
}

ru_status rui_bench_prompt(ru_bench *b, uint32_t rounds, ru_err *err)
{
    static const char name[] = "gpt 4x256, time between tokens of 7 texts beside a prompt of 2,000";
    double with[RU_BENCH_ROUNDS_MAX], without[RU_BENCH_ROUNDS_MAX], p99[2] = {0};
    const char *run = NULL;
    rui_side s = {0};
    if (!ru_bench_wants(b, name)) {
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
        *w = (beside){.address = s.address, .err = err};
        st = measure(w, p99, b->arena);
        without[k] = p99[0];
        with[k] = p99[1];
        for (uint32_t i = 0; i < w->n; i++) {
            close(w->lines[i].fd);
        }
    }
    rui_side_end(&s);
    RU_TRY(st);
    return ru_bench_add(b,
                        &(ru_bench_row){.name = name,
                                        .unit = "ms, p99",
                                        .lower = true,
                                        .peer = "without it",
                                        .goal = 0.5,
                                        .ours = ru_bench_stat_of(with, rounds),
                                        .theirs = ru_bench_stat_of(without, rounds)},
                        err);
}
