// Pairs of idx files: images of bytes and their classes. See worker/data/dataset.h; the format is described at
// yann.lecun.com/exdb/mnist: big-endian magic 0x00000803 and three dimensions, or 0x00000801 and one; then the bytes.
#pragma once

#include <memory>
#include <string>

#include "worker/data/dataset.h"
#include "worker/data/file_bytes.h"

namespace tarn::worker {

// Opens PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz]; uncompressed files are preferred. kMalformed,
// with the file's name, if a header, a size or a class is invalid.
Expected<std::unique_ptr<Dataset>> OpenIdx(const DataSection& section, const std::string& prefix,
                                           const DatasetOptions& options);

}  // namespace tarn::worker
