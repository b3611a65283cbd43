// The 6x16 tile of the sets with 16 or 32 short registers, f32 words only.
// Included after pack-inl.h and run-inl.h.

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small
// NOLINTBEGIN(misc-definitions-in-headers): text of one unit, not a header

constexpr int kPitch = 8;

void PackAF32(const PackArgs& args) {
  if (args.operand.dtype == kBF16) return PackPanels<Bf16Source, kPitch>(args);
  PackPanels<F32Source, kPitch>(args);
}
void PackBF32(const PackArgs& args) {
  if (args.operand.dtype == kBF16) return PackPanels<Bf16Source, kLanes>(args);
  PackPanels<F32Source, kLanes>(args);
}
void PackABf16(const PackArgs& args) {
  if (args.operand.dtype == kBF16) {
    return PackPanels<Bf16SwapSource, kPitch>(args);
  }
  PackPanels<F32RoundSwapSource, kPitch>(args);
}
void PackBBf16(const PackArgs& args) {
  if (args.operand.dtype == kBF16) {
    return PackPanels<Bf16SwapSource, kLanes>(args);
  }
  PackPanels<F32RoundSwapSource, kLanes>(args);
}

void Run(const TileArgs& args) {
  switch (args.rows) {
    case 1:
      return RunTile<1, 1, kPitch>(args);
    case 2:
      return RunTile<2, 1, kPitch>(args);
    case 3:
    case 4:
      return RunTile<4, 1, kPitch>(args);
    default:
      return RunTile<6, 1, kPitch>(args);
  }
}

// NOLINTEND(misc-definitions-in-headers)
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
