"""Checkpoints in a store: copies.py RUBATO S3_STORE.PY

A run whose folder is gone goes on elsewhere from its copies with the bits of a local resume, although the
store is busy, loses connections and lists in pages; large files go in parts. Objects of others stay. A store
that refuses never stops training. 77 (no libcurl) counts as skipped.
"""
import filecmp
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request

rubato, store = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
work = tempfile.mkdtemp(prefix="rubato-copies-")
os.chdir(work)
env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
env.update(AWS_ACCESS_KEY_ID="someone", AWS_SECRET_ACCESS_KEY="something", AWS_REGION="eu-west-1",
           no_proxy="127.0.0.1", HOME=work, XDG_CACHE_HOME=work + "/cache")
failures, servers = [], []


def check(fine, what):
    print("ok:" if fine else "FAIL:", what, flush=True)
    if not fine:
        failures.append(what)


def serve(*options):
    p = subprocess.Popen([sys.executable, store, *options], stdout=subprocess.PIPE, text=True)
    servers.append(p)
    port = p.stdout.readline().strip()
    env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
    return port


def get(port, what, data=None):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(f"http://127.0.0.1:{port}{what}", data=data).read().decode()


def put(port, key, data):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(urllib.request.Request(f"http://127.0.0.1:{port}/_objects{key}", data=data, method="PUT")).read()


def leaks(text):
    return env["AWS_SECRET_ACCESS_KEY"] in text


def train(out, *more, code=0, more_env=None):
    p = subprocess.run([rubato, "train", "job.yaml", "--out", out, *more], env={**env, **(more_env or {})},
                       capture_output=True, text=True, timeout=300)
    if "needs libcurl" in p.stderr or "built without libcurl" in p.stderr:
        sys.exit(77)
    check(p.returncode == code, f"train --out {out} {' '.join(more)} exits {p.returncode}: {p.stderr.strip()[-300:]}"
          if p.returncode != code else f"train --out {out} {' '.join(more)}")
    return p.stderr


def copies():
    p = subprocess.run([rubato, "store", "ls", "--job", "job.yaml", "--json"], env=env, capture_output=True, text=True)
    check(p.returncode == 0, f"store ls exits {p.returncode}: {p.stderr}")
    return json.loads(p.stdout)["copies"] if p.returncode == 0 else []


def newest(out):
    return max(os.listdir(out + "/checkpoints"))


def same(a, b):
    step = newest(a)
    return step == newest(b) and all(
        filecmp.cmp(f"{a}/checkpoints/{step}/{f}", f"{b}/checkpoints/{step}/{f}", shallow=False)
        for f in ("model.safetensors", "optimizer.safetensors"))


def job(hidden, keep=2):
    with open("job.yaml", "w") as f:
        f.write(f"""data: {{format: idx, train: [digits/train-images, digits/train-labels]}}
model: {{zoo: mlp, hidden: {hidden}}}
train: {{steps: 24, batch: 32, threads: 1, optimizer: {{adam: {{lr: 0.001}}}}}}
checkpoint: {{every: 10ms, keep: {keep}, copy_to: "s3://bucket/runs/a b"}}
""")


def wait_for_mute():
    """A store that takes connections and says nothing: what is said of it before the program ends."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        p = subprocess.Popen([rubato, "train", "mute.yaml", "--out", "mute", "--resume-from", "s3://bucket/x"],
                             env={**env, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s.getsockname()[1]}"},
                             stderr=subprocess.PIPE, text=True)
        servers.append(p)
        for line in p.stderr:
            if "waits for s3://bucket/x" in line and p.poll() is None:
                waits.append(line)
                break
        p.kill()
        p.wait()


try:
    subprocess.run([rubato, "data", "make", "digits", "--out", "digits", "--count", "640", "--test", "20"],
                   check=True, capture_output=True)
    port = serve("busy=7", "cut=5", "page=3", "has=runs/a b/3/data.csv")
    job([64], 1)
    # It waits beside all others, which write other jobs.
    shutil.copy("job.yaml", "mute.yaml")
    waits = []
    mute = threading.Thread(target=wait_for_mute)
    mute.start()
    train("one", "--set", "train.steps=12")
    shutil.copytree("one", "local")
    shutil.rmtree("one")
    os.makedirs("far/checkpoints/000000012.tmp")  # of one that was killed
    open("far/checkpoints/000000012.tmp/other", "w").close()
    said = train("far", "--resume-from", "s3://bucket/runs/a b")
    check("the checkpoint of step 12 from" in said, "the step that it goes on from is said")
    train("local", "--resume", "--set", "checkpoint.copy_to=")
    check(same("local", "far"), "the bits of a local resume")
    log = get(port, "/_log")
    files = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
    check(get(port, "/_keys").split("\n") == [f"runs/a b/000000024/{f}" for f in files] + ["runs/a b/3/data.csv"],
          "older copies go, and nothing else")
    check(copies() == [{"copies_in": "s3://bucket/runs/a b", "step": 24, "files": 4, "complete": True}], "store ls lists the copies")
    check(json.loads(get(port, "/_uploads")) == ["theirs"], "uploads of others stay")
    check(log.index("000000012/model.safetensors") < log.index("000000012/manifest.json"), "the manifest comes last")
    said = train("other", "--set", "train.steps=6")
    check("holds a checkpoint of step 24, so of another run" in said, "another run's folder is not written to")
    check("000000024" in get(port, "/_keys") and "000000006" not in get(port, "/_keys"), "it stays as it was")
    train("far", "--resume-from", "s3://bucket/runs/a b", code=2)
    with open("job.yaml") as f:
        before = f.read()
    train(".", "--resume-from", "s3://bucket/runs/a b", code=2)
    with open("job.yaml") as f:
        check(f.read() == before, "a job file is not overwritten")
    check("no complete checkpoint" in train("none", "--resume-from", "s3://bucket/nothing", code=66), "says what is missing")

    serve("has=runs/a b/000000001/model.safetensors")
    check([(c["step"], c["files"], c["complete"]) for c in copies()] == [(1, 1, False)], "a copy without a manifest is no whole one")

    # In parts, of which some are lost.
    port = serve("busy=11", "cut=3", "has=runs/a b/000000001/model.safetensors")
    job([1200, 1200], 1)
    train("large", "--set", "train.steps=3", "--set", "checkpoint.every=0s")
    log = [line.split("&")[0] for line in get(port, "/_log").split("\n") if "partNumber=" in line]
    check(any("partNumber=2" in line for line in log), "large files go in parts")
    check(len(log) > len(set(log)), "parts that were lost go again")
    check("000000001" not in get(port, "/_keys") and json.loads(get(port, "/_uploads")) == [],
          "what a killed run left behind goes")
    train("again", "--set", "train.steps=4", "--set", "checkpoint.every=0s", "--set", "checkpoint.copy_to=",
          "--resume-from", "s3://bucket/runs/a b")
    train("large", "--set", "train.steps=4", "--set", "checkpoint.every=0s", "--set", "checkpoint.copy_to=", "--resume")
    check(same("large", "again"), "the bits of a local resume, in parts")

    # Tensors that lie on two disks are copied as files of the run's folder are.
    port = serve("busy=3")
    job([64], 1)
    with open("job.yaml", "a") as f:
        f.write("storage: [{path: fast, quota: 1MiB}, {path: slow, quota: 50MB}]\n")
    train("stored", "--set", "train.steps=12", "--set", "checkpoint.in_storage=true")
    check(sorted(os.listdir("stored/checkpoints/000000012")) == ["manifest.json", "state.json", "storage.json"], "tensors lie elsewhere")
    check(get(port, "/_keys").split("\n") == [f"runs/a b/000000012/{f}" for f in files], "the copy has all files")
    train("came", "--set", "checkpoint.copy_to=", "--resume-from", "s3://bucket/runs/a b")
    check(same("far", "came"), "a copy of tensors on two disks has the bits of a local resume")

    # Faults of the store while a copy is fetched: those that pass leave the bits of a local resume, the others are one
    # sentence and an exit code, and leave nothing behind that a later try would go on from.
    at = "/runs/a%20b/000000012/manifest.json"

    def fault(name, what, code=0, words="", manifest=None):
        if manifest is not None:
            put(port, at, manifest)
        get(port, f"/_away?{what}")
        said = train(name, "--resume-from", "s3://bucket/runs/a b", "--set", "checkpoint.copy_to=", code=code)
        get(port, "/_away?")
        check(words in said, f"{name}: {words or 'it goes on'}: {said.strip()[-400:] if words not in said else ''}")
        check(not leaks(said), f"{name}: no secret is shown")
        if code == 0:
            check(same("straight", name), f"{name}: the bits of a local resume")
        else:
            check(not os.path.exists(f"{name}/job.yaml") and not glob.glob(f"{name}/checkpoints/*"), f"{name}: nothing is left")

    port = serve("busy=5", "has=runs/a b/3/data.csv")
    job([64], 1)
    train("first", "--set", "train.steps=12", "--set", "checkpoint.every=0s")
    shutil.copytree("first", "straight")
    train("straight", "--resume", "--set", "checkpoint.copy_to=", "--set", "train.steps=24")
    fault("halves", "half")
    fault("drops", "drip")
    fault("gone", "gone", 66, "no such object")
    fault("shut", "shut", 77, "the server refuses access (status 403, AccessDenied)")
    with open("first/checkpoints/000000012/manifest.json", "rb") as f:
        manifest = f.read()
    fault("torn", "", 65, "manifest.json", manifest[:-20])
    fault("outside", "", 65, "outside the folder", manifest.replace(b'"state.json"', b'"../state.json"'))
    fault("flipped", "", 65, "is damaged", re.sub(rb'("state.json"[^}]*"hash":")..', rb"\1zz", manifest))
    fault("lacks", "", 65, "more.bin", manifest.replace(b'"state.json"', b'"more.bin"'))
    put(port, at, manifest)
    fault("whole", "")

    mute.join()
    check(any("for up to 120 s" in line for line in waits), f"what it waits for is said while it waits: {waits}")

    # Refused.
    job([64])
    said = train("refused", more_env={"AWS_SECRET_ACCESS_KEY": "wrong"})
    check("refuses access (status 403, SignatureDoesNotMatch)" in said, "a wrong secret is named")
    check("something" not in said and "wrong" not in said, "no secret is shown")
    said = train("elsewhere", "--set", "checkpoint.copy_to=s3://other/x")
    check("NoSuchBucket" in said and "training goes on" in said, "a bucket that is not there is named")
    said = train("bad", "--set", "checkpoint.copy_to=/disk", code=78)
    check("s3://BUCKET/FOLDER" in said, "an address that is none is refused")
finally:
    for p in servers:
        p.kill()
    shutil.rmtree(work, ignore_errors=True)
sys.exit(1 if failures else 0)
