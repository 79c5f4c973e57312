"""Stands in for fairscale, whose model-parallel layers Meta's model.py imports: on one process they are plain layers."""
