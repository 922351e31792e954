# Everything a person types. `make demo` and `make test` need Python 3.11 and nothing else.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo test slow lint wheel readme kappa-page manifold-page dynamics-page clean

demo: .venv/installed
	$(BIN)/kappalens demo

test: .venv/installed
	$(BIN)/pytest -m "not slow"

slow: .venv/installed
	$(BIN)/pytest -m slow --durations=10

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The built wheel in an environment of its own, used from another folder.
wheel: .venv/installed
	rm -rf dist && $(BIN)/python -m build --wheel --outdir dist .
	bash tests/wheel.sh dist

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv dist runs/demo

# The README's findings and pictures, from the last demo.
readme: .venv/installed
	$(BIN)/python -m analyses.readme

# The numbers and the drawing of docs/kappa.md, from the small preset's table.
kappa-page: .venv/installed
	$(BIN)/python -m analyses.kappa_page runs/kappa-small

# The numbers and the drawing of docs/manifold.md: trains what is not trained yet, about an hour.
manifold-page: .venv/installed
	$(BIN)/python -m analyses.manifold_page runs

# The numbers and the drawings of docs/dynamics.md: measures the studies that are not on record.
dynamics-page: .venv/installed
	$(BIN)/python -m analyses.dynamics.page
