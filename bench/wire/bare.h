/* Bare blocking sockets: the floor that benchmarks of the transport stand on.
 *
 * Thread: main only. */
#ifndef RU_BENCH_BARE_H
#define RU_BENCH_BARE_H

#include <netinet/in.h>

#include "base/status.h"

bool rui_bare_read(int fd, void *into, size_t n);
bool rui_bare_write(int fd, const void *from, size_t n);
/* As our urgent connections: no delay, low-delay type of service; bulk: the other one. */
void rui_bare_mark(int fd, bool bulk);
RU_MUST_USE ru_status rui_bare_address(const char *text, struct sockaddr_in *a, ru_err *err);

/* One rank of a star: collective bare RANK RANKS BYTES_MAX ADDRESS0. */
RU_MUST_USE ru_status ru_bench_coll_bare_worker(const char *const *words, uint32_t n, ru_err *err);

#endif
