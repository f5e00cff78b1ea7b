"""AMD: GPUs of the drivers amdgpu and KFD."""
