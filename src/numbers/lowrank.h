/* Low rank: adds the product of two thin matrices to a large one, in float64.
 *
 * Called by the merge of LoRA adapters: W + s * B A, where B has `rank` columns and A `rank` rows.
 */
#ifndef NUMBERS_LOWRANK_H
#define NUMBERS_LOWRANK_H

#include <stddef.h>

/* Computes to[i][j] += scale * sum over k of left[i][k] * right[k][j], for `rows` x `columns`
 * values. All matrices are dense and in row order; `left` has `rank` columns. The sum over k is
 * complete before it is scaled and added. */
void lowrank_add(double *to, size_t rows, size_t columns, const double *left, const double *right,
                 size_t rank, double scale);

#endif
