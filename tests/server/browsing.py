"""What the tests of the page need: a Chromium, a driver of the page, and what the accessibility rules ask of a page."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Download, Locator, Page, Playwright, Request, Route, expect

PATIENCE_MS = 20_000
"""What a wait may take on a busy machine."""
expect.set_options(timeout=PATIENCE_MS)

CHATS = "**/v1/chat/completions"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium_path(playwright: Playwright) -> str | None:
    """playwright's own Chromium where it was installed, else the system's; None without any."""
    own = playwright.chromium.executable_path
    return own if os.path.exists(own) else next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Site:
    url: str
    pid: int

    def reply(self, *texts: str, **more: Any) -> dict[str, Any]:
        """The message that the API gives for a conversation, the user's turns and the model's by turns."""
        messages = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
        body = {"messages": messages, "temperature": 0, **more}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=60).raise_for_status()
        return dict(answer.json()["choices"][0]["message"])

    def in_flight(self) -> int:
        return int(httpx.get(f"{self.url}/v1/status").json()["activity"]["in_flight"])

    def engine_pid(self) -> int:
        found = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=True)
        return int(found.stdout.split()[0])


@dataclass
class Chat:
    """The page as somebody uses it. What its scripts complain about is in `complaints`."""

    page: Page
    touch: bool = False
    complaints: list[str] = field(default_factory=list)
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda said: self._console(said.type, said.text))
        self.page.on("request", self._request)

    def _console(self, kind: str, text: str) -> None:
        # A refusal is logged by the browser itself, whatever the page makes of it.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.complaints.append(text)

    def _request(self, request: Request) -> None:
        if request.url.endswith("/v1/chat/completions") and request.post_data:
            self.sent.append(json.loads(request.post_data))

    @property
    def answers(self) -> Locator:
        return self.page.locator(".message.answer > .body")

    @property
    def asked(self) -> Locator:
        return self.page.locator(".message.own > .body")

    @property
    def live(self) -> Locator:
        return self.page.locator(".message.live")

    @property
    def note(self) -> Locator:
        return self.page.locator(".message .note:visible").last

    def begin(self, text: str) -> None:
        """Sends a message and does not wait for the answer."""
        self.page.fill("#prompt", text)
        if self.touch:
            self.page.tap("#send")
        else:
            self.page.keyboard.press("Enter")

    def ask(self, text: str) -> str:
        """Sends a message; the answer when it is there."""
        before = self.answers.count()
        self.begin(text)
        self.ended(before + 1)
        return self.answers.last.inner_text()

    def ended(self, answers: int) -> None:
        """Waits until there are so many answers and none is being written."""
        self.page.wait_for_function(
            "n => !document.querySelector('.live') && document.querySelectorAll('.message.answer').length === n",
            arg=answers,
        )

    def set_option(self, name: str, value: str) -> None:
        self.page.click("#open-settings")
        self.page.fill(f"#option-{name}", value)
        self.page.keyboard.press("Escape")

    def change_requests(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Changes what the page sends on its way to the real server."""

        def pass_on(route: Route, request: Request) -> None:
            route.continue_(post_data=json.dumps(change(json.loads(request.post_data or "{}"))))

        self.page.unroute(CHATS)
        self.page.route(CHATS, pass_on)

    def make_write(self, text: str) -> None:
        """Lets the server's model write exactly this, by a grammar that admits nothing else."""
        grammar = "root ::= " + json.dumps(text, ensure_ascii=False)
        self.change_requests(lambda body: body | {"grammar": grammar, "reasoning_effort": "none"})

    def make_write_long(self) -> None:
        """Lets the model write words for seconds: more than it may stop after."""
        self.change_requests(lambda body: body | LONG)

    def download(self, act: Callable[[], None]) -> tuple[str, str]:
        """The name and the text of the file that an action offers."""
        with self.page.expect_download() as found:
            act()
        file: Download = found.value
        return file.suggested_filename, file.path().read_text()


CODE = "def area(r):\n    return 3.14159 * r ** 2  # <b>\n"
MUCH = f"""# A heading

Some `code`, a [link](https://example.org).

```python
{CODE}```

| a | b |
|--|--:|
| 1 | 2 |

> A quotation.
"""
LONG = {"grammar": 'root ::= ([a-z]+ " "){600}', "reasoning_effort": "none", "max_tokens": 1800}

NAMED = {"button", "link", "textbox", "combobox", "checkbox", "spinbutton", "menuitem", "option", "DisclosureTriangle",
         "dialog", "region", "meter", "img", "navigation"}  # fmt: skip
RULES = Path(__file__).with_name("page_rules.js").read_text()


def nameless(page: Page) -> list[str]:
    """Controls and landmarks that the browser's accessibility tree has without a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    found = [node for node in tree if not node.get("ignored") and node.get("role", {}).get("value") in NAMED]
    assert found, "the accessibility tree has no control"
    return [json.dumps(node) for node in found if not node.get("name", {}).get("value", "").strip()]


def _measure(page: Page, name: str) -> Any:
    """What a function of page_rules.js says about the page as it is."""
    return page.evaluate(f"() => {{ {RULES}; return {name}(); }}")


def views(chat: Chat) -> Iterator[str]:
    """Goes through what the page can show; at each stop the caller looks at it."""
    page = chat.page
    yield "welcome"
    page.select_option("#effort", "low")
    chat.ask("What is 17 plus 25?")
    page.click(".answer .thinking summary")
    page.locator(".answer .stats summary").first.click()
    chat.make_write(MUCH)
    chat.ask("Show me.")
    page.unroute_all()
    chat.begin("many words " * 3000)
    expect(chat.note).to_contain_text("context")
    yield "chat"
    page.click("#open-settings")
    page.fill("#option-temperature", "-1")
    page.get_by_role("button", name="Use for new conversations").click()
    expect(page.locator("dialog .toast")).to_be_visible()
    yield "settings"
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    yield "search"
    page.keyboard.press("Escape")
    page.click("#view-monitor")
    expect(page.locator(".requests tbody tr").first).to_be_visible()
    yield "monitor"


def _rgba(text: str) -> tuple[float, float, float, float]:
    if text.startswith("color(srgb"):
        values = [float(x) for x in re.findall(r"[\d.]+", text[10:])]
        values[:3] = [255 * value for value in values[:3]]
    else:
        values = [float(x) for x in re.findall(r"[\d.]+", text)]
    red, green, blue, alpha = [*values, 1.0][:4]
    return red, green, blue, alpha


def _over(under: tuple[float, ...], colour: str) -> tuple[float, ...]:
    *channels, alpha = _rgba(colour)
    return tuple(alpha * new + (1 - alpha) * old for new, old in zip(channels, under, strict=True))


def _luminance(channels: tuple[float, ...]) -> float:
    """Relative luminance, as WCAG 2.2 defines it."""
    shares = [value / 255 for value in channels]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(colour: str, under: list[str]) -> float:
    """The contrast ratio of a colour over the colours under it, backmost first, on white."""
    ground: tuple[float, ...] = (255.0, 255.0, 255.0)
    for layer in under:
        ground = _over(ground, layer)
    light, dark = sorted((_luminance(_over(ground, colour)), _luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def too_faint(page: Page) -> list[str]:
    """Visible texts under 4.5:1 (large ones: 3:1), and icons, frames and focus rings under 3:1 (WCAG 2.2 AA)."""
    texts, shapes = _measure(page, "texts"), _measure(page, "shapes")
    assert len(texts) > 1, texts
    bad = []
    for one in [*texts, *shapes]:
        large = one in shapes or one["size"] >= 24 or (one["size"] >= 18.66 and one["weight"] >= 700)
        ratio = contrast(one["color"], one["under"])
        if ratio < (3 if large else 4.5):
            bad.append(f"{one['text']!r}: {ratio:.2f}, {one['color']} on {one['under']}")
    return bad


def tab_through(page: Page) -> tuple[set[int], list[str]]:
    """Presses Tab once around: the numbers of the controls that were not reached, and stops that one cannot see."""
    number = _measure(page, "reachable")
    assert number > 5
    reached: set[int] = set()
    unseen = []
    page.evaluate("() => document.activeElement.blur()")
    for _ in range(number + 3):
        page.keyboard.press("Tab")
        focused = _measure(page, "focused")
        if focused is None or focused["stop"] is None:
            continue
        reached.add(int(focused["stop"]))
        if not focused["seen"]:
            unseen.append(focused["what"])
    return set(range(number)) - reached, unseen


def sticking_out(page: Page) -> list[str]:
    """What lies beyond the edges of the window, or makes the page scroll sideways."""
    return list(_measure(page, "stickingOut"))


def small_targets(page: Page) -> list[str]:
    """Controls smaller than WCAG 2.2 (2.5.8) asks for."""
    return list(_measure(page, "smallTargets"))
