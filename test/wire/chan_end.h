/* One end of channels over links in memory, for tests that count what the channel says.
 *
 * Thread: one. */
#ifndef RU_TEST_CHAN_END_H
#define RU_TEST_CHAN_END_H

#include "comm/chan/chan.h"
#include "lab/worlds/pipe.h"

enum { RU_CHAN_END_NODES = 8 };

typedef struct ru_chan_end {
    ru_arena arena;
    ru_chan *ch;
    uint32_t node, ups, downs, messages, sent, arrived, failed;
    uint32_t downs_of[RU_CHAN_END_NODES]; /* by id */
    uint32_t messages_crc;                /* CRC-32C of all their bytes */
    ru_status why;                        /* of the last `down` or `failed` */
    ru_time tick_at, down_at;
} ru_chan_end;

/* Opens `e` under the address of `opt`. */
void ru_chan_end_open(ru_chan_end *e, ru_pipe *net, const ru_chan_options *opt);
void ru_chan_end_close(ru_chan_end *e);
/* The ends' timers that are due. */
void ru_chan_ends_tick(ru_pipe *net, ru_chan_end *ends, uint32_t n);
/* Let `ns` of virtual time pass, with all that moves then. */
void ru_chan_ends_run(ru_pipe *net, ru_chan_end *ends, uint32_t n, int64_t ns);

#endif
