/* Inside of the pace: its latency model (pace_model.c), its decisions (pace.c).
 *
 * Thread: loop only. */
#ifndef RU_BURST_PACE_IMPL_H
#define RU_BURST_PACE_IMPL_H

#include "burst/pace.h"

/* Do requests need a resource, as far as that is known? */
bool rui_pace_needs(const ru_pace *p, uint32_t i);
/* Windows of the profile at each load. */
uint32_t rui_pace_points(const ru_pace *p);
/* Rate and quantile of so many clients at these speeds, as the model has them; NAN without one. */
double rui_pace_modelled(const ru_pace *p, double clients, const double *speed, double *rate);
/* What the least load of a profile at full speed tells of its clients: the time until they ask
 * again, and the part of an answer in which they do not wait for these resources. */
void rui_pace_learn_think(ru_pace *p, double rate, double clients, double mean_s);
/* The window that ends is one that the model is fitted to; its latencies are sorted. */
void rui_pace_keep(ru_pace *p, double clients);
/* Errors: RU_E_ARG with what the windows lack, RU_E_MEM. */
RU_MUST_USE ru_status rui_pace_fit(ru_pace *p, ru_err *err);
/* The policy `burst` for a load: requests a second, or clients. Fills input and plan of `r`. */
RU_MUST_USE ru_status rui_pace_ask(ru_pace *p, bool open, double load, ru_pace_record *r,
                                   ru_burst_plan *plan, ru_err *err);

#endif
