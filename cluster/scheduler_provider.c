/* How the nodes of a market come and go: agents of this machine, jobs of a partition of Slurm, or
 * what two commands start and end. Each way says the same of a node: let it come, leave it as it
 * is, let it go. All are told again and again, so a lost word does no harm. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cluster/scheduler_impl.h"

static const int64_t retry_ns = 2 * INT64_C(1000000000), late_ns = 10 * INT64_C(1000000000);
static const int64_t command_ns = 300 * INT64_C(1000000000); /* then a command hangs */

typedef struct provider_ops {
    const char *name;
    /* Twice a second; may be NULL. false: it is not known yet what is there. */
    bool (*tick)(rui_scheduler *s, uint32_t market, ru_time now);
    void (*wish)(rui_scheduler *s, const rui_wished *w, ru_time now);
    /* Is nothing left of a market's nodes? May be NULL: the agents and commands tell. */
    bool (*empty)(const rui_scheduler *s, uint32_t market);
} provider_ops;

/* -- commands ------------------------------------------------------------------------------------
 */

static void start(rui_scheduler *s, const rui_wished *w, const char *const *argv,
                  const char *const *set, ru_time now)
{
    ru_err err;
    rui_seat *t = w->seat;
    t->tried = now;
    t->does = w->wish;
    t->said[0] = 0;
    if (ru_command_start(&t->command, s->loop, argv, set, now, &err) != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "market", "%s: %s", w->name, err.text);
        (void)snprintf(t->said, sizeof t->said, "%.250s", err.text);
    }
}

/* *code of a command that has ended; the last line of its errors is what people are told. false:
 * none has. */
static bool ended(rui_seat *t, ru_time now, int *code)
{
    bool is = ru_command_ended(&t->command, command_ns, now, code);
    if (is) {
        (void)snprintf(t->said, sizeof t->said, "%s", t->command.last);
    }
    return is;
}

static bool waits(const rui_seat *t, ru_time now)
{
    return t->command.p != NULL || ru_time_since(now, t->tried) < retry_ns;
}

/* -- agents of this machine ----------------------------------------------------------------------
 */

static void local_wish(rui_scheduler *s, const rui_wished *w, ru_time now)
{
    int code;
    if (ended(w->seat, now, &code) && code != 0) {
        ru_log(RU_LOG_ERROR, "cluster", "market", "%s: %s", w->name, w->seat->said);
    }
    bool goes = w->wish == RUI_GO && w->there, comes = w->wish == RUI_COME && !w->up;
    if (waits(w->seat, now) || !(goes || comes)) {
        return;
    }
    const char *argv[] = {"/proc/self/exe",
                          "cluster",
                          "agent",
                          goes ? "--stop" : "--start",
                          "--cluster",
                          s->opt->folder,
                          "--node",
                          w->name,
                          NULL};
    start(s, w, argv, NULL, now);
}

/* -- jobs of a partition of Slurm ----------------------------------------------------------------
 */

static bool slurm_tick(rui_scheduler *s, uint32_t market, ru_time now)
{
    return ru_slurm_tick(s->partitions[market], now);
}

static void slurm_wish(rui_scheduler *s, const rui_wished *w, ru_time now)
{
    (void)now;
    ru_slurm *of = s->partitions[w->market];
    if (w->wish != RUI_STAY) {
        ru_slurm_want(of, w->lease - 1, w->wish == RUI_COME);
        (void)snprintf(w->seat->said, sizeof w->seat->said, "%.250s", ru_slurm_trouble(of));
    }
}

static bool slurm_empty(const rui_scheduler *s, uint32_t market)
{
    return ru_slurm_empty(s->partitions[market]);
}

/* -- what two commands start and end -------------------------------------------------------------
 */

static void command(rui_scheduler *s, const rui_wished *w, const char *line, ru_time now)
{
    char node[128], market[128], bid[64];
    ru_arena scratch;
    ru_arena_init(&scratch, 0);
    const char *folder = ru_arena_printf(&scratch, "RUBATO_CLUSTER=%s", s->opt->folder);
    (void)snprintf(node, sizeof node, "RUBATO_NODE=%s", w->name);
    (void)snprintf(market, sizeof market, "RUBATO_MARKET=%s", s->opt->spot->at[w->market].name);
    (void)snprintf(bid, sizeof bid, w->bid_usd > 0 ? "RUBATO_BID=%.6g" : "RUBATO_BID=", w->bid_usd);
    const char *const argv[] = {"/bin/sh", "-c", line, NULL};
    const char *const set[] = {node, market, bid, folder, NULL};
    if (folder != NULL) {
        start(s, w, argv, set, now);
    }
    ru_arena_fini(&scratch);
}

static void command_wish(rui_scheduler *s, const rui_wished *w, ru_time now)
{
    const ru_market_provider *o = &s->opt->providers[w->market];
    rui_seat *t = w->seat;
    int code;
    if (ended(t, now, &code)) {
        t->asked = t->does == RUI_COME && code == 0;
        t->refused = t->does == RUI_COME && code != 0;
        t->gone = t->does == RUI_GO && code == 0;
        if (code != 0) {
            ru_log(RU_LOG_WARN, "cluster", "market", "%s of %s ended with %d: %s",
                   t->does == RUI_COME ? "request" : "release", w->name, code, t->said);
        }
    }
    if (waits(t, now)) {
        return;
    }
    if (w->wish == RUI_COME && !t->asked && !t->refused) {
        t->gone = false;
        command(s, w, o->request, now);
    } else if (w->wish == RUI_GO &&
               (!t->gone || (w->up && ru_time_since(now, t->tried) > late_ns))) {
        /* One that comes after it was released is released again. */
        t->asked = t->refused = false;
        if (w->lent) {
            command(s, w, o->release, now);
        } else {
            t->gone = true; /* it was never asked for */
        }
    }
}

/* -- the table -----------------------------------------------------------------------------------
 */

static const provider_ops *ops_of(const rui_scheduler *s, uint32_t market)
{
    static const provider_ops local = {.name = "local", .wish = local_wish},
                              slurm = {.name = "slurm",
                                       .tick = slurm_tick,
                                       .wish = slurm_wish,
                                       .empty = slurm_empty},
                              command = {.name = "command", .wish = command_wish};
    const ru_market_provider *p = &s->opt->providers[market];
    return p->slurm != NULL ? &slurm : p->request != NULL ? &command : &local;
}

ru_status rui_provider_open(rui_scheduler *s, uint32_t market, ru_err *err)
{
    const ru_slurm_options *o = s->opt->providers[market].slurm;
    return o != NULL ? ru_slurm_open(o, s->shell, s->arena, &s->partitions[market], err) : RU_OK;
}

bool rui_provider_tick(rui_scheduler *s, uint32_t market, ru_time now)
{
    const provider_ops *ops = ops_of(s, market);
    return ops->tick == NULL || ops->tick(s, market, now);
}

void rui_provider_wish(rui_scheduler *s, const rui_wished *w, ru_time now)
{
    RU_CHECK(w->lease >= 1 && w->lease <= RU_SPOT_NODES_MAX);
    ops_of(s, w->market)->wish(s, w, now);
}

bool rui_provider_empty(const rui_scheduler *s, uint32_t market)
{
    const provider_ops *ops = ops_of(s, market);
    return ops->empty == NULL || ops->empty(s, market);
}
