#include "fleet/wire.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SAMPLES_MAX = 1000000000, ROUND_MAX = 1024 };
static const uint64_t values_max = UINT64_C(1) << 36;

uint32_t rui_fed_start_put(const rui_fed_start *s, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_u64(&o, s->count);
    ru_wire_put_u64(&o, s->params);
    ru_wire_put_u64(&o, s->hash);
    ru_wire_put_u32(&o, s->per_round);
    ru_wire_put_u32(&o, s->threshold);
    ru_wire_put_u32(&o, s->neighbours);
    ru_wire_put_f64(&o, s->range);
    ru_wire_put_f64(&o, s->clip);
    return (uint32_t)ru_wire_size(&o);
}

uint32_t rui_fed_ready_put(const rui_fed_ready *r, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_f64(&o, r->samples);
    ru_wire_put_f64(&o, r->held);
    ru_wire_put_u64(&o, r->count);
    ru_wire_put_u64(&o, r->hash);
    ru_wire_put_u64(&o, r->unpacks);
    return (uint32_t)ru_wire_size(&o);
}

uint32_t rui_fed_task_put(const rui_fed_task *t, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_u32(&o, t->task);
    ru_wire_put_u32(&o, t->round);
    ru_wire_put_u32(&o, t->epochs);
    ru_wire_put_u32(&o, t->kind);
    return (uint32_t)ru_wire_size(&o);
}

uint32_t rui_fed_update_put(const rui_fed_update *u, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_u32(&o, u->task);
    ru_wire_put_f64(&o, u->loss);
    ru_wire_put_f64(&o, u->loss_rms);
    ru_wire_put_f64(&o, u->accuracy);
    return (uint32_t)ru_wire_size(&o);
}

uint32_t rui_fed_score_put(const rui_fed_score *s, uint8_t *into)
{
    ru_wire_out o = ru_wire_out_into(into, RUI_FED_HEAD_MAX);
    ru_wire_put_u32(&o, s->task);
    ru_wire_put_f64(&o, s->correct);
    ru_wire_put_f64(&o, s->count);
    ru_wire_put_f64(&o, s->loss);
    return (uint32_t)ru_wire_size(&o);
}

/* Losses are f32: larger ones would make their sum infinite. */
static bool is_loss(double v)
{
    return fabs(v) <= (double)FLT_MAX;
}

static bool whole(const ru_wire_in *w)
{
    return !w->bad && w->at == w->end;
}

bool rui_fed_start_get(const void *data, int64_t size_bytes, rui_fed_start *out)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    out->count = ru_wire_u64(&w);
    out->params = ru_wire_u64(&w);
    out->hash = ru_wire_u64(&w);
    out->per_round = ru_wire_u32(&w);
    out->threshold = ru_wire_u32(&w);
    out->neighbours = ru_wire_u32(&w);
    out->range = ru_wire_f64(&w);
    out->clip = ru_wire_f64(&w);
    bool near = out->neighbours == 0
                    ? out->threshold > out->per_round / 2
                    : out->neighbours % 2 == 0 && out->threshold > out->neighbours / 2 + 1 &&
                          out->threshold <= out->neighbours + 1;
    bool masks = out->threshold == 0 || (out->per_round <= ROUND_MAX && near);
    return whole(&w) && out->count >= 1 && out->count <= values_max && out->params <= out->count &&
           masks && out->threshold <= out->per_round && out->range > 0 && out->range <= 1e12 &&
           out->clip >= 0 && out->clip <= 1e12;
}

bool rui_fed_ready_get(const void *data, int64_t size_bytes, rui_fed_ready *out)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    out->samples = ru_wire_f64(&w);
    out->held = ru_wire_f64(&w);
    out->count = ru_wire_u64(&w);
    out->hash = ru_wire_u64(&w);
    out->unpacks = ru_wire_u64(&w);
    return whole(&w) && out->samples >= 1 && out->samples <= SAMPLES_MAX && out->held >= 0 &&
           out->held <= SAMPLES_MAX && out->unpacks <= 1;
}

bool rui_fed_task_get(const void *data, int64_t size_bytes, rui_fed_task *out)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    out->task = ru_wire_u32(&w);
    out->round = ru_wire_u32(&w);
    out->epochs = ru_wire_u32(&w);
    uint32_t kind = ru_wire_u32(&w);
    out->kind = (rui_fed_kind)(kind % 3);
    return whole(&w) && kind <= RUI_FED_EVALUATE && out->round >= 1 && out->epochs >= 1 &&
           out->epochs <= 1000000;
}

bool rui_fed_update_get(const void *data, int64_t size_bytes, rui_fed_update *out)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    out->task = ru_wire_u32(&w);
    out->loss = ru_wire_f64(&w);
    out->loss_rms = ru_wire_f64(&w);
    out->accuracy = ru_wire_f64(&w);
    return whole(&w) && is_loss(out->loss) && is_loss(out->loss_rms) && out->loss_rms >= 0 &&
           out->accuracy >= -1 && out->accuracy <= 1;
}

bool rui_fed_score_get(const void *data, int64_t size_bytes, rui_fed_score *out)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    out->task = ru_wire_u32(&w);
    out->correct = ru_wire_f64(&w);
    out->count = ru_wire_f64(&w);
    out->loss = ru_wire_f64(&w);
    return whole(&w) && out->count >= 0 && out->count <= 1e15 && out->correct >= 0 &&
           out->correct <= out->count && is_loss(out->loss);
}

bool rui_fed_name_ok(const char *name)
{
    size_t n = strlen(name);
    bool fine = n >= 1 && n <= RUI_FED_NAME_MAX;
    for (size_t k = 0; fine && k < n; k++) {
        char c = name[k];
        fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '_' || c == '.';
    }
    return fine;
}
