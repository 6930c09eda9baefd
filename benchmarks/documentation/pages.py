"""The pages whose commands need something around them, and the commands that are not run as they stand. All others are run as they are."""

from benchmarks.documentation.treatment import PageSetup, Server, Treatment

_SERVER = '#!/bin/sh\nexec perfkit serve --model-repository {models} --http-port "$2" --grpc-port 0 --metrics-port 0 --exit-with-stdin\n'
_SLOWER = "#!/bin/sh\nexec perfkit serve --model synthetic --synthetic service=constant:$1 --http-port $2 --grpc-port 0 --metrics-port 0 --exit-with-stdin\n"
_OF_A_LIMIT = (0, 1, 3)
"""A limit that is kept, violated, or that a window has too few samples to judge."""
_OF_EQUAL_SERVERS = (0, 3)
"""A gate of equal servers passes, or cannot tell in so short a time; a false alarm is one in a hundred."""
_GATE = "--pairs 10 --set measure.warmup=200ms --set measure.duration=500ms"
_SHORT_RUNS = {"PERFKIT_SET_MEASURE__DURATION": "1s"}
_SHORTEST_RUNS = {
    "PERFKIT_SET_MEASURE__DURATION": "200ms",
    "PERFKIT_SET_MEASURE__WARMUP": "100ms",
    "PERFKIT_SET_MEASURE__REPETITIONS": "1",
    "PERFKIT_SET_LOAD__CLOSED__CONCURRENCY": "[1]",
}
_SHORT = "--duration 1s --set measure.repetitions=1"
_URL = Treatment("perfkit run http://127.0.0.1:8000 ", added=_SHORT, exit_codes=_OF_A_LIMIT)
_STRANGERS = "it logs in to hosts that are the reader's"
_CLUSTER = "it needs a Kubernetes cluster; the files that it applies are checked against their schemas (reports/fleet-manifests.md)"

SETUPS: dict[str, PageSetup] = {
    "README.md": PageSetup(installs=True),
    "docs/tutorials/first-measurement.md": PageSetup(
        servers=(Server(), Server("--metrics-port 0", http_port=8080, grpc_port=8081)), installs=True
    ),
    "docs/tutorials/capacity-plan.md": PageSetup(
        servers=(
            Server("--model synthetic --synthetic service=lognormal:4ms:cv=0.3,seed=1", http_port=9002, grpc_port=0, metrics_port=0),
            Server("--model synthetic --synthetic service=lognormal:2ms:cv=0.3,seed=1", http_port=9003, grpc_port=0, metrics_port=0),
        ),
        blocks={"rates.yaml": "name: rates\n"},
    ),
    "docs/tutorials/gate-in-ci.md": PageSetup(servers=(), blocks={"gate.yaml": "name: gate\n"}),
    "docs/concepts/false-alarms.md": PageSetup(servers=(), files={"./server-1.4": _SERVER, "./server-1.5": _SERVER}),
    "docs/concepts/gating.md": PageSetup(
        files={
            "./server-1.4": _SERVER,
            "./server-1.5": _SERVER,
            "./slower": _SLOWER,
            "scenarios/soak.yaml": "target: {url: 'http://127.0.0.1:8000', model: my_model}\nload: {closed: {concurrency: 2}}\nmeasure: {repetitions: 1}\n",
            "tokenizer.yaml": "name: simple\ntarget: {model: synthetic}\nworkload: {inputs: {INPUT0: {generate: zeros, shape: [4]}}}\n"
            "load: {closed: {concurrency: 1}}\nmeasure: {warmup: 100ms, duration: 500ms}\ngate: {metrics: [p50]}\n",
        }
    ),
    "docs/concepts/planning.md": PageSetup(
        files={
            "scenarios/mine.yaml": "target: {url: 'http://127.0.0.1:8000', model: my_model}\n"
            "load: {open: {rate: [20, 50], arrivals: poisson}}\nmeasure: {repetitions: 1}\n",
            "peaks.csv": "date,peak_per_s\n"
            + "".join(f"2026-{3 + day // 28:02}-{day % 28 + 1:02},{700 + 2 * day}\n" for day in range(120)),
        }
    ),
    "docs/how-to/bisecting.md": PageSetup(
        servers=(),
        files={
            "scenarios/gate.yaml": "name: gate\ntarget: {model: synthetic}\nworkload: {inputs: {INPUT0: {generate: zeros, shape: [4]}}}\n"
            "load: {closed: {concurrency: 1}}\nmeasure: {warmup: 100ms, duration: 400ms}\ngate: {metrics: [p50]}\ntelemetry: false\n",
            "Makefile": "server: server.in\n\tcp server.in server\n\tchmod +x server\n",
        },
        commands="""
            git init --quiet --initial-branch=main . && git config user.name R && git config user.email r@example.org
            echo server > .gitignore
            commit() { printf '%s\\n' "#!/bin/sh" "exec perfkit serve --model synthetic --synthetic service=constant:$1 \\
              --http-port \\$2 --grpc-port 0 --metrics-port 0 --exit-with-stdin" "# $2" > server.in; git add --all; git commit --quiet -m "$2"; }
            commit 20ms 'Release 1.4' && git tag v1.4 && commit 20ms 'Tidy up' && commit 30ms 'Wait for the lock'
        """,
    ),
    "docs/how-to/ci.md": PageSetup(servers=(), files={"./server": _SERVER}, commands="git init --quiet ."),
    "docs/how-to/llms.md": PageSetup(servers=()),
    "docs/how-to/sequences-streams.md": PageSetup(servers=()),
    "docs/how-to/tls-ingress.md": PageSetup(
        servers=(Server("--host 0.0.0.0"),),
        names={"models.example": "10.0.0.7", "direct.example": "10.0.0.5"},
        commands="""
            python -m benchmarks.documentation.ingress certificates .
            perfkit serve --host 0.0.0.0 --http-port 8443 --grpc-port 8444 --metrics-port 0 --model-repository {models} \\
              --tls-cert server.pem --tls-key server.key > tls.log 2>&1 &
            python -m benchmarks.documentation.ingress serve . > ingress.log 2>&1 &
            until grep -q ready tls.log && grep -q ready ingress.log; do kill -0 %?tls.log %?ingress.log || break; sleep 0.1; done
        """,
        environment={"SSL_CERT_FILE": "{folder}/ca.pem"},
    ),
    "docs/how-to/fleets.md": PageSetup(
        names={"driver.example": "127.0.0.1", "scheduler.example": "127.0.0.1"},
        files={
            "scenario.yaml": "target: {url: 'http://127.0.0.1:8000', model: my_model}\nload: {open: {rate: 100}}\n"
            "measure: {duration: 1s, repetitions: 1}\n"
        },
    ),
    "docs/how-to/wrk2.md": PageSetup(
        files={
            "infer.lua": 'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\n'
            'wrk.body = \'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}\'\n'
        }
    ),
    "docs/reference/results.md": PageSetup(
        files={
            "nightly.yaml": "target: {url: 'http://127.0.0.1:8000', model: my_model}\nload: {open: {rate: 500}}\n"
            "measure: {duration: 30s, checkpoint: 1s, repetitions: 1, warmup: 200ms}\n"
        },
        commands="""
            mkdir old && perfkit perf-analyzer -m my_model --concurrency-range 1 -p 500 -s 60 -f old/report.csv \\
              --profile-export-file old/profile_export.json > old/log &&
            perfkit run http://127.0.0.1:8000 -m my_model -c 1 --duration 1s --out results/new --quiet > new.log
            perfkit run nightly.yaml --out nightly --quiet > nightly.log 2>&1 &
            until compgen -G 'nightly.partial/*checkpoint*' > /dev/null; do sleep 0.2; done; sleep 2; kill -KILL %?nightly.yaml; wait %?nightly.yaml; true
        """,
    ),
}

TREATMENTS: dict[str, tuple[Treatment, ...]] = {
    "README.md": (_URL,),
    "docs/index.md": (_URL,),
    "docs/tutorials/first-measurement.md": (
        _URL,
        Treatment("perfkit run mine.yaml", added="--set measure.duration=1s"),
        Treatment("perfkit run http://127.0.0.1:8080", added=_SHORT),
    ),
    "docs/tutorials/capacity-plan.md": (
        Treatment("perfkit serve", is_ready="ready"),
        Treatment(
            "perfkit run rates.yaml --out small-1",
            added="--set measure.duration=1s --set measure.warmup=200ms",
            after="interrupt && { perfkit serve --model synthetic --synthetic service=lognormal:8ms:cv=0.3,seed=2 --http-port 9001 --grpc-port 0"
            " > small-2.log 2>&1 & } && until grep -q ready small-2.log; do sleep 0.1; done",
        ),
        Treatment("perfkit run rates.yaml", added="--set measure.duration=1s --set measure.warmup=200ms"),
        Treatment(
            "perfkit plan",
            before="rm -r small-1 small-2 medium-1 large-1 && python -m benchmarks.documentation.made machines .",
            note="The shortened results are replaced by simulated ones of full length: a p99 needs them.",
        ),
    ),
    "docs/tutorials/gate-in-ci.md": (
        Treatment(
            "perfkit gate gate.yaml",
            replaced=(("--time 4m", "--pairs 10 --set measure.warmup=300ms --set measure.duration=4s"),),
            exit_codes=(1,),
        ),
    ),
    "docs/concepts/coordinated-omission.md": (
        Treatment("perfkit run coordinated-omission", added="--set measure.duration=11s", note="One stall in place of four."),
    ),
    "docs/concepts/false-alarms.md": (Treatment("perfkit gate scenarios/gate.yaml", added=_GATE, exit_codes=_OF_EQUAL_SERVERS),),
    "docs/concepts/gating.md": (
        Treatment("perfkit gate scenarios/gate.yaml", added=_GATE, exit_codes=_OF_EQUAL_SERVERS),
        Treatment("perfkit run scenarios/soak.yaml", added="--set measure.duration=2s"),
        Treatment(
            "perfkit gate accept",
            before="perfkit gate tokenizer.yaml --baseline 'cmd:./slower 10ms {port}' --candidate 'cmd:./slower 14ms {port}' --pairs 10"
            " --out reports/simple-gate-20261123T101500Z; test $? = 1",
        ),
    ),
    "docs/concepts/loops.md": (_URL,),
    "docs/concepts/percentiles.md": (_URL,),
    "docs/concepts/planning.md": (
        Treatment("perfkit run scenarios/mine.yaml", added="--set measure.duration=1s"),
        Treatment(
            "perfkit plan reports/mine-1 reports/mine-2 --slo 'p99<50ms' --demand 1000/s --price '$2.50/h' --redundancy 1",
            before="rm -r reports/* && python -m benchmarks.documentation.made mine reports",
            note="The shortened results are replaced by simulated ones of full length: a p99 needs them.",
        ),
        Treatment(
            "perfkit plan small=reports/s1",
            before="cd reports && cp -r mine-1 s1 && cp -r mine-2 s2 && cp -r mine-1 b1 && cp -r mine-2 b2 && cd ..",
            exit_codes=(0, 3),
            note="Two equal kinds of server, without GPUs: 3 says that the limit on GPU memory cannot be told.",
        ),
    ),
    "docs/concepts/saturation.md": (
        _URL,
        Treatment(
            "perfkit run search",
            added="--set load.search.precision=30% --set load.search.budget=40s --set measure.duration=3s",
            exit_codes=(0, 3),
            note="3 says that the budget is too short.",
        ),
    ),
    "docs/concepts/warm-up.md": (_URL,),
    "docs/how-to/bisecting.md": (Treatment("perfkit bisect", added="--pairs 24"),),
    "docs/how-to/ci.md": (
        Treatment("perfkit run scenarios/simple.yaml --out reports/base-", environment=_SHORTEST_RUNS),
        Treatment("perfkit run scenarios/simple.yaml --out reports/new-", environment=_SHORTEST_RUNS),
        Treatment("perfkit gate --baseline baselines/simple.json", exit_codes=_OF_EQUAL_SERVERS),
        Treatment(
            "perfkit history add reports/nightly",
            before="python -m benchmarks.documentation.made nightly reports &&"
            " perfkit history add reports/simple-* reports/mix-* > history.log 2>&1",
            note="After a month of made results, in which one series got worse and another one ended.",
        ),
        Treatment("perfkit history check", exit_codes=(1,)),
        Treatment("perfkit gate scenarios/gate.yaml", added=_GATE, exit_codes=_OF_EQUAL_SERVERS),
    ),
    "docs/how-to/fleets.md": (
        Treatment(
            "--fleet listen://",
            environment={"PERFKIT_FLEET_TOKEN": "a-token-of-this-benchmark-only-0123456789"},
            replaced=(("PERFKIT_FLEET_TOKEN=... ", ""),),
            script="{0} & driver=$!; {1} & {1} & wait $driver; code=$?; wait; exit $code",
        ),
        Treatment(
            "dask scheduler --host 127.0.0.1",
            script="{0} > scheduler.log 2>&1 & scheduler=$!; until grep -q 'Scheduler at' scheduler.log; do sleep 0.2; done\n"
            "{1} > worker-1.log 2>&1 & first=$!; {1} > worker-2.log 2>&1 & second=$!\n"
            "until grep -q 'Starting established' worker-1.log && grep -q 'Starting established' worker-2.log; do sleep 0.2; done\n"
            "code=0; {2} || code=$?; kill $first $second $scheduler; wait; exit $code",
        ),
        Treatment("REQUIRE_ENCRYPTION", not_run="it needs certificates and addresses of the reader's"),
    ),
    "docs/how-to/fleet-deployment.md": (
        Treatment('ssh -n "$host"', not_run=_STRANGERS),
        Treatment("kubectl create secret", not_run=_CLUSTER),
        Treatment("kubectl create configmap", not_run=_CLUSTER),
        Treatment("kubectl apply -f containers/kubernetes/dask-cluster.yaml", not_run=_CLUSTER),
        Treatment("#SBATCH", not_run="it needs a Slurm cluster"),
    ),
    "docs/how-to/k6.md": (_URL,),
    "docs/how-to/llms.md": (
        Treatment("perfkit serve", is_ready="ready"),
        Treatment("perfkit run ", added=_SHORT),
    ),
    "docs/how-to/notebooks.md": (
        Treatment("perfkit.run(", environment=_SHORT_RUNS),
        Treatment('"reports/before"', before="cp -r reports/from-a-notebook reports/before && cp -r reports/from-a-notebook reports/after"),
    ),
    "docs/how-to/perf_analyzer.md": (Treatment("perfkit perf-analyzer", added="-p 500 -s 60"),),
    "docs/how-to/python.md": (
        Treatment(
            "@pytest.mark.perfkit",
            exit_codes=(0, 1),
            note="On a noisy machine the test may fail, because five seconds have too few independent samples for a p99: the page says so.",
        ),
        Treatment("perfkit.run(", environment=_SHORT_RUNS),
    ),
    "docs/how-to/sequences-streams.md": (
        Treatment("perfkit serve", is_ready="ready"),
        Treatment("perfkit run stream", added="--set measure.duration=1s"),
        Treatment("perfkit run ", added="--duration 1s"),
    ),
    "docs/how-to/sweeping.md": (Treatment("perfkit run sweep", added="--set measure.duration=300ms"),),
    "docs/how-to/tls-ingress.md": (
        Treatment("export TOKEN", replaced=(("TOKEN=…", "TOKEN=secret"), ("-c 4", "-c 4 --duration 1s"))),
        Treatment("perfkit run ", added=_SHORT),
    ),
    "docs/how-to/traces.md": (
        Treatment(
            "perfkit record",
            is_ready="recording",
            after="perfkit run http://127.0.0.1:9000 grpc://127.0.0.1:9001 -m simple -c 1 --duration 200ms && interrupt && test -s day.jsonl",
        ),
    ),
    "docs/how-to/wrk2.md": (
        Treatment("wrk -t2 -c100", not_run="wrk2 is in no package index"),
        Treatment("wrk -t2 -c16", added="-d 1s"),
        _URL,
    ),
    "docs/reference/python-api.md": (Treatment("", not_run="a signature, made from the code"),),
    "docs/reference/scenarios.md": (
        Treatment("tritonserver ...", not_run="its `...` stands for the reader's own options of Triton"),
        _URL,
    ),
}
