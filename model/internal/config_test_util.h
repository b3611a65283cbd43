#ifndef ESPALIER_MODEL_INTERNAL_CONFIG_TEST_UTIL_H_
#define ESPALIER_MODEL_INTERNAL_CONFIG_TEST_UTIL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

#include "espalier/io/json.h"
#include "espalier/io/json_object.h"
#include "espalier/model/decoder_config.h"

namespace espalier::test {

// The config.json of a small decoder of 4 layers, with the members of `change`
// (a JSON object) added or in place of its own.
inline JsonObject DecoderJson(absl::string_view change) {
  auto json = ParseJsonText(
      R"({"vocab_size":32,"hidden_size":8,"intermediate_size":12,
          "num_hidden_layers":4,"num_attention_heads":2,"head_dim":4})");
  const auto members = ParseJsonText(change);
  EXPECT_TRUE(json.ok() && members.ok()) << change;
  for (const JsonMember& member : *members->AsObject()) {
    json->Set(member.key, member.value);
  }
  auto object = JsonObject::From(*std::move(json), "config.json");
  EXPECT_TRUE(object.ok()) << object.status();
  return *std::move(object);
}

using ParseFn = absl::StatusOr<DecoderConfig>(const JsonObject& json);

// The message that refuses it; "" where it is taken.
inline std::string Refusal(ParseFn& parse, absl::string_view change) {
  return std::string(parse(DecoderJson(change)).status().message());
}

inline DecoderConfig Parsed(ParseFn& parse, absl::string_view change) {
  auto config = parse(DecoderJson(change));
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *std::move(config) : DecoderConfig();
}

}  // namespace espalier::test

#endif  // ESPALIER_MODEL_INTERNAL_CONFIG_TEST_UTIL_H_
