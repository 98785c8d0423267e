"""PyTorch models with sizes, branches and loops that depend on data, sampling and spectra, and what
ONNX Runtime's quantiser writes: `rubato run` against ONNX Runtime.

    python3 test/oracle/onnx_dynamic.py [--rubato build/tool/rubato] [NAME...]

Prints one line per case and exits with 1 when one differs. A quantised result may differ by one
step of its scale.
"""
import argparse
import contextlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F
from onnxruntime import quantization as q

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
onnxruntime.set_default_logger_severity(3)


class Of(nn.Module):
    """A function as a model."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *x):
        return self.fn(*x)


class Greedy(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, x):
        i = 0
        done = False
        while i < 8 and not done:
            new = self.l(self.e(x).mean(1)).argmax(-1, keepdim=True)
            x = torch.cat([x, new], 1)
            if bool((new == 3).all()):
                done = True
            i += 1
        return x


class Listed(nn.Module):
    def forward(self, x):
        out = [torch.zeros(2)]
        for i in range(x.shape[0]):
            if bool(x[i].sum() > 0):
                out.append(x[i] * 2)
            else:
                out.append(x[i] - 1)
        out.pop()
        return torch.stack(out)


class Net(nn.Module):
    """What the quantiser changes: convolutions, products, sums, pools."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.l = nn.Linear(8, 6)

    def forward(self, x):
        x = F.relu(self.a(x))
        x = F.avg_pool2d(torch.sigmoid(self.b(x)) + x, 2)
        return self.l(x.mean((2, 3)))


def masks(x, v):
    y, z = x.clone(), x.clone()
    y[x > 0] = 1.5
    z[x < 0] = v[:z[x < 0].shape[0]]
    return x[x > 0], y, z, torch.nonzero(x > 0.5), torch.unique(x.round())


def spectra(x):
    return torch.view_as_real(torch.fft.rfft(x)), torch.fft.irfft(torch.fft.rfft(x), n=60), \
        torch.view_as_real(torch.stft(x, 16, 4, window=torch.hann_window(16), return_complex=True))


def cases():
    torch.manual_seed(0)
    bags = {"x": {0: "n"}, "o": {0: "b"}}
    for mode in ("sum", "mean", "max"):
        yield "bag_" + mode, nn.EmbeddingBag(1000, 16, mode=mode), {
            "x": torch.randint(0, 1000, (1800,)), "o": torch.arange(0, 600) * 3}, {
                "opset_version": 14, "dynamic_axes": bags}
    yield "greedy", torch.jit.script(Greedy()), {"x": torch.tensor([[1, 2]])}, {
        "opset_version": 17, "dynamic_axes": {"x": {1: "T"}}}
    yield "listed", torch.jit.script(Listed()), {"x": torch.randn(5, 2)}, {
        "opset_version": 17, "dynamic_axes": {"x": {0: "T"}}}
    yield "masks", Of(masks), {"x": torch.randn(3, 4), "v": torch.randn(12)}, {"opset_version": 17}
    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            for align in (False, True):
                fn = Of(lambda x, g, m=mode, p=pad, a=align: F.grid_sample(x, g, m, p, a))
                yield f"grid_{mode}_{pad}_{align}", fn, {
                    "x": torch.randn(2, 3, 7, 5), "g": torch.rand(2, 4, 6, 2) * 3 - 1.5}, {
                        "opset_version": 16}
    fn = Of(lambda x, g: F.grid_sample(x, g, align_corners=False))
    yield "grid_volume", fn, {"x": torch.randn(2, 3, 4, 5, 6), "g": torch.rand(2, 3, 4, 6, 3)}, {
        "opset_version": 20, "dynamo": True}
    yield "fold", nn.Fold((6, 7), (2, 3), dilation=(2, 1), padding=1, stride=(1, 2)), {
        "x": torch.randn(2, 24, 24)}, {"opset_version": 18}
    yield "spectra", Of(spectra), {"x": torch.randn(2, 60)}, {"opset_version": 20, "dynamo": True}


class Reader(q.CalibrationDataReader):
    def __init__(self, x, n=8):
        self.left = [{"x": x + 0.1 * k} for k in range(n)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantised(folder):
    """Files as the quantiser writes them, with the step that a result may be off."""
    torch.manual_seed(1)
    x = torch.randn(2, 3, 12, 12)
    plain = os.path.join(folder, "net.onnx")
    torch.onnx.export(Net().eval(), (x,), plain, dynamo=False, input_names=["x"], opset_version=17)
    feed = {"x": x.numpy()}
    kinds = (q.QuantType.QUInt8, q.QuantType.QInt8)
    for a in kinds:
        for w in kinds if a == q.QuantType.QUInt8 else kinds[1:]:
            out = os.path.join(folder, f"static-{a}-{w}.onnx")
            q.quantize_static(plain, out, Reader(feed["x"]), quant_format=q.QuantFormat.QOperator,
                              activation_type=a, weight_type=w)
            yield f"static_{a}_{w}", out, feed
    for w in kinds:
        for channel in (False, True):
            out = os.path.join(folder, f"dynamic-{w}-{channel}.onnx")
            q.quantize_dynamic(plain, out, weight_type=w, per_channel=channel)
            yield f"dynamic_{w}_{channel}", out, feed


def gap(rubato, path, feed, folder):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {i.name: feed[i.name] for i in session.get_inputs()}
    want = session.run(None, feed)
    np.savez(folder + "/x.npz", **feed)
    worst = 0.0
    for device in ("cpu", "ref"):
        subprocess.run([rubato, "run", path, "--in", folder + "/x.npz", "--out", folder + "/y.npz",
                        "-q", "--device", device], check=True, capture_output=True, text=True)
        with np.load(folder + "/y.npz") as got:
            for name, y in zip([o.name for o in session.get_outputs()], want):
                z = got[name]
                if z.shape != y.shape or z.dtype != y.dtype:
                    return float("inf")
                if y.size > 0:
                    z, y = z.astype(float), y.astype(float)
                    worst = max(worst, float(np.max(np.abs(z - y)) / (1e-3 + np.max(np.abs(y)))))
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rubato", default="build/tool/rubato")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    folder = tempfile.mkdtemp()
    bad = 0

    def judge(name, path, feed, most):
        try:
            worst = gap(args.rubato, path, feed, folder)
            print(f"{'ok  ' if worst < most else 'BAD '} {name}: {worst:.1e}")
        except subprocess.CalledProcessError as e:
            worst = float("inf")
            print(f"BAD  {name}: {e.stderr.strip()}")
        sys.stdout.flush()
        return worst >= most

    for name, model, feed, opts in cases():
        if args.names and name not in args.names:
            continue
        path = os.path.join(folder, name + ".onnx")
        opts = {"dynamo": False, **opts}
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(model.eval(), tuple(feed.values()), path, input_names=list(feed),
                              **opts)
        bad += judge(name, path, {k: v.numpy() for k, v in feed.items()}, 1e-4)
    for name, path, feed in quantised(folder):
        if not args.names or name in args.names:
            bad += judge(name, path, feed, 2e-2)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
