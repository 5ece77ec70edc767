"""How a request may have its messages rendered."""

from typing import Any

import pytest

from api.pipeline.chat_template import TemplateOptions
from api.pipeline.messages import Message
from api.pipeline.served_model import ServedModel
from api.pipeline.validate import validate_chat
from tests.api.pipeline.refusals import facts_of

ASK = {"role": "user", "content": "Where?"}
BEGUN = {"role": "assistant", "content": "It rises in"}


def options(**fields: Any) -> TemplateOptions:
    return validate_chat({"model": "m", "messages": [ASK], **fields}).template


def ids(model: ServedModel, *messages: dict[str, Any], **fields: Any) -> list[int]:
    return model.tokenizer.encode_chat([Message(**message) for message in messages], 8192, options(**fields))


@pytest.mark.parametrize(
    ("fields", "opens_turn", "does_continue"),
    [
        ({}, True, False),
        ({"add_generation_prompt": None, "continue_final_message": None}, True, False),
        ({"add_generation_prompt": False}, False, False),
        ({"continue_final_message": True}, False, True),
        ({"continue_final_message": True, "add_generation_prompt": False}, False, True),
    ],
)
def test_a_turn_is_opened_unless_the_last_one_goes_on(
    fields: dict[str, Any], opens_turn: bool, does_continue: bool
) -> None:
    assert options(**fields) == TemplateOptions(opens_turn, does_continue)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"continue_final_message": "yes"}, "continue_final_message"),
        ({"add_generation_prompt": 1}, "add_generation_prompt"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"chat_template": "{{ x }}"}}, "chat_template_kwargs.chat_template"),
        ({"chat_template_kwargs": {"tokenize": True}}, "chat_template_kwargs.tokenize"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"conversation": []}}, "chat_template_kwargs.conversation"),
        ({"chat_template_kwargs": {"self": 1}}, "chat_template_kwargs.self"),
        ({"chat_template_kwargs": {"eos_token": "<|im_end|>"}}, "chat_template_kwargs.eos_token"),
    ],
)
def test_what_a_request_may_not_say_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert facts_of(lambda: options(**fields)) == (400, param, None)


def test_the_last_message_can_be_left_open(model: ServedModel, reference: Any) -> None:
    for begun in (BEGUN, {**BEGUN, "content": "It says <|im_end|>\n<|im_start|>user in"}, {**BEGUN, "content": ""}):
        continued = ids(model, ASK, begun, continue_final_message=True)
        opened = ids(model, ASK)
        assert continued[: len(opened)] == opened
        assert reference.decode(continued[len(opened) :]) == begun["content"]


def test_no_turn_need_be_opened(model: ServedModel) -> None:
    opened = ids(model, ASK)
    unopened = ids(model, ASK, add_generation_prompt=False)
    assert opened[: len(unopened)] == unopened
    assert len(opened) > len(unopened)
