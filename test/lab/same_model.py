"""Are the newest checkpoints of two runs the same model? same_model.py RUN RUN TOLERANCE: exit code 1 unless
every value differs by at most TOLERANCE times its size, or by TOLERANCE where that is below 1."""

import json
import os
import struct
import sys


def tensors(run):
    steps = sorted(s for s in os.listdir(run + "/checkpoints") if s.isdigit())
    with open("%s/checkpoints/%s/model.safetensors" % (run, steps[-1]), "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__" and t["dtype"] == "F32":
            a, b = t["data_offsets"]
            out[name] = struct.unpack("<%df" % ((b - a) // 4), data[a:b])
    return steps[-1], out


(step, one), (other_step, other) = tensors(sys.argv[1]), tensors(sys.argv[2])
if step != other_step or not one or one.keys() != other.keys():
    sys.exit("step %s of %s and step %s of %s hold other tensors" % (step, sys.argv[1], other_step, sys.argv[2]))
worst = max(abs(a - b) / max(1.0, abs(b)) for n in one for a, b in zip(one[n], other[n]))
if not worst <= float(sys.argv[3]):
    sys.exit("the models of %s and %s differ by %g" % (sys.argv[1], sys.argv[2], worst))
