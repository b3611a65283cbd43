#include "espalier/io/internal/piece_copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace espalier::internal {

namespace {

constexpr int64_t kWindowBytes = int64_t{8} << 20;

absl::Span<uint8_t> Take(std::vector<uint8_t>& buffer, int64_t bytes) {
  if (static_cast<int64_t>(buffer.size()) < bytes) {
    buffer.resize(static_cast<size_t>(bytes));
  }
  return absl::MakeSpan(buffer).subspan(0, static_cast<size_t>(bytes));
}

}  // namespace

absl::Status PieceCopier::Read(
    const ReadableFile& source, int64_t offset, const TensorCut& cut,
    const TensorPiece& piece,
    absl::FunctionRef<absl::Status(absl::Span<const uint8_t>)> take) {
  const int64_t row_bytes = cut.row_bytes();
  if (row_bytes > kWindowBytes) {
    for (int64_t row = piece.outer_begin; row < piece.outer_end; ++row) {
      for (const auto& [begin, end] : piece.ranges) {
        const int64_t start =
            offset + row * row_bytes + begin * cut.inner_bytes;
        const int64_t bytes = (end - begin) * cut.inner_bytes;
        for (int64_t at = 0; at < bytes; at += kWindowBytes) {
          const absl::Span<uint8_t> chunk =
              Take(whole_, std::min(kWindowBytes, bytes - at));
          absl::Status status = source.ReadAt(start + at, chunk);
          if (status.ok()) status = take(chunk);
          if (!status.ok()) return status;
        }
      }
    }
    return absl::OkStatus();
  }
  const int64_t piece_row_bytes = cut.PieceRowBytes(piece);
  const int64_t rows_at_once =
      row_bytes > 0 ? std::max<int64_t>(1, kWindowBytes / row_bytes) : 1;
  for (int64_t first = piece.outer_begin; first < piece.outer_end;
       first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, piece.outer_end - first);
    const absl::Span<uint8_t> whole = Take(whole_, count * row_bytes);
    absl::Status status = source.ReadAt(offset + first * row_bytes, whole);
    if (!status.ok()) return status;
    absl::Span<uint8_t> out = whole;
    if (piece_row_bytes != row_bytes) {
      out = Take(part_, count * piece_row_bytes);
      uint8_t* to = out.data();
      for (int64_t row = 0; row < count; ++row) {
        for (const auto& [begin, end] : piece.ranges) {
          const int64_t bytes = (end - begin) * cut.inner_bytes;
          std::memcpy(to,
                      whole.data() + row * row_bytes + begin * cut.inner_bytes,
                      static_cast<size_t>(bytes));
          to += bytes;
        }
      }
    }
    status = take(out);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Rows so long that every range of them is moved by itself.
absl::Status PieceCopier::JoinRuns(
    const Part& part, const TensorCut& cut,
    absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put) {
  int64_t from = part.offset;
  const TensorPiece& piece = *part.piece;
  for (int64_t row = piece.outer_begin; row < piece.outer_end; ++row) {
    for (const auto& [begin, end] : piece.ranges) {
      const int64_t to = row * cut.row_bytes() + begin * cut.inner_bytes;
      const int64_t bytes = (end - begin) * cut.inner_bytes;
      for (int64_t at = 0; at < bytes; at += kWindowBytes) {
        const absl::Span<uint8_t> chunk =
            Take(whole_, std::min(kWindowBytes, bytes - at));
        absl::Status status = part.file->ReadAt(from + at, chunk);
        if (status.ok()) status = put(to + at, chunk);
        if (!status.ok()) return status;
        part.hasher->Update(chunk);
      }
      from += bytes;
    }
  }
  return absl::OkStatus();
}

absl::Status PieceCopier::JoinRows(
    absl::Span<const Part> parts, const TensorCut& cut, int64_t first,
    int64_t count,
    absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put) {
  const int64_t row_bytes = cut.row_bytes();
  const absl::Span<uint8_t> whole = Take(whole_, count * row_bytes);
  for (const Part& part : parts) {
    const TensorPiece& piece = *part.piece;
    const int64_t begin_row = std::max(first, piece.outer_begin);
    const int64_t end_row = std::min(first + count, piece.outer_end);
    if (begin_row >= end_row) continue;
    const int64_t piece_row_bytes = cut.PieceRowBytes(piece);
    const absl::Span<uint8_t> bytes =
        Take(part_, (end_row - begin_row) * piece_row_bytes);
    absl::Status status = part.file->ReadAt(
        part.offset + (begin_row - piece.outer_begin) * piece_row_bytes, bytes);
    if (!status.ok()) return status;
    part.hasher->Update(bytes);
    const uint8_t* from = bytes.data();
    for (int64_t row = begin_row; row < end_row; ++row) {
      uint8_t* to = whole.data() + (row - first) * row_bytes;
      for (const auto& [begin, end] : piece.ranges) {
        const int64_t run = (end - begin) * cut.inner_bytes;
        std::memcpy(to + begin * cut.inner_bytes, from,
                    static_cast<size_t>(run));
        from += run;
      }
    }
  }
  return put(first * row_bytes, whole);
}

absl::Status PieceCopier::Join(
    absl::Span<const Part> parts, const TensorCut& cut,
    absl::FunctionRef<absl::Status(int64_t, absl::Span<const uint8_t>)> put) {
  const int64_t row_bytes = cut.row_bytes();
  if (row_bytes == 0) return absl::OkStatus();
  if (row_bytes > kWindowBytes) {
    for (const Part& part : parts) {
      absl::Status status = JoinRuns(part, cut, put);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const int64_t rows_at_once = std::max<int64_t>(1, kWindowBytes / row_bytes);
  for (int64_t first = 0; first < cut.outer; first += rows_at_once) {
    absl::Status status = JoinRows(
        parts, cut, first, std::min(rows_at_once, cut.outer - first), put);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace espalier::internal
