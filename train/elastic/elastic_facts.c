/* What a member of elastic training says of itself. */
#include <stdio.h>

#include "train/elastic/elastic_impl.h"

void ru_elastic_facts_get(const ru_elastic *e, ru_elastic_facts *into)
{
    *into = (ru_elastic_facts){.committed = e->committed,
                               .batch = e->v.batch,
                               .position = e->position,
                               .samples_lost = e->lead.samples_lost,
                               .samples_repeated = e->lead.samples_repeated,
                               .members = e->v.n,
                               .epoch = e->v.epoch,
                               .working = e->v.workers,
                               .moves = e->v.takers > 0,
                               .redone = e->redone,
                               .timed = e->lead.timed,
                               .longest_ns = e->lead.longest_ns,
                               .progress = {e->progress_ns},
                               .steps = e->phase == RUI_EL_STEP,
                               .done = e->lead.n_done,
                               .born = {e->born ? e->born_ns : 0},
                               .first_step = e->first_step,
                               .depth = e->steps.depth,
                               .why = e->steps.why,
                               .sums_off = rui_el_sums_off(e),
                               .step_off = e->reduce.sums.last_off,
                               .probes = e->phase == RUI_EL_PROBE};
    if (e->reduce.group != NULL && e->steps.depth == 2) { /* lanes are two sets */
        ru_coll_size size;
        ru_coll_needs(e->reduce.group, &size);
        into->aside_said_bytes = e->reduce.aside_bytes;
        into->aside_bytes = size.scratch_bytes / 2;
    }
    for (uint32_t i = 0; i < e->v.n && e->v.servers > 0; i++) {
        const rui_el_member *m = &e->v.at[i];
        int64_t said = m->aside_said_bytes * e->steps.depth;
        if (said > into->server_said_bytes) {
            into->server_said_bytes = said;
            into->server_bytes = m->aside_bytes;
        }
    }
}

const char *ru_elastic_doing(const ru_elastic *e, char into[64])
{
    long long step = (long long)e->step + 1;
    const rui_el_step *s = &e->steps.at[e->step % 2];
    switch (e->phase) {
    case RUI_EL_IDLE:
        return e->v.n == 0 ? "waiting for the first view" : "between steps";
    case RUI_EL_BUILD:
        return "preparing for a new view";
    case RUI_EL_CONNECT:
        return "waiting for connections";
    case RUI_EL_READY:
        return "waiting for the others to be ready";
    case RUI_EL_LOCAL:
        return "opening shared memory";
    case RUI_EL_STEP:
        snprintf(into, 64, "%s step %lld",
                 !s->computed           ? "computing"
                 : e->mover.in_left > 0 ? "receiving state"
                 : s->done_sent         ? "waiting for the commit of"
                                        : "reducing gradients of",
                 step);
        return into;
    case RUI_EL_UPDATE:
        return "updating parameters";
    case RUI_EL_ABORT:
        return "aborting a step";
    case RUI_EL_ENDED:
        return "nothing, because it ended";
    case RUI_EL_PROBE:
        return "measuring collectives";
    }
    return "?";
}
