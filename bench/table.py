"""Markdown tables from the JSON of `rubato bench NAME --json`: one row a case, a ratio for every peer.

    table.py FILE...       rows of the same benchmark and machine are put together
"""
import json
import sys


def figure(x):
    return "-" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def ratio(r):
    if r["ratio"] is None:
        return "-"
    missed = r["goal"] > 0 and r["ratio"] < r["goal"]
    text = f"{r['ratio']:.2f}"
    return f"**{text}**" if missed else text


def peer(r):
    return (r["peer"] or "-").split(":")[0]


def table(name, machine, rows):
    peers = []
    for r in rows:
        if peer(r) not in peers:
            peers.append(peer(r))
    print(f"`rubato bench {name}` on {machine['cpu']}, {machine['cores']} cores\n")
    print("| case | unit | Rubato | " + " | ".join(f"over {p}" for p in peers) + " |")
    print("|---|---|---:|" + "---:|" * len(peers))
    cases = {}
    for r in rows:
        cases.setdefault((r["case"], r["unit"]), {})[peer(r)] = r
    for (case, unit), by_peer in cases.items():
        ours = figure(next(iter(by_peer.values()))["ours"])
        cells = [ratio(by_peer[p]) if p in by_peer else "" for p in peers]
        print(f"| {case} | {unit} | {ours} | " + " | ".join(cells) + " |")
    print()


def main(paths):
    tables = {}
    for path in paths:
        with open(path) as f:
            bench = json.load(f)
        key = (bench["name"], bench["machine"]["cpu"])
        tables.setdefault(key, (bench["name"], bench["machine"], []))[2].extend(bench["rows"])
    for name, machine, rows in tables.values():
        table(name, machine, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
