"""Models exported in training mode, four steps with PyTorch, as test/oracle/data/train_form.inc.

    python3 test/oracle/train_form.py            (needs torch 2.14, onnx, onnxscript)

Stored are the model files, the batches, the running statistics after the steps and the predictions of the
trained model; train/model/import_test.c trains the same files and compares."""
import contextlib
import io
import os
import tempfile
import warnings

import numpy as np
import torch
import torch.nn as nn
from torch.onnx import TrainingMode

warnings.filterwarnings("ignore")
STEPS, BATCH, RATE = 4, 8, 0.1


class Net(nn.Module):
    def __init__(self, frozen):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(3, momentum=0.25)
        self.wide = nn.Linear(48, 5)
        self.norm1 = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(5, 3)
        self.frozen = frozen

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return self.head(self.drop(self.norm1(self.wide(x))))


def modes(model):
    model.train()
    if model.frozen:
        model.norm.eval()
    return model


def export(model, opset, dynamo):
    x = torch.zeros(BATCH, 1, 4, 4)
    kw = {"dynamo": True, "optimize": False, "external_data": False} if dynamo else {
        "dynamo": False, "training": TrainingMode.PRESERVE, "do_constant_folding": False}
    with tempfile.TemporaryDirectory() as tmp, contextlib.redirect_stdout(io.StringIO()):
        path = os.path.join(tmp, "m.onnx")
        torch.onnx.export(modes(model), (x,), path, opset_version=opset, input_names=["x"],
                          output_names=["y"], **kw)
        import onnx
        m = onnx.load(path)
        for n in m.graph.node:
            del n.metadata_props[:]
        del m.graph.metadata_props[:], m.graph.value_info[:]
        return m.SerializeToString()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.two.weight.data.copy_(self.one.weight.data)

    def forward(self, x):
        return self.two(self.one(self.table(x))) @ self.table.weight.T


def export_eval(model, x, dynamo):
    """As people export for inference: folded, merged and untied."""
    kw = {"dynamo": True, "external_data": False} if dynamo else {"dynamo": False, "opset_version": 17}
    with tempfile.TemporaryDirectory() as tmp, contextlib.redirect_stdout(io.StringIO()):
        path = os.path.join(tmp, "m.onnx")
        torch.onnx.export(model.eval(), (x,), path, input_names=["x"], output_names=["y"], **kw)
        import onnx
        m = onnx.load(path)
        for n in m.graph.node:
            rules = [(p.key, p.value) for p in n.metadata_props if "rule_name" in p.key]
            del n.metadata_props[:]
            for key, value in rules:
                n.metadata_props.add(key=key, value=value)
        del m.graph.metadata_props[:], m.graph.value_info[:]
        return m.SerializeToString()


def floats(a):
    return ", ".join(np.format_float_scientific(v, 8, unique=True) + "F" for v in np.ravel(a))


def main():
    out = [f"/* Made by test/oracle/train_form.py with PyTorch {torch.__version__.split('+')[0]}; not edited by hand. */"]
    rows = []
    cases = [("opset17", 17, False, False), ("opset11", 11, False, False), ("frozen", 17, False, True),
             ("dynamo", 18, True, False)]
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, (STEPS, BATCH, 1, 4, 4)).astype(np.float32) * 2 + 0.5
    y = rng.integers(0, 3, (STEPS, BATCH))
    out.append(f"static const float form_x[] = {{{floats(x)}}};")
    out.append(f"static const int64_t form_y[] = {{{', '.join(str(v) for v in y.ravel())}}};")
    for name, opset, dynamo, frozen in cases:
        torch.manual_seed(1)
        model = Net(frozen)
        model.norm.running_mean += 0.125
        data = export(model, opset, dynamo)
        modes(model)
        opt = torch.optim.SGD(model.parameters(), RATE)
        for k in range(STEPS):
            opt.zero_grad()
            nn.functional.cross_entropy(model(torch.from_numpy(x[k])), torch.from_numpy(y[k])).backward()
            opt.step()
        model.eval()
        stats = [model.norm.running_mean, model.norm.running_var, model.norm1.running_mean, model.norm1.running_var]
        stats = np.concatenate([s.numpy() for s in stats])
        out.append(f"static const uint8_t form_{name}[] = {{{','.join(str(b) for b in data)}}};")
        out.append(f"static const float form_{name}_stats[] = {{{floats(stats)}}};")
        with torch.no_grad():
            out.append(f"static const float form_{name}_out[] = {{{floats(model(torch.from_numpy(x[0])).numpy())}}};")
        rows.append(f'    {{"{name}", form_{name}, sizeof form_{name}, form_{name}_stats, form_{name}_out}},')
    image, tokens = torch.zeros(BATCH, 1, 4, 4), torch.zeros(2, 3, dtype=torch.int64)
    torch.manual_seed(1)
    for name, model, x in (("folded", Net(False), image), ("tied", Tied(), tokens)):
        for dynamo in (False, True):
            data = ",".join(str(b) for b in export_eval(model, x, dynamo))
            out.append(f"static const uint8_t form_{name}_{'dynamo' if dynamo else 'script'}[] = {{{data}}};")
    out += ["static const form_case form_cases[] = {", *rows, "};", ""]
    with open(os.path.join(os.path.dirname(__file__), "data", "train_form.inc"), "w") as f:
        f.write("\n".join(out))


main()
