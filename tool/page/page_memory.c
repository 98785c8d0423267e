/* The memory plan of a run: its input stands in the run's world file, and the same planner gives
 * the same offsets again. */
#include "env/file/file.h"
#include "plan/step/mem_policy.h"
#include "tool/page/page.h"
#include "tool/plan/world_in.h"

/* The newest plan of the policy `mem` in `w`; in->bufs.n is 0 when there is none. */
static ru_status question(const ru_world *w, const char *run, ru_arena *arena, ru_mem_policy_in *in,
                          ru_err *err)
{
    const ru_policy *p;
    const ru_world_plan *plan;
    ru_conf *c;
    RU_TRY(rui_policy_named("mem", &p, err));
    RU_TRY(ru_conf_new(p->in, arena, &c, err));
    ru_conf_bulk(c);
    RU_TRY(rui_world_question(w, run, p, c, arena, &plan, err));
    return ru_conf_apply(c, in, err);
}

ru_status ru_page_memory(const char *run, ru_arena *arena, ru_page_in *page, ru_err *err)
{
    ru_world w;
    ru_mem_policy_in in = {0};
    ru_mem_plan plan;
    const char *path = ru_path_join(arena, run, "world.json");
    if (path == NULL || !ru_path_is_file(path)) {
        return RU_OK; /* a trace alone, or a run that has not ended */
    }
    RU_TRY(rui_world_open(run, arena, &w, err));
    bool has = false;
    for (uint32_t i = 0; i < w.plans.n; i++) {
        has |= ru_str_eq_c(ru_str_c(w.plans.at[i].policy), "mem");
    }
    if (!has) {
        return RU_OK;
    }
    RU_TRY(question(&w, run, arena, &in, err));
    const ru_mem_in ask = {.bufs = in.bufs.at,
                           .n = in.bufs.n,
                           .align_bytes = in.align_bytes,
                           .work_max = in.work_max,
                           .seed = (uint64_t)in.seed};
    RU_TRY(ru_plan_mem(&ask, arena, arena, &plan, err));
    ru_page_buffer *at = RU_NEW(arena, ru_page_buffer, ask.n > 0 ? ask.n : 1);
    if (at == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "there is no memory for the page");
    }
    page->n_buffers = 0;
    for (uint32_t i = 0; i < ask.n; i++) {
        if (ask.bufs[i].part_of == 0 && ask.bufs[i].size_bytes > 0) {
            at[page->n_buffers++] = (ru_page_buffer){plan.offsets[i], ask.bufs[i].size_bytes,
                                                     ask.bufs[i].first, ask.bufs[i].last};
        }
    }
    page->buffers = at;
    page->arena_bytes = plan.peak_bytes;
    return RU_OK;
}
