"""Every kind of `rubato explain` as text and as JSON: explain.py PROGRAM

Each figure of the text is a number of the JSON under a key with its unit, as exactly as the text shows it; each word of the
text that holds a digit is part of a string there.
"""
import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request

JOB = """
name: small
model: {zoo: mlp, hidden: [16]}
data: {format: synthetic, generator: gaussian, count: 2048}
train: {batch: 64, epochs: 4, threads: 1}
"""
APP = """
app: mlr
data: {format: libsvm, train: rows.svm}
train: {epochs: 6, seed: 5}
clocks: {stragglers: wait}
"""
FED = """
name: fed
model: {zoo: mlp, hidden: [8]}
data: {format: synthetic, generator: gaussian, count: 512}
train: {batch: 32}
federated: {rounds: 4, per_round: 2, tiers: 2}
"""
UNITS = {"ns": ("s", 1e-9), "us": ("s", 1e-6), "ms": ("s", 1e-3), "s": ("s", 1), "min": ("s", 60), "h": ("s", 3600),
         "B": ("bytes", 1), "KiB": ("bytes", 2**10), "MiB": ("bytes", 2**20), "GiB": ("bytes", 2**30), "%": ("share", 0.01),
         "USD": ("usd", 1)}
WORDS = ("90 % of", "within 5 and 15 %")  # what a column or a quantile is
FIGURE = re.compile(r"(?<![\w.])([+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?: (%s)(?![\w]))?" % "|".join(UNITS))


def unit_of(key):
    if key == "s" or (key.endswith("_s") and not key.endswith("_per_s")):
        return "s"
    for unit, ends in (("bytes", ("bytes",)), ("share", ("share", "ratio", "probability")), ("usd", ("usd",))):
        if any(key == e or key.endswith("_" + e) for e in ends):
            return unit
    return "percent" if key.endswith("_percent") else None


def numbers(x, key="", unit=None):
    """(unit, number) of all that are in it, and its strings."""
    if isinstance(x, dict):
        inside = unit_of(x.get("figure") or "") or unit_of(x.get("objective") or "") or unit
        for k, v in x.items():
            of = inside if k in ("predicted", "measured", "cost") else unit_of(k)
            yield from numbers(v, k, inside if k == "candidates" else of)
            yield k
    elif isinstance(x, list):
        for v in x:
            yield from numbers(v, key, unit)
    elif isinstance(x, (int, float)) and not isinstance(x, bool):
        yield (unit, x)
    elif isinstance(x, str):
        yield x


def once(pairs):
    """A JSON object; no key stands twice."""
    keys = [k for k, _ in pairs]
    assert len(set(keys)) == len(keys), keys
    return dict(pairs)


def compare(kind, text, typed, later=None):
    """`later`: the same, told again behind the text, whose figures are between both."""
    leaves = list(numbers(typed))
    again = leaves if later is None else list(numbers(later))
    if len(again) != len(leaves):
        sys.exit("FAIL: %s has another form behind the text: %s and %s" % (kind, json.dumps(typed), json.dumps(later)))
    strings = sorted({s for s in leaves if isinstance(s, str) and re.search(r"\d", s)}, key=len, reverse=True)
    held = [(s[0], min(s[1], t[1]), max(s[1], t[1])) for s, t in zip(leaves, again) if not isinstance(s, str) and not isinstance(t, str)]
    for s in list(WORDS) + strings + [s.replace("_", " ") for s in strings]:
        text = text.replace(s, " ")
    text = re.sub(r"(\d+) min (\d+) s\b", lambda m: "%d s" % (int(m[1]) * 60 + int(m[2])), text)
    text = re.sub(r"(\d+) h (\d+) min\b", lambda m: "%d min" % (int(m[1]) * 60 + int(m[2])), text)
    missing, n = [], 0
    for m in FIGURE.finditer(text):
        unit, factor = UNITS.get(m[2], (None, 1))
        digits = len(m[1].partition(".")[2].partition("e")[0])
        power = int(m[1].partition("e")[2] or 0)
        value, near = float(m[1]) * factor, 0.51 * 10.0 ** (power - digits) * factor
        near += 0.5e-9 if unit == "s" else 0.5 if unit == "bytes" else 0  # the text rounds to whole ns and bytes first
        found = any(x - near - 1e-9 * abs(x) <= value <= y + near + 1e-9 * abs(y) for u, x, y in held
                    if u == unit or unit is None or (unit, u) == ("share", None))
        found = found or (unit == "share" and any(abs(100 * value - x) <= 100 * near for u, x, _ in held if u == "percent"))
        n += 1
        if not found:
            line = text[text.rfind("\n", 0, m.start()) + 1:text.find("\n", m.end())]
            missing.append("%r in %r" % (m[0], line))
    if missing:
        sys.exit("FAIL: %s: figures of the text that the JSON lacks: %s\n%s" % (kind, "; ".join(missing[:8]), json.dumps(typed)[:6000]))
    return n


def compare_page(program, address, which):
    """The page of models on functions, while no choice is made and no call ends."""
    def ask(*more):
        return subprocess.run([program, "explain", address, which, *more], check=True, stdout=subprocess.PIPE, text=True).stdout

    for _ in range(200):
        before, text, after = json.loads(ask("--json")), ask(), json.loads(ask("--json"))
        if all(a[k] == b[k] for a, b in zip(before["models"], after["models"]) for k in ("choices", "taken", "refused", "calls", "starts")):
            break
    assert compare(which, text, before, after) > 20, text


def main():
    program = os.path.realpath(sys.argv[1])
    work = tempfile.mkdtemp(prefix="rubato-explain-")
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    os.chdir(work)
    os.environ["XDG_CACHE_HOME"] = os.path.join(work, "cache")

    def rubato(*words, told=None):
        done = subprocess.run([program, *words], stdin=told or subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit("FAIL: rubato %s ends with %d: %s" % (" ".join(words), done.returncode, done.stderr[-2000:]))
        return done.stdout

    def start(*words, **more):
        server = subprocess.Popen([program, *words], stdout=subprocess.PIPE, text=True, **more)
        atexit.register(server.kill)
        return server

    told = {}

    def explain(kind, *words, holds=()):
        text, typed = rubato("explain", *words), json.loads(rubato("explain", *words, "--json"), object_pairs_hook=once)
        if typed["schema"] != "rubato.explain/1":
            sys.exit("FAIL: %s has the schema %r" % (kind, typed["schema"]))
        for path in holds:
            at = typed
            for k in path.split("."):
                at = at[int(k)] if k.isdigit() else at.get(k) if isinstance(at, dict) else None
                if at in (None, [], {}):
                    sys.exit("FAIL: %s has no %s: %s" % (kind, path, json.dumps(typed)[:4000]))
        told[kind] = compare(kind, text, typed)
        return typed

    with open("job.yaml", "w") as f:
        f.write(JOB)
    with open("app.yaml", "w") as f:
        f.write(APP)
    with open("fed.yaml", "w") as f:
        f.write(FED)
    with open("rows.svm", "w") as f:
        f.writelines("%d %s\n" % (k % 3, " ".join("%d:1" % c for c in range(1, 20) if (c + k) % 3)) for k in range(300))
    rubato("train", "job.yaml", "--out", "one", "-q")
    rubato("train", "job.yaml", "--out", "two", "-w", "2", "--set", "train.epochs=20", "-q")
    # Of two workers on busy cores one may get all samples; here both keep some, as a plan of sums needs.
    rubato("train", "job.yaml", "--out", "even", "-w", "2", "--set", "train.epochs=20", "--deterministic", "-q")
    rubato("train", "job.yaml", "--out", "pipe", "-w", "2", "--set", "train.parallel=pipeline", "-q")
    rubato("train", "app.yaml", "--out", "app", "-w", "2", "-q")
    rubato("fed", "sim", "fed.yaml", "--clients", "6", "--out", "fed")
    explain("a run", "one", holds=("jobs.0.batch_samples", "steps.0.compute_s", "ops.0.mean_s", "decisions.0.predicted"))
    explain("workers", "two", holds=("steps.0.network_s", "decisions.0.id"))
    for policy in {d["policy"] for d in json.loads(rubato("explain", "two", "--json"))["decisions"]}:
        explain(policy, "two", policy, holds=("decisions.0.answer",))
    with open("two/world.json") as f:
        world = json.load(f)
    for plan in world["plans"]:
        plan["measured"]['a "key" of a longer name ' * 9 + "_s"] = 1.5
    with open("world.json", "w") as f:
        json.dump(world, f)
    explain("a long key", "world.json", "share", holds=("decisions.0.measured.0.measured",))  # of a short plan there is no other
    explain("sums", "even", "sums", holds=("decisions.0.gradients.0.ready_s",))
    explain("order", "even", "order", holds=("decisions.0.parameters.0.arrives_s",))
    explain("an input changed", "two", "share", "--if", "gain_min=0", holds=("decisions.0.candidates",))
    explain("what if", "two", "--if", "network=10Gbit", "--if", "workers=4", holds=("times.0.time_s", "predicted_step_s", "low_s"))
    explain("pipeline", "pipe", "pipe", "--if", "worker2=x0.5", holds=("decisions.0.stages.0.compute_s", "decisions.0.links.0.transfer_s",
                                                                       "decisions.0.if.times_as_long"))
    explain("app", "app", holds=("methods.0.policy",))
    explain("reassign", "app", "reassign", holds=("decisions.0.measured_clock.0.predicted",))
    explain("rounds", "fed", holds=("rounds.0.took_s",))
    with open("token", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
        f.write("a token of this test alone")
    with open("rows.csv", "w") as f:
        f.writelines(",".join(str((k * c) % 7) for c in range(1, 17)) + "\n" for k in range(8))
    server = start("export", "one", "--listen", "127.0.0.1:0", "--token-file", "token", stderr=subprocess.STDOUT)
    at = next((m[1] for m in (re.match(r"serving weights at (\S+) until", line) for line in server.stdout) if m), None)
    with open("rows.csv") as rows:
        rubato("predict", "-", "--from", at, "--token-file", "token", "--record", "came.json", told=rows)
    server.terminate()
    server.communicate()
    explain("tensors that came", "came.json", "order", holds=("decisions.0.pulled.0.arrived_s",))
    server = start("serve", "one", "-l", "0", "--json")
    ready = json.loads(server.stdout.readline())
    for k in range(8):
        body = json.dumps({"id": "mine-%d" % k, "inputs": [{"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [k] * 16}]})
        with urllib.request.urlopen("http://%s/v2/models/%s/infer" % (ready["address"], ready["model"]), body.encode(), 60) as answer:
            answer.read()
    explain("a request", ready["address"], "mine-3", holds=("computed_s", "left_because", "p99_s"))
    explain("a quantile", ready["address"], "p50", holds=("took_s", "buffered_s"))
    server.terminate()
    server.communicate()
    print("ok: %d figures of %d kinds" % (sum(told.values()), len(told)))


if __name__ == "__main__":
    main()
