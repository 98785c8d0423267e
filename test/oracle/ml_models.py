"""Classical models (scikit-learn, XGBoost, LightGBM) and ensembles of random nodes, as ONNX files,
run by `rubato run` and by ONNX Runtime on the same rows.

    python test/oracle/ml_models.py [PROGRAM] [WORD]

Exit status 1 when an output differs. Needs onnx, onnxruntime, scikit-learn, skl2onnx; xgboost,
lightgbm and onnxmltools are used when they are there."""
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnx.helper as oh
import onnxruntime as ort

warnings.filterwarnings("ignore")
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/tool/rubato"
WORD = sys.argv[2] if len(sys.argv) > 2 else ""
BAD = []
RNG = np.random.RandomState(7)


def no_zipmap(model):
    """ONNX Runtime gives maps for ZipMap: compare the table that goes in."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for n in list(model.graph.node):
        if n.op_type == "ZipMap":
            for o in model.graph.output:
                if o.name == n.output[0]:
                    o.CopyFrom(oh.make_tensor_value_info(o.name, onnx.TensorProto.FLOAT, None))
            i = list(model.graph.node).index(n)
            same = oh.make_node("Identity", [n.input[0]], [n.output[0]])
            model.graph.node.remove(n)
            model.graph.node.insert(i, same)
    return model


def differ(a, b, tol):
    if a.shape != b.shape:
        return f"shapes {a.shape} and {b.shape}"
    if a.dtype.kind in "US" or b.dtype.kind in "USO":
        n = int((a.astype(str) != b.astype(str)).sum())
        return f"{n} texts differ" if n else ""
    if a.dtype != b.dtype:
        return f"types {a.dtype} and {b.dtype}"
    if a.dtype.kind in "iub":
        n = int((a != b).sum())
        return f"{n} of {a.size} numbers differ" if n > a.size * 1e-4 else ""
    ok = np.isclose(a, b, rtol=tol, atol=tol, equal_nan=True)
    few = 1e-4 * a.size if tol > 1e-3 else 0
    return "" if (~ok).sum() <= few else f"{int((~ok).sum())} of {a.size}: {a[~ok][:3]} and {b[~ok][:3]}"


def compare(name, model, feeds, tol=2e-5):
    if WORD not in name:
        return
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(no_zipmap(model).SerializeToString(), options)
        want = session.run(None, feeds)
    except Exception as e:  # a model that ONNX Runtime refuses is no case
        print("skip", name, str(e)[:100])
        return
    with tempfile.TemporaryDirectory() as d:
        onnx.save(model, d + "/m.onnx")
        np.savez(d + "/x.npz", **feeds)
        for device in ("cpu", "ref"):
            if device == "ref" and max(len(v) for v in feeds.values()) > 2000:
                continue
            p = subprocess.run([PROGRAM, "run", d + "/m.onnx", "--in", d + "/x.npz", "--out",
                                d + "/y.npz", "--device", device], capture_output=True, text=True)
            if p.returncode != 0:
                BAD.append(name)
                print("BAD ", name, p.stderr.strip()[:300])
                return
            got = np.load(d + "/y.npz")
            for o, w in zip(session.get_outputs(), want):
                why = differ(got[o.name], np.asarray(w), tol)
                if why:
                    BAD.append(name)
                    print("BAD ", name, device, o.name, why)
                    return
    print("ok  ", name)


def rows_for(model, x):
    """Random rows, one row, many rows, NaN, and rows exactly on thresholds."""
    f = x.shape[1]
    exact = x[:64].copy()
    for n in model.graph.node:
        at = {a.name: a for a in n.attribute}
        if "nodes_values" in at:
            for k, v in zip(at["nodes_featureids"].ints, at["nodes_values"].floats):
                exact[RNG.randint(len(exact)), k] = v
    nan = x[:97].copy()
    nan[RNG.rand(*nan.shape) < 0.3] = np.nan
    inf = x[:5].copy()
    inf[RNG.rand(*inf.shape) < 0.3] = np.inf
    inf[RNG.rand(*inf.shape) < 0.3] = -np.inf
    return {"": x[:33], " one": x[:1], " five": x[:5], " exact": exact, " nan": nan, " inf": inf,
            " many": RNG.randn(20011, f).astype(x.dtype), " none": x[:0]}


def sweep(name, model, x, tol=2e-5, nan=True):
    i = model.graph.input[0].name
    for kind, rows in rows_for(model, x).items():
        if nan or kind not in (" nan", " inf"):
            compare(name + kind, model, {i: rows}, tol)


# -- ensembles of random nodes ---------------------------------------------------------------------

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def random_trees(n_trees, depth, features, modes, targets, per_leaf, grid):
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                         "falsenodeids", "missing_value_tracks_true")}
    leaf = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for t in range(n_trees):
        n = [0]

        def grow(d):
            me = n[0]
            n[0] += 1
            at = len(a["modes"])
            for k in a:
                a[k].append(0)
            a["treeids"][at], a["nodeids"][at] = t, me
            if d == 0 or RNG.rand() < 0.15 and d < depth:
                a["modes"][at] = "LEAF"
                a["values"][at] = 0.0
                for c in RNG.permutation(targets)[:per_leaf]:
                    for k, v in zip(leaf, (t, me, int(c), float(RNG.randn()))):
                        leaf[k].append(v)
                return me
            a["modes"][at] = modes[RNG.randint(len(modes))]
            a["featureids"][at] = int(RNG.randint(features))
            a["values"][at] = float(np.float32(RNG.randint(-3, 4) if grid else RNG.randn()))
            a["missing_value_tracks_true"][at] = int(RNG.randint(2))
            a["truenodeids"][at] = grow(d - 1)
            a["falsenodeids"][at] = grow(d - 1)
            return me

        grow(depth)
    return {"nodes_" + k: v for k, v in a.items()}, leaf


def ml_model(op, outs, attrs, features, version=3, dtype=onnx.TensorProto.FLOAT, out=None):
    types = {"label": onnx.TensorProto.INT64}
    g = oh.make_graph(
        [oh.make_node(op, ["x"], outs, domain="ai.onnx.ml", **attrs)], "g",
        [oh.make_tensor_value_info("x", dtype, [None, features])],
        [oh.make_tensor_value_info(o, types.get(o, out or onnx.TensorProto.FLOAT), None)
         for o in outs])
    m = oh.make_model(g, opset_imports=[oh.make_opsetid("", 17),
                                        oh.make_opsetid("ai.onnx.ml", version)], ir_version=8)
    return m


def random_ensembles():
    f = 6
    x = RNG.randint(-4, 5, (200, f)).astype(np.float32)
    for modes in [[m] for m in MODES] + [MODES]:
        for how in ("SUM", "AVERAGE", "MIN", "MAX"):
            for targets, per_leaf in ((1, 1), (3, 3), (4, 1)):
                nodes, leaf = random_trees(7, 4, f, modes, targets, per_leaf, True)
                at = dict(nodes, n_targets=targets, aggregate_function=how,
                          **{"target_" + k: v for k, v in leaf.items()})
                if targets == 3:
                    at["base_values"] = [0.5, -1.0, 2.0]
                name = f"regressor {'+'.join(modes)} {how} {targets}"
                sweep(name, ml_model("TreeEnsembleRegressor", ["y"], at, f), x)
    for post in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT", "NONE"):
        nodes, leaf = random_trees(5, 3, f, MODES, 3, 3, True)
        if post == "PROBIT":
            leaf["weights"] = [abs(w) / 40 + 1e-3 for w in leaf["weights"]]
        at = dict(nodes, n_targets=3, post_transform=post,
                  **{"target_" + k: v for k, v in leaf.items()})
        sweep("regressor post " + post, ml_model("TreeEnsembleRegressor", ["y"], at, f), x, 1e-4)
        at = dict(nodes, classlabels_int64s=[5, 3, 9], post_transform=post, base_values=[.1, .2, .3],
                  **{"class_" + k: v for k, v in leaf.items()})
        sweep("classifier post " + post,
              ml_model("TreeEnsembleClassifier", ["label", "y"], at, f), x, 1e-4)
        for positive in (False, True):
            for base in ([], [0.25]):
                if post == "PROBIT":
                    continue
                nodes, leaf = random_trees(5, 3, f, MODES, 1, 1, True)
                if positive:
                    leaf["weights"] = [abs(w) / 5 for w in leaf["weights"]]
                at = dict(nodes, classlabels_int64s=[4, 2], post_transform=post,
                          **{"class_" + k: v for k, v in leaf.items()})
                if base:
                    at["base_values"] = base
                sweep(f"binary post {post} {positive} {base}",
                      ml_model("TreeEnsembleClassifier", ["label", "y"], at, f), x, 1e-4)
    nodes, leaf = random_trees(9, 5, f, MODES, 2, 2, False)
    at = dict(nodes, n_targets=2, **{"target_" + k: v for k, v in leaf.items()})
    values = np.array(at.pop("nodes_values"), np.float64) + 1e-12
    weights = np.array(at.pop("target_weights"), np.float64)
    at["nodes_values_as_tensor"] = onnx.numpy_helper.from_array(values)
    at["target_weights_as_tensor"] = onnx.numpy_helper.from_array(weights)
    exact = np.random.RandomState(1).choice(values, (300, f))
    sweep("regressor double", ml_model("TreeEnsembleRegressor", ["y"], at, f, 3,
                                       onnx.TensorProto.DOUBLE), exact)
    for dtype, kind in ((np.int64, onnx.TensorProto.INT64), (np.int32, onnx.TensorProto.INT32)):
        nodes, leaf = random_trees(9, 5, f, MODES, 1, 1, True)
        at = dict(nodes, n_targets=1, **{"target_" + k: v for k, v in leaf.items()})
        compare(f"regressor {dtype.__name__}",
                ml_model("TreeEnsembleRegressor", ["y"], at, f, 3, kind), {"x": x.astype(dtype)})


def ensemble_5():
    """TreeEnsemble with set membership."""
    for dtype, kind in ((np.float32, onnx.TensorProto.FLOAT), (np.float64, onnx.TensorProto.DOUBLE)):
        t = lambda v: onnx.numpy_helper.from_array(np.array(v, dtype))
        for how in range(4):
            at = dict(
                n_targets=2, aggregate_function=how, post_transform=0, tree_roots=[0, 3],
                nodes_modes=onnx.numpy_helper.from_array(np.array([0, 6, 1, 6, 4], np.uint8)),
                nodes_featureids=[0, 1, 2, 2, 0], nodes_splits=t([1, 0, 2, 0, 3]),
                nodes_truenodeids=[1, 0, 2, 4, 5], nodes_trueleafs=[0, 1, 1, 0, 1],
                nodes_falsenodeids=[2, 1, 3, 4, 6], nodes_falseleafs=[0, 1, 1, 1, 1],
                membership_values=t([1, 2, -3, np.nan, 0, 4, np.nan]),
                leaf_targetids=[0, 1, 0, 1, 0, 1, 0], leaf_weights=t([1, 2, 4, 8, 16, 32, 64.5]))
            m = ml_model("TreeEnsemble", ["y"], at, 3, 5, kind, kind)
            compare(f"ensemble 5 {dtype.__name__} {how}", m,
                    {"x": RNG.randint(-4, 5, (300, 3)).astype(dtype)})


# -- small operators -------------------------------------------------------------------------------

def small_operators():
    f = 5
    x = RNG.randn(37, f).astype(np.float32)
    x[3] = 0
    one = lambda op, at, **k: ml_model(op, ["y"], at, f, 1, **k)
    for n in (1, f):
        sweep(f"scaler {n}", one("Scaler", dict(offset=list(map(float, range(n))),
                                                scale=[0.5] * n)), x)
        sweep(f"imputer {n}", one("Imputer", dict(
            imputed_value_floats=[1.5 + k for k in range(n)],
            replaced_value_float=float("nan"))), x)
        sweep(f"imputer zero {n}", one("Imputer", dict(
            imputed_value_floats=[1.5 + k for k in range(n)], replaced_value_float=0.0)), x)
    i64 = dict(dtype=onnx.TensorProto.INT64, out=onnx.TensorProto.INT64)
    ints = RNG.randint(-3, 4, (50, f)).astype(np.int64)
    compare("imputer ints", one("Imputer", dict(imputed_value_int64s=[7], replaced_value_int64=2),
                                **i64), {"x": ints})
    for norm in ("MAX", "L1", "L2"):
        sweep(f"normalizer {norm}", one("Normalizer", dict(norm=norm)), x, nan=False)
    sweep("binarizer", one("Binarizer", dict(threshold=0.25)), x)
    compare("one hot", one("OneHotEncoder", dict(cats_int64s=[-2, 0, 1, 3], zeros=1),
                           dtype=onnx.TensorProto.INT64), {"x": ints})
    for at in (dict(keys_int64s=[2, -1, 0], values_floats=[.5, 1.5, 2.5], default_float=-9.0),):
        m = ml_model("LabelEncoder", ["y"], at, f, 2, onnx.TensorProto.INT64)
        compare("label encoder ints", m, {"x": ints})
    m = ml_model("LabelEncoder", ["y"], dict(keys_floats=[2., float("nan"), 0., -1.],
                                             values_int64s=[10, 20, 30, 40]), f, 4,
                 out=onnx.TensorProto.INT64)
    xf = ints.astype(np.float32)
    xf[::7] = np.nan
    compare("label encoder floats", m, {"x": xf})
    for targets in (1, 3):
        for post in ("NONE", "LOGISTIC", "SOFTMAX"):
            if targets == 1 and post != "NONE":
                continue
            at = dict(coefficients=list(map(float, RNG.randn(targets * f))), targets=targets,
                      intercepts=list(map(float, RNG.randn(targets))), post_transform=post)
            sweep(f"linear regressor {targets} {post}", one("LinearRegressor", at), x, nan=False)
            at.pop("targets")
            at["classlabels_ints"] = [3, 1, 2] if targets == 3 else [3, 1]
            m = ml_model("LinearClassifier", ["label", "y"], at, f, 1)
            sweep(f"linear classifier {targets} {post}", m, x, nan=False)


# -- trained models --------------------------------------------------------------------------------

def scikit():
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import (ExtraTreesClassifier, ExtraTreesRegressor,
                                  GradientBoostingClassifier, GradientBoostingRegressor,
                                  HistGradientBoostingClassifier, HistGradientBoostingRegressor,
                                  RandomForestClassifier, RandomForestRegressor)
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import (MaxAbsScaler, MinMaxScaler, Normalizer, OneHotEncoder,
                                       PolynomialFeatures, RobustScaler, StandardScaler)
    from sklearn.svm import SVC, SVR, LinearSVC
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
    from skl2onnx import to_onnx
    plain = oh.make_attribute
    ints = lambda v: [int(k) for k in v] if isinstance(v, list) and v and not isinstance(
        v[0], (str, bytes, float)) and all(np.ndim(k) == 0 and k == int(k) for k in v) else v
    oh.make_attribute = lambda key, value, *a, **k: plain(key, ints(value) if "nodes_" in key
                                                          and "values" not in key else value, *a, **k)
    x = RNG.randn(400, 7).astype(np.float32)
    two = (x[:, 0] + x[:, 1] > 0).astype(int)
    three = np.digitize(x[:, 0] + 0.5 * x[:, 1], [-.6, .5])
    texts = np.array(["a", "bc", "déf"])[three]
    real = x[:, 0] * 2 + np.sin(x[:, 1])
    holes = x.copy()
    holes[RNG.rand(*x.shape) < 0.2] = np.nan
    trees = dict(n_estimators=12, random_state=0)
    models = {
        "forest two": (RandomForestClassifier(max_depth=6, **trees), x, two),
        "forest three": (RandomForestClassifier(**trees), x, three),
        "forest texts": (RandomForestClassifier(**trees), x, texts),
        "forest two texts": (RandomForestClassifier(**trees), x, np.array(["no", "yes"])[two]),
        "forest real": (RandomForestRegressor(**trees), x, real),
        "forest real two": (RandomForestRegressor(**trees), x, np.stack([real, -real * real], 1)),
        "extra two": (ExtraTreesClassifier(max_depth=5, **trees), x, two),
        "extra real": (ExtraTreesRegressor(**trees), x, real),
        "tree": (DecisionTreeClassifier(random_state=0), x, three),
        "tree real": (DecisionTreeRegressor(random_state=0), x, real),
        "boost two": (GradientBoostingClassifier(**trees), x, two),
        "boost three": (GradientBoostingClassifier(**trees), x, three),
        "boost real": (GradientBoostingRegressor(**trees), x, real),
        "hist two": (HistGradientBoostingClassifier(max_iter=12), holes, two),
        "hist three": (HistGradientBoostingClassifier(max_iter=12), holes, three),
        "hist real": (HistGradientBoostingRegressor(max_iter=12), holes, real),
        "logistic two": (LogisticRegression(), x, two),
        "logistic three": (LogisticRegression(), x, three),
        "logistic texts": (LogisticRegression(), x, texts),
        "sgd": (SGDClassifier(random_state=0), x, three),
        "linear": (LinearRegression(), x, real),
        "ridge two": (Ridge(), x, np.stack([real, -real], 1)),
        "svc rbf": (SVC(), x, three), "svc two": (SVC(), x, two),
        "svc poly": (SVC(kernel="poly"), x, three),
        "svc probability": (SVC(probability=True, random_state=0), x, three),
        "svc probability two": (SVC(probability=True, random_state=0), x, two),
        "svc linear texts": (SVC(kernel="linear"), x, texts),
        "svc sigmoid": (SVC(kernel="sigmoid"), x, two),
        "linear svc": (LinearSVC(), x, three),
        "svr": (SVR(), x, real), "svr poly": (SVR(kernel="poly", degree=2), x, real),
        "bayes": (GaussianNB(), x, three),
        "neighbors": (KNeighborsClassifier(3), x, three),
        "mlp": (MLPClassifier((9,), max_iter=30, random_state=0), x, three),
        "pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), x, two),
        "pipeline forest": (make_pipeline(SimpleImputer(), MinMaxScaler(),
                                          RandomForestClassifier(**trees)), holes, three),
        "pipeline robust": (make_pipeline(RobustScaler(), MaxAbsScaler(), Normalizer(),
                                          PolynomialFeatures(2), Ridge()), x, real),
        "columns": (make_pipeline(ColumnTransformer([("a", StandardScaler(), [0, 1]),
                                                     ("b", MinMaxScaler(), [3, 5])]),
                                  GradientBoostingClassifier(**trees)), x, two),
    }
    for name, (model, rows, y) in models.items():
        if WORD and WORD not in name and not any(name in WORD for _ in (0,)):
            continue
        model.fit(rows, y)
        try:
            o = to_onnx(model, rows[:1], target_opset={"": 17, "ai.onnx.ml": 3})
        except Exception as e:
            print("skip", name, repr(e)[:100])
            continue
        # votes of pairs jump where a score is near 0
        sweep(name, o, rows, 2e-3 if "svc" in name else 1e-4, nan=bool(np.isnan(rows).any()))
    leaf = RandomForestRegressor(max_depth=4, **trees).fit(x, np.stack([real, -real], 1))
    o = to_onnx(leaf, x[:1], target_opset={"": 17, "ai.onnx.ml": 3},
                options={id(leaf): {"decision_leaf": True}})
    sweep("forest leaves", o, x, 1e-4, nan=False)
    scaled = np.round(x[:, :2] * 2)
    hot = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    o = to_onnx(hot.fit(scaled.astype(np.int64), three), scaled[:1].astype(np.int64))
    compare("one hot pipeline", o, {o.graph.input[0].name: scaled.astype(np.int64)}, 1e-4)
    import pandas as pd
    table = pd.DataFrame({"color": np.array(["red", "green", "blue"])[RNG.randint(3, size=400)],
                          "size": x[:, 0], "mass": x[:, 1]})
    mixed = make_pipeline(ColumnTransformer([("h", OneHotEncoder(handle_unknown="ignore"),
                                              ["color"]), ("n", StandardScaler(),
                                                           ["size", "mass"])]),
                          RandomForestClassifier(**trees))
    mixed.fit(table, texts)
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    o = to_onnx(mixed, initial_types=[("color", StringTensorType([None, 1])),
                                      ("size", FloatTensorType([None, 1])),
                                      ("mass", FloatTensorType([None, 1]))])
    color = table["color"].to_numpy(str)[:, None].copy()
    color[5] = "violet"
    compare("columns of texts", o, {"color": color, "size": x[:, :1], "mass": x[:, 1:2]}, 1e-4)


def boosters():
    try:
        import lightgbm
        import xgboost
        from onnxmltools import convert_lightgbm, convert_xgboost
        from onnxmltools.convert.common.data_types import FloatTensorType
    except ImportError as e:
        print("skip boosters", e)
        return
    x = RNG.randn(500, 6).astype(np.float32)
    x[RNG.rand(*x.shape) < 0.15] = np.nan
    two = (np.nan_to_num(x[:, 0] + x[:, 1]) > 0).astype(int)
    three = np.digitize(np.nan_to_num(x[:, 0]), [-.6, .5])
    real = np.nan_to_num(x[:, 0] * 2 + x[:, 1])
    kind = [("x", FloatTensorType([None, 6]))]
    small = dict(n_estimators=15, max_depth=4)
    for name, cls, y in (("xgb two", xgboost.XGBClassifier, two),
                         ("xgb three", xgboost.XGBClassifier, three),
                         ("xgb real", xgboost.XGBRegressor, real)):
        try:
            sweep(name, convert_xgboost(cls(**small).fit(x, y), initial_types=kind), x, 1e-4)
        except Exception as e:
            print("skip", name, repr(e)[:120])
    whole = x.copy()
    whole[:, 2] = RNG.randint(0, 12, len(x))
    for name, cls, y, cat in (("lgb two", lightgbm.LGBMClassifier, two, []),
                              ("lgb three", lightgbm.LGBMClassifier, three, []),
                              ("lgb real", lightgbm.LGBMRegressor, real, []),
                              ("lgb categories", lightgbm.LGBMRegressor, real, [2])):
        try:
            m = cls(verbose=-1, **small).fit(whole if cat else x, y, categorical_feature=cat)
            sweep(name, convert_lightgbm(m, initial_types=kind), whole if cat else x, 1e-4)
        except Exception as e:
            print("skip", name, repr(e)[:120])


random_ensembles()
ensemble_5()
small_operators()
boosters()
scikit()
print(f"{len(BAD)} of the models differ")
sys.exit(1 if BAD else 0)
