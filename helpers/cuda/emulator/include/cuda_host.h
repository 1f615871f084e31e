// CUDA C++ on a machine without a GPU: what a translated .cu file includes. helpers/cuda/emulator/translate.py writes that file.
//
// It computes what the kernel computes, thread by thread, and looks at every access. It says nothing about time.
#pragma once
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>
#if !defined(__x86_64__) || defined(WB_UCONTEXT)
#include <ucontext.h>
#endif

#include "vectors.h"
// The order matters: each needs those above it.
#include "pointers.h"
#include "state.h"
#include "shared_memory.h"
#include "fibers.h"
#include "waiting.h"
#include "engine.h"
#include "device_api.h"
#include "half.h"
#include "runtime_api.h"
