"""The kinds of text that a manifest is made of; each refuses what it is not, and says what to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import unquote

import pydantic
from pydantic_core import PydanticCustomError

from builder import distributions
from builder.distributions import is_version

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN = "unknown"  # what nobody has established: `check` counts it, `image` refuses it
LONGEST = 200

# Names that mean another thing tomorrow.
FLOATING = frozenset({
    "canary", "current", "default", "dev", "devel", "develop", "development", "edge", "head", "latest",
    "main", "master", "next", "nightly", "preview", "rolling", "stable", "staging", "testing", "tip",
    "trunk", "unstable",
})  # fmt: skip

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = (
    rf"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*(?::(?P<tag>\w[\w.-]{{0,127}}))?"
)
_REPOSITORY = r"https://[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?(?:/[A-Za-z0-9_~][A-Za-z0-9._~-]*)+"


def refuse(message: str, hint: str | None = None) -> NoReturn:
    """Refuse a value; pydantic carries the hint to whoever tells the place."""
    # Braces in pydantic's template would be read as fields, and values come from people.
    raise PydanticCustomError("manifest", "{message}", {"message": message, "hint": hint})


def text(value: str) -> str:
    """One line of prose."""
    if not value.strip():
        refuse("text is empty")
    if not value.isprintable():
        refuse("text has more than one line", "write it in one line")
    if len(value) > LONGEST:
        refuse(f"text has {len(value)} characters", f"at most {LONGEST} fit")
    return value


def boolean(value: object) -> bool:
    """`true` or `false`, and no other spelling."""
    if value in ("true", "false"):
        return value == "true"
    meant = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
    spelling = str(value).lower()
    spelling = meant.get(spelling, spelling)
    hint = f"write {spelling}" if spelling in ("true", "false") else None
    return refuse(f"wants true or false, found {value!r}" if isinstance(value, str) else "wants true or false", hint)


def commit(value: str) -> str:
    """A commit in full, or `unknown`."""
    if value == UNKNOWN or _is_hex(value, 40):
        return value
    hint = f"40 hex digits wanted; `git ls-remote` prints them; write {UNKNOWN} where nobody knows"
    if value.lower() in FLOATING:
        refuse(f"commit {value!r} is a name that moves", hint)
    if _is_hex(value.lower(), 40):
        refuse(f"commit {value!r} has capital letters", f"write it as {value.lower()}")
    if set(value) == {"0"}:
        refuse("a commit of zeros is none", hint)
    if re.fullmatch(r"[0-9a-fA-F]+", value):
        refuse(f"commit {value!r} has {len(value)} digits", hint)
    return refuse(f"{value!r} is no commit", hint)


def digest(value: str) -> str:
    """An image's digest, or `unknown`."""
    if value == UNKNOWN or (value.startswith("sha256:") and _is_hex(value[7:], 64)):
        return value
    if _is_hex(value, 64):
        refuse("digest does not name its algorithm", f"write it as sha256:{value}")
    return refuse(f"{value!r} is no digest", f"sha256: and 64 hex digits wanted; write {UNKNOWN} where nobody knows")


def sha256_or_unknown(value: str) -> str:
    """The hash of a file, or `unknown`."""
    return value if value == UNKNOWN else sha256(value)


def sha256(value: str) -> str:
    """The hash of a file."""
    if _is_hex(value, 64):
        return value
    if _is_hex(value.removeprefix("sha256:"), 64):
        refuse("hash has a prefix", f"write it as {value[7:]}")
    return refuse(f"{value!r} is no SHA-256", "64 lower-case hex digits wanted")


def _is_hex(value: str, digits: int) -> bool:
    return len(value) == digits and set(value) <= set("0123456789abcdef") and set(value) != {"0"}


def image(value: str) -> str:
    """An image by name and a tag that does not move."""
    if "@" in value:
        refuse("image has a digest in it", "it has a key of its own: digest")
    found = re.fullmatch(_IMAGE, value, re.ASCII)
    if not found:
        refuse(f"image {value!r} is no reference", "write it as name:tag, the name in lower case")
    tag = found["tag"]
    if tag is None:
        refuse(f"image {value!r} has no tag", "write it as name:tag")
    floats = FLOATING.intersection(re.split(r"[-_.]", tag.lower()))
    if "latest" in floats or (floats and not re.search(r"[0-9]{6}", tag)):  # a dated nightly stays what it is
        refuse(f"tag {tag!r} of the image moves", "name a released tag")
    return value


def repository(value: str) -> str:
    """Where git fetches from: no credentials, no query, nothing a shell or git could read as more."""
    hint = "write it as https://host/owner/name"
    if "://" in value and "@" in value:  # the value may hold a secret, so no message repeats it
        refuse("repository has credentials in it", "git takes them from its own configuration")
    if "?" in value or "#" in value:
        refuse("repository has a query", hint)
    if not value.startswith("https://"):
        refuse(f"repository {value!r} is not https://", hint)
    if not re.fullmatch(_REPOSITORY, value) or value.endswith("/.git"):
        refuse(f"repository {value!r} is no address", hint)
    return value


def wheel_address(value: str) -> str:
    """Where a wheel is had: an address that ends in the wheel's file name."""
    folder, _, file = value.rpartition("/")
    named = distributions.wheel(unquote(file)) and re.fullmatch(r"[\w.%+-]+", file, re.ASCII)
    if named and re.fullmatch(_REPOSITORY, f"{folder}/x"):
        return value
    # The value may hold a secret, so no message repeats it.
    return refuse("address is none of a wheel", "write it as https://host/folder/name.whl: no password, no query")


def tag(value: str) -> str:
    """A release by its version, with or without a v before it; a fork may have a mark behind it, as in v2.15_rocm."""
    if value.lower() in FLOATING:
        refuse(f"tag {value!r} is a name that moves", "write it as v1.2.3, or leave it out: the commit pins")
    if re.fullmatch(r"v?[0-9][\w.+!-]*", value, re.ASCII) and is_version(re.sub("_[a-z]+$", "", value)):
        return value
    return refuse(f"tag {value!r} is no version", "write it as v1.2.3, or leave it out: the commit pins")


def version(value: str) -> str:
    """One exact version."""
    if re.fullmatch(r"[0-9][\w.+!-]*", value, re.ASCII) and is_version(value):
        return value
    bare = value.lstrip("=v ")
    hint = f"write it as {bare}" if is_version(bare) else "one exact version wanted, such as 1.2.3"
    return refuse(f"version {value!r} is no exact version", hint)


def specifier(value: str) -> str:
    """What versions are allowed, as pip reads it."""
    if not distributions.is_specifier(value):
        hint = f"write it as =={value}" if is_version(value) else "write it as ==1.2.3 or <2"
        refuse(f"{value!r} does not say which versions", hint)
    if not re.fullmatch(r"[\w.*+!<>=~,-]+", value, re.ASCII):
        refuse(f"specifier {value!r} has spaces or odd characters", "write it as >=1.2,<2")
    return value


def distribution_glob(value: str) -> str:
    """The name of a distribution, or a pattern with stars."""
    if value.strip("*") and re.fullmatch(_NAME, value.replace("*", "x")):
        return value
    return refuse(f"{value!r} is no name of a distribution", "letters, digits, - and inner dots; * stands for any text")


def _matching(pattern: str, what: str, hint: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if re.fullmatch(pattern, value, re.ASCII):
            return value
        return refuse(f"{value!r} is no {what}", hint)

    return check


_SEGMENT = r"(?!\.\.?(?:/|$))[\w.+@~-]+"
_PATTERN = r"(?!\.\.?(?:/|$))[\w.+@~*?-]+"

distribution = _matching(_NAME, "name of a distribution", "letters, digits, - and inner dots")
gpu_target = _matching(r"gfx[0-9a-f]{3,4}", "GPU target", "write it as gfx942")
env_name = _matching(r"[A-Za-z_]\w*", "name of a variable", "letters, digits and _")
module = _matching(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", "name of a module", "write it as one imports it")
source_name = _matching(r"[a-z][a-z0-9_]*", "name of a source", "lower-case letters, digits and _")
absolute_path = _matching(
    rf"(?:/{_SEGMENT})+", "absolute path", "write it as /opt/name: no .., no // and no / at the end"
)
relative_path = _matching(
    rf"(?![-]){_SEGMENT}(?:/{_SEGMENT})*", "relative path", "write it as folder/name: no .. and no / before it"
)
patch_path = _matching(
    rf"(?![-]){_SEGMENT}(?:/{_SEGMENT})*(?<=.\.patch)",
    "path of a patch",
    "write it as folder/name.patch: no .. and no / before it",
)
file_glob = _matching(
    rf"(?![-]){_PATTERN}(?:/{_PATTERN})*", "pattern of files", "write it as folder/*.py: no .. and no / before it"
)
tool = _matching(r"[\w.+\[-]+", "name of a tool", "write it as one calls it: no path")
shared_name = _matching(r"[a-z][a-z0-9-]*", "name of a shared part", "write it as vime: images/shared/vime.yaml")
facts_name = _matching(r"[a-z0-9][a-z0-9.-]*", "name of facts", "write it as base-v1.2: images/bases/base-v1.2.yaml")


def env_value(value: str) -> str:
    """A variable's value; it may be empty."""
    if not value.isprintable():
        refuse("value has more than one line", "a variable's value is one line")
    return value


def gigabytes(value: object) -> float:
    """A size in GB, of 10^9 bytes, with at most one digit behind the point."""
    if isinstance(value, float):  # one that was measured
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}(\.[0-9])?", value, re.ASCII):
        return float(value)
    return refuse(f"{value!r} is no size in GB", "write it as 75.9")


def line(value: str) -> str:
    """What a program has written in one line, however long."""
    if not (value.strip() and value.isprintable()):
        refuse("wants one line that is not empty")
    return value


def requirement(value: str) -> str:
    """What a distribution asks for, as its metadata says it."""
    if not distributions.is_requirement(value):
        refuse(f"{value!r} is no requirement", "write it as name>=1.2")
    return value


Text = Annotated[str, pydantic.AfterValidator(text)]
Boolean = Annotated[bool, pydantic.BeforeValidator(boolean)]
Commit = Annotated[str, pydantic.AfterValidator(commit)]
Count = Annotated[str, pydantic.AfterValidator(_matching(r"[1-9][0-9]{0,5}", "whole number", "write it as 240"))]
Digest = Annotated[str, pydantic.AfterValidator(digest)]
Sha256 = Annotated[str, pydantic.AfterValidator(sha256)]
Sha256OrUnknown = Annotated[str, pydantic.AfterValidator(sha256_or_unknown)]
WheelAddress = Annotated[str, pydantic.AfterValidator(wheel_address)]
SharedName = Annotated[str, pydantic.AfterValidator(shared_name)]
ImageName = Annotated[str, pydantic.AfterValidator(image)]
Repository = Annotated[str, pydantic.AfterValidator(repository)]
Tag = Annotated[str, pydantic.AfterValidator(tag)]
ExactVersion = Annotated[str, pydantic.AfterValidator(version)]
Specifier = Annotated[str, pydantic.AfterValidator(specifier)]
Distribution = Annotated[str, pydantic.AfterValidator(distribution)]
DistributionGlob = Annotated[str, pydantic.AfterValidator(distribution_glob)]
GpuTarget = Annotated[str, pydantic.AfterValidator(gpu_target)]
EnvName = Annotated[str, pydantic.AfterValidator(env_name)]
EnvValue = Annotated[str, pydantic.AfterValidator(env_value)]
Module = Annotated[str, pydantic.AfterValidator(module)]
SourceName = Annotated[str, pydantic.AfterValidator(source_name)]
AbsolutePath = Annotated[str, pydantic.AfterValidator(absolute_path)]
RelativePath = Annotated[str, pydantic.AfterValidator(relative_path)]
PatchPath = Annotated[str, pydantic.AfterValidator(patch_path)]
FileGlob = Annotated[str, pydantic.AfterValidator(file_glob)]
FactsName = Annotated[str, pydantic.AfterValidator(facts_name)]
Line = Annotated[str, pydantic.AfterValidator(line)]
RequirementLine = Annotated[str, pydantic.AfterValidator(requirement)]
ToolName = Annotated[str, pydantic.AfterValidator(tool)]
Gigabytes = Annotated[float, pydantic.BeforeValidator(gigabytes)]
