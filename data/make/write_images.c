/* Folders of PNG files, one folder for each class: PREFIX/CLASS/000001.png. */
#include "data/make/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

#include "data/data_impl.h"

typedef struct images_out {
    const rui_write_job *job;
    uint8_t *pixels; /* [h, w, c] of one image */
    int64_t done;
} images_out;

static ru_status encode(images_out *o, const uint8_t *x, const char *dir, const char *name,
                        ru_err *err)
{
    const int64_t *dims = o->job->d->fields[0].type.dims; /* [c, h, w] */
    int64_t c = dims[0], plane = dims[1] * dims[2];
    for (int64_t i = 0; i < plane; i++) {
        for (int64_t k = 0; k < c; k++) {
            o->pixels[i * c + k] = x[k * plane + i];
        }
    }
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    struct spng_ihdr head = {.width = (uint32_t)dims[2],
                             .height = (uint32_t)dims[1],
                             .bit_depth = 8,
                             .color_type =
                                 c == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR};
    size_t n = 0;
    void *png = NULL;
    int rc = ctx == NULL ? SPNG_EMEM : spng_set_option(ctx, SPNG_ENCODE_TO_BUFFER, 1);
    rc = rc == 0 ? spng_set_ihdr(ctx, &head) : rc;
    rc = rc == 0 ? spng_encode_image(ctx, o->pixels, (size_t)(plane * c), SPNG_FMT_PNG,
                                     SPNG_ENCODE_FINALIZE)
                 : rc;
    png = rc == 0 ? spng_get_png_buffer(ctx, &n, &rc) : NULL;
    rui_file f = {0};
    ru_status st = png != NULL ? rui_file_open(&f, dir, name, err)
                               : RU_FAIL(err, RU_E_MEM, "%s/%s: cannot encode the image: %s", dir,
                                         name, spng_strerror(rc));
    st = st == RU_OK ? rui_file_put(&f, png, (int64_t)n, err) : st;
    st = st == RU_OK ? rui_file_finish(&f, err) : st;
    rui_file_close(&f);
    free(png);
    spng_ctx_free(ctx);
    return st;
}

static ru_status put_images(void *self, const ru_batch *b, ru_err *err)
{
    images_out *o = self;
    const ru_dataset *d = o->job->d;
    for (int64_t i = 0; i < b->n; i++) {
        char dir[4096], name[32], number[24];
        int64_t k = ((const int64_t *)b->fields[1])[i];
        const char *class_name = ru_dataset_class_name(d, k);
        (void)snprintf(number, sizeof number, "%lld", (long long)k);
        int n = snprintf(dir, sizeof dir, "%s/%s/%s", o->job->dir, o->job->prefix,
                         class_name != NULL ? class_name : number);
        (void)snprintf(name, sizeof name, "%06lld.png", (long long)++o->done);
        if (n >= (int)sizeof dir) {
            return RU_FAIL(err, RU_E_CONFIG, "%s: the path is too long", o->job->dir);
        }
        RU_TRY(ru_dir_make(dir, err));
        RU_TRY(encode(o, (const uint8_t *)b->fields[0] + i * d->field_bytes[0], dir, name, err));
    }
    return RU_OK;
}

ru_status rui_write_images(const rui_write_job *job, ru_err *err)
{
    const ru_dataset *d = job->d;
    const ru_type *x = &d->fields[0].type;
    if (d->n_fields != 2 || d->y_field != 1 || d->one_hot || x->dtype != RU_U8 || x->rank != 3 ||
        (x->dims[0] != 1 && x->dims[0] != 3)) {
        return RU_FAIL(err, RU_E_UNSUPPORTED,
                       "PNG files hold images of 1 or 3 channels of 8 bits, in a folder for each "
                       "class; write npy or packed files instead");
    }
    images_out o = {.job = job, .pixels = malloc((size_t)d->field_bytes[0])};
    ru_status st = o.pixels == NULL ? rui_no_memory(err, "image", d->field_bytes[0])
                                    : rui_write_batches(job, put_images, &o, err);
    free(o.pixels);
    return st;
}
