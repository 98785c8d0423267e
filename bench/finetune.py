"""Does fine-tuning here reach what PyTorch reaches? A ResNet-18 of torchvision's form and names is
trained on one task by PyTorch, gets a last layer for another task, and is saved as safetensors; then
both fine-tune all of it by the same recipe: the same samples in the same order, start values and running
statistics from the file.

    python3 bench/finetune.py [--rubato FILE] [--dir DIR] [--train N] [--epochs N] [--threads N] [--seeds N]

Prints the first loss and the test accuracy of both for each seed, and the accuracy of a network
without the file, which shows what the file is worth. The exit status is 1 when a first loss differs by
more than 1e-4, or the mean accuracies by more than half a point.
Without PyTorch and torchvision the script says so and ends with status 0.
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys

SIDE, OLD, NEW, TEST = 72, 8, 6, 1000
TOLERANCE, FIRST = 0.005, 1e-4
BATCH, LR, MOMENTUM, DECAY = 32, 0.01, 0.9, 5e-4
MEAN, STD = 0.5, 0.25


def pictures(np, seed, count, classes, offset):
    """Gratings: the class says the angle; phase, wavelength, colours and noise are drawn."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    angle = np.pi * (y + offset) / classes + rng.normal(0, 0.04, count)
    wave = rng.uniform(5, 12, count)
    phase = rng.uniform(0, 2 * np.pi, count)
    at = np.arange(SIDE)
    along = (np.cos(angle)[:, None, None] * at[None, None, :] + np.sin(angle)[:, None, None] * at[None, :, None])
    grey = np.sin(2 * np.pi * along / wave[:, None, None] + phase[:, None, None])
    colour = rng.uniform(0.15, 0.35, (count, 3, 1, 1)) * rng.choice([-1, 1], (count, 3, 1, 1))
    x = 0.5 + colour * grey[:, None] + rng.normal(0, 0.15, (count, 3, SIDE, SIDE))
    return (np.clip(x, 0, 1) * 255).astype(np.uint8), y.astype(np.int64)


def save_safetensors(path, tensors):
    """As the safetensors package writes them: a JSON header, then the numbers."""
    header, at = {}, 0
    kinds = {"float32": "F32", "int64": "I64"}
    for name, t in tensors.items():
        header[name] = {"dtype": kinds[str(t.dtype)], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            f.write(t.tobytes())


class Peer:
    def __init__(self, torch, torchvision, np, threads):
        self.torch, self.vision, self.np = torch, torchvision, np
        torch.set_num_threads(threads)

    def batch(self, x):
        return (self.torch.from_numpy(x).float() / 255 - MEAN) / STD

    def train(self, net, data, epochs):
        torch, (x, y) = self.torch, data
        steps = -(-len(y) * epochs // BATCH)
        opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
        order = self.np.tile(self.np.arange(len(y)), epochs + 1)
        first = None
        net.train()
        for s in range(steps):
            at = order[s * BATCH:(s + 1) * BATCH]
            opt.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(self.batch(x[at])), torch.from_numpy(y[at]))
            first = loss.item() if first is None else first
            loss.backward()
            opt.step()
            plan.step()
        return first

    def accuracy(self, net, data):
        x, y = data
        net.eval()
        with self.torch.no_grad():
            hits = sum((net(self.batch(x[k:k + 100])).argmax(1).numpy() == y[k:k + 100]).sum()
                       for k in range(0, len(y), 100))
        return hits / len(y)

    def with_new_head(self, old, seed):
        self.torch.manual_seed(seed)
        net = self.vision.models.resnet18(num_classes=NEW)
        kept = {k: v for k, v in old.state_dict().items() if not k.startswith("fc.")}
        net.load_state_dict(kept, strict=False)
        return net


def ours(args, name, seed, weights):
    job = {
        "name": name,
        "model": {"zoo": "resnet18", **weights},
        "data": {"format": "npy", "train": ["x.npy", "y.npy"], "test": ["xt.npy", "yt.npy"],
                 "mean": [MEAN], "std": [STD], "shuffle": "none"},
        "train": {"optimizer": {"sgd": {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}},
                  "schedule": "cosine", "batch": BATCH, "epochs": args.epochs, "seed": seed,
                  "eval_batch": 100, "eval_every": 1000000, "threads": args.threads, "autotune": False},
        "checkpoint": {"every": "0s", "keep": 1},
    }
    out = os.path.join(args.dir, name)
    shutil.rmtree(out, ignore_errors=True)
    with open(os.path.join(args.dir, name + ".json"), "w", encoding="utf-8") as f:
        json.dump(job, f)
    done = subprocess.run([args.rubato, "train", os.path.join(args.dir, name + ".json"), "--out", out, "--json", "-q"],
                          stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"finetune: rubato train {name} failed with {done.returncode}")
    lines = [json.loads(line) for line in done.stdout.strip().splitlines()]
    first = next(x["loss"] for x in lines if x["schema"] == "rubato.train.step/1")
    return first, lines[-1]["metric"]["accuracy"]


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rubato", default=os.path.join(root, "build", "tool", "rubato"))
    p.add_argument("--dir", default="finetune")
    p.add_argument("--train", type=int, default=320)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seeds", type=int, default=3)
    args = p.parse_args()
    try:
        import numpy as np
        import torch
        import torchvision
    except ImportError as e:
        print(f"finetune: not compared, because {e.name} is not installed (pip install torch torchvision numpy)")
        return 0
    os.makedirs(args.dir, exist_ok=True)
    peer = Peer(torch, torchvision, np, args.threads)
    torch.manual_seed(1)
    old = torchvision.models.resnet18(num_classes=OLD)
    for epoch in range(3):
        peer.train(old, pictures(np, 10 + epoch, 512, OLD, 0.5), 1)
    data, test = pictures(np, 2, args.train, NEW, 0), pictures(np, 3, TEST, NEW, 0)
    for name, a in (("x", data[0]), ("y", data[1]), ("xt", test[0]), ("yt", test[1])):
        np.save(os.path.join(args.dir, name + ".npy"), a)
    pairs, near = [], True
    for seed in range(1, args.seeds + 1):
        net = peer.with_new_head(old, seed)
        save_safetensors(os.path.join(args.dir, f"start{seed}.safetensors"),
                         {k: np.ascontiguousarray(v.numpy()) for k, v in net.state_dict().items()})
        first, here = ours(args, f"seed{seed}", seed, {"weights": f"start{seed}.safetensors"})
        first_there = peer.train(net, data, args.epochs)
        pairs.append((here, peer.accuracy(net, test)))
        near = near and abs(first - first_there) <= FIRST
        print(f"seed {seed}: first loss {first:.6f} and {first_there:.6f}, rubato {100 * here:.1f} %, "
              f"PyTorch {100 * pairs[-1][1]:.1f} %", flush=True)
    a, b = (sum(x[k] for x in pairs) / len(pairs) for k in (0, 1))
    print(f"mean of {args.seeds}: rubato {100 * a:.2f} %, PyTorch {100 * b:.2f} %, difference {100 * (a - b):+.2f} points")
    print(f"without the file: rubato {100 * ours(args, 'fresh', 1, {})[1]:.1f} %")
    return 0 if near and abs(a - b) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
