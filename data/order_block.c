/* The order of samples in blocks: for files larger than memory, where every sample read by itself
 * would be a random read of the disk.
 *
 * The file is cut into blocks of neighbours, the blocks are put in a random order, and samples are
 * shuffled within windows of RUI_ORDER_WINDOW blocks:
 *
 *     file       |b0|b1|b2|b3|b4|b5|b6|b7|t|      t: the rest, shorter than a block
 *     slots      |b5|b2|b7|b0|b4|b1|b6|b3|t|      order of the full blocks; the rest comes last
 *     windows    |  shuffled |  shuffled   |      a window's blocks are read at once
 *
 * All indices are turned by a random shift around the file's end, so that blocks begin elsewhere in
 * every epoch and the rest is another part of the data each time. Everything is a function of
 * (seed, epoch, position, count, block), computed per position. */
#include "data/data_impl.h"

#include "base/rng.h"

static const uint64_t block_stream = 0x626c6f636b;    /* "block" */
static const uint64_t window_stream = 0x77696e646f77; /* "window" */
static const uint64_t shift_stream = 0x7368696674;    /* "shift" */

void rui_block_order_init(rui_block_order *o, uint64_t seed, int64_t epoch, int64_t count,
                          int64_t block)
{
    RU_CHECK(count > 0 && count <= (int64_t)1 << 62 && block > 0);
    block = block < count ? block : count;
    uint32_t w[4];
    ru_philox_at(seed, shift_stream, (uint64_t)epoch, w);
    uint64_t draw = (uint64_t)w[1] << 32 | w[0];
    *o = (rui_block_order){.seed = seed,
                           .epoch = epoch,
                           .count = count,
                           .block = block,
                           .window =
                               count / RUI_ORDER_WINDOW < block ? count : block * RUI_ORDER_WINDOW,
                           .shift = (int64_t)(draw % (uint64_t)count),
                           .at = -1};
    o->windows = (count + o->window - 1) / o->window;
    rui_order_init(&o->blocks, seed, block_stream, (uint64_t)epoch, count / block);
}

int64_t rui_block_order_slot(const rui_block_order *o, int64_t slot, int64_t *n)
{
    int64_t full = o->blocks.count;
    int64_t block = slot < full ? rui_order_at(&o->blocks, slot) : full;
    int64_t first = block * o->block;
    *n = o->count - first < o->block ? o->count - first : o->block;
    return first < o->count - o->shift ? first + o->shift : first - (o->count - o->shift);
}

int64_t rui_block_order_at(rui_block_order *o, int64_t position)
{
    RU_DCHECK(position >= 0 && position < o->count);
    int64_t window = position / o->window, first = window * o->window, n;
    if (window != o->at) {
        int64_t left = o->count - first;
        uint64_t index = (uint64_t)o->epoch * (uint64_t)o->windows + (uint64_t)window;
        rui_order_init(&o->inner, o->seed, window_stream, index,
                       left < o->window ? left : o->window);
        o->at = window;
    }
    int64_t place = first + rui_order_at(&o->inner, position - first);
    int64_t begin = rui_block_order_slot(o, place / o->block, &n), in_block = place % o->block;
    return begin < o->count - in_block ? begin + in_block : begin - (o->count - in_block);
}

int64_t ru_order_block_sample(uint64_t seed, int64_t epoch, int64_t position, int64_t count,
                              int64_t block)
{
    RU_CHECK(position >= 0 && position < count);
    rui_block_order o;
    rui_block_order_init(&o, seed, epoch, count, block);
    return rui_block_order_at(&o, position);
}
