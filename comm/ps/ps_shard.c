/* Shards: rows and the state of their rule, which updates were taken, and what waits for its clock.
 *
 * As bytes: pack | values [floats] | done [executors] | for each update that waits: held | body */
#include <string.h>

#include "comm/ps/ps_impl.h"

#define PACK_MAGIC UINT32_C(0x31537552) /* "RuS1" */

typedef struct pack {
    uint32_t magic, shard, closed, n_held;
    int64_t floats, executors;
} pack;

typedef struct pack_held {
    uint32_t executor, step, n_runs, part, epoch, zero;
    int64_t body_bytes;
} pack_held;

bool rui_ps_shard_make(ru_ps *ps, uint32_t s)
{
    rui_ps_shard *x = &ps->shard[s];
    RU_CHECK(x->values == NULL && x->held == NULL);
    int64_t values = ps->place.shard_floats[s] * 4, done = (int64_t)ps->opt.n_executors * 4;
    x->values = ru_bufs_get(&ps->bufs, values);
    x->done = ru_bufs_get(&ps->bufs, done);
    if (x->values == NULL || x->done == NULL) {
        ru_bufs_put(&ps->bufs, x->values);
        ru_bufs_put(&ps->bufs, x->done);
        x->values = NULL;
        x->done = NULL;
        return false;
    }
    memset(x->values, 0, (size_t)values);
    memset(x->done, 0, (size_t)done);
    return true;
}

static void held_free(ru_ps *ps, rui_ps_held *h)
{
    ru_bufs_put(&ps->bufs, h->body);
    ru_bufs_put(&ps->bufs, h);
}

void rui_ps_shard_drop(ru_ps *ps, uint32_t s)
{
    rui_ps_shard *x = &ps->shard[s];
    ru_bufs_put(&ps->bufs, x->values);
    ru_bufs_put(&ps->bufs, x->done);
    while (x->held != NULL) {
        rui_ps_held *h = x->held;
        x->held = h->next;
        held_free(ps, h);
    }
    x->values = NULL;
    x->done = NULL;
    x->here = false;
    rui_ps_unsaved(ps, s);
}

float *rui_ps_row(const ru_ps *ps, uint32_t s, uint32_t table, uint32_t row)
{
    const rui_ps_place *p = &ps->place;
    uint32_t b = rui_ps_block_of(p, table, row);
    uint32_t in = row - p->block_row[b];
    return ps->shard[s].values + p->offset[b] + (int64_t)in * rui_ps_stride(p, table);
}

bool rui_ps_runs_ok(const ru_ps *ps, uint32_t s, const void *body, int64_t body_bytes,
                    uint32_t n_runs, int64_t *floats)
{
    const rui_ps_place *p = &ps->place;
    *floats = 0;
    if (body_bytes / (int64_t)sizeof(rui_ps_run) < n_runs) {
        return false;
    }
    const rui_ps_run *run = body;
    for (uint32_t k = 0; k < n_runs; k++) {
        if (run[k].row >= p->n_rows || run[k].n < 1) {
            return false;
        }
        uint32_t t = rui_ps_table_of(p, run[k].row), b = rui_ps_block_of(p, t, run[k].row);
        if (run[k].n > p->block_row[b + 1] - run[k].row || p->shard[b] != s) {
            return false;
        }
        *floats += (int64_t)run[k].n * p->table[t].width;
    }
    return true;
}

/* Rows that change. */
static void mark(ru_ps *ps, uint32_t row, uint32_t n)
{
    if (ps->marked != NULL) {
        memset(ps->marked + row, 1, n);
    }
}

static void merge(ru_ps *ps, uint32_t s, uint32_t clock, const void *body, uint32_t n_runs)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_run *run = body;
    const float *change = n_runs > 0 ? (const float *)(const void *)(run + n_runs) : NULL;
    for (uint32_t k = 0; k < n_runs; k++) {
        uint32_t t = rui_ps_table_of(p, run[k].row), width = p->table[t].width;
        float *at = rui_ps_row(ps, s, t, run[k].row);
        for (uint32_t i = 0; i < run[k].n; i++) {
            ps->opt.user.merge(ps->opt.user.self, t, clock, at, at + width, change);
            at += rui_ps_stride(p, t);
            change += width;
        }
        mark(ps, run[k].row, run[k].n);
        ps->stats.rows_merged += run[k].n;
    }
}

/* Parts of one step of one executor are one change: their sum, added in their order, is merged. */
static void merge_sum(ru_ps *ps, uint32_t s, const rui_ps_held *from, const rui_ps_held *end)
{
    const rui_ps_place *p = &ps->place;
    size_t floats = (size_t)p->shard_floats[s];
    const float *values = ps->shard[s].values;
    float *sum = ru_bufs_need(&ps->bufs, (int64_t)(floats * 5));
    RU_CHECK(sum != NULL);
    uint8_t *has = (uint8_t *)(sum + floats); /* at a row's first float */
    memset(sum, 0, floats * 5);
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (const rui_ps_held *h = from; h != end; h = h->next) {
            const rui_ps_run *run = h->body;
            const float *change =
                h->n_runs > 0 ? (const float *)(const void *)(run + h->n_runs) : NULL;
            for (uint32_t k = 0; k < h->n_runs; k++) {
                uint32_t t = rui_ps_table_of(p, run[k].row), width = p->table[t].width;
                float *at = rui_ps_row(ps, s, t, run[k].row);
                mark(ps, run[k].row, run[k].n);
                for (uint32_t i = 0; i < run[k].n; i++, at += rui_ps_stride(p, t)) {
                    size_t place = (size_t)(at - values);
                    for (uint32_t j = 0; pass == 0 && j < width; j++) {
                        sum[place + j] += change[j];
                    }
                    if (pass == 1 && has[place] != 0) {
                        ps->opt.user.merge(ps->opt.user.self, t, h->step / ps->opt.rounds, at,
                                           at + width, sum + place);
                        ps->stats.rows_merged++;
                    }
                    has[place] = pass == 0 ? 1 : 0;
                    change += width;
                }
            }
        }
    }
    ru_bufs_put(&ps->bufs, sum);
}

static bool before(const ru_ps *ps, const rui_ps_held *a, const rui_ps_held *b)
{
    uint32_t x = a->step / ps->opt.rounds, y = b->step / ps->opt.rounds;
    return x != y                       ? x < y
           : a->executor != b->executor ? a->executor < b->executor
           : a->step != b->step         ? a->step < b->step
                                        : a->part < b->part;
}

static rui_ps_held *merge_lists(const ru_ps *ps, rui_ps_held *a, rui_ps_held *b)
{
    rui_ps_held *first = NULL, **end = &first;
    while (a != NULL && b != NULL) {
        rui_ps_held **from = before(ps, b, a) ? &b : &a;
        *end = *from;
        end = &(*from)->next;
        *from = *end;
    }
    *end = a != NULL ? a : b;
    return first;
}

/* By clock, executor, step, part. Updates come in any order and many wait for one clock: sorted
 * once it closes, a clock of n costs n log n. list[k] holds 2^k updates or none. */
static void sort_held(const ru_ps *ps, rui_ps_shard *x)
{
    enum { LISTS = 40 };
    rui_ps_held *list[LISTS] = {NULL}, *all = NULL;
    while (x->unsorted && x->held != NULL) {
        rui_ps_held *one = x->held;
        uint32_t k = 0;
        x->held = one->next;
        one->next = NULL;
        for (; list[k] != NULL; k++) {
            one = merge_lists(ps, list[k], one);
            list[k] = NULL;
        }
        list[k] = one;
    }
    for (uint32_t k = 0; x->unsorted && k < LISTS; k++) {
        all = merge_lists(ps, list[k], all);
    }
    x->held = x->unsorted ? all : x->held;
    x->unsorted = false;
}

/* Was this part taken? Those of closed clocks are forgotten: a clock closes when all its updates
 * are acknowledged. */
static bool part_taken(const ru_ps *ps, uint32_t s, const rui_ps_head *h)
{
    const rui_ps_shard *x = &ps->shard[s];
    bool taken = h->step / ps->opt.rounds < x->closed;
    for (const rui_ps_held *k = x->held; k != NULL && !taken; k = k->next) {
        taken = k->executor == h->executor && k->step == h->step && k->part != 0 &&
                (k->part == h->part || k->part == h->part2);
    }
    return taken;
}

static void hold(ru_ps *ps, uint32_t s, const rui_ps_head *h, uint32_t n_runs, void *body,
                 int64_t body_bytes)
{
    rui_ps_shard *x = &ps->shard[s];
    rui_ps_held *n = ru_bufs_need(&ps->bufs, sizeof *n);
    RU_CHECK(n != NULL);
    *n = (rui_ps_held){.next = x->held,
                       .executor = h->executor,
                       .step = h->step,
                       .part = h->part,
                       .epoch = h->epoch,
                       .n_runs = n_runs,
                       .body_bytes = body_bytes,
                       .body = body};
    x->held = n;
    x->unsorted = true;
}

/* A part whose changes are merged, or are with another part's: known until its clock closes. */
static void remember(ru_ps *ps, uint32_t s, const rui_ps_head *h, uint32_t part)
{
    rui_ps_head only = *h;
    only.part = part;
    if (part != 0) {
        hold(ps, s, &only, 0, NULL, 0);
    }
}

/* Rows that rotate: their holder's values replace them, and the step is over. */
static void replace(ru_ps *ps, uint32_t s, const rui_ps_head *h, const void *body)
{
    const rui_ps_place *p = &ps->place;
    const rui_ps_run *run = body;
    const float *value = h->n_runs > 0 ? (const float *)(const void *)(run + h->n_runs) : NULL;
    for (uint32_t k = 0; k < h->n_runs; k++) {
        uint32_t t = rui_ps_table_of(p, run[k].row), width = p->table[t].width;
        float *at = rui_ps_row(ps, s, t, run[k].row);
        for (uint32_t i = 0; i < run[k].n; i++) {
            memcpy(at, value, (size_t)width * 4);
            at += rui_ps_stride(p, t);
            value += width;
        }
        mark(ps, run[k].row, run[k].n);
        ps->stats.rows_merged += run[k].n;
    }
    RU_CHECK(ps->shard[s].closed == h->step); /* one holder in each step, each waits for the last */
    ps->shard[s].closed = h->step + 1;
}

bool rui_ps_shard_update(ru_ps *ps, uint32_t s, const rui_ps_head *h, void *body,
                         int64_t body_bytes, bool *taken)
{
    rui_ps_shard *x = &ps->shard[s];
    *taken = false;
    /* Of a rebuilt shard that rotates it is known which steps are in it, but not whose. */
    bool taken_before = h->part != 0 ? part_taken(ps, s, h) : h->step < x->done[h->executor];
    if (taken_before || (s >= ps->place.n_spread && h->step < x->closed)) {
        ps->stats.duplicates++;
        return false;
    }
    uint32_t clock = h->step / ps->opt.rounds;
    /* A shard that came here may be ahead of what this process has heard: then it has not heard
     * either who was left out of the last clock, and only those still send changes of it. */
    bool unheard = ps->opt.leaves_out && clock >= ps->closed;
    if (s < ps->place.n_spread && clock < x->closed &&
        (unheard || rui_ps_is_left_out(ps, h->executor, clock))) {
        return false;
    }
    x->done[h->executor] = h->part != 0 ? x->done[h->executor] : h->step + 1;
    ps->stats.updates++;
    if (s >= ps->place.n_spread) {
        replace(ps, s, h, body);
        return true;
    }
    if (!ps->opt.ordered) {
        merge(ps, s, x->closed, body, h->n_runs);
        remember(ps, s, h, h->part);
        remember(ps, s, h, h->part2);
        return true;
    }
    RU_CHECK(clock >= x->closed); /* a clock closes when all its updates are acknowledged */
    remember(ps, s, h, h->part2);
    hold(ps, s, h, h->n_runs, body, body_bytes);
    *taken = true;
    return true;
}

void rui_ps_shard_close(ru_ps *ps, uint32_t s, uint32_t closed)
{
    rui_ps_shard *x = &ps->shard[s];
    if (s >= ps->place.n_spread) {
        return; /* its holders close it */
    }
    sort_held(ps, x);
    while (x->held != NULL && x->held->step / ps->opt.rounds < closed) {
        rui_ps_held *h = x->held, *end = h->next;
        while (end != NULL && end->executor == h->executor && end->step == h->step) {
            end = end->next;
        }
        bool counts = !rui_ps_is_left_out(ps, h->executor, h->step / ps->opt.rounds);
        if (counts && ps->opt.ordered && end == h->next) {
            merge(ps, s, h->step / ps->opt.rounds, h->body, h->n_runs);
        } else if (counts && ps->opt.ordered) {
            merge_sum(ps, s, h, end);
        }
        while (x->held != end) {
            h = x->held;
            x->held = h->next;
            held_free(ps, h);
        }
    }
    x->closed = closed;
}

void rui_ps_shard_fence(ru_ps *ps, uint32_t s)
{
    rui_ps_shard *x = &ps->shard[s];
    bool any = false;
    for (rui_ps_held **at = &x->held; *at != NULL;) {
        rui_ps_held *h = *at;
        if (h->epoch >= ps->lost_at[h->executor]) {
            at = &h->next;
            continue;
        }
        uint32_t begin = x->closed * ps->opt.rounds;
        x->done[h->executor] = x->done[h->executor] > begin ? begin : x->done[h->executor];
        *at = h->next;
        held_free(ps, h);
        any = true;
    }
    for (const rui_ps_held *h = x->held; any && h != NULL; h = h->next) {
        bool later = h->part == 0 && x->done[h->executor] <= h->step;
        x->done[h->executor] = later ? h->step + 1 : x->done[h->executor];
    }
}

int64_t ru_ps_shard_save_bytes(const ru_ps *ps, uint32_t shard)
{
    return (int64_t)sizeof(pack) + 4 * (ps->place.shard_floats[shard] + ps->opt.n_executors);
}

void *rui_ps_shard_pack(ru_ps *ps, uint32_t s, bool all, int64_t *n)
{
    const rui_ps_shard *x = &ps->shard[s];
    pack p = {.magic = PACK_MAGIC,
              .shard = s,
              .closed = x->closed,
              .floats = ps->place.shard_floats[s],
              .executors = ps->opt.n_executors};
    int64_t size = (int64_t)sizeof p + 4 * p.floats + 4 * p.executors;
    for (const rui_ps_held *h = x->held; all && h != NULL; h = h->next) {
        size += (int64_t)sizeof(pack_held) + h->body_bytes;
        p.n_held++;
    }
    uint8_t *out = ru_bufs_get(&ps->bufs, size), *at = out;
    if (out == NULL) {
        return NULL;
    }
    memcpy(at, &p, sizeof p);
    at += sizeof p;
    memcpy(at, x->values, (size_t)(4 * p.floats));
    at += 4 * p.floats;
    uint32_t *done = (void *)at; /* sizes before it are multiples of four */
    memcpy(done, x->done, (size_t)(4 * p.executors));
    for (const rui_ps_held *h = x->held; !all && h != NULL; h = h->next) {
        /* What is held is not in the values: without it, it was not taken. */
        uint32_t begin = x->closed * ps->opt.rounds;
        done[h->executor] = done[h->executor] > begin ? begin : done[h->executor];
    }
    at += 4 * p.executors;
    for (const rui_ps_held *h = x->held; all && h != NULL; h = h->next) {
        const pack_held ph = {.executor = h->executor,
                              .step = h->step,
                              .n_runs = h->n_runs,
                              .part = h->part,
                              .epoch = h->epoch,
                              .body_bytes = h->body_bytes};
        memcpy(at, &ph, sizeof ph);
        if (h->body_bytes > 0) {
            memcpy(at + sizeof ph, h->body, (size_t)h->body_bytes);
        }
        at += (int64_t)sizeof ph + h->body_bytes;
    }
    *n = size;
    return out;
}

static ru_status unpack_held(ru_ps *ps, uint32_t s, uint32_t n_held, const uint8_t *at, int64_t n)
{
    rui_ps_held **last = &ps->shard[s].held;
    for (uint32_t k = 0; k < n_held; k++) {
        pack_held ph;
        int64_t floats;
        if (n < (int64_t)sizeof ph) {
            return RU_E_DATA;
        }
        memcpy(&ph, at, sizeof ph);
        at += sizeof ph;
        n -= (int64_t)sizeof ph;
        if (ph.body_bytes < 0 || ph.body_bytes > n || ph.executor >= ps->opt.n_executors) {
            return RU_E_DATA;
        }
        rui_ps_held *h = ru_bufs_get(&ps->bufs, sizeof *h);
        void *body = ru_bufs_get(&ps->bufs, ph.body_bytes);
        if (h == NULL || body == NULL) {
            ru_bufs_put(&ps->bufs, h);
            ru_bufs_put(&ps->bufs, body);
            return RU_E_MEM;
        }
        memcpy(body, at, (size_t)ph.body_bytes);
        *h = (rui_ps_held){.executor = ph.executor,
                           .step = ph.step,
                           .part = ph.part,
                           .epoch = ph.epoch,
                           .n_runs = ph.n_runs,
                           .body_bytes = ph.body_bytes,
                           .body = body};
        *last = h;
        last = &h->next;
        if (!rui_ps_runs_ok(ps, s, body, ph.body_bytes, ph.n_runs, &floats) ||
            ph.body_bytes != (int64_t)sizeof(rui_ps_run) * ph.n_runs + 4 * floats) {
            return RU_E_DATA;
        }
        at += ph.body_bytes;
        n -= ph.body_bytes;
    }
    return n == 0 ? RU_OK : RU_E_DATA;
}

ru_status rui_ps_shard_unpack(ru_ps *ps, uint32_t s, const void *bytes, int64_t n)
{
    pack p;
    const uint8_t *at = bytes;
    if (n < (int64_t)sizeof p) {
        return RU_E_DATA;
    }
    memcpy(&p, at, sizeof p);
    int64_t fixed =
        (int64_t)sizeof p + 4 * ps->place.shard_floats[s] + 4 * (int64_t)ps->opt.n_executors;
    if (p.magic != PACK_MAGIC || p.shard != s || p.floats != ps->place.shard_floats[s] ||
        p.executors != ps->opt.n_executors || n < fixed) {
        return RU_E_DATA;
    }
    if (!rui_ps_shard_make(ps, s)) {
        return RU_E_MEM;
    }
    at += sizeof p;
    memcpy(ps->shard[s].values, at, (size_t)(4 * p.floats));
    at += 4 * p.floats;
    memcpy(ps->shard[s].done, at, (size_t)(4 * p.executors));
    at += 4 * p.executors;
    ps->shard[s].closed = p.closed;
    ps->shard[s].unsorted = true;
    ru_status st = unpack_held(ps, s, p.n_held, at, n - fixed);
    if (st != RU_OK) {
        rui_ps_shard_drop(ps, s);
    }
    return st;
}

const uint8_t *rui_ps_shard_packed(const ru_ps *ps, uint32_t s, const void *bytes, int64_t n,
                                   uint32_t *closed)
{
    pack p;
    if (n < (int64_t)sizeof p) {
        return NULL;
    }
    memcpy(&p, bytes, sizeof p);
    *closed = p.closed;
    bool ok = p.magic == PACK_MAGIC && p.shard == s && p.floats == ps->place.shard_floats[s] &&
              n >= (int64_t)sizeof p + 4 * p.floats;
    return ok ? (const uint8_t *)bytes + sizeof p : NULL;
}

void rui_ps_shard_packed_at(void *bytes, uint32_t closed)
{
    memcpy((uint8_t *)bytes + offsetof(pack, closed), &closed, sizeof closed);
}

ru_status ru_ps_shard_rows(const ru_ps *ps, uint32_t s, const void *bytes, int64_t n,
                           float *const *value, float *const *extra)
{
    const rui_ps_place *place = &ps->place;
    uint32_t closed;
    const uint8_t *values =
        s < place->n_shards ? rui_ps_shard_packed(ps, s, bytes, n, &closed) : NULL;
    if (values == NULL) {
        return RU_E_DATA;
    }
    for (uint32_t k = place->shard_first[s]; k < place->shard_first[s + 1]; k++) {
        uint32_t b = place->block[k], t = rui_ps_block_table(place, b);
        size_t width = place->table[t].width, more = place->table[t].extra;
        const uint8_t *at = values + 4 * place->offset[b];
        for (uint32_t r = place->block_row[b]; r < place->block_row[b + 1]; r++) {
            size_t row = r - place->first[t];
            if (value[t] != NULL) {
                memcpy(value[t] + row * width, at, width * 4);
            }
            if (more > 0 && extra[t] != NULL) {
                memcpy(extra[t] + row * more, at + width * 4, more * 4);
            }
            at += (width + more) * 4;
        }
    }
    return RU_OK;
}

int64_t ru_ps_shard_of_rows(const ru_ps *ps, uint32_t s, uint32_t clock, float *const *value,
                            float *const *extra, void *into)
{
    const rui_ps_place *place = &ps->place;
    const pack p = {.magic = PACK_MAGIC,
                    .shard = s,
                    .closed = s < place->n_spread ? clock : clock * ps->opt.rounds,
                    .floats = place->shard_floats[s],
                    .executors = ps->opt.n_executors};
    uint8_t *values = (uint8_t *)into + sizeof p;
    int64_t size = (int64_t)sizeof p + 4 * p.floats + 4 * p.executors;
    if (into == NULL) {
        return size;
    }
    memset(into, 0, (size_t)size);
    memcpy(into, &p, sizeof p);
    for (uint32_t k = place->shard_first[s]; k < place->shard_first[s + 1]; k++) {
        uint32_t b = place->block[k], t = rui_ps_block_table(place, b);
        size_t width = place->table[t].width, more = place->table[t].extra;
        uint8_t *at = values + 4 * place->offset[b];
        for (uint32_t r = place->block_row[b]; r < place->block_row[b + 1]; r++) {
            size_t row = r - place->first[t];
            if (value[t] != NULL) {
                memcpy(at, value[t] + row * width, width * 4);
            }
            if (more > 0 && value[t] != NULL && extra[t] != NULL) {
                memcpy(at + width * 4, extra[t] + row * more, more * 4);
            }
            at += (width + more) * 4;
        }
    }
    uint32_t done = clock * ps->opt.rounds;
    for (int64_t e = 0; e < p.executors; e++) {
        memcpy(values + 4 * (p.floats + e), &done, sizeof done);
    }
    return size;
}
