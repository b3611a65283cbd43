// A host application: sees only what is installed, built without exceptions.
#include <cstdio>

#include "espalier/train/demo.h"
#include "espalier/train/session.h"

int main() {
  espalier::SessionConfig config;
  config.model_dir = "no-such-folder";
  config.data.paths = {"no-such-file"};
  const auto session = espalier::Session::Open(config);
  if (session.ok()) return 1;
  std::printf("%s\n", session.status().ToString().c_str());
  return session.status().code() == absl::StatusCode::kNotFound ? 0 : 1;
}
