#!/usr/bin/env python3
"""A model whose batches functions compute: functions.py PATH_OF_RUBATO

Trains a small model and serves it with `--functions local`. Its answers are those of a server that
computes them itself; the page of `rubato explain ADDR batch` counts them. Then instances are killed
and frozen under load, one bad request comes, and the server stops: every request is answered, and no
instance is left. An endpoint that throttles, fails and does not answer costs those requests alone.
A promise that nothing keeps is refused with the best that can be kept; so are memory that is too small
for the model and a wrong signature, with what was said. Functions that become slower than they were
are seen as such.
"""
import concurrent.futures
import http.server
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import explain

JOB = """name: served
model: {zoo: mlp, hidden: [64]}
data: {format: synthetic, generator: digits, count: 400, test_count: 50}
train: {batch: 40, steps: 10, autotune: false, threads: 1, optimizer: {sgd: {lr: 0.05}}}
"""


class Server:
    def __init__(self, rubato, path, *more):
        self.rubato = rubato
        self.process = subprocess.Popen([rubato, "serve", path, "-l", "0", "--json", *more],
                                        stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.address, self.model = ready["address"], ready["model"]

    def infer(self, row, shape=(1, 1, 28, 28)):
        body = json.dumps({"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": row}]})
        try:
            with urllib.request.urlopen(f"http://{self.address}/v2/models/{self.model}/infer",
                                        body.encode(), 300) as answer:
                return answer.status, json.loads(answer.read())["outputs"][0]["data"]
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def until_answered(self, row):
        """A slow machine refuses what it would answer too late, and says when to come again."""
        for _ in range(200):
            status, got = self.infer(row)
            if status not in (429, 503):
                break
            time.sleep(0.05)
        return status, got

    def page(self):
        return subprocess.run([self.rubato, "explain", self.address, "batch"], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def instances(self):
        me, found = self.process.pid, []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as f:
                    parent = int(f.read().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            found += [int(pid)] if parent == me else []
        return found

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Answers as a function platform would: sums of the rows; every so often something else."""
    protocol_version = "HTTP/1.1"
    calls = 0
    seen = set()
    refuses, slow_s = False, 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Endpoint.calls += 1
        Endpoint.seen.add((self.path, self.headers.get("Authorization", "")[:37]))
        kind = Endpoint.calls % 9 if Endpoint.harm else 0
        x = body["inputs"][0]
        rows, size = x["shape"][0], len(x["data"]) // x["shape"][0]
        sums = [sum(x["data"][r * size:(r + 1) * size]) for r in range(rows)]
        time.sleep(Endpoint.slow_s)
        status, text, more = 200, json.dumps({"outputs": [{
            "name": "output", "datatype": "FP32", "shape": [rows, 10],
            "data": [s / size for s in sums for _ in range(10)]}]}), {}
        if Endpoint.refuses:
            status, text = 403, "{\"message\": \"the signature does not match\"}"
        elif kind == 3:
            status, text = 429, "{}"
        elif kind == 5:
            status, text = 500, "broken"
        elif kind == 7:
            text, more = "{\"errorMessage\": \"no\"}", {"X-Amz-Function-Error": "Unhandled"}
        elif kind == 8:
            text = "{\"outputs\": 7}"
        elif Endpoint.harm and Endpoint.calls == 20:
            time.sleep(6)
        self.send_response(status)
        for k, v in more.items():
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def endpoint(rubato, run, rows):
    Endpoint.harm = False
    site = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    os.environ.update(AWS_ACCESS_KEY_ID="someone", AWS_SECRET_ACCESS_KEY="secret")
    Endpoint.refuses = True
    wrong = subprocess.run([rubato, "serve", run, "-l", "0", "--slo", "p95=200ms", "--functions",
                            f"http://127.0.0.1:{site.server_port}", "--memory", "1024", "--sign",
                            "--function-name", "digits"], stderr=subprocess.PIPE, text=True)
    assert wrong.returncode == 65 and "status 403" in wrong.stderr and "does not match" in wrong.stderr, wrong.stderr
    Endpoint.refuses = False
    far = Server(rubato, run, "--slo", "p95=1s", "--functions",
                 f"http://127.0.0.1:{site.server_port}", "--memory", "1024", "--sign",
                 "--function-name", "digits", "--batch", "4")
    status, got = far.until_answered(rows[1])
    assert status == 200 and abs(got[0] - sum(rows[1]) / 784) < 1e-5, got
    def times():
        return float(re.search(r"batches take (\S+) times as long now", far.page()).group(1))
    Endpoint.slow_s = 0.5
    for _ in range(20):
        assert all(s == 200 for s, _ in load(far, rows, 60, 0.02, far.until_answered))
        if times() > 2:
            break
    assert times() > 2, far.page()
    Endpoint.slow_s = 0
    Endpoint.harm, Endpoint.calls = True, 0
    answers = load(far, rows, 120, 0.02)
    codes = {c: sum(s == c for s, _ in answers) for c in {s for s, _ in answers}}
    assert len(answers) == 120 and set(codes) <= {200, 429, 500, 503}, codes
    assert codes[200] >= 30, codes  # four of nine calls fail
    for k, (status, got) in enumerate(answers):
        assert status != 200 or abs(got[0] - sum(rows[k % 5]) / 784) < 1e-5, (k, got)
    page = far.page()
    assert "tries again" in page and "at http://127.0.0.1" in page, page
    assert all(p == "/2015-03-31/functions/digits/invocations" and a.startswith("AWS4-HMAC-SHA256")
            for p, a in Endpoint.seen), Endpoint.seen
    far.stop()
    site.shutdown()
    print("functions: an endpoint that fails:", dict(sorted(codes.items())))


def load(server, rows, n, gap_s, ask=None):
    """n requests, open loop; their answers in order."""
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        asked = []
        for k in range(n):
            asked.append(pool.submit(ask or server.infer, rows[k % len(rows)]))
            time.sleep(random.expovariate(1 / gap_s))
        return [a.result() for a in asked]


def check(rubato, folder):
    job, run = os.path.join(folder, "job.yaml"), os.path.join(folder, "run")
    with open(job, "w") as f:
        f.write(JOB)
    subprocess.run([rubato, "train", job, "-o", run, "-q"], check=True, stdout=subprocess.DEVNULL)
    alone = subprocess.run([rubato, "serve", run, "-l", "0", "--usd-call", "0"], stderr=subprocess.PIPE, text=True)
    assert alone.returncode == 2 and "--usd-call goes with --functions" in alone.stderr, alone.stderr
    late = subprocess.run([rubato, "serve", run, "-l", "0", "--slo", "p95=1us", "--functions", "local",
                           "--memory", "512"], stderr=subprocess.PIPE, text=True)
    assert late.returncode == 65 and "the best that can be kept is" in late.stderr, late.stderr
    large, big = os.path.join(folder, "large.yaml"), os.path.join(folder, "big")
    with open(large, "w") as f:
        f.write(JOB.replace("[64]", "[4000, 4000]").replace("steps: 10", "steps: 1"))
    subprocess.run([rubato, "train", large, "-o", big, "-q"], check=True, stdout=subprocess.DEVNULL)
    small = subprocess.run([rubato, "serve", big, "-l", "0", "--slo", "p95=9s", "--functions", "local",
                            "--memory", "64"], stderr=subprocess.PIPE, text=True)
    assert small.returncode == 65 and "memory" in small.stderr, small.stderr
    rows = [[round(random.random(), 4) for _ in range(784)] for _ in range(5)]
    here = Server(rubato, run)
    want = [here.infer(r)[1] for r in rows]
    here.stop()
    far = Server(rubato, run, "--slo", "p95=1s", "--functions", "local", "--memory", "512:1024:512",
                 "--batch", "8")
    for status, got in [far.until_answered(r) for r in rows]:
        assert status == 200, got
    asked = 5
    for _ in range(20):  # until a choice is made: a slow machine needs longer for it
        for k, (status, got) in enumerate(load(far, rows, 300, 0.01, far.until_answered)):
            assert status == 200, got
            assert max(abs(a - b) for a, b in zip(got, want[k % 5])) < 1e-4
        asked += 300
        page = far.page()
        assert "of this machine, promise p95 = 1 s" in page, page
        calls = int(re.search(r"for %d requests \(.* GB-s, (\d+) calls\)" % asked, page).group(1))
        if calls < asked - 5:
            break
    assert calls < asked - 5, page  # they left in batches
    explain.compare_page(rubato, far.address, "batch")
    status, why = far.infer([0.5] * 100, (1, 100))
    assert status == 400 and "the model takes" in why, why
    print("functions: %d requests in %d calls" % (asked, calls))

    def harm():
        for k in range(6):
            time.sleep(0.1)
            for pid in far.instances():
                try:
                    os.kill(pid, signal.SIGSTOP if k == 3 else signal.SIGKILL)
                except ProcessLookupError:
                    pass
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        harmed = pool.submit(harm)
        answers, good = [], 0
        while len(answers) < 4000 and (good < 100 or not harmed.done()):
            answers += load(far, rows, 200, 0.004)
            good = sum(status == 200 for status, _ in answers)
        harmed.result()
    codes = sorted({status for status, _ in answers})
    assert all(status in (200, 429, 500, 503) for status in codes), codes
    assert good >= 100, answers
    for _ in range(100):  # an instance that was killed may have had the first one
        status, got = far.infer(rows[0])
        if status == 200:
            break
        time.sleep(0.1)
    assert status == 200, got
    left = far.instances()
    far.stop()
    for pid in left:
        assert not os.path.exists(f"/proc/{pid}"), pid
    print("functions: %d of %d requests answered while instances were killed and frozen"
          % (good, len(answers)))
    endpoint(rubato, run, rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(os.path.abspath(sys.argv[1]), folder)
