"""``outrider doctor``: the machine, the model on it, and what speculation costs there."""
