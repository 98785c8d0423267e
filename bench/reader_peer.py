"""A peer of `rubato bench reader`: PyTorch's DataLoader over the same files.

    reader_peer.py packed FILE BATCH | tar FILE BATCH | images FOLDER BATCH

It prints "ready N DETAIL" (N settings: ways to read times 0, 2 and 4 workers) or "missing WHY", then
answers lines on standard input: "name K" -> what setting K is; "run K" -> "SECONDS SAMPLES" of one
epoch; "only K" -> "ok", the workers of the others end; "quit".

The index of a file is made before the clock starts, the workers stay from epoch to epoch, and a
way "by batch" reads a whole batch into one tensor: the peer runs at its best.
"""
import ast
import os
import struct
import sys
import time

WORKERS = (0, 2, 4)


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Ranges:
    """Sample i: `size` bytes at places[i] of a file, kept as they are, and a label."""

    def __init__(self, path, shape, places, labels):
        import numpy
        self.fd = os.open(path, os.O_RDONLY)
        self.shape, self.places, self.labels = shape, places, labels
        self.size = int(numpy.prod(shape))

    def __len__(self):
        return len(self.places)

    def label(self, i, tail):
        return self.labels[i] if self.labels is not None else struct.unpack("<q", tail)[0]

    def tail(self):
        return bytearray(0 if self.labels is not None else 8)

    def read(self, i, into, tail):
        want = self.size + len(tail)
        if os.preadv(self.fd, [into, tail], self.places[i]) != want:
            raise OSError(f"sample {i}: fewer than {want} bytes")
        return self.label(i, tail)

    def __getitem__(self, i):
        import torch
        x = torch.empty(self.shape, dtype=torch.uint8)
        return x, self.read(i, memoryview(x.numpy()).cast("B"), self.tail())


class Batches(Ranges):
    def __getitems__(self, indices):
        import torch
        x = torch.empty((len(indices), *self.shape), dtype=torch.uint8)
        view, tail = memoryview(x.numpy()).cast("B"), self.tail()
        y = [self.read(i, view[k * self.size:(k + 1) * self.size], tail)
             for k, i in enumerate(indices)]
        return x, torch.tensor(y)


def as_it_is(batch):
    return batch


def packed(path):
    """Place of every record: the fixed header of data/format/packed.c."""
    with open(path, "rb") as f:
        head = f.read(56 + 104)
    header, _, count, _, record = struct.unpack_from("<IIqqq", head, 8)
    rank, = struct.unpack_from("<I", head, 56 + 28)
    shape = struct.unpack_from(f"<{rank}q", head, 56 + 32)
    return shape, [header + i * record for i in range(count)], None


def tar(path):
    """Place of the array of every .npy member, and the label of the .cls member behind it."""
    import tarfile
    places, labels, shape = [], [], None
    with tarfile.open(path, "r:") as t, open(path, "rb") as f:
        for m in t:
            f.seek(m.offset_data)
            if m.name.endswith(".cls"):
                labels.append(int(f.read(m.size)))
                continue
            head = f.read(10)
            n = struct.unpack_from("<H", head, 8)[0]
            if shape is None:
                shape = ast.literal_eval(f.read(n).decode())["shape"]
            places.append(m.offset_data + 10 + n)
    return shape, places, labels


class Photos:
    """Decode, shorter side to 224, the middle, f32 from 0 to 1."""

    def __init__(self, folder, torchvision):
        self.files = [os.path.join(d, f) for d, _, names in sorted(os.walk(folder))
                      for f in sorted(names)]
        self.torchvision = torchvision

    def __len__(self):
        return len(self.files)

    def pillow(self, path):
        import numpy
        import torch
        from PIL import Image
        im = Image.open(path).convert("RGB")
        w, h = im.size
        s = (224, 224 * h // w) if w < h else (224 * w // h, 224)
        left, top = (s[0] - 224 + 1) // 2, (s[1] - 224 + 1) // 2
        im = im.resize(s, Image.BILINEAR).crop((left, top, left + 224, top + 224))
        a = numpy.asarray(im).transpose(2, 0, 1)
        return torch.from_numpy(numpy.multiply(a, numpy.float32(1 / 255), dtype=numpy.float32))

    def vision(self, path):
        from torchvision.io import decode_jpeg, read_file
        from torchvision.transforms.v2 import functional as F
        x = F.resize(decode_jpeg(read_file(path)), [224], antialias=True)
        return F.center_crop(x, [224, 224]).float().mul_(1 / 255)

    def __getitem__(self, i):
        return (self.vision if self.torchvision else self.pillow)(self.files[i]), 0


def ways(kind, path):
    """(name, dataset, collate) of each way to read."""
    if kind == "images":
        out = [("Pillow", Photos(path, False), None)]
        try:
            import torchvision
            Photos(path, True)[0]
            out.append((f"torchvision {torchvision.__version__}", Photos(path, True), None))
        except (ImportError, RuntimeError):
            pass
        return out
    index = (packed if kind == "packed" else tar)(path)
    return [("by sample", Ranges(path, *index), None), ("by batch", Batches(path, *index), as_it_is)]


def epoch(loader):
    n, t0 = 0, time.perf_counter()
    for x, _ in loader:
        n += len(x)
    return time.perf_counter() - t0, n


def main():
    kind, path, batch = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        import torch
        from torch.utils.data import DataLoader
        settings = [(f"{w or 'no'} workers, {name}",
                     DataLoader(data, batch_size=batch, shuffle=kind == "packed", num_workers=w,
                                collate_fn=collate, persistent_workers=w > 0))
                    for name, data, collate in ways(kind, path) for w in WORKERS]
    except ImportError as e:
        say(f"missing {e}")
        return
    torch.set_num_threads(1)
    say(f"ready {len(settings)} torch {torch.__version__}")
    for line in sys.stdin:
        word = line.split()
        if word[0] == "name":
            say(settings[int(word[1])][0])
        elif word[0] == "run":
            seconds, n = epoch(settings[int(word[1])][1])
            say(f"{seconds:.9f} {n}")
        elif word[0] == "only":
            settings = [s if k == int(word[1]) else None for k, s in enumerate(settings)]
            say("ok")
        else:
            break


if __name__ == "__main__":
    main()
