"""TIC and TAC written a second time, from their definitions: prints bench/order_ranks.txt.

    tictac.py FOLDER_OF_PROFILES > bench/order_ranks.txt

For each layer profile (NAME.graph.txt) one line: name, number of transfers, E of TIC and of TAC at
equal compute and transfer time, then the TIC ranks and the TAC ranks of the transfers in
topological order (of ops that may come next, the one first in the file).
"""
import heapq
import math
import pathlib
import re
import sys


def read(path):
    ops, edges, index = [], [], {}
    for line in path.read_text().splitlines():
        words = line.strip().split(" -- ")
        if line.startswith("\t"):
            edges.append(words)
        elif line.strip():
            fields = dict(re.findall(r"(\w+)=([0-9.e+-]+)", words[-1]))
            ms = 0 if words[1].startswith("Input") else float(fields["forward_compute_time"])
            index[words[0]] = len(ops)
            ops.append((math.floor(ms * 1e6 + 0.5), int(float(fields["parameter_size"]))))
    return ops, [(index[a], index[b]) for a, b in edges]


def topological(n, edges):
    after, missing = [[] for _ in range(n)], [0] * n
    for a, b in edges:
        after[a].append(b)
        missing[b] += 1
    ready, order = [i for i in range(n) if missing[i] == 0], []
    heapq.heapify(ready)
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(ready, j)
    return order, after


def bits(x):
    while x:
        low = x & -x
        yield low.bit_length() - 1
        x ^= low


def tic(dep, n):
    least = [math.inf] * n
    for d in set(dep):
        if d.bit_count() > 1:
            for r in bits(d):
                least[r] = min(least[r], d.bit_count())
    return [sum(1 for x in least if x < mine) for mine in least]


def tac(dep, time, m):
    left, work, order = (1 << len(m)) - 1, {}, []
    for d, t in zip(dep, time):
        work[d] = work.get(d, 0) + t
    while left:
        p, plus, merged = [0] * len(m), [math.inf] * len(m), {}
        for d, t in work.items():
            if d & left:
                merged[d & left] = merged.get(d & left, 0) + t
        work = merged
        for d, t in work.items():
            if d & (d - 1) == 0:
                p[d.bit_length() - 1] += t
            else:
                total = sum(m[r] for r in bits(d))
                for r in bits(d):
                    plus[r] = min(plus[r], total)
        best = None
        for a in bits(left):
            if best is None:
                best = a
                continue
            x, y = min(p[best], m[a]), min(p[a], m[best])
            if x < y or (x == y and plus[a] < plus[best]):
                best = a
        order.append(best)
        left &= ~(1 << best)
    return order


def efficiency(ops, after, order_of_ops, arrival, link):
    """One compute stream that takes the first op in topological order that may start."""
    place = {op: k for k, op in enumerate(order_of_ops)}
    missing = [0] * len(ops)
    for list_ in after:
        for j in list_:
            missing[j] += 1
    now, ready = 0, []
    coming = [(arrival.get(i, 0), place[i]) for i in range(len(ops)) if missing[i] == 0]
    heapq.heapify(coming)
    for _ in ops:
        if not ready and coming[0][0] > now:
            now = coming[0][0]
        while coming and coming[0][0] <= now:
            heapq.heappush(ready, heapq.heappop(coming)[1])
        i = order_of_ops[heapq.heappop(ready)]
        now += ops[i][0]
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                heapq.heappush(coming, (arrival.get(j, 0), place[j]))
    compute = sum(t for t, _ in ops)
    return (compute + link - now) / min(compute, link)


def main():
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.graph.txt")):
        ops, edges = read(path)
        order, after = topological(len(ops), edges)
        number = {op: r for r, op in enumerate(i for i in order if ops[i][1] > 0)}
        dep = [1 << number[i] if i in number else 0 for i in range(len(ops))]
        for i in order:
            for j in after[i]:
                dep[j] |= dep[i]
        time = [t for t, _ in ops]
        speed = float(sum(b for _, b in ops)) / (1.0 * float(sum(time)) * 1e-9)
        m = [math.floor(ops[i][1] / speed * 1e9 + 0.5) for i in number]
        ranks = tic(dep, len(m))
        orders = [sorted(range(len(m)), key=lambda r: (ranks[r], r)), tac(dep, time, m)]
        e = []
        for sent in orders:
            at, now = {}, 0
            for r in sent:
                now += m[r]
                at[list(number)[r]] = now
            e.append(efficiency(ops, after, order, at, sum(m)))
        tac_ranks = [orders[1].index(r) for r in range(len(m))]
        print(path.name.split(".")[0], len(m), "%.6f %.6f" % tuple(e), *ranks, *tac_ranks, flush=True)


main()
