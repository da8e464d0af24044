/* y (rows, out) = x (rows, in) w (out, in)^T + bias (out,), computed in float32, for few rows. The matrix w is float32; or
 * the upper halves of such numbers, whose lower halves are zero; or small whole numbers and a factor for each of its rows.
 *
 * A product of few rows waits for memory: its time is that of reading w once. So a walk over w serves all rows of x.
 * A few rows of w are read side by side, and the sums of up to ROWS rows of x stay in registers. Each sum is added in one
 * order, whatever the number of rows is, so a row's result is the same to the last bit alone and beside others.
 */
#pragma once
#include "vectors.h"

typedef struct {
    const float *w, *bias; /* bias: NULL for none */
    const uint16_t *half;  /* (out, in) in place of w: bfloat16 numbers; or NULL */
    const int8_t *small;   /* (out, in) in place of w, times factors (out,); or NULL */
    const float *factors;
    int64_t out, in;
} Matrix;

enum { AHEAD = 16384, LINE = 64 }; /* bytes: how long before they are needed numbers are asked for, and how many at once */

enum { WHOLE, HALF, SMALL }; /* how the numbers of a matrix are kept */

ALWAYS float number(const Matrix *m, size_t at, int kept) {
    if (kept == SMALL) return m->small[at];
    if (kept == WHOLE) return m->w[at];
    const union { uint32_t bits; float value; } padded = {(uint32_t)m->half[at] << 16};
    return padded.value;
}

ALWAYS Vector numbers(const Matrix *m, size_t at, int kept) {
    return kept == SMALL ? WIDENED(m->small + at) : kept == HALF ? PADDED(m->half + at) : load(m->w + at);
}

/* sum plus the products of the last numbers of a row, which fill no vector. Never inlined: that doubles the compiler's
 * time. */
__attribute__((noinline)) static float with_rest(float sum, const Matrix *m, const float *x, size_t at, size_t from) {
    const int kept = m->small ? SMALL : m->half ? HALF : WHOLE;
    for (size_t i = from; i < (size_t)m->in; i++) sum += number(m, at + i, kept) * x[i];
    return sum;
}

/* Ask for numbers of a row of w that are needed later, into the second cache: the first has few requests at a time. */
ALWAYS void ask_for(const Matrix *m, size_t row, size_t i, int kept) {
    const size_t size = kept == SMALL ? sizeof *m->small : kept == HALF ? sizeof *m->half : sizeof *m->w;
    const char *from = kept == SMALL ? (const char *)m->small : kept == HALF ? (const char *)m->half : (const char *)m->w;
    if (i * size % LINE == 0) __builtin_prefetch(from + (row + i) * size + AHEAD, 0, 2);
}

/* outs results of rows rows, from output o on; rows, outs and kept are constants where this is inlined. */
ALWAYS void tile(
    const Matrix *m, const float *x, float *y, size_t wide, size_t o, int rows, int outs, int add, int kept
) {
    const int count = outs * rows;
    Vector sums[OUTS * ROWS];
    UNROLL
    for (int s = 0; s < count; s++) sums[s] = (Vector){0};
    const size_t in = m->in, at = o * in;
    size_t i = 0;
    for (; i + LANES <= in; i += LANES) {
        Vector ws[OUTS];
        UNROLL
        for (int a = 0; a < outs; a++) {
            ws[a] = numbers(m, at + a * in + i, kept);
            ask_for(m, at + a * in, i, kept);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const Vector xs = load(x + r * in + i);
            UNROLL
            for (int a = 0; a < outs; a++) sums[r * outs + a] = FMA(ws[a], xs, sums[r * outs + a]);
        }
    }
    float found[OUTS * ROWS + 3];
    UNROLL
    for (int s = 0; s < count; s += 4) {
        const int last = count - 1, b = s + 1 < last ? s + 1 : last, c = s + 2 < last ? s + 2 : last;
        *(Four *)(found + s) = sums_of(sums[s], sums[b], sums[c], sums[s + 3 < last ? s + 3 : last]);
    }
    if (i < in)
        for (int s = 0; s < count; s++) found[s] = with_rest(found[s], m, x + s / outs * in, at + s % outs * in, i);
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int a = 0; a < outs; a++) {
            float sum = found[r * outs + a], *result = y + r * wide + o + a;
            if (kept == SMALL) sum *= m->factors[o + a];
            if (m->bias) sum += m->bias[o + a];
            *result = add ? *result + sum : sum;
        }
    }
}

#define CASE(rows) case rows: tile(m, x, y, wide, o, rows, OUTS, add, kept); break;
ALWAYS void group(const Matrix *m, const float *x, float *y, size_t wide, size_t o, int rows, int add, int kept) {
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
    }
}

ALWAYS void product_of(
    const Matrix *m, const float *x, int rows, float *y, size_t wide, size_t from, size_t to, int add, int kept
) {
    const int groups = (rows + ROWS - 1) / ROWS; /* of nearly the same size */
    size_t o = from;
    for (; o + OUTS <= to; o += OUTS)
        for (int g = 0; g < groups; g++) {
            const int first = rows * g / groups, count = rows * (g + 1) / groups - first;
            group(m, x + first * m->in, y + first * wide, wide, o, count, add, kept);
        }
    for (; o < to; o++)
        for (int r = 0; r < rows; r++) tile(m, x + r * m->in, y + r * wide, wide, o, 1, 1, add, kept);
}

/* The outputs from .. to of rows of x, into rows of y that are wide numbers apart; add: onto what is there. */
static void product(const Matrix *m, const float *x, int rows, float *y, size_t wide, size_t from, size_t to, int add) {
    if (m->small) product_of(m, x, rows, y, wide, from, to, add, SMALL);
    else if (m->half) product_of(m, x, rows, y, wide, from, to, add, HALF);
    else product_of(m, x, rows, y, wide, from, to, add, WHOLE);
}
