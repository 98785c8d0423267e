/* Which gradients are summed together in a view: the table that the leader sends with GO, its
 * owner's, or that of a rule, by which members start that have measured nothing yet. */
#include <string.h>

#include "train/elastic/elastic_impl.h"

static ru_status rule_of(ru_elastic *e, ru_arena *scratch, ru_err *err)
{
    rui_el_reduce *r = &e->reduce;
    ru_sums_part *parts;
    uint32_t n;
    RU_TRY(ru_sums_first(e->opt.tensor_bytes, e->opt.n_tensors, e->opt.sums, scratch, &parts, &n,
                         err));
    RU_TRY(ru_sums_cuts(parts, n, e->opt.tensor_bytes, RU_ELASTIC_CUTS_MAX, e->arena, &r->rule,
                        &r->n_rule, err));
    RU_CHECK(r->n_rule <= RU_ELASTIC_BUCKETS_MAX);
    return rui_el_table_set(e, r->rule, r->n_rule, e->arena, err);
}

ru_status rui_el_rule_open(ru_elastic *e, ru_err *err)
{
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    ru_status st = rule_of(e, &scratch, err);
    ru_arena_fini(&scratch);
    return st == RU_E_LIMIT ? RU_E_MEM : st; /* a planner's word for it */
}

uint32_t rui_el_table(const ru_elastic *e, const ru_elastic_part **parts)
{
    const rui_el_reduce *r = &e->reduce;
    *parts = r->table != NULL ? r->table : r->rule;
    return r->table != NULL ? r->n_table : r->n_rule;
}

ru_status rui_el_table_set(ru_elastic *e, const ru_elastic_part *parts, uint32_t n, ru_arena *arena,
                           ru_err *err)
{
    rui_el_reduce *r = &e->reduce;
    r->n_buckets = n;
    r->buckets = RU_NEW(arena, rui_el_bucket, n);
    r->left = RU_NEW(arena, uint32_t, n);
    r->untold = RU_NEW(arena, uint32_t, n);
    r->bucket_of = RU_NEW(arena, uint32_t, e->opt.n_tensors);
    ru_heap_item *ready = RU_NEW(arena, ru_heap_item, n);
    if (r->buckets == NULL || r->left == NULL || r->untold == NULL || r->bucket_of == NULL ||
        ready == NULL) {
        r->n_buckets = 0;
        return RU_FAIL(err, RU_E_MEM, "no memory for %u sums", n);
    }
    ru_heap_init(&r->ready, ready, n);
    r->flight = 0;
    for (uint32_t b = 0; b < n; b++) {
        r->buckets[b].part = parts[b];
        for (uint32_t k = 0; k < parts[b].n && parts[b].offset_bytes == 0; k++) {
            r->bucket_of[parts[b].first + k] = b;
        }
    }
    return rui_el_sums_open(e, arena, err);
}

/* Parts stand in order and leave nothing out: whole gradients by their number, a cut as 0 and its
 * size in elements. A table of the most buckets leaves most of GO to the choices. */
void rui_el_table_write(const ru_elastic_part *parts, uint32_t n, uint32_t flight, ru_wire_out *w)
{
    ru_wire_put_u32(w, n);
    ru_wire_put_u32(w, flight);
    for (uint32_t b = 0; b < n; b++) {
        const ru_elastic_part *p = &parts[b];
        bool cut = p->offset_bytes > 0 || (b + 1 < n && parts[b + 1].first == p->first);
        ru_wire_put_u16(w, cut ? 0 : (uint16_t)p->n);
        if (cut) {
            ru_wire_put_u32(w, (uint32_t)(p->size_bytes / 4));
        }
    }
}

static ru_status bad_table(ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA,
                   "the leader's table of sums does not hold every gradient of this process once; "
                   "start all workers with the same job and version");
}

/* The part that follows what was read so far: gradient *next from byte *offset on. */
static bool read_part(const ru_elastic *e, ru_wire_in *w, uint32_t *next, int64_t *offset,
                      ru_elastic_part *into)
{
    uint32_t n = ru_wire_u16(w);
    *into = (ru_elastic_part){.first = *next, .n = n, .offset_bytes = *offset};
    if (w->bad || n > e->opt.n_tensors - *next || *next == e->opt.n_tensors) {
        return false;
    }
    if (n > 0) {
        for (uint32_t k = *next; k < *next + n; k++) {
            into->size_bytes += e->opt.tensor_bytes[k];
        }
        *next += n;
        return *offset == 0;
    }
    int64_t size = 4 * (int64_t)ru_wire_u32(w), left = e->opt.tensor_bytes[*next] - *offset;
    if (w->bad || size < 4 || size > left) {
        return false;
    }
    into->n = 1;
    into->size_bytes = size;
    bool ends = into->size_bytes == left;
    *next += ends ? 1 : 0;
    *offset = ends ? 0 : *offset + into->size_bytes;
    return true;
}

ru_status rui_el_table_read(ru_elastic *e, ru_wire_in *w, ru_arena *arena, ru_err *err)
{
    uint32_t n = ru_wire_u32(w), flight = ru_wire_u32(w), next = 0;
    int64_t offset = 0;
    if (w->bad || n < 1 || n > RU_ELASTIC_BUCKETS_MAX) {
        return bad_table(err);
    }
    ru_elastic_part *parts = RU_NEW(arena, ru_elastic_part, n);
    if (parts == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u sums", n);
    }
    for (uint32_t b = 0; b < n; b++) {
        if (!read_part(e, w, &next, &offset, &parts[b])) {
            return bad_table(err);
        }
    }
    RU_TRY(next != e->opt.n_tensors ? bad_table(err) : rui_el_table_set(e, parts, n, arena, err));
    e->reduce.flight = flight;
    return RU_OK;
}

/* Do the parts hold every byte of every gradient once, in order? */
static bool holds_all(const ru_elastic *e, const ru_elastic_part *parts, uint32_t n)
{
    uint32_t next = 0;
    int64_t offset = 0;
    for (uint32_t b = 0; b < n; b++) {
        const ru_elastic_part *p = &parts[b];
        if (p->first != next || p->offset_bytes != offset || p->n < 1 || p->size_bytes < 4 ||
            p->size_bytes % 4 != 0 || p->only > RU_COLL_ALGOS ||
            p->only == 1 + (uint32_t)RU_ALGO_HIERARCHY || p->n > e->opt.n_tensors - next ||
            (p->n > 1 && offset > 0)) {
            return false;
        }
        int64_t whole = 0;
        for (uint32_t k = next; k < next + p->n; k++) {
            whole += e->opt.tensor_bytes[k];
        }
        bool ends = offset + p->size_bytes == whole;
        if (!ends && (p->n > 1 || p->size_bytes > whole - offset)) {
            return false;
        }
        next += ends ? p->n : 0;
        offset = ends ? 0 : offset + p->size_bytes;
    }
    return next == e->opt.n_tensors;
}

/* Does GO hold the table and its choices, at worst one of its own for each sum, and handles? */
static bool fits_go(uint32_t n)
{
    enum {
        PART = 6 + 2 /* its rank */,
        CHOICE = 21,
        PLAN = 16,
        HANDLE = RU_ELASTIC_HANDLE_MAX + 4
    };
    int64_t most = RUI_EL_GO_MAX - RUI_EL_GO_HEAD - PLAN - RUI_EL_PROBED_MAX * HANDLE;
    return n * (int64_t)(PART + CHOICE) <= most;
}

uint32_t rui_el_flight(const ru_elastic *e, const rui_el_view *v)
{
    return e->reduce.table != NULL && rui_el_follows(e, v) ? e->reduce.table_flight : 0;
}

ru_status ru_elastic_table_set(ru_elastic *e, const ru_elastic_part *parts, uint32_t n,
                               uint32_t flight, const char *barrier, ru_err *err)
{
    rui_el_reduce *r = &e->reduce;
    if (n > RU_ELASTIC_BUCKETS_MAX || !holds_all(e, parts, n)) {
        return RU_FAIL(err, RU_E_DATA, "a table of %u sums does not hold every gradient once", n);
    }
    if (!fits_go(n)) {
        return RU_FAIL(err, RU_E_LIMIT, "%u sums are more than a leader can tell of", n);
    }
    r->table =
        r->table != NULL ? r->table : RU_NEW(e->arena, ru_elastic_part, RU_ELASTIC_BUCKETS_MAX);
    if (r->table == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a table of %u sums", n);
    }
    memcpy(r->table, parts, n * sizeof *parts);
    r->n_table = n;
    r->table_members = e->v.n > 1 ? e->v.n : 0;
    r->table_flight = flight;
    r->barrier = barrier;
    e->lead.change = e->lead.change || (e->v.n > 1 && rui_el_leads(e));
    return RU_OK;
}
