// A label in the WebAssembly file, in a custom section named "heed": which variant of which version
// it is. JavaScript reads it before it instantiates anything, because a stale file (from a cache,
// from a CDN) would trap or compute nonsense long before a function could answer.
#ifndef HEED_BINDINGS_LABEL_H_
#define HEED_BINDINGS_LABEL_H_

#define HEED_LABEL(variant)                                                      \
  asm(".section .custom_section.heed,\"\",@\n.ascii \"" variant " " HEED_VERSION \
      "\"\n"                                                                     \
      ".text\n")

#endif  // HEED_BINDINGS_LABEL_H_
