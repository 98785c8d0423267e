"""Random arguments to what rubato.torch offers: pytorch_random.py PROGRAM EXTENSION SOURCE

Only documented exceptions may come out. Skips where hypothesis, torch or its exporter is not there. RUBATO_RANDOM: so
many times the usual number of calls.
"""
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import traceback
import unittest


def tried(calls, once):
    hypothesis.settings(max_examples=calls * int(os.environ.get("RUBATO_RANDOM", 1)), deadline=None, database=None, derandomize=True,
                        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck))(
        hypothesis.given(hypothesis.strategies.randoms(use_true_random=True))(once))()


@contextlib.contextmanager
def documented(*more):
    """Exceptions of the package, of wrong arguments, and those that come out of the user's module, loss or loader."""
    try:
        yield
    except (rubato.RubatoError, TypeError, ValueError, MemoryError, *more):
        pass
    except Exception as e:
        frames = [(f.filename, f.name) for f in traceback.extract_tb(e.__traceback__)]
        package = [k for k, (at, _) in enumerate(frames) if os.path.dirname(at) == os.path.dirname(rubato.__file__)]
        if package and not any(at == __file__ or name in ("_wrapped_call_impl", "__call__") for at, name in frames[package[-1] + 1:]):
            raise


class Random(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global hypothesis, nn, np, rt, rubato, torch
        import hypothesis
        import hypothesis.strategies
        import numpy as np
        import rubato
        import rubato.torch as rt
        import torch
        import torch.nn.utils.prune
        from torch import nn

    def plain(self, rng):
        return rng.choice([None, True, 0, -1, 1, 2**31, 2**63, -2**70, 1.5, float("nan"), "", "f32", "bf16", "\0", b"\xff", [], {}, [3], ("a", 1),
                           object(), int, len, np.zeros(3), torch.float32, torch.Size([2])])

    def tensor(self, rng):
        kind = rng.choice(["float32"] * 4 + ["float64", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"])
        dims = rng.choice([[2, 4], [2, 4], [3, 4], [4], [1, 4], [0, 4], [2, 0], [], [2, 3, 4, 4], [2, 4, 1, 1, 1, 1, 1]])
        t = torch.ones(dims, dtype=getattr(torch, kind))
        ways = [lambda: t.to_sparse(), lambda: t.to("meta"), lambda: t.transpose(0, -1), lambda: t.conj(), lambda: t[::2],
                lambda: t.clone().requires_grad_(), lambda: nn.Parameter(t), lambda: t.expand(2, *t.shape), lambda: t * float("nan"),
                lambda: torch.quantize_per_tensor(t, 0.1, 0, torch.quint8)]
        try:
            return rng.choice(ways)() if rng.randrange(4) == 0 else t
        except (RuntimeError, NotImplementedError, ValueError, IndexError):
            return t

    def junk(self, rng, deep=0):
        if deep < 2 and rng.randrange(4) == 0:
            kind, some = rng.randrange(3), [self.junk(rng, deep + 1) for _ in range(rng.randrange(3))]
            return tuple(some) if kind == 0 else some if kind == 1 else {rng.choice(["x", "input", "", 1, None]): v for v in some}
        return self.tensor(rng) if rng.randrange(2) else self.plain(rng)

    def module(self, rng, plain=0.2):
        class Of(nn.Module):  # what a user's forward may be
            def __init__(self, of):
                super().__init__()
                self.w, self.of = nn.Parameter(torch.ones(4)), of

            def forward(self, x):
                return self.of(x * self.w)

        class Any_(nn.Module):
            def forward(self, *args, **named):
                return args, named

        def fails(x):
            raise KeyError("of the user")

        if rng.random() < plain:
            return self.junk(rng)
        return rng.choice([
            lambda: nn.Linear(4, 3), lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)), lambda: nn.Linear(4, 3).double(),
            lambda: nn.Linear(4, 3).bfloat16(), lambda: nn.Linear(4, 3, device="meta"), lambda: nn.LazyLinear(3), lambda: nn.Sequential(), lambda: nn.Linear(0, 3),
            lambda: nn.Embedding(4, 2, sparse=rng.random() < 0.5), lambda: nn.LSTM(4, 3), lambda: nn.ParameterDict({"a": torch.ones(2)}), lambda: nn.Module(),
            lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), lambda: torch.jit.script(nn.Linear(4, 3)), lambda: nn.Linear,
            lambda: nn.Linear(4, 3).requires_grad_(False), lambda: nn.Conv2d(3, 2, 3), lambda: nn.Dropout(), lambda: Any_(),
            lambda: Of(lambda x: None), lambda: Of(lambda x: [x, {"a": (x, 1)}]), lambda: Of(fails), lambda: Of(lambda x: x.tolist()), lambda: Of(lambda x: "text"),
            lambda: nn.utils.prune.identity(nn.Linear(4, 3), "weight"), lambda: nn.Linear(4, 3, dtype=torch.complex64)])()

    def optimizer(self, rng, model):
        ps = list(model.parameters()) if isinstance(model, nn.Module) else []
        try:
            return rng.choice([
                lambda: torch.optim.SGD(ps, lr=0.1, momentum=0.9), lambda: torch.optim.Adam(ps), lambda: torch.optim.AdamW(ps, lr=torch.tensor(0.1)),
                lambda: torch.optim.SGD([{"params": [p], "lr": 0.1 * k} for k, p in enumerate(ps)], lr=0.1), lambda: torch.optim.LBFGS(ps),
                lambda: torch.optim.SparseAdam(ps), lambda: torch.optim.Rprop(ps), lambda: torch.optim.NAdam(ps), lambda: torch.optim.Adagrad(ps),
                lambda: torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), lambda: torch.optim.Adam(ps[:1], amsgrad=True), lambda: torch.optim.Adafactor(ps),
                lambda: torch.optim.SGD(ps, lr=float("nan")), lambda: torch.optim.ASGD(ps), lambda: torch.optim.RMSprop(ps, centered=True),
                lambda: torch.optim.SGD(ps, lr=0.1, maximize=True), lambda: torch.optim.Adam(ps, capturable=False, foreach=True), lambda: self.junk(rng)])()
        except (TypeError, ValueError, RuntimeError):  # torch's own refusals
            return torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)

    def loader(self, rng):
        d = torch.utils.data
        data = rng.choice([d.TensorDataset(torch.ones(6, 4), torch.zeros(6, 3)), d.TensorDataset(torch.ones(6, 4), torch.zeros(6, dtype=torch.int64)),
                           d.TensorDataset(torch.ones(6, 4)), list(range(6)), [{"x": torch.ones(4)}] * 6, d.TensorDataset(torch.ones(0, 4)), ["text"] * 3])
        try:
            return rng.choice([
                lambda: d.DataLoader(data, batch_size=rng.choice([1, 2, 4, 9]), shuffle=rng.random() < 0.5, drop_last=rng.random() < 0.3),
                lambda: d.DataLoader(data, batch_size=2), lambda: d.DataLoader(data, batch_size=None),
                lambda: d.DataLoader(data, batch_sampler=[[0, 1], [2]]), lambda: d.DataLoader(data, sampler=d.SubsetRandomSampler([0, 1])),
                lambda: list(d.DataLoader(data, batch_size=2)), lambda: [(self.tensor(rng), self.tensor(rng))] * 2, lambda: [self.junk(rng)],
                lambda: self.junk(rng)])()
        except (TypeError, ValueError):
            return []

    def some(self, rng, **named):
        """Of these, and each now and then something else."""
        return {k: self.plain(rng) if rng.randrange(5) == 0 else v for k, v in named.items() if rng.randrange(3)}

    def test_compile(self):
        def once(rng):
            with documented(), rt.compile(self.module(rng), torch.ones(2, 4) if rng.randrange(2) else self.tensor(rng) if rng.randrange(3) else self.junk(rng),
                                          **self.some(rng, batch=rng.random() < 0.5, threads=1, precision="f32")) as fast:
                for _ in range(3):
                    with documented():
                        fast(torch.ones(rng.randrange(1, 5), 4)) if rng.randrange(2) else fast(*[self.junk(rng) for _ in range(rng.randrange(3))], **({"input": self.tensor(rng)} if rng.randrange(3) == 0 else {}))

        tried(40, once)

    def test_fit(self):
        def once(rng):
            model = nn.Linear(4, 3) if rng.randrange(3) == 0 else self.module(rng)
            loss = self.junk(rng) if rng.randrange(5) == 0 else rng.choice([
                nn.MSELoss(), nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), nn.MSELoss, nn.L1Loss(), nn.functional.mse_loss, nn.MSELoss(reduction="sum"),
                nn.CrossEntropyLoss(weight=torch.ones(3)), nn.CrossEntropyLoss(label_smoothing=0.1)])
            opt = torch.optim.SGD(nn.Module.parameters(model), lr=0.1) if type(model) is nn.Linear and rng.randrange(2) else self.optimizer(rng, model)
            with documented():
                rt.fit(model, self.loader(rng), loss, opt, **self.some(rng, epochs=rng.randrange(3), threads=1))

        tried(50, once)

    def test_elastic(self):
        def once(rng):
            model, there = nn.Linear(4, 3) if rng.randrange(2) else self.module(rng, plain=0.1), tempfile.mkdtemp(dir=self.folder)
            opt = torch.optim.Adam(model.parameters()) if type(model) is nn.Linear and rng.randrange(2) else self.optimizer(rng, model)
            try:
                schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
            except (TypeError, AttributeError):
                schedule = None
            more = self.some(rng, scheduler=schedule, seed=3, epochs=2, checkpoint=there, every=0.0, resume=True, noise=rng.random() < 0.3)
            with documented(RuntimeError):
                model, opt, loader = rt.elastic(model, opt, self.loader(rng), **more)
                with contextlib.closing(loader.member):
                    for batch in (b for _ in range(2) for b in loader):
                        value = torch.zeros(())
                        with contextlib.suppress(Exception):  # the user's own
                            value = model(batch[0] if isinstance(batch, (list, tuple)) else batch).float().mean()
                        opt.zero_grad()
                        if value.requires_grad:
                            value.backward()
                        if rng.randrange(20):
                            opt.step()

        tried(100, once)

    def test_group(self):
        dist = torch.distributed
        dist.init_process_group("rubato", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        calls = [dist.all_reduce, dist.broadcast, dist.all_gather, dist.reduce_scatter, dist.barrier, dist.reduce, dist.gather, dist.scatter, dist.all_to_all,
                 dist.all_gather_into_tensor, dist.reduce_scatter_tensor, dist.all_to_all_single, dist.send, dist.recv, dist.all_gather_object,
                 dist.broadcast_object_list, dist.monitored_barrier]

        def once(rng):
            given = [self.junk(rng) if rng.randrange(3) == 0 else [self.tensor(rng)] if rng.randrange(3) == 0 else self.tensor(rng) for _ in range(rng.randrange(4))]
            named = self.some(rng, src=0, async_op=True, op=rng.choice([dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX]))
            with documented(RuntimeError):
                work = rng.choice(calls[:5] if rng.randrange(2) else calls)(*given, **{k: v for k, v in named.items() if rng.randrange(2)})
                if isinstance(work, dist.Work):
                    work.wait()

        tried(200, once)


def main():
    for name in "torch", "onnxscript", "numpy", "hypothesis":
        if importlib.util.find_spec(name) is None:
            print(name, "is not there: nothing was tried")
            return 77
    program, extension, source = (os.path.realpath(a) for a in sys.argv[1:4])
    with tempfile.TemporaryDirectory(prefix="rubato-torch-") as place:
        shutil.copytree(os.path.join(source, "python", "rubato"), os.path.join(place, "rubato"))
        shutil.copy(extension, os.path.join(place, "rubato"))
        sys.path.insert(0, place)
        os.environ["RUBATO_PROGRAM"] = program
        Random.folder = place
        os.chdir(place)
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Random)
        return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
