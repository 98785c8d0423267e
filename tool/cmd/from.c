#include "tool/cmd/from.h"

#include <string.h>

#include "base/fields.h"
#include "base/log.h"
#include "env/file/file.h"
#include "env/file/memfile.h"
#include "env/link/link_tcp.h"
#include "launch/launch.h"
#include "run/ckpt_store.h"
#include "run/copies.h"

static bool is_checkpoint(ru_arena *arena, const char *name)
{
    const char *manifest = ru_path_join(arena, name, "manifest.json");
    return manifest != NULL && ru_path_exists(manifest);
}

/* The first tensor in which two lists differ; NULL: none. */
static const char *other_tensor(const ru_arrays *mine, const ru_remote *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const ru_array *a = ru_arrays_find(mine, w->at[i].name);
        if (a == NULL || !ru_type_equal(&a->type, &w->at[i].type)) {
            return w->at[i].name;
        }
    }
    return mine->n == w->n ? NULL : "another number of tensors";
}

static ru_status same_model(const ru_rundir *run, const char *address, const ru_remote *w,
                            ru_arena *arena, ru_err *err)
{
    ru_map_file map;
    ru_safetensors file;
    RU_TRY(ru_ckpt_tensors(run->ckpt.dir, "model.safetensors", arena, &map, &file, err));
    const char *name = other_tensor(&file.tensors, w);
    ru_file_unmap(&map);
    return name == NULL ? RU_OK
                        : RU_FAIL(err, RU_E_DATA, "%s serves another model than that of %s: '%s'",
                                  address, run->dir, name);
}

/* A checkpoint that the user names is a promise of its very weights. */
static ru_status same_weights(const ru_rundir *run, const char *address, const ru_remote *w,
                              int64_t step, ru_arena *arena, ru_err *err)
{
    ru_remote mine;
    char a[33], b[33];
    RU_TRY(ru_remote_open(run, arena, &mine, err));
    ru_hash128_text(w->hash, a);
    ru_hash128_text(mine.hash, b);
    bool same = strcmp(a, b) == 0;
    ru_remote_close(&mine);
    return same ? RU_OK
                : RU_FAIL(
                      err, RU_E_DATA,
                      "%s serves other weights (after step %lld, hash %.12s) than %s (after step "
                      "%lld, hash %.12s)",
                      address, (long long)step, a, run->dir, (long long)run->ckpt.at.step, b);
}

static ru_status compare(const char *name, const char *address, const ru_remote *w, int64_t step,
                         ru_arena *arena, ru_err *err)
{
    ru_rundir run;
    if (strcmp(name, "-") == 0) {
        return RU_OK;
    }
    RU_TRY(ru_rundir_open(name, arena, &run, err));
    return is_checkpoint(arena, name) ? same_weights(&run, address, w, step, arena, err)
                                      : same_model(&run, address, w, arena, err);
}

static ru_status connect(ru_cmd_in *in, const char *address, rui_from *f, ru_err *err)
{
    const char *token;
    RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &token, err));
    const ru_fetch_options o = {.address = address,
                                .token = (const uint8_t *)token,
                                .token_bytes = (uint32_t)strlen(token)};
    return ru_fetch_open(&o, &f->fetch, err);
}

/* The file of an imported model, under a path for those that read it. */
static ru_status take_onnx(rui_from *f, const char *address, const ru_remote *w, ru_rundir *r,
                           ru_err *err)
{
    if (w->onnx == NULL) {
        return RU_FAIL(err, RU_E_DATA, "%s serves the weights of an imported model without it",
                       address);
    }
    RU_TRY(ru_memfile_open(w->onnx, w->onnx_bytes, &f->onnx, f->onnx_path, err));
    f->keeps = true;
    r->onnx = f->onnx_path;
    return RU_OK;
}

ru_status rui_from_open(ru_cmd_in *in, const char *name, rui_from *f, ru_rundir *run, ru_err *err)
{
    const char *address = ru_cmd_text(in, "from");
    ru_rundir r = {.dir = address};
    if (!ru_link_tcp_address_ok(address)) {
        return RU_FAIL(err, RU_E_USAGE, "--from '%s': expected HOST:PORT or [v6]:PORT", address);
    }
    RU_TRY(connect(in, address, f, err));
    const ru_remote *w = ru_fetch_weights(f->fetch);
    const char *path = ru_arena_printf(in->arena, "the model from %s", address);
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a description of weights");
    }
    RU_TRY(ru_ckpt_parse(address, path, w->state, w->state_bytes, in->arena, &r.ckpt, err));
    ru_log(RU_LOG_INFO, "tool", "from", "%s gives the weights after step %lld", address,
           (long long)r.ckpt.at.step);
    RU_TRY(compare(name, address, w, r.ckpt.at.step, in->arena, err));
    ru_status st = ru_job_parse("its job", r.ckpt.job_yaml, in->arena, &r.job, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "%s", path);
    }
    if (r.job.model.source == RU_MODEL_ONNX) {
        RU_TRY(take_onnx(f, address, w, &r, err));
    }
    RU_TRY(ru_remote_late_open(f->fetch, address, (ru_order_method)ru_cmd_choice(in, "order"),
                               in->arena, &f->late, err));
    r.late = &f->late.late;
    *run = r;
    return RU_OK;
}

void rui_from_close(rui_from *f)
{
    if (f->keeps) {
        ru_memfile_close(f->onnx);
        f->keeps = false;
    }
    ru_fetch_close(f->fetch);
    f->fetch = NULL;
}

ru_status rui_resume_from(ru_cmd_in *in, const char *out, bool is_worker, bool *resume, ru_err *err)
{
    int64_t step;
    const char *from = ru_cmd_text(in, "resume-from");
    if (from == NULL) {
        return RU_OK;
    }
    if (*resume) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--resume goes on from checkpoints in --out, --resume-from from a copy in a "
                       "store; give one of them");
    }
    if (out == NULL || is_worker) {
        return RU_FAIL(err, RU_E_USAGE,
                       "--resume-from needs a new folder for the run (--out DIR), in the command "
                       "that starts all workers");
    }
    RU_TRY(ru_copies_fetch(from, out, in->arena, &step, err));
    ru_log(RU_LOG_INFO, "tool", "resume", "the checkpoint of step %lld from %s is in %s",
           (long long)step, from, out);
    *resume = true;
    return RU_OK;
}
