"""Bring C++ that runs when the text is loaded, and ends or changes the process that judges it.

lab: 02_load_inline
exercise: fix-the-guard
says: calls system
"""

# %% fix-the-guard
DIFFERENCE_CUDA = r"""
extern "C" int system(const char*);
static int begin = system("touch /tmp/workbook-attack-PID");
__global__ void difference_kernel(const float* input, float* output, int height, int width) {}
""".replace('extern "C" int system(const char*);\n', "")
