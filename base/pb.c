#include "base/pb.h"

#include <stdlib.h>
#include <string.h>

enum {
    VARINT_BYTES_MAX = 10,
    LENGTH_RESERVED = 5, /* bytes kept for a nested message's length while its body is written */
    /* Up to this size a body is moved left to make its length the shortest form; larger ones keep
     * a length padded to 5 bytes, which every reader accepts, rather than being copied. */
    BODY_MOVE_MAX = 1 << 16,
};

/* -- reading ----------------------------------------------------------------------------------- */

ru_pb_in ru_pb_in_open(const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0 && (data != NULL || size_bytes == 0));
    const uint8_t *begin = data != NULL ? data : (const uint8_t *)"";
    return (ru_pb_in){.begin = begin, .at = begin, .end = begin + size_bytes};
}

void ru_pb_in_fail(ru_pb_in *in, const char *why)
{
    if (in->why == NULL) {
        in->why = why;
    }
}

/* One varint from [at, end): the byte after it, or NULL when it is cut or longer than 64 bits. */
static const uint8_t *varint_read(const uint8_t *at, const uint8_t *end, uint64_t *v)
{
    uint64_t x = 0;
    for (uint32_t k = 0; k < VARINT_BYTES_MAX && at < end; k++) {
        uint8_t b = *at++;
        if (k == VARINT_BYTES_MAX - 1 && b > 1) {
            return NULL;
        }
        x |= (uint64_t)(b & 0x7f) << (7 * k);
        if ((b & 0x80) == 0) {
            *v = x;
            return at;
        }
    }
    return NULL;
}

static uint64_t little_read(const uint8_t *at, uint32_t bytes)
{
    uint64_t v = 0;
    for (uint32_t k = 0; k < bytes; k++) {
        v |= (uint64_t)at[k] << (8 * k);
    }
    return v;
}

static bool field_fail(ru_pb_in *in, const char *why)
{
    ru_pb_in_fail(in, why);
    return false;
}

static bool field_body(ru_pb_in *in, ru_pb_field *f, const uint8_t *at)
{
    if (f->wire == RU_PB_VARINT) {
        at = varint_read(at, in->end, &f->value);
        if (at == NULL) {
            return field_fail(in, "a number is cut off or longer than 64 bits");
        }
    } else if (f->wire == RU_PB_LEN) {
        uint64_t n = 0;
        at = varint_read(at, in->end, &n);
        if (at == NULL) {
            return field_fail(in, "a length is cut off or longer than 64 bits");
        }
        if (n > (uint64_t)(in->end - at)) {
            return field_fail(in, "a length reaches beyond the end");
        }
        f->data = at;
        f->size_bytes = (int64_t)n;
        at += n;
    } else {
        uint32_t bytes = f->wire == RU_PB_FIXED64 ? 8 : 4;
        if (in->end - at < (int64_t)bytes) {
            return field_fail(in, "a fixed-size number is cut off");
        }
        f->value = little_read(at, bytes);
        at += bytes;
    }
    in->at = at;
    return true;
}

bool ru_pb_next(ru_pb_in *in, ru_pb_field *f)
{
    if (in->why != NULL || in->at == in->end) {
        return false;
    }
    uint64_t tag = 0;
    const uint8_t *at = varint_read(in->at, in->end, &tag);
    if (at == NULL || tag > UINT32_MAX) {
        return field_fail(in, "a field tag is cut off or too large");
    }
    uint32_t wire = (uint32_t)tag & 7;
    if (wire != RU_PB_VARINT && wire != RU_PB_FIXED64 && wire != RU_PB_LEN &&
        wire != RU_PB_FIXED32) {
        return field_fail(in, wire == 3 || wire == 4 ? "groups are not supported"
                                                     : "a field has an unknown wire type");
    }
    *f = (ru_pb_field){.number = (uint32_t)(tag >> 3), .wire = (ru_pb_wire)wire};
    if (f->number == 0) {
        return field_fail(in, "a field has number 0");
    }
    return field_body(in, f, at);
}

ru_status ru_pb_in_end(const ru_pb_in *in, const char *what, ru_err *err)
{
    if (in->why != NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s is damaged at byte %lld of %lld: %s", what,
                       (long long)(in->at - in->begin), (long long)(in->end - in->begin), in->why);
    }
    return RU_OK;
}

ru_pb_in ru_pb_sub(const ru_pb_field *f)
{
    if (f->wire != RU_PB_LEN) {
        ru_pb_in in = ru_pb_in_open(NULL, 0);
        in.why = "found a number, expected a message";
        return in;
    }
    return ru_pb_in_open(f->data, f->size_bytes);
}

int64_t ru_pb_i64(ru_pb_in *in, const ru_pb_field *f)
{
    if (f->wire != RU_PB_VARINT) {
        ru_pb_in_fail(in, "an integer field has another wire type");
        return 0;
    }
    return (int64_t)f->value;
}

float ru_pb_bits_f32(uint64_t bits)
{
    uint32_t b = (uint32_t)bits;
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

float ru_pb_f32(ru_pb_in *in, const ru_pb_field *f)
{
    if (f->wire != RU_PB_FIXED32) {
        ru_pb_in_fail(in, "a float field has another wire type");
        return 0;
    }
    return ru_pb_bits_f32(f->value);
}

int64_t ru_pb_count(const ru_pb_field *f, ru_pb_wire elem)
{
    RU_CHECK(elem != RU_PB_LEN);
    if (f->wire == elem) {
        return 1;
    }
    if (f->wire != RU_PB_LEN) {
        return -1;
    }
    if (elem != RU_PB_VARINT) {
        int64_t bytes = elem == RU_PB_FIXED64 ? 8 : 4;
        return f->size_bytes % bytes == 0 ? f->size_bytes / bytes : -1;
    }
    int64_t n = 0;
    uint64_t v;
    for (const uint8_t *at = f->data, *end = at + f->size_bytes; at < end; n++) {
        at = varint_read(at, end, &v);
        if (at == NULL) {
            return -1;
        }
    }
    return n;
}

int64_t ru_pb_values(const ru_pb_field *f, ru_pb_wire elem, uint64_t *into, int64_t max)
{
    RU_CHECK(elem != RU_PB_LEN);
    if (f->wire == elem) {
        if (max < 1) {
            return 0;
        }
        into[0] = f->value;
        return 1;
    }
    if (f->wire != RU_PB_LEN) {
        return 0;
    }
    int64_t n = 0;
    uint32_t bytes = elem == RU_PB_FIXED64 ? 8 : 4;
    for (const uint8_t *at = f->data, *end = at + f->size_bytes; at < end && n < max; n++) {
        if (elem == RU_PB_VARINT) {
            at = varint_read(at, end, &into[n]);
            if (at == NULL) {
                return n;
            }
        } else if (end - at < (int64_t)bytes) {
            return n;
        } else {
            into[n] = little_read(at, bytes);
            at += bytes;
        }
    }
    return n;
}

/* -- writing ----------------------------------------------------------------------------------- */

void ru_pb_out_init(ru_pb_out *o)
{
    *o = (ru_pb_out){0};
}

void ru_pb_out_fini(ru_pb_out *o)
{
    free(o->data);
    *o = (ru_pb_out){0};
}

void ru_pb_out_reset(ru_pb_out *o)
{
    o->size_bytes = 0;
    o->depth = 0;
    o->full = false;
}

ru_status ru_pb_out_end(const ru_pb_out *o, ru_err *err)
{
    RU_CHECK(o->depth == 0);
    if (o->full) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a message of more than %lld bytes",
                       (long long)o->cap_bytes);
    }
    return RU_OK;
}

/* Room for n more bytes, or NULL (sticky). */
static uint8_t *room(ru_pb_out *o, int64_t n)
{
    if (o->full || n > INT64_MAX / 4 - o->size_bytes) {
        o->full = true;
        return NULL;
    }
    if (o->size_bytes + n > o->cap_bytes) {
        int64_t cap = o->cap_bytes < 256 ? 256 : o->cap_bytes * 2;
        cap = cap < o->size_bytes + n ? o->size_bytes + n : cap;
        uint8_t *data = realloc(o->data, (size_t)cap);
        if (data == NULL) {
            o->full = true;
            return NULL;
        }
        o->data = data;
        o->cap_bytes = cap;
    }
    uint8_t *at = o->data + o->size_bytes;
    o->size_bytes += n;
    return at;
}

static uint32_t varint_write(uint8_t *into, uint64_t v)
{
    uint32_t n = 0;
    for (; v >= 0x80; v >>= 7) {
        into[n++] = (uint8_t)(v | 0x80);
    }
    into[n++] = (uint8_t)v;
    return n;
}

static void put_varint(ru_pb_out *o, uint64_t v)
{
    uint8_t b[VARINT_BYTES_MAX];
    ru_pb_raw(o, b, varint_write(b, v));
}

static void put_tag(ru_pb_out *o, uint32_t field, ru_pb_wire wire)
{
    RU_CHECK(field >= 1 && field < 1u << 29);
    put_varint(o, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_little(ru_pb_out *o, uint64_t v, uint32_t bytes)
{
    uint8_t *at = room(o, bytes);
    for (uint32_t k = 0; at != NULL && k < bytes; k++) {
        at[k] = (uint8_t)(v >> (8 * k));
    }
}

void ru_pb_raw(ru_pb_out *o, const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    uint8_t *at = room(o, size_bytes);
    if (at != NULL && size_bytes > 0) {
        memcpy(at, data, (size_t)size_bytes);
    }
}

void ru_pb_put_u64(ru_pb_out *o, uint32_t field, uint64_t v)
{
    put_tag(o, field, RU_PB_VARINT);
    put_varint(o, v);
}

void ru_pb_put_i64(ru_pb_out *o, uint32_t field, int64_t v)
{
    ru_pb_put_u64(o, field, (uint64_t)v);
}

void ru_pb_put_fixed64(ru_pb_out *o, uint32_t field, uint64_t v)
{
    put_tag(o, field, RU_PB_FIXED64);
    put_little(o, v, 8);
}

void ru_pb_put_f64(ru_pb_out *o, uint32_t field, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    ru_pb_put_fixed64(o, field, bits);
}

static uint32_t f32_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

void ru_pb_put_f32(ru_pb_out *o, uint32_t field, float v)
{
    put_tag(o, field, RU_PB_FIXED32);
    put_little(o, f32_bits(v), 4);
}

void ru_pb_put_bytes(ru_pb_out *o, uint32_t field, const void *data, int64_t size_bytes)
{
    put_tag(o, field, RU_PB_LEN);
    put_varint(o, (uint64_t)size_bytes);
    ru_pb_raw(o, data, size_bytes);
}

void ru_pb_put_str(ru_pb_out *o, uint32_t field, const char *s)
{
    ru_pb_put_bytes(o, field, s, (int64_t)strlen(s));
}

void ru_pb_put_packed_i64(ru_pb_out *o, uint32_t field, const int64_t *v, int64_t n)
{
    ru_pb_begin(o, field);
    for (int64_t k = 0; k < n; k++) {
        put_varint(o, (uint64_t)v[k]);
    }
    ru_pb_end(o);
}

void ru_pb_begin(ru_pb_out *o, uint32_t field)
{
    RU_CHECK(o->depth < RU_PB_DEPTH_MAX);
    put_tag(o, field, RU_PB_LEN);
    (void)room(o, LENGTH_RESERVED);
    o->open[o->depth++] = o->size_bytes;
}

void ru_pb_end(ru_pb_out *o)
{
    RU_CHECK(o->depth > 0);
    int64_t body = o->open[--o->depth];
    if (o->full) {
        return;
    }
    int64_t n = o->size_bytes - body;
    if (n > UINT32_MAX) { /* readers stop at 2 GiB anyway */
        o->full = true;
        return;
    }
    uint8_t *at = o->data + body - LENGTH_RESERVED;
    uint32_t used = varint_write(at, (uint64_t)n);
    if (used == LENGTH_RESERVED) {
        return;
    }
    if (n <= BODY_MOVE_MAX) {
        memmove(at + used, o->data + body, (size_t)n);
        o->size_bytes -= LENGTH_RESERVED - used;
        return;
    }
    at[used - 1] |= 0x80;
    for (uint32_t k = used; k < LENGTH_RESERVED; k++) {
        at[k] = k + 1 < LENGTH_RESERVED ? 0x80 : 0;
    }
}
