#ifndef ESPALIER_TRAIN_INTERNAL_DATA_CHOICES_H_
#define ESPALIER_TRAIN_INTERNAL_DATA_CHOICES_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

#include "espalier/io/chat.h"
#include "espalier/io/data_stream.h"
#include "espalier/io/record_file.h"

namespace espalier {

// What the names in a DataConfig mean to io.
template <typename T>
struct Choice {
  absl::string_view name;
  T value;
};

inline constexpr Choice<TextBoundary> kBoundaries[] = {
    {"blank-line", TextBoundary::kBlankLine},
    {"separator", TextBoundary::kSeparator},
    {"none", TextBoundary::kNone}};
inline constexpr Choice<ChatLoss> kLosses[] = {
    {"assistant", ChatLoss::kAssistant},
    {"last", ChatLoss::kLastAssistant},
    {"all", ChatLoss::kAll}};
inline constexpr Choice<ChatFormat> kLayouts[] = {
    {"auto", ChatFormat::kAuto},
    {"template", ChatFormat::kTemplate},
    {"kimi-linear", ChatFormat::kKimiLinear},
    {"kimi-k3", ChatFormat::kKimiK3}};
inline constexpr Choice<const char*> kThinkingEfforts[] = {
    {"auto", ""},     {"low", "low"}, {"medium", "medium"},
    {"high", "high"}, {"max", "max"}, {"none", "none"}};
inline constexpr Choice<LongSamplePolicy> kLongSamples[] = {
    {"split", LongSamplePolicy::kSplit},
    {"truncate", LongSamplePolicy::kTruncate},
    {"drop", LongSamplePolicy::kDrop}};

// Of a name that Validate accepts; the first value else.
template <typename T, size_t kSize>
T ValueOf(const Choice<T> (&choices)[kSize], const std::string& name) {
  for (const Choice<T>& choice : choices) {
    if (choice.name == name) return choice.value;
  }
  return choices[0].value;
}

}  // namespace espalier

#endif  // ESPALIER_TRAIN_INTERNAL_DATA_CHOICES_H_
