#include "test/job/lives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/member/member_impl.h"
#include "test/test.h"

enum { EXIT_NS = 50000000 };

static const int64_t tensor_bytes[LIFE_TENSORS] = {64, 64};

static void timer_set(void *self, uint32_t what, ru_time at)
{
    life *l = self;
    uint32_t k = 0;
    while (k < LIFE_TIMERS && l->what[k] != what && l->at[k].ns != 0) {
        k++;
    }
    RU_CHECK(k < LIFE_TIMERS);
    l->what[k] = what;
    l->at[k] = at;
}

static void timer_off(void *self, uint32_t what)
{
    life *l = self;
    for (uint32_t k = 0; k < LIFE_TIMERS; k++) {
        l->at[k].ns = l->what[k] == what ? 0 : l->at[k].ns;
    }
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    life *l = self;
    l->next = LIFE_BUILT;
    l->share = *share;
    l->plain = plain;
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    (void)share;
    life *l = self;
    assert_true(l->open == 0 || (l->depth > 1 && l->open == 1 && l->kept == 0));
    l->summed_bytes = l->open == 0 ? 0 : l->summed_bytes;
    l->open++;
    l->step = step;
    l->next = LIFE_COMPUTED;
}

static uint32_t dev_depth(void *self, const char **why)
{
    *why = "it is a test";
    return ((life *)self)->depth > 1 ? 2 : 1;
}

/* Of the older step, whose update is the only one that is open. */
static void dev_summed(void *self, int64_t step, uint32_t k, int64_t offset, int64_t size)
{
    (void)k, (void)offset;
    life *l = self;
    assert_true(step == l->step - (l->open - 1) && l->kept == 0);
    l->summed_bytes += size;
}

static void dev_abort(void *self)
{
    life *l = self;
    assert_int_equal(l->kept, 0);
    l->open = 0;
    l->next = LIFE_ABORTED;
}

static void dev_update(void *self, int64_t step)
{
    life *l = self;
    assert_true(step == l->step - (l->open - 1) && l->kept == 0);
    if (l->open == 2) {
        l->kept = step + 1;
    } else {
        l->next = LIFE_UPDATED;
    }
}

static ru_status dev_copy(void *self, uint32_t k, int64_t offset, int64_t size, ru_span *span,
                          uint64_t *cookie)
{
    life *l = self;
    if (l->copies_fail > 0) {
        l->copies_fail--;
        return RU_E_MEM;
    }
    l->out++;
    *cookie = k;
    *span = (ru_span){(uint8_t *)l->state[k] + offset, size};
    return RU_OK;
}

static void dev_release(void *self, uint64_t cookie)
{
    (void)cookie;
    ((life *)self)->out--;
}

static void dev_placed(void *self, uint64_t cookie, bool arrived)
{
    (void)arrived;
    dev_release(self, cookie);
}

static const char *dev_handle(void *self)
{
    return ((life *)self)->handle;
}

static void dev_open(void *self, const char *const *handles, uint32_t n, uint32_t rank,
                     uint32_t epoch)
{
    (void)epoch;
    life *l = self;
    assert_true(rank < n && strcmp(handles[rank], l->handle) == 0);
    l->opens++;
    l->opening = 1;
}

static void dev_reduce(void *self, uint32_t batch, const ru_elastic_part *part, uint32_t iter)
{
    (void)part, (void)iter;
    life *l = self;
    l->reduced[l->n_reduced++] = batch;
}

static void dev_close(void *self)
{
    life *l = self;
    l->closes++;
    l->opening = l->n_reduced = 0;
}

static const ru_elastic_device_ops device = {.name = "test",
                                             .local_handle = dev_handle,
                                             .local_open = dev_open,
                                             .local_reduce = dev_reduce,
                                             .local_close = dev_close,
                                             .build = dev_build,
                                             .step = dev_step,
                                             .depth = dev_depth,
                                             .summed = dev_summed,
                                             .abort = dev_abort,
                                             .update = dev_update,
                                             .state_copy = dev_copy,
                                             .state_release = dev_release,
                                             .state_place = dev_copy,
                                             .state_placed = dev_placed};

static void on_news(void *self, const ru_elastic_news *news, ru_time now)
{
    (void)now;
    life *l = self;
    l->committed = news->what == RU_ELASTIC_COMMITTED ? news->step : l->committed;
    l->went += news->what == RU_ELASTIC_LEFT || news->what == RU_ELASTIC_LOST ? 1 : 0;
    l->works += news->what == RU_ELASTIC_WORKS ? 1 : 0;
    l->is_in += news->what == RU_ELASTIC_MEMBER ? 1 : 0;
    l->holds += news->what == RU_ELASTIC_MEMBER && news->b == 1 ? 1 : 0;
    if (news->what == RU_ELASTIC_SHARES) {
        snprintf(l->shares, sizeof l->shares, "%s", news->sentence);
    }
    if (news->what == RU_ELASTIC_ENDED) {
        l->ended = true;
        l->status = news->status;
        snprintf(l->sentence, sizeof l->sentence, "%s", news->sentence);
    }
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)level, (void)now;
    life *l = self;
    l->cut_off += strstr(line, "is disconnected, because it accepts no control messages") != NULL;
    l->redoing += strstr(line, "the step is repeated") != NULL;
    l->failing += strstr(line, "the others continue") != NULL;
}

ru_status life_open(life *l, ru_err *err)
{
    static const uint8_t token[32] = "a token of this test, 32 bytes.";
    ru_node_options o = {
        .chan = {.self = l->id,
                 .address = l->address,
                 .job = 1,
                 .token = token,
                 .token_bytes = sizeof token,
                 .peers_max = l->peers,
                 .streams_max = l->streams,
                 .slots_max = l->streams},
        .link = ru_pipe_link(l->pipe, l->at_pipe),
        .member = {.self = {.node = l->id, .number = l->number, .capacity = 1},
                   .join = l->id.v > 1 ? "p1:1" : NULL,
                   .n_max = l->members},
        .timers = {.set = timer_set, .off = timer_off, .self = l},
        .log = on_log,
        .log_self = l,
    };
    memcpy(o.member.self.address, l->address, sizeof l->address);
    snprintf(o.member.self.host, sizeof o.member.self.host, "%s", l->host);
    RU_TRY(ru_node_open(&o, &l->arena, &l->node, err));
    const ru_elastic_options eo = {.node = l->node,
                                   .device = {&device, l},
                                   .news = on_news,
                                   .news_self = l,
                                   .batch = l->batch,
                                   .first_step = l->first_step,
                                   .founders = l->founders,
                                   .n_min = l->least,
                                   .n_begin = l->begin,
                                   .servers = l->servers,
                                   .steps_end = l->steps,
                                   .tensor_bytes = tensor_bytes,
                                   .n_tensors = LIFE_TENSORS,
                                   .state_bytes = tensor_bytes,
                                   .n_state = LIFE_TENSORS,
                                   .probe_bytes = 1024};
    return ru_elastic_open(&eo, &l->arena, &l->elastic, err);
}

/* false: others follow. */
static bool gives(life *l, ru_time now)
{
    bool first = l->paused == 0;
    uint32_t from = first ? 0 : 1, to = first && l->pauses > 0 ? 1 : LIFE_TENSORS;
    if (l->pauses > 0 && l->paused++ > 0 && l->paused <= l->pauses) {
        return false;
    }
    l->summed_bytes = first ? 0 : l->summed_bytes;
    for (uint32_t k = from; k < to; k++) {
        uint32_t at = l->backward ? LIFE_TENSORS - 1 - k : k;
        ru_elastic_ready(l->elastic, l->step, at, &(ru_span){l->gradients[at], tensor_bytes[at]},
                         now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
    }
    l->paused = to == LIFE_TENSORS ? 0 : l->paused;
    return to == LIFE_TENSORS;
}

static void answer(life *l, ru_time now)
{
    int64_t ns = l->sample_ns > 0 ? l->share.n * l->sample_ns : 1000000;
    bool waits = l->next == LIFE_COMPUTED && l->open == 2 &&
                 l->summed_bytes < tensor_bytes[0] + tensor_bytes[1];
    life_todo what = waits || l->stalls == l->next ? LIFE_NOTHING : l->next;
    l->next = what == LIFE_NOTHING ? l->next : LIFE_NOTHING;
    if (l->opening > 0) {
        l->opening = 0;
        ru_elastic_local_opened(l->elastic, l->maps, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
    }
    while (l->n_reduced > 0) {
        ru_elastic_reduced(l->elastic, l->step, l->reduced[--l->n_reduced], now,
                           ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
    }
    if (l->kept > 0 && l->stalls != LIFE_UPDATED) {
        int64_t step = l->kept - 1;
        l->kept = 0;
        l->open = 1;
        ru_elastic_updated(l->elastic, step, RU_OK, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
    }
    switch (what) {
    case LIFE_NOTHING:
        break;
    case LIFE_BUILT:
        ru_elastic_built(l->elastic, RU_OK, l->layout, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
        break;
    case LIFE_COMPUTED:
        if (!gives(l, now)) {
            l->next = LIFE_COMPUTED;
            break;
        }
        ru_elastic_computed(l->elastic, l->step, RU_OK, ns, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
        break;
    case LIFE_ABORTED:
        ru_elastic_aborted(l->elastic, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
        break;
    case LIFE_UPDATED:
        l->open = 0;
        ru_elastic_updated(l->elastic, l->step, RU_OK, now, ru_node_enter(l->node, now));
        ru_node_leave(l->node, now);
        break;
    }
}

void life_turn(life *l)
{
    ru_time now = ru_pipe_now(l->pipe);
    for (uint32_t k = 0; k < LIFE_TIMERS; k++) {
        if (l->at[k].ns != 0 && l->at[k].ns <= now.ns) {
            l->at[k].ns = 0;
            ru_node_timer(l->node, l->what[k], now);
        }
    }
    answer(l, now);
}

void lives_move(ru_pipe *pipe)
{
    if (!ru_pipe_step(pipe)) {
        ru_pipe_wait(pipe, 1000000);
    }
}

void life_run(life *l)
{
    ru_node_start(l->node, ru_pipe_now(l->pipe));
    for (uint32_t round = 0; round < LIFE_ROUNDS && !l->ended; round++) {
        lives_move(l->pipe);
        life_turn(l);
    }
}

life *life_new(ru_pipe *pipe, uint64_t id, uint32_t founders)
{
    life *l = calloc(1, sizeof *l);
    RU_CHECK(l != NULL);
    l->pipe = pipe;
    l->founders = founders;
    l->steps = LIFE_STEPS;
    l->batch = 8;
    l->streams = 2048;
    l->peers = l->members = 8;
    l->layout = 1;
    l->host = "";
    l->id.v = id;
    snprintf(l->address, sizeof l->address, "p%u:1", (uint32_t)id);
    l->at_pipe = ru_pipe_node(l->pipe, l->address);
    ru_arena_init(&l->arena, 0);
    return l;
}

ru_pipe *lives_pipe(void)
{
    return ru_pipe_new(&(ru_pipe_options){.seed = 1});
}

void life_misses_leader(life *l, ru_node_id to)
{
    ru_member *m = ru_node_member(l->node);
    m->phase = RUI_SEEKS;
    m->lead.v = 0;
    m->promised = to.v != 0 ? m->view.epoch + 2 : m->promised;
    m->promised_to = to.v != 0 ? to : m->promised_to;
}

static void life_close(life *l)
{
    ru_node_quiet(l->node);
    ru_elastic_close(l->elastic);
    ru_node_close(l->node);
    l->elastic = NULL;
    l->node = NULL;
}

void life_stop(life *l, bool all)
{
    ru_time now = ru_pipe_now(l->pipe);
    ru_elastic_stop(l->elastic, all, now, ru_node_enter(l->node, now));
    ru_node_leave(l->node, now);
}

void life_free(life *l)
{
    life_close(l);
    ru_arena_fini(&l->arena);
    free(l);
}

/* -- several in a job ----------------------------------------------------------------------------
 */

static void job_add(job *j, int64_t steps)
{
    life *l = life_new(j->pipe, j->n + 1, j->begin > 0 ? 1 : j->founders);
    l->begin = j->begin;
    l->least = j->least;
    l->servers = j->servers;
    l->number = j->numbers[j->n] | (j->begin > 0 && j->n > 0 ? RU_MEMBER_LATER : 0);
    ru_err err = {0};
    l->steps = steps;
    l->batch = j->batch > 0 ? j->batch : l->batch;
    l->host = j->one_host ? "host" : "";
    l->streams = j->n == 0 && j->first_streams > 0 ? j->first_streams : l->streams;
    j->l[j->n++] = l;
    assert_ok(life_open(l, &err), err);
    ru_pipe_user(j->pipe, l->at_pipe, ru_node_link_user(l->node));
    ru_node_start(l->node, ru_pipe_now(j->pipe));
}

void job_open(job *j, uint32_t founders, int64_t steps, uint32_t joins)
{
    j->pipe = lives_pipe();
    j->founders = founders;
    j->joins = joins;
    while (j->n < founders) {
        job_add(j, steps);
    }
}

void life_over(life *l)
{
    l->over = true;
    ru_pipe_kill(l->pipe, l->at_pipe);
}

void job_round(job *j)
{
    if (++j->round == j->joins) {
        job_add(j, j->l[0]->steps);
    }
    lives_move(j->pipe);
    for (uint32_t i = 0; i < j->n; i++) {
        life *l = j->l[i];
        if (l->over) {
            continue;
        }
        life_turn(l);
        l->ended_ns = l->ended && l->ended_ns == 0 ? ru_pipe_now(j->pipe).ns : l->ended_ns;
        if (l->ended && ru_pipe_now(j->pipe).ns - l->ended_ns > EXIT_NS) {
            life_over(l);
        }
    }
}

bool job_over(const job *j)
{
    bool over = j->n > j->founders || j->joins == 0;
    for (uint32_t i = 0; i < j->n; i++) {
        over = over && j->l[i]->ended;
    }
    return over;
}

void job_rounds(job *j, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        job_round(j);
    }
}

/* Until all have ended; false: they hang. */
bool job_run(job *j)
{
    for (uint32_t k = 0; k < LIFE_ROUNDS && !job_over(j); k++) {
        job_round(j);
    }
    return job_over(j);
}

void job_close(job *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        uint32_t left = j->l[i]->out;
        life_close(j->l[i]);
        assert_true(left == 0 || j->l[i]->out == 0); /* what it held was given back */
        life_free(j->l[i]);
    }
    ru_pipe_free(j->pipe);
}
