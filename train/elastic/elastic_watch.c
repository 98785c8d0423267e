/* The leader watches the clock: who is waited for is named, and nobody is held back for a view that
 * does not come. */
#include <stdio.h>

#include "base/log.h"
#include "train/elastic/elastic_impl.h"

static void name_slow(ru_elastic *e, ru_time now, ru_effects *fx)
{
    int64_t waited = now.ns - e->progress_ns;
    bool step = e->phase == RUI_EL_STEP;
    for (uint32_t i = 0; i < e->v.n; i++) {
        const rui_el_member *m = &e->v.at[i];
        if (step ? m->done > e->step : m->ready) {
            continue;
        }
        int64_t silent = i == e->v.me ? 0 : ru_member_silent_ns(e->opt.member, m->node, now);
        ru_fx_log(fx, RU_LOG_WARN,
                  "step %lld has waited %.1f s for worker %u: %s; last message %.1f s ago",
                  (long long)e->step + 1, (double)waited * 1e-9, m->number,
                  step ? "its gradients are incomplete" : "it is not ready for the new view",
                  (double)silent * 1e-9);
        rui_el_news(e, RU_ELASTIC_SLOW, m->number, waited, now);
        return; /* one line, the first of them */
    }
}

static void name_missing(ru_elastic *e, uint32_t here, uint32_t need, ru_time now, ru_effects *fx)
{
    ru_member_facts f;
    char refused[64] = "";
    ru_member_facts_get(e->opt.member, &f);
    if (f.refused > 0) {
        snprintf(refused, sizeof refused, ", %u refused; of the last ", f.refused);
    }
    uint32_t more = need > here ? need - here : 0;
    ru_fx_log(fx, RU_LOG_WARN, "has waited %.0f s for %u more worker%s: %u of %u have joined%s%s",
              (double)(now.ns - e->progress_ns) * 1e-9, more, more == 1 ? "" : "s", here, need,
              refused, f.refused > 0 ? f.refused_why : "");
}

void rui_el_lead_watch(ru_elastic *e, ru_time now, ru_effects *fx)
{
    if (rui_el_leads(e) && rui_el_held(e) && e->phase == RUI_EL_IDLE && !rui_el_stale(e) &&
        now.ns - e->progress_ns > RUI_EL_WATCH_NS &&
        !rui_el_lead_change(e, e->lead.urgent, now, fx)) {
        rui_el_say_release(e, now, fx);
    }
    if (!rui_el_leads(e) || e->ending || now.ns - e->progress_ns < e->opt.slow_ns ||
        now.ns - e->lead.named_ns < e->opt.slow_ns) {
        return;
    }
    e->lead.named_ns = now.ns;
    ru_member_wanted w;
    ru_member_wanted_get(e->opt.member, &w);
    if (e->v.n == 0 || e->v.paused) {
        uint32_t need = e->v.n == 0 ? e->opt.founders : rui_el_needed(e);
        name_missing(e, w.n, need, now, fx);
    } else if (rui_el_waits(e)) {
        name_slow(e, now, fx);
    } else if (rui_el_view_under_way(e)) {
        ru_fx_log(fx, RU_LOG_WARN,
                  "the next view has waited %.1f s for enough members to accept it",
                  (double)(now.ns - e->progress_ns) * 1e-9);
    }
}
