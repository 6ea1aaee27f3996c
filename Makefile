# deeped-ray: `make demo` and `make test` are each enough by themselves on a fresh clone.
PYTHON ?= python3
KB ?= kb/mini
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
AUDIT := $(VENV)/audit
LOCKS := requirements.lock requirements-dev.lock
BENCHMARKS := start serve_start corpus mentions embed_entities embed_scale train_linker link link_corpus serve

.PHONY: help demo test setup check docs audit lock format config bench bench-scale serve clean

help: ## show these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/' | expand -t 24

demo: $(READY) ## dump in, linked text out: the whole path on a local Ray (ONCE=1: do not keep serving)
	@$(BIN)/deeped demo --kb $(KB) $(if $(PORT),--port $(PORT))

test: $(READY) ## run the whole test suite
	$(BIN)/python -m pytest -n 4

setup: $(READY) ## make .venv from the pinned versions

check: $(READY) ## linter, formatter, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/serve.py

docs: $(READY) ## the documentation as a site, in build/site; fails if a link leads nowhere
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

audit: $(AUDIT) ## ask for known vulnerabilities of every pinned version; needs the network
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off $(patsubst %,-r %,$(LOCKS)) -r requirements-torch.lock

lock: ## write the lock files anew from constraints.txt; needs uv and the network
	$(PYTHON) .ci/lock

format: $(READY) ## let the formatter and linter rewrite what they can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

config: $(READY) ## write serve/config.yaml and docs/configuration.md from the settings in the code
	$(BIN)/python -m deeped_ray.serving.config --output serve/config.yaml
	$(BIN)/python docs/reference.py

bench: $(READY) ## benchmarks that need no data but kb/mini; JSON goes to benchmarks/results/
	@mkdir -p benchmarks/results
	@for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py --json benchmarks/results/$$name.json || exit 1; done

bench-scale: $(READY) ## ingest, embedding and linking at three sizes, by 1 and 2 workers: make bench-scale ARGS='--dump FILE --kb KB'
	@$(BIN)/python benchmarks/scale.py $(ARGS)

serve: $(READY) ## serve a finished knowledge base: make serve KB=folder [PORT=8000] [TOKEN_FILE=file]
	@$(BIN)/deeped serve --kb $(KB) $(if $(PORT),--port $(PORT)) $(if $(TOKEN_FILE),--token-file $(TOKEN_FILE))

clean: ## remove the environment and the demo's knowledge base
	rm -rf $(VENV) kb build *.egg-info

$(AUDIT): requirements-audit.lock
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install -q --require-hashes -r requirements-audit.lock
	@touch $(AUDIT)

$(READY): pyproject.toml constraints.txt $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "deeped-ray needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "installing pinned packages into $(VENV): about two minutes and 2 GB"
	$(BIN)/python -m pip install --progress-bar off --require-hashes $(patsubst %,-r %,$(LOCKS))
	@# what is left is torch, of which machines without a GPU take another build, with other hashes
	$(BIN)/python -m pip install --progress-bar off --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $(READY)
