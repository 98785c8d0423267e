#!/usr/bin/env python3
"""Write the small files of test/data/reader with programs that are not ours: numpy, Pillow, webdataset,
TensorBoard's record writer, protobuf. Expected pixels are Pillow's. Run it again only to add cases.

    python3 test/data/make_reader.py test/data/reader
"""
import gzip
import io
import os
import struct
import sys

import numpy as np
import PIL.Image
import webdataset
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorboard.summary.writer.record_writer import RecordWriter

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
rng = np.random.default_rng(7)


def path(name):
    os.makedirs(os.path.dirname(os.path.join(out, name)) or ".", exist_ok=True)
    return os.path.join(out, name)


def save(name, data):
    with open(path(name), "wb") as f:
        f.write(data)


def idx(a, code):
    return struct.pack(">BBBB", 0, 0, code, a.ndim) + struct.pack(f">{a.ndim}I", *a.shape) + a.tobytes()


# IDX: 5 images of 4 x 3, labels; floats, big-endian; the same packed
images = (np.arange(60) * 4).astype(np.uint8).reshape(5, 4, 3)
labels = np.array([3, 0, 1, 3, 2], np.uint8)
save("images.idx", idx(images, 8))
save("labels.idx", idx(labels, 8))
save("floats.idx", idx((np.arange(10) / 4 - 1).astype(">f4").reshape(5, 2), 13))
save("images.idx.gz", gzip.compress(idx(images, 8), mtime=0))

# CIFAR-10: 3 records: label, then pixel i of record r is (i * 7 + r) % 256
pixels = (np.arange(3072)[None] * 7 + np.arange(3)[:, None]) % 256
save("cifar10.bin.gz", gzip.compress(np.concatenate([np.array([[9], [0], [4]]), pixels], 1)
                                     .astype(np.uint8).tobytes(), mtime=0))

# numpy
np.save(path("x.npy"), (np.arange(12) / 8).reshape(6, 2))
np.save(path("y.npy"), np.array([0, 2, 1, 1, 0, 2], np.int32))
np.savez_compressed(path("both.npz"), x=(np.arange(12) / 8).astype(np.float32).reshape(6, 2),
                    y=np.array([0, 2, 1, 1, 0, 2]))

# tokens
np.arange(1000, 1023, dtype="<u2").tofile(path("tokens.u16"))

# images
def picture(w, h, k):
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([128 + 100 * np.sin(x / 5 + k), 128 + 100 * np.cos(y / 4 + k),
                  (x * 3 + y * 2 + 40 * k) % 256], -1)
    return PIL.Image.fromarray(a.clip(0, 255).astype(np.uint8))


def encode(im, kind, **kw):
    b = io.BytesIO()
    im.save(b, kind, **kw)
    return b.getvalue()


def planes(im):
    return np.asarray(im.convert("RGB")).transpose(2, 0, 1).tobytes()


def resized(im, side):
    w, h = im.size
    size = (side, side * h // w) if w < h else (side * w // h, side)
    im = im.convert("RGB").resize(size, PIL.Image.BILINEAR)
    left, top = (size[0] - side + 1) // 2, (size[1] - side + 1) // 2
    return im.crop((left, top, left + side, top + side))


files = {
    "photos/cat/a.jpg": encode(picture(40, 30, 0), "JPEG", quality=90),
    "photos/cat/b.png": encode(picture(31, 33, 1), "PNG"),
    "photos/dog/c.jpg": encode(picture(36, 36, 2).convert("L"), "JPEG", quality=85),
    "photos/dog/d.png": encode(picture(50, 24, 3).convert("P", palette=PIL.Image.ADAPTIVE, colors=32), "PNG"),
    "photos/dog/e.jpg": encode(picture(70, 64, 4), "JPEG", quality=90, subsampling=0, progressive=True),
}
expected16 = b""
for name, data in files.items():
    save(name, data)
    expected16 += planes(resized(PIL.Image.open(io.BytesIO(data)), 16))
save("photos16.rgb", expected16)
expected20 = b"".join(planes(resized(PIL.Image.open(io.BytesIO(d)), 20)) for d in files.values())
save("photos20.rgb", expected20)
same = [encode(picture(24, 20, k), "PNG" if k % 2 else "JPEG") for k in range(3)]
for k, data in enumerate(same):
    save(f"same/only/{k}.{'png' if k % 2 else 'jpg'}", data)
save("same.rgb", b"".join(planes(PIL.Image.open(io.BytesIO(d))) for d in same))

# WebDataset: two shards of two samples
for shard in range(2):
    with webdataset.TarWriter(path(f"shard-{shard:03d}.tar")) as w:
        for k in range(2):
            i = 2 * shard + k
            w.write({"__key__": f"sample{i:04d}", "png": encode(picture(12, 10, i), "PNG"), "cls": i % 3,
                     "txt": f"text {i}"})
save("shards.rgb", b"".join(planes(picture(12, 10, i)) for i in range(4)))
with webdataset.TarWriter(path("arrays.tar")) as w:
    for i in range(3):
        w.write({"__key__": "deep/folder/" + "long" * 30 + f"{i}", "cls": i,
                 "npy": (np.arange(6) + i).astype(np.float64).reshape(2, 3)})

# TFRecord of tf.Example, whose message type is declared here
file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")


def message(name, *fields):
    m = file.message_type.add(name=name)
    for k, (n, t, repeated, tn) in enumerate(fields, 1):
        f = m.field.add(name=n, number=k, type=t, label=3 if repeated else 1)
        if tn:
            f.type_name = ".t." + tn
    return m


message("BytesList", ("value", 12, True, None))
message("FloatList", ("value", 2, True, None))
message("Int64List", ("value", 3, True, None))
message("Feature", ("bytes_list", 11, False, "BytesList"), ("float_list", 11, False, "FloatList"),
        ("int64_list", 11, False, "Int64List"))
features = message("Features", ("feature", 11, True, "Features.FeatureEntry"))
entry = features.nested_type.add(name="FeatureEntry")
entry.options.map_entry = True
entry.field.add(name="key", number=1, type=9, label=1)
entry.field.add(name="value", number=2, type=11, label=1, type_name=".t.Feature")
message("Example", ("features", 11, False, "Features"))
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Example = message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))

with open(path("images.tfrecord"), "wb") as f:
    w = RecordWriter(f)
    for i in range(3):
        e = Example()
        e.features.feature["image/encoded"].bytes_list.value.append(encode(picture(12, 10, i), "PNG"))
        e.features.feature["image/class/label"].int64_list.value.append(2 - i)
        e.features.feature["image/format"].bytes_list.value.append(b"png")
        e.features.feature["image/height"].int64_list.value.append(10)
        w.write(e.SerializeToString())
with open(path("lists.tfrecord"), "wb") as f:
    w = RecordWriter(f)
    for i in range(4):
        e = Example()
        e.features.feature["dense"].float_list.value.extend([i + 0.5, -i, 3])
        e.features.feature["ids"].int64_list.value.extend([i, -1, 1 << 40] * 120)
        e.features.feature["label"].float_list.value.append(i / 4)
        w.write(e.SerializeToString())
