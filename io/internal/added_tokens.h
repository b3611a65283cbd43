#ifndef ESPALIER_IO_INTERNAL_ADDED_TOKENS_H_
#define ESPALIER_IO_INTERNAL_ADDED_TOKENS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "espalier/io/json_object.h"
#include "espalier/io/tokenizer.h"

namespace espalier::internal {

// Ids size tables, so they are bounded.
inline constexpr int32_t kMaxTokenId = (1 << 22) - 1;

// A token is looked for at every place of a text, so its length is bounded.
inline constexpr size_t kMaxAddedTokenBytes = 256;

// Reads an entry of "added_tokens" in a tokenizer.json.
absl::Status ParseAddedToken(const JsonObject& json, AddedToken* token);

// The same without an id, of "added_tokens_decoder" in tokenizer_config.json.
absl::Status ParseAddedTokenFlags(const JsonObject& json, AddedToken* token);

// A stretch of text: an added token's match, or (id -1) text between them.
struct Stretch {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;
};

// Finds added tokens in text: leftmost first, the longest where several begin
// (huggingface/tokenizers, tokenizer/added_vocabulary.rs). Takes time linear
// in the text for tokens of bounded length. Thread-safe.
class AddedTokenMatcher {
 public:
  // `spelling` is what to look for; an empty one is left out. The first of two
  // tokens spelled alike wins.
  void Add(const AddedToken& token, absl::string_view spelling);
  bool empty() const { return tokens_.empty(); }

  // Stretches that cover `text`, valid UTF-8, without empty ones. Special
  // tokens are text unless options.match_special_tokens, and so are
  // options.unmatched_tokens.
  std::vector<Stretch> Split(absl::string_view text,
                             const EncodeOptions& options) const;

 private:
  // Of a trie. Most nodes have one child.
  struct Node {
    int32_t child = -1;
    int32_t token = -1;
    char edge = 0;                            // to `child`
    absl::flat_hash_map<char, int32_t> more;  // children beside it
  };

  int32_t ChildOf(const Node& node, char edge) const {
    if (node.child >= 0 && node.edge == edge) return node.child;
    if (node.more.empty()) return -1;
    const auto found = node.more.find(edge);
    return found == node.more.end() ? -1 : found->second;
  }
  size_t LongestAt(absl::string_view text, size_t begin, int32_t* token) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_{};  // by first byte
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_ADDED_TOKENS_H_
