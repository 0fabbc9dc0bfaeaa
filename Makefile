# Two commands do everything: `make chat` and `make test`. What they need is set up once, in .venv.
#
#   PYTHON=python3.12          which Python to use (3.11 or newer; found by itself otherwise)
#   CMAKE_ARGS=-DGGML_CUDA=on  how llama.cpp is built; another value builds it again
#   ARGS="-P smollm2-plain"    more words for the chat, or for pytest

.PHONY: help chat test lint clean

help:
	@echo "make chat    set everything up and chat"
	@echo "make test    set everything up and run the tests"
	@echo "make lint    ruff and mypy"
	@echo "make clean   remove the environment and everything built"

# an interrupted chat has said so itself
chat:
	@sh .ci/environment
	@.venv/bin/outrider chat $(ARGS) || [ $$? -eq 130 ]

test:
	@sh .ci/environment dev model
	@.venv/bin/python -m pytest $(ARGS)

lint:
	@sh .ci/environment dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find cli profiles speculative tests -name __pycache__ -type d -prune -exec rm -rf {} +
