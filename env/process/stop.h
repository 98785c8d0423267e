/* How many stop signals this process heeds (env/process/self.h), and a stop without one.
 *
 * Thread: as ru_self_stop_watch. */
#ifndef RU_ENV_STOP_H
#define RU_ENV_STOP_H

/* After ru_self_stop_watch and until ru_self_stop_unwatch: stop signals after the first do nothing;
 * who sends them sends several, and knows SIGKILL. Without, the second one ends the process at
 * once. */
void ru_self_stop_patient(void);
/* As if the first SIGINT had come, also where that is ignored; nothing where nobody watches. */
void ru_self_stop_ask(void);

#endif
