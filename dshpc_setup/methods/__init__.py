"""Methods: what runs, with which parameters, on what hardware: `method.json` in, values out."""
