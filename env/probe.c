#include "env/probe.h"

#include <stddef.h>

#include "env/probe_impl.h"

typedef struct hook {
    ru_probe_fn fn;
    void *self;
} hook;

static hook *mine(void)
{
    static _Thread_local hook h;
    return &h;
}

void ru_probe_set(ru_probe_fn fn, void *self)
{
    *mine() = (hook){fn, fn != NULL ? self : NULL};
}

void *ru_probe_self(void)
{
    return mine()->self;
}

bool rui_probed(void)
{
    return mine()->fn != NULL;
}

void rui_probe(ru_probe_act act, int64_t start_ns, int64_t end_ns, int64_t value)
{
    const hook *h = mine();
    if (h->fn != NULL) {
        h->fn(h->self, act, start_ns, end_ns, value);
    }
}
