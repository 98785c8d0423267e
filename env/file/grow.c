#include "env/file/grow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "env/file/file_error.h"

enum { PATH_BYTES_MAX = 4096, DEPTH_MAX = 16 };

struct ru_grow {
    int fd;
    int64_t claimed;
    bool named; /* its name is on the disk */
    char path[];
};

struct ru_lock {
    int fd;
};

static int locked(int fd, int how)
{
    int rc;
    do {
        rc = flock(fd, how);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

/* -- growing files ----------------------------------------------------------------------------- */

ru_status ru_grow_open(const char *path, ru_grow **out, ru_err *err)
{
    const int how = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    size_t n = strlen(path) + 1;
    struct stat st;
    ru_grow *g = calloc(1, sizeof *g + n);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to write %s", path);
    }
    memcpy(g->path, path, n);
    g->fd = open(path, how | O_EXCL, 0600);
    bool old = g->fd < 0 && errno == EEXIST;
    g->fd = old ? open(path, how, 0600) : g->fd;
    if (g->fd < 0 || fstat(g->fd, &st) != 0) {
        ru_status failed = rui_file_fail_new(err, errno, "create", path);
        ru_grow_close(g, INT64_MAX);
        return failed;
    }
    g->claimed = st.st_size;
    if (locked(g->fd, LOCK_EX | LOCK_NB) != 0 && (old || errno == EWOULDBLOCK)) {
        ru_grow_close(g, INT64_MAX);
        return RU_FAIL(err, RU_E_AGAIN, "another process may write %s", path);
    }
    *out = g;
    return RU_OK;
}

ru_status ru_grow_claim(ru_grow *g, int64_t end_bytes, ru_err *err)
{
    if (end_bytes <= g->claimed) {
        return RU_OK;
    }
    int rc;
    do {
        rc = posix_fallocate(g->fd, g->claimed, end_bytes - g->claimed);
    } while (rc == EINTR);
    if (rc == EOPNOTSUPP || rc == EINVAL) { /* the space is found missing when it is written */
        rc = ftruncate(g->fd, end_bytes) == 0 ? 0 : errno;
    }
    if (rc != 0) {
        return rui_file_fail_new(err, rc, "extend", g->path);
    }
    g->claimed = end_bytes;
    return RU_OK;
}

int64_t ru_grow_claimed(const ru_grow *g)
{
    return g->claimed;
}

ru_status ru_grow_write(ru_grow *g, int64_t offset, const void *data, int64_t size_bytes,
                        ru_err *err)
{
    for (int64_t done = 0; done < size_bytes;) {
        ssize_t n =
            pwrite(g->fd, (const uint8_t *)data + done, (size_t)(size_bytes - done), offset + done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rui_file_fail_new(err, errno, "write", g->path);
        }
        done += n;
    }
    return RU_OK;
}

ru_status ru_grow_sync(ru_grow *g, ru_err *err)
{
    RU_TRY(rui_file_sync(g->fd, g->path, !g->named, err));
    g->named = true;
    return RU_OK;
}

void ru_grow_cut(ru_grow *g, int64_t end_bytes)
{
    if (end_bytes < g->claimed && ftruncate(g->fd, end_bytes) == 0) {
        g->claimed = end_bytes; /* else it stays larger than it needs to be */
    }
}

void ru_grow_close(ru_grow *g, int64_t end_bytes)
{
    if (g == NULL) {
        return;
    }
    ru_grow_cut(g, end_bytes);
    if (g->fd >= 0) {
        close(g->fd);
    }
    free(g);
}

/* -- locks ------------------------------------------------------------------------------------- */

ru_status ru_lock_open(const char *path, bool alone, bool wait, ru_lock **out, ru_err *err)
{
    ru_lock *l = malloc(sizeof *l);
    if (l == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to lock %s", path);
    }
    l->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0) {
        ru_status st = rui_file_fail_new(err, errno, "create", path);
        free(l);
        return st;
    }
    int rc = locked(l->fd, (alone ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB));
    if (rc != 0 && errno == EWOULDBLOCK) {
        ru_lock_close(l);
        return RU_FAIL(err, RU_E_AGAIN, "another process uses %s", path);
    }
    if (!alone) {
        (void)futimens(l->fd, NULL);
    }
    *out = l; /* where there are no locks, it is given all the same */
    return RU_OK;
}

void ru_lock_close(ru_lock *l)
{
    if (l != NULL) {
        close(l->fd);
        free(l);
    }
}

/* Twice, so that one that is torn is none. */
int64_t ru_lock_number(const char *path)
{
    int64_t n[2];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool is = fd >= 0 && pread(fd, n, sizeof n, 0) == (ssize_t)sizeof n && n[0] == n[1];
    if (fd >= 0) {
        close(fd);
    }
    return is && n[0] >= 0 ? n[0] : -1;
}

void ru_lock_number_put(ru_lock *l, int64_t n)
{
    const int64_t twice[2] = {n, n};
    if (pwrite(l->fd, twice, sizeof twice, 0) != (ssize_t)sizeof twice) {
        (void)!ftruncate(l->fd, 0); /* not known is right, a wrong one is not */
    }
}

/* -- what stands in folders -------------------------------------------------------------------- */

static int64_t bytes_of(const char *path, uint32_t depth)
{
    char name[PATH_BYTES_MAX];
    int64_t sum = 0;
    DIR *d = depth < DEPTH_MAX ? opendir(path) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        struct stat st;
        int n = snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || n >= (int)sizeof name ||
            lstat(name, &st) != 0) {
            continue;
        }
        sum += S_ISDIR(st.st_mode)   ? bytes_of(name, depth + 1)
               : S_ISREG(st.st_mode) ? st.st_size
                                     : 0;
    }
    if (d != NULL) {
        closedir(d);
    }
    return sum;
}

int64_t ru_dir_bytes(const char *path)
{
    return bytes_of(path, 0);
}

uint64_t ru_path_stamp(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        return 0;
    }
    const uint64_t words[] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                              (uint64_t)st.st_mtim.tv_nsec};
    return ru_hash_bytes(words, sizeof words, 1) | 1;
}

int64_t ru_path_changed_ns(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec : 0;
}

bool ru_dir_is_own(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}
