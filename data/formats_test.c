#include "test/test.h"
static void test_nothing(void **state) { (void)state; }
RU_TESTS(data_formats, cmocka_unit_test(test_nothing))
