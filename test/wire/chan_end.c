#include "test/wire/chan_end.h"

#include <string.h>

#include "base/crc32c.h"
#include "test/test.h"

static void on_up(void *self, ru_node_id node, const char *address, ru_time now)
{
    (void)node, (void)address, (void)now;
    ((ru_chan_end *)self)->ups++;
}

static void on_down(void *self, ru_node_id node, const char *address, ru_status why, ru_time now)
{
    ru_chan_end *e = self;
    (void)address;
    e->downs++;
    e->downs_of[node.v % RU_CHAN_END_NODES]++;
    e->why = why;
    e->down_at = now;
}

static void on_message(void *self, ru_node_id from, uint32_t what, const void *data,
                       int64_t size_bytes, ru_time now)
{
    ru_chan_end *e = self;
    (void)from, (void)what, (void)now;
    e->messages++;
    e->messages_crc = ru_crc32c(e->messages_crc, data, size_bytes);
}

static void on_sent(void *self, uint64_t cookie, ru_time now)
{
    (void)cookie, (void)now;
    ((ru_chan_end *)self)->sent++;
}

static void on_failed(void *self, uint64_t cookie, ru_status why, ru_time now)
{
    ru_chan_end *e = self;
    (void)cookie, (void)now;
    e->failed++;
    e->why = why;
}

static void on_arrived(void *self, uint64_t cookie, ru_time now)
{
    (void)cookie, (void)now;
    ((ru_chan_end *)self)->arrived++;
}

static void on_tick_at(void *self, ru_time at)
{
    ((ru_chan_end *)self)->tick_at = at;
}

void ru_chan_end_open(ru_chan_end *e, ru_pipe *net, const ru_chan_options *opt)
{
    *e = (ru_chan_end){.node = ru_pipe_node(net, opt->address)};
    ru_arena_init(&e->arena, 0);
    const ru_chan_user user = {.self = e,
                               .up = on_up,
                               .down = on_down,
                               .message = on_message,
                               .sent = on_sent,
                               .failed = on_failed,
                               .arrived = on_arrived,
                               .tick_at = on_tick_at};
    ru_link link = ru_pipe_link(net, e->node);
    ru_err err;
    assert_ok(ru_chan_open(opt, &link, &user, &e->arena, &e->ch, &err), err);
    ru_pipe_user(net, e->node, ru_chan_link_user(e->ch));
}

void ru_chan_end_close(ru_chan_end *e)
{
    ru_chan_close(e->ch);
    ru_arena_fini(&e->arena);
}

void ru_chan_ends_tick(ru_pipe *net, ru_chan_end *ends, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (ends[i].tick_at.ns <= ru_pipe_now(net).ns) {
            ends[i].tick_at = ru_chan_tick(ends[i].ch, ru_pipe_now(net));
        }
    }
}

void ru_chan_ends_run(ru_pipe *net, ru_chan_end *ends, uint32_t n, int64_t ns)
{
    ru_time end = ru_time_after(ru_pipe_now(net), ns);
    while (ru_pipe_now(net).ns < end.ns) {
        if (!ru_pipe_step(net)) {
            ru_pipe_wait(net, 100000);
        }
        ru_chan_ends_tick(net, ends, n);
    }
}
