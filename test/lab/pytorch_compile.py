"""Modules of PyTorch that compute with Rubato: pytorch_compile.py PROGRAM EXTENSION SOURCE

What torch computes is the witness. Skips where torch or its exporter is not there.
"""
import importlib.util
import os
import shutil
import sys
import tempfile
import unittest


class Compile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global torch, rt, rubato
        import torch
        import rubato
        import rubato.torch as rt
        torch.manual_seed(3)

    def near(self, got, expected):
        torch.testing.assert_close(got, expected.detach(), rtol=1e-4, atol=1e-5)

    def test_any_batch_and_parameters_that_change(self):
        nn = torch.nn
        net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5),
                            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
        fast = rt.compile(net, torch.randn(1, 3, 12, 12), threads=1)
        self.assertTrue(net.training and net[3].training)
        x = torch.randn(7, 3, 12, 12)
        opt = torch.optim.SGD(net.parameters(), lr=0.5)
        net(x).square().sum().backward()
        opt.step()
        net.eval()
        self.near(fast(x), net(x))
        with torch.no_grad():
            net[6].bias.data.add_(1)  # not counted by torch
        self.assertFalse(torch.allclose(fast(x), net(x)))
        fast.refresh()
        self.near(fast(x), net(x))
        self.near(fast(x.transpose(2, 3)), net(x.transpose(2, 3)))  # not packed
        fast.close()
        self.assertRaises(ValueError, fast, x)

    def test_several_inputs_and_outputs(self):
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Linear(4, 3)

            def forward(self, x, by=None, *, scale=2.0):
                y = self.a(x) * scale
                return {"y": y + by.unsqueeze(1), "best": (y.argmax(1), 3)}

        two = Two()
        fast = rt.compile(two, {"x": torch.randn(3, 4), "by": torch.randn(3)})
        x, by = torch.randn(5, 4), torch.randn(5)
        want = two(x, by)
        for got in fast(x, by), fast(by=by, x=x), fast(x, by=by):
            self.near(got["y"], want["y"])
            self.assertEqual(got["best"][0].tolist(), want["best"][0].tolist())
            self.assertEqual(got["best"][1], 3)
        self.assertRaises(TypeError, fast, x)
        self.assertRaises(rubato.UnsupportedError, fast, x, by, scale=3.0)
        self.assertRaisesRegex(TypeError, "torch.int64, .*float32", fast, x.long(), by)
        self.assertRaises(rubato.DataError, fast, x[:, :2], by)

    def test_what_cannot_be_taken_is_named(self):
        class Chooses(torch.nn.Module):
            def forward(self, x):
                return x * 2 if x.sum() > 0 else x

        with self.assertRaisesRegex(rubato.UnsupportedError, "could not export Chooses: .*data-dependent"):
            rt.compile(Chooses(), torch.ones(2, 3))

        class Draws(torch.nn.Module):
            def forward(self, x):
                return x + torch.rand(x.shape[1])

        with self.assertRaisesRegex(rubato.UnsupportedError, "Draws"):
            rt.compile(Draws(), torch.ones(2, 3))
        self.assertRaises(TypeError, rt.compile, torch.nn.Linear(2, 2), ())
        for thing in None, 0.5, torch.ones(2, 2):  # neither a module nor an optimizer
            self.assertRaises(TypeError, rt.compile, thing, torch.ones(2, 2))
            self.assertRaises(TypeError, rt.fit, thing, [], torch.nn.MSELoss(), torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1))
            self.assertRaises(TypeError, rt.elastic, thing, thing, [])
            self.assertRaises(TypeError, rt.elastic, torch.nn.Linear(2, 2), thing, [])
            self.assertRaises(TypeError, rt.fit, torch.nn.Linear(2, 2), [], torch.nn.MSELoss(), thing)
        self.assertRaises(rubato.UnsupportedError, rt.compile, torch.nn.Linear(2, 2), torch.ones(2, 2, device="meta"))


def main():
    for name in "torch", "onnxscript":
        if importlib.util.find_spec(name) is None:
            print(name, "is not there: nothing was tried")
            return 77
    program, extension, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="rubato-torch-") as place:
        shutil.copytree(os.path.join(source, "python", "rubato"), os.path.join(place, "rubato"))
        shutil.copy(extension, os.path.join(place, "rubato"))
        sys.path.insert(0, place)
        os.environ["RUBATO_PROGRAM"] = os.path.realpath(program)
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Compile)
        return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
