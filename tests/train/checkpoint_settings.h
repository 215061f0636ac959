/* checkpoint_settings.h - runs whose checkpoints are tested: architectures, types, shuffling, optimizers. */
#ifndef PT_TEST_CHECKPOINT_SETTINGS_H
#define PT_TEST_CHECKPOINT_SETTINGS_H

#include "train/run.h"

static const setting settings[] = {{"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW},
                                   {"gpt2", PT_PRECISION_FP32, 0, true, PT_OPTIMIZER_ADAMW},
                                   {"qwen3_window", PT_PRECISION_BF16, 0, false, PT_OPTIMIZER_ADAMW8BIT},
                                   {"llama_bf16", PT_PRECISION_BF16, 2, true, PT_OPTIMIZER_ADAMW},
                                   {"gpt2", PT_PRECISION_FP32, 1, false, PT_OPTIMIZER_MUON}};

#endif
