/* Links over TCP (env/link/link.h), optionally TLS 1.3 with a pre-shared key.
 *
 * Reads headers and places payloads directly where the user says (one recvmsg for the rest of a
 * payload and the next header); writes with one sendmsg per frame, one frame per wake-up of a bulk
 * connection. Urgent connections carry IP_TOS 0x10, bulk ones 0x08, in both directions: the side
 * that accepts learns the class from the service bits of the first packet.
 *
 * A peer is on this machine exactly when both ends of the connection show the same address: then
 * it is not encrypted unless tls_always. Both sides see the same pair, so they agree.
 *
 * Ends: reset or end of stream is RU_E_PEER, silence and lost routes RU_E_IO, never opened
 * RU_E_AGAIN, another key RU_E_PERM.
 *
 * Thread: loop only. */
#ifndef RU_ENV_LINK_TCP_H
#define RU_ENV_LINK_TCP_H

#include "env/link/link.h"
#include "env/loop/loop.h"

typedef struct ru_link_tcp ru_link_tcp;

enum { RU_LINK_TCP_STRANGERS = 64 }; /* accepted ones kept before their TLS handshake is done */

enum { RU_LINK_PSK_NAME_MAX = 64, RU_LINK_PSK_MAX = 64 };

enum { RU_LINK_TCP_ADDRESS_MAX = 128 }; /* host:port as text */

/* This machine's address, without a port, on the interface that reaches `toward` (host:port), where
 * processes there can reach this one. Sends nothing, but resolves a name, which may block. False:
 * unknown, no route, or a name of this machine itself, which does not help others. */
bool ru_link_tcp_source(const char *toward, char into[RU_LINK_TCP_ADDRESS_MAX]);

/* Is it host:port, [v6]:port or :port? */
bool ru_link_tcp_address_ok(const char *address);
/* Is this address of this machine free to listen on? (Another process may take it a moment later.)
 * */
bool ru_link_tcp_free(const char *listen);
/* A socket that listens there, for a server of another protocol. Owner: *fd given; `into`: where it
 * listens, as host:port. Errors: RU_E_ARG (address), RU_E_PEER (taken). */
RU_MUST_USE ru_status ru_link_tcp_listen(const char *listen, int *fd,
                                         char into[RU_LINK_TCP_ADDRESS_MAX], ru_err *err);

typedef struct ru_link_tcp_options {
    ru_loop *loop;
    const char *listen; /* host:port or [v6]:port, port 0: any; host empty: all interfaces; NULL:
                           does not listen */
    const char *toward; /* host:port of a process that must reach it: selects the announced address
                           when it listens on all interfaces; NULL: the first */
    const uint8_t *psk; /* [psk_bytes] TLS key, 16 .. 64 bytes; for peers not on this machine */
    uint32_t psk_bytes;
    const char *psk_name; /* what this process is called by those who have a key for each peer; at
                             most RU_LINK_PSK_NAME_MAX bytes; NULL: no name */
    /* The key of the peer of this name, into key [64]; false: it has none. NULL: all have `psk`,
     * which is not needed otherwise. */
    bool (*psk_of)(void *self, const char *name, uint8_t *key, uint32_t *key_bytes);
    void *psk_self;
    bool tls_always;    /* also on this machine (tests) */
    bool tls_never;     /* the network is trusted */
    uint32_t conns_max; /* 0: 1024, strangers included; more are refused */
    int64_t queue_ns;   /* bulk bytes that wait in the kernel, as time of what is delivered: what is
                           more urgent waits for them, and the link runs dry when the loop thread
                           comes later than that; 0: 0.5 ms. From 10 ms on the kernel alone bounds
                           what is unacknowledged */
    int64_t open_ns;    /* give up connecting, and TLS handshakes, after; 0: 5 s */
    int64_t dead_ns;    /* unacknowledged for this long: the network failed; 0: 10 s */
    /* TCP congestion control by class, as the kernel names it. NULL: BBR for bulk on paths of more
     * than 2 ms (cubic where the kernel has none), reno for all else. "": the kernel's default. */
    const char *congestion[RU_LINK_CLASSES];
} ru_link_tcp_options;

/* Errors: RU_E_ARG (address, key), RU_E_PEER (the address is taken), RU_E_LIMIT, RU_E_MEM. */
RU_MUST_USE ru_status ru_link_tcp_open(const ru_link_tcp_options *opt, ru_link_tcp **out,
                                       ru_err *err);
void ru_link_tcp_close(ru_link_tcp *l); /* not from within an upcall; NULL is fine */
void ru_link_tcp_user(ru_link_tcp *l, const ru_link_user *user); /* before the loop runs */
ru_link ru_link_tcp_link(ru_link_tcp *l);
/* Where others reach it, with the real port; for "all interfaces" that on the way to `toward`,
 * else the first address that is not loopback. Empty when it does not listen. */
const char *ru_link_tcp_address(const ru_link_tcp *l);

/* Standing connections whose bytes anybody on the way can read. */
uint32_t ru_link_tcp_plain(const ru_link_tcp *l);
/* How a connection is protected: "plain", "tls" or "ktls" (the kernel encrypts what is sent). */
const char *ru_link_tcp_guard(const ru_link_tcp *l, ru_conn_id c);

#endif
