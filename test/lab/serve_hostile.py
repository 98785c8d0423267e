#!/usr/bin/env python3
"""A server under bad input and faults: serve_hostile.py PATH_OF_RUBATO [LOADS]

Ten thousand sockets that are idle, others slow, half closed or never read; wrong requests, damaged heads; model files that are
missing, half written or replaced; a full disk; hot swaps and drains under load. The server answers each accepted request once, refuses each wrong one with a
sentence and the right status, keeps answering others, and its gauges return to zero. After LOADS loads (60) it holds
no more memory.
"""
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

JOB = """name: served
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: digits, count: 400, test_count: 50}
train: {batch: 40, steps: 30, autotune: false, threads: 1, optimizer: {sgd: {lr: 0.05}}}
"""


class Server:
    def __init__(self, rubato, path, *more, **options):
        options.setdefault("stderr", subprocess.DEVNULL)
        self.process = subprocess.Popen([rubato, "serve", path, "-l", "0", "--json", *more],
                                        stdout=subprocess.PIPE, text=True, **options)
        self.address = json.loads(self.process.stdout.readline())["address"]
        host, port = self.address.rsplit(":", 1)
        self.at = (host, int(port))

    def ask(self, method, path, body=None, headers={}):
        link = http.client.HTTPConnection(*self.at, timeout=120)
        link.request(method, path, body, headers)
        answer = link.getresponse()
        text = answer.read()
        link.close()
        return answer.status, text

    def ready(self, model):
        for _ in range(4000):
            if self.ask("GET", f"/v2/models/{model}/ready")[0] == 200:
                return
            time.sleep(0.05)
        raise AssertionError("not ready")

    def gauge(self, name):
        _, text = self.ask("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in text.decode().splitlines()
                   if line.startswith(name + "{"))

    def at_rest(self):
        """No request is under way; the last answer may be read before it is counted."""
        for _ in range(1000):
            busy = [n for n in ("rubato_serve_requests", "rubato_serve_waiting_requests") if self.gauge(n) != 0]
            if not busy:
                return
            time.sleep(0.02)
        raise AssertionError(busy)

    def memory(self):
        with open(f"/proc/{self.process.pid}/smaps_rollup") as f:
            return sum(int(line.split()[1]) for line in f if line.startswith("Anonymous:"))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0


def request(rows=1, **more):
    x = {"name": "x", "shape": [rows, 1, 28, 28], "datatype": "FP32", "data": [0.25] * (784 * rows)}
    x.update(more)
    return json.dumps({"inputs": [x]}).encode()


class Load:
    """Clients that ask all the time; each counts what came back."""

    def __init__(self, server, path, n=3, until_refused=False):
        self.server, self.path, self.ended = server, path, False
        self.took, self.bad, self.refused, self.sent = [], [], 0, 0
        self.threads = [threading.Thread(target=self.run, args=(until_refused,)) for _ in range(n)]
        for thread in self.threads:
            thread.start()

    def run(self, until_refused):
        body, link = request(), None
        while not self.ended:
            try:
                link = link or http.client.HTTPConnection(*self.server.at, timeout=120)
                begun = time.monotonic()
                link.request("POST", self.path, body)
                answer = link.getresponse()
                text = answer.read()
                self.took.append(time.monotonic() - begun)
                if answer.status == 503 and until_refused:
                    self.refused += 1
                    return
                if answer.status != 200 or len(json.loads(text)["outputs"][0]["data"]) != 10:
                    self.bad.append((answer.status, text))
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                if until_refused and isinstance(error, (BrokenPipeError, ConnectionResetError,
                                                        http.client.RemoteDisconnected)):
                    link = None  # an idle connection that the end of the server closed
                    continue
                self.bad.append(error)
                return

    def some(self, n):
        """n answers have come."""
        for _ in range(6000):
            if len(self.took) >= n or self.bad:
                return
            time.sleep(0.02)

    def end(self):
        self.ended = True
        for thread in self.threads:
            thread.join()
        assert not self.bad, self.bad[:3]
        return sorted(self.took)


def p99(took):
    return took[int(len(took) * 0.99)]


def check_sockets(server, model):
    """Clients that do not behave: others are answered meanwhile."""
    path = f"/v2/models/{model}/infer"
    body = request()
    load = Load(server, path, 1)
    time.sleep(2)
    load.some(100)
    before = p99(load.end())
    kept = []
    for k in range(400):
        s = socket.create_connection(server.at)
        if k % 5 == 1:
            s.sendall(b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        elif k % 5 == 2:
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                      + body[:100])
        elif k % 5 == 3:
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                      + body)
            s.shutdown(socket.SHUT_WR)
        elif k % 5 == 4:
            for _ in range(20):  # answers that nobody reads
                try:
                    s.setblocking(False)
                    s.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                except BlockingIOError:
                    break
        kept.append(s)
    load = Load(server, path, 1)
    time.sleep(2)
    load.some(100)
    during = p99(load.end())
    for s in kept:
        s.close()
    return before, during


def check_idle(server, model):
    """Ten thousand sockets that ask nothing: others are answered meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kept = []
    load = Load(server, f"/v2/models/{model}/infer", 1)
    for k in range(min(10000, (hard if hard > 0 else 1 << 20) - 200)):
        kept.append(socket.create_connection(server.at))
        answers = len(load.took)
        while k % 500 == 0 and len(load.took) == answers and load.threads[0].is_alive():
            time.sleep(0.001)  # else its own connection may ask nothing for longest
    during = p99(load.end())
    for s in kept:
        s.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return len(kept), during


def check_requests(server, model):
    path = f"/v2/models/{model}/infer"
    nan = json.dumps({"inputs": [{"name": "x", "shape": [1, 1, 28, 28], "datatype": "FP32",
                                  "data": [float("nan")] * 784}]}).encode()
    for body, status in ((b"", 400), (b"{", 400), (b"[]", 400), (b"\xff" * 1000, 400),
                         (b'{"inputs":' * 2000, 400), (request(shape=[1, 1, 28, 27]), 400),
                         (request(shape=[1 << 40, 1, 28, 28]), 400), (request(shape=[1, 1 << 62]), 400),
                         (request(shape=[-1, 1, 28, 28]), 400), (request(datatype="FP64"), 400),
                         (request(datatype="FP99"), 400), (request(name="other"), 400),
                         (request(data=[1.0]), 400), (request(data=["a"] * 784), 400),
                         (request(data=None), 400), (request(extra=1), 400), (nan, 200),
                         (request(parameters={"shared_memory_region": "a"}), 400),
                         (request(rows=3), 200)):
        got, text = server.ask("POST", path, body)
        assert got == status, (body[:80], got, text[:200])
        assert got == 200 or json.loads(text)["error"], text
    rows = json.loads(server.ask("POST", path, nan)[1])["outputs"][0]["data"]
    assert rows and all(y is None for y in rows), rows  # NaN stays NaN
    for method, where, headers, status in (
            ("POST", path, {"Inference-Header-Content-Length": "99999"}, 400),
            ("POST", path, {"Inference-Header-Content-Length": "-1"}, 400),
            ("POST", path, {"Content-Encoding": "gzip"}, 415),
            ("POST", path, {"Rubato-Deadline-Ms": "soon"}, 400), ("PUT", path, {}, 405),
            ("POST", "/v2/models/none/infer", {}, 404), ("GET", "/v2/systemsharedmemory/status", {}, 404),
            ("GET", "/v2/" + "a/" * 2000, {}, 404)):
        got, text = server.ask(method, where, request(), headers)
        assert got == status, (where[:80], headers, got, text[:200])
    assert server.ask("POST", path, b" " * (65 << 20))[0] == 413


def check_heads(server, model, n):
    """Damaged heads, the same ones each time: an answer, the end of the connection, or the server waits for the rest."""
    r, counts = random.Random(7), {}
    seeds = (f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request())}\r\n"
             "Inference-Header-Content-Length: 20\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
             "\r\n\r\n").encode() + request(), b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n"
    for _ in range(n):
        text = bytearray(r.choice(seeds))
        for _ in range(r.randrange(1, 6)):
            at = r.randrange(min(len(text), 250))
            text[at:at + r.choice((0, 1, 1, 9))] = r.choice((b"", b"\0", b"\r\n", b":", b" ", b"\xff", b"9" * 30, b"A" * 70000,
                                                            bytes([r.randrange(256)])))
        with socket.create_connection(server.at) as s:
            s.settimeout(0.05)
            try:
                s.sendall(text)
                got = s.recv(4096)
            except (ConnectionError, TimeoutError):
                got = b""
        assert got == b"" or got.startswith(b"HTTP/1."), got[:100]
        counts[got[9:12]] = counts.get(got[9:12], 0) + 1
    assert counts[b"400"] and counts[b"200"], counts
    assert server.ask("GET", "/v2/health/live")[0] == 200


def check_full(rubato, path, model, work):
    """No place for the access log: requests are answered, and the server says that lines are lost."""
    log = os.path.join(work, "access.jsonl")
    server = Server(rubato, path, "--access-log", log, stderr=subprocess.PIPE, restore_signals=False,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY)))
    server.ready(model)
    for _ in range(200):
        assert server.ask("POST", f"/v2/models/{model}/infer", request())[0] == 200
    server.stop()
    said = server.process.stderr.read()
    assert "lines are lost" in said and os.path.getsize(log) <= 8192, said
    with open(log) as lines:
        assert all(json.loads(line)["status"] for line in lines)  # none is cut


def check_files(server, folder, model):
    """Damaged files leave what answers as it is."""
    file = os.path.join(folder, model, "2", "model.onnx")
    good = os.path.join(folder, model, "1", "model.onnx")
    load_path = f"/v2/repository/models/{model}/load"
    with open(good, "rb") as f:
        whole = f.read()
    os.makedirs(os.path.dirname(file))
    load = Load(server, f"/v2/models/{model}/infer", 2)
    for part in (None, b"", whole[:len(whole) // 2], whole[:-1], b"x" * 5000):
        if part is not None:
            with open(file, "wb") as f:
                f.write(part)
        got, text = server.ask("POST", load_path, b"{}")
        assert got == 400 and json.loads(text)["error"], (got, text)
        assert server.ask("GET", f"/v2/models/{model}/ready")[0] == 200
    with open(good, "r+b") as f:  # replaced in place while it is served
        f.write(os.urandom(len(whole)))
    assert server.ask("POST", f"/v2/models/{model}/infer", request())[0] == 200
    load.end()
    with open(good, "wb") as f:
        f.write(whole)
    shutil.rmtree(os.path.dirname(file))


def check_swaps(server, model, loads):
    load_path = f"/v2/repository/models/{model}/load"
    load = Load(server, f"/v2/models/{model}/infer")
    for _ in range(20):
        got, text = server.ask("POST", load_path, b"{}")
        assert got == 200, text
    answers = len(load.end())
    early, late = [], []
    for k in range(loads):
        assert server.ask("POST", load_path, b"{}")[0] == 200
        if k in range(4, 20, 5):
            early.append(settled(server))
        if k in range(loads - 16, loads, 5):
            late.append(settled(server))
    return answers, early, late


def settled(server):
    """Memory at rest [kB]."""
    time.sleep(1)
    return min(server.memory() for _ in range(5) if not time.sleep(0.2))


def check_drains(rubato, path, model, times):
    for _ in range(times):
        server = Server(rubato, path)
        server.ready(model)
        load = Load(server, f"/v2/models/{model}/infer", 3, until_refused=True)
        load.some(3)
        time.sleep(0.3)
        server.stop()
        assert len(load.end()) > 0


def main():
    rubato, loads = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as work:
        def run(*args):
            subprocess.run([rubato, *args], cwd=work, check=True, capture_output=True)
        with open(os.path.join(work, "job.yaml"), "w") as f:
            f.write(JOB)
        run("train", "job.yaml", "--out", "run")
        run("export", "run", "--onnx", "m.onnx")
        folder = os.path.join(work, "models")
        os.makedirs(os.path.join(folder, "m", "1"))
        shutil.copy(os.path.join(work, "m.onnx"), os.path.join(folder, "m", "1", "model.onnx"))
        server = Server(rubato, folder)
        server.ready("m")
        check_requests(server, "m")
        check_heads(server, "m", 1000)
        before, during = check_sockets(server, "m")
        sockets, beside = check_idle(server, "m")
        check_files(server, folder, "m")
        answers, early, late = check_swaps(server, "m", loads)
        server.at_rest()
        server.stop()
        print(f"p99 {before * 1e3:.2f} ms, among clients that do not behave {during * 1e3:.2f} ms, while {sockets} "
              f"connect and ask nothing {beside * 1e3:.2f} ms; "
              f"{answers} answers in 20 swaps; {early} kB within 20 loads, {late} kB within the last of {loads}")
        # A model at rest holds some pages more or less (2 to 3 %): the least at the end is compared with the most at the start.
        assert min(late) <= 1.02 * max(early), (early, late)
        check_full(rubato, folder, "m", work)
        check_drains(rubato, folder, "m", 20)


if __name__ == "__main__":
    main()
