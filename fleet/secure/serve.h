/* The server's side of masked updates: what a round needs besides its tasks. Calls that have no
 * meaning without federated.secure do nothing then.
 *
 *   OFF -begin-> KEYS -all told-> SHARES -all shared-> TRAIN -merge-> OPEN -need parts-> OFF
 *
 * A client that is lost is out of the stage under way; one that does not answer in the time of a
 * stage (fleet/secure/wait.h) is excused from the round, which goes on without it as long as the
 * threshold allows.
 *
 * Thread: loop only, but rui_secure_unmask: main, while the loop thread leaves the sum alone. */
#ifndef RU_FLEET_SECURE_SERVE_H
#define RU_FLEET_SECURE_SERVE_H

#include "fleet/secure/mask.h"
#include "fleet/server_impl.h"

/* Bytes of the largest parcel that belongs to masks; 0: none. */
int64_t rui_secure_body_max(const ru_job_federated *job);
RU_MUST_USE ru_status rui_secure_open(rui_fed_server *s, ru_err *err);
/* The tasks of a round go out. */
void rui_secure_begin(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_effects *fx);
/* No round is under way: those that cannot answer the last one are excused. */
void rui_secure_over(rui_fed_server *s, ru_time now, ru_effects *fx);

/* What clients say; m NULL: of nobody. */
void rui_secure_word(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx);
void rui_secure_keys(rui_fed_server *s, const ru_event *ev, ru_effects *fx);
void rui_secure_parcel(rui_fed_server *s, rui_fed_member *m, uint32_t what, const void *head,
                       uint32_t head_bytes, const void *body, int64_t body_bytes, ru_time now,
                       ru_effects *fx);
RU_MUST_USE ru_status rui_secure_add(rui_fed_server *s, rui_fed_member *m, const float *masked,
                                     ru_err *err);
void rui_secure_lost(rui_fed_server *s, rui_fed_member *m, ru_time now, ru_effects *fx);
void rui_secure_timer(rui_fed_server *s, ru_time now, ru_effects *fx);

/* The machine has the answers of a round. */
void rui_secure_merge(rui_fed_server *s, const ru_fed_list *l, ru_time now, ru_effects *fx);
RU_MUST_USE ru_status rui_secure_unmask(rui_fed_server *s, ru_err *err);
void rui_secure_unmasked(rui_fed_server *s, ru_time now, ru_effects *fx);
uint32_t rui_secure_masked(const rui_fed_server *s); /* clients whose masks were in the round */

#endif
