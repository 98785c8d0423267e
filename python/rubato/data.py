"""Batches of samples, read and decoded in the background."""
import operator
import threading

from . import _array
from ._call import check, ffi, forks, heard, lib, text, words

_SLICE_NS = 50_000_000  # KeyboardInterrupt is looked for so often
_VIEW_FROM = 1 << 17  # bytes of an array from which on taking its memory costs less than a copy
_NUMBERS = ("context", "stride", "features", "classes", "image_size", "seed", "first", "count")
_FLAGS = ("one_hot", "skip_damaged", "raw", "regression", "direct")


def stream(*, format, paths=(), batch, seed=0, epochs=1, shuffle=True, drop_last=False, threads=0, **options):
    """Batches of a data set, each a tuple of arrays (x, y, ...), which are the caller's own.

    Arrays of at least 128 KiB are views of the memory the batch was decoded into: while one of them lives, so does that
    memory, and no other batch is put there, also when the stream was closed. Smaller ones, labels mostly, are copies.

    format: csv, libsvm, idx, cifar, npy, tokens, images, tar, tfrecord, packed, synthetic. paths: files, folders or
    addresses (http, https, s3). epochs 0: without end. The order is a function of the seed alone.
    options: label, generator, context, stride, features, classes, image_size, first, count, one_hot, skip_damaged,
    raw, regression, direct: as in a job's `data:` section.
    """
    files = [paths] if isinstance(paths, (str, bytes)) else list(paths)
    return heard(lambda: Stream(format, files, batch, seed, epochs, shuffle, drop_last, threads, options))


def _whole(name, x, least=0, most=2**63 - 1):
    n = operator.index(x)
    if not least <= n <= most:
        raise ValueError("%s is %d, expected a number from %d to %d" % (name, n, least, most))
    return n


class _Live:
    """The open stream behind batches that were taken from it; NULL once it is closed."""

    def __init__(self):
        self.s, self.lock = ffi.NULL, threading.RLock()  # a batch may end wherever the collector runs


def _giver(live, size_bytes, made_in):
    """What gives the memory of a batch back when its last array is gone."""
    def give(taken):
        if made_in == forks():
            with live.lock:
                lib.ru_stream_give(live.s, taken, size_bytes)
    return give


class Stream:
    """An iterator of batches, for any thread; close it, or leave a `with` block, to free it before its end."""

    def __init__(self, format, paths, batch, seed, epochs, shuffle, drop_last, threads, options):
        self._s, self._d, self._forks, self._live = None, None, forks(), _Live()
        self._lock, self._closes = threading.RLock(), False
        keep, err = [], ffi.new("ru_err *")
        batch, epochs = _whole("batch", batch, 1), _whole("epochs", epochs)
        o = ffi.new("ru_data_options *")
        c_format = ffi.new("char[]", format.encode())
        o.format, o.n_paths = c_format, len(paths)
        o.paths = words([p if isinstance(p, bytes) else str(p).encode() for p in paths], keep)
        for name, value in options.items():
            if name in _NUMBERS:
                setattr(o, name, _whole(name, value, -2**63))
            elif name in _FLAGS:
                setattr(o, name, bool(value))
            elif name in ("label", "generator"):
                keep.append(ffi.new("char[]", str(value).encode()))
                setattr(o, name, keep[-1])
            else:
                raise TypeError("stream() has no option %r" % name)
        d = ffi.new("ru_dataset **")
        check(lib.ru_dataset_open(o, d, err), err)
        self._d, self._keep = d[0], [keep, o, c_format]
        fields = ffi.new("const ru_field **")
        n = lib.ru_dataset_fields(self._d, fields)
        self.fields = tuple((text(fields[0][k].name), _array.dtype_name(fields[0][k].type.dtype),
                             tuple(fields[0][k].type.dims[i] for i in range(fields[0][k].type.rank)))
                            for k in range(n))
        so = ffi.new("ru_stream_options *", {
            "batch": batch, "epochs": epochs, "seed": _whole("seed", seed), "drop_last": bool(drop_last),
            "partial_last": not drop_last and epochs > 0, "threads": _whole("threads", threads, 0, 1024),
            "wait_ns": _SLICE_NS})
        so.shuffle = lib.RU_SHUFFLE_FULL if shuffle else lib.RU_SHUFFLE_NONE
        s = ffi.new("ru_stream **")
        check(lib.ru_stream_open(self._d, so, s, err), err)
        self._s, self._batch, self._live.s = s[0], ffi.new("ru_batch *"), s[0]

    def __len__(self):
        """Samples of the data set."""
        return lib.ru_dataset_count(self._d)

    def __iter__(self):
        return self

    def __next__(self):
        if self._forks != forks():
            raise RuntimeError("this stream was opened before a fork: open it in the new process")
        err, status = ffi.new("ru_err *"), lib.RU_E_AGAIN
        while status == lib.RU_E_AGAIN:
            with self._lock:
                if self._closes:
                    raise StopIteration
                status = lib.ru_stream_next(self._s, self._batch, err)
                if status == lib.RU_OK and self._batch.n > 0:
                    return self._arrays(self._batch.n)
        check(status, err)
        self.close()
        raise StopIteration

    def _arrays(self, n):
        backs = [_array.Back(dtype, (n,) + shape) for _, dtype, shape in self.fields]
        views = [back.size_bytes >= _VIEW_FROM for back in backs]
        taken, size = ffi.NULL, ffi.new("int64_t *")
        if any(views):
            taken = lib.ru_stream_take(self._s, size)
        if taken == ffi.NULL:
            return tuple(back.copy(self._batch.fields[k]) for k, back in enumerate(backs))
        owned = ffi.gc(ffi.cast("char *", taken), _giver(self._live, size[0], self._forks))
        buffer = ffi.buffer(owned, size[0])
        return tuple(back.view(buffer, ffi.cast("char *", at) - owned) if view else back.copy(at)
                     for back, view, at in zip(backs, views, self._batch.fields))

    def close(self):
        if self._forks != forks():  # its threads are not here: nothing can be waited for
            return
        self._closes = True  # another thread's wait for a batch ends soon
        with self._lock:
            with self._live.lock:
                s, self._s, self._live.s = self._s, None, ffi.NULL
            if s is not None:
                lib.ru_stream_close(s)
            if self._d is not None:
                lib.ru_dataset_close(self._d)
                self._d = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_forks", None) == forks():
            self.close()
