"""Ten training losses of every zoo model and optimizer with PyTorch, as rows of data/losses.def.

    python3 test/oracle/losses.py            (needs torch 2.13, numpy)

Start values and batches come from Philox (philox.py); test/ops/oracle_test.c makes the same ones, runs the
same ten steps and compares. Only the losses are stored."""
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

import models as M
from philox import labels, start_value, uniform

STEPS = 10


def lstm_parts(model):
    """Parameters of nn.LSTM from the zoo's ONNX-ordered W, R, B (gates i o f c)."""
    lstm, h = model.lstm, model.lstm.hidden_size

    def torch_order(x):  # i o f c -> i f c o
        i, o, f, c = np.split(x, 4)
        return torch.from_numpy(np.concatenate([i, f, c, o]))

    for k in range(lstm.num_layers):
        size = lstm.input_size if k == 0 else h
        w = start_value(f"lstm.{k}.W", (1, 4 * h, size))[0]
        r = start_value(f"lstm.{k}.R", (1, 4 * h, h))[0]
        b = start_value(f"lstm.{k}.B", (1, 8 * h))[0]
        with torch.no_grad():
            getattr(lstm, f"weight_ih_l{k}").copy_(torch_order(w))
            getattr(lstm, f"weight_hh_l{k}").copy_(torch_order(r))
            getattr(lstm, f"bias_ih_l{k}").copy_(torch_order(b[:4 * h]))
            getattr(lstm, f"bias_hh_l{k}").copy_(torch_order(b[4 * h:]))


def fill(model):
    for name, p in model.named_parameters():
        if not name.startswith("lstm."):
            with torch.no_grad():
                p.copy_(torch.from_numpy(start_value(name, tuple(p.shape))))
    if hasattr(model, "lstm"):
        lstm_parts(model)


def matrices(model):
    """Parameters with two or more dimensions above 1."""
    return [p for p in model.parameters() if sum(d > 1 for d in p.shape) >= 2]


def batch_of(case, step):
    seed, n = 1000 + step, case["batch"]
    if "vocab" in case:
        t = case["context"]
        ids = labels(seed, 1, (n, t), case["vocab"])
        return torch.from_numpy(ids), torch.from_numpy(labels(seed, 2, (n, t), case["vocab"]))
    x = torch.from_numpy(uniform(seed, 1, (n, *case["input"])))
    if case.get("loss") == "mse":
        return x, torch.from_numpy(uniform(seed, 2, (n, case["classes"])))
    if case.get("loss") == "binary_cross_entropy":
        y = labels(seed, 2, (n, case["classes"]), 2)
        return x, torch.from_numpy(y.astype(np.float32))
    return x, torch.from_numpy(labels(seed, 2, (n,), case["classes"]))


def loss_of(case, out, y):
    kind = case.get("loss", "cross_entropy")
    if kind == "mse":
        return F.mse_loss(out, y)
    if kind == "binary_cross_entropy":
        return F.binary_cross_entropy_with_logits(out, y)
    return F.cross_entropy(out.flatten(0, -2), y.flatten(),
                           label_smoothing=case.get("smoothing", 0.0))


def run(case):
    torch.manual_seed(0)
    model = case["model"]()
    fill(model)
    model.train()
    opt = case["opt"](model)
    clip, micro, losses = case.get("clip", 0), case.get("accumulate", 1), []
    for step in range(STEPS):
        x, y = batch_of(case, step)
        opt.zero_grad()
        total = 0.0
        for xm, ym in zip(x.chunk(micro), y.chunk(micro)):
            loss = loss_of(case, model(xm), ym) / micro
            loss.backward()
            total += loss.item()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        opt.step()
        losses.append(total)
    return losses


def sgd(**kw):
    return lambda m: torch.optim.SGD(m.parameters(), **kw)


def adam(**kw):
    return lambda m: torch.optim.Adam(m.parameters(), **kw)


def adamw_matrices(lr, weight_decay):
    def make(m):
        some = matrices(m)
        ids = {id(p) for p in some}
        rest = [p for p in m.parameters() if id(p) not in ids]
        return torch.optim.AdamW([{"params": some, "weight_decay": weight_decay},
                                  {"params": rest, "weight_decay": 0.0}], lr=lr)
    return make


def adagrad(**kw):
    return lambda m: torch.optim.Adagrad(m.parameters(), **kw)


MOMENTUM = sgd(lr=0.01, momentum=0.9)
MLP = dict(model=lambda: M.Mlp(20, (16, 12), 5), input=(20,), classes=5, batch=8)


def momentum(lr):
    """Low enough that PyTorch's own f32 and f64 runs agree to 1e-5 after ten steps."""
    return sgd(lr=lr, momentum=0.9)


IMAGE = dict(input=(3, 16, 16), classes=7, batch=8, opt=momentum(0.003))

CASES = {
    "mlp": dict(MLP, opt=sgd(lr=0.1)),
    "mlp_momentum": dict(MLP, opt=sgd(lr=0.1, momentum=0.9, weight_decay=0.01)),
    "mlp_nesterov": dict(MLP, opt=sgd(lr=0.1, momentum=0.9, nesterov=True)),
    "mlp_adam": dict(MLP, opt=adam(lr=0.01, weight_decay=0.01)),
    "mlp_adamw": dict(MLP, opt=lambda m: torch.optim.AdamW(m.parameters(), lr=0.01,
                                                           weight_decay=0.1)),
    "mlp_matrices": dict(MLP, opt=adamw_matrices(0.01, 0.5)),
    "mlp_adagrad": dict(MLP, opt=adagrad(lr=0.05, weight_decay=0.01)),
    "mlp_clip": dict(MLP, opt=sgd(lr=0.5, momentum=0.9), clip=0.25),
    "mlp_accumulate": dict(MLP, opt=MOMENTUM, accumulate=4, clip=0.5),
    "mlp_smoothing": dict(MLP, opt=sgd(lr=0.1), smoothing=0.1),
    "mlp_gelu": dict(MLP, model=lambda: M.Mlp(20, (16, 12), 5, F.gelu), opt=sgd(lr=0.1)),
    "mlp_tanh": dict(MLP, model=lambda: M.Mlp(20, (16, 12), 5, torch.tanh), opt=sgd(lr=0.1)),
    "mlp_mse": dict(MLP, opt=sgd(lr=0.1), loss="mse"),
    "mlp_bce": dict(MLP, opt=sgd(lr=0.1), loss="binary_cross_entropy"),
    "lenet": dict(model=lambda: M.LeNet(1, 28, 8, 10), input=(1, 28, 28), classes=10, batch=8,
                  opt=MOMENTUM),
    "resnet18": dict(IMAGE, model=lambda: M.ResNet(18, 8, 7)),
    "resnet34": dict(IMAGE, model=lambda: M.ResNet(34, 8, 7), opt=momentum(0.001)),
    "resnet50": dict(IMAGE, model=lambda: M.ResNet(50, 8, 7), input=(3, 32, 32), opt=momentum(0.0001)),
    "resnet18_stem": dict(IMAGE, model=lambda: M.ResNet(18, 8, 7, small=False), input=(3, 72, 72),
                          batch=4),
    "resnet18_accumulate": dict(IMAGE, model=lambda: M.ResNet(18, 8, 7), accumulate=2),
    "vgg11": dict(IMAGE, model=lambda: M.Vgg(11, 32, 32, 7), input=(3, 32, 32), batch=4,
                  opt=momentum(0.01)),
    "vgg16": dict(IMAGE, model=lambda: M.Vgg(16, 32, 32, 7, batch_norm=True), input=(3, 32, 32),
                  opt=momentum(0.0003)),
    "mobilenet": dict(IMAGE, model=lambda: M.MobileNet(7), input=(3, 32, 32),
                      opt=momentum(0.00001)),
    "lstm": dict(model=lambda: M.Lstm(2, 12, vocab=17), vocab=17, context=9, batch=4,
                 opt=sgd(lr=0.5)),
    "lstm_features": dict(model=lambda: M.Lstm(2, 12, features=6, classes=5), input=(9, 6), classes=5,
                          batch=4, opt=adam(lr=0.01)),
    "gpt": dict(model=lambda: M.Gpt(2, 2, 16, 12, 31, True, True), vocab=31, context=12, batch=4,
                opt=adamw_matrices(0.003, 0.1), clip=1.0),
    "gpt_untied": dict(model=lambda: M.Gpt(2, 2, 16, 12, 31, False, False), vocab=31, context=12,
                       batch=4, opt=adam(lr=0.003)),
    "vit": dict(model=lambda: M.Vit(16, 2, 2, 16, 4, 7), input=(3, 16, 16), classes=7, batch=4,
                opt=adam(lr=0.003)),
}


def main():
    torch.set_num_threads(1)
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "losses.def")
    rows = ["/* Ten training losses of each case, by PyTorch " + torch.__version__.split("+")[0]
            + " in f32 on one thread.",
            " * Made by test/oracle/losses.py; never edited by hand. ORACLE(case, losses...) */"]
    for name, case in CASES.items():
        losses = run(case)
        print(name, " ".join(f"{x:.4f}" for x in losses), file=sys.stderr)
        rows.append(f"ORACLE({name}, " + ", ".join(f"{x:.8g}" for x in losses) + ")")
    with open(path, "w") as f:
        f.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
