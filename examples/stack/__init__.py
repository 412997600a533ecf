"""Starts and stops the real parts that the demo and the tests run on."""

from examples.stack.airflow_client import AirflowClient, DagRun, TaskRun
from examples.stack.processes import StackError
from examples.stack.stack import Stack

__all__ = ["AirflowClient", "DagRun", "Stack", "StackError", "TaskRun"]
