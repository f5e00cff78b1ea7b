"""A machine as a folder: what to ask it, and what of its answers must not leave the house."""
