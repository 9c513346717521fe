"""The page in a real browser: hover, search, dark mode, a phone, and texts that would be code."""

import json

import pytest

from tests.support.command import embed
from tests.support.outputs import browser, content

pytestmark = pytest.mark.slow

ATTACKS = [
    "</script><script>window.harmed = 1</script> a red river",
    "<img src=x onerror='window.harmed = 2'> the bank of the river",
    "<!-- <script> seven stars",
    "]]> {{constructor.constructor('window.harmed = 3')()}} money \u2028 \u202e \U0001f600",
    "<svg onload=window.harmed=4><a href='javascript:window.harmed=5'>the river</a>",
]
TEXTS = [*ATTACKS, *(f"the bank of the red river and {n} seven stars" for n in range(40))]
MARGIN = 16  # as in map.js


@pytest.fixture(scope="module")
def output(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    lines = [
        json.dumps({"id": f"<b>{n}</b>", "text": text, "lang": "<i>en</i>" if n % 3 else "de"})
        for n, text in enumerate(TEXTS)
    ]
    (folder / "in.jsonl").write_text("\n".join([*lines, "<img src=x onerror=harm()>"]))
    flags = {"keep_text": True, "extra_columns": "lang", "max_seq_length": 12}
    assert embed(folder / "<u>out", tiny_bundle, folder / "in.jsonl", **flags) == 0
    return folder / "<u>out"


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.fixture
def visit(chromium, output):
    """Opens the page; at the end nothing was requested, logged or executed besides it."""
    problems, requests, pages = [], [], []

    def opened(width=1200, height=900, scheme="light", folder=output):
        size = {"width": width, "height": height}
        page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        pages.append(page)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((folder / "report.html").as_uri())
        page.wait_for_selector("#command")
        return page

    yield opened
    for page in pages:
        assert page.evaluate("window.harmed") is None
    assert problems == []
    assert requests == [page.url for page in pages]
    for page in pages:
        page.context.close()


def place_of(page, shown, row):
    """Where the point of a row is on the screen."""
    page.locator("canvas").scroll_into_view_if_needed()
    box = page.locator("canvas").bounding_box()
    width, height = box["width"] - 2, box["height"] - 2  # without its border
    made = shown["map"]["projections"][0]
    across, up = made["extent"]
    unit = min((width - 2 * MARGIN) / across, (height - 2 * MARGIN) / up)
    return (
        box["x"] + 1 + width / 2 + (made["x"][row] - 5000) * unit,
        box["y"] + 1 + height / 2 - (made["y"][row] - 5000) * unit,
    )


def test_hover_shows_the_document(visit, output):
    page, shown = visit(), content(output)
    texts = shown["documents"]["texts"]
    for row in range(len(ATTACKS)):
        page.mouse.move(*place_of(page, shown, row))
        said = page.locator("#hover").inner_text()
        near = [at for at, text in enumerate(texts) if text in said]
        assert near, said  # points may lie on each other
        assert shown["documents"]["ids"][near[0]] in said
        assert "lang: " in said
    page.mouse.move(2, 2)
    assert page.locator("#hover").is_hidden()


def pixels(page):
    return page.evaluate("document.querySelector('canvas').toDataURL()")


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_keyboard_goes_from_point_to_point(visit, output):
    page, shown = visit(), content(output)
    hover = page.locator("#hover")
    page.locator("canvas").focus()
    seen = set()
    texts = [" ".join(text.split()) for text in shown["documents"]["texts"]]
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        assert hover.is_visible()
        seen.add(hover.inner_text())
        assert any(text in hover.inner_text() for text in texts)
    assert len(seen) > 1
    before = pixels(page)
    page.keyboard.press("+")
    assert pixels(page) != before
    page.keyboard.press("Escape")
    assert hover.is_hidden()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "BUTTON"


def test_search_highlights_and_colours_follow_a_column(visit):
    page = visit()
    before = pixels(page)
    page.fill("#search", "ONERROR")
    assert page.locator("#found").inner_text() == "1 found"
    assert pixels(page) != before
    page.fill("#search", "")
    assert pixels(page) == before
    page.select_option("#colour", "lang")
    assert page.locator(".legend button").all_inner_texts() == ["<i>en</i>", "de"]
    coloured = pixels(page)
    page.locator(".legend button").last.click()  # which lights one value
    assert len({before, coloured, pixels(page)}) == 3


def test_clusters_with_the_same_words_are_told_apart(visit):
    page = visit()
    names = page.evaluate(
        "(content.clusters = [{words: ['a', 'b']}, {words: ['a', 'b']}, {words: ['c']}, {}])"
        ".map((_, number) => clusterName(number))"
    )
    assert names == ["a, b 1", "a, b 2", "c", "cluster 4"]


def test_dark_mode_follows_the_system_and_the_button(visit):
    light, dark = visit(), visit(scheme="dark")
    colours = background(light), background(dark)
    assert colours[0] != colours[1]
    assert light.locator("#theme").inner_text() == "Dark"
    light.click("#theme")
    dark.click("#theme")
    assert (background(dark), background(light)) == colours
    assert light.locator("#theme").inner_text() == "Light"


def test_a_phone_scrolls_in_one_direction_only(visit):
    page = visit(width=360, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    wide = page.evaluate(
        "[...document.querySelectorAll('main *')].filter((each) => "
        "each.getBoundingClientRect().right > 360).length"
    )
    assert wide == 0
    names = page.locator("#overview .name")  # of flags, which do not break across lines
    assert "--max_seq_length" in names.all_inner_texts()
    heights = names.evaluate_all("names => names.map((name) => name.getClientRects().length)")
    assert set(heights) == {1}


def test_texts_stay_texts(visit):
    page = visit()
    assert page.title() == "<u>out: report"
    said = page.locator("main").inner_text()
    assert "<b>" in said
    assert page.locator("main img, main script, main b b, main i, main svg a").count() == 0
    assert page.locator("#cut").inner_text() != "0.0%"
    assert "12 tokens" in page.locator(".axis").first.inner_text()  # where texts are cut
    assert "1\nrejected" in page.locator("#counts").inner_text()


EMPTY = {
    "nothing": ("", {}, "The input held no records."),
    "one": ("the river\n", {}, "There are too few different vectors for a map."),
    "tokens": ("the river\n", {"granularity": "token"}, "this run wrote tokens, no vector"),
}


@pytest.mark.parametrize(("text", "flags", "sentence"), EMPTY.values(), ids=EMPTY)
def test_a_page_says_what_is_not_there(text, flags, sentence, visit, run):
    page = visit(width=360, folder=run({"in.txt": text}, **flags))
    assert sentence in page.locator("main").inner_text()
    assert page.locator("canvas").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_days_are_colours_and_chunks_are_counted(visit, run, tmp_path):
    """Of files of a deep folder, which ids go without."""
    lines = [
        {"id": f"{tmp_path}/{n}.txt", "text": "the river. " * 9, "day": f"2026-01-{n:02}"}
        for n in range(1, 29)
    ]
    flags = {"extra_columns": "day:date", "chunk": "tokens", "max_seq_length": 12}
    output = run({"in.jsonl": lines}, **flags)
    page, shown = visit(folder=output), content(output)
    page.select_option("#colour", "day")
    said = page.locator(".legend").inner_text()
    assert "2026-01-01" in said
    assert "2026-01-28" in said
    rows = shown["written"]["chunks"]["rows"]
    assert rows > 28
    assert f"{rows} chunks" in page.locator("#overview").inner_text()
    assert set(shown["documents"]["ids"]) == {f"{n}.txt" for n in range(1, 29)}


def test_neighbours_do_not_follow_the_period_of_a_corpus(run):
    texts = [" ".join(["the"] * (1 + n % 20)) + f" river {n}" for n in range(200)]
    lines = [{"id": f"R{n % 20}-{n}", "text": text} for n, text in enumerate(texts)]
    made = content(run({"in.jsonl": lines}))
    asked = {made["documents"]["ids"][each["row"]].split("-")[0] for each in made["neighbours"]}
    assert len(asked) > 3
