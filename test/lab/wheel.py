"""The wheel that brings its libraries along: wheel.py PROGRAM EXTENSION SOURCE

What scripts/wheel does to a wheel of meson-python is done to the files of this build, without a network. The result stands
alone in an empty environment and is used there. Skips where patchelf or cffi is not there.
"""
import base64
import glob
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

JOB = """
name: small
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 512, mean: [0.5], std: [2]}
train: {batch: 32, epochs: 2}
"""

USE = """
import os, sys
import rubato
assert "rubato._rubato" not in sys.modules and "numpy" not in sys.modules, "the import alone loads nothing large"
assert rubato.__file__.startswith(sys.prefix), rubato.__file__
assert rubato.program().startswith(sys.prefix), rubato.program()
run = rubato.train("job.yaml", out="here")
steps = [m.step for m in run]
assert steps == list(range(1, 33)) and run.wait().ended == "done", steps
with rubato.load("here", threads=1) as model:
    y = model.predict(memoryview(bytes(4 * model.inputs[0].shape[1] * 3)).cast("f", (3, model.inputs[0].shape[1])))
assert y.shape[0] == 3 and y.shape[1] == model.outputs[0].shape[1]
with open("rows.csv", "w") as f:
    f.writelines("%d,%d\\n" % (k, k % 2) for k in range(100))
seen = [v for x, _ in rubato.data.stream(format="csv", paths="rows.csv", batch=32, seed=1) for v in memoryview(x).cast("B").cast("f")]
assert sorted(seen) == list(range(100))
assert rubato.plan("share", {"batch": 64, "speed": [300, 100], "now": [32, 32]})["decision"]["shares_samples"] == [48, 16]
assert rubato.trace("here").steps()[0].compute > 0
print("used")
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program, extension, source = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="rubato-wheel-test-"))
        tree = cls.place / "tree"
        shutil.copytree(source / "python/rubato", tree / "rubato", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(extension, tree / "rubato")
        info, scripts = tree / "rubato-0.dist-info", tree / "rubato-0.data/scripts"
        info.mkdir()
        scripts.mkdir(parents=True)
        shutil.copy(program, scripts / "rubato")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rubato\nVersion: 0\n")
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-abi3-linux_x86_64\n")
        loader = importlib.machinery.SourceFileLoader("rubato_wheel", str(source / "scripts/wheel"))
        sys.dont_write_bytecode = True  # beside the script
        cls.tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("rubato_wheel", loader))
        loader.exec_module(cls.tool)
        cls.info, cls.tag = cls.tool.bundle(tree)
        cls.wheel = cls.place / "rubato-0-cp39-abi3-linux_x86_64.whl"
        cls.tool.pack(tree, cls.info, cls.wheel)
        venv.create(cls.place / "empty", with_pip=False, symlinks=True)
        site = cls.place / "empty/lib" / ("python%d.%d" % sys.version_info[:2]) / "site-packages"
        with zipfile.ZipFile(cls.wheel) as z:
            z.extractall(site)
            for entry in z.infolist():
                (site / entry.filename).chmod(entry.external_attr >> 16 or 0o644)
        import _cffi_backend  # what pip brings
        for file in {_cffi_backend.__file__, *glob.glob(os.path.join(os.path.dirname(_cffi_backend.__file__), "..", "cffi.libs", "*"))}:
            shutil.copy(file, site)
        cls.package, cls.python = site / "rubato", cls.place / "empty/bin/python"
        (cls.place / "work").mkdir()
        (cls.place / "work/job.yaml").write_text(JOB)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.place)

    def alone(self, *words, **env):
        """Run it in an empty environment, in a folder of its own."""
        return subprocess.run([str(w) for w in words], cwd=self.place / "work", env={"HOME": str(self.place), **env}, capture_output=True, text=True)

    def loaded(self, told):
        """The libraries that the loader says it began."""
        return set(re.findall(r"calling init: (\S+)", told))

    def test_it_lists_what_it_holds(self):
        with zipfile.ZipFile(self.wheel) as z:
            rows = [line.rsplit(",", 2) for line in z.read("rubato-0.dist-info/RECORD").decode().splitlines()]
            self.assertEqual(sorted(r[0] for r in rows), sorted(z.namelist()))
            for name, digest, size in rows[:-1]:
                data = z.read(name)
                self.assertEqual(int(size), len(data))
                self.assertEqual(digest, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode())
            self.assertIn("Tag: cp39-abi3-", z.read("rubato-0.dist-info/WHEEL").decode())
            licences = [n for n in z.namelist() if "/licenses/" in n]
            self.assertGreaterEqual(len(licences), 3)
            self.assertTrue(any("libdnnl" in n for n in licences))
        self.assertLessEqual(self.wheel.stat().st_size, 25e6)

    def test_it_is_used_where_nothing_else_is(self):
        done = self.alone(self.python, "-I", "-c", USE, LD_DEBUG="libs")
        self.assertEqual((done.returncode, done.stdout), (0, "used\n"), "\n".join(
            line for line in done.stderr.splitlines() if not re.match(r"\s+\d+:\t", line))[-3000:])
        plain = self.loaded(self.alone(self.python, "-I", "-c", "import _cffi_backend, ctypes, bz2, lzma, zlib", LD_DEBUG="libs").stderr)
        self.its_own(self.loaded(done.stderr) - plain)

    def its_own(self, loaded):
        brought = {p.name for p in (self.package / "libs").iterdir()}
        self.assertTrue(any("libdnnl" in p for p in loaded), loaded)
        for path in loaded:
            if os.path.basename(path) in brought:
                self.assertTrue(os.path.realpath(path).startswith(os.path.realpath(self.package)), path)
            elif "/python" not in path and not path.startswith(str(self.place)):
                self.assertRegex(os.path.basename(path), self.tool.SYSTEM)

    def test_the_program_is_used_where_nothing_else_is(self):
        program = self.package / "bin/rubato"
        done = self.alone(program, "train", "job.yaml", "--out", "there", "--quiet", LD_DEBUG="libs")
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.its_own(self.loaded(done.stderr))
        start = "import sys; sys.argv[1:] = ['explain', 'there', '--json']; from rubato._start import main; main()"
        done = self.alone(self.python, "-I", "-c", start)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("decisions", json.loads(done.stdout))


def main():
    lacks = [n for n in ("patchelf", "dpkg", "strip") if shutil.which(n) is None]
    lacks += [] if importlib.util.find_spec("_cffi_backend") else ["cffi"]
    if lacks:
        print("%s is not there: nothing was tried" % lacks[0])
        return 77
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Wheel)
    return 0 if unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
