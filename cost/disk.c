#include "cost/disk.h"

#include <math.h>
#include <stddef.h>

#include "cost/math/lsq.h"

#define KNEE_MAX 1e9

enum { ROUNDS = 12, ALONE = 0, BYTES = 1, REQUESTS = 2 };

double ru_disk_request_s(const ru_disk *d, int64_t size_bytes, double depth)
{
    double r = (double)size_bytes;
    double alone = d->latency_s + r * d->byte_s;
    return fmax(alone, depth * fmax(r * d->shared_byte_s, d->shared_request_s));
}

double ru_disk_rate(const ru_disk *d, int64_t size_bytes, double depth)
{
    double s = ru_disk_request_s(d, size_bytes, depth);
    return s > 0 ? depth * (double)size_bytes / s : 0;
}

double ru_disk_knee(const ru_disk *d, int64_t size_bytes)
{
    double r = (double)size_bytes;
    double alone = d->latency_s + r * d->byte_s;
    double each = fmax(r * d->shared_byte_s, d->shared_request_s);
    return each > 0 ? fmin(fmax(alone / each, 1), KNEE_MAX) : KNEE_MAX;
}

static double measured_s(const ru_disk_sample *s)
{
    return s->depth * (double)s->size_bytes / s->bytes_per_s;
}

/* A sample near the largest rate is held up by bytes, one near the largest number of requests by
 * requests, all others by the request itself. */
static void first_terms(const ru_disk_sample *s, uint32_t n, uint8_t *term)
{
    double bytes = 0, requests = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes = fmax(bytes, s[i].bytes_per_s);
        requests = fmax(requests, s[i].bytes_per_s / (double)s[i].size_bytes);
    }
    for (uint32_t i = 0; i < n; i++) {
        bool most = s[i].bytes_per_s >= 0.85 * bytes;
        bool often = s[i].bytes_per_s >= 0.85 * requests * (double)s[i].size_bytes;
        term[i] = s[i].depth == 1 ? ALONE : most ? BYTES : often ? REQUESTS : ALONE;
    }
}

/* Each shared limit is the mean of its samples. */
static void fit_shared(const ru_disk_sample *s, uint32_t n, const uint8_t *term, ru_disk *d)
{
    double sum[3] = {0}, count[3] = {0};
    for (uint32_t i = 0; i < n; i++) {
        sum[term[i]] +=
            term[i] == BYTES ? s[i].bytes_per_s : s[i].bytes_per_s / (double)s[i].size_bytes;
        count[term[i]] += 1;
    }
    d->shared_byte_s = count[BYTES] > 0 ? count[BYTES] / sum[BYTES] : 0;
    d->shared_request_s = count[REQUESTS] > 0 ? count[REQUESTS] / sum[REQUESTS] : 0;
}

static ru_status fit_alone(const ru_disk_sample *s, uint32_t n, const uint8_t *term,
                           ru_arena *scratch, ru_disk *d, ru_err *err)
{
    double *a = RU_NEW(scratch, double, 2 * (int64_t)n), *b = RU_NEW(scratch, double, n);
    double *w = RU_NEW(scratch, double, n);
    if (a == NULL || b == NULL || w == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u samples of storage", n);
    }
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (term[i] == ALONE) {
            double y = measured_s(&s[i]);
            a[2 * m] = 1;
            a[2 * m + 1] = (double)s[i].size_bytes / 1048576;
            b[m] = y;
            w[m++] = 1 / (y * y);
        }
    }
    d->latency_s = d->byte_s = 0;
    if (m == 0) {
        return RU_OK;
    }
    const ru_lsq_in in = {.a = a, .b = b, .weight = w, .m = m, .n = 2, .nonneg = true};
    ru_lsq_fit fit;
    RU_TRY(ru_lsq_solve(&in, scratch, scratch, &fit, err));
    d->latency_s = fit.x[0];
    d->byte_s = fit.x[1] / 1048576;
    return RU_OK;
}

static uint8_t largest_term(const ru_disk *d, const ru_disk_sample *s)
{
    double r = (double)s->size_bytes, q = s->depth;
    double alone = d->latency_s + r * d->byte_s;
    double bytes = q * r * d->shared_byte_s, requests = q * d->shared_request_s;
    return alone >= bytes && alone >= requests ? ALONE : bytes >= requests ? BYTES : REQUESTS;
}

static double error_of(const ru_disk *d, const ru_disk_sample *s, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += fabs(ru_disk_request_s(d, s[i].size_bytes, s[i].depth) / measured_s(&s[i]) - 1);
    }
    return sum / n;
}

static ru_status improve(const ru_disk_sample *s, uint32_t n, ru_arena *scratch, ru_disk *out,
                         ru_err *err)
{
    uint8_t *term = RU_NEW(scratch, uint8_t, n);
    if (term == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "no memory for %u samples of storage", n);
    }
    first_terms(s, n, term);
    bool changed = true;
    for (uint32_t round = 0; round < ROUNDS && changed; round++) {
        ru_disk d = {0};
        fit_shared(s, n, term, &d);
        RU_TRY(fit_alone(s, n, term, scratch, &d, err));
        d.error = error_of(&d, s, n);
        if (round == 0 || d.error < out->error) {
            *out = d;
        }
        changed = false;
        for (uint32_t i = 0; i < n; i++) {
            uint8_t t = largest_term(&d, &s[i]);
            changed = changed || t != term[i];
            term[i] = t;
        }
    }
    return RU_OK;
}

ru_status ru_disk_fit(const ru_disk_sample *s, uint32_t n, ru_arena *scratch, ru_disk *out,
                      ru_err *err)
{
    if (n == 0) {
        return RU_FAIL(err, RU_E_ARG, "a model of storage needs a measured window");
    }
    for (uint32_t i = 0; i < n; i++) {
        bool right = s[i].size_bytes >= 1 && s[i].depth >= 1 && s[i].bytes_per_s > 0 &&
                     isfinite(s[i].bytes_per_s) && isfinite(measured_s(&s[i]));
        if (!right) {
            return RU_FAIL(
                err, RU_E_ARG,
                "window %u has %lld bytes, %u outstanding, %g bytes/s; all must be above "
                "0",
                i, (long long)s[i].size_bytes, s[i].depth, s[i].bytes_per_s);
        }
    }
    ru_arena_mark mark = ru_arena_mark_get(scratch);
    ru_status st = improve(s, n, scratch, out, err);
    ru_arena_rewind(scratch, mark);
    return st;
}
