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

enum { RUI_ORDER_WORKERS = 4 };

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

/* words: order-serve LISTEN FILE | order-work ADDRESS FILE NUMBER, which answers each line
 * "METHOD SEED START_NS SCALE" with "STEP_NS END_NS". */
RU_MUST_USE ru_status rui_order_role(const char *const *words, uint32_t n, ru_err *err);

RU_MUST_USE ru_status ru_bench_order(ru_bench *b, ru_err *err);

#endif
