/* Models on sequences: lstm, gpt, and vit (a sequence of image patches).
 *
 * Activations of the transformers stay [N*T, C] between attentions, so that every linear layer is
 * one Gemm. Source: gpt: Radford et al. 2019 (pre-norm, tanh GELU, learned positions) with GPT-2's
 * names; linear weights are [out, in]. vit: Dosovitskiy et al., ICLR 2021, with torchvision's
 * names; it takes the mean over patches where the paper has a class token. */
#include <math.h>
#include <string.h>

#include "train/model/zoo_impl.h"

static int64_t or_default(int64_t x, int64_t dflt)
{
    return x != 0 ? x : dflt;
}

/* -- lstm -------------------------------------------------------------------------------------- */

/* One layer over x [T,N,in] -> [T,N,width]. Weights stand as ONNX has them: gates in the order
 * i, o, f, c along the second axis. */
static ru_value_id lstm_layer(rui_zoo *z, ru_value_id x, int64_t layer, int64_t width)
{
    int64_t in = rui_zoo_dim(z, x, 2);
    double bound = 1.0 / sqrt((double)width);
    const char *p = rui_zoo_name_k(z, "lstm", layer);
    ru_value_id args[4] = {x};
    args[1] =
        rui_zoo_param(z, p, "W", (int64_t[]){1, 4 * width, in}, 3, RU_INIT_UNIFORM, bound, in);
    args[2] = rui_zoo_param(z, p, "R", (int64_t[]){1, 4 * width, width}, 3, RU_INIT_UNIFORM, bound,
                            width);
    args[3] = rui_zoo_param(z, p, "B", (int64_t[]){1, 8 * width}, 2, RU_INIT_UNIFORM, bound, width);
    ru_value_id out[4] = {{0}};
    ru_build_node(&z->b, z->train ? RU_OP_LSTMTrain : RU_OP_LSTM, args, 4,
                  (ru_attr[]){RU_AI(hidden_size, width), RU_A_END}, out, z->train ? 4 : 1);
    int64_t t = rui_zoo_dim(z, x, 0); /* [T,1,N,width]: one direction */
    return rui_zoo_reshape(z, out[0], (int64_t[]){t, -1, width}, 3);
}

static const int64_t perm_swap[3] = {1, 0, 2}, perm_swap2[2] = {1, 0};

ru_status rui_zoo_lstm(rui_zoo *z, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    bool tokens = o->vocab > 0;
    int64_t layers = or_default(o->layers, 2), width = or_default(o->width, 256);
    int64_t context = o->context != 0 ? o->context : o->input_rank > 0 ? o->input[0] : 64;
    RU_TRY(rui_zoo_range(z, "layers", layers, 1, 64, err));
    RU_TRY(rui_zoo_range(z, "width", width, 1, 1 << 16, err));
    RU_TRY(rui_zoo_range(z, "context", context, 1, 1 << 20, err));
    ru_value_id x;
    if (tokens) {
        RU_TRY(rui_zoo_range(z, "vocab", o->vocab, 2, 1 << 24, err));
        ru_value_id ids = rui_zoo_input(z, "ids", RU_I64, &context, 1);
        ids = ru_build_op1(&z->b, RU_OP_Transpose, ids,
                           (ru_attr[]){RU_AIS(perm, perm_swap2, 2), RU_A_END});
        ru_value_id table = rui_zoo_param(z, "embedding", "weight", (int64_t[]){o->vocab, width}, 2,
                                          RU_INIT_NORMAL, 1.0, width);
        x = ru_build_op2(&z->b, RU_OP_Gather, table, ids, (ru_attr[]){RU_AI(axis, 0), RU_A_END});
    } else {
        if (o->input_rank != 2) {
            return RU_FAIL(err, RU_E_CONFIG,
                           "model lstm needs samples [time, features] or tokens (vocab), but a "
                           "sample of the data has %u dimensions",
                           o->input_rank);
        }
        RU_TRY(rui_zoo_classes(z, err));
        x = rui_zoo_input(z, "x", RU_F32, o->input, 2);
        x = ru_build_op1(&z->b, RU_OP_Transpose, x,
                         (ru_attr[]){RU_AIS(perm, perm_swap, 3), RU_A_END});
    }
    for (int64_t k = 0; k < layers; k++) {
        x = lstm_layer(z, x, k, width);
        x = rui_zoo_dropout(z, x, o->dropout);
    }
    if (tokens) {
        x = ru_build_op1(&z->b, RU_OP_Transpose, x,
                         (ru_attr[]){RU_AIS(perm, perm_swap, 3), RU_A_END});
        x = rui_zoo_reshape(z, x, (int64_t[]){-1, width}, 2);
        x = rui_zoo_linear(z, x, "head", o->vocab, true, 0);
        x = rui_zoo_reshape(z, x, (int64_t[]){-1, context, o->vocab}, 3);
    } else { /* the last time step */
        ru_value_id last = ru_build_const_i64s(&z->b, (int64_t[]){o->input[0] - 1}, 1);
        x = ru_build_op2(&z->b, RU_OP_Gather, x, last, (ru_attr[]){RU_AI(axis, 0), RU_A_END});
        x = rui_zoo_reshape(z, x, (int64_t[]){-1, width}, 2);
        x = rui_zoo_linear(z, x, "head", o->classes, true, 0);
    }
    ru_build_output(&z->b, x, "logits");
    z->out->tokens = tokens;
    return RU_OK;
}

/* -- transformer blocks ------------------------------------------------------------------------ */

typedef struct block_names {
    const char *ln1, *qkv, *proj, *ln2, *fc, *fc_proj;
} block_names;

typedef struct block_shape {
    int64_t context, width, heads;
    int64_t positions;             /* gpt: that have vectors; context is at most that */
    double epsilon, std, std_proj; /* std 0: Linear's default start */
    bool causal, bias;
    const char *approximate;   /* of Gelu */
    const ru_zoo_steps *steps; /* NULL: whole sequences */
    ru_value_id slot, at;      /* of steps */
} block_shape;

/* qkv [N*T, 3*C] -> [N*T, C] */
static ru_value_id attend(rui_zoo *z, ru_value_id qkv, const block_shape *s)
{
    double scale = 1.0 / sqrt((double)(s->width / s->heads));
    ru_value_id att[2] = {{0}};
    qkv = rui_zoo_reshape(z, qkv, (int64_t[]){-1, s->context, 3 * s->width}, 3);
    ru_build_node(&z->b, RU_OP_AttentionQkv, &qkv, 1,
                  (ru_attr[]){RU_AI(heads, s->heads), RU_AI(causal, s->causal), RU_AF(scale, scale),
                              RU_A_END},
                  att, z->train ? 2 : 1);
    return rui_zoo_reshape(z, att[0], (int64_t[]){-1, s->width}, 2);
}

/* qkv [rows, 3*C] of new positions -> [rows, C], on the caches of layer `name`. */
static ru_value_id attend_cached(rui_zoo *z, ru_value_id qkv, const char *name,
                                 const block_shape *s)
{
    const ru_zoo_steps *o = s->steps;
    double scale = 1.0 / sqrt((double)(s->width / s->heads));
    ru_type t = ru_type_make(o->bf16 ? RU_BF16 : RU_F32, 4,
                             (int64_t[]){o->slots, s->heads, s->context, s->width / s->heads});
    ru_value_id in[5] = {qkv}, out[3] = {{0}};
    in[1] = ru_build_state(&z->b, rui_zoo_name(z, name, "keys"), t, RU_ROLE_CACHE, NULL);
    in[2] = ru_build_state(&z->b, rui_zoo_name(z, name, "values"), t, RU_ROLE_CACHE, NULL);
    in[3] = s->slot;
    in[4] = s->at;
    ru_build_node(&z->b, RU_OP_AttentionCached, in, 5, (ru_attr[]){RU_AF(scale, scale), RU_A_END},
                  out, 3);
    ru_build_update(&z->b, in[1], out[1]);
    ru_build_update(&z->b, in[2], out[2]);
    return out[0];
}

/* x [N*T, C] -> [N*T, C], pre-norm. */
static ru_value_id block(rui_zoo *z, ru_value_id x, const block_names *n, const block_shape *s)
{
    ru_value_id h = rui_zoo_layer_norm(z, x, n->ln1, s->epsilon);
    h = rui_zoo_linear(z, h, n->qkv, 3 * s->width, s->bias, s->std);
    h = s->steps == NULL ? attend(z, h, s) : attend_cached(z, h, n->qkv, s);
    h = rui_zoo_linear(z, h, n->proj, s->width, s->bias, s->std_proj);
    h = rui_zoo_dropout(z, h, z->opt->dropout);
    x = ru_build_op2(&z->b, RU_OP_Add, x, h, NULL);
    h = rui_zoo_layer_norm(z, x, n->ln2, s->epsilon);
    h = rui_zoo_linear(z, h, n->fc, 4 * s->width, s->bias, s->std);
    h = ru_build_op1(&z->b, RU_OP_Gelu, h,
                     (ru_attr[]){RU_AS(approximate, s->approximate), RU_A_END});
    h = rui_zoo_linear(z, h, n->fc_proj, s->width, s->bias, s->std_proj);
    h = rui_zoo_dropout(z, h, z->opt->dropout);
    return ru_build_op2(&z->b, RU_OP_Add, x, h, NULL);
}

/* in_proj of PyTorch's MultiheadAttention stands without a dot: name_weight, name_bias. The zoo
 * keeps the dot for both models. */
static block_names names_of(rui_zoo *z, const char *p, bool vit)
{
    return (block_names){
        .ln1 = rui_zoo_name(z, p, "ln_1"),
        .qkv = rui_zoo_name(z, p, vit ? "self_attention.in_proj" : "attn.c_attn"),
        .proj = rui_zoo_name(z, p, vit ? "self_attention.out_proj" : "attn.c_proj"),
        .ln2 = rui_zoo_name(z, p, "ln_2"),
        .fc = rui_zoo_name(z, p, vit ? "mlp.0" : "mlp.c_fc"),
        .fc_proj = rui_zoo_name(z, p, vit ? "mlp.3" : "mlp.c_proj"),
    };
}

static ru_status check_heads(const rui_zoo *z, int64_t layers, int64_t heads, int64_t width,
                             ru_err *err)
{
    RU_TRY(rui_zoo_range(z, "layers", layers, 1, 1024, err));
    RU_TRY(rui_zoo_range(z, "width", width, 1, 1 << 16, err));
    RU_TRY(rui_zoo_range(z, "heads", heads, 1, width, err));
    if (width % heads != 0) {
        return RU_FAIL(err, RU_E_CONFIG, "model %s: width %lld is not a multiple of heads %lld",
                       z->model, (long long)width, (long long)heads);
    }
    return RU_OK;
}

/* Options with their defaults, checked. */
static ru_status gpt_shape(rui_zoo *z, int64_t *layers, block_shape *s, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    int64_t width = or_default(o->width, 256);
    int64_t heads = or_default(o->heads, width % 64 == 0 ? width / 64 : 1);
    int64_t context = o->context != 0 ? o->context : o->input_rank > 0 ? o->input[0] : 128;
    *layers = or_default(o->layers, 4);
    RU_TRY(check_heads(z, *layers, heads, width, err));
    RU_TRY(rui_zoo_range(z, "context", context, 1, 1 << 20, err));
    RU_TRY(rui_zoo_range(z, "vocab", o->vocab, 2, 1 << 24, err));
    int64_t length = or_default(o->length, context);
    RU_TRY(rui_zoo_range(z, "length", length, 1, context, err));
    *s = (block_shape){.context = length,
                       .positions = context,
                       .width = width,
                       .heads = heads,
                       .epsilon = 1e-5,
                       .std = 0.02,
                       .std_proj = 0.02 / sqrt(2.0 * (double)*layers),
                       .causal = true,
                       .bias = o->bias,
                       .approximate = "tanh",
                       .steps = z->steps};
    return RU_OK;
}

/* Tokens and their positions as vectors: [N*T, C]. */
static ru_value_id gpt_embed(rui_zoo *z, block_shape *s, ru_value_id *wte)
{
    const ru_attr *axis0 = (ru_attr[]){RU_AI(axis, 0), RU_A_END};
    int64_t vocab = z->opt->vocab;
    ru_value_id ids;
    if (s->steps == NULL) {
        ids = rui_zoo_input(z, "ids", RU_I64, &s->context, 1);
    } else {
        ru_type rows = ru_type_make(RU_I64, 1, &s->steps->rows);
        ids = ru_build_input(&z->b, "ids", rows);
        s->slot = ru_build_input(&z->b, "slot", rows);
        s->at = ru_build_input(&z->b, "at", rows);
    }
    *wte = rui_zoo_param(z, "transformer.wte", "weight", (int64_t[]){vocab, s->width}, 2,
                         RU_INIT_NORMAL, 0.02, s->width);
    ru_value_id wpe =
        rui_zoo_param(z, "transformer.wpe", "weight", (int64_t[]){s->positions, s->width}, 2,
                      RU_INIT_NORMAL, 0.02, s->width);
    ru_value_id x = ru_build_op2(&z->b, RU_OP_Gather, *wte, ids, axis0);
    if (s->steps != NULL) { /* rows that are none stand at -1, which is the last position here */
        wpe = ru_build_op2(&z->b, RU_OP_Gather, wpe, s->at, axis0);
    } else if (s->context < s->positions) { /* the first ones */
        wpe = ru_build_op3(&z->b, RU_OP_Slice, wpe, ru_build_const_i64s(&z->b, (int64_t[]){0}, 1),
                           ru_build_const_i64s(&z->b, &s->context, 1), NULL);
    }
    x = ru_build_op2(&z->b, RU_OP_Add, x, wpe, NULL);
    return rui_zoo_reshape(z, x, (int64_t[]){-1, s->width}, 2);
}

ru_status rui_zoo_gpt(rui_zoo *z, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    int64_t layers;
    block_shape s;
    ru_value_id wte;
    RU_TRY(gpt_shape(z, &layers, &s, err));
    ru_value_id x = rui_zoo_dropout(z, gpt_embed(z, &s, &wte), o->dropout);
    for (int64_t k = 0; k < layers; k++) {
        block_names n = names_of(z, rui_zoo_name_k(z, "transformer.h", k), false);
        x = block(z, x, &n, &s);
    }
    if (s.steps != NULL) {
        ru_value_id want = ru_build_input(&z->b, "want", ru_type_make(RU_I64, 1, &s.steps->wanted));
        x = ru_build_op2(&z->b, RU_OP_Gather, x, want, (ru_attr[]){RU_AI(axis, 0), RU_A_END});
    }
    x = rui_zoo_layer_norm(z, x, "transformer.ln_f", 1e-5);
    x = o->tie ? ru_build_op2(&z->b, RU_OP_Gemm, x, wte, (ru_attr[]){RU_AI(transB, 1), RU_A_END})
               : rui_zoo_linear(z, x, "lm_head", o->vocab, false, 0.02);
    if (s.steps == NULL) {
        x = rui_zoo_reshape(z, x, (int64_t[]){-1, s.context, o->vocab}, 3);
    }
    ru_build_output(&z->b, x, "logits");
    z->out->tokens = true;
    return RU_OK;
}

/* -- vit --------------------------------------------------------------------------------------- */

static const int64_t perm_patches[3] = {0, 2, 1};

ru_status rui_zoo_vit(rui_zoo *z, ru_err *err)
{
    const ru_zoo_options *o = z->opt;
    RU_TRY(rui_zoo_image(z, 4, 4096, err));
    RU_TRY(rui_zoo_classes(z, err));
    int64_t layers = or_default(o->layers, 6), width = or_default(o->width, 192);
    int64_t heads = or_default(o->heads, width % 64 == 0 ? width / 64 : 1);
    int64_t side = o->input[1] < o->input[2] ? o->input[1] : o->input[2];
    int64_t patch = or_default(o->patch, side <= 64 ? 4 : 16);
    RU_TRY(check_heads(z, layers, heads, width, err));
    RU_TRY(rui_zoo_range(z, "patch", patch, 1, side, err));
    if (o->input[1] % patch != 0 || o->input[2] % patch != 0) {
        return RU_FAIL(err, RU_E_CONFIG,
                       "model vit: images of %lldx%lld pixels cannot be split into patches of "
                       "%lld; set model.patch",
                       (long long)o->input[1], (long long)o->input[2], (long long)patch);
    }
    int64_t t = o->input[1] / patch * (o->input[2] / patch);
    block_shape s = {.context = t,
                     .width = width,
                     .heads = heads,
                     .epsilon = 1e-6,
                     .bias = true,
                     .approximate = "none"};
    ru_value_id x = rui_zoo_input(z, "x", RU_F32, o->input, 3);
    x = rui_zoo_conv(z, x, "conv_proj",
                     &(rui_conv){.out = width, .kernel = patch, .stride = patch, .bias = true});
    x = rui_zoo_reshape(z, x, (int64_t[]){-1, width, t}, 3);
    x = ru_build_op1(&z->b, RU_OP_Transpose, x,
                     (ru_attr[]){RU_AIS(perm, perm_patches, 3), RU_A_END});
    ru_value_id pos = rui_zoo_param(z, "encoder", "pos_embedding", (int64_t[]){1, t, width}, 3,
                                    RU_INIT_NORMAL, 0.02, width);
    x = ru_build_op2(&z->b, RU_OP_Add, x, pos, NULL);
    x = rui_zoo_dropout(z, rui_zoo_reshape(z, x, (int64_t[]){-1, width}, 2), o->dropout);
    for (int64_t k = 0; k < layers; k++) {
        const char *p =
            ru_arena_printf(z->b.g->arena, "encoder.layers.encoder_layer_%lld", (long long)k);
        block_names n = names_of(z, p != NULL ? p : "", true);
        x = block(z, x, &n, &s);
    }
    x = rui_zoo_layer_norm(z, x, "encoder.ln", 1e-6);
    x = rui_zoo_reshape(z, x, (int64_t[]){-1, t, width}, 3);
    x = ru_build_op2(&z->b, RU_OP_ReduceMean, x, ru_build_const_i64s(&z->b, (int64_t[]){1}, 1),
                     (ru_attr[]){RU_AI(keepdims, 0), RU_A_END});
    x = rui_zoo_linear(z, x, "heads.head", o->classes, true, 0);
    ru_build_output(&z->b, x, "logits");
    return RU_OK;
}
