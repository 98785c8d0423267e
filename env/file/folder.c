/* Folders: make, list, remove, join. */
#include "env/file/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/file/file_error.h"

enum { PATH_BYTES_MAX = 4096, DEPTH_MAX = 64 };

bool ru_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool ru_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool ru_path_is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

ru_path_kind ru_path_kind_of(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0) {
        return RU_PATH_NONE;
    }
    return S_ISREG(st.st_mode)    ? RU_PATH_FILE
           : S_ISDIR(st.st_mode)  ? RU_PATH_DIR
           : S_ISLNK(st.st_mode)  ? RU_PATH_LINK
           : S_ISFIFO(st.st_mode) ? RU_PATH_FIFO
                                  : RU_PATH_OTHER;
}

bool ru_path_is_private(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || !S_ISREG(st.st_mode) || (st.st_mode & (S_IRGRP | S_IROTH)) == 0;
}

int64_t ru_path_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : 0;
}

ru_status ru_dir_make(const char *path, ru_err *err)
{
    char part[PATH_BYTES_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        return RU_FAIL(err, RU_E_CONFIG, "a folder name of 1 to %d bytes was expected, not %zu",
                       PATH_BYTES_MAX - 1, n);
    }
    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        char keep = part[i];
        part[i] = '\0';
        if (mkdir(part, 0755) != 0 && !(errno == EEXIST && ru_path_is_dir(part))) {
            return rui_file_fail_new(err, errno, "make the folder", part);
        }
        part[i] = keep;
    }
    return RU_OK;
}

ru_status ru_dir_private(const char *path, ru_err *err)
{
    return chmod(path, 0700) == 0
               ? RU_OK
               : rui_file_fail_new(err, errno, "take rights of others from the folder", path);
}

ru_status ru_dir_make_new(const char *path, bool *made, ru_err *err)
{
    int rc = mkdir(path, 0755);
    if (rc != 0 && errno != EEXIST) {
        return rui_file_fail_new(err, errno, "make the folder", path);
    }
    *made = rc == 0;
    return RU_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ru_status ru_dir_list(const char *path, ru_arena *arena, char ***names, uint32_t *n, ru_err *err)
{
    DIR *d = opendir(path);
    if (d == NULL) {
        return rui_file_fail(err, errno, "list the folder", path);
    }
    char **list = NULL;
    uint32_t used = 0, cap = 0;
    bool full = false;
    for (struct dirent *e = readdir(d); e != NULL && !full; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (used == cap) {
            uint32_t more = cap == 0 ? 64 : cap * 2;
            char **bigger = RU_NEW(arena, char *, more);
            if (bigger != NULL && used > 0) {
                memcpy(bigger, list, used * sizeof *list);
            }
            list = bigger;
            cap = more;
        }
        full = list == NULL || (list[used++] = ru_arena_str(arena, e->d_name)) == NULL;
    }
    closedir(d);
    if (full) {
        return RU_FAIL(err, RU_E_MEM, "no memory to list the folder %s", path);
    }
    if (used > 0) {
        qsort(list, used, sizeof *list, by_bytes);
    }
    *names = list;
    *n = used;
    return RU_OK;
}

/* Depth-first removal relative to folder descriptors, so that a link inside is removed, not
 * followed. */
static int remove_at(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0) {
        return 0;
    }
    if ((errno != EISDIR && errno != EPERM) || depth >= DEPTH_MAX) {
        return errno;
    }
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        int e = errno;
        close(fd);
        return e;
    }
    int failed = 0;
    for (struct dirent *e = readdir(d); e != NULL && failed == 0; e = readdir(d)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            failed = remove_at(fd, e->d_name, depth + 1);
        }
    }
    closedir(d);
    if (failed == 0 && unlinkat(dir, name, AT_REMOVEDIR) != 0) {
        failed = errno;
    }
    return failed;
}

ru_status ru_path_remove(const char *path, ru_err *err)
{
    int failed = remove_at(AT_FDCWD, path, 0);
    return failed == 0 ? RU_OK : rui_file_fail(err, failed, "remove", path);
}

char *ru_path_join(ru_arena *arena, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    bool slash = n > 0 && dir[n - 1] == '/';
    return ru_arena_printf(arena, "%s%s%s", dir, n == 0 || slash ? "" : "/", name);
}
