"""What reaches a terminal: text made harmless, our commands as they can be typed, progress, errors."""
