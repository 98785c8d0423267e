/* Floating-point operations and bytes of a node, from its concrete types.
 *
 * A multiply and an add count as two. Transcendental functions count as one: the figures serve to
 * compare work, not to predict time. */
#include "world/graph/graph.h"

static int64_t count_of(const ru_graph *g, const ru_value_id *ids, uint32_t n, uint32_t k)
{
    if (k >= n || ids[k].v == 0) {
        return 0;
    }
    int64_t c = ru_type_count(&g->values[ids[k].v].type);
    return c < 0 ? 0 : c;
}

static int64_t in_count(const ru_graph *g, const ru_node *n, uint32_t k)
{
    return count_of(g, n->in, n->n_in, k);
}

static int64_t out_count(const ru_graph *g, const ru_node *n, uint32_t k)
{
    return count_of(g, n->out, n->n_out, k);
}

static const ru_type *in_type(const ru_graph *g, const ru_node *n, uint32_t k)
{
    return &g->values[k < n->n_in ? n->in[k].v : 0].type;
}

static int64_t elem(const ru_graph *g, const ru_node *n)
{
    return out_count(g, n, 0);
}

static int64_t elem_in(const ru_graph *g, const ru_node *n)
{
    int64_t sum = 0;
    uint32_t all = n->op == RU_OP_GlobalNorm ? n->n_in : 1;
    for (uint32_t k = 0; k < all; k++) {
        sum += in_count(g, n, k);
    }
    return n->op == RU_OP_GlobalNorm ? 2 * sum : sum;
}

static int64_t matmul(const ru_graph *g, const ru_node *n)
{
    const ru_type *a = in_type(g, n, 0);
    uint32_t t = ru_node_int(n, RU_ATTR_transA, 0) != 0 ? 1 : 0;
    int64_t k = a->rank == 0 ? 1 : a->rank == 1 ? a->dims[0] : a->dims[a->rank - 1 - t];
    return 2 * out_count(g, n, 0) * (k > 0 ? k : 0);
}

/* Products of one multiplication per weight and position. */
static int64_t conv_like(int64_t positions, int64_t weights, int64_t out_channels)
{
    return out_channels > 0 ? 2 * positions * (weights / out_channels) : 0;
}

static int64_t conv(const ru_graph *g, const ru_node *n)
{
    const ru_type *w = in_type(g, n, 1);
    return conv_like(out_count(g, n, 0), in_count(g, n, 1), w->rank > 0 ? w->dims[0] : 0);
}

static int64_t convtranspose(const ru_graph *g, const ru_node *n)
{
    const ru_type *w = in_type(g, n, 1);
    return conv_like(in_count(g, n, 0), in_count(g, n, 1), w->rank > 0 ? w->dims[0] : 0);
}

/* Both gradients of a convolution do the products of the forward pass. Conv: positions of dy;
 * ConvTranspose: positions of x. */
static int64_t conv_grad(const ru_graph *g, const ru_node *n)
{
    bool x = n->op == RU_OP_ConvGradX || n->op == RU_OP_ConvTransposeGradX;
    bool transpose = n->op == RU_OP_ConvTransposeGradX || n->op == RU_OP_ConvTransposeGradW;
    uint32_t w = x ? 1 : 2;
    const ru_type *wt = in_type(g, n, w);
    int64_t positions = in_count(g, n, transpose ? (x ? 2 : 1) : 0);
    return conv_like(positions, in_count(g, n, w), wt->rank > 0 ? wt->dims[0] : 0);
}

static int64_t window_size(const ru_node *n)
{
    uint32_t rank;
    const int64_t *k = ru_node_ints(n, RU_ATTR_kernel_shape, &rank);
    int64_t size = 1;
    for (uint32_t i = 0; i < rank; i++) {
        size = ru_dim_mul(size, k[i]);
    }
    return size > 0 ? size : 0;
}

static int64_t pool(const ru_graph *g, const ru_node *n)
{
    return out_count(g, n, 0) * window_size(n);
}

static int64_t pool_grad(const ru_graph *g, const ru_node *n)
{
    return in_count(g, n, 0) * window_size(n);
}

static int64_t softmax(const ru_graph *g, const ru_node *n)
{
    return 4 * in_count(g, n, 0);
}

static int64_t norm(const ru_graph *g, const ru_node *n)
{
    return 8 * in_count(g, n, 0);
}

/* Multiplications of an Einsum are bounded by the product of all label sizes; for two inputs that
 * equals in0 * in1 / shared, which is not known without the equation: count by output times the
 * elements of input 0 that the output has not. */
static int64_t einsum(const ru_graph *g, const ru_node *n)
{
    int64_t out = out_count(g, n, 0);
    int64_t a = in_count(g, n, 0);
    int64_t b = n->n_in > 1 ? in_count(g, n, 1) : 1;
    if (out <= 0 || a <= 0 || b <= 0) {
        return 0;
    }
    double k = __builtin_sqrt((double)a * (double)b / (double)out);
    return 2 * out * (int64_t)(k < 1.0 ? 1.0 : k);
}

/* Forward: q k^T and p v, 2 * 2 * B*H*Tq*Tk*D; backward has five such products instead of two. */
static int64_t attention_products(const ru_graph *g, const ru_node *n)
{
    bool qkv = n->op == RU_OP_AttentionQkv || n->op == RU_OP_AttentionQkvGrad;
    bool grad = n->op == RU_OP_AttentionGrad || n->op == RU_OP_AttentionQkvGrad;
    const ru_type *k = in_type(g, n, qkv ? (grad ? 1 : 0) : (grad ? 2 : 1));
    int64_t q = in_count(g, n, grad ? 1 : 0) / (qkv ? 3 : 1);
    int64_t tk = k->rank >= 3 ? k->dims[k->rank == 4 ? 2 : 1] : 0;
    return 2 * q * (tk > 0 ? tk : 0);
}

static int64_t attention(const ru_graph *g, const ru_node *n)
{
    return 2 * attention_products(g, n);
}

/* Two products with every position of the cache: at most. */
static int64_t attention_cached(const ru_graph *g, const ru_node *n)
{
    const ru_type *keys = in_type(g, n, 1);
    return keys->rank == 4 ? 4 * (in_count(g, n, 0) / 3) * keys->dims[2] : 0;
}

static int64_t attention_grad(const ru_graph *g, const ru_node *n)
{
    return 5 * attention_products(g, n);
}

/* Each time step multiplies x and h with W and R. */
static int64_t rnn_products(const ru_graph *g, const ru_node *n, uint32_t x)
{
    const ru_type *t = in_type(g, n, x);
    int64_t steps = t->rank == 3 ? ru_dim_mul(t->dims[0], t->dims[1]) : 0;
    return 2 * (steps > 0 ? steps : 0) * (in_count(g, n, x + 1) + in_count(g, n, x + 2));
}

static int64_t rnn(const ru_graph *g, const ru_node *n)
{
    return rnn_products(g, n, 0);
}

static int64_t rnn_grad(const ru_graph *g, const ru_node *n)
{
    return 2 * rnn_products(g, n, n->op == RU_OP_LSTMGrad ? 3 : 2);
}

static int64_t zero(const ru_graph *g, const ru_node *n)
{
    (void)g;
    (void)n;
    return 0;
}

static int64_t gemm(const ru_graph *g, const ru_node *n)
{
    return matmul(g, n);
}

int64_t ru_node_flops(const ru_graph *g, const ru_node *n)
{
    switch (n->op) {
#define RU_OP(name, onnx, in_min, in_max, out_min, out_max, shape, grad, flops, ...) \
    case RU_OP_##name:                                                               \
        return flops(g, n);
#include "world/graph/ops.def"
#undef RU_OP
    case RU_OP_NONE:
    case RU_OP_COUNT:
    default:
        return 0;
    }
}
