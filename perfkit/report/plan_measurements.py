"""How a capacity plan was measured: the subjects of its page on rates, closed loops and queueing models."""

from perfkit.plan.queueing import MEAN_AT_MOST, P99_AT_MOST
from perfkit.report.plan_charts import gpu_group, held_out_group, latency_throughput_group, rate_group, throughput_group
from perfkit.report.plan_front import front_table
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
            rate_group,
        ),
        "latency-throughput": PlanPlot(
            "Response time against throughput",
            "Measurements of open loops. Where the line turns upwards, more load adds waiting but no throughput.",
            latency_throughput_group,
        ),
        "gpu": PlanPlot(
            "GPUs against arrival rate",
            "Means over the measured windows. Busy is the share of time in which a kernel ran, not the used share of the capacity. Energy is power ÷ inferences per second.",
            gpu_group,
        ),
    },
)
_CLOSED_LOOPS = PlanSubject(
    "Closed loops: the scalability law, knee and bounds",
    lambda plan: [laws_table(plan)],
    {
        "throughput": PlanPlot(
            "Throughput against concurrency",
            "Closed loops. The curve is Gunther's universal scalability law, fitted to logarithms; it is dashed beyond the measurements, up to 1.5 times the largest "
            "concurrency. The tables say whether its peak was observed and whether the law applies.",
            throughput_group,
        )
    },
)
_QUEUEING_MODELS = PlanSubject(
    "Queueing models on held-out points",
    lambda plan: [held_out_table(plan), what_if_table(plan)],
    {
        "held-out": PlanPlot(
            "Queueing models on held-out points",
            "Each model was fitted to the points up to 70 % of the capacity and predicts the others. Dashed lines: the error that is allowed, 10 % of a mean and 15 % of a p99. "
            "A model is rejected if its errors exceed them by more than the scatter of the measurements explains, and not validated if the scatter is too large to tell, or an error "
            f"exceeds {100 * MEAN_AT_MOST:.0f} % of a mean or {100 * P99_AT_MOST:.0f} % of a p99. Neither is used; the note below the table gives the figures.",
            held_out_group,
        )
    },
)
MEASURED = (_RATES, _CLOSED_LOOPS, _QUEUEING_MODELS)
