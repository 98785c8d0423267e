/* Which copy of the kernels this processor can run. */
#include "apps/kern_impl.h"

enum { BASE, AVX2, AVX512 };

static int best(void)
{
#ifdef RU_KERN_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
        return AVX512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return AVX2;
    }
#endif
    return BASE;
}

void rui_lda_sample(rui_lda_corpus *c, uint32_t b, float *rows, uint64_t seed)
{
    static void (*const copies[])(rui_lda_corpus *, uint32_t, float *,
                                  uint64_t) = {RUI_APP_COPIES(rui_lda_sample)};
    copies[best()](c, b, rows, seed);
}

double rui_mf_sgd(const rui_mf_ratings *r, const rui_mf_step *s)
{
    static double (*const copies[])(const rui_mf_ratings *,
                                    const rui_mf_step *) = {RUI_APP_COPIES(rui_mf_sgd)};
    return copies[best()](r, s);
}
