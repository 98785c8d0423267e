#include "train/script/script.h"

#include <stddef.h>

void ru_script_begin(ru_script_play *p, const ru_script *s, int64_t samples, double factor,
                     bool ahead)
{
    double ns = (double)s->fixed_ns + (double)samples * s->sample_ns;
    *p = (ru_script_play){.script = s,
                          .step_ns = samples > 0 ? (int64_t)(ns * factor) : s->idle_ns,
                          .n_had = ahead ? 0 : s->n};
    for (uint32_t k = 0; k < s->n; k++) {
        p->all_bytes += s->size_bytes[k];
    }
}

static int64_t ready_ns(const ru_script_play *p, uint32_t k)
{
    bool last = k + 1 == p->script->n;
    return last ? p->step_ns : (int64_t)((double)p->step_ns * p->script->ready[k]);
}

/* Of the parameter that comes next. */
static int64_t need_ns(const ru_script_play *p)
{
    const ru_script *s = p->script;
    uint32_t k = s->n - 1 - p->n_had;
    double part = s->need != NULL ? s->need[k] : (double)p->n_had / (3.0 * s->n);
    int64_t ns = (int64_t)((double)p->step_ns * part), first_ns = ready_ns(p, 0);
    return ns < first_ns ? ns : first_ns;
}

bool ru_script_needs(const ru_script_play *p, uint32_t *k)
{
    *k = p->script->n - 1 - p->n_had;
    return p->n_had < p->script->n && need_ns(p) <= p->at_ns;
}

void ru_script_has(ru_script_play *p)
{
    RU_CHECK(p->n_had < p->script->n);
    p->n_had++;
}

int64_t ru_script_compute(ru_script_play *p)
{
    RU_CHECK(p->n_ready < p->script->n);
    int64_t from_ns = p->at_ns;
    if (p->n_had < p->script->n) {
        p->at_ns = need_ns(p) > from_ns ? need_ns(p) : from_ns;
        return p->at_ns - from_ns;
    }
    int64_t next_ns = ready_ns(p, p->n_ready);
    p->at_ns = next_ns > from_ns ? next_ns : from_ns;
    do {
        p->n_ready++;
    } while (p->n_ready < p->script->n && ready_ns(p, p->n_ready) <= p->at_ns);
    return p->at_ns - from_ns;
}

void ru_script_summed(ru_script_play *p, int64_t size_bytes)
{
    p->summed_bytes += size_bytes;
    RU_CHECK(size_bytes >= 0 && p->summed_bytes <= p->all_bytes);
}

/* The update up to `bytes` of the gradients. */
static int64_t update_to(ru_script_play *p, int64_t bytes)
{
    double part = p->all_bytes > 0 ? (double)bytes / (double)p->all_bytes : 1;
    int64_t until_ns = (int64_t)((double)p->script->update_ns * part);
    int64_t ns = until_ns > p->updated_ns ? until_ns - p->updated_ns : 0;
    p->updated_bytes = bytes;
    p->updated_ns += ns;
    return ns;
}

int64_t ru_script_update_early(ru_script_play *p)
{
    bool some = p->script->early && p->summed_bytes > p->updated_bytes;
    return some ? update_to(p, p->summed_bytes) : 0;
}

int64_t ru_script_update(ru_script_play *p)
{
    int64_t rest_ns = p->script->update_ns - p->updated_ns;
    p->updated_ns = p->script->update_ns;
    p->updated_bytes = p->all_bytes;
    return rest_ns;
}
