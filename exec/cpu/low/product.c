/* Our own product as a step. */
#include "exec/cpu/low/conv.h"
#include "exec/cpu/lower/lower_kern.h"

typedef struct product_state {
    const ru_kern *k;
    ru_kern_product proto;
    int64_t work; /* floats of one thread */
    bool by_rows; /* threads share out rows of C, else columns */
} product_state;

enum { P_A, P_B, P_BIAS, P_C, P_WORK, P_BUFS };

static void product_part(const void *state, void *const *bufs, int64_t begin, int64_t end,
                         void *work)
{
    const product_state *s = state;
    ru_kern_product g = s->proto;
    g.a = bufs[P_A];
    g.b = bufs[P_B];
    g.bias = bufs[P_BIAS];
    g.c = bufs[P_C];
    if (s->by_rows) {
        s->k->product(&g, begin, end, 0, g.n, work);
    } else {
        s->k->product(&g, 0, g.m, begin, end, work);
    }
}

static ru_status product_run(void *state, void *const *bufs, const rui_run *run)
{
    const product_state *s = state;
    rui_kern_for_own(run, product_part, s, bufs, s->by_rows ? s->proto.m : s->proto.n, 48,
                     bufs[P_WORK], s->work * (int64_t)sizeof(float));
    return RU_OK;
}

bool rui_product_pays(int64_t m, int64_t n, int64_t k, int64_t a_row)
{
    enum { LONG = 256, WIDE = 64 };
    return ru_kern_best() == ru_kern_at(RU_KERN_AVX2) && a_row == 1 && k >= LONG && m >= WIDE &&
           n >= WIDE;
}

ru_status rui_product_emit(rui_low *lo, const ru_kern_product *g, rui_buf a, rui_buf b,
                           rui_buf bias, rui_buf c)
{
    product_state *s = rui_keep(lo, (int64_t)sizeof *s);
    if (s == NULL) {
        return rui_done(lo);
    }
    s->k = ru_kern_best();
    s->proto = *g;
    s->by_rows = g->m >= g->n;
    s->work = s->k->product_work(g->m, g->n, g->k);
    rui_buf bufs[P_BUFS] = {[P_A] = a, [P_B] = b, [P_BIAS] = bias, [P_C] = c};
    bufs[P_WORK] = rui_scratch(lo, s->work * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern product",
                             .fn = product_run,
                             .state = s,
                             .bufs = bufs,
                             .n_bufs = P_BUFS});
    return rui_done(lo);
}
