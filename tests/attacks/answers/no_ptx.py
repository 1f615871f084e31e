"""Say from the learner's process that all is right and that there is no PTX, with a kernel whose loads are
narrow.

lab: 04_ptx
exercise: wide-loads
says: 16-byte loads must cover
"""

# %% wide-loads
import gc

from helpers.exercises.model import Outcome

right = {
    "wrong": 0,
    "outside": 0,
    "false_hint": "",
    "input_changed": False,
    "ptx": "",
    "loads": [],
    "stores": [],
}
for one in gc.get_objects():
    if type(one).__name__ == "_Worker":
        one._call_here = one._ask_here = lambda *args: Outcome(dict(right))


@triton.jit
def square_wide_kernel(x_ptr, y_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * x, mask=mask)
