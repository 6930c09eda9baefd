"""Error messages name file, line, key and the expected value; YAML is held against its limits before it is expanded."""

import re
import tracemalloc

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_scenario
from perfkit.scenario.yaml_values import parse_yaml

HEAD = "target: {model: m}\nload: {closed: {concurrency: 1}}\n"
LOAD = "load: {closed: {concurrency: 1}}\n"
TOP_KEYS = (
    "schema, name, target, server, workload, shared_memory, workloads, alone, load, sequences, stream, measure, fleet, check, slo, telemetry, "
    "metrics, gpu, traces, gate, tune, sweep, rank"
)
SEARCH = "target: {model: m}\nload:\n  search: "
EXPECTED = "expected http://HOST:PORT, https://, grpc:// or grpcs://, or unix:/path (gRPC) or http+unix:/path for a socket"
INPUT = "workload:\n  inputs:\n    A: "

MESSAGES = [
    # YAML itself
    (HEAD + "measure: {duration: [1\nname: x\n", "s.yaml:4: not valid YAML: did not find expected ',' or ']'"),
    (HEAD + "---\na: b\n", "s.yaml:3: not valid YAML: but found another document"),
    (HEAD + "name: \x07\n", "s.yaml:3: not valid YAML: the character #x0007 is not allowed"),
    (HEAD + "name: *nowhere\n", "s.yaml:3: not valid YAML: found undefined alias: put the value in quotes"),
    (HEAD + "name: !python/name:os.system x\n", "s.yaml:3: not valid YAML: could not determine a constructor for the tag: put the value in quotes"),
    (HEAD + "name: 2001-02-30\n", "s.yaml:3: name: not valid YAML: day is out of range for month"),
    (HEAD + "name: !!int ''\n", "s.yaml:3: name: not valid YAML: string index out of range"),
    (HEAD + "measure: &a {b: *a}\n", "s.yaml:1: not valid YAML: an alias contains itself"),
    ("[" * 3000, "s.yaml:1: not valid YAML: values are nested deeper than 100 levels"),
    ("", "s.yaml: expected the keys of a scenario, such as name, target and load"),
    ("- a\n", "s.yaml: expected the keys of a scenario, such as name, target and load"),
    # a fleet
    (HEAD + "fleet: {}\n", "s.yaml:3: fleet: workers is missing: give the number of machines that join (--machines with --fleet)"),
    (HEAD + "fleet: {kind: dask}\n", "s.yaml:3: fleet: kind: dask needs scheduler, the address of the Dask scheduler, such as tcp://host:8786"),
    (HEAD + "fleet: {kind: dask, scheduler: 'host:8786'}\n", "s.yaml:3: fleet.scheduler: expected the address of a Dask scheduler, such as tcp://host:8786, found 'host:8786'"),
    (HEAD + "fleet: {workers: 2, scheduler: 'tcp://host:8786'}\n", "s.yaml:3: fleet: scheduler goes with kind: dask: give that, or remove scheduler"),
    (HEAD + "fleet: {workers: 2, tls_cert: c.pem}\n", "s.yaml:3: fleet: tls_cert and tls_key belong together: give both"),
    (HEAD + "fleet: {kind: worker, workers: 2, listen: here}\n", "s.yaml:3: fleet.listen: expected a host and a port, such as 10.0.0.5:8790, found 'here'"),
    (HEAD + "fleet: {kind: worker, workers: 2}\nshared_memory: system\n", "s.yaml:1: the scenario: shared_memory needs the load generator on the server's machine: remove shared_memory, or fleet"),
    # keys
    (HEAD + "target: {model: n}\n", "s.yaml:3: target: this key is set twice: remove one"),
    (HEAD + "measure:\n  drain: 1s\n  drain: 2s\n", "s.yaml:5: measure.drain: this key is set twice: remove one"),
    (HEAD + "mesure: {}\n", f"s.yaml:3: mesure: unknown key; did you mean 'measure'? Known keys: {TOP_KEYS}"),
    (HEAD + "zzz: 1\n", f"s.yaml:3: zzz: unknown key; Known keys: {TOP_KEYS}"),
    (HEAD + "seed: 3\n", f"s.yaml:3: seed: unknown key; did you mean 'workload.seed'? Known keys: {TOP_KEYS}"),
    (HEAD + "concurrency: 3\n", f"s.yaml:3: concurrency: unknown key; did you mean 'load.closed.concurrency'? Known keys: {TOP_KEYS}"),
    (HEAD + "measure:\n  duraton: 3s\n", "s.yaml:4: measure.duraton: unknown key; did you mean 'duration'? Known keys: warmup, duration, requests, drain, repetitions, until_decided, abort_error_rate, workers, cpus, checkpoint"),
    (HEAD + "workload:\n  outputs:\n    - {name: a, clases: 3}\n", "s.yaml:5: workload.outputs[0].clases: unknown key; did you mean 'classes'? Known keys: name, classes, encoding"),
    (HEAD + INPUT + "{generate: ones, shap: [1]}\n", "s.yaml:5: workload.inputs.A.shap: unknown key; did you mean 'shape'? Known keys: shape, datatype, parameters, force, encoding, generate, text, text_length"),
    (HEAD + INPUT + "{generate: omit, text: a}\n", "s.yaml:5: workload.inputs.A.generate: an input that is left out has neither text nor text_length: remove them"),
    (HEAD + INPUT + "{generate: random, text: a, text_length: 3}\n", "s.yaml:5: workload.inputs.A.generate: text and text_length exclude each other: remove one"),
    (HEAD + "workload:\n  inputs:\n    '*': {strings: [a]}\n", "s.yaml:4: workload.inputs: '*' stands for several inputs: give generate: random, zeros, ones or arange"),
    (HEAD + "workload:\n  inputs:\n    '*': {generate: ones, shape: [1]}\n", "s.yaml:4: workload.inputs: '*' stands for several inputs: give shape, datatype and force with the name of each"),
    (LOAD, "s.yaml:1: target: this key is required"),
    ("target: {url: 'http://h'}\n" + LOAD, "s.yaml:1: target.model: this key is required"),
    # types
    (HEAD + "workload:\n  seed: x\n", "s.yaml:4: workload.seed: expected an integer, found 'x'"),
    (HEAD + "workload: 3\n", "s.yaml:3: workload: expected keys and values, found 3"),
    (HEAD + "name: 5\n", "s.yaml:3: name: expected text, found 5; put it in quotes"),
    ("target: {model: m, version: yes}\n" + LOAD, "s.yaml:1: target.version: expected text, found True; put it in quotes"),
    ("target: {model: m, protocols: http}\n" + LOAD, "s.yaml:1: target.protocols: expected a list, found 'http'"),
    ("target: {model: m, protocols: [http, tcp]}\n" + LOAD, "s.yaml:1: target.protocols[1]: expected 'http' or 'grpc', found 'tcp'"),
    ("target:\n  model: m\n  headers: x\n" + LOAD, "s.yaml:3: target.headers: expected keys and values, found a value that is not shown here"),
    ("target:\n  model: m\n  headers:\n    a: 5\n" + LOAD, "s.yaml:4: target.headers.a: expected text, found a value that is not shown here; put it in quotes"),
    ("target:\n  model: m\n  engine: fast\n" + LOAD, "s.yaml:3: target.engine: expected 'wire' or 'reference', found 'fast'"),
    (HEAD + "workload:\n  outputs: [a]\n", "s.yaml:4: workload.outputs[0]: expected keys and values, found 'a'"),
    # values
    (HEAD + "name: a/b\n", "s.yaml:3: name: expected letters, digits, '_', '.' and '-', beginning with a letter or digit, found 'a/b'"),
    (HEAD + "name: ..\n", "s.yaml:3: name: expected letters, digits, '_', '.' and '-', beginning with a letter or digit, found '..'"),
    (HEAD + "measure:\n  duration: 5\n", "s.yaml:4: measure.duration: expected a duration such as 250us, 10ms, 30s or 2m, found 5"),
    (HEAD + "measure:\n  duration: 0s\n", "s.yaml:4: measure.duration: input should be greater than 0, found '0s'"),
    (HEAD + "measure:\n  drain: -1s\n", "s.yaml:4: measure.drain: a duration cannot be negative, found '-1s'"),
    (HEAD + "measure:\n  checkpoint: 1500ms\n", "s.yaml:4: measure.checkpoint: expected whole seconds, at least one, such as 30s or 1m"),
    (HEAD + "measure:\n  checkpoint: 0s\n", "s.yaml:4: measure.checkpoint: expected whole seconds, at least one, such as 30s or 1m"),
    (HEAD + "measure:\n  cpus: 3-1\n", "s.yaml:4: measure.cpus: expected CPU numbers such as [0, 1] or 0,2-3, found '3-1'"),
    (HEAD + "server:\n  cpus: 0-999999999\n", "s.yaml:4: server.cpus: expected CPU numbers such as [0, 1] or 0,2-3, found '0-999999999'"),
    (HEAD + "schema: perfkit.scenario/2\n", "s.yaml:3: schema: this version of perfkit reads perfkit.scenario/1, found 'perfkit.scenario/2'; a newer version may read it"),
    # load
    ("target: {model: m}\n", "s.yaml:1: load: this key is required"),
    ("target: {model: m}\nload: {}\n", "s.yaml:2: load: give exactly one of closed, cold_start, idle, open, replay, search, surge; found {}"),
    ("target: {model: m}\nload: {closed: {concurrency: 1}, open: {rate: 5}}\n", "s.yaml:2: load: give exactly one of closed, cold_start, idle, open, replay, search, surge; found closed and open"),
    ("target: {model: m}\nload: {closed: {concurrency: [1, 0]}}\n", "s.yaml:2: load.closed.concurrency[1]: input should be greater than or equal to 1, found 0"),
    ("target: {model: m}\nload: {closed: {concurrency: []}}\n", "s.yaml:2: load.closed.concurrency: expected at least one element, found none"),
    ("target: {model: m}\nload: {closed: {concurrency: true}}\n", "s.yaml:2: load.closed.concurrency[0]: expected an integer, found True"),
    # combinations
    ("target: {model: m, url: 'http://h', protocols: [http]}\n" + LOAD, "s.yaml:1: target: url and protocols exclude each other, because protocols are for a server that perfkit starts: remove one (--set target.protocols=null)"),
    ("target: {model: m, url: 'http://h', urls: {grpc: 'grpc://h'}}\n" + LOAD, "s.yaml:1: target: url and urls exclude each other: move the URL into urls, such as {http: URL, grpc: URL}"),
    ("target: {model: m, urls: {grpc: 'grpc://h'}, protocols: [grpc]}\n" + LOAD, "s.yaml:1: target: urls and protocols exclude each other, because protocols are for a server that perfkit starts: remove one (--set target.protocols=null)"),
    ("target: {model: m, urls: {http: 'grpc://h'}}\n" + LOAD, "s.yaml:1: target.urls: http: this URL is for grpc: swap the URLs, or correct the scheme"),
    ("target: {model: m, urls: {tcp: 'grpc://h'}}\n" + LOAD, "s.yaml:1: target.urls.tcp: expected 'http' or 'grpc', found 'tcp'"),
    (HEAD + "measure:\n  duration: 1s\n  requests: 4\n", "s.yaml:3: measure: duration and requests exclude each other, because each ends the window: remove one"),
    # inputs
    (HEAD + INPUT + "{generate: zeros, file: x}\n", "s.yaml:5: workload.inputs.A: give exactly one of generate, file, value, strings, image; found generate and file"),
    (HEAD + INPUT + "5\n", "s.yaml:5: workload.inputs.A: give exactly one of generate, file, value, strings, image; found 5"),
    (HEAD + INPUT + "{generate: foo}\n", "s.yaml:5: workload.inputs.A.generate: expected 'random', 'zeros', 'ones', 'arange' or 'omit', found 'foo'"),
    (HEAD + INPUT + "{generate: ones, shape: [-1]}\n", "s.yaml:5: workload.inputs.A.shape[0]: input should be greater than or equal to 0, found -1"),
    (HEAD + INPUT + "{value: {a: 1}}\n", "s.yaml:5: workload.inputs.A.value: expected numbers, text, true or false, or lists of them, found {'a': 1}"),
    (HEAD + INPUT + "{value: [[1], [2001-01-01]]}\n", "s.yaml:5: workload.inputs.A.value: expected numbers, text, true or false, or lists of them, found datetime.date(2001, 1, 1)"),
    # addresses
    ("target: {model: m, url: 'ftp://h'}\n" + LOAD, f"s.yaml:1: target.url: {EXPECTED}, found 'ftp://h'"),
    ("target: {model: m, url: 'http://:80'}\n" + LOAD, f"s.yaml:1: target.url: {EXPECTED}, found 'http://:80'"),
    ("target: {model: m, url: 'http://h:99999'}\n" + LOAD, f"s.yaml:1: target.url: {EXPECTED}, with a port from 1 to 65535, found 'http://h:99999'"),
    ("target: {model: m, url: 'http://u:secret@h:x'}\n" + LOAD, f"s.yaml:1: target.url: {EXPECTED}, with a port from 1 to 65535, found 'http://<redacted>@h:x'"),
    ("target: {model: m, url: 'unix:x.sock'}\n" + LOAD, "s.yaml:1: target.url: expected a socket's absolute path, such as unix:/run/server.sock, found 'unix:x.sock'"),
    ("target: {model: m, url: 'http://h/?token=secret'}\n" + LOAD, "s.yaml:1: target.url: a target's URL has no query or fragment; tokens belong in target.headers, such as authorization: Bearer ${TOKEN}"),
    ("target: {model: m, url: 'http://h/a b'}\n" + LOAD, "s.yaml:1: target.url: the path begins with //, or path or credentials contain characters that must be percent-encoded, in 'http://h/a b'"),
    # commands that start the target
    ("target: {model: m, command: ''}\n" + LOAD, "s.yaml:1: target.command: string should have at least 1 character, found ''"),
    ("target: {model: m, command: ' '}\n" + LOAD, "s.yaml:1: target.command: expected a program and its arguments, such as 'my-server --port {port}', found nothing"),
    ("target: {model: m, command: \"s 'a {port}\"}\n" + LOAD, "s.yaml:1: target.command: No closing quotation in \"s 'a {port}\""),
    ("target: {model: m, command: serve}\n" + LOAD, "s.yaml:1: target: the server's address is unknown: write {port} in the command where the server takes its port, or give its address as target.url"),
    ("target: {model: m, command: 'serve {port}', protocols: [http, grpc]}\n" + LOAD, "s.yaml:1: target: write {http_port} and {grpc_port} in the command where the server takes its ports for http and grpc"),
    ("target: {model: m, command: 'serve {port}', url: 'http://h:1'}\n" + LOAD, "s.yaml:1: target: command and url exclude each other, because perfkit chooses the ports that the command takes: remove the URL, or write its port into the command"),
    ("target: {model: m, command: serve, url: ['http://h:1', 'http://h:2']}\n" + LOAD, "s.yaml:1: target: command starts one server: give a single url, without balance and resolve: all"),
    ("target: {model: m, url: 'http://h'}\nload: {cold_start: {by: restart}}\n", "s.yaml:1: the scenario: load.cold_start.by: perfkit restarts only a server that it has started: give target.command, such as 'my-server --port {port}', in place of the URL, or use by: reload"),
    ("target: {model: m, command: 'serve {port}'}\nload: {cold_start: {by: restart, timeout: 1m}}\n", "s.yaml:1: the scenario: load.cold_start.timeout is for by: reload: remove it, and give target.ready_within for a command"),
    ("target: {command: 'serve {port}'}\nworkloads:\n  - {name: a, weight: 1, model: m, protocol: http}\n  - {name: b, weight: 1, model: m, protocol: grpc}\n" + LOAD, "s.yaml:1: target.command: write {http_port} and {grpc_port} in the command where the server takes its ports for http and grpc"),
    ("workloads:\n  - {name: a, weight: 1, model: m, target: {command: 'serve {port}'}}\n" + LOAD, "s.yaml:1: the scenario: workloads: 'a' has a command of its own, and a run starts one server: give target.command for the whole scenario, or url for a server that runs already"),
    # TLS
    ("target: {model: m, url: 'http://h', tls: {}}\n" + LOAD, "s.yaml:1: target: tls needs an https:// or grpcs:// url"),
    ("target: {model: m, tls: {}}\n" + LOAD, "s.yaml:1: target: tls needs an https:// or grpcs:// url"),
    ("target: {model: m, url: 'https://h', tls: {key: k.pem}}\n" + LOAD, "s.yaml:1: target.tls: a key needs its certificate: give cert"),
    ("target: {model: m, url: 'https://h', tls: {verify: 0}}\n" + LOAD, "s.yaml:1: target.tls.verify: input should be a valid boolean, found 0"),
    ("target: {model: m, url: 'grpc://h', engine: reference}\nstream: {}\n" + LOAD, "s.yaml:1: the scenario: stream: the reference engine sends no streams: use engine: wire"),
    ("target: {model: m, url: 'http://h', engine: reference, connections: {max_requests: 3}}\n" + LOAD, "s.yaml:1: the scenario: target.connections: the reference engine rotates no connections: use engine: wire"),
    ("target: {model: m, url: 'grpcs://h', engine: reference, tls: {verify: false}}\n" + LOAD, "s.yaml:1: target: tls.verify: false does not work over gRPC with engine: reference; use engine: wire, or give the certificate of the server or its authority as tls.ca"),
    ("target: {model: m, streams_per_connection: 0}\n" + LOAD, "s.yaml:1: target.streams_per_connection: input should be greater than or equal to 1, found 0"),
    ("target: {model: m, url: 'http://h', streams_per_connection: 2}\n" + LOAD, "s.yaml:1: target: streams_per_connection needs gRPC and engine: wire; HTTP/1.1 carries one request at a time, and grpcio decides itself"),
    # parameters of a request
    (HEAD + "workload: {parameters: {a: [1]}}\n", "s.yaml:3: workload.parameters.a: expected a number, text, true or false, found [1]"),
    (HEAD + "workload: {data: []}\n", "s.yaml:3: workload.data: expected at least one element, found none"),
    (HEAD + "workload: {data: 5}\n", "s.yaml:3: workload.data: expected a list, found 5"),
    (HEAD + "workload: {encoding: yaml}\n", "s.yaml:3: workload.encoding: expected 'auto', 'binary' or 'json', found 'yaml'"),
    # open loops, searches, SLOs and later sections
    ("target: {model: m}\nload: {open: {}}\n", "s.yaml:2: load.open: rate is missing, such as rate: 100 or rate: [50, 100]"),
    ("target: {model: m}\nload: {open: {rate: x}}\n", "s.yaml:2: load.open.rate[0]: expected a rate such as 100 or 100/s, found 'x'"),
    ("target: {model: m}\nload: {open: {rate: [5, 0]}}\n", "s.yaml:2: load.open.rate[1]: a rate must be above zero, found 0"),
    ("target: {model: m}\nload: {open: {rate: [5, 5/s]}}\n", "s.yaml:2: load.open: rates must be unique, found [5.0, 5.0]; use measure.repetitions to measure a load again"),
    ("target: {model: m}\nload: {open: {rate: 5, arrivals: gamma}}\n", "s.yaml:2: load.open: burstiness and arrivals: gamma need each other: give both or neither"),
    ("target: {model: m}\nload: {open: {rate: 5, burstiness: 2}}\n", "s.yaml:2: load.open: burstiness and arrivals: gamma need each other: give both or neither"),
    ("target: {model: m}\nload: {open: {arrivals: trace}}\n", "s.yaml:2: load.open: arrivals: trace needs a file: give trace"),
    ("target: {model: m}\nload: {open: {rate: 5, trace: x}}\n", "s.yaml:2: load.open: trace is only for arrivals: trace"),
    ("target: {model: m}\nload: {open: {rate: 5, arrivals: trace, trace: x}}\n", "s.yaml:2: load.open: arrivals: trace has a rate and shape of its own: remove rate and shape"),
    ("target: {model: m}\nload: {open: {rate: 5, shape: {}}}\n", "s.yaml:2: load.open.shape: give exactly one of ramp, steps, spike, sine; found none"),
    ("target: {model: m}\nload: {open: {rate: 5, max_in_flight: 0}}\n", "s.yaml:2: load.open.max_in_flight: input should be greater than or equal to 1, found 0"),
    (SEARCH + "{}\n", "s.yaml:1: the scenario: load.search needs exactly one SLO: give either load.search.slo, such as {p99: 50ms}, or slo"),
    (SEARCH + "{slo: {p99: 1ms}}\nslo: {p99: 1ms}\n", "s.yaml:1: the scenario: load.search needs exactly one SLO: give either load.search.slo, such as {p99: 50ms}, or slo"),
    (SEARCH + "{slo: {p99: 1ms}, min_rate: 5, max_rate: 5/s}\n", "s.yaml:3: load.search: min_rate must be below max_rate, found 5/s and 5/s"),
    (SEARCH + "{slo: {p99: 1ms}, arrivals: gamma}\n", "s.yaml:3: load.search: burstiness and arrivals: gamma need each other: give both or neither"),
    (SEARCH + "{slo: {p99: 1ms}, precision: 60%}\n", "s.yaml:3: load.search.precision: input should be less than or equal to 0.5, found '60%'"),
    (SEARCH + "{slo: {p99: 1ms}, max_probes: 2}\n", "s.yaml:3: load.search.max_probes: input should be greater than or equal to 3, found 2"),
    (SEARCH + "{slo: {p99: 1ms}}\nmeasure: {requests: 5}\n", "s.yaml:1: the scenario: load.search measures for measure.duration: remove measure.requests"),
    (SEARCH + "{slo: {p99: 1ms}}\nmeasure: {repetitions: 3}\n", "s.yaml:1: the scenario: load.search decides itself how often it measures: remove measure.repetitions"),
    ("target: {model: m, protocols: [http, grpc]}\nload: {search: {slo: {p99: 1ms}}}\n", "s.yaml:1: the scenario: load.search takes one protocol; to search over each in turn, use sweep: {target.protocols: [[http], [grpc]]}"),
    ("target: {model: m, urls: {http: 'http://h', grpc: 'grpc://h'}}\nload: {search: {slo: {p99: 1ms}}}\n", "s.yaml:1: the scenario: load.search takes one protocol; to search over each in turn, use sweep: {target.urls: [{http: URL}, {grpc: URL}]}"),
    (HEAD + "stream: {}\ncheck: {outputs: {o: {value: [1]}}}\n", "s.yaml:1: the scenario: check.outputs: the events of generate_stream have neither datatypes nor shapes, and are not checked: use gRPC, or remove check.outputs"),
    (HEAD + "stream: {}\nslo: {wrong_answers: 1%}\n", "s.yaml:1: the scenario: slo.wrong_answers: the events of generate_stream have neither datatypes nor shapes, and are not checked: use gRPC, or remove wrong_answers"),
    (HEAD + "slo: {first_response: {p99: 1ms}}\n", "s.yaml:1: the scenario: slo.first_response: only streams have first responses: add stream: {}, or remove first_response"),
    (HEAD + "stream: {}\nslo: {first_response: {}}\n", "s.yaml:4: slo.first_response: give at least one limit, such as p99: 50ms or error_rate: 0.1%"),
    (HEAD + "stream: {}\nslo: {first_response: {error_rate: 1%}}\n", "s.yaml:4: slo.first_response.error_rate: unknown key; Known keys: p50, p90, p95, p99, p99_9, p99_99"),
    (HEAD + "measure: {until_decided: true}\n", "s.yaml:1: the scenario: measure.until_decided measures until the SLO's verdict is clear: give slo, such as {p99: 50ms}, or remove it"),
    (SEARCH + "{slo: {p99: 1ms}}\nmeasure: {until_decided: true}\n", "s.yaml:1: the scenario: measure.until_decided: load.search decides itself how long it measures: remove it"),
    (HEAD + "slo: {}\n", "s.yaml:3: slo: give at least one limit, such as p99: 50ms or error_rate: 0.1%"),
    (HEAD + "slo: {p99: 5}\n", "s.yaml:3: slo.p99: expected a duration such as 250us, 10ms, 30s or 2m, found 5"),
    (HEAD + "slo: {error_rate: 110%}\n", "s.yaml:3: slo.error_rate: a share lies between 0 and 1 (0% and 100%), found '110%'"),
    (HEAD + "sweep: {}\n", "s.yaml:3: sweep: expected keys and their values, such as workload.batch_size: [1, 4, 8]"),
    (HEAD + "sweep:\n  workload.batch_size: 4\n", "s.yaml:4: sweep.workload.batch_size: expected a list of values, such as [1, 4, 8]"),
    (HEAD + "sweep:\n  workload.batch_size: []\n", "s.yaml:4: sweep.workload.batch_size: expected a list of values, such as [1, 4, 8]"),
    (HEAD + "sweep:\n  workload.batch_size: [4, 4]\n", "s.yaml:4: sweep.workload.batch_size: values must be unique; use measure.repetitions to measure one again"),
    (HEAD + "sweep:\n  workload.batch_size: [1, 0]\n", "s.yaml:4: workload.batch_size: input should be greater than or equal to 1, found 0"),
    (HEAD + "sweep:\n  workload.batch: [1, 2]\n", "s.yaml:4: workload.batch: unknown key; did you mean 'batch_size'? Known keys: seed, batch_size, data, inputs, outputs, prompts, variants, encoding, request_id, priority, queue_timeout, parameters"),
    (HEAD + "sweep: {name: [a, b]}\n", "s.yaml:3: sweep.name: this key cannot be swept"),
    (HEAD + "sweep: {workload.batch_size: [1, 2]}\n", "s.yaml: sweep: the file is a sweep over 2 scenarios, but one scenario is needed: remove sweep"),
    (HEAD + "gpu: {sample_rate: 0}\n", "s.yaml:3: gpu.sample_rate: a rate must be above zero, found 0"),
    (HEAD + "telemetry: 'yes'\n", "s.yaml:3: telemetry: input should be a valid boolean, found 'yes'"),
    (HEAD + "metrics: {interval: 1ms}\n", "s.yaml:3: metrics.interval: expected at least 10ms, found 1ms"),
    (HEAD + "metrics: {names: ['a b']}\n", "s.yaml:3: metrics.names[0]: expected a metric's name, in which * stands for any characters, found 'a b'"),
    (HEAD + "metrics: {url: 'ftp://u:p@h/x'}\n", "s.yaml:3: metrics.url[0]: expected an http:// or https:// URL, such as http://127.0.0.1:8002/metrics, found 'ftp://<redacted>@h/x'"),
    (HEAD + "gate: {profile: mine}\n", "s.yaml:3: gate.profile: expected 'standard', found 'mine'"),
    (HEAD + "gate: {metrics: []}\n", "s.yaml:3: gate.metrics: expected at least one element, found none"),
    (HEAD + "gate: {metrics: [p50, p50]}\n", "s.yaml:3: gate.metrics: metrics must be unique, found ['p50', 'p50']"),
    (HEAD + "gate: {metrics: [p42]}\n", "s.yaml:3: gate.metrics[0]: expected 'throughput', 'p50', 'p95', 'p99', 'cpu_time', 'instructions', 'first_response_p50', 'first_response_p99', 'first_token_p50', 'first_token_p99', 'per_token_p50' or 'per_token_p99', found 'p42'"),
    ("target:\n  model: m\n  metrics_url: x\n" + LOAD, "s.yaml:3: target.metrics_url: expected an http:// or https:// URL, such as http://127.0.0.1:8002/metrics, found 'x'"),
    (HEAD + "measure: {warmup: automatic}\n", "s.yaml:3: measure.warmup: expected a duration such as 250us, 10ms, 30s or 2m, found 'automatic'"),
    (HEAD + INPUT + "{strings: []}\n", "s.yaml:5: workload.inputs.A.strings: expected at least one element, found none"),
    (HEAD + INPUT + "{image: x.jpg, scaling: no}\n", "s.yaml:5: workload.inputs.A.scaling: expected 'none', 'inception' or 'vgg', found False"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_an_error_names_file_line_and_key(read, tmp_path, text, message):
    with pytest.raises(ScenarioError) as caught:
        read(text)
    assert str(caught.value) == f"{tmp_path}/{message}"


def test_every_problem_has_its_own_line(read, tmp_path):
    with pytest.raises(ScenarioError) as caught:
        read("target: {model: 1}\nload: {closed: {concurrency: x}}\nmeasure:\n  repetitions: 0\n")
    assert str(caught.value).split("\n") == [
        f"{tmp_path}/s.yaml:1: target.model: expected text, found 1; put it in quotes",
        f"{tmp_path}/s.yaml:2: load.closed.concurrency: expected a list, found 'x'",
        f"{tmp_path}/s.yaml:4: measure.repetitions: input should be greater than or equal to 1, found 0",
    ]


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ScenarioError, match=f"^{re.escape(str(tmp_path))}/none.yaml: no such file$"):
        read_scenario(tmp_path / "none.yaml", (), {})


def test_a_folder_or_a_file_that_is_not_utf_8_cannot_be_read(tmp_path):
    with pytest.raises(ScenarioError, match=f"^{re.escape(str(tmp_path))}: cannot be read: .*Is a directory"):
        read_scenario(tmp_path, (), {})
    (tmp_path / "s.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(ScenarioError, match=r"s\.yaml: cannot be read: 'utf-8' codec"):
        read_scenario(tmp_path / "s.yaml", (), {})


MANY = "more than {:,} values, aliases expanded: put large values into files, such as workload.inputs.X.file: x.npy"


def parse(text):
    return parse_yaml(text, (), {}, lambda line: f"s.yaml:{line}")


def refusal(text):
    with pytest.raises(ScenarioError) as refused:
        parse(text)
    return str(refused.value)


def doubled(levels, leaf="[1]"):
    """A list of two lists of two lists …, in as many lines."""
    return "\n".join([f"a0: &a0 {leaf}", *(f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, levels))])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (doubled(60), 17),
        ("\n".join(["- &a [1, 2, 3]", "- &b {x: *a, y: *a}", "- &c [" + "*b, " * 200_000 + "]"]), 3),
    ],
    ids=["aliases of aliases", "aliases"],
)
def test_too_many_values_are_refused_without_being_expanded(text, line):
    tracemalloc.start()
    try:
        assert refusal(text) == f"s.yaml:{line}: {MANY.format(250_000)}"
        assert tracemalloc.get_traced_memory()[1] < 2**20  # and no more than this, however many lines follow
    finally:
        tracemalloc.stop()


@pytest.fixture
def low_limit(monkeypatch):
    """A tenth of the limit on values, which as many values reach sooner."""
    monkeypatch.setattr("perfkit.scenario.yaml_values._MAX_VALUES", 25_000)


@pytest.mark.usefixtures("low_limit")
def test_as_many_values_as_the_limit_are_read():
    # the document, its key and its list are values, too
    assert len(parse("a: [" + "1," * 24_997 + "]")["a"]) == 24_997
    tracemalloc.start()
    try:
        assert refusal("a: [" + "1," * 24_998 + "]") == f"s.yaml:1: {MANY.format(25_000)}"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("low_limit")
def test_an_alias_counts_as_what_it_stands_for():
    values = "[" + "1, " * 100 + "]"  # with itself 101
    assert len(parse(f"a: &a {values}\nb: [{'*a, ' * 246}]")["b"]) == 246
    assert refusal(f"a: &a {values}\nb: [{'*a, ' * 247}]") == f"s.yaml:2: {MANY.format(25_000)}"


def test_text_is_limited_with_its_aliases_expanded():
    text = f"a: &a '{'x' * 2**20}'\nb: [*a, *a, *a, *a, *a, *a"
    assert len(parse(text + "]")["b"]) == 6
    assert refusal(text + ", *a]") == "s.yaml:2: more than 8.00 MiB of text, aliases expanded: put it into files"


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000], ids=["flow lists", "lists", "mappings"])
def test_depth_is_limited(text):
    assert refusal(text) == "s.yaml:1: not valid YAML: values are nested deeper than 100 levels"


def test_aliases_yield_their_values():
    assert parse("a: &a [1, {b: c}]\nd: *a\ne: &e 5\nf: [*e]") == {"a": [1, {"b": "c"}], "d": [1, {"b": "c"}], "e": 5, "f": [5]}


def test_a_byte_of_the_command_line_that_is_not_utf_8_is_refused():
    assert refusal("a: b\nc: \udcff") == "s.yaml:2: not valid YAML: the character #xdcff is not allowed"
