/* Updates of parameters whose sums are there while others are still on their way, and how they are
 * taken back. Costs: one more copy of parameters and optimizer slots, and its traffic of memory; it
 * runs where the computing thread would wait for the network. */
#include <stdlib.h>
#include <string.h>

#include "exec/cpu/low/optim.h"

enum { ALIGN_BYTES = 64 };

rui_optim *rui_optim_at(const rui_low *lo, uint32_t i)
{
    const rui_step_rec *r = &lo->run.at[i];
    return r->s.fn == rui_optim_run ? r->s.state : NULL;
}

bool rui_optim_in_place(const rui_optim *s)
{
    bool same = true;
    for (uint32_t i = 0; same && i < s->n; i++) {
        const ru_kern_segment *g = &s->segs[i];
        same = g->p == g->p_out && g->m == g->m_out && g->v == g->v_out;
    }
    return same;
}

static bool may_be_early(const rui_low *lo, uint32_t at)
{
    const rui_optim *s = rui_optim_at(lo, at);
    return s != NULL && s->early.may;
}

static uint32_t kept(const rui_optim *s)
{
    return s->n == 0 ? 0 : s->segs[0].v_out != NULL ? 3 : s->segs[0].m_out != NULL ? 2 : 1;
}

int64_t rui_optim_early_bytes(const rui_low *lo)
{
    int64_t bytes = 0;
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        if (may_be_early(lo, i)) {
            const rui_optim *s = rui_optim_at(lo, i);
            bytes += kept(s) * s->starts[s->n] * (int64_t)sizeof(float);
        }
    }
    return bytes;
}

static ru_status open_one(rui_optim *s)
{
    rui_optim_early *e = &s->early;
    e->blocks = calloc(s->n + 1, sizeof *e->blocks);
    if (e->blocks == NULL) {
        return RU_E_MEM;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        int64_t n = s->starts[i + 1] - s->starts[i];
        e->blocks[i + 1] = e->blocks[i] + (n + RUI_OPTIM_BLOCK - 1) / RUI_OPTIM_BLOCK;
    }
    e->done = calloc((size_t)e->blocks[s->n] + 1, 1);
    size_t bytes = (size_t)s->starts[s->n] * sizeof(float);
    bytes = (bytes + ALIGN_BYTES) / ALIGN_BYTES * ALIGN_BYTES;
    for (uint32_t k = 0; k < kept(s); k++) {
        e->was[k] = aligned_alloc(ALIGN_BYTES, bytes);
        if (e->was[k] == NULL) {
            return RU_E_MEM;
        }
    }
    e->open = e->done != NULL;
    return e->open ? RU_OK : RU_E_MEM;
}

static void close_one(rui_optim *s)
{
    rui_optim_early *e = &s->early;
    for (uint32_t k = 0; k < RUI_OPTIM_KEPT; k++) {
        free(e->was[k]);
    }
    free(e->done);
    free(e->blocks);
    *e = (rui_optim_early){.may = e->may};
}

ru_status rui_optim_early_open(rui_low *lo, ru_err *err)
{
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        if (!may_be_early(lo, i) || rui_optim_at(lo, i)->early.open) {
            continue;
        }
        if (open_one(rui_optim_at(lo, i)) != RU_OK) {
            rui_optim_early_close(lo);
            return RU_FAIL(err, RU_E_MEM, "no memory to update parameters early");
        }
    }
    return RU_OK;
}

void rui_optim_early_close(rui_low *lo)
{
    for (uint32_t i = 0; i < lo->run.n; i++) {
        if (rui_optim_at(lo, i) != NULL) {
            close_one(rui_optim_at(lo, i));
        }
    }
}

/* -- doing --------------------------------------------------------------------------------------
 */

typedef struct early_job {
    const rui_optim *s;
    uint32_t seg;
    int64_t first; /* block */
} early_job;

/* Blocks [begin, end) after the job's first: what they hold is saved while it comes into the cache
 * anyway. */
static void early_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    (void)bufs;
    const early_job *j = state;
    const rui_optim *s = j->s;
    const ru_kern_segment *g = &s->segs[j->seg];
    const float *from[RUI_OPTIM_KEPT] = {g->p, g->m, g->v};
    for (int64_t b = j->first + begin; b < j->first + end; b++) {
        int64_t at = b * RUI_OPTIM_BLOCK, n = g->n - at;
        n = n < RUI_OPTIM_BLOCK ? n : RUI_OPTIM_BLOCK;
        for (uint32_t k = 0; k < RUI_OPTIM_KEPT; k++) {
            if (s->early.was[k] != NULL) {
                memcpy(s->early.was[k] + s->starts[j->seg] + at, from[k] + at,
                       (size_t)n * sizeof(float));
            }
        }
        rui_optim_part(s, j->seg, at, at + n);
    }
}

static void do_one(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg, int64_t begin,
                   int64_t end)
{
    rui_optim_early *e = &s->early;
    int64_t first = (begin + RUI_OPTIM_BLOCK - 1) / RUI_OPTIM_BLOCK;
    int64_t last =
        end == s->segs[seg].n ? e->blocks[seg + 1] - e->blocks[seg] : end / RUI_OPTIM_BLOCK;
    rui_optim_scalars(s, bufs);
    while (first < last) { /* stretches that are not done yet */
        const uint8_t *done = e->done + e->blocks[seg];
        int64_t to = first;
        while (to < last && !done[to]) {
            to++;
        }
        const early_job j = {.s = s, .seg = seg, .first = first};
        rui_kern_for(run, early_part, &j, bufs, to - first, 1);
        memset(e->done + e->blocks[seg] + first, 1, (size_t)(to - first));
        e->n_done += to - first;
        first = to + 1;
    }
}

void rui_optim_early_do(rui_low *lo, const rui_run *run, const float *grad, int64_t n,
                        int64_t begin, int64_t end)
{
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        for (uint32_t k = 0; s != NULL && s->early.open && k < s->n; k++) {
            if (s->segs[k].g == grad && s->segs[k].n == n) {
                do_one(s, lo->run.at[i].ptrs, run, k, begin, end);
            }
        }
    }
}

void rui_optim_undo(rui_low *lo)
{
    for (uint32_t i = lo->update_from; i < lo->run.n; i++) {
        rui_optim *s = rui_optim_at(lo, i);
        for (uint32_t k = 0; s != NULL && s->early.n_done > 0 && k < s->n; k++) {
            const ru_kern_segment *g = &s->segs[k];
            float *const to[RUI_OPTIM_KEPT] = {g->p_out, g->m_out, g->v_out};
            for (int64_t b = s->early.blocks[k]; b < s->early.blocks[k + 1]; b++) {
                int64_t at = (b - s->early.blocks[k]) * RUI_OPTIM_BLOCK, size = g->n - at;
                size = size < RUI_OPTIM_BLOCK ? size : RUI_OPTIM_BLOCK;
                for (uint32_t w = 0; s->early.done[b] && w < RUI_OPTIM_KEPT; w++) {
                    if (s->early.was[w] != NULL) {
                        memcpy(to[w] + at, s->early.was[w] + s->starts[k] + at,
                               (size_t)size * sizeof(float));
                    }
                }
            }
        }
        if (s != NULL) {
            rui_optim_rest_done(s);
        }
    }
}

void rui_optim_rest(const rui_optim *s, uint32_t i, int64_t a, int64_t b)
{
    const uint8_t *done = s->early.done + s->early.blocks[i];
    while (a < b) {
        int64_t block = a / RUI_OPTIM_BLOCK, to = a;
        bool skip = done[block] != 0;
        while (to < b && (done[block] != 0) == skip) {
            to = ++block * RUI_OPTIM_BLOCK;
        }
        to = to < b ? to : b;
        if (!skip) {
            rui_optim_part(s, i, a, to);
        }
        a = to;
    }
}

void rui_optim_rest_done(rui_optim *s)
{
    if (s->early.n_done > 0) {
        memset(s->early.done, 0, (size_t)s->early.blocks[s->n]);
        s->early.n_done = 0;
    }
}
