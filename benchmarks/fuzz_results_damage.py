"""Random damage to stored results, for their fuzzer: to each format what a reader may meet."""

import copy
import json
import pathlib
import random
import sqlite3
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from benchmarks.fuzzing import add_fault

HOSTILE_TEXTS = (
    "\x1b]0;owned\x07\x1b[2J", "::error title=x::y", "a\n::stop-commands::x", "##[error]x ##vso[task.complete]", "<script>alert(1)</script>",
    "| a | b |\n|---|---|", "\u202egnp.exe", "\u200b", "\udc80", "../../../etc/passwd", "/etc/passwd", "$\\frac{$", "=cmd|' /C calc'!A0",
    "x" * 100_000, "\x00", "", " ", "javascript:alert(1)", "{{ 7 * 7 }}", "%s%n", "漢字", "```\n# a", "-->", "]]>", "\r\x85\u2028z",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**30, 10**400, -(10**400), 1e308, -1e308, 1e-320, float("nan"), float("inf"), float("-inf"),
    1e9, 0.5, -0.0, "1", "nan", "1e400", [], {}, [[]], {"": None}, [None] * 3, {"a": {"b": {"c": 1}}}, "2026-01-01T00:00:00+00:00", "9999-99-99T99:99:99Z",
)  # fmt: skip
FREE_PARTS = (
    "scenario", "environment", "overrides", "status_reason", "started_at", "fingerprint", "warnings", "errors", "failures", "labels",
)  # fmt: skip
"""Parts of a document that hold texts and whatever a server said: they reach the outputs."""
_PERCENTILES = ("p50", "p90", "p95", "p99", "p99_9", "p99_99")


def damage(file: pathlib.Path, rng: random.Random) -> str:
    """Damages a file by its format, and returns what was done."""
    kinds: dict[str, Callable[[pathlib.Path, random.Random], str]] = {
        ".json": damage_json, ".hlog": damage_log, ".csv": damage_csv, ".sqlite": damage_history,
    }  # fmt: skip
    return "bytes: " + damage_bytes(file, rng) if rng.random() < 0.1 else kinds.get(file.suffix, damage_bytes)(file, rng)


def damage_bytes(file: pathlib.Path, rng: random.Random) -> str:
    """Random bytes, an end cut off, an empty file, a missing one, a folder in its place."""
    data = bytearray(file.read_bytes())
    match rng.randrange(8):
        case 0:
            file.write_bytes(b"")
            return "empty"
        case 1:
            file.unlink()
            return "missing"
        case 2:
            file.unlink()
            file.mkdir()
            return "a folder"
        case 3:
            file.write_bytes(rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\0" * 100, b"[" * 100_000, b'{"a":' * 50_000]) + bytes(data))
            return "a beginning"
        case _:
            for _ in range(rng.choice([1, 1, 3, 20])):
                add_fault(data, rng)
            file.write_bytes(data)
            return "faults"


def damage_json(file: pathlib.Path, rng: random.Random) -> str:
    """Values, types and keys of a document; one to four of them."""
    document = json.loads(file.read_text())
    if file.name == "result.json" and rng.random() < 0.25:
        done_whole = make_extreme(document, rng)
        file.write_text(json.dumps(document))
        return done_whole
    done = [_damage_value(document, rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
    text = json.dumps(document, indent=1)
    if rng.random() < 0.1:
        line = rng.choice([one for one in text.splitlines() if '": ' in one])
        name = line.split('"')[1]
        text = text.replace(
            line, f"{line.partition(':')[0]}: {rng.choice(['NaN', '-Infinity', '1e400', '1' + '0' * 5000, '1'])},\n{line}", 1
        )
        done.append(f"{name} twice")
    file.write_text(text)
    return "; ".join(done)


def make_extreme(document: dict[str, Any], rng: random.Random) -> str:
    """Figures at the ends of what can be measured, consistent with each other: they pass the checks, and reach tables and plots."""
    points = [*document["points"], *document["summary"]]
    kind = rng.randrange(8)
    for point in points:
        times = [point[name] for name in ("service_time_ns", "response_time_ns", "start_delay_ns") if point.get(name)]
        match kind:
            case 0:  # the load: a million requests in flight, or a rate near zero
                name, factor = ("concurrency", 1_000_000) if point["load"]["kind"] == "closed" else ("rate_per_s", 1e-6)
                point["load"] = {**point["load"], name: point["load"][name] * factor}
            case 1:  # nothing was answered
                point["requests"] = {
                    **dict.fromkeys(point["requests"], 0),
                    **dict.fromkeys(("scheduled", "sent", "rejected"), point["requests"]["sent"]),
                }
                point |= {"error_rate": 1.0, "throughput_per_s": 0.0, "inferences_per_s": 0.0, "goodput_per_s": None, "intervals": {}}
                point |= {"throughput_series_per_s": None, "failure_time_ns": None}
                for one in times:
                    one.update(dict.fromkeys(("count", "min", "mean", "stddev", "max"), 0) | dict.fromkeys(_PERCENTILES))
            case 2:  # every time is an hour
                for one in times:
                    one.update(dict.fromkeys(("min", *_PERCENTILES, "max"), 3_600_000_000_000) | {"mean": 3.6e12, "stddev": 0.0})
            case 3:  # percentiles are withheld
                for one in times:
                    one.update(dict.fromkeys(_PERCENTILES))
                point["intervals"] = {}
            case 4:
                point |= {"valid": False, "warnings": [{"code": text, "message": text} for text in HOSTILE_TEXTS[:6]]}
            case 5:
                point["intervals"] = {name: [0.0, None] for name in point["intervals"]}
            case 6:
                gauge = {"labels": dict.fromkeys(HOSTILE_TEXTS, "x"), "kind": "gauge", "mean": 1e300, "min": -1e300, "max": 1e300}
                point["metrics"] = [{"name": text, **gauge} for text in HOSTILE_TEXTS]
            case _:
                point["generator"] |= {"cpu_share": 0.0, "steal_share": 1.0}
                point["connections"] |= {"opened": 10**15}
    return f"extreme figures of kind {kind}"


def _damage_value(document: Any, rng: random.Random) -> str:
    place, key, path = _place(document, rng)
    if place is None:
        return "nothing"
    value = place[key]
    match rng.randrange(8):
        case 0:
            del place[key]
            return f"{path} removed"
        case 1:
            place[key] = [value] * rng.choice([0, 1, 2, 50])
            return f"{path} in a list"
        case 2:
            deep: Any = value
            for _ in range(rng.choice([3, 90, 200])):
                deep = {"a": deep} if rng.random() < 0.5 else [deep]
            place[key] = deep
            return f"{path} nested"
        case 3 if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18:
            place[key] = value * rng.choice([-1, 0, 1.01, 2, 1e3, 1e6, 1e9, 1e30, 10**40])
            return f"{path} scaled to {place[key]!s:.30}"
        case 4 if isinstance(value, list) and value:
            place[key] = value[: len(value) // 2] if rng.random() < 0.5 else value + value
            return f"{path} cut or doubled"
        case 5 | 6 if isinstance(value, str):
            place[key] = rng.choice(HOSTILE_TEXTS)
            return f"{path} is {place[key][:30]!r}"
    place[key] = rng.choice(HOSTILE_TEXTS) if rng.random() < 0.3 else copy.deepcopy(rng.choice(ODD_VALUES))
    return f"{path} is {str(type(place[key])) if isinstance(place[key], int) and abs(place[key]) > 10**50 else repr(place[key])[:40]}"


def _place(document: Any, rng: random.Random) -> tuple[Any, Any, str]:
    """A random place of a document; one in two is in a part that holds texts."""
    place, key, path = None, None, ""
    value = document
    wants_text = rng.random() < 0.5
    while isinstance(value, dict | list) and value and (place is None or rng.random() < 0.85):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if wants_text and isinstance(value, dict) and (free := [one for one in keys if one in FREE_PARTS]):
            keys = free
        place, key = value, rng.choice(keys)
        value, path = place[key], f"{path}.{key}"
    return place, key, path[1:]


def damage_log(file: pathlib.Path, rng: random.Random) -> str:
    """Lines removed, doubled, exchanged, renamed; payloads of other lines, or that inflate to a gigabyte."""
    lines = file.read_text().splitlines()
    number = rng.randrange(len(lines))
    match rng.randrange(7):
        case 0:
            del lines[number]
        case 1:
            lines.insert(number, lines[rng.randrange(len(lines))])
        case 2:
            lines = lines[: rng.randrange(len(lines))]
        case 3:
            bomb = b"\x1c\x84\x93\x14" + (300_000).to_bytes(4) + zlib.compress(bytes(rng.choice([10**4, 10**6, 3 * 10**8])), 9)
            lines[number] = f"Tag=p0.r0.service,0.000,1.000,1.000,{b64encode(bomb).decode()[:400_000]}"
        case 4:
            lines.append(f"#[Window p0.r0 starts at {rng.choice(['9' * 400, '1e9', '-5', '0.0.0', '9999999999'])} s]")
        case 5:
            lines[number] = lines[number].replace("p0.r0", rng.choice(["p9.r0", "p0.r7", "p" + "9" * 5000 + ".r0", "p0.r0.lost"]))
        case _:
            head, _, payload = lines[number].rpartition(",")
            noise = bytearray(payload.encode())
            add_fault(noise, rng)
            lines[number] = f"{head},{noise.decode('latin-1')}"
    file.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return "log"


def damage_csv(file: pathlib.Path, rng: random.Random) -> str:
    """Cells of a table."""
    lines = file.read_text().splitlines()
    for _ in range(rng.choice([1, 3])):
        number = rng.randrange(len(lines))
        cells = lines[number].split(",")
        odd = [
            "nan", "inf", "-1", "1e308", "1e400", "x", "", '"', "[]", "9" * 400, "0001-01-01", "9999-12-31", "292277026596-12-04", "-2026-01-01",
            "2026-13-45", "1970-01-01", "2199-12-31", "1e11", "0.001",
        ]  # fmt: skip
        cells[rng.randrange(len(cells))] = rng.choice([*odd, *(one for one in HOSTILE_TEXTS if one.isprintable())])
        lines[number] = ",".join(cells)
    file.write_text("\n".join(lines) + "\n")
    return "cells"


def damage_history(file: pathlib.Path, rng: random.Random) -> str:
    """Rows with odd values, more tables, views and triggers, other versions, and damaged pages."""
    odd: Any = rng.choice([-1.0, 0.0, float("inf"), float("-inf"), 1e308, 1e-320, "x", b"\0", 10**18, None, *HOSTILE_TEXTS])
    if isinstance(odd, str):
        odd = odd.encode("utf-8", "replace").decode()
    columns = {"result": ("scenario", "started_at", "commit_id", "host_id", "status", "fingerprint", "source"), "figure": ("load_point", "metric", "unit", "value", "valid")}  # fmt: skip
    table = rng.choice(list(columns))
    column = rng.choice(columns[table])
    statements: list[tuple[str, tuple[Any, ...]]] = [
        (f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid % 3 = 0" if table == "result" else f"UPDATE OR IGNORE figure SET {column} = ? WHERE result_id % 3 = 0", (odd,)),  # noqa: S608 - the names are those above
        (f"DROP TABLE {table}", ()),
        ("PRAGMA user_version = 7", ()),
        ("DELETE FROM result", ()),
        ("ALTER TABLE figure RENAME TO other", ()),
        ("CREATE TRIGGER t AFTER INSERT ON result BEGIN DELETE FROM figure; END", ()),
        ("UPDATE result SET fingerprint = ?", (rng.choice(["[]", "{", '{"a": ' * 2000, "NaN", "1", '{"gpus": 5}']),)),
    ]  # fmt: skip
    statement, values = statements[0] if rng.random() < 0.6 else rng.choice(statements)
    connection = sqlite3.connect(file)
    try:
        with connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(statement, values)
            if rng.random() < 0.1:
                connection.execute("DROP TABLE IF EXISTS figure")
                rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 AS result_id, 'x' AS load_point, 'p50' AS metric, 'ns' AS unit, 1.0 AS value, 1 AS valid FROM n"  # fmt: skip
                connection.execute(f"CREATE VIEW figure AS {rows}")
    except (sqlite3.Error, OverflowError):
        return "nothing"
    finally:
        connection.close()
    return f"{statement[:60]} {values!s:.60}"
