"""Trained runs and ONNX models, ready to predict."""
import collections
import math
import os
import threading
import time

from . import _array
from ._call import Arena, DataError, check, ffi, forks, heard, lib, path_bytes, text

Port = collections.namedtuple("Port", "name dtype shape")
Port.__doc__ = """An input or output: its name, dtype ("f32", ...) and shape; a size that a call decides is a name."""

_KEPT = 8  # executables of different shapes that a model keeps
_QUICK_S = 0.04  # a call for these shapes is over before anybody notices that it does not hear Ctrl-C
_THERE = 1 << 17  # bytes of an array from which on using it where it is costs less than a copy of it


def load(path, *, threads=0, precision="f32", autotune=False):
    """Open a run's folder, a checkpoint's folder or an ONNX file.

    threads 0: all cores that this process may use. precision: "f32" or "bf16". autotune: the first call with new
    shapes times ways to compute convolutions and products, and takes the fastest; Winograd's rounds more.
    Returns a Model. Raises MissingError, DataError, UnsupportedError.
    """
    if precision not in ("f32", "bf16"):
        raise ValueError('precision is %r, expected "f32" or "bf16"' % (precision,))
    if not isinstance(threads, int) or not 0 <= threads <= 1024:
        raise ValueError("threads is %r, expected a number from 0 to 1024" % (threads,))
    path = os.fspath(path)
    options = ffi.new("ru_exe_options *")
    options.threads, options.autotune = threads, bool(autotune)
    options.precision = lib.RU_PRECISION_BF16 if precision == "bf16" else lib.RU_PRECISION_F32
    return heard(lambda: (RunModel if os.path.isdir(path) else OnnxModel)(path, options))


class Model:
    """A model to call. One call at a time runs; others wait. Close it, or leave a `with` block, to free it."""

    inputs = ()   #: tuple of Port
    outputs = ()  #: tuple of Port

    def __init__(self):
        self._lock = threading.Lock()
        self._closes = False  # a call that is under way frees it when it ends
        self._forks = forks()

    def predict(self, *arrays, **named):
        """Outputs for these inputs, given in order or by name.

        Arrays: numpy, anything with a buffer or __dlpack__, lists where numpy is there. Returns one array, or a
        dict by name where the model has several outputs; they are the caller's own.
        Raises DataError where shapes or types do not fit. Ctrl-C ends the wait for a long call, which then ends by itself.
        """
        if self._forks != forks():
            raise RuntimeError("this model was opened before a fork: open it in the new process")
        given = self._by_name(arrays, named)
        if self._closes:
            raise ValueError("the model is closed")
        self._lock.acquire()
        heeds = False
        try:
            quick, compute = self._ready(given)
            if quick:
                return compute()
            heeds = True
        finally:
            if not heeds:
                self._release()
        return heard(compute, self._release)

    def _release(self):
        if self._closes:
            self._close()
        self._lock.release()

    __call__ = predict

    def _by_name(self, arrays, named):
        if len(arrays) == 1 and not named and len(self.inputs) == 1:
            return {self.inputs[0].name: arrays[0]}
        names = [p.name for p in self.inputs]
        if len(arrays) > len(names):
            raise TypeError("%d arrays for the %d inputs %s" % (len(arrays), len(names), ", ".join(names)))
        given = dict(zip(names, arrays))
        for name, x in named.items():
            if name not in names:
                raise TypeError("no input is named %r; there are %s" % (name, ", ".join(names)))
            if name in given:
                raise TypeError("input %r is given twice" % name)
            given[name] = x
        absent = [n for n in names if n not in given]
        if absent:
            raise TypeError("no array for input %s" % ", ".join(absent))
        return given

    def close(self):
        """Free the model; calls raise afterwards. One that is under way, also after Ctrl-C, frees it at its end."""
        if self._forks != forks():  # its threads are those of the process before the fork
            return
        if not self._lock.acquire(timeout=0.05):
            self._closes = True
            return
        try:
            self._close()
        finally:
            self._lock.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_forks", None) == forks():
            self._close()


def _port(name, t, graph=None):
    shape = []
    for k in range(t.rank):
        d = t.dims[k]
        if graph is not None and lib.ru_dim_is_symbolic(d):
            symbol = text(graph.symbols[lib.ru_dim_sym(d)])
            d = symbol if lib.ru_dim_coef(d) == 1 else "%d*%s" % (lib.ru_dim_coef(d), symbol)
        shape.append(d if isinstance(d, str) or d >= 0 else "?")
    return Port(name, _array.dtype_name(t.dtype), tuple(shape))


class _Bound:
    """An ONNX model for arrays of certain shapes."""

    def __init__(self, owner, given):
        self.arena, self.exe, self.keep, self.quick = Arena(), None, [], False
        err = ffi.new("ru_err *")
        self.arrays = ffi.new("ru_arrays *")
        at = ffi.cast("ru_array *", lib.ru_arena_zalloc(self.arena.at, len(given) * ffi.sizeof("ru_array"), 64))
        for k, (name, g) in enumerate(given.items()):
            c_name = ffi.new("char[]", name.encode())
            self.keep += [c_name, g]
            at[k].name = c_name
            at[k].type.dtype = _array.dtype_number(g.dtype)
            at[k].type.rank = len(g.shape)
            for d, n in enumerate(g.shape):
                at[k].type.dims[d] = n
            at[k].data = g.pointer()
        self.arrays.at, self.arrays.n, self.arrays.cap = at, len(given), len(given)
        settle = ffi.new("ru_settle *", {"opt": owner._options, "arrays": self.arrays, "arena": self.arena.at})
        ahead = ffi.new("ru_onnx_ahead *", lib.ru_exe_ahead(settle))
        opt = ffi.new("ru_onnx_options *", {"ahead": ahead, "external": owner._external})
        graph, self.graph = ffi.new("ru_graph *"), ffi.new("ru_graph *")
        self.keep += [settle, ahead, opt, graph]
        model = owner._file.model
        check(lib.ru_onnx_read_bound(model.data, model.size_bytes, opt, self.arrays.at, self.arrays.n, self.arena.at,
                                     graph, ffi.NULL, err), err, owner._path)
        check(lib.ru_exe_settle(settle, graph, self.graph, err), err, owner._path)
        # Elements decided a shape, or became constants: these arrays only.
        self.once = settle.ran > 0 or self.graph.n_inputs < len(given)
        if not self.once:  # a large input need not live as long as its executable
            self.keep = [k for k in self.keep if not isinstance(k, _array.Given)]
        exe = ffi.new("ru_exe **")
        check(lib.ru_exe_open(self.graph, owner._options, exe, err), err)
        self.exe = exe[0]
        self.args = ffi.new("ru_run_args *")

        self._places(given, [p.name for p in owner.outputs])

    def _places(self, given, names):
        """Where inputs go and outputs come from, for every run."""
        self.err, self.into, self.out, self.there = ffi.new("ru_err *"), [], [], []
        for k in range(self.graph.n_inputs):
            v = self.graph.values[self.graph.inputs[k].v]
            name, size = text(v.name), lib.ru_type_bytes(ffi.addressof(v, "type"))
            place = lib.ru_exe_input(self.exe, self.graph.inputs[k])
            if name in given:
                if size >= _THERE:
                    self.there.append((name, self.graph.inputs[k]))
                elif size > 0:
                    self.into.append((name, place, size))
                continue
            for i in range(self.arrays.n):  # what was computed before
                if text(self.arrays.at[i].name) == name:
                    ffi.memmove(place, self.arrays.at[i].data, size)
        for k, name in enumerate(names):
            v = self.graph.values[self.graph.outputs[k].v]
            shape = tuple(v.type.dims[d] for d in range(v.type.rank))
            back = _array.Back(_array.dtype_name(v.type.dtype), shape)
            at = sum(i is not None for _, _, _, i in self.out) if back.size_bytes >= _THERE else None
            self.out.append((name, self.graph.outputs[k], back, at))
        self.stats, self.copied = ffi.new("ru_exe_stats *"), 0
        self.inputs = ffi.new("ru_run_input[]", [{"input": value} for _, value in self.there])
        self.args.inputs, self.args.n_inputs = self.inputs, len(self.there)
        self.outputs = ffi.new("ru_run_output[]", [{"output": value} for _, value, _, at in self.out if at is not None])
        self.args.outputs, self.args.n_outputs = self.outputs, len(self.outputs)

    def timed(self, given):
        began = time.perf_counter()
        out = self.run(given)
        self.quick = time.perf_counter() - began < _QUICK_S
        return out

    def run(self, given):
        for name, place, size in self.into:
            ffi.memmove(place, given[name].view, size)
        for k, (name, _) in enumerate(self.there):
            self.inputs[k].data = given[name].pointer()
        made = []  # the caller's own, from the start
        for _, _, back, at in self.out:
            if at is not None:
                y, self.outputs[at].data = back.fresh()
                made.append(y)
        status = lib.ru_exe_run(self.exe, self.args, self.err)
        if self.there or made:
            lib.ru_exe_stats_get(self.exe, self.stats)
            _array.count_copied(self.stats.copied_bytes - self.copied)
            self.copied = self.stats.copied_bytes
        if status != lib.RU_OK:
            check(status, self.err)
        out = [(name, made[at] if at is not None else back.copy(lib.ru_exe_output(self.exe, value)))
               for name, value, back, at in self.out]
        return out[0][1] if len(out) == 1 else dict(out)

    def close(self):
        if self.exe is not None:
            lib.ru_exe_close(self.exe)
            self.exe = None
        self.arena.close()


class OnnxModel(Model):
    """A model from an ONNX file."""

    def __init__(self, path, options):
        super().__init__()
        self._options, self._bound, self._file, self._path = options, collections.OrderedDict(), None, path
        err = ffi.new("ru_err *")
        file = ffi.new("ru_onnx_file *")
        check(lib.ru_onnx_file_open(path_bytes(path), file, err), err)
        self._file = file
        self._external = ffi.new("ru_onnx_external *", lib.ru_onnx_file_external(file))
        arena = Arena()
        graph, info = ffi.new("ru_graph *"), ffi.new("ru_onnx_info *")
        opt = ffi.new("ru_onnx_options *", {"external": self._external, "signature": True})
        check(lib.ru_onnx_read(file.model.data, file.model.size_bytes, opt, arena.at, graph, info, err), err, path)
        if (any(info.texts_in[k] for k in range(graph.n_inputs))
                or any(info.texts_out[k] for k in range(graph.n_outputs))):
            raise DataError("%s takes or gives texts; the package takes numbers only: use `rubato run`" % path)
        values = [graph.values[graph.inputs[k].v] for k in range(graph.n_inputs)]
        self.inputs = tuple(_port(text(v.name), v.type, graph) for v in values)
        names = [text(info.outputs[k]) for k in range(graph.n_outputs)]
        opt.signature = False  # types of outputs follow from the nodes; where data decide them they stay open
        whole = ffi.new("ru_graph *")
        if lib.ru_onnx_read(file.model.data, file.model.size_bytes, opt, arena.at, whole, ffi.NULL, err) == lib.RU_OK:
            graph = whole
        self.outputs = tuple(_port(name, graph.values[graph.outputs[k].v].type, graph) for k, name in enumerate(names))

    def _ready(self, arrays):
        """Is a call over at once, and the call."""
        if self._file is None:
            raise ValueError("the model is closed")
        given = {p.name: _array.Given(arrays[p.name], p.dtype) for p in self.inputs}
        key = tuple([g.shape for g in given.values()])
        bound = self._bound.get(key)
        if bound is not None:
            self._bound.move_to_end(key)
            return (True, lambda: bound.run(given)) if bound.quick else (False, lambda: bound.timed(given))
        return False, lambda: self._first(key, given)

    def _first(self, key, given):
        bound = _Bound(self, given)
        if bound.once:
            try:
                return bound.run(given)
            finally:
                bound.close()
        self._bound[key] = bound
        if len(self._bound) > _KEPT:
            self._bound.popitem(last=False)[1].close()
        return bound.timed(given)

    def _close(self):
        for bound in self._bound.values():
            bound.close()
        self._bound.clear()
        if self._file is not None:
            lib.ru_onnx_file_close(self._file)
            self._file = None


class RunModel(Model):
    """The model of a run, with its best or newest checkpoint."""

    def __init__(self, path, exe_options, batch=64):
        super().__init__()
        self._p, self._arena, self._quick = None, Arena(), False
        err = ffi.new("ru_err *")
        self._run = ffi.new("ru_rundir *")
        check(lib.ru_rundir_open(path_bytes(path), self._arena.at, self._run, err), err)
        p = ffi.new("ru_predictor **")
        check(lib.ru_predictor_open(self._run, batch, exe_options, self._arena.at, p, err), err)
        self._p = p[0]
        model = self._model = lib.ru_predictor_model(self._p)
        options = lib.ru_job_data_options(ffi.addressof(self._run, "job"), False)
        self._norm = ffi.new("ru_norm *")
        c_options = ffi.new("ru_data_options *", options)
        check(lib.ru_norm_open(c_options, ffi.addressof(model.facts, "x"), b"the job", self._arena.at, self._norm, err),
              err)
        x = model.facts.x
        sample = tuple(x.dims[k] for k in range(x.rank))
        self.inputs = (Port("x", _array.dtype_name(x.dtype), ("N",) + sample),)
        self.outputs = (Port("y", "f32", ("N", lib.ru_predictor_outputs(self._p))),)
        self._sample, self._outputs = sample, ffi.new("const float **")
        self._size = lib.ru_type_bytes(ffi.addressof(model.facts, "x"))

    def _ready(self, arrays):
        """Is a call over at once, or does at least each of its parts end soon, and the call."""
        if self._p is None:
            raise ValueError("the model is closed")
        return self._quick, lambda: self._compute(arrays)

    def _compute(self, arrays):
        port, err = self.inputs[0], ffi.new("ru_err *")
        x = _array.Given(arrays["x"], port.dtype)
        single = x.shape == self._sample
        if not single and x.shape[1:] != self._sample:
            raise DataError("x has the shape %s, expected %s" % (x.shape, port.shape))
        n = 1 if single else x.shape[0]
        size = lib.ru_predictor_outputs(self._p)
        y, into = _array.Back("f32", (size,) if single else (n, size)).fresh()
        into = ffi.cast("float *", into)
        most = lib.ru_predictor_batch(self._p)
        for first in range(0, n, most):
            part, began = min(most, n - first), time.perf_counter()
            place = lib.ru_predictor_input(self._p, 0)
            ffi.memmove(place, x.pointer() + first * self._size, part * self._size)
            if port.dtype == "f32":
                self._prepare(ffi.cast("float *", place), part)
            check(lib.ru_predictor_run(self._p, self._outputs, err), err)
            ffi.memmove(into + first * size, self._outputs[0], part * size * 4)
            self._quick = time.perf_counter() - began < _QUICK_S
            for k in range(part):
                if lib.ru_predictor_left_out(self._p, k):  # an input without a value: no answer
                    into[(first + k) * size:(first + k + 1) * size] = [math.nan] * size
        return y

    def _prepare(self, x, n):
        """n samples as the reader of the training's files gives them: columns and data.mean, data.std."""
        per = self._size // 4
        for k in range(n if self._model.facts.columns.n > 0 else 0):
            lib.ru_columns_normalize(ffi.addressof(self._model.facts, "columns"), x + k * per)
        lib.ru_norm_apply(self._norm, x, n)

    def _close(self):
        if self._p is not None:
            lib.ru_predictor_close(self._p)
            self._p = None
        self._arena.close()
