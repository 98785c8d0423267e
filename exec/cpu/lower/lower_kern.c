/* Shared parts of the lowerings onto exec/cpu/kern. */
#include "exec/cpu/lower/lower_kern.h"

#include "exec/waits.h"

typedef struct kern_job {
    rui_kern_part fn;
    rui_kern_own_part fn_own; /* one of both */
    const void *state;
    void *const *bufs;
    int64_t n, grain;
    char *own;
    int64_t own_bytes;
} kern_job;

static void run_part(void *arg, uint32_t thread, uint32_t threads)
{
    const kern_job *j = arg;
    int64_t begin, end;
    ru_pool_split(j->n, j->grain, thread, threads, &begin, &end);
    if (begin < end && j->fn != NULL) {
        j->fn(j->state, j->bufs, begin, end);
    } else if (begin < end) {
        char *own = j->own == NULL ? NULL : j->own + (int64_t)thread * j->own_bytes;
        j->fn_own(j->state, j->bufs, begin, end, own);
    }
}

/* Beside other work a part of about 50 us or less is done before another thread has woken. One
 * whose grain is 1, or that needs memory of its own, may be of any length. */
static bool too_little(const rui_run *run, const kern_job *j)
{
    enum { CROWDED = 16 };
    return j->n <= j->grain || (j->fn != NULL && j->grain > 1 && j->n <= CROWDED * j->grain &&
                                ru_pool_crowded(run->pool));
}

static void run_job(const rui_run *run, kern_job *j)
{
    if (too_little(run, j) || ru_pool_threads(run->pool) == 1) {
        run_part(j, 0, 1);
    } else {
        ru_pool_run(run->pool, run_part, j);
    }
}

void rui_kern_for(const rui_run *run, rui_kern_part fn, const void *state, void *const *bufs,
                  int64_t n, int64_t grain)
{
    run_job(run, &(kern_job){.fn = fn, .state = state, .bufs = bufs, .n = n, .grain = grain});
}

void rui_kern_for_own(const rui_run *run, rui_kern_own_part fn, const void *state,
                      void *const *bufs, int64_t n, int64_t grain, void *own, int64_t own_bytes)
{
    run_job(run, &(kern_job){.fn_own = fn,
                             .state = state,
                             .bufs = bufs,
                             .n = n,
                             .grain = grain,
                             .own = own,
                             .own_bytes = own_bytes});
}

int64_t rui_kern_grain(int64_t cols)
{
    /* waking a spinning team costs about 1 us; 4096 elements of the dearest map take about 2 us */
    enum { WORTH = 4096 };
    int64_t rows = cols < 1 ? WORTH : WORTH / cols;
    return rows < 1 ? 1 : rows;
}

const int64_t *rui_const_i64(const rui_low *lo, ru_value_id v, uint32_t *n)
{
    *n = 0;
    const ru_value *val = &rui_graph(lo)->values[v.v];
    if (v.v == 0 || val->kind != RU_VALUE_CONST || val->type.dtype != RU_I64 || val->data == NULL) {
        return NULL;
    }
    *n = (uint32_t)ru_type_count(&val->type);
    return val->data;
}

int64_t rui_side_by_side(const rui_layout *l, const ru_type *x)
{
    const dnnl_blocking_desc_t *b = &l->md.format_desc.blocking;
    int64_t lanes = rui_block_lanes(l), stride = x->dims[1];
    if (lanes > 0 || l->plain || l->opaque || b->inner_nblks != 0 || b->strides[1] != 1) {
        return lanes > 0 && x->dims[1] % lanes == 0 ? lanes : 0;
    }
    for (uint32_t d = x->rank; d-- > 2;) {
        if (x->dims[d] > 1 && b->strides[d] != stride) {
            return 0;
        }
        stride *= x->dims[d];
    }
    return x->dims[0] == 1 || b->strides[0] == stride ? x->dims[1] : 0;
}
