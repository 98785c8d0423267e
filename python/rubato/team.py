"""This process as a member of an elastic job: gradients are summed over members that come, leave and die."""
import os
import re
import secrets
import sys
import types

from . import _call
from ._call import check, ffi, lib, text

_SLICE_NS = 50_000_000  # KeyboardInterrupt is looked for so often


def place():
    """Where the job is, from the environment of `rubato launch`, torchrun or Slurm: what Team takes as `where`."""
    env = os.environ
    at = types.SimpleNamespace(
        join=env.get("RUBATO_JOIN"), listen=env.get("RUBATO_LISTEN"), token=env.get("RUBATO_TOKEN"),
        begin=int(env.get("RUBATO_WORKERS") or 1), least=int(env.get("RUBATO_MIN") or 1), most=int(env.get("RUBATO_MAX") or 0))
    if at.join is None and at.listen is None:
        rank, world, host, port = _others(env)
        if world > 1:
            if at.token is None:
                raise _call.ConfigError("%d processes were started together: set RUBATO_TOKEN to the same secret of 16 to "
                                        "64 characters for all of them" % world)
            at.begin, at.least = world, 1
            at.join, at.listen = ("%s:%d" % (host, port), None) if rank > 0 else (None, "%s:%d" % (host, port))
    if at.token is None and (at.join is not None or at.begin > 1):
        raise _call.ConfigError("members of a job are to find each other without RUBATO_TOKEN: set it to the same secret of "
                                "16 to 64 characters for all of them")
    at.token = at.token or secrets.token_hex(16)
    return at


def _others(env):
    """rank, world, host, port of torchrun (one port above its own store) or of Slurm."""
    if "RANK" in env and "WORLD_SIZE" in env and "MASTER_ADDR" in env:
        return int(env["RANK"]), int(env["WORLD_SIZE"]), env["MASTER_ADDR"], int(env.get("MASTER_PORT") or 29500) + 1
    size = env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS")
    if "SLURM_PROCID" in env and "SLURM_STEP_ID" in env and size:  # else a batch script, which is one process
        job, step = (int(env.get(name) or 0) for name in ("SLURM_JOB_ID", "SLURM_STEP_ID"))
        nodes = next((env[name] for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST") if env.get(name)), None)
        # The node from which srun was called may be none of the job's.
        host = env.get("SLURM_LAUNCH_NODE_IPADDR") if nodes is None else _first_host(nodes)
        if host is not None:
            return (int(env["SLURM_PROCID"]), int(size), env.get("MASTER_ADDR") or host,
                    int(env.get("MASTER_PORT") or 20000 + (job * 7 + step) % 10000))
    return 0, 1, None, 0


def _first_host(nodes):
    """The first of Slurm's "n[1-3,7],m2"; as for `rubato worker` (launch/hosts.c) this machine where it is the only one."""
    if re.fullmatch(r"[^,\[]*(\[[^],-]*\][^,\[]*)*", nodes):
        return "127.0.0.1"  # what Slurm calls it need not be a name of the network
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", re.match(r"(\[[^]]*\]|[^,\[])*", nodes)[0])


@ffi.def_extern(error=False)
def rubato_move(team, k, offset, size, memory, into_state):
    """Bytes of state k between the others and where it is; on the library's thread."""
    return ffi.from_handle(team)._moves(k, offset, ffi.buffer(memory, size), into_state)


class Team:
    """A member. Each step: begin, ready(k) for every gradient, wait, done; see train/embed/embed.h.

    gradients: (address, bytes) of each, f32, in the order in which they are made: the program's from begin until it is
    ready, holds the sums from wait until done. state: (address, bytes, group) of what a newcomer receives. All that
    memory must live until close. bf16: gradients are bf16, not f32. move: (k, offset, buffer, into_state) copies bytes of
    state k out of the buffer or into it, where the state is no memory of this process. agreed: lines "name value" that all members must share. noise: of how many of
    the gradients, the first ones, begin tells the noise.
    """

    def __init__(self, gradients, state, *, batch, count=0, steps=0, before=(0, 0), agreed="", where=None, noise=0, bf16=False, move=None):
        self._t, self._pid_forks = None, _call.forks()
        self._move, self._not_moved, self._handle = move, None, ffi.new_handle(self)
        where = where or place()
        keep = [ffi.new("int64_t[]", [n for _, n in gradients]),
                ffi.new("float *[]", [ffi.cast("float *", a) for a, _ in gradients]), ffi.new("ru_team_state[]", [
            {"data": ffi.cast("void *", a), "size_bytes": n, "group": g} for a, n, g in state])]

        def c(s):
            keep.append(ffi.NULL if s is None else ffi.new("char[]", s.encode()))
            return keep[-1]

        options = ffi.new("ru_team_options *", {
            "join": c(where.join), "listen": c(where.listen), "token": c(where.token), "newcomer": where.join is not None,
            "n_begin": where.begin, "n_min": where.least, "n_max": where.most, "batch": batch, "count": count,
            "steps": steps, "steps_before": before[0], "position_before": before[1], "gradient_bytes": keep[0],
            "gradients": keep[1], "n_gradients": len(gradients), "state": keep[2], "n_state": len(state), "agreed": c(agreed), "join_part": 1.0,
            "noise": noise, "bf16": bf16, "move": ffi.NULL if move is None else lib.rubato_move, "move_self": self._handle})
        err, t = ffi.new("ru_err *"), ffi.new("ru_team **")
        self._err, self._step = err, ffi.new("ru_team_step *")
        check(lib.ru_team_open(options, t, err), err)
        self._t = t[0]
        self.address = text(lib.ru_team_address(self._t))

    def _team(self):
        if self._t is None:
            raise ValueError("this process has left the job")
        if self._pid_forks != _call.forks():
            raise RuntimeError("a member of a job does not live on in a forked process: open it there")
        return self._t

    def _moves(self, k, offset, memory, into_state):
        if self._not_moved is not None:  # a newcomer that lacks a part gives nobody the others
            return False
        try:
            self._move(k, offset, memory, into_state)
        except Exception as e:  # for the call that waits
            self._not_moved = e
            return False
        return True

    def is_here(self):
        """Is this the process that opened it, and did not close it?"""
        return self._t is not None and self._pid_forks == _call.forks()

    def _blocks(self, call, *more):
        t = self._team()
        while True:
            status = call(t, _SLICE_NS, *more, self._err)
            if self._not_moved is not None:
                raise self._not_moved
            if status != lib.RU_E_AGAIN:
                return status

    def begin(self):
        """Wait for the next step; None when the job has ended. Fields: step, position, n, batch, first, members, number,
        noise_sqr, noise_var (0: not known)."""
        s = self._step
        check(self._blocks(lib.ru_team_begin, s), self._err)
        if s.over:
            return None
        return types.SimpleNamespace(step=s.step, position=s.position, n=s.n, batch=s.batch, first=s.first,
                                     members=s.members, number=s.number, noise_sqr=s.noise_sqr, noise_var=s.noise_var)

    def leads(self):
        """Does this member lead the job? Once the job has ended: did it lead at the end?"""
        return lib.ru_team_leads(self._team())

    def ready(self, k):
        """Gradient k is complete; False: the step does not count any more."""
        status = lib.ru_team_ready(self._team(), k)
        if status == lib.RU_E_USAGE:
            raise RuntimeError("gradient %d was made twice in one step, or outside of one" % k)
        return status == lib.RU_OK

    def wait(self):
        """Wait until all gradients hold their sums; False: nothing changes, the samples come again."""
        status = self._blocks(lib.ru_team_wait)
        if status == lib.RU_E_CANCELLED:
            return False
        check(status, self._err)
        return True

    def done(self):
        """The state is that after the step."""
        if lib.ru_team_done(self._team()) != lib.RU_OK:
            raise _call.PeerError("this process has left the job")

    def close(self):
        """Leave the job; the others go on. Where Ctrl-C ends the wait, the memory is the team's until the process has left."""
        if self.is_here():
            _call.heard(self._close)

    def _close(self):
        t, self._t = self._t, None
        if t is not None:
            lib.ru_team_close(t)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_t", None) is not None and not sys.is_finalizing() and self.is_here():
            self._close()
