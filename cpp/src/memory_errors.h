// What public functions throw when memory is short: Error(kMemory), never std::bad_alloc.
#ifndef HEED_SRC_MEMORY_ERRORS_H_
#define HEED_SRC_MEMORY_ERRORS_H_

#include <optional>
#include <type_traits>
#include <utility>

#include "src/from_javascript.h"

namespace heed {

// A reference to a callable `void()`. Never owns it: valid during one call.
class BodyRef {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, BodyRef>) explicit BodyRef(const F& body)
      : object_(&body), call_([](const void* object) { (*static_cast<const F*>(object))(); }) {}
  void operator()() const { call_(object_); }

 private:
  const void* object_;
  void (*call_)(const void*);
};

// Calls body(). std::bad_alloc and std::length_error become Error(kMemory), which names `what`.
// One function, as there are many public ones.
void CallWithMemoryErrors(const char* what, BodyRef body);

// As CallWithMemoryErrors(), and returns what body() returns. Every public function that allocates
// goes through it, validation included. The bindings of the npm package do the same themselves, in
// one place.
template <typename Body>
std::invoke_result_t<const Body&> WithMemoryErrors(const char* what, const Body& body) {
  using Result = std::invoke_result_t<const Body&>;
  if constexpr (kFromJavaScript) {
    return body();
  } else if constexpr (std::is_void_v<Result>) {
    CallWithMemoryErrors(what, BodyRef(body));
  } else {
    std::optional<Result> result;
    const auto keep_result = [&] { result.emplace(body()); };
    CallWithMemoryErrors(what, BodyRef(keep_result));
    return *std::move(result);
  }
}

}  // namespace heed

#endif  // HEED_SRC_MEMORY_ERRORS_H_
