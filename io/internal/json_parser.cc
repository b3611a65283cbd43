#include "espalier/io/internal/json_parser.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "espalier/io/internal/text.h"

namespace espalier::internal {

namespace {

// nlohmann's SAX interface on one side, ours on the other.
class Adapter final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Adapter(JsonEvents& events) : events_(events) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Keep(events_.Null()); }
  bool boolean(bool value) override { return Keep(events_.Bool(value)); }
  bool number_integer(int64_t value) override {
    return Keep(events_.Negative(value));
  }
  bool number_unsigned(uint64_t value) override {
    return Keep(events_.Unsigned(value));
  }
  bool number_float(double value, const std::string& /*text*/) override {
    return Keep(events_.Double(value));
  }
  bool string(std::string& value) override {
    return Keep(events_.String(value));
  }
  bool binary(nlohmann::json::binary_t& /*value*/) override {
    return Keep(absl::InternalError("binary value in JSON text"));
  }
  bool start_object(size_t /*size*/) override {
    return Enter() && Keep(events_.StartObject());
  }
  bool key(std::string& key) override { return Keep(events_.Key(key)); }
  bool end_object() override {
    --depth_;
    return Keep(events_.EndObject());
  }
  bool start_array(size_t /*size*/) override {
    return Enter() && Keep(events_.StartArray());
  }
  bool end_array() override {
    --depth_;
    return Keep(events_.EndArray());
  }
  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at ...: what was wrong"
    absl::string_view what = error.what();
    const size_t bracket = what.find("] ");
    if (bracket != absl::string_view::npos) what.remove_prefix(bracket + 2);
    return Keep(absl::InvalidArgumentError(absl::StrCat(
        "invalid JSON near byte ", position, ": ", Quote(what, 240))));
  }

 private:
  bool Keep(absl::Status status) {
    if (status.ok()) [[likely]]
      return true;
    status_ = std::move(status);
    return false;
  }
  bool Enter() {
    if (++depth_ <= kMaxJsonDepth) return true;
    return Keep(absl::InvalidArgumentError(
        absl::StrCat("JSON nests deeper than ", kMaxJsonDepth, " levels")));
  }

  JsonEvents& events_;
  absl::Status status_;
  int depth_ = 0;
};

}  // namespace

absl::Status ParseJson(absl::string_view text, JsonEvents& events) {
  if (text.empty()) return absl::InvalidArgumentError("invalid JSON: no text");
  // The library takes both of these for the end or the start of the text.
  if (const void* nul = std::memchr(text.data(), 0, text.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("invalid JSON: NUL at byte ",
                     static_cast<const char*>(nul) - text.data()));
  }
  if (text[0] == '\xEF') {
    return absl::InvalidArgumentError("invalid JSON: byte order mark");
  }
  Adapter adapter(events);
  const bool done =
      nlohmann::json::sax_parse(text.begin(), text.end(), &adapter);
  if (!adapter.status().ok()) return adapter.status();
  if (!done) return absl::InvalidArgumentError("invalid JSON");
  return absl::OkStatus();
}

}  // namespace espalier::internal
