#ifndef ESPALIER_TOOLS_WHOLE_NUMBER_H_
#define ESPALIER_TOOLS_WHOLE_NUMBER_H_

#include <cstdint>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace espalier::tools {

// Of an option: decimal digits, and a minus where negative numbers are allowed,
// without leading zeros. The parser itself takes octal and hexadecimal, cuts
// what is too large and wraps -1 to 2^64 - 1.
CLI::Validator WholeNumber(int64_t min, int64_t max);

// Gives the integer options of the app and its subcommands the check that they
// are numbers of 64 bits.
void CheckWholeNumbers(CLI::App* app);

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_WHOLE_NUMBER_H_
