"""PyTorch models through both ONNX exporters: `rubato run` against ONNX Runtime.

    python3 test/oracle/onnx_models.py [--rubato build/tool/rubato] [--dir DIR] [NAME...]

For each model and exporter: export with a symbolic batch, run it here and with ONNX Runtime on the
same random inputs for batches 1 and 3, compare the outputs; then `rubato export` writes it again in
opsets 21 and 17, which onnx.checker and ONNX Runtime must accept with the same outputs.
Prints one line per case and exits with 1 when one differs.
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
import onnx
import onnxruntime
import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
import models as workloads  # noqa: E402

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


class Vit(nn.Module):
    def __init__(self, width=64, heads=4, layers=2):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, activation="gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
        return self.head(self.encoder(x)[:, 0])


class Bert(nn.Module):
    """Token, position and segment embeddings, padding mask, post-norm encoder, pooler."""

    def __init__(self, width=64, heads=4, layers=2, context=32, vocab=100):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.ln = nn.LayerNorm(width, eps=1e-12)
        self.q = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.o = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.n1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.n2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.pool, self.heads = nn.Linear(width, width), heads

    def forward(self, ids):
        mask = (ids != 0)[:, None, None, :]
        bias = torch.where(mask, 0.0, -1e9)
        b, t = ids.shape
        x = self.ln(self.tok(ids) + self.pos(torch.arange(t)))
        for k in range(len(self.q)):
            q, key, v = self.q[k](x).chunk(3, -1)
            q, key, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, key, v))
            s = q @ key.transpose(-1, -2) / (q.shape[-1] ** 0.5) + bias
            y = (s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
            x = self.n1[k](x + self.o[k](y))
            x = self.n2[k](x + self.down[k](F.gelu(self.up[k](x))))
        return torch.tanh(self.pool(x[:, 0]))


class Conv(nn.Module):
    """What convolutional models use besides: groups, dilation, transposed, norms, activations."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, 2, 1)
        self.dw = nn.Conv2d(16, 16, 3, 1, 2, dilation=2, groups=16, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.gn, self.inn = nn.GroupNorm(4, 16), nn.InstanceNorm2d(16, affine=True)
        self.up = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1)
        self.pr = nn.PReLU(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.hardswish(self.bn(self.dw(F.silu(self.a(x)))))
        x = F.leaky_relu(self.gn(x), 0.1) + F.softplus(self.inn(x)) + F.elu(x) * F.mish(x)
        x = F.max_pool2d(x, 3, 2, 1, ceil_mode=True) + F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
        x = F.interpolate(self.pr(self.up(x)), scale_factor=2, mode="bilinear")
        x = F.pad(x, (1, 2, 0, 1), mode="reflect")
        return F.log_softmax(self.fc(x.amax((2, 3)) + x.std((2, 3))), -1)


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(12, 20, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(40, 3)

    def forward(self, x):
        y, h = self.gru(x)
        return self.head(y[:, -1]), h


def build(name):
    torch.manual_seed(2)
    if name in workloads.WORKLOADS:
        model, _, data, _, _ = workloads.make(name)
        return model, lambda n: data(n)[0]
    made = {
        "vit": (Vit, lambda n: torch.randn(n, 3, 32, 32)),
        "bert": (Bert, lambda n: torch.randint(0, 100, (n, 32))),
        "conv": (Conv, lambda n: torch.randn(n, 3, 17, 19)),
        "gru": (Gru, lambda n: torch.randn(n, 9, 12)),
    }[name]
    return made[0](), made[1]


NAMES = list(workloads.WORKLOADS) + ["vit", "bert", "conv", "gru"]


def export(model, x, path, exporter, opset):
    names = ["y"] if name_count(model, x) == 1 else ["y", "h"]
    if exporter == "dynamo":
        dim = torch.export.Dim("N", min=1, max=4096)
        torch.onnx.export(model, (x,), path, input_names=["x"], output_names=names, dynamo=True,
                          external_data=False, dynamic_shapes=({0: dim},), verbose=False,
                          opset_version=opset)
    else:
        torch.onnx.export(model, (x,), path, input_names=["x"], output_names=names, dynamo=False,
                          dynamic_axes={"x": {0: "N"}}, opset_version=opset)


def name_count(model, x):
    with torch.no_grad():
        y = model(x)
    return len(y) if isinstance(y, tuple) else 1


def rubato_run(rubato, path, x, folder, extra=()):
    np.savez(folder + "/x.npz", x=x)
    subprocess.run([rubato, "run", path, "--in", folder + "/x.npz", "--out", folder + "/y.npz", "-q",
                    "--threads", "1", *extra], check=True, capture_output=True, text=True)
    with np.load(folder + "/y.npz") as y:
        return [y[k] for k in y.files]


def ort_run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})


def gap(a, b):
    return max(float(np.max(np.abs(p - q)) / (1e-3 + np.max(np.abs(q)))) for p, q in zip(a, b))


def case(args, name, exporter, opset, folder):
    model, data = build(name)
    model.eval()
    path = os.path.join(folder, f"{name}-{exporter}-{opset}.onnx")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        export(model, data(2), path, exporter, opset)
    worst = 0.0
    for n in (1, 3):
        x = data(n).numpy()
        want = ort_run(path, x)
        worst = max(worst, gap(rubato_run(args.rubato, path, x, folder), want))
        worst = max(worst, gap(rubato_run(args.rubato, path, x, folder, ["--device", "ref"]), want))
    for target in (21, 17):
        again = os.path.join(folder, "again.onnx")
        subprocess.run([args.rubato, "export", path, "--onnx", again, "--opset", str(target)],
                       check=True, capture_output=True, text=True)
        onnx.checker.check_model(again, full_check=True)
        worst = max(worst, gap(ort_run(again, x), want))
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rubato", default="build/tool/rubato")
    p.add_argument("--dir")
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    folder = args.dir or tempfile.mkdtemp()
    bad = 0
    for name in args.names or NAMES:
        for exporter, opset in (("dynamo", 18), ("dynamo", 20), ("script", 17), ("script", 11)):
            try:
                worst = case(args, name, exporter, opset, folder)
                good = worst < 1e-4
                print(f"{'ok  ' if good else 'BAD '} {name} {exporter} opset {opset}: {worst:.1e}")
            except subprocess.CalledProcessError as e:
                good = False
                print(f"BAD  {name} {exporter} opset {opset}: {e.stderr.strip()}")
            except onnx.checker.ValidationError as e:
                good = False
                print(f"BAD  {name} {exporter} opset {opset}: {str(e).splitlines()[0]}")
            except (RuntimeError, torch.onnx.errors.OnnxExporterError) as e:  # the exporter or ONNX Runtime does not take it: no verdict
                good = True
                print(f"skip {name} {exporter} opset {opset}: {str(e).splitlines()[0][:120]}")
            bad += not good
            sys.stdout.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
