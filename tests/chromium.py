"""A headless Chromium, driven over the DevTools protocol through a pipe: no port, and no library."""

import base64
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

_ANSWERS_WITHIN_S = 60


@dataclasses.dataclass
class Browser:
    """One browser with one page. Console errors, exceptions and requests of the page are collected."""

    commands: int
    answers: int
    problems: list[str] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)
    _session: str = ""
    _number: int = 0
    _read: bytes = b""
    _is_loaded: bool = False

    def call(self, method: str, **parameters: Any) -> Any:
        """A command's result; raises RuntimeError if the browser refuses it."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": self._session} if self._session else {})
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def start(self) -> None:
        """Opens the page that everything else acts on."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def show(self, file: pathlib.Path, *, width: int, is_dark: bool = False, has_scripts: bool = True) -> None:
        """Loads a file in a window of that width, and waits until it is loaded."""
        self.problems.clear()
        self.requests.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}])
        self.call("Emulation.setScriptExecutionDisabled", value=not has_scripts)
        self._is_loaded = False
        self.call("Page.navigate", url=file.as_uri())
        while not self._is_loaded:
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise; raises RuntimeError with its exception."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def serious(self) -> list[tuple[str, str]]:
        """The serious violations of accessibility that axe finds in the page, each with the first element that has it."""
        self.evaluate(_axe() + "; null")
        # preload asks for style sheets, which Chromium refuses to pages from files; what is not asked for needs no description of each element
        found = json.loads(
            self.evaluate("axe.run({preload: false, resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))")
        )
        return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]

    def press(self, key: str) -> None:
        """Presses a key, such as `ArrowRight`, `Enter` or `+`."""
        text: dict[str, Any] = {"text": key} if len(key) == 1 else {"text": "\r", "windowsVirtualKeyCode": 13} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def mouse(self, kind: str, x: float, y: float, clicks: int = 1) -> None:
        """Moves the mouse to a place of the window, or presses or releases its left button there: `Moved`, `Pressed`, `Released`."""
        button = {} if kind == "Moved" else {"button": "left", "clickCount": clicks}
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **button)

    def screenshot(self, file: pathlib.Path, *, height_px: int = 16_000) -> None:
        """Writes the page, or its first pixels, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shown = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], height_px), "scale": 1}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", clip=shown, captureBeyondViewport=True)["data"]))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        while b"\0" not in self._read:
            ready, _, _ = select.select([self.answers], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(self.answers, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError("Chromium ended, or did not answer in time")
            self._read += part
        line, self._read = self._read.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, parameters: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._is_loaded = True
        elif event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:1000])
        elif event == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(parameters["args"])[:1000])
        elif event == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.problems.append(parameters["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


@functools.cache
def _axe() -> str:
    """The script of axe-core that comes with `axe-playwright-python`, whose own code needs another driver of browsers."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("no axe-core: pip install -e .[dev]")
    return pathlib.Path(spec.submodule_search_locations[0], "axe.min.js").read_text(encoding="utf-8")


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of this machine, ended with its context. Raises FileNotFoundError where none is installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise FileNotFoundError("no Chromium: the tests of the pages need it; apt-get install chromium")
    command_end, commands = os.pipe()
    answers, answer_end = os.pipe()

    # the browser reads commands from descriptor 3 and writes answers to 4; a shell puts them there
    shell = f'exec "$0" "$@" 3<&{command_end} 4>&{answer_end}'
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["/bin/bash", "-c", shell, program, *flags, f"--user-data-dir={profile}", "--no-first-run", "about:blank"],
            pass_fds=(command_end, answer_end), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(command_end)
        os.close(answer_end)
        try:
            browser = Browser(commands, answers)
            browser.start()
            yield browser
            browser._session = ""
            browser.call("Browser.close")
        finally:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(commands)
            os.close(answers)
