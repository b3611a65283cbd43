#ifndef ESPALIER_IO_INTERNAL_SENTENCE_PIECE_MODEL_H_
#define ESPALIER_IO_INTERNAL_SENTENCE_PIECE_MODEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::internal {

// google/sentencepiece behind types of the standard library alone: its header
// makes absl::string_view another type than Abseil's, so no file may include
// both. Thread-safe once parsed.
class SentencePieceModel {
 public:
  // Whether this build has the library.
  static bool IsBuiltIn();
  // Of a serialized model. Null, and a sentence in *error, when it is not one
  // or this build lacks the library.
  static std::unique_ptr<SentencePieceModel> Parse(std::string_view bytes,
                                                   std::string* error);
  ~SentencePieceModel();
  SentencePieceModel(const SentencePieceModel&) = delete;
  SentencePieceModel& operator=(const SentencePieceModel&) = delete;

  // False, and a sentence in *error, when the library fails.
  bool Encode(std::string_view text, std::vector<int>* ids,
              std::string* error) const;
  // Of ids below size().
  std::string Decode(const std::vector<int>& ids) const;

  int size() const;
  // Of 0 <= id < size().
  const std::string& PieceOf(int id) const;
  bool IsControl(int id) const;
  bool IsUnknown(int id) const;
  float ScoreOf(int id) const;
  // -1 when there is none.
  int IdOf(std::string_view piece) const;
  int bos_id() const;
  int eos_id() const;

 private:
  struct Library;
  explicit SentencePieceModel(std::unique_ptr<Library> library);
  const std::unique_ptr<Library> library_;
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_SENTENCE_PIECE_MODEL_H_
