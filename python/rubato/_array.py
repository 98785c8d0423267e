"""Arrays in and out: numpy where it is there, buffers (memoryview) where it is not."""
import math

from ._call import DataError, ffi, lib, text

try:
    import numpy
except ImportError:  # optional
    numpy = None

# the library's name, struct format, numpy's name
_TYPES = {"f32": ("f", "float32"), "f64": ("d", "float64"), "i8": ("b", "int8"), "u8": ("B", "uint8"),
          "i16": ("h", "int16"), "u16": ("H", "uint16"), "i32": ("i", "int32"), "u32": ("I", "uint32"),
          "i64": ("q", "int64"), "u64": ("Q", "uint64"), "bool": ("?", "bool"), "f16": ("e", "float16"),
          "bf16": ("H", "uint16")}
_FORMATS = {"f": "f32", "d": "f64", "b": "i8", "B": "u8", "c": "u8", "h": "i16", "H": "u16", "i": "i32", "I": "u32",
            "l": "i64", "L": "u64", "q": "i64", "Q": "u64", "?": "bool", "e": "f16"}

_copied = 0


def copied():
    """Bytes so far of inputs that had to be copied (put in order, converted, or moved to a multiple of 16 bytes), and
    of outputs that could not be computed in the caller's memory (such as one that shows an input).

    Below 128 KiB an array is copied, which costs less than using it in place, and is not counted.
    """
    return _copied


def count_copied(size_bytes):
    global _copied
    _copied += size_bytes


def dtype_number(name):
    """The library's number of the dtype with that name."""
    return _NUMBERS[name]


def dtype_name(number):
    return text(lib.ru_dtype_name(number))


_WANTED = {} if numpy is None else {name: numpy.dtype(n) for name, (_, n) in _TYPES.items()}
_NUMBERS = {text(lib.ru_dtype_name(k)): k for k in range(1, 14)}


class Given:
    """An array that a user gives: dtype (the library's name), shape, a packed row-major buffer."""

    __slots__ = ("view", "shape", "dtype", "size_bytes")

    def __init__(self, x, dtype):
        self.view = _packed(x, dtype)
        if self.view.ndim > lib.RU_RANK_MAX:
            raise DataError("the array has %d dimensions, at most %d are taken" % (self.view.ndim, lib.RU_RANK_MAX))
        self.shape, self.dtype, self.size_bytes = self.view.shape, dtype, self.view.nbytes

    def pointer(self):
        return ffi.from_buffer(self.view) if self.size_bytes > 0 else ffi.NULL


def _packed(x, dtype):
    if numpy is not None and not isinstance(x, (memoryview, bytes, bytearray)):
        want = _WANTED[dtype]
        if type(x) is numpy.ndarray and x.dtype == want and x.flags.c_contiguous:
            return x.data
        a = _numpy_of(x)
        if not numpy.can_cast(a.dtype, want, "same_kind"):
            raise TypeError("expected %s, got an array of %s: convert it" % (dtype, a.dtype))
        out = numpy.ascontiguousarray(a, dtype=want).reshape(a.shape)
        if want.kind in "iu" and a.dtype.itemsize > want.itemsize and not numpy.array_equal(out, a):
            raise DataError("the array of %s holds numbers that %s cannot hold" % (a.dtype, dtype))
        if out is not a and out.base is not a:
            count_copied(out.nbytes)
        return memoryview(out)
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError("expected an array (a buffer; without numpy lists are not taken), got %s"
                        % type(x).__name__) from None
    if not view.c_contiguous or view.format[:1] in (">", "!"):
        raise TypeError("expected a packed array in row-major order; numpy, once installed, puts others in order")
    if _FORMATS.get(view.format.lstrip("@=<")) != dtype:
        raise TypeError("expected %s, got an array of format %r; numpy, once installed, converts" % (dtype, view.format))
    return view


def _numpy_of(x):
    if isinstance(x, numpy.ndarray):
        return x
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        return numpy.from_dlpack(x)
    if hasattr(x, "detach"):  # a torch tensor that takes part in gradients
        x = x.detach()
    a = numpy.asarray(x)
    return a.astype(numpy.float32) if a.dtype == numpy.float64 and isinstance(x, (list, tuple)) else a


class Back:
    """How elements of the library become an array of the user's: numpy.ndarray, else memoryview."""

    def __init__(self, dtype, shape):
        self.format, self.name = _TYPES[dtype]
        self.shape, self.dtype = shape, None if numpy is None else numpy.dtype(self.name)
        self.size_bytes = math.prod(shape) * lib.ru_dtype_bytes(dtype_number(dtype))

    def fresh(self):
        """An array of its own, not filled, and its address, a multiple of 64."""
        size = self.size_bytes + 64
        buffer = numpy.empty(size, numpy.uint8) if numpy is not None else bytearray(size)
        at = ffi.cast("char *", ffi.from_buffer(buffer))
        skip = -int(ffi.cast("uintptr_t", at)) % 64
        return self.view(buffer, skip), at + skip

    def copy(self, pointer):
        if numpy is not None:
            out = numpy.empty(self.shape, self.dtype)
            if self.size_bytes > 0:
                ffi.memmove(out.data if out.ndim > 0 else out.reshape(1).data, pointer, self.size_bytes)
            return out
        data = bytearray(ffi.buffer(pointer, self.size_bytes)) if self.size_bytes > 0 else bytearray()
        if not self.shape:
            return memoryview(data).cast(self.format)[0]
        return memoryview(data).cast(self.format) if 0 in self.shape else memoryview(data).cast(self.format, self.shape)

    def view(self, buffer, at):
        """The array that stands in `buffer` from byte `at` on, and keeps it alive."""
        if numpy is not None:
            return numpy.frombuffer(buffer, self.dtype, math.prod(self.shape), at).reshape(self.shape)
        data = memoryview(buffer)[at:at + self.size_bytes]
        return data.cast(self.format) if 0 in self.shape else data.cast(self.format, self.shape)
