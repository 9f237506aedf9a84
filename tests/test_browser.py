"""The report page in a real browser. Without Chromium and its driver these tests are skipped, and say so;
`make test-browser` installs both."""

from __future__ import annotations

import base64
import os
import shutil
import time

import pytest
from report_cases import CLOSING, HOSTILE, STEPS, fit_small, growing, large

from boostvi import report

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DESKTOP, PHONE = (1280, 900), (360, 740)


def missing(what):
    """Loudly: skipped with the remedy, or an error where the browser was promised."""
    text = f"the page was not tested in a browser: {what} is missing; make test-browser installs what is needed"
    if os.environ.get("BOOSTVI_BROWSER") == "required":
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    try:
        from selenium import webdriver
    except ImportError:
        missing("selenium")
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    program = shutil.which("chromedriver")
    if binary is None or program is None:
        missing("chromium" if binary is None else "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(program))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a small fit with hostile names, of a run with known numbers, and of a large one."""
    folder = tmp_path_factory.mktemp("pages")
    return {
        "small": report.write(*fit_small(), folder / "small.html", title=f"Small {HOSTILE}", command="fit && <b>"),
        "growing": report.write(*growing(), folder / "growing.html"),
        "large": report.write(*large(), folder / "large.html", title="Large"),
    }


class Browser:
    """A page, and what people do with it."""

    def __init__(self, driver, path):
        self.driver, self.path = driver, path

    def open(self, size=DESKTOP, scheme="light", scripts=True):
        cdp = self.driver.execute_cdp_cmd
        for log in ("browser", "performance"):
            self.driver.get_log(log)  # forgets what earlier tests left
        size = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        cdp("Emulation.setDeviceMetricsOverride", size)
        self.media(scheme)
        cdp("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        self.driver.get(self.path.as_uri())
        if scripts:
            self.until(lambda: self.count("#pair > svg") == 1)
        return self

    def media(self, scheme, medium=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})

    def js(self, code, *args):
        return self.driver.execute_script(f"return {code}", *args)

    def one(self, selector):
        return self.driver.find_element("css selector", selector)

    def text(self, selector):
        return self.js("document.querySelector(arguments[0]).textContent", selector)

    def count(self, selector):
        return self.js("document.querySelectorAll(arguments[0]).length", selector)

    def style(self, selector, name):
        return self.js("getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]", selector, name)

    def set(self, selector, value, event="input"):
        self.driver.execute_script(
            "const one = document.querySelector(arguments[0]); one.value = arguments[1];"
            "one.dispatchEvent(new Event(arguments[2], {bubbles: true}));",
            selector, value, event,
        )  # fmt: skip

    def pixels(self, selector):
        return self.one(selector).screenshot_as_png

    def until(self, condition, seconds=10.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "this did not happen in the browser"
            time.sleep(0.05)

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture
def small(driver, pages):
    return Browser(driver, pages["small"])


@pytest.fixture
def known(driver, pages):
    return Browser(driver, pages["growing"])


@pytest.fixture
def big(driver, pages):
    return Browser(driver, pages["large"])


@pytest.fixture(autouse=True)
def nothing_in_the_console(request, driver):
    """Whatever a test did, the browser had nothing to complain about; but where the test says so."""
    yield
    if "complains" not in request.keywords:
        assert [entry["message"] for entry in driver.get_log("browser")] == []


# -- the slider


def test_the_slider_moves_the_picture(known):
    known.open()
    seen = {}
    for step in (0, 2, 5):
        known.set("#slider", step)
        assert known.count("#pair .ellipse") == step + 1  # a component more at each step
        assert known.text("#readout").startswith(f"Step {step} of 5")
        seen[step] = known.pixels("#pair")
    assert len(set(seen.values())) == 3
    known.set("#slider", 2)
    assert known.pixels("#pair") == seen[2]


def test_the_markers_follow(known):
    known.open()
    places = []
    for step in (0, 3):
        known.set("#slider", step)
        places.append([known.js(f"Number(document.querySelector('#{chart} .marker').getAttribute('x1'))")
                       for chart in ("ribbon", "elbo", "kl")])  # fmt: skip
    assert all(later > earlier for earlier, later in zip(*places, strict=True))


def test_ellipses_are_where_the_components_are(known):
    """Component t is at (t, t) with standard deviation 1 + t."""
    known.open()
    boxes = known.js(
        "Array.from(document.querySelectorAll('#pair .ellipse'))"
        ".map(one => [one.dataset.number, one.getBBox()])"
        ".map(([name, box]) => [Number(name), box.x + box.width / 2, box.width])"
    )
    centre = {int(name): x for name, x, _ in boxes}
    width = {int(name): w for name, _, w in boxes}
    unit = width[0] / 4  # pixels per unit: an ellipse reaches two standard deviations to either side
    for t in range(1, 6):
        assert width[t] / width[0] == pytest.approx(1.0 + t, rel=0.02)
        assert (centre[t] - centre[0]) / unit == pytest.approx(t, rel=0.02, abs=0.02)


def test_play_goes_to_the_end_and_stops(known):
    known.open()
    known.set("#slider", 3)
    known.one("#play").click()
    assert "Pause" in known.text("#play")
    known.until(lambda: known.text("#readout").startswith("Step 4"))
    known.until(lambda: "Play" in known.text("#play"))
    assert known.text("#readout").startswith("Step 5 of 5")
    known.one("#play").click()  # from the end it begins anew
    known.until(lambda: known.text("#readout").startswith("Step 1"))
    known.one("#play").click()
    assert "Play" in known.text("#play")


def test_the_keyboard_is_enough(known):
    from selenium.webdriver.common.keys import Keys

    known.open()
    known.driver.execute_script("document.getElementById('play').focus()")
    known.driver.switch_to.active_element.send_keys(Keys.TAB)
    slider = known.driver.switch_to.active_element
    assert slider.get_attribute("id") == "slider"
    slider.send_keys(Keys.HOME)
    assert known.text("#readout").startswith("Step 0")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert known.text("#readout").startswith("Step 1")
    assert slider.get_attribute("aria-valuetext") == "step 1, refine, 2 components"
    assert known.style("#slider", "outlineStyle") == "solid"  # one sees where the focus is
    slider.send_keys(Keys.TAB)
    picker = known.driver.switch_to.active_element
    assert picker.get_attribute("id") == "axis-x-input"


def test_a_click_on_a_curve_goes_to_that_step(known):
    from selenium.webdriver import ActionChains

    known.open()
    host = known.one("#elbo svg")
    ActionChains(known.driver).move_to_element_with_offset(host, -host.size["width"] // 2 + 66, 0).click().perform()
    assert known.text("#readout").startswith("Step 0")


def test_hovering_tells_values(known):
    from selenium.webdriver import ActionChains

    known.open()
    known.set("#slider", 0)
    shape = known.one("#pair .ellipse")
    known.driver.execute_async_script(  # scrolling hides the tip, and its event comes with the next frame
        "arguments[0].scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]));",
        shape,
    )
    ActionChains(known.driver).move_to_element(shape).perform()
    said = known.text("#tip")
    assert "component 0" in said
    assert "weight 1" in said
    assert "± 1" in said
    assert not known.js("document.getElementById('tip').hidden")


def test_other_parameters_give_another_picture(small):
    small.open()
    before = small.pixels("#pair")
    small.set("#axis-y-input", 2, "change")
    assert "depends on several coordinates" in small.text("#pair-note")
    assert small.count("#pair .ellipse") == 0  # only draws: there are no components along this one
    assert small.count("#pair .dots") > 0
    assert small.pixels("#pair") != before
    small.set("#axis-y-input", -1, "change")
    assert small.count("#pair .backbars") > 0
    assert small.count("#pair .total") == 1


def test_components_of_the_step_as_a_table(known):
    known.open()
    known.set("#slider", 2)
    known.one("#members summary").click()
    known.until(lambda: known.count("#members-table tbody tr") == 3)
    known.set("#slider", 4)
    assert known.count("#members-table tbody tr") == 5
    cells = known.js(
        "Array.from(document.querySelectorAll('#members-table tbody tr')[1].cells, one => one.textContent)"
    )
    assert cells[1:3] == ["1", "0.2"]
    assert float(cells[3]) == pytest.approx(1.0, abs=0.01)
    assert float(cells[4]) == pytest.approx(2.0, rel=0.02)


# -- the table


def test_search_and_sort(big):
    big.open()
    visible = "Array.from(document.querySelectorAll('#table tbody tr:not([hidden]) th'), one => one.textContent)"
    assert len(big.js(visible)) == 100
    big.one("#search").send_keys("beta[1")
    assert big.js(visible) == ["beta[1]", *(f"beta[{i}]" for i in range(10, 20))]
    assert big.text("#found") == "11 of 100"
    big.one("#search").clear()
    big.set("#search", "")
    means = "Array.from(document.querySelectorAll('#table tbody tr'), one => one.cells[2].textContent)"
    number = lambda text: float(text.replace("−", "-"))  # noqa: E731
    head = big.one("#table thead th:nth-child(3) button")
    head.click()
    rising = [number(one) for one in big.js(means)]
    assert rising == sorted(rising)
    assert rising[0] < 0 < rising[-1]
    head.click()
    assert [number(one) for one in big.js(means)] == rising[::-1]
    assert big.js("document.querySelector('#table thead th:nth-child(3)').getAttribute('aria-sort')") == "descending"
    big.one("#table thead th:first-child button").click()
    assert big.js(visible) == [f"beta[{i}]" for i in range(100)]  # 2 before 10


def test_many_parameters_are_searched_for(big):
    from selenium.webdriver.common.keys import Keys

    big.open()
    field = big.one("#axis-x-input")
    field.clear()
    field.send_keys("beta[42]", Keys.TAB)
    assert big.text("#pair svg > text.name") == "beta[42]"
    field.clear()
    field.send_keys("beta", Keys.TAB)  # not one of them
    assert field.get_attribute("aria-invalid") == "true"
    assert big.text("#pair svg > text.name") == "beta[42]"


def test_ellipses_without_their_correlation_say_so(big):
    big.open()
    assert big.count("#pair .ellipse.rough") == 0  # the page begins with a pair that it holds
    far = big.js("JSON.parse(document.getElementById('data').textContent).axes.findIndex(one => one.coordinate > 60)")
    big.set("#axis-x-input", f"beta[{far}]", "change")
    assert big.count("#pair .ellipse.rough") == 50
    assert "Dashed" in big.text("#pair-note")


# -- safety


def test_no_network(small, big):
    import json

    for page in (small, big):
        page.open()
        page.set("#slider", 1)
        assert page.js("performance.getEntriesByType('resource').length") == 0
        events = [json.loads(entry["message"])["message"] for entry in page.driver.get_log("performance")]
        asked = [one["params"]["request"]["url"] for one in events if one["method"] == "Network.requestWillBeSent"]
        assert page.path.as_uri() in asked  # the log is a log
        assert [url for url in asked if url != page.path.as_uri() and not url.startswith("data:")] == []


def test_hostile_names_stay_text(small):
    small.open()
    for step in range(STEPS + 1):
        small.set("#slider", step)
    assert small.count("img") == 0
    assert small.count("script") == 2
    names = small.js("Array.from(document.querySelectorAll('#table tbody th'), one => one.textContent)")
    assert names == [HOSTILE, "place", f"sum{CLOSING}"]
    assert small.text("h1") == f"Small {HOSTILE}"
    assert HOSTILE in small.js("Array.from(document.querySelectorAll('#pair text'), one => one.textContent)")
    assert small.text("footer code") == "fit && <b>"


@pytest.mark.complains
def test_the_policy_holds_even_if_something_slipped_through(small):
    small.open()
    small.driver.execute_script(
        f"document.body.insertAdjacentHTML('beforeend', '{HOSTILE.replace('alert(1)', 'window.hacked=1')}');"
    )
    small.until(lambda: any("Content Security Policy" in said for said in small.complaints()))
    assert small.js("window.hacked") is None


# -- size, speed, looks


def test_large_pages_open_at_once(big):
    """50 components × 100 parameters × 60 steps, all different: below 3 MB, and drawn within a second. The best of
    five, because a busy machine says nothing about the page."""
    assert big.path.stat().st_size < 3e6
    taken = []
    for _ in range(5):
        big.open()
        taken.append(big.js("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert 0 < min(taken) < 1000


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", ["small", "growing", "large"])
def test_nothing_is_wider_than_the_screen(driver, pages, name, size):
    page = Browser(driver, pages[name]).open(size)
    assert page.js("document.documentElement.scrollWidth") <= size[0]
    assert page.js("document.querySelector('#pair svg').getBoundingClientRect().right") <= size[0]


def luminance(css):
    red, green, blue = (int(part) for part in css.removeprefix("rgb(").removesuffix(")").split(","))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


def test_light_and_dark(known):
    known.open(scheme="light")
    assert luminance(known.style("body", "backgroundColor")) > 0.9
    assert luminance(known.style("body", "color")) < 0.2
    known.one("#theme").click()
    assert luminance(known.style("body", "backgroundColor")) < 0.1
    assert known.text("#theme") == "Light"
    known.open(scheme="dark")
    assert luminance(known.style("body", "backgroundColor")) < 0.1
    assert luminance(known.style("body", "color")) > 0.7
    known.one("#theme").click()
    assert luminance(known.style("body", "backgroundColor")) > 0.9


def test_a_window_of_another_width_is_drawn_anew(known):
    known.open()
    before = known.js("document.querySelector('#pair svg').getAttribute('viewBox')")
    known.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 700, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    known.until(lambda: known.js("document.querySelector('#pair svg').getAttribute('viewBox')") != before)


def test_without_scripts_verdict_and_table_are_there(big):
    big.open(scripts=False)
    try:
        said = big.one("body").text
        assert "usable" in said
        assert "the first reason" in said
        assert "The explorer needs JavaScript" in said
        assert len(big.driver.find_elements("css selector", "#table tbody tr")) == 100
        assert not big.one("#search").is_displayed()
        assert not big.one("#slider").is_displayed()
    finally:
        big.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_printing(big):
    """All of the table, no controls, dark ink on white; and it makes a PDF of several pages."""
    big.open(scheme="dark")
    big.media("dark", "print")
    assert luminance(big.style("body", "backgroundColor")) > 0.9
    assert not [name for name in ("#slider", "#search", "#axis-x-input", "#theme") if big.one(name).is_displayed()]
    assert big.one("#readout").is_displayed()
    assert big.style(".scroll", "overflow") == "visible"
    pdf = base64.b64decode(big.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 3
    big.media("light")
