/* How fast processes of the simulator are over time: the four patterns of flexrr-2016. */
#include "lab/worlds/speed.h"

#include "base/hash.h"
#include "base/rng.h"

enum { SECOND = 1000000000 / RU_SPEED_SLOT_NS };

/* From 0 to 1, of a process and a place. */
static double draw(const ru_speeds *s, uint32_t process, uint64_t what, int64_t at)
{
    const uint64_t key[5] = {s->seed, s->pattern, process, what, (uint64_t)at};
    return (double)(ru_hash_bytes(key, sizeof key, 0) >> 11) * 0x1p-53;
}

double ru_speed_at(const ru_speeds *s, uint32_t process, int64_t slot)
{
    double speed = 1;
    switch (s->pattern) {
    case RU_SPEED_EVEN:
        break;
    case RU_SPEED_SLOW: /* in each tenth of a second 1 in 100, for a second */
        for (int64_t at = slot / (SECOND / 10) - 9; at <= slot / (SECOND / 10); at++) {
            double slow = 1 / (1 + 4 * draw(s, process, 1, at));
            speed = draw(s, process, 0, at) < 0.01 && slow < speed ? slow : speed;
        }
        break;
    case RU_SPEED_DISRUPT: { /* every 20 s 1 in 5, for up to 20 s */
        int64_t phase = (int64_t)(20 * SECOND * draw(s, process, 2, 0)), at = slot + phase;
        int64_t window = at / (20 * SECOND), in = at % (20 * SECOND);
        bool hit = draw(s, process, 0, window) < 0.2;
        speed = hit && (double)in < 20 * SECOND * draw(s, process, 1, window) ? 0.5 : 1;
        break;
    }
    case RU_SPEED_POWER: /* each second by Pareto of shape 4 */
        speed = ru_math_pow(1 - draw(s, process, 0, slot / SECOND), 0.25);
        break;
    case RU_SPEED_HALF:
        speed = process % 2 == 1 ? 0.5 : 1;
        break;
    case RU_SPEED_PATTERNS:
        break;
    }
    return speed;
}

int64_t ru_speed_ends_ns(const ru_speeds *s, uint32_t process, int64_t from_ns, double work_ns)
{
    double at = (double)from_ns;
    for (int64_t slot = from_ns / RU_SPEED_SLOT_NS;; slot++) {
        double speed = ru_speed_at(s, process, slot);
        double end = (double)((slot + 1) * RU_SPEED_SLOT_NS), room = (end - at) * speed;
        if (work_ns <= room) {
            return (int64_t)(at + work_ns / speed + 0.5);
        }
        work_ns -= room;
        at = end;
    }
}

double ru_speed_ideal_ns(const ru_speeds *s, uint32_t processes, int64_t from_ns, double work_ns)
{
    double at = (double)from_ns;
    for (int64_t slot = from_ns / RU_SPEED_SLOT_NS;; slot++) {
        double speed = 0, end = (double)((slot + 1) * RU_SPEED_SLOT_NS);
        for (uint32_t p = 0; p < processes; p++) {
            speed += ru_speed_at(s, p, slot);
        }
        if (work_ns <= (end - at) * speed) {
            return at + work_ns / speed - (double)from_ns;
        }
        work_ns -= (end - at) * speed;
        at = end;
    }
}
