/* Convolutions of row-major images whose windows do not overlap and meet no padding (images
 * cut into patches, images halved): ru_kern_patch. Their columns would be a copy of the image.
 *
 * One core (Zen 5), time by a product of columns (lower_kern_rows.c) over that of these: 1.8 of two
 * images of 64 channels, 28x28, to 128 by 2x2 windows; 1.3 of 224x224 to 96 by 8x8. */
#include "exec/cpu/kern/numbers.h"
#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"
#include "exec/cpu/lower/lower_kern.h"

enum {
    AXES = 3,
    DEPTH_LEAST = 8,
    DEPTH_MOST = 1024,
    CHANNELS_LEAST = 16, /* of a group of the result: fewer leave lanes empty */
    PLACES_LEAST = 4,    /* of a row: fewer leave registers empty */
    PLACES_MOST = 1024,  /* of a row, which one thread computes, in memory of its own */
};

typedef struct patch_state {
    const ru_kern_numbers *k;
    ru_kern_patch g;       /* of a group */
    int64_t groups, image; /* of x: floats of a group */
    int64_t rows, packed;  /* of y: rows of a group; floats */
} patch_state;

enum { P_X, P_PACKED, P_BIAS, P_Y, P_WORK, P_BUFS };

/* bufs: w, packed */
static void pack_part(const void *state, void *const *bufs, int64_t begin, int64_t end)
{
    const patch_state *s = state;
    for (int64_t i = begin; i < end; i++) {
        s->k->patch_pack(&s->g, (const float *)bufs[0] + i * s->g.co * s->g.depth,
                         (float *)bufs[1] + i * s->packed);
    }
}

static ru_status pack_run(void *state, void *const *bufs, const rui_run *run)
{
    const patch_state *s = state;
    rui_kern_for(run, pack_part, s, bufs, s->groups, 1);
    return RU_OK;
}

static void patch_part(const void *state, void *const *bufs, int64_t begin, int64_t end, void *own)
{
    const patch_state *s = state;
    const int64_t plane = s->rows * s->g.out[2];
    for (int64_t r = begin, next; r < end; r = next) {
        int64_t part = r / s->rows, group = part % s->groups, first = part * s->rows;
        const float *bias = bufs[P_BIAS];
        next = first + s->rows < end ? first + s->rows : end;
        s->k->patch(&s->g, (const float *)bufs[P_X] + part * s->image,
                    (const float *)bufs[P_PACKED] + group * s->packed,
                    bias != NULL ? bias + group * s->g.co : NULL, r - first, next - first,
                    (float *)bufs[P_Y] + part * s->g.co * plane, own);
    }
}

typedef struct patch_call {
    patch_state s;
    int64_t parts; /* images * groups */
} patch_call;

static ru_status patch_run(void *state, void *const *bufs, const rui_run *run)
{
    const patch_call *c = state;
    const patch_state *s = &c->s;
    rui_kern_for_own(run, patch_part, s, bufs, c->parts * s->rows,
                     rui_kern_grain(s->g.out[2] * s->g.co * s->g.depth / 32), bufs[P_WORK],
                     s->k->patch_work(&s->g) * (int64_t)sizeof(float));
    return RU_OK;
}

/* False: not such a convolution. */
static bool plan(rui_low *lo, const rui_window *w, patch_call *c)
{
    const rui_cube s = rui_cube_of(w);
    const int64_t *kernel = s.kernel, *stride = s.stride, *dilate = s.dilate, *in = s.in;
    const int64_t *out = s.out;
    bool apart = s.inside;
    for (int k = 0; k < AXES; k++) {
        apart = apart && stride[k] >= kernel[k];
    }
    int64_t ci = w->ci / w->groups, image = in[0] * in[1] * in[2];
    ru_kern_patch g = {.depth = ci * s.taps,
                       .co = w->co / w->groups,
                       .out = {out[0], out[1], out[2]},
                       .step = {stride[0] * in[1] * in[2], stride[1] * in[2], stride[2]}};
    if (!apart || stride[0] * stride[1] * stride[2] == 1 || g.depth < DEPTH_LEAST ||
        g.depth > DEPTH_MOST || g.co < CHANNELS_LEAST || out[2] < PLACES_LEAST ||
        out[2] > PLACES_MOST || w->n < 1 || out[0] < 1 || out[1] < 1 || ci * image > INT32_MAX) {
        return false;
    }
    int32_t *at = rui_keep(lo, g.depth * (int64_t)sizeof *at);
    for (int64_t i = 0; at != NULL && i < g.depth; i++) {
        int64_t e = i % kernel[2], b = i / kernel[2] % kernel[1];
        int64_t a = i / kernel[2] / kernel[1] % kernel[0],
                ch = i / kernel[2] / kernel[1] / kernel[0];
        at[i] =
            (int32_t)(ch * image + (a * dilate[0] * in[1] + b * dilate[1]) * in[2] + e * dilate[2]);
    }
    g.at = at;
    const ru_kern_numbers *k = ru_kern_numbers_best();
    *c = (patch_call){.s = {.k = k,
                            .g = g,
                            .groups = w->groups,
                            .image = ci * image,
                            .rows = out[0] * out[1],
                            .packed = (k->patch_floats(&g) + 15) / 16 * 16},
                      .parts = w->n * w->groups};
    return true;
}

ru_status rui_lower_kern_patch(rui_low *lo, const ru_node *n, ru_err *err)
{
    (void)err;
    rui_window w;
    patch_call made;
    if (ru_kern_at(RU_KERN_AVX512) == NULL || !rui_inference(lo) ||
        !rui_conv_plain(lo, n, false, &w) || !rui_leaves(lo, n) ||
        !rui_standing(lo, n->in[0])->plain || !plan(lo, &w, &made)) {
        return RU_E_UNSUPPORTED;
    }
    patch_call *c = rui_keep(lo, (int64_t)sizeof *c);
    if (c == NULL || made.s.g.at == NULL) {
        return rui_done(lo);
    }
    *c = made;
    const int64_t bytes = c->s.groups * c->s.packed * (int64_t)sizeof(float);
    bool frozen = lo->vals[n->in[1].v].frozen;
    rui_buf pack[2] = {rui_in_plain(lo, n->in[1])};
    pack[1] = frozen ? rui_buf_new(lo, RUI_BUF_PACKED, bytes) : rui_workspace(lo, bytes);
    rui_step packs = {
        .kernel = "kern patch pack", .fn = pack_run, .state = &c->s, .bufs = pack, .n_bufs = 2};
    rui_emit_to(lo, frozen ? &lo->prep : &lo->run, &packs, frozen ? 0 : lo->node);
    rui_buf bufs[P_BUFS] = {[P_X] = rui_in_plain(lo, n->in[0]), [P_PACKED] = pack[1]};
    bufs[P_BIAS] = ru_node_has_in(n, 2) ? rui_in_plain(lo, n->in[2]) : (rui_buf){0};
    bufs[P_Y] = rui_out_plain(lo, n->out[0]);
    bufs[P_WORK] =
        rui_scratch(lo, made.s.k->patch_work(&c->s.g) * rui_threads(lo) * (int64_t)sizeof(float));
    rui_emit(lo, &(rui_step){.kernel = "kern conv patches",
                             .fn = patch_run,
                             .state = c,
                             .bufs = bufs,
                             .n_bufs = P_BUFS});
    rui_act_emit(lo, n);
    return rui_done(lo);
}
