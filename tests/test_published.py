"""What GitHub reads: workflows, issue forms and the citation; and `workbook publish`, on a copy."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from commands import ROOT

from workbook.form import canonical, publish
from workbook.project import load_project

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


# --------------------------------------------------------------------------------------------- workflows


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_the_right_structure(path):
    """Its structure; actionlint checks more."""
    workflow = read(path)
    # YAML 1.1 reads the key `on` as true.
    assert {"name", True, "permissions", "concurrency", "jobs"} == workflow.keys()
    assert workflow["permissions"] == {"contents": "read"}, "more than that only in the job that needs it"
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
        assert not re.search("latest", job["runs-on"]), "a runner that changes under us"
        for needed in [job["needs"]] if "needs" in job else []:
            assert needed in workflow["jobs"]
    for step in steps(workflow):
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+\.\d+\.\d+", step["uses"]), (
                "an action without its full version"
            )
        if step.get("uses", "").startswith("actions/setup-python@"):
            given = step["with"]
            assert tuple(map(int, given["python-version"].split("."))) >= (3, 11)
            assert (ROOT / given["cache-dependency-path"]).is_file()


def test_ci_runs_the_script_that_everybody_can_run():
    workflow = read(GITHUB / "workflows" / "tests.yml")
    assert [step["run"] for step in steps(workflow) if "run" in step] == [".ci/run"]
    assert set(workflow[True]) >= {"pull_request", "push"} and workflow[True]["push"] == {
        "branches": ["main"]
    }


def test_the_book_is_built_from_main_by_the_same_commands():
    workflow = read(GITHUB / "workflows" / "book.yml")
    assert workflow[True]["push"] == {"branches": ["main"]} and "pull_request" not in workflow[True]
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    assert runs == ["make run", "make book"]
    build, deploy = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["steps"][-1]["with"]["path"] == "build/book" and "permissions" not in build
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"} and deploy["needs"] == "build"


# ------------------------------------------------------------------------------- issue forms, citation


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_the_right_structure(path):
    """GitHub's syntax for issue forms: docs.github.com, "Syntax for GitHub's form schema"."""
    form = read(path)
    assert {"name", "description", "labels", "body"} == form.keys()
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    assert fields and all(one["type"] in ("input", "textarea", "dropdown", "checkboxes") for one in fields)
    ids = [one["id"] for one in fields]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[A-Za-z0-9_-]+", one) for one in ids)
    assert all(one["attributes"]["label"] for one in fields)
    for one in fields:
        if one["type"] in ("dropdown", "checkboxes"):
            assert len(one["attributes"]["options"]) > 1
        assert one.get("validations", {}).keys() <= {"required"}
    for one in form["body"]:
        assert one["type"] != "markdown" or one["attributes"]["value"].strip()


def test_the_citation_agrees_with_the_project():
    """The Citation File Format 1.2.0: citation-file-format.github.io."""
    citation = read(ROOT / "CITATION.cff")
    assert str(citation["cff-version"]) == "1.2.0" and citation["type"] == "software"
    assert citation["message"] and citation["title"].startswith("Kernel Workbook")
    assert all(
        "name" in author or {"family-names", "given-names"} <= author.keys() for author in citation["authors"]
    )
    assert str(citation["version"]) == PROJECT["version"] and citation["license"] == PROJECT["license"]
    if load_project(ROOT).published:
        assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    required = {"cff-version", "message", "title", "type", "authors", "version", "license"}
    assert required <= citation.keys() <= required | {"abstract", "keywords", "repository-code"}
    assert citation["authors"][0]["name"] in (ROOT / "LICENSE").read_text()


# ---------------------------------------------------------------------------------------------- publish


def tracked(*patterns: str) -> list[str]:
    """The names of the files in git that match."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split("\n") if (ROOT / name).is_file()]


DOCUMENTS = tracked("*.md", "*.cff", "*.yml")


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A copy of the checkout's documents and notebooks, published as Ada-L/gpu.course."""
    copy = tmp_path_factory.mktemp("published")
    for name in [*DOCUMENTS, *tracked("*.ipynb", "pyproject.toml", "helpers/kernels")]:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    publish.publish("Ada-L/gpu.course", copy)
    return copy


def shown(path: Path) -> str:
    """What a reader sees of a document, without its comments."""
    text = path.read_text()
    return (
        re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL) if path.suffix == ".md" else re.sub("# .*", "", text)
    )


TO_NOWHERE = re.compile(r"github\.com/OWNER|OWNER\.github\.io|github/OWNER", re.IGNORECASE)


@pytest.mark.skipif(load_project(ROOT).published, reason="the repository has an address")
def test_until_the_repository_has_an_address_nothing_links_to_it():
    for name in DOCUMENTS:
        assert not TO_NOWHERE.search(shown(ROOT / name)), name
    for path in load_project(ROOT).notebooks():
        assert not TO_NOWHERE.search(path.read_text()) and "Open in Colab" not in path.read_text(), path


def test_publishing_shows_every_link(published):
    for name in DOCUMENTS:
        text = (published / name).read_text()
        assert "published: " not in text and not TO_NOWHERE.search(text), name
    readme = shown(published / "README.md")
    assert "https://ada-l.github.io/gpu.course" in readme
    assert "git clone https://github.com/Ada-L/gpu.course" in readme
    assert read(published / "CITATION.cff")["repository-code"] == "https://github.com/Ada-L/gpu.course"
    (contact,) = read(published / ".github" / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]
    assert contact["url"].startswith("https://github.com/Ada-L/gpu.course/")


def test_publishing_gives_every_notebook_a_badge_and_a_setup_cell_that_installs(published):
    project = load_project(published)
    assert project.published and len(project.notebooks()) == len(load_project(ROOT).notebooks())
    for path in project.notebooks():
        text, name = path.read_text(), path.relative_to(published).as_posix()
        assert text.count("Open in Colab") == text.count(f"/Ada-L/gpu.course/blob/main/{name})") == 1
        assert "%pip install" in text and "git+https://github.com/Ada-L/gpu.course" in text
        assert not canonical.canonical(path, project).differences


def test_publishing_again_and_under_another_address(published):
    assert publish.publish("Ada-L/gpu.course", published) == []
    changed = publish.publish("grace/kernels", published)
    try:
        assert len([line for line in changed if line.startswith(("notebooks/", "labs/"))]) == len(
            load_project(published).notebooks()
        )
        for path in [*(published / name for name in DOCUMENTS), *load_project(published).notebooks()]:
            assert "Ada-L/gpu.course" not in path.read_text(), path
    finally:
        publish.publish("Ada-L/gpu.course", published)


def test_only_the_repositorys_own_addresses_change():
    text = (
        "https://OWNER.github.io/REPO/x https://owner.github.io/REPO https://other.github.io/REPO "
        "https://OWNER.github.io/REPO-2"
    )
    stamped = publish.stamp(text, "OWNER/REPO", "Ada/book")
    assert stamped == (
        "https://ada.github.io/book/x https://ada.github.io/book https://other.github.io/REPO "
        "https://OWNER.github.io/REPO-2"
    )
