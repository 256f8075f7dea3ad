// Messages over shared memory between two processes of one host. Two rings carry them. Each side wakes the other
// through its wake file (net/wake_file.h), one for all channels of a loop; a Unix socket shows the other side's end.
//
// A message in a ring: a head (the number of its frames and their sizes, 32 bits each), then the frames. The head and
// each frame are padded to multiples of 8. A message larger than the ring is written and read in parts. Small messages
// are read in place. Large ones are copied out as they arrive, or lent: the reader uses their bytes in place until
// GiveBack and must not keep them longer.
//
// No function blocks. The worst that the other side can cause is the end of the channel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/descriptor.h"
#include "core/limits.h"
#include "net/backlog.h"
#include "net/frame.h"
#include "net/shm_segment.h"

namespace tarn::net {

// The frames of a received message: valid until the channel's next Receive, or until GiveBack if the channel lends.
class ShmFrames final : public FrameOwner {
 public:
  std::span<const FrameView> views() const { return {views_.data(), count_}; }
  // A large frame's bytes, without a copy; empty for a message that is read in place. Lent bytes must be released
  // before GiveBack.
  Buffer Take(std::size_t frame) override { return std::move(buffers_[frame]); }
  void Clear() {
    for (Buffer& buffer : buffers_) buffer = Buffer();
    count_ = 0;
  }

 private:
  friend class ShmChannel;
  std::array<FrameView, limits::kFramesMax> views_;
  std::array<Buffer, limits::kFramesMax> buffers_;
  std::size_t count_ = 0;
};

// Owned by one thread.
class ShmChannel {
 public:
  // other_wake: the wake file of the other side.
  ShmChannel(ShmSide side, ShmSegment segment, Descriptor socket, Descriptor other_wake)
      : segment_(std::make_shared<ShmSegment>(std::move(segment))),
        socket_(std::move(socket)),
        other_wake_(std::move(other_wake)),
        writer_(segment_->Writer(side)),
        reader_(segment_->Reader(side)) {}

  // Accepts the message and writes as much as fits; the rest waits, up to `waiting_bytes_max` (an empty channel accepts
  // any message). False: dropped.
  bool Send(Frames frames, std::size_t waiting_bytes_max);
  // The same for one frame, which is copied.
  bool Send(const FrameView& frame, std::size_t waiting_bytes_max);
  // Writes more of the waiting bytes.
  void Flush();
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  std::size_t waiting_messages() const;

  std::size_t ring_bytes() const { return segment_->ring_bytes(); }

  // Lends large messages, up to half of the ring each, from now on.
  void SetLending() { lender_ = std::make_shared<std::shared_ptr<ShmSegment>>(segment_); }
  // Receives a message, if there is one. When an eighth of the ring is lent it receives none before GiveBack, so that
  // the other side gets room. Invalidates earlier messages, except lent ones.
  bool Receive(ShmFrames* frames);
  // Releases all lent bytes. Aborts the process if a lent buffer still exists.
  void GiveBack();
  // Whether anything is lent: messages after it may then wait without a wake-up.
  bool has_lent() const { return lent_bytes_ != 0; }

  // The socket: readable when the other side has ended.
  int file() const { return socket_.get(); }
  // Reads the end from the socket, if it is readable.
  void TakeEnd();
  // Announces that the owner will sleep in a poll of its wake file. False: bytes have arrived, so call Receive first.
  bool Sleep() { return broken_ || reader_.Sleep(); }
  // Revokes the announcement. Call it after the poll.
  void Awake() { reader_.Awake(); }
  // Whether bytes arrived since the last Receive, possibly less than a message.
  bool Changed() const { return reader_.Changed(); }

  // The other side has ended; its written bytes can still be read.
  bool gone() const { return gone_; }
  // No more messages will arrive: the other side has ended and everything is read, or it violated the protocol (which
  // is logged).
  bool ended() const { return broken_ || (gone_ && drained_); }

 private:
  struct Reading {
    std::size_t count = 0;  // of frames; 0: none begun
    std::size_t frame = 0, offset = 0;
    std::array<Buffer, limits::kFramesMax> buffers;
  };

  void WriteHead(std::span<const std::uint32_t> sizes);
  void Publish();
  void Consume();
  bool ReadHead(ShmFrames* frames, bool* whole);
  bool ReadSmall(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes, ShmFrames* frames);
  bool Lend(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes, ShmFrames* frames);
  bool ReadOn(ShmFrames* frames);
  void Break(const char* what);

  std::shared_ptr<ShmSegment> segment_;  // shared with lent buffers, which may outlive the channel
  Descriptor socket_, other_wake_;
  RingWriter writer_;
  RingReader reader_;
  std::deque<Frames> waiting_;  // the first may be partly written
  std::size_t waiting_bytes_ = 0;
  bool begun_ = false;                              // the head of the first is written
  std::size_t write_frame_ = 0, write_offset_ = 0;  // position in the first, padding counted
  Reading reading_;
  std::shared_ptr<void> lender_;  // shared with all lent buffers; null: the channel does not lend
  std::size_t lent_bytes_ = 0;    // since GiveBack
  bool gone_ = false, drained_ = false, broken_ = false;
};

}  // namespace tarn::net
