#ifndef ESPALIER_OPS_DELTA_RULE_INTERNAL_ROWS_H_
#define ESPALIER_OPS_DELTA_RULE_INTERNAL_ROWS_H_

#include <cstdint>

#include "espalier/runtime/cpu_features.h"
#include "espalier/runtime/dtype.h"

// What a chunk needs beside matrix products. Scratch is f32; `width` is K and
// `padded` K rounded up to 16, likewise v_width and v_padded; columns beyond
// width are zeros in scratch and are not read or written elsewhere. C is the
// chunk; rows from num_rows on stand for no token.
namespace espalier::delta_rule {

// Rows of one head of a [T, heads, width] tensor, from the chunk's first token.
struct Source {
  const void* data = nullptr;
  DType dtype = kF32;
  int64_t stride = 0;  // elements between tokens
};
struct Target {
  void* data = nullptr;
  DType dtype = kF32;
  int64_t stride = 0;
};

// Queries, keys and decays of a chunk, plain and decayed. Rows of no token have
// no decay and are zeros.
struct LoadArgs {
  Source q, k;
  Source g;                // f32
  bool head_gate = false;  // one g a row
  int64_t num_rows = 0;
  int64_t chunk = 0;
  int64_t width = 0, padded = 0;
  // As in Plan.
  float *queries = nullptr, *keys = nullptr, *decays = nullptr,
        *columns = nullptr, *tile_decay = nullptr, *prefix = nullptr;
  DType operand = kF32;  // of the two:
  void *rows = nullptr, *from_start = nullptr;
};
void Load(const LoadArgs& args, Isa isa);

// out [C, padded] = scale * rows, zeros beyond num_rows.
struct CopyInArgs {
  Source from;
  int64_t num_rows = 0, chunk = 0, width = 0, padded = 0;
  float scale = 1;
  float* out = nullptr;
};
void CopyIn(const CopyInArgs& args, Isa isa);

// out = scale * rows [num_rows, padded]; with `add`, plus the rows of that.
struct CopyOutArgs {
  const float* from = nullptr;
  int64_t num_rows = 0, width = 0, padded = 0;
  float scale = 1;
  Source add = {};  // f32, may be absent
  Target out;
};
void CopyOut(const CopyOutArgs& args, Isa isa);

// Every row of [num_rows, padded] times `factors` [padded].
void ScaleColumns(float* rows, int64_t num_rows, int64_t padded,
                  const float* factors, Isa isa);
// Row i of [num_rows, padded] times factors[i], from one place to another.
void ScaleRows(const float* from, int64_t num_rows, int64_t padded,
               const float* factors, float* to, Isa isa);

// The pairs inside the tile of 16 rows at `row`, the others of its 16 x 16
// square being 0: M_ij = sum_d k_id k_jd e_ij,d for i > j, N_ij with q_i for
// i >= j, e_ij the product of the decays of rows j + 1 to i.
struct PairsArgs {
  const float *queries = nullptr, *keys = nullptr, *decays = nullptr;
  int64_t row = 0, chunk = 0, padded = 0;
  float *key_scores = nullptr, *query_scores = nullptr;  // [C, C] M, N
};
void Pairs(const PairsArgs& args, Isa isa);

// inverse [C, C] = (I + diag(beta) M)^-1, zeros above the diagonal within every
// 16 x 16 square on it; the squares above those are not written.
void Invert(const float* key_scores, const float* beta, int64_t chunk,
            float* inverse, Isa isa);

// residual [C, v_padded] = values - reads, and reads becomes beta times that.
struct ResidualArgs {
  Source values;
  int64_t num_rows = 0, chunk = 0, width = 0, padded = 0;
  const float* beta = nullptr;
  float *reads = nullptr, *residual = nullptr;
};
void Residual(const ResidualArgs& args, Isa isa);

// From X and Z = X u^T to the gradients of M, beta and v: dkeys comes as Z,
//   dbeta_i = X_i . residual_i - sum_{j<i} M_ij Z_ij
//   moved = -beta X;  dkeys_ij = -beta_i Z_ij for i > j
// and the part of dkeys and dqueries that the mask hides within the squares on
// the diagonal becomes 0.
struct ScoreGradientsArgs {
  const float *solved = nullptr, *residual = nullptr, *beta = nullptr,
              *key_scores = nullptr;
  int64_t chunk = 0, v_padded = 0;
  float *moved = nullptr, *dkeys = nullptr, *dqueries = nullptr,
        *dbeta = nullptr;
};
void ScoreGradients(const ScoreGradientsArgs& args, Isa isa);

// total [padded] = decay * sum_v(dstate * state) + sum_j columns_j *
// dcolumns_j: what the decay over the whole chunk gets.
struct TotalArgs {
  const float *state = nullptr, *dstate = nullptr, *decay = nullptr,
              *columns = nullptr, *dcolumns = nullptr;
  int64_t chunk = 0, padded = 0, v_padded = 0;
  float* total = nullptr;
};
void Total(const TotalArgs& args, Isa isa);

// The last step: in comes what a query, a key as a row and a key as a column
// get through pairs of different tiles and the state; pairs within tiles are
// added, and out come the gradients of q, k and g, in place.
struct GradientsArgs {
  const float *queries = nullptr, *keys = nullptr, *decays = nullptr;
  const float *dkeys = nullptr, *dqueries = nullptr;  // [C, C]
  int64_t chunk = 0, padded = 0;
  float* total = nullptr;         // [padded], changed
  float* row_terms = nullptr;     // [C, padded] keys as rows; becomes dk
  float* query_terms = nullptr;   // becomes dq
  float* column_terms = nullptr;  // becomes dg
};
void Gradients(const GradientsArgs& args, Isa isa);

// out[row * stride] = the sum of the row, for num_rows rows.
void SumRows(const float* rows, int64_t num_rows, int64_t padded, float* out,
             int64_t stride, Isa isa);

}  // namespace espalier::delta_rule

#endif  // ESPALIER_OPS_DELTA_RULE_INTERNAL_ROWS_H_
