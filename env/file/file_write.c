/* Writing files: atomic replacement and growing files.
 *
 * A file appears under its name in four steps, each of which a crash may follow without harm: write
 * to "<path>.tmp-<pid>-<n>", fsync it, rename over the name, fsync the folder. The name is that at
 * the end of symbolic links. Devices, FIFOs and what /proc links to are never replaced: the bytes
 * go into them as they come. */
#include "env/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file_error.h"
#include "env/file/own.h"
#include "env/probe_impl.h"

enum { PATH_BYTES_MAX = 4096, LINKS_MAX = 40 /* as the kernel follows */ };

struct ru_out {
    char *path, *temp; /* temp NULL: written through */
    int fd;
    bool committed;
};

struct ru_log_file {
    char *path;
    int fd;
};

static atomic_uint temp_counter;

static ru_status write_full(int fd, const char *path, const void *data, int64_t size_bytes,
                            ru_err *err)
{
    int64_t done = 0, begun_ns = rui_probed() ? ru_clock_now().ns : 0;
    while (done < size_bytes) {
        ssize_t n = write(fd, (const uint8_t *)data + done, (size_t)(size_bytes - done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rui_file_fail(err, errno, "write", path);
        }
        done += n;
    }
    if (begun_ns != 0) {
        rui_probe(RU_PROBE_WRITE, begun_ns, ru_clock_now().ns, size_bytes);
    }
    return RU_OK;
}

/* 0: done. Data alone, or with all that belongs to the file. */
static int sync_told(int fd, bool data)
{
    int64_t begun_ns = rui_probed() ? ru_clock_now().ns : 0;
    int rc = data ? fdatasync(fd) : fsync(fd);
    if (begun_ns != 0) {
        int kept = errno;
        rui_probe(RU_PROBE_SYNC, begun_ns, ru_clock_now().ns, 0);
        errno = kept;
    }
    return rc;
}

static ru_status sync_folder_of(const char *path, ru_err *err)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    if (n >= (int)sizeof dir) {
        return rui_file_fail(err, ENAMETOOLONG, "sync the folder of", path);
    }
    (void)snprintf(dir, sizeof dir, "%.*s", n, slash == NULL ? "." : path);
    ru_status st = RU_OK;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* EINVAL: file systems that cannot sync folders; their renames are as durable as they get. */
    if (fd < 0 || (sync_told(fd, false) != 0 && errno != EINVAL)) {
        st = rui_file_fail(err, errno, "sync the folder", dir);
    }
    if (fd >= 0) {
        close(fd);
    }
    return st;
}

/* Follow symbolic links by their text, so that the last one may name a file that is not there yet.
 * `target` holds a path and takes the one at the end; `proc`: /proc was on the way. 0, or what
 * errno would be. */
static int follow_links(char target[PATH_BYTES_MAX], bool *proc)
{
    char text[PATH_BYTES_MAX];
    for (uint32_t k = 0; k < LINKS_MAX; k++) {
        *proc = *proc || strncmp(target, "/proc/", 6) == 0;
        ssize_t n = readlink(target, text, sizeof text - 1);
        if (n < 0) {
            return errno == EINVAL || errno == ENOENT ? 0 : errno; /* no link, or nothing there */
        }
        const char *slash = strrchr(target, '/');
        size_t head = text[0] == '/' || slash == NULL ? 0 : (size_t)(slash + 1 - target);
        if (head + (size_t)n >= PATH_BYTES_MAX) {
            return ENAMETOOLONG;
        }
        memcpy(target + head, text, (size_t)n);
        target[head + (size_t)n] = 0;
    }
    return ELOOP;
}

/* Where the bytes for `path` go: into what is there (`through`), or into a new file that takes the
 * name `target`. Links of /proc (/dev/stdout) lead to open files, which have no name to be replaced
 * under. */
static ru_status find_target(const char *path, char target[PATH_BYTES_MAX], bool *through,
                             ru_err *err)
{
    struct stat st, end;
    size_t n = strlen(path);
    *through = false;
    if (n >= PATH_BYTES_MAX) {
        return rui_file_fail_new(err, ENAMETOOLONG, "create", path);
    }
    memcpy(target, path, n + 1);
    bool there = stat(path, &st) == 0;
    if (there && S_ISDIR(st.st_mode)) {
        return rui_file_fail_new(err, EISDIR, "create", path);
    }
    if (there && !S_ISREG(st.st_mode)) {
        *through = true;
        return RU_OK;
    }
    bool proc = false;
    int failed = follow_links(target, &proc);
    if (failed != 0) {
        return rui_file_fail_new(err, failed, "create", path);
    }
    bool same = there && !proc && lstat(target, &end) == 0 && end.st_dev == st.st_dev &&
                end.st_ino == st.st_ino;
    *through = there && !same;
    return RU_OK;
}

/* `own`: whatever has the name goes away, a link or FIFO too. */
static ru_status out_open(const char *path, mode_t mode, bool own, ru_out **out, ru_err *err)
{
    char end[PATH_BYTES_MAX];
    const char *target = own ? path : end;
    bool through = false;
    RU_TRY(own ? RU_OK : find_target(path, end, &through, err));
    ru_out *o = calloc(1, sizeof *o);
    size_t n = strlen(target) + 48;
    if (o != NULL) {
        o->fd = -1;
        o->path = strdup(through ? path : target);
        o->temp = through ? NULL : malloc(n);
    }
    if (o == NULL || o->path == NULL || (o->temp == NULL && !through)) {
        ru_out_close(o);
        return RU_FAIL(err, RU_E_MEM, "no memory to write %s", path);
    }
    if (through) {
        o->fd = open(path, O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC);
    } else {
        unsigned k = atomic_fetch_add(&temp_counter, 1);
        snprintf(o->temp, n, "%s.tmp-%ld-%u", target, (long)getpid(), k);
        o->fd = open(o->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    if (o->fd < 0) {
        ru_status st = rui_file_fail_new(err, errno, through ? "open" : "create", path);
        o->committed = true; /* nothing to remove */
        ru_out_close(o);
        return st;
    }
    *out = o;
    return RU_OK;
}

ru_status ru_out_open(const char *path, ru_out **out, ru_err *err)
{
    return out_open(path, 0644, false, out, err);
}

ru_status ru_out_open_own(const char *path, ru_out **out, ru_err *err)
{
    return out_open(path, 0644, true, out, err);
}

ru_status ru_out_write(ru_out *o, const void *data, int64_t size_bytes, ru_err *err)
{
    RU_CHECK(o->fd >= 0);
    return write_full(o->fd, o->path, data, size_bytes, err);
}

ru_status ru_out_commit(ru_out *o, ru_err *err)
{
    RU_CHECK(o->fd >= 0 && !o->committed);
    bool through = o->temp == NULL;
    if (sync_told(o->fd, false) != 0 &&
        !(through && (errno == EINVAL || errno == EROFS))) { /* a pipe's */
        return rui_file_fail(err, errno, "sync", o->path);
    }
    int rc = close(o->fd);
    o->fd = -1;
    if (rc != 0) {
        return rui_file_fail(err, errno, "close", o->path);
    }
    if (through) {
        o->committed = true;
        return RU_OK;
    }
    if (rename(o->temp, o->path) != 0) {
        return rui_file_fail_new(err, errno, "rename the finished file to", o->path);
    }
    o->committed = true;
    return sync_folder_of(o->path, err);
}

void ru_out_close(ru_out *o)
{
    if (o == NULL) {
        return;
    }
    if (o->fd >= 0) {
        close(o->fd);
    }
    if (!o->committed && o->temp != NULL) {
        (void)unlink(o->temp);
    }
    free(o->path);
    free(o->temp);
    free(o);
}

static ru_status replace(const char *path, mode_t mode, bool own, const void *data,
                         int64_t size_bytes, ru_err *err)
{
    ru_out *o = NULL;
    RU_TRY(out_open(path, mode, own, &o, err));
    ru_status st = ru_out_write(o, data, size_bytes, err);
    if (st == RU_OK) {
        st = ru_out_commit(o, err);
    }
    ru_out_close(o);
    return st;
}

ru_status ru_file_replace(const char *path, const void *data, int64_t size_bytes, ru_err *err)
{
    return replace(path, 0644, false, data, size_bytes, err);
}

ru_status ru_file_own(const char *path, const void *data, int64_t size_bytes, ru_err *err)
{
    return replace(path, 0644, true, data, size_bytes, err);
}

ru_status ru_file_secret(const char *path, const void *data, int64_t size_bytes, ru_err *err)
{
    return replace(path, 0600, true, data, size_bytes, err);
}

ru_status rui_open_own(const char *path, int flags, unsigned mode, int *fd, ru_err *err)
{
    struct stat st;
    int f = open(path, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, (mode_t)mode);
    int failed = errno;
    bool other = f >= 0 ? fstat(f, &st) == 0 && !S_ISREG(st.st_mode)
                        : lstat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (f >= 0 && !other) {
        *fd = f;
        return RU_OK;
    }
    if (f >= 0) {
        close(f);
    }
    if (!other) {
        return (flags & O_CREAT) != 0 ? rui_file_fail_new(err, failed, "create", path)
                                      : rui_file_fail(err, failed, "open", path);
    }
    return RU_FAIL(err, RU_E_CREATE,
                   "%s is %s, expected a regular file of the run or none; remove it", path,
                   S_ISLNK(st.st_mode)    ? "a symbolic link"
                   : S_ISFIFO(st.st_mode) ? "a FIFO"
                   : S_ISDIR(st.st_mode)  ? "a folder"
                                          : "a device or socket");
}

ru_status ru_log_file_open(const char *path, bool keep_old, ru_log_file **out, ru_err *err)
{
    ru_log_file *f = calloc(1, sizeof *f);
    if (f == NULL || (f->path = strdup(path)) == NULL) {
        free(f);
        return RU_FAIL(err, RU_E_MEM, "no memory to open %s", path);
    }
    int flags = O_WRONLY | O_CREAT | O_APPEND | (keep_old ? 0 : O_TRUNC);
    ru_status st = rui_open_own(path, flags, 0644, &f->fd, err);
    if (st != RU_OK) {
        free(f->path);
        free(f);
        return st;
    }
    *out = f;
    return RU_OK;
}

ru_status ru_log_file_append(ru_log_file *f, const void *data, int64_t size_bytes, ru_err *err)
{
    off_t from = lseek(f->fd, 0, SEEK_END);
    ru_status st = write_full(f->fd, f->path, data, size_bytes, err);
    if (st != RU_OK && from >= 0) {
        (void)!ftruncate(f->fd, from); /* what a full disk cut: the next line begins as one */
    }
    return st;
}

ru_status ru_log_file_sync(ru_log_file *f, ru_err *err)
{
    return sync_told(f->fd, true) == 0 ? RU_OK : rui_file_fail(err, errno, "sync", f->path);
}

void ru_log_file_close(ru_log_file *f)
{
    if (f != NULL) {
        close(f->fd);
        free(f->path);
        free(f);
    }
}

ru_status rui_file_sync(int fd, const char *path, bool name, ru_err *err)
{
    if (sync_told(fd, false) != 0) {
        return rui_file_fail(err, errno, "sync", path);
    }
    return name ? sync_folder_of(path, err) : RU_OK;
}

ru_status ru_path_rename(const char *from, const char *to, ru_err *err)
{
    if (rename(from, to) != 0) {
        return rui_file_fail_new(err, errno, "rename to", to);
    }
    return sync_folder_of(to, err);
}

ru_status ru_path_link(const char *target, const char *path, ru_err *err)
{
    char temp[PATH_MAX];
    struct stat st;
    if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode)) {
        return RU_FAIL(err, RU_E_CREATE, "%s: cannot become a link, something else has the name",
                       path);
    }
    if (snprintf(temp, sizeof temp, "%s.new", path) >= (int)sizeof temp) {
        return rui_file_fail_new(err, ENAMETOOLONG, "link", path);
    }
    (void)unlink(temp); /* of a killed process */
    if (symlink(target, temp) != 0) {
        return rui_file_fail_new(err, errno, "link", path);
    }
    return ru_path_rename(temp, path, err);
}
