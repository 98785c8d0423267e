/* Keys of data.augment. */
#include <stddef.h>

#include "data/reader.h"
#include "train/job/job_impl.h"

static const ru_conf_field augment_fields[] = {
    RU_ROW(CHOICE, ru_augment, flip, "none",
           "mirror half of the images, drawn by chance; both: in each direction by itself",
           .choices = "none|horizontal|vertical|both"),
    RU_ROW(I64, ru_augment, crop, "0",
           "pad the image with this many black pixels on each side and cut its own size out "
           "of it, at a random place",
           RU_IN(0, 4096)),
    RU_ROW(F64, ru_augment, rotation, "0",
           "rotate the image by at most this many degrees to either side", RU_IN(0, 180)),
    RU_ROW(F64, ru_augment, brightness, "0",
           "multiply pixels by a factor from 1 - this to 1 + this", RU_IN(0, 1)),
    RU_ROW(F64, ru_augment, contrast, "0",
           "multiply the distance of pixels from the image's mean gray by such a factor",
           RU_IN(0, 1)),
    RU_ROW(F64, ru_augment, saturation, "0",
           "multiply the distance of pixels from their own gray by such a factor; images of "
           "three channels",
           RU_IN(0, 1)),
    RU_ROW(I64, ru_augment, cutout, "0",
           "side in pixels of a square at a random place that is set to 0, after data.mean "
           "and data.std",
           RU_IN(0, 8192)),
    RU_ROW(F64, ru_augment, mixup, "0",
           "mix inputs and labels of each sample with those of the sample before it in the "
           "order, in shares drawn from Beta(mixup, mixup); 0.2 is common; any inputs of "
           "numbers",
           RU_IN(0, 100)),
};

const ru_conf_table rui_augment_table = RU_TABLE(
    "augment", ru_augment, augment_fields, "random changes of the training samples",
    .called = "horizontal_flip=flip|hflip=flip|random_flip=flip|random_crop=crop|padding=crop|pad="
              "crop|rotate=rotation|degrees=rotation|random_rotation=rotation|color_jitter="
              "brightness|colour=brightness|color=brightness|random_erasing=cutout|erase=cutout|"
              "mixup_alpha=mixup|hue=saturation");
