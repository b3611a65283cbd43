#ifndef ESPALIER_DIST_COMMUNICATOR_H_
#define ESPALIER_DIST_COMMUNICATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

#include "espalier/runtime/tensor.h"

namespace espalier {

// One rank's end of a group. Collectives are called by every rank of the group
// in the same order; tensors are contiguous, of the same dtype on all ranks.
// Sums run in the order of ranks, bf16 in f32 with one rounding, so every rank
// gets the same bits however the messages arrive.
// Driven by one thread. Fails, as Failure: DEADLINE_EXCEEDED naming the
// collective, its number in sequence and the ranks that are missing; ABORTED
// with a peer's own words; INTERNAL when ranks meet in different collectives or
// with different sizes, naming both. After one the group is dead and every
// later call fails alike.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual void Barrier() = 0;
  // x becomes the sum over ranks. f64 | f32 | bf16, same shape everywhere.
  virtual void AllReduceSum(const Tensor& x) = 0;
  // x becomes root's x.
  virtual void Broadcast(const Tensor& x, int root) = 0;
  // Rows of all ranks one behind another: [n_r, ...] -> [sum of n_r, ...].
  // Ranks may have different numbers of rows, also none.
  virtual Tensor AllGather(const Tensor& x) = 0;
  // The sum over ranks, cut into size() equal parts along the first dim; rank r
  // gets part r. The first dim divides by size().
  virtual Tensor ReduceScatterSum(const Tensor& x) = 0;
  // Sends the next send_rows[r] rows of x to rank r; returns what came, in the
  // order of ranks, and its numbers of rows in receive_rows. Zero is legal.
  virtual Tensor AllToAll(const Tensor& x, absl::Span<const int64_t> send_rows,
                          std::vector<int64_t>& receive_rows) = 0;
  // Ends the group: peers, waiting or not, fail with this rank and reason.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace espalier

#endif  // ESPALIER_DIST_COMMUNICATOR_H_
