#!/usr/bin/env python3
"""Requests that differ in size, on functions: sizes.py PATH_OF_RUBATO

Trains a small language model and serves it with `--functions local`. Answers to requests that are
shorter than its context are the first part of what a server of its own computes for the context. The
page of `rubato explain ADDR route` shows buffers by size once a choice was made; requests of other
sizes and rates come while choices change, and each is answered. What no size fits is refused, and so is an
endpoint that does not have the server's sizes.
"""
import atexit
import concurrent.futures
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import explain

CONTEXT, VOCAB = 64, 17
JOB = """name: text
model: {zoo: gpt, layers: 2, heads: 2, width: 64, context: 64, vocab: 17}
data: {format: tokens, train: train.u8}
train: {batch: 4, steps: 5, threads: 1, autotune: false}
"""


class Server:
    def __init__(self, rubato, *more):
        self.rubato = rubato
        self.process = subprocess.Popen([rubato, "serve", "run", "-l", "0", "--json", *more],
                                        stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # of a run that fails
        ready = json.loads(self.process.stdout.readline())
        self.url = "http://%s/v2/models/%s" % (ready["address"], ready["model"])
        self.address = ready["address"]
        with urllib.request.urlopen(self.url, timeout=300) as answer:
            self.input = json.loads(answer.read())["inputs"][0]

    def infer(self, ids, rows=1):
        body = json.dumps({"inputs": [{"name": self.input["name"], "shape": [rows, len(ids) // rows],
                                       "datatype": self.input["datatype"], "data": ids}]})
        try:
            with urllib.request.urlopen(self.url + "/infer", body.encode(), 300) as answer:
                out = json.loads(answer.read())["outputs"][0]
                assert out["shape"] == [rows, len(ids) // rows, VOCAB], out["shape"]
                return answer.status, out["data"]
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["error"]

    def until_answered(self, ids, rows=1):
        """A slow machine refuses what it would answer too late, and says when to come again."""
        for _ in range(200):
            status, got = self.infer(ids, rows)
            if status not in (429, 503):
                break
            time.sleep(0.05)
        return status, got

    def page(self, what="route"):
        return subprocess.run([self.rubato, "explain", self.address, what], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(300) == 0


def equal(got, want):
    return len(got) == len(want) and max(abs(a - b) for a, b in zip(got, want)) < 1e-3


def load(server, sizes, n):
    """n requests whose sizes are drawn from `sizes`, some at one time; none is lost."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.until_answered, [random.randrange(VOCAB) for _ in range(random.choice(sizes))])
                 for _ in range(n)]
        for a in asked:
            status, why = a.result()
            assert status == 200, why
    return n


def check_endpoint(rubato):
    """A server does not begin before an endpoint that lacks some of its sizes."""
    other = subprocess.Popen([rubato, "function", "run", "-l", "0", "--sizes", "2"], stdout=subprocess.PIPE, text=True)
    atexit.register(other.kill)
    url = re.match(r"http://[^/]+", other.stdout.readline()).group()
    done = subprocess.run([rubato, "serve", "run", "-l", "0", "--slo", "p95=2s", "--functions", url, "--memory", "512",
                           "--sizes", "4"], capture_output=True, text=True)
    assert done.returncode == 65 and "requests of all 4 sizes" in done.stderr, done
    other.send_signal(signal.SIGTERM)
    assert other.wait(300) == 0


def check(rubato):
    with open("train.u8", "wb") as f:
        f.write(bytes(random.randrange(VOCAB) for _ in range(2000)))
    with open("job.yaml", "w") as f:
        f.write(JOB)
    subprocess.run([rubato, "train", "job.yaml", "-o", "run", "-q"], check=True, stdout=subprocess.DEVNULL)
    text = [random.randrange(VOCAB) for _ in range(CONTEXT)]
    here = Server(rubato)
    assert here.input["shape"] == [-1, CONTEXT], here.input
    status, want = here.infer(text)
    assert status == 200 and here.infer(text[:40])[0] == 400
    here.stop()
    far = Server(rubato, "--slo", "p95=2s", "--functions", "local", "--memory", "512", "--batch", "4",
                 "--sizes", "4")
    assert far.input["shape"] == [-1, -1], far.input
    for size in (1, 15, 16, 17, 40, 63, 64):
        status, got = far.until_answered(text[:size])
        assert status == 200 and equal(got, want[:size * VOCAB]), (size, got)
    status, got = far.until_answered(text[:20] + text[:20], 2)
    assert status == 200 and equal(got, want[:20 * VOCAB] * 2), got
    status, why = far.infer(text + [1])
    assert status == 400 and "the model takes" in why and "or fewer" in why, why
    print("sizes: answers to short requests are those of the model")
    asked, buffers = 8, set()
    for turn in range(40):  # until buffers by size were in force
        asked += load(far, (2, 5, 9, 14) if turn % 2 == 0 else (4, 30, 60, 64), 100)
        page = far.page()
        buffers.add(int(re.search(r"choice: (\d+) buffers? by size", page).group(1)))
        assert "for %d requests" % asked in page, (asked, page)
        taken = int(re.search(r"took (\d+), refused", page).group(1))
        if taken >= 2:
            break
    assert taken >= 2, page
    explain.compare_page(rubato, far.address, "route")
    assert re.search(r"size to 16 .* s .* s", page) and "padding beyond own classes" in page, page
    rows = re.search(r"by memory, size and rows\n +MB +size( +\d+)+\n((?: +512 +\d+(?: +[\d.e-]+)+\n)+)", page)
    assert [int(r.split()[1]) for r in rows[2].splitlines()] == [16, 32, 48, 64], page
    assert far.page("batch") == page or "by size" in far.page("batch")
    far.stop()
    check_endpoint(rubato)
    print("sizes: %d requests answered, %d choices installed, %s buffers" % (asked, taken, sorted(buffers)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rubato_path = os.path.abspath(sys.argv[1])
        os.chdir(folder)
        check(rubato_path)
