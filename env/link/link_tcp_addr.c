/* Addresses, names and options of sockets. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "env/link/link_tcp_impl.h"
#include "env/thread.h"

enum {
    TOS_URGENT = 0x10,
    TOS_BULK = 0x08,
    BACKLOG = 512,
    SAVED_SYN_MAX = 512,
};

ru_status rui_addr_split(const char *address, char *host, char *port, ru_err *err)
{
    const char *colon = strrchr(address, ':');
    const char *first = address, *end = colon;
    bool bracket = address[0] == '[';
    if (bracket) {
        first++;
        end = strchr(address, ']');
        colon = end != NULL && end[1] == ':' ? end + 1 : NULL;
    }
    size_t port_len = colon != NULL ? strlen(colon + 1) : 0;
    bool ok = colon != NULL && end - first < RUI_ADDRESS_MAX - 8 && port_len >= 1 &&
              port_len <= 5 && strspn(colon + 1, "0123456789") == port_len &&
              strtol(colon + 1, NULL, 10) <= 65535 &&
              (bracket || memchr(first, ':', (size_t)(end - first)) == NULL);
    if (!ok) {
        return RU_FAIL(err, RU_E_ARG, "'%.*s' is not an address; expected host:port or [v6]:port",
                       RUI_ADDRESS_MAX, address);
    }
    memcpy(host, first, (size_t)(end - first));
    host[end - first] = '\0';
    memcpy(port, colon + 1, port_len + 1);
    return RU_OK;
}

void rui_addr_print(const struct sockaddr *a, char into[RUI_ADDRESS_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, a, sizeof v6);
        const uint8_t *b = v6.sin6_addr.s6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            snprintf(into, RUI_ADDRESS_MAX, "%u.%u.%u.%u:%u", b[12], b[13], b[14], b[15],
                     ntohs(v6.sin6_port));
        } else {
            (void)inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
            snprintf(into, RUI_ADDRESS_MAX, "[%s]:%u", host, ntohs(v6.sin6_port));
        }
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, a, sizeof v4);
        (void)inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
        snprintf(into, RUI_ADDRESS_MAX, "%s:%u", host, ntohs(v4.sin_port));
    }
}

bool rui_addr_numeric(const char *host, const char *port, struct sockaddr_storage *into,
                      socklen_t *size_bytes)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &found) !=
        0) {
        return false;
    }
    memcpy(into, found->ai_addr, found->ai_addrlen);
    *size_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}

/* ---- listening ---- */

/* The first address of this machine that is not loopback, without port. */
static void first_address(char into[RUI_ADDRESS_MAX])
{
    struct ifaddrs *all = NULL;
    snprintf(into, RUI_ADDRESS_MAX, "127.0.0.1");
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET &&
            (a->ifa_flags & IFF_LOOPBACK) == 0 && (a->ifa_flags & IFF_UP) != 0) {
            rui_addr_print(a->ifa_addr, into);
            *strrchr(into, ':') = '\0';
            break;
        }
    }
    freeifaddrs(all);
}

/* Says it of itself: then the loopback address is the right one. */
static bool is_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

bool ru_link_tcp_source(const char *toward, char into[RUI_ADDRESS_MAX])
{
    char host[RUI_ADDRESS_MAX], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    if (rui_addr_split(toward, host, port, NULL) != RU_OK || host[0] == '\0' ||
        getaddrinfo(host, port, &hints, &found) != 0) {
        return false;
    }
    bool ok = false;
    for (struct addrinfo *a = found; a != NULL && !ok; a = a->ai_next) {
        struct sockaddr_storage own = {0};
        socklen_t size = sizeof own;
        int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ok = fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
             getsockname(fd, (struct sockaddr *)&own, &size) == 0;
        if (ok) {
            rui_addr_print((struct sockaddr *)&own, into);
            *strrchr(into, ':') = '\0';
            ok = is_loopback(host) || (strncmp(into, "127.", 4) != 0 && strcmp(into, "[::1]") != 0);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    freeaddrinfo(found);
    return ok;
}

static int bind_one(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1, zero = 0;
    if (fd < 0) {
        return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_SAVE_SYN, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int e = errno;
        close(fd);
        errno = e;
        return -1;
    }
    return fd;
}

ru_status rui_addr_listen(const char *address, const char *toward, int *fd_out,
                          char into[RUI_ADDRESS_MAX], ru_err *err)
{
    char host[RUI_ADDRESS_MAX], port[8];
    RU_TRY(rui_addr_split(address, host, port, err));
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const char *where = host[0] == '\0' ? NULL : host;
    hints.ai_family = where == NULL ? AF_INET6 : AF_UNSPEC;
    int rc = getaddrinfo(where, port, &hints, &found);
    int fd = -1;
    errno = 0;
    for (struct addrinfo *a = found; rc == 0 && a != NULL && fd < 0; a = a->ai_next) {
        fd = bind_one(a);
    }
    if (rc == 0) {
        freeaddrinfo(found);
    }
    if (fd < 0 && where == NULL) { /* a machine without IPv6 */
        struct sockaddr_in any = {.sin_family = AF_INET};
        any.sin_port = htons((uint16_t)strtol(port, NULL, 10));
        struct sockaddr *sa = (void *)&any;
        fd = bind_one(
            &(struct addrinfo){.ai_family = AF_INET, .ai_addr = sa, .ai_addrlen = sizeof any});
    }
    if (fd < 0) {
        return RU_FAIL(err, errno == EMFILE ? RU_E_LIMIT : RU_E_PEER,
                       "cannot listen on %s: %s; name a free port (0: any) of this machine",
                       address, rc != 0 ? gai_strerror(rc) : strerror(errno));
    }
    struct sockaddr_storage got = {0};
    socklen_t size = sizeof got;
    if (getsockname(fd, (struct sockaddr *)&got, &size) != 0) {
        ru_status st = RU_FAIL(err, RU_E_IO, "cannot find the port on which %s listens: %s",
                               address, strerror(errno));
        close(fd);
        return st;
    }
    rui_addr_print((struct sockaddr *)&got, into);
    if (where == NULL || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) {
        char real[8];
        snprintf(real, sizeof real, "%.7s", strrchr(into, ':'));
        if (toward == NULL || !ru_link_tcp_source(toward, into)) {
            first_address(into);
        }
        strncat(into, real, RUI_ADDRESS_MAX - strlen(into) - 1);
    }
    *fd_out = fd;
    return RU_OK;
}

bool ru_link_tcp_address_ok(const char *address)
{
    char host[RUI_ADDRESS_MAX], port[8];
    return rui_addr_split(address, host, port, NULL) == RU_OK;
}

bool ru_link_tcp_free(const char *listen)
{
    char address[RUI_ADDRESS_MAX];
    int fd = -1;
    ru_err ignored;
    bool free_now = rui_addr_listen(listen, NULL, &fd, address, &ignored) == RU_OK;
    if (fd >= 0) {
        close(fd);
    }
    return free_now;
}

ru_status ru_link_tcp_listen(const char *listen, int *fd, char into[RU_LINK_TCP_ADDRESS_MAX],
                             ru_err *err)
{
    return rui_addr_listen(listen, NULL, fd, into, err);
}

/* ---- names: getaddrinfo blocks, so a thread of its own does it ---- */

struct rui_name_job {
    rui_name_job *next;
    ru_link_tcp *link;
    rui_conn *conn;
    ru_conn_id id;
    ru_thread thread;
    char host[RUI_ADDRESS_MAX], port[8];
    struct sockaddr_storage to;
    socklen_t size_bytes;
    int error;
    uint32_t done; /* set by the thread, last */
};

static void look_up(void *arg)
{
    rui_name_job *j = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    j->error = getaddrinfo(j->host, j->port, &hints, &found);
    if (j->error == 0) {
        memcpy(&j->to, found->ai_addr, found->ai_addrlen);
        j->size_bytes = found->ai_addrlen;
        freeaddrinfo(found);
    }
    __atomic_store_n(&j->done, 1, __ATOMIC_RELEASE);
    ru_loop_wake(j->link->opt.loop, j->link->waker);
}

void rui_name_start(ru_link_tcp *l, rui_conn *c, const char *host, const char *port)
{
    ru_err err = {0};
    rui_name_job *j = calloc(1, sizeof *j);
    if (j == NULL) {
        rui_conn_fail(l, c, RU_E_AGAIN, "%s: not enough memory to look up the name", c->address);
        return;
    }
    j->link = l;
    j->conn = c;
    j->id = c->id;
    snprintf(j->host, sizeof j->host, "%s", host);
    snprintf(j->port, sizeof j->port, "%s", port);
    if (ru_thread_start(&j->thread, "ru-name", look_up, j, &err) != RU_OK) {
        free(j);
        rui_conn_fail(l, c, RU_E_AGAIN, "%s: %s", c->address, err.text);
        return;
    }
    j->next = l->names;
    l->names = j;
}

void rui_names_done(void *link, ru_time now)
{
    (void)now;
    ru_link_tcp *l = link;
    for (rui_name_job **at = &l->names; *at != NULL;) {
        rui_name_job *j = *at;
        if (__atomic_load_n(&j->done, __ATOMIC_ACQUIRE) == 0) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        ru_thread_join(&j->thread);
        rui_conn *c = j->conn;
        bool wanted = c->id.v == j->id.v && c->state == RUI_CONN_NAMING;
        if (wanted && j->error != 0) {
            rui_conn_fail(l, c, RU_E_AGAIN, "%s: the name cannot be resolved: %s", c->address,
                          gai_strerror(j->error));
        } else if (wanted) {
            rui_conn_dial(l, c, (struct sockaddr *)&j->to, j->size_bytes);
        }
        free(j);
    }
}

void rui_names_stop(ru_link_tcp *l)
{
    while (l->names != NULL) {
        rui_name_job *j = l->names;
        l->names = j->next;
        ru_thread_join(&j->thread);
        free(j);
    }
}

/* ---- sockets ---- */

static in_port_t plain_port(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)(const void *)a)->sin6_port
                                    : ((const struct sockaddr_in *)(const void *)a)->sin_port;
}

static void plain_address(const struct sockaddr_storage *a, uint8_t into[16])
{
    memset(into, 0, 16);
    if (a->ss_family == AF_INET6) {
        memcpy(into, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
    } else {
        into[10] = into[11] = 0xff; /* as IPv6 maps it */
        memcpy(into + 12, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    }
}

/* Addresses and ports of both ends. */
static bool both_ends(int fd, uint8_t at[16], uint8_t to[16], bool *same_port)
{
    struct sockaddr_storage a = {0}, b = {0};
    socklen_t size_a = sizeof a, size_b = sizeof b;
    if (getsockname(fd, (struct sockaddr *)&a, &size_a) != 0 ||
        getpeername(fd, (struct sockaddr *)&b, &size_b) != 0) {
        return false;
    }
    plain_address(&a, at);
    plain_address(&b, to);
    *same_port = plain_port(&a) == plain_port(&b);
    return true;
}

bool rui_socket_here(int fd)
{
    uint8_t at[16], to[16];
    bool same_port;
    if (!both_ends(fd, at, to, &same_port)) {
        return false;
    }
    bool loop_v4 = memcmp(at, to, 12) == 0 && at[10] == 0xff && at[12] == 127 && to[12] == 127;
    return loop_v4 || memcmp(at, to, 16) == 0;
}

bool rui_socket_itself(int fd)
{
    uint8_t at[16], to[16];
    bool same_port;
    return both_ends(fd, at, to, &same_port) && same_port && memcmp(at, to, 16) == 0;
}

ru_link_class rui_socket_class(int fd)
{
    uint8_t syn[SAVED_SYN_MAX];
    socklen_t size = sizeof syn;
    if (getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &size) != 0 || size < 20) {
        return RU_LINK_BULK;
    }
    uint32_t tos = syn[0] >> 4 == 6 ? ((uint32_t)syn[0] << 4 | syn[1] >> 4) & 0xff : syn[1];
    return (tos & TOS_URGENT) != 0 ? RU_LINK_URGENT : RU_LINK_BULK;
}

static void set_int(int fd, int level, int name, int64_t value)
{
    int v = value > INT32_MAX ? INT32_MAX : (int)value;
    (void)setsockopt(fd, level, name, &v, sizeof v); /* all of them are advice */
}

void rui_socket_options(const ru_link_tcp *l, int fd, ru_link_class class)
{
    int tos = class == RU_LINK_URGENT ? TOS_URGENT : TOS_BULK;
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, IPPROTO_IP, IP_TOS, tos);
    set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, tos);
    set_int(fd, SOL_SOCKET, SO_PRIORITY, class == RU_LINK_URGENT ? 6 : 2);
    if (class == RU_LINK_URGENT) {
        set_int(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1);
    }
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    int64_t dead_s = l->opt.dead_ns / 1000000000;
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, dead_s / 2 > 1 ? dead_s / 2 : 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, dead_s / 6 > 1 ? dead_s / 6 : 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, l->opt.dead_ns / 1000000);
}

ru_status rui_socket_why(int error)
{
    switch (error) {
    case ECONNRESET:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNABORTED:
        return RU_E_PEER;
    case EPROTO:
        return RU_E_DATA;
    default:
        return RU_E_IO;
    }
}
