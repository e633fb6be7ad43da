// An older standard is refused in one sentence: the errors of the other headers would not say it.
#ifndef HEED_STANDARD_H_
#define HEED_STANDARD_H_

// Visual C++ says the standard here, and leaves __cplusplus at 199711.
#if defined(_MSVC_LANG)
#define HEED_STANDARD _MSVC_LANG
#else
#define HEED_STANDARD __cplusplus
#endif
#if HEED_STANDARD < 202002L
#error "heed needs C++20"
#endif
#undef HEED_STANDARD

#endif  // HEED_STANDARD_H_
