"""The views, one resource a class."""
