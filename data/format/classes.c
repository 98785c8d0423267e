#include "data/format/classes.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

ru_status rui_classes_open(rui_classes_said *s, ru_err *err)
{
    s->said = calloc(RUI_CLASSES_MAX, 1);
    return s->said != NULL ? RU_OK : rui_no_memory(err, "classes", RUI_CLASSES_MAX);
}

void rui_classes_close(rui_classes_said *s)
{
    free(s->said);
    s->said = NULL;
}

void rui_classes_put(rui_classes_said *s, int64_t label)
{
    if (label >= 0 && label < RUI_CLASSES_MAX) {
        s->said[label] = 1;
    }
}

void rui_classes_say(const rui_classes_said *s, const ru_data_options *opt, const char *where,
                     int64_t classes)
{
    int64_t unused = 0, first = -1;
    for (int64_t k = classes - 1; k >= 0; k--) {
        unused += s->said[k] == 0;
        first = s->said[k] == 0 ? k : first;
    }
    if (unused > 0 && !opt->held_out) {
        ru_log(RU_LOG_WARN, "data", "classes",
               "%s: the labels are numbers up to %lld, which makes %lld classes, but %lld of them "
               "(such as %lld) have no sample and can still be predicted; number the labels from 0 "
               "without gaps%s",
               where, (long long)classes - 1, (long long)classes, (long long)unused,
               (long long)first,
               opt->format != NULL && strcmp(opt->format, "csv") == 0 ? ", or write them as words"
                                                                      : "");
    }
}
