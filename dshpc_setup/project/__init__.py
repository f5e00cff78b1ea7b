"""The project folder: whose it is, what is kept in it, one run at a time."""
