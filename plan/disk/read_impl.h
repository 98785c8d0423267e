/* Inside plan/disk/read*.c. Thread: any, pure. */
#ifndef RU_PLAN_READ_IMPL_H
#define RU_PLAN_READ_IMPL_H

#include "plan/disk/read.h"

/* The grid: powers of two. */
int64_t rui_read_size_low(const ru_read_in *in);
int64_t rui_read_size_high(const ru_read_in *in);
uint32_t rui_read_depth_high(const ru_read_in *in, int64_t size_bytes); /* by depth and memory */

double rui_read_score(const ru_read_in *in, const ru_read_window *w);
/* Is `w` better than `old` by gain_min and by more than chance? */
bool rui_read_better(const ru_read_in *in, const ru_read_window *w, const ru_read_window *old);
void rui_read_keep(ru_read_state *s, const ru_read_window *w);
void rui_read_steady(ru_read_state *s);

/* The baselines that search (read_climb.c). */
void rui_read_climb_begin(const ru_read_in *in, ru_read_state *s);
void rui_read_climb_next(const ru_read_in *in, const ru_read_window *w, ru_read_state *s);

#endif
