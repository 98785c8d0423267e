/* Files: whole reads, maps, positioned reads, atomic replacement, folders.
 *
 * Every error message names the path and the system's reason. The status distinguishes a missing
 * file (RU_E_MISSING), a full or read-only disk (RU_E_CREATE) and a failing device (RU_E_IO).
 *
 * Thread: any; an object belongs to one thread unless said otherwise. */
#ifndef RU_ENV_FILE_H
#define RU_ENV_FILE_H

#include "base/arena.h"
#include "base/status.h"

RU_API_BEGIN

/* Read-only map of a whole file. Empty files give data = "" and size 0. Readable from any thread.
 */
typedef struct ru_map_file {
    const uint8_t *data; /* [size_bytes] */
    int64_t size_bytes;
} ru_map_file;

RU_MUST_USE ru_status ru_file_map(const char *path, ru_map_file *out, ru_err *err);
void ru_file_unmap(ru_map_file *m); /* accepts zeroed memory */

/* Whole file into `arena`, with a NUL byte after the end. size_max_bytes 0: 1 GiB. */
RU_MUST_USE ru_status ru_file_read(const char *path, int64_t size_max_bytes, ru_arena *arena,
                                   char **data, int64_t *size_bytes, ru_err *err);

RU_API_END

/* A secret: as ru_file_own, readable by this user alone. */
RU_MUST_USE ru_status ru_file_secret(const char *path, const void *data, int64_t size_bytes,
                                     ru_err *err);

/* Replace `path` with `data`: written to a temporary name in the same folder, synced, renamed,
 * folder synced. Readers see the old bytes or the new ones, never a part. A symbolic link stays:
 * the file it names is replaced. A device or FIFO stays: the bytes are written into it as they
 * come. */
RU_MUST_USE ru_status ru_file_replace(const char *path, const void *data, int64_t size_bytes,
                                      ru_err *err);

/* The same for a file of a run: what has the name, a link or FIFO too, is replaced itself and not
 * followed. */
RU_MUST_USE ru_status ru_file_own(const char *path, const void *data, int64_t size_bytes,
                                  ru_err *err);

/* A file being written; ru_out_commit makes it appear under its name as ru_file_replace does,
 * closing without commit removes it. */
typedef struct ru_out ru_out;
RU_MUST_USE ru_status ru_out_open(const char *path, ru_out **out, ru_err *err);
RU_MUST_USE ru_status ru_out_open_own(const char *path, ru_out **out,
                                      ru_err *err); /* ru_file_own */
RU_MUST_USE ru_status ru_out_write(ru_out *o, const void *data, int64_t size_bytes, ru_err *err);
RU_MUST_USE ru_status ru_out_commit(ru_out *o, ru_err *err); /* then only ru_out_close */
void ru_out_close(ru_out *o);

/* A file that grows and may be read while it does (logs, metrics, traces): appends, no rename.
 * Errors: RU_E_CREATE for a link, FIFO or anything else that is no regular file. */
typedef struct ru_log_file ru_log_file;
RU_MUST_USE ru_status ru_log_file_open(const char *path, bool keep_old, ru_log_file **out,
                                       ru_err *err);
/* All of it or, on a disk that takes no more, nothing. */
RU_MUST_USE ru_status ru_log_file_append(ru_log_file *f, const void *data, int64_t size_bytes,
                                         ru_err *err);
RU_MUST_USE ru_status ru_log_file_sync(ru_log_file *f, ru_err *err);
void ru_log_file_close(ru_log_file *f);

/* Open for positioned reads; shared by threads. */
typedef struct ru_in_file {
    int fd; /* -1: closed */
    int64_t size_bytes;
    uint64_t id; /* of the file: another one that took its name has another */
    bool direct; /* see ru_in_direct */
} ru_in_file;
enum { RU_DIRECT_BYTES = 4096 }; /* unit of place, size and memory of direct reads */
RU_MUST_USE ru_status ru_in_open(const char *path, ru_in_file *out, ru_err *err);
/* A file of a run, perhaps of another user: a link at the name is not followed. */
RU_MUST_USE ru_status ru_in_open_own(const char *path, ru_in_file *out, ru_err *err);
/* From now on reads pass by the kernel's cache: those of `fd` must be whole units in memory that
 * begins at one (O_DIRECT); ru_in_read takes any. False: the file system cannot, and all stays as
 * it was. */
RU_MUST_USE bool ru_in_direct(ru_in_file *f);
/* Exactly `size_bytes` at `offset`, else RU_E_DATA (file too short) or RU_E_IO. */
RU_MUST_USE ru_status ru_in_read(const ru_in_file *f, const char *path, int64_t offset, void *into,
                                 int64_t size_bytes, ru_err *err);
/* Tell the kernel what comes: sequential reading, or this range soon. */
void ru_in_advise_sequential(const ru_in_file *f);
void ru_in_advise_soon(const ru_in_file *f, int64_t offset, int64_t size_bytes);
void ru_in_close(ru_in_file *f);

bool ru_path_exists(const char *path);
bool ru_path_is_dir(const char *path);
bool ru_path_is_file(const char *path); /* a regular one */
/* What has the name itself; a link is not followed. */
typedef enum ru_path_kind {
    RU_PATH_NONE,
    RU_PATH_FILE,
    RU_PATH_DIR,
    RU_PATH_LINK,
    RU_PATH_FIFO,
    RU_PATH_OTHER, /* a device or socket */
} ru_path_kind;
ru_path_kind ru_path_kind_of(const char *path);
bool ru_path_is_private(const char *path); /* no file that its group or others can read */
int64_t ru_path_bytes(const char *path);   /* size of a file, 0 when it is unknown */
RU_MUST_USE ru_status ru_dir_make(const char *path, ru_err *err); /* with parents; exists: fine */
RU_MUST_USE ru_status ru_dir_private(const char *path, ru_err *err); /* 0700 */
/* The same below folders that exist; *made false when something has the name already. */
RU_MUST_USE ru_status ru_dir_make_new(const char *path, bool *made, ru_err *err);
/* Names in a folder, sorted by bytes, without "." and "..". */
RU_MUST_USE ru_status ru_dir_list(const char *path, ru_arena *arena, char ***names, uint32_t *n,
                                  ru_err *err);
RU_MUST_USE ru_status ru_path_rename(const char *from, const char *to,
                                     ru_err *err); /* + sync folder */
/* Make `path` a symbolic link to `target`, in place of the link that has the name; readers see the
 * old one or the new one. Errors: RU_E_CREATE, also when something else has the name. */
RU_MUST_USE ru_status ru_path_link(const char *target, const char *path, ru_err *err);
RU_MUST_USE ru_status ru_path_remove(const char *path, ru_err *err); /* file or whole folder */
/* dir/name in `arena`. */
char *ru_path_join(ru_arena *arena, const char *dir, const char *name);

#endif
