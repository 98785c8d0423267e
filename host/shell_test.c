/* What threads say comes in order, and none is lost; what other processes ask is answered. */
#include <string.h>

#include "base/str.h"
#include "base/wire.h"
#include "env/thread.h"
#include "host/shell_impl.h"
#include "test/job/lives.h"
#include "test/test.h"

enum { SAID = 20000, RING = 1 << 15, TEXT = 100000 };

typedef struct word {
    uint32_t line, k;
} word;

typedef struct rig {
    ru_arena arena;
    ru_shell_options opt;
    ru_shell h;
    job j;
    ru_spsc line[2];
    ru_thread thread[2];
    uint32_t next[2], asked;
    /* what the other process hears */
    uint32_t told[16];
    char text[TEXT];
    uint32_t text_n;
} rig;

static void on_said(void *self, const void *element, ru_time now, ru_effects *fx)
{
    (void)now, (void)fx;
    rig *r = self;
    const word *w = element;
    assert_true(w->line < 2);
    assert_int_equal(w->k, r->next[w->line]);
    r->next[w->line]++;
}

static void on_world(void *self, ru_time now)
{
    (void)now;
    ((rig *)self)->asked++;
}

static const ru_shell_ops ops = {.said = on_said, .world = on_world};

/* The other process takes what it is told. */
static void hear(void *self, const ru_event *ev, ru_effects *fx)
{
    (void)fx;
    rig *r = self;
    if (ev->kind != RU_EV_MESSAGE) {
        return;
    }
    r->told[ev->what - RU_NODE_WHAT_OWNER]++;
    if (ev->what == RUI_MSG_WORLD || ev->what == RUI_MSG_JOB_PART) {
        ru_wire_in in = ru_wire_in_from(ev->data, ev->size_bytes);
        uint32_t total = ru_wire_u32(&in), at = ru_wire_u32(&in);
        int64_t n = ru_wire_left(&in);
        assert_true(total <= TEXT && at + n <= total);
        memcpy(r->text + at, ru_wire_bytes(&in, n), (size_t)n);
        r->text_n = total;
    } else {
        r->text_n = (uint32_t)ev->size_bytes;
        memcpy(r->text, ev->data, (size_t)ev->size_bytes);
    }
}

static const ru_part_ops hears = {.name = "hears", .step = hear};

/* A job of two; `who` of them has the shell, the other one asks. */
static rig *rig_open(uint32_t who)
{
    static rig one;
    rig *r = &one;
    ru_err err = {0};
    memset(r, 0, sizeof *r);
    ru_arena_init(&r->arena, 0);
    assert_ok(ru_shell_open(&r->h, &r->opt, &ops, r, &r->arena, &err), err);
    job_open(&r->j, 2, 1000000, 0);
    while (r->j.l[0]->committed < 1) {
        job_round(&r->j);
    }
    r->h.timers.node = r->j.l[who]->node;
    r->h.id = r->j.l[who]->id;
    r->h.out = "/run";
    r->h.yaml = "name: t\n";
    const ru_part part = rui_shell_part(&r->h);
    ru_node_part(r->h.timers.node, &part);
    ru_node_part(r->j.l[1 - who]->node, &(ru_part){.ops = &hears,
                                                   .self = r,
                                                   .what_first = RU_NODE_WHAT_OWNER,
                                                   .what_end = 2 * RU_NODE_WHAT_OWNER});
    return r;
}

static void rig_close(rig *r)
{
    r->h.timers.node = NULL;
    ru_shell_close(&r->h);
    job_close(&r->j);
    ru_arena_fini(&r->arena);
}

static void ask(rig *r, uint32_t what)
{
    life *from = r->j.l[ru_node_is(r->h.id, r->j.l[0]->id) ? 1 : 0];
    assert_int_equal(
        ru_chan_message(ru_node_chan(from->node), r->h.id, what, "", 0, ru_pipe_now(r->j.pipe)),
        RU_OK);
    job_rounds(&r->j, 200);
}

static void test_asked(void **state)
{
    (void)state;
    static char world[TEXT];
    memset(world, 'w', sizeof world);
    world[TEXT - 1] = 'x';
    rig *r = rig_open(0);
    assert_true(ru_member_leads(ru_node_member(r->h.timers.node)));
    ask(r, RUI_MSG_JOB_ASK);
    assert_int_equal(r->text_n, 13);
    assert_memory_equal(r->text, "/run\0name: t\n", 13);
    for (uint32_t k = 0; k < RU_SHELL_ASKING_MAX; k++) {
        ask(r, RUI_MSG_WORLD_ASK);
        assert_int_equal(r->asked, 1); /* one file for all */
        assert_int_equal(r->told[RUI_MSG_WORLD_AT - RU_NODE_WHAT_OWNER], 0);
    }
    ask(r, RUI_MSG_WORLD_ASK); /* no room: ask again */
    assert_int_equal(r->told[RUI_MSG_WORLD_AT - RU_NODE_WHAT_OWNER], 1);
    ru_shell_world(&r->h, world, TEXT, ru_pipe_now(r->j.pipe));
    job_rounds(&r->j, 400);
    assert_int_equal(r->told[RUI_MSG_WORLD - RU_NODE_WHAT_OWNER], 3 * RU_SHELL_ASKING_MAX);
    assert_int_equal(r->text_n, TEXT);
    assert_memory_equal(r->text, world, TEXT);
    ask(r, RUI_MSG_WORLD_ASK);
    assert_int_equal(r->asked, 2);
    ru_shell_end(&r->h, RU_OK, "done", ru_pipe_now(r->j.pipe));
    ask(r, RUI_MSG_WORLD_ASK);
    assert_int_equal(r->asked, 2);
    rig_close(r);
}

/* Who does not lead says where the leader is. */
static void test_asked_elsewhere(void **state)
{
    (void)state;
    rig *r = rig_open(1);
    ask(r, RUI_MSG_WORLD_ASK);
    assert_int_equal(r->asked, 0);
    assert_int_equal(r->told[RUI_MSG_WORLD_AT - RU_NODE_WHAT_OWNER], 1);
    assert_int_equal(r->text_n, strlen(r->j.l[0]->address));
    assert_memory_equal(r->text, r->j.l[0]->address, r->text_n);
    rig_close(r);
}

static void talk(void *self)
{
    rig *r = self;
    uint32_t line = __atomic_fetch_add(&r->asked, 1, __ATOMIC_SEQ_CST);
    for (uint32_t k = 0; k < SAID; k++) {
        ru_shell_say(&r->h, &r->line[line], &(word){line, k});
    }
}

static void test_said(void **state)
{
    (void)state;
    rig *r = rig_open(0);
    ru_err err = {0};
    for (uint32_t k = 0; k < 2; k++) {
        assert_ok(ru_shell_line(&r->h, &r->line[k], RING, sizeof(word), &err), err);
    }
    for (uint32_t k = 0; k < 2; k++) {
        assert_ok(ru_thread_start(&r->thread[k], "talks", talk, r, &err), err);
    }
    while (r->next[0] + r->next[1] < 2 * SAID) { /* a wake that is lost: it hangs */
        assert_ok(ru_loop_round(r->h.loop, -1, &err), err);
    }
    for (uint32_t k = 0; k < 2; k++) {
        ru_thread_join(&r->thread[k]);
    }
    rig_close(r);
}

RU_TESTS(host_shell, cmocka_unit_test(test_asked), cmocka_unit_test(test_asked_elsewhere),
         cmocka_unit_test(test_said))
