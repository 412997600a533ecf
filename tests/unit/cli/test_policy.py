"""``policy set``, ``policy show``, ``policy decisions``."""

from __future__ import annotations

import json

from statecore.catalog import Catalog
from tests.support.shell import assert_refused, run


def test_what_is_not_given_stays(catalog: Catalog, job: str) -> None:
    assert_refused(run("policy", "set", job), "max_parallelism")
    done = run("policy", "set", job, "--max-parallelism", "8", "--cooldown", "60")
    assert (done.returncode, done.stdout) == (0, "orders: policy on, parallelism 1 to 8\n")
    assert run("policy", "set", job, "--off").stdout == "orders: policy off, parallelism 1 to 8\n"
    assert run("policy", "set", job, "--min-parallelism", "2").stdout == "orders: policy off, parallelism 2 to 8\n"
    told = json.loads(run("policy", "set", job, "--json").stdout)
    assert (told["enabled"], told["settings"]["min_parallelism"]) == (False, 2)
    policy = catalog.policies.find(job)
    assert policy is not None
    known = {name: policy.settings[name] for name in ("max_parallelism", "min_parallelism", "cooldown_s", "method")}
    assert known == {"max_parallelism": 8, "min_parallelism": 2, "cooldown_s": 60.0, "method": "live"}


def test_a_policy_that_observes_says_so(catalog: Catalog, job: str) -> None:
    done = run("policy", "set", job, "--max-parallelism", "8", "--observe")
    assert done.stdout == "orders: policy observes, parallelism 1 to 8\n"
    assert "observe yes" in " ".join(run("policy", "show", job).stdout.split())
    assert run("policy", "set", job, "--off").stdout == "orders: policy off, parallelism 1 to 8\n"
    assert run("policy", "set", job, "--on", "--act").stdout == "orders: policy on, parallelism 1 to 8\n"
    assert "observe no" in " ".join(run("policy", "show", job).stdout.split())


def test_windows_are_set_shown_and_removed(catalog: Catalog, job: str) -> None:
    windows = ("--freeze", "0 8 * * 1-5 for 10h", "--freeze", "0 0 1 * * for 1d", "--at-least", "0 9 * * 1 for 2h: 8")
    run("policy", "set", job, "--max-parallelism", "8", *windows, "--time-zone", "Europe/Berlin")
    shown = " ".join(run("policy", "show", job).stdout.split())
    for part in (
        "freeze 0 8 * * 1-5 for 10h 0 0 1 * * for 1d",
        "at least 0 9 * * 1 for 2h: 8",
        "time zone Europe/Berlin",
    ):
        assert part in shown
    assert_refused(run("policy", "set", job, "--freeze", "0 8 * *"), "found the window '0 8 * *'")
    told = json.loads(run("policy", "show", job, "--json").stdout)["policy"]["settings"]
    assert (told["freeze"], told["at_least"]) == (["0 8 * * 1-5 for 10h", "0 0 1 * * for 1d"], ["0 9 * * 1 for 2h: 8"])
    told = json.loads(run("policy", "set", job, "--freeze", "", "--json").stdout)["settings"]
    assert (told["freeze"], told["at_least"]) == ([], ["0 9 * * 1 for 2h: 8"])
    assert "freeze none" in " ".join(run("policy", "show", job).stdout.split())


def test_steps_and_alignment_are_set_and_shown(catalog: Catalog, job: str) -> None:
    run("policy", "set", job, "--max-parallelism", "8", "--max-step", "4", "--align")
    shown = " ".join(run("policy", "show", job).stdout.split())
    assert "align yes max step 4 max rescales a day no limit" in shown
    told = json.loads(run("policy", "set", job, "--max-rescales-a-day", "6", "--no-align", "--json").stdout)["settings"]
    assert (told["max_step"], told["max_rescales_a_day"], told["align"]) == (4, 6, False)


def test_settings_newer_than_a_policy_are_shown_with_their_defaults(catalog: Catalog, job: str) -> None:
    catalog.policies.set(job, {"max_parallelism": 8})
    told = json.loads(run("policy", "show", job, "--json").stdout)["policy"]["settings"]
    assert (told["max_parallelism"], told["time_zone"], told["observe"]) == (8, "UTC", False)


def test_limits_that_do_not_fit_are_refused_and_nothing_changes(catalog: Catalog, job: str) -> None:
    run("policy", "set", job, "--max-parallelism", "4")
    assert_refused(run("policy", "set", job, "--min-parallelism", "5"), "min parallelism 5 above max parallelism 4")
    assert_refused(run("policy", "set", job, "--method", "rewrite"), "method")
    assert_refused(run("policy", "set", "nobody", "--max-parallelism", "4"), "nobody")
    policy = catalog.policies.find(job)
    assert policy is not None and (policy.settings["min_parallelism"], policy.version) == (1, 0)


def test_a_policy_and_what_it_found_are_shown(catalog: Catalog, job: str) -> None:
    assert "policy set orders" in run("policy", "show", job).stdout
    seen = catalog.policies.set(job, {"max_parallelism": 8})
    assert "never; is the DAG autoscale on?" in run("policy", "show", job).stdout
    catalog.policies.save_memory(seen, {}, "40 rows wait [x]")
    shown = run("policy", "show", job).stdout
    shown = " ".join(shown.split())
    for part in (
        "40 rows wait [x]",
        "max parallelism 8",
        "max lag no limit",
        "catch up 600 s",
        "backlog unknown",
    ):
        assert part in shown
    told = json.loads(run("policy", "show", job, "--json").stdout)
    assert (told["policy"]["finding"], told["drain"]["seconds"]) == ("40 rows wait [x]", None)
    assert told["diagnosis"] is None


def test_what_ails_a_job_is_shown(catalog: Catalog, job: str) -> None:
    catalog.policies.set(job, {"max_parallelism": 8})
    for _ in range(2):
        generation = catalog.generations.claim(job, log_path="log").generation
        catalog.generations.end(job, generation, state="failed", error="no disk [full]")
    shown = " ".join(run("policy", "show", job).stdout.split())
    assert "diagnosis failing: the last 2 drivers failed, the newest with: no disk [full]: remove the cause" in shown
    assert json.loads(run("policy", "show", job, "--json").stdout)["diagnosis"]["name"] == "failing"


def test_a_policy_whose_rescales_failed_is_shown_as_blocked_until_it_is_set_again(catalog: Catalog, job: str) -> None:
    for number in range(3):
        seen = catalog.policies.find(job) or catalog.policies.set(job, {"max_parallelism": 8})
        made = catalog.policies.record_decision(
            seen,
            {},
            from_parallelism=2,
            to_parallelism=4,
            from_workers=None,
            to_workers=None,
            method="by_reference",
            reason="scale out",
            figures={},
        )
        assert made is not None
        catalog.policies.claim_decision(made.id, f"run-{number}")
        catalog.runs.start(f"run-{number}", job, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"run-{number}", error="no quota")
    for shown in (run("policy", "show", job).stdout, run("status", job).stdout):
        words = " ".join(shown.split())
        assert "blocked: the last 3 rescales of this policy failed, the newest with: no quota" in words
    told = json.loads(run("policy", "show", job, "--json").stdout)
    assert (told["failures"], told["blocked"]) == (3, True)
    run("policy", "set", job, "--on")
    assert "blocked" not in run("policy", "show", job).stdout + run("status", job).stdout


def test_decisions_are_listed_with_what_came_of_them(catalog: Catalog, job: str) -> None:
    for workers in (None, 2):
        seen = catalog.policies.find(job) or catalog.policies.set(job, {"max_parallelism": 8})
        made = catalog.policies.record_decision(
            seen,
            {},
            from_parallelism=2,
            to_parallelism=4,
            from_workers=1 if workers else None,
            to_workers=workers,
            method="live",
            reason="scale out: 9,000 rows wait",
            figures={"waiting": 9_000},
        )
        assert made is not None
        catalog.policies.end_decision(made.id, "refused", "run-7 has the lease")
    listed = run("policy", "decisions", job).stdout
    for part in ("2 -> 4", "1 -> 2", "refused", "9,000 rows wait", "run-7 has the lease"):
        assert part in listed
    (newest,) = json.loads(run("policy", "decisions", job, "--limit", "1", "--json").stdout)
    assert (newest["to_workers"], newest["figures"]) == (2, {"waiting": 9_000})
