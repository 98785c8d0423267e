/* Secure aggregation: who adds up masked vectors learns their sum and nothing else of them, also
 * when some that took part are lost.
 *
 *   client k                                          server
 *   begin    two pairs of keys, a seed   -- publics ->
 *                                        <- publics of all
 *   share    parts of its mask key and seed, sealed
 *            for each other client       -- boxes --->
 *                                        <- the boxes for it, of those that sent some: IN
 *   masks    x + seed's stream + streams that it
 *            shares with each of IN: the one of lower
 *            number adds it, the other takes it away -> sums them: masked
 *                                        <- whose vectors came: SURVIVED
 *   reveal   its parts: of the seeds of SURVIVED, of the
 *            mask keys of the others of IN ---------->  at `need` answers: unmask
 *
 * A client never reveals both parts of one client, so a vector that comes late stays hidden. Fewer
 * than `need` together learn nothing. All of it holds for a server and clients that follow the
 * protocol and look at what they see: a server that tells different clients different things is
 * kept from two sums by need > n / 2 alone.
 *
 * Numbers are fixed point modulo 2^32, so masks vanish to the last bit. Keys are of one round.
 *
 * With `near` a client shares streams and parts with its neighbours alone: the near / 2 places
 * before its own and as many behind it, of n in a ring. `need` of such a neighbourhood, the client
 * itself among them, open what it hides; each must have so many left. need > near / 2 + 1, so a
 * client whose neighbours on one side are all lost ends the round: those that are left stay one
 * graph.
 *
 * Source: bonawitz-2017 (the protocol against honest but curious servers), bell-2020 (neighbours;
 * its ring is drawn by the server, too). Thread: one at a time.
 */
#ifndef RU_FLEET_SECURE_MASK_H
#define RU_FLEET_SECURE_MASK_H

#include "base/arena.h"
#include "env/cipher.h"
#include "fleet/secure/shamir.h"

enum {
    RU_MASK_CLIENTS_MAX = 1024,
    RU_MASK_PUBLIC_BYTES = 2 * RU_CIPHER_KEY_BYTES, /* of boxes, then of masks; zeros: none */
    RU_MASK_PARTS_BYTES = 2 * RU_SHAMIR_BYTES,      /* of a mask key, then of a seed */
    RU_MASK_BOX_BYTES = RU_MASK_PARTS_BYTES + RU_CIPHER_TAG_BYTES,
};

/* -- numbers --------------------------------------------------------------------------------------
 */

typedef struct ru_mask_scale {
    double range; /* largest move of a value */
    double clip;  /* largest length of all moves, to which they are scaled down; 0: none */
    double share; /* by which the moves are multiplied; those of all sum up to at most 1 */
} ru_mask_scale;

/* into[i] = fixed point of share x (values[i] - from[i]); may be the same memory as values. Without
 * clip to the nearest, with it towards 0, so that no move gets longer. Errors: RU_E_USER for a move
 * beyond the range or that is no number. */
RU_MUST_USE ru_status ru_mask_encode(const ru_mask_scale *s, const float *from, const float *values,
                                     int64_t count, uint32_t *into, ru_err *err);
/* What 1 of such a number is worth. */
double ru_mask_unit(const ru_mask_scale *s);

/* -- a client -------------------------------------------------------------------------------------
 */

typedef struct ru_mask_stream {
    uint8_t key[RU_CIPHER_KEY_BYTES];
    bool minus;
} ru_mask_stream;

typedef struct ru_masker {
    uint32_t n_max, n, self, need, near;
    uint32_t round; /* any number that all of a round know */
    void (*random)(void *into, int64_t size_bytes);
    uint8_t box_secret[RU_CIPHER_KEY_BYTES], mask_secret[RU_CIPHER_KEY_BYTES];
    uint8_t seed[RU_CIPHER_KEY_BYTES];
    uint8_t *publics; /* [n_max][RU_MASK_PUBLIC_BYTES] */
    uint8_t *parts;   /* [n_max][RU_MASK_PARTS_BYTES] that this client holds */
    uint8_t *work;    /* [2][n_max][RU_MASK_PARTS_BYTES]: parts to seal; numbers drawn for them */
    bool *in;         /* [n_max] */
    uint32_t next;    /* client of SEALING and OPENING */
    enum {
        RU_MASKER_IDLE,
        RU_MASKER_BEGUN,
        RU_MASKER_SEALING,
        RU_MASKER_SHARED,
        RU_MASKER_OPENING,
        RU_MASKER_READY
    } stage;
} ru_masker;

/* `random`: numbers that nobody can predict (ru_self_random). Errors of all: RU_E_MEM; RU_E_DATA
 * for what an honest server does not send. */
RU_MUST_USE ru_status ru_masker_open(uint32_t n_max, void (*random)(void *, int64_t),
                                     ru_arena *arena, ru_masker *out, ru_err *err);
/* near: neighbours of a client, an even number; 0: all. */
RU_MUST_USE ru_status ru_masker_begin(ru_masker *m, uint32_t round, uint32_t need, uint32_t near,
                                      uint8_t publics[RU_MASK_PUBLIC_BYTES], ru_err *err);
/* These two take a while with many clients: *more: call it again, with the same. In between others
 * may have their turn, as a link that must not be silent. */
/* Shape: publics [n][RU_MASK_PUBLIC_BYTES], boxes [n][RU_MASK_BOX_BYTES]. */
RU_MUST_USE ru_status ru_masker_share(ru_masker *m, uint32_t n, uint32_t self,
                                      const uint8_t *publics, uint8_t *boxes, bool *more,
                                      ru_err *err);
/* Take the boxes of those with in[k] 1 and tell the streams of this client's mask. Shape: in [n],
 * boxes [n][RU_MASK_BOX_BYTES], streams [n]: *n_streams of them. */
RU_MUST_USE ru_status ru_masker_streams(ru_masker *m, const uint8_t *in, const uint8_t *boxes,
                                        ru_mask_stream *streams, uint32_t *n_streams, bool *more,
                                        ru_err *err);
/* Shape: survived [n], parts [n][RU_SHAMIR_BYTES], zeros for those that were not in or are no
 * neighbours. Once. */
RU_MUST_USE ru_status ru_masker_reveal(ru_masker *m, const uint8_t *survived, uint8_t *parts,
                                       ru_err *err);
/* Forget the keys; what it holds of others, too. */
void ru_masker_forget(ru_masker *m);

/* -- the server -----------------------------------------------------------------------------------
 */

typedef struct ru_unmasker {
    uint32_t n_max, n, need, near, round;
    int64_t count;
    uint8_t *publics;               /* [n_max][RU_MASK_PUBLIC_BYTES] */
    uint8_t *boxes;                 /* [n_max] rows: [n] in, then [n][RU_MASK_BOX_BYTES] */
    uint8_t *parts;                 /* [need][n_max][RU_SHAMIR_BYTES] as they were revealed */
    uint32_t *holder;               /* [n_max][n_max] who revealed those of each */
    uint32_t *n_parts;              /* [n_max] of each, at most need */
    uint16_t *weights;              /* [n_max] */
    bool *told, *shared, *revealed; /* [n_max] */
    uint8_t *survived;              /* [n_max] */
    uint32_t *sum;                  /* [count] */
    uint32_t n_told, n_shared, n_survived, n_open; /* n_open: of whom `need` parts are there */
} ru_unmasker;

RU_MUST_USE ru_status ru_unmasker_open(uint32_t n_max, int64_t count, ru_arena *arena,
                                       ru_unmasker *out, ru_err *err);
void ru_unmasker_begin(ru_unmasker *u, uint32_t n, uint32_t need, uint32_t near, uint32_t round);
/* What client k sends; what does not fit or comes twice is not taken: false. */
bool ru_unmasker_public(ru_unmasker *u, uint32_t k, const uint8_t *publics, int64_t bytes);
bool ru_unmasker_boxes(ru_unmasker *u, uint32_t k, const uint8_t *boxes, int64_t bytes);
bool ru_unmasker_add(ru_unmasker *u, uint32_t k, const uint32_t *masked);
bool ru_unmasker_parts(ru_unmasker *u, uint32_t k, const uint8_t *parts, int64_t bytes);
/* The smallest number of `who` in the neighbourhood of one of `of`, itself included; n: `of` is
 * empty. Shape: of, who [n]. */
uint32_t ru_unmasker_fewest(const ru_unmasker *u, const bool *of, const bool *who);
bool ru_unmasker_opens(const ru_unmasker *u); /* parts of all that shared are there */
/* The row for client k, view: until the next begin. */
const uint8_t *ru_unmasker_row(const ru_unmasker *u, uint32_t k, int64_t *bytes);
/* sum without masks, when ru_unmasker_opens. Errors: RU_E_DATA when parts do not give the key of a
 * client that was lost. Cost: a stream for each survivor and for each pair of neighbours of whom
 * one survived and one was lost. */
RU_MUST_USE ru_status ru_unmasker_unmask(ru_unmasker *u, ru_err *err);

#endif
