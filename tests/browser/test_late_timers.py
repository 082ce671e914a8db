"""A timer that fires late, when the part of the page it was for has gone, does no harm."""

from streamlit.proto.BackMsg_pb2 import BackMsg

from tests.browser.conftest import WAIT_MS, open_settings


def test_a_late_poll_after_a_run_that_ended_early(page, address):
    polls, servers = [], []

    def watch(socket):
        server = socket.connect_to_server()
        servers.append(server)

        def pass_on(message):
            sent = BackMsg()
            sent.ParseFromString(message)
            if sent.rerun_script.is_auto_rerun:
                polls.append(message)
            server.send(message)

        socket.on_message(pass_on)

    page.set_default_timeout(WAIT_MS)
    page.route_web_socket(lambda url: True, watch)
    page.goto(f"{address}/?precision=fp32&prune_limit=200&prune_ranking=importance&prune_heads=50&prune_ffns=50")
    page.get_by_test_id("stMetricValue").wait_for()
    polls.clear()  # from here on those of the figure and the curve
    while len(polls) < 3:
        page.wait_for_timeout(100)
    open_settings(page)
    path = page.get_by_label("Your own questions: path of a file", exact=True)
    path.fill("nonsense.jsonl")
    path.press("Enter")
    page.get_by_test_id("stAlert").get_by_text("nonsense").wait_for()
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.get_by_test_id("stMetricValue").wait_for(state="detached")  # the browser tidies up what is no longer drawn
    page.wait_for_timeout(1000)
    for poll in polls:
        servers[-1].send(poll)
        page.wait_for_timeout(300)
    page.keyboard.press("Escape")
    task = page.get_by_role("combobox", name="Task", exact=True)
    task.click()
    task.fill("demo_outfit")
    page.get_by_role("option", name="demo_outfit", exact=True).click()
    page.get_by_test_id("stMetricValue").wait_for()
