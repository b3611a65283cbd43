#include "espalier/io/internal/token_decoder.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "espalier/io/internal/byte_level.h"
#include "espalier/io/internal/normalizer.h"
#include "espalier/io/internal/pre_tokenizer.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of "<0xXX>"; -1 for another token.
int ByteOfToken(absl::string_view token) {
  if (token.size() != 6 || !absl::StartsWith(token, "<0x") || token[5] != '>') {
    return -1;
  }
  const int high = HexDigit(token[3]);
  const int low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Runs of byte tokens become text if they are UTF-8, else one U+FFFD a byte.
std::vector<std::string> JoinByteTokens(std::vector<std::string> tokens) {
  std::vector<std::string> joined;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (IsValidUtf8(bytes)) {
      joined.push_back(bytes);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) {
        joined.emplace_back("\xEF\xBF\xBD");
      }
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = ByteOfToken(token);
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(static_cast<uint8_t>(byte)));
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  return joined;
}

std::string Strip(absl::string_view token, absl::string_view character,
                  int start, int stop) {
  for (int i = 0; i < start && absl::StartsWith(token, character); ++i) {
    token.remove_prefix(character.size());
  }
  for (int i = 0; i < stop && absl::EndsWith(token, character); ++i) {
    token.remove_suffix(character.size());
  }
  return std::string(token);
}

}  // namespace

absl::StatusOr<TokenDecoder> TokenDecoder::Load(const JsonObject& tokenizer) {
  TokenDecoder decoder;
  if (!tokenizer.Has("decoder")) {
    tokenizer.Ignore("decoder");
    return decoder;
  }
  JsonObject json;
  absl::Status status = tokenizer.Get("decoder", &json);
  if (status.ok()) status = decoder.Add(json);
  if (!status.ok()) return status;
  return decoder;
}

absl::Status TokenDecoder::Add(const JsonObject& json) {
  const absl::StatusOr<std::string> type = TypeOf(json);
  if (!type.ok()) return type.status();
  absl::Status status;
  if (*type == "Sequence") {
    std::vector<JsonObject> items;
    status = json.Get("decoders", &items);
    for (size_t i = 0; status.ok() && i < items.size(); ++i) {
      status = Add(items[i]);
    }
    return status.ok() ? CheckAllRead(json) : status;
  }
  Step step;
  if (*type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      json.Ignore(key);  // without a meaning in decoding
    }
  } else if (*type == "Replace") {
    step.kind = Kind::kReplace;
    status = GetStringPattern(json, &step.pattern);
    if (status.ok()) status = json.Get("content", &step.content);
  } else if (*type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (*type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (*type == "Strip") {
    step.kind = Kind::kStrip;
    status = json.Get("content", &step.pattern);
    if (status.ok()) status = json.Get("start", &step.start);
    if (status.ok()) status = json.Get("stop", &step.stop);
    if (status.ok() && step.pattern.empty()) {
      status = json.Error("content", "is empty");
    }
  } else if (*type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    PrependScheme prepend = PrependScheme::kAlways;
    bool split = true;
    status = ParseMetaspace(json, &step.pattern, &prepend, &split);
    step.start = prepend == PrependScheme::kNever ? 0 : 1;
  } else {
    return UnsupportedType(json);
  }
  if (status.ok()) {
    status = step.pattern.empty()
                 ? limits_.AddStep(json)
                 : limits_.AddReplace(json, step.pattern, step.content);
  }
  if (!status.ok()) return status;
  steps_.push_back(std::move(step));
  return CheckAllRead(json);
}

std::string TokenDecoder::Decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) return absl::StrJoin(tokens, " ");
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kByteLevel: {
        std::string bytes;
        for (const std::string& token : tokens) bytes += CharsToBytes(token);
        tokens = {ReplaceInvalidUtf8(bytes)};
        break;
      }
      case Kind::kReplace:
        for (std::string& token : tokens) {
          token = ReplaceEvery(token, step.pattern, step.content);
        }
        break;
      case Kind::kByteFallback:
        tokens = JoinByteTokens(std::move(tokens));
        break;
      case Kind::kFuse:
        tokens = {absl::StrJoin(tokens, "")};
        break;
      case Kind::kMetaspace:
        for (size_t i = 0; i < tokens.size(); ++i) {
          tokens[i] = ReplaceEvery(tokens[i], step.pattern,
                                   i == 0 && step.start > 0 ? "" : " ");
        }
        break;
      case Kind::kStrip:
        for (std::string& token : tokens) {
          token = Strip(token, step.pattern, step.start, step.stop);
        }
        break;
    }
  }
  return absl::StrJoin(tokens, "");
}

}  // namespace espalier::internal
