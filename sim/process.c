/* Processes: timers by number over the simulator's events. */
#include "sim/process.h"

#include <string.h>

/* A timer that is moved later keeps its event, which then asks again: beats are moved often. */
static void timer_event(void *self, uint64_t arg)
{
    ru_sim_process *p = self;
    ru_sim_timer *t = &p->timers[arg];
    ru_time now = ru_sim_now(p->sim);
    t->event = 0;
    if (t->at_ns == 0 || p->gone) {
        return;
    }
    if (t->at_ns > now.ns) {
        t->event_ns = t->at_ns;
        t->event = ru_sim_at_node(p->sim, p->node, (ru_time){t->at_ns}, timer_event, p, arg);
        return;
    }
    t->at_ns = 0;
    p->fire(p->self, t->what, now);
}

static ru_sim_timer *timer_of(ru_sim_process *p, uint32_t what)
{
    uint32_t k = 0;
    while (k < RU_SIM_PROCESS_TIMERS && p->timers[k].what != what && p->timers[k].what != 0) {
        k++;
    }
    RU_CHECK(k < RU_SIM_PROCESS_TIMERS);
    p->timers[k].what = what;
    return &p->timers[k];
}

void ru_sim_process_timer(void *self, uint32_t what, ru_time at)
{
    ru_sim_process *p = self;
    ru_sim_timer *t = timer_of(p, what);
    t->at_ns = at.ns;
    if (t->event != 0 && t->event_ns <= at.ns) {
        return;
    }
    if (at.ns == INT64_MAX) {
        return; /* never */
    }
    if (t->event != 0) {
        ru_sim_cancel(p->sim, t->event);
    }
    t->event_ns = at.ns > ru_sim_now(p->sim).ns ? at.ns : ru_sim_now(p->sim).ns;
    t->event = ru_sim_at_node(p->sim, p->node, (ru_time){t->event_ns}, timer_event, p,
                              (uint64_t)(t - p->timers));
}

void ru_sim_process_timer_off(void *self, uint32_t what)
{
    timer_of(self, what)->at_ns = 0;
}

ru_status ru_sim_process_open(ru_sim_process *p, ru_sim *sim, const char *address,
                              const ru_sim_nic *nic,
                              void (*fire)(void *self, uint32_t what, ru_time now), void *self,
                              ru_err *err)
{
    *p = (ru_sim_process){.sim = sim, .fire = fire, .self = self};
    ru_arena_init(&p->arena, 0);
    return ru_sim_nic_add(sim, address, nic, NULL, &p->link, &p->node, err);
}

void ru_sim_process_user(ru_sim_process *p, const ru_link_user *user)
{
    ru_sim_nic_user(p->sim, p->node, user);
}

void ru_sim_process_fini(ru_sim_process *p)
{
    ru_arena_fini(&p->arena);
}

void ru_sim_process_at(ru_sim_process *p, ru_time at, ru_sim_fn fn, void *self, uint64_t arg)
{
    ru_sim_at_node(p->sim, p->node, at, fn, self, arg);
}

void ru_sim_process_exit(ru_sim_process *p)
{
    p->gone = true;
    ru_sim_crash(p->sim, p->node);
}
