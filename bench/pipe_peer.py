"""A peer of `rubato bench pipe`: one rank of PyTorch's distributed.pipelining (1F1B) over gloo.

    pipe_peer.py --model NAME --cut LAYER,... --batch N --micro M --steps K
                 --rank R --world W --address HOST --port P

A cut names the layers with which stages begin, as Rubato names them. Every rank computes with one
thread on random samples. Rank 0 prints one line of JSON: the seconds of every step.
"""
import argparse
import ctypes
import gc
import json
import os
import re
import sys
import time


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--cut", required=True)
    for word in ("batch", "micro", "steps", "rank", "world", "port"):
        p.add_argument("--" + word, type=int, required=True)
    p.add_argument("--address", required=True)
    return p.parse_args()


def path_of(model, layer):
    """The module of models.py with the parameters of a layer of Rubato's model of that name."""
    if model == "resnet18":
        return re.sub(r"^layer(\d)\.", lambda m: f"layers.{int(m[1]) - 1}.", layer)
    if model == "gpt":
        layer = layer.removeprefix("transformer.").replace(".mlp.c_proj", ".mlp_proj")
        return layer.replace(".attn.", ".").replace(".mlp.", ".")
    return layer


def wide_mlp(torch, width=2048):
    from collections import OrderedDict
    nn = torch.nn
    sizes = [784, width, width, width, 10]
    layers = OrderedDict(flat=nn.Flatten())
    for k in range(1, 5):
        layers[f"fc{k}"] = nn.Linear(sizes[k - 1], sizes[k])
        if k < 4:
            layers[f"relu{k}"] = nn.ReLU()
    return nn.Sequential(layers), lambda n: (torch.randn(n, 784), torch.randint(0, 10, (n,)))


def forget_peak():
    """From here on the largest resident size counts: making the whole model to cut it does not."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


def main():
    args = parse()
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.address, str(args.port)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline

    import models
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=args.rank, world_size=args.world)
    if args.model == "mlp":
        module, data = wide_mlp(torch)
    else:
        module, _, data, _, _ = models.make(args.model)
    x, y = data(args.batch)
    split = {path_of(args.model, c): SplitPoint.BEGINNING for c in args.cut.split(",")}
    pipe = pipeline(module, mb_args=(x[: args.batch // args.micro],), split_spec=split)
    stage = pipe.build_stage(args.rank, torch.device("cpu"))
    last = args.rank == args.world - 1
    opt = torch.optim.SGD(stage.submod.parameters(), lr=0.01)
    schedule = Schedule1F1B(stage, args.micro, loss_fn=models.loss_of)
    del pipe, module
    forget_peak()
    seconds = []
    for _ in range(args.steps):
        t0 = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        schedule.step(*([x] if args.rank == 0 else []), **({"target": y} if last else {}))
        opt.step()
        seconds.append(time.perf_counter() - t0)
    if args.rank == 0:
        print(json.dumps({"seconds": seconds}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
