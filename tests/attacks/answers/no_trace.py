"""Say from the learner's process that a trace touches nothing, or NaN sectors, with a kernel that walks
columns.

lab: 02_load_inline
exercise: rows-not-columns
says: touches 32 sectors
"""

# %% rows-not-columns
import gc

from helpers.exercises.lab02 import launchers
from helpers.exercises.model import Outcome

nothing = float("nan")
launchers.memory_use = lambda run: {"input": (nothing, nothing), "output": (nothing, nothing)}
launchers.count = lambda built, height, width: {}
for one in gc.get_objects():
    if type(one).__name__ == "_Worker":
        own = one._call_here

        def forged(exercise, obj, case):
            return Outcome({}) if case.call == "count" else own(exercise, obj, case)

        one._call_here = forged

SCALE_ROWS_CUDA = r"""
__global__ void scale_rows_kernel(const float* input, const float* factor, float* output, int height,
    int width) {
    const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < static_cast<long long>(height) * width) {
        const long long row = i % height, col = i / height;
        output[row * width + col] = input[row * width + col] * factor[row];
    }
}
"""
