#!/usr/bin/env python3
"""Equal totals with HolisticTraceAnalysis: totals.py PATH_OF_RUBATO [FILE.json.gz...]

Needs the Python package HolisticTraceAnalysis; ends with 77 where it is missing. A run of two
workers goes through `rubato trace --hta` into HTA: its totals of kernels by name and its compute
time are those of Rubato's ops and sums. The files (default: those of $RUBATO_DATA/hta) are traces
of other programs: Rubato's totals by name are those of HTA.
"""
import collections
import gzip
import json
import logging
import os
import subprocess
import sys
import tempfile

os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"  # else it cuts up to 1 us off each end of a span

JOB = """name: hta
model: {zoo: lenet, width: 4}
data: {format: synthetic, generator: digits, count: 400, test_count: 50}
train: {batch: 32, steps: 20, autotune: false, threads: 1, optimizer: {sgd: {lr: 0.02}}}
"""

KERNELS = {"op": lambda n: ("kernel", n), "sum": lambda n: ("kernel", "ncclKernel " + n)}


def skip(why):
    print("skipped:", why, file=sys.stderr)
    sys.exit(77)


def near(a, b, what):
    """Totals in seconds: equal to a microsecond, since each number that is read is rounded."""
    assert abs(a - b) < 1e-6 + 1e-9 * abs(b), f"{what}: {a} s and {b} s"


def rubato_totals(rubato, path):
    """{rank: {(category, name): [count, seconds]}}"""
    text = subprocess.run([rubato, "trace", path, "--json", "--rows", "0"], check=True,
                          capture_output=True, text=True).stdout
    totals = collections.defaultdict(dict)
    for line in text.splitlines():
        f = json.loads(line)
        if f["schema"] == "rubato.trace.fact/1":
            totals[f["rank"]][(f["category"], f["name"])] = [f["count"], f["total_s"]]
    return totals


def hta_totals(analysis, rank):
    """{(category, name): [count, seconds]} of the spans that HTA keeps."""
    symbols = analysis.t.symbol_table.get_sym_table()
    df = analysis.t.get_trace(rank)
    totals = {}
    for (cat, name), g in df.groupby(["cat", "name"]):
        totals[(symbols[int(cat)], symbols[int(name)])] = [len(g), g["dur"].sum() * 1e-6]
    return totals


def ours_in_hta(rubato, work, TraceAnalysis):
    def run(*args):
        subprocess.run([rubato, *args], cwd=work, check=True, capture_output=True)

    with open(work + "/job.yaml", "w") as f:
        f.write(JOB)
    run("train", "job.yaml", "--out", "run", "-w", "2")
    run("trace", "run", "--hta", "hta")
    totals = rubato_totals(rubato, work + "/run")
    analysis = TraceAnalysis(trace_dir=work + "/hta")
    parts = analysis.get_temporal_breakdown(visualize=False)
    checked = 0
    assert len(totals) == 2 and all(totals.values()), f"totals of ranks {sorted(totals)}, not of two"
    for index, rank in enumerate(sorted(totals)):
        theirs = hta_totals(analysis, index)
        ops = 0
        for (cat, name), (count, seconds) in totals[rank].items():
            got = theirs.get(KERNELS.get(cat, lambda n: (cat, n))(name), [0, 0])
            assert got[0] == count, f"rank {rank}, {name}: {got[0]} and {count} spans"
            near(got[1], seconds, f"rank {rank}, {name}")
            ops += seconds if cat == "op" else 0
            checked += 1
        ours = {KERNELS[cat](name) for cat, name in totals[rank] if cat in KERNELS}
        more = {key for key in theirs if key[0] == "kernel"} - ours
        assert not more, f"rank {rank}: Rubato has no {more}"
        compute = float(parts[parts["rank"] == index]["compute_time(us)"].iloc[0]) * 1e-6
        near(compute, ops, f"rank {rank}, compute time")
        assert any(name.startswith("ncclKernel ") for _, name in theirs), "HTA sees no sums"
    return checked


def theirs_in_ours(rubato, path, TraceAnalysis):
    with (gzip.open if path.endswith(".gz") else open)(path) as f:
        root = json.load(f)
    rank = root.get("distributedInfo", {}).get("rank", 0) if isinstance(root, dict) else 0
    analysis = TraceAnalysis(trace_files={rank: path}, include_last_profiler_step=True)
    theirs = hta_totals(analysis, rank)
    ours = rubato_totals(rubato, path)[rank]
    for key, (count, seconds) in theirs.items():
        assert key in ours, f"{path}: Rubato has no {key}"
        assert ours[key][0] == count, f"{path}, {key}: {ours[key][0]} and {count} spans"
        near(ours[key][1], seconds, f"{path}, {key}")
    return len(theirs), set(ours) - set(theirs)


def main():
    try:
        from hta.trace_analysis import TraceAnalysis
    except ImportError:
        skip("this Python has no HolisticTraceAnalysis (pip install HolisticTraceAnalysis)")
    logging.disable(logging.WARNING)
    rubato, files = os.path.realpath(sys.argv[1]), sys.argv[2:]
    data = os.environ.get("RUBATO_DATA", "") + "/hta"
    if not files and os.path.isdir(data):
        files = [data + "/" + f for f in sorted(os.listdir(data))]
    with tempfile.TemporaryDirectory(prefix="rubato-hta-") as work:
        n = ours_in_hta(rubato, work, TraceAnalysis)
        print(f"a run of two workers: {n} totals by name and 2 of compute time are equal")
        for path in files:
            n, more = theirs_in_ours(rubato, path, TraceAnalysis)
            print(f"{os.path.basename(path)}: {n} totals by name are equal")
            assert all(cat == "Trace" for cat, _ in more), f"{path}: HTA lacks {more}"


main()
