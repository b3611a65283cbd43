#ifndef ESPALIER_RUNTIME_EXPORT_H_
#define ESPALIER_RUNTIME_EXPORT_H_

// Marks what the shared library shows; everything else stays hidden.
#define ESPALIER_EXPORT __attribute__((visibility("default")))

#endif  // ESPALIER_RUNTIME_EXPORT_H_
