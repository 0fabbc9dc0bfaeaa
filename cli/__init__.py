"""The terminal: the only folder that imports typer, rich and prompt_toolkit."""
