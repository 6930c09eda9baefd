"""The search of the documentation."""

import pytest

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.help_search import Passage, passages_of, search_topics

PAGE = """# Apples

What they are.
Second line.

| kind | colour |
|---|---|
| Boskoop | red |
| Granny Smith | |

## Storing `apples`

- **Cold**: at 4 °C:

  ```sh
  store --cold

  # all of them
  ```
- Warm: never.
"""


def test_a_page_is_read_as_paragraphs_rows_with_a_meaning_and_items_with_their_program():
    assert list(passages_of("fruit", PAGE)) == [
        Passage("fruit", "Apples", "What they are.\nSecond line.", "What they are.\nSecond line.", is_row=False, is_first=True),
        Passage("fruit", "Apples", "| kind | colour |\n|---|---|\n| Boskoop | red |", " Boskoop ", is_row=True, is_first=False),
        Passage(
            "fruit",
            "Storing `apples`",
            "- **Cold**: at 4 °C:\n\n  ```sh\n  store --cold\n\n  # all of them\n  ```",
            "- **Cold**: at 4 °C:\n\n  ```sh\n  store --cold\n\n  # all of the",
            is_row=False,
            is_first=True,
        ),
        Passage("fruit", "Storing `apples`", "- Warm: never.", "- Warm: never.", is_row=False, is_first=False),
    ]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["apple"], ["What they are.\nSecond line.", "- **Cold**"]),
        (["BOSKOOP"], ["| kind"]),
        (["storing", "apples"], ["- **Cold**"]),
        (["never"], ["- Warm"]),
        (["4"], ["- **Cold**"]),
        (["boskoo"], []),
        (["cold", "boskoop"], []),
    ],
)
def test_words_are_found_whole_in_any_case_and_headings_first(words, found):
    passages = search_topics({"fruit": PAGE}, words).passages
    assert len(passages) == len(found)
    assert all(passage.text.startswith(start) for passage, start in zip(passages, found, strict=True))


def test_what_is_not_shown_is_counted_by_topic():
    pages = {"one": "# Other\n\nA pear.\n\nTwo pears.\n", "two": "# Pear\n\nIt is green.\n"}
    found = search_topics(pages, ["pear"], most=1)
    assert [passage.topic for passage in found.passages] == ["two"]
    assert found.others == {"one": 2}


@pytest.mark.parametrize("code", [str(int(code)) for code in ExitCode])
def test_an_exit_code_is_explained_by_its_row(perfkit, code):
    finished = perfkit.run("help", code)
    assert finished.code == 0
    assert finished.stdout.startswith("### exit-codes: Exit codes\n\n| exit code | meaning |\n|---|---|\n| " + code)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bearer"], "headers: {authorization:"),
        (["tls"], "| `tls` |"),
        (["p99"], "The longest allowed 99th percentile."),
        (["open", "loop"], "Requests start at scheduled times"),
    ],
)
def test_any_word_of_the_documentation_is_looked_for(perfkit, words, said):
    finished = perfkit.run("help", *words)
    assert finished.code == 0
    assert said in finished.stdout
    assert finished.stdout.rstrip().endswith("perfkit help TOPIC prints a whole page.")


def test_a_word_that_stands_nowhere_is_refused(perfkit):
    finished = perfkit.run("help", "xyzzyx")
    assert (finished.code, finished.stderr) == (2, "perfkit: no help on xyzzyx; perfkit help lists the topics\n")
