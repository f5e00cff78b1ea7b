"""What methods need beside their scripts: declared once, locked, and a layer of the image."""
