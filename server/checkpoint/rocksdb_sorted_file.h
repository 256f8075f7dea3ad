// Writes one file of a checkpoint: entries in ascending order of key. Errors name the file. Blocks; one thread at
// a time.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/message.h"
#include "server/checkpoint/checkpoint_format.h"

namespace rocksdb {
class SstFileWriter;
}

namespace tarn::server {

class SortedFile {
 public:
  SortedFile(std::string directory, std::string name);
  ~SortedFile();
  SortedFile(const SortedFile&) = delete;
  SortedFile& operator=(const SortedFile&) = delete;

  // Creates the file.
  Status Open();
  // Appends an entry; its key must be above all earlier ones.
  Status Put(const CheckpointKey& key, std::span<const std::byte> value);
  // Makes the file's bytes durable and reads them back; kCorrupt if their checksum is not that of the bytes written.
  // Returns its description with size and checksum.
  Expected<CheckpointFile> Close();
  // Deletes the file, and ignores errors.
  void Remove();

  // The caller sets rows, removed and seen before Close.
  CheckpointFile& description() { return description_; }

 private:
  Status OpenWriter(bool direct);
  std::string path() const { return directory_ + "/" + description_.name; }

  std::string directory_;
  CheckpointFile description_;
  std::unique_ptr<rocksdb::SstFileWriter> writer_;
};

}  // namespace tarn::server
