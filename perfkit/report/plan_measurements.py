"""How a capacity plan was measured: the subjects of its page on rates, closed loops and queueing models."""

from perfkit.report.plan_front import front_table
from perfkit.report.plan_plots import gpu_figure, held_out_figure, latency_throughput_figure, rate_figure, throughput_figure
from perfkit.report.plan_subject import PlanPlot, PlanSubject
from perfkit.report.plan_tables import (
    configurations_table,
    fleets_table,
    held_out_table,
    laws_table,
    points_table,
    predictions_table,
    what_if_table,
)

_RATES = PlanSubject(
    "How it was measured",
    lambda plan: [configurations_table(plan), predictions_table(plan), points_table(plan), fleets_table(plan), front_table(plan)],
    {
        "rate": PlanPlot(
            "Response time against arrival rate",
            "Points are measurements, repetitions pooled. At hollow points the target did not keep up; they are not part of the fit. A new measurement "
            "after a restart lies within its band with a probability of 90 %. The grey stripe is the 90 % interval of the capacity. Curves end at the highest fitted rate.",
            rate_figure,
        ),
        "latency-throughput": PlanPlot(
            "Response time against throughput",
            "Measurements of open loops. Where the line turns upwards, more load adds waiting but no throughput.",
            latency_throughput_figure,
        ),
        "gpu": PlanPlot(
            "GPUs against arrival rate",
            "Means over the measured windows. Busy is the share of time in which a kernel ran, not the used share of the capacity. Energy is power ÷ inferences per second.",
            gpu_figure,
        ),
    },
)
_CLOSED_LOOPS = PlanSubject(
    "Closed loops: the scalability law, knee and bounds",
    lambda plan: [laws_table(plan)],
    {
        "throughput": PlanPlot(
            "Throughput against concurrency",
            "Closed loops. The curve is Gunther's universal scalability law, fitted to logarithms; it is dotted beyond the measurements, up to 1.5 times the largest "
            "concurrency. The tables say whether its peak was observed and whether the law applies.",
            throughput_figure,
        )
    },
)
_QUEUEING_MODELS = PlanSubject(
    "Queueing models on held-out points",
    lambda plan: [held_out_table(plan), what_if_table(plan)],
    {
        "held-out": PlanPlot(
            "Queueing models on held-out points",
            "Each model was fitted to the points up to 70 % of the capacity and predicts the others. A model with a point outside its dotted lines is rejected and not used.",
            held_out_figure,
        )
    },
)
MEASURED = (_RATES, _CLOSED_LOOPS, _QUEUEING_MODELS)
