"""Export classical models for `rubato bench infer --zoo DIR`: ensembles of trees that scikit-learn, XGBoost and LightGBM
have trained, converted by skl2onnx and onnxmltools.

    trees.py DIR

DIR/NAME.ROWS.onnx is one model, DIR/NAME.ROWS.npz holds that many rows. Files that are there are kept; what a library
that is not installed would make is told and left out."""
import os
import sys
import warnings

import numpy as np
import onnx

warnings.filterwarnings("ignore")
RNG = np.random.RandomState(7)
FEATURES = 28
ROWS = (1, 64, 4096)


def data(n):
    x = RNG.randn(n, FEATURES).astype(np.float32)
    score = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.5 * x[:, 3] + 0.3 * RNG.randn(n)
    return x, score


def from_sklearn(model, x, y):
    from skl2onnx import to_onnx
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    return to_onnx(model.fit(x, y), x[:1], options=options, target_opset={"": 17, "ai.onnx.ml": 3})


def from_boosting(convert, model, x, y):
    from onnxmltools.convert.common.data_types import FloatTensorType
    more = {"zipmap": False} if "lightgbm" in convert.__name__ else {}
    return convert(model.fit(x, y), initial_types=[("x", FloatTensorType([None, FEATURES]))], **more)


def scikit(x, y):
    from sklearn import ensemble, tree
    two, five = (y > 0).astype(int), np.digitize(y, [-1, -0.3, 0.3, 1])
    trees = {"n_estimators": 100, "random_state": 0, "n_jobs": 2}
    yield "sklearn-tree", lambda: from_sklearn(tree.DecisionTreeClassifier(max_depth=10), x, two)
    yield "sklearn-forest", lambda: from_sklearn(ensemble.RandomForestClassifier(max_depth=10, **trees), x, two)
    yield "sklearn-forest-5", lambda: from_sklearn(ensemble.RandomForestClassifier(max_depth=8, **trees), x, five)
    yield "sklearn-forest-deep", lambda: from_sklearn(ensemble.RandomForestRegressor(**trees), x, y)
    yield "sklearn-boost", lambda: from_sklearn(
        ensemble.GradientBoostingRegressor(n_estimators=100, max_depth=5, random_state=0), x, y)


def boosting(x, y):
    two, five = (y > 0).astype(int), np.digitize(y, [-1, -0.3, 0.3, 1])
    import xgboost
    from onnxmltools import convert_xgboost
    yield "xgboost-100", lambda: from_boosting(
        convert_xgboost, xgboost.XGBRegressor(n_estimators=100, max_depth=6), x, y)
    yield "xgboost-1000", lambda: from_boosting(
        convert_xgboost, xgboost.XGBClassifier(n_estimators=1000, max_depth=6), x, two)
    yield "xgboost-5", lambda: from_boosting(
        convert_xgboost, xgboost.XGBClassifier(n_estimators=60, max_depth=5), x, five)
    import lightgbm
    from onnxmltools import convert_lightgbm
    yield "lightgbm-300", lambda: from_boosting(
        convert_lightgbm, lightgbm.LGBMClassifier(n_estimators=300, num_leaves=31, verbose=-1), x, two)
    yield "lightgbm-wide", lambda: from_boosting(
        convert_lightgbm, lightgbm.LGBMRegressor(n_estimators=100, num_leaves=255, verbose=-1), x, y)


def scores_first(model):
    """The scores in front of the labels: the first output is compared. Converters write wrong sizes of outputs."""
    for out in model.graph.output:
        out.type.tensor_type.ClearField("shape")
    if len(model.graph.output) == 2:
        label = model.graph.output[0]
        model.graph.output.remove(label)
        model.graph.output.append(label)
    return model


def main():
    folder = sys.argv[1]
    x, y = data(8000)
    missing = []
    for family in (scikit, boosting):
        try:
            for name, make in family(x, y):
                if all(os.path.exists(f"{folder}/{name}.{n}.onnx") for n in ROWS):
                    continue
                model = scores_first(make())
                for n in ROWS:
                    np.savez(f"{folder}/{name}.{n}.npz", **{model.graph.input[0].name: data(n)[0]})
                    onnx.save(model, f"{folder}/{name}.{n}.onnx")
        except ImportError as e:
            missing.append(str(e))
    for why in missing:
        print("left out:", why, file=sys.stderr)
    return 0 if os.listdir(folder) else 1


sys.exit(main())
