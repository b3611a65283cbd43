#ifndef ESPALIER_IO_INTERNAL_PIECE_COPY_H_
#define ESPALIER_IO_INTERNAL_PIECE_COPY_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

#include "espalier/io/content_hash.h"
#include "espalier/io/internal/file.h"
#include "espalier/io/internal/tensor_cut.h"

namespace espalier::internal {

// Buffers for moving pieces of tensors; no more than 2 x 8 MiB.
class PieceCopier {
 public:
  // Calls `take` with the bytes of a piece in order. The whole tensor lies at
  // `offset` of `source`.
  absl::Status Read(
      const ReadableFile& source, int64_t offset, const TensorCut& cut,
      const TensorPiece& piece,
      absl::FunctionRef<absl::Status(absl::Span<const uint8_t>)> take);

  // Where the bytes of a piece lie.
  struct Part {
    const TensorPiece* piece = nullptr;
    const ReadableFile* file = nullptr;
    int64_t offset = 0;
    ContentHasher* hasher = nullptr;  // sees the piece's bytes in order
  };
  // Calls `put` with positions and bytes that together are the whole tensor;
  // `parts` are all pieces of the cut.
  absl::Status Join(
      absl::Span<const Part> parts, const TensorCut& cut,
      absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put);

 private:
  absl::Status JoinRows(
      absl::Span<const Part> parts, const TensorCut& cut, int64_t first,
      int64_t count,
      absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put);
  absl::Status JoinRuns(
      const Part& part, const TensorCut& cut,
      absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put);

  std::vector<uint8_t> whole_;
  std::vector<uint8_t> part_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PIECE_COPY_H_
