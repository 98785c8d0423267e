#!/usr/bin/env python3
"""Objectives per clock of mlr, lasso and k-means, by plain numpy in double precision.

    python3 test/data/apps/oracle.py        writes rows.svm, numbers.csv and golden.txt beside itself

train/app/oracle_test.c holds the apps to these numbers within 1e-6.
"""
import os
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(14)


def put(name, lines):
    with open(os.path.join(here, name), "w") as f:
        f.write("\n".join(lines) + "\n")


def make_rows(n=240, features=30, classes=4):
    x = np.zeros((n, features))
    y = rng.integers(0, classes, n)
    lines = []
    for i in range(n):
        for j in sorted(rng.choice(features, 6, replace=False)):
            x[i, j] = round(rng.normal() + (j % classes == y[i]), 3)
        lines.append(f"{y[i]} " + " ".join(f"{j + 1}:{x[i, j]:g}" for j in range(features) if x[i, j] != 0))
    lines[0] += f" {features + 1}:0" if x[:, features - 1].any() == 0 else ""
    put("rows.svm", lines)
    return x, y, classes


def make_numbers(n=256, p=12):
    q, _ = np.linalg.qr(rng.normal(size=(n, p)))
    x = q * np.sqrt(n) + 0.02 * rng.normal(size=(n, p))
    w = np.array([3, -2, 1, 0, 0, 0.5, 0, 0, 0, -0.2, 0, 0])
    x = np.round(x, 4)
    y = np.round(x @ w + 0.1 * rng.normal(size=n), 4)
    put("numbers.csv", [",".join(f"{v:g}" for v in np.r_[r, t]) for r, t in zip(x, y)])
    return np.loadtxt(os.path.join(here, "numbers.csv"), delimiter=",")


def mlr(x, y, classes, lr, clocks):
    x = np.c_[x, np.ones(len(x))]
    w = np.zeros((x.shape[1], classes))
    out = []
    for _ in range(clocks):
        s = x @ w
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        out.append(-np.log(p[np.arange(len(y)), y]).mean())
        p[np.arange(len(y)), y] -= 1
        w -= lr / len(y) * x.T @ p
    return out


def lasso(x, y, lam, clocks):
    n, w, out = len(y), np.zeros(x.shape[1]), []
    scale = (x * x).sum(0) / n
    for _ in range(clocks):
        r = y - x @ w
        out.append(r @ r / (2 * n) + lam * abs(w).sum())
        z = x.T @ r / n + w * scale
        w = np.sign(z) * np.maximum(abs(z) - lam, 0) / scale
    return out


def kmeans(x, k, clocks):
    c, out = x[:k].copy(), []
    for _ in range(clocks):
        d = ((x[:, None, :] - c[None]) ** 2).sum(2)
        of = d.argmin(1)
        out.append(d.min(1).sum())
        for j in range(k):
            if (of == j).any():
                c[j] = x[of == j].mean(0)
    return out


if __name__ == "__main__":
    golden = []
    x, y, classes = make_rows()
    golden += [("mlr", mlr(x, y, classes, 0.5, 8))]
    d = make_numbers()
    golden += [("lasso", lasso(d[:, :-1], d[:, -1], 0.1, 8)), ("kmeans", kmeans(d, 5, 8))]
    put("golden.txt", [f"{name} " + " ".join(f"{v:.12g}" for v in vs) for name, vs in golden])
