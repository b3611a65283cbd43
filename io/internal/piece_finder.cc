#include "espalier/io/internal/piece_finder.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

#include "espalier/io/internal/shard_hash.h"
#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

uint64_t HashName(absl::string_view name) {
  return absl::Hash<absl::string_view>()(name);
}

}  // namespace

void PieceFinder::Add(uint32_t number, const SafetensorsFile& file) {
  for (const SafetensorsEntry& entry : file.entries()) {
    Place place;
    place.hash = HashName(entry.name);
    place.offset = file.data_start() + entry.begin;
    place.num_bytes = entry.num_bytes();
    place.file = number;
    place.index = static_cast<uint32_t>(&entry - file.entries().data());
    places_.push_back(place);
  }
  sorted_ = false;
}

absl::StatusOr<PieceFinder::Place*> PieceFinder::PlaceOf(
    absl::string_view name, const PieceGroup& group, int64_t num_bytes) {
  if (!sorted_) {
    std::sort(places_.begin(), places_.end(),
              [](const Place& a, const Place& b) {
                return std::pair(a.hash, a.file) < std::pair(b.hash, b.file);
              });
    sorted_ = true;
  }
  const std::vector<ShardLayout::File>& files = folder_.layout().files;
  const uint64_t hash = HashName(name);
  auto place = std::lower_bound(
      places_.begin(), places_.end(), hash,
      [](const Place& a, uint64_t key) { return a.hash < key; });
  for (; place != places_.end() && place->hash == hash; ++place) {
    if (files[place->file].group != group) continue;
    if (place->num_bytes != num_bytes) {
      return absl::DataLossError(
          absl::StrCat(folder_.folder().PathOf(files[place->file].name),
                       ": tensor ", Quote(name), " has ", place->num_bytes,
                       " bytes, expected ", num_bytes));
    }
    return &*place;
  }
  return absl::DataLossError(
      absl::StrCat(folder_.folder().path(), ": no file of group ",
                   ToString(group), " holds tensor ", Quote(name)));
}

absl::StatusOr<PieceFinder::Pieces> PieceFinder::Find(
    const SafetensorsEntry& entry) {
  FamilyTable::Match match;
  absl::StatusOr<TensorCut> cut =
      WholeTensor(entry.shape, entry.num_bytes(), {});
  if (table_.Find(entry.name, entry.dtype, &match)) {
    cut = CutTensor(table_, match, entry.name, entry.shape, entry.dtype,
                    folder_.layout().mesh);
  }
  if (!cut.ok()) return cut.status();
  Pieces pieces = {*std::move(cut), {}};
  for (const TensorPiece& piece : pieces.cut.pieces) {
    const absl::StatusOr<Place*> place =
        PlaceOf(entry.name, piece.group, pieces.cut.PieceBytes(piece));
    if (!place.ok()) return place.status();
    (*place)->met = true;
    pieces.places.push_back(*place);
  }
  return pieces;
}

absl::Status PieceFinder::CheckAll(bool content) {
  std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
    return std::pair(a.file, a.index) < std::pair(b.file, b.index);
  });
  sorted_ = false;
  const std::vector<ShardLayout::File>& files = folder_.layout().files;
  auto place = places_.begin();
  for (uint32_t f = 0; f < files.size(); ++f) {
    std::vector<uint64_t> hashes;
    for (; place != places_.end() && place->file == f; ++place) {
      if (!place->met) {
        return absl::DataLossError(
            absl::StrCat(folder_.folder().PathOf(files[f].name), ": tensor ",
                         place->index, " of ", files[f].num_tensors,
                         " belongs to no file of the original folder"));
      }
      hashes.push_back(place->content);
    }
    const std::string hash = content ? HashOfHashes(hashes) : "";
    if (content && hash != files[f].hashes.data) {
      return folder_.Wrong(files[f].name, "data hash", hash,
                           files[f].hashes.data);
    }
  }
  return absl::OkStatus();
}

}  // namespace espalier::internal
