"""What is true about a run. Pure: the standard library and :mod:`flow_app.errors`, no clock, no I/O."""
