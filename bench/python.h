/* rubato bench python. Thread: main only. */
#ifndef RU_BENCH_PYTHON_H
#define RU_BENCH_PYTHON_H

#include "bench/bench.h"

ru_status ru_bench_python(ru_bench *b, ru_err *err);

#endif
