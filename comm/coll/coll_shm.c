/* Collectives in shared memory: the segment, and waiting for each other. */
#include "comm/coll/coll_shm.h"

#include <stdlib.h>
#include <string.h>

#include "comm/coll/coll_shm_impl.h"
#include "env/process/self.h"

/* Waiting: some looks (a few ns each), then the core is given away between looks, then sleep. */
enum { LOOKS_MIN = 8, LOOKS_MAX = 2048, YIELD_NS = 200000, CHECK_NS = 2000000 };

/* -- the segment ----------------------------------------------------------------------------------
 */

static rui_shm_control *control_of(const ru_shm *s)
{
    return ru_shm_data(s);
}

static uint8_t *data_of(const ru_shm *s)
{
    return (uint8_t *)ru_shm_data(s) + RUI_SHM_DATA_AT;
}

ru_status ru_coll_shm_open(const ru_coll_shm_options *opt, ru_coll_shm **out, ru_err *err)
{
    ru_coll_shm *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a shared segment");
    }
    ru_status st = opt->data_bytes < 0
                       ? RU_FAIL(err, RU_E_ARG, "a shared segment cannot have %lld bytes of data",
                                 (long long)opt->data_bytes)
                       : ru_shm_create(opt->name != NULL ? opt->name : "collective",
                                       RUI_SHM_DATA_AT + opt->data_bytes, &c->own, err);
    if (st != RU_OK) {
        free(c);
        return st;
    }
    c->opt = *opt;
    *out = c;
    return RU_OK;
}

void ru_coll_shm_leave(ru_coll_shm *c)
{
    for (uint32_t r = 0; r < c->n; r++) {
        if (r != c->rank) {
            ru_shm_close(c->seg[r]);
        }
        c->seg[r] = NULL;
    }
    c->n = 0;
}

void ru_coll_shm_close(ru_coll_shm *c)
{
    if (c != NULL) {
        ru_coll_shm_leave(c);
        ru_shm_close(c->own);
        free(c);
    }
}

void *ru_coll_shm_data(const ru_coll_shm *c)
{
    return data_of(c->own);
}

const char *ru_coll_shm_handle(const ru_coll_shm *c)
{
    return ru_shm_handle(c->own);
}

/* -- waiting --------------------------------------------------------------------------------------
 */

/* How many looks pay off shows in the waits before: members that share a core (because there are
 * more of them than cores, or because the kernel put them there) never see the other one move. */
static ru_status wait_word(ru_coll_shm *c, ru_shm_word *w, uint32_t target)
{
    for (uint32_t k = 0; k < c->looks; k++) {
        if (ru_shm_reached(ru_shm_look(w), target)) {
            c->looks = c->looks * 2 < LOOKS_MAX ? c->looks * 2 : LOOKS_MAX;
            return RU_OK;
        }
    }
    c->looks = c->looks / 2 > LOOKS_MIN ? c->looks / 2 : LOOKS_MIN;
    ru_shm_wait_options opt = {
        .yield_ns = YIELD_NS, .check = c->opt.check, .self = c->opt.self, .check_ns = CHECK_NS};
    return ru_shm_wait(w, target, &opt);
}

void rui_shm_arrive(ru_coll_shm *c)
{
    ru_shm_post(&c->area[c->rank]->tick, ++c->tick);
}

/* Everybody there: each looks at all; where members outnumber cores rank 0 looks and tells. */
ru_status rui_shm_wait_all(ru_coll_shm *c)
{
    uint32_t target = c->tick;
    if (c->crowded && c->rank != 0) {
        return wait_word(c, &c->area[0]->go, target);
    }
    for (uint32_t d = 1; d < c->n; d++) {
        RU_TRY(wait_word(c, &c->area[(c->rank + d) % c->n]->tick, target));
    }
    if (c->crowded) {
        ru_shm_post(&c->area[0]->go, target);
    }
    return RU_OK;
}

ru_status rui_shm_wait_rank(ru_coll_shm *c, uint32_t rank, uint32_t tick)
{
    return rank == c->rank ? RU_OK : wait_word(c, &c->area[rank]->tick, tick);
}

ru_status ru_coll_shm_barrier(ru_coll_shm *c)
{
    if (c->n <= 1) {
        return c->n == 1 ? RU_OK : RU_E_ARG;
    }
    rui_shm_arrive(c);
    return rui_shm_wait_all(c);
}

/* -- joining --------------------------------------------------------------------------------------
 */

/* Are there more members than cores? A process that is pinned to one core leaves the others theirs.
 * Members may have different cores, but all must wait in the same way: rank 0 decides. */
static bool is_crowded(uint32_t n)
{
    return ru_self_cores() > 1 && n > ru_self_cores();
}

/* Words of an epoch start at zero: the owner clears them, then shows the epoch. Who still looks at
 * an older epoch in the same place is in no group any more. */
static void clear_area(ru_coll_shm *c, uint32_t epoch)
{
    rui_shm_area *a = &control_of(c->own)->area[epoch % RUI_SHM_AREAS];
    memset(&a->tick, 0, sizeof a->tick);
    memset(&a->go, 0, sizeof a->go);
    a->crowded = is_crowded(c->n);
    ru_shm_post(&a->epoch, epoch + 1);
}

static ru_status map_all(ru_coll_shm *c, const char *const *handles, uint32_t epoch, ru_err *err)
{
    for (uint32_t r = 0; r < c->n; r++) {
        if (r == c->rank) {
            c->seg[r] = c->own;
        } else {
            ru_status st = ru_shm_map(handles[r], ru_shm_size_bytes(c->own), &c->seg[r], err);
            if (st != RU_OK) {
                return ru_err_wrap(err, st, "rank %u of the host's group", r);
            }
        }
        c->area[r] = &control_of(c->seg[r])->area[epoch % RUI_SHM_AREAS];
        c->data[r] = data_of(c->seg[r]);
        c->slots[r] = control_of(c->seg[r])->slot[0];
    }
    return RU_OK;
}

void *ru_coll_shm_data_of(const ru_coll_shm *c, uint32_t rank)
{
    return rank < c->n ? c->data[rank] : NULL;
}

ru_status ru_coll_shm_join(ru_coll_shm *c, const char *const *handles, uint32_t n, uint32_t rank,
                           uint32_t epoch, ru_err *err)
{
    if (n < 1 || n > RU_COLL_SHM_RANKS_MAX || rank >= n) {
        return RU_FAIL(err, RU_E_ARG,
                       "rank %u of a group of %u on one host is not valid; a group has at most %d",
                       rank, n, RU_COLL_SHM_RANKS_MAX);
    }
    ru_coll_shm_leave(c);
    c->n = n;
    c->rank = rank;
    c->tick = 0;
    c->small = 0;
    c->looks = LOOKS_MAX;
    c->crowded = false;
    clear_area(c, epoch);
    ru_status st = map_all(c, handles, epoch, err);
    for (uint32_t r = 0; r < n && st == RU_OK; r++) {
        st = wait_word(c, &c->area[r]->epoch, epoch + 1);
        if (st != RU_OK) {
            RU_FAIL(err, st, "rank %u of the host's group did not join epoch %u", r, epoch);
        }
    }
    if (st == RU_OK) {
        c->crowded = c->area[0]->crowded != 0;
    }
    if (st != RU_OK) {
        ru_coll_shm_leave(c);
    }
    return st;
}
