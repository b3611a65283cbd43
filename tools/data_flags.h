#ifndef ESPALIER_TOOLS_DATA_FLAGS_H_
#define ESPALIER_TOOLS_DATA_FLAGS_H_

#include "espalier/train/data_config.h"

namespace CLI {
class App;
}

namespace espalier::tools {

// How a command line names data and says how records become samples, with the
// flags of AddChatFlags. `config` outlives `cmd`.
void AddDataFlags(CLI::App* cmd, DataConfig* config);
// And how samples are trained on: mixture and long samples.
void AddTrainingDataFlags(CLI::App* cmd, DataConfig* config);

}  // namespace espalier::tools

#endif  // ESPALIER_TOOLS_DATA_FLAGS_H_
