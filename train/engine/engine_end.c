/* The end of a job: it is told to the others and to the owner, once. */
#include <stdio.h>
#include <string.h>

#include "train/engine/engine_impl.h"

enum { LINGER_NS = 1500000000 };

void rui_engine_news(ru_engine *e, ru_engine_news *n, ru_time now)
{
    n->generation = e->generation;
    if (e->opt.news != NULL) {
        e->opt.news(e->opt.news_self, n, now);
    }
}

void rui_engine_over(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx)
{
    if (e->ended) {
        return;
    }
    e->ended = true;
    e->end.why.status = st;
    (void)snprintf(e->end.why.text, sizeof e->end.why.text, "%s", why != NULL ? why : "");
    /* Words on their way to others still leave: the last one who tells them lingers. */
    ru_fx_timer(fx, RUI_ENGINE_BYE, ru_time_after(now, e->lead.on ? LINGER_NS : LINGER_NS / 10));
    rui_engine_down(e, now, fx);
}

void rui_engine_bye(ru_engine *e, ru_time now)
{
    e->end.told = true;
    rui_engine_news(e,
                    &(ru_engine_news){.kind = RU_ENGINE_ENDED,
                                      .clock = e->closed,
                                      .status = e->end.why.status,
                                      .text = e->end.why.text},
                    now);
}

void rui_engine_down(ru_engine *e, ru_time now, ru_effects *fx)
{
    ru_member_facts f;
    ru_member_facts_get(e->opt.member, &f);
    if (f.alone && !e->end.told) {
        ru_fx_timer(fx, RUI_ENGINE_BYE, now);
    }
}

void rui_engine_fail(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx)
{
    if (e->ended) {
        return;
    }
    const ru_view *v = ru_member_view(e->opt.member);
    for (uint32_t i = 0; i < v->n; i++) {
        rui_engine_head h = {.status = (uint32_t)st};
        if (!ru_node_is(v->at[i].node, e->opt.self)) {
            rui_engine_send(e, v->at[i].node, RUI_ENGINE_FAILED, &h, why, (int64_t)strlen(why) + 1,
                            now, fx);
        }
    }
    rui_engine_over(e, st, why, now, fx);
}

void ru_engine_fail(ru_engine *e, ru_status st, const char *why, ru_time now, ru_effects *fx)
{
    rui_engine_fail(e, st, why, now, fx);
}
