#include "env/file/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "env/clock.h"
#include "env/file/file_error.h"
#include "env/file/own.h"
#include "env/process/self.h"

enum { PATH_BYTES_MAX = 4096, TEXT_BYTES_MAX = 512, HOST_BYTES_MAX = 256, TRY_NS = 20000000 };

struct ru_claim {
    int fd;
};

/* What one look at the lock said. */
typedef enum look { LOOK_OURS, LOOK_TAKEN, LOOK_NO_LOCKS } look;

static look lock(int fd, int how)
{
    int rc;
    do {
        rc = flock(fd, how | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        return LOOK_OURS;
    }
    return errno == EWOULDBLOCK ? LOOK_TAKEN : LOOK_NO_LOCKS;
}

/* The exclusive lock is held: say who we are, then let others of our job in. */
static ru_status sign(int fd, const char *path, uint64_t key, look *seen, ru_err *err)
{
    char host[HOST_BYTES_MAX], text[TEXT_BYTES_MAX];
    ru_self_host(host, sizeof host);
    int n = snprintf(text, sizeof text, "job %016" PRIx64 " process %lld on %s\n", key,
                     (long long)ru_self_pid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n) {
        return rui_file_fail_new(err, errno, "write", path);
    }
    *seen = lock(fd, LOCK_SH);
    return RU_OK;
}

/* Who signed last; `key` takes the job's. */
static void read_text(int fd, uint64_t *key, char into[TEXT_BYTES_MAX])
{
    static const char head[] = "job ";
    char text[TEXT_BYTES_MAX] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    char *end = text;
    *key = 0;
    if (strncmp(text, head, sizeof head - 1) == 0) {
        *key = strtoull(text + sizeof head - 1, &end, 16);
    }
    (void)snprintf(into, TEXT_BYTES_MAX, "%s", *end == ' ' ? end + 1 : "an unknown process");
}

static ru_status try_once(int fd, const char *path, const ru_claim_options *opt, look *seen,
                          char who[TEXT_BYTES_MAX], ru_err *err)
{
    uint64_t key;
    *seen = lock(fd, LOCK_EX);
    if (*seen == LOOK_OURS) {
        return sign(fd, path, opt->key, seen, err);
    }
    if (*seen == LOOK_TAKEN && !opt->alone) {
        *seen = lock(fd, LOCK_SH);
    }
    read_text(fd, &key, who);
    if (*seen == LOOK_OURS && key != opt->key) {
        (void)flock(fd, LOCK_UN);
        *seen = LOOK_TAKEN;
    }
    return RU_OK;
}

static ru_status claim(int fd, const char *path, const ru_claim_options *opt, ru_err *err)
{
    char who[TEXT_BYTES_MAX] = "";
    const struct timespec pause = {.tv_nsec = TRY_NS};
    for (int64_t waited = 0;; waited += TRY_NS) {
        look seen;
        RU_TRY(try_once(fd, path, opt, &seen, who, err));
        if (seen == LOOK_OURS) {
            return RU_OK;
        }
        if (seen == LOOK_NO_LOCKS) {
            ru_log(RU_LOG_WARN, "env", "no_lock",
                   "cannot lock %s (%s); Rubato would not notice a second job in this folder", path,
                   strerror(errno));
            return RU_OK;
        }
        if (waited >= opt->wait_ns) {
            return RU_FAIL(err, RU_E_AGAIN,
                           "another job uses %s (%s); wait until it ends, or name another folder",
                           opt->dir, who);
        }
        (void)nanosleep(&pause, NULL);
    }
}

ru_status ru_claim_open(const ru_claim_options *opt, ru_claim **out, ru_err *err)
{
    char path[PATH_BYTES_MAX];
    int n = snprintf(path, sizeof path, "%s/lock", opt->dir);
    if (n < 0 || n >= (int)sizeof path) {
        return RU_FAIL(err, RU_E_CREATE, "the name of the folder is too long: %s", opt->dir);
    }
    ru_claim *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory to lock %s", opt->dir);
    }
    ru_status st = rui_open_own(path, O_RDWR | O_CREAT, 0600, &c->fd, err);
    if (st != RU_OK) {
        free(c);
        return st;
    }
    st = claim(c->fd, path, opt, err);
    if (st != RU_OK) {
        ru_claim_close(c);
        return st;
    }
    *out = c;
    return RU_OK;
}

void ru_claim_close(ru_claim *c)
{
    if (c != NULL) {
        close(c->fd);
        free(c);
    }
}
