/* The table of one instruction set. */
#include "exec/cpu/kern/isa.h"

#define RUI_TEXT2(x) #x
#define RUI_TEXT1(x) RUI_TEXT2(x)

const ru_kern RUI_K(rui_kern_table) = {.name = RUI_TEXT1(RU_KERN_ISA),
#define RU_X(ret, fn, args) .fn = RUI_K(rui_kern_##fn),
                                       RU_KERN_LIST(RU_X)
#undef RU_X
};
