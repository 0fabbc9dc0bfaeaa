"""``outrider batch``: many prompts over several slots, resumable."""
