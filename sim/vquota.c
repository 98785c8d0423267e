/* Quotas of processor time: a process that used up its part of a period stands still until the next
 * one, as the kernel's bandwidth control does it. What its device computes uses the quota while it
 * computes; what it sends and receives uses some for each byte.
 *
 *   left  quota-.        .-- refilled, nothing is carried over
 *               '-.      |'-.
 *                  '.____|   '-.__      stands still where left is 0
 *
 * Source: turner-2010. */
#include <stddef.h>

#include "sim/sim_impl.h"

static void spent(void *self, uint64_t arg);

/* Account for what was used until now. Nothing is carried over to the next period but a debt. */
static void settle(const ru_sim *s, rui_sim_budget *b)
{
    int64_t period_ns = b->q.period_ns;
    while (b->refill_ns <= s->now_ns) {
        b->left_ns -= b->use * (double)(b->refill_ns - b->at_ns);
        b->left_ns = (double)b->q.quota_ns + (b->left_ns < 0 ? b->left_ns : 0);
        b->at_ns = b->refill_ns;
        int64_t idle = b->use > 0 || b->left_ns < (double)b->q.quota_ns
                           ? 1
                           : (s->now_ns - b->refill_ns) / period_ns + 1;
        b->refill_ns += idle * period_ns;
    }
    b->left_ns -= b->use * (double)(s->now_ns - b->at_ns);
    b->at_ns = s->now_ns;
}

/* The device stops or goes on with its process. */
static void stop(ru_sim *s, uint32_t node, bool out)
{
    rui_sim_devs_hold(s, node);
    s->nodes[node]->budget->out = out;
    rui_sim_devs_begin(s, node);
}

static void refilled(void *self, uint64_t arg);

/* The process stands still until the next period. */
static void pause_until_refill(ru_sim *s, rui_sim_node *n)
{
    int64_t at_ns = n->budget->refill_ns;
    ru_sim_at(s, (ru_time){at_ns}, refilled, s, n->index); /* before what waits is delivered */
    ru_sim_freeze(s, n->index, at_ns - s->now_ns);
}

static void refilled(void *self, uint64_t arg)
{
    ru_sim *s = self;
    rui_sim_node *n = s->nodes[arg];
    settle(s, n->budget);
    if (n->alive && n->budget->left_ns < 1) { /* a debt of more than a period */
        pause_until_refill(s, n);
    } else if (n->alive) {
        stop(s, n->index, false);
    }
}

/* Nothing is left? Else ask again when the rest is used up or the period is over. */
static void look(ru_sim *s, rui_sim_node *n)
{
    rui_sim_budget *b = n->budget;
    ru_sim_cancel(s, b->timer);
    b->timer = 0;
    if (b->out || !n->alive) {
        return;
    }
    if (b->left_ns < 1) {
        stop(s, n->index, true);
        pause_until_refill(s, n);
    } else if (b->use > 0) {
        double lasts_ns = b->left_ns / b->use;
        int64_t at_ns = lasts_ns < (double)(b->refill_ns - s->now_ns)
                            ? s->now_ns + 1 + (int64_t)lasts_ns
                            : b->refill_ns;
        b->timer = ru_sim_at(s, (ru_time){at_ns}, spent, s, n->index);
    }
}

static void spent(void *self, uint64_t arg)
{
    ru_sim *s = self;
    rui_sim_node *n = s->nodes[arg];
    n->budget->timer = 0;
    settle(s, n->budget);
    look(s, n);
}

void rui_sim_use(ru_sim *s, uint32_t node, double more)
{
    rui_sim_node *n = s->nodes[node];
    if (n->budget != NULL) {
        settle(s, n->budget);
        n->budget->use += more;
        n->budget->use = n->budget->use > 1e-9 ? n->budget->use : 0;
        look(s, n);
    }
}

void rui_sim_charge(ru_sim *s, rui_sim_node *n, int64_t size_bytes)
{
    if (n->budget != NULL && n->budget->q.byte_ns > 0) {
        settle(s, n->budget);
        n->budget->left_ns -= n->budget->q.byte_ns * (double)size_bytes;
        look(s, n);
    }
}

void ru_sim_quota_set(ru_sim *s, uint32_t node, const ru_sim_quota *q)
{
    RU_CHECK(node < s->nodes_n && s->nodes[node]->budget == NULL);
    RU_CHECK(q->quota_ns > 0 && q->period_ns > 0 && q->phase_ns >= 0 && q->byte_ns >= 0);
    rui_sim_budget *b = rui_sim_grow(s, NULL, 0, (int64_t)sizeof *b);
    if (b == NULL) {
        return; /* the run ends with the error */
    }
    *b = (rui_sim_budget){.q = *q,
                          .left_ns = (double)q->quota_ns,
                          .at_ns = s->now_ns,
                          .refill_ns = s->now_ns + 1 + q->phase_ns % q->period_ns};
    s->nodes[node]->budget = b;
}
