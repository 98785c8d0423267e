/* Reads by io_uring, with fixed files and memory where the kernel allows: it then looks neither
 * files nor pages up again for each read.
 *
 *   table of files of the ring   | opened and closed by pieces with a path | descriptors  |
 *                                 slot 0 .. n_slots-1                        fd % N, first come
 *
 * The memory is one fixed buffer, given by the owner (ru_reads_memory).
 *
 * Thread: one at a time. */
#include "env/file/reads_impl.h"

#ifdef RU_HAS_URING

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "env/clock.h"

enum { ENTRY_READ, ENTRY_OPEN, ENTRY_CLOSE };
enum { DESCRIPTORS = 256 };
static const int64_t fixed_bytes_max = (int64_t)1 << 30; /* of the kernel */

struct rui_ring {
    struct io_uring uring;
    uint16_t slot[RU_READS_DEPTH_MAX]; /* [n_free] of the first n_slots of the table of files */
    uint32_t n_free, n_slots;
    uint32_t n_descriptors;      /* behind them */
    int table_rc;                /* why there is no place for them */
    int descriptor[DESCRIPTORS]; /* -1: none */
    bool fixed;
    uint8_t *memory; /* [memory_bytes] fixed; NULL: none */
    int64_t memory_bytes;
};

static uint64_t entry_of(uint32_t piece, uint32_t slot, uint32_t what)
{
    return piece | (uint64_t)slot << 32 | (uint64_t)what << 48;
}

static void submit(rui_ring *g)
{
    int rc;
    do {
        rc = io_uring_submit(&g->uring);
    } while (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY);
    RU_CHECK(rc >= 0);
}

static void read_entry(const rui_ring *g, struct io_uring_sqe *e, int fd, const ru_read_piece *p)
{
    int64_t bytes = p->size_bytes < RUI_READS_PART_BYTES ? p->size_bytes : RUI_READS_PART_BYTES;
    bool fixed = g->memory != NULL && p->into >= g->memory &&
                 p->size_bytes <= g->memory_bytes - (p->into - g->memory);
    if (fixed) {
        io_uring_prep_read_fixed(e, fd, p->into, (unsigned)bytes, (uint64_t)p->offset, 0);
    } else {
        io_uring_prep_read(e, fd, p->into, (unsigned)bytes, (uint64_t)p->offset);
    }
}

/* Three entries in a chain: a read that ends early must not keep the file open. */
static void issue_file(rui_ring *g, const ru_read_piece *p, uint32_t k)
{
    uint32_t slot = g->slot[--g->n_free];
    struct io_uring_sqe *e = io_uring_get_sqe(&g->uring);
    io_uring_prep_openat_direct(e, AT_FDCWD, p->path, RUI_READS_OPEN_FLAGS & ~O_CLOEXEC, 0, slot);
    io_uring_sqe_set_flags(e, IOSQE_IO_LINK);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_OPEN));
    e = io_uring_get_sqe(&g->uring);
    read_entry(g, e, (int)slot, p);
    io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE | IOSQE_IO_HARDLINK);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_READ));
    e = io_uring_get_sqe(&g->uring);
    io_uring_prep_close_direct(e, slot);
    io_uring_sqe_set_data64(e, entry_of(k, slot, ENTRY_CLOSE));
}

/* The slot of a descriptor in the table of files; -1: none. A descriptor whose place another has
 * taken stays outside: an update costs more than it brings. */
static int slot_of(rui_ring *g, int fd)
{
    if (fd < 0 || g->n_descriptors == 0) {
        return -1;
    }
    uint32_t k = (uint32_t)fd % g->n_descriptors;
    if (g->descriptor[k] < 0 &&
        io_uring_register_files_update(&g->uring, g->n_slots + k, &fd, 1) == 1) {
        g->descriptor[k] = fd;
    }
    return g->descriptor[k] == fd ? (int)(g->n_slots + k) : -1;
}

static void say_no_table(ru_reads *r)
{
    struct rlimit most = {0};
    if (r->plain[0] != '\0') {
        return;
    }
    if (r->ring->table_rc == -EMFILE && getrlimit(RLIMIT_NOFILE, &most) == 0) {
        snprintf(r->plain, sizeof r->plain,
                 "a table of %u files needs more than the %lld that 'ulimit -n' allows",
                 r->ring->n_slots + DESCRIPTORS, (long long)most.rlim_cur);
    } else {
        snprintf(r->plain, sizeof r->plain, "the kernel refused a table of files: %s",
                 strerror(-r->ring->table_rc));
    }
}

static void issue_descriptor(ru_reads *r, const ru_read_piece *p, uint32_t k)
{
    rui_ring *g = r->ring;
    int slot = slot_of(g, p->fd);
    if (g->fixed && g->n_descriptors == 0) {
        say_no_table(r);
    }
    struct io_uring_sqe *e = io_uring_get_sqe(&g->uring);
    read_entry(g, e, slot >= 0 ? slot : p->fd, p);
    io_uring_sqe_set_flags(e, slot >= 0 ? IOSQE_FIXED_FILE : 0);
    io_uring_sqe_set_data64(e, entry_of(k, 0, ENTRY_READ));
}

void rui_ring_issue(ru_reads *r)
{
    rui_ring *g = r->ring;
    int64_t now = ru_clock_now().ns;
    while (r->next < r->n && r->next - r->ended < r->depth) {
        ru_read_piece *p = &r->pieces[r->next];
        if (p->path != NULL && g->n_free == 0) {
            break;
        }
        if (io_uring_sq_space_left(&g->uring) < 3) {
            submit(g);
        }
        if (p->path != NULL) {
            issue_file(g, p, r->next);
        } else {
            issue_descriptor(r, p, r->next);
        }
        p->issued_ns = now;
        r->next++;
    }
    if (io_uring_sq_ready(&g->uring) > 0) {
        submit(g);
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
        rui_reads_rest(p, c->res > 0 ? c->res : 0);
    }
    if (what == ENTRY_CLOSE) {
        r->ring->slot[r->ring->n_free++] = (uint16_t)slot;
    }
    if (what == ENTRY_READ) {
        rui_reads_count(r, p);
    }
    r->ended += what == ENTRY_CLOSE || (what == ENTRY_READ && p->path == NULL) ? 1 : 0;
}

void rui_ring_take(ru_reads *r)
{
    struct io_uring_cqe *c;
    uint32_t before = r->ended;
    while (r->ended < r->next && io_uring_peek_cqe(&r->ring->uring, &c) == 0) {
        take(r, c);
        io_uring_cqe_seen(&r->ring->uring, c);
    }
    if (r->ended > before) {
        rui_ring_issue(r);
    }
}

void rui_ring_end(ru_reads *r)
{
    struct io_uring_cqe *c;
    while (r->ended < r->n) {
        rui_ring_take(r);
        if (r->ended < r->n) {
            int rc = io_uring_wait_cqe(&r->ring->uring, &c);
            RU_CHECK(rc == 0 || rc == -EINTR || rc == -EAGAIN);
        }
    }
}

/* -- open and close --------------------------------------------------------------------------- */

/* The table may hold as many files as the process may open. */
static bool open_slots(rui_ring *g, uint32_t depth_max, bool fixed)
{
    uint32_t n = depth_max, more = fixed ? DESCRIPTORS : 0;
    int rc;
    while (n > 0 && (rc = io_uring_register_files_sparse(&g->uring, n + more)) != 0) {
        n = more > 0 ? n : n / 2;
        g->table_rc = more > 0 ? rc : g->table_rc;
        more = 0;
    }
    g->n_slots = n;
    g->n_descriptors = more;
    for (uint32_t k = 0; k < n; k++) {
        g->slot[g->n_free++] = (uint16_t)k;
    }
    for (uint32_t k = 0; k < DESCRIPTORS; k++) {
        g->descriptor[k] = -1;
    }
    return n > 0;
}

bool rui_ring_open(ru_reads *r, bool fixed)
{
    uint32_t entries = r->depth_max > 4 ? r->depth_max : 4;
    struct io_uring_params p = {.flags = IORING_SETUP_CQSIZE, .cq_entries = 4 * entries};
    rui_ring *g = calloc(1, sizeof *g);
    if (g == NULL || io_uring_queue_init_params(entries, &g->uring, &p) != 0) {
        free(g);
        return false;
    }
    g->fixed = fixed;
    if (!open_slots(g, r->depth_max, fixed)) {
        io_uring_queue_exit(&g->uring);
        free(g);
        return false;
    }
    r->ring = g;
    return true;
}

void rui_ring_close(ru_reads *r)
{
    io_uring_queue_exit(&r->ring->uring);
    free(r->ring);
    r->ring = NULL;
}

/* rc: the kernel's answer; -EFBIG: it was not asked. */
static void say_why(ru_reads *r, int64_t size_bytes, int rc)
{
    struct rlimit most = {0};
    bool limited =
        rc == -ENOMEM && getrlimit(RLIMIT_MEMLOCK, &most) == 0 && most.rlim_cur != RLIM_INFINITY;
    if (limited) {
        snprintf(r->plain, sizeof r->plain,
                 "%lld KiB do not fit in the %lld KiB of locked memory that 'ulimit -l' allows",
                 (long long)size_bytes >> 10, (long long)most.rlim_cur >> 10);
    } else if (rc == -EFBIG) {
        snprintf(r->plain, sizeof r->plain,
                 "%lld MiB are more than the %lld MiB that io_uring fixes",
                 (long long)size_bytes >> 20, (long long)fixed_bytes_max >> 20);
    } else {
        snprintf(r->plain, sizeof r->plain, "the kernel refused: %s", strerror(-rc));
    }
}

void rui_ring_memory(ru_reads *r, void *at, int64_t size_bytes)
{
    rui_ring *g = r->ring;
    r->plain[0] = '\0';
    if (g->memory != NULL) {
        (void)io_uring_unregister_buffers(&g->uring);
        g->memory = NULL;
    }
    if (at == NULL || !g->fixed) {
        return;
    }
    const struct iovec v = {.iov_base = at, .iov_len = (size_t)size_bytes};
    bool large = size_bytes > fixed_bytes_max;
    int rc = large ? -EFBIG : io_uring_register_buffers(&g->uring, &v, 1);
    if (rc != 0) {
        say_why(r, size_bytes, rc);
        return;
    }
    g->memory = at;
    g->memory_bytes = size_bytes;
}

#else

bool rui_ring_open(ru_reads *r, bool fixed)
{
    (void)r;
    (void)fixed;
    return false;
}
void rui_ring_close(ru_reads *r)
{
    (void)r;
}
void rui_ring_memory(ru_reads *r, void *at, int64_t size_bytes)
{
    (void)r;
    (void)at;
    (void)size_bytes;
}
void rui_ring_issue(ru_reads *r)
{
    (void)r;
}
void rui_ring_take(ru_reads *r)
{
    (void)r;
}
void rui_ring_end(ru_reads *r)
{
    (void)r;
}

#endif
