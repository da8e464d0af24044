/* y (rows, out) = x (rows, in) w (out, in)^T + bias (out,), all float32, for few rows.
 *
 * A product of few rows waits for memory: its time is that of reading w once. So a walk over w serves all rows of x.
 * A few rows of w are read side by side, and the sums of up to ROWS rows of x stay in registers. Each sum is added in the
 * same order whatever the number of rows is, so a row's result is the same to the last bit alone and beside others.
 */
#include <stddef.h>

/* Compilers round a * b + c once or twice as they see fit, also in vectors. So it is said which. */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16, OUTS = 4, ROWS = 6 };
#define FMA(a, b, c) ((Vector)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { LANES = 8, OUTS = 2, ROWS = 6 };
#define FMA(a, b, c) ((Vector)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
enum { LANES = 4, OUTS = 4, ROWS = 6 };
#define FMA(a, b, c) ((Vector)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#else
enum { LANES = 4, OUTS = 2, ROWS = 6 };
#define FMA(a, b, c) ((a) * (b) + (c)) /* twice, by -ffp-contract=off */
#endif
enum { SINGLE = 8 }; /* rows of w for a single row of x: many streams, which the processor reads ahead by itself */
enum { AHEAD = 2048 }; /* floats that are asked for before they are needed, in each row of w, for several rows of x */

typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

ALWAYS float sum_of(Vector v) {
    float lanes[LANES];
    *(Vector *)lanes = v;
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
    return lanes[0];
}

/* outs results of rows rows; both are constants where this is inlined. */
ALWAYS void tile(const float *x, size_t in, const float *w, const float *bias, float *y, size_t out, int rows, int outs) {
    Vector sums[SINGLE][ROWS];
    UNROLL
    for (int o = 0; o < outs; o++) {
        UNROLL
        for (int r = 0; r < rows; r++) sums[o][r] = (Vector){0};
    }
    size_t i = 0;
    for (; i + LANES <= in; i += LANES) {
        Vector ws[SINGLE];
        UNROLL
        for (int o = 0; o < outs; o++) {
            ws[o] = *(const Vector *)(w + o * in + i);
            if (rows > 1 && i % 16 == 0) __builtin_prefetch(w + o * in + i + AHEAD);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            Vector xs = *(const Vector *)(x + r * in + i);
            UNROLL
            for (int o = 0; o < outs; o++) sums[o][r] = FMA(ws[o], xs, sums[o][r]);
        }
    }
    UNROLL
    for (int o = 0; o < outs; o++) {
        UNROLL
        for (int r = 0; r < rows; r++) {
            float sum = sum_of(sums[o][r]);
            for (size_t k = i; k < in; k++) sum += w[o * in + k] * x[r * in + k];
            y[r * out + o] = bias ? sum + bias[o] : sum;
        }
    }
}

#define CASE(rows) case rows: tile(x, in, w, bias, y, out, rows, outs); break;
ALWAYS void group(const float *x, size_t in, const float *w, const float *bias, float *y, size_t out, int rows, int outs) {
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
    }
}

void linear(const float *x, int rows, const float *w, const float *bias, float *y, size_t out, size_t in) {
    const size_t outs = rows > 1 ? OUTS : SINGLE;
    const int groups = (rows + ROWS - 1) / ROWS; /* of nearly the same size */
    for (size_t o = 0; o < out;) {
        const size_t left = out - o, step = left < outs ? 1 : outs;
        for (int g = 0; g < groups; g++) {
            int first = rows * g / groups, count = rows * (g + 1) / groups - first;
            const float *from = x + first * in, *weights = w + o * in, *added = bias ? bias + o : 0;
            float *to = y + first * out + o;
            if (step == SINGLE) tile(from, in, weights, added, to, out, 1, SINGLE);
            else if (step == OUTS) group(from, in, weights, added, to, out, count, OUTS);
            else group(from, in, weights, added, to, out, count, 1);
        }
        o += step;
    }
}
