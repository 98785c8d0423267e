/* Kernels of apps are compiled once for each instruction set; kern.c picks one at run time.
 *
 * Thread: any. */
#ifndef RU_APPS_KERN_IMPL_H
#define RU_APPS_KERN_IMPL_H

#ifndef RU_KERN_ISA
#define RU_KERN_ISA base
#endif
#define RUI_APP_K2(name, isa) name##_##isa
#define RUI_APP_K1(name, isa) RUI_APP_K2(name, isa)
#define RUI_APP_K(name)       RUI_APP_K1(name, RU_KERN_ISA)

#ifdef __GNUC__
#define RUI_APP_INLINE   static inline __attribute__((always_inline))
#define RUI_APP_FETCH(p) __builtin_prefetch((const void *)(p))
#else
#define RUI_APP_INLINE   static inline
#define RUI_APP_FETCH(p) ((void)0)
#endif

#ifdef RU_KERN_X86
#define RUI_APP_ISAS(X)      X(base) X(avx2) X(avx512)
#define RUI_APP_COPIES(name) name##_base, name##_avx2, name##_avx512
#else
#define RUI_APP_ISAS(X)      X(base)
#define RUI_APP_COPIES(name) name##_base
#endif

#include "apps/lda_impl.h"
#include "apps/mf_kern.h"

#define RUI_X(isa)                                                                        \
    void rui_lda_sample_##isa(rui_lda_corpus *c, uint32_t b, float *rows, uint64_t seed); \
    double rui_mf_sgd_##isa(const rui_mf_ratings *r, const rui_mf_step *s);
RUI_APP_ISAS(RUI_X)
#undef RUI_X

#endif
