#include "cluster/wire.h"

#include <string.h>

static void put_text(ru_wire_out *o, const char *text)
{
    size_t n = text != NULL ? strlen(text) : 0;
    ru_wire_put_text(o, text, (uint32_t)(n < RU_CLUSTER_TEXT_MAX ? n : RU_CLUSTER_TEXT_MAX));
}

static const char *get_text(ru_wire_in *in, ru_arena *arena)
{
    uint32_t n = 0;
    const char *text = ru_wire_text(in, RU_CLUSTER_TEXT_MAX, &n);
    const char *copy =
        text != NULL && memchr(text, 0, n) == NULL ? ru_arena_strn(arena, text, n) : NULL;
    in->bad = in->bad || copy == NULL;
    return copy;
}

/* Bits of a byte; others are no message of this version. */
static uint8_t get_flags(ru_wire_in *in, uint8_t known)
{
    uint8_t flags = ru_wire_u8(in);
    in->bad = in->bad || (flags & (uint8_t)~known) != 0;
    return flags;
}

static int64_t size_of(const ru_wire_out *o)
{
    return o->bad ? 0 : ru_wire_size(o);
}

uint32_t ru_cluster_version(const void *data, int64_t size_bytes)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    uint32_t version = ru_wire_u32(&in);
    return in.bad ? 0 : version;
}

int64_t ru_cluster_state_put(const ru_cluster_state *s, void *into)
{
    ru_wire_out o = ru_wire_out_into(into, RU_CLUSTER_MESSAGE_BYTES);
    ru_wire_put_u32(&o, RU_CLUSTER_VERSION);
    put_text(&o, s->name);
    ru_wire_put_u32(&o, s->slots);
    ru_wire_put_u8(&o, s->leaving ? 1 : 0);
    ru_wire_put_u64(&o, s->heard);
    ru_wire_put_u32(&o, s->n_services);
    for (uint32_t k = 0; k < s->n_services; k++) {
        put_text(&o, s->services[k].name);
        ru_wire_put_u8(&o, s->services[k].up ? 1 : 0);
        put_text(&o, s->services[k].line);
    }
    ru_wire_put_u32(&o, s->n);
    for (uint32_t k = 0; k < s->n; k++) {
        const ru_cluster_proc *p = &s->procs[k];
        ru_wire_put_u32(&o, p->job);
        ru_wire_put_u32(&o, p->generation);
        ru_wire_put_u32(&o, p->rank);
        ru_wire_put_u8(&o, (uint8_t)((p->alive ? 1 : 0) | (p->left ? 2 : 0) | (p->goes ? 4 : 0)));
        ru_wire_put_u32(&o, (uint32_t)p->code);
        put_text(&o, p->ended);
        put_text(&o, p->address);
        put_text(&o, p->why);
    }
    return size_of(&o);
}

bool ru_cluster_state_get(const void *data, int64_t size_bytes, ru_arena *arena,
                          ru_cluster_state *out)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    bool known = ru_wire_u32(&in) == RU_CLUSTER_VERSION;
    out->name = get_text(&in, arena);
    out->slots = ru_wire_u32(&in);
    out->leaving = get_flags(&in, 1) != 0;
    out->heard = ru_wire_u64(&in);
    out->n_services = known ? ru_wire_u32(&in) : 0;
    known = known && out->n_services <= RU_CLUSTER_SERVICES_MAX;
    for (uint32_t k = 0; known && !in.bad && k < out->n_services; k++) {
        out->services[k].name = get_text(&in, arena);
        out->services[k].up = get_flags(&in, 1) != 0;
        out->services[k].line = get_text(&in, arena);
    }
    out->n = ru_wire_u32(&in);
    known = known && out->n <= RU_CLUSTER_PROCS_MAX;
    for (uint32_t k = 0; known && !in.bad && k < out->n; k++) {
        ru_cluster_proc *p = &out->procs[k];
        *p = (ru_cluster_proc){.job = ru_wire_u32(&in)};
        p->generation = ru_wire_u32(&in);
        p->rank = ru_wire_u32(&in);
        uint8_t flags = get_flags(&in, 7);
        p->alive = (flags & 1) != 0;
        p->left = (flags & 2) != 0;
        p->goes = (flags & 4) != 0;
        p->code = (int32_t)ru_wire_u32(&in);
        p->ended = get_text(&in, arena);
        p->address = get_text(&in, arena);
        p->why = get_text(&in, arena);
    }
    return known && !in.bad && ru_wire_left(&in) == 0;
}

int64_t ru_cluster_orders_put(const ru_cluster_orders *s, void *into)
{
    ru_wire_out o = ru_wire_out_into(into, RU_CLUSTER_MESSAGE_BYTES);
    ru_wire_put_u32(&o, RU_CLUSTER_VERSION);
    ru_wire_put_u64(&o, s->number);
    ru_wire_put_u64(&o, s->epoch);
    ru_wire_put_u32(&o, s->n);
    for (uint32_t k = 0; k < s->n; k++) {
        const ru_cluster_order *p = &s->at[k];
        ru_wire_put_u32(&o, p->job);
        ru_wire_put_u32(&o, p->generation);
        ru_wire_put_u32(&o, p->want);
        ru_wire_put_u32(&o, p->rank_first);
        ru_wire_put_u32(&o, p->most);
        ru_wire_put_u8(&o, (uint8_t)((p->found ? 1 : 0) | (p->resume ? 2 : 0) | (p->end ? 4 : 0) |
                                     (p->rented ? 8 : 0)));
        put_text(&o, p->join);
        put_text(&o, p->out);
        put_text(&o, p->token);
        put_text(&o, p->owner);
    }
    return size_of(&o);
}

bool ru_cluster_orders_get(const void *data, int64_t size_bytes, ru_arena *arena,
                           ru_cluster_orders *out)
{
    ru_wire_in in = ru_wire_in_from(data, size_bytes);
    bool known = ru_wire_u32(&in) == RU_CLUSTER_VERSION;
    out->number = ru_wire_u64(&in);
    out->epoch = ru_wire_u64(&in);
    out->n = ru_wire_u32(&in);
    known = known && out->n <= RU_CLUSTER_PROCS_MAX;
    for (uint32_t k = 0; known && !in.bad && k < out->n; k++) {
        ru_cluster_order *p = &out->at[k];
        *p = (ru_cluster_order){.job = ru_wire_u32(&in)};
        p->generation = ru_wire_u32(&in);
        p->want = ru_wire_u32(&in);
        p->rank_first = ru_wire_u32(&in);
        p->most = ru_wire_u32(&in);
        uint8_t flags = get_flags(&in, 15);
        p->found = (flags & 1) != 0;
        p->resume = (flags & 2) != 0;
        p->end = (flags & 4) != 0;
        p->rented = (flags & 8) != 0;
        p->join = get_text(&in, arena);
        p->out = get_text(&in, arena);
        p->token = get_text(&in, arena);
        p->owner = get_text(&in, arena);
    }
    return known && !in.bad && ru_wire_left(&in) == 0;
}
