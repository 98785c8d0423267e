#include "run/best.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"

bool ru_best_put(ru_best *b, int64_t step, double value)
{
    RU_CHECK(b->metric != NULL && step >= 0);
    if (step <= b->last) {
        return false;
    }
    b->last = step;
    double gain = b->more ? value - b->value : b->value - value;
    bool first = b->step == 0 || (isnan(b->value) && !isnan(value));
    if (!first && !(gain > b->least)) {
        b->since++;
        return false;
    }
    b->value = value;
    b->step = step;
    b->since = 0;
    return true;
}

/* The number behind "key": in a line of the metrics file. */
static bool number_of(ru_str line, const char *key, double *out)
{
    char head[64];
    int head_n = snprintf(head, sizeof head, "\"%s\":", key);
    RU_CHECK(head_n > 0 && head_n < (int)sizeof head);
    int64_t at = ru_str_find(line, head);
    if (at < 0) {
        return false;
    }
    ru_str rest = ru_str_from(line, at + head_n), value;
    return ru_str_next(&rest, ',', &value) &&
           (ru_str_f64(value, out) || (ru_str_next(&value, '}', &rest) && ru_str_f64(rest, out)));
}

ru_status ru_best_read(ru_best *b, const char *path, int64_t last_step, ru_err *err)
{
    ru_map_file map;
    if (!ru_path_is_file(path) || ru_path_bytes(path) == 0) {
        return RU_OK;
    }
    RU_TRY(ru_file_map(path, &map, err));
    ru_str rest = {(const char *)map.data, map.size_bytes}, line;
    while (ru_str_next(&rest, '\n', &line)) {
        double step, value;
        if (!ru_str_starts(line, "{\"schema\":\"rubato.train.eval/1\"") ||
            !number_of(line, "step", &step) || !(step >= 0 && step <= (double)last_step)) {
            continue;
        }
        (void)ru_best_put(b, (int64_t)step, number_of(line, b->metric, &value) ? value : RU_NAN);
    }
    ru_file_unmap(&map);
    return RU_OK;
}
