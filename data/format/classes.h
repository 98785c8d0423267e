/* Which class numbers the labels of a dataset say (data/format/classes.c): a model gets outputs up
 * to the largest, also for those that no label says.
 *
 * Thread: one. */
#ifndef RU_DATA_CLASSES_H
#define RU_DATA_CLASSES_H

#include "data/data_impl.h"

typedef struct rui_classes_said {
    uint8_t *said; /* [RUI_CLASSES_MAX] */
} rui_classes_said;

RU_MUST_USE ru_status rui_classes_open(rui_classes_said *s, ru_err *err);
/* Labels outside 0 .. RUI_CLASSES_MAX-1 do not count. */
void rui_classes_put(rui_classes_said *s, int64_t label);
/* Warn when not all of `classes` classes were put. `where`: the file. A part that is held out of a
 * set says nothing: the set does. */
void rui_classes_say(const rui_classes_said *s, const ru_data_options *opt, const char *where,
                     int64_t classes);
void rui_classes_close(rui_classes_said *s);

#endif
