#ifndef ESPALIER_IO_INTERNAL_JINJA_UNICODE_TABLES_H_
#define ESPALIER_IO_INTERNAL_JINJA_UNICODE_TABLES_H_

#include <cstdint>

namespace espalier::internal {

struct JinjaCodeRange {
  uint32_t first;
  uint32_t last;
};

// Every step-th code from first to last maps to code + delta.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint8_t step;
  int32_t delta;
};

// A code that maps to several; 0 behind the last.
struct CaseExpansion {
  uint32_t code;
  uint32_t mapped[3];
};

// All ascending.
extern const CaseRange kUpper[];
extern const int kNumUpper;
extern const CaseExpansion kUpperMultiple[];
extern const int kNumUpperMultiple;
extern const CaseRange kLower[];
extern const int kNumLower;
extern const CaseExpansion kLowerMultiple[];
extern const int kNumLowerMultiple;
extern const CaseRange kTitle[];
extern const int kNumTitle;
extern const CaseExpansion kTitleMultiple[];
extern const int kNumTitleMultiple;
extern const JinjaCodeRange kCased[];
extern const int kNumCased;
extern const JinjaCodeRange kCaseIgnorable[];
extern const int kNumCaseIgnorable;
extern const JinjaCodeRange kPrintable[];
extern const int kNumPrintable;

}  // namespace espalier::internal

#endif  // ESPALIER_IO_INTERNAL_JINJA_UNICODE_TABLES_H_
