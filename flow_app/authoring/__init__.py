"""How people write workflows: decorators, the registry they fill, and the runtime that runs what is registered."""
