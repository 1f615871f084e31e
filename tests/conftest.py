"""Tests marked `gpu` are deselected, not skipped and not passed, where torch has no GPU."""

from helpers import device


def pytest_collection_modifyitems(config, items):
    if device.has_gpu():
        return
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        config.hook.pytest_deselected(items=gpu)
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
