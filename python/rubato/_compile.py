"""Modules of torch that compute with Rubato."""
import contextlib
import inspect
import io
import logging
import os
import tempfile

import torch
from torch.utils import _pytree

from . import _call, model as _model

_NEAR = 1e-3  # of the largest number of an output: the answers of both to the example may differ by so much


def compile(module, example, *, batch=True, threads=0, precision="f32", autotune=False):
    """Let `module` compute with Rubato.

    module: a torch.nn.Module on the CPU; it is exported in eval mode and keeps its own mode. example: a tensor, a tuple
    of the positional arguments, or a dict of the named ones. batch: the first size of every tensor is free; False: all
    sizes are those of the example. threads, precision, autotune: as of rubato.load.

    Returns a Compiled. The example is computed by both, and answers that differ are refused. Nothing falls back to
    torch. Raises UnsupportedError, which names what could not be taken; it needs the package onnxscript.
    """
    return Compiled(module, example, batch, threads, precision, autotune)


class Compiled:
    """What compile() returns: call it as the module. Answers have no gradients and are the caller's own."""

    def __init__(self, module, example, batch, threads, precision, autotune):
        self.module, self._batch, self._options = module, batch, {"threads": threads, "precision": precision, "autotune": autotune}
        _check(module)
        self._signature = inspect.signature(module.forward)
        self._args, self._named = self._bind(*_arguments(example, batch))
        self._others = _others(self._args, self._named)
        self._model, self._folder = None, None
        self.refresh()

    def refresh(self):
        """Take the module's parameters anew. Calls do so by themselves where torch counts the change (an optimizer's
        step, load_state_dict); a write to `.data` is not counted."""
        self.close()
        folder = tempfile.TemporaryDirectory(prefix="rubato-")
        trained = {m: m.training for m in self.module.modules()}
        try:
            self.module.eval()
            with torch.no_grad():
                _check(self.module)
                expected, self._spec = _pytree.tree_flatten(self.module(*self._args, **self._named))
                self._numbers = [torch.is_tensor(t) for t in expected]
                self._constants = [None if torch.is_tensor(t) else t for t in expected]
                path = os.path.join(folder.name, "model.onnx")
                _export(self.module, self._args, self._named, self._batch, path)
        finally:
            for m, mode in trained.items():
                m.training = mode
        name = type(self.module).__name__
        try:
            self._folder, self._model = folder, _model.load(path, **self._options)
        except _call.RubatoError as e:
            raise type(e)(str(e).replace(path, name)) from None
        self._model._path = name  # of its sentences
        self._versions = self._now()
        if len(self._model.outputs) != sum(self._numbers):
            raise _call.UnsupportedError("%s gives %d tensors, but what was exported %d" % (
                type(self.module).__name__, sum(self._numbers), len(self._model.outputs)))
        got, _ = _pytree.tree_flatten(self._call(self._args, self._named))
        near = _NEAR if self._options["precision"] == "f32" else 0.05
        for port, a, b in zip(self._model.outputs, [t for t in expected if torch.is_tensor(t)], [t for t in got if torch.is_tensor(t)]):
            if a.shape != b.shape or not _close(a, b, near):
                self.close()
                raise _call.UnsupportedError("output %s of %s is not what torch computes for the example: %s and %s" % (
                    port.name, type(self.module).__name__, _few(b), _few(a)))

    def __call__(self, *args, **named):
        if self._model is None:
            raise ValueError("this module is closed")
        if self._now() != self._versions:
            self.refresh()
        return self._call(args, named)

    def _bind(self, args, named):
        """Arguments in the order of the module's own, however they are given."""
        bound = self._signature.bind(*args, **named)
        return bound.args, bound.kwargs

    def _call(self, args, named):
        args, named = self._bind(args, named)
        tensors, (constants, *arranged) = _tensors(args, named), _others(args, named)
        if constants != self._others[0]:
            raise _call.UnsupportedError("the arguments that are no tensors are %s, those of the example %s: compile() takes "
                                         "them as constants" % (constants, self._others[0]))
        if arranged != self._others[1:]:
            raise TypeError("the arguments are %s, but those of the example %s" % (_types(arranged), _types(self._others[1:])))
        if len(tensors) != len(self._model.inputs):
            raise _call.UnsupportedError("%d tensors, but the exported module takes %d (%s): the others change nothing" % (
                len(tensors), len(self._model.inputs), ", ".join(p.name for p in self._model.inputs)))
        out = self._model.predict(*[t.detach().numpy() for t in tensors])
        out = iter(out.values() if isinstance(out, dict) else [out])
        return _pytree.tree_unflatten(
            [torch.from_numpy(next(out)) if number else constant for number, constant in zip(self._numbers, self._constants)],
            self._spec)

    def _now(self):
        return [(id(t), t._version) for t in [*self.module.parameters(), *self.module.buffers()]]

    def close(self):
        """Free it; calls raise afterwards."""
        if self._model is not None:
            self._model.close()
            self._model = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _tensors(args, named):
    return [t for t in _pytree.tree_flatten((args, named))[0] if torch.is_tensor(t)]


def _others(args, named):
    """What is no tensor, and the types and places of all."""
    leaves, spec = _pytree.tree_flatten((args, named))
    return [[t for t in leaves if not torch.is_tensor(t)], [t.dtype if torch.is_tensor(t) else None for t in leaves], spec]


def _types(arranged):
    return ", ".join("a constant" if t is None else str(t) for t in arranged[0])


def _arguments(example, batch):
    args, named = ((example,), {}) if torch.is_tensor(example) else ((), dict(example)) if isinstance(example, dict) else (tuple(example), {})
    tensors = _tensors(args, named)
    if not tensors:
        raise TypeError("the example holds no tensor")
    for t in tensors:
        if t.device.type != "cpu" or t.layout != torch.strided:
            raise _call.UnsupportedError("the example has a tensor on %s (%s); compile() takes dense ones on the CPU" % (t.device, t.layout))
        if batch and t.dim() == 0:
            raise _call.UnsupportedError("the example has a tensor without a first size: give batch=False")
    if batch and any(t.shape[0] == 1 for t in tensors):  # torch.export takes a size of 1 for fixed
        args, named = _pytree.tree_map(
            lambda t: t.expand(2, *t.shape[1:]).clone() if torch.is_tensor(t) and t.shape[0] == 1 else t, (args, named))
    return args, named


def must_be(x, kind, name):
    if not isinstance(x, kind):
        raise TypeError("%s must be a torch %s, got %s" % (name, kind.__name__, type(x).__name__))


def _check(module):
    must_be(module, torch.nn.Module, "module")
    for name, t in [*module.named_parameters(), *module.named_buffers()]:
        if t.device.type != "cpu" or t.layout != torch.strided:
            raise _call.UnsupportedError("%s is on %s (%s); Rubato takes dense tensors on the CPU" % (name, t.device, t.layout))


class _Tensors(torch.nn.Module):
    """The tensors among what a module returns."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **named):
        return tuple(_tensors(self.module(*args, **named), {}))


def _export(module, args, named, batch, path, training=False):
    """As it computes in eval mode, all its tensors; `training`: in the modes that its parts have, unchanged."""
    try:
        import onnxscript  # noqa: F401: torch.onnx needs it
    except ImportError:
        raise _call.UnsupportedError("Rubato takes modules through torch.onnx, which needs the package onnxscript: "
                                     "pip install onnxscript") from None
    free = torch.export.Dim.DYNAMIC
    shapes = _pytree.tree_map(lambda t: {0: free} if torch.is_tensor(t) else None, (args, named)) if batch else None
    if shapes is not None:
        shapes = {"named": shapes[1]} if named else {"args": shapes[0]}
    silent = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch tells of each way that it tried; the sentence below says what failed
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            torch.onnx.export(module if training else _Tensors(module).eval(), args, path, kwargs=named or None, dynamo=True, dynamic_shapes=shapes,
                              optimize=not training, verbose=False)
    except Exception as e:
        cause = e
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = [line for line in str(cause).strip().split("\n") if line.strip()]
        raise _call.UnsupportedError("torch.onnx could not export %s: %s%s" % (
            type(module).__name__, (lines or [type(cause).__name__])[0],
            "; with batch=False the sizes of the example are fixed" if batch else "")) from e
    finally:
        logging.disable(silent)


def _close(a, b, near):
    if not a.is_floating_point():
        return torch.equal(a, b)
    a, b = a.double(), b.double()
    scale = a[torch.isfinite(a)].abs().max() if torch.isfinite(a).any() else torch.tensor(1.0)
    return torch.allclose(a, b, rtol=near, atol=near * max(float(scale), 1e-6), equal_nan=True)


def _few(t):
    return "%s %s" % (list(t.shape), [round(float(v), 5) for v in t.reshape(-1)[:4]])
