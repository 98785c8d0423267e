#!/usr/bin/env python3
"""Trainings on the cores of a server: beside.py PATH_OF_RUBATO

A server answers while a training is beside it; the page of `rubato explain ADDR gate` counts its ops.
The training is killed: the server answers on, and another training takes its place. The server is
killed: the training goes on alone to its end, with the result of a training that was never beside
one. A promise that the server does not keep alone: the training is refused with the figures. Two
trainings take turns: both go on, each within its bound of memory; one whose bound does not fit beside
the others is refused with the figures, and one that needs more than its bound ends with a sentence.
A training whose ops are to be short computes batches in parts, with the losses of one that does not.
A training that waits behind batches does no op for so long, and goes on when the server is killed.
A training beside two servers is on the page of both and has the smaller bound of memory; one server is
killed: it stays beside the other one, whose requests are all answered.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

JOB = """name: {name}
model: {{zoo: mlp, hidden: [64]}}
data: {{format: synthetic, generator: digits, count: 400, test_count: 50}}
train: {{batch: 40, steps: {steps}, autotune: false, threads: 1, optimizer: {{sgd: {{lr: 0.05}}}}}}
"""
ROW = json.dumps({"inputs": [{"name": "x", "shape": [1, 1, 28, 28], "datatype": "FP32",
                              "data": [0.25] * 784}]}).encode()


def serve(rubato, run, *more):
    p = subprocess.Popen([rubato, "serve", run, "-l", "0", "--json", "--instances", "1", *more],
                         stdout=subprocess.PIPE, text=True)
    ready = json.loads(p.stdout.readline())
    return p, ready["address"], ready["model"]


def ask(address, model, n):
    for _ in range(n):
        with urllib.request.urlopen(f"http://{address}/v2/models/{model}/infer", ROW, 300) as answer:
            assert answer.status == 200


def gate(rubato, address, *more):
    return subprocess.run([rubato, "explain", address, "gate", *more], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)


def until(what, process):
    for _ in range(3000):
        if what():
            return
        assert process.poll() is None, "it ended too early"
        time.sleep(0.1)
    raise AssertionError("it never came")


def parameters(run):
    """Bytes of the last checkpoint's parameters."""
    newest = sorted(os.listdir(os.path.join(run, "checkpoints")))[-1]
    for folder, _, names in os.walk(os.path.join(run, "checkpoints", newest)):
        for name in sorted(names):
            if name.endswith(".safetensors"):
                with open(os.path.join(folder, name), "rb") as f:
                    return f.read()
    raise AssertionError("no parameters in " + run)


def check(rubato, folder):
    def job(name, steps):
        path = os.path.join(folder, name + ".yaml")
        with open(path, "w") as f:
            f.write(JOB.format(name=name, steps=steps))
        return path

    def train(name, steps, *more):
        return [rubato, "train", job(name, steps), "-o", os.path.join(folder, name), "-q", *more]

    subprocess.run(train("model", 10), check=True, stdout=subprocess.DEVNULL)
    run = os.path.join(folder, "model")
    server, address, model = serve(rubato, run, "--slo", "p99=500ms")
    assert gate(rubato, address).returncode == 66
    first = subprocess.Popen(train("first", 10**8, "--beside", address), stdout=subprocess.DEVNULL)
    ask(address, model, 20)
    until(lambda: " steps, " in gate(rubato, address).stdout, first)
    ask(address, model, 50)
    until(lambda: " 0 steps," not in gate(rubato, address).stdout, first)
    # It computes only while nobody else wants its core.
    until(lambda: os.sched_getscheduler(first.pid) == os.SCHED_IDLE, first)
    page = gate(rubato, address).stdout
    typed = json.loads(gate(rubato, address, "--json").stdout)["trainings"]
    assert len(typed) == 1 and typed[0]["process"] == first.pid and typed[0]["ops"] > 0, typed
    assert typed[0]["lag_allowed_s"] >= 0 and 0 <= typed[0]["held_share"] <= 1, typed
    assert f"training {first.pid}:" in page and re.search("a decision takes [0-9.]+ us, p99 [0-9.]+ us", page), page
    first.send_signal(signal.SIGKILL)
    first.wait()
    ask(address, model, 20)
    assert gate(rubato, address).returncode == 66
    print("beside: " + page.splitlines()[1])
    for steps in (4000, 16000, 64000):  # more, if it ends before the server is killed
        shutil.rmtree(os.path.join(folder, "second"), ignore_errors=True)
        second = subprocess.Popen(train("second", steps, "--beside", address), stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True)
        # A step is done: it has opened what the server told it of.
        until(lambda: re.search(f"training {second.pid}: [1-9]", gate(rubato, address).stdout) or second.poll() is not None, server)
        second.send_signal(signal.SIGSTOP)
        if second.poll() is None:
            break
        assert second.returncode == 0, second.stderr.read()
    assert second.poll() is None, "it ended before the server was killed"
    server.send_signal(signal.SIGKILL)
    server.wait()
    second.send_signal(signal.SIGCONT)
    said = second.communicate(timeout=300)[1]
    assert second.returncode == 0, said
    subprocess.run(train("alone", steps), check=True, stdout=subprocess.DEVNULL)
    weights = [parameters(os.path.join(folder, name)) for name in ("alone", "second")]
    assert weights[0] == weights[1] and len(weights[0]) > 1000
    server, address, model = serve(rubato, run, "--slo", "p99=1us")
    refused = subprocess.run(train("third", 800, "--beside", address), stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 65 and "is not taken beside the server" in refused.stderr, refused
    print("beside: " + refused.stderr.strip()[:160])
    refused = subprocess.run(train("third", 800, "--beside", address, "--beside", address),
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 2 and "is given twice" in refused.stderr, refused
    server.send_signal(signal.SIGTERM)
    assert server.wait(300) == 0


def two(rubato, folder, run):
    """Two trainings and two threads each: no order of sums is promised, so a team may be one thread."""
    def train(name, *more, hidden="64"):
        path = os.path.join(folder, name + ".yaml")
        with open(path, "w") as f:
            f.write(JOB.format(name=name, steps=10**8).replace("threads: 1", "threads: 2")
                    .replace("[64]", f"[{hidden}]"))
        out = os.path.join(folder, name)
        return subprocess.Popen([rubato, "train", path, "-o", out, "-q", "--beside", address, *more],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    server, address, model = serve(rubato, run, "--slo", "p99=500ms")
    both = [train("fourth", "--memory", "2000"), train("fifth", "--memory", "3000")]

    def steps():
        found = json.loads(gate(rubato, address, "--json").stdout or "{}").get("trainings", [])
        return {t["process"]: t for t in found}
    until(lambda: len(steps()) == 2 and all(t["steps"] > 0 for t in steps().values()), server)
    first = steps()
    until(lambda: ask(address, model, 20) or
          all(steps()[p.pid]["steps"] > first[p.pid]["steps"] + 4 for p in both), server)
    now = steps()
    assert [now[p.pid]["memory_bytes"] for p in both] == [2000000000, 3000000000], now
    assert all(now[p.pid]["lost_progress_s"] >= 0 for p in both), now
    over = train("sixth", "--memory", "900000000")
    said = over.communicate(timeout=300)[1]
    assert over.returncode != 0 and "do not fit" in said and "may have 5000" in said, said
    print("beside: " + said.strip()[:200])
    small = train("seventh", "--memory", "200", hidden="4000, 4000")
    said = small.communicate(timeout=300)[1]
    assert small.returncode > 0 and "memory" in said, (small.returncode, said)
    print("beside: " + said.strip()[:200])
    for p in both:
        p.send_signal(signal.SIGKILL)
        p.wait()
    ask(address, model, 20)  # the server lives, and has nobody beside it
    assert gate(rubato, address).returncode == 66
    server.send_signal(signal.SIGTERM)
    assert server.wait(300) == 0


def servers(rubato, folder, run):
    """One training beside two servers, of which one is killed."""
    both = [serve(rubato, run, "--slo", "p99=500ms") for _ in range(2)]
    job = os.path.join(folder, "eighth.yaml")
    with open(job, "w") as f:
        f.write(JOB.format(name="eighth", steps=10**8))
    train = subprocess.Popen(
        [rubato, "train", job, "-o", os.path.join(folder, "eighth"), "-q", "--beside", both[0][1],
         "--beside", both[1][1], "--memory", "2000"], stdout=subprocess.DEVNULL, start_new_session=True)

    def session(nice):
        """Kernels that divide cores among sessions see how far its session stands back."""
        path = f"/proc/{train.pid}/autogroup"
        return not os.path.exists(path) or open(path).read().endswith(f" nice {nice}\n")

    def page(k):
        return json.loads(gate(rubato, both[k][1], "--json").stdout or "{}").get("trainings", [{"steps": 0}])[0]

    def grows(*of):
        before = {k: page(k)["steps"] for k in of}
        until(lambda: [ask(both[k][1], both[k][2], 5) for k in of] and
              all(page(k)["steps"] > before[k] for k in of), train)
    until(lambda: all(page(k)["steps"] > 0 for k in (0, 1)), train)
    grows(0, 1)
    assert all(page(k)["process"] == train.pid and page(k)["memory_bytes"] == 2000000000 for k in (0, 1))
    both[0][0].send_signal(signal.SIGKILL)
    both[0][0].wait()
    grows(1)
    assert os.sched_getscheduler(train.pid) == os.SCHED_IDLE and session(19)  # it is still beside one
    both[1][0].send_signal(signal.SIGTERM)
    assert both[1][0].wait(300) == 0
    if os.geteuid() == 0:  # others may need a right for it
        until(lambda: os.sched_getscheduler(train.pid) == os.SCHED_OTHER, train)
    until(lambda: session(0), train)
    train.send_signal(signal.SIGKILL)
    train.wait()


def parts(rubato, folder, run):
    """Parts of a batch, and the losses of whole ones. The plain gate: it does not stand back."""
    server, address, model = serve(rubato, run, "--slo", "p99=60s")
    ask(address, model, 20)
    losses = {}
    for name, more in (("ninth", []), ("tenth", ["--beside", address, "--gate", "priority", "--op-max", "50us"])):
        job, out = os.path.join(folder, name + ".yaml"), os.path.join(folder, name)
        with open(job, "w") as f:
            f.write(JOB.format(name=name, steps=30).replace("batch: 40", "batch: 400"))
        done = subprocess.run([rubato, "train", job, "-o", out, *more], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
        with open(os.path.join(out, "metrics.jsonl")) as f:
            losses[name] = [line["loss"] for line in map(json.loads, f) if "loss" in line]
    said = re.search("a batch is computed in ([0-9]+) parts from step 5 on", done.stdout)
    assert said and int(said.group(1)) > 1 and 400 % int(said.group(1)) == 0, done.stdout
    assert len(losses["ninth"]) == len(losses["tenth"]) > 10, losses
    assert all(abs(a - b) <= 1e-5 * max(1, abs(a)) for a, b in zip(losses["ninth"], losses["tenth"])), losses
    print("beside: " + said.group(0))
    server.send_signal(signal.SIGTERM)
    assert server.wait(300) == 0


def quiet(rubato, folder, run):
    """Behind a batch no op begins for an hour; once the server is gone, they go on."""
    server, address, model = serve(rubato, run, "--slo", "p99=500ms")
    job = os.path.join(folder, "eleventh.yaml")
    with open(job, "w") as f:
        f.write(JOB.format(name="eleventh", steps=10**8))
    out = os.path.join(folder, "eleventh")
    train = subprocess.Popen([rubato, "train", job, "-o", out, "-q", "--beside", address, "--gate", "priority", "--gate-quiet", "1h"],
                             stdout=subprocess.DEVNULL)

    def ops():
        found = json.loads(gate(rubato, address, "--json").stdout or "{}").get("trainings", [])
        return found[0]["ops"] if found else 0

    def stands():
        before = ops()
        time.sleep(0.5)
        return before == ops()
    until(ops, train)
    assert not stands()  # no batch has come yet
    ask(address, model, 1)
    until(stands, train)
    steps = lines(out)
    ask(address, model, 5)
    assert stands()
    server.send_signal(signal.SIGKILL)
    server.wait()
    until(lambda: lines(out) > steps, train)
    train.send_signal(signal.SIGKILL)
    train.wait()


def lines(run):
    with open(os.path.join(run, "metrics.jsonl")) as f:
        return sum(1 for _ in f)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        check(os.path.abspath(sys.argv[1]), folder)
        two(os.path.abspath(sys.argv[1]), folder, os.path.join(folder, "model"))
        parts(os.path.abspath(sys.argv[1]), folder, os.path.join(folder, "model"))
        quiet(os.path.abspath(sys.argv[1]), folder, os.path.join(folder, "model"))
        servers(os.path.abspath(sys.argv[1]), folder, os.path.join(folder, "model"))
