/* The benchmark `serve`.
 *
 * Thread: main only. */
#ifndef RU_BENCH_SERVE_BENCH_SERVE_H
#define RU_BENCH_SERVE_BENCH_SERVE_H

#include "base/str.h"
#include "bench/bench.h"
#include "bench/serve/load.h"

/* A process that has said that it is ready, with its address if it listens. */
typedef struct rui_side {
    struct ru_process *process;
    char address[64], detail[128];
} rui_side;

/* Waits for its line; end also after an error. Errors: RU_E_PEER. */
RU_MUST_USE ru_status rui_side_begin(const char *const *argv, rui_side *s, ru_err *err);
void rui_side_end(rui_side *s);

/* A model trained for one step, as its weights do not matter here: the run serve-NAME in the folder
 * of the benchmarks, and an export of it at `path`; form: the option, "--onnx". */
RU_MUST_USE ru_status rui_bench_model(ru_bench *b, const char *name, const char *job,
                                      const char *form, const char *path, ru_err *err);
/* The run of a language model, trained for one step on tokens below `vocab` in serve-NAME.u8. */
RU_MUST_USE ru_status rui_bench_run_of_tokens(ru_bench *b, const char *name, const char *job,
                                              int64_t vocab, const char **run, ru_err *err);
/* Tokens to train on, serve-text.u8 in the folder of the benchmarks. */
RU_MUST_USE ru_status rui_bench_tokens(ru_bench *b, ru_err *err);
RU_MUST_USE ru_status rui_bench_generate(ru_bench *b, uint32_t rounds, double seconds, ru_err *err);
/* Gaps between the tokens of texts beside a long prompt. */
RU_MUST_USE ru_status rui_bench_prompt(ru_bench *b, uint32_t rounds, ru_err *err);
/* The machine in virtual time beside the server, for a model and requests of one row. */
RU_MUST_USE ru_status rui_bench_simulate(ru_bench *b, const rui_load *load, const char *path,
                                         uint32_t rounds, ru_err *err);
/* An infer request for one row of f32 of such a shape, binary. */
void rui_bench_request(ru_text *t, const char *model, int64_t elements, const char *shape);
/* The benchmark `promise`: batches on functions, trainings beside a server. */
RU_MUST_USE ru_status ru_bench_promise(ru_bench *b, ru_err *err);
RU_MUST_USE ru_status ru_bench_serve(ru_bench *b, ru_err *err);

#endif
