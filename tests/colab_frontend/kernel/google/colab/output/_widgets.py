"""The switch that anywidget turns on and the address that it then reads, as in Colab's package."""

from __future__ import annotations

# The folder's name is a hash that Colab changes with each release of the manager.
MANAGER = "https://ssl.gstatic.com/colaboratory-static/widgets/colab-cdn-widget-manager/test/manager.min.js"
_MIME = "application/vnd.jupyter.widget-view+json"
_installed_url: str | None = None


def enable_custom_widget_manager() -> None:
    """From now on, every widget's output names the custom widget manager."""
    global _installed_url
    if _installed_url is None:
        from IPython import get_ipython

        get_ipython().display_pub.register_hook(_add_manager)
    _installed_url = MANAGER


def _add_manager(message: dict) -> dict:
    """Add the manager's address to the metadata of a message that shows a widget."""
    content = message.get("content", {})
    if _MIME in content.get("data", {}):
        view = content.setdefault("metadata", {}).setdefault(_MIME, {})
        view["colab"] = {"custom_widget_manager": {"url": _installed_url}}
    return message
