from __future__ import annotations

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest
from tools.chat_server import Answer, chat_server, completion

from outrider.cli.bench.reply import Reply, TurnError
from outrider.cli.bench.server import Server, base_url
from outrider.cli.errors import UsageError

TIMINGS = {
    "cache_n": 5,
    "prompt_n": 20,
    "prompt_ms": 400.0,
    "predicted_n": 31,
    "predicted_ms": 1500.0,
    "draft_n": 12,
    "draft_n_accepted": 9,
}
USAGE = {"prompt_tokens": 25, "completion_tokens": 31}
LLAMA = {"data": [{"id": "m", "owned_by": "llamacpp"}]}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def ask(answer: Answer, text: str = "Hello", timeout: float = 60) -> Reply:
    with chat_server(answer) as served:
        return Server(served.url, {}, timeout=timeout).ask([user(text)], None)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8080", "http://localhost:8080/v1"),
        (" http://localhost:8080/ ", "http://localhost:8080/v1"),
        ("http://localhost:8080/v1/", "http://localhost:8080/v1"),
        ("https://host/api", "https://host/api/v1"),
        ("[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_scheme_and_version_are_optional(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "http://", "ftp://host", "host:port", "a b", "host:1?x=1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--url .*: allowed: HOST:PORT"):
        base_url(text)


def test_timings_of_llama_server_are_read() -> None:
    reply = ask(lambda _: completion("Yes.", usage=USAGE, timings=TIMINGS))
    assert (reply.text, reply.finish_reason) == ("Yes.", "stop")
    assert (reply.prompt_tokens, reply.cached_tokens, reply.completion_tokens) == (25, 5, 31)
    assert (reply.drafted, reply.accepted, reply.drafts) == (12, 9, None)
    # 30 tokens in 1.5 s: the first comes out of the prompt
    assert (reply.timed_tokens, reply.timed_s, reply.speed_from) == (30, 1.5, "timings")
    assert (reply.prompt_s, reply.first_token_s) == (0.4, 0.4)


def test_without_timings_the_whole_request_is_the_time() -> None:
    reply = ask(lambda _: completion("Yes.", usage=USAGE))
    assert (reply.speed_from, reply.timed_tokens) == ("latency", 31)
    assert reply.timed_s == reply.latency_s > 0
    assert (reply.prompt_s, reply.first_token_s, reply.drafted) == (None, None, 0)


@pytest.mark.parametrize("is_llama", [False, True])
def test_what_is_sent(is_llama: bool) -> None:
    talk = [user("a"), {"role": "assistant", "content": "b"}, user("c")]
    pages = {"models": LLAMA} if is_llama else {}
    with chat_server(lambda _: completion(""), **pages) as served:
        server = Server(served.url, {"temperature": 0, "top_k": 1}, system="Be kind.", timeout=9)
        server.ask(talk[:1], None)
        server.ask(talk, None)
    system = {"role": "system", "content": "Be kind."}
    assert [request.pop("messages") for request in served.requests] == [
        [system, *talk[:1]],
        [system, *talk],
    ]
    # a prefix of another conversation would shorten the prompt
    caches = [{"cache_prompt": False}, {"cache_prompt": True}] if is_llama else [{}, {}]
    assert served.requests == [{"temperature": 0, "top_k": 1, **cache} for cache in caches]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (500, "HTTP 500: status 500"),
        (404, "HTTP 404: status 404"),
        (b"<html>", "the answer is no JSON: <html>"),
        (b"", "the answer is no JSON: nothing"),
        (b"[]", "the answer is no JSON object"),
        ({"choices": []}, "no chat completion"),
        ({"choices": [{"message": None}]}, "no chat completion"),
        ({"error": "model \x1b[1mx\n not loaded"}, "no chat completion: model [1mx not loaded"),
        (completion("a", timings={"predicted_ms": 3.0}), "no chat completion"),
        (completion("a", usage={"completion_tokens": "many"}), "no chat completion"),
    ],
)
def test_what_is_no_answer_is_one_line(answer: Any, words: str) -> None:
    with pytest.raises(TurnError) as caught:
        ask(lambda _: answer)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_server_that_hangs_or_breaks_off_is_an_error() -> None:
    with pytest.raises(TurnError, match=r"no answer within 0\.2 s \(--timeout\)"):
        ask(lambda _: completion(""), "hang", timeout=0.2)
    with pytest.raises(TurnError, match="the connection broke: "):
        ask(lambda _: completion(""), "drop")


def test_nothing_at_the_address_is_bad_input() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        port = unused.getsockname()[1]
        with pytest.raises(UsageError, match=f"--url http://127.0.0.1:{port}/v1: Connection"):
            Server(f"127.0.0.1:{port}", {}, timeout=60)


def test_a_local_server_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert ask(lambda _: completion("Yes.")).text == "Yes."


def test_a_llama_server_on_this_machine_names_its_model_file() -> None:
    path = Path("m.gguf")
    path.write_bytes(b"model")
    props = {"model_path": str(path.resolve()), "build_info": "b1-abc"}
    with chat_server(lambda _: completion(""), models=LLAMA, props=props) as served:
        server = Server(served.url, {}, timeout=60)
        [target] = server.models().values()
        assert target["sha256"] == hashlib.sha256(b"model").hexdigest()
        assert server.facts()["build"] == "b1-abc"
        server.is_local = False  # a path of another machine
        assert server.models()["target"]["sha256"] is None
    with chat_server(lambda _: completion("")) as served:
        [target] = Server(served.url, {"model": "other"}, timeout=60).models().values()
    assert target == {"file": "other", "bytes": None, "sha256": None}
