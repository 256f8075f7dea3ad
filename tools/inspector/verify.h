// `tarn-inspect verify`.
#pragma once

#include <string>

#include "core/error.h"

namespace tarn::inspector {

// Reads all of a checkpoint: every byte against its checksum, every row's place and size, every count of the manifest
// (tools/inspector/counts.h), the hash of all rows if the manifest has it, and that the directory contains no other
// files, except blobs of workers. Returns the text to print; the error names the file, or the table, and what was
// expected.
Expected<std::string> VerifyCheckpoint(const std::string& path);

}  // namespace tarn::inspector
