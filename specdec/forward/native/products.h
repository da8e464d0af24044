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

enum { SINGLE = 8 }; /* rows of w for a single row of x: many streams, which the processor reads ahead by itself */
enum { AHEAD = 2048 }; /* floats that are asked for before they are needed, in each row of w, for several rows of x */

ALWAYS void put(const Matrix *m, float sum, float *y, size_t o, int add) {
    if (m->small) sum *= m->factors[o];
    if (m->bias) sum += m->bias[o];
    y[o] = add ? y[o] + sum : sum;
}

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

/* outs results of rows rows, from output o on; rows, outs and kept are constants where this is inlined. */
ALWAYS void tile(
    const Matrix *m, const float *x, float *y, size_t wide, size_t o, int rows, int outs, int add, int kept
) {
    Vector sums[OUTS * ROWS];
    UNROLL
    for (int s = 0; s < outs * rows; s++) sums[s] = (Vector){0};
    const size_t in = m->in, at = o * in;
    size_t i = 0;
    for (; i + LANES <= in; i += LANES) {
        Vector ws[SINGLE];
        UNROLL
        for (int a = 0; a < outs; a++) {
            ws[a] = numbers(m, at + a * in + i, kept);
            if (rows > 1 && kept == WHOLE && i % 16 == 0) __builtin_prefetch(m->w + at + a * in + i + AHEAD);
            if (rows > 1 && kept == HALF && i % 32 == 0) __builtin_prefetch(m->half + at + a * in + i + AHEAD);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const Vector xs = load(x + r * in + i);
            UNROLL
            for (int a = 0; a < outs; a++) sums[a * rows + r] = FMA(ws[a], xs, sums[a * rows + r]);
        }
    }
    UNROLL
    for (int a = 0; a < outs; a++) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            float sum = sum_of(sums[a * rows + r]);
            for (size_t k = i; k < in; k++) sum += number(m, at + a * in + k, kept) * x[r * in + k];
            put(m, sum, y + r * wide, o + a, add);
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
    if (rows == 1)
        for (; o + SINGLE <= to; o += SINGLE) tile(m, x, y, wide, o, 1, SINGLE, add, kept);
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
