"""The shapes of files, and of the form that one is uploaded with."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from api.pipeline.upload import LONGEST_LIFE_S, SHORTEST_LIFE_S


class FileForm(Struct):
    file: Annotated[str, Meta(extra_json_schema={"format": "binary"})]
    purpose: Literal["batch"]
    anchor: Literal["created_at"] = field(name="expires_after[anchor]", default="created_at")
    seconds: Annotated[int, Meta(ge=SHORTEST_LIFE_S, le=LONGEST_LIFE_S)] = field(
        name="expires_after[seconds]", default=LONGEST_LIFE_S
    )


class FileObject(Struct):
    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]


class FileList(Struct):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedFile(Struct):
    id: str
    object: Literal["file"]
    deleted: Literal[True]
