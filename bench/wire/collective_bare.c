/* All-reduce of bare blocking sockets: a star around rank 0, no thread, no loop, no header. What
 * the machine takes for the messages of our own star; only a floor: it knows neither deadlines nor
 * failures.
 *
 * Answers the lines of a team: "BYTES TIMES ...", with the seconds. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/wire/bare.h"
#include "env/clock.h"

enum { RANKS_MAX = 16, LINE_BYTES = 256, TRIES = 500, TRY_EVERY_MS = 20 };

typedef struct star {
    uint32_t rank, n;
    int fds[RANKS_MAX]; /* of rank 0: by rank; else [0] */
    float *data, *other;
    int64_t data_bytes;
} star;

static ru_status broken(const star *s, ru_err *err)
{
    return RU_FAIL(err, RU_E_IO, "bare star, rank %u: %s", s->rank, strerror(errno));
}

static ru_status accept_all(star *s, const struct sockaddr_in *at, ru_err *err)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, (const struct sockaddr *)at, sizeof *at) != 0 || listen(fd, RANKS_MAX) != 0) {
        return broken(s, err);
    }
    for (uint32_t k = 1; k < s->n; k++) {
        uint32_t rank = 0;
        int c = accept(fd, NULL, NULL);
        if (c < 0 || !rui_bare_read(c, &rank, sizeof rank) || rank == 0 || rank >= s->n) {
            return broken(s, err);
        }
        rui_bare_mark(c, false);
        s->fds[rank] = c;
    }
    close(fd);
    return RU_OK;
}

static ru_status dial(star *s, const struct sockaddr_in *at, ru_err *err)
{
    for (uint32_t k = 0; k < TRIES; k++) {
        s->fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (s->fds[0] < 0) {
            return broken(s, err);
        }
        rui_bare_mark(s->fds[0], false);
        if (connect(s->fds[0], (const struct sockaddr *)at, sizeof *at) == 0) {
            return rui_bare_write(s->fds[0], &s->rank, sizeof s->rank) ? RU_OK : broken(s, err);
        }
        close(s->fds[0]);
        (void)poll(NULL, 0, TRY_EVERY_MS); /* nobody listens yet */
    }
    return broken(s, err);
}

static bool reduce(star *s, int64_t bytes)
{
    size_t size = (size_t)bytes;
    if (s->rank > 0) {
        return rui_bare_write(s->fds[0], s->data, size) && rui_bare_read(s->fds[0], s->data, size);
    }
    for (uint32_t r = 1; r < s->n; r++) {
        if (!rui_bare_read(s->fds[r], s->other, size)) {
            return false;
        }
        for (int64_t i = 0; i < bytes / 4; i++) {
            s->data[i] += s->other[i];
        }
    }
    for (uint32_t r = 1; r < s->n; r++) {
        if (!rui_bare_write(s->fds[r], s->data, size)) {
            return false;
        }
    }
    return true;
}

static ru_status measure(star *s, int64_t bytes, int64_t times, ru_err *err)
{
    if (bytes < 4 || bytes > s->data_bytes || times < 1) {
        return RU_FAIL(err, RU_E_USAGE, "bare star: %lld bytes, %lld times", (long long)bytes,
                       (long long)times);
    }
    for (int64_t i = 0; i < bytes / 4; i++) {
        s->data[i] = (float)(s->rank + 1);
    }
    if (!reduce(s, bytes)) {
        return broken(s, err);
    }
    float want = (float)(s->n * (s->n + 1) / 2);
    for (int64_t i = 0; i < bytes / 4; i++) {
        if (s->data[i] != want) {
            return RU_FAIL(err, RU_E_BUG, "bare star: %g, expected %g", (double)s->data[i],
                           (double)want);
        }
    }
    memset(s->data, 0, (size_t)bytes);
    ru_time begin = ru_clock_now();
    for (int64_t k = 0; k < times; k++) {
        if (!reduce(s, bytes)) {
            return broken(s, err);
        }
    }
    printf("%.9f\n", (double)ru_time_since(ru_clock_now(), begin) * 1e-9);
    fflush(stdout);
    return RU_OK;
}

ru_status ru_bench_coll_bare_worker(const char *const *words, uint32_t n, ru_err *err)
{
    star s = {.fds = {-1}};
    struct sockaddr_in at;
    char line[LINE_BYTES];
    if (n != 6) {
        return RU_FAIL(err, RU_E_USAGE, "a rank needs: collective bare RANK RANKS BYTES ADDRESS0");
    }
    s.rank = (uint32_t)strtoul(words[2], NULL, 10);
    s.n = (uint32_t)strtoul(words[3], NULL, 10);
    s.data_bytes = strtoll(words[4], NULL, 10);
    RU_TRY(rui_bare_address(words[5], &at, err));
    if (s.n < 2 || s.n > RANKS_MAX || s.rank >= s.n || s.data_bytes < 4) {
        return RU_FAIL(err, RU_E_USAGE, "bare star: rank %u of %u", s.rank, s.n);
    }
    s.data = calloc(1, (size_t)s.data_bytes);
    s.other = calloc(1, (size_t)s.data_bytes);
    ru_status st = s.data == NULL || s.other == NULL ? RU_FAIL(err, RU_E_MEM, "no memory")
                   : s.rank == 0                     ? accept_all(&s, &at, err)
                                                     : dial(&s, &at, err);
    if (st == RU_OK) {
        printf("ready bare blocking sockets\n");
        fflush(stdout);
    }
    while (st == RU_OK && fgets(line, sizeof line, stdin) != NULL && line[0] != 'q') {
        long long bytes = 0, times = 0;
        (void)sscanf(line, "%lld %lld", &bytes, &times);
        st = measure(&s, bytes, times, err);
    }
    free(s.data);
    free(s.other);
    return st; /* sockets end with the process */
}
