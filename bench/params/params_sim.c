#include "bench/params/params_sim.h"

#include <stdio.h>
#include <stdlib.h>

typedef rui_params_process process;
typedef rui_params_answer answer;

/* -- the device ----------------------------------------------------------------------------------
 */

static void perform(void *self, uint64_t arg)
{
    const answer *a = self;
    (void)arg;
    ru_time now = ru_sim_now(a->p->s->sim);
    a->give(a, now, ru_node_enter(a->p->node, now));
    ru_node_leave(a->p->node, now);
}

void rui_params_later(process *p, answer a)
{
    rui_params_sim *s = p->s;
    answer *copy = malloc(sizeof *copy);
    RU_CHECK(copy != NULL);
    *copy = a;
    copy->p = p;
    copy->next = s->answers; /* freed with the run */
    s->answers = copy;
    ru_time now = ru_sim_now(s->sim);
    bool cut = a.task != NULL && a.task->cut.units > 0;
    ru_time at = cut ? (ru_time){s->ends_ns(p, a.task, a.begun_ns, a.end - a.task->cut.from)}
                     : ru_time_after(now, s->takes_ns(p, a.task));
    at.ns = at.ns > now.ns ? at.ns : now.ns + 1;
    ru_sim_process_at(&p->process, at, perform, copy, 0);
}

static void give_opened(const answer *a, ru_time now, ru_effects *fx)
{
    rui_params_sim *s = a->p->s;
    void *state = NULL;
    RU_CHECK(s->file.ops->exec_open(s->app, a->object, &s->part[a->object], &state, NULL) == RU_OK);
    ru_engine_opened(a->p->engine, a->object, a->tag, state, RU_OK, NULL, now, fx);
}

/* Pieces are computed when their time is over. */
static void give_ran(const answer *a, ru_time now, ru_effects *fx)
{
    const rui_params_sim *s = a->p->s;
    ru_engine_task *t = a->task;
    if (t == NULL) {
        return;
    }
    t->cut.next = t->cut.from;
    if (t->cut.units == 0) {
        ru_engine_compute(s->file.ops, &s->state.shape, t);
    }
    while (t->cut.units > 0 && ru_engine_piece(t, t->cut.units)) {
        ru_engine_compute(s->file.ops, &s->state.shape, t);
    }
    t->cpu_ns = s->task_ns > 0 ? s->task_ns : t->cpu_ns;
    ru_engine_ran(a->p->engine, t, now, fx);
}

static void give_written(const answer *a, ru_time now, ru_effects *fx)
{
    ru_engine_written(a->p->engine, a->at, a->object, RU_OK, NULL, now, fx);
}

void rui_params_open(void *self, uint32_t executor, uint32_t helper)
{
    rui_params_later(self, (answer){.give = give_opened, .object = executor, .tag = helper});
}

void rui_params_close(void *self, uint32_t executor, void *state)
{
    const process *p = self;
    (void)executor;
    p->s->file.ops->exec_close(state);
}

void rui_params_run(void *self, ru_engine_task *task)
{
    const process *p = self;
    rui_params_later(self, (answer){.give = give_ran,
                                    .task = task,
                                    .begun_ns = ru_sim_now(p->s->sim).ns,
                                    .end = task->cut.end});
}

static answer *answer_of(const process *p, const ru_engine_task *task)
{
    answer *a = p->s->answers;
    while (a != NULL && (a->task != task || a->give != give_ran)) {
        a = a->next;
    }
    RU_CHECK(a != NULL);
    return a;
}

void rui_params_hold(void *self, ru_engine_task *task)
{
    const process *p = self;
    const answer *a = answer_of(p, task);
    uint32_t from = task->cut.from;
    int64_t now = ru_sim_now(p->s->sim).ns;
    while (now > a->begun_ns && task->cut.next < task->cut.end &&
           (task->cut.next == from ||
            p->s->ends_ns(p, task, a->begun_ns, task->cut.next - from) <= now)) {
        task->cut.next++; /* the unit under way has begun */
    }
}

void rui_params_release(void *self, ru_engine_task *task)
{
    answer *a = answer_of(self, task);
    if (task->cut.end < a->end) {
        answer again = *a;
        a->task = NULL;
        again.end = task->cut.end;
        rui_params_later(self, again);
    }
}

void rui_params_write(void *self, ru_engine_ckpt at, uint32_t object, const void *bytes, int64_t n)
{
    (void)bytes;
    (void)n;
    rui_params_later(self, (answer){.give = give_written, .at = at, .object = object});
}

/* -- a run ---------------------------------------------------------------------------------------
 */

static void fire(void *self, uint32_t what, ru_time now)
{
    const process *p = self;
    ru_node_timer(p->node, what, now);
}

static void begin(void *self, uint64_t arg)
{
    const process *p = self;
    (void)arg;
    ru_node_start(p->node, ru_sim_now(p->s->sim));
}

static uint32_t peers_max(const rui_params_sim *s)
{
    return 2 * s->n_max;
}

static ru_status open_node(rui_params_sim *s, process *p, ru_err *err)
{
    const char *first = p == s->at ? NULL : s->at[0].address;
    ru_node_options o = {.chan = {.self = p->self,
                                  .address = p->address,
                                  .job = 1,
                                  .token = (const uint8_t *)"a token of the trials, 32 bytes..",
                                  .token_bytes = 32,
                                  .peers_max = peers_max(s),
                                  .streams_max = 1024,
                                  .slots_max = 1024},
                         .link = p->process.link,
                         .member = {.join = first, .n_max = s->n_max},
                         .timers = {ru_sim_process_timer, ru_sim_process_timer_off, &p->process}};
    o.member.self.node = p->self;
    o.member.self.capacity = 1;
    (void)snprintf(o.member.self.address, sizeof o.member.self.address, "%s", p->address);
    RU_TRY(ru_node_open(&o, &p->process.arena, &p->node, err));
    ru_sim_process_user(&p->process, ru_node_link_user(p->node));
    return RU_OK;
}

static ru_status add(rui_params_sim *s, uint32_t k, const ru_engine_options *set, ru_err *err)
{
    process *p = &s->at[k];
    *p = (process){.s = s, .self = {ru_rng_u64(&s->rng) | 1}};
    (void)snprintf(p->address, sizeof p->address, "10.0.%u.%u:7", k / 256, k % 256);
    RU_TRY(ru_sim_process_open(&p->process, s->sim, p->address, &(ru_sim_nic){.bytes_per_s = 1e8},
                               fire, p, err));
    RU_TRY(open_node(s, p, err));
    ru_engine_options o = *set;
    o.ops = s->file.ops;
    o.app = s->app;
    o.shape = &s->state.shape;
    o.part = s->first;
    o.founders = s->founders;
    o.device_self = p;
    o.member = ru_node_member(p->node);
    o.chan = ru_node_chan(p->node);
    o.self = p->self;
    o.peers_max = peers_max(s);
    o.memory_bytes = 64 << 20;
    o.news_self = p;
    RU_TRY(ru_engine_open(&o, &p->process.arena, &p->engine, err));
    ru_part part = ru_engine_part(p->engine);
    ru_node_part(p->node, &part);
    ru_sim_process_at(&p->process, ru_sim_now(s->sim), begin, p, 0);
    return RU_OK;
}

void rui_params_sim_clear(rui_params_sim *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        if (s->at[k].node != NULL) {
            ru_node_quiet(s->at[k].node);
            ru_engine_close(s->at[k].engine);
            ru_node_close(s->at[k].node);
        }
    }
    ru_sim_close(s->sim);
    for (uint32_t k = 0; k < s->n; k++) {
        ru_sim_process_fini(&s->at[k].process);
    }
    free(s->at);
    s->at = NULL;
    s->n = 0;
    while (s->answers != NULL) {
        answer *a = s->answers;
        s->answers = a->next;
        free(a);
    }
}

ru_status rui_params_sim_join(rui_params_sim *s, const ru_engine_options *set, ru_err *err)
{
    if (s->n == s->n_max) {
        return RU_FAIL(err, RU_E_LIMIT, "a run of at most %u processes", s->n_max);
    }
    return add(s, s->n++, set, err);
}

ru_status rui_params_sim_start(rui_params_sim *s, uint32_t n, uint32_t n_max, ru_rng rng,
                               uint64_t seed, const ru_engine_options *set, ru_err *err)
{
    s->founders = n;
    s->n_max = n_max;
    s->rng = rng;
    const ru_sim_options so = {.seed = seed, .nodes_max = n_max};
    RU_TRY(ru_sim_open(&so, &s->sim, err));
    s->at = calloc(n_max, sizeof *s->at);
    ru_status st =
        s->at != NULL ? RU_OK : RU_FAIL(err, RU_E_MEM, "no memory for %u processes", n_max);
    for (uint32_t k = 0; st == RU_OK && k < n; k++) {
        st = rui_params_sim_join(s, set, err);
    }
    if (st != RU_OK) {
        rui_params_sim_clear(s);
    }
    return st;
}

/* -- the app -------------------------------------------------------------------------------------
 */

ru_status rui_params_sim_init(rui_params_sim *s, const char *yaml, uint32_t executors,
                              ru_arena *arena, ru_err *err)
{
    const ru_app_job_file *file = &s->file;
    RU_TRY(ru_app_job_parse("params", yaml, arena, &s->file, err));
    RU_TRY(ru_app_job_data(file, file->job->data.train.at, 1, NULL, &s->data, err));
    const ru_app_setup setup = {.config = file->config,
                                .data = s->data,
                                .rows = ru_sparse_rows(s->data),
                                .cols = ru_sparse_cols(s->data),
                                .classes = ru_sparse_classes(s->data),
                                .executors = executors,
                                .seed = 1};
    RU_TRY(file->ops->open(&setup, &s->app, err));
    RU_TRY(ru_app_state_init(&s->state, file->ops, s->app, executors, setup.rows, 1, err));
    s->executors = executors;
    s->part = RU_NEW(arena, ru_sparse, executors);
    s->first = RU_NEW(arena, int64_t, executors + 1);
    if (s->part == NULL || s->first == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for %u executors", executors);
    }
    ru_sparse_cut(s->data, executors, s->first);
    for (uint32_t k = 0; k < executors; k++) {
        ru_sparse_part(s->data, s->first[k], s->first[k + 1] - s->first[k], &s->part[k]);
    }
    return RU_OK;
}

void rui_params_sim_fini(rui_params_sim *s)
{
    ru_app_state_fini(&s->state);
    if (s->app != NULL && s->file.ops->close != NULL) {
        s->file.ops->close(s->app);
    }
    ru_sparse_close(s->data);
}
