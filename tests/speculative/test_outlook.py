"""What drafts cost and bring, length by length: worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.toy_session import result_of
from tools.witness import engine_settings, model_settings

from outrider.speculative.acceptance import AcceptanceModel
from outrider.speculative.engine import Engine
from outrider.speculative.outlook import Outlook, outlook
from outrider.speculative.settings import (
    DrafterSettings,
    GenerationSettings,
    SamplingSettings,
    SpeculationSettings,
)
from outrider.speculative.step_costs import StepCosts

LINE = {1: 1.0, 101: 51.0}  # half a plain step for each more row


def _costs() -> StepCosts:
    costs = StepCosts(LINE)
    costs.calibrate({1: 2.0})
    costs.observe_draft(1, 0.2, "a")
    return costs


def test_a_step_costs_its_rows_and_its_drafting_in_plain_steps() -> None:
    one = outlook("a", 3, _costs(), AcceptanceModel(3), num_cells=0)
    assert one.step_cost == pytest.approx((1.6, 2.2, 2.8))
    assert one.plain_s == pytest.approx(2.0)
    assert one.has == ()


def test_the_plain_step_is_as_slow_as_the_machine_is_now() -> None:
    costs = _costs()
    costs.pace = 1.5
    one = outlook("a", 1, costs, AcceptanceModel(1), num_cells=0)
    assert one.plain_s == pytest.approx(3.0)
    assert one.step_cost == pytest.approx((1.6,))


def test_it_has_the_mean_of_the_chances_that_the_tokens_stand() -> None:
    acceptance = AcceptanceModel(3)
    acceptance.observe(3, 1)
    first, second, third = acceptance.chances()
    one = outlook("a", 3, _costs(), acceptance, num_cells=0)
    both = first * second
    assert one.has == pytest.approx((first, (first + both) / 2, (first + both + both * third) / 3))


def test_nothing_is_said_where_nothing_was_measured() -> None:
    acceptance = AcceptanceModel(3)
    acceptance.observe(3, 1)
    assert outlook("a", 3, StepCosts(), acceptance, num_cells=9) == Outlook("a", 3)


def test_an_engine_tells_of_each_of_its_drafters(zoo: Path) -> None:
    target = zoo / "target-llama.gguf"
    drafters = [
        DrafterSettings("ngram-simple", options={"match": 2, "size": 4}),
        DrafterSettings("draft-simple", model_settings(zoo / "draft-simple.gguf")),
    ]
    settings = engine_settings(target, drafters, adaptive=True, n_max=5)
    with Engine.load(settings) as engine:
        n_gram, model = engine.outlooks(0)
        assert (n_gram.drafter, n_gram.longest) == ("ngram-simple", 4)  # its own size
        assert (model.drafter, model.longest) == ("draft-simple", 5)
        assert len(model.step_cost) == 5
        assert model.has == ()
        assert n_gram.plain_s == model.plain_s
        assert all(a <= b for a, b in zip(n_gram.step_cost, model.step_cost, strict=False))
        engine.configure(SpeculationSettings(adaptive=False, n_max=2))
        assert engine.outlooks(0) == (Outlook("ngram-simple", 2), Outlook("draft-simple", 2))


def test_a_session_that_does_not_draft_gives_the_same_text(zoo: Path) -> None:
    target = zoo / "target-llama.gguf"
    drafter = DrafterSettings("draft-simple", model_settings(zoo / "draft-simple.gguf"))
    greedy = GenerationSettings(SamplingSettings(temp=0, ignore_eos=True), predict=24)
    with Engine.load(engine_settings(target, [drafter])) as engine:
        session, prompt = engine.session(), engine.encode("Tell me a story about a fox.")
        drafted = result_of(session.generate(prompt, greedy))
        session.is_drafting = False
        plain = result_of(session.generate(prompt, greedy))
        session.is_drafting = True
        again = result_of(session.generate(prompt, greedy))
    assert drafted.stats.drafts > 0
    assert (plain.stats.drafts, plain.stats.draft_s, plain.decisions) == (0, 0.0, ())
    assert plain.token_ids == drafted.token_ids == again.token_ids
    assert again.stats.drafts == drafted.stats.drafts


def test_a_head_that_was_never_timed_does_not_pass_for_free(zoo: Path) -> None:
    """It drafts from a text only, so nothing is known at first: a tenth of a plain step."""
    head = DrafterSettings("draft-eagle3", model_settings(zoo / "eagle3-full.gguf"))
    settings = engine_settings(zoo / "target-llama.gguf", [head], adaptive=True)
    with Engine.load(settings) as engine:
        costs = engine._running.costs
        token_s, plain_s = costs.draft_s(1, "draft-eagle3")[1], costs.verify_s(0)[0]
    # the shortest of several times is what a plain step takes, and fewer rows never cost more
    assert 0.05 < token_s / plain_s < 0.2
