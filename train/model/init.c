/* Start values of parameters, by counter: the same on any machine and in any order.
 *
 * Block e/4 of stream k gives four words. Uniform: word e%4, its upper 24 bits. Normal: words (0,1)
 * and (2,3) are each one Box-Muller pair. test/oracle/philox.py says the same in numpy. */
#include <math.h>

#include "base/rng.h"
#include "train/model/zoo.h"

static void uniform4(const uint32_t w[4], double scale, float out[4])
{
    for (int i = 0; i < 4; i++) {
        double u = (double)(w[i] >> 8) * 0x1p-24;
        out[i] = (float)((2 * u - 1) * scale);
    }
}

static void normal4(const uint32_t w[4], double scale, float out[4])
{
    for (int i = 0; i < 4; i += 2) {
        double u = ((double)w[i] + 1) * 0x1p-32; /* (0,1] */
        double t = (double)w[i + 1] * 0x1p-32;   /* [0,1) */
        double r = sqrt(-2 * ru_math_log(u)) * scale;
        out[i] = (float)(r * ru_math_cos2pi(t));
        out[i + 1] = (float)(r * ru_math_sin2pi(t));
    }
}

void ru_init_fill_part(const ru_init *init, uint64_t seed, uint32_t k, int64_t begin, int64_t count,
                       float *data)
{
    bool normal = init->kind == RU_INIT_NORMAL;
    double scale = init->scale;
    RU_CHECK(begin % 4 == 0);
    if (init->kind == RU_INIT_ZEROS || init->kind == RU_INIT_ONES) {
        for (int64_t e = 0; e < count; e++) {
            data[e] = init->kind == RU_INIT_ONES ? 1.0f : 0.0f;
        }
        return;
    }
    if (init->kind == RU_INIT_KAIMING_UNIFORM) {
        scale = 1.0 / sqrt((double)(init->fan_in > 0 ? init->fan_in : 1));
    }
    for (int64_t e = 0; e < count; e += 4) {
        uint32_t w[4];
        float x[4];
        ru_philox_at(seed, k, (uint64_t)(begin + e) / 4, w);
        if (normal) {
            normal4(w, scale, x);
        } else {
            uniform4(w, scale, x);
        }
        for (int64_t i = 0; i < 4 && e + i < count; i++) {
            data[e + i] = x[i];
        }
    }
}

void ru_init_fill(const ru_init *init, uint64_t seed, uint32_t k, int64_t count, float *data)
{
    ru_init_fill_part(init, seed, k, 0, count, data);
}
