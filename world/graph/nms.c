#include "world/graph/nms.h"

#include <stddef.h>

typedef struct box {
    float y1, x1, y2, x2;
} box;

static void order(float *a, float *b)
{
    float x = *a;
    if (x > *b) {
        *a = *b;
        *b = x;
    }
}

static box box_of(const ru_nms_in *in, int64_t batch, int64_t k)
{
    const float *b = in->boxes + (batch * in->n_boxes + k) * 4;
    box r = {b[0], b[1], b[2], b[3]};
    if (in->centre) {
        r = (box){b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
    }
    order(&r.y1, &r.y2); /* any two opposite corners may be given */
    order(&r.x1, &r.x2);
    return r;
}

static bool overlap(const box *a, const box *b, float most)
{
    float y = (a->y2 < b->y2 ? a->y2 : b->y2) - (a->y1 > b->y1 ? a->y1 : b->y1);
    float x = (a->x2 < b->x2 ? a->x2 : b->x2) - (a->x1 > b->x1 ? a->x1 : b->x1);
    if (y <= 0 || x <= 0) {
        return false;
    }
    float both = y * x, all = (a->y2 - a->y1) * (a->x2 - a->x1);
    all += (b->y2 - b->y1) * (b->x2 - b->x1) - both;
    return all > 0 && both > most * all;
}

/* Is box i before box j? Higher scores first, then the earlier one. */
static bool before(const float *score, int64_t i, int64_t j)
{
    return score[i] > score[j] || (!(score[i] < score[j]) && i < j);
}

/* Heap of box numbers, best on top. */
static void sink(const float *score, int64_t *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        child += child + 1 < n && before(score, heap[child + 1], heap[child]) ? 1 : 0;
        if (!before(score, heap[child], heap[at])) {
            return;
        }
        int64_t x = heap[at];
        heap[at] = heap[child];
        heap[child] = x;
    }
}

/* One class of one batch; `kept` takes the numbers of its boxes, *n counts them. */
static void select_class(const ru_nms_in *in, int64_t batch, int64_t class, int64_t *heap,
                         box *chosen, int64_t *kept, int64_t *n)
{
    const float *score = in->scores + (batch * in->n_classes + class) * in->n_boxes;
    int64_t left = 0;
    for (int64_t k = 0; k < in->n_boxes; k++) {
        if (in->score_min == NULL || score[k] > *in->score_min) {
            heap[left++] = k;
        }
    }
    for (int64_t k = left / 2; k-- > 0;) {
        sink(score, heap, left, k);
    }
    *n = 0;
    while (left > 0 && *n < in->per_class_max) {
        int64_t best = heap[0];
        heap[0] = heap[--left];
        sink(score, heap, left, 0);
        box b = box_of(in, batch, best);
        bool dropped = false;
        for (int64_t k = 0; k < *n && !dropped; k++) {
            dropped = overlap(&b, &chosen[k], in->iou_max);
        }
        if (!dropped) {
            chosen[*n] = b;
            kept[(*n)++] = best;
        }
    }
}

ru_status ru_nms_select(const ru_nms_in *in, ru_arena *arena, int64_t **out, int64_t *n,
                        ru_err *err)
{
    int64_t most = in->per_class_max < in->n_boxes ? in->per_class_max : in->n_boxes, count = 0;
    most = most > 0 ? most : 0;
    int64_t *heap = RU_NEW(arena, int64_t, in->n_boxes), *kept = RU_NEW(arena, int64_t, most);
    box *chosen = RU_NEW(arena, box, most);
    int64_t *list = RU_NEW(arena, int64_t, in->n_batch * in->n_classes * most * 3);
    if (heap == NULL || kept == NULL || chosen == NULL || list == NULL) {
        return RU_FAIL(err, RU_E_LIMIT, "the arena is full");
    }
    for (int64_t b = 0; b < in->n_batch; b++) {
        for (int64_t c = 0; c < in->n_classes; c++) {
            int64_t found = 0;
            select_class(in, b, c, heap, chosen, kept, &found);
            for (int64_t k = 0; k < found; k++) {
                int64_t *row = list + 3 * count++;
                row[0] = b;
                row[1] = c;
                row[2] = kept[k];
            }
        }
    }
    *out = list;
    *n = count;
    return RU_OK;
}

static bool is_f32(const ru_type *t, uint32_t rank)
{
    return t != NULL && t->dtype == RU_F32 && t->rank == rank && ru_type_is_concrete(t);
}

bool ru_nms_arguments(const ru_node *n, const ru_type *const type[5], const void *const data[5],
                      ru_nms_in *out)
{
    const ru_type *b = type[0], *s = type[1];
    if (!is_f32(b, 3) || !is_f32(s, 3) || b->dims[2] != 4 || b->dims[0] != s->dims[0] ||
        b->dims[1] != s->dims[2]) {
        return false;
    }
    for (uint32_t k = 2; k < 5; k++) {
        if (type[k] != NULL && (type[k]->dtype != (k == 2 ? RU_I64 : RU_F32) ||
                                ru_type_count(type[k]) != 1 || data[k] == NULL)) {
            return false;
        }
    }
    *out = (ru_nms_in){.boxes = data[0],
                       .scores = data[1],
                       .n_batch = s->dims[0],
                       .n_classes = s->dims[1],
                       .n_boxes = s->dims[2],
                       .per_class_max = type[2] != NULL ? *(const int64_t *)data[2] : 0,
                       .iou_max = type[3] != NULL ? *(const float *)data[3] : 0,
                       .score_min = type[4] != NULL ? data[4] : NULL,
                       .centre = ru_node_int(n, RU_ATTR_center_point_box, 0) != 0};
    return out->boxes != NULL && out->scores != NULL;
}
