"""Tensors of torch in safetensors files."""
import json
import os

import torch

NAMES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}


def save(path, tensors, facts):
    """Write {name: tensor} and {name: text}; the file is whole or not there."""
    header, at = {"__metadata__": facts}, 0
    for name, t in tensors.items():
        n = t.numel() * t.element_size()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".new", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            if t.numel() > 0:
                f.write(memoryview(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
        f.flush()
        os.fsync(f.fileno())
    os.replace(path + ".new", path)


def load(path, tensors):
    """Fill {name: tensor} from a file that holds exactly these; returns its texts."""
    with open(path, "rb") as f:
        data = f.read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    facts = header.pop("__metadata__", {})
    if set(header) != set(tensors):
        raise ValueError("%s holds other tensors than this model and optimizer: %s" %
                         (path, ", ".join(sorted(set(header) ^ set(tensors))[:4])))
    with torch.no_grad():
        for name, t in tensors.items():
            h = header[name]
            if h["dtype"] != NAMES[t.dtype] or h["shape"] != list(t.shape):
                raise ValueError("%s: %s is %s %s, expected %s %s" %
                                 (path, name, h["dtype"], h["shape"], NAMES[t.dtype], list(t.shape)))
            if t.numel() > 0:
                a, b = h["data_offsets"]
                t.copy_(torch.frombuffer(bytearray(data[8 + n + a:8 + n + b]), dtype=t.dtype).view(t.shape))
    return facts
