#include "train/app/app_world.h"

#include "base/log.h"
#include "env/file/file.h"
#include "env/process/self.h"
#include "store/world_file.h"

static ru_status full(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for the world file of the run");
}

ru_status ru_app_world_get(const ru_app_world *a, ru_arena *arena, ru_world *out, ru_err *err)
{
    char name[256], cpu[256];
    ru_self_host(name, sizeof name);
    ru_self_cpu(cpu, sizeof cpu);
    ru_cluster_host *host = RU_NEW(arena, ru_cluster_host, 1);
    ru_cluster_device *device = RU_NEW(arena, ru_cluster_device, 1);
    ru_world_job *job = RU_NEW(arena, ru_world_job, 1);
    if (host == NULL || device == NULL || job == NULL) {
        return full(err);
    }
    *host = (ru_cluster_host){.name = ru_arena_str(arena, name[0] != '\0' ? name : "localhost"),
                              .cpu = ru_arena_str(arena, cpu),
                              .cores = a->threads,
                              .memory_bytes = ru_self_memory_bytes(),
                              .availability = 1,
                              .market = ""};
    if (host->name == NULL || host->cpu == NULL) {
        return full(err);
    }
    *device =
        (ru_cluster_device){.name = "cpu", .host = host->name, .type = "cpu", .availability = 1};
    *job = (ru_world_job){.name = a->file->job->name,
                          .model = a->file->ops->name,
                          .data = "",
                          .batch = a->batch,
                          .samples = a->samples,
                          .steps = a->clocks,
                          .parameters = a->parameters,
                          .workers_min = 1};
    *out = (ru_world){.cluster = {.hosts = {host, 1}, .devices = {device, 1}}, .jobs = {job, 1}};
    return a->decisions != NULL ? ru_decisions_get(a->decisions, arena, out, err) : RU_OK;
}

static ru_status put(const ru_app_world *a, ru_arena *arena, ru_err *err)
{
    ru_world world;
    ru_text text = ru_text_arena(arena);
    const char *path = ru_path_join(arena, a->out, "world.json");
    RU_TRY(ru_app_world_get(a, arena, &world, err));
    RU_TRY(ru_world_file_put(&world, &text, err));
    return path == NULL ? full(err) : ru_file_own(path, text.p, text.n, err);
}

void ru_app_world_put(const ru_app_world *a)
{
    ru_arena arena;
    ru_err err;
    ru_arena_init(&arena, 0);
    if (put(a, &arena, &err) != RU_OK) {
        ru_log(RU_LOG_WARN, "train", "world", "%s", err.text);
    }
    ru_arena_fini(&arena);
}
