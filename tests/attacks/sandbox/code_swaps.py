"""Put other code into the functions that call, wrap and answer, where setting a name would be undone."""

# %%
import types

from helpers.exercises import attempt, call, judge


def nothing_wrong(*args, **kwargs):
    return None


for module in (attempt, call, judge):
    for value in list(vars(module).values()):
        if (
            isinstance(value, types.FunctionType)
            and value.__module__ == module.__name__
            and not value.__closure__
        ):
            try:
                value.__code__ = nothing_wrong.__code__
            except ValueError:
                continue
# %%
attack(lambda: open("CANARY_FILE"))
