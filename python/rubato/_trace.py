"""Traces of runs: where the time of every step went."""
import types

from . import command
from ._call import Arena, check, ffi, heard, lib, path_bytes, text


def trace(path):
    """Read the traces of a run: its folder, a folder of windows in it, or one .trace file.

    Returns a Trace. Raises MissingError, DataError.
    """
    return heard(lambda: Trace(path))


class Trace:
    """What the processes of a run recorded, all on one clock. It is read once; a later look is a new Trace."""

    def __init__(self, path):
        self._path, arena, err = path, Arena(), ffi.new("ru_err *")
        try:
            traces, n = ffi.new("ru_trace **"), ffi.new("uint32_t *")
            check(lib.ru_trace_run_load(path_bytes(path), arena.at, traces, n, err), err)
            clocks = ffi.new("ru_trace_clocks *")
            check(lib.ru_trace_align(traces[0], n[0], arena.at, clocks, err), err)
            ranks = ffi.new("ru_rank_steps[]", max(1, n[0]))
            check(lib.ru_trace_steps(traces[0], n[0], clocks, arena.at, ranks, err), err)
            numbers = [lib.ru_trace_number(traces[0] + k) for k in range(n[0])]
            self._steps = [_step(ranks[k].at[i], numbers, k) for k in range(n[0]) for i in range(ranks[k].n)]
        finally:
            arena.close()
        self._steps.sort(key=lambda s: (s.start_ns, s.rank))

    def steps(self, rank=None):
        """The steps of all ranks, or of one, by their starts; a step that was repeated stands twice.

        Each has step (from 1), rank, start_ns and end_ns (integers, on the run's common clock), seconds, samples
        (0: not known), the parts of its time in seconds, which add up to it (compute, network, peer, input, other),
        and late: the rank that it waited for longest, or None.
        """
        return [s for s in self._steps if rank is None or s.rank == rank]

    def causes(self):
        """What made steps long: dicts as `rubato trace RUN --json` prints them."""
        return [a for a in self._asked() if a["schema"] == "rubato.trace.cause/1"]

    def facts(self):
        """Times by op and rank: dicts as `rubato trace RUN --json` prints them."""
        return [a for a in self._asked() if a["schema"] == "rubato.trace.fact/1"]

    def _asked(self):
        answers = command.ask("trace", self._path)
        return answers if isinstance(answers, list) else [answers]


def _step(s, numbers, k):
    parts = {text(lib.ru_step_part_name(p)): s.part_ns[p] * 1e-9 for p in range(lib.RU_STEP_PARTS)}
    late = None if s.late == lib.RU_STEP_NOBODY else numbers[s.late]
    return types.SimpleNamespace(step=s.step, rank=numbers[k], start_ns=s.start_ns, end_ns=s.end_ns,
                                 seconds=(s.end_ns - s.start_ns) * 1e-9, samples=s.samples, late=late, **parts)
