// Messages over shared memory between two processes of one host: the rings carry them, a Unix socket wakes the other
// side and tells when it is gone.
//
// A message in a ring: the number of its frames and their sizes, 32 bits each, then the frames; the sizes together and
// each frame are padded to multiples of 8. A message may be larger than the ring: it is then written and read bit by
// bit. Small ones are read where they lie, large ones are copied out as they come, or lent: the reader then has their
// bytes where they lie until it gives them back, and must not keep them.
//
// Nothing here blocks, and nothing that the other side does can do more harm than end the lane.
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

// The frames of a message that was received: good until the lane's next Receive, of one that lends until GiveBack.
class ShmFrames final : public FrameOwner {
 public:
  std::span<const FrameView> views() const { return {views_.data(), count_}; }
  // A large frame's bytes, without a copy; those of a lane that lends must be gone before GiveBack.
  Buffer Take(std::size_t frame) override { return std::move(buffers_[frame]); }
  void Clear() {
    for (Buffer& buffer : buffers_) buffer = Buffer();
    count_ = 0;
  }

 private:
  friend class ShmLane;
  std::array<FrameView, limits::kFramesMax> views_;
  std::array<Buffer, limits::kFramesMax> buffers_;
  std::size_t count_ = 0;
};

// Owned by one thread.
class ShmLane {
 public:
  ShmLane(ShmSide side, ShmSegment segment, Descriptor socket)
      : segment_(std::make_shared<ShmSegment>(std::move(segment))),
        socket_(std::move(socket)),
        writer_(segment_->Writer(side)),
        reader_(segment_->Reader(side)) {}

  // Takes the message, and writes what there is room for; the rest waits, up to `waiting_bytes_max` (an empty lane
  // takes any message). False: dropped.
  bool Send(Frames frames, std::size_t waiting_bytes_max);
  // The same for one frame, which is copied.
  bool Send(const FrameView& frame, std::size_t waiting_bytes_max);
  // Writes more of what waits.
  void Flush();
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  std::size_t waiting_messages() const;

  std::size_t ring_bytes() const { return segment_->ring_bytes(); }

  // Lends large messages, up to half of the ring each, from now on.
  void SetLending() { borrowed_ = std::make_shared<std::shared_ptr<ShmSegment>>(segment_); }
  // Whether a message was there, and was taken: once an eighth of the ring is lent none is until GiveBack, so that the
  // other side need not wait long for room. What it gave before may be gone, but for what is lent.
  bool Receive(ShmFrames* frames);
  // What was lent is back.
  void GiveBack();
  // Whether anything is lent: then what lies behind it may have to wait, though nothing tells of it.
  bool has_lent() const { return lent_bytes_ != 0; }

  // The socket, to poll: readable when there is something to look for, or the other side is gone.
  int file() const { return socket_.get(); }
  // Takes in the wake-ups.
  void TakeWakes();
  // About to poll. False: there is something to do first.
  bool Sleep() { return broken_ || reader_.Sleep(); }
  void Awake() { reader_.Awake(); }
  // Whether anything came since the last Receive, perhaps less than a message.
  bool Changed() const { return reader_.Changed(); }

  // The other side has ended; what it had written can still be read.
  bool gone() const { return gone_; }
  // Nothing more will come: it is gone and everything is read, or it has broken the rules (which is logged).
  bool ended() const { return broken_ || (gone_ && drained_); }

 private:
  struct Reading {
    std::size_t count = 0;  // of frames; 0: none begun
    std::size_t frame = 0, offset = 0;
    std::array<Buffer, limits::kFramesMax> buffers;
  };

  void WriteHead(std::span<const std::uint32_t> sizes);
  void Publish();
  void Wake();
  void Consume();
  bool ReadHead(ShmFrames* frames, bool* whole);
  bool ReadSmall(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes, ShmFrames* frames);
  bool Lend(std::span<const std::uint32_t> sizes, std::size_t head_bytes, std::size_t bytes, ShmFrames* frames);
  bool ReadOn(ShmFrames* frames);
  void Break(const char* what);

  std::shared_ptr<ShmSegment> segment_;  // also what is lent keeps it: the lane may end first
  Descriptor socket_;
  RingWriter writer_;
  RingReader reader_;
  std::deque<Frames> waiting_;  // the first may be partly written
  std::size_t waiting_bytes_ = 0;
  bool begun_ = false;                              // the head of the first is written
  std::size_t write_frame_ = 0, write_offset_ = 0;  // within it, padding counted
  Reading reading_;
  std::shared_ptr<void> borrowed_;  // owned by all that is lent; null: nothing is
  std::size_t lent_bytes_ = 0;      // since GiveBack
  bool gone_ = false, drained_ = false, broken_ = false;
};

}  // namespace tarn::net
