# Two commands do everything: `make chat` and `make test`. What they need is set up once, in .venv.
#
#   PYTHON=python3.12          which Python to use (3.11 or newer; found by itself otherwise)
#   CMAKE_ARGS=-DGGML_CUDA=on  how llama.cpp is built; another value builds it again
#   ARGS="-P smollm2-plain"    more words for the chat, or for pytest

.PHONY: help chat test lint docs clean

help:
	@echo "make chat    set everything up and chat"
	@echo "make test    set everything up and run the tests"
	@echo "make lint    ruff and mypy"
	@echo "make docs    the parts of docs/ that are made by running the program"
	@echo "make clean   remove the environment and everything built"

# an interrupted chat has said so itself
chat:
	@sh .ci/environment
	@.venv/bin/outrider chat $(ARGS) || [ $$? -eq 130 ]

test:
	@sh .ci/environment dev model
	@.venv/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

lint:
	@sh .ci/environment dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

docs:
	@sh .ci/environment dev model
	@.venv/bin/python -m outrider.cli.command_reference >docs/commands.md
	@PYTHONPATH=tests .venv/bin/python docs/make_pictures.py

clean:
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find cli profiles speculative tests -name __pycache__ -type d -prune -exec rm -rf {} +
