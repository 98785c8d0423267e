#include "train/pipe/sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "env/file/memfile.h"

#define MAGIC UINT64_C(0x3173746573757274) /* "trusets1" */
enum { STATES_MAX = 1 << 20, PLACE_BYTES = 4096 };

typedef struct head {
    uint64_t magic, model; /* of names and sizes */
    int64_t n;
    uint8_t pad[40];
} head;

typedef struct place {
    const char *name;
    uint32_t state; /* of the caller */
    int64_t offset, bytes;
} place;

struct ru_sets {
    int fd;
    head head;
    uint32_t n;
    place *places;     /* [n] by name */
    uint32_t *rank;    /* [n] place of a state of the caller */
    int64_t set_bytes; /* of the states of one set */
    uint32_t side;     /* the set that is written, or was last */
    ru_sets_at newest;
    uint32_t newest_side;
};

static int64_t mark_at(uint32_t side, int64_t n, int64_t k)
{
    return (int64_t)sizeof(head) + (side * n + k) * (int64_t)sizeof(ru_sets_at);
}

static int64_t data_at(const ru_sets *s, uint32_t side, const place *p)
{
    int64_t marks = mark_at(2, s->n, 0);
    return (marks + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES + side * s->set_bytes + p->offset;
}

/* -- what is there ----------------------------------------------------------------------------- */

/* After which step all states of this set stand; none: .step 0. */
static ru_sets_at complete(int fd, uint32_t side, int64_t n)
{
    ru_sets_at first = {0}, at;
    for (int64_t k = 0; k < n; k++) {
        if (!ru_memfile_get(fd, mark_at(side, n, k), &at, sizeof at) || at.step <= 0 ||
            (k > 0 && at.step != first.step)) {
            return (ru_sets_at){0};
        }
        first = at;
    }
    return first;
}

static ru_sets_at newest(int fd, const head *h, uint32_t *side)
{
    ru_sets_at a = complete(fd, 0, h->n), b = complete(fd, 1, h->n);
    *side = b.step > a.step;
    return *side == 1 ? b : a;
}

static bool read_head(int fd, head *h)
{
    return ru_memfile_get(fd, 0, h, sizeof *h) && h->magic == MAGIC && h->n > 0 &&
           h->n <= STATES_MAX;
}

int64_t ru_sets_step(int fd)
{
    head h;
    uint32_t side;
    return read_head(fd, &h) ? newest(fd, &h, &side).step : 0;
}

/* -- opening ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const place *)a)->name, ((const place *)b)->name);
}

static void lay_out(ru_sets *s, const ru_sets_state *states)
{
    uint64_t model = MAGIC;
    for (uint32_t k = 0; k < s->n; k++) {
        s->places[k] = (place){.name = states[k].name, .state = k, .bytes = states[k].bytes};
    }
    qsort(s->places, s->n, sizeof *s->places, by_name);
    for (uint32_t k = 0; k < s->n; k++) {
        place *p = &s->places[k];
        p->offset = s->set_bytes;
        s->set_bytes += (p->bytes + 63) / 64 * 64;
        s->rank[p->state] = k;
        model = ru_hash_bytes(p->name, (int64_t)strlen(p->name), model);
        model = ru_hash_bytes(&p->bytes, sizeof p->bytes, model);
    }
    s->head = (head){.magic = MAGIC, .model = model, .n = s->n};
}

ru_status ru_sets_open(const char *path, const ru_sets_state *states, uint32_t n, ru_arena *arena,
                       ru_sets **out, ru_err *err)
{
    ru_sets *s = RU_NEW(arena, ru_sets, 1);
    place *places = RU_NEW(arena, place, n + 1);
    uint32_t *rank = RU_NEW(arena, uint32_t, n + 1);
    if (s == NULL || places == NULL || rank == NULL || n > STATES_MAX) {
        return RU_FAIL(err, RU_E_MEM, "no memory for sets of %u states", n);
    }
    head h;
    *s = (ru_sets){.n = n, .places = places, .rank = rank};
    lay_out(s, states);
    RU_TRY(ru_memfile_reach(path, &s->fd, err));
    if (read_head(s->fd, &h) && h.model == s->head.model && h.n == n) {
        s->newest = newest(s->fd, &h, &s->newest_side);
        s->side = s->newest_side;
    }
    *out = s;
    return RU_OK;
}

void ru_sets_close(ru_sets *s)
{
    if (s != NULL) {
        ru_memfile_close(s->fd);
    }
}

ru_sets_at ru_sets_newest(const ru_sets *s)
{
    return s->newest;
}

ru_status ru_sets_read(ru_sets *s, const char *name, int64_t offset_bytes, int64_t size_bytes,
                       void *into, ru_err *err)
{
    const place key = {.name = name};
    const place *p = bsearch(&key, s->places, s->n, sizeof key, by_name);
    bool is = p != NULL && s->newest.step > 0 && offset_bytes >= 0 &&
              size_bytes <= p->bytes - offset_bytes &&
              ru_memfile_get(s->fd, data_at(s, s->newest_side, p) + offset_bytes, into, size_bytes);
    return is ? RU_OK
              : RU_FAIL(err, RU_E_DATA, "the set after step %lld does not hold '%.80s'",
                        (long long)s->newest.step, name);
}

/* -- writing ----------------------------------------------------------------------------------- */

ru_status ru_sets_head(ru_sets *s, ru_err *err)
{
    static const ru_sets_at none = {0};
    for (uint32_t side = 0; side < 2; side++) {
        bool stays = s->newest.step > 0 && side == s->newest_side;
        for (uint32_t k = 0; k < s->n && !stays; k++) {
            RU_TRY(ru_memfile_put(s->fd, mark_at(side, s->n, k), &none, sizeof none, err));
        }
    }
    return ru_memfile_put(s->fd, 0, &s->head, sizeof s->head, err);
}

void ru_sets_begin(ru_sets *s)
{
    s->side = 1 - s->side;
}

static ru_status mark(ru_sets *s, uint32_t state, ru_sets_at at, ru_err *err)
{
    RU_CHECK(state < s->n);
    return ru_memfile_put(s->fd, mark_at(s->side, s->n, s->rank[state]), &at, sizeof at, err);
}

ru_status ru_sets_torn(ru_sets *s, uint32_t state, ru_err *err)
{
    return mark(s, state, (ru_sets_at){0}, err);
}

ru_status ru_sets_whole(ru_sets *s, uint32_t state, ru_sets_at at, ru_err *err)
{
    RU_CHECK(at.step > 0);
    return mark(s, state, at, err);
}

ru_status ru_sets_write(ru_sets *s, uint32_t state, int64_t offset_bytes, int64_t size_bytes,
                        const void *from, ru_err *err)
{
    RU_CHECK(state < s->n);
    const place *p = &s->places[s->rank[state]];
    RU_CHECK(offset_bytes >= 0 && size_bytes <= p->bytes - offset_bytes);
    return ru_memfile_put(s->fd, data_at(s, s->side, p) + offset_bytes, from, size_bytes, err);
}
