#include "espalier/io/internal/added_tokens.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/unicode.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// Where the character before `end` begins; end > 0.
size_t PreviousChar(absl::string_view text, size_t end) {
  return CharBegin(text, end - 1);
}

bool IsWordAt(absl::string_view text, size_t at) {
  return IsWordChar(DecodeUtf8(text, at).code);
}

bool StandsAlone(absl::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !IsWordAt(text, PreviousChar(text, begin))) &&
         (end == text.size() || !IsWordAt(text, end));
}

// Back to `stop` at most.
size_t SkipSpacesBack(absl::string_view text, size_t stop, size_t end) {
  while (end > stop) {
    const size_t begin = PreviousChar(text, end);
    if (!IsWhiteSpace(DecodeUtf8(text, begin).code)) break;
    end = begin;
  }
  return end;
}

size_t SkipSpaces(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (c.bytes == 0 || !IsWhiteSpace(c.code)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

absl::Status ParseAddedTokenFlags(const JsonObject& json, AddedToken* token) {
  for (const absl::Status& status :
       {json.Get("content", &token->content),
        json.Get("special", &token->special),
        json.Get("normalized", &token->normalized),
        json.Get("single_word", &token->single_word),
        json.Get("lstrip", &token->lstrip),
        json.Get("rstrip", &token->rstrip)}) {
    if (!status.ok()) return status;
  }
  if (token->content.size() > kMaxAddedTokenBytes) {
    return json.Error("content", absl::StrCat("has ", token->content.size(),
                                              " bytes, expected at most ",
                                              kMaxAddedTokenBytes));
  }
  return absl::OkStatus();
}

absl::Status ParseAddedToken(const JsonObject& json, AddedToken* token) {
  int id = 0;
  absl::Status status = json.Get("id", &id);
  if (!status.ok()) return status;
  if (id < 0 || id > kMaxTokenId) return json.Error("id", "is no token id");
  token->id = id;
  return ParseAddedTokenFlags(json, token);
}

void AddedTokenMatcher::Add(const AddedToken& token,
                            absl::string_view spelling) {
  if (spelling.empty()) return;
  begins_[static_cast<uint8_t>(spelling[0])] = true;
  size_t node = 0;
  for (const char c : spelling) {
    int32_t child = ChildOf(nodes_[node], c);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      if (nodes_[node].child < 0) {
        nodes_[node].child = child;
        nodes_[node].edge = c;
      } else {
        nodes_[node].more.emplace(c, child);
      }
      nodes_.emplace_back();
    }
    node = static_cast<size_t>(child);
  }
  if (nodes_[node].token >= 0) return;
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

// End of the longest token that begins at `begin`; 0 when there is none.
size_t AddedTokenMatcher::LongestAt(absl::string_view text, size_t begin,
                                    int32_t* token) const {
  size_t longest = 0;
  const Node* node = nodes_.data();
  for (size_t at = begin; at < text.size(); ++at) {
    const int32_t child = ChildOf(*node, text[at]);
    if (child < 0) break;
    node = &nodes_[static_cast<size_t>(child)];
    if (node->token >= 0) {
      *token = node->token;
      longest = at + 1;
    }
  }
  return longest;
}

std::vector<Stretch> AddedTokenMatcher::Split(
    absl::string_view text, const EncodeOptions& options) const {
  std::vector<Stretch> stretches;
  size_t covered = 0;
  const auto add = [&](size_t begin, size_t end, int32_t id) {
    if (begin < end) stretches.push_back({begin, end, id});
  };
  for (size_t at = 0; !empty() && at < text.size();) {
    if (!begins_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    int32_t index = 0;
    const size_t match_end = LongestAt(text, at, &index);
    if (match_end == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    const size_t match_begin = std::exchange(at, match_end);
    if (token.special && !options.match_special_tokens) continue;
    if (options.unmatched_tokens != nullptr &&
        options.unmatched_tokens->contains(token.id)) {
      continue;
    }
    if (token.single_word && !StandsAlone(text, match_begin, match_end)) {
      continue;
    }
    // White space taken in by the token before is no longer there.
    size_t begin = std::max(match_begin, covered);
    if (token.lstrip) begin = SkipSpacesBack(text, covered, begin);
    size_t end = std::max(match_end, covered);
    if (token.rstrip) end = SkipSpaces(text, end);
    add(covered, begin, -1);
    add(begin, end, token.id);
    covered = end;
  }
  add(covered, text.size(), -1);
  return stretches;
}

}  // namespace espalier::internal
