#include "espalier/io/internal/sentence_piece_model.h"

#include <utility>

#include "espalier/io/internal/sentence_piece_check.h"

#if ESPALIER_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace espalier::internal {

#if ESPALIER_SENTENCEPIECE

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

bool SentencePieceModel::IsBuiltIn() { return true; }

std::unique_ptr<SentencePieceModel> SentencePieceModel::Parse(
    std::string_view bytes, std::string* error) {
  *error = CheckSentencePieceModel(bytes);
  if (!error->empty()) return nullptr;
  auto library = std::make_unique<Library>();
  const sentencepiece::util::Status status =
      library->processor.LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  return std::unique_ptr<SentencePieceModel>(
      new SentencePieceModel(std::move(library)));
}

bool SentencePieceModel::Encode(std::string_view text, std::vector<int>* ids,
                                std::string* error) const {
  const sentencepiece::util::Status status =
      library_->processor.Encode(text, ids);
  if (!status.ok()) *error = status.ToString();
  return status.ok();
}

std::string SentencePieceModel::Decode(const std::vector<int>& ids) const {
  std::string text;
  // Fails for ids out of range alone.
  if (!library_->processor.Decode(ids, &text).ok()) text.clear();
  return text;
}

int SentencePieceModel::size() const {
  return library_->processor.GetPieceSize();
}

const std::string& SentencePieceModel::PieceOf(int id) const {
  return library_->processor.IdToPiece(id);
}

bool SentencePieceModel::IsControl(int id) const {
  return library_->processor.IsControl(id);
}

bool SentencePieceModel::IsUnknown(int id) const {
  return library_->processor.IsUnknown(id);
}

float SentencePieceModel::ScoreOf(int id) const {
  return library_->processor.GetScore(id);
}

// The library has the unknown piece's id for every text that is none.
int SentencePieceModel::IdOf(std::string_view piece) const {
  const int id = library_->processor.PieceToId(piece);
  return id >= 0 && id < size() && PieceOf(id) == piece ? id : -1;
}

int SentencePieceModel::bos_id() const { return library_->processor.bos_id(); }

int SentencePieceModel::eos_id() const { return library_->processor.eos_id(); }

#else

struct SentencePieceModel::Library {
  std::string none;
};

bool SentencePieceModel::IsBuiltIn() { return false; }

std::unique_ptr<SentencePieceModel> SentencePieceModel::Parse(
    std::string_view, std::string* error) {
  *error = "this build has no SentencePiece library (libsentencepiece-dev)";
  return nullptr;
}

bool SentencePieceModel::Encode(std::string_view, std::vector<int>*,
                                std::string*) const {
  return false;
}

std::string SentencePieceModel::Decode(const std::vector<int>&) const {
  return "";
}

int SentencePieceModel::size() const { return 0; }

const std::string& SentencePieceModel::PieceOf(int) const {
  return library_->none;
}

bool SentencePieceModel::IsControl(int) const { return false; }

bool SentencePieceModel::IsUnknown(int) const { return false; }

float SentencePieceModel::ScoreOf(int) const { return 0; }

int SentencePieceModel::IdOf(std::string_view) const { return -1; }

int SentencePieceModel::bos_id() const { return -1; }

int SentencePieceModel::eos_id() const { return -1; }

#endif

SentencePieceModel::SentencePieceModel(std::unique_ptr<Library> library)
    : library_(std::move(library)) {}

SentencePieceModel::~SentencePieceModel() = default;

}  // namespace espalier::internal
