/* Workers of one host sum their gradients in shared memory (comm/coll/coll_shm): the adder thread.
 *
 * The gradients of every step stand in this process' segment, at the same offsets in every worker,
 * whatever executable is in force. All members must sum in the same order, so buckets go in the
 * order of their numbers: one that is ready early waits for those before it.
 *
 *   loop    OPEN handles | REDUCE bucket ... | CLOSE    --> adder
 *   adder   LOCAL_OPENED | REDUCED bucket ...| LOCAL_CLOSED --> loop */
#include <string.h>

#include "train/worker/worker_impl.h"

enum {
    ALIGN_BYTES = 64,
    LINE_MAX = 1 << 13 /* sums of all buckets of a step */
};
_Static_assert(LINE_MAX > RU_ELASTIC_BUCKETS_MAX + 64, "all sums of a step");

static ru_status keep_waiting(void *self)
{
    const rui_worker *w = self;
    return ru_flag_get(&w->local.stop) != 0 ? RU_E_CANCELLED : RU_OK;
}

static ru_status open_parts(rui_worker *w, ru_err *err)
{
    rui_local *l = &w->local;
    l->at = RU_NEW(w->arena, int64_t, w->list.n_tensors);
    l->pending = RU_NEW(w->arena, ru_elastic_part, RU_ELASTIC_BUCKETS_MAX);
    l->ranges = RU_NEW(w->arena, ru_coll_shm_range, w->list.n_tensors);
    if (l->at == NULL || l->pending == NULL || l->ranges == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a worker");
    }
    int64_t size = 0;
    for (uint32_t k = 0; k < w->list.n_tensors; k++) {
        l->at[k] = size;
        size += (w->list.tensor_bytes[k] + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    }
    l->size_bytes = size;
    const ru_coll_shm_options so = {
        .name = "gradients", .data_bytes = size, .check = keep_waiting, .self = w};
    RU_TRY(ru_coll_shm_open(&so, &l->shm, err));
    RU_TRY(ru_shell_line(&w->shell, &l->line, LINE_MAX, sizeof(rui_event), err));
    return ru_thread_start(&l->thread, "adder", rui_local_main, w, err);
}

ru_status rui_local_open(rui_worker *w, ru_err *err)
{
    ru_status st = open_parts(w, err);
    if (st != RU_OK) { /* a segment without its adder would be offered to the others */
        ru_coll_shm_close(w->local.shm);
        w->local.shm = NULL;
    }
    return st;
}

void *rui_local_grad(rui_worker *w, uint32_t tensor)
{
    return w->local.shm == NULL ? NULL
                                : (uint8_t *)ru_coll_shm_data(w->local.shm) + w->local.at[tensor];
}

/* -- loop thread ------------------------------------------------------------------------------- */

static const char *local_handle(void *self)
{
    rui_worker *w = self;
    return w->local.shm == NULL ? NULL : ru_coll_shm_handle(w->local.shm);
}

static void local_open(void *self, const char *const *handles, uint32_t n, uint32_t rank,
                       uint32_t epoch)
{
    rui_worker *w = self;
    rui_local *l = &w->local;
    rui_local_group *g = &l->asked;
    l->seq++;
    ru_mutex_lock(&w->lock);
    l->open_asked = true;
    g->n = n <= RU_COLL_SHM_RANKS_MAX ? n : 0; /* 0: the adder says that they are too many */
    for (uint32_t k = 0; k < g->n; k++) {
        strncpy(g->handles[k], handles[k], sizeof g->handles[k] - 1);
    }
    g->rank = rank;
    g->epoch = epoch;
    g->seq = l->seq;
    memset(l->pending, 0, RU_ELASTIC_BUCKETS_MAX * sizeof *l->pending);
    ru_cond_signal(&l->changed);
    ru_mutex_unlock(&w->lock);
}

static void local_reduce(void *self, uint32_t bucket, const ru_elastic_part *part, uint32_t iter)
{
    (void)iter;
    rui_worker *w = self;
    RU_CHECK(bucket < RU_ELASTIC_BUCKETS_MAX);
    ru_mutex_lock(&w->lock);
    w->local.pending[bucket] = *part;
    ru_cond_signal(&w->local.changed);
    ru_mutex_unlock(&w->lock);
}

static void local_close(void *self)
{
    rui_worker *w = self;
    rui_local *l = &w->local;
    l->seq++;
    l->closing = true;
    ru_mutex_lock(&w->lock);
    ru_flag_set(&l->stop, 1);
    l->close_asked = true;
    l->open_asked = false; /* not begun yet: it would wait for a group that is over */
    l->close_seq = l->seq;
    ru_cond_signal(&l->changed);
    ru_mutex_unlock(&w->lock);
}

static ru_span local_memory(void *self, uint32_t rank)
{
    rui_worker *w = self;
    return (ru_span){.data = ru_coll_shm_data_of(w->local.shm, rank),
                     .size_bytes = w->local.size_bytes};
}

void rui_local_ops(ru_elastic_device_ops *ops)
{
    ops->local_handle = local_handle;
    ops->local_open = local_open;
    ops->local_reduce = local_reduce;
    ops->local_memory = local_memory;
    ops->local_close = local_close;
}

void rui_local_stop(rui_worker *w)
{
    rui_local *l = &w->local;
    if (l->thread.started) {
        ru_flag_set(&l->stop, 1);
        ru_mutex_lock(&w->lock);
        l->quit = true;
        ru_cond_signal(&l->changed);
        ru_mutex_unlock(&w->lock);
        ru_thread_join(&l->thread);
    }
    ru_coll_shm_close(l->shm);
    l->shm = NULL;
}

/* -- adder thread ------------------------------------------------------------------------------ */

static void join(rui_worker *w)
{
    rui_local *l = &w->local;
    const rui_local_group *g = &l->group;
    const char *handles[RU_COLL_SHM_RANKS_MAX];
    for (uint32_t k = 0; k < g->n; k++) {
        handles[k] = g->handles[k];
    }
    ru_err err = {0};
    ru_status st =
        g->n > 0 ? ru_coll_shm_join(l->shm, handles, g->n, g->rank, g->epoch, &err) : RU_E_LIMIT;
    l->next = 0;
    ru_shell_say(&w->shell, &l->line,
                 &(rui_event){.kind = RUI_EVENT_LOCAL_OPENED, .seq = g->seq, .status = st});
}

static void leave(rui_worker *w, uint32_t seq)
{
    rui_local *l = &w->local;
    ru_coll_shm_leave(l->shm);
    ru_mutex_lock(&w->lock);
    ru_flag_set(&l->stop, l->close_asked ? 1 : 0); /* asked again meanwhile */
    ru_mutex_unlock(&w->lock);
    ru_shell_say(&w->shell, &l->line, &(rui_event){.kind = RUI_EVENT_LOCAL_CLOSED, .seq = seq});
}

static void add(rui_worker *w, uint32_t bucket, ru_elastic_part b)
{
    rui_local *l = &w->local;
    for (uint32_t k = 0; k < b.n; k++) {
        l->ranges[k] = (ru_coll_shm_range){
            .offset = l->at[b.first + k] + b.offset_bytes,
            .size_bytes = b.n == 1 ? b.size_bytes : w->list.tensor_bytes[b.first + k]};
    }
    ru_status st = ru_coll_shm_all_reduce(l->shm, RU_F32, l->ranges, b.n);
    if (st == RU_OK) {
        ru_shell_say(
            &w->shell, &l->line,
            &(rui_event){.kind = RUI_EVENT_REDUCED, .seq = l->group.seq, .tensor = bucket});
    }
    bool last = b.first + b.n == w->list.n_tensors &&
                (b.n > 1 || b.offset_bytes + b.size_bytes == w->list.tensor_bytes[b.first]);
    l->next = last ? 0 : bucket + 1;
}

/* What to do next, the lock held. */
typedef enum local_do { DO_WAIT, DO_QUIT, DO_CLOSE, DO_OPEN, DO_ADD } local_do;

static local_do choose(const rui_local *l)
{
    return l->quit                     ? DO_QUIT
           : l->close_asked            ? DO_CLOSE
           : l->open_asked             ? DO_OPEN
           : l->pending[l->next].n > 0 ? DO_ADD
                                       : DO_WAIT;
}

void rui_local_main(void *self)
{
    rui_worker *w = self;
    rui_local *l = &w->local;
    for (;;) {
        ru_mutex_lock(&w->lock);
        local_do what = choose(l);
        while (what == DO_WAIT) {
            ru_cond_wait(&l->changed, &w->lock);
            what = choose(l);
        }
        uint32_t bucket = l->next, close_seq = l->close_seq;
        ru_elastic_part b = l->pending[bucket];
        if (what == DO_ADD) {
            l->pending[bucket].n = 0;
        } else if (what == DO_OPEN) {
            l->open_asked = false;
            l->group = l->asked;
        } else if (what == DO_CLOSE) {
            l->close_asked = false;
            memset(l->pending, 0, RU_ELASTIC_BUCKETS_MAX * sizeof *l->pending);
            l->next = 0;
        }
        ru_mutex_unlock(&w->lock);
        if (what == DO_QUIT) {
            return;
        }
        if (what == DO_ADD) {
            add(w, bucket, b);
        } else if (what == DO_OPEN) {
            join(w);
        } else {
            leave(w, close_seq);
        }
    }
}
