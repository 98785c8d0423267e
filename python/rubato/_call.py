"""Calls of the library: a status becomes an exception with the library's sentence."""
import _thread
import atexit
import os
import threading

# How long a thread that waits for its team spins, as in the program (tool/run.c). libgomp reads it once, when it is loaded.
_brief = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ)
if _brief:
    os.environ["GOMP_SPINCOUNT"] = "5000"
try:
    from ._rubato import ffi, lib
finally:
    if _brief:
        del os.environ["GOMP_SPINCOUNT"]

_forks = 0  # of this process since the package was loaded: threads of the library do not live on in a child


def _forked():
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


def forks():
    return _forks


class RubatoError(Exception):
    """What the library could not do; `status` is its word for the kind ("data", "missing", ...)."""

    status = "bug"


class DataError(RubatoError, ValueError):
    """Input data, a model or a job's file is not what it should be."""


class ConfigError(RubatoError, ValueError):
    """A job file or setting is wrong."""


class MissingError(RubatoError, FileNotFoundError):
    """A file or folder is not there."""


class UnsupportedError(RubatoError, NotImplementedError):
    """The library has no way to do this."""


class BusyError(RubatoError):
    """Not now, or not within a limit: nothing changed."""


class PeerError(RubatoError, ConnectionError):
    """Another process is not there, or was lost."""


class DiskError(RubatoError, OSError):
    """A file cannot be made, read or written."""


_KINDS = {
    "data": DataError, "infeasible": DataError, "config": ConfigError, "usage": ConfigError,
    "missing": MissingError, "unsupported": UnsupportedError, "again": BusyError, "limit": BusyError,
    "cancelled": BusyError, "peer": PeerError, "create": DiskError, "io": DiskError, "permission": DiskError,
}


def text(c_text):
    """A C string as str; None for NULL."""
    return None if c_text == ffi.NULL else ffi.string(c_text).decode("utf-8", "replace")


def check(status, err, where=None):
    """Raise what `status` says, with the sentence in `err`, behind the name of a file."""
    if status == lib.RU_OK:
        return
    word = text(lib.ru_status_name(status))
    sentence = ffi.string(err.text).decode("utf-8", "replace")
    if where is not None:
        sentence = "%s: %s" % (os.fsdecode(where), sentence)
    if word == "memory":
        raise MemoryError(sentence)
    error = _KINDS.get(word, RubatoError)(sentence)
    error.status = word
    raise error


_calls = set()  # of threads of their own, that have not ended


def heard(call, last=lambda: None):
    """call(), then last(). Where Ctrl-C comes meanwhile it is raised at once: the call ends by itself, and last() follows it."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread is interrupted
        try:
            return call()
        finally:
            last()
    lock, ended, begun, left, said = threading.Lock(), threading.Event(), [], [], []

    def run():
        with lock:
            if left:
                return
            begun.append(True)
            _calls.add(ended)
        try:
            said.append((call(), None))
        except BaseException as e:
            said.append((None, e))
        with lock:
            ended.set()
            gone = bool(left)
        if gone:
            said.clear()
            last()
        _calls.discard(ended)

    try:
        try:
            _thread.start_new_thread(run, ())  # Thread.start() is not whole where Ctrl-C comes inside of it
        except RuntimeError:  # there are none any more while the interpreter ends (atexit, from 3.12 on)
            run()
        ended.wait()
    except BaseException:
        with lock:
            goes_on = bool(begun) and not ended.is_set()
            left.append(True)
        if not goes_on:
            last()
        raise
    last()
    value, error = said.pop()
    if error is not None:
        raise error
    return value


@atexit.register
def _wait():  # they compute with what the process takes down
    for ended in list(_calls):
        ended.wait()


def path_bytes(path):
    """A path for C; no NUL may be in it."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path holds no NUL character")
    return name


def words(list_of_bytes, keep):
    """const char *[] of byte strings; what must live as long goes into `keep`."""
    at = [ffi.new("char[]", w) for w in list_of_bytes]
    array = ffi.new("const char *[]", at)
    keep.extend(at)
    keep.append(array)
    return array


class Arena:
    """Memory of the library with one lifetime."""

    def __init__(self):
        self.at = ffi.new("ru_arena *")
        lib.ru_arena_init(self.at, 0)

    def close(self):
        if self.at is not None:
            lib.ru_arena_fini(self.at)
            self.at = None

    def __del__(self):
        self.close()
