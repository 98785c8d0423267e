/* Texts: tokens a second of a server beside other generators with caches, the same weights and
 * threads, in turns; and in bf16 beside f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve/bench_serve.h"
#include "bench/serve/load.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/memory.h"
#include "env/process/process.h"

enum { CONTEXT = 256, PROMPT = 16 };
#define START_NS INT64_C(120000000000)

typedef struct peer {
    const char *name, *install; /* name "f32": the server itself, which we ask in bf16 then */
    double goal[2];             /* of one text, of 8 at one time; 0: none */
} peer;

typedef struct shape {
    const char *name;
    int64_t layers, heads, width, vocab, tokens;
    const peer *peers;
    uint32_t n_peers;
} shape;

static const char TRANSFORMERS[] = "python3 with torch, transformers and safetensors is not "
                                   "installed (pip install torch transformers safetensors)";
static const char CTRANSLATE2[] =
    "python3 with ctranslate2, torch, transformers and safetensors is not installed (pip install "
    "ctranslate2 torch transformers safetensors)";
static const char LLAMA_CPP[] =
    "python3 with llama-cpp-python, gguf and safetensors is not installed (pip install "
    "llama-cpp-python gguf safetensors)";
/* What one thread reads of memory, over the bytes of weights that a token needs. */
static const char READS[] = "reads of memory";
static const peer small[] = {{"transformers", TRANSFORMERS, {2.5, 2.5}}};
static const peer large[] = {{"transformers", TRANSFORMERS, {1.1, 1.5}},
                             {"ctranslate2", CTRANSLATE2, {1, 1}},
                             {"llama.cpp", LLAMA_CPP, {1, 1}},
                             {"f32", NULL, {1.6, 1.6}},
                             {READS, NULL, {0.8, 0}}};
static const shape shapes[] = {
    {"gpt 4x256", 4, 4, 256, 256, 64, small, RU_ARRAY_LEN(small)},
    {"gpt2 small", 12, 12, 768, 50257, 32, large, RU_ARRAY_LEN(large)},
};

typedef struct sides {
    ru_bench *b;
    const shape *shape;
    const char *run, *weights;
    rui_side we, they;
    ru_text request;
    uint32_t rounds;
    double seconds;
    ru_err *err;
} sides;

ru_status rui_bench_tokens(ru_bench *b, ru_err *err)
{
    const char *path = ru_path_join(b->arena, b->dir, "serve-text.u8");
    uint8_t bytes[4 * CONTEXT];
    for (uint32_t k = 0; k < sizeof bytes; k++) {
        bytes[k] = (uint8_t)(k * k);
    }
    return path != NULL ? ru_file_replace(path, bytes, (int64_t)sizeof bytes, err)
                        : RU_FAIL(err, RU_E_MEM, "no memory for names");
}

static ru_status make(sides *s)
{
    const shape *p = s->shape;
    ru_arena *a = s->b->arena;
    const char *name = ru_arena_printf(a, "text-%lld", (long long)p->width);
    const char *job = ru_arena_printf(
        a,
        "name: text\n"
        "model: {zoo: gpt, layers: %lld, heads: %lld, width: %lld, context: %d, vocab: %lld, bias: "
        "true}\n"
        "data: {format: tokens, train: serve-text.u8}\n"
        "train: {batch: 1, steps: 1, threads: 1, autotune: false}\n",
        (long long)p->layers, (long long)p->heads, (long long)p->width, CONTEXT,
        (long long)p->vocab);
    s->run = ru_arena_printf(a, "%s/serve-%s", s->b->dir, name != NULL ? name : "");
    s->weights = ru_arena_printf(a, "%s.safetensors", s->run != NULL ? s->run : "");
    if (job == NULL || s->run == NULL || s->weights == NULL) {
        return RU_FAIL(s->err, RU_E_MEM, "no memory for names");
    }
    RU_TRY(rui_bench_model(s->b, name, job, "--safetensors", s->weights, s->err));
    char body[512];
    ru_text t = ru_text_into(body, sizeof body);
    ru_text_put(&t, "{\"prompt\":[");
    for (int k = 0; k < PROMPT; k++) {
        ru_text_putf(&t, "%s%d", k > 0 ? "," : "", (7 * k + 3) % 256);
    }
    ru_text_putf(&t, "],\"max_tokens\":%lld,\"temperature\":0}", (long long)p->tokens);
    s->request = ru_text_arena(a);
    ru_text_putf(&s->request,
                 "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %lld\r\n\r\n%s",
                 (long long)t.n, body);
    return RU_OK;
}

static ru_status begin(sides *s, const char *precision, rui_side *out)
{
    const char *argv[] = {ru_bench_rubato(s->b->arena),
                          "serve",
                          s->run,
                          "-l",
                          "0",
                          "--json",
                          "--batch",
                          "1",
                          "--precision",
                          precision,
                          NULL};
    return rui_side_begin(argv, out, s->err);
}

/* false: the peer is not installed. */
static bool begin_peer(sides *s, const peer *p)
{
    ru_arena *a = s->b->arena;
    const char *scripts = ru_bench_scripts(a);
    const char *script = scripts != NULL ? ru_path_join(a, scripts, "generate_peer.py") : NULL;
    const int64_t of[] = {s->shape->layers, s->shape->heads, s->shape->width,
                          CONTEXT,          s->shape->vocab, 1};
    const char *argv[11] = {"python3", script, p->name, s->weights};
    for (uint32_t k = 0; k < RU_ARRAY_LEN(of); k++) {
        argv[4 + k] = ru_arena_printf(a, "%lld", (long long)of[k]);
    }
    ru_err err;
    bool ok = script != NULL && rui_side_begin(argv, &s->they, &err) == RU_OK;
    if (!ok) {
        rui_side_end(&s->they);
    }
    return ok;
}

static ru_status served(sides *s, const rui_side *of, uint32_t texts, double *rate)
{
    rui_load_out *out = RU_NEW(s->b->arena, rui_load_out, 1);
    const rui_load l = {.address = of->address,
                        .request = s->request.p,
                        .size_bytes = s->request.n,
                        .conns = texts,
                        .seconds = s->seconds,
                        .patience_s = 120};
    if (out == NULL) {
        return RU_FAIL(s->err, RU_E_MEM, "no memory for a load");
    }
    RU_TRY(rui_load_run(&l, out, s->err));
    *rate = (double)out->ok * (double)s->shape->tokens / out->seconds;
    return RU_OK;
}

static ru_status of_peer(sides *s, uint32_t texts, double *rate)
{
    char ask[64];
    const char *line = NULL;
    if (s->they.address[0] != '\0') {
        return served(s, &s->they, texts, rate);
    }
    int n = snprintf(ask, sizeof ask, "%u %lld\n", texts, (long long)s->shape->tokens);
    RU_TRY(ru_process_write(s->they.process, ask, n, s->err));
    RU_TRY(ru_process_line(s->they.process, START_NS, &line, s->err));
    *rate = line != NULL ? strtod(line, NULL) : 0;
    return RU_OK;
}

/* Tokens a second if a token took no more than to read its weights. Of the embeddings it needs a
 * line. */
static ru_status of_reads(sides *s, double *rate)
{
    enum { MB = 1 << 20, WORDS = 64 * MB, PASSES = 3 };
    ru_in_file file;
    RU_TRY(ru_in_open(s->weights, &file, s->err));
    double bytes = (double)(file.size_bytes - (s->shape->vocab + CONTEXT) * s->shape->width * 4);
    ru_in_close(&file);
    uint64_t kept = 0;
    uint64_t *x = ru_memory_map((int64_t)WORDS * 8);
    if (x == NULL) {
        return RU_FAIL(s->err, RU_E_MEM, "no memory to read");
    }
    memset(x, 1, (size_t)WORDS * 8);
    double best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t sum[8] = {0};
        ru_time from = ru_clock_now();
        for (int64_t i = 0; i < WORDS; i += 8) {
            for (int k = 0; k < 8; k++) {
                sum[k] += x[i + k];
            }
        }
        double s_per = (double)ru_time_since(ru_clock_now(), from) * 1e-9;
        kept += sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
        best = (double)WORDS * 8 / s_per > best ? (double)WORDS * 8 / s_per : best;
    }
    ru_memory_unmap(x, (int64_t)WORDS * 8);
    *rate = kept > 0 ? best / bytes : 0; /* so that the sums are made */
    return RU_OK;
}

static ru_status row(sides *s, const peer *p, uint32_t which, const char *name)
{
    double ours[RU_BENCH_ROUNDS_MAX], theirs[RU_BENCH_ROUNDS_MAX] = {0};
    uint32_t texts = which == 0 ? 1 : 8;
    ru_bench_row r = {.name = name, .unit = "tokens/s", .goal = p->goal[which], .peer = p->name};
    for (uint32_t k = 0; k < s->rounds; k++) {
        RU_TRY(served(s, &s->we, texts, &ours[k]));
        RU_TRY(p->name == READS          ? of_reads(s, &theirs[k])
               : s->they.process != NULL ? of_peer(s, texts, &theirs[k])
                                         : RU_OK);
    }
    r.ours = ru_bench_stat_of(ours, s->rounds);
    r.missing = s->they.process == NULL ? p->install : NULL;
    if (s->they.process != NULL || p->name == READS) {
        r.theirs = ru_bench_stat_of(theirs, s->rounds);
    }
    return ru_bench_add(s->b, &r, s->err);
}

static ru_status beside(sides *s, const peer *p, const char *const name[2])
{
    bool own = p->install == NULL && p->name != READS;
    ru_status st = begin(s, own ? "bf16" : "f32", &s->we);
    if (st == RU_OK && own) {
        st = begin(s, "f32", &s->they);
    } else if (st == RU_OK && p->name != READS) {
        (void)begin_peer(s, p);
    }
    for (uint32_t k = 0; st == RU_OK && k < 2; k++) {
        bool none = p->name == READS && p->goal[k] == 0;
        st = ru_bench_wants(s->b, name[k]) && !none ? row(s, p, k, name[k]) : RU_OK;
    }
    rui_side_end(&s->we);
    rui_side_end(&s->they);
    return st;
}

ru_status rui_bench_generate(ru_bench *b, uint32_t rounds, double seconds, ru_err *err)
{
    for (uint32_t i = 0; i < RU_ARRAY_LEN(shapes); i++) {
        sides s = {.b = b, .shape = &shapes[i], .rounds = rounds, .seconds = seconds, .err = err};
        bool made = false;
        for (uint32_t k = 0; k < shapes[i].n_peers; k++) {
            const peer *p = &shapes[i].peers[k];
            const char *own = p->install == NULL && p->name != READS ? " bf16" : "";
            const char *name[2];
            for (uint32_t n = 0; n < 2; n++) {
                name[n] = ru_arena_printf(b->arena, "%s%s, %s, beside %s", shapes[i].name, own,
                                          n == 0 ? "1 text" : "8 texts at one time", p->name);
            }
            if (name[0] == NULL || name[1] == NULL) {
                return RU_FAIL(err, RU_E_MEM, "no memory for names");
            }
            if (ru_bench_wants(b, name[0]) || ru_bench_wants(b, name[1])) {
                RU_TRY(made ? RU_OK : make(&s));
                made = true;
                RU_TRY(beside(&s, p, name));
            }
        }
    }
    return RU_OK;
}
