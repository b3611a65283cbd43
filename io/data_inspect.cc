#include "espalier/io/data_inspect.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "espalier/io/internal/sample_cut.h"

namespace espalier {

namespace {

constexpr int kBarWidth = 40;

void Count(const EncodedSample& sample, const internal::CutOptions& options,
           DataInspection* out) {
  const auto size = static_cast<int64_t>(sample.ids.size());
  out->max_tokens = std::max(out->max_tokens, size);
  if (size > 0) {
    ++out->lengths[static_cast<size_t>(
        absl::bit_width(static_cast<uint64_t>(size)) - 1)];
  }
  std::vector<Piece> pieces;
  internal::CutSample(sample, 0, 0, options, &pieces, &out->report);
  for (const Piece& piece : pieces) {
    for (const float weight : piece.weights) {
      out->sum_weights += static_cast<double>(weight);
    }
  }
}

std::string WithCommas(int64_t value) {
  const std::string digits = absl::StrCat(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

// The token as text on one line.
std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  std::string text;
  for (const char c : tokenizer.Decode({id})) {
    if (c == '\n') {
      absl::StrAppend(&text, "\\n");
    } else if (c == '\r') {
      absl::StrAppend(&text, "\\r");
    } else if (c == '\t') {
      absl::StrAppend(&text, "\\t");
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      text.push_back(c);
    }
  }
  return text.empty() ? tokenizer.TokenOf(id) : text;
}

std::string Bar(int64_t count, int64_t largest) {
  const auto width = static_cast<size_t>(
      largest == 0 ? 0 : (count * kBarWidth + largest - 1) / largest);
  return std::string(width, '#');
}

void AppendTotals(const DataInspection& data, std::string* out) {
  const DataReport& report = data.report;
  const auto line = [out](const char* name, int64_t value,
                          const std::string& note = "") {
    absl::StrAppend(out, absl::StrFormat("%-15s", name), WithCommas(value),
                    note, "\n");
  };
  line("records", data.num_records);
  line("  bad", report.num_bad_records);
  line("  duplicates", data.num_duplicates);
  line("samples", report.num_samples);
  line("  too long", report.num_long_samples);
  line("  dropped", report.num_dropped_samples);
  line("  untrained", report.num_untrained_samples,
       "  (no token to predict; left out)");
  line("tokens", report.num_tokens,
       absl::StrCat("  (longest sample ", WithCommas(data.max_tokens), ")"));
  line("  kept", report.num_kept_tokens);
  line("    trained", report.num_trained_tokens,
       absl::StrFormat("  (weights sum to %.10g)", data.sum_weights));
  line("  truncated", report.num_truncated_tokens);
  line("  dropped", report.num_dropped_tokens);
  line("  untrained", report.num_untrained_tokens);
}

std::string Escape(absl::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        absl::StrAppend(&out, "&amp;");
        break;
      case '<':
        absl::StrAppend(&out, "&lt;");
        break;
      case '>':
        absl::StrAppend(&out, "&gt;");
        break;
      case '"':
        absl::StrAppend(&out, "&quot;");
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

TokenRole RoleAt(const EncodedSample& sample, size_t i) {
  return i < sample.roles.size() ? sample.roles[i] : TokenRole::kText;
}

constexpr absl::string_view kStyle =
    "<style>\nbody{font:15px/1.7 monospace;margin:2em auto;max-width:70em;"
    "padding:0 "
    "1em}\n.t{border-radius:2px;margin-right:1px;white-space:pre-wrap}\n"
    ".u{color:#777}\n.text{background:#e3efe0}.prompt{background:#e6e6e6}"
    ".completion{background:#cdeac5}.system{background:#eadcf4}"
    ".user{background:#dbe7f7}.assistant{background:#cdeac5}"
    ".tool{background:#f8e6c8}.control{background:#f6d3d3}\n"
    ".text.u,.assistant.u,.completion.u{background:#f0f0f0}\n"
    "table{border-collapse:collapse}td{padding:0 1em 0 0}"
    "td.n{text-align:right}\n</style>\n";

}  // namespace

absl::StatusOr<DataInspection> InspectData(absl::Span<const DataGroup> groups,
                                           const DataInspectOptions& options) {
  DataInspection out;
  const internal::CutOptions cut{options.max_sample_tokens,
                                 options.long_samples};
  absl::flat_hash_set<uint64_t> seen;
  for (const DataGroup& group : groups) {
    for (const auto& source : group.sources) {
      for (int64_t i = 0; i < source->size(); ++i) {
        ++out.num_records;
        auto sample = source->Get(i);
        if (!sample.ok()) {
          if (!absl::IsInvalidArgument(sample.status())) {
            return sample.status();
          }
          if (out.report.num_bad_records++ == 0) {
            out.report.first_bad_record =
                std::string(sample.status().message());
          }
          if (static_cast<int64_t>(out.errors.size()) < options.max_errors) {
            out.errors.emplace_back(sample.status().message());
          }
          continue;
        }
        out.num_duplicates += !seen.insert(sample->content_hash).second;
        Count(*sample, cut, &out);
        if (static_cast<int64_t>(out.shown.size()) < options.num_shown) {
          out.shown.push_back({source->Describe(), i, *std::move(sample)});
        }
      }
    }
  }
  return out;
}

std::string InspectionText(const DataInspection& data,
                           const Tokenizer& tokenizer, bool color) {
  std::string out;
  for (const DataInspection::Shown& shown : data.shown) {
    absl::StrAppend(&out, "-- ", shown.source, "; sample ", shown.index, ", ",
                    shown.sample.ids.size(), " tokens\n");
    const TokenRole* role = nullptr;
    for (size_t i = 0; i < shown.sample.ids.size(); ++i) {
      const float weight = i == 0 ? 0 : shown.sample.weights[i];
      if (!shown.sample.roles.empty() &&
          (role == nullptr || *role != shown.sample.roles[i])) {
        role = &shown.sample.roles[i];
        absl::StrAppend(&out, i == 0 ? "" : "\n", "[", ToString(*role), "] ");
      }
      const std::string text = TokenText(tokenizer, shown.sample.ids[i]);
      if (!color) {
        absl::StrAppend(&out, weight > 0 ? "{" : "", text,
                        weight > 0 ? "}" : "", weight > 0 ? "" : "|");
      } else {
        absl::StrAppend(
            &out,
            weight > 0 ? (weight < 1 ? "\033[32m" : "\033[1;32m") : "\033[2m",
            i % 2 == 1 ? "\033[4m" : "", text, "\033[0m");
      }
    }
    absl::StrAppend(&out, "\n");
  }
  if (!data.shown.empty() && !color) {
    absl::StrAppend(&out, "({trained} tokens, and not trained| ones)\n");
  }
  absl::StrAppend(&out, data.shown.empty() ? "" : "\n");
  AppendTotals(data, &out);
  const int64_t largest =
      *std::max_element(data.lengths.begin(), data.lengths.end());
  for (size_t i = 0; i < data.lengths.size(); ++i) {
    if (data.lengths[i] == 0) continue;
    absl::StrAppend(&out,
                    absl::StrFormat("%9d tokens and up %10s  ", int64_t{1} << i,
                                    WithCommas(data.lengths[i])),
                    Bar(data.lengths[i], largest), "\n");
  }
  for (const std::string& error : data.errors) {
    absl::StrAppend(&out, "bad: ", error, "\n");
  }
  const int64_t unnamed =
      data.report.num_bad_records - static_cast<int64_t>(data.errors.size());
  if (unnamed > 0) absl::StrAppend(&out, "and ", unnamed, " more\n");
  return out;
}

std::string InspectionHtml(const DataInspection& data,
                           const Tokenizer& tokenizer) {
  std::string out = absl::StrCat(
      "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Training "
      "data</title>\n",
      kStyle);
  std::string totals;
  AppendTotals(data, &totals);
  absl::StrAppend(&out, "<pre>", Escape(totals), "</pre>\n<table>\n");
  const int64_t largest =
      *std::max_element(data.lengths.begin(), data.lengths.end());
  for (size_t i = 0; i < data.lengths.size(); ++i) {
    if (data.lengths[i] == 0) continue;
    absl::StrAppend(&out, "<tr><td class=\"n\">", int64_t{1} << i,
                    " tokens and up<td class=\"n\">",
                    WithCommas(data.lengths[i]), "<td>",
                    Bar(data.lengths[i], largest), "\n");
  }
  absl::StrAppend(&out, "</table>\n");
  for (const std::string& error : data.errors) {
    absl::StrAppend(&out, "<p class=\"bad\">", Escape(error), "</p>\n");
  }
  for (const DataInspection::Shown& shown : data.shown) {
    absl::StrAppend(&out, "<h3>", Escape(shown.source), "; sample ",
                    shown.index, "</h3>\n<p>");
    for (size_t i = 0; i < shown.sample.ids.size(); ++i) {
      const float weight = i == 0 ? 0 : shown.sample.weights[i];
      const int32_t id = shown.sample.ids[i];
      const absl::string_view role = ToString(RoleAt(shown.sample, i));
      absl::StrAppend(&out, "<span class=\"t ", role, weight > 0 ? "" : " u",
                      "\" title=\"", id, " ", role, " weight ", weight, "\">",
                      Escape(TokenText(tokenizer, id)), "</span>");
    }
    absl::StrAppend(&out, "</p>\n");
  }
  return out;
}

JsonValue InspectionJson(const DataInspection& data,
                         const Tokenizer& tokenizer) {
  JsonValue out;
  out.Set("num_records", data.num_records);
  out.Set("num_duplicates", data.num_duplicates);
  out.Set("report", ToJson(data.report));
  out.Set("sum_weights", data.sum_weights);
  out.Set("max_tokens", data.max_tokens);
  JsonValue::Array errors, lengths, samples;
  for (const std::string& error : data.errors) errors.emplace_back(error);
  for (size_t i = 0; i < data.lengths.size(); ++i) {
    if (data.lengths[i] == 0) continue;
    lengths.push_back(JsonValue::Array{int64_t{1} << i, data.lengths[i]});
  }
  for (const DataInspection::Shown& shown : data.shown) {
    JsonValue::Array ids, weights, roles, texts;
    for (size_t i = 0; i < shown.sample.ids.size(); ++i) {
      ids.emplace_back(int64_t{shown.sample.ids[i]});
      weights.emplace_back(
          i == 0 ? 0.0 : static_cast<double>(shown.sample.weights[i]));
      roles.emplace_back(ToString(RoleAt(shown.sample, i)));
      texts.emplace_back(TokenText(tokenizer, shown.sample.ids[i]));
    }
    JsonValue sample;
    sample.Set("source", shown.source);
    sample.Set("index", shown.index);
    sample.Set("ids", JsonValue(std::move(ids)));
    sample.Set("weights", JsonValue(std::move(weights)));
    sample.Set("roles", JsonValue(std::move(roles)));
    sample.Set("texts", JsonValue(std::move(texts)));
    samples.push_back(std::move(sample));
  }
  out.Set("errors", JsonValue(std::move(errors)));
  out.Set("lengths", JsonValue(std::move(lengths)));
  out.Set("samples", JsonValue(std::move(samples)));
  return out;
}

}  // namespace espalier
