/* The benchmark of orders: a server of parameters and workers that pull them for each step of a
 * published graph, whose ops take a time and compute nothing.
 *
 * Thread: main only. */
#ifndef RU_BENCH_ORDER_H
#define RU_BENCH_ORDER_H

#include "bench/wire/net.h"
#include "lab/worlds/script_ops.h"
#include "plan/net/order.h"
#include "store/layers.h"

enum { RUI_ORDER_WORKERS = 4, RUI_ORDER_SERVERS = 4 };

/* Places of layers [n] in topological order, as the file has them where it may choose. Errors:
 * RU_E_DATA for a circle, RU_E_MEM. */
RU_MUST_USE ru_status rui_order_sort(const ru_layer_graph *g, ru_arena *a, uint32_t *place,
                                     ru_err *err);
/* A graph in topological order, as a file: "ops edges", then a line "ns bytes" for each op, then
 * one "from to" for each edge. */
RU_MUST_USE ru_status rui_order_write(const char *path, const ru_script_ops *ops, ru_arena *arena,
                                      ru_err *err);
RU_MUST_USE ru_status rui_order_read(const char *path, ru_arena *arena, ru_script_ops *ops,
                                     ru_err *err);

/* words: order-serve LISTEN FILE [NUMBER RECORDS] | order-work ADDRESS FILE NUMBER, which answers
 * each line "METHOD SEED START_NS SCALE" with "STEP_NS END_NS" | order-pull NUMBER FILE ADDRESS...,
 * which answers "ROUNDS" with the number of its pulls when all are over. */
RU_MUST_USE ru_status rui_order_role(const char *const *words, uint32_t n, ru_err *err);

/* What a server records of its chunks (order_many.c); before its loop runs. Errors: RU_E_IO. */
typedef struct rui_order_tap rui_order_tap;
RU_MUST_USE ru_status rui_order_tap_open(const char *path, rui_net_end *end, rui_order_tap **out,
                                         ru_err *err);
RU_MUST_USE ru_status rui_order_tap_close(rui_order_tap *t, ru_err *err); /* NULL is fine */

typedef struct rui_order_judged {
    uint64_t chunks;
    uint64_t inversions; /* chunks that left before a smaller rank that had credit */
    uint64_t wrong;      /* without credit, or with another rank than that of their item */
} rui_order_judged;
/* Judge the records of a server and add to `j`. A record is 16 bytes: u32 item, u16 rank, u8 host
 * of the worker, u8 0: granted up to, 1: left, i64 bytes. Items of each worker are numbered
 * [n_items], and the rank of one is its number modulo `tensors`. Errors: RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status rui_order_judge(const char *path, uint32_t n_items, uint32_t tensors,
                                      ru_arena *arena, rui_order_judged *j, ru_err *err);

RU_MUST_USE ru_status ru_bench_order(ru_bench *b, ru_err *err);

#endif
