"""The review page in a real Chromium: what a person would do, and that nothing of it is lost."""

import json
import re
import signal
from contextlib import contextmanager

import pytest

from helping.browser import expect, opened
from helping.live_review import in_thread, live
from helping.small_runs import small_run, write_run
from newfound.report import write_report
from newfound.runs.decisions import reviewed_of
from newfound.screen import Screen

NEW1, NEW2 = 2, 3


@pytest.fixture
def results(tmp_path):
    """A finished run with its report, to decide on."""
    found = small_run(tmp_path)
    write_report(found, Screen(quiet=True))
    return found


@pytest.fixture
def server(results):
    with in_thread(results) as running:
        yield running


def window_on(browser, server, **more):
    """A window that looks what others have decided when it is told to, not every few seconds: a test may be slow."""
    return opened(browser, server.address, before="window.setInterval = () => 0;", **more)


@pytest.fixture
def page(browser, server):
    with window_on(browser, server) as window:
        expect(saved(window)).to_have_text("All decisions saved")
        yield window


def saved(page):
    return page.locator(".review-bar .status")


def card(page, number):
    return page.locator(f'.class-card[data-class="{number}"]')


def title(page, number):
    return card(page, number).locator("h3")


def answer(page, button, **fields):
    for name, value in fields.items():
        field = page.locator(f'#ask [name="{name}"]')
        if field.evaluate("node => node.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.locator("#ask").get_by_role("button", name=button, exact=True).click()


def test_the_address_no_longer_shows_the_token(page, server):
    expect(page).to_have_url(f"http://127.0.0.1:{server.port}/")


def test_rename_merge_split_undo_reload(page, results, server):
    card(page, NEW1).get_by_role("button", name="Rename").click()
    answer(page, "Rename", name="<img src=x onerror=alert(1)> otter")
    expect(title(page, NEW1)).to_have_text("<img src=x onerror=alert(1)> otter")
    card(page, NEW2).get_by_role("button", name="Merge…").click()
    answer(page, "Merge", to=str(NEW1))
    expect(card(page, NEW2)).to_have_count(0)
    expect(card(page, NEW1).locator(".facts")).to_contain_text("Images80")
    card(page, NEW1).get_by_role("button", name="Split").click()
    answer(page, "Split")
    expect(card(page, 4)).to_have_count(1)
    page.get_by_role("button", name="Undo split").click()
    expect(card(page, 4)).to_have_count(0)
    expect(page.get_by_role("button", name="Redo split")).to_be_enabled()
    page.reload()
    expect(title(page, NEW1)).to_have_text("<img src=x onerror=alert(1)> otter")
    expect(card(page, NEW2)).to_have_count(0)
    page.get_by_role("button", name="Redo split").click()
    expect(card(page, 4)).to_have_count(1)
    expect(saved(page)).to_have_text("All decisions saved")
    assert [d["action"] for d in json.loads((results.run.path / "decisions.json").read_text())["decisions"]] == [
        "rename", "merge", "split",
    ]  # fmt: skip


def test_names_that_mean_harm_do_nothing(browser, tmp_path):
    """Of classes, of files, and given by hand: `opened` fails on any dialog, error, blocked script or other request."""
    evil = ("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)")
    files = [f"{evil[i % 3].replace('/', '∕')} {i}.png" for i in range(12)]
    results = write_run(tmp_path, files, [i % 3 for i in range(12)], evil, 1)
    with in_thread(results) as running, window_on(browser, running) as page:
        for number, name in enumerate(evil):
            expect(title(page, number)).to_have_text(name)
        card(page, 1).get_by_role("button", name="Rename").click()
        answer(page, "Rename", name="<svg/onload=alert(1)>{{7*7}}'\"")
        expect(title(page, 1)).to_have_text("<svg/onload=alert(1)>{{7*7}}'\"")
        card(page, 1).get_by_role("button", name="Merge…").click()
        expect(page.locator("#ask")).to_contain_text("<svg/onload=alert(1)>")
        page.keyboard.press("Escape")
        expect(page.locator("#ask")).to_be_hidden()
        card(page, 0).locator(".tile").first.click()
        expect(page.locator("#detail")).to_contain_text("<script>alert(1)")
        page.keyboard.press("Escape")
        expect(page.locator("#detail")).to_be_hidden()
        page.locator("#search").fill("onerror")
        expect(page.locator("#found")).to_contain_text("4 file names with “onerror”")
        assert page.evaluate("() => document.scripts.length") == 3
        assert (
            page.evaluate("() => document.querySelectorAll('svg[onload], [onerror], a[href^=javascript]').length") == 0
        )


def test_nothing_is_lost_when_the_server_is_killed_between_two_decisions(browser, results):
    gone = "net::ERR_"  # refused; or cut off, if a picture was on its way
    with live(results.run.path) as first, window_on(browser, first, expected=gone) as page:
        card(page, NEW1).get_by_role("button", name="Rename").click()
        answer(page, "Rename", name="otter")
        expect(title(page, NEW1)).to_have_text("otter")
        first.stop(signal.SIGKILL)
        card(page, NEW2).get_by_role("button", name="Rename").click()
        answer(page, "Rename", name="weasel")
        expect(saved(page)).to_contain_text("Not saved")
        expect(title(page, NEW2)).to_have_text("new-2")  # the page shows nothing that is not on disk
    with live(results.run.path) as second, window_on(browser, second) as page:
        expect(title(page, NEW1)).to_have_text("otter")
        card(page, NEW2).get_by_role("button", name="Rename").click()
        answer(page, "Rename", name="weasel")
        expect(title(page, NEW2)).to_have_text("weasel")
    assert {"otter", "weasel"} <= set(reviewed_of(results).names.values())


def test_two_windows(browser, results, server):
    with window_on(browser, server) as one, window_on(browser, server, expected="409") as two:
        card(one, NEW1).get_by_role("button", name="Rename").click()
        answer(one, "Rename", name="otter")
        expect(title(one, NEW1)).to_have_text("otter")
        expect(saved(one)).to_have_text("All decisions saved")
        card(two, NEW1).get_by_role("button", name="Rename").click()
        answer(two, "Rename", name="weasel")
        expect(saved(two)).to_contain_text("decided elsewhere in the meantime")
        expect(title(two, NEW1)).to_have_text("otter")
        card(two, NEW1).get_by_role("button", name="Rename").click()
        answer(two, "Rename", name="weasel")
        expect(title(two, NEW1)).to_have_text("weasel")
        one.evaluate("() => { window.dispatchEvent(new Event('focus')); }")
        expect(title(one, NEW1)).to_have_text("weasel")
    assert server.state()["revision"] == 2


def by_another(server, **decision):
    """Another window decides, and this one does not look."""
    status, state = server.decide(**decision, revision=server.state()["revision"])
    assert status == 200
    return state


@contextmanager
def held_back(page):
    """What the page sends stays on its way until the end of this."""
    page.evaluate("""() => {
      const [before, through] = [window.fetch, new Promise((done) => { window.letThrough = done; })];
      window.fetch = (...asked) => through.then(() => before(...asked));
    }""")
    yield
    page.evaluate("() => letThrough()")


def test_a_failed_decision_takes_those_behind_it_along(browser, server):
    """Undo right after a decision must not undo what another window has decided."""
    with window_on(browser, server, expected="409") as page:
        card(page, NEW2).scroll_into_view_if_needed()
        card(page, NEW2).locator(".tile").first.focus()
        by_another(server, action="rename", **{"class": NEW1}, name="otter")
        with held_back(page):
            page.keyboard.press("a")
            page.keyboard.press("Control+z")
        expect(saved(page)).to_contain_text("decided elsewhere in the meantime")
        expect(title(page, NEW1)).to_have_text("otter")
    assert server.state()["revision"] == 1


def test_quick_decisions_of_one_window_follow_each_other(page, server):
    card(page, NEW1).locator(".tile").first.focus()
    with held_back(page):
        for key in ("a", "r", "a", "z", "z", "y"):
            page.keyboard.press(key)
    page.wait_for_function("() => newfound.state.revision === 6")
    expect(saved(page)).to_have_text("All decisions saved")
    expect(page.get_by_role("button", name="Redo verdict")).to_be_enabled()
    assert server.state()["revision"] == 6


def test_an_answer_to_an_outdated_question_is_refused(browser, server):
    with window_on(browser, server, expected="409") as page:
        card(page, NEW1).get_by_role("button", name="Not a class").click()
        by_another(server, action="rename", **{"class": NEW1}, name="otter")
        page.evaluate("() => { window.dispatchEvent(new Event('focus')); }")
        expect(title(page, NEW1)).to_have_text("otter")  # behind the question
        answer(page, "Not a class")
        expect(saved(page)).to_contain_text("decided elsewhere in the meantime")
    assert "otter" in {c["name"] for c in server.state()["classes"]}


def test_keys_act_on_the_image_in_large_not_on_the_selection_behind_it(page, server):
    tiles = card(page, NEW1).locator(".strip").first.locator(".tile")
    behind, shown = (int(tiles.nth(n).get_attribute("data-image")) for n in (0, 1))
    tiles.nth(0).click(modifiers=["Control"])
    tiles.nth(1).click()
    expect(page.locator("#detail")).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator("#detail")).to_contain_text("rejected")
    assert [server.state()["verdict"][i] for i in (behind, shown)] == [0, -1]


def test_with_the_keyboard_alone(page, results, server):
    tiles = card(page, NEW1).locator(".strip").first.locator(".tile")
    tiles.first.scroll_into_view_if_needed()
    tiles.first.focus()
    numbers = [int(tiles.nth(n).get_attribute("data-image")) for n in range(3)]
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    expect(page.locator(".selection")).to_have_text("2 images:")
    page.keyboard.press("a")
    expect(page.locator(".selection")).to_have_count(0)
    expect(page.get_by_role("button", name="Undo verdict")).to_be_enabled()
    assert [server.state()["verdict"][i] for i in numbers] == [1, 1, 0]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("r")
    expect(tiles.nth(2)).to_have_attribute("data-verdict", "-1")
    page.keyboard.press("m")
    expect(page.locator("#ask")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type("a wasp")
    page.keyboard.press("Enter")
    expect(title(page, 4)).to_have_text("a wasp")
    assert server.state()["class_of"][numbers[2]] == 4
    page.keyboard.press("z")
    expect(card(page, 4)).to_have_count(0)
    page.keyboard.press("y")
    expect(title(page, 4)).to_have_text("a wasp")
    page.keyboard.press("?")
    expect(page.locator("#ask")).to_contain_text("select the image")
    page.keyboard.press("Escape")
    expect(page.locator("#ask")).not_to_be_visible()


def test_selecting_with_the_mouse_and_moving(page, server):
    page.get_by_role("button", name="Select", exact=True).click()
    tiles = card(page, NEW1).locator(".strip").first.locator(".tile")
    for n in (0, 1, 2):
        tiles.nth(n).click()
    expect(page.locator(".selection")).to_have_text("3 images:")
    expect(tiles.nth(1)).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#detail")).not_to_be_visible()
    page.get_by_role("button", name="Move…").click()
    answer(page, "Move", to="0")
    expect(card(page, 0).locator(".facts")).to_contain_text("Images43")
    page.get_by_role("button", name="Done selecting").click()
    expect(tiles.first).not_to_have_attribute("aria-pressed", re.compile("."))


def test_one_image_in_large(page, server):
    tile = card(page, NEW1).locator(".tile").first
    number = int(tile.get_attribute("data-image"))
    tile.click()
    detail = page.locator("#detail")
    expect(detail.locator("img")).to_have_attribute("src", re.compile(rf"^images/{number}\?run=\w+$"))
    detail.get_by_role("button", name="✗ Reject").click()
    expect(detail.get_by_role("button", name="✗ Reject")).to_have_attribute("aria-pressed", "true")
    assert server.state()["verdict"][number] == -1
    detail.get_by_role("button", name="✗ Reject").click()  # and back
    expect(detail.get_by_role("button", name="✗ Reject")).to_have_attribute("aria-pressed", "false")
    assert server.state()["verdict"][number] == 0


def test_a_name_that_is_taken(browser, server):
    with window_on(browser, server, expected="422") as page:
        card(page, NEW1).get_by_role("button", name="Rename").click()
        answer(page, "Rename", name="dog")
        expect(saved(page)).to_contain_text("a class 'dog' already; merge the two")
        expect(title(page, NEW1)).to_have_text("new-1")


def test_not_a_class(page, server):
    card(page, NEW1).get_by_role("button", name="Not a class").click()
    answer(page, "Not a class")
    expect(card(page, -1)).to_contain_text("Set aside")
    assert server.state()["class_of"].count(-1) == 40


def test_on_a_phone(browser, server):
    with window_on(browser, server, width=390, height=844, has_touch=True) as page:
        wide = page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
        card(page, NEW1).get_by_role("button", name="Rename").tap()
        answer(page, "Rename", name="otter")
        expect(title(page, NEW1)).to_have_text("otter")
