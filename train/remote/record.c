/* What a run with weights from elsewhere measured, as facts. */
#include <stdlib.h>

#include "env/file/file.h"
#include "store/world_file.h"
#include "train/remote/late.h"

typedef struct row {
    ru_time arrived;
    uint32_t tensor;
} row;

static int by_arrival(const void *a, const void *b)
{
    const row *x = a, *y = b;
    return (x->arrived.ns > y->arrived.ns) - (x->arrived.ns < y->arrived.ns);
}

/* On the link a tensor begins when it was asked for and the one before has arrived. */
static ru_transfer_fact fact_of(const ru_remote_late *l, uint32_t i, ru_time before)
{
    const ru_remote_tensor *t = &ru_fetch_weights(l->fetch)->at[i];
    const ru_fetch_times at = ru_fetch_times_of(l->fetch, i);
    ru_time from = before.ns > at.asked.ns ? before : at.asked;
    int64_t ns = ru_time_since(at.arrived, from);
    ns = ns > 0 ? ns : 1;
    /* The first step may wait before the loop's thread has sent the list. */
    int64_t needed = at.needed.ns != 0 ? ru_time_since(at.needed, at.asked) : 0;
    needed = at.needed.ns != 0 && needed < 1 ? 1 : needed;
    return (ru_transfer_fact){
        .name = t->name,
        .from = l->address,
        .to = "",
        .size_bytes = ru_type_bytes(&t->type),
        .made_by = -1,
        .needed_by = -1,
        .used_by = l->read_by[i],
        .rank = l->ranks[i],
        .arrived_ns = ru_time_since(at.arrived, at.asked),
        .needed_ns = needed,
        .took = {.count = 1, .mean_ns = (double)ns, .min_ns = ns, .median_ns = ns, .max_ns = ns}};
}

static ru_status put_transfers(const ru_remote_late *l, ru_arena *arena, ru_world *w, ru_err *err)
{
    uint32_t most = ru_fetch_weights(l->fetch)->n, n = 0;
    row *rows = RU_NEW(arena, row, most);
    ru_transfer_fact *at = RU_NEW(arena, ru_transfer_fact, most);
    if (rows == NULL || at == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the times of %u tensors", most);
    }
    for (uint32_t i = 0; i < most; i++) {
        bool asked = l->ranks[i] != RU_FETCH_NO_RANK;
        ru_time arrived = asked ? ru_fetch_times_of(l->fetch, i).arrived : (ru_time){0};
        if (arrived.ns != 0) {
            rows[n++] = (row){arrived, i};
        }
    }
    qsort(rows, n, sizeof *rows, by_arrival);
    for (uint32_t k = 0; k < n; k++) {
        at[k] = fact_of(l, rows[k].tensor, k > 0 ? rows[k - 1].arrived : (ru_time){0});
    }
    w->facts.transfers.at = at;
    w->facts.transfers.n = n;
    return RU_OK;
}

static ru_status put_world(const ru_remote_late *l, const char *path, ru_arena *arena, ru_err *err)
{
    ru_world w = {0};
    ru_op_fact *ops;
    ru_text text = ru_text_arena(arena);
    RU_TRY(ru_exe_ops(l->exe, 0, arena, &ops, &w.facts.ops.n, err));
    w.facts.ops.at = ops;
    RU_TRY(put_transfers(l, arena, &w, err));
    RU_TRY(ru_world_file_put(&w, &text, err));
    return ru_file_replace(path, text.p, text.n, err);
}

ru_status ru_remote_record(const ru_remote_late *l, const char *path, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_status st = put_world(l, path, &arena, err);
    ru_arena_fini(&arena);
    return st;
}
