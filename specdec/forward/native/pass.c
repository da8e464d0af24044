/* One pass of a decoder stack over a few rows, in one call: specdec/forward/lean.py says the same in torch's operators.
 *
 * Threads split the outputs of a product and the heads of attention, and never a sum. So a row's logits are the same to
 * the last bit alone and beside others, and with any number of threads.
 */
#include <math.h>
#include <string.h>

#include "pool.h"
#include "products.h"

typedef struct {
    const float *weight, *bias; /* weight NULL: there is no such norm */
    double eps;
    int64_t centred; /* a LayerNorm; else an RMSNorm */
} Norm;

typedef struct {
    Norm attention_norm, query_norm, key_norm, mlp_norm;
    Matrix qkv, out, up, down;
    double scale;
    int64_t rotated; /* whether the position turns queries and keys */
    int64_t window; /* slots that a row sees, its own included; 0: all */
} Layer;

typedef struct {
    int64_t width, heads, kv_heads, size, rotary;   /* size of a head, and how much of it the position rotates */
    int64_t qkv_width, inner, up_width;             /* inner: between the matrices of the MLP; up_width: twice if gated */
    int64_t vocabulary;                             /* rows of the embedding */
    int64_t query_step, key_at, key_step, value_at; /* where a head's parts are in a row of qkv */
    int64_t slot_step, slot_value;                  /* and in a slot: the keys of a head, and its values after them */
    int64_t gated, activation, parallel;
    const float *embedding;
    Norm norm;
    Matrix head;
    const Layer *layers;
} Model;

/* One pass: ids (rows,) after start tokens. */
typedef struct {
    const int64_t *ids;
    int64_t rows, start, keep, layers, threads;
    float *logits;      /* (keep, outputs of the head) */
    float *const *taps; /* NULL; or for each layer, and for what comes after the last, NULL or room for its input */
} Pass;

/* What the passes of one text share. */
typedef struct {
    int64_t room;
    float *const *held;     /* (room, a slot) for each layer */
    const float *cos, *sin; /* (room, rotary) */
    float *scratch;
} Space;

typedef struct {
    const Model *model;
    const Pass *pass;
    const Space *space;
    float *hidden, *qkv, *attended, *up, *inner, *own; /* (rows, ...) but own, which each thread has */
    size_t each;                                       /* numbers of own for a thread */
} Job;

/* The numbers of scratch that a thread has for itself: rows between two products, and the scores of one row and head. */
static size_t own_of(const Model *m, int64_t rows, int64_t room) { return rows * m->width + room + 2 * LANES; }

/* The numbers of scratch that a pass over so many rows needs, after up to room tokens. */
size_t scratch_of(const Model *m, int64_t rows, int64_t room, int64_t threads) {
    const size_t shared = rows * (m->width + m->qkv_width + m->heads * m->size + 3 * m->inner);
    return shared + threads * own_of(m, rows, room);
}

static void norm(const Norm *n, const float *x, float *y, size_t size) {
    float mean = 0, square;
    size_t i = 0;
    if (n->centred) {
        Vector sums = {0};
        for (; i + LANES <= size; i += LANES) sums += load(x + i);
        mean = sum_of(sums);
        for (; i < size; i++) mean += x[i];
        mean /= size;
        for (i = 0; i < size; i++) y[i] = x[i] - mean;
        x = y;
    }
    square = dot(x, x, size) / size;
    float factor = 1.0f / sqrtf(square + (float)n->eps);
    if (n->centred && !(square < INFINITY)) factor = NAN; /* as torch has it: the variance is infinity less infinity */
    for (i = 0; i + LANES <= size; i += LANES) {
        Vector scaled = load(x + i) * factor * load(n->weight + i);
        if (n->bias) scaled += load(n->bias + i);
        store(y + i, scaled);
    }
    for (; i < size; i++) {
        const float scaled = x[i] * factor * n->weight[i];
        y[i] = n->bias ? scaled + n->bias[i] : scaled;
    }
}

static void norms(const Norm *n, const float *x, float *y, int64_t rows, size_t size) {
    for (int64_t r = 0; r < rows; r++) norm(n, x + r * size, y + r * size, size);
}

/* Rotate a head by its position. Half of the sines is negated. */
static void rotate(float *head, const float *cos, const float *sin, size_t rotary) {
    const size_t half = rotary / 2;
    size_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const Vector low = load(head + i), high = load(head + i + half);
        store(head + i, low * load(cos + i) + high * load(sin + i));
        store(head + i + half, high * load(cos + i + half) + low * load(sin + i + half));
    }
    for (; i < half; i++) {
        const float low = head[i], high = head[i + half];
        head[i] = low * cos[i] + high * sin[i];
        head[i + half] = high * cos[i + half] + low * sin[i + half];
    }
}

/* Attention of one row and head over count slots, which are step numbers apart. size is a constant where it can be. */
ALWAYS void attend(
    const float *q, const float *keys, const float *values, size_t count, size_t step, size_t size, float scale,
    float *scores, float *y
) {
    float most = -INFINITY;
    for (size_t j = 0; j < count; j += 4) { /* four keys at a time; past the end, the last one again */
        const float *key[4];
        for (size_t k = 0; k < 4; k++) key[k] = keys + (j + k < count ? j + k : count - 1) * step;
        Vector a = {0}, b = {0}, c = {0}, e = {0};
        size_t d = 0;
        for (; d + LANES <= size; d += LANES) {
            const Vector x = load(q + d);
            a = FMA(x, load(key[0] + d), a), b = FMA(x, load(key[1] + d), b);
            c = FMA(x, load(key[2] + d), c), e = FMA(x, load(key[3] + d), e);
        }
        Four sums = sums_of(a, b, c, e);
        for (; d < size; d++) sums += q[d] * (Four){key[0][d], key[1][d], key[2][d], key[3][d]};
        *(Four *)(scores + j) = scale * sums;
        for (int k = 0; k < 4; k++) most = scores[j + k] > most ? scores[j + k] : most;
    }
    const size_t whole = (count + LANES - 1) / LANES * LANES;
    for (size_t j = count; j < whole; j++) scores[j] = -INFINITY;
    Vector sums = {0};
    for (size_t j = 0; j < whole; j += LANES) {
        Vector x = load(scores + j), e = chosen(x == -INFINITY, (Vector){0}, exp_of(x - most));
        store(scores + j, e);
        sums += e;
    }
    const float share = 1.0f / sum_of(sums);
    size_t d = 0;
    for (; d + 4 * LANES <= size; d += 4 * LANES) {
        Vector a = {0}, b = {0}, c = {0}, e = {0};
        for (size_t j = 0; j < count; j++) {
            const float *v = values + j * step + d;
            const Vector s = all(scores[j]);
            a = FMA(s, load(v), a), b = FMA(s, load(v + LANES), b);
            c = FMA(s, load(v + 2 * LANES), c), e = FMA(s, load(v + 3 * LANES), e);
        }
        store(y + d, a * share), store(y + d + LANES, b * share);
        store(y + d + 2 * LANES, c * share), store(y + d + 3 * LANES, e * share);
    }
    for (; d + LANES <= size; d += LANES) {
        Vector a = {0};
        for (size_t j = 0; j < count; j++) a = FMA(all(scores[j]), load(values + j * step + d), a);
        store(y + d, a * share);
    }
    for (; d < size; d++) {
        float a = 0;
        for (size_t j = 0; j < count; j++) a += scores[j] * values[j * step + d];
        y[d] = a * share;
    }
}

/* The part of a thread: from .. to of total, in steps. */
static void part(size_t total, size_t step, int thread, int threads, size_t *from, size_t *to) {
    const size_t steps = (total + step - 1) / step, end = steps * (thread + 1) / threads * step;
    *from = steps * thread / threads * step;
    *to = end < total ? end : total;
}

/* Rotate the queries and the keys of some heads, and put the keys and values into their slots. */
static void place(const Job *job, const Layer *layer, float *held, size_t from, size_t to) {
    const Model *m = job->model;
    const Pass *p = job->pass;
    const size_t group = m->heads / m->kv_heads, slot = 2 * m->kv_heads * m->size, bytes = m->size * sizeof(float);
    for (int64_t r = 0; r < p->rows; r++) {
        float *row = job->qkv + r * m->qkv_width, *into = held + (p->start + r) * slot;
        const float *cos = job->space->cos + (p->start + r) * m->rotary;
        const float *sin = job->space->sin + (p->start + r) * m->rotary;
        for (size_t g = from; g < to; g++) {
            float *key = row + m->key_at + g * m->key_step;
            if (layer->key_norm.weight) norm(&layer->key_norm, key, key, m->size);
            if (layer->rotated) rotate(key, cos, sin, m->rotary);
            memcpy(into + g * m->slot_step, key, bytes);
            memcpy(into + g * m->slot_step + m->slot_value, row + m->value_at + g * m->key_step, bytes);
            for (size_t h = g * group; h < (g + 1) * group; h++) {
                float *query = row + h * m->query_step;
                if (layer->query_norm.weight) norm(&layer->query_norm, query, query, m->size);
                if (layer->rotated) rotate(query, cos, sin, m->rotary);
            }
        }
    }
}

/* Attention of some pairs of a head and a row; pairs of one head follow one another, because they read the same slots. */
static void look_back(const Job *job, const Layer *layer, const float *held, float *scores, size_t from, size_t to) {
    const Model *m = job->model;
    const Pass *p = job->pass;
    const size_t group = m->heads / m->kv_heads, slot = 2 * m->kv_heads * m->size;
    for (size_t pair = from; pair < to; pair++) {
        const size_t head = pair / p->rows, r = pair % p->rows, end = p->start + r + 1;
        const size_t first = layer->window && end > (size_t)layer->window ? end - layer->window : 0;
        const float *q = job->qkv + r * m->qkv_width + head * m->query_step;
        const float *keys = held + first * slot + head / group * m->slot_step, *values = keys + m->slot_value;
        float *y = job->attended + (r * m->heads + head) * m->size, scale = layer->scale;
        if (m->size == 32) attend(q, keys, values, end - first, slot, 32, scale, scores, y);
        else if (m->size == 64) attend(q, keys, values, end - first, slot, 64, scale, scores, y);
        else if (m->size == 128) attend(q, keys, values, end - first, slot, 128, scale, scores, y);
        else attend(q, keys, values, end - first, slot, m->size, scale, scores, y);
    }
}

ALWAYS void activate_by(const float *gate, const float *up, float *y, size_t size, int kind) {
    size_t i = 0;
    for (; i + LANES <= size; i += LANES) {
        const Vector a = activated(load(gate + i), kind);
        if (up) store(y + i, a * load(up + i));
        else store(y + i, a);
    }
    for (; i < size; i++) {
        const float a = activated(all(gate[i]), kind)[0];
        y[i] = up ? a * up[i] : a;
    }
}

/* y = activation(gate) * up, or activation(gate) alone where up is NULL. */
static void activate(const float *gate, const float *up, float *y, size_t size, int kind) {
    if (kind == SILU) activate_by(gate, up, y, size, SILU);
    else if (kind == GELU) activate_by(gate, up, y, size, GELU);
    else if (kind == GELU_TANH) activate_by(gate, up, y, size, GELU_TANH);
    else activate_by(gate, up, y, size, RELU);
}

/* The part of a thread in one layer. Each thread normalizes all rows for itself: that is faster than waiting. */
static void layer_part(const Job *job, const Layer *layer, float *held, float *x, int thread, int threads) {
    const Model *m = job->model;
    const int64_t rows = job->pass->rows, width = m->width, inner = m->inner;
    size_t from, to;

    norms(&layer->attention_norm, job->hidden, x, rows, width);
    part(m->qkv_width, OUTS, thread, threads, &from, &to);
    product(&layer->qkv, x, rows, job->qkv, m->qkv_width, from, to, 0);
    meet(threads);
    part(m->kv_heads, 1, thread, threads, &from, &to);
    place(job, layer, held, from, to);
    meet(threads);
    part(m->heads * rows, 1, thread, threads, &from, &to);
    look_back(job, layer, held, x + rows * width, from, to);
    if (m->parallel) norms(&layer->mlp_norm, job->hidden, x, rows, width); /* before the attention is added */
    meet(threads);
    part(width, OUTS, thread, threads, &from, &to);
    product(&layer->out, job->attended, rows, job->hidden, width, from, to, 1);
    meet(threads);
    if (!m->parallel) norms(&layer->mlp_norm, job->hidden, x, rows, width);
    part(inner, OUTS, thread, threads, &from, &to);
    product(&layer->up, x, rows, job->up, m->up_width, from, to, 0);
    if (m->gated) product(&layer->up, x, rows, job->up, m->up_width, inner + from, inner + to, 0);
    for (int64_t r = 0; r < rows; r++) {
        const float *gate = job->up + r * m->up_width + from;
        activate(gate, m->gated ? gate + inner : NULL, job->inner + r * inner + from, to - from, m->activation);
    }
    meet(threads);
    part(width, OUTS, thread, threads, &from, &to);
    product(&layer->down, job->inner, rows, job->hidden, width, from, to, 1);
    meet(threads);
}

static void pass_part(void *what, int thread, int threads) {
    const Job *job = what;
    const Model *m = job->model;
    const Pass *p = job->pass;
    const int64_t width = m->width, all_rows = p->rows;
    float *x = job->own + thread * job->each;
    size_t from, to;

    if (thread == 0)
        for (int64_t r = 0; r < all_rows; r++)
            memcpy(job->hidden + r * width, m->embedding + p->ids[r] * width, width * sizeof(float));
    meet(threads);
    for (int64_t l = 0; l <= p->layers; l++) {
        if (thread == 0 && p->taps && p->taps[l]) memcpy(p->taps[l], job->hidden, all_rows * width * sizeof(float));
        if (l < p->layers) layer_part(job, m->layers + l, job->space->held[l], x, thread, threads);
    }
    norms(&m->norm, job->hidden + (all_rows - p->keep) * width, x, p->keep, width);
    part(m->head.out, OUTS, thread, threads, &from, &to);
    product(&m->head, x, p->keep, p->logits, m->head.out, from, to, 0);
}

/* The logits of the last keep rows. Returns 1, with nothing done, for an id that the model does not have or too little room. */
int run(const Model *m, const Pass *p, const Space *space) {
    if (p->start + p->rows > space->room) return 1;
    for (int64_t r = 0; r < p->rows; r++)
        if (p->ids[r] < 0 || p->ids[r] >= m->vocabulary) return 1;
    Job job = {.model = m, .pass = p, .space = space};
    job.hidden = space->scratch;
    job.qkv = job.hidden + p->rows * m->width;
    job.attended = job.qkv + p->rows * m->qkv_width;
    job.up = job.attended + p->rows * m->heads * m->size;
    job.inner = job.up + p->rows * 2 * m->inner;
    job.own = job.inner + p->rows * m->inner;
    job.each = own_of(m, p->rows, space->room);
    together(pass_part, &job, (int)p->threads);
    return 0;
}

/* The place of the largest logit, the first of several; 0 where all are NaN. It is also put into *top. */
static int64_t best(const float *logits, size_t count, float *top) {
    float most = -INFINITY;
    Vector tops = all(most);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) tops = chosen(load(logits + i) > tops, load(logits + i), tops);
    for (int lane = 0; lane < LANES; lane++) most = tops[lane] > most ? tops[lane] : most;
    for (; i < count; i++) most = logits[i] > most ? logits[i] : most;
    *top = most;
    for (i = 0; i < count; i++)
        if (logits[i] == most) return i;
    return 0;
}

/* The probability of the largest logit, top. */
static double chance_of(const float *logits, size_t count, float top) {
    Vector sums = {0}, rest = all(-INFINITY);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) sums += exp_of(load(logits + i) - top);
    for (size_t lane = 0; i + lane < count; lane++) rest[lane] = logits[i + lane];
    if (i < count) sums += chosen(rest == -INFINITY, (Vector){0}, exp_of(rest - top));
    return 1.0 / sum_of(sums);
}

/* Where a draft ends early: specdec/runtime/stopping.py. */
enum { LONGEST = 16 };
typedef struct {
    double least_chance, slope, bias, farthest, least_survival[LONGEST];
} Stop;

/* The probability that a guess with this probability is accepted. */
static double accepted(const Stop *s, double chance) {
    double odds = chance >= 1.0 ? s->farthest : log(chance / (1.0 - chance));
    odds = odds > s->farthest ? s->farthest : odds < -s->farthest ? -s->farthest : odds;
    return 1.0 / (1.0 + exp(-(s->slope * odds + s->bias)));
}

/* A pass over ids, and one over each chosen token but the last: of the last row's largest logit, count times, or up to
 * where stop ends it. p->keep is p->rows, and p->logits has rows for all passes. Returns how many tokens it chose; 0, with
 * nothing of use, where run() returns 1. */
int64_t run_greedy(
    const Model *m, const Pass *p, const Space *space, int64_t count, int64_t *chosen_ids, const Stop *stop
) {
    Pass next = *p;
    double survival = 1.0;
    for (int64_t i = 0; i < count; i++) {
        float top;
        if (run(m, &next, space)) return 0;
        next.logits += next.rows * m->head.out;
        chosen_ids[i] = best(next.logits - m->head.out, m->head.out, &top);
        if (stop) {
            double chance = chance_of(next.logits - m->head.out, m->head.out, top);
            survival *= accepted(stop, chance);
            if (chance < stop->least_chance || (i < LONGEST && survival < stop->least_survival[i])) return i + 1;
        }
        next.start += next.rows;
        next.ids = chosen_ids + i;
        next.rows = next.keep = 1;
    }
    return count;
}
