"""The Python interface: measures scenarios, and shows results as data frames, plots and reports; see docs/how-to/python.md."""

from perfkit.api.measurement import arun, load_scenario, run
from perfkit.api.result import Result, load_result
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario

__all__ = ["LoadedScenario", "Result", "Scenario", "arun", "load_result", "load_scenario", "run"]
