// All tokens of some heads, from some tokens of all heads, and back: every rank sends every other
// one what that rank is to have.
#include <cstddef>
#include <vector>

#include "heed/distributed.h"
#include "src/distributed/agreement.h"
#include "src/distributed/key_ring.h"
#include "src/distributed/whole.h"
#include "src/message.h"
#include "src/view_checks.h"

namespace heed::distributed {
namespace {

constexpr const char* kWhat = "heads and tokens of ranks";

StoredOutput AsOutput(const StoredTensor& tensor) {
  return {const_cast<void*>(tensor.data), tensor.dtype, tensor.shape, tensor.strides};
}
StoredTensor AsTensor(const StoredOutput& output) {
  return {output.data, output.dtype, output.shape, output.strides};
}

// Both tensors of a rank, and the parts of them that meet those of another rank. What this rank has
// for the other, or of it, is a list of pieces on either side, the same rows in the same order.
struct Sides {
  StoredTensor by_token, by_head;
  int64_t len = 0;
  TokenOrder order = TokenOrder::kContiguous;
  int rank = 0, size = 1;

  std::vector<Rows> Tokens(int of) const { return RowsOf(len, of, size, order); }
  TokenSpan Heads(int of) const { return HeadsOf(by_token.shape[1], of, size); }

  // This rank's tokens of the other's heads.
  std::vector<StoredTensor> TokenPieces(int other) const {
    StoredTensor heads = by_token;
    if (heads.has_value()) heads.data = by_token.Row(0, Heads(other).begin, 0);
    heads.shape[1] = Heads(other).len;
    std::vector<StoredTensor> pieces;
    for (const Rows& rows : Tokens(rank)) {
      pieces.push_back(RowsOf(heads, rows.begin, rows.tokens.len));
    }
    return pieces;
  }

  // The other's tokens of this rank's heads.
  std::vector<StoredTensor> HeadPieces(int other) const {
    std::vector<StoredTensor> pieces;
    for (const Rows& rows : Tokens(other)) {
      pieces.push_back(RowsOf(by_head, rows.tokens.begin, rows.tokens.len));
    }
    return pieces;
  }
};

using Pieces = std::vector<StoredTensor> (Sides::*)(int) const;

size_t BytesOf(const StoredTensor& piece) {
  return static_cast<size_t>(piece.shape[0] * piece.shape[1] * piece.shape[2] * RowBytes(piece));
}

size_t BytesOf(const std::vector<StoredTensor>& pieces) {
  size_t bytes = 0;
  for (const StoredTensor& piece : pieces) bytes += BytesOf(piece);
  return bytes;
}

Sides Validate(const StoredTensor& by_token, const StoredTensor& by_head, int64_t len,
               TokenOrder order, const Communicator& communicator) {
  const Sides sides = {by_token, by_head, len, order, communicator.Rank(), communicator.Size()};
  CheckStored("by_token", by_token);
  CheckStored("by_head", by_head);
  const int64_t tokens = CountRows(sides.Tokens(sides.rank));
  const TokenSpan heads = sides.Heads(sides.rank);
  if (by_token.dtype != by_head.dtype) {
    Fail(ErrorCode::kDType, "by_token has element type {} and by_head {}; they are the same",
         {DTypeName(by_token.dtype), DTypeName(by_head.dtype)});
  }
  const auto& [batch, num_heads, rows, dim] = by_token.shape;
  CheckShape("by_token", by_token.shape, {batch, num_heads, tokens, dim},
             "[batch, num_heads, this rank's tokens, dim]");
  CheckShape("by_head", by_head.shape, {batch, heads.len, len, dim},
             "[batch, this rank's heads, len, dim]");
  CheckNoAlias("by_token", SpanOf(by_token), "by_head", SpanOf(by_head));
  return sides;
}

// Messages to and from every rank, this one included.
struct Messages {
  Messages() = default;
  explicit Messages(int size) : sent(static_cast<size_t>(size)), received(sent.size()) {}
  std::vector<std::vector<std::byte>> sent, received;
};

void PackAll(const Sides& sides, Pieces from, Pieces to, Messages& messages) {
  for (int other = 0; other < sides.size; ++other) {
    const size_t n = static_cast<size_t>(other);
    messages.received[n].resize(BytesOf((sides.*to)(other)));
    messages.sent[n].resize(BytesOf((sides.*from)(other)));
    std::byte* next = messages.sent[n].data();
    for (const StoredTensor& piece : (sides.*from)(other)) {
      Pack(piece, next);
      next += BytesOf(piece);
    }
  }
}

void Deliver(const Sides& sides, Messages& messages, Communicator& communicator) {
  const int rank = sides.rank, size = sides.size;
  messages.received[static_cast<size_t>(rank)].swap(messages.sent[static_cast<size_t>(rank)]);
  for (int step = 1; step < size; ++step) {
    const int from = (rank - step + size) % size, to = (rank + step) % size;
    communicator.BeginReceive(from, messages.received[static_cast<size_t>(from)]);
    communicator.BeginSend(to, messages.sent[static_cast<size_t>(to)]);
  }
  communicator.Finish();
}

void UnpackAll(const Sides& sides, Pieces to, const Messages& messages) {
  for (int other = 0; other < sides.size; ++other) {
    const std::byte* next = messages.received[static_cast<size_t>(other)].data();
    for (const StoredTensor& piece : (sides.*to)(other)) {
      Unpack(next, AsOutput(piece));
      next += BytesOf(piece);
    }
  }
}

// `check(sides)` is about the direction.
template <typename Check>
void Exchange(const StoredTensor& by_token, const StoredTensor& by_head, int64_t len,
              TokenOrder order, Communicator& communicator, Pieces from, Pieces to,
              const Check& check) {
  WithMemoryErrors(kWhat, [&] {
    CheckCommunicator(communicator);
    Sides sides;
    Messages messages;
    Failure failure;
    failure.Catch(kWhat, [&] {
      messages = Messages(communicator.Size());
      sides = Validate(by_token, by_head, len, order, communicator);
      check(sides);
      PackAll(sides, from, to, messages);
    });
    Terms terms;
    terms.Add("batch", sides.by_token.shape[0]);
    terms.Add("num_heads", sides.by_token.shape[1]);
    terms.Add("dim", sides.by_token.shape[3]);
    terms.Add("type", static_cast<int64_t>(sides.by_token.dtype));
    terms.Add("len", sides.len);
    terms.Add("order", static_cast<int64_t>(sides.order));
    Agree(communicator, failure.error(), terms);
    Deliver(sides, messages, communicator);
    UnpackAll(sides, to, messages);
  });
}

}  // namespace

void SequenceToHeads(const StoredTensor& by_token, const StoredOutput& by_head, int64_t len,
                     TokenOrder order, Communicator& communicator) {
  Exchange(by_token, AsTensor(by_head), len, order, communicator, &Sides::TokenPieces,
           &Sides::HeadPieces, [&](const Sides&) {
             CheckOutput("by_head", by_head, by_head.shape, "[batch, this rank's heads, len, dim]");
           });
}

void HeadsToSequence(const StoredTensor& by_head, const StoredOutput& by_token, int64_t len,
                     TokenOrder order, Communicator& communicator) {
  Exchange(AsTensor(by_token), by_head, len, order, communicator, &Sides::HeadPieces,
           &Sides::TokenPieces, [&](const Sides& sides) {
             CheckOutput("by_token", by_token, by_token.shape,
                         "[batch, num_heads, this rank's tokens, dim]");
             if (by_token.shape[1] % sides.size == 0) return;
             Fail(
                 ErrorCode::kUnsupported,
                 "{} heads of {} ranks, which share them: there is no way back from several copies",
                 {by_token.shape[1], sides.size});
           });
}

}  // namespace heed::distributed
