"""Paying invoices: an example of a real job done by workflows. Start reading at ``workflows.py``."""
