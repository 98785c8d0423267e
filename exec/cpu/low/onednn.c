/* Loading oneDNN: one table of functions, one engine, one stream. */
#include "exec/cpu/low/onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static ru_status load(rui_dnnl *nn, ru_err *err)
{
    char name[32];
    (void)snprintf(name, sizeof name, "libdnnl.so.%d", DNNL_VERSION_MAJOR);
    nn->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (nn->library == NULL) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "the CPU device needs oneDNN, but %s; install libdnnl (Debian: libdnnl2)",
                       dlerror());
    }
#define RUI_X(fn)                                                              \
    {                                                                          \
        void *at = dlsym(nn->library, "dnnl_" #fn);                            \
        if (at == NULL) {                                                      \
            return RU_FAIL(err, RU_E_UNSUPPORTED,                              \
                           "%s has no function dnnl_%s; version %d.%d was "    \
                           "expected",                                         \
                           name, #fn, DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR); \
        }                                                                      \
        memcpy(&nn->fn, &at, sizeof at);                                       \
    }
    RUI_DNNL_LIST(RUI_X)
#undef RUI_X
    return RU_OK;
}

ru_status rui_dnnl_open(rui_dnnl *nn, ru_err *err)
{
    memset(nn, 0, sizeof *nn);
    ru_status st = load(nn, err);
    if (st == RU_OK && nn->engine_create(&nn->engine, dnnl_cpu, 0) != dnnl_success) {
        st = RU_FAIL(err, RU_E_UNSUPPORTED, "oneDNN has no engine for this CPU");
    }
    if (st == RU_OK &&
        nn->stream_create(&nn->stream, nn->engine, dnnl_stream_default_flags) != dnnl_success) {
        st = RU_FAIL(err, RU_E_MEM, "oneDNN cannot create a stream");
    }
    if (st != RU_OK) {
        rui_dnnl_close(nn);
    }
    return st;
}

bool rui_dnnl_exact_bytes(void)
{
    rui_dnnl nn = {0};
    ru_err err;
    if (load(&nn, &err) != RU_OK) {
        return false;
    }
    uint32_t isa = (uint32_t)nn.get_effective_cpu_isa(), wide = dnnl_cpu_isa_avx512_core_vnni;
    const uint32_t narrow = dnnl_cpu_isa_avx2_vnni;
    return (isa & wide) == wide || (isa & narrow) == narrow;
}

/* The library stays mapped: its primitive cache serves the next executable, and libgomp's threads
 * must not lose their code. */
void rui_dnnl_close(rui_dnnl *nn)
{
    if (nn->stream != NULL) {
        (void)nn->stream_destroy(nn->stream);
    }
    if (nn->engine != NULL) {
        (void)nn->engine_destroy(nn->engine);
    }
    nn->stream = NULL;
    nn->engine = NULL;
}

const char *rui_dnnl_status_name(dnnl_status_t st)
{
    static const char *const names[] = {"success",       "out of memory", "invalid arguments",
                                        "unimplemented", "iterator ends", "runtime error",
                                        "not required"};
    return (unsigned)st < sizeof names / sizeof names[0] ? names[st] : "unknown status";
}
