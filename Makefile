# Every target has its one-line help after `##`; `make` alone prints them.
ROCM ?= 7.14
IMAGE ?= rocm$(ROCM)
BASE ?= primus-v26.4
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m builder
# The tests with an engine in one process, the others beside it, a file at a time.
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

##@ Images (ROCM=7.14)

.PHONY: rehearse
rehearse: images/$(IMAGE).yaml engine ## build and verify the image's Dockerfile on a small stand-in base
	@$(RUN) rehearse $(IMAGE) $(ARGS)

.PHONY: rehearse-all
rehearse-all: engine ## the same for every image
	@set -e; for image in $(basename $(notdir $(wildcard images/*.yaml))); do $(RUN) rehearse $$image $(ARGS); done

.PHONY: image
image: images/$(IMAGE).yaml engine ## build, verify and tag the image on its real base
	@$(RUN) image $(IMAGE) $(ARGS)

.PHONY: image-all
image-all: engine ## every image for each of its targets, no compile beside its like (ARGS="--jobs 2")
	@$(RUN) image --all $(ARGS)

.PHONY: matrix
matrix: $(VENV)/runtime ## what there is to build (ARGS="--changed-since main --format github")
	@$(RUN) matrix $(ARGS)

.PHONY: verify
verify: engine ## run the checks of a finished image (TAG=vime:rocm7.14-gfx942)
	@$(RUN) verify $(TAG)

.PHONY: push
push: engine ## push a verified image, and print its digest (TAG=vime:rocm7.14-gfx942 REGISTRY=registry.example/team)
	@$(RUN) push $(TAG) $(REGISTRY) $(ARGS)

.PHONY: lock
lock: images/$(IMAGE).yaml engine ## hold the versions that the verified image has installed: its next build installs the same
	@$(RUN) lock $(IMAGE)

.PHONY: explain
explain: engine ## what made an image, and whether this checkout would make the same (TAG=vime:rocm7.14-gfx942)
	@$(RUN) explain $(TAG) $(ARGS)

.PHONY: sbom
sbom: engine ## the software of an image as CycloneDX (TAG=vime:rocm7.14-gfx942)
	@$(RUN) sbom $(TAG)

.PHONY: diff
diff: engine ## two images, or manifests at revisions, compared (A=rocm7.14@main B=rocm7.14)
	@$(RUN) diff $(A) $(B) $(ARGS)

.PHONY: preflight
preflight: $(VENV)/runtime ## prove the pins: references, patches, API window; with an engine, base and disk
	@$(RUN) preflight $(IMAGE)

.PHONY: bump
bump: $(VENV)/runtime ## pin other commits, if they hold (VLLM_TAG=v0.30.0, TE_TAG=, BASE_TAG=; of all images: VIME=, MEGATRON=, TORCH_MEMORY_SAVER= a reference)
	@$(RUN) bump $(if $(VIME)$(MEGATRON)$(TORCH_MEMORY_SAVER),--all-images,$(IMAGE)) $(foreach pin,vllm=$(VLLM_TAG) \
		transformer_engine=$(TE_TAG) vime=$(VIME) megatron=$(MEGATRON) torch_memory_saver=$(TORCH_MEMORY_SAVER) \
		base=$(BASE_TAG),$(if $(filter-out %=,$(pin)),$(pin)))

.PHONY: doctor
doctor: $(VENV)/runtime ## can this machine, its engine and the registry build the image?
	@$(RUN) doctor $(IMAGE)

.PHONY: facts
facts: engine ## read a base in one container of it, show how its facts differ, write them (BASE=primus-v26.4)
	@$(RUN) facts $(BASE)

.PHONY: run
run: engine ## a shell in a finished image, with this machine's GPUs (TAG=vime:rocm7.14-gfx942)
	@$(RUN) run $(TAG)

.PHONY: probe
probe: engine ## see what this machine's GPUs do for an image with a ROCm torch (TAG=vime:rocm7.14-gfx942)
	@$(RUN) probe $(TAG)

.PHONY: debug
debug: images/$(IMAGE).yaml engine ## a shell in the image before a step, on the stand-in base (STEP=BUILD_VLLM)
	@$(RUN) debug $(IMAGE) $(STEP) --rehearsal

.PHONY: render
render: $(VENV)/runtime ## write the image's Dockerfile from its manifest
	@$(RUN) render $(IMAGE)

##@ The engine

# An image that is not there is told before an engine is started for it.
images/%.yaml: | $(VENV)/runtime
	@$(RUN) render $*

.PHONY: engine
engine: $(VENV)/runtime ## find a container engine; start a private one where none answers
	@said=$$($(RUN) engine 2>&1) && code=0 || code=$$?; \
	if [ $$code -eq 11 ]; then scripts/engine start; else echo "$$said" >&2; exit $$code; fi

.PHONY: engine-stop
engine-stop: ## stop the private engine
	@scripts/engine stop

.PHONY: clean
clean: engine ## remove what this tool has left in the engine; finished images and caches stay
	@$(RUN) clean

##@ Work on the code

.PHONY: test
test: $(VENV)/development engine browser ## all tests, with a container engine
	@$(VENV)/bin/python -m pytest $(PARALLEL) $(ARGS)

.PHONY: browser
browser: ## have a browser for the tests of the HTML report
	@scripts/browser > /dev/null || echo "the tests in a browser will not run" >&2

.PHONY: test-fast
test-fast: $(VENV)/development ## the tests that need no engine
	@$(VENV)/bin/python -m pytest -m "not engine" $(PARALLEL) $(ARGS)

.PHONY: check
check: $(VENV)/development $(VENV)/workflows ## lints, types, workflows, manifests, stale files
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/hadolint --config .hadolint.yaml dockerfiles/Dockerfile.*
	@if [ -x $(VENV)/bin/actionlint ]; then $(VENV)/bin/actionlint; else \
		echo "could not run: actionlint ($(VENV)/workflows says why)" >&2; [ -z "$$GITHUB_ACTIONS" ]; fi
	@$(VENV)/bin/python -m pytest --quiet tests/unit/test_rooms.py tests/unit/test_reference.py
	@$(RUN) check

.PHONY: bench
bench: $(VENV)/development engine ## measure us and others, and write docs/performance.md (ARGS="command rendering", --help)
	@$(VENV)/bin/python -m benchmarks.run $(ARGS)

.PHONY: report-picture
report-picture: rehearse ## rehearse rocm7.14, and write docs/report.png, the picture in the README
	@scripts/report-picture

.PHONY: golden
golden: $(VENV)/development ## rewrite the golden files, then show what changed
	@$(VENV)/bin/python -m pytest -q --update-golden tests/unit/test_render.py
	@git diff --stat -- tests/golden

.PHONY: guard-table
guard-table: $(VENV)/development ## run every trap with four pips, and write docs/guards.md
	@PYTHONPATH=.:tests/guards:tests/unit $(VENV)/bin/python tests/guards/guard_table.py

.PHONY: fuzz
fuzz: $(VENV)/development ## give loader and trace decoder 100,000 hostile inputs, and write docs/hostile-input.md
	@PYTHONPATH=.:tests/hostile:tests/unit $(VENV)/bin/python tests/hostile/fuzz.py

WHOLE := tests/faults/test_faults.py::test_the_table_has_every_fault_and_no_other
.PHONY: fault-table
fault-table: $(VENV)/development engine ## plant every fault, and write docs/faults.md: which stage catches it, in what words
	@rm -f docs/faults.md
	@$(VENV)/bin/python -m pytest -q --update-golden tests/faults tests/engine/test_rehearsal.py tests/engine/test_checks.py \
		tests/engine/test_reading.py --deselect $(WHOLE)
	@$(VENV)/bin/python -m pytest -q $(WHOLE)

.PHONY: mutants
mutants: $(VENV)/development ## change each rule of the guards, see whether its tests notice, and write that into docs/guards.md
	@PYTHONPATH=.:tests/mutants $(VENV)/bin/python tests/mutants/run.py --write $(ARGS)
.PHONY: reference
reference: $(VENV)/development ## write the pages and schemas that are made of the models, checks and errors
	@$(VENV)/bin/python -m pytest -q --update-golden tests/unit/test_reference.py tests/unit/test_exit_codes.py

.PHONY: engine-table
engine-table: $(VENV)/development engine ## make every engine failure happen, and write docs/engines.md
	@$(VENV)/bin/python -m pytest -q --update-golden tests/engine/test_engine_faults.py tests/engine/test_registry.py \
		tests/engine/test_push.py

.PHONY: kills
kills: $(VENV)/development engine ## kill each command that writes at 20 random moments, and write docs/kills.md
	@KILLS=20 $(VENV)/bin/python -m pytest -q --update-golden tests/unit/test_kills.py tests/engine/test_kills_with_an_engine.py

.PHONY: requirements
requirements: $(VENV)/runtime ## pin with hashes what the tool, its tests and its lints are made of (ARGS=--upgrade)
	@sed --quiet 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(LOCK) pyproject.toml - --python-version 3.10 \
		--output-file requirements/runtime.txt
	@set -e; for group in development workflows audit; do $(LOCK) --group $$group --python-version 3.11 \
		--constraint requirements/runtime.txt --output-file requirements/$$group.txt; done

.PHONY: audit
audit: $(VENV)/audit ## are there known holes in what is locked? (asks PyPI; what it cannot tell of is a failure)
	@set -e; for set in requirements/*.txt; do $(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes \
		--requirement $$set; done

LOCK := $(VENV)/bin/uv pip compile --no-config --quiet --universal --generate-hashes --no-annotate \
	--custom-compile-command "make requirements" $(ARGS)
INSTALL := $(VENV)/bin/python -m pip install --quiet --require-hashes --requirement

$(VENV)/runtime: pyproject.toml requirements/runtime.txt
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) requirements/runtime.txt
	@$(VENV)/bin/python -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/development: $(VENV)/runtime requirements/development.txt
	@$(INSTALL) requirements/development.txt
	@touch $@

# actionlint's package gets the program from GitHub, which not every machine reaches: it is tried once.
$(VENV)/workflows: $(VENV)/development requirements/workflows.txt
	@$(INSTALL) requirements/workflows.txt --no-build-isolation > $@ 2>&1 || echo "actionlint is not installed: $@" >&2

# A folder of its own: it would bring another pip to those of the tests.
$(VENV)/audit: $(VENV)/runtime requirements/audit.txt
	@$(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --require-hashes --requirement requirements/audit.txt
	@touch $@

##@ Help

.PHONY: help
help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} \
		/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z][a-z-]*:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
