"""NVIDIA: GPUs of PCs and servers, Jetsons, and those that Windows lends to WSL 2."""
