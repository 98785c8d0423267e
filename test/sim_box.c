#include "test/sim_box.h"

#include <string.h>

#include "test/test.h"

const ru_sim_nic gigabit = {.bytes_per_s = 125e6, .delay_ns = 50000, .queue_bytes = 65536};

static box_conn *conn_of(box *b, ru_conn_id id)
{
    for (uint32_t k = 0; k < b->n; k++) {
        if (b->c[k].id.v == id.v) {
            return &b->c[k];
        }
    }
    return NULL;
}

static void on_opened(void *self, ru_conn_id id, bool accepted, const char *address, ru_time now)
{
    box *b = self;
    assert_non_null(address);
    box_conn *c = conn_of(b, id);
    if (c == NULL) {
        assert_true(b->n < BOX_CONNS);
        c = &b->c[b->n++];
        *c = (box_conn){.id = id};
    }
    c->open = true;
    c->accepted = accepted;
    c->opened = now;
    b->link.ops->wake(b->link.self, id);
}

static void on_closed(void *self, ru_conn_id id, ru_status why, const char *sentence, ru_time now)
{
    box_conn *c = conn_of(self, id);
    assert_non_null(c);
    assert_non_null(sentence);
    c->open = false;
    c->why = why;
    c->closed = now;
    c->id.v = 0;
}

static bool on_pull(void *self, ru_conn_id id, int64_t room, ru_link_tx *tx, ru_time now)
{
    (void)now;
    box_conn *c = conn_of(self, id);
    assert_non_null(c);
    assert_true(room > 0);
    if (c->left == 0) {
        return false;
    }
    c->left--;
    uint64_t words[2] = {c->sent, (uint64_t)c->size};
    memcpy(tx->head, words, sizeof words);
    if (c->size > 0) {
        tx->spans[0] = (ru_span){c->data, c->size};
        tx->n_spans = 1;
    }
    tx->cookie = c->sent++;
    return true;
}

static void on_sent(void *self, ru_conn_id id, uint64_t cookie, ru_time now)
{
    (void)now;
    const box_conn *c = conn_of(self, id);
    assert_non_null(c);
    assert_true(cookie < c->sent);
}

static ru_status on_head(void *self, ru_conn_id id, const uint8_t *head, ru_link_rx *rx,
                         ru_time now)
{
    (void)now;
    box *b = self;
    box_conn *c = conn_of(b, id);
    assert_non_null(c);
    if (c->pausing || b->refuses) {
        return c->pausing ? RU_E_AGAIN : RU_E_DATA;
    }
    uint64_t words[2];
    memcpy(words, head, sizeof words);
    int64_t size = (int64_t)words[1], at = c->half ? size / 2 : 0;
    rx->more = c->parts && !c->half;
    int64_t end = rx->more ? size / 2 : size;
    if (!c->half) {
        b->out_of_order = b->out_of_order || words[0] != c->next;
        c->next = words[0] + 1;
        c->rx_bytes += size;
    }
    c->half = rx->more;
    if (size > 0) {
        rx->spans[0] = (ru_span){c->into == NULL ? NULL : c->into + at, end - at};
        rx->n_spans = 1;
    }
    return RU_OK;
}

static ru_status on_body(void *self, ru_conn_id id, ru_time now)
{
    box *b = self;
    box_conn *c = conn_of(b, id);
    assert_non_null(c);
    c->last = now;
    if (b->n_arrivals < BOX_LOG) {
        b->arrivals[b->n_arrivals++] = now;
    }
    return RU_OK;
}

void box_add(ru_sim *s, box *b, const char *address, const ru_sim_nic *nic)
{
    *b = (box){.sim = s};
    ru_link_user user = {b, on_opened, on_closed, on_pull, on_sent, on_head, on_body};
    ru_err err = {0};
    assert_ok(ru_sim_nic_add(s, address, nic, &user, &b->link, &b->node, &err), err);
}

box_conn *box_connect(box *b, const char *address, int64_t frames, int64_t size)
{
    ru_err err = {0};
    box_conn *c = &b->c[b->n++];
    *c = (box_conn){.left = frames, .size = size};
    assert_ok(b->link.ops->connect(b->link.self, address, RU_LINK_BULK, &c->id, &err), err);
    return c;
}

ru_sim *sim_new(uint64_t seed)
{
    ru_err err = {0};
    ru_sim *s;
    assert_ok(ru_sim_open(&(ru_sim_options){.seed = seed}, &s, &err), err);
    return s;
}

void run_until(ru_sim *s, int64_t ns)
{
    ru_err err = {0};
    assert_ok(ru_sim_run(s, (ru_time){ns}, &err), err);
}

void box_wake(const box *b, const box_conn *c)
{
    b->link.ops->wake(b->link.self, c->id);
}
