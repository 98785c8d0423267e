"""Philox4x32-10 in numpy, and the start values and batches that test/ops/oracle_test.c uses."""
import numpy as np

M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = 0x9E3779B9, 0xBB67AE85
LOW = np.uint64(0xFFFFFFFF)


def blocks(seed, stream, first, n):
    """[n, 4] words: blocks first .. first+n-1 of `stream` under `seed`."""
    index = np.arange(first, first + n, dtype=np.uint64)
    c = [index & LOW, index >> np.uint64(32),
         np.full(n, stream & 0xFFFFFFFF, np.uint64), np.full(n, stream >> 32, np.uint64)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = M0 * c[0], M1 * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & LOW,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & LOW]
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return np.stack(c, axis=1).astype(np.uint32)


def words(seed, stream, n):
    return blocks(seed, stream, 0, (n + 3) // 4).reshape(-1)[:n]


def uniform(seed, stream, shape, scale=1.0):
    """f32 in [-scale, scale), as ru_init_fill makes them."""
    n = int(np.prod(shape, dtype=np.int64))
    u = (words(seed, stream, n) >> np.uint32(8)).astype(np.float64) * 2.0 ** -24
    return ((2 * u - 1) * scale).astype(np.float32).reshape(shape)


def labels(seed, stream, shape, classes):
    n = int(np.prod(shape, dtype=np.int64))
    return (words(seed, stream, n) % np.uint32(classes)).astype(np.int64).reshape(shape)


def fnv1a(name):
    h = 0x811C9DC5
    for b in name.encode():
        h = ((h ^ b) * 0x01000193) & 0xFFFFFFFF
    return h


def start_value(name, shape):
    """Start value of a parameter from its name and shape alone."""
    stream = fnv1a(name)
    if len(shape) >= 2:
        fan = shape[-1] if name.startswith("lstm.") else int(np.prod(shape[1:]))
        return uniform(42, stream, shape, (3.0 / fan) ** 0.5)
    value = uniform(42, stream, shape, 0.1)
    # Deep networks of batch norms amplify rounding without bound; small norms keep them conditioned.
    if name.endswith(".bn3.weight"):
        return value + np.float32(0.2)
    if name.startswith("features.") and name.endswith(".weight"):
        return value + np.float32(0.3)
    return value + np.float32(1) if name.endswith(".weight") else value


if __name__ == "__main__":
    # Published vector of Random123: counter and key all ones.
    import sys
    c = [np.array([0xFFFFFFFF], np.uint64)] * 4
    k0 = k1 = 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = M0 * c[0], M1 * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0), p1 & LOW,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1), p0 & LOW]
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    got = [hex(int(x[0])) for x in c]
    want = ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]
    sys.exit(f"philox: {got}, expected {want}" if got != want else 0)
