/* Parameters that several stages have (train/model/stage.h), on the compute thread: the stage that
 * updates one gives its new value after each step, the others take it before the next one; of
 * schedules that flow on before the first part that uses it, which is as late as that stage. */
#include "train/worker/worker_pipe_impl.h"

/* The stage that updates them; 0: there are none. */
uint32_t rui_pipe_owner(const rui_pipe_worker *w)
{
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        if (w->stages.edges[i].held) {
            return w->stages.edges[i].from;
        }
    }
    return 0;
}

/* Memory in which parameters go from one part of this worker to another. */
ru_status rui_news_open(rui_pipe_worker *w, ru_err *err)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        const ru_stage_edge *e = &w->stages.edges[i];
        bool here = e->held && rui_pipe_own(w, e->from) != NULL && rui_pipe_own(w, e->to) != NULL;
        int64_t bytes = ru_type_bytes(&e->type);
        most = here && bytes > most ? bytes : most;
    }
    w->news = most > 0 ? ru_arena_alloc(w->arena, most, 64) : NULL;
    return most == 0 || w->news != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for a stage");
}

/* The new values of parameters that later stages have too: to their workers, or parts here. */
ru_status rui_news_give(rui_pipe_worker *w, uint32_t round, ru_err *err)
{
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        const ru_stage_edge *e = &w->stages.edges[i];
        const rui_pipe_part *from = rui_pipe_own(w, e->from), *to = rui_pipe_own(w, e->to);
        if (!e->held || from == NULL || w->seats.replica > 0) {
            continue;
        }
        void *at = w->news;
        RU_CHECK(to == NULL || at != NULL);
        for (uint32_t k = 0; k < w->seats.workers[e->to]; k++) {
            uint32_t link = w->plan.news[i] + k;
            RU_TRY(to == NULL ? rui_flow_place(w, link, round, &at) : RU_OK);
            RU_TRY(ru_exe_state_read(from->home, e->out, at, err));
            if (to == NULL) {
                rui_flow_go(w, link, round);
            }
        }
        RU_TRY(to != NULL ? ru_exe_state_write(to->home, e->in, at, err) : RU_OK);
    }
    return RU_OK;
}

static ru_status take(rui_pipe_worker *w, uint32_t round, ru_err *err)
{
    for (uint32_t i = 0; i < w->stages.n_edges; i++) {
        const ru_stage_edge *e = &w->stages.edges[i];
        const rui_pipe_part *to = rui_pipe_own(w, e->to);
        uint32_t link = w->plan.news[i] + w->seats.replica;
        void *at;
        if (e->held && to != NULL && rui_pipe_own(w, e->from) == NULL) {
            RU_TRY(rui_flow_place(w, link, round, &at));
            RU_TRY(ru_exe_state_write(to->home, e->in, at, err));
            rui_flow_go(w, link, round);
        }
    }
    return RU_OK;
}

ru_status rui_news_take(rui_pipe_worker *w, uint32_t round, ru_err *err)
{
    while (w->course.n_news < round) {
        RU_TRY(take(w, w->course.n_news++, err));
    }
    return RU_OK;
}
