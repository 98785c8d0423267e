/* Any bytes as lists of hosts and as an environment: an answer within the bounds, or an error. */
#include "launch/hosts.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const char *text; /* [n] lines NAME=value */
    size_t n;
    char values[64][256];
    uint32_t at;
} bytes;

static const char *lookup(void *self, const char *name)
{
    bytes *b = self;
    ru_str rest = ru_str_n(b->text, (int64_t)b->n), line;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t eq = ru_str_find(line, "=");
        if (eq > 0 && eq == (int64_t)strlen(name) && memcmp(line.p, name, (size_t)eq) == 0) {
            char *v = b->values[b->at++ % 64];
            ru_text t = ru_text_into(v, 256);
            ru_text_put_n(&t, line.p + eq + 1, line.n - eq - 1);
            return v;
        }
    }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ru_arena arena;
    ru_arena_init(&arena, 1 << 24);
    ru_str text = ru_str_n((const char *)data, (int64_t)size);
    ru_hosts h;
    if (ru_hosts_from_slurm(text, &arena, &h, NULL) == RU_OK &&
        (h.n == 0 || h.n > RU_HOSTS_MAX || h.workers != h.n)) {
        abort();
    }
    if (ru_hosts_from_flag(text, &arena, &h, NULL) == RU_OK &&
        (h.n == 0 || h.workers > RU_HOSTS_WORKERS_MAX)) {
        abort();
    }
    bytes b = {.text = (const char *)data, .n = size};
    ru_hosts_flags flags = {0};
    ru_hosts_plan p;
    if (ru_hosts_resolve(&flags, lookup, &b, &arena, &p, NULL) == RU_OK &&
        (p.line == NULL || p.workers_min == 0 || p.workers_min > p.workers_max)) {
        abort();
    }
    ru_arena_fini(&arena);
    return 0;
}
