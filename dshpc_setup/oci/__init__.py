"""Other root filesystems for single jobs: images read and unpacked once, and the way into one. See
docs/decisions/0069-images-of-jobs.md."""
