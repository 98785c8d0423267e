"""One member for test/lab/pytorch.py: pytorch_member.py HOW, a JSON object. Prints what became of its training as JSON.

The gradient of `seen` counts how often each sample was computed.
"""
import contextlib
import json
import math
import os
import signal
import sys
import time

import torch

import rubato.torch as rt


class Net(torch.nn.Module):
    def __init__(self, n, norm):
        super().__init__()
        between = [torch.nn.BatchNorm1d(16)] if norm else []
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 16), *between, torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.seen = torch.nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return self.net(x)


class Samples(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([i / self.n * 2 - 1])
        return x, torch.sin(3 * x), i


class Quiet:
    """A stream or an event of a GPU, where everything is done at once."""

    def __init__(self, *_):
        pass

    def done(self, *_):
        return True

    record = query = synchronize = wait_event = wait_stream = done


def pretend():
    """A GPU whose memory is this process's: what elastic() does for one, without one."""
    torch.cuda.Stream = torch.cuda.Event = torch.cuda.current_stream = Quiet
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.Tensor.record_stream = Quiet.done
    zeros = torch.zeros
    rt.torch.zeros = lambda *a, pin_memory=False, **k: zeros(*a, **k)
    rt._away = rt.Away


def main():
    how = json.loads(sys.argv[1])
    if how.get("away", False):
        pretend()
    n = how.get("samples", 1024)
    torch.manual_seed(how.get("seed", 0))
    torch.set_num_threads(1)
    model = Net(n, how.get("norm", True)).to(getattr(torch, how.get("dtype", "float32")))
    kind = model.seen.dtype
    mask = torch.tensor([torch.finfo(torch.float32).min, -math.inf, math.inf, 1 / 3])  # nothing of it is lost on its way
    model.register_buffer("mask", mask.clone(), persistent=False)
    counts = how.get("optimizer", "SGD") == "SGD"
    groups = [{"params": model.net.parameters(), "lr": 0.01}, {"params": [model.seen], "lr": 1.0, "momentum": 0}][:1 + counts]
    opt = getattr(torch.optim, how.get("optimizer", "SGD"))(groups, **how.get("options", {"momentum": 0.9}))
    loader = torch.utils.data.DataLoader(Samples(n), batch_size=64, shuffle=True, num_workers=how.get("fetchers", 0))
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, [lambda k: 0.99 ** (k // 10), lambda k: 1][:1 + counts])
    model, opt, loader = rt.elastic(model, opt, loader, scheduler=schedule, seed=3, checkpoint=how.get("checkpoint"),
                                    every=how.get("every", 0.2), resume=how.get("resume", False))
    turns, last, longest = 0, None, 0.0
    for _ in range(how["epochs"]):
        for x, y, i in loader:
            time.sleep(0 if "fast" in how and os.path.exists(how["fast"]) else how.get("sleep", 0))
            opt.zero_grad()
            loss = ((model(x.to(kind)) - y) ** 2).mean() - 64 * model.seen[i].mean()
            loss.backward()
            opt.step()
            schedule.step()
            turns += 1
            now = time.monotonic()
            longest = max(longest, now - last) if turns > 20 else 0.0
            last = now
            print("turn", turns, file=sys.stderr, flush=True)
    if how.get("last"):  # the founder dies behind its last step, the others end when they have noticed
        if how["seed"] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(30000):
            if loader.member.team.leads():
                break
            time.sleep(0.01)
    assert torch.equal(model.mask, mask), model.mask
    model.eval()
    with torch.no_grad():
        x = torch.linspace(-1, 1, 101).unsqueeze(1)
        error = ((model(x.to(kind)) - torch.sin(3 * x)) ** 2).mean().item()
    net = [v for k, v in model.state_dict().items() if k != "seen"]
    sys.stdout.write(json.dumps({"pid": os.getpid(), "turns": turns, "longest": longest, "error": error, "lr": opt.param_groups[0]["lr"],
                                 "net": [x for v in net for x in v.reshape(-1).tolist()], "seen": sorted(set(model.seen.tolist()))}) + "\n")


main()
