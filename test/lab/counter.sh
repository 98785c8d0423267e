#!/bin/bash
# No update is lost and none counts twice while executors and shards move: counter.sh PATH_OF_RUBATO [SECONDS [PERIOD]]
#
# An app adds 1 to every float of a table in every task, and its executors count their tasks. Four workers run it for SECONDS
# (1) in each order of clocks; every PERIOD (50ms) something moves. Every float must be the number of tasks.
set -euo pipefail
rubato=$(realpath "$1") seconds=${2:-1} period=${3:-50ms}
source=$(realpath "$(dirname "$0")/../..")
. "$source/test/lab/app.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-counter-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
cat >counter.c <<'C'
#include <stdlib.h>
#include <string.h>

#include "train/app/app.h"

typedef struct executor {
    uint32_t tasks;
} executor;

static uint32_t counter_tables(const void *self, ru_app_table *tables)
{
    (void)self;
    tables[0] = (ru_app_table){.name = "counts", .rows = 2000, .width = 32, .rule = RU_APP_ADD};
    return 1;
}

static ru_status counter_exec_open(const void *self, uint32_t k, const ru_sparse *part, void **state, ru_err *err)
{
    (void)self, (void)k, (void)part, (void)err;
    *state = calloc(1, sizeof(executor));
    return *state != NULL ? RU_OK : RU_E_MEM;
}

static uint32_t counter_wants(void *state, const ru_app_task *task, ru_app_want *wants, uint32_t max)
{
    (void)state, (void)task, (void)max;
    wants[0] = (ru_app_want){.table = 0, .rows = 2000, .write = true};
    return 1;
}

/* The state came with the executor, and no task of it was left out or run twice. */
static ru_status counter_run(void *state, const ru_app_task *task, const ru_app_view *view, ru_app_result *result, ru_err *err)
{
    executor *x = state;
    if (x->tasks++ != task->clock) {
        err->status = RU_E_DATA;
        strcpy(err->text, "an executor lost or repeated a task");
        return RU_E_DATA;
    }
    for (uint32_t i = 0; i < 2000 * 32; i++) {
        view->value[0][i] += 1.0F;
    }
    result->sums[0] += 1.0;
    return RU_OK;
}

static void counter_save(const void *state, ru_app_bytes *to)
{
    ru_app_put(to, state, sizeof(executor));
}

static ru_status counter_load(void *state, const void *bytes, int64_t n, ru_err *err)
{
    ru_app_cursor c = {bytes, n};
    (void)err;
    return n == sizeof(executor) && ru_app_take(&c, state, sizeof(executor)) ? RU_OK : RU_E_DATA;
}

static const ru_app_ops ops = {
    .version = RU_APP_VERSION, .name = "counter", .help = "counts tasks",
    .tables = counter_tables, .exec_open = counter_exec_open, .exec_close = free,
    .exec_save = counter_save, .exec_load = counter_load, .wants = counter_wants, .run = counter_run,
};

const ru_app_ops *ru_app_main(void);
const ru_app_ops *ru_app_main(void)
{
    return &ops;
}
C
build=$(dirname "$rubato")/..
"${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -shared -fPIC -I "$source" counter.c -o libcounter.so -L "$build" -lrubato ||
    fail "the counter does not build"
export LD_LIBRARY_PATH=$build
seq 1 64 | awk '{ print "1 1:" $1 }' >x.svm

# counts RUN: the different values of all floats of its newest checkpoint
counts() {
    local file head
    file=$(ls -d "$1"/checkpoints/*/tables.safetensors | sort -V | tail -n 1)
    head=$(od -An -t u8 -N 8 "$file" | tr -d ' ')
    od -v -An -t f4 -w4 -j $((8 + head)) "$file" | sort -u | tr -s ' \n' ' '
}

for order in bsp ssp async; do
    cat >$order.yaml <<YAML
app: ./libcounter.so
data: {format: libsvm, train: [x.svm]}
clocks: {executors: 16, order: $order, shuffle: $period}
train: {steps: 1000000, seed: 5, threads: 1}
checkpoint: {every: 1s}
YAML
    "$rubato" train $order.yaml -w 4 -vv -o "$work/$order" >$order.log 2>&1 &
    job=$!
    until_step $order 1
    sleep "$seconds"
    for ((k = 0; k < 1200; k++)); do # on a busy machine that takes longer
        ! grep -q 'debug train moved object' $order.log || break
        sleep 0.05
    done
    kill -TERM $job
    wait $job || fail "$order: it ends with $?"
    clocks=$(step $order) moved=0
    for n in $(grep -o '[0-9]* executors and shards came' $order.log | cut -d' ' -f1); do moved=$((moved + n)); done
    [[ $(counts $order) == " $((16 * clocks)) " ]] || fail "$order: after $clocks clocks of 16 tasks the counts are$(counts $order)"
    [[ $moved -ge 1 ]] || fail "$order: nothing moved"
    echo "ok: $order, $clocks clocks, $moved objects moved: every count is $((16 * clocks))"
done
