"""``python -m examples.demo``: the whole demo on a real stack. The exit code is 0 only for an exact verdict."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.demo.feeder import load_flights
from examples.demo.folder_flow import FolderDemo
from examples.demo.job_demo import DemoError
from examples.demo.kafka_flow import KafkaDemo
from examples.demo.query_flow import QueryDemo
from stack.kafka import NO_JARS, has_jars
from stack.processes import StackError
from stack.quick_start import QUICK_START
from stack.stack import Stack
from statecore.errors import StatecoreError

REPO = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--run-dir", type=Path, default=REPO / ".run" / "demo", help="folder for all its files")
    parser.add_argument("--keep", action="store_true", help="keep the job running afterwards; make stop ends it")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--query", action="store_true", help="play it with a query of Spark's own")
    kind.add_argument("--kafka", action="store_true", help="play it with Kafka: flights and outputs in topics")
    parser.add_argument("--sabotage", action="store_true", help="delete a state file between stop and restart")
    arguments = parser.parse_args()
    if arguments.kafka and not has_jars():
        parser.exit(2, f"{NO_JARS}\n")
    # Spark's workers run this Python and bind to this machine's own address.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", QUICK_START)
    console = Console(highlight=False, soft_wrap=True)
    stack = Stack(arguments.run_dir)
    stack.stop()
    shutil.rmtree(arguments.run_dir, ignore_errors=True)
    try:
        played = QueryDemo if arguments.query else KafkaDemo if arguments.kafka else FolderDemo
        with played(stack, console) as demo:
            exact = demo.run(load_flights(), sabotage=arguments.sabotage)
            if arguments.keep:
                demo.go_on()
    except (DemoError, StackError, StatecoreError) as error:
        console.print(f"[bold red]failed[/]: {escape(str(error))}")
        exact = False
        if arguments.keep:
            console.print(f"The stack keeps running, with its logs in {escape(str(stack.logs))}; make stop ends it")
    finally:
        if not arguments.keep:
            stack.stop()
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
