/* Three clients and a server of masked sums, whose messages the input changes on their way: each
 * takes or refuses them, and unchanged ones give the sum. */
#include "fleet/secure/mask.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 3, NEED = 2, VALUES = 5 };

typedef struct input {
    const uint8_t *at, *end;
    bool changed;
} input;

static uint8_t next(input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static void change(input *in, uint8_t *bytes, int64_t n)
{
    for (uint8_t times = next(in) % 8; times > 0; times--) {
        uint8_t where = next(in), by = next(in);
        bytes[where % n] ^= by;
        in->changed = in->changed || by != 0;
    }
}

static void draw(void *into, int64_t bytes)
{
    static uint8_t last;
    for (int64_t i = 0; i < bytes; i++) {
        ((uint8_t *)into)[i] = last = (uint8_t)(last * 5 + 1 + i);
    }
}

static void key(ru_masker *m, ru_unmasker *u, uint32_t k, input *in)
{
    uint8_t publics[RU_MASK_PUBLIC_BYTES];
    RU_CHECK(ru_masker_begin(m, 1, NEED, 0, publics, NULL) == RU_OK);
    change(in, publics, sizeof publics);
    (void)ru_unmasker_public(u, k, publics, sizeof publics);
}

static void share(ru_masker *m, ru_unmasker *u, uint32_t k, input *in)
{
    uint8_t boxes[N * RU_MASK_BOX_BYTES], publics[N * RU_MASK_PUBLIC_BYTES], shape[2] = {N, 0};
    memcpy(publics, u->publics, sizeof publics);
    shape[1] = (uint8_t)k;
    change(in, shape, sizeof shape);
    change(in, publics, sizeof publics);
    bool more; /* of N pairs nothing is left */
    if (ru_masker_share(m, shape[0], shape[1], publics, boxes, &more, NULL) == RU_OK) {
        change(in, boxes, sizeof boxes);
        (void)ru_unmasker_boxes(u, k, boxes, shape[0] * (int64_t)RU_MASK_BOX_BYTES);
    }
}

static void mask(ru_masker *m, ru_unmasker *u, uint32_t k, input *in)
{
    int64_t bytes;
    uint32_t n, x[VALUES];
    ru_mask_stream streams[N];
    uint8_t row[N * (1 + RU_MASK_BOX_BYTES)];
    memcpy(row, ru_unmasker_row(u, k, &bytes), sizeof row);
    change(in, row, sizeof row);
    bool more;
    if (ru_masker_streams(m, row, row + m->n, streams, &n, &more, NULL) == RU_OK) {
        for (uint32_t i = 0; i < VALUES; i++) {
            x[i] = (k + 1) * i;
        }
        for (uint32_t i = 0; i < n; i++) {
            RU_CHECK(ru_cipher_stream(streams[i].key, streams[i].minus, x, VALUES, NULL) == RU_OK);
        }
        (void)ru_unmasker_add(u, k, x);
    }
}

static void reveal(ru_masker *m, ru_unmasker *u, uint32_t k, input *in)
{
    uint8_t survived[N], parts[N * RU_SHAMIR_BYTES];
    memcpy(survived, u->survived, sizeof survived);
    change(in, survived, sizeof survived);
    if (ru_masker_reveal(m, survived, parts, NULL) == RU_OK) {
        change(in, parts, sizeof parts);
        (void)ru_unmasker_parts(u, k, parts, m->n * (int64_t)RU_SHAMIR_BYTES);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const step[])(ru_masker *, ru_unmasker *, uint32_t, input *) = {key, share, mask,
                                                                                  reveal};
    input in = {data, data + size, false};
    ru_arena arena;
    ru_masker m[N];
    ru_unmasker u;
    ru_arena_init(&arena, 0);
    RU_CHECK(ru_unmasker_open(N, VALUES, &arena, &u, NULL) == RU_OK);
    ru_unmasker_begin(&u, N, NEED, 0, 1);
    for (uint32_t k = 0; k < N; k++) {
        RU_CHECK(ru_masker_open(N, draw, &arena, &m[k], NULL) == RU_OK);
    }
    for (uint32_t s = 0; s < RU_ARRAY_LEN(step); s++) {
        for (uint32_t k = 0; k < N; k++) {
            step[s](&m[k], &u, k, &in);
        }
    }
    bool sums = u.n_shared > 0 && ru_unmasker_opens(&u) && ru_unmasker_unmask(&u, NULL) == RU_OK;
    for (uint32_t i = 0; i < VALUES && !in.changed; i++) {
        RU_CHECK(sums && u.sum[i] == 6 * i);
    }
    ru_arena_fini(&arena);
    return 0;
}
