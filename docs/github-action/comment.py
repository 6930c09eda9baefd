"""Puts the verdict on the pull request: one comment, which later pushes update. It never fails the job.

Reads $MARKDOWN (the file), $NAME (tells the gates of a workflow apart), $PULL_REQUEST, $TOKEN, $GITHUB_API_URL, $GITHUB_REPOSITORY,
$GITHUB_SERVER_URL and $GITHUB_RUN_ID; needs only Python.
"""

import json
import os
import pathlib
import urllib.error
import urllib.request
from typing import Any

_LONGEST = 60_000  # GitHub takes 65,536 characters
_PAGE = 100


def main() -> None:
    """Updates the comment with this gate's mark, or adds it."""
    mark = f"<!-- perfkit gate: {os.environ['NAME']} -->"
    comments = f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues/{os.environ['PULL_REQUEST']}/comments"
    body = {"body": f"{mark}\n{_text()}"}
    try:
        for page in range(1, 1000):
            found: list[dict[str, Any]] = _call("GET", f"{comments}?per_page={_PAGE}&page={page}")
            for comment in found:
                if comment["user"]["type"] == "Bot" and comment["body"].startswith(mark):
                    _call("PATCH", f"/repos/{os.environ['GITHUB_REPOSITORY']}/issues/comments/{comment['id']}", body)
                    return
            if len(found) < _PAGE:
                break
        _call("POST", comments, body)
    except (OSError, ValueError, LookupError, TypeError) as error:
        print(f"::notice title=perfkit gate::No comment on the pull request, which needs permissions: pull-requests: write ({error})")


def _text() -> str:
    """The Markdown, cut at a line where it is too long."""
    text = pathlib.Path(os.environ["MARKDOWN"]).read_text(encoding="utf-8")
    run = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}/actions/runs/{os.environ['GITHUB_RUN_ID']}"
    if len(text) > _LONGEST:
        text = text[:_LONGEST].rpartition("\n")[0] + "\n\n…\n"
    return f"{text}\n[Files and log]({run})\n"


def _call(method: str, path: str, body: object = None) -> Any:
    """The answer of GitHub's interface; raises OSError if it refuses."""
    headers = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Accept": "application/vnd.github+json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["GITHUB_API_URL"] + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    main()
