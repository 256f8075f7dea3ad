// One file of a checkpoint as it is written: entries in ascending order of key. Blocks; one thread at a time.
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

  Status Open();
  Status Put(const CheckpointKey& key, std::span<const std::byte> value);
  // Makes the file durable and reads it back; kCorrupt if the bytes differ. Returns its description with size and
  // checksum.
  Expected<CheckpointFile> Close();
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
