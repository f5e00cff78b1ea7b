"""NVIDIA's GPUs: every layer between the PCI bus and nvidia-smi, and what they say together."""
