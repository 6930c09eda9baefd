"use strict";
// how the charts look: colours by scheme, axes and lines for uPlot, and what perfkit draws itself on their canvas
const chartDrawing = (() => {
  const { NEAR, besideValues, date, dateTicks, logTicks, withBeside } = chartValues;
  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  const shade = () => (darkScheme.matches ? 1 : 0);
  const colour = (pair) => pair[shade()];
  const RIGHT_PX = 20; // beside the plot, for half of the last tick's text
  const BACK = ["#ffffff", "#15191e"], GRID = ["#e4e7ea", "#2b323a"], TEXT = ["#57606a", "#9aa4af"], BAD = ["#b3261e", "#ff9a92"], HEAT = ["0, 90, 150", "95, 185, 240"];


  const scaleOf = (chart, origins, isX, heatRange, axis = isX ? chart.x : chart.y) => ({
    time: false,
    distr: axis.scale === "log" ? 3 : 1,
    range: (u, min, max) => {
      if (isX && u.zoomed) return [min, max];
      if (min == null || max == null) { [min, max] = heatRange ?? [axis.scale === "log" ? 1 : 0, axis.scale === "log" ? 10 : 1]; }
      else [min, max] = withBeside(axis, min, max, besideValues(chart, origins, u, isX), isX ? [] : chart.levels.filter((one) => !one.is_vertical).map((one) => one.value));
      if (heatRange) { min = Math.min(min, heatRange[0]); max = Math.max(max, heatRange[1]); }
      if (axis.scale === "log") {
        const space = isX ? 1.08 : 1.15;
        return [axis.low ?? min / space, axis.high ?? max * space];
      }
      const space = isX ? 0 : 0.08;
      if (axis.scale === "linear" || axis.scale === "date") return [axis.low ?? min - space * (max - min || 1), axis.high ?? max + space * (max - min || 1)];
      return [axis.low ?? Math.min(0, min), (isX && axis.high) || Math.max(max * (1 + (isX ? 0.04 : space)), axis.high ?? 0) || 1];
    },
  });
  const WHOLE_STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((ten) => [1, 2, 5].map((one) => one * ten));
  const axisOf = (axis, isX, format) => ({
    stroke: () => TEXT[shade()],
    grid: { stroke: () => GRID[shade()], width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
    size: isX ? 28 : 58,
    gap: 4,
    space: isX ? 64 : 30,
    ...(axis.is_whole ? { incrs: WHOLE_STEPS } : {}),
    ...(axis.scale === "date" ? { splits: (u, i, low, high) => dateTicks(low, high, u.bbox.width / uPlot.pxRatio / 90) } : {}),
    ...(axis.ticks.length
      ? { splits: (u, i, low, high) => axis.ticks.map((tick) => tick[0]).filter((tick) => tick >= low && tick <= high) }
      : axis.scale === "log" ? { splits: (u, i, low, high) => logTicks(low, high) } : {}),
    filter: (u, splits) => splits,
    values: (u, splits) => {
      if (!axis.ticks.length && axis.scale !== "date") return splits.map(format);
      const text = (split) => (axis.scale === "date" ? date(split) : (axis.ticks.find((tick) => tick[0] === split) ?? [0, ""])[1]);
      if (!isX) return splits.map(text);
      let edge = -Infinity;
      return splits.map((split) => {
        const at = u.valToPos(split, "x"), half = 3.6 * text(split).length + 4;
        if (at - half < edge || at + half > u.bbox.width / uPlot.pxRatio + RIGHT_PX + 4) return "";
        edge = at + half;
        return text(split);
      });
    },
  });
  const drawBehind = (chart) => (u) => {
    const { ctx, bbox } = u;
    const x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const span of chart.spans) {
      ctx.globalAlpha = 0.13;
      ctx.fillStyle = span.is_bad ? BAD[shade()] : TEXT[shade()];
      ctx.fillRect(x(span.low), bbox.top, x(span.high) - x(span.low), bbox.height);
    }
    if (chart.heat) {
      const per = chart.heat.bins_per_decade;
      for (const column of chart.heat.columns) {
        const left = x(column.low), width = Math.max(x(column.high) - left, 1);
        if (left > bbox.left + bbox.width || left + width < bbox.left) continue;
        const total = column.counts.reduce((sum, count) => sum + count, 0);
        column.counts.forEach((count, i) => {
          if (!count) return;
          const top = y(10 ** ((column.first_bin + i + 1) / per)), bottom = y(10 ** ((column.first_bin + i) / per));
          ctx.globalAlpha = 0.1 + 0.65 * Math.sqrt(count / total);
          ctx.fillStyle = `rgb(${HEAT[shade()]})`;
          ctx.fillRect(left, top, width, bottom - top);
        });
      }
    }
    ctx.globalAlpha = 0.16;
    chart.lines.forEach((line, i) => {
      if (!line.band.length || !u.series[i + 1].show) return;
      ctx.fillStyle = colour(line.colour);
      ctx.beginPath();
      line.band.forEach(([, high], j) => ctx.lineTo(x(line.xs[j]), y(high)));
      for (let j = line.band.length - 1; j >= 0; j--) ctx.lineTo(x(line.xs[j]), y(line.band[j][0]));
      ctx.fill();
    });
    ctx.globalAlpha = 1;
    const ratio = uPlot.pxRatio;
    for (const level of chart.levels) {
      ctx.strokeStyle = colour(level.colour);
      ctx.lineWidth = ratio;
      ctx.setLineDash(level.is_vertical ? [2 * ratio, 3 * ratio] : [6 * ratio, 4 * ratio]);
      ctx.beginPath();
      const at = level.is_vertical ? x(level.value) : y(level.value);
      if (level.is_vertical) { ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); }
      else { ctx.moveTo(bbox.left, at); ctx.lineTo(bbox.left + bbox.width, at); }
      ctx.stroke();
    }
    ctx.restore();
  };
  // the names of spans and levels, on the background's colour so that lines do not cross them; without room, a name is left out
  const drawNames = (chart) => (u) => {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio, gap = 4 * ratio, high = 13 * ratio;
    const x = (value) => u.valToPos(value, "x", true), y = (value) => u.valToPos(value, "y", true);
    const right = bbox.left + bbox.width, bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    ctx.lineWidth = 3 * ratio;
    ctx.lineJoin = "round";
    ctx.strokeStyle = BACK[shade()];
    ctx.setLineDash([]);
    const write = (text, left, top, ink) => {
      ctx.fillStyle = ink;
      if (!chart.heat) ctx.strokeText(text, left, top);
      ctx.fillText(text, left, top);
    };
    const ends = Array(3).fill(-Infinity); // of the rows at the top; in a heat map, the first is for levels and the others for spans
    const named = [
      ...chart.spans.filter((one) => !one.is_bad && one.label && x(one.high) > bbox.left && x(one.low) < right)
        .map((one) => [Math.max(x(one.low), bbox.left), one.label, TEXT[shade()], chart.heat ? [1, 2] : [0, 1, 2]]),
      ...chart.levels.filter((one) => one.is_vertical && one.label && x(one.value) >= bbox.left - 1 && x(one.value) <= right + 1)
        .map((one) => [x(one.value), one.label, colour(one.colour), chart.heat ? [0] : [0, 1, 2]]),
    ];
    for (const [at, text, ink, rows] of named.sort((a, b) => a[0] - b[0])) {
      const width = ctx.measureText(text).width;
      const left = at + gap + width > right ? at - gap - width : at + gap;
      const row = rows.find((one) => left >= ends[one]);
      if (row === undefined || left < bbox.left) continue;
      write(text, left, bbox.top + 2 * ratio + row * high, ink);
      ends[row] = left + width + 2 * gap;
    }
    const places = chart.lines.flatMap((line, i) => (u.series[i + 1].show ? line.xs.map((one, j) => [x(one), line.ys[j] == null ? NaN : y(line.ys[j])]) : []));
    const taken = [];
    for (const level of chart.levels) {
      const at = y(level.value);
      if (level.is_vertical || !level.label || at < bbox.top - 1 || at > bottom + 1) continue;
      const width = ctx.measureText(level.label).width;
      const crossed = ([left, top]) => places.filter(([a, b]) => a > left - gap && a < left + width + gap && b > top && b < top + high).length;
      const spots = [right - width - gap, bbox.left + gap].flatMap((left) => [[left, at + 3 * ratio], [left, at - high]])
        .filter(([left, top]) => top >= bbox.top && top + high <= bottom && taken.every(([a, b]) => Math.abs(b - top) >= high || Math.abs(a - left) > width));
      if (!spots.length) continue;
      const spot = spots.reduce((best, one) => (crossed(one) < crossed(best) ? one : best));
      taken.push(spot);
      write(level.label, ...spot, colour(level.colour));
    }
    ctx.restore();
  };
  const drawPaths = (chart) => (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    chart.lines.forEach((line, i) => {
      if (!u.series[i + 1].show) return;
      line.intervals.forEach((interval, j) => {
        if (interval == null || line.ys[j] == null) return;
        const [left, right, low, high] = interval;
        ctx.strokeStyle = colour(line.colour);
        ctx.lineWidth = uPlot.pxRatio;
        ctx.setLineDash([]);
        ctx.globalAlpha = 0.6;
        const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
        ctx.beginPath();
        ctx.moveTo(...at(left, line.ys[j]));
        ctx.lineTo(...at(right, line.ys[j]));
        ctx.moveTo(...at(line.xs[j], low));
        ctx.lineTo(...at(line.xs[j], high));
        ctx.stroke();
        ctx.globalAlpha = 1;
      });
      if (line.style !== "path") return;
      ctx.strokeStyle = colour(line.colour);
      ctx.lineWidth = 1.6 * uPlot.pxRatio;
      ctx.setLineDash([]);
      ctx.beginPath();
      let isOn = false;
      line.xs.forEach((x, j) => {
        if (line.ys[j] == null) { isOn = false; return; }
        const at = [u.valToPos(x, "x", true), u.valToPos(line.ys[j], "y", true)];
        if (isOn) ctx.lineTo(...at); else ctx.moveTo(...at);
        isOn = true;
      });
      ctx.stroke();
    });
    ctx.restore();
  };

  const seriesOf = (line) => {
    const made = { label: line.name, stroke: () => colour(line.colour), width: 1.6, pxAlign: 0, points: { size: 5, fill: () => colour(line.colour) } };
    if (line.xs.length > 40 && !line.ys.includes(null)) made.points = { show: false }; // a curve
    if (line.style === "dashed") made.dash = [6, 4];
    if (line.style === "steps") made.paths = uPlot.paths.stepped({ align: 1 });
    if (NEAR.includes(line.style)) {
      made.paths = () => null;
      made.points = { show: true, size: { hollow: 9, large: 12 }[line.style] ?? 6, width: 1.6 };
      made.points.fill = () => (line.style === "hollow" ? BACK[shade()] : colour(line.colour));
    }
    return made;
  };

  return { RIGHT_PX, axisOf, colour, darkScheme, drawBehind, drawNames, drawPaths, scaleOf, seriesOf };
})();
