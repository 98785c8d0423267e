"""Augmentation, written a second time in numpy: prints the rows of data/augment_test.c.

Two epochs of six images in their own order, seed 5: CRC-32C of all inputs and of all labels.
"""
import math

import numpy as np

from philox import blocks

N, C, H, W, CLASSES, SEED = 6, 3, 5, 7, 3, 5
CHANGE, MIX = 0x6175676D << 32, 0x6D697875 << 32
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
ROWS = [
    dict(flip="HORIZONTAL"),
    dict(flip="VERTICAL"),
    dict(flip="BOTH", crop=2),
    dict(crop=5),
    dict(rotation=30),
    dict(rotation=180, flip="HORIZONTAL", crop=1),
    dict(brightness=0.5),
    dict(contrast=0.7),
    dict(saturation=1),
    dict(brightness=0.2, contrast=0.2, saturation=0.2),
    dict(cutout=3),
    dict(cutout=4),
    dict(mixup=0.2),
    dict(mixup=1.5),
    dict(flip="BOTH", crop=2, rotation=15, brightness=0.3, contrast=0.3, saturation=0.3, cutout=2,
         mixup=0.4),
]


def crc32c(data):
    table = []
    for k in range(256):
        for _ in range(8):
            k = (k >> 1) ^ (0x82F63B78 if k & 1 else 0)
        table.append(k)
    crc = 0xFFFFFFFF
    for b in data:
        crc = (crc >> 8) ^ table[(crc ^ b) & 255]
    return crc ^ 0xFFFFFFFF


def stored(n, scale, shift):
    c, i, j = np.meshgrid(np.arange(C), np.arange(H), np.arange(W), indexing="ij")
    u8 = ((n * 53 + c * 101 + i * 17 + j * 29 + i * j * 7) % 256).astype(np.uint8)
    x = u8.astype(np.float32) * np.float32(scale)
    return x if shift == 0 else x + np.float32(shift)


def spread(w):
    return float(w) * (2 / 2**32) - 1


def below(w, n):
    return (int(w) * n) >> 32


def change(n, epoch, how, scale, shift):
    w = blocks(SEED, CHANGE + epoch, 4 * n, 4).reshape(-1)
    black = np.float32(shift)
    x = stored(n, scale, shift)
    pad, flip = how.get("crop", 0), how.get("flip", "NONE")
    big = np.pad(x, ((0, 0), (pad, pad), (pad, pad)), constant_values=black)
    top, left = below(w[2], 2 * pad + 1), below(w[3], 2 * pad + 1)
    x = big[:, top:top + H, left:left + W]
    if flip in ("HORIZONTAL", "BOTH") and w[0] >> 31:
        x = x[:, :, ::-1]
    if flip in ("VERTICAL", "BOTH") and w[1] >> 31:
        x = x[:, ::-1]
    if how.get("rotation"):
        angle = spread(w[4]) * how["rotation"] / 360 * 2 * math.pi
        cos, sin = float(np.float32(math.cos(angle))), float(np.float32(math.sin(angle)))
        wide = np.pad(x.astype(np.float64), ((0, 0), (20, 20), (20, 20)), constant_values=black)
        y = np.arange(H)[:, None] - (H - 1) / 2
        z = np.arange(W)[None, :] - (W - 1) / 2
        si = z * sin + y * cos + (H - 1) / 2
        sj = z * cos - y * sin + (W - 1) / 2
        i, j = np.floor(si).astype(int), np.floor(sj).astype(int)
        u, v = si - i, sj - j
        i, j = i + 20, j + 20
        upper = (1 - v) * wide[:, i, j] + v * wide[:, i, j + 1]
        lower = (1 - v) * wide[:, i + 1, j] + v * wide[:, i + 1, j + 1]
        x = ((1 - u) * upper + u * lower).astype(np.float32)

    def gray(x):
        x = x.astype(np.float64)
        return 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]

    def scaled(x, middle, strength, word):
        return (middle + (x.astype(np.float64) - middle) * (1 + spread(word) * strength)).astype(np.float32)

    if how.get("brightness"):
        x = scaled(x, float(black), how["brightness"], w[5])
    if how.get("contrast"):
        mean = 0.0
        for g in gray(x).reshape(-1):  # numpy's own sum has another order
            mean += float(g)
        x = scaled(x, mean / (H * W), how["contrast"], w[6])
    if how.get("saturation"):
        x = scaled(x, gray(x)[None], how["saturation"], w[7])
    for c in range(C):
        x = x.copy()
        x[c] = (x[c] - np.float32(MEAN[c])) * np.float32(1 / STD[c])
    side = how.get("cutout", 0)
    top, left = below(w[8], H) - side // 2, below(w[9], W) - side // 2
    x[:, max(top, 0):max(top + side, 0), max(left, 0):max(left + side, 0)] = 0
    y = np.zeros(CLASSES, np.float32)
    y[n % CLASSES] = 1
    return x, y


def gamma(words, shape):
    """Marsaglia and Tsang 2000 on a list of words, which it shortens."""
    def u64():
        low, high = int(words.pop(0)), int(words.pop(0))
        return (high << 32 | low) >> 11

    def above():
        return (u64() + 1) * 2.0**-53

    boost = 1.0
    if shape < 1:
        boost = above() ** (1 / shape)
        shape += 1
    d = shape - 1 / 3
    c = 1 / math.sqrt(9 * d)
    while True:
        radius = math.sqrt(-2 * math.log(above()))
        x = radius * math.cos(2 * math.pi * (u64() * 2.0**-53))
        v = 1 + c * x
        if v <= 0:
            continue
        v = v**3
        if math.log(above()) < 0.5 * x * x + d - d * v + d * math.log(v):
            return d * v * boost


def epochs(how, scale=1 / 255, shift=0.0):
    """Inputs [2N, C, H, W] and labels [2N, CLASSES]."""
    pure = [change(n, e, how, scale, shift) for e in range(2) for n in range(N)]
    if not how.get("mixup"):
        return [np.stack(p) for p in zip(*pure)]
    mixed = []
    for k, (x, y) in enumerate(pure):
        words = list(blocks(SEED, MIX + k // N, (k % N) << 10, 64).reshape(-1))
        own, other = gamma(words, how["mixup"]), gamma(words, how["mixup"])
        m = np.float32(own / (own + other))
        n = np.float32(1) - m
        px, py = pure[k - 1 if k > 0 else N - 1]
        mixed.append((m * x + n * px, m * y + n * py))
    return [np.stack(p) for p in zip(*mixed)]


if __name__ == "__main__":
    for how in ROWS:
        for scale, shift in ((1 / 255, 0.0), (2 / 255, -1.0)):
            x, y = epochs(how, scale, shift)
            assert x.dtype == np.float32 and y.dtype == np.float32
            sets = ", ".join(f".{k} = {'RU_FLIP_' + v if k == 'flip' else v}" for k, v in how.items())
            print(f"    {{{{{sets}}}, {str(shift != 0).lower()}, 0x{crc32c(x.tobytes()):08x}, "
                  f"0x{crc32c(y.tobytes()):08x}}},")
