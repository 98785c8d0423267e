#include "fleet/snapshot.h"

#include <stddef.h>

#include "env/file/file.h"

enum { SNAPSHOTS = 3 };

const char *rui_fed_snapshot_path(const char *out, int64_t round, ru_arena *arena)
{
    return ru_arena_printf(arena, "%s/federation/%09lld", out, (long long)round);
}

ru_status rui_fed_snapshot_open(const char *out, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *folder = ru_path_join(&arena, out, "federation");
    ru_status st = folder != NULL ? ru_dir_make(folder, err)
                                  : RU_FAIL(err, RU_E_MEM, "no memory for the name of a folder");
    ru_arena_fini(&arena);
    return st;
}

ru_status rui_fed_snapshot_write(const char *out, int64_t round, const void *data,
                                 int64_t size_bytes, const char *line, int64_t n, ru_err *err)
{
    ru_arena arena;
    ru_arena_init(&arena, 0);
    const char *path = rui_fed_snapshot_path(out, round, &arena);
    const char *old = rui_fed_snapshot_path(out, round - SNAPSHOTS, &arena);
    const char *lines = ru_path_join(&arena, out, "federation.jsonl");
    ru_log_file *log = NULL;
    ru_status st = path != NULL && old != NULL && lines != NULL
                       ? RU_OK
                       : RU_FAIL(err, RU_E_MEM, "no memory for the name of a snapshot");
    if (st == RU_OK && data != NULL) {
        st = ru_file_own(path, data, size_bytes, err);
    }
    st = st == RU_OK ? ru_log_file_open(lines, true, &log, err) : st;
    if (st == RU_OK) {
        st = ru_log_file_append(log, line, n, err);
        ru_log_file_close(log);
    }
    if (st == RU_OK && round > SNAPSHOTS && ru_path_exists(old)) {
        st = ru_path_remove(old, err);
    }
    ru_arena_fini(&arena);
    return st;
}
