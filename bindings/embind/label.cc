// Which file this is: compiled for each module.
#include "label.h"

HEED_LABEL(HEED_WASM_FILE);
