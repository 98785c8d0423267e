/* Texts: tokens a second of a server beside Hugging Face's generate, the same weights and threads,
 * in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve/bench_serve.h"
#include "bench/serve/load.h"
#include "env/file/file.h"
#include "env/process/process.h"

enum { TOKENS = 64, CONTEXT = 256 };
#define START_NS INT64_C(120000000000)

static const char JOB[] =
    "name: text\n"
    "model: {zoo: gpt, layers: 4, heads: 4, width: 256, context: 256, bias: true}\n"
    "data: {format: tokens, train: serve-text.u8}\n"
    "train: {batch: 2, steps: 1, threads: 1, autotune: false}\n";

typedef struct sides {
    ru_bench *b;
    rui_side we, they;
    ru_text request;
} sides;

static ru_status make(const sides *s, const char *weights, ru_err *err)
{
    const char *data = ru_path_join(s->b->arena, s->b->dir, "serve-text.u8");
    uint8_t bytes[4 * CONTEXT];
    for (uint32_t k = 0; k < sizeof bytes; k++) {
        bytes[k] = (uint8_t)(k * k);
    }
    if (data == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for names");
    }
    RU_TRY(ru_file_replace(data, bytes, (int64_t)sizeof bytes, err));
    return rui_bench_model(s->b, "text", JOB, "--safetensors", weights, err);
}

static ru_status begin(sides *s, const char *run, ru_err *err)
{
    const char *argv[] = {
        ru_bench_rubato(s->b->arena), "serve", run, "-l", "0", "--json", "--batch", "1", NULL};
    RU_TRY(rui_side_begin(argv, &s->we, err));
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"model\":\"serve-text\",\"prompt\":\"sixteen letters.\",\"max_tokens\":%d,"
                     "\"temperature\":0}",
                     TOKENS);
    s->request = ru_text_arena(s->b->arena);
    ru_text_putf(&s->request,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", n,
                 body);
    return RU_OK;
}

/* false: the peer is not installed. */
static bool begin_peer(sides *s, const char *weights)
{
    const char *scripts = ru_bench_scripts(s->b->arena);
    const char *script =
        scripts != NULL ? ru_path_join(s->b->arena, scripts, "generate_peer.py") : NULL;
    const char *argv[] = {"python3", script, weights, "4", "4", "256", "256", "256", "1", NULL};
    ru_err err;
    bool ok = script != NULL && rui_side_begin(argv, &s->they, &err) == RU_OK;
    if (!ok) {
        rui_side_end(&s->they);
    }
    return ok;
}

static ru_status one_round(sides *s, uint32_t texts, double seconds, double *ours, double *theirs,
                           ru_err *err)
{
    rui_load_out *out = RU_NEW(s->b->arena, rui_load_out, 1);
    const rui_load l = {.address = s->we.address,
                        .request = s->request.p,
                        .size_bytes = s->request.n,
                        .conns = texts,
                        .seconds = seconds};
    if (out == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a load");
    }
    RU_TRY(rui_load_run(&l, out, err));
    *ours = (double)out->ok * TOKENS / out->seconds;
    if (s->they.process != NULL) {
        char ask[32];
        const char *line = NULL;
        int n = snprintf(ask, sizeof ask, "%u %d\n", texts, TOKENS);
        RU_TRY(ru_process_write(s->they.process, ask, n, err));
        RU_TRY(ru_process_line(s->they.process, START_NS, &line, err));
        *theirs = line != NULL ? strtod(line, NULL) : 0;
    }
    return RU_OK;
}

static ru_status row(sides *s, uint32_t texts, uint32_t rounds, double seconds, ru_err *err)
{
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX];
    const char *name = ru_arena_printf(s->b->arena, "gpt 4x256, %u text%s", texts,
                                       texts == 1 ? "" : "s at one time");
    ru_bench_row r = {.name = name, .unit = "tokens/s", .goal = 2.5, .peer = "transformers"};
    if (name == NULL || !ru_bench_wants(s->b, name)) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < rounds; k++) {
        RU_TRY(one_round(s, texts, seconds, &ours[k], &theirs[k], err));
    }
    r.ours = ru_bench_stat_of(ours, rounds);
    if (s->they.process != NULL) {
        r.theirs = ru_bench_stat_of(theirs, rounds);
    } else {
        r.missing =
            "python3 with torch, transformers and safetensors is not installed (pip install "
            "torch transformers safetensors)";
    }
    return ru_bench_add(s->b, &r, err);
}

ru_status rui_bench_generate(ru_bench *b, uint32_t rounds, double seconds, ru_err *err)
{
    sides s = {.b = b};
    const char *run = ru_path_join(b->arena, b->dir, "serve-text");
    const char *weights = ru_path_join(b->arena, b->dir, "serve-text.safetensors");
    if (run == NULL || weights == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for names");
    }
    RU_TRY(make(&s, weights, err));
    ru_status st = begin(&s, run, err);
    (void)(st == RU_OK && begin_peer(&s, weights));
    st = st == RU_OK ? row(&s, 1, rounds, seconds, err) : st;
    st = st == RU_OK ? row(&s, 8, rounds, seconds, err) : st;
    rui_side_end(&s.we);
    rui_side_end(&s.they);
    return st;
}
