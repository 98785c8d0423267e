/* Reading a run directory: everything a trained model needs, from the folder alone.
 *
 *     OUT/job.yaml       resolved job          OUT/checkpoints/<step>/   newest complete one
 *     OUT/model.onnx     an imported model     OUT/metrics.jsonl, log, trace/, plans/, world.json
 *     OUT/lock           locked by the job that works in it (env/file/claim.h)
 *
 * A checkpoint's folder alone is enough: it contains the job and the facts of the data. Only an
 * imported model is searched in the run directory above it.
 *
 * Thread: any, no shared state. */
#ifndef RU_RUN_RUNDIR_H
#define RU_RUN_RUNDIR_H

#include "run/ckpt.h"
#include "run/late.h"

typedef struct ru_rundir {
    const char *dir;     /* as given */
    ru_ckpt_info ckpt;   /* the checkpoint chosen */
    ru_job job;          /* of that checkpoint */
    const char *onnx;    /* the imported model's file; NULL: a zoo model */
    const ru_late *late; /* brings the trained values; NULL: they stand in ckpt.dir */
} ru_rundir;

/* Open a checkpoint's folder, or a run directory: its best checkpoint where the job keeps that,
 * else the newest; the log says when it is the best. Everything lives in `arena`. Errors:
 * RU_E_MISSING, RU_E_DATA. */
RU_MUST_USE ru_status ru_rundir_open(const char *path, ru_arena *arena, ru_rundir *out,
                                     ru_err *err);

/* Open data to use the model on: files in the job's format, or the job's test data when n_paths is
 * 0. Classes have the numbers they had in training. `labels` false: none are needed, and there may
 * be no y. With data.strict: false a damaged sample is one without values, and with labels it is
 * left out. Errors: RU_E_USAGE when there are neither, RU_E_DATA when samples have another shape.
 */
RU_MUST_USE ru_status ru_rundir_data(const ru_rundir *r, const char *const *paths, uint32_t n_paths,
                                     bool labels, ru_dataset **out, ru_err *err);

/* The model with its trained values: STATE of out->infer has data. What export writes.
 * Owner: ru_model_close. */
RU_MUST_USE ru_status ru_rundir_model(const ru_rundir *r, ru_arena *arena, ru_model *out,
                                      ru_err *err);

#endif
