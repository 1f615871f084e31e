"""What GitHub reads: workflows, issue forms, the citation; and that `workbook publish` stamps all of them."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
import yaml
from commands import ROOT

from helpers.workshop.form import publish
from helpers.workshop.project import load_project

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
def test_a_workflow_is_one(path):
    """Its structure; actionlint, where somebody has it, says more (CONTRIBUTING)."""
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


def test_ci_calls_what_everybody_calls():
    workflow = read(GITHUB / "workflows" / "tests.yml")
    assert [step["run"] for step in steps(workflow) if "run" in step] == [".ci/run"]
    assert set(workflow[True]) >= {"pull_request", "push"} and workflow[True]["push"] == {
        "branches": ["main"]
    }


def test_the_book_is_built_from_main_by_the_same_commands():
    workflow = read(GITHUB / "workflows" / "book.yml")
    assert workflow[True]["push"] == {"branches": ["main"]} and "pull_request" not in workflow[True]
    runs = [step["run"] for step in steps(workflow) if "run" in step]
    assert runs == ["make run", "make book", ".venv/bin/workbook links build/book"]
    build, deploy = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert build["steps"][-1]["with"]["path"] == "build/book" and "permissions" not in build
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"} and deploy["needs"] == "build"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_take_a_python_that_the_project_admits(path):
    for step in steps(read(path)):
        if step.get("uses", "").startswith("actions/setup-python@"):
            given = step["with"]
            assert tuple(map(int, given["python-version"].split("."))) >= (3, 11)
            assert (ROOT / given["cache-dependency-path"]).is_file()


# ------------------------------------------------------------------------------- issue forms, citation


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(path):
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


def test_there_is_a_form_for_each_of_the_three():
    assert [path.stem for path in FORMS] == ["checker", "records", "wrong_fact"]
    assert read(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["contact_links"]


def test_the_citation_is_whole_and_says_what_the_project_says():
    """The Citation File Format 1.2.0: citation-file-format.github.io."""
    citation = read(ROOT / "CITATION.cff")
    assert str(citation["cff-version"]) == "1.2.0" and citation["type"] == "software"
    assert citation["message"] and citation["title"].startswith("Kernel Workbook")
    assert all(
        "name" in author or {"family-names", "given-names"} <= author.keys() for author in citation["authors"]
    )
    assert str(citation["version"]) == PROJECT["version"] and citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    known = {
        "cff-version",
        "message",
        "title",
        "abstract",
        "type",
        "authors",
        "version",
        "license",
        "repository-code",
    }
    assert citation.keys() <= known | {
        "keywords",
        "date-released",
        "doi",
        "url",
        "identifiers",
        "contact",
        "references",
    }
    assert citation["authors"][0]["name"] in (ROOT / "LICENSE").read_text()


# ---------------------------------------------------------------------------------------------- publish


def test_publish_stamps_everything_that_names_the_repository(tmp_path):
    """After it no text of the checkout has the old address."""
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CITATION.cff", "environment.yml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(GITHUB, tmp_path / ".github")
    shutil.copytree(ROOT / "helpers" / "kernels", tmp_path / "helpers" / "kernels")
    before = load_project(ROOT).repository
    owner, name = before.split("/")
    changed = publish.publish("Ada-L/gpu.course", tmp_path)
    assert any(line.startswith("CITATION.cff: ") for line in changed)
    assert any(line.startswith(".github/ISSUE_TEMPLATE/records.yml: ") for line in changed)
    texts = {
        path: path.read_text()
        for path in tmp_path.rglob("*")
        if path.suffix in (".md", ".yml", ".cff", ".toml")
    }
    for path, text in texts.items():
        assert f"github.com/{before}" not in text and f"{owner}.github.io/{name}" not in text, path
    assert "https://ada-l.github.io/gpu.course" in texts[tmp_path / "README.md"]
    assert publish.publish("Ada-L/gpu.course", tmp_path) == []


def test_a_pages_address_is_stamped_and_others_stay():
    text = "https://OWNER.github.io/REPO/x https://owner.github.io/REPO https://other.github.io/REPO https://OWNER.github.io/REPO-2"
    stamped = publish.stamp(text, "OWNER/REPO", "Ada/book")
    assert stamped == (
        "https://ada.github.io/book/x https://ada.github.io/book https://other.github.io/REPO https://OWNER.github.io/REPO-2"
    )
