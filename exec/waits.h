/* When threads that wait for the others of their team should sleep soon.
 *
 * A thread that spins until the others arrive saves the microseconds of a wake-up, as long as each
 * thread has a core. Beside other work a spinning thread uses up the time slice of the one it waits
 * for. Which of both it is shows when the processor is taken from this process often; then a trial
 * decides: short waits stay while runs take less time with them.
 *
 * Thread: one caller at a time. */
#ifndef RU_EXEC_WAITS_H
#define RU_EXEC_WAITS_H

#include "base/status.h"

typedef struct rui_waits {
    bool brief, trial;
    bool shared;      /* the last period with long waits was on shared cores */
    uint32_t runs;    /* of this period */
    int64_t busy_ns;  /* they took */
    int64_t lost;     /* times the processor was taken before this period */
    int64_t spun_ns;  /* mean run of the last period with long waits */
    int64_t until_ns; /* no change before */
    int64_t hold_ns, lock_ns;
} rui_waits;

/* Note a run; true when the period is over and rui_waits_judge is due. */
bool rui_waits_ran(rui_waits *w, int64_t took_ns);

/* Decide about the next period; `lost`: how often the processor was taken from this process so far
 * (involuntary context switches). */
void rui_waits_judge(rui_waits *w, int64_t now_ns, int64_t lost);

/* Are the waits of this pool brief, since others take its cores? Then a thread that is woken comes
 * late, and little work is done sooner by the caller alone. */
struct ru_pool;
bool ru_pool_crowded(const struct ru_pool *p);

#endif
