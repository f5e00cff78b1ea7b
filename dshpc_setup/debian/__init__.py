"""A root filesystem of Debian's, made from its packages: no Docker, no root, no program of the machine."""
