/* Vectors of the machine, and what is computed with them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Compilers round a * b + c once or twice as they see fit, also in vectors. So it is said which. */
#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16, OUTS = 2, ROWS = 6 };
#define FMA(a, b, c) ((Vector)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#define WIDENED(p) ((Vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p)))))
#define PADDED(p) ((Vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define EACH_OTHER(a, b, first) ((Vector)_mm512_shuffle_ps((__m512)(a), (__m512)(b), (first) ? 0xdd : 0x88))
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
enum { LANES = 8, OUTS = 2, ROWS = 6 };
#define FMA(a, b, c) ((Vector)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#define WIDENED(p) ((Vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p)))))
#define PADDED(p) ((Vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define EACH_OTHER(a, b, first) ((Vector)_mm256_shuffle_ps((__m256)(a), (__m256)(b), (first) ? 0xdd : 0x88))
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
enum { LANES = 4, OUTS = 4, ROWS = 6 };
#define FMA(a, b, c) ((Vector)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))
#define EACH_OTHER(a, b, first) \
    ((Vector)((first) ? vuzp2q_f32((float32x4_t)(a), (float32x4_t)(b)) : vuzp1q_f32((float32x4_t)(a), (float32x4_t)(b))))
#else
enum { LANES = 4, OUTS = 2, ROWS = 6 };
#define FMA(a, b, c) ((a) * (b) + (c)) /* twice, by -ffp-contract=off */
#endif

#define VECTOR_OF(type) type __attribute__((vector_size(sizeof(type) * LANES), aligned(sizeof(type)), may_alias))
typedef VECTOR_OF(float) Vector;
typedef VECTOR_OF(int32_t) Ints;
typedef VECTOR_OF(int8_t) Bytes;
typedef VECTOR_OF(uint16_t) Halves;
typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
#ifndef WIDENED
#define WIDENED(p) __builtin_convertvector(__builtin_convertvector(*(const Bytes *)(p), Ints), Vector)
#define PADDED(p) ((Vector)(__builtin_convertvector(*(const Halves *)(p), Ints) << 16))
#endif
#ifndef EACH_OTHER
#define EACH_OTHER(a, b, first) ((Vector){(a)[first], (a)[2 + first], (b)[first], (b)[2 + first]})
#endif
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

ALWAYS Vector load(const float *p) { return *(const Vector *)p; }
ALWAYS void store(float *p, Vector v) { *(Vector *)p = v; }
ALWAYS Vector all(float a) { return a - (Vector){0}; }
ALWAYS Vector chosen(Ints where, Vector yes, Vector no) { return (Vector)((where & (Ints)yes) | (~where & (Ints)no)); }

/* Neighbours of a, and then of b, added in pairs; in each four lanes. */
ALWAYS Vector pairs_of(Vector a, Vector b) { return EACH_OTHER(a, b, 0) + EACH_OTHER(a, b, 1); }

/* The sums of four vectors. Each is added in the same order. */
ALWAYS Four sums_of(Vector a, Vector b, Vector c, Vector d) {
    const Vector parts = pairs_of(pairs_of(a, b), pairs_of(c, d));
    Four sums[LANES / 4];
    UNROLL
    for (int i = 0; i < LANES / 4; i++) sums[i] = ((const Four *)&parts)[i];
    UNROLL
    for (int width = LANES / 8; width; width /= 2) {
        UNROLL
        for (int i = 0; i < width; i++) sums[i] += sums[i + width];
    }
    return sums[0];
}

ALWAYS float sum_of(Vector v) { return sums_of(v, v, v, v)[0]; }

ALWAYS float dot(const float *a, const float *b, size_t size) {
    Vector sums = {0};
    size_t i = 0;
    for (; i + LANES <= size; i += LANES) sums = FMA(load(a + i), load(b + i), sums);
    float sum = sum_of(sums);
    for (; i < size; i++) sum += a[i] * b[i];
    return sum;
}

/* e to the power of x, with a relative error of about 1e-7; NaN stays NaN. Polynomial: Cephes, expf. */
ALWAYS Vector exp_of(Vector x) {
    const Vector most = all(88.0f), least = all(-87.0f), round = all(12582912.0f); /* 1.5 * 2^23 has no fraction bits */
    x = chosen(x > most, most, x);
    x = chosen(x < least, least, x);
    Vector whole = FMA(x, all(1.44269504088896341f), round);
    Ints power = (Ints)whole << 23; /* the last bits of the sum are the whole number */
    whole -= round;
    Vector r = FMA(whole, all(2.12194440e-4f), FMA(whole, all(-0.693359375f), x)), p = all(1.9875691500e-4f);
    p = FMA(p, r, all(1.3981999507e-3f));
    p = FMA(p, r, all(8.3334519073e-3f));
    p = FMA(p, r, all(4.1665795894e-2f));
    p = FMA(p, r, all(1.6666665459e-1f));
    p = FMA(p, r, all(5.0000001201e-1f));
    Vector found = FMA(r * r, p, r) + 1.0f;
    return chosen(x == x, (Vector)((Ints)found + power), x);
}

/* The activations of the MLPs, as transformers has them. */
enum { SILU, GELU, GELU_TANH, RELU };

ALWAYS Vector activated(Vector x, int kind) {
    if (kind == SILU) return x / (1.0f + exp_of(-x));
    if (kind == RELU) return chosen(x < 0.0f, (Vector){0}, x);
    if (kind == GELU_TANH) { /* x / 2 (1 + tanh(y)) is x / (1 + exp(-2 y)) */
        Vector y = 0.7978845608028654f * (x + 0.044715f * x * x * x);
        return x / (1.0f + exp_of(-2.0f * y));
    }
    /* The error function to 1.5e-7: Abramowitz and Stegun 7.1.26. */
    Vector z = 0.7071067811865476f * x, size = chosen(z < 0.0f, -z, z), t = 1.0f / (1.0f + 0.3275911f * size);
    Vector tail = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    Vector erf = 1.0f - tail * exp_of(-size * size);
    return 0.5f * x * (1.0f + chosen(z < 0.0f, -erf, erf));
}
