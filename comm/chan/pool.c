#include "comm/chan/pool.h"

#include <string.h>

uint32_t rui_blocks_take(rui_blocks *b, int64_t size_bytes)
{
    RU_CHECK(size_bytes > 0 && size_bytes <= RUI_BLOCK_LARGE * RU_LINK_SPANS_MAX);
    if (size_bytes <= RUI_BLOCK_SMALL) {
        uint32_t i = rui_cells_take(&b->small);
        if (i != RUI_NONE) {
            return i | RUI_BLOCK_IS_SMALL;
        }
    }
    uint32_t first = RUI_NONE;
    for (int64_t n = 0; n < size_bytes; n += RUI_BLOCK_LARGE) {
        uint32_t i = rui_cells_take(&b->large);
        if (i == RUI_NONE) {
            rui_blocks_give(b, first);
            return RUI_NONE;
        }
        b->large.next[i] = first;
        first = i;
    }
    return first;
}

void rui_blocks_give(rui_blocks *b, uint32_t chain)
{
    if (chain == RUI_NONE) {
        return;
    }
    if ((chain & RUI_BLOCK_IS_SMALL) != 0) {
        rui_cells_give(&b->small, chain & ~RUI_BLOCK_IS_SMALL);
        return;
    }
    while (chain != RUI_NONE) {
        uint32_t next = b->large.next[chain];
        rui_cells_give(&b->large, chain);
        chain = next;
    }
}

int64_t rui_blocks_held(const rui_blocks *b, uint32_t chain)
{
    if (chain != RUI_NONE && (chain & RUI_BLOCK_IS_SMALL) != 0) {
        return RUI_BLOCK_SMALL;
    }
    int64_t n = 0;
    for (; chain != RUI_NONE; chain = b->large.next[chain]) {
        n += RUI_BLOCK_LARGE;
    }
    return n;
}

int64_t rui_blocks_left(const rui_blocks *b)
{
    return (int64_t)(b->small.max - b->small.taken) * RUI_BLOCK_SMALL +
           (int64_t)(b->large.max - b->large.taken) * RUI_BLOCK_LARGE;
}

uint32_t rui_blocks_spans(const rui_blocks *b, uint32_t chain, int64_t size_bytes,
                          ru_span spans[RU_LINK_SPANS_MAX])
{
    if (size_bytes == 0) {
        return 0;
    }
    if ((chain & RUI_BLOCK_IS_SMALL) != 0) {
        spans[0] = (ru_span){rui_cells_at(&b->small, chain & ~RUI_BLOCK_IS_SMALL), size_bytes};
        return 1;
    }
    uint32_t n = 0;
    for (int64_t done = 0; done < size_bytes; done += RUI_BLOCK_LARGE) {
        RU_CHECK(n < RU_LINK_SPANS_MAX && chain != RUI_NONE);
        int64_t left = size_bytes - done;
        spans[n++] = (ru_span){rui_cells_at(&b->large, chain),
                               left < RUI_BLOCK_LARGE ? left : RUI_BLOCK_LARGE};
        chain = b->large.next[chain];
    }
    return n;
}

static void copy(const ru_span *to, uint32_t n_to, const ru_span *from, uint32_t n_from)
{
    uint32_t t = 0, f = 0;
    int64_t at_t = 0, at_f = 0;
    while (t < n_to && f < n_from) {
        int64_t left_t = to[t].size_bytes - at_t, left_f = from[f].size_bytes - at_f;
        int64_t n = left_t < left_f ? left_t : left_f;
        if (n > 0 && to[t].data != NULL && from[f].data != NULL) {
            memcpy((uint8_t *)to[t].data + at_t, (const uint8_t *)from[f].data + at_f, (size_t)n);
        }
        at_t += n;
        at_f += n;
        if (at_t == to[t].size_bytes) {
            t++;
            at_t = 0;
        }
        if (at_f == from[f].size_bytes) {
            f++;
            at_f = 0;
        }
    }
}

void rui_blocks_fill(const rui_blocks *b, uint32_t chain, const ru_span *from, uint32_t n_from)
{
    int64_t size_bytes = 0;
    for (uint32_t i = 0; i < n_from; i++) {
        size_bytes += from[i].size_bytes;
    }
    ru_span to[RU_LINK_SPANS_MAX];
    uint32_t n = rui_blocks_spans(b, chain, size_bytes, to);
    copy(to, n, from, n_from);
}

void rui_blocks_read(const rui_blocks *b, uint32_t chain, int64_t size_bytes, const ru_span *to,
                     uint32_t n_to)
{
    ru_span from[RU_LINK_SPANS_MAX];
    uint32_t n = rui_blocks_spans(b, chain, size_bytes, from);
    copy(to, n_to, from, n);
}

const void *rui_blocks_view(const rui_blocks *b, uint32_t chain, int64_t size_bytes, void *buf)
{
    ru_span from[RU_LINK_SPANS_MAX];
    uint32_t n = rui_blocks_spans(b, chain, size_bytes, from);
    if (n <= 1) {
        return n == 1 ? from[0].data : buf;
    }
    copy(&(ru_span){buf, size_bytes}, 1, from, n);
    return buf;
}
