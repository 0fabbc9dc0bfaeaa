"""Server: a client of any OpenAI-compatible server, llama-server's timings read where told."""

from __future__ import annotations

import ipaddress
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from outrider.cli.bench.machine import model_facts
from outrider.cli.bench.reply import Message, Reply, TurnError
from outrider.cli.chat.transcript import system_messages
from outrider.cli.errors import UsageError, printable

_SHOWN = 200  # characters of an answer that is none


class Server:
    """Asks ``/v1/chat/completions`` at ``url``, one request a turn; ``body`` goes with each."""

    def __init__(
        self, url: str, body: Mapping[str, object], *, system: str | None = None, timeout: float
    ) -> None:
        """Find out what answers there.

        Raises:
            UsageError: an address that cannot be one, or nothing there.
        """
        self.url = base_url(url)
        self._body = body
        self._system = system_messages(system)
        self._timeout = timeout
        self.is_local = _is_loopback(urlsplit(self.url).hostname or "")
        # what is on this machine needs no proxy
        handlers = [urllib.request.ProxyHandler({})] if self.is_local else []
        self._opener = urllib.request.build_opener(*handlers)
        self.is_llama = self._is_llama()
        self._props = self._own_words() if self.is_llama else {}

    def ask(self, messages: Sequence[Message], prompt_ids: Sequence[int] | None) -> Reply:
        cache: dict[str, object] = {}
        if self.is_llama:  # no prefix of another conversation
            cache["cache_prompt"] = len(messages) > 1
        request = cache | dict(self._body) | {"messages": [*self._system, *messages]}
        started = time.perf_counter()
        answer = self._load("/chat/completions", request)
        return reply_of(answer, time.perf_counter() - started)

    def facts(self) -> dict[str, object]:
        """The server as a saved result names it: address and build."""
        return {
            "url": self.url,
            "is_local": self.is_local,
            "is_llama": self.is_llama,
            "build": self._props.get("build_info"),
        }

    def models(self) -> dict[str, dict[str, object]]:
        """What identifies the target: the hash of its file where that is on this machine."""
        path = self._props.get("model_path")
        if self.is_local and isinstance(path, str) and Path(path).is_file():
            return {"target": model_facts(Path(path))}
        return {"target": {"file": path or self._body.get("model"), "bytes": None, "sha256": None}}

    def _own_words(self) -> Mapping[str, Any]:
        """What llama-server tells of itself."""
        try:
            return self._load("/props", root=self.url.removesuffix("/v1"))
        except TurnError:
            return {}

    def _is_llama(self) -> bool:
        try:
            models = self._load("/models")
        except _NoAnswerError as error:
            raise UsageError(f"--url {self.url}: {error}") from None
        except TurnError:
            return False  # not every server lists its models
        rows = models.get("data")
        first = rows[0] if isinstance(rows, list) and rows else None
        return isinstance(first, dict) and first.get("owned_by") == "llamacpp"

    def _load(
        self, path: str, body: Mapping[str, object] | None = None, *, root: str = ""
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            (root or self.url) + path, data, {"Content-Type": "application/json"}
        )
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise TurnError(f"HTTP {error.code}: {_words(error.read())}") from None
        except TimeoutError:
            raise TurnError(f"no answer within {self._timeout:g} s (--timeout)") from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, TimeoutError):
                raise _NoAnswerError(f"no connection within {self._timeout:g} s") from None
            raise _NoAnswerError(_reason(error.reason)) from None
        except (OSError, HTTPException) as error:
            raise TurnError(f"the connection broke: {_reason(error)}") from None
        try:
            answer = json.loads(text)
        except ValueError:
            raise TurnError(f"the answer is no JSON: {_words(text)}") from None
        if not isinstance(answer, dict):
            raise TurnError(f"the answer is no JSON object: {_words(text)}")
        return answer


class _NoAnswerError(TurnError):
    """Nothing answers at the address."""


def base_url(text: str) -> str:
    """``http://host:port/v1`` of what the user wrote: scheme and ``/v1`` are optional.

    Raises:
        UsageError: it is no address of a server.
    """
    url = text.strip()
    url = (url if "://" in url else f"http://{url}").rstrip("/")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or " " in url:
        raise UsageError(f"--url {text!r}: allowed: HOST:PORT or http://HOST:PORT/v1")
    return url if url.endswith("/v1") else f"{url}/v1"


def reply_of(answer: Mapping[str, Any], latency_s: float) -> Reply:
    """What a chat completion says.

    Raises:
        TurnError: there is no message in it.
    """
    try:
        [choice, *_] = answer["choices"]
        text = choice["message"]["content"] or ""
        reason = str(choice.get("finish_reason"))
        usage, timings = (answer.get(key) or {} for key in ("usage", "timings"))
        details = usage.get("prompt_tokens_details") or {}
        cached = int(timings.get("cache_n") or details.get("cached_tokens") or 0)
        read = int(timings.get("prompt_n") or 0)
        tokens = int(usage.get("completion_tokens") or timings.get("predicted_n") or 0)
        times = _times(timings, tokens, latency_s)
        return Reply(
            text=str(text),
            finish_reason=reason,
            prompt_tokens=int(usage.get("prompt_tokens") or read + cached),
            cached_tokens=cached,
            completion_tokens=tokens,
            latency_s=latency_s,
            drafted=int(timings.get("draft_n") or 0),
            accepted=int(timings.get("draft_n_accepted") or 0),
            **times,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise TurnError(f"no chat completion: {_words(json.dumps(answer).encode())}") from None


def _times(timings: Mapping[str, Any], tokens: int, latency_s: float) -> dict[str, Any]:
    if "predicted_ms" not in timings:
        whole: dict[str, Any] = {"timed_tokens": tokens, "timed_s": latency_s}
        return whole | {"prompt_s": None, "first_token_s": None, "speed_from": "latency"}
    prompt_s = float(timings["prompt_ms"]) / 1000
    return {
        # its predicted_per_second: the first token comes out of the prompt
        "timed_tokens": max(int(timings["predicted_n"]) - 1, 0),
        "timed_s": float(timings["predicted_ms"]) / 1000,
        "prompt_s": prompt_s,
        "first_token_s": prompt_s,
        "speed_from": "timings",
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _words(text: bytes) -> str:
    """The message of an error, or the beginning of what came instead of an answer."""
    shown = text.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
        shown = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError):
        pass
    return printable(" ".join(shown.split()))[:_SHOWN] or "nothing"


def _reason(error: object) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
