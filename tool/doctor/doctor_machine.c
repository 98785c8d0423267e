/* Doctor's checks of the machine: processor, memory, disk, limits. */
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/unit.h"
#include "env/file/file.h"
#include "env/process/memory.h"
#include "env/process/self.h"
#include "exec/pool.h"
#include "tool/doctor/doctor.h"

#if defined(__x86_64__)
/* Instruction sets that the kernels use, by CPUID leaf 7. The operating system's part (XCR0) is
 * asked by
 * __builtin_cpu_supports for the vector registers. */
static void put_features(ru_text *t, bool *slow)
{
    unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    ru_text_put(t, avx512 ? "AVX-512" : avx2 ? "AVX2" : "no AVX2");
    if (avx512 && (c >> 11 & 1) != 0) {
        ru_text_put(t, ", VNNI");
    }
    if (avx512 && (a1 >> 5 & 1) != 0) {
        ru_text_put(t, ", BF16");
    }
    if ((d >> 22 & 1) != 0) {
        ru_text_put(t, ", AMX-BF16");
    }
    *slow = !avx2;
}
#else
static void put_features(ru_text *t, bool *slow)
{
    ru_text_put(t, "not x86-64: only the portable kernels run");
    *slow = true;
}
#endif

void rui_doctor_processor(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)arena;
    (void)dir;
    char name[128];
    ru_self_cpu(name, sizeof name);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    m->cores = ru_pool_cores();
    m->cores_online = online > 0 ? (uint32_t)online : m->cores;
    ru_text_putf(&c->text, "%s, %u of %u cores for this process, ", name, m->cores,
                 m->cores_online);
    bool slow = false;
    put_features(&c->text, &slow);
    if (slow) {
        c->health = RUI_WARN;
        ru_text_put(&c->fix, "use a processor with AVX2 or AVX-512; it is several times as fast");
    }
}

void rui_doctor_memory(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    (void)dir;
    m->memory_bytes = ru_self_memory_bytes();
    int64_t known = ru_memory_free_bytes();
    m->memory_free_bytes = known > 0 ? known : 0;
    m->memory_limit_bytes = ru_memory_limit_bytes(arena);
    bool limited = m->memory_limit_bytes > 0 && m->memory_limit_bytes < m->memory_bytes;
    int64_t usable = m->memory_free_bytes;
    usable = limited && m->memory_limit_bytes < usable ? m->memory_limit_bytes : usable;
    ru_text_size_short(&c->text, m->memory_bytes);
    ru_text_put(&c->text, ", ");
    ru_text_size_short(&c->text, m->memory_free_bytes);
    ru_text_put(&c->text, " free");
    if (limited) {
        ru_text_put(&c->text, ", the control group allows ");
        ru_text_size_short(&c->text, m->memory_limit_bytes);
    }
    if (usable > 0 && usable < (int64_t)512 << 20) {
        c->health = RUI_WARN;
        ru_text_put(&c->fix,
                    "end other programs, or train small models with small batches (train.batch)");
    }
}

void rui_doctor_disk(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    struct statvfs fs;
    if (statvfs(dir, &fs) != 0) {
        c->health = RUI_BROKEN;
        ru_text_putf(&c->text, "%s: cannot be read", dir);
        ru_text_putf(&c->fix, "mkdir -p %s", dir);
        return;
    }
    m->disk_free_bytes = (int64_t)(fs.f_bavail * fs.f_frsize);
    ru_text_size_short(&c->text, m->disk_free_bytes);
    ru_text_putf(&c->text, " free in %s", dir);
    /* Checkpoints are replaced atomically: try just that. */
    const char *probe =
        ru_arena_printf(arena, "%s/.rubato-doctor-%lld", dir, (long long)ru_self_pid());
    ru_err err = {0};
    ru_status st = probe == NULL ? RU_E_MEM : ru_file_replace(probe, "probe\n", 6, &err);
    if (st == RU_OK) {
        st = ru_path_remove(probe, &err);
    }
    if (st != RU_OK) {
        c->health = RUI_BROKEN;
        ru_text_putf(&c->text, ", but %s", err.text);
        ru_text_put(&c->fix,
                    "name another folder: rubato doctor DIR, or rubato train JOB --out DIR");
    } else if (m->disk_free_bytes < (int64_t)1 << 30) {
        c->health = RUI_WARN;
        ru_text_put(&c->fix, "free some space, or keep fewer checkpoints (checkpoint.keep)");
    }
}

void rui_doctor_limits(ru_arena *arena, const char *dir, rui_check *c, rui_machine *m)
{
    enum { FILES_MIN = 256 };
    (void)arena;
    (void)dir;
    (void)m;
    struct rlimit files = {0};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        ru_text_put(&c->text, "unknown");
        return;
    }
    ru_text_putf(&c->text, "%llu open files", (unsigned long long)files.rlim_cur);
    if (files.rlim_cur < FILES_MIN) {
        c->health = RUI_WARN;
        ru_text_putf(&c->fix, "ulimit -n %d", 1024);
    }
}
