"""Models on trial: which points are held out, and who is rejected."""

from perfkit.stats.validation import HeldOut, judge_model, split_points


def test_higher_points_and_one_inside_are_held_out_in_whatever_order():
    split = split_points([10, 20, 30, 40, 80, 90, 95], 100.0)
    assert (split.fitted, split.held_out, split.sentence) == ((0, 1, 3), (2, 4, 5, 6), "")

    split = split_points([95, 10, 80, 20, 90, 30], 100.0)
    assert (split.fitted, split.held_out) == ((1, 5), (0, 2, 3, 4))


def test_too_few_points_are_named():
    assert split_points([10, 20, 80, 90], 100.0).sentence == (
        "Validation needs at least 3 rates above 70% of the capacity at which the target kept up (found 2) and at least 3 below (found 2)."
    )


def held(figure, *errors):
    return [HeldOut(float(place), figure, 100.0, 100.0 * (1 + error)) for place, error in enumerate(errors)]


def test_a_model_within_both_limits_is_accepted():
    verdict = judge_model("it", [*held("mean", 0.05, -0.10), *held("p99", -0.15, 0.02)])
    assert verdict.is_accepted
    figures = "mean off by up to 10% (allowed 10%), p99 off by up to 15% (allowed 15%)"
    assert verdict.sentence == f"Model accepted: it, {figures} on points it was not fitted to."


def test_a_model_beyond_either_limit_or_without_points_is_rejected():
    assert not judge_model("it", held("mean", 0.11)).is_accepted
    assert not judge_model("it", [*held("mean", 0.0), *held("p99", -0.16)]).is_accepted
    assert judge_model("it", held("mean", 0.11)).sentence.startswith("Model rejected: it, mean off by up to 11%")

    assert judge_model("it", []).sentence == "Model rejected: it has no held-out points."
