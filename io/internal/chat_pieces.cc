#include "espalier/io/internal/chat_pieces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

constexpr absl::string_view kRoles[] = {
    "system", "developer", "user",        "assistant",
    "tool",   "function",  "observation", "ipython",
};

absl::Status Wrong(size_t index, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("messages[", index, "] ", what));
}

// Whether texts may be encoded apart: no marks of word begins appear.
bool EncodesApart(const Tokenizer& tokenizer) {
  const std::pair<absl::string_view, absl::string_view> kProbes[] = {
      {"a", "b"}, {"a", " b"}, {"\n", "a"}};
  for (const auto& [left, right] : kProbes) {
    auto ids = tokenizer.Encode(left);
    const auto more = tokenizer.Encode(right);
    if (!ids.ok() || !more.ok()) continue;
    ids->insert(ids->end(), more->begin(), more->end());
    if (tokenizer.Decode(*ids) != absl::StrCat(left, right)) return false;
  }
  return true;
}

class PieceEncoder {
 public:
  PieceEncoder(const Tokenizer& tokenizer, absl::Span<const ChatOwner> owners,
               const ChatMessages& messages, const ChatOptions& options,
               const absl::flat_hash_set<int32_t>& control,
               EncodedChat* encoded)
      : tokenizer_(tokenizer),
        owners_(owners),
        messages_(messages),
        options_(options),
        apart_(EncodesApart(tokenizer)),
        encoded_(encoded) {
    encode_.unmatched_tokens = &control;
    allowed_ = control;
    for (const std::string& name : options.content_tokens) {
      const auto id = tokenizer.IdOf(name);
      if (id.has_value() && !tokenizer.IsSpecial(*id)) allowed_.erase(*id);
    }
    encode_allowed_.unmatched_tokens = &allowed_;
  }

  absl::Status Run(absl::Span<const ChatPiece> pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const ChatPiece& piece = pieces[i];
      if (piece.control >= 0) {
        Add(piece.control, OwnerAt(piece.begin), piece.trained);
        continue;
      }
      const bool pair = !apart_ && i + 1 < pieces.size() &&
                        pieces[i + 1].joined && pieces[i + 1].control < 0;
      absl::Status status =
          pair ? AddPair(piece, pieces[i + 1]) : AddText(piece);
      if (!status.ok()) return status;
      if (pair) ++i;
    }
    return absl::OkStatus();
  }

 private:
  int32_t OwnerAt(size_t at) const {
    const auto owner = std::upper_bound(
        owners_.begin(), owners_.end(), at,
        [](size_t wanted, const ChatOwner& o) { return wanted < o.end; });
    return owner == owners_.end() ? -1 : owner->message;
  }
  void Add(int32_t id, int32_t message, int32_t trained) {
    encoded_->ids.push_back(id);
    encoded_->messages.push_back(message);
    encoded_->weights.push_back(WeightOf(messages_, trained, options_));
  }
  absl::StatusOr<std::vector<int32_t>> Encode(size_t begin, size_t end,
                                              bool content_tokens) const {
    return tokenizer_.Encode(
        absl::string_view(encoded_->text).substr(begin, end - begin),
        content_tokens ? encode_allowed_ : encode_);
  }
  // How many of the tokens reach `bytes` into their text.
  size_t TokensOf(const std::vector<int32_t>& ids, size_t bytes) const {
    size_t low = 0, high = ids.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const auto prefix = absl::MakeConstSpan(ids).subspan(0, middle);
      if (tokenizer_.Decode(prefix).size() >= bytes) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  // Adds tokens of text from `begin` to `end`, trained from number
  // first_trained on; each belongs to the message of its first byte.
  void AddTokens(const std::vector<int32_t>& ids, size_t begin, size_t end,
                 size_t first_trained, int32_t trained) {
    size_t next = 0;
    for (size_t at = begin; next < ids.size();) {
      const auto owner = std::upper_bound(
          owners_.begin(), owners_.end(), at,
          [](size_t wanted, const ChatOwner& o) { return wanted < o.end; });
      const bool last = owner == owners_.end() || owner->end >= end;
      const size_t stop =
          last ? ids.size() : std::max(next, TokensOf(ids, owner->end - begin));
      for (; next < stop; ++next) {
        Add(ids[next], owner == owners_.end() ? -1 : owner->message,
            next < first_trained ? -1 : trained);
      }
      if (last) break;
      at = owner->end;
    }
  }
  absl::Status AddText(const ChatPiece& piece) {
    const auto ids = Encode(piece.begin, piece.end, piece.content_tokens);
    if (!ids.ok()) return ids.status();
    AddTokens(*ids, piece.begin, piece.end, 0, piece.trained);
    return absl::OkStatus();
  }
  // A prompt's end and an answer's begin, encoded as one text. A token that
  // reaches over both is not trained.
  absl::Status AddPair(const ChatPiece& left, const ChatPiece& right) {
    const bool allowed = left.content_tokens && right.content_tokens;
    const auto ids = Encode(left.begin, right.end, allowed);
    const auto before = Encode(left.begin, left.end, allowed);
    if (!ids.ok()) return ids.status();
    if (!before.ok()) return before.status();
    size_t first = before->size();
    if (first > ids->size() ||
        !std::equal(before->begin(), before->end(), ids->begin())) {
      first = TokensOf(*ids, left.end - left.begin);
    }
    AddTokens(*ids, left.begin, right.end, first, right.trained);
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const absl::Span<const ChatOwner> owners_;
  const ChatMessages& messages_;
  const ChatOptions& options_;
  const bool apart_;
  EncodedChat* const encoded_;
  EncodeOptions encode_, encode_allowed_;
  absl::flat_hash_set<int32_t> allowed_;
};

}  // namespace

absl::Status RefuseThinkingEffort(const ChatOptions& options) {
  if (options.thinking_effort.empty()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("thinking effort ", Quote(options.thinking_effort),
                   ": only the layout of K3 shows one"));
}

absl::StatusOr<ChatMessages> CheckMessages(const Chat& chat) {
  const JsonValue::Array* array = chat.messages.AsArray();
  if (array == nullptr || array->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "messages is ", array == nullptr ? chat.messages.kind() : "empty",
        ", expected an array of messages"));
  }
  if (!chat.tools.is_null() && chat.tools.AsArray() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tools is ", chat.tools.kind(), ", expected an array or null"));
  }
  ChatMessages checked;
  JsonValue::Array messages;
  for (size_t i = 0; i < array->size(); ++i) {
    const JsonValue& message = (*array)[i];
    const JsonValue* role = message.Find("role");
    if (role == nullptr || role->AsString() == nullptr) {
      return Wrong(
          i, message.AsObject() == nullptr ? "is no object" : "has no role");
    }
    const std::string& name = *role->AsString();
    if (std::find(std::begin(kRoles), std::end(kRoles), name) ==
        std::end(kRoles)) {
      return Wrong(i, absl::StrCat("has the unknown role ", Quote(name, 40)));
    }
    double weight = 1;
    JsonValue::Object members;
    for (const JsonMember& member : *message.AsObject()) {
      if (member.key != "weight") {
        members.push_back(member);
        continue;
      }
      if (const int64_t* integer = member.value.AsInt()) {
        weight = static_cast<double>(*integer);
      } else if (const double* number = member.value.AsDouble()) {
        weight = *number;
      } else if (!member.value.is_null()) {
        return Wrong(
            i, absl::StrCat("has a weight that is ", member.value.kind()));
      }
      if (!(weight >= 0 && weight <= 1e6)) {
        return Wrong(i, "has a weight outside of 0 to 1000000");
      }
    }
    if (name == "assistant") checked.last_assistant = static_cast<int32_t>(i);
    checked.roles.push_back(name);
    checked.weights.push_back(static_cast<float>(weight));
    messages.push_back(std::move(members));
  }
  checked.messages = std::move(messages);
  return checked;
}

float WeightOf(const ChatMessages& messages, int32_t message,
               const ChatOptions& options) {
  if (options.loss == ChatLoss::kAll) return 1;
  if (message < 0 || (options.loss == ChatLoss::kLastAssistant &&
                      message != messages.last_assistant)) {
    return 0;
  }
  return messages.weights[static_cast<size_t>(message)];
}

absl::Status EncodePieces(const Tokenizer& tokenizer,
                          absl::Span<const ChatPiece> pieces,
                          absl::Span<const ChatOwner> owners,
                          const ChatMessages& messages,
                          const ChatOptions& options,
                          const absl::flat_hash_set<int32_t>& control,
                          EncodedChat* encoded) {
  return PieceEncoder(tokenizer, owners, messages, options, control, encoded)
      .Run(pieces);
}

void CheckBos(const Tokenizer& tokenizer, EncodedChat* encoded) {
  const std::optional<int32_t> bos = tokenizer.bos_id();
  for (size_t i = 1; bos.has_value() && i < encoded->ids.size(); ++i) {
    if (encoded->ids[i] == *bos && encoded->ids[i - 1] == *bos) {
      encoded->warnings.push_back(absl::StrCat("two ", tokenizer.TokenOf(*bos),
                                               " in a row at token ", i));
      return;
    }
  }
}

}  // namespace espalier::internal
