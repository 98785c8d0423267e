/* The metrics file of a run that goes on: whole lines of steps that count, and each step once.
 *
 *   resumed      lines after the checkpoint's step are of steps that are done again: cut off
 *   taken over   the file goes on under a new inode: who led before, if it still lives, writes into
 *                the old one, where nobody reads */
#include <string.h>

#include "base/str.h"
#include "run/report_impl.h"

enum { STEP, EVAL, EVENT, OTHER };

/* The step of a line that is about one, -1: of another line. */
static int64_t step_of(ru_str line, int *kind)
{
    static const char *const kinds[] = {"step", "eval", "event"};
    *kind = OTHER;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        char head[64];
        ru_text t = ru_text_into(head, sizeof head);
        ru_text_putf(&t, "{\"schema\":\"rubato.train.%s/1\",\"step\":", kinds[k]);
        if (!ru_str_starts(line, head)) {
            continue;
        }
        int64_t v = 0, i = t.n;
        for (; i < line.n && line.p[i] >= '0' && line.p[i] <= '9' && v < INT64_MAX / 100; i++) {
            v = v * 10 + (line.p[i] - '0');
        }
        *kind = (int)k;
        return i > t.n ? v : -1;
    }
    return -1;
}

/* Bytes that stay, and the last step and evaluation they tell. */
static int64_t keep(const ru_map_file *map, ru_run_report *r)
{
    ru_str rest = {(const char *)map->data, map->size_bytes}, line;
    int64_t end = 0;
    r->told = r->evaluated = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        int64_t next = (line.p - (const char *)map->data) + line.n + 1;
        int kind;
        int64_t step = step_of(line, &kind);
        if (next > map->size_bytes ||
            step > r->opt.after_step) { /* half a line of a killed process */
            break;
        }
        r->told = kind == STEP ? step : r->told;
        r->evaluated = kind == EVAL ? step : r->evaluated;
        end = next;
    }
    return end;
}

static ru_status go_on(ru_run_report *r, ru_err *err)
{
    ru_map_file map;
    if (!ru_path_is_file(r->path_metrics)) { /* none yet; a FIFO or device has no past */
        return RU_OK;
    }
    RU_TRY(ru_file_map(r->path_metrics, &map, err));
    int64_t size_bytes = keep(&map, r);
    r->goes_on = size_bytes > 0;
    ru_status st = ru_file_own(r->path_metrics, map.data, size_bytes, err);
    ru_file_unmap(&map);
    return st;
}

ru_status rui_report_files(ru_run_report *r, ru_err *err)
{
    RU_TRY(r->opt.append ? go_on(r, err) : RU_OK);
    RU_TRY(ru_log_file_open(r->path_metrics, r->opt.append, &r->metrics, err));
    ru_status st = ru_log_file_open(r->path_log, r->opt.append, &r->log, err);
    if (st != RU_OK) {
        ru_log_file_close(r->metrics);
        r->metrics = NULL;
    }
    return st;
}
