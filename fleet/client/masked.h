/* The client's side of masked updates: keys while it trains, masks on what it learned.
 *
 *   loop's thread     ASK: keys; ROSTER: boxes; ROW: streams; SURVIVED: parts
 *   program's thread  keeps what the task began with, and adds the streams when it has trained and
 *                     the streams are there
 *
 * Calls do nothing, and rui_masked_trained is false, without federated.secure.
 * Thread: the loop's, where nothing else is said. */
#ifndef RU_FLEET_CLIENT_MASKED_H
#define RU_FLEET_CLIENT_MASKED_H

#include "fleet/client/client_impl.h"
#include "fleet/secure/mask.h"

/* Thread: the program's. */
RU_MUST_USE ru_status rui_masked_open(ru_fed_client *c, ru_err *err);
void rui_masked_from(ru_fed_client *c, const rui_fed_job *w);
RU_MUST_USE ru_status rui_masked_add(ru_fed_client *c, rui_fed_job *w, ru_err *err);

void rui_masked_begin(ru_fed_client *c, const void *data, int64_t size_bytes, ru_time now);
void rui_masked_give_up(ru_fed_client *c);
/* Nothing secret stays in memory. Thread: the last one; the loop is still open. */
void rui_masked_close(ru_fed_client *c);
/* take, if true: it has trained; its update goes when it has masks. */
bool rui_masked_trained(ru_fed_client *c, const rui_fed_job *w);
void rui_masked_parcel(ru_fed_client *c, uint32_t what, const void *head, uint32_t head_bytes,
                       const void *body, int64_t body_bytes, ru_time now);
void rui_masked_reveal(ru_fed_client *c, const void *data, int64_t size_bytes, ru_time now);

#endif
