"""A Job: everything a worker needs to generate an answer, as it lies in Redis."""

import secrets
from enum import IntEnum

import msgspec

RANDOM_HEX_DIGITS = 32  # 128 bits: an id cannot be guessed, so it can also serve to resume a stream
# As clients know them from each endpoint; the separator belongs to them.
ENDPOINT_PREFIXES = {"chat.completions": "chatcmpl-", "completions": "cmpl-", "responses": "resp_", "messages": "msg_"}


class JobClass(IntEnum):
    """Order in which queued work is claimed; each class has bounds of its own."""

    INTERACTIVE = 0
    BATCH = 1


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is chosen and when to stop. All values are already validated and normalised."""

    max_tokens: int  # 0 only tells of the prompt
    seed: int  # minted by the API when the request has none: a retry after a crash must draw the same tokens
    temperature: float = 1.0  # 0 means greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 means off
    min_p: float = 0.0
    presence_penalty: float = 0.0  # taken off the logit of each token generated before
    frequency_penalty: float = 0.0  # the same, times how often
    repetition_penalty: float = 1.0  # divides positive and multiplies negative logits of tokens in prompt and answer
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token id, what is added to its logit)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()  # end the answer as the model's own end tokens do
    min_tokens: int = 0  # before so many tokens nothing but a limit ends the answer
    ignore_eos: bool = False  # the model's own end tokens do not end the answer
    logprobs: int | None = None  # None: none; else of each token, and of so many of the most probable ones
    prompt_logprobs: int | None = None  # the same for the prompt's tokens; told with the first delta of each prompt
    include_stop: bool = False  # the stop string that ended the answer is part of its text
    shown_tokens: tuple[int, ...] = ()  # special tokens that are part of the text, as they are written
    grammar: str = ""  # what the answer must match, as llguidance serializes a grammar; empty: anything


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One admitted request. Each prompt becomes `n` Sequences: choice index = place in `prompts` * n + 0, 1, ... n - 1.

    The queue counts a prompt once, however many answers it gets: they share the prompt's pages.
    """

    id: str
    pool: str  # the served model's name; all keys of a pool share one Redis Cluster slot
    tenant: str
    prompts: tuple[tuple[int, ...], ...]  # token ids
    sampling: SamplingParams
    job_class: JobClass = JobClass.INTERACTIVE
    created_s: int = 0  # Unix time, the `created` of every chunk
    timeout_ms: int = 0  # from admission to the terminal event
    expected_tokens: int = 0  # tokens each answer may reasonably have; at most sampling.max_tokens
    n: int = 1  # answers to each prompt

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.prompts)

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * self.n

    @property
    def cost(self) -> int:
        """Tokens this job is counted for in the queue's bounds and in the fair order."""
        return self.num_prompt_tokens + self.num_choices * self.expected_tokens


def mint_job_id(endpoint: str, pool: str) -> str:
    """A new id such as ``chatcmpl-smollm2-135m-<32 hex digits>``: unguessable, and it names its pool."""
    return f"{ENDPOINT_PREFIXES[endpoint]}{pool}-{secrets.token_hex(RANDOM_HEX_DIGITS // 2)}"


def pool_of(job_id: str) -> str | None:
    """The pool named in a job id, or None when the text cannot be a job id."""
    prefix = next((known for known in ENDPOINT_PREFIXES.values() if job_id.startswith(known)), None)
    pool, _, digits = job_id.removeprefix(prefix or "").rpartition("-")
    is_well_formed = (
        prefix is not None
        and pool != ""
        and len(digits) == RANDOM_HEX_DIGITS
        and all(c in "0123456789abcdef" for c in digits)
    )
    return pool if is_well_formed else None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Job)


def encode_job(job: Job) -> bytes:
    return _encoder.encode(job)


def decode_job(data: bytes) -> Job:
    """Raises msgspec.DecodeError when the bytes are not a Job."""
    return _decoder.decode(data)
