/* Who is among the members of a view, or among those wanted in the next one.
 * Thread: loop only. */
#ifndef RU_COMM_MEMBER_AMONG_H
#define RU_COMM_MEMBER_AMONG_H

#include <stddef.h>

#include "comm/member/member.h"

/* The entry of `node` in at [n]; NULL: there is none. */
static inline const ru_member_info *ru_member_among(const ru_member_info *at, uint32_t n,
                                                    ru_node_id node)
{
    uint32_t i = 0;
    while (i < n && !ru_node_is(at[i].node, node)) {
        i++;
    }
    return i < n ? &at[i] : NULL;
}

#endif
