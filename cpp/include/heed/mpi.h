// The ranks of an MPI communicator, for heed/distributed.h. Needs an MPI 3 library and its mpi.h:
// whichever the program has, as nothing of heed was built with one.
#ifndef HEED_MPI_H_
#define HEED_MPI_H_

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "heed/distributed.h"

namespace heed::distributed {

// What MPI reported, in its words.
class MpiError : public std::runtime_error {
 public:
  MpiError(const std::string& call, int code) : std::runtime_error(Text(call, code)), code_(code) {}
  int code() const { return code_; }

 private:
  static std::string Text(const std::string& call, int code) {
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    MPI_Error_string(code, text, &len);
    return call + ": " + std::string(text, static_cast<size_t>(len));
  }

  int code_;
};

// Ranks are those of the communicator. Its messages have a context of their own, so that they do
// not meet those of the program; making and destroying it is collective, between MPI_Init() and
// MPI_Finalize(). MPI is called by the threads that call heed alone: MPI_THREAD_FUNNELED suffices
// where that is the main thread.
//
// Throws MpiError, also where memory for a message is missing. The other ranks wait for what this
// one does not send: end them with MPI_Abort().
class MpiCommunicator final : public Communicator {
 public:
  // MPI 3 counts with an int: longer messages go in parts of `most_bytes`, in [1, INT_MAX] and the
  // same on all ranks.
  explicit MpiCommunicator(MPI_Comm communicator, size_t most_bytes = size_t{1} << 30)
      : most_bytes_(most_bytes) {
    Check("MPI_Comm_dup", MPI_Comm_dup(communicator, &communicator_));
    Check("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN));
    Check("MPI_Comm_rank", MPI_Comm_rank(communicator_, &rank_));
    Check("MPI_Comm_size", MPI_Comm_size(communicator_, &size_));
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override { MPI_Comm_free(&communicator_); }

  int Rank() const override { return rank_; }
  int Size() const override { return size_; }

  void BeginSend(int to, std::span<const std::byte> bytes) override {
    ForEachMessage(bytes, [&](std::span<const std::byte> part, MPI_Request* request) {
      Check("MPI_Isend", MPI_Isend(part.data(), static_cast<int>(part.size()), MPI_BYTE, to, kTag,
                                   communicator_, request));
    });
  }

  void BeginReceive(int from, std::span<std::byte> bytes) override {
    ForEachMessage(bytes, [&](std::span<std::byte> part, MPI_Request* request) {
      Check("MPI_Irecv", MPI_Irecv(part.data(), static_cast<int>(part.size()), MPI_BYTE, from, kTag,
                                   communicator_, request));
    });
  }

  void Finish() override {
    Check("MPI_Waitall",
          MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
    requests_.clear();
  }

  // Most MPI libraries move a long message on only while one of their functions is called.
  void Progress() override {
    if (requests_.empty()) return;
    int done = 0;
    Check("MPI_Testall", MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                                     MPI_STATUSES_IGNORE));
    if (done != 0) requests_.clear();
  }

 private:
  static constexpr int kTag = 0;

  static void Check(const char* call, int code) {
    if (code != MPI_SUCCESS) throw MpiError(call, code);
  }

  void AddRequest() {
    try {
      requests_.push_back(MPI_REQUEST_NULL);
    } catch (const std::bad_alloc&) {
      throw MpiError("heed::distributed::MpiCommunicator", MPI_ERR_NO_MEM);
    }
  }

  template <typename Byte, typename Begin>
  void ForEachMessage(std::span<Byte> bytes, const Begin& begin) {
    do {
      const size_t count = std::min(bytes.size(), most_bytes_);
      AddRequest();
      begin(bytes.first(count), &requests_.back());
      bytes = bytes.subspan(count);
    } while (!bytes.empty());
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  size_t most_bytes_;
  std::vector<MPI_Request> requests_;
};

}  // namespace heed::distributed

#endif  // HEED_MPI_H_
