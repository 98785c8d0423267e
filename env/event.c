#include "env/event.h"

#include <stdio.h>
#include <string.h>

/* An effect that is lost would break what the machines promised each other. A process that stops
 * is what they are made for: the others go on without it. */
static void *must_have(void *memory)
{
    if (memory == NULL) {
        ru_panic(__FILE__, __LINE__, "out of memory for an effect; this process stops");
    }
    return memory;
}

void ru_effects_init(ru_effects *fx, ru_arena *arena)
{
    *fx = (ru_effects){.arena = arena, .start = ru_arena_mark_get(arena)};
}

void ru_effects_clear(ru_effects *fx)
{
    ru_arena_rewind(fx->arena, fx->start);
    fx->at = NULL;
    fx->n = fx->cap = 0;
}

static ru_effect *add(ru_effects *fx, ru_effect_kind kind)
{
    if (fx->n == fx->cap) {
        uint32_t cap = fx->cap == 0 ? 16 : fx->cap * 2;
        RU_CHECK(cap <= RU_EFFECTS_MAX);
        ru_effect *at = must_have(ru_arena_alloc(fx->arena, cap * (int64_t)sizeof *at, 8));
        if (fx->n > 0) {
            memcpy(at, fx->at, fx->n * sizeof *at);
        }
        fx->at = at;
        fx->cap = cap;
    }
    ru_effect *e = &fx->at[fx->n++];
    *e = (ru_effect){.kind = kind};
    return e;
}

static void *carry(ru_effects *fx, ru_effect *e, const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    if (size_bytes == 0) {
        return NULL;
    }
    void *copy = must_have(ru_arena_alloc(fx->arena, size_bytes, 8));
    if (data != NULL) {
        memcpy(copy, data, (size_t)size_bytes);
    } else {
        memset(copy, 0, (size_t)size_bytes);
    }
    e->data = copy;
    e->size_bytes = size_bytes;
    return copy;
}

void ru_fx_send(ru_effects *fx, ru_node_id to, uint32_t what, const void *data, int64_t size_bytes)
{
    ru_effect *e = add(fx, RU_FX_SEND);
    e->node = to;
    e->what = what;
    carry(fx, e, data, size_bytes);
}

void ru_fx_send_same(ru_effects *fx, ru_node_id to)
{
    RU_CHECK(fx->n > 0 && fx->at[fx->n - 1].kind == RU_FX_SEND);
    ru_effect *e = add(fx, RU_FX_SEND);
    *e = fx->at[fx->n - 2];
    e->node = to;
}

void ru_fx_timer(ru_effects *fx, uint32_t what, ru_time at)
{
    ru_effect *e = add(fx, RU_FX_TIMER);
    e->what = what;
    e->at = at;
}

void ru_fx_timer_off(ru_effects *fx, uint32_t what)
{
    add(fx, RU_FX_TIMER_OFF)->what = what;
}

void ru_fx_connect(ru_effects *fx, const char *address)
{
    ru_effect *e = add(fx, RU_FX_CONNECT);
    carry(fx, e, address, (int64_t)strlen(address) + 1);
}

void ru_fx_disconnect(ru_effects *fx, ru_node_id node)
{
    add(fx, RU_FX_DISCONNECT)->node = node;
}

void *ru_fx_local(ru_effects *fx, uint32_t what, int64_t value, const void *data,
                  int64_t size_bytes)
{
    ru_effect *e = add(fx, RU_FX_LOCAL);
    e->what = what;
    e->value = value;
    return carry(fx, e, data, size_bytes);
}

void ru_fx_local_about(ru_effects *fx, ru_node_id node, uint32_t what, int64_t value,
                       const void *data, int64_t size_bytes)
{
    ru_fx_local(fx, what, value, data, size_bytes);
    fx->at[fx->n - 1].node = node;
}

void ru_fx_log(ru_effects *fx, int level, const char *fmt, ...)
{
    char line[RU_ERR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    ru_effect *e = add(fx, RU_FX_LOG);
    e->value = level;
    carry(fx, e, line, (int64_t)strlen(line) + 1);
}

void ru_fx_wake(ru_effects *fx, uint32_t what, ru_time at, ru_time *told)
{
    if (at.ns == told->ns) {
        return;
    }
    *told = at;
    if (at.ns == INT64_MAX) {
        ru_fx_timer_off(fx, what);
    } else {
        ru_fx_timer(fx, what, at);
    }
}

const void *ru_event_data(const ru_event *ev, int64_t size_bytes)
{
    RU_CHECK(ev->data != NULL && ev->size_bytes == size_bytes);
    return ev->data;
}
