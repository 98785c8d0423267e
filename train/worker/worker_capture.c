/* `rubato capture`: who has the job's token asks any worker for the world file of the running job.
 *
 *   asker --WORLD_ASK--> a worker that does not lead --WORLD_AT(address of the leader)--> asker
 *   asker --WORLD_ASK--> leader; its compute thread writes the file between two steps;
 *                        leader --WORLD(total, offset, bytes)...--> asker
 *
 * The compute thread writes it because it owns the executable and the times of the steps. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/wire.h"
#include "store/world_file.h"
#include "train/driver/op_facts.h"
#include "train/worker/worker_impl.h"

enum { PART_BYTES = 48 << 10, WORLD_BYTES_MAX = 16 << 20 };

static void tell(ru_chan *chan, ru_node_id to, uint32_t what, const void *data, int64_t size,
                 ru_time now)
{
    if (ru_chan_message(chan, to, what, data, size, now) != RU_OK) {
        ru_chan_drop(chan, to, now); /* half a file is none: it asks again */
    }
}

void rui_capture_elsewhere(ru_chan *chan, const ru_member *member, ru_node_id to, ru_time now)
{
    const ru_view *v = ru_member_view(member);
    const char *at = ""; /* nobody leads */
    for (uint32_t i = 0; i < v->n; i++) {
        at = ru_node_is(v->at[i].node, v->leader) ? v->at[i].address : at;
    }
    tell(chan, to, RUI_MSG_WORLD_AT, at, (int64_t)strlen(at), now);
}

void rui_capture_parts(ru_chan *chan, ru_node_id to, const char *text, int64_t total, ru_time now)
{
    uint8_t buf[PART_BYTES + 32];
    for (int64_t at = 0; at < total || (at == 0 && total == 0); at += PART_BYTES) {
        int64_t n = total - at < PART_BYTES ? total - at : PART_BYTES;
        ru_wire_out o = ru_wire_out_into(buf, sizeof buf);
        ru_wire_put_u32(&o, (uint32_t)total);
        ru_wire_put_u32(&o, (uint32_t)at);
        ru_wire_put_bytes(&o, text != NULL ? text + at : NULL, n);
        tell(chan, to, RUI_MSG_WORLD, buf, ru_wire_size(&o), now);
    }
}

void rui_capture_hear(rui_worker *w, ru_node_id from, ru_time now)
{
    rui_capture *c = &w->capture;
    if (!ru_member_leads(ru_node_member(w->timers.node)) || w->ended || c->n == RUI_CAPTURES_MAX) {
        rui_capture_elsewhere(ru_node_chan(w->timers.node), ru_node_member(w->timers.node), from,
                              now);
        return;
    }
    ru_chan_stats s;
    ru_chan_stats_get(ru_node_chan(w->timers.node), &s);
    c->asked[c->n++] = from;
    ru_mutex_lock(&w->lock);
    c->net_bytes_per_s = s.rate_bytes_per_s;
    c->due = true;
    ru_cond_broadcast(&w->changed);
    ru_mutex_unlock(&w->lock);
}

/* The file as text of malloc; NULL: there is none yet, or no memory. */
static char *write_world(rui_worker *w)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    ru_world world;
    ru_err err = {0};
    ru_text text = ru_text_arena(&arena);
    char *copy = NULL;
    if (w->now != NULL && rui_trainer_world(&w->t, &arena, &world, &err) == RU_OK &&
        ru_op_facts(w->t.out, RU_OP_FACTS_LIVE_BYTES, &arena, &world, NULL, &err) == RU_OK &&
        ru_world_file_put(&world, &text, &err) == RU_OK && text.n < WORLD_BYTES_MAX) {
        copy = malloc((size_t)text.n + 1);
        if (copy != NULL) {
            memcpy(copy, text.p, (size_t)text.n + 1);
        }
    }
    ru_arena_fini(&arena);
    return copy;
}

void rui_capture_make(rui_worker *w)
{
    ru_mutex_lock(&w->lock);
    w->t.net_bytes_per_s = w->capture.net_bytes_per_s;
    ru_mutex_unlock(&w->lock);
    char *text = write_world(w);
    ru_mutex_lock(&w->lock);
    free(w->capture.text);
    w->capture.text = text;
    w->capture.due = false;
    ru_mutex_unlock(&w->lock);
    rui_worker_post(w, &(rui_event){.kind = RUI_EVENT_WORLD});
}

void rui_capture_send(rui_worker *w, ru_time now)
{
    rui_capture *c = &w->capture;
    ru_mutex_lock(&w->lock);
    char *text = c->text;
    c->text = NULL;
    ru_mutex_unlock(&w->lock);
    int64_t total = text != NULL ? (int64_t)strlen(text) : 0;
    RU_CHECK(c->n <= RUI_CAPTURES_MAX && total < WORLD_BYTES_MAX);
    for (uint32_t k = 0; k < c->n; k++) {
        rui_capture_parts(ru_node_chan(w->timers.node), c->asked[k], text, total, now);
    }
    c->n = 0;
    free(text);
}

void rui_capture_close(rui_worker *w)
{
    free(w->capture.text);
    w->capture.text = NULL;
}
