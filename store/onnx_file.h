/* ONNX models on disk: the model file mapped, weights in files beside it mapped as they are asked
 * for.
 *
 * A model may name other files for its weights. They are opened only when they lie inside the
 * model's folder, symbolic links resolved: a downloaded model must not read what is not its own.
 *
 * Thread: one at a time. */
#ifndef RU_STORE_ONNX_FILE_H
#define RU_STORE_ONNX_FILE_H

#include "env/file/file.h"
#include "world/onnx/onnx.h"

RU_API_BEGIN

enum { RU_ONNX_PARTS_MAX = 64 }; /* files of external weights */

typedef struct ru_onnx_file {
    ru_map_file model;
    char *folder; /* absolute, links resolved */
    struct {
        char *location;
        ru_map_file map;
    } parts[RU_ONNX_PARTS_MAX];
    uint32_t n_parts;
} ru_onnx_file;

/* Map the model. Graphs read from it are views of it: close it after their last use.
 * Errors: RU_E_MISSING, RU_E_IO, RU_E_PERM. */
RU_MUST_USE ru_status ru_onnx_file_open(const char *path, ru_onnx_file *out, ru_err *err);
void ru_onnx_file_close(ru_onnx_file *f); /* accepts zeroed memory */

/* The binding for ru_onnx_options.external; valid while `f` is open and stays where it is. */
ru_onnx_external ru_onnx_file_external(ru_onnx_file *f);

/* Write a graph as a model file, atomically. Weights that do not fit into an ONNX file (2 GiB), or
 * with opt->external all but the smallest, go to PATH.data beside it, which is complete before the
 * model appears; *external (may be NULL) says whether. opt->outside is not for the caller here.
 * Errors: as ru_onnx_write; RU_E_CREATE, RU_E_IO. */
RU_MUST_USE ru_status ru_onnx_file_save(const char *path, const ru_graph *g,
                                        const ru_onnx_write_options *opt, bool *external,
                                        ru_err *err);

RU_API_END

#endif
