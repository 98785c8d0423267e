/* Devices: one piece of work after the other, each for its duration over the device's speed.
 * Devices that share cores slow down together while they want more than there are. */
#include <stdlib.h>
#include <string.h>

#include "sim/sim_impl.h"

typedef struct work {
    int64_t left_ns; /* at speed 1 */
    ru_sim_fn fn;
    void *self;
    uint64_t arg;
} work;

struct ru_sim_dev {
    ru_sim *sim;
    ru_sim_dev *next;
    uint32_t node;
    double speed;
    work *queue; /* [cap] ring */
    uint32_t first, n, cap;
    uint64_t timer;  /* of the first */
    ru_sim_cpu *cpu; /* NULL: cores of its own */
    ru_sim_dev *cpu_next;
    double cores;     /* that it wants of them */
    int64_t begin_ns; /* the first runs at `speed` since */
    double using;     /* cores, counted by its node's quota; 0: it stands still */
};

struct ru_sim_cpu {
    ru_sim_cpu *next;
    ru_sim_dev *devs; /* list by cpu_next */
    double cores, wanted;
};

/* The part that it gets of the cores that it wants. */
static double part_of(const ru_sim_dev *d)
{
    const ru_sim_cpu *c = d->cpu;
    return c != NULL && c->wanted > c->cores ? c->cores / c->wanted : 1;
}

static bool stands_still(const ru_sim_dev *d)
{
    const rui_sim_budget *b = d->sim->nodes[d->node]->budget;
    return b != NULL && b->out;
}

static void use(ru_sim_dev *d, double cores)
{
    double more = cores - d->using;
    d->using = cores;
    rui_sim_use(d->sim, d->node, more);
}

ru_sim_dev *ru_sim_dev_add(ru_sim *s, uint32_t node, double speed)
{
    RU_CHECK(node < s->nodes_n);
    RU_CHECK(speed > 0);
    ru_sim_dev *d = rui_sim_grow(s, NULL, 0, (int64_t)sizeof *d);
    if (d == NULL) {
        return NULL;
    }
    *d = (ru_sim_dev){.sim = s, .next = s->devs, .node = node, .speed = speed};
    s->devs = d;
    return d;
}

static void finished(void *self, uint64_t arg);

/* The first work goes on from now at the rate of now. */
static void begin(ru_sim_dev *d)
{
    if (d->n == 0 || stands_still(d)) {
        use(d, 0);
        return;
    }
    double ns = (double)d->queue[d->first].left_ns / (d->speed * part_of(d));
    d->begin_ns = d->sim->now_ns;
    d->timer = ru_sim_at_node(d->sim, d->node, (ru_time){d->begin_ns + (int64_t)(ns + 0.5)},
                              finished, d, d->n);
    use(d, (d->cpu != NULL ? d->cores : 1) * part_of(d)); /* may stop it again, at once */
}

/* Take off what was done since `begin_ns`; `begin` follows. Twice at one instant: as once. */
static void hold(ru_sim_dev *d)
{
    if (d->n == 0 || stands_still(d)) {
        return;
    }
    ru_sim_cancel(d->sim, d->timer);
    work *w = &d->queue[d->first];
    w->left_ns -= (int64_t)((double)(d->sim->now_ns - d->begin_ns) * d->speed * part_of(d));
    w->left_ns = w->left_ns < 0 ? 0 : w->left_ns;
    d->begin_ns = d->sim->now_ns;
}

/* `self` begins or stops to want its cores: the others that work go on at another rate. */
static void want(ru_sim_dev *self, double cores)
{
    ru_sim_cpu *c = self->cpu;
    if (c == NULL) {
        return;
    }
    bool same = c->wanted <= c->cores && c->wanted + cores <= c->cores;
    for (ru_sim_dev *d = c->devs; d != NULL && !same; d = d->cpu_next) {
        if (d != self) {
            hold(d);
        }
    }
    c->wanted += cores;
    for (ru_sim_dev *d = c->devs; d != NULL && !same; d = d->cpu_next) {
        if (d != self) {
            begin(d);
        }
    }
}

static void finished(void *self, uint64_t arg)
{
    (void)arg;
    ru_sim_dev *d = self;
    work w = d->queue[d->first];
    d->first = (d->first + 1) % d->cap;
    d->n--;
    if (d->n == 0) {
        want(d, -d->cores);
    }
    begin(d);
    w.fn(w.self, w.arg);
}

ru_sim_cpu *ru_sim_cpu_add(ru_sim *s, double cores)
{
    RU_CHECK(cores > 0);
    ru_sim_cpu *c = rui_sim_grow(s, NULL, 0, (int64_t)sizeof *c);
    if (c != NULL) {
        *c = (ru_sim_cpu){.next = s->cpus, .cores = cores};
        s->cpus = c;
    }
    return c;
}

void ru_sim_dev_cores(ru_sim_dev *d, ru_sim_cpu *cpu, double cores)
{
    RU_CHECK(cores > 0 && d->cpu == NULL && d->n == 0);
    d->cpu = cpu;
    d->cores = cores;
    d->cpu_next = cpu->devs;
    cpu->devs = d;
}

void ru_sim_dev_work(ru_sim_dev *d, int64_t work_ns, ru_sim_fn fn, void *self, uint64_t arg)
{
    RU_CHECK(work_ns >= 0);
    if (d->n == d->cap) {
        uint32_t cap = d->cap == 0 ? 4 : d->cap * 2;
        work *queue = rui_sim_grow(d->sim, NULL, 0, cap * (int64_t)sizeof *queue);
        if (queue == NULL) {
            return; /* the run ends with the error */
        }
        for (uint32_t k = 0; k < d->n; k++) {
            queue[k] = d->queue[(d->first + k) % d->cap];
        }
        d->sim->memory_bytes -= d->cap * (int64_t)sizeof *queue;
        free(d->queue);
        d->queue = queue;
        d->first = 0;
        d->cap = cap;
    }
    d->queue[(d->first + d->n++) % d->cap] = (work){work_ns, fn, self, arg};
    if (d->n == 1) {
        d->begin_ns = d->sim->now_ns;
        want(d, d->cores);
        begin(d);
    }
}

void ru_sim_dev_cancel(ru_sim_dev *d)
{
    if (d->n > 0) {
        ru_sim_cancel(d->sim, d->timer);
        d->n = 0;
        use(d, 0);
        want(d, -d->cores);
    }
}

bool ru_sim_dev_busy(const ru_sim_dev *d)
{
    return d->n > 0;
}

void rui_sim_devs_drop(ru_sim *s, uint32_t node)
{
    for (ru_sim_dev *d = s->devs; d != NULL; d = d->next) {
        if (d->node == node && d->cpu != NULL) {
            ru_sim_dev_cancel(d);
        }
    }
}

void rui_sim_devs_hold(ru_sim *s, uint32_t node)
{
    for (ru_sim_dev *d = s->devs; d != NULL; d = d->next) {
        if (d->node == node) {
            hold(d);
        }
    }
}

void rui_sim_devs_begin(ru_sim *s, uint32_t node)
{
    for (ru_sim_dev *d = s->devs; d != NULL; d = d->next) {
        if (d->node == node) {
            begin(d);
        }
    }
}

void rui_sim_devs_free(ru_sim *s)
{
    while (s->devs != NULL) {
        ru_sim_dev *d = s->devs;
        s->devs = d->next;
        free(d->queue);
        free(d);
    }
    while (s->cpus != NULL) {
        ru_sim_cpu *c = s->cpus;
        s->cpus = c->next;
        free(c);
    }
}
