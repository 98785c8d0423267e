"""A U-Net exported by torch.export with symbols for batch, height and width, three steps with PyTorch, as
test/oracle/data/train_any.inc.

    python3 test/oracle/train_any.py            (needs torch 2.13 or later, onnx, onnxscript)

The exporter's optimiser has merged equal scales and written GroupNorm and Resize with constants among the weights.
Stored are the file, the batches and PyTorch's losses: of the network as it is, and with a new last layer of
other width, whose start values are stored; train/model/any_test.c trains the same file and compares."""
import contextlib
import io
import os
import tempfile
import warnings

import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings("ignore")
STEPS, BATCH, SIDE, RATE = 3, 4, 8, 0.1


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.norm1 = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.down2, self.norm2 = nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.up, self.norm3 = nn.Conv2d(8, 4, 3, padding=1), nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        a = torch.relu(self.norm1(self.down1(x)))
        b = F.silu(self.norm2(self.down2(F.max_pool2d(a, 2))))
        u = F.interpolate(b, scale_factor=2, mode="bilinear", align_corners=False)
        y = torch.relu(self.norm3(self.up(torch.cat([a, u], 1))))
        return self.head(y.mean((2, 3)))


def export(model):
    auto = torch.export.Dim.AUTO
    with tempfile.TemporaryDirectory() as tmp, contextlib.redirect_stdout(io.StringIO()):
        path = os.path.join(tmp, "m.onnx")
        torch.onnx.export(model.eval(), (torch.zeros(2, 1, SIDE, SIDE),), path, dynamo=True, external_data=False,
                          dynamic_shapes=({0: auto, 2: auto, 3: auto},), input_names=["x"], output_names=["y"])
        m = onnx.load(path)
        for n in m.graph.node:
            del n.metadata_props[:]
        del m.graph.metadata_props[:], m.graph.value_info[:]
        return m.SerializeToString()


def losses(model, x, y):
    opt = torch.optim.SGD(model.parameters(), RATE)
    out = []
    for k in range(STEPS):
        opt.zero_grad()
        loss = F.cross_entropy(model(torch.from_numpy(x[k])), torch.from_numpy(y[k]))
        loss.backward()
        opt.step()
        out.append(loss.item())
    return out


def floats(a):
    return ", ".join(np.format_float_scientific(np.float32(v), 8, unique=True) + "F" for v in np.ravel(a))


def main():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((STEPS, BATCH, 1, SIDE, SIDE)).astype(np.float32)
    y = rng.integers(0, 3, (STEPS, BATCH))
    torch.manual_seed(1)
    model = UNet()
    start = {k: v.clone() for k, v in model.state_dict().items()}
    data = ",".join(str(b) for b in export(model))
    rows = [f"/* Made by test/oracle/train_any.py with PyTorch {torch.__version__.split('+')[0]}; not edited by hand. */",
            f"static const uint8_t any_model[] = {{{data}}};", f"static const float any_x[] = {{{floats(x)}}};",
            f"static const int64_t any_y[] = {{{', '.join(str(v) for v in y.ravel())}}};",
            f"static const float any_losses[] = {{{floats(losses(model, x, y))}}};"]
    model.load_state_dict(start)
    model.head = nn.Linear(4, 3)
    rows += [f"static const float any_head_weight[] = {{{floats(model.head.weight.detach().numpy())}}};",
             f"static const float any_head_bias[] = {{{floats(model.head.bias.detach().numpy())}}};",
             f"static const float any_head_losses[] = {{{floats(losses(model, x, y))}}};", ""]
    with open(os.path.join(os.path.dirname(__file__), "data", "train_any.inc"), "w") as f:
        f.write("\n".join(rows))


main()
