/* Workers on functions that exchange gradients through a store, on hosts of the network laboratory:
 * in shards as a run on functions does it, and as other systems do.
 *
 * Thread: main only. */
#ifndef RU_BENCH_TRAIN_EXCHANGE_H
#define RU_BENCH_TRAIN_EXCHANGE_H

#include "bench/bench.h"

/* Of all that sum, the same vectors over the same store; the worker's time is that of a step. */
typedef enum rui_exchange {
    RUI_EXCHANGE_SHARDS,  /* fleet/exchange/exchange.h */
    RUI_EXCHANGE_ALL,     /* Siren: each puts its vector and gets all of them */
    RUI_EXCHANGE_SCATTER, /* LambdaML's ScatterReduce: one phase behind the other */
    RUI_EXCHANGE_SERVER,  /* Cirrus: the store adds; each puts its vector and gets the sum */
    RUI_EXCHANGE_LOAD,    /* no sum: rank 0 puts its vector */
    RUI_EXCHANGE_LINE,    /* no sum: each gets the vector that was put in the step before */
} rui_exchange;

/* words: exchange-store LISTEN WORKERS_MAX, or exchange-work STORE RANK. Both print "ready ..." and
 * end with their standard input. A worker answers each line "EXCHANGE WORKERS COUNT STEP" with
 * seconds. Errors: RU_E_DATA for a wrong sum. */
RU_MUST_USE ru_status rui_exchange_role(const char *const *words, uint32_t n, ru_err *err);

/* The rows. */
RU_MUST_USE ru_status rui_bench_exchange(ru_bench *b, ru_err *err);

#endif
