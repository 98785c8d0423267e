"""Write the vectors of test/data/onnx: one operator each, with ONNX Runtime's answers (those of the
ONNX project's own reference where ONNX Runtime lacks the operator), in the layout of the ONNX
project's node tests. test/ops/onnx_conformance_test.c runs them.

    python test/oracle/onnx_vectors.py [FOLDER]      (onnx 1.23, onnxruntime 1.32)
"""
import os
import shutil
import sys

import numpy as np
import onnx
import onnx.helper as oh
import onnx.numpy_helper as nh
import onnxruntime as ort
from onnx import TensorProto as T
from onnx.reference import ReferenceEvaluator

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "test/data/onnx"
ML = "ai.onnx.ml"
RNG = np.random.RandomState(5)
NAN = float("nan")
F32, F64 = np.float32, np.float64
X = (RNG.randint(-16, 17, (9, 3)) / 8).astype(F32)  # exact in f32, and ties with the splits
HOLES = X.copy()
HOLES[::2, 1] = HOLES[4, 0] = NAN
WHOLE = RNG.randint(-3, 4, (4, 3)).astype(np.int64)
WORDS = np.array([["red", "blue", "red"], ["", "é", "green"]])


def kind_of(a):
    return T.STRING if a.dtype.kind in "UO" else oh.np_dtype_to_tensor_dtype(a.dtype)


def answers(model, feeds):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options)
        given = {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in feeds.items()}
        return session.run(None, given), "ONNX Runtime"
    except Exception as e:
        if any(d.domain == ML for d in model.opset_import):
            raise
        return ReferenceEvaluator(model).run(None, feeds), f"the reference ({str(e)[:60]})"


def save(path, a):
    t = nh.from_array(a.astype(object) if a.dtype.kind == "U" else a)
    with open(path, "wb") as f:
        f.write(t.SerializeToString())


def vector(name, op, ins, outs=("y",), domain=ML, version=3, opset=17, **attributes):
    """ins: arrays, in order. Types of the outputs are those that come."""
    names = [f"x{k}" for k in range(len(ins))]
    attributes = {k: v for k, v in attributes.items() if v is not None}
    node = oh.make_node(op, names, list(outs), domain=domain, **attributes)
    infos = [oh.make_tensor_value_info(n, kind_of(a), a.shape) for n, a in zip(names, ins)]
    imports = [oh.make_opsetid("", version if domain == "" else opset)]
    if domain == ML:
        imports.append(oh.make_opsetid(ML, version))
    feeds = dict(zip(names, ins))

    def model(kinds, shapes):
        g = oh.make_graph([node], "g", infos, [oh.make_tensor_value_info(o, k, s) for o, k, s in
                                               zip(outs, kinds, shapes)])
        return oh.make_model(g, opset_imports=imports, ir_version=10)
    for kind in (T.FLOAT, T.INT64, T.STRING, T.DOUBLE, T.INT16, T.INT32, T.FLOAT16, T.BFLOAT16):
        kinds = ([T.INT64, T.FLOAT] if kind == T.FLOAT else [T.STRING, T.FLOAT]) \
            if len(outs) == 2 else [kind]
        try:
            got, who = answers(model(kinds, [None] * len(outs)), feeds)
        except Exception as e:
            why = e
            continue
        got = [np.array(g, dtype=str) if np.asarray(g).dtype.kind == "O" else np.asarray(g)
               for g in got]
        if [kind_of(g) for g in got] == kinds:
            break
    else:
        raise SystemExit(f"{name}: no answer: {why}")
    at = os.path.join(FOLDER, name)
    os.makedirs(at + "/test_data_set_0")
    onnx.save(model(kinds, [g.shape for g in got]), at + "/model.onnx")
    for k, a in enumerate(ins):
        save(f"{at}/test_data_set_0/input_{k}.pb", a)
    for k, a in enumerate(got):
        save(f"{at}/test_data_set_0/output_{k}.pb", a)
    print(f"{name}: {who}")


# -- trees -----------------------------------------------------------------------------------------

def nodes(mode, missing):
    """Two trees: the root and its true side compare by `mode`, all splits are numbers of X."""
    modes = [mode, mode, "LEAF", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"]
    return dict(nodes_treeids=[0] * 5 + [1] * 3, nodes_nodeids=[0, 1, 2, 3, 4, 0, 1, 2],
                nodes_featureids=[0, 1, 0, 0, 0, 2, 0, 0], nodes_modes=modes,
                nodes_values=[.25, float(X[1, 1]), 0, 0, 0, float(X[3, 2]), 0, 0],
                nodes_truenodeids=[1, 2, 0, 0, 0, 1, 0, 0],
                nodes_falsenodeids=[4, 3, 0, 0, 0, 2, 0, 0],
                nodes_missing_value_tracks_true=[missing, 1 - missing, 0, 0, 0, missing, 0, 0])


def leaves(head, ids, weights=(.5, -1.25, 2., .125, -.75, 1.5, .25)):
    """Every row meets a leaf of each id: ONNX Runtime leaves out base values elsewhere."""
    n = len(ids)
    return {head + "_treeids": [0, 0, 0, 1, 1, 1, 1][:n],
            head + "_nodeids": [2, 3, 4, 1, 2, 1, 2][:n],
            head + "_ids": list(ids), head + "_weights": list(weights[:n])}


def trees():
    for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"):
        vector(f"trees_{mode.lower()}", "TreeEnsembleRegressor", [HOLES], n_targets=1,
               base_values=[.5], **nodes("BRANCH_" + mode, int(mode in ("LT", "GT", "EQ"))),
               **leaves("target", [0] * 5))
    for how in ("AVERAGE", "MIN", "MAX"):
        vector(f"trees_{how.lower()}", "TreeEnsembleRegressor", [HOLES], n_targets=2,
               aggregate_function=how, base_values=[1., 2.], **nodes("BRANCH_LEQ", 1),
               **leaves("target", [0, 0, 0, 1, 1]))
    numbers = leaves("target", [0] * 5)  # each leaf twice, as exporters of decision_leaf do
    vector("trees_leaf_twice", "TreeEnsembleRegressor", [X], n_targets=1, **nodes("BRANCH_LEQ", 0),
           **{k: [x for x in v for _ in "ab"] for k, v in numbers.items()})
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        vector(f"trees_classes_{post.lower()}", "TreeEnsembleClassifier", [X], ("label", "y"),
               classlabels_int64s=[7, 3, 5], post_transform=post, **nodes("BRANCH_LEQ", 0),
               **leaves("class", [0, 0, 0, 1, 1, 2, 2]))
    for post in ("NONE", "LOGISTIC"):
        for sign in ("positive", "mixed"):
            weights = (.5, .25, .75, .125, .25) if sign == "positive" else (.5, -.25, 1., .5, -1.)
            vector(f"trees_two_{post.lower()}_{sign}", "TreeEnsembleClassifier", [X],
                   ("label", "y"), classlabels_strings=["no", "yes"], post_transform=post,
                   **nodes("BRANCH_LT", 0), **leaves("class", [0] * 5, weights))
            vector(f"trees_second_{post.lower()}_{sign}", "TreeEnsembleClassifier", [X],
                   ("label", "y"), classlabels_int64s=[3, 1], post_transform=post,
                   **nodes("BRANCH_LT", 0), **leaves("class", [1] * 5, weights))
    f64 = nodes("BRANCH_LEQ", 0)
    f64["nodes_values_as_tensor"] = nh.from_array(np.array(f64.pop("nodes_values")) + 1e-12)
    wide = leaves("target", [0] * 5)
    wide["target_weights_as_tensor"] = nh.from_array(np.array(wide.pop("target_weights")))
    vector("trees_f64", "TreeEnsembleRegressor", [X.astype(F64) + 1e-12], n_targets=1, **f64, **wide)
    t = lambda v: nh.from_array(np.array(v, F32))
    vector("trees_members", "TreeEnsemble", [RNG.randint(-4, 5, (12, 3)).astype(F32)], version=5,
           n_targets=2, aggregate_function=1, post_transform=0, tree_roots=[0, 3],
           nodes_modes=nh.from_array(np.array([0, 6, 1, 6, 4], np.uint8)),
           nodes_featureids=[0, 1, 2, 2, 0], nodes_splits=t([1, 0, 2, 0, 3]),
           nodes_truenodeids=[1, 0, 2, 4, 5], nodes_trueleafs=[0, 1, 1, 0, 1],
           nodes_falsenodeids=[2, 1, 3, 4, 6], nodes_falseleafs=[0, 1, 1, 1, 1],
           membership_values=t([1, 2, -3, NAN, 0, 4, NAN]),
           leaf_targetids=[0, 1, 0, 1, 0, 1, 0], leaf_weights=t([1, 2, 4, 8, 16, 32, 64.5]))


# -- encoders, scalers, linear models, support vectors ---------------------------------------------

def columns():
    rows = X.copy()
    rows[2] = 0
    vector("scaler", "Scaler", [X], offset=[.5, -1., 0.], scale=[2., .25, -1.])
    vector("scaler_one", "Scaler", [WHOLE], offset=[.5], scale=[2.])
    for norm in ("MAX", "L1", "L2"):
        vector(f"normalizer_{norm.lower()}", "Normalizer", [rows], norm=norm)
    vector("binarizer", "Binarizer", [X], threshold=.25)
    vector("imputer_nan", "Imputer", [HOLES], imputed_value_floats=[1.5, 2.5, 3.5],
           replaced_value_float=NAN)
    vector("imputer_number", "Imputer", [X], imputed_value_floats=[9.],
           replaced_value_float=float(X[0, 0]))
    vector("imputer_whole", "Imputer", [WHOLE], imputed_value_int64s=[7],
           replaced_value_int64=int(WHOLE[0, 0]))
    vector("vectorizer", "FeatureVectorizer", [X, X[:, :2]], inputdimensions=[3, 2])
    vector("extractor", "ArrayFeatureExtractor", [X, np.array([2, 0], np.int64)])
    vector("extractor_texts", "ArrayFeatureExtractor", [WORDS, np.array([1], np.int64)])


def encoders():
    vector("labels_to_numbers", "LabelEncoder", [WHOLE], version=2, keys_int64s=[2, -1, 0],
           values_floats=[.5, 1.5, 2.5], default_float=-9.)
    some = WHOLE.astype(F32)
    some[1] = NAN
    vector("labels_from_nan", "LabelEncoder", [some], version=4, keys_floats=[2., NAN, 0.],
           values_int64s=[10, 20, 30], default_int64=-5)
    vector("labels_from_texts", "LabelEncoder", [WORDS], version=2,
           keys_strings=["red", "é", ""], values_int64s=[4, 5, 6])
    vector("labels_to_texts", "LabelEncoder", [WHOLE], version=2, keys_int64s=[0, 1, 2],
           values_strings=["nought", "one", ""], default_string="other")
    vector("labels_of_texts", "LabelEncoder", [WORDS], version=2, keys_strings=["red", "green"],
           values_strings=["rot", "grün"])
    t = lambda v, d: nh.from_array(np.array(v, d))
    vector("labels_tensor_f64", "LabelEncoder", [some.astype(F64)], version=4,
           keys_tensor=t([2, 0, -1], F64), values_tensor=t([.1, .2, .3], F64),
           default_tensor=t([.4], F64))
    vector("labels_tensor_i16", "LabelEncoder", [WORDS], version=4,
           keys_tensor=nh.from_array(np.array(["blue", "red"], object)),
           values_tensor=t([300, -2], np.int16), default_tensor=t([-7], np.int16))
    vector("category_to_text", "CategoryMapper", [WHOLE], cats_int64s=[1, 0, -1],
           cats_strings=["one", "zero", "minus"], default_string="more")
    vector("category_from_text", "CategoryMapper", [WORDS], cats_int64s=[1, 2],
           cats_strings=["red", "blue"], default_int64=-3)
    vector("one_hot", "OneHotEncoder", [WHOLE], cats_int64s=[-2, 0, 1, 3], zeros=1)
    vector("one_hot_texts", "OneHotEncoder", [WORDS], cats_strings=["green", "é", "red"], zeros=1)
    vector("one_hot_known", "OneHotEncoder", [WHOLE], cats_int64s=list(range(-3, 4)), zeros=0)


def linear():
    w = [.5, -1., .25, 2., .125, -.5, -.75, 1., 1.]
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        vector(f"linear_{post.lower()}", "LinearRegressor", [X], coefficients=w, targets=3,
               intercepts=[.5, -.5, 1.], post_transform=post)
        vector(f"linear_classes_{post.lower()}", "LinearClassifier", [X], ("label", "y"),
               coefficients=w, intercepts=[.5, -.5, 1.], post_transform=post,
               classlabels_strings=["a", "b", "ç"])
        vector(f"linear_two_{post.lower()}", "LinearClassifier", [X], ("label", "y"),
               coefficients=w[:3], intercepts=[.0625], post_transform=post,
               classlabels_ints=[4, 2])
    support = [.5, .25, -1., 1., -.5, .75, -.25, 1.5, .5, 2., 0., -1.]
    for kernel, gamma in (("LINEAR", 0), ("POLY", .5), ("RBF", .25), ("SIGMOID", .125)):
        vector(f"svm_{kernel.lower()}", "SVMRegressor", [X], kernel_type=kernel,
               kernel_params=[gamma, .5, 2.], support_vectors=support, n_supports=4,
               coefficients=[1., -.5, .75, -1.25], rho=[.25])
        vector(f"svm_classes_{kernel.lower()}", "SVMClassifier", [X], ("label", "y"),
               kernel_type=kernel, kernel_params=[gamma, .5, 2.], support_vectors=support,
               vectors_per_class=[1, 2, 1], classlabels_ints=[3, 1, 2], rho=[.25, -.5, .125],
               coefficients=[1., -.5, .75, -1.25, .5, 1., -.25, .375])
    vector("svm_probability", "SVMClassifier", [X], ("label", "y"), kernel_type="RBF",
           kernel_params=[.25, 0., 3.], support_vectors=support, vectors_per_class=[2, 2],
           classlabels_ints=[0, 1], rho=[.25], coefficients=[1., .5, -.75, -1.25],
           prob_a=[-1.5], prob_b=[.25])


# -- what the standard leaves open -----------------------------------------------------------------

def means():
    """PyTorch exports EmbeddingBag with a mean over the elements of each bag; a bag may be empty."""
    for name, shape, axis, dtype in (("first", (0, 3), 0, F32), ("middle", (2, 0, 3), 1, F32),
                                     ("last", (2, 3, 0), 2, F64), ("whole", (2, 0), 1, np.int32)):
        vector(f"mean_of_none_{name}", "ReduceMean", [np.zeros(shape, dtype)], domain="",
               version=13, axes=[axis], keepdims=0)


def sequence():
    """An output that is a sequence: its tensors are compared one by one."""
    info = oh.make_tensor_value_info
    g = oh.make_graph([oh.make_node("Split", ["x"], ["a", "b"], axis=1),
                       oh.make_node("SequenceConstruct", ["b", "a", "b"], ["y"])], "g",
                      [info("x", T.FLOAT, [9, 4])],
                      [oh.make_tensor_sequence_value_info("y", T.FLOAT, None)])
    model = oh.make_model(g, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    x = np.concatenate([X, X[:, :1]], 1)
    at = os.path.join(FOLDER, "sequence")
    os.makedirs(at + "/test_data_set_0")
    onnx.save(model, at + "/model.onnx")
    save(at + "/test_data_set_0/input_0.pb", x)
    for k, a in enumerate(answers(model, {"x": x})[0][0]):
        save(f"{at}/test_data_set_0/output_{k}.pb", a)


def regions():
    """Odd sizes; regions inside, partly and wholly outside, turned around, of no size."""
    x = RNG.randn(2, 3, 7, 9).astype(F32)
    rois = np.array([[.3, .7, 5.9, 6.2], [-2, -1.5, 3, 9], [0, 0, 12.5, 8], [20, 20, 25, 26],
                     [4, 5, 2, 1], [3, 3, 3, 3], [1, 2, 61, 50]], F32)
    image = np.array([0, 1, 1, 0, 0, 1, 0], np.int64)
    std = dict(domain="", output_height=3, output_width=5)
    for mode in ("avg", "max"):
        for ratio in (0, 1, 2, 3):
            for version in (10, 16):
                vector(f"roialign_{mode}_{ratio}_{version}", "RoiAlign", [x, rois, image],
                       version=version, mode=mode, sampling_ratio=ratio, spatial_scale=.75, **std)
    vector("roialign_whole", "RoiAlign", [x, rois, image], version=16, domain="",
           coordinate_transformation_mode="output_half_pixel")
    rng = np.random.RandomState(6)
    vector("roialign_wide", "RoiAlign", [rng.randn(1, 2, 20, 37).astype(F32), np.concatenate(
        [rng.rand(9, 2) * 20 - 3, rng.rand(9, 2) * 30 + 4], 1).astype(F32), np.zeros(9, np.int64)],
           version=16, mode="max", sampling_ratio=2, **std)
    vector("roialign_f64", "RoiAlign", [x.astype(F64), rois.astype(F64), image], version=16, **std)
    rows = np.concatenate([image[:, None].astype(F32), rois], 1)
    for high, wide, scale in ((1, 1, .75), (3, 5, .75), (7, 7, 1.), (9, 2, 1 / 16)):
        vector(f"roipool_{high}_{wide}_{scale}", "MaxRoiPool", [x, rows], version=1, domain="",
               pooled_shape=[high, wide], spatial_scale=scale)


def unpools():
    """Indices count in the output, also where output_shape makes it larger (ONNX Runtime's
    reading, and MaxPool's; a vector of the ONNX project embeds the smaller output instead)."""
    for axes, big in ((1, [2, 3, 7]), (2, [2, 3, 5, 7]), (3, [1, 2, 5, 4, 7])):
        small = big[:2] + [n // 2 for n in big[2:]]
        n = int(np.prod(small))
        x = RNG.randn(*small).astype(F32)
        k = [2] * axes
        planes = big[0] * big[1]
        even = int(np.prod([2 * s for s in small[2:]]))
        for name, room, shape in (("", even, None), ("_shape", int(np.prod(big[2:])), big)):
            at = np.concatenate([p * room + np.sort(RNG.permutation(room)[:n // planes])
                                 for p in range(planes)]).reshape(small).astype(np.int64)
            vector(f"unpool_{axes}{name}", "MaxUnpool",
                   [x, at] + ([] if shape is None else [np.array(shape, np.int64)]), domain="",
                   version=11, kernel_shape=k, strides=k)
    at = RNG.permutation(2 * 2 * 9 * 7)[:2 * 2 * 4 * 3].reshape(2, 2, 4, 3).astype(np.int64)
    vector("unpool_strays", "MaxUnpool", [RNG.randn(2, 2, 4, 3).astype(F32), at], domain="",
           version=9, kernel_shape=[3, 3], strides=[2, 2])
    vector("unpool_pads", "MaxUnpool", [at[:, :, :, :2].astype(F32), at[:, :, :, :2] % 84],
           domain="", version=11, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 1])


def determinants():
    for n in (0, 1, 2, 3, 4, 7, 33):
        x = RNG.randn(5, n, n).astype(F32)
        x[1] = 0
        vector(f"det_{n}", "Det", [x if n < 9 else x[0]], domain="", version=11)


def affine_grids():
    for align in (0, 1):
        for r, size in ((2, [2, 3, 5, 4]), (2, [2, 1, 1, 3]), (3, [2, 3, 2, 5, 3])):
            theta = RNG.randn(2, r, r + 1).astype(F32)
            vector(f"affine_{r}_{size[2]}_{align}", "AffineGrid",
                   [theta, np.array(size, np.int64)], domain="", version=20, align_corners=align)


def four_bits():
    """Packed weights as exports of opset 21 have them: raw bytes and fields, odd counts, blocks."""
    for kind in ("INT4", "UINT4"):
        low, high = (-8, 8) if kind == "INT4" else (0, 16)
        for name, shape, blocks, raw in (("", (5, 3), (), True), ("_fields", (3, 7), (), False),
                                         ("_axis", (6, 5), (6,), True),
                                         ("_blocks", (6, 5), (3, 5), True)):
            w = RNG.randint(low, high, shape)
            scale = np.array(RNG.rand(*blocks), F32)
            zero = np.array(RNG.randint(low, high, blocks or None))
            at = {"axis": 0} if blocks else {}
            at |= {"block_size": 2} if len(blocks) == 2 else {}

            def packed(n, a):
                t = oh.make_tensor(n, getattr(T, kind), a.shape, a.flatten().tolist())
                if raw:
                    bits = list((a.flatten() & 15)) + [0] * (a.size % 2)
                    t.ClearField("int32_data")
                    t.raw_data = bytes(int(b) | int(c) << 4 for b, c in zip(bits[::2], bits[1::2]))
                return t
            info = oh.make_tensor_value_info
            g = oh.make_graph([oh.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **at),
                               oh.make_node("Add", ["x", "d"], ["y"])], "g",
                              [info("x", T.FLOAT, shape)],
                              [info("y", T.FLOAT, shape)],
                              [packed("w", w), nh.from_array(scale, "s"), packed("z", zero)])
            model = oh.make_model(g, opset_imports=[oh.make_opsetid("", 21)], ir_version=10)
            x = RNG.randn(*shape).astype(F32)
            at = os.path.join(FOLDER, kind.lower() + name)
            os.makedirs(at + "/test_data_set_0")
            onnx.save(model, at + "/model.onnx")
            save(at + "/test_data_set_0/input_0.pb", x)
            got, who = answers(model, {"x": x})
            save(at + "/test_data_set_0/output_0.pb", got[0])
            print(f"{kind.lower() + name}: {who}")


def held_weights():
    """Products with weights in the model: of 2, 4 and 8 bits, of bytes from 0 to 255, of a Constant."""
    rng = np.random.RandomState(9)
    info, micro = oh.make_tensor_value_info, "com.microsoft"

    def one(name, nodes, x, shape, inits, kind=T.FLOAT):
        g = oh.make_graph(nodes, "g", [info("x", kind_of(x), x.shape)], [info("y", kind, shape)],
                          [nh.from_array(a, n) for n, a in inits.items()])
        model = oh.make_model(g, opset_imports=[oh.make_opsetid("", 21), oh.make_opsetid(micro, 1)],
                              ir_version=10)
        at = os.path.join(FOLDER, name)
        os.makedirs(at + "/test_data_set_0")
        onnx.save(model, at + "/model.onnx")
        save(at + "/test_data_set_0/input_0.pb", x)
        got, who = answers(model, {"x": x})
        save(at + "/test_data_set_0/output_0.pb", got[0])
        print(f"{name}: {who}")

    for name, bits, k, n, block, zero, bias in (
            ("", 4, 40, 3, 16, False, False), ("_zero", 4, 50, 5, 16, True, False),
            ("_bias", 4, 32, 6, 32, True, True), ("_8", 8, 70, 3, 32, True, False)):
        blocks = -(-k // block)
        inits = {"b": rng.randint(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
                 "s": (rng.rand(n * blocks) + .1).astype(F32)}
        names = ["x", "b", "s"]
        if zero:
            inits["z"] = rng.randint(0, 256, n * (-(-blocks * bits // 8))).astype(np.uint8)
            names.append("z")
        if bias:
            inits["c"] = rng.randn(n).astype(F32)
            names += ["", "c"]
        node = oh.make_node("MatMulNBits", names, ["y"], domain=micro, K=k, N=n, bits=bits,
                            block_size=block)
        one("matmul_bits" + name, [node], rng.randn(2, 3, k).astype(F32), (2, 3, n), inits)
    w = rng.randint(0, 256, (3, 2, 3, 3)).astype(np.uint8)
    w[0, 0, 0, 0] = 255
    node = oh.make_node("ConvInteger", ["x", "w"], ["y"])
    one("conv_integer_255", [node], rng.randint(0, 256, (2, 2, 6, 5)).astype(np.uint8),
        (2, 3, 4, 3), {"w": w}, T.INT32)
    four = oh.make_tensor("four", T.INT4, (5, 3), rng.randint(-8, 8, 15).tolist())
    nodes = [oh.make_node("Constant", [], ["w"], value=four),
             oh.make_node("DequantizeLinear", ["w", "s"], ["d"]),
             oh.make_node("Add", ["x", "d"], ["y"])]
    one("int4_constant", nodes, rng.randn(5, 3).astype(F32), (5, 3), {"s": np.array(.5, F32)})


# -- opsets 22 to 28 -------------------------------------------------------------------------------

def later():
    x = (RNG.randint(-16, 17, (2, 3, 4)) / 8).astype(F32)
    std = dict(domain="")
    scale = np.array([1., -.5, 2., .25], F32)
    vector("rms", "RMSNormalization", [x, scale], version=23, **std)
    vector("rms_axis", "RMSNormalization", [x, np.ones((3, 4), F32) * 3], version=23, axis=1,
           epsilon=.25, **std)
    vector("rms_f16", "RMSNormalization", [x.astype(np.float16), scale.astype(np.float16)],
           version=23, axis=-1, **std)
    for alpha in (None, 1.5):
        vector("swish" + ("" if alpha is None else "_alpha"), "Swish", [x], version=24, alpha=alpha,
               **std)
    bytes_ = RNG.randint(0, 256, (2, 4)).astype(np.uint8)
    vector("dequantize_f16", "DequantizeLinear", [bytes_, np.array(.125, F32),
                                                  np.array(128, np.uint8)], version=23,
           output_dtype=T.FLOAT16, **std)
    vector("dequantize_from_f16", "DequantizeLinear", [bytes_, np.array(.125, np.float16),
                                                       np.array(3, np.uint8)], version=23,
           output_dtype=T.FLOAT, **std)
    h = lambda v: np.array(v, np.float16)
    vector("range_f16", "Range", [h(.5), h(6), h(.75)], version=27, **std)
    vector("range_back", "Range", [np.array(7, F32), np.array(-2, F32), np.array(-2.5, F32)],
           version=27, **std)
    up = (np.arange(24).reshape(2, 3, 4) / 4 - 3).astype(F32)
    for alpha in (None, -.75):
        vector("swiglu" + ("" if alpha is None else "_alpha"), "SwiGLU", [x, up], version=28,
               alpha=alpha, **std)
    for mode in ("up", "down", "nearest"):  # of casts to float8e8m0 alone
        vector("cast_round_" + mode, "Cast", [x + F32(2**-9)], version=24, to=T.FLOAT16,
               round_mode=mode, **std)


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    trees()
    columns()
    encoders()
    linear()
    means()
    sequence()
    later()
    regions()
    unpools()
    determinants()
    affine_grids()
    four_bits()
    held_weights()
