"""The pages of `dshpc dashboard`: what the commands show, for a browser. It knows nothing of its own."""
