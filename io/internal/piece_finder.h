#ifndef ESPALIER_IO_INTERNAL_PIECE_FINDER_H_
#define ESPALIER_IO_INTERNAL_PIECE_FINDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "espalier/io/family_table.h"
#include "espalier/io/internal/sharded_folder.h"
#include "espalier/io/internal/tensor_cut.h"
#include "espalier/io/safetensors_format.h"

namespace espalier::internal {

// Where the pieces of a sharded folder's tensors lie, in about 48 bytes each.
// Folder and table must outlive it. Thread-compatible.
class PieceFinder {
 public:
  struct Place {
    uint64_t hash = 0;  // of the tensor's name
    int64_t offset = 0;
    int64_t num_bytes = 0;
    uint64_t content = 0;  // hash of its bytes, once they are read
    uint32_t file = 0;     // of the layout's files
    uint32_t index = 0;    // of the file's tensors
    bool met = false;      // belongs to a tensor of the original
  };
  // A tensor's pieces, in the folder and in the tensor.
  struct Pieces {
    TensorCut cut;
    std::vector<Place*> places;  // one for each of cut.pieces
  };

  PieceFinder(const ShardedFolder& folder, const FamilyTable& table)
      : folder_(folder), table_(table) {}

  // Takes the places of a file that OpenPieces gave; all files before Find.
  void Add(uint32_t number, const SafetensorsFile& file);
  // The pieces of a tensor of the original, which are met then. DATA_LOSS,
  // naming tensor and group, for one that is missing or of another size.
  absl::StatusOr<Pieces> Find(const SafetensorsEntry& entry);
  // Once all tensors were found: every piece belongs to one. With `content`,
  // their hashes are those of the layout. Find is over then.
  absl::Status CheckAll(bool content);

 private:
  absl::StatusOr<Place*> PlaceOf(absl::string_view name,
                                 const PieceGroup& group, int64_t num_bytes);

  const ShardedFolder& folder_;
  const FamilyTable& table_;
  std::vector<Place> places_;
  bool sorted_ = false;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_PIECE_FINDER_H_
