/* Rows of a benchmark: kept, shown as they come, printed as one JSON object. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "env/process/self.h"
#include "exec/pool.h"

bool ru_bench_wants(const ru_bench *b, const char *name)
{
    return strstr(name, b->only) != NULL;
}

double ru_bench_ratio(const ru_bench_row *row)
{
    if (row->ours.n == 0 || row->theirs.n == 0 || row->ours.median <= 0 ||
        row->theirs.median <= 0) {
        return 0;
    }
    double r = row->ours.median / row->theirs.median;
    return row->lower ? 1 / r : r;
}

/* Four significant digits without an exponent. */
static const char *figure(double x, char *into, size_t size)
{
    int digits = x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : 3;
    snprintf(into, size, "%.*f", digits, x);
    return into;
}

static bool goal_met(const ru_bench_row *row)
{
    double ratio = ru_bench_ratio(row);
    if (row->peer != NULL) {
        return ratio >= row->goal;
    }
    return row->lower ? row->ours.median <= row->goal : row->ours.median >= row->goal;
}

static void show(const ru_bench_row *row)
{
    char a[32], lo[32], hi[32], c[32];
    fprintf(stderr, "%-38s %9s %-12s [%s .. %s]", row->name, figure(row->ours.median, a, sizeof a),
            row->unit, figure(row->ours.min, lo, sizeof lo), figure(row->ours.max, hi, sizeof hi));
    if (row->theirs.n > 0) {
        fprintf(stderr, "  %9s [%s .. %s]  ratio %.2f", figure(row->theirs.median, c, sizeof c),
                figure(row->theirs.min, lo, sizeof lo), figure(row->theirs.max, hi, sizeof hi),
                ru_bench_ratio(row));
    }
    bool judged = row->goal > 0 && (row->peer == NULL || row->theirs.n > 0);
    if (judged) {
        fprintf(stderr, "  goal %.3g %s", row->goal, goal_met(row) ? "met" : "MISSED");
    }
    if (row->peer != NULL) {
        fprintf(stderr, "  %s", row->peer);
    }
    if (row->missing != NULL) {
        fprintf(stderr, " (not measured: %s)", row->missing);
    }
    fputc('\n', stderr);
}

ru_status ru_bench_add(ru_bench *b, const ru_bench_row *row, ru_err *err)
{
    if (b->n == b->cap) {
        uint32_t cap = b->cap == 0 ? 64 : b->cap * 2;
        ru_bench_row *rows = RU_NEW(b->arena, ru_bench_row, cap);
        if (rows == NULL) {
            return RU_FAIL(err, RU_E_LIMIT, "the arena for benchmark rows is full");
        }
        if (b->n > 0) {
            memcpy(rows, b->rows, b->n * sizeof *rows);
        }
        b->rows = rows;
        b->cap = cap;
    }
    b->rows[b->n++] = *row;
    show(row);
    return RU_OK;
}

static void json_text(const char *s)
{
    putchar('"');
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            printf("\\%c", c);
        } else if (c < 0x20) {
            printf("\\u%04x", c);
        } else {
            putchar(c);
        }
    }
    putchar('"');
}

static void json_row(const ru_bench_row *r, bool comma)
{
    printf("%s{\"case\":", comma ? "," : "");
    json_text(r->name);
    printf(",\"unit\":\"%s\",\"better\":\"%s\",\"ours\":%.9g,\"ours_min\":%.9g,\"ours_max\":%.9g",
           r->unit, r->lower ? "lower" : "higher", r->ours.median, r->ours.min, r->ours.max);
    printf(",\"peer\":");
    json_text(r->peer != NULL ? r->peer : "");
    if (r->theirs.n > 0) {
        printf(",\"theirs\":%.9g,\"theirs_min\":%.9g,\"theirs_max\":%.9g,\"ratio\":%.6g",
               r->theirs.median, r->theirs.min, r->theirs.max, ru_bench_ratio(r));
    } else {
        printf(",\"theirs\":null,\"ratio\":null");
    }
    if (r->missing != NULL) {
        printf(",\"missing\":");
        json_text(r->missing);
    }
    printf(",\"goal\":%.6g,\"runs\":%u}", r->goal, r->ours.n);
}

void ru_bench_json(const ru_bench *b, const char *name)
{
    char host[128], cpu[128];
    ru_self_host(host, sizeof host);
    ru_self_cpu(cpu, sizeof cpu);
    printf("{\"schema\":\"rubato.bench/1\",\"name\":\"%s\",\"machine\":{\"cpu\":", name);
    json_text(cpu);
    printf(",\"cores\":%u,\"memory_bytes\":%lld},\"rows\":[", ru_pool_cores(),
           (long long)ru_self_memory_bytes());
    for (uint32_t k = 0; k < b->n; k++) {
        json_row(&b->rows[k], k > 0);
    }
    printf("]}\n");
}

void ru_bench_summary(const ru_bench *b)
{
    double sum = 0;
    uint32_t n = 0, met = 0, judged = 0;
    for (uint32_t k = 0; k < b->n; k++) {
        const ru_bench_row *r = &b->rows[k];
        double ratio = ru_bench_ratio(r);
        if (ratio > 0 && strncmp(r->peer, "torch eager", 11) == 0 && !r->lower) {
            sum += log(ratio);
            n++;
        }
        if (r->goal > 0 && (r->peer == NULL || ratio > 0)) {
            judged++;
            met += goal_met(r) ? 1 : 0;
        }
    }
    if (n > 0) {
        fprintf(stderr, "geometric mean over torch eager: %.2f of %u rows\n", exp(sum / n), n);
    }
    if (judged > 0) {
        fprintf(stderr, "%u of %u goals met\n", met, judged);
    }
}
