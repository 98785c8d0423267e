"""The process group "rubato" of PyTorch: pytorch_group.py PROGRAM EXTENSION SOURCE

Real processes on this machine; gloo is the witness. Skips where torch is not there.
"""
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

MEMBER = """
import datetime, os, signal, sys, time
import torch, torch.distributed as dist, rubato, rubato.torch
torch.set_num_threads(1)
rank, n, what = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
dist.init_process_group("rubato")
gloo = dist.new_group(backend="gloo")

def same(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

def net(group):
    torch.manual_seed(7)
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(50, 400), torch.nn.BatchNorm1d(400), torch.nn.ReLU(), torch.nn.Linear(400, 300)), process_group=group)

def collectives():
    for size in 1, 1000, 1025, 300000:
        g = torch.Generator().manual_seed(size * n + rank)
        for op in dist.ReduceOp.SUM, dist.ReduceOp.AVG:
            ours = torch.randn(size, 2, generator=g).t()  # not packed
            theirs = ours.clone()
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, group=gloo)
            same(ours, theirs / n if op == dist.ReduceOp.AVG else theirs)
        half = torch.full((size,), 0.5 + rank, dtype=torch.bfloat16)
        dist.all_reduce(half)
        same(half.float(), torch.full((size,), 0.5 * n + n * (n - 1) / 2))
        for give in torch.randn(size, generator=g), torch.arange(size) + rank, torch.rand(size, generator=g) < 0.5:
            ours, theirs = give.clone(), give.clone()
            dist.broadcast(ours, n - 1)
            dist.broadcast(theirs, n - 1, group=gloo)
            assert torch.equal(ours, theirs)
            ours, theirs = [[torch.empty_like(give) for _ in range(n)] for _ in range(2)]
            dist.all_gather(ours, give)
            dist.all_gather(theirs, give, group=gloo)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs))
        parts = [torch.randn(size, generator=g) for _ in range(n)]
        ours, theirs = torch.empty(size), torch.stack(parts)
        dist.reduce_scatter(ours, parts)
        dist.all_reduce(theirs, group=gloo)
        same(ours, theirs[rank])
    works = [dist.all_reduce(t, async_op=True) for t in [torch.ones(10 * k + 1) for k in range(200)]]
    for w in works:
        w.wait()
    dist.barrier()
    for call in (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int64)), lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX),
                 lambda: dist.reduce(torch.ones(2), 0), lambda: dist.send(torch.ones(2), (rank + 1) % n) if n > 1 else dist.reduce(torch.ones(2), 0)):
        try:
            call()
            assert False
        except rubato.UnsupportedError as e:
            assert '"rubato"' in str(e)

def training():
    ours, theirs = net(None), net(gloo)
    for model in ours, theirs:
        g = torch.Generator().manual_seed(rank)
        opt = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(12):
            opt.zero_grad()
            model(torch.randn(8, 50, generator=g)).square().mean().backward()
            opt.step()
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values()):
        same(a, b)

def lost():
    model = net(None)
    for k in range(1000):
        if rank == 1 and k == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.randn(8, 50)).square().mean().backward()

if what == "stop":
    if rank > 0:
        sys.stdin.readline()
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(4), async_op=True).wait(datetime.timedelta(milliseconds=100))
        os._exit(2)
    except rubato.BusyError:
        pass
    try:
        print("waits", flush=True)
        dist.all_reduce(torch.ones(4))
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(0)
    os._exit(1)
if what == "late":
    dist.barrier()
    if rank == 1:
        print("met", flush=True)
        if sys.stdin.readline().strip() == "end":
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(4))
    except rubato.PeerError as e:
        print("said", e, flush=True)
        os._exit(3)
    os._exit(1)
if what == "lost":
    began = time.monotonic()
    try:
        lost()
    except Exception as e:
        print("said", e, flush=True)
        os._exit(3)
collectives()
training()
dist.barrier()
dist.destroy_process_group()
print("done")
"""


def free_port():
    """A port that is free now, below those that the kernel gives to others."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


class Group(unittest.TestCase):
    def start(self, n, what):
        port = free_port()
        return [subprocess.Popen([sys.executable, "-W", "ignore", "-c", MEMBER, what], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
                for r in range(n)]

    def test_collectives_and_training_are_those_of_gloo(self):
        for n in 1, 3:
            for p in self.start(n, "all"):
                out, err = p.communicate(timeout=300)
                self.assertEqual((p.returncode, out), (0, "done\n"), err[-3000:])

    def test_an_interrupt_ends_a_wait(self):
        """The other rank does not call."""
        ranks = self.start(2, "stop")
        self.assertEqual(ranks[0].stdout.readline(), "waits\n")
        time.sleep(0.3)  # that it waits
        ranks[0].send_signal(signal.SIGINT)
        out, err = ranks[0].communicate(timeout=300)
        self.assertEqual((ranks[0].returncode, out), (0, "stopped\n"), err[-3000:])
        self.assertIsNone(ranks[1].poll())
        ranks[1].communicate("\n", timeout=300)

    def test_a_call_that_waits_for_a_lost_rank_raises(self):
        ranks = self.start(3, "late")
        self.assertEqual(ranks[1].stdout.readline(), "met\n")
        ranks[1].communicate("end\n", timeout=300)
        for r in 0, 2:
            out, err = ranks[r].communicate(timeout=300)
            self.assertEqual(ranks[r].returncode, 3, err[-3000:])
            self.assertRegex(out, r"said rank 1 \(127\.0\.0\.1:\d+\) has left the group or was lost")

    def test_a_silent_leader_of_two_is_lost(self):
        """The one that is left is no majority."""
        ranks = self.start(2, "late")
        self.addCleanup(ranks[0].kill)
        self.assertEqual(ranks[1].stdout.readline(), "met\n")
        ranks[0].send_signal(signal.SIGSTOP)
        out, err = ranks[1].communicate("wait\n", timeout=300)
        self.assertEqual(ranks[1].returncode, 3, err[-3000:])
        self.assertRegex(out, r"said rank 0 \(127\.0\.0\.1:\d+\) has left the group or was lost")

    def test_a_lost_rank_is_named(self):
        ranks = self.start(3, "lost")
        ranks[1].communicate(timeout=300)
        since = time.monotonic()
        for r in 0, 2:
            out, err = ranks[r].communicate(timeout=300)
            self.assertEqual(ranks[r].returncode, 3, err[-3000:])
            self.assertRegex(out, r"said .*rank 1 \(127\.0\.0\.1:\d+\) has left the group or was lost")
        self.assertLess(time.monotonic() - since, 60)


def main():
    if importlib.util.find_spec("torch") is None:
        print("torch is not there: nothing was tried")
        return 77
    program, extension, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="rubato-torch-") as place:
        shutil.copytree(os.path.join(source, "python", "rubato"), os.path.join(place, "rubato"))
        shutil.copy(extension, os.path.join(place, "rubato"))
        os.environ["PYTHONPATH"] = place
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Group)
        return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
