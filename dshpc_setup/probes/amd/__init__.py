"""AMD's GPUs: the kernel's trees first, then the tools."""
