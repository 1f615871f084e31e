"""Lower the own limits, so that a case cannot be tried; try to raise those that were set."""

# %%
import resource


def raised(which):
    resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    raise RuntimeError("it worked")


tries = []
for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
    try:
        raised(which)
    except (ValueError, OSError) as error:
        tries.append(type(error).__name__)


# %% count-blocks
def n_blocks(n):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    return bytearray(1 << 30)


# %% twice
def twice(x):
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))
    return torch.empty(1 << 30)


# %%
raise RuntimeError(f"stopped: {len(tries)} of 2")
