// Arithmetic, as Python has it on 64 bits.
#include <algorithm>
#include <cmath>

#include "espalier/io/internal/jinja_runtime.h"

namespace espalier::internal {

namespace {

constexpr absl::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

absl::string_view Symbol(JinjaOperator op) {
  return kSymbols[static_cast<size_t>(op)];
}

JinjaValue IntPower(JinjaRuntime& runtime, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return runtime.Fail("0 to a negative power");
    return JinjaValue::Float(
        std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t i = 0; i < exponent && base != 1; ++i) {
    if (base == 0 || base == -1) {
      return JinjaValue::Int(base == 0 ? 0 : exponent % 2 == 0 ? 1 : -1);
    }
    if (__builtin_mul_overflow(result, base, &result)) {
      return runtime.Unsupported("an integer beyond 64 bits");
    }
  }
  return JinjaValue::Int(result);
}

JinjaValue CalculateInts(JinjaRuntime& runtime, JinjaOperator op, int64_t a,
                         int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case JinjaOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case JinjaOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case JinjaOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case JinjaOperator::kPower:
      return IntPower(runtime, a, b);
    default:
      if (b == 0) return runtime.Fail("division by zero");
      if (op == JinjaOperator::kDivide) {
        return JinjaValue::Float(static_cast<double>(a) /
                                 static_cast<double>(b));
      }
      if (b == -1) {
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        if (op == JinjaOperator::kModulo) return JinjaValue::Int(0);
        break;
      }
      // Rounded down, the remainder has the divisor's sign.
      result = a / b;
      if (a % b != 0 && (a < 0) != (b < 0)) --result;
      if (op == JinjaOperator::kModulo) result = a - result * b;
  }
  if (overflow) return runtime.Unsupported("an integer beyond 64 bits");
  return JinjaValue::Int(result);
}

JinjaValue CalculateFloats(JinjaRuntime& runtime, JinjaOperator op, double a,
                           double b) {
  switch (op) {
    case JinjaOperator::kAdd:
      return JinjaValue::Float(a + b);
    case JinjaOperator::kSubtract:
      return JinjaValue::Float(a - b);
    case JinjaOperator::kMultiply:
      return JinjaValue::Float(a * b);
    case JinjaOperator::kPower:
      if (a < 0 && std::floor(b) != b) {
        return runtime.Unsupported("a root of a negative number");
      }
      if (a == 0 && b < 0) return runtime.Fail("0 to a negative power");
      return JinjaValue::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) return runtime.Fail("division by zero");
  if (op == JinjaOperator::kDivide) return JinjaValue::Float(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == JinjaOperator::kModulo) {
    return JinjaValue::Float(remainder == 0 ? std::copysign(0.0, b)
                                            : remainder);
  }
  const double quotient = (a - remainder) / b;
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return JinjaValue::Float(quotient == 0 ? std::copysign(0.0, a / b) : floor);
}

JinjaValue Repeat(JinjaRuntime& runtime, const JinjaValue& sequence,
                  int64_t count) {
  const uint64_t times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (sequence.is_string()) {
    const JinjaString& text = sequence.text();
    if (!runtime.Make("*", JinjaRuntime::Product(text.cost(), times))) {
      return {};
    }
    JinjaString out;
    out.Reserve(text.size() * times);
    for (uint64_t i = 0; i < times && !text.empty(); ++i) out.Append(text);
    return JinjaValue::String(std::move(out));
  }
  std::vector<JinjaValue> items;
  const auto& once = sequence.items();
  const uint64_t size = JinjaRuntime::Product(once.size(), times);
  if (!runtime.MakeItems("*", size) ||
      !runtime.Spend(static_cast<int64_t>(size))) {
    return {};
  }
  items.reserve(size);
  while (items.size() < size) {
    items.insert(items.end(), once.begin(), once.end());
  }
  return sequence.is(JinjaKind::kList) ? JinjaValue::List(std::move(items))
                                       : JinjaValue::Tuple(std::move(items));
}

JinjaValue Join(JinjaRuntime& runtime, const JinjaValue& left,
                const JinjaValue& right) {
  if (left.is_string()) {
    if (!runtime.Make("+", left.text().cost() + right.text().cost())) return {};
    JinjaString out;
    out.Reserve(left.text().size() + right.text().size());
    out.Append(left.text());
    out.Append(right.text());
    return JinjaValue::String(std::move(out));
  }
  const size_t size = left.items().size() + right.items().size();
  if (!runtime.Spend(static_cast<int64_t>(size)) ||
      !runtime.MakeItems("+", size)) {
    return {};
  }
  std::vector<JinjaValue> items;
  items.reserve(size);
  items.insert(items.end(), left.items().begin(), left.items().end());
  items.insert(items.end(), right.items().begin(), right.items().end());
  return left.is(JinjaKind::kList) ? JinjaValue::List(std::move(items))
                                   : JinjaValue::Tuple(std::move(items));
}

bool IsSequence(const JinjaValue& value) {
  return value.is_string() || value.is(JinjaKind::kList) ||
         value.is(JinjaKind::kTuple);
}

}  // namespace

JinjaValue Calculate(JinjaRuntime& runtime, JinjaOperator op,
                     const JinjaValue& left, const JinjaValue& right) {
  if (!runtime.Spend()) return {};
  if (op == JinjaOperator::kModulo && left.is_string()) {
    return FormatPercent(runtime, left.text(), right);
  }
  if (left.is_integral() && right.is_integral()) {
    return CalculateInts(runtime, op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return CalculateFloats(runtime, op, left.number(), right.number());
  }
  if (op == JinjaOperator::kAdd && left.kind() == right.kind() &&
      IsSequence(left)) {
    return Join(runtime, left, right);
  }
  if (op == JinjaOperator::kMultiply && IsSequence(left) &&
      right.is_integral()) {
    return Repeat(runtime, left, right.integer());
  }
  if (op == JinjaOperator::kMultiply && left.is_integral() &&
      IsSequence(right)) {
    return Repeat(runtime, right, left.integer());
  }
  if (!runtime.IsDefined(left) || !runtime.IsDefined(right)) return {};
  return runtime.Fail("there is no ", left.type_name(), " ", Symbol(op), " ",
                      right.type_name());
}

JinjaValue Negate(JinjaRuntime& runtime, const JinjaValue& value) {
  if (value.is_integral()) {
    return CalculateInts(runtime, JinjaOperator::kSubtract, 0, value.integer());
  }
  if (value.is_number()) return JinjaValue::Float(-value.number());
  if (!runtime.IsDefined(value)) return {};
  return runtime.Fail("a ", value.type_name(), " has no negative");
}

}  // namespace espalier::internal
