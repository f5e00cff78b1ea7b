"""A folder for each vendor of GPUs: what is known of it, and what takes code. See `gpu_vendors`."""
