"""The container engine: installed, started, asked; compose v1 and v2; what its builds need of this site."""
