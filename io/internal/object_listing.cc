#include "espalier/io/internal/object_listing.h"

#include <tinyxml2.h>

#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace espalier::internal {

namespace {

// tinyxml2 compares each attribute of a tag with all before it; a listing has
// one, its namespace.
constexpr int kMaxAttributes = 64;

// Text behind the next `mark`; empty where there is none.
absl::string_view Behind(absl::string_view text, absl::string_view mark) {
  const size_t found = text.find(mark);
  return found == absl::string_view::npos ? absl::string_view()
                                          : text.substr(found + mark.size());
}

// Whether no tag has more than kMaxAttributes. Takes the text apart as tinyxml2
// does, up to where that fails.
bool HasFewAttributes(absl::string_view text) {
  for (text = Behind(text, "<"); !text.empty(); text = Behind(text, "<")) {
    if (absl::ConsumePrefix(&text, "!--")) {
      text = Behind(text, "-->");
    } else if (absl::ConsumePrefix(&text, "![CDATA[")) {
      text = Behind(text, "]]>");
    } else if (absl::ConsumePrefix(&text, "?")) {
      text = Behind(text, "?>");
    } else if (absl::ConsumePrefix(&text, "!")) {
      text = Behind(text, ">");
    } else {
      for (int attributes = 0;; ++attributes) {
        const size_t at = text.find_first_of("\"'>");
        if (at == absl::string_view::npos) return true;
        const absl::string_view mark = text.substr(at, 1);
        text.remove_prefix(at + 1);
        if (mark == ">") break;
        if (attributes == kMaxAttributes) return false;
        text = Behind(text, mark);
      }
    }
  }
  return true;
}

// Text of a child; empty when there is none.
const char* TextOf(const tinyxml2::XMLElement* parent, const char* name) {
  const tinyxml2::XMLElement* child = parent->FirstChildElement(name);
  return child == nullptr || child->GetText() == nullptr ? ""
                                                         : child->GetText();
}

// Of a key that was asked for with encoding-type=url, as forms encode: keys may
// hold what XML cannot.
std::string DecodeKey(absl::string_view text) {
  const auto digit = [&](size_t i) {
    return i < text.size() &&
           absl::ascii_isxdigit(static_cast<unsigned char>(text[i]));
  };
  std::string key;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && digit(i + 1) && digit(i + 2)) {
      key += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      key.push_back(text[i] == '+' ? ' ' : text[i]);
    }
  }
  return key;
}

}  // namespace

absl::StatusOr<int64_t> ParseObjectSize(absl::string_view text,
                                        absl::string_view where) {
  int64_t size = -1;
  if (!absl::SimpleAtoi(text, &size) || size < 0) {
    return absl::DataLossError(
        absl::StrCat(where, ": a size of \"", text, "\""));
  }
  return size;
}

absl::StatusOr<ObjectListing> ParseObjectListing(absl::string_view xml,
                                                 absl::string_view where) {
  const auto bad = [&](absl::string_view what) {
    return absl::DataLossError(absl::StrCat(where, ": the listing has ", what));
  };
  if (!HasFewAttributes(xml)) return bad("a tag of too many attributes");
  tinyxml2::XMLDocument document;
  if (document.Parse(xml.data(), xml.size()) != tinyxml2::XML_SUCCESS) {
    return bad("no valid XML");
  }
  const tinyxml2::XMLElement* root = document.RootElement();
  if (root == nullptr) return bad("no root");
  ObjectListing page;
  const bool encoded = absl::string_view(TextOf(root, "EncodingType")) == "url";
  for (const auto* item = root->FirstChildElement("Contents"); item != nullptr;
       item = item->NextSiblingElement("Contents")) {
    ObjectInfo& object = page.objects.emplace_back();
    object.key = TextOf(item, "Key");
    if (encoded) object.key = DecodeKey(object.key);
    object.etag = TextOf(item, "ETag");
    const auto size = ParseObjectSize(TextOf(item, "Size"), object.key);
    if (!size.ok()) return size.status();
    object.size = *size;
    if (object.key.empty()) return bad("an object without a key");
  }
  if (absl::string_view(TextOf(root, "IsTruncated")) == "true") {
    page.next = TextOf(root, "NextContinuationToken");
    if (page.next.empty()) return bad("no continuation token");
  }
  return page;
}

}  // namespace espalier::internal
