// Codes to bf16 pairs in registers. Included inside the anonymous namespace of
// an AVX512-BF16 translation unit, after immintrin.h and packed_lanes.h.
//
// Everything goes by chunks of 32 input features, which lie in one scale group
// of every format. A format F gives:
//   F::kLines         64-byte lines of a chunk in the lane layout
//   F::kLineColumns   input features of a line
//   F::Scales         of 16 output features over one chunk
//   F::kInUnits       words are without the scale; sums follow it instead
//   F::Words(line, scales, w)  kLineColumns / 2 words of 16 lanes: the pair
//                     (even k low, odd k high) of each output feature
//   F::kTogether      words that F::WordsBeside makes at a time
//   F::kStripsAtOnce  divides 6: see RunLow
// The value of a word is bf16(f32(code * scale)); subnormal results count as
// zero (vdpbf16ps reads them so).

// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result): offsets
// within one tile are small
// NOLINTBEGIN(misc-definitions-in-headers): text of one unit, not a header

#include "espalier/ops/gemm/words_avx512-inl.h"

inline __m512i Load(const void* p) { return _mm512_loadu_si512(p); }

inline int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

inline __mmask64 BytesMask(int64_t n) {
  if (n >= 64) return ~__mmask64{0};
  return n <= 0 ? 0 : ~__mmask64{0} >> (64 - n);
}

// E2M1 times 2^125 as bf16, twice over: vpermw reads 5 bits of its index, so
// that the bit above a nibble does not matter. The scale 2^(s - 127) is then
// the signed saturating addition of (s - 252) * 128: never above zero, it
// lowers the exponent field of a value and leaves 0x8000, a zero, where it is.
// Right for s in 2..252, which no other code path may skip checking.
alignas(64) constexpr uint16_t kE2m1[32] = {
    0x8000, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40,
    0x8000, 0xfd80, 0xfe00, 0xfe40, 0xfe80, 0xfec0, 0xff00, 0xff40,
    0x8000, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40,
    0x8000, 0xfd80, 0xfe00, 0xfe40, 0xfe80, 0xfec0, 0xff00, 0xff40};
// Magnitudes alone, zero as zero.
alignas(64) constexpr uint16_t kE2m1Magnitude[32] = {
    0, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40,
    0, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40,
    0, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40,
    0, 0x7d80, 0x7e00, 0x7e40, 0x7e80, 0x7ec0, 0x7f00, 0x7f40};
// And as they are.
alignas(64) constexpr uint16_t kE2m1Unit[32] = {
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
    0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0,
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
    0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
constexpr float kE2m1Value[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                  -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// E8M0 in both halves of each word, ready for _mm512_adds_epi16.
inline __m512i E8m0Offsets(__m512i words) {
  const __m512i both = _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
  return _mm512_slli_epi16(_mm512_sub_epi16(both, _mm512_set1_epi16(252)), 7);
}

inline bool IsPlainE8m0(uint8_t s) { return s >= 2 && s <= 252; }

inline bool ArePlainE8m0(__m128i s) {
  const __m128i low = _mm_sub_epi8(s, _mm_set1_epi8(2));
  return _mm_cmpgt_epu8_mask(low, _mm_set1_epi8(static_cast<char>(250))) == 0;
}

inline float E8m0Value(uint8_t s) {
  const uint32_t bits = s == 0     ? 0x00400000u
                        : s == 255 ? 0x7fc00000u
                                   : static_cast<uint32_t>(s) << 23;
  return __builtin_bit_cast(float, bits);
}

inline uint32_t RoundToBf16(float value) {
  const uint32_t word = __builtin_bit_cast(uint32_t, value);
  if ((word & 0x7fffffffu) > 0x7f800000u) return (word >> 16) | 0x40u;
  return (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
}

struct Mxfp4 {
  static constexpr bool kInUnits = false;
  static constexpr int kStripsAtOnce = 6;
  static constexpr int kLines = 4;
  static constexpr int kLineColumns = 8;
  using Scales = __m512i;

  static Scales MakeScales(__m128i s) {
    return E8m0Offsets(_mm512_cvtepu8_epi32(s));
  }
  static __m512i Word(__m512i index, Scales scales) {
    return _mm512_adds_epi16(_mm512_permutexvar_epi16(index, Load(kE2m1)),
                             scales);
  }
  static void Words(__m512i line, const Scales& scales, __m512i w[4]) {
    w[0] = Word(line, scales);
    w[1] = Word(_mm512_srli_epi32(line, 4), scales);
    w[2] = Word(_mm512_srli_epi32(line, 8), scales);
    w[3] = Word(_mm512_srli_epi32(line, 12), scales);
  }
  // The same beside dot products, which share their pipes with saturating
  // addition on Zen 4: magnitudes by an ordinary addition and a maximum that
  // keeps zero at zero, signs apart. More instructions, fewer cycles. Scales
  // stay in memory: a full tile has no register for them.
  using Stored = __m512i;
  static void Store(const Scales& scales, Stored* to) {
    _mm512_store_si512(to, scales);
  }
  static constexpr int kTogether = 1;
  template <int kPair>
  static void WordsBeside(const uint8_t* at, const Stored* scales,
                          __m512i w[1]) {
    const __m512i line = Load(at);
    const __m512i index =
        kPair == 0 ? line : _mm512_srli_epi32(line, 4 * kPair);
    const __m512i sign =
        kPair == 3 ? line : _mm512_slli_epi16(line, 12 - 4 * kPair);
    const __m512i code = _mm512_permutexvar_epi16(index, Load(kE2m1Magnitude));
    __m512i sum;
    asm("vpaddw %2, %1, %0" : "=v"(sum) : "v"(code), "m"(*scales));
    w[0] = _mm512_ternarylogic_epi32(
        _mm512_max_epi16(sum, _mm512_setzero_si512()), sign,
        _mm512_set1_epi16(static_cast<int16_t>(0x8000)), 0xf8);
  }
  // Words of 8 columns in the order of memory to those of the lane layout:
  // neighbours 1, 2 and 5, 6 change places, then the middle bytes.
  static __m512i ToLane(__m512i line) {
    const __m512i swapped = _mm512_ternarylogic_epi32(
        line, _mm512_srli_epi32(line, 4), _mm512_set1_epi32(0x00f000f0), 0x28);
    const __m512i nibbles = _mm512_ternarylogic_epi32(
        line, swapped, _mm512_slli_epi32(swapped, 4), 0x96);
    return _mm512_shuffle_epi8(
        nibbles, _mm512_broadcast_i32x4(_mm_setr_epi8(
                     0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)));
  }
  // And back.
  static __m512i FromLane(__m512i line) {
    const __m512i bytes = _mm512_shuffle_epi8(
        line, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8,
                                                   10, 9, 11, 12, 14, 13, 15)));
    const __m512i swapped =
        _mm512_ternarylogic_epi32(bytes, _mm512_srli_epi32(bytes, 4),
                                  _mm512_set1_epi32(0x00f000f0), 0x28);
    return _mm512_ternarylogic_epi32(bytes, swapped,
                                     _mm512_slli_epi32(swapped, 4), 0x96);
  }
  // Words of 8 columns in the order of memory instead.
  static __m512i Pick(int pair) {  // nibbles 2 pair and 2 pair + 1
    const int64_t low = 8 * pair | (8 * pair + 4) << 16;
    return _mm512_set1_epi64(low | (low + 0x00200020) << 32);
  }
  static void RowWords(__m512i line, const Scales& scales, __m512i w[4]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      w[i] = Word(_mm512_multishift_epi64_epi8(Pick(i), line), scales);
    }
  }
  // The same for any scales; `line` as in memory order if `rows`.
  static void SlowWords(__m512i line, bool rows, __m128i s, __m512i w[4]) {
    alignas(64) uint32_t codes[16];
    alignas(64) uint32_t words[4][16];
    uint8_t scale[16];
    _mm512_store_si512(codes, line);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(scale), s);
    for (int lane = 0; lane < 16; ++lane) {
      const uint32_t split = rows ? SplitNibbles(codes[lane]) : codes[lane];
      const float factor = E8m0Value(scale[lane]);
      for (int i = 0; i < 4; ++i) {
        const uint32_t low = split >> (4 * i) & 15;
        const uint32_t high = split >> (16 + 4 * i) & 15;
        words[i][lane] = RoundToBf16(kE2m1Value[low] * factor) |
                         RoundToBf16(kE2m1Value[high] * factor) << 16;
      }
    }
    for (int i = 0; i < 4; ++i) w[i] = Load(words[i]);
  }
};

// Low and high bytes of bf16 magnitudes: what vpermi2b looks up with 7 bits.
struct ByteTable {
  alignas(64) uint8_t low[128];
  uint8_t high[128];
};

// A table holds bf16(f32(value * scale)) of the E4M3 magnitudes.
struct E4m3Values {
  float value[128];
  constexpr E4m3Values() : value() {
    for (int code = 0; code < 128; ++code) {
      float x = static_cast<float>(code < 8 ? code : 8 + code % 8) / 512;
      for (int e = 1; e < code / 8; ++e) x *= 2;
      value[code] = x;
    }
    value[127] = __builtin_nanf("");
  }
};
alignas(64) constexpr E4m3Values kE4m3;

inline void MakeTable(float scale, ByteTable* table) {
  const __m512 s = _mm512_set1_ps(scale);
#pragma GCC unroll 4
  for (int i = 0; i < 128; i += 32) {
    const __m512i w = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
        _mm512_mul_ps(_mm512_loadu_ps(kE4m3.value + i + 16), s),
        _mm512_mul_ps(_mm512_loadu_ps(kE4m3.value + i), s)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(table->low + i),
                        _mm512_cvtepi16_epi8(w));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(table->high + i),
                        _mm512_cvtepi16_epi8(_mm512_srli_epi16(w, 8)));
  }
}

struct Fp8 {
  static constexpr bool kInUnits = false;
  static constexpr int kStripsAtOnce = 3;
  static constexpr int kLines = 8;
  static constexpr int kLineColumns = 4;
  using Scales = const ByteTable*;

  // Low and high bytes of the bf16 of 64 codes. A negative scale has its sign
  // in the table, hence the xor.
  static void Bytes(__m512i codes, Scales table, __m512i* low, __m512i* high) {
    *low = _mm512_permutex2var_epi8(Load(table->low), codes,
                                    Load(table->low + 64));
    *high = _mm512_ternarylogic_epi32(
        _mm512_permutex2var_epi8(Load(table->high), codes,
                                 Load(table->high + 64)),
        codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0x78);
  }
  static void Words(__m512i line, const Scales& scales, __m512i w[2]) {
    __m512i low, high;
    Bytes(line, scales, &low, &high);
    w[0] = _mm512_unpacklo_epi8(low, high);
    w[1] = _mm512_unpackhi_epi8(low, high);
  }
  using Stored = Scales;
  static void Store(const Scales& scales, Stored* to) { *to = scales; }
  static constexpr int kTogether = 2;
  template <int kPair>
  static void WordsBeside(const uint8_t* at, const Stored* scales,
                          __m512i w[2]) {
    Words(Load(at), *scales, w);
  }
  // Within 16 bytes: 4 lanes of 4 columns to 2 pairs of columns of 4 lanes.
  // Its own inverse pairs with FromLane.
  static __m512i ToLane(__m512i line) {
    return _mm512_shuffle_epi8(
        line, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2,
                                                   3, 6, 7, 10, 11, 14, 15)));
  }
  static __m512i FromLane(__m512i line) {
    return _mm512_shuffle_epi8(
        line, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4,
                                                   5, 12, 13, 6, 7, 14, 15)));
  }
  static void RowWords(__m512i line, const Scales& scales, __m512i w[2]) {
    Words(ToLane(line), scales, w);
  }
};

// For byte shuffles; in the high half of a line's byte the lane's code is
// 16 code, which the feature's number completes to an index.
struct Int4Codes {
  uint8_t to_lane[16];
  uint8_t from_lane[16];
  constexpr Int4Codes() : to_lane(), from_lane() {
    for (uint32_t i = 0; i < 16; ++i) {
      to_lane[i] = Int4ToLane(i);
      from_lane[i] = Int4FromLane(i);
    }
  }
};
alignas(16) constexpr Int4Codes kInt4Codes;
alignas(64) constexpr float kInt4Value[16] = {-8, -7, -6, -5, -4, -3, -2, -1,
                                              0,  1,  2,  3,  4,  5,  6,  7};

// Byte constants of the INT4 kernels.
struct Int4Bytes {
  uint8_t feature[64];  // of a byte of a line
  uint8_t even[64];     // bytes of two vectors of 16-bit words
  uint8_t odd[64];
  constexpr Int4Bytes() : feature(), even(), odd() {
    for (int i = 0; i < 64; ++i) {
      feature[LaneByte(i / 4, i % 4)] = static_cast<uint8_t>(i / 4);
      even[i] = static_cast<uint8_t>(2 * i);
      odd[i] = static_cast<uint8_t>(2 * i + 1);
    }
  }
};
alignas(64) constexpr Int4Bytes kInt4Bytes;

// A table holds bf16(f32(m * scale)) of the magnitudes m = 8, 1, .. 7 for 16
// features: byte 16 (m % 8) + feature. Zero is no entry of it, so scales have
// to be finite.
struct Int4 {
  static constexpr bool kInUnits = false;
  static constexpr int kStripsAtOnce = 2;
  static constexpr int kLines = 4;
  static constexpr int kLineColumns = 8;
  using Scales = const ByteTable*;

  static void MakeTable(__m512 s, ByteTable* table) {
    __m512i w[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto even = static_cast<float>(i == 0 ? 8 : 2 * i);
      const auto odd = static_cast<float>(2 * i + 1);
      w[i] = reinterpret_cast<__m512i>(
          _mm512_cvtne2ps_pbh(_mm512_mul_ps(s, _mm512_set1_ps(odd)),
                              _mm512_mul_ps(s, _mm512_set1_ps(even))));
    }
    const __m512i even = Load(kInt4Bytes.even);
    const __m512i odd = Load(kInt4Bytes.odd);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      _mm512_store_si512(
          table->low + 64 * i,
          _mm512_permutex2var_epi8(w[2 * i], even, w[2 * i + 1]));
      _mm512_store_si512(table->high + 64 * i,
                         _mm512_permutex2var_epi8(w[2 * i], odd, w[2 * i + 1]));
    }
  }
  // Codes in the high halves of bytes; the low halves do not matter.
  static void Pairs(__m512i codes, Scales table, __m512i w[2]) {
    const __m512i nibbles = _mm512_set1_epi8(static_cast<char>(0xf0));
    const __mmask64 nonzero = _mm512_test_epi8_mask(codes, nibbles);
    const __m512i index = _mm512_ternarylogic_epi32(
        codes, nibbles, Load(kInt4Bytes.feature), 0xea);
    const __m512i low = _mm512_maskz_permutex2var_epi8(
        nonzero, Load(table->low), index, Load(table->low + 64));
    const __m512i high = _mm512_ternarylogic_epi32(
        _mm512_maskz_permutex2var_epi8(nonzero, Load(table->high), index,
                                       Load(table->high + 64)),
        codes, _mm512_set1_epi8(static_cast<char>(0x80)), 0x78);
    w[0] = _mm512_unpacklo_epi8(low, high);
    w[1] = _mm512_unpackhi_epi8(low, high);
  }
  static void Words(__m512i line, const Scales& scales, __m512i w[4]) {
    Pairs(_mm512_slli_epi16(line, 4), scales, w);
    Pairs(line, scales, w + 2);
  }
  using Stored = Scales;
  static void Store(const Scales& scales, Stored* to) { *to = scales; }
  static constexpr int kTogether = 2;
  template <int kPair>
  static void WordsBeside(const uint8_t* at, const Stored* scales,
                          __m512i w[2]) {
    const __m512i line = Load(at);
    Pairs(kPair == 0 ? _mm512_slli_epi16(line, 4) : line, *scales, w);
  }
  // Any scales.
  static void SlowWords(__m512i line, __m512 s, __m512i w[4]) {
    alignas(64) uint8_t bytes[64];
    alignas(64) float scale[16];
    alignas(64) uint16_t words[4][16][2];
    _mm512_store_si512(bytes, line);
    _mm512_store_ps(scale, s);
    for (int i = 0; i < 64; ++i) {
      const int lane = kInt4Bytes.feature[i];
      for (int half = 0; half < 2; ++half) {
        const int code = kInt4Codes.from_lane[bytes[i] >> (4 * half) & 15];
        words[2 * half + i % 16 / 8][lane][i % 2] =
            static_cast<uint16_t>(RoundToBf16(kInt4Value[code] * scale[lane]));
      }
    }
    for (int i = 0; i < 4; ++i) w[i] = Load(words[i]);
  }
  // f32 of offset codes in the low 4 bits of words.
  static __m512 Value(__m512i index, __m512 scale) {
    return _mm512_mul_ps(
        _mm512_permutexvar_ps(index, _mm512_load_ps(kInt4Value)), scale);
  }
  static __m512i Recode(__m512i x, const uint8_t* table) {
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i codes = _mm512_broadcast_i32x4(
        _mm_load_si128(reinterpret_cast<const __m128i*>(table)));
    const __m512i a = _mm512_shuffle_epi8(codes, _mm512_and_si512(x, low));
    const __m512i b = _mm512_shuffle_epi8(
        codes, _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
    return _mm512_or_si512(a, _mm512_slli_epi16(b, 4));
  }
  // Bits from `shift` + step i of a 32-bit word to its byte i, taking a step
  // from each of 4 bytes of `shifts`.
  static __m512i Spread(__m512i x, uint32_t shifts) {
    const uint64_t both = shifts | static_cast<uint64_t>(shifts + 0x20202020u)
                                       << 32;
    return _mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(static_cast<int64_t>(both)), x);
  }
  static __m512i Halves(__m512i low, __m512i high) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xca);
  }
  // Words of 8 columns, one per lane, to the layout: columns i and i + 4 in
  // one byte, bytes as those of FP8.
  static __m512i ToLane(__m512i line) {
    return Fp8::ToLane(
        Recode(Halves(Spread(line, 0x0c080400u), Spread(line, 0x1814100cu)),
               kInt4Codes.to_lane));
  }
  // And back.
  static __m512i FromLane(__m512i line) {
    const __m512i bytes = Recode(Fp8::FromLane(line), kInt4Codes.from_lane);
    return Halves(Spread(bytes, 0x14041000u), Spread(bytes, 0x18081404u));
  }
  static void RowWords(__m512i line, const Scales& scales, __m512i w[4]) {
    Words(ToLane(line), scales, w);
  }
};

// Whether no scale is infinite or NaN.
inline bool AreFinite(__m512 scales) {
  return _mm512_fpclass_ps_mask(scales, 0x99) == 0;
}

inline float ScaleValue(const View& scales, int64_t i) {
  if (scales.dtype == kF32) return static_cast<const float*>(scales.pointer)[i];
  const uint16_t half = static_cast<const uint16_t*>(scales.pointer)[i];
  if (scales.dtype == kF16) return _cvtsh_ss(half);
  return __builtin_bit_cast(float, static_cast<uint32_t>(half) << 16);
}

// 16 scales that stand together.
inline __m512 ScaleValues(const View& scales, int64_t i) {
  if (scales.dtype == kF32) {
    return _mm512_loadu_ps(static_cast<const float*>(scales.pointer) + i);
  }
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
      static_cast<const uint16_t*>(scales.pointer) + i));
  if (scales.dtype == kF16) return _mm512_cvtph_ps(half);
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// NOLINTEND(misc-definitions-in-headers)
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
