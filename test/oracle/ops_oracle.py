#!/usr/bin/env python3
"""Write test/oracle/data/ops.inc: what PyTorch computes for the ops that no ONNX vector covers.

Each case is one op with attributes, inputs, the outputs PyTorch gives, weights of the outputs, and
the gradients of sum(weight * output) by the inputs, all from double precision. test/ops/ops_oracle_test.c
runs them on the reference kernels, differentiating with our own autodiff.

    python3 test/oracle/ops_oracle.py > test/oracle/data/ops.inc      (PyTorch 2.13)
"""
import math

import torch
import torch.nn.functional as F

torch.manual_seed(20170829)
D = torch.float64
cases = []
arrays = []


def grid(*shape, lo=-2.0, hi=2.0):
    """Values that are exact in f32."""
    x = torch.rand(shape, dtype=D) * (hi - lo) + lo
    return (x * 1024).round() / 1024


def array(t):
    """Emit a constant array, give its name."""
    t = t.detach()
    name = f"v{len(arrays)}"
    if t.dtype in (torch.int64, torch.int32):
        kind, text = ("int64_t", ", ".join(str(int(x)) for x in t.flatten()))
    else:
        kind = "float"
        text = ", ".join(number(float(x)) for x in t.flatten())
    arrays.append(f"static const {kind} {name}[] = {{{text}}};")
    return name


def number(x):
    s = f"{x:.9g}"
    if "e" not in s and "." not in s:
        s += ".0"
    return s + "F"


def tensor(t):
    if t is None:
        return "{.data = NULL}"
    kind = "RU_I64" if t.dtype == torch.int64 else "RU_F32"
    dims = ", ".join(str(n) for n in t.shape) or "0"
    return f"{{{{{kind}, {t.dim()}, {{{dims}}}}}, {array(t)}}}"


def attribute(key, v):
    if isinstance(v, bool) or isinstance(v, int):
        return f"RU_AI({key}, {int(v)})"
    if isinstance(v, float):
        return f"RU_AF({key}, {v!r})"
    if isinstance(v, str):
        return f'RU_AS({key}, "{v}")'
    name = f"v{len(arrays)}"
    arrays.append(f"static const int64_t {name}[] = {{{', '.join(str(x) for x in v)}}};")
    return f"RU_AIS({key}, {name}, {len(v)})"


def case(name, op, attrs, inputs, outputs, wanted=None, fixed=()):
    """inputs and outputs: tensors or None. wanted: which inputs get a gradient (all floats that
    require it by default)."""
    outs = [o for o in outputs]
    weights = [grid(*o.shape, lo=-1, hi=1) if o is not None and o.requires_grad else None for o in outs]
    grads = [None] * len(inputs)
    loss = sum((w * o).sum() for w, o in zip(weights, outs) if w is not None) if any(
        w is not None for w in weights) else None
    leaves = [k for k, x in enumerate(inputs) if x is not None and x.requires_grad]
    if loss is not None and leaves:
        found = torch.autograd.grad(loss, [inputs[k] for k in leaves], allow_unused=True)
        for k, g in zip(leaves, found):
            grads[k] = g
    text = [f'    {{.name = "{name}",\n     .op = RU_OP_{op},']
    text.append(f"     .attrs = {{{', '.join([attribute(k, v) for k, v in attrs.items()] + ['RU_A_END'])}}},")
    for field, ts in (("in", inputs), ("out", outs), ("weight", weights), ("grad", grads)):
        text.append(f"     .{field} = {{{', '.join(tensor(t) for t in ts)}}},")
    text.append(f"     .n_in = {len(inputs)}, .n_out = {len(outs)}}},")
    cases.append("\n".join(text))


def leaf(*shape, **kw):
    return grid(*shape, **kw).requires_grad_()


def unary():
    fs = {
        "Relu": (F.relu, {}), "Tanh": (torch.tanh, {}), "Sigmoid": (torch.sigmoid, {}),
        "Elu": (lambda x: F.elu(x, 0.7), {"alpha": 0.7}), "Selu": (F.selu, {}),
        "Celu": (lambda x: F.celu(x, 1.3), {"alpha": 1.3}),
        "LeakyRelu": (lambda x: F.leaky_relu(x, 0.2), {"alpha": 0.2}),
        "Softplus": (F.softplus, {}), "Softsign": (F.softsign, {}),
        "HardSigmoid": (F.hardsigmoid, {"alpha": 1 / 6, "beta": 0.5}),
        "HardSwish": (F.hardswish, {}), "Mish": (F.mish, {}), "Erf": (torch.erf, {}),
        "Abs": (torch.abs, {}), "Exp": (torch.exp, {}), "Cos": (torch.cos, {}), "Atan": (torch.atan, {}),
        "Asinh": (torch.asinh, {}), "Sinh": (torch.sinh, {}),
    }
    for op, (f, attrs) in fs.items():
        x = leaf(3, 7, lo=-4.0, hi=4.0)
        case(op, op, attrs, [x], [f(x)])
    for form in ("none", "tanh"):
        x = leaf(3, 7, lo=-4.0, hi=4.0)
        case(f"Gelu {form}", "Gelu", {"approximate": form}, [x], [F.gelu(x, approximate=form)])
    for op, f in (("Softmax", F.softmax), ("LogSoftmax", F.log_softmax)):
        x = leaf(2, 5, 3)
        case(op, op, {"axis": 1}, [x], [f(x, dim=1)])


def convolutions():
    for rank, groups, stride, pad, dil in ((2, 1, 1, 1, 1), (2, 2, 2, 1, 1), (2, 4, 1, 2, 2), (1, 1, 2, 0, 1),
                                           (3, 1, 1, 1, 1)):
        size = {1: (9,), 2: (6, 5), 3: (3, 4, 3)}[rank]
        x, b = leaf(2, 4, *size), leaf(4)
        w = leaf(4, 4 // groups, *([3] * rank))
        f = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
        y = f(x, w, b, stride=stride, padding=pad, dilation=dil, groups=groups)
        case(f"Conv rank {rank} groups {groups}", "Conv",
             {"strides": [stride] * rank, "pads": [pad] * 2 * rank, "dilations": [dil] * rank, "group": groups},
             [x, w, b], [y])
    for groups, stride, pad in ((1, 2, 1), (2, 1, 0)):
        x, w, b = leaf(2, 4, 4, 3), leaf(4, 4 // groups, 3, 2), leaf(4)
        y = F.conv_transpose2d(x, w, b, stride=stride, padding=pad, groups=groups)
        case(f"ConvTranspose groups {groups}", "ConvTranspose",
             {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}, [x, w, b], [y])


def pools():
    x = leaf(2, 3, 7, 6)
    case("MaxPool", "MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}, [x],
         [F.max_pool2d(x, (3, 2), 2, 1)])
    for include in (True, False):
        x = leaf(2, 3, 7, 6)
        case(f"AveragePool include {include}", "AveragePool",
             {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": include,
              "ceil_mode": 1}, [x],
             [F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=include)])
    x = leaf(2, 3, 4, 5)
    case("GlobalAveragePool", "GlobalAveragePool", {}, [x], [F.adaptive_avg_pool2d(x, 1)])
    x = leaf(2, 3, 4, 5)
    case("GlobalMaxPool", "GlobalMaxPool", {}, [x], [F.adaptive_max_pool2d(x, 1)])


def norms():
    for shape in ((5, 3), (4, 3, 3, 2)):
        x, s, b = leaf(*shape), leaf(3, lo=0.5), leaf(3)
        mean, var = grid(3), grid(3, lo=0.5)
        new_mean, new_var = mean.clone(), var.clone()
        y = F.batch_norm(x, new_mean, new_var, s, b, training=True, momentum=0.1, eps=1e-5)
        axes = [d for d in range(len(shape)) if d != 1]
        save = x.detach().mean(axes)
        inv = 1 / torch.sqrt(x.detach().var(axes, unbiased=False) + 1e-5)
        case(f"BatchNormTrain rank {len(shape)}", "BatchNormTrain",
             {"epsilon": 1e-5, "momentum": 0.9, "bias": 1}, [x, s, b, mean, var], [y, new_mean, new_var, save, inv])
    x, s, b = leaf(3, 2, 5), leaf(5), leaf(5)
    case("LayerNormalization", "LayerNormalization", {"axis": -1, "epsilon": 1e-5}, [x, s, b],
         [F.layer_norm(x, (5,), s, b, 1e-5)])
    x, s, b = leaf(2, 6, 3, 2), leaf(6), leaf(6)
    case("GroupNormalization", "GroupNormalization", {"num_groups": 3, "epsilon": 1e-5}, [x, s, b],
         [F.group_norm(x, 3, s, b, 1e-5)])
    x, s, b = leaf(2, 4, 3, 3), leaf(4), leaf(4)
    case("InstanceNormalization", "InstanceNormalization", {"epsilon": 1e-5}, [x, s, b],
         [F.instance_norm(x, weight=s, bias=b, eps=1e-5)])


def losses():
    for smoothing, ignore, weighted in ((0.0, None, False), (0.1, None, False), (0.1, -100, False),
                                        (0.0, 2, False), (0.2, -100, True)):
        x = leaf(6, 5)
        y = torch.randint(0, 5, (6,))
        w = grid(5, lo=0.5) if weighted else None
        attrs = {"label_smoothing": smoothing}
        if ignore is not None:
            y[1] = y[4] = ignore
            attrs["ignore_index"] = ignore
        loss = F.cross_entropy(x, y, weight=w, ignore_index=-1000 if ignore is None else ignore,
                               label_smoothing=smoothing)
        keep = torch.ones(6, dtype=torch.bool) if ignore is None else y != ignore
        correct = ((x.argmax(1) == y) & keep).sum().to(D)
        case(f"SoftmaxCrossEntropy smoothing {smoothing} ignore {ignore}{' weighted' if weighted else ''}",
             "SoftmaxCrossEntropy", attrs, [x, y] + ([w] if weighted else []),
             [loss, F.softmax(x.detach(), 1), correct, keep.sum().to(D)])
    x, t = leaf(4, 3, lo=-4.0, hi=4.0), grid(4, 3, lo=0.0, hi=1.0)
    case("BinaryCrossEntropyLogits", "BinaryCrossEntropyLogits", {}, [x, t],
         [F.binary_cross_entropy_with_logits(x, t)])
    x, t = leaf(4, 3), grid(4, 3)
    case("MeanSquaredError", "MeanSquaredError", {}, [x, t], [F.mse_loss(x, t)])


def attention():
    for causal, masked in ((False, False), (True, False), (False, True)):
        q, k, v = leaf(2, 2, 4, 3), leaf(2, 2, 4, 3), leaf(2, 2, 4, 3)
        mask = grid(4, 4) if masked else None
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        case(f"Attention causal {causal} masked {masked}", "Attention", {"layout": "bhtd", "causal": causal},
             [q, k, v] + ([mask] if masked else []), [y])
    x = leaf(2, 4, 18)
    q, k, v = (p.reshape(2, 4, 2, 3).transpose(1, 2) for p in x.split(6, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.25)
    case("AttentionQkv", "AttentionQkv", {"heads": 2, "causal": 1, "scale": 0.25}, [x],
         [y.transpose(1, 2).reshape(2, 4, 6)])
    x, w = leaf(5, 3), torch.randint(0, 5, (2, 4))
    case("Gather of an embedding", "Gather", {"axis": 0}, [x, w], [F.embedding(w, x)])


def reordered(t, order):
    """Rows of [gates*hid, ...] in another order of gates."""
    parts = t.chunk(len(order), 0)
    return torch.cat([parts[k] for k in order], 0)


def recurrence():
    for kind, order, attrs in (("LSTM", [0, 3, 1, 2], {}), ("GRU", [1, 0, 2], {"linear_before_reset": 1})):
        for both in (False, True):
            seq, batch, n_in, hid, dirs = 4, 3, 2, 3, 2 if both else 1
            net = getattr(torch.nn, kind)(n_in, hid, bidirectional=both).to(D)
            x, h0, c0 = leaf(seq, batch, n_in), leaf(dirs, batch, hid), leaf(dirs, batch, hid)
            # Our weights are leaves; PyTorch's are functions of them.
            W, R, B = leaf(dirs, len(order) * hid, n_in), leaf(dirs, len(order) * hid, hid), leaf(
                dirs, 2 * len(order) * hid)
            back = [order.index(k) for k in range(len(order))]
            params = {}
            for d, tail in enumerate(["", "_reverse"][:dirs]):
                bw, br = B[d].chunk(2)
                params["weight_ih_l0" + tail] = reordered(W[d], back)
                params["weight_hh_l0" + tail] = reordered(R[d], back)
                params["bias_ih_l0" + tail] = reordered(bw, back)
                params["bias_hh_l0" + tail] = reordered(br, back)
            state = (h0, c0) if kind == "LSTM" else h0
            y, last = torch.func.functional_call(net, params, (x, state))
            Y = y.reshape(seq, batch, dirs, hid).permute(0, 2, 1, 3)
            ins = [x, W, R, B, None, h0] + ([c0] if kind == "LSTM" else [])
            outs = [Y] + (list(last) if kind == "LSTM" else [last])
            a = {"hidden_size": hid, "direction": "bidirectional" if both else "forward", **attrs}
            case(f"{kind}Train {'both ways' if both else 'forward'}", f"{kind}Train", a, ins, outs + [None])


class Lion(torch.optim.Optimizer):
    """Program 1 of Chen et al., Symbolic discovery of optimization algorithms, 2023."""

    def __init__(self, params, lr, beta1, beta2, decay):
        super().__init__(params, dict(lr=lr, beta1=beta1, beta2=beta2, decay=decay))

    @torch.no_grad()
    def step(self):
        for o in self.param_groups:
            for p in o["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = torch.sign(torch.lerp(p.grad, m, o["beta1"]))
                p -= o["lr"] * (update + o["decay"] * p)
                m.lerp_(p.grad, 1 - o["beta2"])


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al., Large batch optimization for deep learning, 2020."""

    def __init__(self, params, lr, beta1, beta2, eps, decay):
        super().__init__(params, dict(lr=lr, beta1=beta1, beta2=beta2, eps=eps, decay=decay))

    @torch.no_grad()
    def step(self):
        for o in self.param_groups:
            for p in o["params"]:
                s = self.state[p]
                s["t"] = s.get("t", 0) + 1
                m = s.setdefault("exp_avg", torch.zeros_like(p)).lerp_(p.grad, 1 - o["beta1"])
                v = s.setdefault("exp_avg_sq", torch.zeros_like(p)).lerp_(p.grad ** 2, 1 - o["beta2"])
                mhat, vhat = m / (1 - o["beta1"] ** s["t"]), v / (1 - o["beta2"] ** s["t"])
                r = mhat / (vhat.sqrt() + o["eps"]) + o["decay"] * p
                ratio = p.norm() / r.norm() if p.norm() > 0 and r.norm() > 0 else 1.0
                p -= o["lr"] * ratio * r


def optimizers():
    def steps(name, make, op, attrs, slots, lr, with_step):
        p = torch.nn.Parameter(grid(7))
        opt = make([p])
        for t in range(1, 4):
            p.grad = grid(7)
            state = opt.state.get(p, {})
            before = [state[s].detach().clone() if s in state and state[s] is not None else torch.zeros(7, dtype=D)
                      for s in slots]
            old = p.detach().clone()
            grad = p.grad.clone()
            opt.step()
            after = [opt.state[p][s].detach().clone() for s in slots]
            ins = [torch.tensor(lr, dtype=D), None] + ([torch.tensor(t)] if with_step else []) + [old, grad] + before
            if (op == "SgdUpdate" and not slots) or (op == "RmspropUpdate" and len(slots) < 2):
                ins.append(None)
            case(f"{name} step {t}", op, attrs, ins, [p.detach().clone()] + after)

    O = torch.optim
    steps("SGD", lambda ps: O.SGD(ps, 0.1, weight_decay=0.05), "SgdUpdate", {"weight_decay": 0.05}, [], 0.1, False)
    steps("SGD momentum", lambda ps: O.SGD(ps, 0.1, momentum=0.9), "SgdUpdate", {"momentum": 0.9},
          ["momentum_buffer"], 0.1, False)
    steps("SGD Nesterov", lambda ps: O.SGD(ps, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01), "SgdUpdate",
          {"momentum": 0.9, "nesterov": 1, "weight_decay": 0.01}, ["momentum_buffer"], 0.1, False)
    adam = {"beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1}
    steps("Adam", lambda ps: O.Adam(ps, 0.01, betas=(0.9, 0.99), weight_decay=0.1), "AdamUpdate", adam,
          ["exp_avg", "exp_avg_sq"], 0.01, True)
    steps("AdamW", lambda ps: O.AdamW(ps, 0.01, betas=(0.9, 0.99), weight_decay=0.1), "AdamUpdate",
          {**adam, "decoupled": 1}, ["exp_avg", "exp_avg_sq"], 0.01, True)
    steps("Adagrad", lambda ps: O.Adagrad(ps, 0.1, weight_decay=0.01), "AdagradUpdate",
          {"epsilon": 1e-10, "weight_decay": 0.01}, ["sum"], 0.1, False)
    rms = {"alpha": 0.9, "epsilon": 1e-8, "weight_decay": 0.05}
    steps("RMSprop", lambda ps: O.RMSprop(ps, 0.01, alpha=0.9, weight_decay=0.05), "RmspropUpdate", rms,
          ["square_avg"], 0.01, False)
    steps("RMSprop momentum", lambda ps: O.RMSprop(ps, 0.01, alpha=0.9, weight_decay=0.05, momentum=0.8),
          "RmspropUpdate", {**rms, "momentum": 0.8}, ["square_avg", "momentum_buffer"], 0.01, False)
    steps("Lion", lambda ps: Lion(ps, 0.01, 0.9, 0.99, 0.1), "LionUpdate",
          {"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1}, ["exp_avg"], 0.01, False)
    steps("LAMB", lambda ps: Lamb(ps, 0.01, 0.9, 0.999, 1e-6, 0.1), "LambUpdate",
          {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6, "weight_decay": 0.1},
          ["exp_avg", "exp_avg_sq"], 0.01, True)
    g = [grid(4), grid(2, 3)]
    norm = torch.sqrt(sum((x * x).sum() for x in g))
    case("GlobalNorm", "GlobalNorm", {}, g, [norm])
    case("ClipScale", "ClipScale", {"clip": 1.5}, [norm], [1.5 / norm])


def products():
    a, b = leaf(2, 3, 4), leaf(4, 5)
    case("MatMul of a batch by a matrix", "MatMul", {}, [a, b], [a @ b])
    a, b, c = leaf(4, 3), leaf(5, 4), leaf(5)
    case("Gemm transposed", "Gemm", {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, [a, b, c],
         [0.5 * a.T @ b.T + 2 * c])
    a, b = leaf(2, 3, 4), leaf(2, 5, 4)
    case("Einsum", "Einsum", {"equation": "bik,bjk->bij"}, [a, b], [torch.einsum("bik,bjk->bij", a, b)])


for make in (unary, products, convolutions, pools, norms, losses, attention, recurrence, optimizers):
    make()
print("/* Made by test/oracle/ops_oracle.py with PyTorch", torch.__version__.split("+")[0] + "; not edited by hand. */")
print("\n".join(arrays))
print("static const oracle_case cases[] = {")
print("\n".join(cases))
print("};")
