/* The loop of a process: epoll, timers, wake-ups from other threads, children.
 *
 * One thread owns all control state and runs here. Other threads pass messages to it through rings
 * and wake it. Sockets belong to env/link/link_tcp, which registers its descriptors here. Stop
 * signals: see ru_self_stop_fd.
 *
 * Every callback gets the time read just before it. Callbacks may register, change and remove
 * anything, themselves included; a removed callback is not called any more, even if it was ready.
 *
 * Thread: loop only, but ru_loop_wake and ru_loop_stop from any. */
#ifndef RU_ENV_LOOP_H
#define RU_ENV_LOOP_H

#include "env/event.h"

typedef struct ru_loop ru_loop;

enum { RU_LOOP_WAKERS_MAX = 64, RU_LOOP_AFTER_MAX = 256 };

RU_MUST_USE ru_status ru_loop_open(ru_loop **out, ru_err *err);
void ru_loop_close(ru_loop *l); /* NULL is fine */

/* Call fn while the descriptor is ready for one of epoll_events (level-triggered; EPOLLERR and
 * EPOLLHUP always). Again: changes the events (0: none but errors) and the function. */
typedef void (*ru_loop_fd_fn)(void *self, int fd, uint32_t epoll_events, ru_time now);
RU_MUST_USE ru_status ru_loop_fd(ru_loop *l, int fd, uint32_t epoll_events, ru_loop_fd_fn fn,
                                 void *self, ru_err *err);
void ru_loop_fd_off(ru_loop *l, int fd); /* before it is closed */

/* Timers by (fn, self, what), one shot; again: moves it. Exact to the timerfd; equal times in the
 * order of setting. No memory: a crash. Cost: O(log n). */
typedef void (*ru_loop_timer_fn)(void *self, uint32_t what, ru_time now);
void ru_loop_timer(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what, ru_time at);
void ru_loop_timer_off(ru_loop *l, ru_loop_timer_fn fn, void *self, uint32_t what);

/* fn runs on the loop thread soon after each ru_loop_wake (calls may be merged). Cost of a wake:
 * an atomic add while the loop is busy, a write to an eventfd while it sleeps. */
typedef void (*ru_loop_wake_fn)(void *self, ru_time now);
RU_MUST_USE ru_status ru_loop_waker(ru_loop *l, ru_loop_wake_fn fn, void *self, uint32_t *waker,
                                    ru_err *err);
void ru_loop_waker_off(ru_loop *l, uint32_t waker);
void ru_loop_wake(ru_loop *l, uint32_t waker);

/* Deferred work: fn(self) once, after the callback that runs now and those of other ready
 * descriptors; asked twice before it ran: still once. */
void ru_loop_after(ru_loop *l, ru_loop_wake_fn fn, void *self);
void ru_loop_after_off(ru_loop *l, ru_loop_wake_fn fn, void *self);

/* fn once when the child process pid ended (the caller reaps it). Errors: RU_E_MISSING. */
typedef void (*ru_loop_child_fn)(void *self, int64_t pid, ru_time now);
RU_MUST_USE ru_status ru_loop_child(ru_loop *l, int64_t pid, ru_loop_child_fn fn, void *self,
                                    ru_err *err);

/* Look for events this long before sleeping, where that pays: the time is short at first, doubles
 * whenever a wait would have ended within max_ns, halves when several did not, so silence costs
 * less than 4 max_ns of a core and busy times up to a whole one. Sleeping and being woken takes 5
 * us, on a virtual machine whose idle cores halt 50 and more: an exchange of 64 bytes over loopback
 * takes half. 0, as at first: never, right where compute threads want the cores. Looking changes
 * when things happen, never what.
 * `shared`: offer the core to others between two looks, where several such loops share it. */
void ru_loop_poll(ru_loop *l, int64_t max_ns, bool shared);

RU_MUST_USE ru_status ru_loop_run(ru_loop *l, ru_err *err); /* until ru_loop_stop */
/* One round: wait at most wait_ns (-1: without a limit, 0: not at all) for events, and handle them.
 * */
RU_MUST_USE ru_status ru_loop_round(ru_loop *l, int64_t wait_ns, ru_err *err);
void ru_loop_stop(ru_loop *l); /* the running, or else the next, ru_loop_run returns */

#endif
