#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/internal/normalizer.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"
#include "espalier/io/json.h"
#include "espalier/io/llama2c_convert.h"

namespace espalier {

namespace {

constexpr int64_t kNumControl = 3;                  // unk, bos, eos
constexpr int64_t kFirstPiece = kNumControl + 256;  // behind the bytes
constexpr const char* kControl[] = {"<unk>", "<s>", "</s>"};
constexpr char kSpace[] = "\xE2\x96\x81";  // stands for a space
constexpr int32_t kMaxPieceBytes = 1024;

struct Piece {
  std::string text;
  float score = 0;
};

absl::Status Bad(const std::string& where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}

// Little-endian values one behind another.
class Reader {
 public:
  explicit Reader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ReadInt(int32_t* value) {
    if (bytes_.size() < sizeof(*value)) return false;
    std::memcpy(value, bytes_.data(), sizeof(*value));
    bytes_.remove_prefix(sizeof(*value));
    return true;
  }
  bool ReadFloat(float* value) {
    int32_t bits = 0;
    if (!ReadInt(&bits)) return false;
    *value = std::bit_cast<float>(bits);
    return true;
  }
  bool ReadText(int32_t bytes, std::string* text) {
    if (bytes < 0 || bytes_.size() < static_cast<size_t>(bytes)) return false;
    text->assign(reinterpret_cast<const char*>(bytes_.data()),
                 static_cast<size_t>(bytes));
    bytes_.remove_prefix(static_cast<size_t>(bytes));
    return true;
  }
  bool done() const { return bytes_.empty(); }

 private:
  absl::Span<const uint8_t> bytes_;
};

absl::StatusOr<std::vector<Piece>> ReadPieces(absl::Span<const uint8_t> file,
                                              int64_t vocab_size,
                                              const std::string& where) {
  Reader reader(file);
  int32_t max_bytes = 0;
  if (!reader.ReadInt(&max_bytes)) return Bad(where, "has no length field");
  std::vector<Piece> pieces;
  while (!reader.done()) {
    Piece piece;
    int32_t bytes = 0;
    if (!reader.ReadFloat(&piece.score) || !reader.ReadInt(&bytes) ||
        bytes > kMaxPieceBytes || !reader.ReadText(bytes, &piece.text)) {
      return Bad(where, absl::StrCat("piece ", pieces.size(), " is cut short"));
    }
    pieces.push_back(std::move(piece));
  }
  if (static_cast<int64_t>(pieces.size()) != vocab_size ||
      vocab_size < kFirstPiece) {
    return Bad(where,
               absl::StrCat("has ", pieces.size(), " pieces, the model has ",
                            vocab_size, ", at least ", kFirstPiece));
  }
  for (int64_t id = 0; id < vocab_size; ++id) {
    Piece& piece = pieces[static_cast<size_t>(id)];
    if (id < kNumControl) {
      piece.text = kControl[id];
    } else if (id < kFirstPiece) {
      const std::string expected =
          absl::StrFormat("<0x%02X>", static_cast<int>(id - kNumControl));
      if (piece.text != expected) {
        return Bad(where, absl::StrCat("piece ", id, " is ",
                                       internal::Quote(piece.text),
                                       ", expected ", expected));
      }
    } else {
      if (piece.text.empty() || !internal::IsValidUtf8(piece.text) ||
          !(piece.score <= 0)) {
        return Bad(where, absl::StrCat("piece ", id,
                                       " is empty, not UTF-8, "
                                       "or has a score above 0"));
      }
      piece.text = internal::ReplaceEvery(piece.text, " ", kSpace);
    }
  }
  return pieces;
}

struct Merge {
  float score = 0;
  int32_t left = 0;
  int32_t right = 0;
};

// Every way to make a piece of two others: pieces by falling score, the ways
// of one piece by their ids (huggingface/transformers, the conversion of
// SentencePiece BPE models).
std::vector<Merge> ListMerges(
    const std::vector<Piece>& pieces,
    const absl::flat_hash_map<std::string, int32_t>& ids) {
  const auto id_of = [&](absl::string_view text) {
    const auto found = ids.find(text);
    return found == ids.end() || found->second < kFirstPiece ? -1
                                                             : found->second;
  };
  std::vector<Merge> merges;
  for (size_t id = static_cast<size_t>(kFirstPiece); id < pieces.size(); ++id) {
    const absl::string_view text = pieces[id].text;
    const size_t first = merges.size();
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const int32_t left = id_of(text.substr(0, cut));
      const int32_t right = left < 0 ? -1 : id_of(text.substr(cut));
      if (right >= 0) merges.push_back({pieces[id].score, left, right});
    }
    std::sort(merges.begin() + static_cast<ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::pair(a.left, a.right) < std::pair(b.left, b.right);
              });
  }
  std::stable_sort(
      merges.begin(), merges.end(),
      [](const Merge& a, const Merge& b) { return a.score > b.score; });
  return merges;
}

JsonValue StringPattern(absl::string_view text) {
  return JsonValue::Object{{"String", text}};
}

JsonValue Model(const std::vector<Piece>& pieces,
                const std::vector<Merge>& merges) {
  JsonValue::Object vocab;
  for (size_t id = 0; id < pieces.size(); ++id) {
    vocab.push_back({pieces[id].text, static_cast<int64_t>(id)});
  }
  JsonValue::Array pairs;
  for (const Merge& merge : merges) {
    pairs.push_back(
        JsonValue::Array{pieces[static_cast<size_t>(merge.left)].text,
                         pieces[static_cast<size_t>(merge.right)].text});
  }
  return JsonValue::Object{{"type", "BPE"},
                           {"dropout", JsonValue()},
                           {"unk_token", kControl[0]},
                           {"continuing_subword_prefix", JsonValue()},
                           {"end_of_word_suffix", JsonValue()},
                           {"fuse_unk", true},
                           {"byte_fallback", true},
                           {"ignore_merges", false},
                           {"vocab", std::move(vocab)},
                           {"merges", std::move(pairs)}};
}

JsonValue AddedTokens() {
  JsonValue::Array added;
  for (int id = 0; id < static_cast<int>(kNumControl); ++id) {
    added.push_back(JsonValue::Object{{"id", id},
                                      {"content", kControl[id]},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
  }
  return added;
}

// "<s>" in front of a text.
JsonValue PostProcessor() {
  const auto bos = [](int type_id) {
    return JsonValue::Object{
        {"SpecialToken",
         JsonValue::Object{{"id", kControl[1]}, {"type_id", type_id}}}};
  };
  const auto sequence = [](const char* id, int type_id) {
    return JsonValue::Object{
        {"Sequence", JsonValue::Object{{"id", id}, {"type_id", type_id}}}};
  };
  return JsonValue::Object{
      {"type", "TemplateProcessing"},
      {"single", JsonValue::Array{bos(0), sequence("A", 0)}},
      {"pair",
       JsonValue::Array{bos(0), sequence("A", 0), bos(1), sequence("B", 1)}},
      {"special_tokens",
       JsonValue::Object{
           {kControl[1],
            JsonValue::Object{{"id", kControl[1]},
                              {"ids", JsonValue::Array{1}},
                              {"tokens", JsonValue::Array{kControl[1]}}}}}}};
}

}  // namespace

absl::StatusOr<std::string> ConvertLlama2cTokenizer(
    absl::Span<const uint8_t> file, int64_t vocab_size,
    const std::string& where) {
  const absl::StatusOr<std::vector<Piece>> pieces =
      ReadPieces(file, vocab_size, where);
  if (!pieces.ok()) return pieces.status();
  absl::flat_hash_map<std::string, int32_t> ids;
  for (size_t id = 0; id < pieces->size(); ++id) {
    const bool is_new =
        ids.try_emplace((*pieces)[id].text, static_cast<int32_t>(id)).second;
    if (!is_new) {
      return Bad(where, absl::StrCat("piece ", id, ", ",
                                     internal::Quote((*pieces)[id].text),
                                     ", stands twice"));
    }
  }
  JsonValue::Array normalizers = {
      JsonValue::Object{{"type", "Prepend"}, {"prepend", kSpace}},
      JsonValue::Object{{"type", "Replace"},
                        {"pattern", StringPattern(" ")},
                        {"content", kSpace}}};
  JsonValue::Array decoders = {
      JsonValue::Object{{"type", "Replace"},
                        {"pattern", StringPattern(kSpace)},
                        {"content", " "}},
      JsonValue::Object{{"type", "ByteFallback"}},
      JsonValue::Object{{"type", "Fuse"}},
      JsonValue::Object{
          {"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}};
  return WriteJson(JsonValue::Object{
      {"version", "1.0"},
      {"truncation", JsonValue()},
      {"padding", JsonValue()},
      {"added_tokens", AddedTokens()},
      {"normalizer",
       JsonValue::Object{{"type", "Sequence"},
                         {"normalizers", std::move(normalizers)}}},
      {"pre_tokenizer", JsonValue()},
      {"post_processor", PostProcessor()},
      {"decoder", JsonValue::Object{{"type", "Sequence"},
                                    {"decoders", std::move(decoders)}}},
      {"model", Model(*pieces, ListMerges(*pieces, ids))}});
}

}  // namespace espalier
