"""The tags of templates written in the manner of real ones, and of templates that misbehave."""

from __future__ import annotations

import pytest

from outrider.speculative.chat_template import ChatTemplate
from outrider.speculative.reasoning import ReasoningSplitter
from outrider.speculative.reasoning_tags import ReasoningTags, find_tags, opens
from outrider.speculative.settings import ReasoningSettings

ON = {"enable_thinking": True}
OFF = {"enable_thinking": False}
THOUGHT, ANSWER = "Two and two.", "It is four."
CONVERSATION = [
    {"role": "user", "content": "How much?"},
    {
        "role": "assistant",
        "content": ANSWER,
        "reasoning_content": THOUGHT,
        "reasoning": THOUGHT,
        "thinking": THOUGHT,
    },
]


def _turns(answer: str, opening: str, header: str = "<|im_start|>assistant\n") -> str:
    """A template whose turns are marked as ChatML does."""
    return (
        "{% for m in messages %}{% if m.role == 'assistant' %}" + header + answer + "<|im_end|>\n"
        "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}" + header + opening + "{% endif %}"
    )


SHOWN = "<think>\n{{ m.reasoning_content }}\n</think>\n\n{{ m.content }}"
CUT_OUT = "{{ m.content.split('</think>')[-1] }}"
EMPTY_IF_OFF = "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
OPEN_IF_ON = "{% if enable_thinking %}<think>\n{% endif %}"

QWEN3 = _turns(SHOWN, EMPTY_IF_OFF)
QWEN35 = _turns(SHOWN, "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}")
R1 = _turns(CUT_OUT, "<think>\n")
SMOLLM3 = _turns(CUT_OUT, EMPTY_IF_OFF)
GLM = _turns(
    "<think>{{ m.reasoning_content }}</think>{{ m.content }}",
    "{{ '</think>' if enable_thinking is false else '<think>' }}",
    "<|assistant|>",
)
BARE = _turns("{{ m.reasoning_content }}</think>{{ m.content }}", "", "<|assistant|>")
ONLY_WHEN_ON = _turns(
    "{% if thinking %}<muse>{{ m.reasoning_content }}</muse>{% endif %}{{ m.content }}", ""
)
HARMONY = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% if loop.last and not add_generation_prompt %}"
    "<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|return|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
RECIPIENTS = HARMONY.replace("<|channel|>analysis", " to=self").replace(
    "<|channel|>final", " to=user"
)
SECTIONS = _turns(
    "<|open|>think<|sep|>{{ m.reasoning }}<|close|>think<|sep|>"
    "<|open|>response<|sep|>{{ m.content }}<|close|>response<|sep|>",
    "<|open|>{{ 'response' if enable_thinking is false else 'think' }}<|sep|>",
)
COMMAND = _turns(
    "<|START_THINKING|>{{ m.thinking }}<|END_THINKING|><|START_TEXT|>{{ m.content }}<|END_TEXT|>",
    "<|START_THINKING|>",
)
MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% elif m.content is string %}{{ m.content }}</s>{% else %}{% for part in m.content %}"
    "[THINK]{{ part.thinking }}[/THINK]{% endfor %}{% endif %}{% endfor %}"
)
GEMMA = _turns(
    "{{ m.content }}",
    "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}",
    "<|turn>model\n",
)
STEPS = _turns(
    "{{ m.reasoning_content }}\n[BEGIN FINAL RESPONSE]\n{{ m.content }}",
    "Here are my reasoning steps:\n",
)
NUMBERED = _turns(
    "{% set t = 'think:v{}'.format(2) %}<{{ t }}>{{ m.reasoning }}</{{ t }}>{{ m.content }}", ""
)
UNHEARD_OF = _turns("{{ m.content }}", "{% if enable_thinking is false %}<muse></muse>{% endif %}")
UNHEARD_OF_OPEN = _turns(
    "{{ m.content }}", "<muse>\n{% if enable_thinking is false %}</muse>{% endif %}"
)

OTHER_SWITCH = _turns(
    "<muse>{{ m.reasoning }}</muse>{{ m.content }}",
    "{{ '<muse>' if effort else '</muse>' }}",
    "<|assistant|>",
)
OTHER_HEADER = _turns("\n<muse>{{ m.reasoning }}</muse>\n<reply>\n{{ m.content }}", "").replace(
    "{% if add_generation_prompt %}<|im_start|>assistant", "{% if add_generation_prompt %}<bot>"
)
HEADLESS = _turns("{{ m.reasoning }}</think>{{ m.content }}", "")

THINK = ("<think>", "</think>")
MUSE = ("<muse>", "</muse>")
FINAL = "<|end|><|start|>assistant<|channel|>final<|message|>"


def _tags(source: str, kwargs: dict[str, bool] | None = None) -> ReasoningTags | None:
    return find_tags(ChatTemplate(source, name="chat.jinja"), kwargs or {})


@pytest.mark.parametrize(
    ("source", "tags", "open_if_on", "open_if_off"),
    [
        (QWEN3, THINK, False, False),
        (QWEN35, THINK, True, False),
        (R1, THINK, True, True),
        (SMOLLM3, THINK, False, False),
        (_turns(SHOWN, OPEN_IF_ON), THINK, True, False),
        (GLM, THINK, True, False),
        (ONLY_WHEN_ON, MUSE, False, False),
        (HARMONY, ("<|channel|>analysis<|message|>", FINAL), False, False),
        (
            RECIPIENTS,
            ("to=self<|message|>", "<|end|><|start|>assistant to=user<|message|>"),
            False,
            False,
        ),
        (
            SECTIONS,
            ("<|open|>think<|sep|>", "<|close|>think<|sep|><|open|>response<|sep|>"),
            True,
            False,
        ),
        (COMMAND, ("<|START_THINKING|>", "<|END_THINKING|><|START_TEXT|>"), True, True),
        (MISTRAL, ("[THINK]", "[/THINK]"), False, False),
        (GEMMA, ("<|channel>thought", "<channel|>"), False, False),
        (STEPS, ("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"), True, True),
        (NUMBERED, ("<think:v2>", "</think:v2>"), False, False),
        (UNHEARD_OF, MUSE, False, False),
        (UNHEARD_OF_OPEN, MUSE, True, False),
        (_turns(CUT_OUT, ""), THINK, False, False),
        (OTHER_SWITCH, MUSE, False, False),
        (OTHER_HEADER, MUSE, False, False),
        (HEADLESS, THINK, False, False),
        (BARE, ("<|assistant|>", "</think>"), True, True),
    ],
)
def test_the_tags_of_a_template(
    source: str, tags: tuple[str, str], open_if_on: bool, open_if_off: bool
) -> None:
    assert _tags(source, ON) == ReasoningTags(*tags, is_open=open_if_on)
    assert _tags(source, OFF) == ReasoningTags(*tags, is_open=open_if_off)


@pytest.mark.parametrize(
    "source",
    [QWEN3, QWEN35, GLM, HARMONY, RECIPIENTS, SECTIONS, COMMAND, STEPS, NUMBERED, BARE],
)
def test_what_a_template_writes_is_taken_apart_again(source: str) -> None:
    """A past answer, from where the prompt for it ends, is thought and answer."""
    template = ChatTemplate(source, name="chat.jinja")
    tags = find_tags(template, ON)
    assert tags is not None
    prompt = template.render(CONVERSATION[:1], ON)
    text = template.render(CONVERSATION, {**ON, "add_generation_prompt": False})
    splitter = ReasoningSplitter(ReasoningSettings(tags.start, tags.end, tags.is_open))
    # the opening of STEPS is not repeated in a past answer
    begun = text[len(prompt) :] if text.startswith(prompt) else text[text.index(THOUGHT) :]
    reasoning, answer = splitter.push(begun)
    assert reasoning == THOUGHT
    assert answer.startswith(ANSWER)


@pytest.mark.parametrize(
    "source",
    [
        _turns("{{ m.content }}", ""),
        _turns("{{ m.content }}", "", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
        _turns(
            "{{ m.content }}", "{{ '</muse>' if enable_thinking is false else '<muse>' }}", "<a>"
        ),
        _turns("{{ m.content }}<note>{{ m.reasoning }}</note>", ""),
        "{{ messages | tojson }}",
        "{% for m in messages %}{{ m.role }}: {{ m.reasoning_content }} {{ m.content }}\n"
        "{% endfor %}",
        "",
        "no messages at all",
    ],
)
def test_a_template_without_reasoning(source: str) -> None:
    assert _tags(source) is None
    assert _tags(source, OFF) is None


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('never') }}",
        "{{ 1 // 0 }}",
        "{{ messages[7].content.nothing }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{{ enable_thinking + 1 }}{{ undefined.attribute }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_that_fails_knows_no_reasoning(source: str) -> None:
    assert _tags(source) is None
    assert _tags(source, ON) is None


def test_a_template_that_takes_no_past_answer_still_has_known_tags() -> None:
    refuses = "{% if messages[1:] %}{{ raise_exception('one only') }}{% endif %}" + R1
    assert _tags(refuses) == ReasoningTags(*THINK, is_open=True)


def test_a_value_the_template_refuses_does_not_hide_its_tags() -> None:
    refuses = "{% if thinking is true %}{{ raise_exception('on or off') }}{% endif %}" + _turns(
        "<cogito>{{ m.reasoning }}</cogito>{{ m.content }}", ""
    )
    assert _tags(refuses) == ReasoningTags("<cogito>", "</cogito>", is_open=False)


def test_the_users_variables_count() -> None:
    source = _turns(SHOWN, "{% if effort == 'high' %}<think>\n{% endif %}")
    template = ChatTemplate(source, name="chat.jinja")
    for effort, is_open in (("high", True), ("low", False)):
        assert find_tags(template, {"effort": effort}) == ReasoningTags(*THINK, is_open)


def test_a_system_message_that_names_the_tags_opens_none() -> None:
    source = "Think between <think> and </think>.\n" + _turns("{{ m.content }}", "")
    assert _tags(source) == ReasoningTags(*THINK, is_open=False)


@pytest.mark.parametrize(
    ("prompt", "is_open"),
    [
        ("<|assistant|><think>", True),
        ("<|assistant|>\n<think>\n", True),
        ("<|assistant|><think></think>", False),
        ("<|assistant|>", False),
        ("", False),
    ],
)
def test_a_prompt_opens_a_thought_with_its_last_word(prompt: str, is_open: bool) -> None:
    assert opens(prompt, "<think>") == is_open
