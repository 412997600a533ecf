"""The commands and their groups in the help."""

from __future__ import annotations

import sys

import typer

from statecore.cli.audit import show_audit
from statecore.cli.catalog import rebuild_catalog, upgrade_catalog
from statecore.cli.check import check
from statecore.cli.checkpoint import clone_checkpoint, rescale_checkpoint, show_checkpoint, verify_checkpoint
from statecore.cli.clusters import list_clusters, register_cluster, remove_cluster
from statecore.cli.drop import drop_savepoint
from statecore.cli.examples import copy_example, list_examples
from statecore.cli.explain import explain
from statecore.cli.jobs import list_jobs
from statecore.cli.output import complain
from statecore.cli.plan import plan
from statecore.cli.policy import list_decisions, set_policy, show_policy
from statecore.cli.register import register_job
from statecore.cli.rescale import rescale
from statecore.cli.savepoints import create_savepoint, list_savepoints
from statecore.cli.show import show_savepoint
from statecore.cli.simulate import simulate_policy
from statecore.cli.start import start_job
from statecore.cli.state import show_state
from statecore.cli.status import show_status
from statecore.cli.stop import stop_job
from statecore.cli.supervisor import supervise
from statecore.cli.upgrade import upgrade
from statecore.cli.verify import verify_savepoint
from statecore.errors import StatecoreError

_HELP = """Savepoints and rescaling for stateful PySpark streaming.

Set the catalog once for all commands:

    export STATECORE_CATALOG=sqlite:////data/catalog.db
"""
_FIRST_STEPS = """First steps: run `supervisor` in a terminal of its own, `register` a job, `start` it, and list `jobs`.

When a job is in trouble: `status JOB` shows the error and what to do.

Exit codes: 0 done, 1 refused or failed (reason on stderr), 2 wrong usage.
"""

app = typer.Typer(
    help=_HELP,
    epilog=_FIRST_STEPS,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    # Pretty tracebacks print the values of variables, such as a database's password.
    pretty_exceptions_enable=False,
)
savepoints = typer.Typer(help="Take, list, show, verify and drop savepoints.", no_args_is_help=True)
checkpoints = typer.Typer(
    help="Show, clone, rescale and prove checkpoints of Spark's own queries.", no_args_is_help=True
)
examples = typer.Typer(help="List and copy the examples that come with the package.", no_args_is_help=True)
policies = typer.Typer(help="Size a job by its load, with the DAG autoscale.", no_args_is_help=True)
clusters = typer.Typer(help="Register, list and remove the clusters of jobs.", no_args_is_help=True)
catalogs = typer.Typer(help="Migrate or restore the catalog itself.", no_args_is_help=True)

_LOOK, _RUN, _RESCALE, _OPERATE = "Inspect jobs", "Run jobs", "Rescale and savepoints", "Operate"

app.command("jobs", rich_help_panel=_LOOK)(list_jobs)
app.command("status", rich_help_panel=_LOOK)(show_status)
app.command("state", rich_help_panel=_LOOK)(show_state)
app.command("explain", rich_help_panel=_LOOK)(explain)
app.command("audit", rich_help_panel=_LOOK)(show_audit)
app.add_typer(examples, name="examples", rich_help_panel=_RUN)
app.command("check", rich_help_panel=_RUN)(check)
app.command("register", rich_help_panel=_RUN)(register_job)
app.command("start", rich_help_panel=_RUN)(start_job)
app.command("stop", rich_help_panel=_RUN)(stop_job)
app.command("upgrade", rich_help_panel=_RUN)(upgrade)
app.command("plan", rich_help_panel=_RESCALE)(plan)
app.command("rescale", rich_help_panel=_RESCALE)(rescale)
app.add_typer(policies, name="policy", rich_help_panel=_RESCALE)
app.add_typer(savepoints, name="savepoint", rich_help_panel=_RESCALE)
app.add_typer(checkpoints, name="checkpoint", rich_help_panel=_RESCALE)
app.command("supervisor", rich_help_panel=_OPERATE)(supervise)
app.add_typer(clusters, name="cluster", rich_help_panel=_OPERATE)
app.add_typer(catalogs, name="catalog", rich_help_panel=_OPERATE)

examples.command("list")(list_examples)
examples.command("copy")(copy_example)
savepoints.command("create")(create_savepoint)
savepoints.command("list")(list_savepoints)
savepoints.command("show")(show_savepoint)
savepoints.command("verify")(verify_savepoint)
savepoints.command("drop")(drop_savepoint)

checkpoints.command("show")(show_checkpoint)
checkpoints.command("clone")(clone_checkpoint)
checkpoints.command("rescale")(rescale_checkpoint)
checkpoints.command("verify")(verify_checkpoint)

policies.command("set")(set_policy)
policies.command("show")(show_policy)
policies.command("decisions")(list_decisions)
policies.command("simulate")(simulate_policy)

clusters.command("register")(register_cluster)
clusters.command("list")(list_clusters)
clusters.command("remove")(remove_cluster)

catalogs.command("upgrade")(upgrade_catalog)
catalogs.command("rebuild")(rebuild_catalog)


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 1."""
    try:
        app()
    except StatecoreError as error:
        complain(error)
        sys.exit(1)
