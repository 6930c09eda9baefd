"""Student's t, the binomial and the normal distribution, without SciPy.

To import `scipy.special` takes 0.2 s and 14 MiB, which every run would pay between its last answer and its figures. The first two rest on
the regularized incomplete beta function I_x(a, b), accurate also for millions of trials.
"""

import functools
import math
import statistics

_MOST_TERMS, _MOST_STEPS = 1_000_000, 200
_SMALLEST, _PRECISION = 1e-300, 1e-15
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


@functools.cache
def student_t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The t with P[T <= t] = probability.

    Raises ValueError for a probability outside (0, 1) and for less than one degree of freedom.
    """
    if not 0 < probability < 1 or degrees_of_freedom < 1:
        raise ValueError(f"Student's t has no quantile for probability {probability} and {degrees_of_freedom} degrees of freedom")
    outside = 2 * min(probability, 1 - probability)
    share = _inverse_incomplete_beta(degrees_of_freedom / 2, 0.5, outside)  # degrees of freedom / (t² + degrees of freedom)
    if share < 0.5:
        ratio = (1 - share) / share
    else:  # 1 - share has more digits if it is computed by itself
        rest = _inverse_incomplete_beta(0.5, degrees_of_freedom / 2, 1 - outside)
        ratio = rest / (1 - rest)
    return math.copysign(math.sqrt(degrees_of_freedom * ratio), probability - 0.5)


def binomial_cdf(successes: int, trials: int, probability: float) -> float:
    """P[X <= successes] for X successes in independent trials of equal probability."""
    return _incomplete_beta(trials - successes, successes + 1, 1 - probability, probability) if successes < trials else 1.0


def binomial_limits(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a probability from independent trials; (0, 1) without trials.

    Source: C. J. Clopper & E. S. Pearson, Biometrika 26 (1934). Its coverage is at least the confidence, whatever the probability.
    Numbers that are not whole are effective numbers of correlated trials; the interval is then approximate.
    """
    tail = (1 - confidence) / 2
    low = _inverse_incomplete_beta(successes, trials - successes + 1, tail) if successes else 0.0
    high = _inverse_incomplete_beta(successes + 1, trials - successes, 1 - tail) if successes < trials else 1.0
    return low, high


def score_limits(share: float, trials: float, deviations: float) -> tuple[float, float]:
    """The interval of a probability from the share of successes in a number of trials, which need not be whole; in [0, 1].

    E. B. Wilson's score interval with a continuity correction, which is close to the exact one (R. G. Newcombe, Statistics in Medicine 17,
    1998, method 4). `deviations` is its half-width in standard errors, a quantile of the normal distribution or of Student's t.
    """
    square, failures = deviations * deviations, trials * (1 - share)
    below = math.sqrt(max(square - 2 - 1 / trials + 4 * share * (failures + 1), 0.0))
    above = math.sqrt(max(square + 2 - 1 / trials + 4 * share * (failures - 1), 0.0))
    middle, scale = 2 * trials * share + square, 2 * (trials + square)
    return max((middle - 1 - deviations * below) / scale, 0.0), min((middle + 1 + deviations * above) / scale, 1.0)


def normal_quantile(probability: float) -> float:
    """The z with P[Z <= z] = probability for a standard normal Z; raises ValueError for a probability outside (0, 1)."""
    return statistics.NormalDist().inv_cdf(probability)


def _incomplete_beta(a: float, b: float, x: float, complement: float | None = None) -> float:
    """I_x(a, b) for positive a and b; `complement` is 1 - x, where that is known more precisely than by subtraction.

    Source: A. DiDonato & A. Morris, Algorithm 708 (1992): a continued fraction whose terms are positive, here by the modified Lentz method.
    """
    y = 1.0 - x if complement is None else complement
    if x <= 0.0:
        return 0.0
    if y <= 0.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other tail converges fast
        return 1.0 - _lower_tail(b, a, y, x)
    return _lower_tail(a, b, x, y)


def _inverse_incomplete_beta(a: float, b: float, probability: float) -> float:
    """The x with I_x(a, b) = probability, by Newton's method on logarithms, within an interval that shrinks."""
    if probability <= 0.0 or probability >= 1.0:
        return min(max(probability, 0.0), 1.0)
    if _incomplete_beta(a, b, 0.5) < probability:  # a root near 1 would lose the digits of its distance from 1
        return 1.0 - _lower_root(b, a, 1.0 - probability)
    return _lower_root(a, b, probability)


def _lower_root(a: float, b: float, probability: float) -> float:
    """The same where it is about a half at most."""
    low, high, place = math.log(_SMALLEST), math.log(0.51), math.log(min(a / (a + b), 0.4))
    for _ in range(_MOST_STEPS):
        x = math.exp(place)
        share = _incomplete_beta(a, b, x)
        low, high = (place, high) if share < probability else (low, place)
        slope = _density(a, b, x, 1.0 - x) / (1.0 - x)  # of I_x against log x
        step = share * math.log(probability / share) / slope if share > 0.0 and slope > 0.0 else math.inf
        following = place + step if low < place + step < high else (low + high) / 2
        if abs(following - place) <= 4 * _PRECISION * max(abs(place), 1.0):
            return math.exp(following)
        place = following
    return math.exp(place)


def _lower_tail(a: float, b: float, x: float, y: float) -> float:
    below_mean = _below_mean(a, b, x, y)
    c = fraction = _nonzero(a * (below_mean + 1) / (a + 1))
    d = 0.0
    for term in range(1, _MOST_TERMS):
        twice = a + 2 * term
        numerator = term * (a + term - 1) / (twice - 1) * ((a + b + term - 1) / (twice - 1)) * (b - term) * x * x
        denominator = term + term * (b - term) * x / (twice - 1) + (a + term) * (below_mean + 1 + term * (2 - x)) / (twice + 1)
        d = 1.0 / _nonzero(denominator + numerator * d)
        c = _nonzero(denominator + numerator / c)
        fraction *= c * d
        if abs(c * d - 1.0) < _PRECISION:
            break
    return _density(a, b, x, y) / fraction


def _below_mean(a: float, b: float, x: float, y: float) -> float:
    """The value of a - (a + b) x, from the one of x and y = 1 - x that has more digits."""
    return a - (a + b) * x if x <= y else (a + b) * y - b


def _nonzero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST


def _density(a: float, b: float, x: float, y: float) -> float:
    """The value of x^a y^b / B(a, b), by saddle-point expansion: differences of large log-gammas would lose their digits.

    Source: C. Loader, Fast and Accurate Computation of Binomial Probabilities (2000).
    """
    n, difference = a + b, _below_mean(a, b, x, y)
    deviance = _deviance(n * x, difference) + _deviance(n * y, -difference)
    exponent = _stirling_error(n) - _stirling_error(a) - _stirling_error(b) - deviance
    return math.exp(exponent) * math.sqrt(a * b / (2 * math.pi * n))


def _stirling_error(z: float) -> float:
    """The logarithm of Γ(z + 1) less Stirling's approximation of it."""
    if z < 16:
        return math.lgamma(z + 1) - (z + 0.5) * math.log(z) + z - _HALF_LOG_2_PI
    square = z * z
    return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * square)) / square) / square) / square) / z


def _deviance(mean: float, difference: float) -> float:
    """The value of x log(x / mean) + mean - x, where `difference` is x - mean; log1p keeps its digits where both are close."""
    relative = max(difference / mean, _SMALLEST - 1.0)
    return mean * ((1.0 + relative) * math.log1p(relative) - relative) if relative > -1.0 else mean
