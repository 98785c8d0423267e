/* Sealing of malloc outside of test builds: nothing to check. A program that links test/seal.c gets
 * the checked pair instead of this file. */
#include "base/arena.h"

void ru_alloc_seal(void)
{
}

void ru_alloc_unseal(void)
{
}
