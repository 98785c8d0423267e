"""One-node ONNX models for `rubato bench infer --ops`: each op of the standard at four sizes and one odd shape.

    ops.py DIR OP... [--large]

Without --large the largest size is left out.

DIR/OP.CASE.SIZE.onnx is one node, DIR/OP.CASE.SIZE.npz holds its inputs. An op without a case gets DIR/OP.none,
which holds the reason. Files that are there are kept."""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(7)
OPSET = 21
SIZES = ("1K", "256K", "16M", "64M", "odd")
ANY = {"1K": (4, 64), "256K": (16, 64, 64), "16M": (16, 256, 32, 32), "64M": (16, 256, 64, 64), "odd": (3, 17, 129)}
IMAGE = {"1K": (1, 4, 8, 8), "256K": (1, 16, 64, 64), "16M": (4, 64, 128, 128),
         "64M": (4, 64, 256, 256), "odd": (2, 6, 37, 29)}
VOLUME = {"1K": (1, 4, 4, 4, 4), "256K": (1, 16, 16, 16, 16), "16M": (2, 32, 40, 40, 40),
          "64M": (2, 32, 64, 64, 64), "odd": (2, 6, 7, 11, 9)}
SHORT = {"1K": (32, 8), "256K": (8192, 8), "16M": (524288, 8), "64M": (2097152, 8), "odd": (3001, 7)}
LONG = {"1K": (4, 64), "256K": (16, 4096), "16M": (1024, 4096), "64M": (4096, 4096), "odd": (37, 1021)}
MIDDLE = {"1K": (2, 8, 16), "256K": (8, 64, 128), "16M": (32, 256, 512), "64M": (128, 256, 512), "odd": (3, 37, 129)}
SEQUENCE = {"1K": (4, 2, 32), "256K": (32, 8, 128), "16M": (128, 64, 256), "64M": (512, 128, 256), "odd": (7, 3, 37)}
SQUARE = {"1K": 16, "256K": 256, "16M": 1024, "64M": 4096, "odd": 131}


class Const:
    """An input that the model holds itself."""

    def __init__(self, x):
        self.x = np.asarray(x)


def normal(shape, dtype=np.float32):
    return RNG.standard_normal(shape, dtype=np.float32).astype(dtype)


def positive(shape):
    return np.abs(normal(shape)) + np.float32(0.5)


def unit(shape):
    return RNG.uniform(-0.95, 0.95, shape).astype(np.float32)


def whole(shape, high, dtype=np.int64, low=0):
    return RNG.integers(low, high, shape).astype(dtype)


def ints(*x):
    return Const(np.array(x, np.int64))


TABLE = {}


def case(op, label, shapes, make, outs=1, **attrs):
    """make(shape) -> inputs, or (inputs, more attributes)."""
    TABLE.setdefault(op, []).append((label, shapes, make, outs, attrs))


def element_wise():
    plain = ("Abs Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu "
             "Mish Neg Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tanh ThresholdedRelu").split()
    for op in plain:
        case(op, "f32", ANY, lambda s: [normal(s)])
    for op in ("Acos", "Asin", "Atanh", "Tan"):
        case(op, "f32", ANY, lambda s: [unit(s)])
    for op in ("Log", "Reciprocal", "Sqrt"):
        case(op, "f32", ANY, lambda s: [positive(s)])
    case("Acosh", "f32", ANY, lambda s: [positive(s) + 1])
    case("Not", "bool", ANY, lambda s: [whole(s, 2, bool)])
    for op in ("Add", "Mul", "Sub", "Max", "Min", "Mean", "Sum", "Equal", "Greater", "GreaterOrEqual", "Less",
               "LessOrEqual"):
        case(op, "f32", ANY, lambda s: [normal(s), normal(s)])
        case(op, "row", ANY, lambda s: [normal(s), normal(s[-1:])])
    for op in ("Add", "Mul", "Equal", "Less"):
        case(op, "i64", ANY, lambda s: [whole(s, 9), whole(s, 9)])
    for op in ("Div", "Pow"):
        case(op, "f32", ANY, lambda s: [positive(s), normal(s) + (0 if op == "Pow" else 4)])
    case("Pow", "square", ANY, lambda s: [normal(s), Const(np.float32(2))])
    case("Mod", "i64", ANY, lambda s: [whole(s, 99), whole(s, 9, low=1)])
    case("Mod", "f32", ANY, lambda s: [normal(s), positive(s)], fmod=1)
    for op in ("And", "Or", "Xor"):
        case(op, "bool", ANY, lambda s: [whole(s, 2, bool), whole(s, 2, bool)])
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        case(op, "i32", ANY, lambda s: [whole(s, 99, np.int32), whole(s, 99, np.int32)])
    case("BitwiseNot", "i32", ANY, lambda s: [whole(s, 99, np.int32)])
    case("BitShift", "u32", ANY, lambda s: [whole(s, 99, np.uint32), whole(s, 9, np.uint32)], direction="LEFT")
    case("Clip", "f32", ANY, lambda s: [normal(s), Const(np.float32(-1)), Const(np.float32(1))])
    case("PRelu", "f32", IMAGE, lambda s: [normal(s), Const(normal((s[1], 1, 1)))])
    case("Where", "f32", ANY, lambda s: [whole(s, 2, bool), normal(s), normal(s)])
    case("Cast", "f16", ANY, lambda s: [normal(s)], to=TensorProto.FLOAT16)
    case("Cast", "i64", ANY, lambda s: [normal(s)], to=TensorProto.INT64)
    case("CastLike", "i32", ANY, lambda s: [normal(s), Const(np.zeros(1, np.int32))])
    u8 = [Const(np.float32(0.02)), Const(np.uint8(128))]
    u16 = [Const(np.float32(0.0002)), Const(np.uint16(32768))]
    case("QuantizeLinear", "u8", ANY, lambda s: [normal(s), *u8])
    case("QuantizeLinear", "u16", ANY, lambda s: [normal(s), *u16])
    case("DequantizeLinear", "u8", ANY, lambda s: [whole(s, 256, np.uint8), *u8])
    case("DequantizeLinear", "u16", ANY, lambda s: [whole(s, 65536, np.uint16), *u16])


def products():
    case("MatMul", "f32", SQUARE, lambda n: [normal((n, n)), normal((n, n))])
    case("MatMul", "f64", SQUARE, lambda n: [normal((n, n), np.float64), normal((n, n), np.float64)])
    case("MatMul", "f16", SQUARE, lambda n: [normal((n, n), np.float16), Const(normal((n, n), np.float16))])
    for label, dtype in (("i32", np.int32), ("i64", np.int64)):
        case("MatMul", label, SQUARE, lambda n, d=dtype: [whole((n, n), 99, d), whole((n, n), 99, d)])
    case("MatMul", "column", SQUARE, lambda n: [normal((n, n)), normal((n, 1))])
    case("MatMul", "row", SQUARE, lambda n: [normal((1, n)), normal((n, n))])
    case("MatMul", "batch", SEQUENCE, lambda s: [normal(s), normal((s[0], s[2], s[1]))])
    case("Gemm", "f32", SQUARE, lambda n: [normal((8, n)), Const(normal((n, n))), Const(normal(n))], transB=1)
    case("Gemm", "f64", SQUARE,
         lambda n: [normal((8, n), np.float64), Const(normal((n, n), np.float64))])
    for label, b in (("u8-i8", np.int8), ("u8-u8", np.uint8)):
        case("MatMulInteger", label, SQUARE, lambda n, b=b: [
            whole((n, n), 256, np.uint8), whole((n, n), np.iinfo(b).max + 1, b, np.iinfo(b).min),
            Const(np.uint8(120)), Const(b(7))])
    case("Einsum", "f32", SEQUENCE, lambda s: [normal(s), normal(s)], equation="bik,bjk->bij")


def window(co, ci, k, nd=2, dtype=np.float32):
    return Const((normal((co, ci) + (k,) * nd) * 0.1).astype(dtype))


def images():
    case("Conv", "3x3", IMAGE, lambda s: [normal(s), window(s[1], s[1], 3), Const(normal(s[1]))], pads=[1] * 4)
    case("Conv", "1x1", IMAGE, lambda s: [normal(s), window(s[1], s[1], 1)])
    case("Conv", "depthwise", IMAGE, lambda s: ([normal(s), window(s[1], 1, 3)], {"group": s[1]}), pads=[1] * 4)
    case("Conv", "2-groups", IMAGE, lambda s: [normal(s), window(s[1], s[1] // 2, 3)], group=2, pads=[1] * 4)
    case("Conv", "f16", IMAGE, lambda s: [normal(s, np.float16), window(s[1], s[1], 3, dtype=np.float16)], pads=[1] * 4)
    case("Conv", "3d", VOLUME, lambda s: [normal(s), window(s[1], s[1], 3, 3)], pads=[1] * 6)
    case("Conv", "3d-depthwise", VOLUME, lambda s: ([normal(s), window(s[1], 1, 3, 3)], {"group": s[1]}), pads=[1] * 6)
    case("Conv", "1d", SEQUENCE, lambda s: [normal(s), window(s[1], s[1], 3, 1)], pads=[1, 1])
    case("ConvTranspose", "4x4s2", IMAGE, lambda s: [normal(s), window(s[1], s[1], 4)], strides=[2, 2], pads=[1] * 4)
    case("ConvTranspose", "3x3", IMAGE, lambda s: [normal(s), window(s[1], s[1], 3)], pads=[1] * 4)
    case("ConvTranspose", "2x2s2", IMAGE, lambda s: [normal(s), window(s[1], s[1], 2)], strides=[2, 2])
    case("ConvTranspose", "2-groups", IMAGE, lambda s: [normal(s), window(s[1], s[1] // 2, 3)], group=2,
         strides=[2, 2], pads=[1] * 4)
    case("ConvTranspose", "depthwise", IMAGE, lambda s: ([normal(s), window(s[1], 1, 4)], {"group": s[1]}),
         strides=[2, 2], pads=[1] * 4)
    case("ConvTranspose", "3d", VOLUME, lambda s: [normal(s), window(s[1], s[1], 2, 3)], strides=[2] * 3)
    for op in ("MaxPool", "AveragePool"):
        case(op, "3x3s2", IMAGE, lambda s: [normal(s)], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
        case(op, "2x2s2", IMAGE, lambda s: [normal(s)], kernel_shape=[2, 2], strides=[2, 2])
        case(op, "ceil", IMAGE, lambda s: [normal(s)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        case(op, "3d", VOLUME, lambda s: [normal(s)], kernel_shape=[2] * 3, strides=[2] * 3)
    case("AveragePool", "pads", IMAGE, lambda s: [normal(s)], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4,
         ceil_mode=1, count_include_pad=1)
    case("MaxPool", "places", IMAGE, lambda s: [normal(s)], outs=2, kernel_shape=[2, 2], strides=[2, 2])
    case("MaxPool", "u8-ceil", IMAGE, lambda s: [whole(s, 256, np.uint8)], kernel_shape=[3, 3], strides=[2, 2],
         ceil_mode=1)
    case("LpPool", "3x3s2", IMAGE, lambda s: [normal(s)], kernel_shape=[3, 3], strides=[2, 2])
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        case(op, "f32", IMAGE, lambda s: [normal(s)])
    case("LRN", "5", IMAGE, lambda s: [normal(s)], size=5)
    for mode in ("nearest", "linear", "cubic"):
        case("Resize", mode, IMAGE, lambda s: [normal(s), None, Const(np.array([1, 1, 2, 2], np.float32))], mode=mode)
    case("DepthToSpace", "2", IMAGE, lambda s: [normal((s[0], s[1] * 4, *s[2:]))], blocksize=2)
    case("SpaceToDepth", "2", IMAGE, lambda s: [normal((*s[:2], s[2] // 2 * 2, s[3] // 2 * 2))], blocksize=2)
    case("BatchNormalization", "f32", IMAGE,
         lambda s: [normal(s)] + [Const(positive(s[1])) for _ in range(4)])
    case("InstanceNormalization", "f32", IMAGE, lambda s: [normal(s), Const(normal(s[1])), Const(normal(s[1]))])
    case("GroupNormalization", "2", IMAGE, lambda s: [normal(s), Const(normal(s[1])), Const(normal(s[1]))],
         num_groups=2)
    case("MeanVarianceNormalization", "f32", IMAGE, lambda s: [normal(s)], axes=[0, 2, 3])


def lines():
    for op in ("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"):
        case(op, "last", LONG, lambda s: [normal(s)], axis=-1)
        case(op, "middle", MIDDLE, lambda s: [normal(s)], axis=1)
        case(op, "short", SHORT, lambda s: [normal(s)], axis=-1)
    case("LayerNormalization", "f32", LONG, lambda s: [normal(s), Const(normal(s[-1])), Const(normal(s[-1]))])
    for op in ("ArgMax", "ArgMin"):
        case(op, "last", LONG, lambda s: [normal(s)], axis=1)
        case(op, "short", SHORT, lambda s: [normal(s)], axis=1)
        case(op, "middle", MIDDLE, lambda s: [normal(s)], axis=1)
    for name, shapes, axis in (("last", LONG, 1), ("first", LONG, 0), ("middle", MIDDLE, 1), ("short", SHORT, 1)):
        case("CumSum", name, shapes, lambda s, a=axis: [normal(s), Const(np.int64(a))])
    for op in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split():
        some = positive if op == "LogSum" else normal
        for name, shapes, axes in (("last", LONG, [1]), ("first", LONG, [0]), ("short", SHORT, [1]),
                                   ("middle", MIDDLE, [1]), ("ends", MIDDLE, [0, 2]), ("all", LONG, [0, 1])):
            case("Reduce" + op, name, shapes, lambda s, f=some, a=axes: [f(s), ints(*a)], keepdims=0)
    for op in ("ReduceMax", "ReduceSum"):
        case(op, "i64-short", SHORT, lambda s: [whole(s, 99), ints(1)], keepdims=0)
        case(op, "i64-last", LONG, lambda s: [whole(s, 99), ints(1)], keepdims=0)
    case("TopK", "5", LONG, lambda s: [normal(s), ints(5)], outs=2, axis=-1)
    case("NonMaxSuppression", "f32", {"1K": 64, "256K": 1000, "16M": 4000, "odd": 333},
         lambda n: [np.abs(normal((1, n, 4))), unit((1, 1, n)), ints(20), Const(np.float32(0.5))])


def movement():
    case("Identity", "f32", ANY, lambda s: [normal(s)])
    case("Flatten", "f32", ANY, lambda s: [normal(s)])
    case("Reshape", "f32", ANY, lambda s: [normal(s), ints(-1)])
    case("Squeeze", "f32", ANY, lambda s: [normal((1, *s)), ints(0)])
    case("Unsqueeze", "f32", ANY, lambda s: [normal(s), ints(0)])
    case("Dropout", "f32", ANY, lambda s: [normal(s)])
    case("Transpose", "last-two", MIDDLE, lambda s: [normal(s)], perm=[0, 2, 1])
    case("Transpose", "nhwc", IMAGE, lambda s: [normal(s)], perm=[0, 2, 3, 1])
    case("Transpose", "reverse", MIDDLE, lambda s: [normal(s)], perm=[2, 1, 0])
    case("Concat", "first", MIDDLE, lambda s: [normal(s), normal(s)], axis=0)
    case("Concat", "last", MIDDLE, lambda s: [normal(s), normal(s)], axis=-1)
    case("Split", "middle", IMAGE, lambda s: [normal(s), ints(s[1] // 2, s[1] - s[1] // 2)], outs=2, axis=1)
    case("Slice", "rows", MIDDLE, lambda s: [normal(s), ints(1), ints(s[1] - 1), ints(1)])
    case("Slice", "step", MIDDLE, lambda s: [normal(s), ints(0), ints(s[2]), ints(2), ints(2)])
    case("Pad", "constant", IMAGE, lambda s: [normal(s), ints(0, 0, 1, 1, 0, 0, 1, 1)])
    case("Pad", "reflect", IMAGE, lambda s: [normal(s), ints(0, 0, 1, 1, 0, 0, 1, 1)], mode="reflect")
    case("Expand", "rows", LONG, lambda s: [normal((s[0], 1)), ints(*s)])
    case("Tile", "2", MIDDLE, lambda s: [normal(s), ints(1, 2, 1)])
    case("Trilu", "upper", SQUARE, lambda n: [normal((n, n))], upper=1)
    case("EyeLike", "f32", SQUARE, lambda n: [normal((n, n))])
    case("Gather", "rows", LONG, lambda s: [normal(s), whole(s[0], s[0])], axis=0)
    case("Gather", "columns", LONG, lambda s: [normal(s), whole(s[1] // 2, s[1])], axis=1)
    case("GatherElements", "last", LONG, lambda s: [normal(s), whole(s, s[1])], axis=1)
    case("GatherND", "rows", LONG, lambda s: [normal(s), whole((s[0], 1), s[0])])
    case("ScatterElements", "last", LONG, lambda s: [normal(s), np.argsort(normal(s), 1), normal(s)], axis=1)
    case("ScatterND", "rows", LONG, lambda s: [normal(s), RNG.permutation(s[0])[:, None].astype(np.int64), normal(s)])
    case("OneHot", "last",
         {"1K": (8, 32), "256K": (512, 128), "16M": (4096, 1024), "64M": (16384, 1024), "odd": (77, 131)},
         lambda s: [whole(s[0], s[1]), ints(s[1]), Const(np.array([0, 1], np.float32))])
    case("Compress", "rows", LONG, lambda s: [normal(s), whole(s[0], 2, bool)], axis=0)
    case("ReverseSequence", "f32", SEQUENCE, lambda s: [normal(s), whole(s[1], s[0], low=1)])
    case("Range", "i64", {"1K": 128, "256K": 32768, "16M": 2097152, "64M": 8388608, "odd": 999},
         lambda n: [np.int64(0), np.int64(n), np.int64(1)])


def recurrent():
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        case(op, "f32", SEQUENCE, lambda s, g=gates: (
            [normal(s), Const(normal((1, g * s[2], s[2])) * np.float32(0.1)),
             Const(normal((1, g * s[2], s[2])) * np.float32(0.1))], {"hidden_size": s[2]}))
    for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        case(op, "f32", LONG, lambda s: [normal(s), whole(s[0], s[1])])


NONE = {"Constant": "it has no input and is folded", "ConstantOfShape": "its shape is a constant and it is folded",
        "Shape": "it reads no data and is folded", "Size": "it reads no data and is folded"}


def export(path, op, shape, make, outs, attrs):
    made = make(shape)
    inputs, more = made if isinstance(made, tuple) else (made, {})
    names, feeds, held, graph_in = [], {}, [], []
    for i, x in enumerate(inputs):
        name = "" if x is None else f"x{i}"
        names.append(name)
        if isinstance(x, Const):
            held.append(numpy_helper.from_array(np.ascontiguousarray(x.x) if x.x.ndim else x.x, name))
        elif x is not None:
            feeds[name] = np.asarray(x)
            kind = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
            graph_in.append(helper.make_tensor_value_info(name, kind, feeds[name].shape))
    outputs = [f"y{i}" for i in range(outs)]
    node = helper.make_node(op, names, outputs, **{**attrs, **more})
    graph = helper.make_graph([node], "one", graph_in, [onnx.ValueInfoProto(name=y) for y in outputs], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    np.savez(path + ".npz", **feeds)
    onnx.save(model, path + ".onnx")


def main(folder, ops, large):
    os.makedirs(folder, exist_ok=True)
    for fill in (element_wise, products, images, lines, movement, recurrent):
        fill()
    for op in ops:
        if op not in TABLE:
            with open(os.path.join(folder, op + ".none"), "w", encoding="utf-8") as f:
                f.write(NONE.get(op, "bench/ops.py has no case"))
        for label, shapes, make, outs, attrs in TABLE.get(op, []):
            for size in SIZES:
                if size not in shapes or (size == "64M" and not large):
                    continue
                path = os.path.join(folder, f"{op}.{label}.{size}")
                if not os.path.exists(path + ".onnx"):
                    export(path, op, shapes[size], make, outs, attrs)


if __name__ == "__main__":
    main(sys.argv[1], [op for op in sys.argv[2:] if op != "--large"], "--large" in sys.argv)
