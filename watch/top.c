#include "watch/top.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/unit.h"

enum { HEAD_ROWS = 3, QUIET_S = 3, BAR = 20 };

/* One line, cut at the edge. */
static void put_line(ru_text *out, uint32_t columns, uint32_t *rows, const char *line)
{
    if (*rows == 0) {
        return;
    }
    --*rows;
    ru_text_putf(out, "%.*s\n", (int)columns, line);
}

/* Text of any length, broken at blanks. */
static void put_wrapped(ru_text *out, uint32_t columns, uint32_t *rows, const char *text)
{
    for (size_t left = strlen(text); left > 0 && *rows > 0;) {
        size_t n = left <= columns ? left : columns;
        while (n < left && n > 1 && text[n] != ' ') {
            n--;
        }
        n = n == 1 && left > columns ? columns : n; /* a word longer than the line */
        --*rows;
        ru_text_putf(out, "%.*s\n", (int)n, text);
        text += n;
        left -= n;
        while (*text == ' ') {
            text++;
            left--;
        }
    }
}

static void put_round(const ru_top_round *r, uint32_t columns, uint32_t *rows, ru_text *out)
{
    char buf[256];
    ru_text line = ru_text_into(buf, sizeof buf);
    if (r->asked > 0) {
        ru_text_putf(&line, "last round: %lld of %lld clients in time", (long long)r->answers,
                     (long long)r->asked);
        if (r->late > 0) {
            ru_text_putf(&line, ", %lld late", (long long)r->late);
        }
        if (r->lost > 0) {
            ru_text_putf(&line, ", %lld lost", (long long)r->lost);
        }
        if (r->here > 0) {
            ru_text_putf(&line, ", %lld are here", (long long)r->here);
        }
        if (r->resting > 0) {
            ru_text_putf(&line, ", %lld out of hours", (long long)r->resting);
        }
        if (r->epsilon > 0) {
            ru_text_putf(&line, ", epsilon %.4g", r->epsilon);
        }
        put_line(out, columns, rows, line.p);
    } else if (r->resting > 0) {
        ru_text_putf(&line, "no round yet: %lld clients are here, %lld out of hours",
                     (long long)r->here, (long long)r->resting);
        put_line(out, columns, rows, line.p);
    }
}

static void put_head(const ru_top *t, uint32_t columns, uint32_t *rows, ru_text *out)
{
    char buf[256];
    ru_text line = ru_text_into(buf, sizeof buf);
    ru_text_putf(&line, "%s  step %lld", t->name, (long long)t->step);
    if (t->steps > 0) {
        ru_text_putf(&line, " of %lld (%.0f %%)", (long long)t->steps,
                     100.0 * (double)t->step / (double)t->steps);
    }
    uint32_t gone = 0;
    for (uint32_t k = 0; k < t->n; k++) {
        gone += t->ranks[k].gone != NULL;
    }
    ru_text_put(&line, "  ");
    if (gone > 0) {
        ru_text_putf(&line, "%u of ", t->n - gone);
    }
    ru_text_putf(&line, "%u rank%s", t->n, t->n == 1 ? "" : "s");
    if (t->ended != NULL) {
        ru_text_putf(&line, "  %s", t->ended);
    } else if (t->left_s >= 0) {
        ru_text_put(&line, "  ends in ");
        ru_text_time_short(&line, (int64_t)(fmin(t->left_s, 1e9) * 1e9)); /* 32 years */
    }
    put_line(out, columns, rows, line.p);
    line = ru_text_into(buf, sizeof buf);
    ru_text_putf(&line, "loss %.4g  ", t->loss);
    ru_text_count_short(&line, t->samples_per_s);
    ru_text_put(&line, " samples/s");
    if (t->noise > 0 && columns >= 80) {
        ru_text_put(&line, "  noise scale ");
        ru_text_count_short(&line, t->noise);
    }
    if (t->steps > 0 && columns >= 60) {
        double full = BAR * (double)t->step / (double)t->steps;
        ru_text_put(&line, "  [");
        for (uint32_t i = 0; i < BAR; i++) {
            ru_text_put(&line, i + 0.5 <= full ? "#" : ".");
        }
        ru_text_put(&line, "]");
    }
    put_line(out, columns, rows, line.p);
    put_round(&t->round, columns, rows, out);
    line = ru_text_into(buf, sizeof buf);
    if (t->follow.told) {
        ru_text_putf(&line, "queue: %lld of %lld samples, ", (long long)t->follow.queue,
                     (long long)t->follow.arrived);
        if (t->follow.workers > 0) {
            ru_text_putf(&line, "%lld workers", (long long)t->follow.workers);
        } else {
            ru_text_put(&line, "waits for samples");
        }
        put_line(out, columns, rows, line.p);
    }
}

static void put_functions(const ru_top_functions *f, uint32_t columns, uint32_t *rows, ru_text *out)
{
    char buf[256];
    ru_text line = ru_text_into(buf, sizeof buf);
    if (f->workers == 0) {
        return;
    }
    ru_text_putf(&line, "%s %lld function%s of %lld MB, %.3g USD spent in %lld calls",
                 f->measures ? "measures" : "runs", (long long)f->workers,
                 f->workers == 1 ? "" : "s", (long long)f->memory_mb, f->usd, (long long)f->calls);
    if (f->given_up > 0) {
        ru_text_putf(&line, ", %lld epochs given up", (long long)f->given_up);
    }
    put_line(out, columns, rows, line.p);
}

static void put_rate(ru_text *line, double bytes_per_s)
{
    char buf[32] = "-";
    if (bytes_per_s >= 1) {
        ru_text t = ru_text_into(buf, sizeof buf);
        ru_text_size_short(&t, (int64_t)fmin(bytes_per_s, 1e18));
    }
    ru_text_putf(line, " %9s", buf);
}

static void put_rank(const ru_top_rank *r, int64_t lead, uint32_t columns, uint32_t *rows,
                     ru_text *out)
{
    char buf[256], lag[24] = "";
    ru_text line = ru_text_into(buf, sizeof buf);
    if (lead > r->step) {
        snprintf(lag, sizeof lag, "-%lld", (long long)(lead - r->step));
    }
    ru_text_putf(&line, "%4u %8lld %5s", r->rank, (long long)r->step, lag);
    if (r->gone != NULL) {
        ru_text_putf(&line, "  %s %.0f s ago", r->gone, r->quiet_s);
    } else if (r->quiet_s >= QUIET_S) {
        ru_text_putf(&line, "  silent for %.0f s", r->quiet_s);
    } else {
        ru_text_putf(&line, " %7.1f", r->steps_per_s);
        for (uint32_t p = 0; p < RU_STEP_PARTS; p++) {
            ru_text_putf(&line, " %4.0f%%", 100 * r->part[p]);
        }
        put_rate(&line, r->sent_per_s[1] + r->sent_per_s[2]);
        put_rate(&line, r->sent_per_s[3]);
    }
    put_line(out, columns, rows, line.p);
}

void ru_top_draw(const ru_top *t, uint32_t rows, uint32_t columns, ru_text *out)
{
    RU_CHECK(rows >= 8 && columns >= 40);
    int64_t lead = 0;
    for (uint32_t k = 0; k < t->n; k++) {
        lead = t->ranks[k].step > lead ? t->ranks[k].step : lead;
    }
    put_head(t, columns, &rows, out);
    put_functions(&t->functions, columns, &rows, out);
    put_line(out, columns, &rows,
             "rank     step   lag  step/s  comp   net  peer input other    sums/s  copies/s");
    uint32_t below = 2 * t->n_causes + (t->n_events < 4 ? t->n_events : 4);
    below = below < rows / 2 ? below : rows / 2;
    uint32_t fit = rows - below, shown = t->n <= fit ? t->n : fit - 1;
    for (uint32_t k = 0; k < shown; k++) {
        put_rank(&t->ranks[k], lead, columns, &rows, out);
    }
    if (shown < t->n) {
        char buf[64];
        snprintf(buf, sizeof buf, "... and %u more; a taller terminal shows them", t->n - shown);
        put_line(out, columns, &rows, buf);
    }
    for (uint32_t i = 0; i < t->n_causes && rows > 0; i++) {
        put_wrapped(out, columns, &rows, t->causes[i]);
    }
    uint32_t last = t->n_events < rows ? t->n_events : rows;
    for (uint32_t i = t->n_events - last; i < t->n_events; i++) {
        put_line(out, columns, &rows, t->events[i]);
    }
}
