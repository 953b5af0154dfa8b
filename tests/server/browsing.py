"""What the tests of the page need: a Chromium, a driver of the page, and what the accessibility rules ask of a page."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Download, Locator, Page, Playwright, Request, Route

CHATS = "**/v1/chat/completions"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def chromium_path(playwright: Playwright) -> str | None:
    """playwright's own Chromium where it was installed, else the system's; None without any."""
    own = playwright.chromium.executable_path
    return own if os.path.exists(own) else next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Chat:
    """The page as somebody uses it. What its scripts complain about is in `complaints`."""

    page: Page
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
            "n => document.querySelectorAll('.message.answer').length === n && !document.querySelector('.message.live')",
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
        """Lets the model write words until the context is full."""
        self.change_requests(lambda body: body | LONG)

    def download(self, act: Callable[[], None]) -> tuple[str, str]:
        """The name and the text of the file that an action offers."""
        with self.page.expect_download() as found:
            act()
        file: Download = found.value
        return file.suggested_filename, file.path().read_text()


LONG = {"grammar": 'root ::= ([a-z]+ " ")+', "reasoning_effort": "none", "max_tokens": 1800}

CONTROLS = {"button", "link", "textbox", "combobox", "checkbox", "spinbutton", "menuitem", "option", "DisclosureTriangle"}


def nameless(page: Page) -> list[str]:
    """Controls and landmarks that the browser's accessibility tree has without a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    wanted = CONTROLS | {"dialog", "region", "meter", "img", "navigation"}
    found = [node for node in tree if not node.get("ignored") and node.get("role", {}).get("value") in wanted]
    assert found, "the accessibility tree has no control"
    return [json.dumps(node) for node in found if not node.get("name", {}).get("value", "").strip()]


# WCAG 2.2, 1.4.3: each visible text with its colour, what lies under it (backmost first) and its size. Disabled controls are exempt.
_TEXTS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text; (text = walker.nextNode());) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    if (node.closest("option, noscript, :disabled, [inert]") || document.querySelector("dialog[open]") && !node.closest("dialog")) continue;
    const box = document.createRange(); box.selectNode(text);
    const {width, height} = box.getBoundingClientRect();
    if (width < 2 || height < 2 || node.getBoundingClientRect().width < 2) continue;
    const under = [];
    for (let up = node; up; up = up.parentElement) under.unshift(getComputedStyle(up).backgroundColor);
    const {color, fontSize, fontWeight} = getComputedStyle(node);
    found.push({text: text.data.trim().slice(0, 40), color, under, size: parseFloat(fontSize), weight: parseInt(fontWeight)});
  }
  for (const node of document.querySelectorAll("[placeholder]")) {
    if (!node.checkVisibility() || node.value || node.closest("[inert]")) continue;
    const under = [];
    for (let up = node; up; up = up.parentElement) under.unshift(getComputedStyle(up).backgroundColor);
    found.push({text: node.placeholder, color: getComputedStyle(node, "::placeholder").color, under, size: 15, weight: 400});
  }
  return found;
}"""
# 1.4.11: what shows a control that has no text (an icon) or its limits (a field's frame), and where the focus is.
_SHAPES = """() => {
  const found = [];
  const add = (text, node, color) => {
    const under = [];
    for (let up = node; up; up = up.parentElement) under.unshift(getComputedStyle(up).backgroundColor);
    found.push({text, color, under, size: 100, weight: 400});
  };
  for (const node of document.querySelectorAll("button.icon:enabled, button.send:enabled"))
    if (node.checkVisibility({opacityProperty: true, visibilityProperty: true})) add(node.ariaLabel, node, getComputedStyle(node).color);
  for (const node of document.querySelectorAll("input:not(.offscreen), textarea, .field select"))
    if (node.checkVisibility() && !node.closest(".palette")) add(node.id, node.parentElement, getComputedStyle(node).borderTopColor);
  const probe = document.createElement("i");
  probe.style.color = "var(--accent)";
  for (const ground of document.querySelectorAll("body, #sidebar, .own .body, dialog")) {
    ground.append(probe);
    add("focus ring", ground, getComputedStyle(probe).color);
  }
  probe.remove();
  return found;
}"""


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
    """Visible texts under 4.5:1 (large ones: 3:1), and icons, frames and focus rings under 3:1."""
    texts, shapes = page.evaluate(_TEXTS), page.evaluate(_SHAPES)
    assert len(texts) > 1, texts
    bad = []
    for one in [*texts, *shapes]:
        large = one["size"] >= 24 or (one["size"] >= 18.66 and one["weight"] >= 700)
        ratio = contrast(one["color"], one["under"])
        if ratio < (3 if large else 4.5):
            bad.append(f"{one['text']!r}: {ratio:.2f}, {one['color']} on {one['under']}")
    return bad


# All that the keyboard has to reach: what can be pressed, typed in or scrolled, and is shown. A group of radio-like things is one stop.
_REACHABLE = """() => {
  const top = document.querySelector("dialog[open]") ?? document.body;
  const found = [...top.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((node) =>
    !node.disabled && !node.closest("[inert]") && node.tabIndex >= 0 && node.checkVisibility({visibilityProperty: true})
    && (!node.closest("details:not([open])") || node.matches("summary")));
  found.forEach((node, index) => { node.dataset.stop = index; });
  return found.length;
}"""
_STOP = """() => {
  const node = document.activeElement;
  if (node === document.body) return null;
  const style = getComputedStyle(node);
  const ringed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 || style.boxShadow !== "none";
  return {stop: node.dataset.stop ?? null, ringed, shown: node.checkVisibility({opacityProperty: true}), what: node.outerHTML.slice(0, 120)};
}"""


def tab_through(page: Page) -> tuple[set[int], list[str]]:
    """Presses Tab once around: the numbers of the reachable controls that were not reached, and stops one cannot see."""
    number = page.evaluate(_REACHABLE)
    assert number > 5
    reached: set[int] = set()
    unseen = []
    page.evaluate("() => document.activeElement.blur()")
    for _ in range(number + 3):
        page.keyboard.press("Tab")
        stop = page.evaluate(_STOP)
        if stop is None or stop["stop"] is None:
            continue
        reached.add(int(stop["stop"]))
        if not (stop["ringed"] and stop["shown"]):
            unseen.append(stop["what"])
    return set(range(number)) - reached, unseen


def sticking_out(page: Page) -> list[str]:
    """What lies beyond the right or left edge of the window, but for the content of things that scroll by themselves."""
    found: list[str] = page.evaluate("""() => {
      const out = document.scrollingElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : [];
      for (const node of document.querySelectorAll("#room *, dialog *, #sidebar.open *")) {
        const {left, right, width} = node.getBoundingClientRect();
        if (width < 2 || !node.checkVisibility({visibilityProperty: true}) || right <= innerWidth + 1 && left >= -1) continue;
        let up = node.parentElement;
        while (up && !/auto|scroll|hidden/.test(getComputedStyle(up).overflowX)) up = up.parentElement;
        if (!up || ["BODY", "HTML"].includes(up.tagName) || up.id === "thread" || up.id === "monitor") out.push(node.outerHTML.slice(0, 120));
      }
      return out;
    }""")
    return found


def small_targets(page: Page, least: float = 24) -> list[str]:
    """Controls smaller than WCAG 2.2 (2.5.8) asks for; links and buttons within a sentence are exempt."""
    found: list[str] = page.evaluate(
        """least => [...document.querySelectorAll("button:not(.link), select, input:not(.offscreen, [type=checkbox]), textarea, summary")]
          .filter((node) => node.checkVisibility({visibilityProperty: true}) && !node.closest("[inert]"))
          .filter((node) => { const box = node.getBoundingClientRect(); return Math.min(box.width, box.height) < least; })
          .map((node) => node.outerHTML.slice(0, 120))""",
        least,
    )
    return found
