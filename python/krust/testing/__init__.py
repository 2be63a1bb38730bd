"""The pytest plugin (`plugin.py`). A running broker does not use it."""
