/* Which algorithm a convolution takes: direct or Winograd F(4x3,3x3).
 *
 * Asked to (options.autotune), both are timed on the very shape while the executable opens: one run
 * to warm, then the better of two (a few milliseconds per shape; 30 for a layer of ResNet-18 at
 * batch 64). Answers are kept in `cache_dir`, one line each, in a file named by CPU model and
 * version of oneDNN, so that a shape is timed once per machine.
 *
 * Without measurement the library's own rule for "auto" decides; it is conservative: measured on
 * Zen5, forward and both gradients of 3x3 layers at batch 32, Winograd runs at 352 to 457 GFLOP/s
 * of direct work against 241 to 251, and at batch 4 it still wins for wide images (516 against 240
 * at 64x56x56) where "auto" stays direct, but loses at 512x7x7 (104 against 170). */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "exec/cpu/low/conv.h"
#include "exec/cpu/low/low.h"
#include "plan/row/policy.h"
#include "plan/step/kernel.h"

enum { TUNE_ARGS = 5, TUNE_FILE_MAX = 4 << 20 };

static bool winograd_fits(const rui_conv *c)
{
    const rui_window *w = &c->w;
    if (w->nsp != 2 || w->groups != 1 || w->ci < 16 || w->co < 16) {
        return false;
    }
    for (int d = 0; d < 2; d++) {
        if (w->kernel[d] != 3 || w->stride[d] != 1 || w->dilate[d] != 0 || w->pad_l[d] > 1 ||
            w->pad_r[d] > 1) {
            return false;
        }
    }
    return true;
}

/* Converting activations to f32 and back for a Winograd kernel on the bf16 path: 6 bytes an element
 * at about 12 GB/s, so that a tie goes to the kernel without it. */
static int64_t convert_ns(const rui_conv *c)
{
    const rui_window *w = &c->w;
    int64_t n = w->n * (w->ci * w->in[0] * w->in[1] + w->co * w->out[0] * w->out[1]);
    return n / 2;
}

/* -- measuring
 * ------------------------------------------------------------------------------------- */

typedef struct trial {
    const rui_dnnl *nn;
    dnnl_primitive_t prim;
    dnnl_exec_arg_t args[TUNE_ARGS];
    int n_args;
} trial;

static bool trial_arg(trial *t, rui_low *lo, const_dnnl_primitive_desc_t pd, int arg,
                      ru_arena *memory)
{
    dnnl_memory_desc_t md = rui_pd_md(lo, pd, arg);
    if (md.ndims == 0) {
        return true;
    }
    void *p = ru_arena_zalloc(memory, (int64_t)t->nn->memory_desc_get_size(&md) + 64, 64);
    dnnl_exec_arg_t *a = &t->args[t->n_args];
    a->arg = arg;
    if (p == NULL || t->nn->memory_create(&a->memory, &md, t->nn->engine, p) != dnnl_success) {
        return false;
    }
    t->n_args++;
    return true;
}

static bool trial_make(trial *t, rui_low *lo, rui_conv_dir dir, const_dnnl_primitive_desc_t pd,
                       ru_arena *memory)
{
    static const int args[3][4] = {
        [RUI_CONV_FWD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        [RUI_CONV_BWD_X] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC,
                            DNNL_ARG_SCRATCHPAD},
        [RUI_CONV_BWD_W] = {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS,
                            DNNL_ARG_SCRATCHPAD},
    };
    if (t->nn->primitive_create(&t->prim, pd) != dnnl_success) {
        return false;
    }
    for (int k = 0; k < 4; k++) {
        if (!trial_arg(t, lo, pd, args[dir][k], memory)) {
            return false;
        }
    }
    return true;
}

static int64_t trial_run(const trial *t)
{
    ru_time start = ru_clock_now();
    if (t->nn->primitive_execute(t->prim, t->nn->stream, t->n_args, t->args) != dnnl_success) {
        return INT64_MAX;
    }
    return ru_time_since(ru_clock_now(), start);
}

/* A pass over the result for an activation that the kernel does not take along: 8 bytes an element
 * at about 16 GB/s, functions with an exponential at 2 elements a nanosecond. */
static int64_t apart_ns(const rui_conv *c)
{
    const rui_window *w = &c->w;
    return w->n * w->co * w->out[0] * w->out[1] / 2;
}

/* Time of one run, INT64_MAX when it cannot run (then the other one is taken). */
static int64_t measure(rui_low *lo, rui_conv_dir dir, const rui_conv *c, dnnl_alg_kind_t alg)
{
    rui_conv plain = *c;
    plain.bias = false;
    bool fused = true;
    dnnl_primitive_desc_t pd = dir == RUI_CONV_FWD ? rui_conv_fwd(lo, &plain, alg, &fused)
                                                   : rui_conv_bwd(lo, dir, &plain, alg);
    if (pd == NULL) {
        return INT64_MAX;
    }
    trial t = {.nn = rui_nn(lo)};
    ru_arena memory;
    ru_arena_init(&memory, 0);
    int64_t best = INT64_MAX;
    if (trial_make(&t, lo, dir, pd, &memory)) {
        (void)trial_run(&t);
        for (int k = 0; k < 2; k++) {
            int64_t ns = trial_run(&t);
            best = ns < best ? ns : best;
        }
    }
    for (int k = 0; k < t.n_args; k++) {
        (void)t.nn->memory_destroy(t.args[k].memory);
    }
    if (t.prim != NULL) {
        (void)t.nn->primitive_destroy(t.prim);
    }
    rui_pd_free(lo, pd);
    ru_arena_fini(&memory);
    return fused || best == INT64_MAX ? best : best + apart_ns(c) / lo->threads;
}

/* -- remembering
 * ----------------------------------------------------------------------------------- */

static const char *cache_path(rui_low *lo)
{
    char cpu[256];
    ru_self_cpu(cpu, sizeof cpu);
    const dnnl_version_t *v = rui_nn(lo)->version();
    uint64_t id = ru_hash_bytes(cpu, (int64_t)strlen(cpu), 0);
    return rui_keep_printf(lo, "%s/convolutions-%016llx-%d.%d.%d", lo->opt.cache_dir,
                           (unsigned long long)id, v->major, v->minor, v->patch);
}

/* The file's text, read once per executable; "" when there is none yet or it cannot be read. */
static const char *cache_text(rui_low *lo)
{
    if (lo->tuned == NULL) {
        char *text = NULL;
        int64_t n = 0;
        lo->tuned = "";
        if (lo->opt.cache_dir != NULL &&
            ru_file_read(cache_path(lo), TUNE_FILE_MAX, lo->arena, &text, &n, NULL) == RU_OK) {
            lo->tuned = text;
        }
    }
    return lo->tuned;
}

static bool cache_find(rui_low *lo, const char *key, dnnl_alg_kind_t *alg)
{
    ru_str rest = ru_str_c(cache_text(lo));
    ru_str line;
    int64_t n = (int64_t)strlen(key);
    while (ru_str_next(&rest, '\n', &line)) {
        if (ru_str_starts(line, key) && line.n > n + 1 && line.p[n] == ' ') {
            *alg = line.p[n + 1] == 'w' ? dnnl_convolution_winograd : dnnl_convolution_direct;
            return true;
        }
    }
    return false;
}

/* Best effort: a cache that cannot be written costs time, never results. */
static void cache_add(rui_low *lo, const char *key, dnnl_alg_kind_t alg)
{
    const char *word = alg == dnnl_convolution_winograd ? "winograd" : "direct";
    char *text = ru_arena_printf(lo->arena, "%s%s %s\n", cache_text(lo), key, word);
    if (text == NULL) {
        return;
    }
    lo->tuned = text;
    if (lo->opt.cache_dir != NULL) {
        if (ru_dir_make(lo->opt.cache_dir, NULL) == RU_OK) {
            (void)(ru_file_own(cache_path(lo), text, (int64_t)strlen(text), NULL) == RU_OK);
        }
    }
}

/* The choice between both as the policy `kernel` has it. */
static bool decide(rui_low *lo, const char *key, const ru_kernel_candidate two[2])
{
    ru_kernel_in *in = rui_keep(lo, sizeof *in);
    ru_kernel_candidate *kept = ru_arena_copy(lo->arena, two, 2 * (int64_t)sizeof *two, 8);
    ru_kernel_plan plan = {0};
    if (in == NULL || kept == NULL) {
        return false; /* the usual one; the sticky error ends the lowering */
    }
    in->op = rui_keep_printf(lo, "Conv %s", key);
    in->candidates.at = kept;
    in->candidates.n = 2;
    if (ru_plan_kernel(in, &plan, NULL) != RU_OK) {
        return false; /* none ran: direct says why it cannot when it is made */
    }
    RU_CHECK(ru_plan_kernel_check(in, &plan, NULL) == RU_OK);
    rui_low_installed(lo, &ru_policy_kernel, in);
    return plan.at == 1;
}

/* Both candidates timed. On the bf16 path Winograd runs in f32: oneDNN has it in no other type, and
 * for small images with many channels it is the faster one (8x8x256 at batch 64: 9.7 ms
 * against 12.5). */
static bool winograd_wins(rui_low *lo, rui_conv_dir dir, const rui_conv *c, const char *key)
{
    rui_conv w = *c;
    w.act = dnnl_f32;
    int64_t direct = measure(lo, dir, c, dnnl_convolution_direct);
    int64_t winograd = measure(lo, dir, &w, dnnl_convolution_winograd);
    bool converts = c->act != dnnl_f32 || lo->inference;
    const ru_kernel_candidate two[2] = {
        {.name = "direct", .ns = direct == INT64_MAX ? 0 : (double)direct},
        {.name = "winograd",
         .ns = winograd == INT64_MAX ? 0 : (double)winograd,
         .extra_ns = converts ? (double)(convert_ns(c) / lo->threads) : 0}};
    return decide(lo, key, two);
}

dnnl_alg_kind_t rui_conv_alg(rui_low *lo, rui_conv_dir dir, rui_conv *c)
{
    static const char *const dirs[] = {"forward", "data", "weights"};
    const rui_window *w = &c->w;
    if (!winograd_fits(c) || (c->act != dnnl_f32 && !lo->opt.autotune)) {
        return dnnl_convolution_direct;
    }
    if (!lo->opt.autotune) {
        return dnnl_convolution_auto;
    }
    char key[160];
    (void)snprintf(key, sizeof key, "%s%s%s%s n%lld c%lld k%lld %lldx%lld p%lld%lld%lld%lld t%u",
                   dirs[dir], c->act == dnnl_f32 ? "" : " bf16", lo->inference ? " infer" : "",
                   c->post.has_act ? rui_keep_printf(lo, " act%d", (int)c->post.act) : "",
                   (long long)w->n, (long long)w->ci, (long long)w->co, (long long)w->in[0],
                   (long long)w->in[1], (long long)w->pad_l[0], (long long)w->pad_l[1],
                   (long long)w->pad_r[0], (long long)w->pad_r[1], lo->threads);
    dnnl_alg_kind_t alg = dnnl_convolution_direct;
    bool known = cache_find(lo, key, &alg);
    if (!known && lo->opt.tuned_only) {
        return c->act == dnnl_f32 ? dnnl_convolution_auto : dnnl_convolution_direct;
    }
    if (!known) {
        alg = winograd_wins(lo, dir, c, key) ? dnnl_convolution_winograd : dnnl_convolution_direct;
        cache_add(lo, key, alg);
    }
    c->act = alg == dnnl_convolution_winograd ? dnnl_f32 : c->act;
    return alg;
}
