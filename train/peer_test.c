/* A worker for whom memory ends at any point: it opens or says so, it ends or goes on, and gives
 * all back. Several in a job: words are lost with a connection, the end is asked for, a view comes,
 * memory ends, at any moment. */
#include "train/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/pipe.h"
#include "test/test.h"

enum { TIMERS = 64, TENSORS = 2, STEPS = 3, ROUNDS = 200000, LIVES = 7, EXIT_NS = 50000000 };

typedef enum todo { NOTHING, BUILT, COMPUTED, ABORTED, UPDATED } todo;

/* One process of a job: the first founds it, others join it. */
typedef struct life {
    ru_pipe *pipe;
    uint32_t founders, streams;
    const char *host;
    int64_t steps;
    ru_node_id id;
    char address[8];
    ru_arena arena;
    ru_peer *peer;
    uint32_t node, what[TIMERS];
    ru_time at[TIMERS]; /* ns 0: off */
    todo next;
    float gradients[TENSORS][16], state[TENSORS][16];
    uint64_t layout;    /* of its gradients */
    bool plain;         /* built so last */
    const char *handle; /* of its memory; NULL: it can share none */
    ru_status maps;     /* what it says to the others' handles */
    uint32_t opens, closes, opening, n_reduced, reduced[16];
    uint32_t works;       /* members that got a share, as it was told */
    uint32_t went;        /* members that left or were lost, as it was told */
    uint32_t out;         /* pieces of state that the channel reads or writes */
    uint32_t copies_fail; /* so many of the next copies of state find no memory */
    int64_t committed;
    bool ended, over; /* over: its process is gone */
    int64_t ended_ns;
    ru_status status;
    char sentence[128];
    uint32_t cut_off; /* lines that say so */
} life;

static const int64_t tensor_bytes[TENSORS] = {64, 64};

static void timer_set(void *self, uint32_t what, ru_time at)
{
    life *l = self;
    uint32_t k = 0;
    while (k < TIMERS && l->what[k] != what && l->at[k].ns != 0) {
        k++;
    }
    RU_CHECK(k < TIMERS);
    l->what[k] = what;
    l->at[k] = at;
}

static void timer_off(void *self, uint32_t what)
{
    life *l = self;
    for (uint32_t k = 0; k < TIMERS; k++) {
        l->at[k].ns = l->what[k] == what ? 0 : l->at[k].ns;
    }
}

static void dev_build(void *self, const ru_share *share, bool plain)
{
    (void)share;
    life *l = self;
    l->next = BUILT;
    l->plain = plain;
}

static void dev_step(void *self, int64_t step, const ru_share *share)
{
    (void)step, (void)share;
    ((life *)self)->next = COMPUTED;
}

static void dev_abort(void *self)
{
    ((life *)self)->next = ABORTED;
}

static void dev_update(void *self, int64_t step)
{
    (void)step;
    ((life *)self)->next = UPDATED;
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
    if (news->what == RU_ELASTIC_ENDED) {
        l->ended = true;
        l->status = news->status;
        snprintf(l->sentence, sizeof l->sentence, "%s", news->sentence);
    }
}

static void on_log(void *self, int level, const char *line, ru_time now)
{
    (void)level, (void)now;
    ((life *)self)->cut_off += strstr(line, "is cut off: it takes no control messages") != NULL;
}

static ru_status open_peer(life *l, ru_err *err)
{
    static const uint8_t token[32] = "a token of this test, 32 bytes.";
    ru_peer_options o = {
        .chan = {.self = l->id,
                 .address = l->address,
                 .job = 1,
                 .token = token,
                 .token_bytes = sizeof token,
                 .peers_max = 8,
                 .streams_max = l->streams,
                 .slots_max = l->streams},
        .link = ru_pipe_link(l->pipe, l->node),
        .member = {.self = {.node = l->id, .capacity = 1},
                   .join = l->id.v > 1 ? "p1:1" : NULL,
                   .n_max = 8},
        .elastic = {.device = {&device, l},
                    .news = on_news,
                    .news_self = l,
                    .batch = 8,
                    .founders = l->founders,
                    .steps_end = l->steps,
                    .tensor_bytes = tensor_bytes,
                    .n_tensors = TENSORS,
                    .state_bytes = tensor_bytes,
                    .n_state = TENSORS,
                    .probe_bytes = 1024},
        .timers = {.set = timer_set, .off = timer_off, .self = l},
        .log = on_log,
        .log_self = l,
    };
    memcpy(o.member.self.address, l->address, sizeof l->address);
    snprintf(o.member.self.host, sizeof o.member.self.host, "%s", l->host);
    return ru_peer_open(&o, &l->arena, &l->peer, err);
}

static void answer(life *l, ru_time now)
{
    todo what = l->next;
    l->next = NOTHING;
    if (l->opening > 0) {
        l->opening = 0;
        ru_peer_local_opened(l->peer, l->maps, now);
    }
    while (l->n_reduced > 0) {
        ru_peer_reduced(l->peer, l->reduced[--l->n_reduced], now);
    }
    switch (what) {
    case NOTHING:
        break;
    case BUILT:
        ru_peer_built(l->peer, RU_OK, l->layout, now);
        break;
    case COMPUTED:
        for (uint32_t k = 0; k < TENSORS; k++) {
            ru_peer_ready(l->peer, k, &(ru_span){l->gradients[k], tensor_bytes[k]}, now);
        }
        ru_peer_computed(l->peer, RU_OK, 1000000, now);
        break;
    case ABORTED:
        ru_peer_aborted(l->peer, now);
        break;
    case UPDATED:
        ru_peer_updated(l->peer, RU_OK, now);
        break;
    }
}

static void be_on_time(life *l)
{
    ru_time now = ru_pipe_now(l->pipe);
    for (uint32_t k = 0; k < TIMERS; k++) {
        if (l->at[k].ns != 0 && l->at[k].ns <= now.ns) {
            l->at[k].ns = 0;
            ru_peer_timer(l->peer, l->what[k], now);
        }
    }
    answer(l, now);
}

static void move(ru_pipe *pipe)
{
    if (!ru_pipe_step(pipe)) {
        ru_pipe_wait(pipe, 1000000);
    }
}

static void live(life *l)
{
    ru_peer_start(l->peer, ru_pipe_now(l->pipe));
    for (uint32_t round = 0; round < ROUNDS && !l->ended; round++) {
        move(l->pipe);
        be_on_time(l);
    }
}

static life *life_new(ru_pipe *pipe, uint64_t id, uint32_t founders)
{
    life *l = calloc(1, sizeof *l);
    RU_CHECK(l != NULL);
    l->pipe = pipe;
    l->founders = founders;
    l->steps = STEPS;
    l->streams = 2048;
    l->layout = 1;
    l->host = "";
    l->id.v = id;
    snprintf(l->address, sizeof l->address, "p%u:1", (uint32_t)id);
    l->node = ru_pipe_node(l->pipe, l->address);
    ru_arena_init(&l->arena, 0);
    return l;
}

static ru_pipe *pipe_new(void)
{
    return ru_pipe_new(&(ru_pipe_options){.seed = 1});
}

static void life_free(life *l)
{
    ru_peer_close(l->peer);
    ru_arena_fini(&l->arena);
    free(l);
}

static void test_opening(void **state)
{
    (void)state;
    bool opened = false;
    for (int64_t k = 0; !opened; k++) {
        assert_true(k < 1000);
        ru_pipe *pipe = pipe_new();
        life *l = life_new(pipe, 1, 1);
        ru_err err = {0};
        ru_test_alloc_fail(k);
        ru_status st = open_peer(l, &err);
        opened = ru_test_alloc_count() <= k;
        ru_test_alloc_fail(-1);
        if (opened) {
            assert_ok(st, err);
        } else {
            assert_int_equal(st, RU_E_MEM);
            assert_true(err.text[0] != '\0');
        }
        life_free(l);
        ru_pipe_free(pipe);
    }
}

/* The same process with all memory there: trains alone to the end. */
static void test_alone(void **state)
{
    (void)state;
    ru_pipe *pipe = pipe_new();
    life *l = life_new(pipe, 1, 1);
    ru_err err = {0};
    assert_ok(open_peer(l, &err), err);
    ru_pipe_user(l->pipe, l->node, ru_peer_link_user(l->peer));
    live(l);
    assert_true(l->ended);
    assert_int_equal(l->status, RU_OK);
    assert_int_equal(l->committed, STEPS);
    life_free(l);
    ru_pipe_free(pipe);
}

/* Two found a job; then one acknowledges nothing any more, and so much waits for it that no control
 * message fits: it is cut off at once, and the other goes on without it. */
static void test_a_peer_that_takes_no_words(void **state)
{
    (void)state;
    ru_pipe *pipe = pipe_new();
    life *l[2] = {life_new(pipe, 1, 2), life_new(pipe, 2, 2)};
    ru_err err = {0};
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(open_peer(l[i], &err), err);
        ru_pipe_user(pipe, l[i]->node, ru_peer_link_user(l[i]->peer));
        ru_peer_start(l[i]->peer, ru_pipe_now(pipe));
    }
    for (uint32_t round = 0; ru_member_view(ru_peer_member(l[0]->peer))->n < 2; round++) {
        assert_true(round < ROUNDS);
        move(pipe);
        be_on_time(l[0]);
        be_on_time(l[1]);
    }
    ru_chan *ch = ru_peer_chan(l[0]->peer);
    uint32_t sent = 0;
    while (ru_chan_message(ch, l[1]->id, RU_PEER_WHAT_OWNER, "x", 1, ru_pipe_now(pipe)) == RU_OK) {
        sent++;
    }
    assert_true(sent > 100);
    assert_int_equal(l[0]->cut_off, 0);
    for (uint32_t k = 0; k < 300 && l[0]->cut_off == 0; k++) { /* nothing moves; a beat is due */
        assert_true(ru_chan_is_up(ch, l[1]->id));
        ru_pipe_wait(pipe, 1000000);
        be_on_time(l[0]);
    }
    assert_int_equal(l[0]->cut_off, 1);
    assert_false(ru_chan_is_up(ch, l[1]->id));
    ru_pipe_kill(pipe, l[1]->node);
    for (uint32_t round = 0; round < ROUNDS && !l[0]->ended; round++) {
        move(pipe);
        be_on_time(l[0]);
    }
    assert_true(l[0]->ended);
    assert_int_equal(l[0]->status, RU_OK);
    assert_int_equal(l[0]->committed, STEPS);
    assert_int_equal(l[0]->cut_off, 1);
    life_free(l[0]);
    life_free(l[1]);
    ru_pipe_free(pipe);
}

/* -- several in a job ----------------------------------------------------------------------------
 */

/* Some founders; one more comes after `joins` rounds, 0: none. */
typedef struct job {
    ru_pipe *pipe;
    life *l[LIVES];
    uint32_t n, founders, joins, round;
    uint32_t first_streams; /* that the first may have; 0: enough */
    bool one_host;
} job;

static void job_add(job *j, int64_t steps)
{
    life *l = life_new(j->pipe, j->n + 1, j->founders);
    ru_err err = {0};
    l->steps = steps;
    l->host = j->one_host ? "host" : "";
    l->streams = j->n == 0 && j->first_streams > 0 ? j->first_streams : l->streams;
    j->l[j->n++] = l;
    assert_ok(open_peer(l, &err), err);
    ru_pipe_user(j->pipe, l->node, ru_peer_link_user(l->peer));
    ru_peer_start(l->peer, ru_pipe_now(j->pipe));
}

static void job_open(job *j, uint32_t founders, int64_t steps, uint32_t joins)
{
    j->pipe = pipe_new();
    j->founders = founders;
    j->joins = joins;
    while (j->n < founders) {
        job_add(j, steps);
    }
}

static void life_over(life *l)
{
    l->over = true;
    ru_pipe_kill(l->pipe, l->node);
}

static void job_round(job *j)
{
    if (++j->round == j->joins) {
        job_add(j, j->l[0]->steps);
    }
    move(j->pipe);
    for (uint32_t i = 0; i < j->n; i++) {
        life *l = j->l[i];
        if (l->over) {
            continue;
        }
        be_on_time(l);
        l->ended_ns = l->ended && l->ended_ns == 0 ? ru_pipe_now(j->pipe).ns : l->ended_ns;
        if (l->ended && ru_pipe_now(j->pipe).ns - l->ended_ns > EXIT_NS) {
            life_over(l);
        }
    }
}

static bool job_over(const job *j)
{
    bool over = j->n > j->founders || j->joins == 0;
    for (uint32_t i = 0; i < j->n; i++) {
        over = over && j->l[i]->ended;
    }
    return over;
}

static void job_rounds(job *j, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        job_round(j);
    }
}

/* Until all have ended; false: they hang. */
static bool job_run(job *j)
{
    for (uint32_t k = 0; k < ROUNDS && !job_over(j); k++) {
        job_round(j);
    }
    return job_over(j);
}

static void job_close(job *j)
{
    for (uint32_t i = 0; i < j->n; i++) {
        uint32_t left = j->l[i]->out;
        ru_peer_close(j->l[i]->peer);
        assert_true(left == 0 || j->l[i]->out == 0); /* what it held was given back */
        j->l[i]->peer = NULL;
        life_free(j->l[i]);
    }
    ru_pipe_free(j->pipe);
}

/* The first has no room for control messages to another: their connection is cut and made again,
 * and what was on its way is lost. Whatever word that was, the job does not wait for it for ever,
 * also where the two exchange no gradients. */
static void test_words_lost_with_a_connection(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 240; r += 12) {
        job j = {0};
        job_open(&j, LIVES, 6, 0);
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        job_rounds(&j, r);
        life *to = j.l[1 + r / 12 % (LIVES - 1)];
        ru_chan *ch = ru_peer_chan(j.l[0]->peer);
        while (ru_chan_message(ch, to->id, RU_PEER_WHAT_OWNER, "x", 1, ru_pipe_now(j.pipe)) ==
               RU_OK) {
        }
        while (j.l[0]->cut_off == 0) { /* nothing moves; a beat is due */
            ru_pipe_wait(j.pipe, 1000000);
            be_on_time(j.l[0]);
        }
        if (!job_run(&j)) {
            fail_msg("cut off %u rounds after a commit: they hang after step %lld", r,
                     (long long)j.l[0]->committed);
        }
        for (uint32_t i = 0; i < LIVES; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 6);
        }
        job_close(&j);
    }
}

/* Somebody is asked to end the job, whoever leads, while they measure, train, or a third comes in:
 * all end at the same step, soon. */
static void test_the_end_is_asked_for(void **state)
{
    (void)state;
    uint32_t with_third = 0;
    for (uint32_t r = 70; r < 9000; r += 53) {
        job j = {0};
        job_open(&j, 2, 1000000, 300);
        job_rounds(&j, r);
        bool third = j.n == 3 && ru_member_view(ru_peer_member(j.l[2]->peer))->n == 3;
        uint32_t who = r / 53 % (third ? 3 : 2);
        ru_peer_stop(j.l[who]->peer, true, ru_pipe_now(j.pipe));
        for (uint32_t k = 0; k < ROUNDS && !(j.l[0]->ended && j.l[1]->ended); k++) {
            job_round(&j);
        }
        for (uint32_t i = 0; i < (third ? 3 : 2); i++) {
            if (!j.l[i]->ended || j.l[i]->status != RU_OK || j.l[i]->committed > r) {
                fail_msg("worker %u was asked in round %u: %u ended %d (%s, %s) after step %lld",
                         who + 1, r, i + 1, j.l[i]->ended, ru_status_name(j.l[i]->status),
                         j.l[i]->sentence, (long long)j.l[i]->committed);
            }
        }
        assert_int_equal(j.l[0]->committed, j.l[1]->committed);
        with_third += third ? 1 : 0;
        job_close(&j);
    }
    assert_true(with_third > 10);
}

/* The one who was asked tells its leader, which dies: whoever leads then ends the job. */
static void test_the_end_is_not_forgotten(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 60; r += 4) {
        job j = {0};
        job_open(&j, 3, 1000000, 0);
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        ru_peer_stop(j.l[2]->peer, true, ru_pipe_now(j.pipe));
        for (uint32_t k = 0; k < r && !j.l[0]->ended; k++) {
            job_round(&j);
        }
        life_over(j.l[0]);
        j.l[0]->ended = true;
        assert_true(job_run(&j));
        assert_int_equal(j.l[1]->committed, j.l[2]->committed);
        assert_true(j.l[1]->committed < 20);
        assert_true(j.l[1]->status == RU_OK && j.l[2]->status == RU_OK);
        job_close(&j);
    }
}

/* Who sends state to a newcomer has no memory for a copy, once or twice: the step is done again,
 * and the newcomer gets everything in the end. */
static void test_no_memory_for_state(void **state)
{
    (void)state;
    for (uint32_t k = 1; k <= 4; k++) {
        job j = {0};
        job_open(&j, 2, 400, 300);
        j.l[k % 2]->copies_fail = 1 + k / 3;
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 400);
        }
        ru_elastic_facts f;
        ru_elastic_facts_get(ru_peer_elastic(j.l[2]->peer), &f);
        assert_false(f.moves);
        assert_int_equal(j.l[0]->went, 0); /* one came and works, nobody went */
        assert_int_equal(j.l[0]->works, 1);
        assert_int_equal(j.l[k % 2]->copies_fail, 0);
        job_close(&j);
    }
}

/* The leader has no room to measure the collectives: it says so and goes, the others go on. */
static void test_no_room_to_measure(void **state)
{
    (void)state;
    job j = {.first_streams = 24};
    job_open(&j, 3, 5, 0);
    assert_true(job_run(&j));
    assert_int_equal(j.l[0]->status, RU_E_LIMIT);
    assert_non_null(strstr(j.l[0]->sentence, "measuring the network"));
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(j.l[i]->status, RU_OK);
        assert_int_equal(j.l[i]->committed, 5);
    }
    job_close(&j);
}

/* Kernels that order gradients differently sum them in plain order, all of them; those that do not,
 * never. */
static void test_orders_of_gradients(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) { /* k 0: all alike; else another one differs */
        job j = {0};
        job_open(&j, 3, 4, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->layout = k == i + 1 ? 7 : 1;
        }
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 4);
            assert_true(j.l[i]->plain == (k > 0));
        }
        job_close(&j);
    }
}

/* Members of one host sum in memory that they share; when one has none to share, or cannot map the
 * others', all sum over the network, and nobody tries again. */
static void test_shared_memory(void **state)
{
    (void)state;
    static const char *const handles[] = {"memory 1", "memory 2", "memory 3"};
    for (uint32_t k = 0; k < 7; k++) { /* 1 to 3: has none; 4 to 6: cannot map */
        job j = {.one_host = true};
        job_open(&j, 3, 20, 0);
        for (uint32_t i = 0; i < 3; i++) {
            j.l[i]->handle = k == i + 1 ? "" : handles[i];
            j.l[i]->maps = k == i + 4 ? RU_E_PERM : RU_OK;
        }
        ru_elastic_sums sums;
        ru_err err;
        while (j.l[0]->committed < 1) {
            job_round(&j);
        }
        assert_ok(ru_elastic_sums_get(ru_peer_elastic(j.l[0]->peer), &j.l[0]->arena, &sums, &err),
                  err);
        assert_true(sums.local == (k == 0));
        assert_true(job_run(&j));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(j.l[i]->status, RU_OK);
            assert_int_equal(j.l[i]->committed, 20);
            assert_int_equal(j.l[i]->opens, k == 0 || k > 3 ? 1 : 0);
            assert_int_equal(j.l[i]->closes, j.l[i]->opens);
        }
        job_close(&j);
    }
}

RU_TESTS(train_peer, cmocka_unit_test(test_orders_of_gradients),
         cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_words_lost_with_a_connection),
         cmocka_unit_test(test_the_end_is_asked_for),
         cmocka_unit_test(test_the_end_is_not_forgotten),
         cmocka_unit_test(test_no_memory_for_state), cmocka_unit_test(test_no_room_to_measure),
         cmocka_unit_test(test_opening), cmocka_unit_test(test_alone),
         cmocka_unit_test(test_a_peer_that_takes_no_words))
