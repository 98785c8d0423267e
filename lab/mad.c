/* A member that has the token and says anything to anybody: messages of every machine, of this
 * epoch or another, with bytes from outside, between those that its own machines send. What the job
 * computes then is nobody's promise; that every process takes it or refuses it is. */
#include "lab/job_impl.h"

enum { EVERY_NS = 300000, BODY_MAX = 96, HEAD = 4 };

static uint32_t what_of(uint8_t pick)
{
    static const uint32_t first[] = {RU_ELASTIC_WHAT_FIRST,
                                     RU_ELASTIC_WHAT_FIRST,
                                     RU_ELASTIC_WHAT_FIRST,
                                     RU_MEMBER_WHAT_FIRST,
                                     0,
                                     RU_NODE_WHAT_OWNER};
    uint32_t group = (pick >> 4) % (RU_ARRAY_LEN(first) + 2);
    return group < RU_ARRAY_LEN(first) ? first[group] + (pick & 15) : RU_COLL_WHAT;
}

void rui_simjob_mad(void *self, uint64_t at)
{
    rui_simjob *j = self;
    const ru_sim_job *o = j->opt;
    if ((int64_t)at + HEAD > o->mad_bytes) {
        j->mad_done = true;
        return;
    }
    const uint8_t *p = o->mad + at;
    int64_t n = p[3] % BODY_MAX, left = o->mad_bytes - (int64_t)at - HEAD;
    n = n < left ? n : left;
    const rui_simjob_node *mad = &j->nodes[o->mad[0] % o->founders],
                          *to = &j->nodes[p[0] % o->founders];
    ru_time now = ru_sim_now(j->sim);
    if (!mad->ended && mad != to) {
        uint8_t body[4 + BODY_MAX];
        uint32_t epoch = ru_member_view(ru_node_member(mad->node))->epoch;
        epoch += p[2] % 8 == 6 ? 1u : p[2] % 8 == 7 ? UINT32_MAX : 0u;
        for (uint32_t i = 0; i < 4; i++) {
            body[i] = (uint8_t)(epoch >> (8 * i));
        }
        for (int64_t i = 0; i < n; i++) {
            body[4 + i] = p[HEAD + i];
        }
        bool bare = p[2] >= 0xf0; /* not even an epoch */
        (void)!ru_chan_message(ru_node_chan(mad->node), to->id, what_of(p[1]),
                               body + (bare ? 4 : 0), n + (bare ? 0 : 4), now);
    }
    ru_sim_at(j->sim, ru_time_after(now, EVERY_NS), rui_simjob_mad, j, at + HEAD + (uint64_t)n);
}
