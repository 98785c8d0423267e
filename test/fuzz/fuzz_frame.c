/* Headers, greetings, proofs and intervals: what is accepted is within its limits and is written
 * again as the same bytes. */
#include <stddef.h>
#include <string.h>

#include "comm/chan/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void frame(const uint8_t *data)
{
    rui_frame f;
    ru_err err;
    if (rui_frame_decode(data, &f, &err) != RU_OK) {
        return;
    }
    RU_CHECK(f.len <= RU_LINK_FRAME_MAX && f.type >= RUI_HELLO && f.type < RUI_FRAME_TYPES);
    RU_CHECK(f.type != RUI_HELLO || f.len <= RUI_HELLO_MAX);
    RU_CHECK(f.type != RUI_PROOF || f.len == RUI_PROOF_BYTES);
    RU_CHECK(f.type != RUI_MESSAGE || f.len <= RUI_MESSAGE_MAX);
    RU_CHECK(f.type != RUI_ERR || f.len <= RUI_ERR_TEXT_MAX);
    RU_CHECK(f.type != RUI_ACK || f.len <= (RUI_NAME_BYTES + RUI_STAMP_BYTES) * RUI_MORE_MAX);
    uint8_t again[RU_LINK_HEAD_BYTES];
    rui_frame_encode(&f, again);
    rui_frame_set_crc(again, f.crc);
    RU_CHECK(memcmp(again, data, sizeof again) == 0);
}

static void hello(const uint8_t *data, int64_t size)
{
    rui_hello h;
    ru_err err;
    uint8_t again[RUI_HELLO_MAX];
    if (rui_hello_decode(data, size, &h, &err) == RU_OK) {
        RU_CHECK(h.address_len <= RUI_ADDRESS_MAX && h.address[h.address_len] == '\0');
        RU_CHECK(rui_hello_encode(&h, again) == size && memcmp(again, data, (size_t)size) == 0);
    }
}

static void held(const uint8_t *data, int64_t size, int64_t total)
{
    rui_range r[RUI_HELD_MAX];
    uint32_t n;
    uint8_t again[16 * RUI_HELD_MAX];
    if (rui_held_decode(data, size, total, r, &n) == RU_OK) {
        for (uint32_t i = 0; i < n; i++) {
            RU_CHECK(r[i].from >= 0 && r[i].from < r[i].to && r[i].to <= total);
            RU_CHECK(i == 0 || r[i].from > r[i - 1].to);
        }
        RU_CHECK(rui_held_encode(r, n, again) == size && memcmp(again, data, (size_t)size) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) {
        return 0;
    }
    const uint8_t *p = data + 1;
    int64_t left = (int64_t)size - 1;
    if (data[0] % 4 == 0 && left >= RU_LINK_HEAD_BYTES) {
        frame(p);
    } else if (data[0] % 4 == 1) {
        hello(p, left);
    } else if (data[0] % 4 == 2 && left >= RUI_PROOF_BYTES) {
        rui_proof r;
        uint8_t again[RUI_PROOF_BYTES];
        rui_proof_decode(p, &r);
        rui_proof_encode(&r, again);
        RU_CHECK(memcmp(again, p, sizeof again) == 0);
    } else if (data[0] % 4 == 3) {
        held(p, left, (int64_t)(data[0] >> 2) << 8);
    }
    return 0;
}
