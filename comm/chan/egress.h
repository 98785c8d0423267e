/* Which chunk goes next: one scheduler for everything a process sends, whatever the peer.
 *
 *   lines (a connection's sending side)      streams queued on a line, smallest key first
 *     line 0: [s7 s3 s9]  room               key = (class, latest start, rank, arrival)
 *     line 1: [s1]        full               latest start = deadline - bytes left / rate - rtt / 2
 *
 * A line with room may send when its best stream is the best of all lines with room (equal keys but
 * for the arrival: lines take turns). When a line without room has something better still, the
 * lesser line gets only what the better leaves of the interface: all bytes handed out advance a
 * clock of 97 % of the measured rate, and the lesser line waits while it is ahead of time. So a
 * slow receiver does not idle the interface and a fast one is not halved by the kernel's fairness
 * among sockets. Now and then the clock runs faster to find out whether the rate is estimated too
 * low.
 *
 * A stream that waited 4 times its solo time since its last chunk for chunks of better classes, or
 * of deadlines, moves one class up, at last to the front of the urgent class. Streams of the
 * control class queued while control has had more than 2 % of the bytes (256 KiB are free) count as
 * urgent.
 *
 * Source: tracing-tictac-caramel-timedrpc note, part 3.2 ("pick ... preempt ... aging").
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_EGRESS_H
#define RU_COMM_CHAN_EGRESS_H

#include "comm/chan/pheap.h"
#include "env/event.h"

typedef struct rui_egress rui_egress;

enum { RUI_EGRESS_CLASSES = 4 };

typedef struct rui_egress_options {
    uint32_t lines_max, streams_max;
    int64_t chunk_bytes;     /* 0: from the rate */
    double rate_bytes_per_s; /* to begin with; 0: not known */
} rui_egress_options;

/* Takes memory, touches little of it. Errors: RU_E_MEM. */
RU_MUST_USE ru_status rui_egress_open(const rui_egress_options *opt, ru_arena *arena,
                                      rui_egress **out, ru_err *err);

typedef struct rui_egress_stream {
    uint32_t line;
    uint8_t class;
    uint16_t rank;
    ru_time deadline; /* ns 0: none */
    int64_t bytes;    /* left to send; > 0 */
    int64_t total_bytes;
} rui_egress_stream;

/* Queue stream s (the caller's index below streams_max, not queued now). */
void rui_egress_add(rui_egress *e, uint32_t s, const rui_egress_stream *in, ru_time now);
void rui_egress_remove(rui_egress *e, uint32_t s); /* fine when it is not queued */
bool rui_egress_has(const rui_egress *e, uint32_t s);

/* A line opens with room, or closes: its streams stay queued but are not chosen until it opens
 * again. */
void rui_egress_line(rui_egress *e, uint32_t line, bool open);
void rui_egress_line_rtt(rui_egress *e, uint32_t line, int64_t rtt_ns);

/* The line has room now: which stream may it send a chunk of? False: none, until rui_egress_wake
 * names the line. */
RU_MUST_USE bool rui_egress_pick(rui_egress *e, uint32_t line, ru_time now, uint32_t *s);
/* `bytes` of s, picked just now, were handed to the line; 0 left: out of the queue. */
void rui_egress_took(rui_egress *e, uint32_t s, int64_t bytes, ru_time now);
/* Bytes that left on another way count, too. */
void rui_egress_beside(rui_egress *e, int64_t bytes, bool control);
bool rui_egress_control_spent(const rui_egress *e); /* more than 2 %: the next counts as urgent */
bool rui_egress_urgent(const rui_egress *e);        /* a stream of the urgent class is queued */

/* The next line to wake, RUI_NONE: none now. To be asked until then after every change. */
uint32_t rui_egress_wake(rui_egress *e, ru_time now);

/* When a line that is held back for the rate may go; ns 0: none is. */
ru_time rui_egress_gate(const rui_egress *e);

/* Bytes acknowledged by all receivers' hosts since the last call; a rate is drawn from it when
 * there was something to send all the time. */
void rui_egress_acked(rui_egress *e, int64_t bytes, ru_time now);

typedef void (*rui_egress_late_fn)(void *self, uint32_t s, int64_t late_ns, ru_time now);
/* Aging, keys after a change of the rate, predicted lateness: `late` per stream once and at each
 * doubling. Returns when to be called again. */
ru_time rui_egress_tick(rui_egress *e, rui_egress_late_fn late, void *self, ru_time now);

/* The same question without a tick: after streams were added. */
ru_time rui_egress_due(const rui_egress *e, ru_time now);

/* Bytes that the kernels of all lines hold, unsent or not acknowledged, as measured just now. */
void rui_egress_left(rui_egress *e, int64_t bytes, ru_time now);
/* Predicted time until s, queued just now, is at its receiver: behind the bytes that were handed to
 * lines and the queued ones that go before it, its total_bytes at the measured rate, half a round
 * trip. Streams that come later and go before it are not known. 0: no rate is known.
 * Cost: looks at 64 queued streams at most; of more at equal distances. */
int64_t rui_egress_arrives_ns(const rui_egress *e, uint32_t s, ru_time now);
/* The same of bytes that leave now on another connection to the peer of `line`. */
int64_t rui_egress_beside_ns(const rui_egress *e, uint32_t line, int64_t bytes, ru_time now);

int64_t rui_egress_chunk(const rui_egress *e); /* bytes of a chunk now */
double rui_egress_rate(const rui_egress *e);   /* bytes/s; 0: not known */
uint32_t rui_egress_queued(const rui_egress *e);
int64_t rui_egress_preemptions(const rui_egress *e);
int64_t rui_egress_inversions(const rui_egress *e); /* chunks sent while a better line was full */

#endif
