// How values become text: str, repr, json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

#include "espalier/io/internal/jinja_runtime.h"
#include "espalier/io/internal/text.h"
#include "espalier/io/internal/utf8.h"

namespace espalier::internal {

namespace {

// A prefix and hexadecimal digits.
std::string Hex(absl::string_view prefix, uint32_t code, int digits) {
  std::string text(prefix);
  AppendHex(code, digits, &text);
  return text;
}

// repr of a str: single quotes unless only the other kind occurs.
void AppendRepr(const JinjaString& text, JinjaTextMaker* out) {
  const absl::string_view bytes = text.bytes();
  const bool double_quotes = bytes.find('\'') != absl::string_view::npos &&
                             bytes.find('"') == absl::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out->Append(std::string(1, quote), text.MarkAt(0));
  size_t copied = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Char c = DecodeUtf8(bytes, at);
    std::string escaped;
    if (c.code == static_cast<uint8_t>(quote) || c.code == '\\') {
      escaped = {'\\', static_cast<char>(c.code)};
    } else if (c.code == '\n') {
      escaped = "\\n";
    } else if (c.code == '\r') {
      escaped = "\\r";
    } else if (c.code == '\t') {
      escaped = "\\t";
    } else if (!IsPythonPrintable(c.code)) {
      if (c.code < 0x100) {
        escaped = Hex("\\x", c.code, 2);
      } else if (c.code < 0x10000) {
        escaped = Hex("\\u", c.code, 4);
      } else {
        escaped = Hex("\\U", c.code, 8);
      }
    }
    if (!escaped.empty()) {
      out->Append(text, copied, at);
      out->Append(escaped, text.MarkAt(at));
      copied = at + c.bytes;
    }
    at += c.bytes;
  }
  out->Append(text, copied, bytes.size());
  out->Append(std::string(1, quote), text.MarkAt(0));
}

class ReprWriter {
 public:
  explicit ReprWriter(JinjaRuntime& runtime)
      : runtime_(runtime), out_(runtime, "the text of a value") {}

  void Write(const JinjaValue& value) {
    if (!runtime_.Spend()) return;
    switch (value.kind()) {
      case JinjaKind::kString:
        AppendRepr(value.text(), &out_);
        break;
      case JinjaKind::kUndefined:
        Put("Undefined");
        break;
      case JinjaKind::kList:
        WriteItems("[", value, "]");
        break;
      case JinjaKind::kTuple:
        WriteItems("(", value, value.items().size() == 1 ? ",)" : ")");
        break;
      case JinjaKind::kDictView: {
        const auto& view = value.object<JinjaListObject>();
        Put(absl::StrCat(view.view_name, "("));
        WriteItems("[", value, "]");
        Put(")");
        break;
      }
      case JinjaKind::kDict:
        WriteDict(value.object<JinjaDictObject>());
        break;
      case JinjaKind::kRange: {
        const auto& range = value.object<JinjaRangeObject>();
        Put(absl::StrCat("range(", range.start, ", ", range.stop,
                         range.step == 1 ? "" : absl::StrCat(", ", range.step),
                         ")"));
        break;
      }
      case JinjaKind::kIterator:
      case JinjaKind::kNamespace:
      case JinjaKind::kLoop:
      case JinjaKind::kFunction:
        runtime_.Unsupported("the text of a ", value.type_name());
        break;
      default:
        WriteScalar(value);
    }
  }

  JinjaString Take() { return out_.Take(); }

 private:
  void Put(absl::string_view text) { out_.Append(text, mark_); }
  void WriteScalar(const JinjaValue& value) {
    switch (value.kind()) {
      case JinjaKind::kNone:
        return Put("None");
      case JinjaKind::kBool:
        return Put(value.integer() != 0 ? "True" : "False");
      case JinjaKind::kInt:
        return Put(absl::StrCat(value.integer()));
      default:
        return Put(FloatRepr(value.number()));
    }
  }
  void WriteItems(absl::string_view open, const JinjaValue& value,
                  absl::string_view close) {
    const JinjaMark before = mark_;
    mark_ = value.object<JinjaListObject>().mark;
    Put(open);
    for (size_t i = 0; i < value.items().size() && !runtime_.failed(); ++i) {
      if (i > 0) Put(", ");
      Write(value.items()[i]);
    }
    Put(close);
    mark_ = before;
  }
  void WriteDict(const JinjaDictObject& dict) {
    const JinjaMark before = mark_;
    mark_ = dict.mark;
    Put("{");
    bool first = true;
    for (const auto& [key, value] : dict.members()) {
      if (runtime_.failed()) break;
      if (!first) Put(", ");
      first = false;
      Write(key);
      Put(": ");
      Write(value);
    }
    Put("}");
    mark_ = before;
  }

  JinjaRuntime& runtime_;
  JinjaTextMaker out_;
  JinjaMark mark_;  // of what stands between the values
};

// What stands for a character inside a JSON text; empty: itself.
std::string JsonEscape(uint32_t code, bool ensure_ascii) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    default:
      break;
  }
  if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
    return Hex("\\u", code, 4);
  }
  if (!ensure_ascii || code < 0x10000) return "";
  const uint32_t pair = code - 0x10000;
  return absl::StrCat(Hex("\\u", 0xD800 + (pair >> 10), 4),
                      Hex("\\u", 0xDC00 + (pair & 0x3FF), 4));
}

std::string JsonNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return FloatRepr(value);
}

class JsonWriter {
 public:
  JsonWriter(JinjaRuntime& runtime, const JinjaJsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime, "tojson") {}

  void Write(const JinjaValue& value, int level) {
    if (!runtime_.Spend()) return;
    switch (value.kind()) {
      case JinjaKind::kNone:
        return Put("null");
      case JinjaKind::kBool:
        return Put(value.integer() != 0 ? "true" : "false");
      case JinjaKind::kInt:
        return Put(absl::StrCat(value.integer()));
      case JinjaKind::kFloat:
        return Put(JsonNumber(value.number()));
      case JinjaKind::kString:
        return WriteText(value.text());
      case JinjaKind::kList:
      case JinjaKind::kTuple:
        return WriteList(value.object<JinjaListObject>(), level);
      case JinjaKind::kDict:
        return WriteDict(value.object<JinjaDictObject>(), level);
      case JinjaKind::kUndefined:
        runtime_.Fail("tojson: ", value.reason());
        return;
      default:
        runtime_.Fail("tojson: a ", value.type_name(), " has no JSON");
    }
  }

  JinjaString Take() { return out_.Take(); }

 private:
  void Put(absl::string_view text) { out_.Append(text, mark_); }
  void WriteText(const JinjaString& text) {
    // What lies between two pieces of different origin belongs to the first.
    out_.Append("\"", text.MarkAt(0));
    const std::string& bytes = text.bytes();
    size_t copied = 0;
    for (size_t at = 0; at < bytes.size();) {
      const Utf8Char c = DecodeUtf8(bytes, at);
      const std::string escaped = JsonEscape(c.code, style_.ensure_ascii);
      if (!escaped.empty()) {
        out_.Append(text, copied, at);
        out_.Append(escaped, text.MarkAt(at));
        copied = at + c.bytes;
      }
      at += c.bytes;
    }
    out_.Append(text, copied, bytes.size());
    out_.Append("\"", text.MarkAt(0));
  }
  void NewLine(int level) {
    if (!style_.pretty) return;
    Put("\n");
    for (int i = 0; i < level; ++i) Put(style_.indent);
  }
  void WriteList(const JinjaListObject& list, int level) {
    const JinjaMark before = mark_;
    mark_ = list.mark;
    Put("[");
    for (size_t i = 0; i < list.items.size() && !runtime_.failed(); ++i) {
      if (i > 0) Put(style_.item_separator);
      NewLine(level + 1);
      Write(list.items[i], level + 1);
    }
    if (!list.items.empty()) NewLine(level);
    Put("]");
    mark_ = before;
  }
  void WriteDict(const JinjaDictObject& dict, int level) {
    const JinjaMark before = mark_;
    mark_ = dict.mark;
    std::vector<const JinjaDictObject::Member*> members;
    for (const JinjaDictObject::Member& member : dict.members()) {
      members.push_back(&member);
    }
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [this](const JinjaDictObject::Member* a,
                              const JinjaDictObject::Member* b) {
                         return Compare(runtime_, a->first, b->first) < 0;
                       });
    }
    Put("{");
    bool first = true;
    for (const JinjaDictObject::Member* member : members) {
      if (runtime_.failed()) break;
      if (!first) Put(style_.item_separator);
      first = false;
      NewLine(level + 1);
      WriteKey(member->first);
      Put(style_.key_separator);
      Write(member->second, level + 1);
    }
    if (!members.empty()) NewLine(level);
    Put("}");
    mark_ = before;
  }
  void WriteKey(const JinjaValue& key) {
    if (key.is_string()) return WriteText(key.text());
    Put("\"");
    Write(key, 0);
    Put("\"");
  }

  JinjaRuntime& runtime_;
  const JinjaJsonStyle& style_;
  JinjaTextMaker out_;
  JinjaMark mark_;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits that read back, as d.ddde[+-]dd.
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                 std::chars_format::scientific);
  absl::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  if (digits.size() > 1) digits.erase(1, 1);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    absl::StrAppend(&out, digits.substr(0, 1),
                    count > 1 ? absl::StrCat(".", digits.substr(1)) : "", "e",
                    exponent < 0 ? "-" : "+",
                    std::abs(exponent) < 10 ? "0" : "", std::abs(exponent));
  } else if (exponent < 0) {
    absl::StrAppend(&out, "0.",
                    std::string(static_cast<size_t>(-exponent - 1), '0'),
                    digits);
  } else if (exponent + 1 >= count) {
    absl::StrAppend(&out, digits,
                    std::string(static_cast<size_t>(exponent + 1 - count), '0'),
                    ".0");
  } else {
    const size_t point = static_cast<size_t>(exponent) + 1;
    absl::StrAppend(&out, digits.substr(0, point), ".", digits.substr(point));
  }
  return out;
}

JinjaString ToStr(JinjaRuntime& runtime, const JinjaValue& value) {
  if (value.is_string()) {
    const bool room = runtime.Make("the text of a value", value.text().cost());
    return room ? value.text() : JinjaString();
  }
  if (value.is_undefined()) return JinjaString();
  return ToRepr(runtime, value);
}

JinjaString ToRepr(JinjaRuntime& runtime, const JinjaValue& value) {
  ReprWriter writer(runtime);
  writer.Write(value);
  return writer.Take();
}

JinjaString ToJson(JinjaRuntime& runtime, const JinjaValue& value,
                   const JinjaJsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.Write(value, 0);
  return writer.Take();
}

}  // namespace espalier::internal
