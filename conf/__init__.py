"""Hydra's primary configs and groups; a package so that they are installed with grinnder_cli."""
