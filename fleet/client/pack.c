#include "fleet/client/pack.h"

#include <string.h>

enum {
    SYMBOLS = 256,
    LENGTH_MAX = 12,
    TABLE = 1 << LENGTH_MAX,
    HEAD_BYTES = SYMBOLS + 8,
    PAD_BYTES = 8, /* a look takes 8 bytes */
    REST_BYTES = 3,
    AT_ONCE = 4, /* codes of one look: 7 + 4 * 12 bits are less than 64 */
};

typedef struct code {
    uint32_t bits; /* least first */
    uint32_t length;
} code;

static uint32_t bits_of(const float *value)
{
    uint32_t v;
    memcpy(&v, value, sizeof v);
    return v;
}

/* -- codes ----------------------------------------------------------------------------------------
 */

/* The least of those that have no parent yet; UINT32_MAX: none. */
static uint32_t least(const uint64_t *weight, const uint32_t *parent, uint32_t n)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < n; k++) {
        if (weight[k] > 0 && parent[k] == 0 && (best == UINT32_MAX || weight[k] < weight[best])) {
            best = k;
        }
    }
    return best;
}

/* Lengths of the codes of least length together; the longest one. */
static uint32_t lengths_of(const uint64_t *count, uint8_t *length)
{
    uint64_t weight[2 * SYMBOLS] = {0};
    uint32_t parent[2 * SYMBOLS] = {0}, n = SYMBOLS, longest = 0;
    memcpy(weight, count, SYMBOLS * sizeof *count);
    for (;;) {
        uint32_t a = least(weight, parent, n);
        if (a == UINT32_MAX) {
            break;
        }
        parent[a] = n;
        uint32_t b = least(weight, parent, n);
        if (b == UINT32_MAX) {
            parent[a] = n > SYMBOLS ? 0 : n; /* the root, or the only one */
            break;
        }
        parent[b] = n;
        weight[n] = weight[a] + weight[b];
        n++;
    }
    for (uint32_t k = 0; k < SYMBOLS; k++) {
        uint32_t steps = 0;
        for (uint32_t at = k; parent[at] != 0; at = parent[at]) {
            steps++;
        }
        length[k] = (uint8_t)steps;
        longest = steps > longest ? steps : longest;
    }
    return longest;
}

/* Codes of these lengths, shorter ones first; false: no such codes exist. */
static bool codes_of(const uint8_t *length, code *codes)
{
    uint32_t next = 0;
    for (uint32_t len = 1; len <= LENGTH_MAX; len++) {
        for (uint32_t k = 0; k < SYMBOLS; k++) {
            if (length[k] != len) {
                continue;
            }
            if (next >= 1U << len) {
                return false;
            }
            codes[k] = (code){.length = len};
            for (uint32_t b = 0; b < len; b++) {
                codes[k].bits |= (next >> b & 1) << (len - 1 - b);
            }
            next++;
        }
        next <<= 1;
    }
    return true;
}

/* -- packing --------------------------------------------------------------------------------------
 */

int64_t rui_fed_pack_most(int64_t count)
{
    return HEAD_BYTES + (count * LENGTH_MAX + 7) / 8 + PAD_BYTES + count * REST_BYTES;
}

/* Bytes of the codes; *bits: of all. */
static int64_t put_codes(const float *values, int64_t count, const code *codes, uint8_t *into,
                         uint64_t *bits)
{
    uint64_t held = 0;
    uint32_t n = 0;
    int64_t at = 0;
    *bits = 0;
    for (int64_t k = 0; k < count; k++) {
        const code c = codes[bits_of(&values[k]) >> 23 & 0xff];
        held |= (uint64_t)c.bits << n;
        n += c.length;
        *bits += c.length;
        if (n >= 32) {
            uint32_t word = (uint32_t)held;
            memcpy(into + at, &word, sizeof word);
            at += (int64_t)sizeof word;
            held >>= 32;
            n -= 32;
        }
    }
    for (; n > 0; n -= n < 8 ? n : 8) {
        into[at++] = (uint8_t)held;
        held >>= 8;
    }
    return at;
}

int64_t rui_fed_pack(const float *values, int64_t count, uint8_t *into)
{
    uint64_t counts[SYMBOLS] = {0}, bits;
    code codes[SYMBOLS] = {{0}};
    for (int64_t k = 0; k < count; k++) {
        counts[bits_of(&values[k]) >> 23 & 0xff]++;
    }
    while (lengths_of(counts, into) > LENGTH_MAX) { /* rare exponents get less rare */
        for (uint32_t k = 0; k < SYMBOLS; k++) {
            counts[k] = (counts[k] + 1) / 2;
        }
    }
    RU_CHECK(codes_of(into, codes));
    int64_t at = HEAD_BYTES + put_codes(values, count, codes, into + HEAD_BYTES, &bits);
    memcpy(into + SYMBOLS, &bits, sizeof bits);
    memset(into + at, 0, PAD_BYTES);
    at += PAD_BYTES;
    for (int64_t k = 0; k < count; k++) {
        uint32_t v = bits_of(&values[k]), rest = (v >> 31 << 23) | (v & 0x7fffff);
        memcpy(into + at, &rest, REST_BYTES);
        at += REST_BYTES;
    }
    return at;
}

/* -- unpacking ------------------------------------------------------------------------------------
 */

typedef struct entry {
    uint8_t symbol, length; /* 0: no code begins so */
} entry;

/* What a code begins with -> the code. */
static bool table_of(const uint8_t *length, entry *table)
{
    code codes[SYMBOLS] = {{0}};
    if (!codes_of(length, codes)) {
        return false;
    }
    memset(table, 0, TABLE * sizeof *table);
    for (uint32_t k = 0; k < SYMBOLS; k++) {
        if (length[k] > LENGTH_MAX) {
            return false;
        }
        for (uint32_t i = codes[k].bits; length[k] > 0 && i < TABLE; i += 1U << length[k]) {
            table[i] = (entry){(uint8_t)k, length[k]};
        }
    }
    return true;
}

bool rui_fed_unpack(const uint8_t *data, int64_t size_bytes, float *values, int64_t count)
{
    entry table[TABLE];
    uint64_t bits, at = 0;
    if (size_bytes < HEAD_BYTES) {
        return false;
    }
    memcpy(&bits, data + SYMBOLS, sizeof bits);
    if (bits > (uint64_t)count * LENGTH_MAX ||
        size_bytes !=
            HEAD_BYTES + (int64_t)((bits + 7) / 8) + PAD_BYTES + count * (int64_t)REST_BYTES ||
        !table_of(data, table)) {
        return false;
    }
    const uint8_t *codes = data + HEAD_BYTES, *rest = codes + (bits + 7) / 8 + PAD_BYTES;
    for (int64_t k = 0; k < count;) {
        uint64_t look;
        if (at >= bits) { /* so the look lies within codes and pad */
            return false;
        }
        memcpy(&look, codes + at / 8, sizeof look);
        look >>= at % 8;
        for (uint32_t i = 0; i < AT_ONCE && k < count; i++, k++) {
            const entry e = table[look % TABLE];
            uint32_t v = 0;
            memcpy(&v, rest + k * REST_BYTES, REST_BYTES);
            v = (v >> 23 << 31) | (uint32_t)e.symbol << 23 | (v & 0x7fffff);
            memcpy(&values[k], &v, sizeof v);
            if (e.length == 0) {
                return false;
            }
            look >>= e.length;
            at += e.length;
        }
    }
    return at == bits;
}
