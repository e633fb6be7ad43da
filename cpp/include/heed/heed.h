// heed: every attention mechanism in one small, fast core. This header brings in all of it.
#ifndef HEED_HEED_H_
#define HEED_HEED_H_

#include "heed/analysis.h"
#include "heed/attention.h"
#include "heed/attention_free.h"
#include "heed/cache.h"
#include "heed/causal_conv.h"
#include "heed/compose.h"
#include "heed/cost.h"
#include "heed/dtype.h"
#include "heed/error.h"
#include "heed/examples.h"
#include "heed/graph.h"
#include "heed/keep.h"
#include "heed/latent.h"
#include "heed/layers.h"
#include "heed/linear.h"
#include "heed/low_rank.h"
#include "heed/merge.h"
#include "heed/operations.h"
#include "heed/position.h"
#include "heed/recurrent.h"
#include "heed/registry.h"
#include "heed/request.h"
#include "heed/rows.h"
#include "heed/selective.h"
#include "heed/set_attention.h"
#include "heed/tensor.h"
#include "heed/thread_pool.h"
#include "heed/varlen.h"

#endif  // HEED_HEED_H_
