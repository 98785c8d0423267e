/* rubato bench storage --only loop: the pipelines of storage_live.c on real file systems.
 *
 * Each world has two ext4 file systems in images on loop devices; a control group bounds their
 * operations and bytes a second. A worker in that group mounts them where it alone sees them and
 * runs both worlds at the same time: a thread for each pipeline reads from the disks and thinks,
 * one thread asks for places. The kernel takes mounts and loop devices back when the worker and
 * this process end, however they end. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bench/reader/reader.h"
#include "bench/reader/storage_live.h"
#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/group.h"
#include "env/process/process.h"
#include "env/process/self.h"

enum {
    WORLDS = RUI_LIVE_WORLDS,
    DISKS = 2 * WORLDS, /* fast and slow of each world */
    FIGURES = 6,
    TRIES = 50,
};
static const int64_t disk_ops[2] = {5000, 120}, disk_bytes[2] = {500000000, 100000000};

/* -- loop devices ------------------------------------------------------------------------------ */

typedef struct disk {
    int fd; /* -1: none */
    char path[32];
    uint32_t major, minor;
} disk;

static ru_status make_image(const char *path, int64_t size_bytes, ru_err *err)
{
    const char *argv[] = {"mkfs.ext4", "-q", "-F", "-O", "^has_journal", path, NULL};
    const ru_process_options opt = {.argv = argv, .quiet = true};
    ru_process *p = NULL;
    (void)unlink(path); /* of one that was killed */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool made = fd >= 0 && ftruncate(fd, size_bytes) == 0;
    if (fd >= 0) {
        close(fd);
    }
    if (!made) {
        return RU_FAIL(err, RU_E_CREATE, "cannot make %s: %s", path, strerror(errno));
    }
    ru_status st = ru_process_start(&opt, &p, err);
    int code = st == RU_OK ? ru_process_wait(p) : 0;
    ru_process_close(p);
    RU_TRY(st);
    return code == 0 ? RU_OK
                     : RU_FAIL(err, RU_E_MISSING,
                               "mkfs.ext4 %s ended with %d (apt install e2fsprogs)", path, code);
}

/* The kernel gives it back when nobody has it open or mounted. */
static ru_status attach(const char *image, disk *d, ru_err *err)
{
    struct stat st;
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int file = open(image, O_RDWR | O_CLOEXEC);
    bool is = false;
    for (uint32_t k = 0; control >= 0 && file >= 0 && !is && k < TRIES; k++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE); /* others may take it, too */
        struct loop_config c = {.fd = (uint32_t)file, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
        (void)snprintf(d->path, sizeof d->path, "/dev/loop%d", number);
        d->fd = number >= 0 ? open(d->path, O_RDWR | O_CLOEXEC) : -1;
        is = d->fd >= 0 && ioctl(d->fd, LOOP_CONFIGURE, &c) == 0 && fstat(d->fd, &st) == 0;
        if (!is && d->fd >= 0) {
            close(d->fd);
            d->fd = -1;
        }
        if (!is && errno != EBUSY) {
            break;
        }
    }
    int why = errno;
    if (file >= 0) {
        close(file);
    }
    if (control >= 0) {
        close(control);
    }
    if (!is) {
        return RU_FAIL(err, RU_E_PERM, "there is no loop device for %s: %s", image, strerror(why));
    }
    d->major = major(st.st_rdev);
    d->minor = minor(st.st_rdev);
    return RU_OK;
}

/* -- rows -------------------------------------------------------------------------------------- */

/* Waits for the worker's figures. Errors: RU_E_CANCELLED: a stop signal came. */
static ru_status run_worker(const char *const *argv, const ru_group *group, double v[FIGURES],
                            ru_err *err)
{
    const ru_process_options opt = {
        .argv = argv, .pipe_out = true, .own_group = true, .group = group};
    ru_process *p = NULL;
    const char *line = NULL;
    RU_TRY(ru_process_start(&opt, &p, err));
    ru_status st = RU_E_AGAIN;
    while (st == RU_E_AGAIN) {
        ru_err late = {0};
        st = ru_self_stop_asked() != 0
                 ? RU_FAIL(err, RU_E_CANCELLED, "stopped by signal %d", ru_self_stop_asked())
                 : ru_process_line(p, INT64_C(200000000), &line, &late);
    }
    uint32_t n = 0;
    for (char *end = NULL; st == RU_OK && line != NULL && n < FIGURES; line = end) {
        v[n] = strtod(line, &end);
        n += end != line ? 1 : FIGURES + 1;
    }
    ru_process_close(p);
    return st == RU_OK && n != FIGURES
               ? RU_FAIL(err, RU_E_PEER, "the worker ended without its figures")
               : st;
}

static ru_status add(ru_bench *b, const char *name, const char *unit, double ours, const char *peer,
                     double theirs, double goal, ru_err *err)
{
    const ru_bench_row row = {.name = name,
                              .unit = unit,
                              .lower = true,
                              .ours = ru_bench_stat_of(&ours, 1),
                              .theirs = ru_bench_stat_of(&theirs, 1),
                              .peer = peer,
                              .goal = goal};
    return ru_bench_add(b, &row, err);
}

static ru_status rows(ru_bench *b, const double v[FIGURES], ru_err *err)
{
    static const char cost[] = "loop: files of 8 pipelines on two file systems, cost";
    const char *unit = "% of all on the slow disk";
    RU_TRY(add(b, cost, unit, v[0], "first fit", v[1], 1 / 0.75, err));
    RU_TRY(add(b, cost, unit, v[0], "an oracle", v[2], 1 / 1.15, err));
    RU_TRY(add(b, "loop: files of 8 pipelines on two file systems, makespan", "s", v[3],
               "first fit", v[4], 1, err));
    return add(b, "loop: 30 rounds after all steps got other names", unit, v[5],
               "the rounds before", v[0], 1 / 1.2, err);
}

/* The group and the worker, on devices that are there. */
static ru_status measure(ru_bench *b, const char *dir, const disk *disks, ru_err *err)
{
    int64_t speed = b->quick ? 10 : 1;
    ru_group_io io[DISKS];
    ru_group *group = NULL;
    ru_err none = {0};
    double v[FIGURES];
    for (uint32_t k = 0; k < DISKS; k++) {
        int64_t ops = disk_ops[k % 2] * speed, bytes = disk_bytes[k % 2] * speed;
        io[k] = (ru_group_io){disks[k].major, disks[k].minor, bytes, bytes, ops, ops};
    }
    const ru_group_limits l = {.io = io, .n_io = DISKS};
    const char *name =
        ru_arena_printf(b->arena, "rubato-bench-loop-%lld", (long long)ru_self_pid());
    const char *rounds = b->quick ? "60" : "240", *fast = b->quick ? "10" : "1";
    const char *argv[] = {"/proc/self/exe", "--worker",    "storage",     dir,
                          rounds,           fast,          disks[0].path, disks[1].path,
                          disks[2].path,    disks[3].path, NULL};
    RU_TRY(name != NULL ? ru_group_make(name, &l, NULL, NULL, &group, err)
                        : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full"));
    ru_self_stop_watch();
    ru_status st = run_worker(argv, group, v, err);
    ru_self_stop_unwatch();
    for (uint32_t k = 0; k < TRIES && ru_group_remove(group, &none) == RU_E_AGAIN; k++) {
        ru_clock_pause(INT64_C(20000000));
    }
    ru_group_close(group);
    return st == RU_OK ? rows(b, v, err) : st;
}

ru_status rui_bench_loop(ru_bench *b, const char *dir, ru_err *err)
{
    static const int64_t sizes[2] = {INT64_C(256) << 20, INT64_C(1) << 30};
    disk disks[DISKS];
    ru_status st = geteuid() == 0 ? RU_OK
                                  : RU_FAIL(err, RU_E_PERM,
                                            "rows of loop devices need root: for the devices, "
                                            "mounts and a control group");
    for (uint32_t k = 0; k < DISKS; k++) {
        disks[k].fd = -1;
    }
    for (uint32_t k = 0; st == RU_OK && k < DISKS; k++) {
        const char *image = ru_arena_printf(b->arena, "%s/image %u", dir, k);
        st = image != NULL ? make_image(image, sizes[k % 2], err)
                           : RU_FAIL(err, RU_E_LIMIT, "the arena of the benchmark is full");
        st = st == RU_OK ? attach(image, &disks[k], err) : st;
    }
    st = st == RU_OK ? measure(b, dir, disks, err) : st;
    for (uint32_t k = 0; k < DISKS; k++) {
        if (disks[k].fd >= 0) {
            close(disks[k].fd);
        }
    }
    return st;
}
