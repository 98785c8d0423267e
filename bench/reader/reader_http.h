/* Reading from stores, as rows of `rubato bench reader`. Thread: main only. */
#ifndef RU_BENCH_READER_HTTP_H
#define RU_BENCH_READER_HTTP_H

#include "bench/bench.h"

RU_MUST_USE ru_status ru_bench_http(ru_bench *b, ru_err *err);

#endif
