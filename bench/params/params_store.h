/* Rows of a store against those of Redis: what both clients do.
 *
 *   read     fetch BATCH random rows
 *   update   add 1 to every float of BATCH random rows; done when the server has acknowledged it
 *   task     fetch BATCH random rows, then add 1 to them
 *
 * A client keeps `depth` batches under way on one connection to one server; both have one thread.
 * Both sides use the same batches.
 *
 * Thread: main only. */
#ifndef RU_BENCH_PARAMS_STORE_H
#define RU_BENCH_PARAMS_STORE_H

#include "bench/bench.h"

enum {
    RUI_STORE_BATCH = 1000,
    RUI_STORE_LISTS = 64,
    RUI_STORE_DEPTH_MAX = 16,
    RUI_STORE_WIDTH_MAX = 4096,
};

typedef enum rui_store_op { RUI_STORE_READ, RUI_STORE_UPDATE, RUI_STORE_TASK } rui_store_op;

/* One measurement, as a client is asked for it. */
typedef struct rui_store_ask {
    rui_store_op op;
    uint32_t variant; /* Redis: layout and transport (params_redis.c) */
    uint32_t depth;   /* 1 .. RUI_STORE_DEPTH_MAX */
    int64_t batches;
} rui_store_ask;

uint32_t rui_store_rows(uint32_t width);
/* Batches of ascending rows: [RUI_STORE_LISTS, RUI_STORE_BATCH]. NULL: no memory. */
RU_MUST_USE const uint32_t *rui_store_lists(uint32_t width, ru_arena *arena);

/* The line protocol: "OP VARIANT DEPTH BATCHES" -> "SECONDS 0"; "sum" -> "SUM 0" of the first float
 * of all rows; "quit". */
typedef struct rui_store_client {
    void *self;
    ru_status (*run)(void *self, const rui_store_ask *ask, double *seconds, ru_err *err);
    ru_status (*sum)(void *self, double *sum, ru_err *err);
    ru_status (*idle)(void *self, ru_err *err); /* until a line comes; NULL: nothing to do */
} rui_store_client;
RU_MUST_USE ru_status rui_store_answer(const rui_store_client *c, ru_err *err);

/* A server of this program as a child: `kind` is the word after `params`. *address: view until its
 * next line. */
RU_MUST_USE ru_status rui_store_server_start(const char *kind, const char *width, ru_arena *arena,
                                             struct ru_process **server, const char **address,
                                             ru_err *err);

/* Workers: words: params store|store-server|redis|bare|bare-server WIDTH [...]. */
RU_MUST_USE ru_status rui_store_worker(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_store_server(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_redis_worker(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_bare_worker(const char *const *words, uint32_t n, ru_err *err);
RU_MUST_USE ru_status rui_bare_server(const char *const *words, uint32_t n, ru_err *err);

/* Variants of an operation at Redis: 0 .. n - 1, and what one is called. */
uint32_t rui_redis_variants(rui_store_op op);
uint32_t rui_redis_depth(rui_store_op op, uint32_t variant); /* the largest that is right */
bool rui_redis_counts(uint32_t variant);                     /* does `sum` see what it updates? */
const char *rui_redis_variant(rui_store_op op, uint32_t variant, ru_arena *arena);

#endif
