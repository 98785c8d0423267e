"""The gradient noise scale beside its closed form: noise.py PATH_OF_RUBATO [STEPS]

A linear model with weights that stay 0: gradient and covariance of its samples are those of the data, which this script
sums itself. One worker and four, each with one pass and with four; SGD, and Adam, whose update divides by the root of mean squares.
"""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

INPUTS, ROWS, BATCH, OFF = 64, 4000, 64, 0.1


def field(number, value):
    """One field of a protobuf message: a number, or bytes."""
    def varint(n):
        out = b""
        while n > 127:
            out += bytes([n & 127 | 128])
            n >>= 7
        return out + bytes([n])
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def linear(path):
    """y = x w + b as an ONNX file; w and b are 0."""
    def tensor(name, *dims):
        size = math.prod(dims)
        return b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, bytes(4 * size))

    def value(name, width):
        shape = field(1, field(2, "N")) + field(1, field(1, width))
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))
    node = b"".join(field(1, n) for n in ("x", "w", "b")) + field(2, "y") + field(4, "Gemm")
    graph = (field(1, node) + field(2, "linear") + field(5, tensor("w", INPUTS, 1)) + field(5, tensor("b", 1)) +
             field(11, value("x", INPUTS)) + field(12, value("y", 1)))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(7, graph) + field(8, field(2, 17)))


def data(path, seed):
    """Rows with noise; the mean of the gradients of all, and of their squares, by parameter."""
    rng = random.Random(seed)
    w = [rng.gauss(0, 0.3) for _ in range(INPUTS)]
    mean, square = [0.0] * (INPUTS + 1), [0.0] * (INPUTS + 1)
    with open(path, "w") as f:
        f.write(",".join(f"x{k}" for k in range(INPUTS)) + ",y\n")
        for _ in range(ROWS):
            x = [round(rng.gauss(0, 1), 4) for _ in range(INPUTS)]
            y = round(sum(a * b for a, b in zip(w, x)) + rng.gauss(0, 1), 4)
            f.write(",".join(map(str, x + [y])) + "\n")
            for k, v in enumerate(x + [1.0]):
                mean[k] += -2 * y * v / ROWS
                square[k] += (2 * y * v) ** 2 / ROWS
    return mean, square


def closed(mean, square, adam):
    """phi = trace of the covariance over the square of the mean, both seen through the optimizer."""
    var = [s - m * m for m, s in zip(mean, square)]
    by = [m * m + v / BATCH if adam else 1.0 for m, v in zip(mean, var)]
    return sum(v / b for v, b in zip(var, by)) / sum(m * m / b for m, b in zip(mean, by))


def main():
    rubato, steps = os.path.realpath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    failed = False
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        linear("linear.onnx")
        mean, square = data("rows.csv", 5)
        env = dict(os.environ, XDG_CACHE_HOME=work + "/cache")
        for workers, passes, adam in ((1, 1, False), (1, 4, False), (4, 1, False), (4, 4, False), (4, 1, True)):
            job = {"name": "noise", "model": {"onnx": "linear.onnx"},
                   "data": {"format": "csv", "train": ["rows.csv"], "label": "y"},
                   "train": {"loss": "mse", "optimizer": {"adam" if adam else "sgd": {"lr": 1e-12}}, "batch": BATCH,
                             "accumulate": passes, "steps": steps, "threads": 1, "seed": 3}}
            with open("job.yaml", "w") as f:
                json.dump(job, f)
            out = f"out-{workers}-{passes}-{adam:d}"
            command = [rubato, "train", "job.yaml", "-w", str(workers), "--equal-shares", "--listen", "127.0.0.1:0",
                       "--out", out]
            subprocess.run(command, env=env, check=True, capture_output=True, timeout=300)
            with open(out + "/metrics.jsonl") as f:
                told = [json.loads(line) for line in f]
            measured = [x["gradient_noise"] for x in told if "gradient_noise" in x][-1]
            with open(out + "/world.json") as f:
                fact = json.load(f)["facts"]["steps"][0].get("gradient_noise")
            expected = closed(mean, square, adam)
            good = abs(measured / expected - 1) <= OFF and fact is not None and abs(fact / measured - 1) < 1e-3
            failed = failed or not good
            print(f"{workers} workers, {passes} passes, {'adam' if adam else 'sgd'}: measured {measured:.2f}, closed form "
                  f"{expected:.2f}, world.json {fact}{'' if good else '   FAIL'}")
    sys.exit(1 if failed else 0)


main()
