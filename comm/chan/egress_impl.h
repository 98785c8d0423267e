/* Inside of the egress scheduler: shared by choosing (egress.c) and time (egress_tick.c).
 * Thread: loop only. */
#ifndef RU_COMM_CHAN_EGRESS_IMPL_H
#define RU_COMM_CHAN_EGRESS_IMPL_H

#include <stddef.h>

#include "comm/chan/egress.h"

typedef struct rui_key {
    int64_t start_ns; /* latest start; INT64_MAX: no deadline */
    uint64_t arrival;
    uint8_t class;
    uint16_t rank;
} rui_key;

typedef struct rui_egress_item {
    rui_key key;
    uint32_t line;
    uint32_t place; /* in e->queued; RUI_NONE: not queued */
    int64_t bytes, total_bytes;
    ru_time deadline;
    int64_t age_ns;         /* waiting behind better ones that moves it up */
    int64_t waits_from;     /* rui_egress_behind at its last chunk, or arrival */
    ru_time age_at;         /* when that is looked at again */
    int64_t late_ns;        /* reported last */
    bool started, aged_out; /* aged_out: at the front already */
} rui_egress_item;

typedef enum rui_line_state {
    RUI_LINE_CLOSED,
    RUI_LINE_ROOM,
    RUI_LINE_WOKEN,
    RUI_LINE_FULL
} rui_line_state;

typedef struct rui_egress_line_rec {
    rui_line_state state;
    uint32_t root;   /* of its streams */
    uint32_t last;   /* stream served last */
    uint64_t served; /* number of the service */
    int64_t rtt_ns;
    bool in_all, in_room;
} rui_egress_line_rec;

typedef struct rui_late_row {
    int64_t deadline_ns;
    uint32_t s;
} rui_late_row;

struct rui_egress {
    rui_egress_options opt;
    rui_egress_item *items;     /* [streams_max] */
    rui_egress_line_rec *lines; /* [lines_max] */
    uint32_t *queued;           /* [n_queued] streams, any order */
    rui_late_row *rows;         /* [streams_max] */
    uint32_t n_queued, n_deadlines;
    uint32_t streams_used; /* items below were initialised */
    rui_pheap by_key, by_age, all_lines, room_lines;
    uint32_t age_root, all_root, room_root;
    uint64_t arrivals, services;
    /* Rate. */
    double rate, rate_max; /* mean; largest of late windows */
    double window_max[2];  /* this and the last span of time */
    ru_time window_at, sample_at;
    int64_t sample_bytes;
    bool gated; /* a line was held back within this sample: the rate may be more */
    uint64_t samples;
    bool tainted;     /* the queue was empty within this sample */
    double rate_keys; /* that the keys were made with */
    int64_t chunk_bytes;
    /* Who kept the others waiting: times of chunks that were handed out, by class, and of those
     * with a deadline (or at the front) among them. */
    int64_t class_ns[RUI_EGRESS_CLASSES], due_ns[RUI_EGRESS_CLASSES];
    uint8_t on_wire_class; /* of the last chunk */
    bool on_wire_due;
    ru_time on_wire_at;     /* counted until then */
    int64_t on_wire_max_ns; /* of it still to be counted */
    ru_time busy_until;     /* of the interface, by what was handed out */
    ru_time wire_until;     /* what was handed out has left, at the mean rate */
    ru_time gate_at;        /* a held line may go then; ns 0: none is held */
    ru_time late_at;
    int64_t control_bytes, all_bytes;
    ru_time budget_at;
    int64_t preemptions, inversions;
};

/* Is a better than b but for the arrival? */
static inline int rui_key_order(const rui_key *a, const rui_key *b)
{
    if (a->class != b->class) {
        return a->class < b->class ? -1 : 1;
    }
    if (a->start_ns != b->start_ns) {
        return a->start_ns < b->start_ns ? -1 : 1;
    }
    return a->rank != b->rank ? (a->rank < b->rank ? -1 : 1) : 0;
}

/* The least chunk at this rate (0: not known): 64 KiB, but no more than 20 ms of the link, since a
 * chunk on the wire holds up what is urgent, beats of the membership as well. */
int64_t rui_egress_chunk_min(double rate);
void rui_egress_key(rui_egress *e, rui_egress_item *it);
/* At the mean rate; before it is known at that of 1 Gbit/s. */
int64_t rui_egress_solo_ns(const rui_egress *e, int64_t bytes);
/* Count the time of the chunk on the wire until now. */
void rui_egress_count(rui_egress *e, ru_time now);
/* How long chunks that go before this item's for their class or deadline, not for their rank, kept
 * the wire since the scheduler opened, as counted. */
int64_t rui_egress_behind(const rui_egress *e, const rui_egress_item *it);
/* Take s out of its line's heap and put it in again with its key as it is now. */
void rui_egress_rekey(rui_egress *e, uint32_t s, const rui_key *key);

#endif
