// What forward and backward of differential attention share.
#ifndef HEED_SRC_COMPOSE_DIFFERENTIAL_H_
#define HEED_SRC_COMPOSE_DIFFERENTIAL_H_

#include "heed/compose.h"

namespace heed {

// How much of the second map a head takes away.
float LambdaOf(const DifferentialOptions& options, int64_t head);

}  // namespace heed

#endif  // HEED_SRC_COMPOSE_DIFFERENTIAL_H_
