"""Secure aggregation by itself, for fleet/secure/mask_test.c: prints what client 1 of 4 sends, and what client 0 reveals of client 2.

Needs the package cryptography. The field of 2^16 elements is computed here with tables of logarithms.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

N, NEED, ROUND, COUNT = 4, 3, 7, 5000


def drawn(client, call, n):
    return bytes((client * 31 + call * 17 + i * 7 + 3) & 255 for i in range(n))


def public(secret):
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def agree(secret, other, purpose):
    both = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(other))
    return hmac.new(both, purpose.encode(), hashlib.sha256).digest()


def stream(key):
    data = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * COUNT))
    return [int.from_bytes(data[4 * i : 4 * i + 4], "little") for i in range(COUNT)]


power, log, at = [0] * 65535, {}, 1
for k in range(65535):  # 2 generates the field
    power[k], log[at] = at, k
    at <<= 1
    at ^= 0x1100B if at >> 16 else 0
assert len(log) == 65535


def times(a, b):
    return power[(log[a] + log[b]) % 65535] if a and b else 0


def part(secret, random, holder):
    out = b""
    for w in range(16):
        value = int.from_bytes(secret[2 * w : 2 * w + 2], "little")
        for c in range(NEED - 1):
            x = power[log[holder + 1] * (c + 1) % 65535]
            value ^= times(int.from_bytes(random[32 * c + 2 * w : 32 * c + 2 * w + 2], "little"), x)
        out += value.to_bytes(2, "little")
    return out


mask = [drawn(k, 1, 32) for k in range(N)]
seed = [drawn(k, 2, 32) for k in range(N)]
sent = [(1000 * i + 1) & 0xFFFFFFFF for i in range(COUNT)]
for sign, key in [(1, seed[1])] + [
    (1 if 1 < k else -1, agree(mask[1], public(mask[k]), "rubato secure mask %d %d %d" % (ROUND, min(k, 1), max(k, 1))))
    for k in (0, 2, 3)
]:
    sent = [(a + sign * b) & 0xFFFFFFFF for a, b in zip(sent, stream(key))]
print("masked", ["%#x" % sent[i] for i in (0, 1, 4095, 4096, 4999)])
print("part of the mask key of 2", part(mask[2], drawn(2, 3, 64), 0).hex())
print("part of the seed of 3", part(seed[3], drawn(3, 4, 64), 0).hex())
