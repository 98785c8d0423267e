"""Zoo models trained for a few steps, exported, and run by ONNX Runtime.

    python3 test/oracle/onnx_zoo.py [--rubato build/tool/rubato] [NAME...]

For each model: two training steps on made data, `rubato export` in opsets 21 and 17; onnx.checker must
accept the file, ONNX Runtime and `rubato run` must give the same outputs, and the safetensors file
must hold the weights under the names of the ONNX file.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import safetensors.numpy

IMAGES = "data: {format: idx, train: [%s/digits/train-images, %s/digits/train-labels]}\n"
TOKENS = "data: {format: tokens, train: [%s/corpus/train.u8], context: 32}\n"
MODELS = {
    "mlp": "{zoo: mlp}", "lenet": "{zoo: lenet}", "resnet18": "{zoo: resnet18}",
    "mobilenet": "{zoo: mobilenet}", "vit": "{zoo: vit, patch: 7, layers: 2, heads: 2, width: 32}",
    "gpt": "{zoo: gpt, layers: 2, heads: 2, width: 32, context: 32, vocab: 256}",
    "lstm": "{zoo: lstm, layers: 2, width: 32, vocab: 256}",
}
TEXT = ("gpt", "lstm")


def call(*args):
    r = subprocess.run(args, capture_output=True, text=True)
    if r.returncode != 0:
        raise RuntimeError(r.stderr.strip())
    return r.stdout


def case(rubato, name, folder):
    job = os.path.join(folder, name + ".yaml")
    data = TOKENS % folder if name in TEXT else IMAGES % (folder, folder)
    loss = "next_token" if name in TEXT else "cross_entropy"
    with open(job, "w") as f:
        f.write(f"name: {name}\nmodel: {MODELS[name]}\n{data}"
                f"train: {{loss: {loss}, optimizer: {{adamw: {{lr: 0.001}}}}, batch: 8, steps: 2}}\n")
    out = os.path.join(folder, name)
    call(rubato, "train", job, "--out", out, "-q")
    weights = os.path.join(folder, name + ".safetensors")
    worst = 0.0
    for opset in ("21", "17"):
        path = os.path.join(folder, f"{name}-{opset}.onnx")
        call(rubato, "export", out, "--onnx", path, "--opset", opset, "--safetensors", weights)
        onnx.checker.check_model(path, full_check=True)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        given = session.get_inputs()[0]
        shape = [3 if isinstance(d, str) else d for d in given.shape]
        rng = np.random.default_rng(1)
        x = (rng.integers(0, 256, shape) if "int" in given.type
             else rng.normal(size=shape)).astype(np.int64 if "int64" in given.type else np.float32)
        want = session.run(None, {given.name: x})[0]
        np.savez(folder + "/x.npz", **{given.name: x})
        call(rubato, "run", path, "--in", folder + "/x.npz", "--out", folder + "/y.npz", "-q")
        with np.load(folder + "/y.npz") as y:
            have = y[y.files[0]]
        worst = max(worst, float(np.max(np.abs(have - want)) / (1e-3 + np.max(np.abs(want)))))
    held = safetensors.numpy.load_file(weights)
    for init in onnx.load(path).graph.initializer:
        if init.name in held:
            assert np.array_equal(held[init.name], onnx.numpy_helper.to_array(init)), init.name
    assert any(i.name in held for i in onnx.load(path).graph.initializer)
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rubato", default="build/tool/rubato")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    rubato = os.path.abspath(args.rubato)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        call(rubato, "data", "make", "digits", "--count", "64", "--test", "-1", "--out",
             folder + "/digits", "-q")
        call(rubato, "data", "make", "text", __file__, "--out", folder + "/corpus", "-q")
        for name in args.names or MODELS:
            try:
                worst = case(rubato, name, folder)
                good, say = worst < 1e-4, f"{worst:.1e}"
            except Exception as e:
                good, say = False, str(e)
            bad += not good
            print(f"{'ok  ' if good else 'BAD '} {name}: {say}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
