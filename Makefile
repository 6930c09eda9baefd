# Every target makes the virtual environment that it needs; no other setup is required.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TESTS ?= tests
# of prove-gpu: all, or one of default server memory telemetry plan gate; cuda, or cpu for a dry run; the seconds of each part;
# the folder of the reports
PART ?= all
DEVICE ?= cuda
BUDGET ?=
OUT ?=
# for test-gpu and prove-gpu; a machine without network has one, with what benchmarks/gpu/README.md brings there
GPU_PYTHON ?= .venv-gpu/bin/python
# test processes: two more than two cores, since tests of processes wait for part of the time
JOBS ?= 4
# the tests start hundreds of processes, each of which would compile perfkit anew
unexport PYTHONDONTWRITEBYTECODE

# of release-check: the interpreters to use
PYTHONS ?= $(PYTHON)

.PHONY: run install test pytest test-one test-gpu prove-gpu release-check check format docs reference proto constraints clean

run: .venv/run.stamp  ## measure DenseNet-121 on the bundled server, three to four minutes with set-up
	$(BIN)/perfkit run scenarios/densenet.yaml

install: .venv/run.stamp  ## only the set-up, one to two minutes

test: .venv/dev.stamp  ## everything that CI runs: the checks, beside the tests
	$(MAKE) --jobs=2 check pytest

pytest: .venv/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(TESTS)

test-one: .venv/dev.stamp  ## the tests whose names match K, without the checks: make test-one K=percentile
	$(BIN)/python -m pytest -k '$(K)' $(TESTS)

release-check: .venv/dev.stamp  ## build the last commit and use it outside the checkout: make release-check PYTHONS='python3.11 python3.13'
	$(BIN)/python -m benchmarks.release $(foreach python,$(PYTHONS),--python $(python))

# the environment that GPU_PYTHON belongs to, where make makes it
ifeq ($(DEVICE),cpu)
PROVE_PYTHON = $(BIN)/python
PROVE_STAMP = .venv/dev.stamp
else
PROVE_PYTHON = $(GPU_PYTHON)
PROVE_STAMP = $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/gpu.stamp)
endif

test-gpu: $(if $(filter .venv-gpu/%,$(GPU_PYTHON)),.venv-gpu/gpu.stamp)  ## what needs an NVIDIA GPU, in an environment of its own
	$(GPU_PYTHON) -m pytest -m gpu $(TESTS)

prove-gpu: $(PROVE_STAMP)  ## the proof on a GPU, under 15 minutes; PART=default|server|memory|telemetry|plan|gate, BUDGET=seconds, DEVICE=cpu for a dry run
	$(PROVE_PYTHON) -m benchmarks.gpu.prove --part $(PART) --device $(DEVICE) $(if $(BUDGET),--budget $(BUDGET)) $(if $(OUT),--out $(OUT))

check: .venv/dev.stamp  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: .venv/dev.stamp  ## write the parts of docs/reference/ that are made from the code
	$(BIN)/python -m docs_build.reference

docs: .venv/dev.stamp  ## the documentation site, build/docs-site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build

proto: .venv/dev.stamp  ## compile perfkit/protocol/v2.proto
	$(BIN)/python -m grpc_tools.protoc -I perfkit/protocol --descriptor_set_out=perfkit/protocol/v2.binpb \
	  --pyi_out=perfkit/protocol v2.proto

constraints:  ## write constraints.txt anew from the newest versions that fit
	rm -rf .venv && $(PYTHON) -m venv .venv && $(PIP) install -q -e '.[server,dev]'
	{ echo '# The versions that perfkit is developed and tested with. Made by `make constraints`.'; $(PIP) freeze --exclude-editable; } > constraints.txt

clean:
	rm -rf .venv .venv-gpu build *.egg-info

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[server]'
	touch $@

# pip would compile 10,000 files in one process; some are of other Pythons, or templates, and cannot be
.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install -q --no-compile -c constraints.txt -e '.[server,dev]'
	$(BIN)/python -m tests.helm || echo 'Helm could not be installed: the tests of the chart are skipped'
	$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || true
	touch $@ .venv/run.stamp

# cuda-bindings: Triton's client shares GPU memory by it, in the tests alone
.venv-gpu/gpu.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/python -m pip --disable-pip-version-check install -q -c constraints.txt -e '.[cuda,dev]' 'cuda-bindings>=13,<14'
	touch $@
