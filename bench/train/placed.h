/* Placed steps in the network laboratory.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PLACED_H
#define RU_BENCH_PLACED_H

#include "bench/bench.h"

/* Errors: RU_E_MISSING: no laboratory here. */
RU_MUST_USE ru_status ru_bench_placed(ru_bench *b, ru_err *err);
/* Its rows with limits of memory. */
RU_MUST_USE ru_status rui_placed_limits(ru_bench *b, ru_err *err);

enum { RUI_PLACED_BRANCHES_MAX = 8 };

/* A stem with branches, or two towers with a stem each, which meet at the end. Zero: the default.
 */
typedef struct rui_placed_net_shape {
    const int64_t *widths; /* [n] of branches */
    uint32_t n;            /* 0: two towers */
    int64_t stem;          /* channels: 32 */
    uint32_t depth;        /* convolutions of a branch or tower: 3 */
    int64_t kernel;        /* of these: 3 */
    int64_t side;          /* of an image: 32, of which the stem makes 16; 16 stays */
    int64_t tower;         /* channels of both towers: 256 and 208 */
    int64_t hidden;        /* numbers that a tower ends with: 128 */
    uint32_t layers;       /* of a tower with as many: 1 */
} rui_placed_net_shape;

/* Inside of the benchmark, and of test/job/placed_net_main.c: such a model of images with 3
 * channels and 10 classes as ONNX at `path`. */
RU_MUST_USE ru_status rui_placed_net(const rui_placed_net_shape *shape, const char *path,
                                     ru_arena *arena, ru_err *err);
/* The same with n towers of three dense layers each, which meet at the end. */
RU_MUST_USE ru_status rui_placed_towers(uint32_t n, const char *path, ru_arena *arena, ru_err *err);

#endif
