"""The Python package: python.py PROGRAM EXTENSION SOURCE

Trains, predicts, streams and asks from Python, beside what the program does; with numpy where it is there, and
without it.
"""
import array
import ctypes
import gc
import http.server
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

if os.environ.get("WITHOUT_NUMPY"):
    sys.modules["numpy"] = sys.modules["hypothesis"] = None  # which looks for it
try:
    import numpy
except ImportError:
    numpy = None
try:
    import hypothesis
    import hypothesis.strategies
except ImportError:
    hypothesis = None

JOB = """
name: small
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 512, mean: [0.5], std: [2]}
train: {batch: 32, epochs: 2}
"""


def program(*words, told=b""):
    done = subprocess.run([os.environ["RUBATO_PROGRAM"], *words], input=told, capture_output=True, check=False)
    if done.returncode != 0:
        raise AssertionError("%s: %s" % (words, done.stderr.decode()))
    return done.stdout


def onnx_of_means(columns):
    """An ONNX file, by hand: y [rows] is the mean of each row of x [rows, columns]."""
    return onnx_of(b"ReduceMean", [b"x"], {b"axes": [1], b"keepdims": 0}, (b"rows", columns), (b"rows",))


def onnx_of(op, inputs, attributes, shape_in, shape_out):
    """Of one node, from x to y."""
    def number(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number(n >> 7)

    def part(field, value):  # of a protobuf
        if isinstance(value, int):
            return number(field << 3) + number(value)
        return number(field << 3 | 2) + number(len(value)) + value

    def tensor(name, *dims):
        shape = b"".join(part(1, part(1, d) if isinstance(d, int) else part(2, d)) for d in dims)
        return part(1, name) + part(2, part(1, part(1, 1) + part(2, shape)))

    given = b"".join(part(5, part(1, name) + (part(3, v) + part(20, 2) if isinstance(v, int) else
                                              b"".join(part(8, n) for n in v) + part(20, 7))) for name, v in attributes.items())
    node = b"".join(part(1, x) for x in inputs) + part(2, b"y") + part(4, op) + given
    graph = part(1, node) + part(2, b"one") + part(11, tensor(b"x", *shape_in)) + part(12, tensor(b"y", *shape_out))
    return part(1, 8) + part(7, graph) + part(8, part(2, 13))


def peak_kib():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        global rubato
        import rubato
        cls.folder = tempfile.mkdtemp(prefix="rubato-python-")
        os.chdir(cls.folder)
        with open("job.yaml", "w") as f:
            f.write(JOB)
        program("train", "job.yaml", "--out", "there", "--quiet")
        program("export", "there", "--onnx", "there.onnx")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_training_gives_the_bits_of_the_program(self):
        run = rubato.train("job.yaml", out="here")
        steps = [m.step for m in run]
        end = run.wait()
        self.assertEqual(steps, list(range(1, end.steps + 1)))
        self.assertEqual((end.ended, end.out), ("done", "here"))
        newest = sorted(os.listdir("here/checkpoints"))[-1]
        for name in ("model.safetensors",):
            with open("here/checkpoints/%s/%s" % (newest, name), "rb") as a:
                with open("there/checkpoints/%s/%s" % (newest, name), "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_a_stop_saves_and_resume_goes_on(self):
        run = rubato.train("job.yaml", out="stopped", set={"train.epochs": 100000})
        with self.assertRaises(RuntimeError):
            rubato.train("job.yaml", out="second")
        next(iter(run))
        run.stop()
        end = run.wait()
        self.assertEqual(end.ended, "stopped")
        self.assertTrue(os.listdir("stopped/checkpoints"))
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))  # as under nohup
        run = rubato.train("job.yaml", out="ignored", set={"train.epochs": 100000})
        next(iter(run))
        run.stop()
        self.assertEqual(run.wait().ended, "stopped")

    def test_predictions_are_those_of_the_program(self):
        x = array.array("f", [0.25 * k for k in range(2 * self.width())])
        rows = [x[r * self.width():(r + 1) * self.width()] for r in range(2)]
        lines = "".join(",".join("%.9g" % v for v in row) + "\n" for row in rows)
        given = memoryview(x.tobytes()).cast("f", (2, self.width()))
        with rubato.load("there", threads=1) as model:
            y = model.predict(given)
            one = model(given[0:1] if not numpy else numpy.asarray(given)[0])
        before = array.array("f", [(v - 0.5) * 0.5 for v in x])
        with rubato.load("there.onnx", threads=1) as net:
            z = net.predict(memoryview(before.tobytes()).cast("f", (2, self.width())))
        self.assertEqual(bytes(y), bytes(z))
        with rubato.load("there.onnx", threads=1, autotune=True) as net:
            for a, b in zip(memoryview(net.predict(memoryview(before.tobytes()).cast("f", (2, self.width())))).cast("B").cast("f"), memoryview(z).cast("B").cast("f")):
                self.assertAlmostEqual(a, b, places=4)
        self.assertEqual(bytes(one), bytes(y)[:len(bytes(one))])
        best = [max(range(y.shape[1]), key=lambda k: y[r, k]) for r in range(2)]
        told = program("predict", "there", told=lines.encode()).decode()
        self.assertEqual([int(line.split()[0]) for line in told.splitlines()], best)

    @unittest.skipUnless(numpy, "numpy is not there")
    def test_arrays_of_numpy_in_any_order(self):
        with rubato.load("there") as model:
            x = numpy.arange(4 * self.width(), dtype=numpy.float32).reshape(self.width(), 4) / 7
            y = model.predict(numpy.ascontiguousarray(x.T))
            for same in (x.T, x.T.astype(">f4"), x.T.astype(numpy.float64), x.T.tolist()):
                self.assertTrue(numpy.array_equal(model.predict(same), y))
            self.assertEqual(model.predict(numpy.zeros((0, self.width()), numpy.float32)).shape, (0, y.shape[1]))
            many = model.predict(numpy.repeat(x.T, 50, 0))
            self.assertTrue(numpy.array_equal(many[::50], y))
            for wrong in (x.T.astype(complex), numpy.array([["a"] * self.width()])):
                with self.assertRaises(TypeError):
                    model.predict(wrong)
            with self.assertRaises(rubato.DataError):
                model.predict(numpy.zeros((1,) * 9, numpy.float32))
            again = y.copy()
            model.predict(x.T * 2)
            self.assertTrue(numpy.array_equal(again, y))  # answers are the caller's

    def test_a_large_input_is_not_copied(self):
        columns, rows = 1024, 25600  # 100 MiB
        with open("means.onnx", "wb") as f:
            f.write(onnx_of_means(columns))
        one = array.array("f", [k % 5 for k in range(columns)])
        block = bytearray(one.tobytes() * rows + bytes(64))
        where = memoryview(block)
        first = rubato.copied()
        for off in (0, 4):  # how far behind a multiple of 16 bytes
            at = (off - ctypes.addressof(ctypes.c_char.from_buffer(block))) % 16
            large = where[at:at + 4 * columns * rows].cast("B").cast("f", (rows, columns))
            where[at:at + 4 * columns * rows] = one.tobytes() * rows
            with open("/proc/self/clear_refs", "w") as f:
                f.write("5")  # the peak counts from here on
            before = peak_kib()
            with rubato.load("means.onnx", threads=1) as net:
                self.assertEqual(set(bytes(net.predict(large[k:k + 1])) for k in (0, rows - 1)), {array.array("f", [sum(one) / columns]).tobytes()})
                y = net.predict(large)
            self.assertEqual((len(memoryview(y).cast("B")), set(memoryview(y).tolist())), (4 * rows, {sum(one) / columns}))
            if off == 0:
                self.assertLess(peak_kib() - before, 25 * 1024)
                self.assertEqual(rubato.copied(), first)
        self.assertEqual(rubato.copied() - first, 4 * columns * rows)

    def test_a_large_output_is_not_copied_and_stays(self):
        rows, columns = 64, 1024
        for op, sign in ((b"Neg", -1), (b"Identity", 1)):
            with open("one.onnx", "wb") as f:
                f.write(onnx_of(op, [b"x"], {}, (b"rows", columns), (b"rows", columns)))
            x = [memoryview(array.array("f", [k + j % 7 for j in range(rows * columns)])).cast("B").cast("f", (rows, columns))
                 for k in range(3)]
            net, first = rubato.load("one.onnx", threads=1), rubato.copied()
            made = [net.predict(x[k]) for k in range(2)]
            y = made.pop()
            made.append(memoryview(y)[1:])  # a part keeps it alive
            net.predict(x[2])
            # what shows an input is copied, and so is that input
            more = 0 if op == b"Neg" else len(x) * 2 * 4 * rows * columns
            self.assertEqual(rubato.copied() - first, more)
            net.close()
            del net, y
            gc.collect()
            for k, part in enumerate(made):
                self.assertEqual(memoryview(part).tolist(), [[sign * v for v in row] for row in x[k].tolist()[k:]])
            memoryview(made[0])[0, 0] = 5  # it is the caller's

    def width(self):
        with rubato.load("there") as model:
            return model.inputs[0].shape[1]

    def test_wrong_arrays_are_refused(self):
        with rubato.load("there") as model:
            for wrong in (None, "text", object(), b"bytes"):
                with self.assertRaises((TypeError, ValueError)):
                    model.predict(wrong)
            with self.assertRaises(rubato.DataError):
                model.predict(memoryview(bytes(12)).cast("f", (1, 3)))
            with self.assertRaises(TypeError):
                model.predict()
            with self.assertRaises(TypeError):
                model.predict(b"", b"")
            with self.assertRaises(TypeError):
                model.predict(other=b"")
        with self.assertRaises(ValueError):
            model.predict(memoryview(bytes(4 * self.width())).cast("f", (1, self.width())))

    def test_what_is_missing_is_named(self):
        with self.assertRaisesRegex(rubato.MissingError, "gone.onnx"):
            rubato.load("gone.onnx")
        with self.assertRaises(FileNotFoundError):
            rubato.train("gone.yaml", out="never")
        with self.assertRaises(rubato.ConfigError):
            rubato.train("job.yaml", out="never", set={"train.batch": "many"})
        with self.assertRaises(TypeError):
            rubato.data.stream(format="csv", paths=[], batch=1, colour="red")
        with self.assertRaises(rubato.RubatoError):
            rubato.data.stream(format="csv", paths=["gone.csv"], batch=1)

    def test_a_model_does_not_survive_a_fork(self):
        model = rubato.load("there")
        pid = os.fork()
        if pid == 0:
            try:
                model.predict(b"")
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        model.close()

    def test_a_stream_gives_every_sample_once(self):
        with open("rows.csv", "w") as f:
            f.writelines("%d,%d\n" % (k, k % 2) for k in range(100))
        numbers = rubato.data.stream(format="csv", paths="rows.csv", batch=1)
        if os.fork() == 0:
            try:
                numbers.close()  # its threads are not here
                next(numbers)
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.wait()[1], 0)
        numbers.close()
        seen = []
        for x, y in rubato.data.stream(format="csv", paths="rows.csv", batch=32, seed=1):
            seen += [int(v) for v in memoryview(x).cast("B").cast("f")]
        self.assertEqual(sorted(seen), list(range(100)))
        self.assertNotEqual(seen, sorted(seen))

    def test_arrays_of_a_large_batch_are_views_that_outlive_their_stream(self):
        n, wide = 96, 4096  # 512 KiB a batch of 32
        for name, kind, shape, data in (("x.npy", "<f4", "(%d, %d)" % (n, wide), b"".join(struct.pack("<f", k) * wide for k in range(n))),
                                        ("y.npy", "<i8", "(%d,)" % n, bytes(8 * n))):
            header = ("{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (kind, shape)).ljust(117).encode() + b"\n"
            with open(name, "wb") as f:
                f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
        stream = rubato.data.stream(format="npy", paths=["x.npy", "y.npy"], batch=32, shuffle=False, epochs=2, threads=1)
        kept = [next(stream)[0] for _ in range(3)]
        del kept[1]  # later batches may stand there, but in no place that is kept
        for _ in range(3):
            next(stream)
        stream.close()
        for k, x in ((0, kept[0]), (2, kept[1])):
            flat = memoryview(x).cast("B").cast("f")
            self.assertEqual(list(flat[::wide]), [float(32 * k + i) for i in range(32)])
            flat[0] = -1.0  # it is the caller's
        self.assertEqual(memoryview(kept[0]).cast("B").cast("f")[0], -1.0)
        labels, places = [], set()  # small arrays keep no large ones
        for x, y in rubato.data.stream(format="npy", paths=["x.npy", "y.npy"], batch=32, epochs=8, threads=1):
            labels.append(y)
            places.add(ctypes.addressof(ctypes.c_char.from_buffer(memoryview(x).cast("B"))))
        self.assertEqual(len(labels), 24)
        self.assertLess(len(places), 24)

    def test_a_trace_tells_where_the_time_of_each_step_went(self):
        t = rubato.trace("there")
        steps = t.steps()
        self.assertEqual([s.step for s in steps], list(range(1, len(steps) + 1)))
        with open("there/metrics.jsonl") as f:
            self.assertEqual(len(steps), sum("rubato.train.step/1" in line for line in f))
        for s in steps:
            self.assertAlmostEqual(s.compute + s.network + s.peer + s.input + s.other, s.seconds, delta=1e-8)
            self.assertGreater(s.compute, 0)
        self.assertEqual(t.steps(rank=steps[0].rank), steps)
        self.assertEqual(t.steps(rank=99), [])
        self.assertIn("step", [f["name"] for f in t.facts()])
        self.assertIsInstance(t.causes(), list)
        self.assertIn("steps", rubato.explain("there"))
        with self.assertRaises(rubato.MissingError):
            rubato.trace("nowhere")

    def test_random_arguments_raise_what_is_documented(self):
        """Hypothesis chooses them where it is installed."""
        words = ["x", "path", "threads", "precision", "format", "paths", "batch", "seed", "epochs", "shuffle", "label", "context", "classes",
                 "first", "count", "one_hot", "run", "job", "set", "out", "resume", "question", "policy", "text"]
        plain = [None, True, 0, -1, 3, 2**31, 2**63, -2**70, 1.5, float("nan"), "", "there", "there.onnx", "\0", "a" * 70000,
                 b"there", b"\xff\0", "job.yaml", "idx", "csv", "share"]

        def junk(rng, deep=0):
            kind = rng.randrange(9 if deep < 2 else 4)
            if kind < 5:
                return rng.choice(plain)
            if kind < 7:
                return [junk(rng, deep + 1) for _ in range(rng.randrange(4))]
            if kind == 7 and numpy is not None:
                kinds = ["f4", "f8", "i8", "U3", "O", "c8", "M8[s]", "?", ">f4"]
                return numpy.zeros([rng.randrange(4) for _ in range(rng.randrange(10))], rng.choice(kinds))
            return memoryview(bytes(64 * rng.randrange(5))).cast(rng.choice("fdbBhHiIqQ?"))

        with rubato.load("there") as run, rubato.load("there.onnx") as net:
            doors = [rubato.load, rubato.trace, rubato.data.stream, run.predict, net.predict, rubato.explain, rubato.ask, rubato.plan,
                     lambda **k: rubato.train(**{"job": "job.yaml", **k}).wait(),
                     lambda **k: next(rubato.data.stream(**{"format": "synthetic", "generator": "gaussian", "batch": 8, **k}))]

            def once(rng):
                given = [junk(rng) for _ in range(rng.randrange(3))]
                named = {rng.choice(words): junk(rng) for _ in range(rng.randrange(4))}
                try:
                    rng.choice(doors)(*given, **named)
                except (rubato.RubatoError, TypeError, ValueError, MemoryError):
                    pass

            if hypothesis is None:
                rng = random.Random(1)
                for _ in range(600):
                    once(rng)
            else:
                hypothesis.settings(max_examples=600, deadline=None, database=None, derandomize=True,
                                    suppress_health_check=list(hypothesis.HealthCheck))(
                    hypothesis.given(hypothesis.strategies.randoms(use_true_random=False))(once))()

    def test_nothing_leaks(self):
        """RUBATO_LEAK_ROUNDS: so many times (100000: minutes)."""
        x = memoryview(bytes(4 * self.width())).cast("f", (1, self.width()))
        rounds = int(os.environ.get("RUBATO_LEAK_ROUNDS", 400))

        def rss_kib():
            with open("/proc/self/status") as f:
                return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))

        grew = []
        for _ in range(4):  # what is kept once, whenever that is, is no leak: a leak grows each time
            before = rss_kib()
            for _ in range(rounds):
                with rubato.load("there.onnx", threads=1) as net:
                    net.predict(x)
            grew.append(rss_kib() - before)
            if len(grew) > 1 and grew[-1] < 1024 + rounds // 20:
                break
        print("%s KiB more after %d models each" % (grew, rounds))
        self.assertLess(grew[-1], 1024 + rounds // 20)

    def test_an_interrupt_ends_what_waits(self):
        """The next batch is behind a server that does not answer."""
        count = 90000  # more than the 64 MiB that are read when it is opened
        for name, head in ("images", [0x803, count, 28, 28]), ("labels", [0x801, count]):
            with open(name, "wb") as f:
                f.write(struct.pack(">%dI" % len(head), *head))
                f.truncate(4 * len(head) + count * (784 if name == "images" else 1))
        stuck, free = threading.Event(), threading.Event()

        class Far(http.server.BaseHTTPRequestHandler):
            held, protocol_version = False, "HTTP/1.1"

            def do_GET(self):
                if Far.held:
                    stuck.set()
                    free.wait()
                size = os.path.getsize(self.path[1:])
                first, _, last = self.headers.get("Range", "bytes=0-")[6:].partition("-")
                first, last = int(first), min(int(last or size), size - 1)
                with open(self.path[1:], "rb") as f:
                    f.seek(first)
                    data = f.read(last + 1 - first)
                self.send_response(206)
                self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, size))
                self.send_header("Content-Length", str(len(data)))
                self.send_header("ETag", '"one"')
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Far)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = "http://127.0.0.1:%d/" % server.server_port
        s = rubato.data.stream(format="idx", paths=[at + "images", at + "labels"], batch=16, shuffle=False)
        next(s)
        Far.held = True

        def interrupt():
            stuck.wait()
            time.sleep(0.2)  # that it waits
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                for _ in s:
                    pass
            ended = []
            waits = threading.Thread(target=lambda: ended.append(list(s)))  # close() ends it, too
            waits.start()
            time.sleep(0.2)  # that it waits
            s.close()
            waits.join()
            self.assertEqual(len(ended), 1)
        finally:
            free.set()
            s.close()
            server.shutdown()
            server.server_close()

    def test_an_interrupt_ends_the_wait_for_a_long_call(self):
        """The call goes on in its thread: who closes the model does not wait for it."""
        n = 4000
        with open("square.onnx", "wb") as f:
            f.write(onnx_of(b"MatMul", [b"x", b"x"], {}, (n, n), (n, n)))
        with rubato.load("square.onnx", threads=1) as net:
            def interrupt():
                while not net._lock.locked():
                    pass
                time.sleep(0.1)  # that it computes
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                net.predict(memoryview(bytes(4 * n * n)).cast("f", (n, n)))
            self.assertTrue(net._lock.locked(), "it was done before")
        with self.assertRaises(ValueError):
            net.predict(memoryview(bytes(4 * n * n)).cast("f", (n, n)))
        while rubato._call._calls:
            time.sleep(0.01)
        self.assertFalse(net._lock.locked())
        self.assertIsNone(net._file)

        def ask():
            while not rubato._call._calls:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        asking = threading.Thread(target=ask)
        asking.start()
        with self.assertRaises(KeyboardInterrupt):
            while True:
                rubato.plan("share", {"batch": 64, "speed": [3, 1]})
        asking.join()

    def test_an_interrupt_ends_the_wait_for_a_team_to_be_left(self):
        """The member whom it asks for the job does not answer."""
        memory = ctypes.create_string_buffer(64)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            team = rubato.team.Team([(ctypes.addressof(memory), 16)], [(ctypes.addressof(memory) + 32, 16, 0)], batch=1, where=types.SimpleNamespace(
                join="127.0.0.1:%d" % silent.getsockname()[1], listen=None, token="0123456789abcdef", begin=1, least=1, most=0))

            def interrupt():
                while not rubato._call._calls and team.is_here():
                    pass
                os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=interrupt).start()
            with self.assertRaises(KeyboardInterrupt):
                team.close()
            self.assertTrue(rubato._call._calls, "it had left before")
            while rubato._call._calls:
                time.sleep(0.01)
            self.assertFalse(team.is_here())

    def test_the_first_host_of_a_step_of_slurm(self):
        step = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "9", "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3",
                "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9", "RUBATO_TOKEN": "0123456789abcdef"}
        for nodes, host in (("n[1-3,7],m2", "n1"), ("m2,n[1-3]", "m2"), ("r[0-1]n[002-3]-ib", "r0n002-ib"), ("n[07]", "127.0.0.1"), ("m-2", "127.0.0.1")):
            with unittest.mock.patch.dict(os.environ, {**step, "SLURM_JOB_NODELIST": "x1,x2", "SLURM_STEP_NODELIST": nodes}):
                at = rubato.team.place()
                self.assertEqual((at.join, at.begin), (host + ":20087", 4))
        with unittest.mock.patch.dict(os.environ, step):
            self.assertEqual(rubato.team.place().join, "10.0.0.9:20087")
            del os.environ["SLURM_STEP_ID"]  # a batch script is one process
            self.assertIsNone(rubato.team.place().join)

    def test_two_trainings_in_one_folder(self):
        run = rubato.train("job.yaml", out="shared", set={"train.epochs": 100000})
        next(iter(run))
        other = subprocess.run([os.environ["RUBATO_PROGRAM"], "train", "job.yaml", "--out", "shared"], capture_output=True, text=True, check=False)
        pid = os.fork()
        if pid == 0:
            try:
                run.wait()
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        run.stop()
        self.assertEqual(run.wait().ended, "stopped")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("shared", other.stderr)
        p = subprocess.Popen([os.environ["RUBATO_PROGRAM"], "train", "job.yaml", "--out", "held", "--set", "train.epochs=100000"],
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (p.kill(), p.communicate()))
        while p.poll() is None and not os.path.exists("held/metrics.jsonl"):
            time.sleep(0.01)
        with self.assertRaisesRegex(rubato.RubatoError, "held"):
            rubato.train("job.yaml", out="held").wait()

    def test_threads_that_wait_soon_sleep(self):
        """As in the program; what the environment says about it stays, and nobody else is told."""
        for told, spins in ({}, "5000"), ({"GOMP_SPINCOUNT": "7"}, "7"):
            env = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
            p = subprocess.run([sys.executable, "-c", "import os, sys; sys.path.insert(0, %r); import rubato; rubato.load; print(os.environ.get('GOMP_SPINCOUNT'))"
                                % os.path.dirname(os.path.dirname(rubato.__file__))], env={**env, **told, "OMP_DISPLAY_ENV": "VERBOSE"},
                               capture_output=True, text=True, check=True)
            self.assertIn("GOMP_SPINCOUNT = '%s'" % spins, p.stderr)
            self.assertEqual(p.stdout.strip(), str(told.get("GOMP_SPINCOUNT")))

    def test_the_program_answers(self):
        answer = rubato.plan("share", {"batch": 64, "speed": [300, 100], "now": [32, 32]})
        self.assertEqual(answer["decision"]["shares_samples"], [48, 16])
        with self.assertRaises(rubato.RubatoError):
            rubato.plan("share", {"batch": -1, "speed": [3, 1]})


def main():
    program_path, extension, source = sys.argv[1:4]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    os.environ["RUBATO_PROGRAM"] = os.path.realpath(program_path)
    with tempfile.TemporaryDirectory(prefix="rubato-package-") as place:
        package = os.path.join(place, "rubato")
        shutil.copytree(os.path.join(source, "python", "rubato"), package)
        shutil.copy(extension, package)
        sys.path.insert(0, place)
        again = subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "WITHOUT_NUMPY": "1"}) if numpy else None
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Package)
        failed = not unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful()
        return 1 if failed or (again is not None and again.wait() != 0) else 0


if __name__ == "__main__":
    sys.exit(main())
