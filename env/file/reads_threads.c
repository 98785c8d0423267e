/* Reads by threads, where the kernel forbids io_uring: one pool for all engines of the process, so
 * that streams with many batches under way do not start many threads each.
 *
 * Engines take turns, piece by piece. The pool starts a thread when a set begins and none rests.
 *
 * Thread: any. */
#include "env/clock.h"
#include "env/file/reads_impl.h"

static struct {
    ru_mutex gate; /* held while the first thread starts and while all end */
    ru_mutex lock;
    ru_cond work;
    ru_thread thread[RU_READS_THREADS];
    uint32_t n_threads, rest; /* threads; those without a piece */
    ru_reads *first, *turn;   /* engines; where the next look begins, NULL: at the first */
    bool stop;
} pool = {.gate = {PTHREAD_MUTEX_INITIALIZER},
          .lock = {PTHREAD_MUTEX_INITIALIZER},
          .work = {PTHREAD_COND_INITIALIZER}};

/* -- all with the lock ------------------------------------------------------------------------ */

static bool has_work(const ru_reads *r)
{
    return r->next < r->n && r->busy < atomic_load_explicit(&r->depth, memory_order_relaxed);
}

/* The next engine with a piece to read; NULL: none. */
static ru_reads *pick(void)
{
    ru_reads *from = pool.turn != NULL ? pool.turn : pool.first, *r = from;
    while (r != NULL && !has_work(r)) {
        r = r->after != NULL ? r->after : pool.first;
        r = r != from ? r : NULL;
    }
    pool.turn = r != NULL ? r->after : pool.turn;
    return r;
}

static void read_one(ru_reads *r)
{
    ru_read_piece *p = &r->pieces[r->next++];
    r->busy++;
    pool.rest--;
    p->issued_ns = ru_clock_now().ns;
    ru_mutex_unlock(&pool.lock);
    rui_reads_piece(p);
    ru_mutex_lock(&pool.lock);
    pool.rest++;
    r->busy--;
    rui_reads_count(r, p);
    if (++r->ended == r->n) {
        ru_cond_signal(&r->done); /* `r` may be gone as soon as the lock is open */
    }
}

static void work(void *arg)
{
    (void)arg;
    ru_mutex_lock(&pool.lock);
    while (!pool.stop) {
        ru_reads *r = pick();
        if (r != NULL) {
            read_one(r);
        } else {
            ru_cond_wait(&pool.work, &pool.lock);
        }
    }
    ru_mutex_unlock(&pool.lock);
}

static ru_status start_one(ru_err *err)
{
    RU_TRY(ru_thread_start(&pool.thread[pool.n_threads], "read", work, NULL, err));
    pool.n_threads++;
    pool.rest++;
    return RU_OK;
}

/* -- engines ---------------------------------------------------------------------------------- */

ru_status rui_pool_join(ru_reads *r, ru_err *err)
{
    ru_mutex_lock(&pool.gate);
    ru_mutex_lock(&pool.lock);
    ru_status st = pool.n_threads > 0 ? RU_OK : start_one(err);
    if (st == RU_OK) {
        r->after = pool.first;
        pool.first = r;
    }
    ru_mutex_unlock(&pool.lock);
    ru_mutex_unlock(&pool.gate);
    return st;
}

void rui_pool_leave(ru_reads *r)
{
    ru_mutex_lock(&pool.gate);
    ru_mutex_lock(&pool.lock);
    ru_reads **at = &pool.first;
    while (*at != NULL && *at != r) {
        at = &(*at)->after;
    }
    bool was_in = *at == r; /* it is not where its opening failed */
    if (was_in) {
        *at = r->after;
    }
    pool.turn = pool.turn == r ? r->after : pool.turn;
    bool last = was_in && pool.first == NULL;
    pool.stop = last;
    if (last) {
        ru_cond_broadcast(&pool.work);
    }
    ru_mutex_unlock(&pool.lock);
    for (; last && pool.n_threads > 0; pool.n_threads--) {
        ru_thread_join(&pool.thread[pool.n_threads - 1]);
    }
    if (last) {
        pool.rest = 0;
        pool.stop = false;
    }
    ru_mutex_unlock(&pool.gate);
}

void rui_pool_begin(ru_reads *r, ru_read_piece *pieces, uint32_t n, uint32_t depth)
{
    ru_mutex_lock(&pool.lock);
    r->pieces = pieces;
    r->next = r->ended = 0;
    r->n = n;
    atomic_store_explicit(&r->depth, depth, memory_order_relaxed);
    uint32_t want = n < depth ? n : depth;
    while (pool.rest < want && pool.n_threads < RU_READS_THREADS && start_one(NULL) == RU_OK) {
    }
    ru_cond_broadcast(&pool.work);
    ru_mutex_unlock(&pool.lock);
}

void rui_pool_depth(ru_reads *r, uint32_t depth)
{
    ru_mutex_lock(&pool.lock);
    atomic_store_explicit(&r->depth, depth, memory_order_relaxed);
    ru_cond_broadcast(&pool.work);
    ru_mutex_unlock(&pool.lock);
}

void rui_pool_end(ru_reads *r)
{
    ru_mutex_lock(&pool.lock);
    while (r->ended < r->n) {
        ru_cond_wait(&r->done, &pool.lock);
    }
    ru_mutex_unlock(&pool.lock);
}
