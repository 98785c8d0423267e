/* What both sides of remote weights have on the wire. Thread: loop only. */
#ifndef RU_TRAIN_REMOTE_IMPL_H
#define RU_TRAIN_REMOTE_IMPL_H

#include "comm/node/guests.h"
#include "comm/pull/ask.h"
#include "train/remote/remote.h"

/* Messages to and from guests, above those of all parts. */
enum {
    RUI_REMOTE_HELLO = 0x7f00, /* version u32 */
    RUI_REMOTE_HEAD,  /* version u32, bytes of the description u64, its hash u64, program text */
    RUI_REMOTE_STILL, /* nothing: the guest is still there; answered by the same */
    RUI_REMOTE_NO,    /* a sentence: there are no weights for this guest */
    RUI_REMOTE_ASK,   /* RU_ASK_MESSAGES from here on */
    RUI_REMOTE_END = RUI_REMOTE_ASK + RU_ASK_MESSAGES,
};

#define RUI_REMOTE_MODEL  "model" /* what the description is called */
#define RUI_REMOTE_TENSOR "w/"    /* ... and before the names of tensors */
#define RUI_REMOTE_JOB    UINT64_C(0x7765696768747331)

#endif
