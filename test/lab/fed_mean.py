"""Federated averaging by itself, to compare with: data of the clients, and the model after so many rounds.

    fed_mean.py make [NAME...]           some.csv, test.csv, alice.csv, bob.csv, carol.csv, NAME.csv
    fed_mean.py check RUN ROUNDS NAME... exit code 1 unless RUN's model is the one computed here; with FedProx,
                                         server momentum or the median of each value as PROX, MOMENTUM, MEDIAN say;
                                         with LISTED=1 the clients of each round are those of federation.jsonl
"""

import json
import math
import os
import random
import statistics
import struct
import sys

PROX, MOMENTUM = float(os.environ.get("PROX", 0)), float(os.environ.get("MOMENTUM", 0))
BATCH, EPOCHS, RATE, FEATURES, CLASSES = 32, 2, 0.2, 6, 3


def make(more):
    draw = random.Random(1)
    truth = [[draw.gauss(0, 1) for _ in range(FEATURES)] for _ in range(CLASSES)]
    sizes = {"some": 40, "test": 300, "alice": 210, "bob": 333, "carol": 64}
    sizes.update((name, 40 + 7 * k) for k, name in enumerate(more))
    for name, n in sizes.items():
        with open(name + ".csv", "w") as f:
            f.write(",".join("abcdef") + ",label\n")
            for _ in range(n):
                x = [round(draw.gauss(0, 1), 6) for _ in range(FEATURES)]
                score = [sum(a * b for a, b in zip(row, x)) for row in truth]
                f.write(",".join("%.6f" % v for v in x) + ",%d\n" % score.index(max(score)))


def samples(name):
    with open(name + ".csv") as f:
        rows = [line.strip().split(",") for line in f][1:]
    return [([float(v) for v in r[:-1]], int(r[-1])) for r in rows]


def tensors(run, step):
    with open("%s/checkpoints/%09d/model.safetensors" % (run, step), "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            out[name] = (t["shape"], list(struct.unpack("<%df" % ((b - a) // 4), data[a:b])))
    return out


def layers(model):
    """[(weight rows of outputs, bias)] in the order of the network, and the names."""
    names = sorted(n[: -len(".weight")] for n in model if n.endswith(".weight"))
    out = []
    for name in names:
        (rows, cols), w = model[name + ".weight"]
        out.append(([w[r * cols : (r + 1) * cols] for r in range(rows)], list(model[name + ".bias"][1])))
    return names, out


def step(net, batch, sent):
    (w1, b1), (w2, b2) = net
    g1 = [[0.0] * len(w1[0]) for _ in w1]
    g2 = [[0.0] * len(w2[0]) for _ in w2]
    h1, h2 = [0.0] * len(b1), [0.0] * len(b2)
    for x, y in batch:
        a = [sum(w * v for w, v in zip(row, x)) + b for row, b in zip(w1, b1)]
        h = [max(v, 0.0) for v in a]
        z = [sum(w * v for w, v in zip(row, h)) + b for row, b in zip(w2, b2)]
        top = max(z)
        e = [math.exp(v - top) for v in z]
        d2 = [v / sum(e) / len(batch) for v in e]
        d2[y] -= 1.0 / len(batch)
        d1 = [sum(d2[k] * w2[k][j] for k in range(len(z))) if a[j] > 0 else 0.0 for j in range(len(a))]
        for k, d in enumerate(d2):
            h2[k] += d
            for j, v in enumerate(h):
                g2[k][j] += d * v
        for j, d in enumerate(d1):
            h1[j] += d
            for i, v in enumerate(x):
                g1[j][i] += d * v
    for w, g, b, h, (w0, b0) in ((w1, g1, b1, h1, sent[0]), (w2, g2, b2, h2, sent[1])):
        for r, row in enumerate(w):
            b[r] -= RATE * (h[r] + PROX * (b[r] - b0[r]))
            for c in range(len(row)):
                row[c] -= RATE * (g[r][c] + PROX * (row[c] - w0[r][c]))


def copy(net):
    return [([list(r) for r in w], list(b)) for w, b in net]


def numbers(net):
    return [v for w, b in net for v in [x for r in w for x in r] + b]


def fill(net, values):
    at = iter(values)
    return [([[next(at) for _ in r] for r in w], [next(at) for _ in b]) for w, b in net]


def check(run, rounds, names):
    _, net = layers(tensors(run, 0))
    data = {name: samples(name) for name in names}
    took_part = [names] * rounds
    if os.environ.get("LISTED"):
        with open(run + "/federation.jsonl") as f:
            lines = {r["round"]: r["clients"] for r in map(json.loads, f)}  # one that is repeated: as it was kept
        took_part = [[c["name"] for c in lines[k + 1]] for k in range(rounds)]
    speed = [0.0] * len(numbers(net))
    for clients in took_part[:rounds]:
        total = sum(len(data[name]) for name in clients)
        mean = [0.0] * len(numbers(net))
        updates = []
        for d in (data[name] for name in clients):
            mine = copy(net)
            for _ in range(EPOCHS):
                for at in range(0, len(d), BATCH):
                    step(mine, d[at : at + BATCH], net)
            updates.append(numbers(mine))
            mean = [m + len(d) / total * v for m, v in zip(mean, numbers(mine))]
        if os.environ.get("MEDIAN"):
            mean = [statistics.median(v) for v in zip(*updates)]
        if MOMENTUM:
            before = numbers(net)
            speed = [MOMENTUM * s + m - b for s, m, b in zip(speed, mean, before)]
            mean = [b + s for b, s in zip(before, speed)]
        net = fill(net, mean)
    _, theirs = layers(tensors(run, rounds))
    far = max(abs(a - b) for a, b in zip(numbers(net), numbers(theirs)))
    print("largest difference after %d rounds: %.3g" % (rounds, far))
    return 0 if far < 1e-5 else 1


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2:])
    else:
        sys.exit(check(sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
