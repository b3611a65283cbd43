#ifndef ESPALIER_IO_SAMPLE_PACKER_H_
#define ESPALIER_IO_SAMPLE_PACKER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

// Which part of which sample: enough to make its tokens again.
struct PieceRef {
  int32_t group = 0;
  int64_t sample = 0;  // of the group
  int64_t begin = 0;   // tokens [begin, end) of the sample
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const PieceRef&, const PieceRef&) = default;
};

// A sequence of its own inside a pack.
struct Piece {
  PieceRef ref;
  std::vector<int32_t> ids;     // [size]
  std::vector<int32_t> labels;  // [size], the next token, or kIgnoreLabel
  std::vector<float> weights;   // [size], of the labels; 0 where ignored
};

inline constexpr int32_t kIgnoreLabel = -100;

// Samples one behind another, as sequence-mixing ops take them.
struct TokenBatch {
  std::vector<int32_t> ids;         // [T]
  std::vector<int32_t> labels;      // [T], the next token of the sample, or
                                    // kIgnoreLabel: not trained, or its last
  std::vector<float> weights;       // [T] of the labels
  std::vector<int32_t> positions;   // [T], from 0 in each piece
  std::vector<int32_t> cu_seqlens;  // [pieces + 1], from 0 to T
};

// Pieces that are trained on together.
struct Pack {
  std::vector<Piece> pieces;
  int64_t num_tokens = 0;

  // One behind another, as sequence-mixing ops take them.
  TokenBatch ToBatch() const;
};

// Best fit with few packs in hand: a piece goes into the fullest open pack that
// still takes it (the oldest at ties). When none does and max_open packs are
// open, the fullest of them is closed to make room. A pack without room left is
// closed at once. What comes out depends on the pieces and their order alone.
class SamplePacker {
 public:
  SamplePacker(int64_t budget_tokens, int64_t max_open);

  // piece.ref.size() is 1 .. budget_tokens. Closed packs are appended to `out`.
  void Add(Piece piece, std::vector<Pack>* out);
  // Closes all, the oldest first.
  void Flush(std::vector<Pack>* out);

  const std::vector<Pack>& open() const { return open_; }
  // Packs as open() gave them.
  void Restore(std::vector<Pack> open) { open_ = std::move(open); }

 private:
  const int64_t budget_tokens_;
  const size_t max_open_;
  std::vector<Pack> open_;  // oldest first
};

}  // namespace espalier

#endif  // ESPALIER_IO_SAMPLE_PACKER_H_
