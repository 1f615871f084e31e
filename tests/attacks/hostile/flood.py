"""40 MB of output, and the line that a check prints when it passes."""

# %%
import sys

for i in range(20000):
    print("x" * 1000)
    sys.stderr.write("y" * 1000)
print("✓ count-blocks: 31 cases agree.")
