/* Files of other programs are told by what they are; what is not recognised goes to its reader. */
#include "store/foreign.h"

#include <string.h>

#include "test/test.h"

static void test_known_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int64_t n;
        const char *want; /* NULL: passes */
    } rows[] = {
        {"PK\3\4\0\0\10\10", 8,
         "m.pt is a zip archive, as torch.save (.pt, .pth) writes them, not an ONNX model; in "
         "Python, load it with torch.load, "},
        {"\x80\2}q\0.", 6, "m.pt is a Python pickle, as older versions of torch.save"},
        {"\x89HDF\r\n\x1a\n\0", 9, "m.pt is an HDF5 file"},
        {"\x1c\0\0\0TFL3", 8, "m.pt is a model of TensorFlow Lite"},
        {"\x08\x09\x12\x07pytorch", 11, NULL}, /* ONNX: ir_version, producer_name */
        {"PK", 2, NULL},
        {"", 0, NULL},
    };
    for (uint32_t k = 0; k < RU_ARRAY_LEN(rows); k++) {
        ru_err err = {0};
        ru_status st = ru_foreign_refuse("m.pt", rows[k].bytes, rows[k].n, "an ONNX model", &err);
        assert_int_equal(st, rows[k].want != NULL ? RU_E_DATA : RU_OK);
        if (rows[k].want != NULL) {
            assert_memory_equal(err.text, rows[k].want, strlen(rows[k].want));
        }
    }
}

RU_TESTS(store_foreign, cmocka_unit_test(test_known_files_are_named))
