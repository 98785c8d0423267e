#include "env/reads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file.h"
#include "env/thread.h"

#ifdef RU_HAS_URING
#include <liburing.h>
#endif

enum { PART_BYTES = 1 << 30 }; /* the kernel reads no more at once */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };

struct ru_reads {
    ru_read_piece *pieces;
    uint32_t n, next, ended, depth_max;
    _Atomic uint32_t depth;
    _Atomic int64_t bytes; /* of pieces that ended */
    bool ring;
#ifdef RU_HAS_URING
    struct io_uring uring;
    uint16_t slot[RU_READS_DEPTH_MAX]; /* [n_slots] free ones of the kernel's table of open files */
    uint32_t n_slots;
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
    while (got < p->size_bytes && !(p->direct && got % RU_DIRECT_BYTES != 0)) {
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

static void count(ru_reads *r, const ru_read_piece *p)
{
    atomic_fetch_add_explicit(&r->bytes, p->got_bytes > 0 ? p->got_bytes : 0, memory_order_relaxed);
}

static void read_piece(ru_read_piece *p)
{
    if (p->path == NULL) {
        read_rest(p, 0);
        return;
    }
    p->fd = open(p->path, OPEN_FLAGS);
    p->got_bytes = -1;
    p->ended_ns = ru_clock_now().ns;
    if (p->fd >= 0) {
        read_rest(p, 0);
        close(p->fd);
        p->fd = -1;
    }
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
        read_piece(p);
        ru_mutex_lock(&r->lock);
        r->busy--;
        count(r, p);
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

enum { ENTRY_READ, ENTRY_OPEN, ENTRY_CLOSE };

static uint64_t entry_of(uint32_t piece, uint32_t slot, uint32_t what)
{
    return piece | (uint64_t)slot << 32 | (uint64_t)what << 48;
}

static void submit(ru_reads *r)
{
    int rc;
    do {
        rc = io_uring_submit(&r->uring);
    } while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    RU_CHECK(rc >= 0);
}

static unsigned part_of(const ru_read_piece *p)
{
    return (unsigned)(p->size_bytes < PART_BYTES ? p->size_bytes : PART_BYTES);
}

/* Three entries in a chain: a read that ends early must not keep the file open. */
static void issue_file(ru_reads *r, uint32_t k)
{
    ru_read_piece *p = &r->pieces[k];
    uint32_t slot = r->slot[--r->n_slots];
    struct io_uring_sqe *e = io_uring_get_sqe(&r->uring);
    io_uring_prep_openat_direct(e, AT_FDCWD, p->path, OPEN_FLAGS & ~O_CLOEXEC, 0, slot);
    io_uring_sqe_set_flags(e, IOSQE_IO_LINK);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_OPEN));
    e = io_uring_get_sqe(&r->uring);
    io_uring_prep_read(e, (int)slot, p->into, part_of(p), (uint64_t)p->offset);
    io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_READ));
    e = io_uring_get_sqe(&r->uring);
    io_uring_prep_close_direct(e, slot);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_CLOSE));
}

static void issue(ru_reads *r)
{
    int64_t now = ru_clock_now().ns;
    while (r->next < r->n && r->next - r->ended < r->depth) {
        ru_read_piece *p = &r->pieces[r->next];
        if (p->path != NULL && r->n_slots == 0) {
            break;
        }
        if (io_uring_sq_space_left(&r->uring) < 3) {
            submit(r);
        }
        if (p->path != NULL) {
            issue_file(r, r->next);
        } else {
            struct io_uring_sqe *e = io_uring_get_sqe(&r->uring);
            io_uring_prep_read(e, p->fd, p->into, part_of(p), (uint64_t)p->offset);
            io_uring_sqe_set_data64(e, entry_of(r->next, 0, ENTRY_READ));
        }
        p->issued_ns = now;
        r->next++;
    }
    if (io_uring_sq_ready(&r->uring) > 0) {
        submit(r);
    }
}

static void take(ru_reads *r, const struct io_uring_cqe *c)
{
    uint64_t x = io_uring_cqe_get_data64(c);
    uint32_t what = (uint32_t)(x >> 48), slot = (uint32_t)(x >> 32) & 0xffff;
    ru_read_piece *p = &r->pieces[(uint32_t)x];
    if (what == ENTRY_READ && p->path != NULL) { /* the file is closed next, or was never open */
        p->got_bytes = c->res >= 0 ? c->res : -1;
        p->ended_ns = ru_clock_now().ns;
    } else if (what == ENTRY_READ && c->res == p->size_bytes) {
        p->got_bytes = c->res;
        p->ended_ns = ru_clock_now().ns;
    } else if (what == ENTRY_READ) {
        /* short, at the end of the file, interrupted, or an error: pread says which */
        read_rest(p, c->res > 0 ? c->res : 0);
    }
    if (what == ENTRY_CLOSE) {
        r->slot[r->n_slots++] = (uint16_t)slot;
    }
    if (what == ENTRY_READ) {
        count(r, p);
    }
    r->ended += what == ENTRY_CLOSE || (what == ENTRY_READ && p->path == NULL) ? 1 : 0;
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

/* The table of open files may hold as many as the process may open. */
static bool open_slots(ru_reads *r)
{
    uint32_t n = r->depth_max;
    while (n > 0 && io_uring_register_files_sparse(&r->uring, n) != 0) {
        n /= 2;
    }
    for (uint32_t k = 0; k < n; k++) {
        r->slot[r->n_slots++] = (uint16_t)k;
    }
    return n > 0;
}

static bool open_ring(ru_reads *r)
{
    uint32_t entries = r->depth_max > 4 ? r->depth_max : 4;
    struct io_uring_params p = {.flags = IORING_SETUP_CQSIZE, .cq_entries = 4 * entries};
    if (io_uring_queue_init_params(entries, &r->uring, &p) != 0) {
        return false;
    }
    bool ok = open_slots(r);
    if (!ok) {
        io_uring_queue_exit(&r->uring);
    }
    return ok;
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

void ru_reads_depth_set(ru_reads *r, uint32_t depth)
{
    RU_CHECK(depth >= 1);
    r->depth = depth < r->depth_max ? depth : r->depth_max;
    if (!r->ring) {
        ru_mutex_lock(&r->lock);
        ru_cond_broadcast(&r->work);
        ru_mutex_unlock(&r->lock);
    }
}

int64_t ru_reads_bytes(const ru_reads *r)
{
    return atomic_load_explicit(&r->bytes, memory_order_relaxed);
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
