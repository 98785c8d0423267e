"""Markdown table from the JSON of `rubato bench NAME --json` (one or more files)."""
import json
import sys


def figure(x):
    return "-" if x is None else f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def main(paths):
    for path in paths:
        with open(path) as f:
            bench = json.load(f)
        m = bench["machine"]
        print(f"`rubato bench {bench['name']}` on {m['cpu']}, {m['cores']} cores:\n")
        print("| case | unit | Rubato | peer | its figure | ratio | goal |")
        print("|---|---|---:|---|---:|---:|---:|")
        for r in bench["rows"]:
            ratio = "-" if r["ratio"] is None else f"{r['ratio']:.2f}"
            missed = r["ratio"] is not None and r["goal"] > 0 and r["ratio"] < r["goal"]
            goal = f"{r['goal']:.2f}" if r["goal"] > 0 else "-"
            print(f"| {r['case']} | {r['unit']} | {figure(r['ours'])} | {r['peer'] or '-'} | "
                  f"{figure(r['theirs'])} | {'**' + ratio + '**' if missed else ratio} | {goal} |")
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
