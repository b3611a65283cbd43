#ifndef ESPALIER_IO_UNITS_H_
#define ESPALIER_IO_UNITS_H_

#include <cstdint>
#include <string>

namespace espalier {

// "2.78 T", "104.2 G", "697,024" below a million: four digits at least.
std::string CountText(int64_t count);

// "1.45 TB" (powers of 1000), "512 B".
std::string BytesText(int64_t bytes);

}  // namespace espalier

#endif  // ESPALIER_IO_UNITS_H_
