#include "env/reads.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/thread.h"

#ifdef RU_HAS_URING
#include <liburing.h>
#endif

enum { PART_BYTES = 1 << 30 }; /* the kernel reads no more at once */

struct ru_reads {
    ru_read_piece *pieces;
    uint32_t n, next, ended, depth, depth_max;
    bool ring;
#ifdef RU_HAS_URING
    struct io_uring uring;
#endif
    /* threads */
    ru_mutex lock;
    ru_cond work, done;
    ru_thread thread[RU_READS_THREADS];
    uint32_t n_threads;
    uint32_t busy; /* pieces outstanding */
    bool stop;
};

/* From `got` on; the piece's result. */
static void read_rest(ru_read_piece *p, int64_t got)
{
    while (got < p->size_bytes) {
        int64_t left = p->size_bytes - got;
        ssize_t n = pread(p->fd, p->into + got, (size_t)(left < PART_BYTES ? left : PART_BYTES),
                          p->offset + got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            got = n < 0 ? -1 : got;
            break;
        }
        got += n;
    }
    p->got_bytes = got;
    p->ended_ns = ru_clock_now().ns;
}

/* -- threads -------------------------------------------------------------------------------------
 */

static void work(void *arg)
{
    ru_reads *r = arg;
    ru_mutex_lock(&r->lock);
    while (true) {
        while (!r->stop && (r->next == r->n || r->busy >= r->depth)) {
            ru_cond_wait(&r->work, &r->lock);
        }
        if (r->stop) {
            break;
        }
        ru_read_piece *p = &r->pieces[r->next++];
        r->busy++;
        p->issued_ns = ru_clock_now().ns;
        ru_mutex_unlock(&r->lock);
        read_rest(p, 0);
        ru_mutex_lock(&r->lock);
        r->busy--;
        if (++r->ended == r->n) {
            ru_cond_signal(&r->done);
        }
        if (r->next < r->n) {
            ru_cond_signal(&r->work);
        }
    }
    ru_mutex_unlock(&r->lock);
}

static ru_status start_threads(ru_reads *r, ru_err *err)
{
    uint32_t n = r->depth_max < RU_READS_THREADS ? r->depth_max : RU_READS_THREADS;
    for (uint32_t k = 0; k < n; k++) {
        RU_TRY(ru_thread_start(&r->thread[k], "read", work, r, err));
        r->n_threads++;
    }
    return RU_OK;
}

/* -- io_uring ------------------------------------------------------------------------------------
 */

#ifdef RU_HAS_URING

static void issue(ru_reads *r)
{
    uint32_t before = r->next;
    int64_t now = ru_clock_now().ns;
    while (r->next < r->n && r->next - r->ended < r->depth) {
        ru_read_piece *p = &r->pieces[r->next];
        struct io_uring_sqe *e = io_uring_get_sqe(&r->uring);
        if (e == NULL) {
            break;
        }
        int64_t part = p->size_bytes < PART_BYTES ? p->size_bytes : PART_BYTES;
        io_uring_prep_read(e, p->fd, p->into, (unsigned)part, (uint64_t)p->offset);
        io_uring_sqe_set_data64(e, r->next);
        p->issued_ns = now;
        r->next++;
    }
    if (r->next > before) {
        int rc;
        do {
            rc = io_uring_submit(&r->uring);
        } while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
        RU_CHECK(rc >= 0);
    }
}

static void take(ru_reads *r, const struct io_uring_cqe *c)
{
    ru_read_piece *p = &r->pieces[io_uring_cqe_get_data64(c)];
    if (c->res == p->size_bytes) {
        p->got_bytes = c->res;
        p->ended_ns = ru_clock_now().ns;
    } else { /* short, at the end of the file, interrupted, or an error: pread says which */
        read_rest(p, c->res > 0 ? c->res : 0);
    }
    r->ended++;
}

static void take_ended(ru_reads *r)
{
    struct io_uring_cqe *c;
    uint32_t before = r->ended;
    while (r->ended < r->next && io_uring_peek_cqe(&r->uring, &c) == 0) {
        take(r, c);
        io_uring_cqe_seen(&r->uring, c);
    }
    if (r->ended > before) {
        issue(r);
    }
}

static bool open_ring(ru_reads *r)
{
    return io_uring_queue_init(r->depth_max, &r->uring, 0) == 0;
}

static void end_ring(ru_reads *r)
{
    struct io_uring_cqe *c;
    while (r->ended < r->n) {
        take_ended(r);
        if (r->ended < r->n) {
            int rc = io_uring_wait_cqe(&r->uring, &c);
            RU_CHECK(rc == 0 || rc == -EINTR || rc == -EAGAIN);
        }
    }
}

static void close_ring(ru_reads *r)
{
    io_uring_queue_exit(&r->uring);
}

#else

static bool open_ring(ru_reads *r)
{
    (void)r;
    return false;
}
static void issue(ru_reads *r)
{
    (void)r;
}
static void take_ended(ru_reads *r)
{
    (void)r;
}
static void end_ring(ru_reads *r)
{
    (void)r;
}
static void close_ring(ru_reads *r)
{
    (void)r;
}

#endif

/* -- both ----------------------------------------------------------------------------------------
 */

ru_status ru_reads_open(uint32_t depth_max, bool threads, ru_reads **out, ru_err *err)
{
    RU_CHECK(depth_max >= 1 && depth_max <= RU_READS_DEPTH_MAX);
    ru_reads *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for reads of files");
    }
    r->depth_max = depth_max;
    ru_mutex_init(&r->lock);
    ru_cond_init(&r->work);
    ru_cond_init(&r->done);
    r->ring = !threads && open_ring(r);
    ru_status st = r->ring ? RU_OK : start_threads(r, err);
    if (st != RU_OK) {
        ru_reads_close(r);
        return st;
    }
    *out = r;
    return RU_OK;
}

void ru_reads_close(ru_reads *r)
{
    if (r == NULL) {
        return;
    }
    RU_CHECK(r->ended == r->n);
    ru_mutex_lock(&r->lock);
    r->stop = true;
    ru_cond_broadcast(&r->work);
    ru_mutex_unlock(&r->lock);
    for (uint32_t k = 0; k < r->n_threads; k++) {
        ru_thread_join(&r->thread[k]);
    }
    if (r->ring) {
        close_ring(r);
    }
    ru_cond_fini(&r->done);
    ru_cond_fini(&r->work);
    ru_mutex_fini(&r->lock);
    free(r);
}

const char *ru_reads_name(const ru_reads *r)
{
    return r->ring ? "io_uring" : "threads";
}

void ru_reads_begin(ru_reads *r, ru_read_piece *pieces, uint32_t n, uint32_t depth)
{
    RU_CHECK(r->ended == r->n && depth >= 1);
    ru_mutex_lock(&r->lock);
    r->pieces = pieces;
    r->next = r->ended = 0;
    r->n = n;
    r->depth = depth < r->depth_max ? depth : r->depth_max;
    if (!r->ring) {
        ru_cond_broadcast(&r->work);
    }
    ru_mutex_unlock(&r->lock);
    if (r->ring) {
        issue(r);
    }
}

void ru_reads_poll(ru_reads *r)
{
    if (r->ring && r->ended < r->n) {
        take_ended(r);
    }
}

void ru_reads_end(ru_reads *r)
{
    if (r->ring) {
        end_ring(r);
        return;
    }
    ru_mutex_lock(&r->lock);
    while (r->ended < r->n) {
        ru_cond_wait(&r->done, &r->lock);
    }
    ru_mutex_unlock(&r->lock);
}
