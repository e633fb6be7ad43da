#include "src/distributed/agreement.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "src/message.h"

namespace heed::distributed {
namespace {

// What one rank tells the others: plain bytes, of a fixed size, so that no rank need ask how many.
struct Record {
  int32_t failed = 0;
  int32_t code = 0;
  std::array<int64_t, Terms::kMost> terms{};
  std::array<char, 248> message{};  // cut where it is longer
};

// Messages under way at once.
constexpr int kTogether = 8;

Record RecordOf(const std::exception_ptr& failure, const Terms& terms) {
  Record record;
  record.terms = terms.values();
  if (failure == nullptr) return record;
  record.failed = 1;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    record.code = static_cast<int32_t>(error.code());
    const std::string_view text = error.what();
    std::copy_n(text.begin(), std::min(text.size(), record.message.size()), record.message.begin());
  } catch (...) {
    record.code = static_cast<int32_t>(ErrorCode::kMemory);
  }
  return record;
}

bool AreAlike(int64_t a, int64_t b) { return a == b || a == Terms::kAny || b == Terms::kAny; }

// The first rank that failed, and the first that has another term.
struct Found {
  int failed = -1, differs = -1;
  size_t term = 0;
  Record failure;

  void Look(int rank, const Record& record, const Record& mine, const Terms& terms) {
    if (record.failed != 0 && (failed < 0 || rank < failed)) {
      failed = rank;
      failure = record;
    }
    if (differs >= 0 && differs < rank) return;
    for (size_t n = 0; n < terms.count(); ++n) {
      if (AreAlike(record.terms[n], mine.terms[n])) continue;
      differs = rank;
      term = n;
      return;
    }
  }
};

std::string_view TextOf(const Record& record) {
  const auto end = std::find(record.message.begin(), record.message.end(), '\0');
  return {record.message.data(), static_cast<size_t>(end - record.message.begin())};
}

}  // namespace

void Agree(Communicator& communicator, const std::exception_ptr& failure, const Terms& terms) {
  const Record mine = RecordOf(failure, terms);
  const int rank = communicator.Rank(), size = communicator.Size();
  Found found;
  std::array<Record, kTogether> records;
  for (int first = 1; first < size; first += kTogether) {
    const int last = std::min(size, first + kTogether);
    for (int step = first; step < last; ++step) {
      const std::span record(&records[static_cast<size_t>(step - first)], 1);
      communicator.BeginReceive((rank - step + size) % size, std::as_writable_bytes(record));
      communicator.BeginSend((rank + step) % size, std::as_bytes(std::span(&mine, 1)));
    }
    communicator.Finish();
    for (int step = first; step < last; ++step) {
      found.Look((rank - step + size) % size, records[static_cast<size_t>(step - first)], mine,
                 terms);
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
  if (found.failed >= 0) {
    throw Error(static_cast<ErrorCode>(found.failure.code),
                Join("rank {}: {}", {found.failed, TextOf(found.failure)}));
  }
  if (found.differs < 0) return;
  Fail(ErrorCode::kOption, "rank {} has another {} than rank {}; ranks of one call agree in it",
       {found.differs, terms.name(found.term), rank});
}

void CheckCommunicator(const Communicator& communicator) {
  const int rank = communicator.Rank(), size = communicator.Size();
  if (size < 1) Fail(ErrorCode::kRange, "communicator.Size() = {}; it is at least 1", {size});
  if (rank < 0 || rank >= size) {
    Fail(ErrorCode::kRange, "communicator.Rank() = {}; ranks lie in [0, Size() = {})",
         {rank, size});
  }
}

}  // namespace heed::distributed
