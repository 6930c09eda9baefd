"use strict";
// what the charts say: values and places as text, the data as uPlot wants it, ticks, and the ends of the axes
const chartValues = (() => {
  const number = (value) => {
    if (value == null || !isFinite(value)) return "–";
    return value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4 });
  };
  const withUnit = (value, unit) => number(value) + (unit && value != null ? (unit.startsWith("/") || unit === "%" ? "" : " ") + unit : "");
  const percentile = (x) => (100 * (1 - 1 / x)).toLocaleString("en-US", { maximumFractionDigits: Math.max(1, Math.ceil(Math.log10(x))) }) + "%";
  const DAY_MS = 86_400_000, date = (days) => new Date(days * DAY_MS).toISOString().slice(0, 10);
  const place = (chart, x) => {
    if (chart.x.scale === "date") return date(x);
    if (chart.x.is_percentile) return percentile(x);
    return (chart.x.ticks.find((tick) => tick[0] === x) ?? [x, withUnit(x, chart.x.unit)])[1];
  };

  // uPlot wants one ascending x for all series: each is sorted, and its ys are put beside the xs of all;
  // origins[line][i] is the line's own number of the value at i
  const aligned = (chart) => {
    if (!chart.lines.length) return { data: [[0]], origins: [] };
    const numbers = [];
    const data = uPlot.join(chart.lines.map((line) => {
      let last = -Infinity;
      const values = line.xs.map((x, i) => [x, line.ys[i], i]);
      if (!["line", "dashed", "steps"].includes(line.style)) values.sort((a, b) => a[0] - b[0]);
      for (const value of values) last = value[0] = value[0] > last ? value[0] : last + Math.max(Math.abs(last), 1e-9) * 1e-9;
      numbers.push(new Map(values.map((value) => [value[0], value[2]])));
      return [values.map((value) => value[0]), values.map((value) => value[1])];
    }));
    return { data, origins: numbers.map((own) => data[0].map((x) => own.get(x))) };
  };
  const REACH = 4; // as in chart.py: what is further from the values than this factor does not set the scale
  const withBeside = (axis, low, high, beside, levels) => {
    if (["linear", "date"].includes(axis.scale)) {
      const all = [low, high, ...beside, ...levels];
      return [Math.min(...all), Math.max(...all)];
    }
    const near = beside.map((one) => Math.min(Math.max(one, low / REACH), high * REACH));
    near.push(...levels.filter((one) => (one >= low / REACH && one <= high * REACH) || (axis.scale === "from zero" && one >= 0 && one < low)));
    return [Math.min(low, ...near), Math.max(high, ...near)];
  };
  const besideValues = (chart, origins, u, isX) => {
    const found = [], [from, to] = u.series[0].idxs ?? [0, u.data[0].length - 1];
    chart.lines.forEach((line, i) => {
      if (!u.series[i + 1].show || !(line.intervals.length || line.band.length)) return;
      for (let at = isX ? 0 : from; at <= (isX ? u.data[0].length - 1 : to); at++) {
        const own = origins[i][at];
        if (own === undefined) continue;
        if (line.intervals.length) found.push(...(line.intervals[own]?.slice(isX ? 0 : 2, isX ? 2 : 4) ?? []));
        if (line.band.length && !isX) found.push(...line.band[own]);
      }
    });
    return found.filter((one) => one != null);
  };
  const dateTicks = (low, high, most) => {
    const days = (high - low) / Math.max(most, 1), found = [];
    const step = [1, 2, 7, 14].find((one) => one >= days);
    if (step) {
      for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
      return found;
    }
    const months = [1, 2, 3, 6, 12, 24, 60, 120].find((one) => one * 30.4 >= days) ?? 1200, first = new Date(low * DAY_MS);
    for (let month = Math.ceil((first.getUTCFullYear() * 12 + first.getUTCMonth()) / months) * months; ; month += months) {
      const at = Date.UTC(Math.floor(month / 12), month % 12, 1) / DAY_MS;
      if (at > high) return found;
      if (at >= low) found.push(at);
    }
  };
  const logTicks = (low, high) => {
    const found = [];
    for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade++) {
      for (const step of [1, 2, 5]) {
        const tick = Number(`${step}e${decade}`);
        if (tick >= low && tick <= high) found.push(tick);
      }
    }
    if (found.length > 9) return found.filter((tick) => /^1/.test(tick.toExponential()));
    if (found.length > 2) return found;
    const round = (value) => Number(value.toPrecision(2));
    return [...new Set([0, 1, 2, 3].map((i) => round(low * (high / low) ** (i / 3))))].filter((tick) => tick >= low && tick <= high);
  };
  const heatRangeOf = (chart) => {
    if (!chart.heat?.columns.length) return null;
    const per = chart.heat.bins_per_decade;
    let low = Infinity, high = -Infinity;
    for (const column of chart.heat.columns) {
      low = Math.min(low, column.first_bin);
      high = Math.max(high, column.first_bin + column.counts.length);
    }
    return [10 ** (low / per), 10 ** (high / per)];
  };

  const NEAR = ["dots", "hollow", "large", "path"]; // styles whose values are shown only close to the cursor
  const describe = (chart) => {
    const parts = chart.lines.map((line) => {
      const values = line.ys.filter((y) => y != null);
      if (!values.length) return `${line.name}: no values`;
      const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
      return `${line.name}: ${number(low)} to ${withUnit(high, chart.y.unit)}`;
    });
    return `${chart.title}. ${chart.y.label} against ${chart.x.label}. ${parts.join("; ")}.`;
  };
  const valueText = (chart, data, origins, i, at) => {
    const line = chart.lines[i], own = origins[i][at], label = line.labels[own];
    const [low, high] = line.intervals[own]?.slice(2) ?? line.band[own] ?? [];
    const interval = low == null || low === high ? "" : ` (${number(low)} to ${number(high)})`;
    return `${withUnit(data[i + 1][at], chart.y.unit)}${interval}${label ? `, ${label}` : ""}`;
  };

  return { NEAR, aligned, besideValues, date, dateTicks, describe, heatRangeOf, logTicks, number, place, valueText, withBeside };
})();
