/* Frames between two processes: a header of 40 bytes, little endian, and a payload of `len` bytes.
 *
 *    0 magic u16 | 2 version u8 | 3 type u8 | 4 class u8 | 5 flags u8 | 6 rank u16
 *    8 iter u32  | 12 len u32   | 16 stream u64          | 24 offset u64
 *   32 deadline u32             | 36 crc u32: CRC-32C of the 36 bytes before and the payload
 *
 *   type      on      flags            iter, stream  offset          deadline     payload
 *   HELLO     both                                                                rui_hello
 *   PROOF     both                                                                rui_proof
 *   MESSAGE   urgent                   what, 0       ack             sequence     the message
 *   DATA      bulk    FIRST LAST FENCE name          place           us, 0: none  bytes
 *   DATA      urgent  WHOLE            name          ack             sequence     all of a stream
 *   GRANT     urgent                   name          limit           sequence
 *   CANCEL    bulk                     name          total           0            by the sender
 *   CANCEL    urgent  STOPPED          name          total           sequence     by the sender
 *   CANCEL    urgent  (by receiver)    name          0               sequence
 *   ACK       urgent  DONE             name          ack             sequence     further names
 *   ACK       urgent  DONE STAMP       the same, and when the last byte came: rank is a stamp, one
 *                                      follows each further name
 *   ACK       urgent  STOPPED          name          ack             sequence
 *   ACK       urgent  HELD             name          ack             sequence     intervals held
 *   PROBE     urgent                   0             ack             0            keep-alive
 *   PROBE     urgent  ASK or GONE      name          total           sequence     question
 *   PROBE     urgent  TIME             0, t1         offset          1: known     what time is it?
 *   PROBE     urgent  TOLD             0, t1         t2              t3 - t2      it came, it goes
 *   ERR       both                     status                                     a sentence
 *
 * "sequence": low 32 bits of the number of this frame among the sequenced ones of this peer; they
 * arrive in order, once, also over a reconnection. "ack": how many have arrived. "stamp": when the
 * last byte came, by the receiver's clock in units of 4096 ns, modulo 2^16. "offset": what the
 * clock of who is asked shows more than that of who asks, as measured so far.
 *
 * Thread: any. */
#ifndef RU_COMM_CHAN_FRAME_H
#define RU_COMM_CHAN_FRAME_H

#include "env/link/link.h"

enum {
    RUI_FRAME_MAGIC = 0x4252, /* "RB" */
    RUI_FRAME_VERSION = 4,
    RUI_CLASSES = 4,
    RUI_ADDRESS_MAX = 255,
    RUI_NONCE_BYTES = 32,
    RUI_MAC_BYTES = 32,
    RUI_HELLO_MAX = 8 * 3 + 4 * 2 + RUI_NONCE_BYTES + RUI_ADDRESS_MAX,
    RUI_PROOF_BYTES = 8 + 8 + RUI_MAC_BYTES,
    RUI_MESSAGE_MAX = 64 << 10,
    RUI_HELD_MAX = 4,    /* intervals of a stream that a receiver holds */
    RUI_NAME_BYTES = 12, /* stream u64, iter u32 */
    RUI_STAMP_BYTES = 2, /* u16, behind a name */
    RUI_MORE_MAX = 15,   /* further names in an acknowledgement */
    RUI_ERR_TEXT_MAX = 256,
};

static const int64_t RUI_STREAM_BYTES_MAX = (int64_t)1 << 48;

typedef enum rui_frame_type {
    RUI_HELLO = 1,
    RUI_PROOF,
    RUI_MESSAGE,
    RUI_DATA,
    RUI_GRANT,
    RUI_CANCEL,
    RUI_ACK,
    RUI_PROBE,
    RUI_ERR,
    RUI_FRAME_TYPES
} rui_frame_type;

enum {
    RUI_CRC = 1, /* crc is valid; every type */
    RUI_FIRST = 2,
    RUI_LAST = 4,
    RUI_WHOLE = 8,
    RUI_FENCE = 16, /* with WHOLE or LAST: the sender waits for the acknowledgement */
    RUI_DONE = 2,
    RUI_STOPPED = 4,
    RUI_HELD = 8,
    RUI_STAMP = 16, /* with DONE */
    RUI_ASK = 2,
    RUI_GONE = 4,
    RUI_TIME = 8,
    RUI_TOLD = 16,
};

typedef struct rui_frame {
    rui_frame_type type;
    uint8_t class, flags;
    uint16_t rank;
    uint32_t iter, len;
    uint64_t stream, offset;
    uint32_t deadline, crc;
} rui_frame;

void rui_frame_encode(const rui_frame *f, uint8_t head[RU_LINK_HEAD_BYTES]);

/* Errors: RU_E_PEER with the sentence of what is outside its limits; RU_E_UNSUPPORTED for another
 * version. */
RU_MUST_USE ru_status rui_frame_decode(const uint8_t head[RU_LINK_HEAD_BYTES], rui_frame *f,
                                       ru_err *err);

/* crc of the header's first 36 bytes, to be continued over the payload. */
uint32_t rui_frame_crc(const uint8_t head[RU_LINK_HEAD_BYTES]);
void rui_frame_set_crc(uint8_t head[RU_LINK_HEAD_BYTES], uint32_t crc);

bool rui_frame_sequenced(const rui_frame *f, ru_link_class on);

typedef struct rui_hello {
    uint64_t job, node;
    uint64_t pair;   /* drawn by who connects: the two connections of one pair carry the same */
    uint32_t wishes; /* RUI_WISH_... */
    uint8_t nonce[RUI_NONCE_BYTES];
    uint32_t address_len;
    char address[RUI_ADDRESS_MAX + 1]; /* where the node listens, NUL-terminated */
} rui_hello;

enum { RUI_WISH_GRANTS = 1, RUI_WISH_CRC = 2 };

int64_t rui_hello_encode(const rui_hello *h, uint8_t into[RUI_HELLO_MAX]);
RU_MUST_USE ru_status rui_hello_decode(const uint8_t *data, int64_t size_bytes, rui_hello *h,
                                       ru_err *err);

typedef struct rui_proof {
    uint64_t session;  /* what the two shared before; 0: nothing */
    uint64_t received; /* sequenced frames that arrived in it */
    uint8_t mac[RUI_MAC_BYTES];
} rui_proof;

void rui_proof_encode(const rui_proof *p, uint8_t into[RUI_PROOF_BYTES]);
void rui_proof_decode(const uint8_t from[RUI_PROOF_BYTES], rui_proof *p);

/* Half-open range of bytes [from, to). */
typedef struct rui_range {
    int64_t from, to;
} rui_range;

/* Bytes of a further name in an acknowledgement with those flags. */
static inline uint32_t rui_more_bytes(uint8_t flags)
{
    return (flags & RUI_STAMP) != 0 ? RUI_NAME_BYTES + RUI_STAMP_BYTES : RUI_NAME_BYTES;
}

/* A further name: rui_more_bytes. The stamp is read and written if there is one. */
void rui_more_encode(uint8_t *name, uint8_t flags, uint64_t stream, uint32_t iter, uint16_t stamp);
void rui_more_decode(const uint8_t *name, uint8_t flags, uint64_t *stream, uint32_t *iter,
                     uint16_t *stamp);

/* How late a stamp may be read. */
static const int64_t RUI_STAMP_TELLS_NS = 262000000;

/* Of an instant; and the latest instant at or before `now`, by the same clock, with that stamp (to
 * the middle of its unit): right when it is at most RUI_STAMP_TELLS_NS ago. */
uint16_t rui_stamp_of(ru_time at);
ru_time rui_stamp_time(uint16_t stamp, ru_time now);

/* Errors: RU_E_PEER unless the ranges are ascending, apart, not empty and within total_bytes. */
int64_t rui_held_encode(const rui_range *held, uint32_t n, uint8_t into[16 * RUI_HELD_MAX]);
RU_MUST_USE ru_status rui_held_decode(const uint8_t *data, int64_t size_bytes, int64_t total_bytes,
                                      rui_range held[RUI_HELD_MAX], uint32_t *n);

#endif
