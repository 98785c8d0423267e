/* What the server of a federation and its clients say to each other, over the guests' channel.
 *
 *   client  HELLO(version, name, process) ---------->  server
 *           <-------- parcel START(values, hash, masks; layout of the values, text of state.json)
 *           READY(samples, values, hash, unpacks) -->  HEARD
 *           <-------- parcel TASK(task, round, kind; values of the model, packed on a slow line)
 *           parcel UPDATE(task, loss; the values after it, packed if they came so) ->  HEARD
 *           SCORE(task, hits, rows, loss) ---------->  HEARD      of a task that evaluates
 *           FAILED(task, sentence) ----------------->  HEARD      then it ends
 *           STILL ---------------------------------->  HEARD
 *           AWAY(minutes) -------------------------->  HEARD      until its hours begin, with READY
 *           <-------- STOP(task)    nobody waits for it any more; STILL answers it
 *
 * With masked updates (fleet/secure/mask.h) a task to train has more:
 *
 *           <-------- ASK(task)     before it, as it may take long to arrive
 *           KEYS(task, publics) -------------------->  HEARD
 *           <-------- parcel ROSTER(task, hash, n, number, samples of all; publics of all)
 *           parcel BOXES(task; boxes) -------------->  HEARD
 *           <-------- parcel ROW(task, hash; who is in, boxes for it)
 *           parcel UPDATE(task, loss; masked moves) ->  HEARD
 *           <-------- SURVIVED(task, whose updates came)
 *           parcel PARTS(task; parts) -------------->  HEARD
 *
 *           <-------- NO(sentence)  it may not take part
 *           <-------- BYE           the job is over
 *
 * Pure. Thread: any. */
#ifndef RU_FLEET_WIRE_H
#define RU_FLEET_WIRE_H

#include "base/wire.h"

enum { RU_FED_KEY_BYTES = 16 };
enum { RUI_FED_VERSION = 6, RUI_FED_NAME_MAX = 31, RUI_FED_TEXT_MAX = 200 };
#define RUI_FED_SERVICE UINT64_C(0x7275626174666564)

/* Messages; RUI_FED_PARCELS and the next RU_PULL_MESSAGES are those of parcels. */
enum {
    RUI_FED_HELLO = 0x7e00,
    RUI_FED_READY,
    RUI_FED_HEARD,
    RUI_FED_SCORE,
    RUI_FED_FAILED,
    RUI_FED_STILL,
    RUI_FED_STOP,
    RUI_FED_NO,
    RUI_FED_BYE,
    RUI_FED_ASK,
    RUI_FED_KEYS,
    RUI_FED_SURVIVED,
    RUI_FED_AWAY,
    RUI_FED_PARCELS,
    RUI_FED_END = RUI_FED_PARCELS + 3,
    RUI_FED_LOCAL = 0x7ef0, /* of parcels */
};
/* Kinds of parcels. */
enum {
    RUI_FED_START = 1,
    RUI_FED_TASK,
    RUI_FED_UPDATE,
    RUI_FED_ROSTER,
    RUI_FED_BOXES,
    RUI_FED_ROW,
    RUI_FED_PARTS
};

typedef enum rui_fed_kind { RUI_FED_TRAIN, RUI_FED_PROFILE, RUI_FED_EVALUATE } rui_fed_kind;

typedef struct rui_fed_start {
    uint64_t count, params, hash;  /* of the values; params: that are parameters */
    uint32_t per_round, threshold; /* threshold 0: updates are not masked */
    uint32_t neighbours;           /* of a masked client; 0: all */
    double range, clip;            /* of moves (ru_mask_scale) */
} rui_fed_start;

typedef struct rui_fed_ready {
    double samples, held;
    uint64_t count, hash; /* of the values */
    uint64_t unpacks; /* 1: values may come packed (fleet/client/pack.h), and updates follow suit */
} rui_fed_ready;

typedef struct rui_fed_task {
    uint32_t task, round, epochs;
    rui_fed_kind kind;
} rui_fed_task;

typedef struct rui_fed_update {
    uint32_t task;
    double loss, loss_rms, accuracy;
} rui_fed_update;

typedef struct rui_fed_score {
    uint32_t task;
    double correct, count, loss;
} rui_fed_score;

enum { RUI_FED_HEAD_MAX = 64 };

/* Bytes written into `into` [RUI_FED_HEAD_MAX]. */
uint32_t rui_fed_start_put(const rui_fed_start *s, uint8_t *into);
uint32_t rui_fed_ready_put(const rui_fed_ready *r, uint8_t *into);
uint32_t rui_fed_task_put(const rui_fed_task *t, uint8_t *into);
uint32_t rui_fed_update_put(const rui_fed_update *u, uint8_t *into);
uint32_t rui_fed_score_put(const rui_fed_score *s, uint8_t *into);
/* False: those bytes are none, or hold numbers that nobody means. */
bool rui_fed_start_get(const void *data, int64_t size_bytes, rui_fed_start *out);
bool rui_fed_ready_get(const void *data, int64_t size_bytes, rui_fed_ready *out);
bool rui_fed_task_get(const void *data, int64_t size_bytes, rui_fed_task *out);
bool rui_fed_update_get(const void *data, int64_t size_bytes, rui_fed_update *out);
bool rui_fed_score_get(const void *data, int64_t size_bytes, rui_fed_score *out);

/* A name of a client: letters, digits, - _ . ; at most RUI_FED_NAME_MAX. */
bool rui_fed_name_ok(const char *name);

#endif
