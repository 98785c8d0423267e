#include "plan/disk/read_meter.h"

#include <math.h>

#define RAMP_NS   INT64_C(125000000)
#define WINDOW_NS INT64_C(375000000)

enum { RAMP_READS = 8, WINDOW_READS = 24 };

void ru_read_meter_begin(ru_read_meter *m, int64_t size_bytes, uint32_t depth, int64_t now_ns)
{
    *m = (ru_read_meter){.size_bytes = size_bytes, .depth = depth, .begun_ns = now_ns};
}

void ru_read_meter_stall(ru_read_meter *m, int64_t ns)
{
    m->stall_ns += m->ramp_ns > 0 ? ns : 0;
}

static uint32_t at_least(const ru_read_meter *m, uint32_t reads)
{
    return m->depth > reads ? m->depth : reads;
}

static void start(ru_read_meter *m, int64_t now_ns)
{
    m->ramp_ns = m->slice_ns = now_ns;
    m->n = m->slice = 0;
    m->bytes = m->slice_bytes = m->stall_ns = 0;
    m->latency_s = m->sum = m->squares = 0;
}

static void end_slice(ru_read_meter *m, int64_t now_ns)
{
    double s = 1e-9 * (double)(now_ns - m->slice_ns);
    double rate = s > 0 ? (double)m->slice_bytes / s : 0;
    m->sum += rate;
    m->squares += rate * rate;
    m->slice++;
    m->slice_ns = now_ns;
    m->slice_bytes = 0;
}

static void window_of(const ru_read_meter *m, int64_t now_ns, ru_read_window *w)
{
    double s = 1e-9 * (double)(now_ns - m->ramp_ns);
    double k = m->slice, mean = k > 0 ? m->sum / k : 0;
    double variance = k > 1 ? fmax(m->squares / k - mean * mean, 0) / (k - 1) : 0;
    *w = (ru_read_window){.size_bytes = m->size_bytes,
                          .depth = m->depth,
                          .seconds = s,
                          .bytes_per_s = (double)m->bytes / s,
                          .error = sqrt(variance),
                          .latency_s = m->latency_s / m->n,
                          .stall_s = 1e-9 * (double)m->stall_ns};
}

bool ru_read_meter_done(ru_read_meter *m, int64_t issued_ns, int64_t bytes, int64_t now_ns,
                        ru_read_window *w)
{
    if (issued_ns < m->begun_ns) {
        return false; /* of the setting before */
    }
    if (m->ramp_ns == 0) {
        m->ramped++;
        if (m->ramped >= at_least(m, RAMP_READS) && now_ns - m->begun_ns >= RAMP_NS) {
            start(m, now_ns);
        }
        return false;
    }
    m->n++;
    m->bytes += bytes;
    m->slice_bytes += bytes;
    m->latency_s += 1e-9 * (double)(now_ns - issued_ns);
    int64_t each_ns = WINDOW_NS / RU_READ_SLICES;
    uint32_t each = (at_least(m, WINDOW_READS) + RU_READ_SLICES - 1) / RU_READ_SLICES;
    bool many = m->n >= (m->slice + 1) * each;
    if (many && now_ns - m->slice_ns >= each_ns) {
        end_slice(m, now_ns);
    }
    if (m->slice < RU_READ_SLICES || now_ns <= m->ramp_ns) {
        return false;
    }
    window_of(m, now_ns, w);
    start(m, now_ns);
    return true;
}
