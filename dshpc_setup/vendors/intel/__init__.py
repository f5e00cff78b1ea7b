"""Intel: GPUs of the drivers i915 and xe."""
