"""The part of Colab's `google.colab.output` that widgets use."""

from google.colab.output import _widgets
from google.colab.output._widgets import enable_custom_widget_manager

__all__ = ["_widgets", "enable_custom_widget_manager"]
