/* Where the samples of regions lie (RoiAlign), and their bins of whole elements (MaxRoiPool, which
 * is RoiAlign with a pooled_shape), for the reference and for the vector kernels.
 *
 * A region is `pooled` bins along an axis, a bin `grid` samples. Which elements a sample reads, and
 * how many samples there are, depends on the last bit: places are computed in f32 where regions
 * are, without fused products, as in ONNX Runtime.
 *
 * Thread: any, no shared state. */
#ifndef RU_EXEC_CPU_REF_ROI_H
#define RU_EXEC_CPU_REF_ROI_H

#include "exec/ref.h"

#include <math.h>
#include <string.h>

typedef struct rui_roi_how {
    bool single, half, most; /* f32; begins half an element earlier; maximum instead of mean */
    bool whole;              /* the largest of whole elements: MaxRoiPool */
    int64_t ratio;           /* samples of a bin along an axis; 0: one an element */
    int64_t images, size[2], pooled[2];
    double scale;
} rui_roi_how;

/* One axis of a region: sample i of bin b lies at start + b * bin + (i + 0.5) * bin / grid. */
typedef struct rui_roi_axis {
    bool single, nowhere; /* not a number, or too large for one: all of the region is NaN */
    int64_t grid, size;
    double start, bin;
} rui_roi_axis;

/* A sample between two elements of an axis. */
typedef struct rui_roi_tap {
    int64_t at[2];
    double weight[2];
} rui_roi_tap;

static inline rui_roi_how rui_roi_how_of(const ru_node *n, const ru_type *x, const ru_type *y,
                                         ru_dtype rois)
{
    const char *from = ru_node_str(n, RU_ATTR_coordinate_transformation_mode, "half_pixel");
    return (rui_roi_how){
        .single = rois != RU_F64,
        .half = strcmp(from, "half_pixel") == 0,
        .most = strcmp(ru_node_str(n, RU_ATTR_mode, "avg"), "max") == 0,
        .whole = ru_node_attr(n, RU_ATTR_pooled_shape) != NULL,
        .ratio = ru_node_int(n, RU_ATTR_sampling_ratio, 0),
        .images = x->dims[0],
        .size = {x->dims[2], x->dims[3]},
        .pooled = {y->dims[2], y->dims[3]},
        .scale = (double)(float)ru_node_float(n, RU_ATTR_spatial_scale, 1.0),
    };
}

/* Rounded as the places are. */
static inline double rui_roi_round(bool single, double x)
{
    return single ? (double)(float)x : x;
}

/* Axes 0 (down) and 1 (across) of region r = x1 y1 x2 y2. Errors: RU_E_DATA. */
static inline ru_status rui_roi_make(const rui_roi_how *h, int64_t r, const double *roi,
                                     int64_t image, rui_roi_axis *axes, ru_err *err)
{
    if (image < 0 || image >= h->images) {
        return RU_FAIL(err, RU_E_DATA, "region %lld is of image %lld, expected 0..%lld",
                       (long long)r, (long long)image, (long long)(h->images - 1));
    }
    for (uint32_t d = 0; d < 2; d++) {
        double half = h->half ? 0.5 : 0.0;
        double first = rui_roi_round(h->single, roi[1 - d] * h->scale);
        double last = rui_roi_round(h->single, roi[3 - d] * h->scale);
        first = rui_roi_round(h->single, first - half);
        last = rui_roi_round(h->single, last - half);
        double span = rui_roi_round(h->single, last - first);
        span = !h->half && span < 1 ? 1 : span;
        double bin = rui_roi_round(h->single, span / (double)h->pooled[d]);
        bool nowhere = !(fabs(bin) < 1e15) || !(fabs(first) < 1e15);
        axes[d] = (rui_roi_axis){.single = h->single,
                                 .nowhere = nowhere,
                                 .grid = h->ratio > 0 ? h->ratio
                                         : nowhere    ? 0
                                                      : (int64_t)ceil(bin),
                                 .size = h->size[d],
                                 .start = first,
                                 .bin = bin};
    }
    return RU_OK;
}

/* One axis of a region of whole elements: bin b begins b * bin after the first one. */
typedef struct rui_roi_box {
    bool single;
    double first, bin, size;
} rui_roi_box;

/* Ends are rounded, and the last element belongs to the region: there is always one. */
static inline void rui_roi_boxes(const rui_roi_how *h, const double *roi, rui_roi_box *axes)
{
    const double far = 1073741824.0; /* outside of every image */
    for (uint32_t d = 0; d < 2; d++) {
        double first = round(rui_roi_round(h->single, roi[1 - d] * h->scale));
        double last = round(rui_roi_round(h->single, roi[3 - d] * h->scale));
        first = first > -far ? fmin(first, far) : -far;
        last = last > -far ? fmin(last, far) : -far;
        double span = rui_roi_round(h->single, fmax(last - first + 1, 1));
        axes[d] = (rui_roi_box){.single = h->single,
                                .first = first,
                                .bin = rui_roi_round(h->single, span / (double)h->pooled[d]),
                                .size = (double)h->size[d]};
    }
}

/* Elements [*from, *to) of a bin: those that it touches, of the image. */
static inline void rui_roi_bin(const rui_roi_box *a, int64_t bin, int64_t *from, int64_t *to)
{
    double low = a->first + floor(rui_roi_round(a->single, (double)bin * a->bin));
    double high = a->first + ceil(rui_roi_round(a->single, (double)(bin + 1) * a->bin));
    *from = (int64_t)(low < 0 ? 0 : fmin(low, a->size));
    *to = (int64_t)(high < 0 ? 0 : fmin(high, a->size));
}

/* Samples [*i0, *i1) of a bin: all, or of very many those that may lie inside and one before them
 * that does not. */
static inline void rui_roi_range(const rui_roi_axis *a, int64_t bin, int64_t *i0, int64_t *i1)
{
    enum { MANY = 4096 }; /* only without a ratio: samples are half an element apart, or more */
    *i0 = 0;
    *i1 = a->grid > 0 ? a->grid : 0;
    if (a->grid > MANY) {
        double n = (double)a->grid, apart = a->bin / n;
        double first = a->start + (double)bin * a->bin;
        double low = floor((-1.0 - first) / apart) - 2,
               high = ((double)a->size - first) / apart + 2;
        low = low < 0 ? 0 : low > n - 1 ? n - 1 : low;
        high = high < low + 1 ? low + 1 : high > n ? n : high;
        *i0 = (int64_t)low;
        *i1 = (int64_t)high;
    }
}

/* Sample i of a bin; false: outside, where it is 0. */
static inline bool rui_roi_tap_of(const rui_roi_axis *a, int64_t bin, int64_t i, rui_roi_tap *t)
{
    double before = rui_roi_round(a->single, (double)bin * a->bin);
    double within = rui_roi_round(a->single, ((double)i + 0.5) * a->bin);
    before = rui_roi_round(a->single, a->start + before);
    within = rui_roi_round(a->single, within / (double)a->grid);
    double x = rui_roi_round(a->single, before + within);
    if (x < -1.0 || x > (double)a->size) {
        return false;
    }
    x = x > 0 ? x : 0;
    int64_t low = (int64_t)x, last = a->size - 1;
    bool end = low >= last;
    double part = end ? 0.0 : x - (double)low;
    t->at[0] = end ? last : low;
    t->at[1] = end ? last : low + 1;
    t->weight[0] = 1.0 - part;
    t->weight[1] = part;
    return true;
}

#endif
