#ifndef ESPALIER_IO_INTERNAL_JINJA_VALUE_H_
#define ESPALIER_IO_INTERNAL_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

#include "espalier/io/internal/jinja_string.h"

namespace espalier::internal {

// The classes of objects that templates meet, named by their Python types.
enum class JinjaKind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kIterator,  // a generator: iterates once, has no length
  kDictView,  // keys(), values(), items()
  kNamespace,
  kLoop,
  kFunction,
};

struct JinjaObject {
  virtual ~JinjaObject() = default;
  // How deep values nest in this one: bounds the recursion of its printing and
  // of its end.
  int depth = 0;
};

// A value of a running template; copies share what they refer to, which only
// namespaces, loops and iterators change.
class JinjaValue {
 public:
  JinjaValue() = default;  // undefined, without a reason
  static JinjaValue Undefined(std::string reason);
  static JinjaValue None();
  static JinjaValue Bool(bool value);
  static JinjaValue Int(int64_t value);
  static JinjaValue Float(double value);
  static JinjaValue String(JinjaString text);
  static JinjaValue String(absl::string_view text);  // the template's own
  static JinjaValue List(std::vector<JinjaValue> items);
  static JinjaValue Tuple(std::vector<JinjaValue> items);
  static JinjaValue Iterator(std::vector<JinjaValue> items);
  static JinjaValue DictView(absl::string_view name,
                             std::vector<JinjaValue> items);
  template <typename T>
  static JinjaValue Of(JinjaKind kind, std::shared_ptr<T> object) {
    JinjaValue value;
    value.kind_ = kind;
    value.object_ = std::move(object);
    return value;
  }

  JinjaKind kind() const { return kind_; }
  bool is(JinjaKind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == JinjaKind::kUndefined; }
  bool is_string() const { return kind_ == JinjaKind::kString; }
  // bool counts as int, as in Python.
  bool is_integral() const {
    return kind_ == JinjaKind::kInt || kind_ == JinjaKind::kBool;
  }
  bool is_number() const { return is_integral() || kind_ == JinjaKind::kFloat; }

  int64_t integer() const { return integer_; }  // kInt, kBool
  double number() const {                       // is_number()
    return kind_ == JinjaKind::kFloat ? number_ : static_cast<double>(integer_);
  }
  const JinjaString& text() const;               // kString
  const std::vector<JinjaValue>& items() const;  // kList, kTuple, kDictView
  std::string reason() const;                    // kUndefined
  template <typename T>
  T& object() const {
    return static_cast<T&>(*object_);
  }
  const JinjaObject* identity() const { return object_.get(); }

  // "str", "dict", ... as Python names the type.
  absl::string_view type_name() const;
  int depth() const { return object_ == nullptr ? 0 : object_->depth; }

 private:
  JinjaKind kind_ = JinjaKind::kUndefined;
  union {
    int64_t integer_ = 0;
    double number_;
  };
  std::shared_ptr<JinjaObject> object_;
};

struct JinjaTextObject final : JinjaObject {
  JinjaString text;
};

struct JinjaListObject final : JinjaObject {
  std::vector<JinjaValue> items;
  JinjaMark mark;               // of what it is data of
  absl::string_view view_name;  // kDictView: "dict_keys", ...
};

struct JinjaIteratorObject final : JinjaObject {
  std::vector<JinjaValue> items;
  size_t next = 0;
};

struct JinjaRangeObject final : JinjaObject {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;

  int64_t size() const;
};

// Members in the order of their first appearance. Keys are hashable values;
// those that are strings are found in constant time.
class JinjaDictObject final : public JinjaObject {
 public:
  using Member = std::pair<JinjaValue, JinjaValue>;

  const std::vector<Member>& members() const { return members_; }
  const JinjaValue* Find(absl::string_view key) const;
  // Of any hashable key; 1, 1.0 and true are the same.
  const JinjaValue* Find(const JinjaValue& key) const;
  void Set(const JinjaValue& key, JinjaValue value);
  JinjaMark mark;
  int32_t item = -1;  // number of the element it is, for Origin::kItems

 private:
  std::vector<Member> members_;
  absl::flat_hash_map<std::string, size_t> by_name_;
};

struct JinjaNamespaceObject final : JinjaObject {
  absl::flat_hash_map<std::string, JinjaValue> members;
};

bool IsTrue(const JinjaValue& value);
// Whether the value may be a key: Python's hashable scalars. Tuples may not,
// here.
bool IsKey(const JinjaValue& value);
// Equality of such values.
bool AreSameKey(const JinjaValue& left, const JinjaValue& right);
// Python's "is", with equal small constants the same.
bool AreSame(const JinjaValue& left, const JinjaValue& right);

// The data of a variable; strings below members named in template_members are
// the template's where they are letters and "_".
JinjaValue ToJinja(const JinjaVariable& variable);

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_VALUE_H_
