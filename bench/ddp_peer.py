"""A peer of `rubato bench ddp`: one rank of PyTorch DistributedDataParallel over gloo or over Rubato's process group.

    ddp_peer.py --model NAME --batch N --steps K --rank R --world W --address HOST --port P
                [--interface NAME] [--core C] [--bucket-mib M] [--backend gloo|rubato]

Every rank trains on random samples of its own with one thread. Rank 0 prints one line of JSON: the
seconds of every step, the loss of the last, and what ran.
"""
import argparse
import json
import os
import sys
import time


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--rank", type=int, required=True)
    p.add_argument("--world", type=int, required=True)
    p.add_argument("--address", required=True)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--interface", default="")
    p.add_argument("--core", type=int, default=-1)
    p.add_argument("--bucket-mib", type=float, default=25)
    p.add_argument("--backend", default="gloo", choices=["gloo", "rubato"])
    return p.parse_args()


def main():
    args = parse()
    if args.core >= 0:
        os.sched_setaffinity(0, {args.core})
    if args.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = args.interface
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = args.address, str(args.port)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    if args.backend == "rubato":
        import rubato.torch  # registers the process group

    import models
    torch.set_num_threads(1)
    dist.init_process_group(args.backend, rank=args.rank, world_size=args.world)
    module, _, data, optimizer, conv = models.make(args.model)
    torch.manual_seed(100 + args.rank)
    x, y = data(args.batch)
    if conv:
        module = module.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    model = DistributedDataParallel(module, bucket_cap_mb=args.bucket_mib,
                                    gradient_as_bucket_view=True)
    opt = optimizer(model.parameters(), False)
    seconds = []
    for _ in range(args.steps):
        t0 = time.perf_counter()
        opt.zero_grad(set_to_none=True)
        loss = models.loss_of(model(x), y)
        loss.backward()
        opt.step()
        seconds.append(time.perf_counter() - t0)
    if args.rank == 0:
        print(json.dumps({"seconds": seconds, "loss": float(loss.detach()),
                          "detail": f"torch {torch.__version__} DDP {args.backend}"}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
