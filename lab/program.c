/* A simulated process whose device is a program of its own: train/embed/device.h as it ships, and a
 * program over it that computes in virtual time what the simulated device computes (device.c). It
 * looks for its next turn a little after it is woken, as a thread does. */
#include "base/ring.h"
#include "lab/job_impl.h"
#include "train/embed/device.h"

struct rui_simjob_program {
    rui_simjob_device *d;
    ru_embed embed;
    ru_spsc said; /* for the loop */
    bool looks;   /* it will */
};

enum { WAKE_MAX_NS = 60000 };

static rui_simjob *job_of(const rui_simjob_program *p)
{
    return p->d->node->job;
}

static ru_time now_of(const rui_simjob_program *p)
{
    return ru_sim_now(job_of(p)->sim);
}

/* -- between program and loop ------------------------------------------------------------------ */

static void drain(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_program *p = self;
    ru_embed_event e;
    while (!p->d->node->process.gone && ru_spsc_pop(&p->said, &e)) {
        ru_embed_said(&p->embed, &e, now_of(p), ru_node_enter(p->d->node->node, now_of(p)));
        ru_node_leave(p->d->node->node, now_of(p));
    }
}

static void say(void *self, const ru_embed_event *e)
{
    rui_simjob_program *p = self;
    void *place = ru_spsc_place(&p->said);
    RU_CHECK(place != NULL);
    *(ru_embed_event *)place = *e;
    ru_spsc_put(&p->said);
    ru_sim_at_node(job_of(p)->sim, p->d->node->process.node, now_of(p), drain, p, 0);
}

static void look(void *self, uint64_t arg)
{
    (void)arg;
    rui_simjob_program *p = self;
    p->looks = false;
    if (!p->d->node->process.gone) {
        rui_simjob_program_look(p);
    }
}

static void woken(void *self)
{
    rui_simjob_program *p = self;
    if (!p->looks) {
        p->looks = true;
        ru_time at = ru_time_after(now_of(p), 1 + ru_rng_below(&job_of(p)->rng, WAKE_MAX_NS));
        ru_sim_at_node(job_of(p)->sim, p->d->node->process.node, at, look, p, 0);
    }
}

static const ru_embed_ops embed_ops = {.say = say, .woken = woken};

/* -- the program ------------------------------------------------------------------------------- */

void rui_simjob_program_look(rui_simjob_program *p)
{
    rui_simjob_device *d = p->d;
    const ru_elastic_device_ops *ops = &rui_simjob_device_plain;
    int64_t step;
    ru_share share;
    if (d->phase == RUI_SIMJOB_IDLE &&
        ru_embed_take(&p->embed, now_of(p), &step, &share) == RU_OK) {
        d->built = true;
        d->share = share;
        ops->step(d, step, &share);
        return;
    }
    if (d->phase != RUI_SIMJOB_COMPUTED) {
        return;
    }
    ru_status st = ru_embed_sums(&p->embed);
    if (st == RU_OK) {
        ops->update(d, d->step);
    } else if (st == RU_E_CANCELLED) { /* nothing changed: the next turn */
        d->phase = RUI_SIMJOB_IDLE;
        d->seq++;
        rui_simjob_program_look(p);
    } else if (st != RU_E_AGAIN && st != RU_E_PEER) {
        rui_simjob_fail(job_of(p), d->node, "the program waits for sums out of order");
    }
}

void rui_simjob_program_ready(rui_simjob_program *p, uint32_t k)
{
    ru_status st = ru_embed_ready(&p->embed, k, now_of(p));
    if (st != RU_OK && st != RU_E_CANCELLED && st != RU_E_PEER) {
        rui_simjob_fail(job_of(p), p->d->node, "the program has gradient %u out of order", k);
    }
}

void rui_simjob_program_updated(rui_simjob_program *p)
{
    ru_status st = ru_embed_done(&p->embed);
    if (st != RU_OK && st != RU_E_PEER) {
        rui_simjob_fail(job_of(p), p->d->node, "the program has updated out of order");
    }
    rui_simjob_program_look(p);
}

/* At any moment: in a step, or when one is given up and it does not know yet. */
void rui_simjob_program_leave(rui_simjob_program *p)
{
    ru_embed_leave(&p->embed);
}

/* -- the device of elastic training ------------------------------------------------------------ */

void rui_simjob_program_build(void *self, const ru_share *share, bool plain)
{
    rui_simjob_device *d = self;
    ru_embed_device_build(&d->program->embed, share, plain);
}

void rui_simjob_program_step(void *self, int64_t step, const ru_share *share)
{
    rui_simjob_device *d = self;
    ru_embed_device_step(&d->program->embed, step, share);
}

void rui_simjob_program_abort(void *self)
{
    rui_simjob_device *d = self;
    ru_embed_device_abort(&d->program->embed);
}

void rui_simjob_program_update(void *self, int64_t step)
{
    rui_simjob_device *d = self;
    ru_embed_device_update(&d->program->embed, step);
}

ru_status rui_simjob_program_open(rui_simjob_device *d, ru_err *err)
{
    const rui_simjob *j = d->node->job;
    ru_arena *arena = &d->node->process.arena;
    uint32_t count = 8;
    while (count < j->n_tensors + 4) {
        count *= 2;
    }
    rui_simjob_program *p = RU_NEW(arena, rui_simjob_program, 1);
    ru_span *gradients = RU_NEW(arena, ru_span, j->n_tensors);
    ru_embed_event *events = RU_NEW(arena, ru_embed_event, count);
    if (p == NULL || gradients == NULL || events == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a simulated program");
    }
    for (uint32_t k = 0; k < j->n_tensors; k++) {
        gradients[k] = (ru_span){&d->grad[j->first[k]], j->tensor_bytes[k]};
    }
    p->d = d;
    ru_embed_init(&p->embed, &embed_ops, p);
    p->embed.gradients = gradients;
    p->embed.n = j->n_tensors;
    ru_spsc_init(&p->said, events, count, sizeof *events);
    d->program = p;
    return RU_OK;
}

void rui_simjob_program_begin(rui_simjob_program *p)
{
    p->embed.elastic = p->d->node->elastic;
}

void rui_simjob_program_close(rui_simjob_program *p)
{
    if (p != NULL) {
        ru_embed_fini(&p->embed);
    }
}
