"""The built-in engine by the words of Docker's client: whoever speaks to an engine speaks to it alike."""
