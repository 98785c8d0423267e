#include "env/link/refusal.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static const int64_t minute_ns = 60000000000;

static uint64_t mix(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint8_t)p[i]) * 0x100000001b3ull;
    }
    return h;
}

static size_t host_len(const char *address)
{
    const char *colon = strrchr(address, ':');
    return colon != NULL ? (size_t)(colon - address) : strlen(address);
}

static void tell(const ru_refusal *x, const char *part)
{
    ru_log(RU_LOG_WARN, part, "peer_refused", "%s; %lld more since then", x->text,
           (long long)x->silent);
}

static ru_refusal *find(ru_refusals *r, uint64_t key)
{
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->at[i].key == key) {
            return &r->at[i];
        }
    }
    return NULL;
}

void ru_refusals_add(ru_refusals *r, const char *part, const char *address, const char *sentence,
                     ru_time now)
{
    uint64_t key = mix(0xcbf29ce484222325ull, address, host_len(address)) | 1;
    key = mix(key, sentence, strcspn(sentence, ":0123456789")) | 1;
    ru_refusal *x = find(r, key);
    if (x == NULL && r->n == RU_REFUSALS_MAX) {
        ru_refusals_tick(r, part, now);
    }
    if (x != NULL && ru_time_since(now, x->since) < minute_ns) {
        x->silent++;
        return;
    }
    if (x == NULL && r->n == RU_REFUSALS_MAX) {
        x = &r->at[RU_REFUSALS_MAX];
        x->since = x->silent++ == 0 ? now : x->since;
        snprintf(x->text, sizeof x->text, "further hosts");
        return;
    }
    if (x == NULL) {
        x = &r->at[r->n++];
        x->key = key;
    } else if (x->silent > 0) {
        tell(x, part);
    }
    x->since = now;
    x->silent = 0;
    snprintf(x->text, sizeof x->text, "%s: %s", address, sentence);
    ru_log(RU_LOG_WARN, part, "peer_refused", "%s: %s", address, sentence);
}

void ru_refusals_tick(ru_refusals *r, const char *part, ru_time now)
{
    ru_refusal *rest = &r->at[RU_REFUSALS_MAX];
    if (rest->silent > 0 && ru_time_since(now, rest->since) >= minute_ns) {
        tell(rest, part);
        rest->silent = 0;
    }
    for (uint32_t i = 0; i < r->n;) {
        ru_refusal *x = &r->at[i];
        if (ru_time_since(now, x->since) < minute_ns) {
            i++;
        } else if (x->silent > 0) {
            tell(x, part);
            x->since = now;
            x->silent = 0;
            i++;
        } else {
            *x = r->at[--r->n];
        }
    }
}

void ru_refusals_end(ru_refusals *r, const char *part)
{
    for (uint32_t i = 0; i <= RU_REFUSALS_MAX; i++) {
        if (r->at[i].silent > 0) {
            tell(&r->at[i], part);
        }
        r->at[i] = (ru_refusal){0};
    }
    r->n = 0;
}
