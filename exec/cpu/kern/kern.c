/* Which copy of the kernels this CPU runs. */
#include "exec/cpu/kern/kern.h"
#include "exec/cpu/kern/numbers.h"

#include <math.h>
#include <stddef.h>

#include "exec/cpu/kern/side.h"

extern const ru_kern rui_kern_table_base;
extern const ru_kern_numbers rui_kern_numbers_base;
extern const ru_kern_sides rui_kern_sides_base;
#ifdef RU_KERN_X86
extern const ru_kern rui_kern_table_avx2;
extern const ru_kern rui_kern_table_avx512;
extern const ru_kern rui_kern_table_avx512_bf16;
extern const ru_kern_numbers rui_kern_numbers_avx2;
extern const ru_kern_numbers rui_kern_numbers_avx512;
extern const ru_kern_sides rui_kern_sides_avx2, rui_kern_sides_avx512;
extern const ru_kern_bytes rui_kern_bytes_vnni;

static bool cpu_has(ru_kern_level level)
{
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
    switch (level) {
    case RU_KERN_BASE:
        return true;
    case RU_KERN_AVX2:
        return avx2;
    case RU_KERN_AVX512:
        return avx512;
    case RU_KERN_AVX512_BF16:
        return avx512 && __builtin_cpu_supports("avx512bf16");
    case RU_KERN_LEVELS:
        break;
    }
    return false;
}

const ru_kern *ru_kern_at(ru_kern_level level)
{
    if (!cpu_has(level)) {
        return NULL;
    }
    switch (level) {
    case RU_KERN_AVX2:
        return &rui_kern_table_avx2;
    case RU_KERN_AVX512:
        return &rui_kern_table_avx512;
    case RU_KERN_AVX512_BF16:
        return &rui_kern_table_avx512_bf16;
    case RU_KERN_BASE:
    case RU_KERN_LEVELS:
        break;
    }
    return &rui_kern_table_base;
}

const ru_kern_numbers *ru_kern_numbers_at(ru_kern_level level)
{
    static const ru_kern_numbers *const tables[RU_KERN_LEVELS] = {
        [RU_KERN_BASE] = &rui_kern_numbers_base,
        [RU_KERN_AVX2] = &rui_kern_numbers_avx2,
        [RU_KERN_AVX512] = &rui_kern_numbers_avx512,
        [RU_KERN_AVX512_BF16] = &rui_kern_numbers_avx512,
    };
    return cpu_has(level) ? tables[level] : NULL;
}

const ru_kern_bytes *ru_kern_bytes_here(void)
{
    bool has = cpu_has(RU_KERN_AVX512) && __builtin_cpu_supports("avx512vnni") &&
               __builtin_cpu_supports("avx512vbmi");
    return has ? &rui_kern_bytes_vnni : NULL;
}
#else
const ru_kern_bytes *ru_kern_bytes_here(void)
{
    return NULL;
}

const ru_kern *ru_kern_at(ru_kern_level level)
{
    return level == RU_KERN_BASE ? &rui_kern_table_base : NULL;
}

const ru_kern_numbers *ru_kern_numbers_at(ru_kern_level level)
{
    return level == RU_KERN_BASE ? &rui_kern_numbers_base : NULL;
}
#endif

const ru_kern *ru_kern_best(void)
{
    for (int level = RU_KERN_LEVELS - 1; level >= 0; level--) {
        const ru_kern *k = ru_kern_at((ru_kern_level)level);
        if (k != NULL) {
            return k;
        }
    }
    return &rui_kern_table_base;
}

const ru_kern_numbers *ru_kern_numbers_best(void)
{
    for (int level = RU_KERN_LEVELS - 1; level > 0; level--) {
        const ru_kern_numbers *k = ru_kern_numbers_at((ru_kern_level)level);
        if (k != NULL) {
            return k;
        }
    }
    return &rui_kern_numbers_base;
}

const ru_kern_sides *ru_kern_sides_best(void)
{
    static const ru_kern_sides *const sides[] = {
        &rui_kern_sides_base,
#ifdef RU_KERN_X86
        &rui_kern_sides_avx2, &rui_kern_sides_avx512, &rui_kern_sides_avx512, /* avx512_bf16 */
#endif
    };
    uint32_t level = RU_ARRAY_LEN(sides) - 1;
    while (level > 0 && ru_kern_at((ru_kern_level)level) == NULL) {
        level--;
    }
    return sides[level];
}

ru_kern_adam ru_kern_adam_step(double lr, double gscale, double beta1, double beta2, double epsilon,
                               double weight_decay, bool decoupled, int64_t t)
{
    double c1 = 1.0 - pow(beta1, (double)t), c2 = 1.0 - pow(beta2, (double)t);
    return (ru_kern_adam){
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .epsilon = (float)epsilon,
        .gscale = (float)gscale,
        .decay = decoupled ? 0.0f : (float)weight_decay,
        .shrink = decoupled ? (float)(1.0 - lr * weight_decay) : 1.0f,
        .step_size = (float)(lr / c1),
        .root_scale = (float)(1.0 / sqrt(c2)),
    };
}
