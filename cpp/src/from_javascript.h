// Whether callers are the wrappers of the npm package, which rule some mistakes out.
#ifndef HEED_SRC_FROM_JAVASCRIPT_H_
#define HEED_SRC_FROM_JAVASCRIPT_H_

namespace heed {

// Their results are memory that nobody has seen before, words are those of a list, and packed
// sequences have no user functions. Users wait for the size of these modules: what cannot happen in
// them is left out.
#ifdef __EMSCRIPTEN__
inline constexpr bool kFromJavaScript = true;
#else
inline constexpr bool kFromJavaScript = false;
#endif

}  // namespace heed

#endif  // HEED_SRC_FROM_JAVASCRIPT_H_
