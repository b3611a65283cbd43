#ifndef ESPALIER_RUNTIME_PACKED_LANES_H_
#define ESPALIER_RUNTIME_PACKED_LANES_H_

#include <cstdint>

#include "espalier/runtime/ceil_div.h"
#include "espalier/runtime/packed_weight.h"

// Where what stands in PackedLayout::kLanes: the words of
// docs/formats/packed-layouts.md as code. `lane` is an output feature's place
// in its strip, `unit` a position along in.
namespace espalier {

// The lines of one strip: unit u's is first + u * width.
struct StripLines {
  int64_t first;
  int64_t width;  // strips of the panel
};
constexpr StripLines LinesOf(int64_t out, int64_t strip, int64_t num_units) {
  const int64_t strips = CeilDiv(out, kPackedStrip);
  const int64_t panel = strip / kPanelStrips * kPanelStrips;
  const int64_t width = strips - panel;
  return {panel * num_units + strip - panel,
          width < kPanelStrips ? width : kPanelStrips};
}

// kInt4 and kFp8Block: byte in a line of column i % 4.
constexpr int64_t LaneByte(int64_t lane, int64_t i) {
  return lane / 4 * 16 + i / 2 * 8 + lane % 4 * 2 + i % 2;
}

// kInt4: the code, value + 8, as sign and magnitude % 8; and back.
constexpr uint8_t Int4ToLane(uint32_t code) {
  return static_cast<uint8_t>(code >= 8 ? code - 8 : 8 | ((8 - code) & 7));
}
constexpr uint8_t Int4FromLane(uint32_t lane_code) {
  return static_cast<uint8_t>(lane_code < 8 ? lane_code + 8
                                            : (16 - lane_code) & 7);
}

// kMxfp4: first bit of column i % 8 in the lane's word; and a word in the order
// of rows, column i from bit 4 i on, in that order.
constexpr int LaneShift(int64_t i) {
  return static_cast<int>(4 * (i / 2) + 16 * (i % 2));
}
constexpr uint32_t SplitNibbles(uint32_t word) {
  uint32_t even = word & 0x0f0f0f0fu;
  uint32_t odd = (word >> 4) & 0x0f0f0f0fu;
  even = (even | even >> 4) & 0x00ff00ffu;
  odd = (odd | odd >> 4) & 0x00ff00ffu;
  return ((even | even >> 8) & 0xffffu) | (odd | odd >> 8) << 16;
}

}  // namespace espalier

#endif  // ESPALIER_RUNTIME_PACKED_LANES_H_
