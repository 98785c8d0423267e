/* Keys of data.augment. */
#include <stddef.h>

#include "data/reader.h"
#include "train/job/job_impl.h"

#define ROW(type_, key_, ...)                                                                     \
    {                                                                                             \
        .name = #key_, .type = RU_CONF_##type_, .offset = offsetof(ru_augment, key_), __VA_ARGS__ \
    }

static const ru_conf_field augment_fields[] = {
    ROW(CHOICE, flip, .def = "none", .choices = "none|horizontal|vertical|both",
        .help = "mirror half of the images, drawn by chance; both: in each direction by itself"),
    ROW(I64, crop, .def = "0", .min = 0, .max = 4096,
        .help = "pad the image with this many black pixels on each side and cut its own size out "
                "of it, at a random place"),
    ROW(F64, rotation, .def = "0", .min = 0, .max = 180,
        .help = "rotate the image by at most this many degrees to either side"),
    ROW(F64, brightness, .def = "0", .min = 0, .max = 1,
        .help = "multiply pixels by a factor from 1 - this to 1 + this"),
    ROW(F64, contrast, .def = "0", .min = 0, .max = 1,
        .help = "multiply the distance of pixels from the image's mean gray by such a factor"),
    ROW(F64, saturation, .def = "0", .min = 0, .max = 1,
        .help = "multiply the distance of pixels from their own gray by such a factor; images of "
                "three channels"),
    ROW(I64, cutout, .def = "0", .min = 0, .max = 8192,
        .help = "side in pixels of a square at a random place that is set to 0, after data.mean "
                "and data.std"),
    ROW(F64, mixup, .def = "0", .min = 0, .max = 100,
        .help = "mix inputs and labels of each sample with those of the sample before it in the "
                "order, in shares drawn from Beta(mixup, mixup); 0.2 is common; any inputs of "
                "numbers"),
};

const ru_conf_table rui_augment_table = {
    .name = "augment",
    .fields = augment_fields,
    .n = RU_ARRAY_LEN(augment_fields),
    .size_bytes = sizeof(ru_augment),
    .called = "horizontal_flip=flip|hflip=flip|random_flip=flip|random_crop=crop|padding=crop|pad="
              "crop|rotate=rotation|degrees=rotation|random_rotation=rotation|color_jitter="
              "brightness|colour=brightness|color=brightness|random_erasing=cutout|erase=cutout|"
              "mixup_alpha=mixup|hue=saturation",
    .help = "random changes of the training samples",
};
