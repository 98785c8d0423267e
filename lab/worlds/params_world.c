#include "lab/worlds/params_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "lab/worlds/params_app.h"
#include "lab/worlds/params_meter.h"
#include "store/shardlog.h"

/* -- the world --------------------------------------------------------------------------------- */

typedef struct record {
    struct record *next;
    ru_engine_ckpt at;
    uint32_t object;
    int64_t n;
    uint8_t bytes[];
} record;

/* Something that the device answers later. */
typedef struct answer {
    struct answer *next, **link; /* of those that are still to come */
    enum { OPENED, RAN, WRITTEN, READ, LOGGED, LOG_READ } kind;
    struct process *p;
    ru_engine_ckpt at;
    uint32_t object, tag;
    ru_engine_task *task;      /* RAN; NULL: it ends at another time */
    int64_t begun_ns, work_ns; /* RAN: what all its units take from then on, as work_ends says */
    uint32_t units;            /* so many */
    uint32_t end;              /* RAN: cut.end, as it is answered now */
    record *log;               /* LOGGED: not stored before it is answered; NULL: it is */
} answer;

typedef struct world {
    const ru_params_job *job;
    ru_sim *sim;
    ru_params_app app;
    ru_app_ops ops;
    ru_app_shape shape;
    int64_t *part; /* [executors + 1] */
    ru_arena arena;
    record *disk;
    record *log; /* all appended records, the newest first; `object` is not used */
    answer *answers;
    ru_params_result *out;
    struct process {
        struct world *world;
        ru_sim_process process;
        ru_node *node;
        ru_engine *engine;
        ru_node_id self;
        char address[32];
        bool began, over;
        uint32_t generation;
    } * at;
    uint32_t n, peers_max;
    uint32_t told, generation, closed; /* clocks; the newest one; clocks that some task begins */
    ru_time lost;                      /* members, in generation `lost_in`; 0: and it went on */
    uint32_t lost_in;
    ru_params_meter meter; /* of the first process */
} world;

typedef struct process process;

static void log_put(world *w, record *r)
{
    r->next = w->log;
    w->log = r;
}

static void log_read(process *p, const answer *a, ru_time now, ru_effects *fx)
{
    int64_t n = 0;
    for (const record *r = p->world->log; r != NULL; r = r->next) {
        n += r->n;
    }
    uint8_t *bytes = malloc((size_t)n + 1), *at = bytes;
    RU_CHECK(bytes != NULL);
    for (const record *r = p->world->log; r != NULL; r = r->next) {
        ru_shardlog_record x;
        for (int64_t end = 0, begin = 0; ru_shardlog_next(r->bytes, r->n, &end, &x); begin = end) {
            if (x.generation >= a->tag && x.generation <= a->at.generation &&
                x.object == a->object) {
                memcpy(at, r->bytes + begin, (size_t)(end - begin));
                at += end - begin;
            }
        }
    }
    ru_engine_log_read(p->engine, a->at.generation, a->object, bytes, at - bytes, RU_OK, NULL, now,
                       fx);
    free(bytes);
}

/* Pieces are computed when the time of all that were not taken away is over. */
static void ran(process *p, ru_engine_task *t, ru_time now, ru_effects *fx)
{
    t->cut.next = t->cut.from;
    for (bool cut = t->cut.units > 0, more = !cut || ru_engine_piece(t, t->cut.units); more;) {
        bool other = cut && t->executor != t->task.executor;
        ru_engine_compute(&p->world->ops, &p->world->shape, t);
        p->world->out->helped += other ? t->task.hi - t->task.lo : 0;
        more = cut && ru_engine_piece(t, t->cut.units);
    }
    ru_engine_ran(p->engine, t, now, fx);
}

/* The newest that was written; NULL: none. */
static const record *saved(const world *w, ru_engine_ckpt at, uint32_t object)
{
    const record *r = w->disk;
    while (r != NULL &&
           (r->at.generation != at.generation || r->at.clock != at.clock || r->object != object)) {
        r = r->next;
    }
    return r;
}

static void perform(void *self, uint64_t arg)
{
    (void)arg;
    answer *a = self;
    process *p = a->p;
    ru_time now = ru_sim_now(p->world->sim);
    ru_effects *fx = ru_node_enter(p->node, now);
    if (a->kind == OPENED) {
        void *s = NULL;
        RU_CHECK(p->world->ops.exec_open(&p->world->app, a->object, NULL, &s, NULL) == RU_OK);
        ru_engine_opened(p->engine, a->object, a->tag, s, RU_OK, NULL, now, fx);
    } else if (a->kind == RAN) {
        if (a->task != NULL) {
            ran(p, a->task, now, fx);
        }
    } else if (a->kind == WRITTEN) {
        ru_engine_written(p->engine, a->at, a->object, RU_OK, NULL, now, fx);
    } else if (a->kind == LOGGED) {
        if (a->log != NULL) {
            log_put(p->world, a->log);
        }
        ru_engine_logged(p->engine, a->at.generation, 100000, RU_OK, NULL, now, fx);
    } else if (a->kind == LOG_READ) {
        log_read(p, a, now, fx);
    } else {
        const record *r = saved(p->world, a->at, a->object);
        RU_CHECK(r != NULL); /* a valid checkpoint has all objects */
        ru_engine_read(p->engine, a->tag, a->object, r->bytes, r->n, RU_OK, NULL, now, fx);
    }
    ru_node_leave(p->node, now);
    *a->link = a->next;
    if (a->next != NULL) {
        a->next->link = a->link;
    }
    free(a);
}

static void later(process *p, answer a, int64_t ns)
{
    world *w = p->world;
    answer *copy = malloc(sizeof *copy);
    RU_CHECK(copy != NULL);
    *copy = a;
    copy->next = w->answers;
    copy->link = &w->answers;
    if (copy->next != NULL) {
        copy->next->link = &copy->next;
    }
    w->answers = copy;
    copy->p = p;
    ru_time at = ru_time_after(ru_sim_now(p->world->sim), ns);
    ru_sim_process_at(&p->process, at, perform, copy, a.object);
}

static int64_t some(world *w, int64_t ns)
{
    return ns / 2 + (int64_t)ru_rng_below_u64(ru_sim_rng(w->sim), (uint64_t)ns + 1);
}

static void device_open(void *self, uint32_t executor, uint32_t helper)
{
    process *p = self;
    later(p, (answer){.kind = OPENED, .object = executor, .tag = helper}, some(p->world, 3000000));
}

static void device_close(void *self, uint32_t executor, void *opened)
{
    const process *p = self;
    (void)executor;
    p->world->ops.exec_close(opened);
}

/* Every 100 ms one process in four becomes up to eight times slower. */
static int64_t slowed(const process *p, int64_t ns)
{
    const uint64_t key[3] = {p->world->job->seed, (uint64_t)(p - p->world->at),
                             (uint64_t)(ru_sim_now(p->world->sim).ns / 100000000)};
    uint64_t draw = ru_hash_bytes(key, sizeof key, 0);
    return draw % 4 == 0 ? ns * (int64_t)(2 + draw / 4 % 7) : ns;
}

/* When the first n units of work that began then are done. */
static int64_t work_ends(const process *p, const answer *a, uint32_t n)
{
    double part = (double)a->work_ns * n / a->units;
    const ru_speeds speeds = {p->world->job->seed, p->world->job->pattern};
    return speeds.pattern == RU_SPEED_EVEN
               ? a->begun_ns + (int64_t)part
               : ru_speed_ends_ns(&speeds, (uint32_t)(p - p->world->at), a->begun_ns, part);
}

static void device_run(void *self, ru_engine_task *task)
{
    process *p = self;
    world *w = p->world;
    int64_t ns = w->job->task_ns > 0 ? w->job->task_ns : 1000000;
    if (w->lost.ns > 0 && p->generation > w->lost_in) {
        int64_t idle = ru_time_since(ru_sim_now(w->sim), w->lost);
        w->out->idle_ns = idle > w->out->idle_ns ? idle : w->out->idle_ns;
        w->lost.ns = 0;
    }
    if (task->task.clock > p->world->closed && p->generation == p->world->generation) {
        p->world->closed = task->task.clock;
    }
    uint32_t units = task->cut.units > 0 ? task->cut.end - task->cut.from : 1;
    if (p->world->job->divided) {
        int64_t items = task->cut.units > 0 ? task->cut.items * units / task->cut.units
                                            : task->task.hi - task->task.lo;
        ns = (p->world->job->pattern == RU_SPEED_EVEN ? slowed(p, ns) : ns) * items /
                 RU_PARAMS_SLICED +
             1;
    }
    int64_t drawn_ns = some(p->world, ns), now_ns = ru_sim_now(p->world->sim).ns;
    ns = p->world->job->pattern == RU_SPEED_EVEN ? drawn_ns : ns;
    answer a = {.kind = RAN, .object = task->executor, .task = task, .units = units};
    a.begun_ns = now_ns;
    a.work_ns = ns;
    a.end = task->cut.end;
    later(p, a, work_ends(p, &a, units) - now_ns);
}

static answer *answer_of(const process *p, const ru_engine_task *task)
{
    answer *a = p->world->answers;
    while (a != NULL && a->task != task) {
        a = a->next;
    }
    RU_CHECK(a != NULL && a->p == p);
    return a;
}

/* The unit under way has begun. */
static void device_hold(void *self, ru_engine_task *task)
{
    process *p = self;
    const answer *a = answer_of(p, task);
    int64_t now_ns = ru_sim_now(p->world->sim).ns;
    while (now_ns > a->begun_ns && task->cut.next < task->cut.end &&
           (task->cut.next == task->cut.from ||
            work_ends(p, a, task->cut.next - task->cut.from) <= now_ns)) {
        task->cut.next++;
    }
}

static void device_release(void *self, ru_engine_task *task)
{
    process *p = self;
    answer *a = answer_of(p, task);
    int64_t now_ns = ru_sim_now(p->world->sim).ns;
    if (task->cut.end < a->end) {
        answer again = *a;
        int64_t end_ns = work_ends(p, a, task->cut.end - task->cut.from);
        a->task = NULL;
        again.end = task->cut.end;
        later(p, again, end_ns > now_ns ? end_ns - now_ns : 1);
    }
}

static void device_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes,
                         int64_t n)
{
    process *p = self;
    const record *same = saved(p->world, at, object);
    record *r = ru_arena_alloc(&p->world->arena, (int64_t)sizeof *r + n, 8);
    /* What is written once more for the same clock differs where losses were rebuilt, and in what
     * shards know of executors that a clock closed without. */
    bool alike = !p->world->job->partial && p->world->job->backup == 0;
    RU_CHECK(r != NULL && (same == NULL || !alike ||
                           (same->n == n && memcmp(same->bytes, bytes, (size_t)n) == 0)));
    *r = (record){.next = p->world->disk, .at = at, .object = object, .n = n};
    memcpy(r->bytes, bytes, (size_t)n);
    p->world->disk = r;
    later(p, (answer){.kind = WRITTEN, .at = at, .object = object}, some(p->world, 2000000));
}

static void device_read(void *self, ru_engine_ckpt at, uint32_t object, uint32_t tag)
{
    process *p = self;
    later(p, (answer){.kind = READ, .at = at, .object = object, .tag = tag},
          some(p->world, 2000000));
}

/* A process that dies before the answer may have stored the records, or not. */
static void device_log(void *self, uint32_t generation, uint32_t since, const void *bytes,
                       int64_t n)
{
    process *p = self;
    (void)since; /* earlier records stay: they must do no harm */
    record *r = ru_arena_alloc(&p->world->arena, (int64_t)sizeof *r + n, 8);
    RU_CHECK(r != NULL);
    *r = (record){.n = n};
    memcpy(r->bytes, bytes, (size_t)n);
    p->world->out->saves++;
    bool early = ru_rng_below(ru_sim_rng(p->world->sim), 2) == 0;
    if (early) {
        log_put(p->world, r);
    }
    later(p, (answer){.kind = LOGGED, .at = {.generation = generation}, .log = early ? NULL : r},
          some(p->world, p->world->job->log_ns > 0 ? p->world->job->log_ns : 1000000));
}

static void device_log_read(void *self, uint32_t generation, uint32_t since, uint32_t object)
{
    process *p = self;
    answer a = {.kind = LOG_READ, .at = {.generation = generation}, .tag = since, .object = object};
    later(p, a, some(p->world, 2000000));
}

static const ru_engine_device_ops device = {device_open, device_close,   device_run,
                                            device_hold, device_release, device_write,
                                            device_read, device_log,     device_log_read};

static void collect(process *p, ru_engine_ckpt at)
{
    world *w = p->world;
    ru_params_result *out = w->out;
    uint8_t *lost = out->lost;
    out->lost = NULL;
    ru_params_result_fini(out);
    out->lost = lost;
    ru_params_tables(&w->shape, out);
    ru_app_state s = {.exec = calloc(w->job->executors, sizeof *s.exec)};
    memcpy(s.value, out->table, sizeof out->table);
    for (uint32_t o = 0; o + 1 < ru_engine_objects(p->engine); o++) {
        const record *r = saved(w, at, o);
        RU_CHECK(r != NULL);
        RU_CHECK(ru_engine_gather(p->engine, o, r->bytes, r->n, &s) == RU_OK);
    }
    out->wrong = w->job->counted ? ru_params_count_wrong(w->job, out->table, s.exec) : 0;
    for (uint32_t e = 0; e < w->job->executors; e++) {
        ru_app_bytes_fini(&s.exec[e]);
    }
    free(s.exec);
}

/* What the engine says is lost: for rows of the counts, the clocks whose changes are missing. */
static void rebuilt(process *p, const ru_engine_news *n)
{
    world *w = p->world;
    const ru_ps_rebuilt *how = n->rebuilt;
    w->out->rebuilt++;
    w->out->cached += (uint32_t)how->cached;
    w->out->logged += (uint32_t)how->logged;
    uint32_t rows = ru_params_counted(w->job), objects = w->job->executors + w->job->shards;
    for (uint32_t r = 0; n->object >= w->job->executors && n->object < objects && r < rows; r++) {
        uint32_t end = how->closed + (ru_params_exact(w->job) ? 0 : w->job->slack + 64);
        end = end < w->job->clocks ? end : w->job->clocks;
        for (uint32_t c = how->at[r]; how->at[r] != UINT32_MAX && c < end; c++) {
            w->out->lost[(size_t)c * rows + r] = 1;
        }
    }
}

static void go(void *self, uint64_t arg)
{
    (void)arg;
    ru_sim_process_exit(self);
}

static void news(void *self, const ru_engine_news *n, ru_time now)
{
    process *p = self;
    world *w = p->world;
    if (n->kind == RU_ENGINE_CLOCKED) {
        memcpy(w->out->sums, n->sums, sizeof w->out->sums);
        int64_t gap = ru_time_since(now, w->out->done.ns > 0 ? w->out->done : now);
        w->out->gap_ns = gap > w->out->gap_ns ? gap : w->out->gap_ns;
        w->out->done = now;
        w->out->first_cpu_ns = w->meter.cpu_ns;
        w->out->first_frames = w->meter.frames;
        w->out->told_again += n->clock < w->told ? 1 : 0;
        w->told = n->clock + 1;
        if (w->job->backup > 0) {
            w->out->left_out[n->clock] = n->left_out;
        }
    } else if (n->kind == RU_ENGINE_SAVED && n->ckpt.clock == w->job->clocks) {
        collect(p, n->ckpt);
    } else if (n->kind == RU_ENGINE_MOVED) {
        w->out->moves++;
        w->out->arrived += n->object < w->job->executors ? 1 : 0;
    } else if (n->kind == RU_ENGINE_REBUILT) {
        rebuilt(p, n);
    } else if (n->kind == RU_ENGINE_RESTORED) {
        if (w->out->begun.ns == 0) {
            w->out->begun = now;
            w->meter.cpu_ns = w->meter.frames = 0;
        }
        p->generation = n->generation;
        bool fresh = n->generation > w->generation, memory = n->ckpt.generation == UINT32_MAX;
        w->out->from_copies += fresh && w->generation > 0 && memory ? 1 : 0;
        w->out->clocks_back += fresh && w->generation > 0 && memory ? w->closed - n->clock : 0;
        w->closed = fresh ? n->clock : w->closed;
        bool counted = n->ckpt.generation == RU_ENGINE_COUNTED;
        w->out->counted += fresh && counted ? 1 : 0;
        w->out->from_disk += fresh && w->generation > 0 && !memory && !counted ? 1 : 0;
        if (fresh && n->clock < 32) {
            uint32_t bit = UINT32_C(1) << n->clock;
            w->out->begun_at = (w->out->begun_at & (bit - 1)) | bit;
        }
        w->generation = fresh ? n->generation : w->generation;
        w->out->generations =
            n->generation > w->out->generations ? n->generation : w->out->generations;
    } else if (n->kind == RU_ENGINE_ENDED) {
        w->out->ends += p->over ? 1 : 0;
        p->over = true;
        ru_engine_facts f;
        ru_engine_facts_get(p->engine, &f);
        w->out->recoveries = f.recoveries > w->out->recoveries ? f.recoveries : w->out->recoveries;
        w->out->shipped += f.shipped;
        w->out->closed = f.closed > w->out->closed ? f.closed : w->out->closed;
        w->out->redone += f.redone;
        w->out->saved_bytes += f.logged_bytes;
        w->out->virtual_ns = now.ns;
        if (n->status != RU_OK && n->status != RU_E_PEER) {
            w->out->status = n->status;
            (void)snprintf(w->out->text, sizeof w->out->text, "%s", n->text);
        }
        bool works = w->job->seed % 2 == 1; /* its owner, still */
        ru_time goes = ru_time_after(now, works ? INT64_C(3000000000) : 0);
        ru_sim_process_at(&p->process, goes, go, &p->process, 0);
    }
}

static void fire(void *self, uint32_t what, ru_time now)
{
    process *p = self;
    bool metered = p == p->world->at;
    if (metered) {
        ru_params_meter_begin(&p->world->meter);
    }
    ru_node_timer(p->node, what, now);
    if (metered) {
        ru_params_meter_end(&p->world->meter);
    }
}

static void begin(void *self, uint64_t arg)
{
    (void)arg;
    process *p = self;
    p->began = true;
    ru_node_start(p->node, ru_sim_now(p->world->sim));
}

static void log_line(void *self, int level, const char *line, ru_time now)
{
    const process *p = self;
    (void)level;
    if (p->world->job->log) {
        (void)fprintf(stderr, "%9.3f %s | %s\n", (double)now.ns * 1e-6, p->address, line);
    }
}

static ru_status add(world *w, uint32_t k, ru_time at, ru_err *err)
{
    const ru_params_job *job = w->job;
    process *p = &w->at[k];
    p->world = w;
    (void)snprintf(p->address, sizeof p->address, "10.0.0.%u:7", k);
    const ru_sim_nic nic = {.bytes_per_s = 1e8, .delay_ns = job->delay_ns};
    RU_TRY(ru_sim_process_open(&p->process, w->sim, p->address, &nic, fire, p, err));
    p->self = (ru_node_id){ru_rng_u64(ru_sim_rng(w->sim)) | 1};
    ru_node_options o = {
        .chan = {.self = p->self,
                 .address = p->address,
                 .job = 1,
                 .token = (const uint8_t *)"a token of the params, 32 bytes.",
                 .token_bytes = 32,
                 .peers_max = w->peers_max,
                 .streams_max = 1024,
                 .slots_max = 1024},
        .link = p->process.link,
        .member = {.join = k == 0 ? NULL : w->at[0].address, .n_max = w->peers_max / 2},
        .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &p->process},
        .log = log_line,
        .log_self = p,
    };
    o.member.self.node = p->self;
    o.member.self.capacity = 1;
    if (job->reliable > 0 && k >= job->reliable) {
        o.member.self.tier = RU_TIER_TRANSIENT;
        o.member.self.no_vote = true;
    }
    (void)snprintf(o.member.self.address, sizeof o.member.self.address, "%s", p->address);
    RU_TRY(ru_node_open(&o, &p->process.arena, &p->node, err));
    const ru_link_user *user = ru_node_link_user(p->node);
    w->meter.timed = job->timed;
    ru_sim_process_user(&p->process, k == 0 ? ru_params_meter_link(&w->meter, user) : user);
    const ru_engine_options eo = {.ops = &w->ops,
                                  .app = &w->app,
                                  .shape = &w->shape,
                                  .part = w->part,
                                  .shards = job->shards,
                                  .clocks = job->clocks,
                                  .driver = job->driver,
                                  .slack = job->slack,
                                  .stragglers = job->stragglers,
                                  .backup = job->backup,
                                  .stages = {.method = job->stages},
                                  .save_every = job->save_every,
                                  .save_ns = job->save_ns,
                                  .partial = job->partial,
                                  .recover = job->recover,
                                  .saves = {.method = job->save_method, .clocks = job->save_clocks},
                                  .founders = job->founders,
                                  .device = &device,
                                  .device_self = p,
                                  .member = ru_node_member(p->node),
                                  .chan = ru_node_chan(p->node),
                                  .self = p->self,
                                  .peers_max = w->peers_max,
                                  .memory_bytes = 64 << 20,
                                  .news = news,
                                  .news_self = p};
    RU_TRY(ru_engine_open(&eo, &p->process.arena, &p->engine, err));
    ru_part part = ru_engine_part(p->engine);
    ru_node_part(p->node, &part);
    ru_sim_process_at(&p->process, at, begin, p, 0);
    return RU_OK;
}

static bool lives(const world *w, const process *p)
{
    return p->began && !p->over && ru_sim_alive(w->sim, p->process.node) &&
           !ru_sim_frozen(w->sim, p->process.node);
}

/* A random object to a random member, wherever the leader is. */
static void shake(void *self, uint64_t arg)
{
    world *w = self;
    ru_time now = ru_sim_now(w->sim);
    for (uint32_t k = 0; k < w->n; k++) {
        process *p = &w->at[k];
        ru_engine_facts f = {0};
        if (lives(w, p)) {
            ru_engine_facts_get(p->engine, &f);
        }
        if (f.leads) {
            ru_rng *rng = ru_sim_rng(w->sim);
            uint32_t n = ru_member_view(ru_node_member(p->node))->n;
            uint32_t o = ru_rng_below(rng, ru_engine_objects(p->engine) - 1);
            ru_effects *fx = ru_node_enter(p->node, now);
            ru_engine_move(p->engine, o, ru_rng_below(rng, n > 0 ? n : 1), now, fx);
            ru_node_leave(p->node, now);
        }
    }
    (void)ru_sim_at(w->sim, ru_time_after(now, w->job->move_every_ns), shake, w, arg);
}

/* arg 1: with the job. */
static void leave(void *self, uint64_t arg)
{
    process *p = self;
    ru_time now = ru_sim_now(p->world->sim);
    ru_effects *fx = ru_node_enter(p->node, now);
    ru_engine_stop(p->engine, arg == 1, now, fx);
    ru_node_leave(p->node, now);
}

static void trouble(void *self, uint64_t arg)
{
    const world *w = self;
    (void)arg;
    ru_sim_chaos_start(w->sim, &w->job->chaos);
}

static int64_t joins_ns(const ru_params_job *job, uint32_t k)
{
    for (uint32_t i = 0; i < job->n_events; i++) {
        const ru_params_event *x = &job->event[i];
        if (x->what == RU_PARAMS_JOIN && k >= x->first && k < x->first + x->n) {
            return x->ns;
        }
    }
    return 100000000 * (int64_t)(k - job->founders + 1);
}

static void happen(void *self, uint64_t arg)
{
    world *w = self;
    const ru_params_event *x = &w->job->event[arg];
    for (uint32_t k = x->first; k < x->first + x->n && k < w->n; k++) {
        process *p = &w->at[k];
        if (!p->began || p->over || !ru_sim_alive(w->sim, p->process.node)) {
            continue;
        }
        bool asks = x->what == RU_PARAMS_LEAVE || x->what == RU_PARAMS_STOP;
        if (!asks) {
            w->lost = ru_sim_now(w->sim);
            w->lost_in = w->generation;
        }
        if (x->what == RU_PARAMS_CRASH) {
            ru_sim_crash(w->sim, p->process.node);
        } else if (x->what == RU_PARAMS_VANISH) {
            ru_sim_vanish(w->sim, p->process.node);
        } else if (asks) {
            leave(p, x->what == RU_PARAMS_STOP);
        }
    }
}

static ru_status build(world *w, ru_err *err)
{
    const ru_params_job *job = w->job;
    w->n = job->founders + job->later;
    w->peers_max = 2 * (w->n > RU_PARAMS_PROCESSES ? w->n : RU_PARAMS_PROCESSES);
    w->at = calloc(w->n, sizeof *w->at);
    RU_CHECK(w->at != NULL);
    const ru_sim_options so = {.seed = job->seed, .nodes_max = w->peers_max / 2};
    w->app = (ru_params_app){job};
    bool sliced = job->divided;
    w->ops = sliced         ? ru_params_item_ops(job)
             : job->counted ? ru_params_count_ops(job)
                            : ru_params_ops(job);
    w->part = RU_NEW(&w->arena, int64_t, job->executors + 1);
    RU_CHECK(w->part != NULL);
    for (uint32_t k = 0; k <= job->executors; k++) {
        w->part[k] = (int64_t)k * (sliced ? RU_PARAMS_SLICED : RU_PARAMS_ITEMS);
    }
    w->out->lost = calloc((size_t)job->clocks * ru_params_counted(job), 1);
    RU_CHECK(w->out->lost != NULL);
    RU_TRY(ru_sim_open(&so, &w->sim, err));
    RU_TRY(
        ru_app_shape_get(&w->ops, &w->app, job->executors, job->seed, &w->arena, &w->shape, err));
    for (uint32_t k = 0; k < w->n; k++) {
        int64_t at = k < job->founders ? 0 : joins_ns(job, k);
        RU_TRY(add(w, k, ru_time_after(ru_sim_now(w->sim), at), err));
    }
    for (uint32_t i = 0; i < job->n_events; i++) {
        (void)ru_sim_at(w->sim, ru_time_after(ru_sim_now(w->sim), job->event[i].ns), happen, w, i);
    }
    if (job->move_every_ns > 0) {
        (void)ru_sim_at(w->sim, ru_time_after(ru_sim_now(w->sim), job->move_every_ns), shake, w, 0);
    }
    if (job->leave_ns > 0) {
        process *p = &w->at[job->leader_leaves ? 0 : w->n - 1];
        ru_sim_process_at(&p->process, ru_time_after(ru_sim_now(w->sim), job->leave_ns), leave, p,
                          0);
    }
    if (job->chaos.until.ns > 0) { /* a founder that never comes would be waited for */
        (void)ru_sim_at(w->sim, ru_time_after(ru_sim_now(w->sim), 200000000), trouble, w, 0);
    }
    return RU_OK;
}

/* Until nobody who lives works any more. */
static ru_status play(world *w, ru_err *err)
{
    int64_t limit = w->job->limit_ns > 0 ? w->job->limit_ns : INT64_C(120000000000);
    ru_time begun = ru_sim_now(w->sim);
    for (int64_t at = 100000000; at < limit; at += 100000000) {
        RU_TRY(ru_sim_run(w->sim, ru_time_after(begun, at), err));
        bool any = false;
        for (uint32_t k = 0; k < w->n; k++) {
            const process *p = &w->at[k];
            any = any || ru_sim_alive(w->sim, p->process.node);
        }
        if (!any) {
            break;
        }
    }
    for (uint32_t k = 0; k < w->n; k++) {
        const process *p = &w->at[k];
        w->out->survivors += p->over ? 1 : 0;
        ru_member_facts f = {.stuck = true}; /* without a majority nobody may go on, and says so */
        if (!p->over && p->began && ru_sim_alive(w->sim, p->process.node)) {
            ru_member_facts_get(ru_node_member(p->node), &f);
        }
        w->out->living += f.stuck ? 0 : 1;
    }
    w->out->ended = w->out->table[0] != NULL;
    w->out->hash = ru_sim_hash(w->sim);
    return RU_OK;
}

ru_status ru_params_run(const ru_params_job *job, ru_params_result *out, ru_err *err)
{
    *out = (ru_params_result){0};
    world *w = calloc(1, sizeof *w);
    RU_CHECK(w != NULL);
    w->job = job;
    w->out = out;
    ru_arena_init(&w->arena, 0);
    ru_status st = build(w, err);
    st = st == RU_OK ? play(w, err) : st;
    for (uint32_t k = 0; k < w->n; k++) {
        if (w->at[k].node != NULL) {
            ru_node_quiet(w->at[k].node);
            ru_engine_close(w->at[k].engine);
            ru_node_close(w->at[k].node);
        }
    }
    ru_sim_close(w->sim);
    for (uint32_t k = 0; k < w->n; k++) {
        ru_sim_process_fini(&w->at[k].process);
    }
    while (w->answers != NULL) { /* those of dead processes */
        answer *a = w->answers;
        w->answers = a->next;
        free(a);
    }
    ru_arena_fini(&w->arena);
    free(w->at);
    free(w);
    return st;
}
