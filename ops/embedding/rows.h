#ifndef ESPALIER_OPS_EMBEDDING_ROWS_H_
#define ESPALIER_OPS_EMBEDDING_ROWS_H_

#include <cstdint>

#include "espalier/runtime/tensor.h"

namespace espalier {

// The rows of a table that a batch names, so that only they get gradients and
// optimizer state:
//   const TableRows used = SelectRows(ids, vocab_size);
//   Variable rows(Embedding(Variable(table), used.rows).value(), true);
//   Variable y = Embedding(rows, used.index);   // rows.grad() is [U, H]
//   ... update rows ...;  PutRows(table, used.rows, rows.value());
struct TableRows {
  Tensor rows;   // [U] i32, ascending, each once
  Tensor index;  // [T] i32: ids[t] == rows[index[t]]
};

// ids [T] i32 on a host-addressable device. Fails INVALID_ARGUMENT for an id
// outside [0, vocab_size), with its position.
TableRows SelectRows(const Tensor& ids, int64_t vocab_size);

// table[rows[u], :] = values[u, :]
//   table [V, H], values [U, H], same dtype; rows as SelectRows gives them
// Fails: INTERNAL on shape or dtype mismatch and, on host-addressable devices,
// on a row that the table does not have.
void PutRows(const Tensor& table, const Tensor& rows, const Tensor& values);

}  // namespace espalier

#endif  // ESPALIER_OPS_EMBEDDING_ROWS_H_
