"""The base image, the build context, the build, and what of the declared packages is in it."""
