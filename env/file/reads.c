#include "env/file/reads_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file.h"

void rui_reads_rest(ru_read_piece *p, int64_t got)
{
    while (got < p->size_bytes && !(p->direct && got % RU_DIRECT_BYTES != 0)) {
        int64_t left = p->size_bytes - got;
        left = left < RUI_READS_PART_BYTES ? left : RUI_READS_PART_BYTES;
        ssize_t n = pread(p->fd, p->into + got, (size_t)left, p->offset + got);
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

void rui_reads_piece(ru_read_piece *p)
{
    if (p->path == NULL) {
        rui_reads_rest(p, 0);
        return;
    }
    p->fd = open(p->path, RUI_READS_OPEN_FLAGS);
    p->got_bytes = -1;
    p->ended_ns = ru_clock_now().ns;
    if (p->fd >= 0) {
        rui_reads_rest(p, 0);
        close(p->fd);
        p->fd = -1;
    }
}

void rui_reads_count(ru_reads *r, const ru_read_piece *p)
{
    atomic_fetch_add_explicit(&r->bytes, p->got_bytes > 0 ? p->got_bytes : 0, memory_order_relaxed);
}

ru_status ru_reads_open(uint32_t depth_max, ru_reads_kind kind, ru_reads **out, ru_err *err)
{
    RU_CHECK(depth_max >= 1 && depth_max <= RU_READS_DEPTH_MAX);
    ru_reads *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for reads of files");
    }
    r->depth_max = depth_max;
    ru_cond_init(&r->done);
    bool ring = kind != RU_READS_BY_THREADS && rui_ring_open(r, kind == RU_READS_BEST);
    ru_status st = ring ? RU_OK : rui_pool_join(r, err);
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
    if (r->ring != NULL) {
        rui_ring_close(r);
    } else {
        rui_pool_leave(r);
    }
    ru_cond_fini(&r->done);
    free(r);
}

const char *ru_reads_name(const ru_reads *r)
{
    return r->ring != NULL ? "io_uring" : "threads";
}

void ru_reads_memory(ru_reads *r, void *at, int64_t size_bytes)
{
    RU_CHECK(r->ended == r->n);
    if (r->ring != NULL) {
        rui_ring_memory(r, at, size_bytes);
    }
}

const char *ru_reads_plain_why(const ru_reads *r)
{
    return r->plain[0] != '\0' ? r->plain : NULL;
}

static uint32_t depth_within(const ru_reads *r, uint32_t depth)
{
    RU_CHECK(depth >= 1);
    return depth < r->depth_max ? depth : r->depth_max;
}

void ru_reads_begin(ru_reads *r, ru_read_piece *pieces, uint32_t n, uint32_t depth)
{
    RU_CHECK(r->ended == r->n);
    depth = depth_within(r, depth);
    if (r->ring == NULL) {
        rui_pool_begin(r, pieces, n, depth);
        return;
    }
    r->pieces = pieces;
    r->next = r->ended = 0;
    r->n = n;
    r->depth = depth;
    rui_ring_issue(r);
}

void ru_reads_depth_set(ru_reads *r, uint32_t depth)
{
    depth = depth_within(r, depth);
    if (r->ring == NULL) {
        rui_pool_depth(r, depth);
    } else {
        r->depth = depth;
    }
}

int64_t ru_reads_bytes(const ru_reads *r)
{
    return atomic_load_explicit(&r->bytes, memory_order_relaxed);
}

void ru_reads_poll(ru_reads *r)
{
    if (r->ring != NULL && r->ended < r->n) {
        rui_ring_take(r);
    }
}

void ru_reads_end(ru_reads *r)
{
    if (r->ring != NULL) {
        rui_ring_end(r);
    } else {
        rui_pool_end(r);
    }
}
