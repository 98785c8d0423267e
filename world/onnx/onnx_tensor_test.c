#include "world/onnx/onnx.h"

#include <string.h>

#include "test/test.h"

/* -- weights of 4 bits: models made by hand, bytes as onnx.proto describes them ------------------
 */

enum { UINT4 = 21, INT4 = 22 };

static void put_info(ru_pb_out *o, uint32_t field, const char *name)
{
    ru_pb_begin(o, field);
    ru_pb_put_str(o, 1, name);
    ru_pb_begin(o, 2);
    ru_pb_begin(o, 1);
    ru_pb_put_i64(o, 1, 1);
    ru_pb_begin(o, 2);
    ru_pb_begin(o, 1);
    ru_pb_put_i64(o, 1, 3);
    for (int k = 0; k < 5; k++) {
        ru_pb_end(o);
    }
}

/* Three numbers of 4 bits named w: `raw` as they are, or one field for each byte. */
static void put_four(ru_pb_out *o, uint32_t field, int64_t type, const char *bytes, int64_t n,
                     bool raw)
{
    ru_pb_begin(o, field);
    ru_pb_put_packed_i64(o, 1, (int64_t[]){3}, 1);
    ru_pb_put_i64(o, 2, type);
    ru_pb_put_str(o, 8, "w");
    for (int64_t k = 0; !raw && k < n; k++) {
        ru_pb_put_u64(o, 5, (uint8_t)bytes[k]);
    }
    if (raw) {
        ru_pb_put_bytes(o, 9, bytes, n);
    }
    ru_pb_end(o);
}

typedef struct four_case {
    const char *op, *in[3]; /* of a node whose result is y */
    int64_t type;
    const char *bytes;
    int64_t n;
    bool raw;
    const char *say; /* NULL: w is read */
    int8_t want[3];
    bool constant; /* w is made by a node */
} four_case;

/* x f32[3], s a scale, w of 4 bits -> y f32[3] */
static ru_status read_four(const four_case *c, ru_arena *arena, ru_graph *g, ru_err *err)
{
    const float one = 1;
    ru_pb_out o;
    ru_pb_out_init(&o);
    ru_pb_put_u64(&o, 1, 10);
    ru_pb_begin(&o, 8);
    ru_pb_put_i64(&o, 2, 21);
    ru_pb_end(&o);
    ru_pb_begin(&o, 7);
    ru_pb_put_str(&o, 2, "made");
    put_info(&o, 11, "x");
    put_info(&o, 12, "y");
    ru_pb_begin(&o, 5);
    ru_pb_put_i64(&o, 2, 1);
    ru_pb_put_str(&o, 8, "s");
    ru_pb_put_bytes(&o, 9, &one, sizeof one);
    ru_pb_end(&o);
    if (c->constant) {
        ru_pb_begin(&o, 1);
        ru_pb_put_str(&o, 2, "w");
        ru_pb_put_str(&o, 4, "Constant");
        ru_pb_begin(&o, 5);
        ru_pb_put_str(&o, 1, "value");
        ru_pb_put_u64(&o, 20, 4);
        put_four(&o, 5, c->type, c->bytes, c->n, c->raw);
        ru_pb_end(&o);
        ru_pb_end(&o);
    } else {
        put_four(&o, 5, c->type, c->bytes, c->n, c->raw);
    }
    ru_pb_begin(&o, 1);
    for (uint32_t k = 0; k < 3 && c->in[k] != NULL; k++) {
        ru_pb_put_str(&o, 1, c->in[k]);
    }
    ru_pb_put_str(&o, 2, "y");
    ru_pb_put_str(&o, 4, c->op);
    ru_pb_end(&o);
    ru_pb_end(&o);
    ru_status st = ru_onnx_read(o.data, o.size_bytes, NULL, arena, g, NULL, err);
    ru_pb_out_fini(&o);
    return st;
}

static void weights_of_four_bits(void **state)
{
    (void)state;
    static const four_case cases[] = {
        {"DequantizeLinear", {"w", "s"}, INT4, "\x8f\x07", 2, true, NULL, {-1, -8, 7}, false},
        {"DequantizeLinear", {"w", "s"}, INT4, "\x8f\xf7", 2, false, NULL, {-1, -8, 7}, false},
        {"DequantizeLinear", {"w", "s"}, UINT4, "\x8f\x07", 2, true, NULL, {15, 8, 7}, false},
        {"DequantizeLinear", {"w", "s"}, UINT4, "\x8f\x07", 2, false, NULL, {15, 8, 7}, false},
        {"DequantizeLinear", {"w", "s"}, INT4, "1", 1, true, .say = "has 1 bytes"},
        {"DequantizeLinear", {"w", "s"}, INT4, "123", 3, true, .say = "has 3 bytes"},
        {"DequantizeLinear", {"w", "s"}, UINT4, "123", 3, false, .say = "has 3 elements"},
        {"QuantizeLinear", {"x", "s", "w"}, UINT4, "12", 2, true, .say = "results of 4 bits"},
        {"CastLike", {"x", "w"}, INT4, "12", 2, true, .say = "results of 4 bits"},
        {"DequantizeLinear", {"w", "s"}, INT4, "\x8f\x07", 2, true, NULL, {-1, -8, 7}, true},
        {"DequantizeLinear", {"w", "s"}, UINT4, "\x8f\x07", 2, false, NULL, {15, 8, 7}, true},
        {"QuantizeLinear",
         {"x", "s", "w"},
         UINT4,
         "12",
         2,
         true,
         .say = "results of 4 bits",
         .constant = true},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(cases); k++) {
        const four_case *c = &cases[k];
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_graph g;
        ru_err err = {0};
        ru_status st = read_four(c, &arena, &g, &err);
        if (c->say != NULL) {
            if (st == RU_OK || strstr(err.text, c->say) == NULL) {
                fail_msg("case %u: %s", k, err.text);
            }
        } else {
            assert_ok(st, err);
            const ru_value *w = ru_graph_value(&g, ru_graph_find(&g, "w"));
            assert_int_equal(w->type.dtype, c->type == INT4 ? RU_I8 : RU_U8);
            assert_memory_equal(w->data, c->want, 3);
        }
        ru_arena_fini(&arena);
    }
}

RU_TESTS(world_onnx_tensor, cmocka_unit_test(weights_of_four_bits))
