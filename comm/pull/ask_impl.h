/* What both sides of comm/pull/ask.h have on the wire. Thread: loop only. */
#ifndef RU_COMM_PULL_ASK_IMPL_H
#define RU_COMM_PULL_ASK_IMPL_H

#include "comm/pull/ask.h"

enum { RUI_ASK, RUI_READY, RUI_NO };
enum {
    RUI_ASK_ITEM_BYTES = 2 + 8 + 4, /* rank, bytes, length of the name */
    RUI_NO_TEXT_MAX = 1200,
};

/* Names of streams and cookies: tag and the asker's number of the item. */
#define RUI_ASK_TAG      (UINT64_C(0xa5) << 56)
#define RUI_ASK_TAG_MASK (UINT64_C(0xff) << 56)

#endif
