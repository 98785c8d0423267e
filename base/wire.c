/* Little-endian cursors; bytes are put together by hand, so any host order and alignment works. */
#include "base/wire.h"

#include <string.h>

ru_wire_in ru_wire_in_from(const void *data, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    const uint8_t *p = data;
    return (ru_wire_in){.at = p, .end = p != NULL ? p + size_bytes : NULL};
}

int64_t ru_wire_left(const ru_wire_in *w)
{
    return w->bad || w->at == NULL ? 0 : w->end - w->at;
}

const uint8_t *ru_wire_bytes(ru_wire_in *w, int64_t size_bytes)
{
    if (w->bad || size_bytes < 0 || size_bytes > ru_wire_left(w)) {
        w->bad = true;
        return NULL;
    }
    const uint8_t *p = w->at;
    if (size_bytes > 0) {
        w->at += size_bytes;
    }
    return p;
}

static uint64_t read_le(ru_wire_in *w, int n)
{
    const uint8_t *p = ru_wire_bytes(w, n);
    uint64_t v = 0;
    for (int i = 0; p != NULL && i < n; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

uint8_t ru_wire_u8(ru_wire_in *w)
{
    return (uint8_t)read_le(w, 1);
}

uint16_t ru_wire_u16(ru_wire_in *w)
{
    return (uint16_t)read_le(w, 2);
}

uint32_t ru_wire_u32(ru_wire_in *w)
{
    return (uint32_t)read_le(w, 4);
}

uint64_t ru_wire_u64(ru_wire_in *w)
{
    return read_le(w, 8);
}

double ru_wire_f64(ru_wire_in *w)
{
    uint64_t bits = ru_wire_u64(w);
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

const char *ru_wire_text(ru_wire_in *w, uint32_t n_max, uint32_t *n)
{
    uint32_t len = ru_wire_u32(w);
    if (len > n_max) {
        w->bad = true;
    }
    const uint8_t *p = ru_wire_bytes(w, len);
    if (p != NULL) {
        *n = len;
    }
    return (const char *)p;
}

ru_wire_out ru_wire_out_into(void *buf, int64_t size_bytes)
{
    RU_CHECK(size_bytes >= 0);
    uint8_t *p = buf;
    return (ru_wire_out){.at = p, .end = p != NULL ? p + size_bytes : NULL, .start = p};
}

int64_t ru_wire_size(const ru_wire_out *w)
{
    return w->at == NULL ? 0 : w->at - w->start;
}

void ru_wire_put_bytes(ru_wire_out *w, const void *data, int64_t size_bytes)
{
    if (w->bad || w->at == NULL || size_bytes < 0 || size_bytes > w->end - w->at) {
        w->bad = true;
        return;
    }
    if (size_bytes > 0) {
        memcpy(w->at, data, (size_t)size_bytes);
        w->at += size_bytes;
    }
}

static void write_le(ru_wire_out *w, uint64_t v, int n)
{
    uint8_t b[8];
    for (int i = 0; i < n; i++) {
        b[i] = (uint8_t)(v >> (8 * i));
    }
    ru_wire_put_bytes(w, b, n);
}

void ru_wire_put_u8(ru_wire_out *w, uint8_t v)
{
    write_le(w, v, 1);
}

void ru_wire_put_u16(ru_wire_out *w, uint16_t v)
{
    write_le(w, v, 2);
}

void ru_wire_put_u32(ru_wire_out *w, uint32_t v)
{
    write_le(w, v, 4);
}

void ru_wire_put_u64(ru_wire_out *w, uint64_t v)
{
    write_le(w, v, 8);
}

void ru_wire_put_f64(ru_wire_out *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    ru_wire_put_u64(w, bits);
}

void ru_wire_put_text(ru_wire_out *w, const char *s, uint32_t n)
{
    if (w->bad || w->at == NULL || (int64_t)n + 4 > w->end - w->at) {
        w->bad = true;
        return;
    }
    ru_wire_put_u32(w, n);
    ru_wire_put_bytes(w, s, n);
}
