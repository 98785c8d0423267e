"""Elastic training of a PyTorch script: pytorch.py PROGRAM EXTENSION SOURCE

Members are real processes on this machine. Skips where torch is not there.
"""
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
EPOCHS = 20
STEPS = 16 * EPOCHS


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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
        until = time.monotonic() + 60
        while self.turn < turn:
            if self.p.poll() is not None or time.monotonic() > until:
                raise AssertionError("a member stands at turn %d: %s" % (self.turn, "".join(self.said)))
            time.sleep(0.01)

    def end(self):
        out = self.p.stdout.read()
        code = self.p.wait(60)
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
                a, b = (m.end() for m in self.found(2, {"epochs": 6, **how}))
                self.same(a, b, 0)
                self.assertEqual(a["lr"], b["lr"])

    def test_one_is_killed_and_one_joins(self):
        how, epochs = {"epochs": 30, "sleep": 0.03}, 30
        for who in (0, 2):
            with self.subTest(killed=who):
                members = self.found(4, how)
                members[1].until(20)
                late = Member({**how, "seed": 9}, RUBATO_JOIN=self.at[1])
                self.addCleanup(lambda m=late: m.p.poll() is None and m.kill())
                members[1].until(40)
                members.pop(who).kill()
                ends = [m.end() for m in [*members, late]]
                for end in ends:
                    self.same(end, ends[0], 0)
                    self.once(end, epochs)
                    self.assertLess(end["longest"], 1.0)
                self.assertLess(ends[-1]["turns"], ends[0]["turns"])
                print("longest pause %.3f s" % max(e["longest"] for e in ends))


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
