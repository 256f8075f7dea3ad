// The GPU's memory, and a check of every access of kernels.
//
// The kernels are compiled with -fsanitize=thread, which inserts a call before every memory access; this file
// implements these calls in place of the sanitizer's library. Each access of a kernel's thread is checked: it must lie
// within an existing array, or in shared or its own memory; it must be aligned to its size, as on a GPU; and no other
// thread of the kernel may have written there, or read what is written now, without a barrier in between.
// AddressSanitizer excludes that option: under it arrays are in host memory, and only AddressSanitizer checks accesses.
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "tests/emulated/internal.h"

extern "C" char __data_start, _end;  // bounds of writable data, which contains the __shared__ arrays of kernels

namespace emulated {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kJudges = false;
#else
constexpr bool kJudges = true;
#endif

constexpr std::size_t kFilledMax = std::size_t{64} << 20;  // larger arrays are not filled with NaNs but contain zeros
constexpr std::size_t kArenaBytes = std::size_t{1} << 40, kPage = 4096, kOffset = 512;

struct Array {
  char* begin = nullptr;
  std::size_t bytes = 0;
  bool born = false;
};

// The last access to a word of four bytes.
struct Touch {
  std::uint32_t launch = 0, block = 0;
  std::uint16_t thread = 0, barriers = 0, meetings = 0;
  std::uint8_t bytes = 0;  // the accessed bytes of the word, one bit each
  std::uint8_t many = 0;   // other readers: 1: of the warp, 2: of the block, 4: of other blocks
};
struct Word {
  Touch write, read;
};

char* Map(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Violation("no address space for the emulated GPU's memory");
  madvise(memory, bytes, MADV_DONTDUMP);
  return static_cast<char*>(memory);
}

struct Memory {
  std::mutex mutex;
  std::map<const char*, Array> arrays;
  std::size_t in_use = 0;
  char* const arena = kJudges ? Map(kArenaBytes) : nullptr;
  std::size_t taken = 0;
  Array** const array_at = kJudges ? reinterpret_cast<Array**>(Map(kArenaBytes / kPage * sizeof(Array*))) : nullptr;
  Word* const words = kJudges ? reinterpret_cast<Word*>(Map(kArenaBytes / 4 * sizeof(Word))) : nullptr;
  char* const shared =
      kJudges ? Map(kSharedMax) : static_cast<char*>(std::aligned_alloc(1024, kSharedMax + 1024 - kSharedMax % 1024));
  std::size_t shared_bytes = 0;  // of the current launch
  Word* const shared_words = kJudges ? reinterpret_cast<Word*>(Map(kSharedMax / 4 * sizeof(Word))) : nullptr;
  Word* const static_words =
      kJudges ? reinterpret_cast<Word*>(Map((static_cast<std::size_t>(&_end - &__data_start) / 4 + 8) * sizeof(Word)))
              : nullptr;
};
Memory& memory() {
  static Memory& it = *new Memory;
  return it;
}

std::string Where(const Actor& a) {
  return NameOf(*a.kernel) + " (" + (a.kernel->where == nullptr ? "" : a.kernel->where) + "), thread " +
         std::to_string(a.thread) + " of block " + std::to_string(a.block);
}

// A write that races with another write or a read. It is no violation if it does not change the bytes.
struct Suspect {
  const Actor* by = nullptr;
  const char* at = nullptr;
  std::size_t bytes = 0;
  char before[16];
  const char* past_did = nullptr;
  Touch past;
};
thread_local Suspect suspect;

bool SameWarp(const Touch& past, const Actor& a) { return past.thread / 32 == a.thread / 32; }

bool Ordered(const Touch& past, const Actor& a) {
  if (past.launch != a.launch) return true;
  if (past.block != a.block) return false;
  if (past.thread == a.thread || past.barriers < a.barriers) return true;
  return SameWarp(past, a) && past.meetings < a.meetings;
}

bool ReadsOrdered(const Touch& past, const Actor& a) {
  if (past.launch != a.launch) return true;
  if (past.many & 4) return false;
  if (past.block != a.block) return false;
  if (past.barriers < a.barriers) return true;
  if (past.many & 2) return false;
  if (past.many & 1) return SameWarp(past, a) && past.meetings < a.meetings;
  return Ordered(past, a);
}

std::string With(const char* first, const char* second, const Touch& past, const Actor& a) {
  return Where(a) + " " + second + " what thread " + std::to_string(past.thread) + " of block " +
         std::to_string(past.block) + " " + first + ", and nothing orders the two";
}

void Suspected(const Actor& a, const char* at, std::size_t bytes, const char* past_did, const Touch& past) {
  if (suspect.by != nullptr) return;  // one finding is enough
  suspect.by = &a;
  suspect.at = at;
  suspect.bytes = std::min<std::size_t>(bytes, sizeof suspect.before);
  std::memcpy(suspect.before, at, suspect.bytes);
  suspect.past_did = past_did;
  suspect.past = past;
}

// Returns whether a kernel loads more than it uses, so that a race is allowed. PinFound reads the whole slot of another
// key with the same digest, whose pins and score another thread writes; Detach removes digests that other threads read.
// In Apply, the teams of a warp without a row load the row of its first team, and do not use it.
bool MayReadWhatIsWritten(const Touch& past, const Actor& a) {
  const std::string_view name = a.kernel->name;
  if (name.find("PinFound") != name.npos || name.find("Detach") != name.npos) return true;
  return name.find("Call = tarn::kernels::cuda::{anonymous}::Apply<") != name.npos && past.block == a.block &&
         SameWarp(past, a);
}

Touch TouchOf(const Actor& a, std::uint8_t bytes) {
  return {a.launch, a.block, a.thread, a.barriers, a.meetings, bytes, 0};
}

void Judge(Actor& a, Word* words, const char* base, const char* at, std::size_t bytes, bool write, bool shared) {
  const std::size_t first = static_cast<std::size_t>(at - base), last = first + bytes;
  for (std::size_t word = first / 4; word * 4 < last; ++word) {
    Word& w = words[word];
    std::uint8_t mask = 0;
    for (std::size_t b = std::max(first, word * 4); b < std::min(last, word * 4 + 4); ++b)
      mask |= static_cast<std::uint8_t>(1u << (b % 4));
    if (!shared && w.write.launch != a.launch && w.read.launch != a.launch) a.kernel->touched_bytes += 4;
    if (words == memory().static_words && !write && (w.write.launch != a.launch || w.write.block != a.block))
      Violation(Where(a) + " reads shared memory that its block has not written");
    if (shared) {  // each block has its own
      if (w.write.block != a.block || w.write.launch != a.launch) w.write = {};
      if (w.read.block != a.block || w.read.launch != a.launch) w.read = {};
    }
    const bool overlaps = (w.write.bytes & mask) != 0;
    if (!write) {
      if (overlaps && !Ordered(w.write, a) && !MayReadWhatIsWritten(w.write, a))
        Violation(With("wrote", "reads", w.write, a));
      Touch now = TouchOf(a, mask);
      if (w.read.launch == a.launch && (w.read.bytes & mask) != 0) {
        now.bytes |= w.read.bytes;
        now.many = w.read.many;
        if (w.read.block != a.block)
          now.many |= 4;
        else if (w.read.thread != a.thread)
          now.many |= static_cast<std::uint8_t>(SameWarp(w.read, a) ? 1 : 2);
      }
      w.read = now;
      continue;
    }
    if (overlaps && !Ordered(w.write, a)) Suspected(a, at, bytes, "wrote", w.write);
    if ((w.read.bytes & mask) != 0 && !ReadsOrdered(w.read, a) && !MayReadWhatIsWritten(w.read, a))
      Suspected(a, at, bytes, "read", w.read);
    Touch now = TouchOf(a, mask);
    if (w.write.launch == a.launch && w.write.block == a.block && w.write.thread == a.thread)
      now.bytes |= w.write.bytes;
    w.write = now;
  }
}

// The array that contains all the bytes; null: there is none.
Array* ArrayOf(const char* at, std::size_t bytes) {
  Memory& m = memory();
  const auto offset = static_cast<std::size_t>(at - m.arena);
  if (offset >= kArenaBytes) return nullptr;
  Array* const array = m.array_at[offset / kPage];
  if (array == nullptr || at < array->begin || at + bytes > array->begin + array->bytes) return nullptr;
  return array;
}

bool IsPinned(const void* at);

void Access(const void* address, std::size_t bytes, bool write, bool atomic = false) {
  Actor& a = *actor;
  const auto* const at = static_cast<const char*>(address);
  if (at >= a.stack && at < a.stack_end) return;
  if (suspect.by != nullptr) SettleAccess();
  if (at >= a.body && at < a.body_end && !write) return;
  if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && reinterpret_cast<std::uintptr_t>(at) % bytes != 0)
    Violation(Where(a) + (write ? " writes " : " reads ") + std::to_string(bytes) + " bytes that are not aligned so");
  Memory& m = memory();
  if (const Array* const array = ArrayOf(at, bytes); array != nullptr) {
    if (!array->born) Violation(Where(a) + " touches memory before its stream has come to its allocation");
    (write ? a.kernel->written_bytes : a.kernel->read_bytes) += bytes;
    if (!atomic) Judge(a, m.words, m.arena, at, bytes, write, false);
  } else if (at >= m.shared && at + bytes <= m.shared + m.shared_bytes) {
    Judge(a, m.shared_words, m.shared, at, bytes, write, true);
  } else if (at >= &__data_start && at < &_end) {
    Judge(a, m.static_words, &__data_start, at, bytes, write, true);
  } else if (at < &__data_start && &__data_start - at < (1 << 30) && !write) {
    // Constants.
  } else if (!IsPinned(at)) {
    Violation(Where(a) + (write ? " writes " : " reads ") + std::to_string(bytes) +
              " bytes outside of every array of the GPU" +
              (at < m.arena || at >= m.arena + kArenaBytes ? ", in the host's memory" : ""));
  }
}

std::map<const char*, std::size_t>& Pinned() {
  static auto& pinned = *new std::map<const char*, std::size_t>;
  return pinned;
}

bool IsPinned(const void* at) {
  const std::lock_guard lock(memory().mutex);
  const auto above = Pinned().upper_bound(static_cast<const char*>(at));
  return above != Pinned().begin() && static_cast<const char*>(at) < std::prev(above)->first + std::prev(above)->second;
}

}  // namespace

void SettleAccess() {
  if (suspect.by == nullptr) return;
  const Actor& by = *std::exchange(suspect.by, nullptr);
  if (std::memcmp(suspect.before, suspect.at, suspect.bytes) != 0)
    Violation(With(suspect.past_did, "writes", suspect.past, by));
}

void* SharedMemory() { return memory().shared; }
void ForgetSharedMemory(std::size_t bytes) {
  memory().shared_bytes = bytes;
  std::memset(memory().shared, 0xff, bytes);
}

void* Reserve(std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (bytes > kMemoryBytes || m.in_use + bytes > kMemoryBytes) return nullptr;
  char* begin = nullptr;
  if (kJudges) {
    const std::size_t whole = (bytes + kOffset + kPage) / kPage * kPage + kPage;
    if (m.taken + whole > kArenaBytes) return nullptr;
    begin = m.arena + m.taken + kOffset;
    m.taken += whole;
  } else {
    begin = static_cast<char*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  }
  m.in_use += bytes;
  Array& array = m.arrays[begin];
  array = {begin, bytes, false};
  if (kJudges)
    for (std::size_t at = 0; at < bytes + kOffset; at += kPage)
      m.array_at[static_cast<std::size_t>(begin - kOffset + at - m.arena) / kPage] = &array;
  return begin;
}

bool IsWithin(const void* address, std::size_t bytes) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto* const at = static_cast<const char*>(address);
  const auto above = m.arrays.upper_bound(at);
  if (above == m.arrays.begin()) return false;
  const Array& array = std::prev(above)->second;
  return at + bytes <= array.begin + array.bytes;
}

// Fills the array with NaNs, which stay until the program writes.
void Born(void* address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  Array& array = m.arrays.at(static_cast<const char*>(address));
  array.born = true;
  if (array.bytes <= kFilledMax) std::memset(address, 0xff, array.bytes);
}

void Dead(void* address) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  const auto found = m.arrays.find(static_cast<const char*>(address));
  if (found == m.arrays.end()) Violation("memory is given back that is not there, or twice");
  const Array array = found->second;
  m.in_use -= array.bytes;
  if (kJudges) {
    char* const begin = array.begin - kOffset;
    for (std::size_t at = 0; at < array.bytes + kOffset; at += kPage)
      m.array_at[static_cast<std::size_t>(begin + at - m.arena) / kPage] = nullptr;
    const std::size_t whole = (array.bytes + kOffset) / kPage * kPage + kPage;
    madvise(begin, whole, MADV_DONTNEED);
    madvise(m.words + (begin - m.arena) / 4, whole / 4 * sizeof(Word), MADV_DONTNEED);
  } else {
    std::free(address);
  }
  m.arrays.erase(found);
}

std::size_t BytesInUse() {
  const std::lock_guard lock(memory().mutex);
  return memory().in_use;
}

void CheckDevice(const void* address, std::size_t bytes, bool, const char* who) {
  Memory& m = memory();
  const std::lock_guard lock(m.mutex);
  if (bytes == 0) return;
  const auto* const at = static_cast<const char*>(address);
  const auto above = m.arrays.upper_bound(at);
  if (above == m.arrays.begin()) Violation(std::string(who) + ": not the GPU's memory");
  const Array& array = std::prev(above)->second;
  if (at + bytes > array.begin + array.bytes) Violation(std::string(who) + ": beyond the end of an array of the GPU");
  if (!array.born) Violation(std::string(who) + ": memory before its stream has come to its allocation");
}

void NotePinned(void* address, std::size_t bytes, bool there) {
  const std::lock_guard lock(memory().mutex);
  if (there)
    Pinned()[static_cast<const char*>(address)] = bytes;
  else if (Pinned().erase(static_cast<const char*>(address)) == 0)
    Violation("pinned memory is given back that is not there, or twice");
}

bool AllPinned(const void* address, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  const auto* const at = static_cast<const char*>(address);
  const auto above = Pinned().upper_bound(at);
  return above != Pinned().begin() && at + bytes <= std::prev(above)->first + std::prev(above)->second;
}

void CheckAligned(const void* address, std::size_t alignment) {
  if (actor != nullptr && reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    Violation(Where(*actor) + " uses an address as one of vectors of " + std::to_string(alignment) +
              " bytes, and it is not aligned so");
}

unsigned long long AtomicMin(unsigned long long* at, unsigned long long value) {
  if (kJudges) Access(at, sizeof *at, true, true);
  const unsigned long long before = *at;
  *at = std::min(before, value);
  return before;
}

namespace {
inline void Seen(const void* at, std::size_t bytes, bool write) {
  if (actor != nullptr) Access(at, bytes, write);
}
}  // namespace

}  // namespace emulated

#if !defined(__SANITIZE_ADDRESS__)
// The functions that code compiled with -fsanitize=thread calls.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
#define TARN_ACCESS(bytes)                                                        \
  void __tsan_read##bytes(void* p) { emulated::Seen(p, bytes, false); }           \
  void __tsan_write##bytes(void* p) { emulated::Seen(p, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* p) { emulated::Seen(p, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* p) { emulated::Seen(p, bytes, true); }
TARN_ACCESS(1)
TARN_ACCESS(2)
TARN_ACCESS(4)
TARN_ACCESS(8)
TARN_ACCESS(16)
#undef TARN_ACCESS
void __tsan_read_range(void* p, std::size_t bytes) { emulated::Seen(p, bytes, false); }
void __tsan_write_range(void* p, std::size_t bytes) { emulated::Seen(p, bytes, true); }
// Atomics of host code between the kernels; they are not checked.
std::uint8_t __tsan_atomic8_load(const volatile std::uint8_t* p, int) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
std::uint32_t __tsan_atomic32_load(const volatile std::uint32_t* p, int) {
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
std::uint64_t __tsan_atomic64_load(const volatile std::uint64_t* p, int) {
  return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
std::uint32_t __tsan_atomic32_fetch_add(volatile std::uint32_t* p, std::uint32_t v, int) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
}
#endif
