"""A cluster that is set up: started, stopped, asked how it is, removed."""
