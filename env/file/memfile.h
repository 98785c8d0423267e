/* Bytes in memory, for readers that want a file: under a path, or as a map.
 *
 * Thread: any. */
#ifndef RU_ENV_FILE_MEMFILE_H
#define RU_ENV_FILE_MEMFILE_H

#include "env/file/file.h"

enum { RU_MEMFILE_PATH = 32 };

/* A copy of the bytes stands under `path` in this process until the close. Errors: RU_E_MEM,
 * RU_E_IO. */
RU_MUST_USE ru_status ru_memfile_open(const void *data, int64_t size_bytes, int *fd,
                                      char path[RU_MEMFILE_PATH], ru_err *err);
void ru_memfile_close(int fd); /* -1 is fine */

/* An empty one that other processes of this user read and write as well: `path` leads there from
 * each of them, as long as this process keeps `fd`. Errors: RU_E_MEM, RU_E_IO. */
RU_MUST_USE ru_status ru_memfile_share(int *fd, char path[RU_MEMFILE_PATH], ru_err *err);
/* That of another process. Errors: RU_E_PEER when it has ended. */
RU_MUST_USE ru_status ru_memfile_reach(const char *path, int *fd, ru_err *err);
/* It grows to what is written. Errors: RU_E_MEM, RU_E_IO. */
RU_MUST_USE ru_status ru_memfile_put(int fd, int64_t at, const void *data, int64_t size_bytes,
                                     ru_err *err);
/* Are so many bytes there? */
bool ru_memfile_get(int fd, int64_t at, void *into, int64_t size_bytes);

/* Memory that is filled through `into` and read as a map. Owner: ru_file_unmap. Errors: RU_E_MEM.
 */
RU_MUST_USE ru_status ru_memfile_map(int64_t size_bytes, uint8_t **into, ru_map_file *out,
                                     ru_err *err);
/* Memory that a file without a name in `folder` has: the kernel writes what it needs elsewhere to
 * that disk. It is there, zeroed, or the disk has no room. Owner: ru_memfile_leave. Errors:
 * RU_E_CREATE, RU_E_MEM. */
RU_MUST_USE ru_status ru_memfile_on_disk(const char *folder, int64_t size_bytes, void **out,
                                         ru_err *err);
void ru_memfile_leave(void *at, int64_t size_bytes); /* NULL is fine */

/* In place of whole pages of that memory, from `at` on, stands a file from its beginning, at most
 * so many bytes of it; they are read when they are wanted. How many; 0: `at` is within a page, or
 * the kernel cannot. */
int64_t ru_memfile_lay(uint8_t *at, int fd, int64_t size_bytes);

#endif
