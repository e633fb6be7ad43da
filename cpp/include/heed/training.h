// heed's training kit: layers with their way back around any mechanism that has a gradient, losses,
// AdamW, weights in files. A library of its own (heed::training); docs/training.md.
#ifndef HEED_TRAINING_H_
#define HEED_TRAINING_H_

#include "heed/training/adamw.h"
#include "heed/training/attention_layer.h"
#include "heed/training/block.h"
#include "heed/training/layers.h"
#include "heed/training/loss.h"
#include "heed/training/parameter.h"
#include "heed/training/safetensors.h"
#include "heed/training/trainer.h"
#include "heed/training/transformer.h"

#endif  // HEED_TRAINING_H_
