"""The demo page in a real headless Chromium; the service behind it is real too, unless a test answers in its place."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
DRIVER = shutil.which("chromedriver") or ""
FLAGS = """headless no-sandbox disable-gpu no-first-run disable-background-networking disable-component-update
    disable-sync no-proxy-server hide-scrollbars"""

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)

TEXT = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
MEANT = {
    "Montreal": "Montreal Canadiens",
    "Toronto": "Toronto Maple Leafs",
    "Stanley Cup": "Stanley Cup",
    "Boston": "Boston Bruins",
    "National Hockey League": "National Hockey League",
}
VERSION = {"deeped_ray": "0", "model": "local", "linker": None, "knowledge_base": "0"}

# answers the page's requests, one after another, in place of the server; null leaves a request without one
STAND_IN = """
const answers = arguments[0];
window.asked = [];
window.fetch = (url, { headers, signal, body }) => {
  const answer = answers[Math.min(asked.length, answers.length - 1)];
  asked.push({ url, headers, signal, body });
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
    if (answer) resolve(new Response(JSON.stringify(answer.body), answer));
  });
};
"""

# answers as a server that takes corrections from those who have a token; the shared one takes none
CORRECTED = """
window.sent = [];
window.fetch = async (url, { headers, body }) => {
  if (url !== "feedback") return new Response('{"resembling": [], "neighbors": [], "entity": {"title": "", "url": "/"}}');
  if (!body) return new Response('{"accepted": true}');
  sent.push([headers.Authorization ?? null, JSON.parse(body)]);
  return new Response('{"detail": ""}', { status: headers.Authorization ? 200 : 403 });
};
"""


class Page:
    """What a visitor does and sees."""

    def __init__(self, browser: Chrome) -> None:
        self.browser = browser

    def all(self, selector: str) -> list[WebElement]:
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def until(self, holds: Callable[[], Any]) -> None:
        WebDriverWait(self.browser, 120).until(lambda _: holds())

    def press(self, *keys: str) -> WebElement:
        """Presses the keys one after another and gives what has the focus then."""
        ActionChains(self.browser).send_keys(*keys).perform()
        return self.browser.switch_to.active_element

    def send(self, text: str) -> None:
        # not by keys: chromedriver has none for emoji
        self.run("arguments[0].value = arguments[1]", self.one("#source"), text)
        self.one("#request .primary").click()

    def link(self, text: str) -> list[WebElement]:
        self.send(text)
        self.until(lambda: self.one("#text").get_property("textContent") == text)
        return self.all("#text .mention")

    def select(self, surface: str) -> None:
        next(mention for mention in self.all("#text .mention") if mention.text == surface).click()

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    @property
    def selected(self) -> list[str]:
        return [mention.text for mention in self.all("#text [aria-expanded=true]")]

    @property
    def problem(self) -> str:
        self.until(lambda: self.all("#status.problem"))
        return self.one("#status").text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "localhost")  # selenium would ask a proxy for the driver beside it
        browser = Chrome(options, ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser: Chrome, served_url: str) -> Page:
    page = Page(browser)
    page.resize(1200, 1000)
    browser.get(served_url)
    page.run("sessionStorage.clear()")
    browser.get_log("browser")  # type: ignore[no-untyped-call]  # reading empties it
    return page


@pytest.fixture
def example(page: Page) -> Page:
    """The page with the example linked."""
    page.one("#example").click()
    page.until(lambda: page.all("#text .mention"))
    return page


def mention(surface: str, start: int, *titles: str, **parts: Any) -> dict[str, Any]:
    scores = {"page_id": 1, "probability": 0.5, "score": 0, "prior": 0.5, "local": -0.1, "coherence": None}
    candidates = [{"title": title, "url": "https://en.wikipedia.org/", **scores} for title in titles]
    entity = candidates[0] if candidates else None
    answer = {"start": start, "end": start + len(surface), "surface": surface, "entity": entity}
    return answer | {"candidates": candidates, "attended": [], "support": [], "reason": None} | parts


def answer_with(page: Page, *mentions: dict[str, Any]) -> None:
    neighbors = {"entity": {"title": "", "url": "/"}, "neighbors": []}
    page.run(STAND_IN, [{"body": {"mentions": mentions, "version": VERSION}}, {"body": neighbors}])


def screenshot(page: Page, name: str, folder: Path) -> None:
    """To look at, if a folder for it is given."""
    picture = Path(os.environ.get("DEEPED_SCREENSHOTS", folder)) / name
    picture.write_bytes(page.browser.get_screenshot_as_png())
    assert picture.stat().st_size > 10_000


def test_the_documentation_needs_nothing_from_elsewhere(page: Page, served_url: str) -> None:
    page.browser.get(f"{served_url}/docs")
    page.until(lambda: page.all("#routes section"))
    headings = [heading.text for heading in page.all("#routes h2")]
    assert {"POST /link", "GET /healthz", "POST /nif"} <= set(headings)
    card = page.all("#routes section")[headings.index("GET /version")]
    card.find_element(By.CSS_SELECTOR, "button").click()
    page.until(lambda: '"model": "global"' in card.find_element(By.CSS_SELECTOR, "pre").text)
    log = page.browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert not [entry for entry in log if entry["level"] == "SEVERE"]


def test_the_example_is_linked_whole(example: Page) -> None:
    assert {mark.text: mark.get_attribute("title") for mark in example.all("#text .mention")} == MEANT
    assert example.one("#text").text == TEXT
    assert "deeped-ray" in example.one("#version").text


def test_a_mention_shows_its_candidates_and_the_words_that_were_looked_at(example: Page) -> None:
    example.select("Montreal")
    assert example.one("#panel h2 a").text == "Montreal Canadiens"
    assert len(example.all(".candidate")) > 1
    assert all(len(candidate.find_elements(By.CSS_SELECTOR, ".bar")) == 3 for candidate in example.all(".candidate"))
    in_text = {mark.text.lower() for mark in example.all("#text .attended")}
    in_panel = {item.text.split()[0].lower() for item in example.all("#panel .attended")}
    assert in_text
    assert in_text == in_panel & set(TEXT.lower().replace(";", "").replace(".", "").split())


def test_a_candidate_that_the_prior_does_not_know_says_where_it_came_from(example: Page) -> None:
    example.select("Stanley Cup")
    best, *others = example.all("#panel .candidate")
    assert not best.find_elements(By.CSS_SELECTOR, ".source")
    assert {other.find_element(By.CSS_SELECTOR, ".source").text for other in others} == {"document", "context"}


def test_entities_with_a_wikidata_id_lead_there(example: Page) -> None:
    example.select("Montreal")
    linked = {link.text: link.get_attribute("href") for link in example.all("#panel .wikidata")}
    assert linked == {number: f"https://www.wikidata.org/wiki/{number}" for number in ("Q188143", "Q340")}


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    assert page.press(Keys.TAB).get_attribute("id") == "source"
    page.press(TEXT)
    ActionChains(page.browser).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    page.until(lambda: len(page.all("#text .mention")) == len(MEANT))
    assert page.press(*4 * [Keys.TAB]).get_attribute("id") == "threshold"
    assert page.press(Keys.TAB).text == "Montreal"
    page.press(Keys.ENTER)
    assert page.selected == ["Montreal"]
    assert page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT).text == "Toronto"
    assert page.selected == ["Toronto"]
    assert page.press(*3 * [Keys.TAB]).text == MEANT["Toronto"]  # after two buttons below the text
    assert page.press(Keys.ESCAPE).text == "Toronto"
    assert page.selected == []
    page.press(Keys.SPACE)
    assert page.selected == ["Toronto"]


def test_neighbours_lead_to_neighbours_and_back(example: Page) -> None:
    example.select("Boston")
    example.until(lambda: example.all("#neighbors li"))
    first = example.one("#neighbors li button")
    title = first.text.splitlines()[0]
    first.click()
    example.until(lambda: example.all("#neighbors li") and title in example.one("#neighbors h3").text)
    example.one("#neighbors .back").click()
    example.until(lambda: "Boston Bruins" in example.one("#neighbors h3").text)
    assert not example.all("#neighbors .back")


def test_the_graph_shows_who_supports_whom(example: Page) -> None:
    assert example.all(".edge")
    assert len(example.all(".node")) == len(MEANT)
    example.one(".node[data-mention='1']").click()
    assert example.selected == ["Toronto"]
    standing_out = example.all(".edge.on")
    assert {edge.get_attribute("data-to") for edge in standing_out} == {"1"}
    assert len(example.all("#supporters button")) == len(standing_out)
    example.one("#supporters button").click()
    assert example.selected != ["Toronto"]


def test_offsets_count_code_points(page: Page) -> None:
    assert [mark.text for mark in page.link(f"🏒🥅 {TEXT}")] == list(MEANT)


def test_markup_is_only_text(page: Page) -> None:
    markup = "<img src=x onerror=alert(1)>"
    page.link(f"{markup} {TEXT}")
    answer_with(page, mention(markup, 0, markup, attended=[{"word": markup, "weight": 1}], reason=markup))
    page.link(markup)[0].click()
    assert page.one("#panel h2").text == markup
    assert not page.all("#text img, #panel img, #graph img")


def test_a_name_without_entity_tells_the_reason(page: Page) -> None:
    answer_with(page, mention("Zorblatt", 0, reason="nobody knows it"))
    (unlinked,) = page.link("Zorblatt")
    unlinked.click()
    assert unlinked.get_attribute("title") == "nobody knows it"
    assert "nobody knows it" in page.one("#panel").text


def test_a_local_model_has_no_bar_for_coherence(page: Page) -> None:
    answer_with(page, mention("Apple", 0, "Apple Inc.", "Apple"))
    page.link("Apple")[0].click()
    assert len(page.all(".candidate .bar.local.negative")) == len(page.all(".candidate")) == 2
    assert not page.all(".candidate .bar.global")


def test_of_many_mentions_the_graph_shows_the_selected_one_with_its_supporters(page: Page) -> None:
    support = [{"mention": 3, "weight": 0.2}, {"mention": 29, "weight": -0.1}]
    answer_with(page, *(mention("a", 2 * i, "A", support=support if i == 7 else []) for i in range(30)))
    mentions = page.link("a " * 30)
    assert not page.all(".node")
    mentions[7].click()
    assert [node.get_attribute("data-mention") for node in page.all(".node")] == ["3", "7", "29"]
    assert len(page.all(".edge.against")) == len(page.all(".edge.for")) == 1


def test_a_phone_need_not_scroll_sideways(example: Page) -> None:
    example.resize(375, 800)
    example.select("National Hockey League")
    example.until(lambda: example.all("#neighbors li"))
    assert example.run("return document.documentElement.scrollWidth") <= 375
    assert example.one("#panel").location["y"] > example.one("#text").location["y"]


def test_nothing_fails_and_nothing_comes_from_elsewhere(example: Page, served_url: str) -> None:
    example.select("Boston")
    example.until(lambda: example.all("#neighbors li"))
    log = example.browser.get_log("browser")  # type: ignore[no-untyped-call]
    assert [entry["message"] for entry in log if entry["level"] == "SEVERE"] == []
    fetched = example.run("return performance.getEntriesByType('resource').map(({ name }) => name)")
    assert {urlsplit(url).netloc for url in fetched if not url.startswith("data:")} == {urlsplit(served_url).netloc}


def test_empty_text_is_not_sent(page: Page) -> None:
    page.run(STAND_IN, [None])
    page.send("  ")
    assert page.one("#status").text == "Paste a text first."
    assert page.run("return asked.length") == 0


def test_a_text_too_long_is_refused_with_the_reason(page: Page) -> None:
    page.run("arguments[0].value = 'a'.repeat(1000001)", page.one("#source"))
    page.one("#request .primary").click()
    assert page.problem == "That is too much for one request. A text may have 1,000,000 characters."
    assert not page.all("[aria-busy=true]")


def test_a_busy_server_says_when_to_come_back(page: Page) -> None:
    page.run(STAND_IN, [{"status": 503, "headers": {"Retry-After": "7"}, "body": {"detail": "too many requests"}}])
    page.send(TEXT)
    assert page.problem == "The server is busy. Try again in 7 s."


def test_a_server_that_is_away_is_told_from_a_mistake(page: Page) -> None:
    page.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))")
    page.send(TEXT)
    assert page.problem.startswith("The server does not answer.")
    assert page.one("#source").get_property("value") == TEXT


def test_the_threshold_changes_answers_at_once(example: Page) -> None:
    example.select("Montreal")
    example.run(STAND_IN, [None])
    example.one("#threshold").send_keys(Keys.END)
    assert example.one("#threshold-value").text == "100%"
    assert example.all("#text .unlinked")
    assert "below the threshold" in example.one("#panel").text
    example.one("#threshold").send_keys(Keys.HOME)
    assert not example.all("#text .unlinked")
    assert example.run("return asked.filter(({ url }) => url === 'link').length") == 0


def test_the_mode_is_asked_of_the_server(example: Page) -> None:
    example.run(STAND_IN, [{"body": {"mentions": [], "version": VERSION}}])
    example.one("[name=mode][value=all]").click()
    example.until(lambda: not example.all("#text .mention"))
    assert example.run("return JSON.parse(asked[0].body).mentions") == "all"


def test_a_link_holds_the_text_and_the_settings(page: Page, served_url: str) -> None:
    text = f"🏒 & #1: {TEXT}"
    page.link(text)
    page.one("[name=mode][value=all]").click()
    page.one("#threshold").send_keys(Keys.END)
    page.until(lambda: page.all("#text .mention") and not page.all("[aria-busy=true]"))
    shown = [mark.text for mark in page.all("#text .mention")]
    page.one("#share").click()
    address = page.browser.current_url
    page.browser.get("about:blank")
    page.browser.get(address)
    page.until(lambda: page.all("#text .mention"))
    assert page.one("#source").get_property("value") == text
    assert [mark.text for mark in page.all("#text .mention")] == shown
    assert (page.one("#threshold-value").text, page.one("[value=all]").is_selected()) == ("100%", True)
    assert urlsplit(address)._replace(fragment="").geturl().rstrip("/") == served_url  # servers never see the text


def test_answers_are_copied_as_json(example: Page) -> None:
    example.run(
        "Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (it) => { copied = it } } })"
    )
    example.one("#copy").click()
    example.until(lambda: example.one("#copy").text == "JSON copied")
    copied = example.run("return JSON.parse(copied)")
    assert copied["text"] == TEXT
    assert {each["surface"]: each["entity"]["title"] for each in copied["mentions"]} == MEANT


def test_an_entity_has_a_page_with_its_names_and_neighbours(example: Page, tmp_path: Path) -> None:
    example.select("Montreal")
    example.one("#panel .more").click()
    example.until(lambda: len(example.all("#entity .measured")) == 2)
    names, neighbors = (each.text for each in example.all("#entity .measured"))
    assert example.one("#entity h2").text == example.browser.title.split(" · ")[0] == "Montreal Canadiens"
    assert "Habs" in names
    assert "Toronto Maple Leafs" in neighbors
    screenshot(example, "entity.png", tmp_path)
    example.one("#entity .measured a").click()
    example.until(lambda: "Montreal Canadiens" not in example.one("#entity h2").text)
    example.one("#entity a.button").click()
    example.until(lambda: example.all("#text .mention")[0].is_displayed())
    assert not example.one("#entity").is_displayed()


def test_an_unknown_entity_is_told_with_those_like_it(page: Page) -> None:
    page.run("location.hash = 'entity=Stanly+Cup'")
    page.until(lambda: page.all("#entity .problem"))
    assert "Perhaps 'Stanley Cup'?" in page.one("#entity .problem").text
    page.until(lambda: page.all("#entity li a"))
    page.one("#entity li a").click()
    page.until(lambda: page.one("#entity h2").text == "Stanley Cup")


def test_a_text_without_names_says_how_to_find_more(page: Page) -> None:
    page.run(STAND_IN, [{"body": {"mentions": [], "version": VERSION}}])
    page.send("Apples grow in an orchard.")
    page.until(lambda: page.one("#status").text.startswith("No names found."))
    page.one("input[name=mode][value=all]").click()
    page.until(lambda: page.one("#status").text == "Nothing found to link.")


def test_dark_colours_are_chosen_and_kept(example: Page, tmp_path: Path) -> None:
    ground = "return getComputedStyle(document.documentElement).backgroundColor"
    before, button = example.run(ground), example.one("#theme")
    assert button.text == "Dark"
    button.click()
    assert example.run(ground) != before
    screenshot(example, "dark.png", tmp_path)
    example.browser.refresh()
    assert (example.run(ground) != before, example.one("#theme").text) == (True, "Light")
    example.one("#theme").click()
    assert example.run(ground) == before
    example.run("localStorage.clear()")


def test_a_correction_is_sent_by_who_may(example: Page) -> None:
    example.run(CORRECTED)
    example.run("return import('/page/corrections.js').then((it) => it.askWhetherAccepted())")
    example.select("Boston")
    example.one("#correct summary").click()
    example.one("#right").send_keys("Boston", Keys.ENTER)
    example.until(lambda: example.one("#writer").is_displayed())
    example.one("#writer").send_keys("secret", Keys.ENTER)
    example.until(lambda: "Thank you" in example.one("#correction [role=status]").text)
    corrected = {"text": TEXT, "mentions": [{"start": 41, "end": 47, "title": "Boston"}]}
    assert example.run("return sent") == [[None, corrected], ["Bearer secret", corrected]]


def test_a_server_without_corrections_offers_none(example: Page) -> None:
    example.select("Boston")
    assert not example.all("#correct")


def test_a_token_is_asked_for_once(page: Page) -> None:
    answer = {"body": {"mentions": [], "version": VERSION}}
    page.run(STAND_IN, [{"status": 401, "body": {"detail": "a token is needed"}}, answer])
    assert not page.one("#token").is_displayed()
    page.send(TEXT)
    page.until(lambda: page.one("#token").is_displayed())
    page.one("#token").send_keys("secret", Keys.ENTER)
    page.until(lambda: page.one("#text").text == TEXT)
    assert page.run("return asked.filter(({ url }) => url === 'link').map(({ headers }) => headers.Authorization)") == [
        None,
        "Bearer secret",
    ]


def test_a_new_request_ends_the_one_before(page: Page) -> None:
    page.run(STAND_IN, [None, {"body": {"mentions": [], "version": VERSION}}])
    page.send("first")
    assert page.all("#result[aria-busy=true]")
    page.link("second")
    assert page.run("return asked.map(({ signal }) => signal.aborted)") == [True, False]


def test_a_picture_for_the_readme(example: Page, tmp_path: Path) -> None:
    example.select("Montreal")
    example.until(lambda: example.all("#neighbors li"))
    # high enough for the whole panel: its own height, and the page's above and below it
    example.resize(1200, example.run("return document.getElementById('panel').scrollHeight") + 150)
    screenshot(example, "page.png", tmp_path)
