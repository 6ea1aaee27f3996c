import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.conftest import ROOT, only

IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


@dataclass(frozen=True)
class Instruction:
    name: str
    value: str


def instructions() -> list[Instruction]:
    """Of the Dockerfile, in order, with continued lines joined and comments left out."""
    lines = [
        line for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line]


def stages() -> list[list[Instruction]]:
    found: list[list[Instruction]] = []
    for instruction in instructions():
        if instruction.name == "FROM":
            found.append([])
        if found:
            found[-1].append(instruction)
    return found


def values(stage: list[Instruction], name: str) -> list[str]:
    return [instruction.value for instruction in stage if instruction.name == name]


def test_dependencies_are_built_in_one_stage_and_copied_to_another() -> None:
    builder, final = stages()
    assert builder[0].value.endswith("AS builder")
    assert "--from=builder /venv /venv" in values(final, "COPY")
    assert not any("pip install" in command for command in values(final, "RUN"))


def test_versions_are_the_pinned_ones() -> None:
    builder, _ = stages()
    with_dependencies, without = (command for command in values(builder, "RUN") if "pip install" in command)
    assert "--require-hashes --requirement requirements.lock" in with_dependencies
    assert "--no-deps" in without


def test_it_runs_as_a_user_with_a_number_that_is_not_root() -> None:
    _, final = stages()
    (user,) = values(final, "USER")
    assert user == "${UID}"
    (uid,) = (value for value in values(final, "ARG") if value.startswith("UID="))
    assert int(uid.removeprefix("UID=")) > 0
    # nothing is done as root after it
    assert {each.name for each in final[final.index(Instruction("USER", user)) :]} <= {
        *("USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD")
    }


def test_everything_copied_is_in_the_repository_and_let_through_by_dockerignore() -> None:
    assert IGNORED[1] == "*"
    for stage in stages():
        for value in values(stage, "COPY"):
            *sources, _ = value.split()
            for source in sources if not value.startswith("--from=builder") else []:
                assert (ROOT / source).exists()
                assert f"!{Path(source).parts[0]}" in IGNORED


def test_nothing_that_could_be_secret_gets_in() -> None:
    secret = re.compile(r"token(?!$)|password|secret|key", re.IGNORECASE)
    for stage in stages():
        assert not values(stage, "ADD")
        names = [
            name for name in ("ARG", "ENV") for value in values(stage, name) for name in re.findall(r"(\w+)=", value)
        ]
        assert not any(secret.search(name) for name in names)
    assert not any("token" in line for line in IGNORED if line.startswith("!"))


def test_commands_are_in_exec_form_below_an_init() -> None:
    _, final = stages()
    assert json.loads(values(final, "ENTRYPOINT")[0])[0].endswith("tini")
    assert json.loads(values(final, "CMD")[0])[:2] == ["ray", "start"]
    assert json.loads(values(final, "HEALTHCHECK")[0].partition("CMD")[2])[0] == "wget"


def test_the_image_has_what_kuberay_and_the_manifests_ask_of_it() -> None:
    _, final = stages()
    (packages,) = (command for command in values(final, "RUN") if "apt-get install" in command)
    assert {"bash", "wget"} <= set(packages.split())
    assert "/etc/profile.d/" in packages, "a login shell has to find `ray` too"
    (environment,) = values(final, "ENV")
    container = only("raycluster.yaml", "RayCluster")["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert f"DEEPED_CACHE={container['volumeMounts'][0]['mountPath']} " in environment
    assert {"PYTHONPATH=/app", "RAY_AUTH_MODE=token"} <= set(environment.split())
    assert "/app" in values(final, "WORKDIR")
