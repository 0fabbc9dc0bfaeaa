"""What to run, as data: the schema, the loader, the built-in profiles and model sources."""
