"""Elastic training of a PyTorch script: pytorch.py PROGRAM EXTENSION SOURCE

Members are real processes on this machine. Skips where torch is not there.
"""
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from python import onnx_of_means

HERE = os.path.dirname(os.path.realpath(__file__))
EPOCHS = 10
STEPS = 16 * EPOCHS


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


class Member:
    """A process; `turn` counts the turns of its loop so far."""

    def __init__(self, how, **env):
        self.turn, self.said = 0, []
        self.p = subprocess.Popen([sys.executable, os.path.join(HERE, "pytorch_member.py"), json.dumps(how)],
                                  env={**os.environ, "RUBATO_TOKEN": "0123456789abcdef", **env},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.p.stderr:
            if line.startswith("turn "):
                self.turn = int(line.split()[1])
            else:
                self.said.append(line)

    def until(self, turn):
        for _ in range(30000):
            if self.turn >= turn:
                return
            if self.p.poll() is not None:
                break
            time.sleep(0.01)
        raise AssertionError("a member stands at turn %d: %s" % (self.turn, "".join(self.said)))

    def end(self):
        out = self.p.stdout.read()
        code = self.p.wait(300)
        self.reader.join()
        self.p.stdout.close()
        self.p.stderr.close()
        if code != 0:
            raise AssertionError("a member ended with %d: %s" % (code, "".join(self.said)))
        return json.loads(out)

    def kill(self):
        self.p.kill()
        self.p.communicate()
        self.reader.join()


MISTAKES = """
import os, signal, sys, tempfile, threading, time, types
import torch, rubato, rubato.torch as rt

def net(n=8, sparse=False):
    model = torch.nn.Embedding(n, 1, sparse=sparse)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, opt, torch.utils.data.DataLoader(torch.arange(n), batch_size=4)

def refused(what, call, *kinds):
    try:
        call()
    except kinds:
        print(what)

model, opt, loader = rt.elastic(*net())
def no_step():
    for x in loader:
        model(x).sum().backward()
refused("once", no_step, RuntimeError)
refused("closure", lambda: opt.step(lambda: None), rubato.UnsupportedError)
model, opt, loader = rt.elastic(*net())
def twice():
    for x in loader:
        model(x).sum().backward()
        model(x).sum().backward()
refused("twice", twice, RuntimeError)
model, opt, loader = rt.elastic(*net(sparse=True))
def sparse():
    for x in loader:
        model(x).sum().backward()
refused("sparse", sparse, rubato.UnsupportedError)
refused("batch", lambda: rt.elastic(*net()[:2], torch.utils.data.DataLoader(torch.arange(3), batch_size=4, drop_last=True)), rubato.UnsupportedError)
model, opt, loader = rt.elastic(*net())
def left():
    for epoch in range(2):
        for x in loader:
            model(x).mean().backward()
            opt.step()
            break
refused("left", left, RuntimeError)
model = torch.nn.ModuleList([torch.nn.Embedding(8, 1), torch.nn.Linear(3, 3)]) # the second one takes no part
before = model[1].weight.clone()
model, opt, loader = rt.elastic(model, torch.optim.SGD(model.parameters(), lr=0.1), net()[2])
for x in loader:
    model[0](x).mean().backward()
    opt.step()
print("unused" if torch.equal(before, model[1].weight) else "used")
class Torn(torch.optim.SGD):
    steps = 0
    def step(self, closure=None):
        super().step()
        self.steps += 1
        if self.steps > 2: # the first makes slots, the second counts
            raise KeyboardInterrupt
saves = tempfile.mkdtemp()
model, _, loader = net()
model, opt, loader = rt.elastic(model, Torn(model.parameters(), lr=0.1), loader, checkpoint=saves)
def torn():
    for x in loader:
        model(x).mean().backward()
        opt.step()
refused("torn", torn, KeyboardInterrupt)
loader.member.close()
print("whole" if os.listdir(saves) == [] else "half")
os.rmdir(saves)
os.environ["RUBATO_JOIN"] = "127.0.0.1:1"
os.environ.pop("RUBATO_TOKEN", None)
refused("token", rubato.team.place, rubato.ConfigError)
del os.environ["RUBATO_JOIN"]
at = types.SimpleNamespace(join=None, listen="127.0.0.1:0", token="0123456789abcdef", begin=2, least=2, most=0)
model, opt, loader = rt.elastic(*net(), where=at)
main = threading.get_ident()
def waits():
    f = sys._current_frames()[main]
    while f is not None and f.f_code is not wait.__code__:
        f = f.f_back
    return f is not None and sys._current_frames()[main].f_code is not wait.__code__
def wait():
    for x in loader:
        pass
began = []
def stop():
    for _ in range(6000):
        if waits():
            break
        time.sleep(0.01)
    time.sleep(0.2) # deep in it
    began.append(time.monotonic())
    os.kill(os.getpid(), signal.SIGINT)
for _ in range(3): # a busy machine may be late
    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        wait()
    except KeyboardInterrupt:
        took = time.monotonic() - began[-1]
    stopper.join()
    if took < 1:
        break
if os.fork() == 0:
    try:
        wait()
    except RuntimeError:
        os._exit(0)
    os._exit(1)
print("fork" if os.wait()[1] == 0 else "lives on")
print("stop" if took < 1 else took)
"""


# Half the square of the distance to each sample: the gradient of one is w - x, whose mean and variance are those of the data.
NOISE = """
import json, sys
import torch, rubato.torch as rt
torch.manual_seed(7)
torch.set_num_threads(1)
x = torch.randn(4096, 64)
w = torch.nn.ParameterList([torch.full((64,), 0.3)])
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=64, shuffle=True)
model, opt, loader = rt.elastic(w, torch.optim.SGD(w.parameters(), lr=0.0), loader, seed=3, epochs=4, noise=sys.argv[1])
for epoch in range(4):
    for (a,) in loader:
        opt.zero_grad()
        (((w[0] - a) ** 2).sum(1) / 2).mean().backward()
        opt.step()
print(json.dumps({"sqr": ((0.3 - x.mean(0)) ** 2).sum().item(), "var": x.var(0, correction=0).sum().item() / 64}))
"""


class Elastic(unittest.TestCase):
    def found(self, n, how):
        """n members that begin together; each has parameters of its own, until it gets those of the first."""
        self.at = ["127.0.0.1:%d" % free_port() for _ in range(n)]
        members = [Member({**how, "seed": k}, RUBATO_WORKERS=str(n), RUBATO_LISTEN=self.at[k],
                          **({"RUBATO_JOIN": self.at[0]} if k else {})) for k in range(n)]
        for m in members:
            self.addCleanup(lambda m=m: m.p.poll() is None and m.kill())
        return members

    def same(self, a, b, most=1e-5):
        self.assertEqual(len(a["net"]), len(b["net"]))
        for x, y in zip(a["net"], b["net"]):
            self.assertAlmostEqual(x, y, delta=most)

    def once(self, end, epochs=EPOCHS):
        """Each sample was computed once an epoch."""
        self.assertEqual(set(end["seen"]), {float(epochs)})

    def test_one_and_two_have_the_same_result(self):
        how = {"epochs": EPOCHS, "norm": False}
        alone = self.found(1, how)[0].end()
        self.assertEqual(alone["turns"], STEPS)
        self.once(alone)
        a, b = (m.end() for m in self.found(2, how))
        self.same(a, b, 0)
        self.same(a, alone)
        self.assertEqual(a["lr"], alone["lr"])
        for end in (a, b):
            self.once(end)

    def test_optimizers_and_fetchers(self):
        for how in ({"optimizer": "Adam", "options": {}}, {"optimizer": "AdamW", "options": {"amsgrad": True}, "fetchers": 2},
                    {"optimizer": "NAdam", "options": {}, "samples": 1000}):
            with self.subTest(how):
                a, b = (m.end() for m in self.found(2, {"epochs": 4, **how}))
                self.same(a, b, 0)
                self.assertEqual(a["lr"], b["lr"])

    def test_gradients_of_bf16_and_a_device_of_its_own(self):
        """bf16 travels as bf16, statistics beside it as f32; tensors that are not in this process's memory are copied."""
        alone = self.found(1, {"epochs": EPOCHS, "norm": False})[0].end()
        for how in ({"away": True}, {"dtype": "bfloat16"}, {"dtype": "bfloat16", "away": True}):
            with self.subTest(how):
                a, b = (m.end() for m in self.found(2, {"epochs": EPOCHS, "norm": False, **how}))
                self.same(a, b, 0)
                if "dtype" in how:
                    self.assertTrue(all(abs(n - EPOCHS) < 0.1 * EPOCHS for n in a["seen"]), a["seen"])
                    self.assertLess(a["error"], alone["error"] * 2 + 0.05)
                else:
                    self.same(a, alone)
                    self.once(a)
        a, b = (m.end() for m in self.found(2, {"epochs": 4, "optimizer": "Adam", "options": {}, "away": True}))
        self.same(a, b, 0)

    def test_kills_joins_and_freezes(self):
        """RUBATO_FAULTS: so many (20: minutes). Each sample counts once, the result is that of one process."""
        faults, rng = int(os.environ.get("RUBATO_FAULTS", 4)), random.Random(5)
        place = tempfile.mkdtemp(prefix="rubato-faults-")
        self.addCleanup(shutil.rmtree, place)
        fast = os.path.join(place, "fast")  # once it is there they sleep no more
        how = {"epochs": 25 * faults, "norm": False, "sleep": 0.03, "fast": fast}
        alone = self.found(1, {"epochs": how["epochs"], "norm": False})[0]
        members = self.found(4, how)
        for m, at in zip(members, self.at):
            m.at = at
        left = []  # which the others left behind: they were frozen, or the machine is busy

        def go_on(n=12):
            """Those that train do so many turns more."""
            for m, turn in [(m, m.turn) for m in members]:
                try:
                    m.until(turn + n)
                except AssertionError:
                    if "PeerError" not in "".join(m.said):
                        raise
                    members.remove(m)
                    left.append(m)

        for k in range(faults):
            go_on()
            kind = ("freeze", "join", "kill")[k % 3]
            if kind == "join" or len(members) < 3:
                at = "127.0.0.1:%d" % free_port()
                members.append(Member({**how, "seed": 10 + k, "away": k % 2 > 0}, RUBATO_JOIN=rng.choice(members).at, RUBATO_LISTEN=at))
                members[-1].at = at
                self.addCleanup(lambda m=members[-1]: m.p.poll() is None and m.kill())
            elif kind == "kill":
                members.pop(rng.randrange(len(members))).kill()
            else:
                m = members.pop(rng.randrange(len(members)))
                m.p.send_signal(signal.SIGSTOP)
                go_on()  # without it
                m.p.send_signal(signal.SIGCONT)
                left.append(m)
        go_on()
        with open(fast, "w"):
            ends = []
        for m in members:
            try:
                ends.append(m.end())
            except AssertionError:
                left.append(m)
        print("%d members at the end, %d were left behind" % (len(ends), len(left)))
        alone = alone.end()
        self.assertGreater(len(ends), 0)
        for end in ends:
            self.once(end, how["epochs"])
            self.same(end, ends[0], 0)
            self.same(end, alone)
        for m in left:
            m.p.wait(300)
            m.reader.join()
            self.assertIn("PeerError", "".join(m.said))

    def test_variables_of_other_launchers(self):
        """torchrun and Slurm say who is who; a secret is asked for."""
        port = free_port()
        for names in (["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"], ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID", "SLURM_STEP_ID"]):
            members = [Member({"epochs": 2, "norm": False, "seed": r}, **dict(zip(names, [str(r), "2", "127.0.0.1", str(port), "0"]))) for r in range(2)]
            for m in members:
                self.addCleanup(lambda m=m: m.p.poll() is None and m.kill())
            a, b = (m.end() for m in members)
            self.same(a, b, 0)
            self.once(a, 2)
            port = port % 20000 + 1

    def test_noise_is_that_of_the_samples(self):
        for n in (1, 2):
            path = os.path.join(tempfile.mkdtemp(prefix="rubato-noise-"), "alloc.json")
            for _ in range(4):  # again where a busy machine let a member fall silent, which the others then left behind
                at = ["127.0.0.1:%d" % free_port() for _ in range(n)]
                members = [subprocess.Popen([sys.executable, "-c", NOISE, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={
                    **os.environ, "RUBATO_TOKEN": "0123456789abcdef", "RUBATO_WORKERS": str(n), "RUBATO_LISTEN": at[k],
                    **({"RUBATO_JOIN": at[0]} if k else {})}) for k in range(n)]
                said = [m.communicate(timeout=300) for m in members]
                if not any("has left the job" in err or "was lost" in err or "PeerError" in err for _, err in said):
                    break
            self.assertEqual([m.returncode for m in members], [0] * n, said)
            with open(path) as f:
                question = json.load(f)
            job, want = question["jobs"][0], json.loads(said[0][0])
            for what in ("sqr", "var"):
                self.assertAlmostEqual(job[what] / want[what], 1, delta=0.2, msg="%d members: %s of %s" % (n, what, job))
            self.assertEqual(question["nodes"], [n])
            self.assertEqual((job["batch_first"], job["replicas"], job["left"]), (64, n, 0))
            self.assertIn((1, n, round(64 / n)), [(m["nodes"], m["replicas"], m["local"]) for m in job["measured"]])
            self.assertTrue(all(0 < m["pass"] <= m["step"] for m in job["measured"]))
            told = subprocess.run([os.environ["RUBATO_PROGRAM"], "plan", path, "alloc", "--json"], capture_output=True, text=True)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn("answer", json.loads(told.stdout))
            shutil.rmtree(os.path.dirname(path))

    def test_mistakes_and_a_stop_are_exceptions(self):
        told = subprocess.run([sys.executable, "-c", MISTAKES], capture_output=True, text=True, timeout=300)
        self.assertEqual((told.returncode, told.stdout.split()), (0, ["once", "closure", "twice", "sparse", "batch", "left", "unused", "torn", "whole", "token", "fork", "stop"]),
                         told.stderr)

    def test_another_model_is_refused(self):
        self.at = ["127.0.0.1:%d" % free_port() for _ in range(2)]
        first = Member({"epochs": 2, "norm": True}, RUBATO_WORKERS="2", RUBATO_LISTEN=self.at[0])
        self.addCleanup(lambda: first.p.poll() is None and first.kill())
        second = Member({"epochs": 2, "norm": False}, RUBATO_WORKERS="2", RUBATO_LISTEN=self.at[1], RUBATO_JOIN=self.at[0])
        self.assertEqual(second.p.wait(300), 1)
        second.kill()
        self.assertIn("ConfigError", "".join(second.said))
        self.assertIn("model", "".join(second.said))
        first.kill()

    def test_torch_and_the_package_in_both_orders(self):
        """Both compute with teams of threads, whichever was loaded first; before and after the other."""
        first, second = "import torch", "import rubato; rubato.load"
        rest = ("; net = rubato.load('means.onnx', threads=2); x = torch.ones(64, 32); torch.set_num_threads(2)\n"
                "for _ in range(20): y = torch.from_numpy(net.predict(x)); z = torch.ones(300, 300) @ torch.ones(300, 300)\n"
                "assert (y == 1).all() and (z == 300).all()")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "means.onnx"), "wb") as f:
                f.write(onnx_of_means(32))
            for order in (first, second), (second, first):
                p = subprocess.run([sys.executable, "-c", "; ".join(order) + rest], cwd=folder, capture_output=True, text=True, timeout=300)
                self.assertEqual(p.returncode, 0, p.stderr)

    def test_one_is_killed_and_one_joins(self):
        """The first one of three is killed while another comes. The longest pause is measured again, three times at most."""
        for _ in range(3):
            longest = self.kill_and_join()
            print("longest pause %.3f s" % longest)
            if longest < 1.0:
                break
        self.assertLess(longest, 1.0)

    def kill_and_join(self):
        how = {"epochs": 30, "sleep": 0.03}
        members = self.found(3, how)
        members[1].until(20)
        late = Member({**how, "seed": 9}, RUBATO_JOIN=self.at[1])
        self.addCleanup(lambda: late.p.poll() is None and late.kill())
        members[1].until(60)
        members.pop(0).kill()
        ends = [m.end() for m in [*members, late]]
        for end in ends:
            self.same(end, ends[0], 0)
            self.once(end, 30)
        self.assertLess(ends[-1]["turns"], ends[0]["turns"])
        return max(e["longest"] for e in ends)

    def test_a_successor_writes_the_last_checkpoint(self):
        """The leader dies when the last step counts and nothing is saved yet."""
        folder = tempfile.mkdtemp(prefix="rubato-torch-saves-")
        self.addCleanup(shutil.rmtree, folder)
        first, second = self.found(2, {"epochs": 2, "checkpoint": folder, "every": 1000, "last": True})
        second.end()
        self.assertEqual(first.p.wait(300), -signal.SIGKILL)
        first.kill()
        self.assertEqual(os.listdir(folder), ["32.safetensors"])

    def test_launch_says_where_others_join(self):
        for options, told in ((["-w", "1"], False), (["-w", "1", "--listen", "127.0.0.1"], True), (["-w", "1:2"], True)):
            p = subprocess.run([os.environ["RUBATO_PROGRAM"], "launch", *options, "--", "true"], capture_output=True, text=True)
            self.assertEqual((p.returncode, "others can join with --join 127.0.0.1:" in p.stderr), (0, told), p.stderr)

    def test_launch_replaces_one_that_dies(self):
        """`rubato launch`; the checkpoint of the leader continues to the end of one process without pauses."""
        folder = tempfile.mkdtemp(prefix="rubato-torch-saves-")
        self.addCleanup(shutil.rmtree, folder)
        how = {"epochs": 20, "sleep": 0.03, "norm": False, "checkpoint": folder}
        with open(os.path.join(folder, "said"), "w+") as said:
            p = subprocess.Popen([os.environ["RUBATO_PROGRAM"], "launch", "-w", "2:3", "--", sys.executable,
                                  os.path.join(HERE, "pytorch_member.py"), json.dumps(how)], stdout=subprocess.PIPE, stderr=said)
            self.addCleanup(lambda: p.poll() is None and p.terminate())
            for _ in range(6000):
                if "turn 40" in open(said.name).read():
                    break
                self.assertIsNone(p.poll(), open(said.name).read()[-2000:])
                time.sleep(0.05)
            else:
                self.fail("no turn 40: " + open(said.name).read()[-2000:])
            with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                os.kill(int(f.read().split()[-1]), signal.SIGKILL)
            out = p.communicate()[0]
            text = open(said.name).read()
        self.assertEqual(p.returncode, 0, text[-2000:])
        self.assertIn("was ended by signal 9; the others continue", text)
        ends = [json.loads(line) for line in out.splitlines()]
        self.assertGreaterEqual(len(ends), 1)
        for end in ends:
            self.once(end, 20)
            self.same(end, ends[0], 0)
        self.assertEqual(max(int(n.split(".")[0]) for n in os.listdir(folder) if n.endswith(".safetensors")), 320)
        more = self.found(1, {**how, "sleep": 0, "epochs": 25, "resume": True, "seed": 7})[0].end()
        alone = self.found(1, {"norm": False, "epochs": 25})[0].end()
        self.assertEqual((more["turns"], more["lr"]), (80, alone["lr"]))
        self.same(more, alone)
        self.once(more, 25)


def main():
    if importlib.util.find_spec("torch") is None:
        print("torch is not there: nothing was tried")
        return 77
    program, extension, source = sys.argv[1:4]
    with tempfile.TemporaryDirectory(prefix="rubato-torch-") as place:
        shutil.copytree(os.path.join(source, "python", "rubato"), os.path.join(place, "rubato"))
        shutil.copy(extension, os.path.join(place, "rubato"))
        os.environ["PYTHONPATH"] = place
        os.environ["RUBATO_PROGRAM"] = os.path.realpath(program)
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Elastic)
        return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
