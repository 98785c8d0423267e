"""Training of PyTorch modules by Rubato's step beside PyTorch's own loop: pytorch_fit.py PROGRAM EXTENSION SOURCE

Skips where torch or onnxscript is not there.
"""
import copy
import importlib.util
import os
import shutil
import sys
import tempfile
import unittest

NEAR = 1e-5


class Fit(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        self.rows = [(torch.randn(16, 8), torch.randint(0, 3, (16,))) for _ in range(19)] + [(torch.randn(5, 8), torch.randint(0, 3, (5,)))]
        self.images = [(torch.randn(8, 1, 12, 12), torch.randn(8, 4)) for _ in range(20)]

    @staticmethod
    def mlp():
        return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 3))

    @staticmethod
    def loop(model, batches, loss, opt):
        losses = []
        for x, y in batches:
            opt.zero_grad()
            value = loss(model(x), y)
            value.backward()
            opt.step()
            losses.append(value.item())
        return losses

    def same(self, a, b):
        for (name, x), y in zip(a.state_dict().items(), b.state_dict().values()):
            self.assertTrue(torch.allclose(x, y, rtol=0, atol=NEAR), "%s differs by %g" % (name, (x - y).abs().max()))

    def beside(self, model, batches, loss, optimizer):
        """20 steps of both; returns both models and optimizers."""
        other = copy.deepcopy(model)
        mine, theirs = optimizer(model), optimizer(other)
        got, want = rt.fit(model, batches, loss, mine, threads=1), self.loop(other, batches, loss, theirs)
        self.assertEqual(len(got), 20)
        self.assertLess(max(abs(x - y) / max(1.0, abs(y)) for x, y in zip(got, want)), NEAR)
        self.same(model, other)
        return model, other, mine, theirs

    def test_sgd_and_a_batch_that_is_smaller(self):
        self.beside(self.mlp(), self.rows, nn.CrossEntropyLoss(label_smoothing=0.1), lambda m: torch.optim.SGD(
            m.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3))

    def test_adam_and_torch_goes_on(self):
        model, other, mine, theirs = self.beside(self.mlp(), self.rows[:10] * 2, nn.functional.cross_entropy,
                                                 lambda m: torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=1e-3))
        for m, opt in ((model, mine), (other, theirs)):
            self.loop(m, self.rows, nn.CrossEntropyLoss(), opt)
        self.same(model, other)
        self.loop(other, self.rows[:5], nn.CrossEntropyLoss(), theirs)
        rt.fit(model, self.rows[:5], nn.CrossEntropyLoss(), mine)  # and Rubato from where torch is
        self.same(model, other)

    def test_adamw_with_groups(self):
        net = self.mlp()
        net[3].bias.requires_grad_(False)
        before = net[3].bias.clone()
        model, _, _, _ = self.beside(net, self.rows[:10] * 2, nn.CrossEntropyLoss(), lambda m: torch.optim.AdamW(
            [{"params": m[0].parameters(), "lr": 0.003}, {"params": [*m[2].parameters(), *m[3].parameters()], "weight_decay": 0.1}], lr=0.01))
        self.assertTrue(torch.equal(model[3].bias, before))

    def test_statistics_of_batches(self):
        net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, momentum=0.2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(144, 4))
        model, _, _, _ = self.beside(net, self.images, nn.MSELoss(), lambda m: torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9))
        self.assertEqual(int(model[1].num_batches_tracked), 20)

    def test_an_interrupt_keeps_the_steps_that_are_done(self):
        real, runs = rt.fit.__globals__["lib"], []

        class Interrupted:  # as Ctrl-C while the library computes: Python raises behind the call
            def __getattr__(self, name):
                return self.run if name == "ru_exe_run" else getattr(real, name)

            @staticmethod
            def run(*args):
                runs.append(real.ru_exe_run(*args))
                if len(runs) == 3:
                    raise KeyboardInterrupt
                return runs[-1]

        model = self.mlp()
        other = copy.deepcopy(model)
        mine, theirs = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (model, other))
        rt.fit.__globals__["lib"] = Interrupted()
        try:
            with self.assertRaises(KeyboardInterrupt):
                rt.fit(model, self.rows, nn.CrossEntropyLoss(), mine)
        finally:
            rt.fit.__globals__["lib"] = real
        self.loop(other, self.rows[:3], nn.CrossEntropyLoss(), theirs)
        self.same(model, other)
        self.assertEqual({int(s["step"]) for s in mine.state.values()}, {3})

    def test_momentum_that_was_switched_off(self):
        model = self.mlp()
        mine = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        self.loop(model, self.rows[:2], nn.CrossEntropyLoss(), mine)
        mine.param_groups[0]["momentum"] = 0
        other = copy.deepcopy(model)
        rt.fit(model, self.rows[:4], nn.CrossEntropyLoss(), mine)
        self.loop(other, self.rows[:4], nn.CrossEntropyLoss(), torch.optim.SGD(other.parameters(), lr=0.1))
        self.same(model, other)

    def test_what_cannot_be_taken_is_named(self):
        def sgd(m, **more):
            return torch.optim.SGD(m.parameters(), lr=0.1, **more)

        def adds_later(m):
            opt = torch.optim.Adam(m[0].parameters(), lr=0.0)
            self.loop(m, self.rows[:1], cross, opt)
            opt.add_param_group({"params": m[3].parameters()})
            return opt

        def misshapen(m):
            opt = torch.optim.Adam(m.parameters(), lr=0.0)
            self.loop(m, self.rows[:1], cross, opt)
            opt.state[m[0].weight]["exp_avg"] = torch.zeros(1)
            return opt

        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.part, self.idle = nn.Linear(8, 3), nn.Parameter(torch.ones(2))

            def forward(self, x):
                return self.part(x)

        class Noisy(nn.Module):
            def __init__(self):
                super().__init__()
                self.part = nn.Linear(8, 3)

            def forward(self, x):
                return nn.functional.dropout(self.part(x))

        tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3))
        tied[1].weight = tied[0].weight
        mixed = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        mixed[2].eval()
        m, cross = self.mlp(), nn.CrossEntropyLoss()
        for words, model, loss, opt in (
                ("1 is Dropout", nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.5)), cross, sgd),
                ("random numbers", Noisy(), cross, sgd),
                ("0.weight and 1.weight are one", tied, cross, sgd),
                ("1 normalises by the batch and 2", mixed, cross, sgd),
                ("loss is NLLLoss", m, nn.NLLLoss(), sgd),
                ("reduction 'sum'", m, nn.CrossEntropyLoss(reduction="sum"), sgd),
                ("has weight", m, nn.CrossEntropyLoss(weight=torch.ones(3)), sgd),
                ("optimizer is RMSprop", m, cross, lambda m: torch.optim.RMSprop(m.parameters())),
                ("amsgrad", m, cross, lambda m: torch.optim.Adam(m.parameters(), amsgrad=True)),
                ("have done .0, 1. steps", m, cross, adds_later),
                ("exp_avg of parameter 0.weight has the shape .1.", m, cross, misshapen),
                ("ignores label 1", m, nn.CrossEntropyLoss(ignore_index=1), sgd),
                ("parameter idle", Scaled(), cross, sgd),
                ("output is", m, nn.MSELoss(), sgd)):
            before = copy.deepcopy(model.state_dict())
            with self.subTest(words), self.assertRaisesRegex(rubato.UnsupportedError, words):
                rt.fit(model, self.rows, loss, opt(model))
            for name, t in model.state_dict().items():
                self.assertTrue(torch.equal(t, before[name]), name)
        with self.assertRaisesRegex(rubato.UnsupportedError, "the loader gives Tensor"):
            rt.fit(m, [self.rows[0][0]], cross, sgd(m))
        other = copy.deepcopy(m)
        with self.assertRaisesRegex(rubato.DataError, "labels go from 7 to 7"):  # what was done before is there
            rt.fit(m, [self.rows[0], (self.rows[1][0], torch.full((16,), 7))], cross, sgd(m))
        self.loop(other, self.rows[:1], cross, sgd(other))
        self.same(m, other)


def main():
    global torch, nn, rubato, rt
    for name in ("torch", "onnxscript"):
        if importlib.util.find_spec(name) is None:
            print("%s is not there: nothing was tried" % name)
            return 77
    program, extension, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="rubato-fit-") as place:
        shutil.copytree(os.path.join(source, "python", "rubato"), os.path.join(place, "rubato"))
        shutil.copy(extension, os.path.join(place, "rubato"))
        os.environ["RUBATO_PROGRAM"] = os.path.realpath(program)
        sys.path.insert(0, place)
        import torch
        from torch import nn
        import rubato
        import rubato.torch as rt
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Fit)
        return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
