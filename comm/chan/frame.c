#include "comm/chan/frame.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/wire.h"

enum { STAMP_SHIFT = 12 };

/* Flags that a type may carry, and the bounds of its payload. */
static const struct {
    uint8_t flags;
    uint32_t len_min, len_max;
} types[RUI_FRAME_TYPES] = {
    [RUI_HELLO] = {RUI_CRC, RUI_HELLO_MAX - RUI_ADDRESS_MAX, RUI_HELLO_MAX},
    [RUI_PROOF] = {RUI_CRC, RUI_PROOF_BYTES, RUI_PROOF_BYTES},
    [RUI_MESSAGE] = {RUI_CRC, 0, RUI_MESSAGE_MAX},
    [RUI_DATA] = {RUI_CRC | RUI_FIRST | RUI_LAST | RUI_WHOLE | RUI_FENCE, 1, RU_LINK_FRAME_MAX},
    [RUI_GRANT] = {RUI_CRC, 0, 0},
    [RUI_CANCEL] = {RUI_CRC | RUI_STOPPED, 0, 0},
    [RUI_ACK] = {RUI_CRC | RUI_DONE | RUI_STOPPED | RUI_HELD | RUI_STAMP, 0,
                 (RUI_NAME_BYTES + RUI_STAMP_BYTES) * RUI_MORE_MAX},
    [RUI_PROBE] = {RUI_CRC | RUI_ASK | RUI_GONE | RUI_TIME | RUI_TOLD, 0, 0},
    [RUI_ERR] = {RUI_CRC, 0, RUI_ERR_TEXT_MAX},
};

void rui_frame_encode(const rui_frame *f, uint8_t head[RU_LINK_HEAD_BYTES])
{
    ru_wire_out w = ru_wire_out_into(head, RU_LINK_HEAD_BYTES);
    ru_wire_put_u16(&w, RUI_FRAME_MAGIC);
    ru_wire_put_u8(&w, RUI_FRAME_VERSION);
    ru_wire_put_u8(&w, (uint8_t)f->type);
    ru_wire_put_u8(&w, f->class);
    ru_wire_put_u8(&w, f->flags);
    ru_wire_put_u16(&w, f->rank);
    ru_wire_put_u32(&w, f->iter);
    ru_wire_put_u32(&w, f->len);
    ru_wire_put_u64(&w, f->stream);
    ru_wire_put_u64(&w, f->offset);
    ru_wire_put_u32(&w, f->deadline);
    ru_wire_put_u32(&w, f->crc);
    RU_CHECK(!w.bad && ru_wire_left(&(ru_wire_in){w.at, w.end, false}) == 0);
}

static uint32_t bits(uint32_t v)
{
    return (uint32_t)__builtin_popcount(v);
}

static ru_status check(const rui_frame *f, ru_err *err)
{
    uint32_t kind = f->flags & (uint32_t)~RUI_CRC;
    if (f->class >= RUI_CLASSES) {
        return RU_FAIL(err, RU_E_PEER, "frame of class %u, at most %d", f->class, RUI_CLASSES - 1);
    }
    if ((f->flags & ~types[f->type].flags) != 0) {
        return RU_FAIL(err, RU_E_PEER, "frame of type %d with flags %#x", (int)f->type, f->flags);
    }
    if (f->len < types[f->type].len_min || f->len > types[f->type].len_max) {
        return RU_FAIL(err, RU_E_PEER, "frame of type %d with %u bytes, expected %u to %u",
                       (int)f->type, f->len, types[f->type].len_min, types[f->type].len_max);
    }
    bool stamped = f->type == RUI_ACK && (kind & RUI_STAMP) != 0;
    kind &= stamped && (kind & RUI_DONE) != 0 ? ~(uint32_t)RUI_STAMP : UINT32_MAX;
    bool one = f->type == RUI_ACK || (f->type == RUI_PROBE && kind != 0);
    if (one && (bits(kind) != 1 || (stamped && kind != RUI_DONE))) {
        return RU_FAIL(err, RU_E_PEER, "frame of type %d with flags %#x, expected one of them",
                       (int)f->type, f->flags);
    }
    uint32_t unit = (f->flags & RUI_HELD) != 0 ? 16 : rui_more_bytes(f->flags);
    uint32_t most = (f->flags & RUI_HELD) != 0   ? 16 * RUI_HELD_MAX
                    : (f->flags & RUI_DONE) != 0 ? unit * RUI_MORE_MAX
                                                 : 0;
    if (f->type == RUI_ACK && (f->len % unit != 0 || f->len > most)) {
        return RU_FAIL(err, RU_E_PEER, "acknowledgement with flags %#x and %u bytes", f->flags,
                       f->len);
    }
    bool whole = f->type == RUI_DATA && (f->flags & RUI_WHOLE) != 0;
    if (whole && ((kind & ~(uint32_t)RUI_FENCE) != RUI_WHOLE || f->len > RUI_MESSAGE_MAX)) {
        return RU_FAIL(err, RU_E_PEER, "whole stream of %u bytes with flags %#x", f->len, f->flags);
    }
    if (f->type == RUI_DATA && !whole && (kind & (RUI_FENCE | RUI_LAST)) == RUI_FENCE) {
        return RU_FAIL(err, RU_E_PEER, "chunk with flags %#x", f->flags);
    }
    bool place = (f->type == RUI_DATA && !whole) || f->type == RUI_GRANT || f->type == RUI_CANCEL;
    if (place && f->offset > (uint64_t)RUI_STREAM_BYTES_MAX - f->len) {
        return RU_FAIL(err, RU_E_PEER, "offset %llu beyond any stream",
                       (unsigned long long)f->offset);
    }
    return RU_OK;
}

ru_status rui_frame_decode(const uint8_t head[RU_LINK_HEAD_BYTES], rui_frame *f, ru_err *err)
{
    ru_wire_in w = ru_wire_in_from(head, RU_LINK_HEAD_BYTES);
    rui_frame r = {0};
    uint16_t magic = ru_wire_u16(&w);
    uint8_t version = ru_wire_u8(&w), type = ru_wire_u8(&w);
    if (magic != RUI_FRAME_MAGIC) {
        return RU_FAIL(err, RU_E_PEER, "received data is not a Rubato frame (it begins with %#x)",
                       magic);
    }
    if (version != RUI_FRAME_VERSION) {
        return RU_FAIL(err, RU_E_UNSUPPORTED, "the protocol version is %u, expected %d", version,
                       RUI_FRAME_VERSION);
    }
    if (type < RUI_HELLO || type >= RUI_FRAME_TYPES) {
        return RU_FAIL(err, RU_E_PEER, "frame of unknown type %u", type);
    }
    r.type = (rui_frame_type)type;
    r.class = ru_wire_u8(&w);
    r.flags = ru_wire_u8(&w);
    r.rank = ru_wire_u16(&w);
    r.iter = ru_wire_u32(&w);
    r.len = ru_wire_u32(&w);
    r.stream = ru_wire_u64(&w);
    r.offset = ru_wire_u64(&w);
    r.deadline = ru_wire_u32(&w);
    r.crc = ru_wire_u32(&w);
    RU_CHECK(!w.bad);
    RU_TRY(check(&r, err));
    *f = r;
    return RU_OK;
}

uint32_t rui_frame_crc(const uint8_t head[RU_LINK_HEAD_BYTES])
{
    return ru_crc32c(0, head, RU_LINK_HEAD_BYTES - 4);
}

void rui_frame_set_crc(uint8_t head[RU_LINK_HEAD_BYTES], uint32_t crc)
{
    ru_wire_out w = ru_wire_out_into(head + RU_LINK_HEAD_BYTES - 4, 4);
    ru_wire_put_u32(&w, crc);
}

bool rui_frame_sequenced(const rui_frame *f, ru_link_class on)
{
    if (on != RU_LINK_URGENT) {
        return false;
    }
    bool plain = f->type == RUI_PROBE && (f->flags & (RUI_ASK | RUI_GONE)) == 0;
    return !plain && f->type != RUI_HELLO && f->type != RUI_PROOF && f->type != RUI_ERR;
}

int64_t rui_hello_encode(const rui_hello *h, uint8_t into[RUI_HELLO_MAX])
{
    RU_CHECK(h->address_len <= RUI_ADDRESS_MAX);
    ru_wire_out w = ru_wire_out_into(into, RUI_HELLO_MAX);
    ru_wire_put_u64(&w, h->job);
    ru_wire_put_u64(&w, h->node);
    ru_wire_put_u64(&w, h->pair);
    ru_wire_put_u32(&w, h->wishes);
    ru_wire_put_bytes(&w, h->nonce, RUI_NONCE_BYTES);
    ru_wire_put_text(&w, h->address, h->address_len);
    RU_CHECK(!w.bad);
    return ru_wire_size(&w);
}

ru_status rui_hello_decode(const uint8_t *data, int64_t size_bytes, rui_hello *h, ru_err *err)
{
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    rui_hello r = {.job = ru_wire_u64(&w)};
    r.node = ru_wire_u64(&w);
    r.pair = ru_wire_u64(&w);
    r.wishes = ru_wire_u32(&w);
    const uint8_t *nonce = ru_wire_bytes(&w, RUI_NONCE_BYTES);
    const char *address = ru_wire_text(&w, RUI_ADDRESS_MAX, &r.address_len);
    if (w.bad || nonce == NULL || address == NULL || ru_wire_left(&w) != 0) {
        return RU_FAIL(err, RU_E_PEER, "greeting of %lld bytes is malformed",
                       (long long)size_bytes);
    }
    if (r.node == 0 || r.pair == 0) {
        return RU_FAIL(err, RU_E_PEER, "greeting without a node: node or pair is 0");
    }
    for (uint32_t i = 0; i < r.address_len; i++) {
        if (address[i] <= ' ' || address[i] > '~') {
            return RU_FAIL(err, RU_E_PEER, "greeting with an address that is not printable");
        }
    }
    memcpy(r.nonce, nonce, RUI_NONCE_BYTES);
    memcpy(r.address, address, r.address_len);
    *h = r;
    return RU_OK;
}

void rui_proof_encode(const rui_proof *p, uint8_t into[RUI_PROOF_BYTES])
{
    ru_wire_out w = ru_wire_out_into(into, RUI_PROOF_BYTES);
    ru_wire_put_u64(&w, p->session);
    ru_wire_put_u64(&w, p->received);
    ru_wire_put_bytes(&w, p->mac, RUI_MAC_BYTES);
    RU_CHECK(!w.bad);
}

void rui_proof_decode(const uint8_t from[RUI_PROOF_BYTES], rui_proof *p)
{
    ru_wire_in w = ru_wire_in_from(from, RUI_PROOF_BYTES);
    p->session = ru_wire_u64(&w);
    p->received = ru_wire_u64(&w);
    memcpy(p->mac, ru_wire_bytes(&w, RUI_MAC_BYTES), RUI_MAC_BYTES);
}

void rui_more_encode(uint8_t *name, uint8_t flags, uint64_t stream, uint32_t iter, uint16_t stamp)
{
    ru_wire_out w = ru_wire_out_into(name, rui_more_bytes(flags));
    ru_wire_put_u64(&w, stream);
    ru_wire_put_u32(&w, iter);
    if ((flags & RUI_STAMP) != 0) {
        ru_wire_put_u16(&w, stamp);
    }
}

void rui_more_decode(const uint8_t *name, uint8_t flags, uint64_t *stream, uint32_t *iter,
                     uint16_t *stamp)
{
    ru_wire_in w = ru_wire_in_from(name, rui_more_bytes(flags));
    *stream = ru_wire_u64(&w);
    *iter = ru_wire_u32(&w);
    if ((flags & RUI_STAMP) != 0) {
        *stamp = ru_wire_u16(&w);
    }
}

uint16_t rui_stamp_of(ru_time at)
{
    return (uint16_t)((uint64_t)at.ns >> STAMP_SHIFT);
}

ru_time rui_stamp_time(uint16_t stamp, ru_time now)
{
    uint64_t unit = (uint64_t)now.ns >> STAMP_SHIFT;
    unit -= (uint16_t)(unit - stamp);
    return (ru_time){(int64_t)((unit << STAMP_SHIFT) + (1u << (STAMP_SHIFT - 1)))};
}

int64_t rui_held_encode(const rui_range *held, uint32_t n, uint8_t into[16 * RUI_HELD_MAX])
{
    RU_CHECK(n <= RUI_HELD_MAX);
    ru_wire_out w = ru_wire_out_into(into, 16 * RUI_HELD_MAX);
    for (uint32_t i = 0; i < n; i++) {
        ru_wire_put_u64(&w, (uint64_t)held[i].from);
        ru_wire_put_u64(&w, (uint64_t)held[i].to);
    }
    return ru_wire_size(&w);
}

ru_status rui_held_decode(const uint8_t *data, int64_t size_bytes, int64_t total_bytes,
                          rui_range held[RUI_HELD_MAX], uint32_t *n)
{
    if (size_bytes < 0 || size_bytes % 16 != 0 || size_bytes > 16 * RUI_HELD_MAX) {
        return RU_E_PEER;
    }
    ru_wire_in w = ru_wire_in_from(data, size_bytes);
    rui_range r[RUI_HELD_MAX];
    uint32_t count = (uint32_t)(size_bytes / 16);
    int64_t at = -1;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t from = ru_wire_u64(&w), to = ru_wire_u64(&w);
        if (to > (uint64_t)total_bytes || from >= to || (int64_t)from <= at) {
            return RU_E_PEER;
        }
        r[i] = (rui_range){(int64_t)from, (int64_t)to};
        at = r[i].to;
    }
    memcpy(held, r, count * sizeof r[0]);
    *n = count;
    return RU_OK;
}
