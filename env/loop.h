/* The loop of a process: epoll, timers, wake-ups from other threads, stop signals, children.
 *
 * One thread owns all control state and runs here. Other threads hand it words through rings and
 * wake it. Sockets belong to env/link_tcp, which registers its descriptors here.
 *
 * Thread: loop only, but ru_loop_wake and ru_loop_stop from any. */
#ifndef RU_ENV_LOOP_H
#define RU_ENV_LOOP_H

#include "env/event.h"

typedef struct ru_loop ru_loop;

RU_MUST_USE ru_status ru_loop_open(ru_loop **out, ru_err *err);
void ru_loop_close(ru_loop *l);

typedef void (*ru_loop_fd_fn)(void *self, int fd, uint32_t epoll_events, ru_time now);
RU_MUST_USE ru_status ru_loop_fd(ru_loop *l, int fd, uint32_t epoll_events, ru_loop_fd_fn fn,
                                 void *self, ru_err *err); /* again: changes events */
void ru_loop_fd_off(ru_loop *l, int fd);

/* Timers by (self, what); exact to the timerfd. */
typedef void (*ru_loop_timer_fn)(void *self, uint32_t what, ru_time now);
void ru_loop_timer(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what, ru_time at);
void ru_loop_timer_off(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what);

/* fn runs on the loop thread soon after each ru_loop_wake (calls may be merged). */
typedef void (*ru_loop_wake_fn)(void *self, ru_time now);
RU_MUST_USE ru_status ru_loop_waker(ru_loop *l, ru_loop_wake_fn fn, void *self, uint32_t *waker,
                                    ru_err *err);
void ru_loop_wake(ru_loop *l, uint32_t waker);
/* After all events of a round: deferred work. */
void ru_loop_after(ru_loop *l, ru_loop_wake_fn fn, void *self);

/* Busy-poll this long before sleeping (latency against a core); 0: never. */
void ru_loop_spin(ru_loop *l, int64_t spin_ns);

RU_MUST_USE ru_status ru_loop_run(ru_loop *l, ru_err *err); /* until ru_loop_stop */
void ru_loop_stop(ru_loop *l);

#endif
