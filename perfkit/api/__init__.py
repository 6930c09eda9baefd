"""The Python interface: measure a scenario, and look at results as frames, axes and reports; docs/python.md describes it."""

from perfkit.api.measurement import arun, load_scenario, run
from perfkit.api.result import Result, load_result
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario

__all__ = ["LoadedScenario", "Result", "Scenario", "arun", "load_result", "load_scenario", "run"]
