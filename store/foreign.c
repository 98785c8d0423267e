#include "store/foreign.h"

#include <string.h>

typedef struct kind {
    const char *magic;
    uint32_t magic_bytes, at; /* where it stands */
    const char *what, *advice;
} kind;

static const char torch_advice[] =
    "in Python, load it with torch.load, then write the model with torch.onnx.export or its "
    "state_dict with safetensors.torch.save_file";

/* Source: the formats' own descriptions of their first bytes. A pickle begins with the opcode PROTO
 * and its version. */
static const kind kinds[] = {
    {"PK\3\4", 4, 0, "a zip archive, as torch.save (.pt, .pth) writes them", torch_advice},
    {"\x80\2", 2, 0, "a Python pickle, as older versions of torch.save write them", torch_advice},
    {"\x80\3", 2, 0, "a Python pickle", torch_advice},
    {"\x80\4", 2, 0, "a Python pickle", torch_advice},
    {"\x80\5", 2, 0, "a Python pickle", torch_advice},
    {"\x89HDF\r\n\x1a\n", 8, 0, "an HDF5 file, as Keras writes them",
     "tf2onnx and keras2onnx make ONNX models of Keras models"},
    {"TFL3", 4, 4, "a model of TensorFlow Lite", "tf2onnx makes ONNX models of such files"},
    {"GGUF", 4, 0, "a GGUF file of llama.cpp",
     "take the model in the form in which it was published, as safetensors or ONNX"},
    {"\x93NUMPY", 6, 0, "a numpy array (.npy)", "data belong under data: or behind --in"},
    {"\x1f\x8b", 2, 0, "a gzip file", "gunzip unpacks it"},
};

ru_status ru_foreign_refuse(const char *path, const void *data, int64_t size_bytes,
                            const char *wanted, ru_err *err)
{
    const char *bytes = data;
    for (uint32_t k = 0; k < RU_ARRAY_LEN(kinds); k++) {
        const kind *f = &kinds[k];
        if (size_bytes >= (int64_t)f->at + f->magic_bytes &&
            memcmp(bytes + f->at, f->magic, f->magic_bytes) == 0) {
            return RU_FAIL(err, RU_E_DATA, "%s is %s, not %s; %s", path, f->what, wanted,
                           f->advice);
        }
    }
    return RU_OK;
}
