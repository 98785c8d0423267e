"""Training in this process, as `rubato train` does it."""
import json
import os
import threading
import types

from ._call import Arena, check, ffi, forks, lib, path_bytes, text, words

_one = threading.Lock()


def train(job, *, out=None, set=None, resume=False):
    """Train the job of a file, in the background: same result, bit for bit, as `rubato train JOB`.

    out: the run's folder; None: the next free one under runs/. set: settings on top of the file,
    {"train.batch": 64} or ["train.batch=64"]. Returns a Run. One training at a time in a process.
    """
    sets = ["%s=%s" % (k, v) for k, v in set.items()] if isinstance(set, dict) else list(set or ())
    run = Run.__new__(Run)
    run._begin(job, out, sets, bool(resume))
    return run


class Run:
    """A training under way. Iterate over it for each step's figures; `wait` for its end."""

    def _begin(self, job, out, sets, resume):
        self._arena, keep = Arena(), []
        err = ffi.new("ru_err *")
        self._job, conf = ffi.new("ru_job *"), ffi.new("ru_conf **")
        c_sets = words([s.encode() for s in sets], keep)
        check(lib.ru_job_load(path_bytes(job), c_sets, len(sets), self._arena.at, self._job, conf, err), err)
        if out is None:
            out = _free_folder(job)
        self.out = os.fspath(out)
        c_out = ffi.new("char[]", path_bytes(out))
        options = ffi.new("ru_train_options *", {"job": self._job, "conf": conf[0], "out": c_out, "resume": resume,
                                                 "quiet": True})
        self._keep = [keep, conf, c_out, options]
        self._result, self._err, self._status = ffi.new("ru_train_result *"), err, None
        if not _one.acquire(blocking=False):
            raise RuntimeError("another training runs in this process: wait for its end")
        self._skip, self._forks = _size(self._metrics()), forks()
        lib.ru_self_stop_watch()
        self._thread = threading.Thread(target=self._run, args=(options,), name="rubato-train")
        self._thread.start()

    def _run(self, options):
        try:
            self._status = lib.ru_train(options, self._arena.at, self._result, self._err)
            self.stopped_by = lib.ru_self_stop_asked()
        finally:
            lib.ru_self_stop_unwatch()
            _one.release()

    def _metrics(self):
        return os.path.join(self.out, "metrics.jsonl")

    @property
    def running(self):
        """Does it still train?"""
        if self._forks != forks():
            raise RuntimeError("this training was begun before a fork: it runs on in the process that began it")
        return self._thread.is_alive()

    def stop(self):
        """End after the step under way, with a checkpoint; what Ctrl-C does, also where that is ignored (nohup, a shell's job)."""
        if self.running:
            lib.ru_self_stop_ask()

    def wait(self, timeout=None):
        """Wait for the end; returns its figures (steps, loss, samples_per_s, wall_s, ended, out), None if it still
        runs after `timeout` seconds. Raises what the training failed with. After Ctrl-C `ended` is "stopped"."""
        if self.running:
            self._thread.join(timeout)
        if self.running:
            return None
        check(self._status, self._err)
        s = self._result.summary
        return types.SimpleNamespace(steps=s.steps, epochs=s.epochs, samples=s.samples, loss=s.loss,
                                     samples_per_s=s.samples_per_s, wall_s=s.wall_ns * 1e-9, ended=text(s.ended),
                                     out=self.out)

    def __iter__(self):
        """Each step as it is done: an object with the fields of its line in metrics.jsonl (step, loss, ...)."""
        at, rest = self._skip, b""
        while True:
            ended = not self.running
            try:
                with open(self._metrics(), "rb") as f:
                    f.seek(at)
                    rest += f.read()
                    at = f.tell()
            except FileNotFoundError:
                pass
            *lines, rest = rest.split(b"\n")
            for line in lines:
                m = json.loads(line)
                if m.get("schema") == "rubato.train.step/1":
                    yield types.SimpleNamespace(**m)
            if ended:
                break
            self._thread.join(0.05)
        self.wait()


def _size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _free_folder(job):
    stem = os.path.splitext(os.path.basename(os.fspath(job)))[0]
    k = 1
    while os.path.exists(os.path.join("runs", "%s-%d" % (stem, k))):
        k += 1
    return os.path.join("runs", "%s-%d" % (stem, k))
