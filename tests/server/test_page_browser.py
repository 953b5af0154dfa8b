"""The page in a real Chromium, on a real server with the demo model: what somebody who uses it sees."""

import json
import os
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from browsing import (
    CHATS,
    CODE,
    LONG,
    MUCH,
    PATIENCE_MS,
    Chat,
    Site,
    chromium_path,
    nameless,
    small_targets,
    sticking_out,
    tab_through,
    too_faint,
    views,
)
from demo_server import demo_server
from playwright.sync_api import Browser, Request, Route, expect, sync_playwright

from strata.server.guard import Access

MARKUP = """<img src=x onerror="window.hit = 1"><script>window.hit = 2</script>

[a](javascript:window.hit=3) and ![b](data:text/html,c) and <b>bold</b>

```html
<script>window.hit = 4</script>
```
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with demo_server() as (url, pid):
        yield Site(url, pid)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = chromium_path(playwright)
        if path is None:
            pytest.skip("no Chromium: `playwright install chromium`, or install chromium or google-chrome")
        # Without a sandbox also root, as in a container, may run it; it visits nothing but this server.
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Any]:
    """Opens the page anew, in a browser that keeps nothing of another test; its scripts may not complain."""
    chats: list[Chat] = []

    def go(url: str, *, phone: bool = False, theme: str = "light", path: str = "/") -> Chat:
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 800}
        context = browser.new_context(
            viewport=size,
            has_touch=phone,
            is_mobile=phone,
            color_scheme=theme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(PATIENCE_MS)
        chats.append(Chat(context.new_page(), touch=phone))
        chats[-1].page.goto(url + path)
        chats[-1].page.wait_for_selector("#engine-dot.good", state="attached")
        return chats[-1]

    yield go
    for chat in chats:
        assert chat.complaints == []
        chat.page.context.close()


@pytest.fixture
def chat(opened: Any, site: Site) -> Any:
    return opened(site.url)


def test_an_answer_is_what_the_api_gives(chat: Chat, site: Site) -> None:
    chat.set_option("temperature", "0")
    chat.page.select_option("#effort", "high")
    question = "What is 17 plus 25?"
    expected = site.reply(question, reasoning_effort="high")
    assert chat.ask(question) == expected["content"]
    assert (chat.sent[-1]["temperature"], chat.sent[-1]["reasoning_effort"]) == (0, "high")
    thoughts = chat.page.locator(".answer .thoughts")
    expect(thoughts).to_be_hidden()
    chat.page.click(".answer .thinking summary")
    expect(thoughts).to_have_text(expected["reasoning_content"])
    chat.page.select_option("#effort", "none")
    again = "What is the colour of grass?"
    assert chat.ask(again) == site.reply(question, expected["content"], again, reasoning_effort="none")["content"]
    expect(chat.page.locator("#fill .fill-text")).to_contain_text("of 2,048 tokens")


def test_what_a_model_writes_is_never_run(chat: Chat) -> None:
    chat.make_write(MARKUP)
    shown = chat.ask("Write some markup.")
    for part in [
        '<img src=x onerror="window.hit = 1">',
        "<script>window.hit = 2</script>",
        "<b>bold</b>",
        "window.hit = 4",
    ]:
        assert part in shown
    body = chat.answers.last
    assert body.locator("img, script, b, iframe, [onerror]").count() == 0
    assert [link.get_attribute("href") for link in body.locator("a").all()] == []
    assert chat.page.evaluate("() => window.hit === undefined")


def test_code_is_copied_as_it_was_written(chat: Chat) -> None:
    chat.make_write(MUCH)
    chat.ask("Write some code.")
    expect(chat.answers.last.locator("h1, [data-level='1']")).to_have_text("A heading")
    expect(chat.answers.last.locator("td")).to_have_text(["1", "2"])
    chat.page.get_by_label("Copy code (python)").click()
    expect(chat.page.locator("#announce")).to_have_text("Copied")
    assert chat.page.evaluate("() => navigator.clipboard.readText()").rstrip("\n") == CODE.rstrip("\n")
    chat.page.locator(".answer").get_by_label("Copy message").click()
    chat.page.wait_for_function("async () => (await navigator.clipboard.readText()).startsWith('# A heading')")


@pytest.mark.parametrize("way", ["key", "button"])
def test_stop_ends_the_stream(chat: Chat, site: Site, way: str) -> None:
    chat.make_write_long()
    chat.begin("Write at length.")
    chat.page.wait_for_function("() => document.querySelector('.message.live .body')?.textContent.length > 40")
    assert site.in_flight() == 1
    if way == "key":
        chat.page.keyboard.press("Escape")
    else:
        chat.page.get_by_role("button", name="Stop").click()
    expect(chat.note).to_have_text("Stopped.")
    text = chat.answers.last.inner_text()
    for _ in range(50):
        if site.in_flight() == 0:
            break
        chat.page.wait_for_timeout(20)
    assert site.in_flight() == 0
    assert chat.answers.last.inner_text() == text
    chat.page.unroute_all()
    assert chat.ask("What is 17 plus 25?")


def test_an_edited_message_replaces_what_followed(chat: Chat) -> None:
    first = chat.ask("What is the colour of a clear daytime sky?")
    grass = chat.ask("What is the colour of grass?")
    chat.ask("What do cows eat?")
    chat.page.locator(".own").nth(1).get_by_label("Edit and send again").click()
    chat.page.get_by_label("Edit your message").fill("What is the colour of snow?")
    chat.page.keyboard.press("Enter")
    chat.ended(2)
    said = [(message["role"], message["content"]) for message in chat.sent[-1]["messages"]]
    sky, snow = "What is the colour of a clear daytime sky?", "What is the colour of snow?"
    assert said == [("user", sky), ("assistant", first), ("user", snow)]
    assert chat.asked.all_inner_texts() == [sky, snow]
    chat.page.locator(".answer .stats summary").last.click()
    cached = re.search(r"(\d+) from the cache", chat.page.locator(".answer .stats").last.inner_text())
    assert cached is not None
    assert int(cached[1]) > 10
    chat.page.locator(".own").nth(1).get_by_label("Previous version").click()
    assert chat.asked.all_inner_texts()[1:] == ["What is the colour of grass?", "What do cows eat?"]
    assert chat.answers.nth(1).inner_text() == grass


def test_conversations_outlive_the_page(chat: Chat) -> None:
    page = chat.page
    answers = []
    for question in ("What is 17 plus 25?", "What is the colour of grass?"):
        page.click("#new")
        answers.append(chat.ask(question))
    page.reload()
    titles = page.locator("#list a")
    expect(titles).to_have_text(["What is the colour of grass?", "What is 17 plus 25?"])
    expect(chat.answers).to_have_text([answers[1]])
    titles.nth(1).click()
    expect(chat.answers).to_have_text([answers[0]])
    page.keyboard.press("Control+k")
    page.keyboard.type("grass colour")
    page.keyboard.press("Enter")
    expect(chat.answers).to_have_text([answers[1]])

    page.locator("#list li").first.get_by_role("button").click()
    name, text = chat.download(lambda: page.get_by_role("menuitem", name="Export as Markdown").click())
    assert name == "what-is-the-colour-of-grass.md"
    assert answers[1] in text
    page.click("#open-settings")
    name, text = chat.download(lambda: page.get_by_role("button", name="Export all").click())
    assert len(json.loads(text)["conversations"]) == 2
    page.keyboard.press("Escape")
    for _ in range(2):
        page.locator("#list li").first.get_by_role("button").click()
        page.get_by_role("menuitem", name="Delete").click()
    expect(titles).to_have_count(0)
    page.reload()
    expect(page.locator("#list .empty")).to_be_visible()
    page.click("#open-settings")
    file = {"name": name, "mimeType": "application/json", "buffer": text.encode()}
    page.set_input_files("dialog input[type=file]", file)
    expect(titles).to_have_count(2)


def test_a_killed_engine_is_said_and_can_be_tried_again(chat: Chat, site: Site) -> None:
    chat.make_write_long()
    chat.begin("Write at length.")
    chat.page.wait_for_function("() => document.querySelector('.message.live .body')?.textContent.length > 20")
    os.kill(site.engine_pid(), 9)
    expect(chat.note).to_contain_text("The engine was killed by SIGKILL")
    expect(chat.note.locator("span").first).to_have_text(re.compile("it is being restarted.$"))
    expect(chat.note.locator("pre")).to_be_hidden()
    chat.note.locator("summary").click()
    expect(chat.note.locator("pre")).to_contain_text("ready: ")
    assert len(chat.answers.last.inner_text()) > 20
    chat.make_write("Here again.")
    chat.page.get_by_role("button", name="Try again").click()
    chat.ended(1)
    expect(chat.answers).to_have_text(["Here again."])


def test_a_server_that_tells_no_progress_is_not_asked_again(chat: Chat) -> None:
    refusal = {"error": {"message": "no", "type": "invalid_request_error", "param": "return_progress", "code": None}}

    def answer(route: Route, request: Request) -> None:
        if "return_progress" in (request.post_data or ""):
            route.fulfill(status=400, json=refusal)
        else:
            route.continue_()

    chat.page.route(CHATS, answer)
    assert chat.ask("What is 17 plus 25?")
    assert chat.ask("What is the colour of grass?")
    assert ["return_progress" in body for body in chat.sent] == [True, False, False]


def test_how_far_a_prompt_is_read(chat: Chat) -> None:
    chat.begin("One two three four five six seven eight. " * 90)
    told = r"/^Reading · [\d,]+ of ([\d,]+) tokens/.exec(document.querySelector('.live .stats')?.textContent)?.[1]"
    total = chat.page.wait_for_function(f"() => {told}").json_value()
    chat.page.keyboard.press("Escape")
    expect(chat.note).to_have_text("Stopped.")
    assert int(total.replace(",", "")) > 500


def test_conversations_are_answered_at_the_same_time(chat: Chat, site: Site) -> None:
    page = chat.page
    chat.make_write_long()
    for number in (1, 2):
        page.click("#new")
        chat.begin(f"Write at length, number {number}.")
        page.wait_for_function("() => document.querySelector('.message.live .body')?.textContent.length > 10")
    assert site.in_flight() == 2
    expect(page.locator("#list .dot.busy")).to_have_count(2)
    titles = page.locator("#list a")
    # Both are kept many times meanwhile; none may move, nor may its element be another under somebody's finger.
    changes = """() => new Promise((resolve) => {
      const watch = new MutationObserver(() => resolve(document.querySelector("#list").textContent));
      watch.observe(document.querySelector("#list"), {childList: true, subtree: true});
      setTimeout(() => resolve(null), 1200);
    })"""
    assert page.evaluate(changes) is None
    expect(titles).to_have_text([f"Write at length, number {number}." for number in (2, 1)])
    titles.last.click()
    expect(chat.asked).to_have_text(["Write at length, number 1."])
    page.keyboard.press("Escape")
    expect(chat.note).to_have_text("Stopped.")
    expect(page.locator("#list .dot.busy")).to_have_count(1)
    titles.first.click()
    expect(chat.asked).to_have_text(["Write at length, number 2."])
    page.keyboard.press("Escape")
    expect(chat.note).to_have_text("Stopped.")
    expect(page.locator("#list .dot.busy")).to_have_count(0)


def test_a_conversation_too_long_is_refused_with_the_numbers(chat: Chat) -> None:
    chat.begin("many words " * 3000)
    expect(chat.note).to_contain_text("but the context of 2048 tokens")
    assert chat.asked.last.bounding_box()["height"] < 400  # type: ignore[index]
    chat.page.get_by_role("button", name="Show all (32,999 characters)").click()
    assert chat.asked.last.bounding_box()["height"] > 2000  # type: ignore[index]


def test_a_key_is_asked_for(opened: Any, with_lanes: Any, helpers: Any) -> None:
    with helpers["serving"](with_lanes, access=Access(keys=("sesame",))) as server:
        chat = opened(server.url)
        page = chat.page
        chat.begin("say hello")
        for key, refused in (("wrong", 0), ("sesame", 1)):
            expect(page.get_by_text("The server refused this key.")).to_have_count(refused)
            page.get_by_label("Key", exact=True).fill(key)
            page.keyboard.press("Enter")
        chat.ended(1)
        expect(chat.answers).to_have_text(["hello"])
        assert "sesame" not in page.evaluate("() => JSON.stringify(localStorage)")
        page.click("#view-monitor")
        expect(page.locator(".requests tbody td").nth(1)).to_have_text("Chat")


def test_the_monitor_shows_what_runs(opened: Any, site: Site) -> None:
    page = opened(site.url, path="/#/monitor").page
    ends = []
    threads = []
    for number in range(4):
        client = httpx.Client(timeout=60)
        ends.append(client)

        def run(client: httpx.Client = client, number: int = number) -> None:
            body = {"messages": [{"role": "user", "content": f"{number}"}], "stream": True, "seed": number, **LONG}
            with client.stream("POST", f"{site.url}/v1/chat/completions", json=body) as answer:
                for _ in answer.iter_lines():
                    if stop.is_set():
                        return

        threads.append(threading.Thread(target=run))
    stop = threading.Event()
    try:
        for thread in threads:
            thread.start()
        lanes = page.locator(".lane.decoding")
        expect(lanes).to_have_count(4, timeout=10_000)
        expect(lanes.first.locator(".phase")).to_have_text("answering")
        tiles = page.locator(".tile-value")
        expect(tiles.nth(1)).to_have_text("4")
        before = lanes.first.inner_text()
        expect(tiles.first).to_have_text(re.compile(r"^[\d,]*[1-9]\d(\.\d)?$"))
        expect(lanes.first).not_to_have_text(before)
        pool = re.match(r"([\d,]+) of 65,536 tokens", page.locator(".bar b").first.inner_text())
        assert pool is not None
        assert int(pool[1].replace(",", "")) > 100
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        for client in ends:
            client.close()
    expect(page.locator(".lanes")).to_have_text("Nothing is being answered.")
    expect(page.locator(".requests tbody tr td:nth-child(3)").first).to_have_text("client left")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_control_has_a_name_and_every_text_contrast(opened: Any, site: Site, theme: str) -> None:
    chat = opened(site.url, theme=theme)
    for view in views(chat):
        assert (view, nameless(chat.page)) == (view, [])
        assert (view, too_faint(chat.page)) == (view, [])


def test_the_tab_key_reaches_everything(chat: Chat) -> None:
    for view in views(chat):
        if view != "search":  # a field with a list that the arrow keys go through
            assert (view, *tab_through(chat.page)) == (view, set(), [])


def test_the_theme_can_be_chosen_and_is_kept(opened: Any, site: Site) -> None:
    page = opened(site.url, theme="light").page
    ground = "() => getComputedStyle(document.body).backgroundColor"
    seen = []
    for name in ("as the system", "light", "dark"):
        assert page.get_attribute("#theme", "aria-label") == f"Theme: {name}"
        seen.append(page.evaluate(ground))
        if name != "dark":
            page.click("#theme")
    assert seen[0] == seen[1] != seen[2]
    page.reload()
    assert page.get_attribute("#theme", "aria-label") == "Theme: dark"
    assert page.evaluate(ground) == seen[2]
    page.emulate_media(color_scheme="dark")
    page.click("#theme")
    assert (page.get_attribute("#theme", "aria-label"), page.evaluate(ground)) == ("Theme: as the system", seen[2])


def test_a_phone_shows_all_within_its_width(opened: Any, site: Site) -> None:
    chat = opened(site.url, phone=True)
    page = chat.page
    for view in views(chat):
        assert (view, sticking_out(page)) == (view, [])
        assert (view, small_targets(page)) == (view, [])
    page.tap("#open-sidebar")
    page.wait_for_function("() => document.querySelector('#sidebar').getBoundingClientRect().left === 0")
    assert sticking_out(page) == []
    assert page.evaluate("() => document.querySelector('#room').inert")
    page.locator("#list a").first.tap()
    expect(page.locator("#sidebar")).to_be_hidden()
    assert chat.answers.count() == 3
    page.set_viewport_size({"width": 320, "height": 568})
    assert sticking_out(page) == []
