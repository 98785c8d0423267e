/* To how many clients a large model goes at one time.
 *
 * Clients that take it in together over one line all have it at the end, and the other way of the
 * line is idle until then. So it goes to one: who has it trains and sends back while the next ones
 * take it in. The next one begins a little before that, so that the line is not idle in between. It
 * goes to twice as many when in the last second the server sent
 *
 *   half as much more as when the number grew last, and less than most of what it had ever sent
 *                                  before this queue began: the line was not full
 *   less than a tenth of the most that it ever sent: clients stall, or are slow
 *   hardly anything: the same, where no rate is known yet
 *
 * Models that are still on their way to clients of an earlier round do not count: a client that
 * takes none must not hold up those of the next one. Pure. Thread: loop only. */
#ifndef RU_FLEET_SERVER_PACE_H
#define RU_FLEET_SERVER_PACE_H

#include "env/clock.h"

enum { RUI_FED_PACED_BYTES = 1 << 20 }; /* models of so many bytes are paced */

typedef struct rui_fed_pace {
    uint32_t *queue; /* [max] ring of clients */
    uint32_t max, first, n;
    uint32_t open, old; /* models under way; of which of earlier rounds, at most */
    uint32_t most;      /* of this round at one time */
    int64_t sent_bytes; /* of the server, at the last measurement */
    int64_t due_bytes;  /* of it, when all models of this round under way have left */
    double rate, best;  /* bytes/s: when `most` grew last; of all measurements */
    double known;       /* best, when the queue began; 0: nothing */
    ru_time looked;
} rui_fed_pace;

/* A round begins: models under way are those of earlier ones. */
void rui_fed_pace_round(rui_fed_pace *p);
/* A queue that was empty begins; sent_bytes, here and below: of the server so far. */
void rui_fed_pace_begin(rui_fed_pace *p, int64_t sent_bytes, ru_time now);
void rui_fed_pace_put(rui_fed_pace *p, uint32_t client);
/* The next client whose turn it is; false: none. rui_fed_pace_sends follows, if it gets the model.
 */
bool rui_fed_pace_take(rui_fed_pace *p, int64_t sent_bytes, uint32_t *client);
void rui_fed_pace_sends(rui_fed_pace *p, int64_t sent_bytes, int64_t model_bytes);
void rui_fed_pace_sent(rui_fed_pace *p); /* it has the model, or will not get it */
/* Ten times a second, while clients wait; rui_fed_pace_take follows. */
void rui_fed_pace_look(rui_fed_pace *p, int64_t sent_bytes, ru_time now);

#endif
