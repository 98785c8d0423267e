/* The world file of a running job, for who asks the leader (host/shell_part.c).
 *
 * The compute thread writes it between two steps, because it owns the executable and the times of
 * the steps. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "store/world_file.h"
#include "train/driver/op_facts.h"
#include "train/worker/worker_impl.h"

enum { WORLD_BYTES_MAX = 16 << 20 };

void rui_capture_asked(void *self, ru_time now)
{
    rui_worker *w = self;
    (void)now;
    ru_chan_stats s;
    ru_chan_stats_get(ru_node_chan(w->shell.timers.node), &s);
    ru_mutex_lock(&w->lock);
    w->capture.net_bytes_per_s = s.rate_bytes_per_s;
    w->capture.due = true;
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
    ru_shell_say(&w->shell, &w->line, &(rui_event){.kind = RUI_EVENT_WORLD});
}

void rui_capture_send(rui_worker *w, ru_time now)
{
    rui_capture *c = &w->capture;
    ru_mutex_lock(&w->lock);
    char *text = c->text;
    c->text = NULL;
    ru_mutex_unlock(&w->lock);
    ru_shell_world(&w->shell, text, text != NULL ? (int64_t)strlen(text) : 0, now);
    free(text);
}

void rui_capture_close(rui_worker *w)
{
    free(w->capture.text);
    w->capture.text = NULL;
}
