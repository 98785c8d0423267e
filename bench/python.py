"""The Python package beside what its users have: both sides take turns in one run.

    python3 bench/python.py [--quick] [--only WORD[,WORD...]] [--threads N]

Rows: import, train, predict, stream, compile, ddp, elastic, pause. Prints medians, the spread of the rounds (smallest and largest
ratio) and the ratio theirs / ours, so above 1 Rubato is faster. It needs the package rubato (pip install .); what else lacks is said
row by row.
"""
import argparse
import io
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

JOB = """
name: %(name)s
model: %(model)s
data: %(data)s
train: {optimizer: {sgd: {lr: 0.01}}, batch: 8, %(length)s, autotune: false}
"""
DIGITS = "{format: idx, train: [digits/train-images, digits/train-labels]}"
TOKENS = "{format: tokens, train: [tokens.u8], token_bytes: 1, context: 128}"
# Model, data, calls of a round.
NETS = {"of 4 weights": ("{zoo: mlp, hidden: [1]}", "{format: synthetic, generator: gaussian, count: 64}", 2000),
        "mlp": ("{zoo: mlp, hidden: [512, 512]}", DIGITS, 2000), "lenet": ("{zoo: lenet}", DIGITS, 400),
        "resnet18": ("{zoo: resnet18}", DIGITS, 20),
        "gpt": ("{zoo: gpt, layers: 4, heads: 4, width: 256, context: 128, vocab: 256, tie: false}", TOKENS, 20)}


def took(call):
    """Seconds of a call, or those that it says itself."""
    began = time.perf_counter()
    said = call()
    return said if isinstance(said, float) else time.perf_counter() - began


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def row(name, ours, theirs, peer, goal, missing=None):
    """Seconds of each round. With --rows a line for rubato bench python, which makes the table."""
    if "--rows" in sys.argv:
        print(json.dumps({"name": name, "ours": [x * 1e3 for x in ours], "theirs": [x * 1e3 for x in theirs], "peer": peer, "goal": goal,
                          "missing": missing}), flush=True)
        return
    if missing is not None:
        print("%-40s %10.3f ms  %s: %s" % (name, statistics.median(ours) * 1e3, peer, missing), flush=True)
        return
    ratios = [b / a for a, b in zip(ours, theirs)]
    print("%-40s %10.3f ms  %10.3f ms  %6.2f  (%.2f to %.2f)  %s, goal %.2f" % (
        name, statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3, statistics.median(ratios), min(ratios), max(ratios), peer, goal),
        flush=True)


def wanted(name):
    """Is any word of --only in it?"""
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    return any(word in name for word in only.split(","))


def turns(name, ours, theirs, rounds, peer, goal):
    """Each side in turns, after one round that does not count."""
    if wanted(name):
        took(ours), took(theirs)
        rows = [(took(ours), took(theirs)) for _ in range(rounds)]
        row(name, *zip(*rows), peer, goal)


def lacks(name, what):
    if wanted(name):
        print(json.dumps({"name": name, "peer": "all", "missing": what}) if "--rows" in sys.argv else
              "%-40s not measured: %s" % (name, what), flush=True)


def have(*names):
    import importlib.util
    return [n for n in names if importlib.util.find_spec(n) is None]


def row_import(o):
    def run(name):
        text = "import time; t = time.perf_counter(); import %s; print(time.perf_counter() - t)" % name
        return lambda: float(subprocess.run([sys.executable, "-c", text], check=True, capture_output=True).stdout)

    turns("import", run("rubato"), run("numpy"), o.rounds, "import numpy", 1)


def make_data(program):
    subprocess.run([program, "data", "make", "digits", "--out", "digits", "--count", "64", "--test", "16"], check=True, capture_output=True)
    with open("tokens.u8", "wb") as f:
        f.write(bytes(k * k % 251 for k in range(129 * 16)))


def row_train(o):
    """Seconds of the training itself; then the weights of both are compared."""
    from rubato import command
    program = command.program()
    make_data(program)
    write("job.yaml", JOB % {"name": "job", "model": NETS["lenet"][0], "data": DIGITS, "length": "steps: %d" % (200 if o.quick else 1000)})
    there = "import json, rubato; r = rubato.train('job.yaml', out='ours'); list(r); print(r.wait().wall_s)"

    def ours():
        shutil.rmtree("ours", ignore_errors=True)
        return float(subprocess.run([sys.executable, "-c", there], check=True, capture_output=True).stdout)

    def theirs():
        shutil.rmtree("theirs", ignore_errors=True)
        out = subprocess.run([program, "train", "job.yaml", "--out", "theirs", "--json"], check=True, capture_output=True, text=True).stdout
        return float(json.loads(out.splitlines()[-1])["wall_s"])

    turns("train lenet", ours, theirs, o.rounds, "the command", 0.99)
    weights = []
    for run in "ours", "theirs":
        at = os.path.join(run, "checkpoints", sorted(os.listdir(os.path.join(run, "checkpoints")))[-1], "model.safetensors")
        with open(at, "rb") as f:
            weights.append(f.read())
    if weights[0] != weights[1]:
        sys.exit("train lenet: the command made other weights")


def row_predict(o):
    if have("onnxruntime", "numpy"):
        return lacks("predict", "pip install onnxruntime numpy")
    import numpy as np
    import onnxruntime
    import rubato
    from rubato import command
    rng = np.random.default_rng(1)
    program = command.program()
    make_data(program)
    for name, (model, data, calls) in NETS.items():
        write(name + ".yaml", JOB % {"name": name.replace(" ", "-"), "model": model, "data": data, "length": "epochs: 1"})
        for words in ["train", name + ".yaml", "--out", name, "--quiet"], ["export", name, "--onnx", name + ".onnx"]:
            p = subprocess.run([program, *words], capture_output=True, text=True, check=False)
            if p.returncode != 0:
                lacks("predict " + name, p.stderr.strip().split("\n")[-1])
                break
        else:
            so = onnxruntime.SessionOptions()
            so.intra_op_num_threads = o.threads
            theirs = onnxruntime.InferenceSession(name + ".onnx", so, providers=["CPUExecutionProvider"])
            ours = rubato.load(name + ".onnx", threads=o.threads, autotune=True)
            port = ours.inputs[0]
            for batch in 1, 32:
                shape = (batch, *port.shape[1:])
                x = rng.standard_normal(shape).astype(np.float32) if port.dtype == "f32" else rng.integers(0, 256, shape).astype(
                    {"i32": np.int32, "i64": np.int64}[port.dtype])
                times = max(1, calls // batch)
                turns("predict %s, batch %d, %d calls" % (name, batch, times), lambda: [ours.predict(x) for _ in range(times)],
                      lambda: [theirs.run(None, {port.name: x}) for _ in range(times)], o.rounds, "onnxruntime", 1)


def row_stream(o):
    if have("torch", "numpy", "PIL"):
        return lacks("stream", "pip install torch numpy pillow")
    import numpy as np
    import rubato
    import torch
    from PIL import Image
    rng = np.random.default_rng(2)
    n = 200 if o.quick else 1000
    for k in range(n):
        os.makedirs("jpeg/%d" % (k % 4), exist_ok=True)
        base = np.kron(rng.integers(0, 255, (16, 16, 3)), np.ones((16, 16, 1))).astype(np.uint8)
        Image.fromarray(base).save("jpeg/%d/%04d.jpg" % (k % 4, k), quality=90)
    np.save("x.npy", rng.standard_normal((20 * n, 256)).astype(np.float32))
    np.save("y.npy", rng.integers(0, 4, 20 * n))

    class Pictures(torch.utils.data.Dataset):
        def __init__(self):
            self.at = sorted(os.path.join(d, f) for d, _, files in os.walk("jpeg") for f in files)

        def __len__(self):
            return len(self.at)

        def __getitem__(self, k):
            a = np.asarray(Image.open(self.at[k]).convert("RGB"), np.float32).transpose(2, 0, 1) / 255
            return torch.from_numpy(np.ascontiguousarray(a)), int(self.at[k].split("/")[1])

    with tarfile.open("jpeg.tar", "w") as t:
        for k in range(n):
            t.add("jpeg/%d/%04d.jpg" % (k % 4, k), "%04d.jpg" % k)
            label = tarfile.TarInfo("%04d.cls" % k)
            label.size = 1
            t.addfile(label, io.BytesIO(b"%d" % (k % 4)))

    class Packed(torch.utils.data.Dataset):
        def __init__(self):
            with tarfile.open("jpeg.tar") as t:
                found = {m.name: (m.offset_data, m.size) for m in t}
            self.at = [(*found["%04d.jpg" % k], *found["%04d.cls" % k]) for k in range(n)]
            self.file = None

        def __len__(self):
            return n

        def __getitem__(self, k):
            self.file = self.file or open("jpeg.tar", "rb")  # a worker's own
            data = []
            for at, size in zip(self.at[k][::2], self.at[k][1::2]):
                self.file.seek(at)
                data.append(self.file.read(size))
            a = np.asarray(Image.open(io.BytesIO(data[0])).convert("RGB"), np.float32).transpose(2, 0, 1) / 255
            return torch.from_numpy(np.ascontiguousarray(a)), int(data[1])

    class Rows(torch.utils.data.Dataset):
        def __init__(self):
            self.x, self.y = np.load("x.npy", mmap_mode="r"), np.load("y.npy", mmap_mode="r")

        def __len__(self):
            return len(self.x)

        def __getitem__(self, k):
            return torch.from_numpy(np.array(self.x[k])), int(self.y[k])

    def theirs(data):
        loader = torch.utils.data.DataLoader(data, 32, shuffle=True, num_workers=o.threads, persistent_workers=False)
        return lambda: [None for _ in loader]

    def ours(**more):
        return lambda: [None for _ in rubato.data.stream(batch=32, seed=1, threads=o.threads, **more)]

    turns("stream of %d JPEG of 256 px" % n, ours(format="images", paths=["jpeg"]), theirs(Pictures()), o.rounds, "DataLoader", 1.3)
    turns("stream of a tar of %d JPEG" % n, ours(format="tar", paths=["jpeg.tar"]), theirs(Packed()), o.rounds, "DataLoader", 1.3)
    turns("stream of %d rows of npy" % (20 * n), ours(format="npy", paths=["x.npy", "y.npy"]), theirs(Rows()), o.rounds, "DataLoader", 1.3)


def row_compile(o):
    if have("torch", "torchvision", "onnxscript"):
        return lacks("compile", "pip install torch torchvision onnxscript")
    import rubato.torch
    import torch
    import torchvision
    torch.set_num_threads(o.threads)
    for name in ("resnet18", "squeezenet1_1") if o.quick else (
            "alexnet", "vgg11_bn", "resnet18", "mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "densenet121",
            "shufflenet_v2_x1_0", "mnasnet1_0", "regnet_y_400mf", "googlenet", "inception_v3", "convnext_tiny", "swin_t", "vit_b_16"):
        net = getattr(torchvision.models, name)(weights=None).eval()
        x = torch.randn(1, 3, *[299 if name == "inception_v3" else 224] * 2)
        with rubato.torch.compile(net, x, threads=o.threads, autotune=True) as fast, torch.no_grad():
            turns("compile %s, batch 1" % name, lambda: fast(x), lambda: net(x), o.rounds, "torch", 1.3)


MEMBER = """
import json, sys, time
import torch, torch.distributed as dist, rubato.torch
torch.set_num_threads(1)
dist.init_process_group("rubato")
groups = dist.group.WORLD, dist.new_group(backend="gloo")
rounds, n = int(sys.argv[1]), dist.get_world_size()

def turns(name, calls):
    rows = []
    for _ in range(rounds + 1):
        row = []
        for call in calls:
            dist.barrier(groups[1])
            began = time.perf_counter()
            call()
            row.append(time.perf_counter() - began)
        rows.append(row)
    if dist.get_rank() == 0:
        print(json.dumps([name, *zip(*rows[1:])]), flush=True)

for size in 1000, 100000, 4000000:
    t = torch.ones(size)
    turns("ddp all-reduce of %d floats, %d ranks" % (size, n), [lambda g=g: dist.all_reduce(t, group=g) for g in groups])
shapes = {"wide": [torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)],
          "deep": [m for _ in range(12) for m in (torch.nn.Linear(512, 512), torch.nn.ReLU())]}
for name, layers in shapes.items():
    x, nets = torch.randn(32, 512), []
    for g in groups:
        nets.append(torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=g))
    turns("ddp step, %s, %d ranks" % (name, n), [lambda m=m: m(x).square().mean().backward() for m in nets])
dist.destroy_process_group()
"""


def row_ddp(o):
    if have("torch"):
        return lacks("ddp", "pip install torch")
    for n in 2, 4:
        port = free_port()
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", MEMBER, str(o.rounds)], env={
            **os.environ, "RANK": str(r), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}, stdout=subprocess.PIPE, text=True) for r in range(n)]
        for line in ranks[0].stdout:
            name, ours, theirs = json.loads(line)
            row(name, ours, theirs, "gloo", 1)
        if any([p.wait() for p in ranks]):
            sys.exit("a rank of the row ddp failed")


# One member: argv has the way (rubato, gloo or torchft). A line for each step that counts: when, and who.
SCRIPT = """
import os, sys, time
import torch
torch.set_num_threads(1)
torch.manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(4096, 512))
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
step, saved, counts = 0, "saved.pt", lambda: True
if sys.argv[1] == "rubato":
    import rubato.torch
    loader = torch.utils.data.DataLoader(data, batch_size=256, shuffle=True)
    model, opt, loader = rubato.torch.elastic(model, opt, loader)
elif sys.argv[1] == "torchft":
    import torch.distributed as dist, torchft, torchft.ddp
    store, plain, plain_opt = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), model, opt
    def load(state):
        plain.load_state_dict(state[0])
        plain_opt.load_state_dict(state[1])
    manager = torchft.Manager(pg=torchft.ProcessGroupGloo(), load_state_dict=load, state_dict=lambda: (plain.state_dict(), plain_opt.state_dict()),
                              min_replica_size=1, rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, replica_id=os.environ["RANK"])
    # Its other one, with torch's reducer, ends the survivors with an AssertionError (0.2.0 with torch 2.14).
    model, opt = torchft.ddp.PureDistributedDataParallel(manager, model), torchft.Optimizer(manager, opt)
    sampler = torchft.DistributedSampler(data, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), group_rank=0, num_replicas=1)
    loader = torch.utils.data.DataLoader(data, batch_size=256 // int(os.environ["WORLD_SIZE"]), sampler=sampler)
    last = [0]
    def counts():
        before, last[0] = last[0], manager.current_step()
        return last[0] > before
else:
    import torch.distributed as dist
    dist.init_process_group("gloo")
    if os.path.exists(saved):
        model_state, opt_state, step = torch.load(saved)
        model.load_state_dict(model_state)
        opt.load_state_dict(opt_state)
    whole, model = model, torch.nn.parallel.DistributedDataParallel(model)
    sampler = torch.utils.data.DistributedSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=256 // dist.get_world_size(), sampler=sampler)
for epoch in range(100000):
    for (x,) in loader:
        opt.zero_grad()
        (model(x) - x).square().mean().backward()
        opt.step()
        step += 1
        if sys.argv[1] == "gloo" and step % 10 == 0 and dist.get_rank() == 0:
            torch.save((whole.state_dict(), opt.state_dict(), step), saved + ".part")
            os.replace(saved + ".part", saved)
        if counts():
            os.write(1, b"%.6f %d\\n" % (time.monotonic(), os.getpid()))
"""
# The processes of torchft, and the service by which they find each other.
TORCHFT = """
import os, signal, subprocess, sys
from torchft.coordination import LighthouseServer
house = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
n = int(sys.argv[1])
all = [subprocess.Popen([sys.executable, "script.py", "torchft"], env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(n),
       "TORCHFT_LIGHTHOUSE": house.address()}) for r in range(n)]
def end(*_):
    for p in all:
        p.kill()
signal.signal(signal.SIGTERM, end)
for p in all:
    p.wait()
"""


class Crew:
    """Processes of SCRIPT; `steps`: the times of each one's steps."""

    def __init__(self, way, n):
        from rubato import command
        write("script.py", SCRIPT)
        for old in "saved.pt", "saved.pt.part":
            if os.path.exists(old):
                os.unlink(old)
        start = {"rubato": [command.program(), "launch", "-w", str(n), "--", sys.executable, "script.py", way],
                 "torchft": [sys.executable, "-c", TORCHFT, str(n)],
                 "gloo": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n), "--max-restarts", "2",
                          "--monitor-interval", "0.1", "--standalone", "script.py", way]}[way]
        self.steps, self.way = {}, way
        # Gloo's groups that torchrun starts again would find the addresses of those before in a store that they share.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.p = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)

    def until(self, count, pids=None, n=1):
        """Read until `n` processes, of these if any are named, have so many steps."""
        while sum(len(s) >= count for pid, s in self.steps.items() if pids is None or pid in pids) < n:
            line = self.p.stdout.readline()
            if not line:
                raise EOFError("the processes over %s ended" % self.way)
            at, pid = line.split()
            self.steps.setdefault(int(pid), []).append(float(at))

    def end(self):
        self.p.terminate()  # it ends the others
        self.p.stdout.read()
        self.p.wait()
        self.p.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def median_step(steps):
    return statistics.median(b - a for a, b in zip(steps, steps[1:]))


def row_elastic(o):
    if have("torch"):
        return lacks("elastic", "pip install torch")

    def side(way, n):
        def run():
            with Crew(way, n) as c:
                c.until(60 if o.quick else 200, n=n)
            return max(median_step(s[20:]) for s in c.steps.values())
        return run

    for n in 2, 4:
        turns("elastic step, %d members" % n, side("rubato", n), side("gloo", n), 2 if o.quick else o.rounds, "DDP over gloo", 1)


def row_pause(o):
    """The pause of one of four, beyond a step, when another is killed: to the next step of a survivor, or of who came for it."""
    name = "pause when one of four is killed"
    if have("torch"):
        return lacks("pause", "pip install torch")
    if not wanted(name):
        return None

    def side(way):
        with Crew(way, 4) as c:
            c.until(30, n=4)
            before = dict(c.steps)
            victim = max(before)
            others = [pid for pid in before if pid != victim]
            os.kill(victim, signal.SIGKILL)
            if way != "gloo":
                c.until(max(map(len, before.values())) + 30, others, 3)
                if set(c.steps) != set(before):
                    sys.exit("a survivor has another number")
                pause = max(max(b - a for a, b in zip(c.steps[p][20:], c.steps[p][21:])) for p in others)
            else:
                c.until(1, n=len(before) + 1)
                pause = min(s[0] for p, s in c.steps.items() if p not in before) - max(s[-1] for s in before.values())
        return pause - statistics.median(median_step(s) for s in before.values())

    for peer, way in ("torchrun", "gloo"), ("torchft", "torchft"):
        if have(way) and way == peer:
            lacks(name, "pip install torchft")
            continue
        ours, theirs, missing = [], [], None
        for _ in range(1 if o.quick else 5):
            ours.append(side("rubato"))
            try:
                theirs.append(side(way))
            except EOFError:
                missing = "it did not bring its processes back"
                break
        row(name, ours, theirs, peer, 10, missing)


def main():
    rows = {"import": row_import, "train": row_train, "predict": row_predict, "stream": row_stream, "compile": row_compile, "ddp": row_ddp,
            "elastic": row_elastic, "pause": row_pause}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", default="", help="rows whose name has one of these words")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rows", action="store_true", help="a line of JSON for each row")
    o = p.parse_args()
    o.rounds = 5 if o.quick else 15
    named = [r for r in rows if any(r in word for word in o.only.split(","))]
    if have("rubato"):
        lacks(o.only or "python", "pip install .")
        return
    folder, back = tempfile.mkdtemp(prefix="rubato-bench-"), os.getcwd()
    os.chdir(folder)
    try:
        for name in named or rows:
            rows[name](o)
    finally:
        os.chdir(back)
        shutil.rmtree(folder)


main()
