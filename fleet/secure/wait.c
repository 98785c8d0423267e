#include "fleet/secure/wait.h"

static const int64_t least_ns = 5000000000, each_ns = 20000000, most_ns = 600000000000;

static int64_t length(const ru_mask_wait *w, uint32_t n)
{
    int64_t least = least_ns + n * each_ns;
    return w->fixed_ns > 0 ? w->fixed_ns : w->learned_ns > least ? w->learned_ns : least;
}

int64_t ru_mask_wait_begin(ru_mask_wait *w, uint32_t n, int64_t now_ns)
{
    w->begun_ns = w->last_ns = now_ns;
    return now_ns + length(w, n);
}

void ru_mask_wait_heard(ru_mask_wait *w, uint32_t n, uint32_t need, int64_t now_ns)
{
    RU_CHECK(now_ns >= w->begun_ns);
    w->last_ns = n <= need ? now_ns : w->last_ns;
}

void ru_mask_wait_end(ru_mask_wait *w, uint32_t n, bool few)
{
    int64_t took = 4 * (w->last_ns - w->begun_ns), half = w->learned_ns / 2;
    int64_t next = few ? 2 * length(w, n) : took > half ? took : half;
    w->learned_ns = next < most_ns ? next : most_ns;
}
