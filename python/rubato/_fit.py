"""Training of torch modules with Rubato's step."""
import copy
import math
import os
import tempfile

import torch

from . import _array, _call
from ._call import Arena, check, ffi, lib, path_bytes, text
from ._compile import _check, _export, must_be

_TYPES = {torch.float32: "f32", torch.float64: "f64", torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8",
          torch.int8: "i8", torch.bool: "bool"}
# What each optimizer of torch keeps of a parameter, and the library's name of it.
_SLOTS = {torch.optim.SGD: {"momentum_buffer": "momentum"},
          torch.optim.Adam: {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
          torch.optim.AdamW: {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}}
_SAME = ("momentum", "nesterov", "betas", "eps")  # of all groups of an optimizer
_NEAR = 1e-3  # of the first loss: Rubato's and torch's may differ by so much


def fit(model, loader, loss, optimizer, *, epochs=1, threads=0):
    """Train `model` on the batches of `loader` with Rubato's step instead of torch's.

    model: a torch.nn.Module on the CPU with float32 parameters, one tensor in and one out; it is exported through
    torch.onnx (package onnxscript) in the modes that its parts have. loader: gives pairs of tensors, `epochs` times.
    loss: CrossEntropyLoss, MSELoss or BCEWithLogitsLoss of torch.nn with the mean over the batch, or their function of
    torch.nn.functional. optimizer: SGD, Adam or AdamW of torch.optim. threads 0: all cores.

    Parameters, running statistics and the optimizer's state are written back at the end, also of an exception, so a loop
    of torch can go on. Returns the loss of each step. Raises UnsupportedError, which names what cannot be taken.
    """
    trainer = _Trainer(model, loss, optimizer, threads)
    losses = []
    try:
        for _ in range(epochs):
            for batch in loader:
                losses.append(trainer.step(batch))
    finally:
        trainer.close()
    return losses


def _refuse(sentence, *values):
    raise _call.UnsupportedError("fit(): " + sentence % values)


def _loss_of(loss):
    """The library's kind, and the smoothing of labels."""
    f = torch.nn.functional
    by_function = {f.cross_entropy: torch.nn.CrossEntropyLoss, f.mse_loss: torch.nn.MSELoss,
                   f.binary_cross_entropy_with_logits: torch.nn.BCEWithLogitsLoss}
    loss = by_function[loss]() if loss in by_function else loss
    kinds = {torch.nn.CrossEntropyLoss: lib.RU_LOSS_CROSS_ENTROPY, torch.nn.MSELoss: lib.RU_LOSS_MSE,
             torch.nn.BCEWithLogitsLoss: lib.RU_LOSS_BINARY_CROSS_ENTROPY}
    name = getattr(loss, "__name__", type(loss).__name__)
    if type(loss) not in kinds:
        _refuse("the loss is %s; expected CrossEntropyLoss, MSELoss or BCEWithLogitsLoss", name)
    if loss.reduction != "mean":
        _refuse("%s has reduction %r; expected the mean", name, loss.reduction)
    for what in ("weight", "pos_weight"):
        if getattr(loss, what, None) is not None:
            _refuse("%s has %s; expected a loss without", name, what)
    return loss, kinds[type(loss)], float(getattr(loss, "label_smoothing", 0.0))


def _optimizer_of(optimizer):
    """The library's optimizer with the figures of the first group."""
    name, first = type(optimizer).__name__, optimizer.param_groups[0]
    if type(optimizer) not in _SLOTS:
        _refuse("the optimizer is %s; expected SGD, Adam or AdamW of torch.optim", name)
    for group in optimizer.param_groups:
        for what in ("amsgrad", "maximize", "dampening", "differentiable"):
            if group.get(what):
                _refuse("%s has %s=%r; expected none", name, what, group[what])
        for what in _SAME:
            if group.get(what) != first.get(what):
                _refuse("groups of %s have %s %r and %r; expected the same, groups may differ in lr and weight_decay",
                        name, what, first.get(what), group.get(what))
        if group["lr"] != first["lr"] and first["lr"] == 0:
            _refuse("the first group of %s has lr 0; the rates of the others are taken as multiples of it", name)
    decoupled = type(optimizer) is torch.optim.AdamW or first.get("decoupled_weight_decay", False)
    kind = (lib.RU_OPTIMIZER_SGD if type(optimizer) is torch.optim.SGD else
            lib.RU_OPTIMIZER_ADAMW if decoupled else lib.RU_OPTIMIZER_ADAM)
    beta1, beta2 = first.get("betas", (0.0, 0.0))
    return {"kind": kind, "lr": float(first["lr"]), "momentum": first.get("momentum", 0.0), "nesterov": first.get("nesterov", False),
            "beta1": beta1, "beta2": beta2, "epsilon": first.get("eps", 0.0), "weight_decay": first["weight_decay"]}


class _Step:
    """The executable of one size of batches."""

    def __init__(self, t, x, y, share):
        self.arena, self.exe, self.file, self.keep = Arena(), None, ffi.new("ru_onnx_file *"), []
        self.folder, self.err = tempfile.TemporaryDirectory(prefix="rubato-"), ffi.new("ru_err *")
        try:
            self._open(t, x, y, share)
        except BaseException:
            self.close()
            raise

    def _open(self, t, x, y, share):
        err, path = ffi.new("ru_err *"), os.path.join(self.folder.name, "model.onnx")
        with torch.no_grad():
            _export(t.model, (x,), {}, False, path, training=True)
        check(lib.ru_onnx_file_open(path_bytes(path), self.file, err), err)
        external = ffi.new("ru_onnx_external *", lib.ru_onnx_file_external(self.file))
        options = ffi.new("ru_onnx_options *", {"external": external, "train": True})
        graph, self.step = ffi.new("ru_graph *"), ffi.new("ru_step_graph *")
        self.keep += [external, options, graph]
        check(lib.ru_onnx_read(self.file.model.data, self.file.model.size_bytes, options, self.arena.at, graph, ffi.NULL, err),
              err, type(t.model).__name__)
        if t.becomes_training:
            form, graph = graph, ffi.new("ru_graph *")
            check(lib.ru_pass_train(form, self.arena.at, graph, err), err, type(t.model).__name__)
            form, graph = graph, ffi.new("ru_graph *")
            check(lib.ru_pass_lift(form, self.arena.at, graph, err), err, type(t.model).__name__)
        self._build(t, graph, x, y, err)
        exe, how = ffi.new("ru_exe **"), ffi.new("ru_exe_options *", {"threads": t.threads, "share": share or ffi.NULL})
        check(lib.ru_exe_open(ffi.addressof(self.step, "graph"), how, exe, err), err)
        self.exe = exe[0]
        self.inputs = ffi.new("ru_run_input[2]", [{"input": self.step.x[0]}, {"input": self.step.y[0]}])
        self.args = ffi.new("ru_run_args *", {"inputs": self.inputs, "n_inputs": 2})

    def _build(self, t, graph, x, y, err):
        if graph.n_inputs != 1 or graph.n_outputs != 1:
            _refuse("%s takes %d tensors and gives %d; expected one each", type(t.model).__name__, graph.n_inputs, graph.n_outputs)
        out = graph.values[graph.outputs[0].v].type
        t.check_shapes(tuple(out.dims[k] for k in range(out.rank)), y)
        held = {}
        for k in range(graph.n_values):
            v = graph.values[k]
            if v.kind == lib.RU_VALUE_STATE and v.role == lib.RU_ROLE_PARAM:
                held[text(v.name)] = tuple(v.type.dims[d] for d in range(v.type.rank))
        for name, p in t.trained.items():
            if held.get(name) != tuple(p.shape):
                _refuse("parameter %s does not stand in the exported graph as it is (%s): it takes no part in the output, or "
                        "torch.onnx changed it", name, held.get(name))
        groups = [{"match": t.c(name), "lr": t.group[name]["lr"] / t.lr if t.lr else 1.0, "weight_decay": t.group[name]["weight_decay"]}
                  for name in t.trained]
        groups += [{"match": t.c(name), "lr": 1.0, "weight_decay": -1.0, "freeze": True} for name in held if name not in t.trained]
        table = ffi.new("ru_param_group[]", groups)
        opt = ffi.new("ru_step_options *", {"loss": t.kind, "optimizer": t.figures, "groups": table, "n_groups": len(groups),
                                            "label_smoothing": t.smoothing, "batch": x.shape[0]})
        for at, tensor in ((opt.x, x), (opt.y, y)):
            at.dtype = _array.dtype_number(_TYPES[tensor.dtype])
            at.rank = tensor.dim() - 1
            for d, n in enumerate(tensor.shape[1:]):
                at.dims[d] = n
        self.keep += [table, opt]
        check(lib.ru_step_build(graph, opt, self.arena.at, self.step, err), err, type(t.model).__name__)

    def run(self, t, x, y):
        s, lr, number = self.step, float(t.optimizer.param_groups[0]["lr"]), t.number + 1
        for value, factor in [(s.lr, 1.0), *((s.rates[k].input, s.rates[k].factor) for k in range(s.n_rates))]:
            ffi.cast("float *", lib.ru_exe_input(self.exe, value))[0] = lr * factor
        if s.step.v != 0:
            ffi.cast("int64_t *", lib.ru_exe_input(self.exe, s.step))[0] = number
        self.inputs[0].data, self.inputs[1].data = ffi.cast("void *", x.data_ptr()), ffi.cast("void *", y.data_ptr())
        self.args.step = number - 1
        t.number, t.done = number, t.done + 1  # first: Ctrl-C raises behind the call, and then the step is done
        status = lib.ru_exe_run(self.exe, self.args, self.err)
        if status != lib.RU_OK:
            t.number, t.done = number - 1, t.done - 1
            check(status, self.err)
        return ffi.cast("const float *", lib.ru_exe_output(self.exe, s.loss))[0]

    def _state(self, name, like):
        """The state of that name and size; None: the step has none."""
        value = lib.ru_graph_find(ffi.addressof(self.step, "graph"), name.encode())
        v = self.step.graph.values[value.v]
        is_it = value.v != 0 and v.kind == lib.RU_VALUE_STATE and lib.ru_type_bytes(ffi.addressof(v, "type")) == 4 * like.numel()
        return value if is_it else None

    def read(self, name, like):
        """That state as a tensor, or None."""
        value, into = self._state(name, like), torch.empty(like.shape)
        if value is None:
            return None
        check(lib.ru_exe_state_read(self.exe, value, ffi.cast("void *", into.data_ptr()), self.err), self.err)
        return into

    def write(self, name, tensor):
        value, t = self._state(name, tensor), tensor.detach().to("cpu", torch.float32).contiguous()
        if value is not None:
            check(lib.ru_exe_state_write(self.exe, value, ffi.cast("void *", t.data_ptr()), self.err), self.err)

    def close(self):
        if self.exe is not None:
            lib.ru_exe_close(self.exe)
            self.exe = None
        lib.ru_onnx_file_close(self.file)
        self.arena.close()
        self.folder.cleanup()


class _Trainer:
    def __init__(self, model, loss, optimizer, threads):
        _check(model)
        must_be(optimizer, torch.optim.Optimizer, "optimizer")
        self.model, self.optimizer, self.threads, self.keep = model, optimizer, threads, []
        self.loss, self.kind, self.smoothing = _loss_of(loss)
        self.figures, self.lr = _optimizer_of(optimizer), float(optimizer.param_groups[0]["lr"])
        names, seen = dict(model.named_parameters(remove_duplicate=False)), {}
        for name, p in names.items():
            if id(p) in seen:
                _refuse("parameters %s and %s are one; expected each by itself", seen[id(p)], name)
            seen[id(p)] = name
        self.group = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if id(p) not in seen:
                    _refuse("the optimizer has a parameter of shape %s that the model does not have", tuple(p.shape))
                if p.requires_grad:
                    self.group[seen[id(p)]] = group
        self.trained = {name: names[name] for name in names if name in self.group}
        if not self.trained:
            _refuse("the optimizer has no parameter that learns")
        for name, p in self.trained.items():
            if p.dtype != torch.float32 or p.dim() < 1:
                _refuse("parameter %s is %s of %d dimensions; expected float32 of at least one", name, p.dtype, p.dim())
        for name, m in model.named_modules():
            if isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.training and m.p > 0:
                _refuse("%s is %s: its random numbers would not be torch's", name or "the model", m)
        self.becomes_training = self._norms()
        self.steps, self.number, self.done = {}, self._number(), 0
        self.sure = False  # that the step computes what torch does; before, nothing is written back

    def _norms(self):
        """Does the exported graph, which does not say so, normalise by the batch? Frozen normalisations stay as they are."""
        norms = [(n or "the model", m) for n, m in self.model.named_modules()
                 if isinstance(m, torch.nn.modules.batchnorm._NormBase) and m.track_running_stats]
        learns, frozen = ([n for n, m in norms if m.training == mode] for mode in (True, False))
        for name, m in norms:
            if m.training and m.momentum is None:
                _refuse("%s is %s: its running statistics are means of all batches; expected a momentum", name, m)
        if learns and frozen:
            _refuse("%s normalises by the batch and %s by running statistics; expected all modules in one mode", learns[0], frozen[0])
        recurrent = [n for n, m in self.model.named_modules() if isinstance(m, torch.nn.RNNBase)]
        if frozen and recurrent:
            _refuse("%s is in eval mode beside %s, which trains; expected the training mode", frozen[0], recurrent[0])
        return not frozen

    def c(self, name):
        self.keep.append(ffi.new("char[]", name.encode()))
        return self.keep[-1]

    def _number(self):
        """Steps that the optimizer has done."""
        done = {int(self.optimizer.state.get(p, {}).get("step", 0)) for p in self.trained.values()}
        if len(done) > 1:
            _refuse("parameters of the optimizer have done %s steps; expected as many each", sorted(done))
        return done.pop()

    def check_shapes(self, out, y):
        n = y.shape[0] if y.dim() else 0
        if self.kind == lib.RU_LOSS_CROSS_ENTROPY:
            if len(out) != 2 or y.dtype != torch.int64 or tuple(y.shape) != (out[0],):
                _refuse("the output is %s and the labels %s of %s; cross entropy takes [N, classes] and N of int64", list(out),
                        list(y.shape), y.dtype)
            self.classes = out[1]
            if 0 <= self.loss.ignore_index < self.classes:
                _refuse("%s ignores label %d; expected a loss of all labels", type(self.loss).__name__, self.loss.ignore_index)
        elif out != tuple(y.shape) or y.dtype != torch.float32 or n == 0:
            _refuse("the output is %s and the targets %s of %s; expected the same shape, float32", list(out), list(y.shape), y.dtype)

    def step(self, batch):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(torch.is_tensor(t) for t in batch):
            _refuse("the loader gives %s; expected pairs of tensors, inputs and targets", type(batch).__name__)
        x, y = (t.detach().contiguous() for t in batch)
        for t in (x, y):
            if t.device.type != "cpu" or t.dtype not in _TYPES or t.dim() < 1:
                _refuse("the loader gives a tensor of %s on %s with %d dimensions; expected numbers on the CPU with a first size",
                        t.dtype, t.device, t.dim())
        key = (tuple(x.shape), x.dtype, tuple(y.shape), y.dtype)
        if key not in self.steps:
            self._open(key, x, y)
        if self.kind == lib.RU_LOSS_CROSS_ENTROPY and (int(y.min()) < 0 or int(y.max()) >= self.classes):
            raise _call.DataError("fit(): labels go from %d to %d, expected 0 to %d" % (int(y.min()), int(y.max()), self.classes - 1))
        first = None if self.sure else self._expected(x, y)
        loss = self.steps[key].run(self, x, y)
        if first is not None and not abs(loss - first) <= _NEAR * max(1.0, abs(first)):
            self.steps.pop(key).close()  # nothing is written back
            _refuse("the first loss of %s is %.6g, torch computes %.6g: it was not exported as it computes", type(self.model).__name__,
                    loss, first)
        self.sure = True
        return loss

    def _expected(self, x, y):
        """The loss of torch; models that answer the same batch in two ways are refused."""
        with torch.no_grad():
            a, b = (self.loss(copy.deepcopy(self.model)(x), y).item() for _ in range(2))
        if not math.isfinite(a):
            raise _call.DataError("fit(): the first loss is %g in torch; expected a number to compare with" % a)
        if a != b:
            _refuse("%s answers one batch in two ways: its random numbers would not be torch's", type(self.model).__name__)
        return a

    def _open(self, key, x, y):
        share = next(iter(self.steps.values())).exe if self.steps else None
        step = self.steps[key] = _Step(self, x, y, share)
        if share is None:
            for name, p in self.trained.items():
                for theirs, mine in _SLOTS[type(self.optimizer)].items():
                    slot = self.optimizer.state.get(p, {}).get(theirs)
                    if slot is not None and slot.shape != p.shape:
                        _refuse("%s of parameter %s has the shape %s, expected %s", theirs, name, list(slot.shape), list(p.shape))
                    if slot is not None:  # which the step may have no use for
                        step.write("%s.%s" % (name, mine), slot)

    def close(self):
        """Write back what was trained, and free all."""
        step = next(iter(self.steps.values()), None)
        try:
            if step is not None and self.sure:
                with torch.no_grad():
                    self._back(step)
        finally:
            for s in self.steps.values():
                s.close()
            self.steps = {}

    def _back(self, step):
        for name, p in self.trained.items():
            p.copy_(step.read(name, p))
            slots = {theirs: step.read("%s.%s" % (name, mine), p) for theirs, mine in _SLOTS[type(self.optimizer)].items()}
            slots = {k: v for k, v in slots.items() if v is not None}
            if slots and type(self.optimizer) is not torch.optim.SGD:
                slots["step"] = torch.tensor(float(self.number))
            self.optimizer.state[p].update(slots)
        for name, b in self.model.named_buffers():
            now = step.read(name, b) if b.dtype == torch.float32 else None
            if now is not None:
                b.copy_(now)
            elif name.rpartition(".")[2] == "num_batches_tracked" and self.model.get_submodule(name.rpartition(".")[0]).training:
                b += self.done
