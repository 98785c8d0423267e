#include "data/fetch.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "env/process/memory.h"

enum {
    REQUEST_MIN = 4 << 10,
};

/* Wanted bytes; after begin: neighbours as one, with their place in the buffer. Whole files that
 * are not open stand in order of their sources. One byte more of them is asked for: it must not
 * come, or the file has grown since its size was taken. */
typedef struct extent {
    const rui_source *source;
    int64_t offset, size_bytes;
    int64_t at;        /* in the buffer; -1: not fetched */
    uint32_t first, n; /* requests */
} extent;

struct rui_fetch {
    rui_fetch_options opt;
    ru_reads *reads;
    ru_ranges *ranges; /* NULL: files only */
    ru_flag cancelled;
    extent *extent; /* [n] rising by (descriptor, offset) after begin */
    uint32_t n, cap;
    ru_read_piece *piece;                   /* [n_pieces] */
    uint32_t n_pieces, cap_pieces, n_files; /* those of files come first */
    uint8_t *buffer;
    int64_t cap_bytes, map_bytes;
    bool begun, over; /* reads are under way; the batch is fetched */
};

static bool grow(void **at, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap) {
        return true;
    }
    uint32_t more = *cap * 2 > need ? *cap * 2 : need;
    void *p = realloc(*at, more * size);
    if (p != NULL) {
        *at = p;
        *cap = more;
    }
    return p != NULL;
}

static int64_t units(int64_t bytes)
{
    return (bytes + RU_DIRECT_BYTES - 1) / RU_DIRECT_BYTES * RU_DIRECT_BYTES;
}

/* A direct read into small pages has a piece for each; a virtual disk reads 1 MiB of them at 0.9
 * GB/s, and into one large page at 2.6. Pages that are not used take no memory. */
static int64_t map_bytes(const rui_fetch *f, int64_t need)
{
    bool larger = f->opt.large && units(need) < RU_MEMORY_LARGE_BYTES;
    return larger ? RU_MEMORY_LARGE_BYTES : units(need);
}

static void free_buffer(rui_fetch *f)
{
    if (f->buffer != NULL) {
        ru_reads_memory(f->reads, NULL, 0);
        ru_memory_unmap(f->buffer, f->map_bytes);
        f->buffer = NULL;
    }
}

static bool grow_buffer(rui_fetch *f, int64_t need)
{
    if (need > f->cap_bytes) {
        free_buffer(f); /* its bytes are of an earlier batch */
        f->map_bytes = map_bytes(f, need);
        f->buffer = ru_memory_map(f->map_bytes);
        f->cap_bytes = f->buffer != NULL ? need : 0;
        if (f->buffer != NULL && f->opt.fixed) {
            ru_reads_memory(f->reads, f->buffer, units(need));
        }
    }
    return f->buffer != NULL;
}

ru_status rui_fetch_open(const rui_fetch_options *opt, rui_fetch **out, ru_err *err)
{
    rui_fetch *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return rui_no_memory(err, "batches that are fetched", sizeof *f);
    }
    f->opt = *opt;
    uint32_t pieces = opt->pieces < 1 << 24 ? (uint32_t)opt->pieces + 1 : 1 << 24;
    int64_t bytes = opt->bytes < opt->bytes_max ? opt->bytes : opt->bytes_max;
    ru_status st = ru_reads_open(opt->depth_max, opt->kind, &f->reads, err);
    bool ok = st == RU_OK && grow((void **)&f->extent, &f->cap, pieces, sizeof *f->extent) &&
              grow((void **)&f->piece, &f->cap_pieces, pieces, sizeof *f->piece) &&
              grow_buffer(f, bytes + 1);
    st = ok || st != RU_OK ? st : rui_no_memory(err, "batches that are fetched", bytes);
    if (st == RU_OK && opt->objects != NULL) {
        st = ru_ranges_open(opt->objects, opt->group, &f->ranges, err);
    }
    if (st != RU_OK) {
        rui_fetch_close(f);
        return st;
    }
    *out = f;
    return RU_OK;
}

void rui_fetch_close(rui_fetch *f)
{
    if (f == NULL) {
        return;
    }
    if (f->begun) {
        uint32_t n;
        rui_fetch_cancel(f);
        (void)rui_fetch_end(f, &n);
    }
    free_buffer(f);
    ru_reads_close(f->reads);
    ru_ranges_close(f->ranges);
    free(f->piece);
    free(f->extent);
    free(f);
}

const char *rui_fetch_name(const rui_fetch *f)
{
    return f->ranges != NULL ? "ranges over HTTP" : ru_reads_name(f->reads);
}

const char *rui_fetch_plain_why(const rui_fetch *f)
{
    return ru_reads_plain_why(f->reads);
}

void rui_fetch_cancel(rui_fetch *f)
{
    if (f != NULL && f->ranges != NULL) {
        ru_flag_set(&f->cancelled, 1);
        ru_ranges_cancel(f->ranges);
    }
}

ru_status rui_fetch_cancelled(const rui_fetch *f, ru_err *err)
{
    return f != NULL && ru_flag_get(&f->cancelled) != 0
               ? RU_FAIL(err, RU_E_CANCELLED, "reading was ended")
               : RU_OK;
}

void rui_fetch_add(void *self, const rui_source *s, int64_t offset, int64_t size_bytes)
{
    rui_fetch *f = self;
    RU_CHECK(!f->begun);
    if (f->over) {
        f->over = false;
        f->n = 0;
    }
    if (s->bytes != NULL || size_bytes <= 0 || offset < 0 ||
        size_bytes > s->size_bytes - offset || /* the reader says what is wrong */
        !grow((void **)&f->extent, &f->cap, f->n + 1, sizeof *f->extent)) {
        return;
    }
    extent e = {.source = s, .offset = offset, .size_bytes = size_bytes, .at = -1};
    if (s->file.direct) {
        e.offset -= offset % RU_DIRECT_BYTES;
        e.size_bytes = units(offset + size_bytes) - e.offset;
    }
    f->extent[f->n++] = e;
}

/* -- begin ---------------------------------------------------------------------------------------
 */

/* Files before objects. */
static int64_t key(const rui_source *s)
{
    return s->object != NULL ? ((int64_t)1 << 32) + ru_object_number(s->object) : s->file.fd;
}

static bool is_whole_file(const rui_source *s)
{
    return s->object == NULL && s->file.fd < 0;
}

/* The same file? Below 0: a before b. Several sources may have one descriptor, and -1 is none. */
static int order_of(const rui_source *a, const rui_source *b)
{
    int64_t x = key(a), y = key(b);
    if (x != y) {
        return x < y ? -1 : 1;
    }
    return a == b || !is_whole_file(a) ? 0 : a < b ? -1 : 1;
}

static bool before(const extent *a, const extent *b)
{
    int order = order_of(a->source, b->source);
    if (order != 0) {
        return order < 0;
    }
    return a->offset != b->offset ? a->offset < b->offset : a->size_bytes < b->size_bytes;
}

static void sift(extent *e, uint32_t at, uint32_t n)
{
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && before(&e[child], &e[child + 1]);
        if (!before(&e[at], &e[child])) {
            return;
        }
        extent t = e[at];
        e[at] = e[child];
        e[child] = t;
    }
}

/* In place, without memory (qsort takes some); extents that are in order already cost one look. */
static void sort(extent *e, uint32_t n)
{
    uint32_t k = 1;
    while (k < n && !before(&e[k], &e[k - 1])) {
        k++;
    }
    if (k >= n) {
        return;
    }
    for (uint32_t i = n / 2; i-- > 0;) {
        sift(e, i, n);
    }
    for (uint32_t i = n; i-- > 1;) {
        extent t = e[0];
        e[0] = e[i];
        e[i] = t;
        sift(e, 0, i);
    }
}

static void merge(rui_fetch *f)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        const extent *e = &f->extent[k];
        extent *last = n > 0 ? &f->extent[n - 1] : NULL;
        int64_t end = e->offset + e->size_bytes;
        int64_t gap = e->source->object != NULL ? RUI_FETCH_GAP_OBJECT_BYTES : RUI_FETCH_GAP_BYTES;
        if (last != NULL && order_of(last->source, e->source) == 0 &&
            e->offset - (last->offset + last->size_bytes) <= gap) {
            last->size_bytes =
                end - last->offset > last->size_bytes ? end - last->offset : last->size_bytes;
        } else {
            f->extent[n++] = *e;
        }
    }
    f->n = n;
}

/* Places in the buffer for all that fit. Returns the bytes. */
static int64_t place(rui_fetch *f)
{
    int64_t used = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        int64_t need = f->extent[k].size_bytes + (is_whole_file(f->extent[k].source) ? 1 : 0);
        used = f->extent[k].source->file.direct ? units(used) : used;
        bool fits = need <= f->opt.bytes_max - used;
        f->extent[k].at = fits ? used : -1;
        used += fits ? need : 0;
    }
    return used;
}

/* The requests of an extent; a file that is not open is read by one. */
static bool cut(rui_fetch *f, extent *e, int64_t size)
{
    e->first = f->n_pieces;
    if (is_whole_file(e->source)) {
        if (!grow((void **)&f->piece, &f->cap_pieces, f->n_pieces + 1, sizeof *f->piece)) {
            return false;
        }
        f->piece[f->n_pieces++] = (ru_read_piece){.path = e->source->path,
                                                  .fd = -1,
                                                  .size_bytes = e->size_bytes + 1,
                                                  .into = f->buffer + e->at};
        e->n = 1;
        return true;
    }
    size -= e->source->file.direct ? size % RU_DIRECT_BYTES : 0;
    for (int64_t done = 0; done < e->size_bytes;) {
        int64_t left = e->size_bytes - done, n = left < size + size / 2 ? left : size;
        if (!grow((void **)&f->piece, &f->cap_pieces, f->n_pieces + 1, sizeof *f->piece)) {
            f->n_pieces = e->first;
            return false;
        }
        f->piece[f->n_pieces++] = (ru_read_piece){.fd = e->source->file.fd,
                                                  .direct = e->source->file.direct,
                                                  .object = e->source->object,
                                                  .offset = e->offset + done,
                                                  .size_bytes = n,
                                                  .into = f->buffer + e->at + done};
        done += n;
    }
    e->n = f->n_pieces - e->first;
    return true;
}

void rui_fetch_begin(rui_fetch *f, int64_t size_bytes, uint32_t depth)
{
    RU_CHECK(!f->begun);
    int64_t size = size_bytes > REQUEST_MIN ? size_bytes : REQUEST_MIN;
    if (f->over) {
        f->n = 0;
    }
    sort(f->extent, f->n);
    merge(f);
    f->n_pieces = 0;
    bool ok = grow_buffer(f, place(f) + 1);
    for (uint32_t k = 0; k < f->n; k++) {
        extent *e = &f->extent[k];
        e->at = ok && e->at >= 0 && cut(f, e, size) ? e->at : -1;
    }
    f->begun = true;
    f->n_files = 0;
    while (f->n_files < f->n_pieces && f->piece[f->n_files].object == NULL) {
        f->n_files++;
    }
    ru_reads_begin(f->reads, f->piece, f->n_files, depth);
    if (f->ranges != NULL) {
        ru_ranges_begin(f->ranges, f->piece + f->n_files, f->n_pieces - f->n_files, depth);
    }
}

void rui_fetch_poll(rui_fetch *f)
{
    if (f != NULL && f->begun) {
        ru_reads_poll(f->reads);
    }
}

void rui_fetch_depth_set(rui_fetch *f, uint32_t depth)
{
    ru_reads_depth_set(f->reads, depth);
    if (f->ranges != NULL) {
        ru_ranges_depth_set(f->ranges, depth);
    }
}

int64_t rui_fetch_bytes(const rui_fetch *f)
{
    return ru_reads_bytes(f->reads) + (f->ranges != NULL ? ru_ranges_bytes(f->ranges) : 0);
}

/* Did all bytes come? Whole units may go beyond the end of the file. */
static void judge(const rui_fetch *f, extent *e)
{
    int64_t left = e->source->size_bytes - e->offset;
    bool cut_off = e->source->file.direct && left < e->size_bytes;
    for (uint32_t i = e->first; e->at >= 0 && i < e->first + e->n; i++) {
        const ru_read_piece *p = &f->piece[i];
        int64_t want = is_whole_file(e->source) ? e->size_bytes : p->size_bytes;
        int64_t there = e->source->size_bytes - p->offset;
        want = cut_off && there < want ? there : want;
        e->at = p->got_bytes == want ? e->at : -1;
    }
    e->size_bytes = cut_off ? left : e->size_bytes;
}

const ru_read_piece *rui_fetch_end(rui_fetch *f, uint32_t *n)
{
    if (!f->begun) {
        *n = 0;
        return NULL;
    }
    ru_reads_end(f->reads);
    if (f->ranges != NULL) {
        ru_ranges_end(f->ranges);
    }
    for (uint32_t k = 0; k < f->n; k++) {
        judge(f, &f->extent[k]);
    }
    f->begun = false;
    f->over = true;
    *n = f->n_pieces;
    return f->piece;
}

const uint8_t *rui_fetch_find(const rui_fetch *f, const rui_source *s, int64_t offset,
                              int64_t size_bytes)
{
    uint32_t lo = 0, hi = f->over ? f->n : 0; /* extents before lo begin at or before it */
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const extent *e = &f->extent[mid];
        int order = order_of(e->source, s);
        bool at_or_before = order != 0 ? order < 0 : e->offset <= offset;
        lo = at_or_before ? mid + 1 : lo;
        hi = at_or_before ? hi : mid;
    }
    const extent *e = lo > 0 ? &f->extent[lo - 1] : NULL;
    bool inside = e != NULL && e->at >= 0 && order_of(e->source, s) == 0 &&
                  offset + size_bytes <= e->offset + e->size_bytes;
    return inside ? f->buffer + e->at + (offset - e->offset) : NULL;
}

/* -- records -------------------------------------------------------------------------------------
 */

static ru_rec_flow record_of(ru_rec_kind kind, uint16_t name, uint64_t stream, int64_t batch)
{
    const uint64_t words[] = {stream, (uint64_t)batch};
    return (ru_rec_flow){.kind = kind,
                         .name = name,
                         .flow = ru_hash_bytes(words, sizeof words, 0),
                         .step = (uint32_t)batch};
}

void rui_fetch_record(ru_recorder *r, uint16_t name, uint64_t stream, int64_t batch,
                      const ru_read_piece *p, uint32_t n)
{
    ru_rec_flow f = record_of(RU_REC_ASYNC, name, stream, batch);
    for (uint32_t i = 0; i < n; i++) {
        f.start_ns = p[i].issued_ns;
        f.end_ns = p[i].ended_ns;
        f.bytes = p[i].got_bytes > 0 ? p[i].got_bytes : 0;
        f.flags = p[i].got_bytes < 0 ? RU_REC_FAILED : 0;
        ru_rec_flows(r, &f);
    }
}

void rui_fetch_record_batch(ru_recorder *r, uint16_t name, uint64_t stream, int64_t batch,
                            int64_t from_ns, int64_t size_bytes)
{
    ru_rec_flow f = record_of(RU_REC_SPAN, name, stream, batch);
    f.start_ns = from_ns;
    f.end_ns = ru_rec_now();
    f.bytes = size_bytes;
    ru_rec_flows(r, &f);
}
