"""The Python package beside what its users have: both sides take turns in one run.

    python3 bench/python.py [--quick] [--only ROW[,ROW...]] [--threads N]

Rows: import, predict, stream, compile, ddp. Prints medians, the spread of the rounds (smallest and largest ratio) and the ratio
theirs / ours, so above 1 Rubato is faster. It needs the package rubato (pip install .); what else lacks is said row by row.
"""
import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

JOB = """
name: %(name)s
model: %(model)s
data: {format: idx, train: [digits/train-images, digits/train-labels]}
train: {optimizer: {sgd: {lr: 0.01}}, batch: 8, epochs: 1, autotune: false}
"""
NETS = {"mlp": "{zoo: mlp, hidden: [512, 512]}", "lenet": "{zoo: lenet}", "resnet18": "{zoo: resnet18}"}


def took(call):
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def turns(name, ours, theirs, rounds):
    """Each side in turns, after one round that does not count."""
    took(ours), took(theirs)
    rows = [(took(ours), took(theirs)) for _ in range(rounds)]
    ratios = [b / a for a, b in rows]
    a, b = (statistics.median(r[k] for r in rows) for k in range(2))
    print("%-34s %10.3f ms  %10.3f ms  %6.2f  (%.2f to %.2f)" % (
        name, a * 1e3, b * 1e3, statistics.median(ratios), min(ratios), max(ratios)), flush=True)


def lacks(row, what):
    print("%-34s not measured: %s" % (row, what), flush=True)


def have(*names):
    import importlib.util
    return [n for n in names if importlib.util.find_spec(n) is None]


def row_import(o):
    def run(text):
        return lambda: subprocess.run([sys.executable, "-c", text], check=True)

    turns("import rubato, beside numpy", run("import rubato"), run("import numpy"), o.rounds)
    alone = statistics.median(took(run("pass")) for _ in range(o.rounds))
    print("%-34s %10.3f ms" % ("python alone", alone * 1e3), flush=True)


def row_predict(o):
    if have("onnxruntime", "numpy"):
        return lacks("predict", "pip install onnxruntime numpy")
    import numpy as np
    import onnxruntime
    import rubato
    from rubato import command
    rng = np.random.default_rng(1)
    program = command.program()
    subprocess.run([program, "data", "make", "digits", "--out", "digits", "--count", "64", "--test", "16"], check=True, capture_output=True)
    for name, model in NETS.items():
        with open(name + ".yaml", "w") as f:
            f.write(JOB % {"name": name, "model": model})
        for words in ["train", name + ".yaml", "--out", name, "--quiet"], ["export", name, "--onnx", name + ".onnx"]:
            p = subprocess.run([program, *words], capture_output=True, text=True, check=False)
            if p.returncode != 0:
                lacks("predict " + name, p.stderr.strip().split("\n")[-1])
                break
        else:
            so = onnxruntime.SessionOptions()
            so.intra_op_num_threads = o.threads
            theirs = onnxruntime.InferenceSession(name + ".onnx", so, providers=["CPUExecutionProvider"])
            ours = rubato.load(name + ".onnx", threads=o.threads)
            x_name = theirs.get_inputs()[0].name
            for batch in 1, 32:
                x = rng.standard_normal((batch, *ours.inputs[0].shape[1:])).astype(np.float32)
                times = max(1, (2000 if name == "mlp" else 400 if name == "lenet" else 20) // batch)
                turns("predict %s, batch %d, %d calls" % (name, batch, times), lambda: [ours.predict(x) for _ in range(times)],
                      lambda: [theirs.run(None, {x_name: x}) for _ in range(times)], o.rounds)


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

    turns("stream of %d JPEG of 256 px" % n, ours(format="images", paths=["jpeg"]), theirs(Pictures()), o.rounds)
    turns("stream of %d rows of npy" % (20 * n), ours(format="npy", paths=["x.npy", "y.npy"]), theirs(Rows()), o.rounds)


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
        with rubato.torch.compile(net, x, threads=o.threads) as fast, torch.no_grad():
            turns("compile %s, batch 1" % name, lambda: fast(x), lambda: net(x), o.rounds)


MEMBER = """
import statistics, sys, time
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
    rows = rows[1:]
    ratios = [b / a for a, b in rows]
    if dist.get_rank() == 0:
        print("%-34s %10.3f ms  %10.3f ms  %6.2f  (%.2f to %.2f)" % (
            name, *(statistics.median(r[k] for r in rows) * 1e3 for k in range(2)), statistics.median(ratios), min(ratios), max(ratios)),
            flush=True)

for size in 1000, 100000, 4000000:
    t = torch.ones(size)
    turns("all-reduce of %d floats, %d ranks" % (size, n), [lambda g=g: dist.all_reduce(t, group=g) for g in groups])
shapes = {"wide": [torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048)],
          "deep": [m for _ in range(12) for m in (torch.nn.Linear(512, 512), torch.nn.ReLU())]}
for name, layers in shapes.items():
    x, nets = torch.randn(32, 512), []
    for g in groups:
        nets.append(torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=g))
    turns("DDP step, %s, %d ranks" % (name, n), [lambda m=m: m(x).square().mean().backward() for m in nets])
dist.destroy_process_group()
"""


def row_ddp(o):
    if have("torch"):
        return lacks("ddp", "pip install torch")
    for n in 2, 4:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", MEMBER, str(o.rounds)], env={
            **os.environ, "RANK": str(r), "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for r in range(n)]
        if any([p.wait() for p in ranks]):
            sys.exit("a rank of the row ddp failed")


def main():
    rows = {"import": row_import, "predict": row_predict, "stream": row_stream, "compile": row_compile, "ddp": row_ddp}
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quick", action="store_true")
    p.add_argument("--only", default=",".join(rows))
    p.add_argument("--threads", type=int, default=1)
    o = p.parse_args()
    o.rounds = 5 if o.quick else 15
    unknown = [r for r in o.only.split(",") if r not in rows]
    if unknown:
        p.error("no row is named %s; there are %s" % (unknown[0], ", ".join(rows)))
    if have("rubato"):
        p.error("the package rubato is not installed: pip install .")
    folder, back = tempfile.mkdtemp(prefix="rubato-bench-"), os.getcwd()
    os.chdir(folder)
    print("%-34s %13s  %13s  %6s" % ("", "rubato", "theirs", "ratio"))
    try:
        for row in o.only.split(","):
            rows[row](o)
    finally:
        os.chdir(back)
        shutil.rmtree(folder)


main()
