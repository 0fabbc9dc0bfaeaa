"""The engine: tokens in, tokens out. It knows no terminal and no YAML."""

import logging

# a library says nothing unless its user wants to hear it
logging.getLogger("outrider").addHandler(logging.NullHandler())
