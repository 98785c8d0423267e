/* A network in a program: carries packets between the hosts of a laboratory and holds each for a
 * time, because the kernels of some test machines can shape but not delay.
 *
 *   relay DELAY_US RATE_MBIT LOSS_PPM [NAMESPACE ADDRESS]...
 *
 * Each host gets a TUN device eth0 in its namespace. A packet read there leaves for the host whose
 * address it carries: not before DELAY_US, not faster than RATE_MBIT (0: free) towards one host,
 * and never with a chance of LOSS_PPM in a million. A queue that is full drops. Prints "ready",
 * ends by a signal. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "env/clock.h"

enum { HOSTS_MAX = 64, MTU_BYTES = 9000, QUEUE = 512 /* packets towards one host */ };

typedef struct packet {
    int64_t due_ns;
    int64_t size_bytes;
    uint8_t bytes[MTU_BYTES + 64];
} packet;

typedef struct host {
    int fd;
    uint32_t address; /* as in the packet */
    packet *queue;    /* [QUEUE] ring */
    uint32_t first, n;
    int64_t free_ns; /* when the line towards it has sent what was accepted */
} host;

static int open_tun(const char *ns)
{
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int there = open(ns, O_RDONLY | O_CLOEXEC);
    int fd = -1;
    if (home >= 0 && there >= 0 && setns(there, CLONE_NEWNET) == 0) {
        struct ifreq ifr = {.ifr_flags = IFF_TUN | IFF_NO_PI};
        snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "eth0");
        fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0 && ioctl(fd, TUNSETIFF, &ifr) != 0) {
            close(fd);
            fd = -1;
        }
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ifr.ifr_mtu = MTU_BYTES;
        if (fd >= 0 && s >= 0) {
            (void)ioctl(s, SIOCSIFMTU, &ifr);
        }
        if (s >= 0) {
            close(s);
        }
        if (setns(home, CLONE_NEWNET) != 0) {
            exit(1);
        }
    }
    if (home >= 0) {
        close(home);
    }
    if (there >= 0) {
        close(there);
    }
    return fd;
}

static void take_in(host *hosts, uint32_t n, host *from, int64_t delay_ns, double ns_per_byte,
                    uint32_t loss_ppm, ru_rng *rng)
{
    uint8_t bytes[MTU_BYTES + 64];
    for (;;) {
        ssize_t got = read(from->fd, bytes, sizeof bytes);
        if (got <= 0) {
            return;
        }
        if (got < 20 || bytes[0] >> 4 != 4 || ru_rng_below(rng, 1000000) < loss_ppm) {
            continue;
        }
        uint32_t to;
        memcpy(&to, bytes + 16, 4);
        for (uint32_t k = 0; k < n; k++) {
            host *h = &hosts[k];
            if (h->address != to || h->n == QUEUE) {
                continue;
            }
            int64_t now = ru_clock_now().ns;
            h->free_ns =
                (h->free_ns > now ? h->free_ns : now) + (int64_t)((double)got * ns_per_byte);
            packet *p = &h->queue[(h->first + h->n++) % QUEUE];
            p->due_ns = h->free_ns + delay_ns;
            p->size_bytes = got;
            memcpy(p->bytes, bytes, (size_t)got);
        }
    }
}

/* Send what is due; when the next is due, or INT64_MAX. */
static int64_t give_out(host *hosts, uint32_t n)
{
    int64_t next = INT64_MAX;
    for (uint32_t k = 0; k < n; k++) {
        host *h = &hosts[k];
        int64_t now = ru_clock_now().ns;
        while (h->n > 0 && h->queue[h->first].due_ns <= now) {
            const packet *p = &h->queue[h->first];
            (void)!write(h->fd, p->bytes, (size_t)p->size_bytes); /* a full device drops */
            h->first = (h->first + 1) % QUEUE;
            h->n--;
        }
        if (h->n > 0 && h->queue[h->first].due_ns < next) {
            next = h->queue[h->first].due_ns;
        }
    }
    return next;
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc % 2 != 0 || (argc - 4) / 2 > HOSTS_MAX) {
        fprintf(stderr, "relay DELAY_US RATE_MBIT LOSS_PPM [NAMESPACE ADDRESS]...\n");
        return 2;
    }
    int64_t delay_ns = strtoll(argv[1], NULL, 10) * 1000;
    double mbit = strtod(argv[2], NULL);
    uint32_t loss_ppm = (uint32_t)strtoul(argv[3], NULL, 10);
    static host hosts[HOSTS_MAX];
    struct pollfd fds[HOSTS_MAX];
    uint32_t n = (uint32_t)(argc - 4) / 2;
    ru_rng rng = ru_rng_from(1, 0);
    for (uint32_t k = 0; k < n; k++) {
        struct in_addr a;
        hosts[k].fd = open_tun(argv[4 + 2 * k]);
        hosts[k].queue = calloc(QUEUE, sizeof *hosts[k].queue);
        if (hosts[k].fd < 0 || hosts[k].queue == NULL ||
            inet_pton(AF_INET, argv[5 + 2 * k], &a) != 1) {
            fprintf(stderr, "relay: no TUN device in %s: %s\n", argv[4 + 2 * k], strerror(errno));
            return 74;
        }
        hosts[k].address = a.s_addr;
        fds[k] = (struct pollfd){.fd = hosts[k].fd, .events = POLLIN};
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int64_t next = give_out(hosts, n), left = next - ru_clock_now().ns;
        left = left < 0 ? 0 : left;
        struct timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        if (ppoll(fds, n, next == INT64_MAX ? NULL : &ts, NULL) < 0 && errno != EINTR) {
            return 74;
        }
        for (uint32_t k = 0; k < n; k++) {
            if ((fds[k].revents & POLLIN) != 0) {
                take_in(hosts, n, &hosts[k], delay_ns, mbit > 0 ? 8000 / mbit : 0, loss_ppm, &rng);
            }
        }
    }
}
