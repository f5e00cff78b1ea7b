"""A container engine of our own: a root filesystem, namespaces and a supervisor; no Docker, no root."""
