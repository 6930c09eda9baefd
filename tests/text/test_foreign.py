"""Foreign text in each output: what a terminal, a CI system, a browser or a spreadsheet would execute is shown instead."""

import io
import json

import pytest

from perfkit.text import (
    bounded,
    csv_cell,
    file_name,
    markdown,
    one_line,
    page_words,
    safe_lines,
    safe_stream,
    styled_lines,
    visible,
    write_raw,
    write_styled,
)

RED, RIGHT_TO_LEFT, ZERO_WIDTH, NEXT_LINE = "\x1b[31m", "\u202e", "\u200b", "\x85"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{RED}red", r"\u001b[31mred"),
        (f"a{RIGHT_TO_LEFT}b{ZERO_WIDTH}c{NEXT_LINE}d", r"a\u202eb\u200bc\u0085d"),
        ("over\rwritten\x07\x00\x7f", r"over\u000dwritten\u0007\u0000\u007f"),
        ("\U000e0041\udc80", r"\U000e0041\udc80"),
        ("ü € 漢字 – µ\tb\nc", "ü € 漢字 – µ\tb\nc"),
        ("می\u200cخواهم 👩\u200d💻 ❤\ufe0f\u200d🔥", "می\u200cخواهم 👩\u200d💻 ❤\ufe0f\u200d🔥"),
        ("a\u200dü ü\u200c\u200cü ü\u200d", r"a\u200dü ü\u200c\u200cü ü\u200d"),
    ],
)
def test_invisible_characters_are_shown_as_escapes(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", r"\u003a:error::x"),
        ("a\n \t::add-mask::x\nb::c", "a\n \t\\u003a:add-mask::x\nb::c"),
        ("x ##[group]y ##vso[task.x] ##teamcity[z]", r"x #\u0023[group]y #\u0023vso[task.x] #\u0023teamcity[z]"),
        ("## heading", "## heading"),
    ],
)
def test_no_line_is_a_command_to_a_ci_system(text, shown):
    assert safe_lines(text) == styled_lines(text) == shown


def test_styles_of_our_own_are_kept_only_where_they_are_asked_for():
    assert styled_lines(f"{RED}red\x1b[0m \x1b]0;title\x07") == RED + "red\x1b[0m " + r"\u001b]0;title\u0007"


def test_one_line_stays_one_line_of_bounded_length():
    assert one_line("a\nb\tc") == r"a\nb c"
    assert one_line("x" * 300) == "x" * 300
    assert one_line("x" * 10**6) == "x" * 299 + "…"


def test_messages_have_bounded_lines():
    assert bounded("a\nb") == "a\nb"
    assert bounded("x" * 10**6) == "x" * 1999 + "…"
    assert bounded("x\n" * 10**5).splitlines()[99:] == ["x", "… and 99,901 more lines"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("<script>a|b</script> `c` *d* [e](f)", r"\<script\>a\|b\</script\> \`c\` \*d\* \[e\](f)"),
        ("# a", r"\# a"),
        ("- a", r"\- a"),
        ("12. a", r"12\. a"),
        ("---", r"\---"),
        ("::error::", r"\\u003a:error::"),
        ("+12.3 %", "+12.3 %"),
        ("a\n\n# b", "a # b"),
        (RED, r"\\u001b\[31m"),
    ],
)
def test_markdown_has_no_meaning(text, written):
    assert markdown(text) == written


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@x", "'@x"),
        ("-1.5", "-1.5"),
        ("+3", "+3"),
        ("-cmd", "'-cmd"),
        ("a=b", "a=b"),
        ("+1.5% (+1% to -2%)", "+1.5% (+1% to -2%)"),
        ("+1+cmd|x!A0", "'+1+cmd|x!A0"),
        ("a\nb", r"a\nb"),
    ],
)
def test_a_cell_is_no_formula(text, cell):
    assert csv_cell(text) == cell


@pytest.mark.parametrize(("text", "name"), [("../../etc/passwd", "etc-passwd"), ("a b\x1b", "a-b"), ("", "unnamed"), ("..", "unnamed"), ("smoke-1.2", "smoke-1.2")])  # fmt: skip
def test_a_file_name_has_no_separators(text, name):
    assert file_name(text) == name


@pytest.mark.parametrize(
    ("parts", "written"),
    [
        (["::error::x\n"], "\\u003a:error::x\n"),
        ([" ", ":", ":error::x"], r" :\u003aerror::x"),
        (["address ", "::1", "\n", "::1"], "address ::1\n\\u003a:1"),
        ([RED, "x"], r"\u001b[31mx"),
        (["", "", "::a"], r"\u003a:a"),
    ],
)
def test_a_stream_escapes_commands_also_where_several_writes_make_them_up(parts, written):
    stream = io.StringIO()
    safe = safe_stream(stream)
    for part in parts:
        safe.write(part)
    assert stream.getvalue() == written


def test_our_own_styles_and_commands_pass_the_stream():
    stream = io.StringIO()
    safe = safe_stream(stream)
    write_styled(safe, f"{RED}x\x1b[0m\n")
    write_raw(safe, "::error title=a::b\n")
    assert stream.getvalue() == f"{RED}x\x1b[0m\n::error title=a::b\n"
    assert safe_stream(safe) is safe


def test_json_is_read_back_as_it_was_written():
    document = {"a": "\x1b \x7f \u202e ##[x] ::y", "b": ["::z"]}
    stream = io.StringIO()
    safe_stream(stream).write(json.dumps(document, indent=1))
    assert json.loads(stream.getvalue()) == document
    assert "\x7f" not in stream.getvalue()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<html><head><title>413</title></head><body><h1>413 Request\nEntity Too Large</h1><hr>nginx</body></html>", "413 413 Request Entity Too Large nginx"),
        ("<!DOCTYPE html><script>if (a < b) x()</script><style>p {}</style><p>Too&nbsp;large &amp; more<!-- a > b --></p>", "Too large & more"),
        ("<Error><Code>EntityTooLarge</Code></Error>", "EntityTooLarge"),
        ("shape <1, 2> expected", "shape <1, 2> expected"),
        ("<>", "<>"),
        # what a server may send so that each of many beginnings is searched for its end
        ("<p>down" + "<!--" * 5000, "down"),
        ("<p>down" + "<script" * 3000, "down"),
        ("<p>down" + "<style>" * 3000, "down"),
    ],
)  # fmt: skip
def test_a_page_is_cut_to_its_words(page, words):
    assert page_words(page) == words
