"""The order of samples, written a second time: prints the rows of data/order_test.c.

Both orders are contracts: a resumed run and every worker must see the same samples at the same
positions, whatever the version of the program.
"""
import math

from philox import blocks

ROUNDS = 8


def keys(seed, stream, index):
    return [int(w) for w in blocks(seed, stream, 2 * index, 2).reshape(-1)]


def mix(key, x, side):
    h = ((x ^ key) * 0x9E3779B97F4A7C15) % 2**64
    h ^= (h >> 29) ^ (key << 32)
    h = h * 0xBF58476D1CE4E5B9 % 2**64
    return ((h >> 32) * side) >> 32


def permuted(seed, stream, index, count, position):
    side = math.isqrt(count - 1) + 1
    at = position
    while True:
        hi, lo = divmod(at, side)
        for k in keys(seed, stream, index):
            hi, lo = lo, (hi + mix(k, lo, side)) % side
        at = hi * side + lo
        if at < count:
            return at


def word(text):
    return int.from_bytes(text.encode(), "big")


def full(seed, epoch, position, count):
    return permuted(seed, word("order"), epoch, count, position)


def in_blocks(seed, epoch, position, count, block, per_window=64):
    block = min(block, count)
    window = block * per_window if count // per_window >= block else count
    windows = -(-count // window)
    draw = blocks(seed, word("shift"), epoch, 1)[0]
    shift = (int(draw[1]) << 32 | int(draw[0])) % count
    w, inside = divmod(position, window)
    n = min(window, count - w * window)
    place = w * window + permuted(seed, word("window"), epoch * windows + w, n, inside)
    slot, offset = divmod(place, block)
    whole = count // block
    b = permuted(seed, word("block"), epoch, whole, slot) if slot < whole else whole
    return (b * block + offset + shift) % count


if __name__ == "__main__":
    for count in (1, 2, 7, 49, 50, 1000, 65536):
        for seed, epoch in ((1, 0), (1, 1), (2**40 + 5, 3)):
            at = [0, count // 3, count - 1]
            print("    {%d, %d, %d, 0, {%s}}," % (
                count, seed, epoch, ", ".join(str(full(seed, epoch, p, count)) for p in at)))
    for count, block in ((10, 3), (640, 10), (641, 10), (5000, 7), (5000, 1), (100, 1000)):
        for seed, epoch in ((1, 0), (1, 1), (2**40 + 5, 3)):
            at = [0, count // 3, count - 1]
            print("    {%d, %d, %d, %d, {%s}}," % (
                count, seed, epoch, block,
                ", ".join(str(in_blocks(seed, epoch, p, count, block)) for p in at)))
