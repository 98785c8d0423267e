/* Links over TCP (env/link.h), optionally TLS 1.3 with a pre-shared key.
 *
 * Reads headers and places payloads directly where the user says (one recvmsg for the rest of a
 * payload and the next header); writes with one sendmsg per frame, one frame per wake-up of a bulk
 * connection beyond its knobs. Urgent connections carry IP_TOS 0x10, bulk 0x08.
 *
 * Thread: loop only. */
#ifndef RU_ENV_LINK_TCP_H
#define RU_ENV_LINK_TCP_H

#include "env/link.h"
#include "env/loop.h"

typedef struct ru_link_tcp ru_link_tcp;

typedef struct ru_link_tcp_options {
    ru_loop *loop;
    const char
        *listen; /* host:port, port 0: any; host empty: all interfaces; NULL: does not listen */
    const uint8_t *psk; /* [psk_bytes] TLS key; used for peers that are not on this machine */
    uint32_t psk_bytes;
    bool tls_always; /* also on this machine (tests) */
    bool tls_never;
    uint32_t conns_max;
    int64_t open_ns; /* give up connecting after; 0: 5 s */
} ru_link_tcp_options;

RU_MUST_USE ru_status ru_link_tcp_open(const ru_link_tcp_options *opt, ru_link_tcp **out,
                                       ru_err *err);
void ru_link_tcp_close(ru_link_tcp *l);
void ru_link_tcp_user(ru_link_tcp *l, const ru_link_user *user); /* before the loop runs */
ru_link ru_link_tcp_link(ru_link_tcp *l);
const char *ru_link_tcp_address(const ru_link_tcp *l); /* where it listens, with the real port */

#endif
