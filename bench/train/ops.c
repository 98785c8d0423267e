/* Single ops against ONNX Runtime, in turns: every op of the standard that world/graph/ops.def has,
 * as the one-node models that bench/ops.py makes. An op without a case is named with the reason. */
#include <stdio.h>
#include <string.h>

#include "bench/train/zoo.h"
#include "env/file/file.h"
#include "exec/pool.h"
#include "world/graph/graph.h"

enum { PEERS = 2 }; /* sides: Rubato and ONNX Runtime */

static const char install[] = "pip install onnx onnxruntime numpy";

/* Can rows of this op have the wanted text in their names? Text that names no op may be in any. */
static bool op_wanted(const ru_bench *b, const char *op)
{
    return strstr(op, b->only) != NULL || strstr(b->only, op) != NULL;
}

/* Have the models of one op made. */
static ru_status export_op(ru_bench *b, const char *folder, const char *op, ru_err *err)
{
    const char *scripts = ru_bench_scripts(b->arena);
    if (scripts == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "bench/ops.py is not beside this program");
    }
    const char *argv[] = {"python3",
                          ru_path_join(b->arena, scripts, "ops.py"),
                          folder,
                          op,
                          b->quick ? NULL : "--large",
                          NULL};
    ru_bench_side exporter = {.argv = argv};
    return ru_bench_export(&exporter, folder, install, err);
}

static ru_status tell_none(ru_bench *b, const char *op, const char *path, ru_err *err)
{
    ru_map_file why = {0};
    RU_TRY(ru_file_map(path, &why, err));
    fprintf(stderr, "%-38s no case: %.*s\n", op, (int)why.size_bytes, (const char *)why.data);
    ru_file_unmap(&why);
    b->told = true;
    return RU_OK;
}

/* Is this a model to run? Those of 64 MiB that an earlier run left take too long for a quick one.
 */
static bool model_wanted(const ru_bench *b, const char *name)
{
    static const char large[] = ".64M.onnx";
    size_t end = strlen(name), n = sizeof large - 1;
    bool is_large = end > n && strcmp(name + end - n, large) == 0;
    return end > 5 && strcmp(name + end - 5, ".onnx") == 0 && !(b->quick && is_large);
}

/* The files of one op: OP.CASE.SIZE.onnx, or OP.none. */
static ru_status run_op(ru_bench *b, const char *folder, const char *op, uint32_t threads,
                        ru_zoo_tally *tallies, uint32_t *refused, ru_err *err)
{
    char **names = NULL;
    uint32_t n = 0;
    size_t len = strlen(op);
    RU_TRY(ru_dir_list(folder, b->arena, &names, &n, err));
    for (uint32_t k = 0; k < n; k++) {
        size_t end = strlen(names[k]);
        if (strncmp(names[k], op, len) != 0 || names[k][len] != '.') {
            continue;
        }
        const char *path = ru_path_join(b->arena, folder, names[k]);
        if (strcmp(names[k] + len, ".none") == 0) {
            RU_TRY(tell_none(b, op, path, err));
        } else if (model_wanted(b, names[k])) {
            const char *model = ru_arena_strn(b->arena, names[k], (int64_t)end - 5);
            RU_TRY(ru_bench_zoo_model(b, model, path, threads, PEERS, tallies, refused, err));
        }
    }
    return RU_OK;
}

ru_status ru_bench_ops(ru_bench *b, ru_err *err)
{
    const char *folder = ru_path_join(b->arena, b->dir, "ops");
    uint32_t cores = ru_pool_cores(), refused = 0;
    bool any = false;
    RU_TRY(ru_dir_make(folder, err));
    for (uint32_t op = 0; op < RU_OP_COUNT; op++) {
        const ru_op_info *info = ru_op_get((ru_op)op);
        any = any || (info->onnx && op_wanted(b, info->name));
    }
    for (uint32_t threads = 1; threads <= 2 && threads <= cores; threads++) {
        ru_zoo_tally tallies[PEERS] = {{0}};
        for (uint32_t op = 0; op < RU_OP_COUNT; op++) {
            const ru_op_info *info = ru_op_get((ru_op)op);
            if (!info->onnx || (any && !op_wanted(b, info->name)) ||
                (b->threads != 0 && b->threads != threads)) {
                continue;
            }
            RU_TRY(export_op(b, folder, info->name, err));
            RU_TRY(run_op(b, folder, info->name, threads, tallies, &refused, err));
        }
        RU_TRY(ru_bench_zoo_mean_row(b, threads, 1, &tallies[1], err));
    }
    if (refused > 0) {
        fprintf(stderr, "%u models were not run\n", refused);
    }
    return RU_OK;
}
