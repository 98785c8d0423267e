"""The process group "rubato" of torch.distributed."""
import collections
import secrets
import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from . import _array, _call
from ._call import check, ffi, lib, text

_SLICE_NS = 50_000_000  # a thread that waits looks so often whether it shall end
_SUMS = {torch.float32: "f32", torch.bfloat16: "bf16"}


class _Work(dist.Work):
    """A collective under way; Ctrl-C ends a wait for it."""

    def __init__(self, work):
        super().__init__()
        self._work, self._ended, self._raised = work, threading.Event(), None

    def end(self, raised):
        self._raised = raised
        self._ended.set()

    def wait(self, timeout=None):
        if not self._ended.wait(timeout.total_seconds() if timeout else None):  # torch's own: 0 is no limit
            raise _call.BusyError("a collective is not done after %g s" % timeout.total_seconds())
        if self._raised is not None:  # torch's own kind of work keeps it to itself
            raise self._raised[0]
        return True

    def is_completed(self):
        return self._ended.is_set()

    def result(self):
        return self._work.result()

    def get_future(self):
        return self._work.get_future()


class RubatoGroup(dist.ProcessGroup):
    """Collectives over Rubato's network: all-reduce and reduce-scatter (sum, mean) of float32 and bfloat16, broadcast,
    all-gather, barrier; of dense tensors on the CPU. Any other call raises with its name.

    All ranks call the same collectives in the same order. A rank that is lost ends the group: what waits and later
    calls raise PeerError (in a backward pass RuntimeError) and name it.
    """

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._rank, self._size, self._timeout = rank, size, timeout
        self._g, self._forks = None, _call.forks()
        err, g, keep = ffi.new("ru_err *"), ffi.new("ru_ranks **"), []

        def c(s):
            keep.append(ffi.NULL if s is None else ffi.new("char[]", s.encode()))
            return keep[-1]

        if rank == 0:
            token, join = secrets.token_hex(16), None
        else:
            token, join = store.get("rubato/token").decode(), store.get("rubato/address").decode()
        options = ffi.new("ru_ranks_options *", {"join": c(join), "listen": c(_listen(store) if rank == 0 else None),
                                                 "token": c(token), "rank": rank, "n_ranks": size})
        check(lib.ru_ranks_open(options, g, err), err)
        self._g = g[0]
        if rank == 0:
            store.set("rubato/token", token)
            store.set("rubato/address", text(lib.ru_ranks_address(self._g)))
        self._closing, self._works, self._kept = False, collections.deque(), []
        self._lock, self._more = threading.Lock(), threading.Semaphore(0)
        self._meet(timeout)
        self._waiter = threading.Thread(target=self._complete, name="rubato-group", daemon=True)
        self._waiter.start()

    def _meet(self, timeout):
        err, left = ffi.new("ru_err *"), int(timeout.total_seconds() * 1e9)
        while True:
            status = lib.ru_ranks_meet(self._g, _SLICE_NS, err)
            left -= _SLICE_NS
            if status != lib.RU_E_AGAIN or left <= 0:
                return check(status, err)

    # -- works: futures that one thread completes in the order of the calls ------------------------

    def _begin(self, op, dtype, root, tensor, n, after=None):
        """Begin a collective in the memory of `tensor`; `after` runs when it is done. Returns an entry of a work."""
        if self._g is None:
            raise ValueError("the process group is destroyed")
        if self._forks != _call.forks():
            raise RuntimeError("a process group does not live on in a forked process: open it there")
        call, err = ffi.new("uint64_t *"), ffi.new("ru_err *")
        data = ffi.NULL if tensor is None or n == 0 else ffi.cast("void *", tensor.data_ptr())
        with self._lock:
            check(lib.ru_ranks_begin(self._g, op, _array.dtype_number(dtype), root, data, n, call, err), err)
        return call[0], tensor, after

    def _work(self, entries, result):
        ended = torch.futures.Future()  # with what was raised, or None

        def end(ended):
            raised = ended.value()
            if raised is not None:
                raise raised[0]
            return result

        # Only what a callback raises is an error for DistributedDataParallel; an exception that is set breaks it.
        work = _Work(_create_work_from_future(ended.then(end)))
        self._works.append((entries, ended, work))
        self._more.release()
        return work

    def _complete(self):
        err, late_ns = ffi.new("ru_err *"), int(self._timeout.total_seconds() * 1e9)
        while True:
            self._more.acquire()
            if not self._works:
                return  # it is closed
            entries, ended, work = self._works.popleft()
            raised = None
            try:
                for call, _, after in entries:
                    status, left = lib.ru_ranks_wait(self._g, call, _SLICE_NS, err), late_ns
                    while status == lib.RU_E_AGAIN and not self._closing and left > 0:
                        status, left = lib.ru_ranks_wait(self._g, call, _SLICE_NS, err), left - _SLICE_NS
                    if status == lib.RU_E_AGAIN:
                        self._kept.append(entries)  # the others may still write there
                        raise _call.BusyError("the process group was destroyed" if self._closing else
                                              "a collective is not done after %g s" % self._timeout.total_seconds())
                    check(status, err)
                    if after is not None:
                        after()
            except Exception as e:
                raised = [e]
            ended.set_result(raised)
            work.end(raised)

    # -- collectives ---------------------------------------------------------------------------------

    def _sum(self, what, tensors, op):
        """What to do with the sums, for sum and mean."""
        if not (op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG):
            raise _call.UnsupportedError('the process group "rubato" does no %s with %s; it does sum and mean' % (what, op))
        for t in tensors:
            if t.dtype not in _SUMS:
                raise _call.UnsupportedError('the process group "rubato" does no %s of %s; it does float32 and bfloat16' % (
                    what, t.dtype))
        return 1.0 / self._size if op == dist.ReduceOp.AVG else None

    def allreduce(self, tensors, opts=None):
        entries = []
        for t in tensors:
            factor = self._sum("all-reduce", [t], _op(opts))
            p = _packed(t)

            def after(t=t, p=p, factor=factor):
                with torch.no_grad():
                    if factor is not None:
                        p.mul_(factor)
                    if p is not t:
                        t.copy_(p)

            entries.append(self._begin(lib.RU_COLL_ALL_REDUCE, _SUMS[t.dtype], 0, p, p.numel(), after))
        return self._work(entries, tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors, opts=None):
        root, entries = opts.rootRank if opts is not None else 0, []
        for t in tensors:
            p = _packed(t)
            entries.append(self._begin(lib.RU_COLL_BROADCAST, "u8", root, p, p.numel() * p.element_size(),
                                       None if p is t else lambda t=t, p=p: t.copy_(p)))
        return self._work(entries, tensors)

    def _gather(self, give, into, after):
        into.view(self._size, -1)[self._rank].copy_(give.reshape(-1))
        return self._begin(lib.RU_COLL_ALL_GATHER, "u8", 0, into, give.numel() * give.element_size(), after)

    def allgather(self, outputs, inputs, opts=None):
        entries = []
        for out, give in zip(outputs, inputs):
            _dense(give)
            if any(o.numel() != give.numel() or o.dtype != give.dtype for o in out):
                raise _call.UnsupportedError('the process group "rubato" gathers tensors of one size and type')
            into = give.new_empty((self._size, give.numel()))

            def after(out=out, into=into):
                for o, row in zip(out, into):
                    o.copy_(row.view(o.shape))

            entries.append(self._gather(give, into, after))
        return self._work(entries, outputs)

    def _allgather_base(self, output, give, opts=None):
        _dense(give)
        into = _packed(output)
        return self._work([self._gather(give, into, None if into is output else lambda: output.copy_(into))], output)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        entries = []
        for output, give in zip(outputs, inputs):
            _dense(give)
            into = _packed(output)
            entries.append(self._gather(give, into, None if into is output else lambda o=output, i=into: o.copy_(i)))
        return self._work(entries, outputs)

    def _scatter(self, output, parts, op):
        factor = self._sum("reduce-scatter", [parts], op)

        def after():
            with torch.no_grad():
                output.copy_(parts[self._rank].view(output.shape))
                if factor is not None:
                    output.mul_(factor)

        return self._begin(lib.RU_COLL_REDUCE_SCATTER, _SUMS[parts.dtype], 0, parts, output.numel(), after)

    def reduce_scatter(self, outputs, inputs, opts=None):
        op = _op(opts)
        entries = []
        for output, parts in zip(outputs, inputs):
            _dense(output)
            if any(p.numel() != output.numel() or p.dtype != output.dtype for p in parts):
                raise _call.UnsupportedError('the process group "rubato" scatters tensors of one size and type')
            entries.append(self._scatter(output, torch.stack([p.reshape(-1) for p in parts]), op))
        return self._work(entries, outputs)

    def _reduce_scatter_base(self, output, give, opts=None):
        _dense(give)
        op = _op(opts)
        return self._work([self._scatter(output, give.reshape(self._size, -1).clone(), op)], output)

    all_gather_single, all_gather_single_coalesced = _allgather_base, allgather_into_tensor_coalesced  # of later torch
    reduce_scatter_single = _reduce_scatter_base

    def barrier(self, opts=None):
        return self._work([self._begin(lib.RU_COLL_BARRIER, "f32", 0, None, 0)], [])

    def getBackendName(self):
        return "rubato"

    def getSize(self):
        return self._size

    def getRank(self):
        return self._rank

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    def abort(self):
        self.shutdown()

    def shutdown(self):
        """Leave: the others' calls raise."""
        if self._g is not None and self._forks == _call.forks():
            self._closing = True
            self._more.release()  # behind all works
            self._waiter.join()
            g, self._g = self._g, None
            lib.ru_ranks_close(g)

    def __del__(self):
        if getattr(self, "_g", None) is not None:
            self.shutdown()


def _refused(name):
    def call(self, *args, **named):
        raise _call.UnsupportedError('the process group "rubato" does no %s; it does allreduce, broadcast, allgather, '
                                     'reduce_scatter and barrier' % name)

    return call


for _name in ("reduce", "gather", "scatter", "gather_single", "gather_into_tensor", "alltoall", "alltoall_base", "all_to_all_single",
              "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced", "allgather_coalesced", "send", "recv", "recv_anysource", "monitored_barrier"):
    setattr(RubatoGroup, _name, _refused(_name))


def _op(opts):
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def _dense(t):
    if t.device.type != "cpu" or t.layout != torch.strided:
        raise _call.UnsupportedError('the process group "rubato" takes dense tensors on the CPU, not %s on %s' % (t.layout, t.device))


def _packed(t):
    _dense(t)
    return t if t.is_contiguous() else t.detach().contiguous()


def _listen(store):
    """The address of this machine that the others reach the store at."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    return None if host in (None, "localhost", "127.0.0.1", "::1") else "%s:0" % host


dist.Backend.register_backend("rubato", lambda store, rank, size, timeout: RubatoGroup(store, rank, size, timeout), devices=["cpu"])
