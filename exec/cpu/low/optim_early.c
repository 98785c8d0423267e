/* Updates of parameters whose sums are there while others are still on their way, and how they are
 * taken back. Costs: one more copy of parameters and optimizer slots, and its traffic of memory; it
 * runs where the computing thread would wait for the network. */
#include <math.h>
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

/* -- memory -------------------------------------------------------------------------------------
 */

static uint32_t kept(const rui_optim *s)
{
    return s->n == 0 ? 0 : s->segs[0].v_out != NULL ? 3 : s->segs[0].m_out != NULL ? 2 : 1;
}

int64_t rui_optim_early_bytes(const rui_optim *s)
{
    return kept(s) * s->starts[s->n] * (int64_t)sizeof(float);
}

ru_status rui_optim_early_open(rui_optim *s)
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
    e->done = calloc((size_t)e->blocks[s->n] + 1, sizeof *e->done);
    e->have = calloc((size_t)e->blocks[s->n] + 1, sizeof *e->have);
    size_t bytes = (size_t)s->starts[s->n] * sizeof(float);
    bytes = (bytes + ALIGN_BYTES) / ALIGN_BYTES * ALIGN_BYTES;
    for (uint32_t k = 0; k < kept(s); k++) {
        e->was[k] = aligned_alloc(ALIGN_BYTES, bytes);
        if (e->was[k] == NULL) {
            return RU_E_MEM;
        }
    }
    e->open = e->done != NULL && e->have != NULL;
    return e->open ? RU_OK : RU_E_MEM;
}

void rui_optim_early_close(rui_optim *s)
{
    rui_optim_early *e = &s->early;
    for (uint32_t k = 0; k < RUI_OPTIM_KEPT; k++) {
        free(e->was[k]);
    }
    free(e->done);
    free(e->have);
    free(e->blocks);
    *e = (rui_optim_early){.may = e->may};
}

/* -- doing --------------------------------------------------------------------------------------
 */

typedef struct early_job {
    const rui_optim *s;
    uint32_t seg;
    int64_t first; /* block */
} early_job;

static int64_t size_of(const rui_optim *s, uint32_t seg, int64_t block)
{
    int64_t left = s->segs[seg].n - block * RUI_OPTIM_BLOCK;
    return left < RUI_OPTIM_BLOCK ? left : RUI_OPTIM_BLOCK;
}

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
        int64_t at = b * RUI_OPTIM_BLOCK, n = size_of(s, j->seg, b);
        for (uint32_t k = 0; k < RUI_OPTIM_KEPT; k++) {
            if (s->early.was[k] != NULL && !s->early.counts) {
                memcpy(s->early.was[k] + s->starts[j->seg] + at, from[k] + at,
                       (size_t)n * sizeof(float));
            }
        }
        rui_optim_part(s, j->seg, at, at + n);
    }
}

/* Elements [begin, end) are summed: count them in. */
static void count(rui_optim *s, uint32_t seg, int64_t begin, int64_t end)
{
    while (begin < end) {
        int64_t b = begin / RUI_OPTIM_BLOCK, to = (b + 1) * RUI_OPTIM_BLOCK;
        to = to < end ? to : end;
        uint16_t *have = &s->early.have[s->early.blocks[seg] + b];
        RU_CHECK(*have + (to - begin) <= size_of(s, seg, b)); /* each element comes once */
        *have = (uint16_t)(*have + (to - begin));
        begin = to;
    }
}

static bool is_due(const rui_optim *s, uint32_t seg, int64_t block, bool counted)
{
    int64_t at = s->early.blocks[seg] + block;
    return !s->early.done[at] && (!counted || s->early.have[at] == size_of(s, seg, block));
}

/* Blocks [first, last) that are due, stretch by stretch. */
static void make(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg, int64_t first,
                 int64_t last, bool counted)
{
    rui_optim_scalars(s, bufs);
    while (first < last) {
        int64_t to = first;
        while (to < last && is_due(s, seg, to, counted)) {
            to++;
        }
        const early_job j = {.s = s, .seg = seg, .first = first};
        rui_kern_for(run, early_part, &j, bufs, to - first, 1);
        memset(s->early.done + s->early.blocks[seg] + first, 1, (size_t)(to - first));
        first = to + 1;
    }
}

void rui_optim_sums(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg,
                    int64_t begin, int64_t end)
{
    count(s, seg, begin, end);
    make(s, bufs, run, seg, begin / RUI_OPTIM_BLOCK, (end + RUI_OPTIM_BLOCK - 1) / RUI_OPTIM_BLOCK,
         true);
}

void rui_optim_rest(rui_optim *s, void *const *bufs, const rui_run *run, uint32_t seg)
{
    make(s, bufs, run, seg, 0, s->early.blocks[seg + 1] - s->early.blocks[seg], false);
}

void rui_optim_undo(rui_optim *s)
{
    for (uint32_t k = 0; s->early.open && k < s->n; k++) {
        const ru_kern_segment *g = &s->segs[k];
        float *const to[RUI_OPTIM_KEPT] = {g->p_out, g->m_out, g->v_out};
        for (int64_t b = 0; b < s->early.blocks[k + 1] - s->early.blocks[k]; b++) {
            int64_t at = b * RUI_OPTIM_BLOCK;
            bool done = s->early.done[s->early.blocks[k] + b] != 0;
            for (uint32_t w = 0; done && w < RUI_OPTIM_KEPT; w++) {
                if (s->early.was[w] != NULL) {
                    memcpy(to[w] + at, s->early.was[w] + s->starts[k] + at,
                           (size_t)size_of(s, k, b) * sizeof(float));
                }
            }
        }
    }
    rui_optim_reset(s);
}

void rui_optim_reset(rui_optim *s)
{
    if (s->early.open) {
        s->early.counts = false;
        memset(s->early.done, 0, (size_t)s->early.blocks[s->n]);
        memset(s->early.have, 0, (size_t)s->early.blocks[s->n] * sizeof *s->early.have);
    }
}

/* The step of Adam that reads this gradient; NULL: none does. */
static const rui_optim *adam_of(const rui_low *lo, ru_value_id grad, uint32_t *seg)
{
    const float *data = NULL;
    for (uint32_t g = 0; g < lo->n_grads; g++) {
        data = lo->grads[g].v.v == grad.v ? rui_buf_ptr(lo, lo->grads[g].buf) : data;
    }
    for (uint32_t i = lo->update_from; data != NULL && i < lo->run.n; i++) {
        const rui_optim *s = rui_optim_at(lo, i);
        for (uint32_t k = 0; s != NULL && s->op == RU_OP_AdamUpdate && k < s->n; k++) {
            if (s->segs[k].g == data) {
                *seg = k;
                return s;
            }
        }
    }
    return NULL;
}

double rui_optim_squares(const rui_low *lo, ru_value_id grad, int64_t step, const float *x,
                         const float *y, int64_t first, int64_t n)
{
    uint32_t seg = 0;
    const rui_optim *s = adam_of(lo, grad, &seg);
    const ru_kern *k = s != NULL ? s->k : ru_kern_best();
    y = y != NULL ? y + first : NULL;
    if (s == NULL) {
        return k->squares(x + first, y, NULL, 1, 0, n);
    }
    double root = 1 / sqrt(1 - pow(s->beta2, (double)step));
    return k->squares(x + first, y, s->segs[seg].v + first, (float)root, (float)s->epsilon, n);
}
