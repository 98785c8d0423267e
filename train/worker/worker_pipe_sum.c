/* The sums of the workers of a stage, and the norm of all stages, on the compute thread. */
#include <math.h>
#include <string.h>

#include "exec/update.h"
#include "train/worker/worker_pipe_impl.h"

/* All gradients of an executable, one behind another. */
static void copy_grads(ru_exe *e, uint8_t *at, bool out)
{
    const ru_exe_grad *g;
    uint32_t n = ru_exe_grads(e, &g);
    for (uint32_t k = 0; k < n; at += g[k++].size_bytes) {
        memcpy(out ? at : g[k].data, out ? g[k].data : at, (size_t)g[k].size_bytes);
    }
}

/* The sums of all workers of this stage, added in the order of the workers: each sends its own to
 * the others, so that all have the same bits. */
ru_status rui_pipe_sum_up(rui_pipe_worker *w, ru_err *err)
{
    uint32_t m = w->seats.workers[w->at->stage];
    uint32_t own = w->seats.replica, links = w->plan.sum[w->at->stage], round = w->turn.round;
    void *mine = NULL, *sum;
    ru_exe *spare = w->at->slot[w->turn.slot]; /* it went back */
    if (m == 1 || w->stages.at[w->at->stage].step.n_params == 0) {
        return RU_OK;
    }
    for (uint32_t k = 0; k < m; k++) {
        if (k != own) {
            RU_TRY(rui_flow_place(w, links + own * m + k, round, &mine));
            copy_grads(w->at->home, mine, true);
            rui_flow_go(w, links + own * m + k, round);
        }
    }
    for (uint32_t k = 0; k < m; k++) { /* what is sent stays until the next step */
        sum = mine;
        RU_TRY(k != own ? rui_flow_place(w, links + k * m + own, round, &sum) : RU_OK);
        copy_grads(k == 0 ? w->at->home : spare, sum, false);
        RU_TRY(k > 0 ? ru_exe_grads_add(w->at->home, spare, err) : RU_OK);
        if (k != own) {
            rui_flow_go(w, links + k * m + own, round);
        }
    }
    return RU_OK;
}

/* Added in the order of the workers, as their gradients are. The leader is the last of them and has
 * the last micro-batch, so the others went forward with theirs, or can. */
ru_status rui_pipe_figures(rui_pipe_worker *w)
{
    const rui_pipe_seats *s = &w->seats;
    uint32_t m = s->workers[w->stages.n - 1], round = w->turn.round;
    float sum[] = {0, 0, 0}, own[] = {w->sum.loss, w->sum.correct, w->sum.count}, x[3];
    _Static_assert(sizeof x == RUI_PIPE_FIGURES_BYTES, "a piece");
    void *piece;
    if (m == 1 || w->at->stage + 1 != w->stages.n) {
        return RU_OK;
    }
    if (s->own + 1 < s->n) {
        uint32_t link = w->plan.figures + s->replica;
        RU_TRY(rui_flow_place(w, link, round, &piece));
        memcpy(piece, own, sizeof own);
        rui_flow_go(w, link, round);
        return RU_OK;
    }
    for (uint32_t r = 0; r < m; r++) {
        memcpy(x, own, sizeof x);
        if (r + 1 < m) {
            RU_TRY(rui_flow_place(w, w->plan.figures + r, round, &piece));
            memcpy(x, piece, sizeof x);
            rui_flow_go(w, w->plan.figures + r, round);
        }
        for (uint32_t k = 0; k < RU_ARRAY_LEN(x); k++) {
            sum[k] += x[k];
        }
    }
    w->sum.loss = sum[0];
    w->sum.correct = sum[1];
    w->sum.count = sum[2];
    return RU_OK;
}

static ru_status put_number(rui_pipe_worker *w, uint32_t link, uint32_t round, double x)
{
    void *piece;
    RU_TRY(rui_flow_place(w, link, round, &piece));
    memcpy(piece, &x, sizeof x);
    rui_flow_go(w, link, round);
    return RU_OK;
}

static ru_status get_number(rui_pipe_worker *w, uint32_t link, uint32_t round, double *x)
{
    void *piece;
    RU_TRY(rui_flow_place(w, link, round, &piece));
    memcpy(x, piece, sizeof *x);
    rui_flow_go(w, link, round);
    return RU_OK;
}

/* Each tells the leader its sum of squares; it adds them in the order of the seats, of several
 * workers of a stage the first one's, and tells all. */
ru_status rui_pipe_norm(rui_pipe_worker *w, uint32_t round)
{
    const rui_pipe_seats *s = &w->seats;
    double most = w->t.job->train.clip_norm, own = 0, sum = 0;
    uint32_t last = s->n - 1;
    if (!(most > 0)) {
        return RU_OK;
    }
    for (const rui_pipe_part *p = w->parts; p < w->parts + w->n_parts && s->replica == 0; p++) {
        own += ru_exe_grads_squares(p->home);
    }
    if (s->own == last) {
        for (uint32_t k = 0; k < last; k++) {
            double x;
            RU_TRY(get_number(w, w->plan.norm + 2 * k, round, &x));
            sum += x;
        }
        sum += own;
        for (uint32_t k = 0; k < last; k++) {
            RU_TRY(put_number(w, w->plan.norm + 2 * k + 1, round, sum));
        }
    } else {
        RU_TRY(put_number(w, w->plan.norm + 2 * s->own, round, own));
        RU_TRY(get_number(w, w->plan.norm + 2 * s->own + 1, round, &sum));
    }
    w->sum.norm = (float)sqrt(sum);
    bool clips = (double)w->sum.norm > most;
    for (const rui_pipe_part *p = w->parts; p < w->parts + w->n_parts; p++) {
        float *by = ru_exe_input(p->home, w->stages.at[p->stage].step.clip);
        if (by != NULL) { /* the part learns */
            *by = clips ? (float)(most / (double)w->sum.norm) : 1.0F;
        }
    }
    return RU_OK;
}
