"""The gloo side of `rubato bench collective`: one process a rank, torch.distributed over gloo.

    python3 coll_gloo.py RANK RANKS STORE BYTES_MAX

Reads lines "BYTES TIMES"; every rank answers with the seconds of TIMES all-reduces of floats.
GLOO_SOCKET_IFNAME chooses the interface.
"""
import sys
import time

import torch
import torch.distributed as dist

rank, ranks, store, most = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
torch.set_num_threads(1)
init = store if "://" in store else "file://" + store
dist.init_process_group("gloo", init_method=init, rank=rank, world_size=ranks)
data = torch.zeros(most // 4)
dist.barrier()
print("ready gloo of torch", torch.__version__, flush=True)
for line in sys.stdin:
    if line.startswith("quit"):
        break
    size, times = map(int, line.split())
    part = data[: size // 4]
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(part)
    print("%.9f" % (time.perf_counter() - begin), flush=True)
