"use strict";
(() => {
  const groups = JSON.parse(document.getElementById("chart-data").textContent);
  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  let isPrinting = false;
  const plots = [];
  const shade = () => (darkScheme.matches && !isPrinting ? 1 : 0);
  const colour = (pair) => pair[shade()];
  const RIGHT_PX = 20; // beside the plot, for half of the last tick's text
  const BACK = ["#ffffff", "#15191e"], GRID = ["#e4e7ea", "#2b323a"], TEXT = ["#57606a", "#9aa4af"], BAD = ["#b3261e", "#ff9a92"], HEAT = ["0, 90, 150", "95, 185, 240"];

  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
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
        if (line.intervals.length) found.push(...line.intervals[own].slice(isX ? 0 : 2, isX ? 2 : 4));
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
    const ends = Array(chart.heat ? 2 : 3).fill(-Infinity); // of the rows at the top
    const named = [
      ...chart.spans.filter((one) => !one.is_bad && one.label && x(one.high) > bbox.left && x(one.low) < right)
        .map((one) => [Math.max(x(one.low), bbox.left), one.label, TEXT[shade()]]),
      ...chart.levels.filter((one) => one.is_vertical && one.label && x(one.value) >= bbox.left - 1 && x(one.value) <= right + 1)
        .map((one) => [x(one.value), one.label, colour(one.colour)]),
    ];
    for (const [at, text, ink] of named.sort((a, b) => a[0] - b[0])) {
      const width = ctx.measureText(text).width;
      const left = at + gap + width > right ? at - gap - width : at + gap;
      const row = ends.findIndex((end) => left >= end);
      if (row < 0 || left < bbox.left) continue;
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
      line.intervals.forEach(([left, right, low, high], j) => {
        if (line.ys[j] == null) return;
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
    if (line.style === "dashed") made.dash = [6, 4];
    if (line.style === "steps") made.paths = uPlot.paths.stepped({ align: 1 });
    if (NEAR.includes(line.style)) {
      made.paths = () => null;
      made.points = { show: true, size: { hollow: 9, large: 12 }[line.style] ?? 6, width: 1.6 };
      made.points.fill = () => (line.style === "hollow" ? BACK[shade()] : colour(line.colour));
    }
    return made;
  };

  const zoom = (group, low, high) => {
    for (const u of group.plots) {
      u.zoomed = low != null;
      if (low == null) u.setData(u.data, true); else u.setScale("x", { min: low, max: high });
    }
    group.reset.hidden = low == null;
    if (group.choice) group.choice.value = String(group.windows.findIndex((one) => one.low === low && one.high === high));
  };
  const zoomBy = (group, u, factor) => {
    const { min, max } = u.scales.x, isLog = u.scales.x.distr === 3;
    const to = isLog ? Math.log : (v) => v, back = isLog ? Math.exp : (v) => v;
    const centre = u.cursor.left >= 0 ? u.posToVal(u.cursor.left, "x") : back((to(min) + to(max)) / 2);
    const low = back(to(centre) - (to(centre) - to(min)) * factor), high = back(to(centre) + (to(max) - to(centre)) * factor);
    if (u.data[0].filter((x) => x >= low && x <= high).length > 1) zoom(group, low, high);
  };

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
  const valuesTable = (chart, data, origins) => {
    const table = element("table"), head = element("tr"), body = element("tbody"), MOST = 400;
    for (const text of [chart.x.label, ...chart.lines.map((line) => line.name)]) head.append(element("th", { scope: "col" }, text));
    const filled = data[0].map((_, i) => i).filter((i) => data.slice(1).some((ys) => ys[i] != null));
    const step = Math.ceil(filled.length / MOST);
    filled.filter((_, i) => i % step === 0).forEach((i) => {
      const row = element("tr");
      row.append(element("td", { class: "figure" }, place(chart, data[0][i])));
      data.slice(1).forEach((_, s) => row.append(element("td", { class: "figure" }, valueText(chart, data, origins, s, i))));
      body.append(row);
    });
    const thead = element("thead");
    thead.append(head);
    table.append(thead, body);
    return table;
  };

  const drawChart = (chart, group, holder) => {
    const box = element("div", { class: "chart" }), { data, origins } = aligned(chart);
    const title = element("p", { class: "chart-title" }, chart.title);
    if (chart.y.unit) title.append(element("span", { class: "muted" }, `, ${chart.y.unit}`));
    const name = `${chart.title}: arrow keys read the values, plus and minus zoom, Escape shows all`;
    const canvas = element("div", { class: "canvas", tabindex: "0", role: "application", "aria-label": name });
    const spoken = element("p", { class: "unseen", "aria-live": "polite" });
    const legend = element("div", { class: "legend" });
    const where = element("span", { class: "where" });
    const buttons = chart.lines.map((line, i) => {
      const button = element("button", { type: "button", "aria-pressed": "true", title: "show or hide" });
      const swatch = element("span", { class: `swatch ${line.style}`, "aria-hidden": "true" });
      const value = element("span", { class: "value" });
      button.append(swatch, element("span", {}, line.name), value);
      button.addEventListener("click", () => {
        const show = !u.series[i + 1].show;
        u.setSeries(i + 1, { show });
        button.setAttribute("aria-pressed", String(show));
      });
      return { button, swatch, value };
    });
    legend.append(where, ...buttons.map((one) => one.button));
    box.append(title, legend, canvas, spoken);
    if (!group.is_synchronised || group.plots.length === group.charts.length - 1) box.append(element("p", { class: "x-label muted" }, chart.x.label));
    holder.append(box);

    const width = () => Math.max(canvas.clientWidth, 200);
    const format = (value) => number(value);
    const u = new uPlot({
      width: width(), height: chart.height_px,
      legend: { show: false },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { zoom(group, null); return null; } },
        points: { size: 8 },
        hover: {
          prox: (u, i, index, x) => {
            const { style, xs } = chart.lines[i - 1];
            return NEAR.includes(style) || x < xs[0] || x > xs[xs.length - 1] ? 14 : null;
          },
        },
        ...(group.is_synchronised ? { sync: { key: group.key, scales: ["x", null] } } : {}),
      },
      scales: { x: scaleOf(chart, origins, true), y: scaleOf(chart, origins, false, heatRangeOf(chart)) },
      axes: [axisOf(chart.x, true, format), axisOf(chart.y, false, format)],
      series: [{}, ...chart.lines.map(seriesOf)],
      padding: [8, RIGHT_PX, 0, 0],
      hooks: {
        drawAxes: [drawBehind(chart)],
        draw: [drawPaths(chart), drawNames(chart)],
        setSelect: [() => {
          if (u.select.width > 4) zoom(group, u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        }],
        setCursor: [() => {
          const index = u.cursor.idx;
          where.textContent = index == null ? "" : `${place(chart, data[0][index])}:`;
          buttons.forEach((one, i) => {
            const own = u.cursor.idxs?.[i + 1];
            one.value.textContent = index == null || own == null ? "" : ` ${valueText(chart, data, origins, i, own)}`;
          });
        }],
      },
    }, data, canvas);
    u.root.querySelector("canvas").setAttribute("role", "img");
    u.root.querySelector("canvas").setAttribute("aria-label", describe(chart));
    u.paint = () => {
      buttons.forEach((one, i) => one.swatch.style.setProperty("--swatch", colour(chart.lines[i].colour)));
      u.redraw(false, true);
    };
    u.resize = () => u.setSize({ width: width(), height: chart.height_px });
    buttons.forEach((one, i) => one.swatch.style.setProperty("--swatch", colour(chart.lines[i].colour)));
    new ResizeObserver(() => { if (Math.abs(width() - u.width) > 1) u.resize(); }).observe(canvas);
    canvas.addEventListener("keydown", (event) => {
      const filled = data[0].map((_, i) => i).filter((i) => data.slice(1).some((ys, s) => ys[i] != null && u.series[s + 1].show));
      const shown = filled.filter((i) => data[0][i] >= u.scales.x.min && data[0][i] <= u.scales.x.max);
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (step !== undefined && shown.length) {
        const now = u.cursor.idx == null ? -1 : shown.indexOf(u.cursor.idx);
        const next = shown[Math.max(0, Math.min(shown.length - 1, now + step))];
        const moved = group.is_synchronised ? group.plots : [u];
        for (const one of moved) one.setCursor({ left: one.valToPos(data[0][next], "x"), top: one.over.clientHeight / 2 });
        const values = buttons.map((one, i) => (u.series[i + 1].show && one.value.textContent ? `${chart.lines[i].name}${one.value.textContent}` : ""));
        spoken.textContent = `${where.textContent} ${values.filter(Boolean).join(", ")}`;
      } else if (event.key === "+" || event.key === "=") zoomBy(group, u, 0.5);
      else if (event.key === "-") zoomBy(group, u, 2);
      else if (event.key === "Escape") {
        zoom(group, null);
        for (const one of group.plots) one.setCursor({ left: -10, top: -10 });
      }
      else return;
      event.preventDefault();
    });
    const details = element("details", { class: "values" });
    details.append(element("summary", {}, `Values of ${chart.title}`));
    details.addEventListener("toggle", () => {
      if (!details.open || details.querySelector("table")) return;
      const wide = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": `Values of ${chart.title}` });
      wide.append(valuesTable(chart, data, origins));
      details.append(wide);
    });
    box.append(details);
    group.plots.push(u);
    plots.push(u);
  };

  groups.forEach((group, index) => {
    const holder = document.getElementById(`charts-${index}`);
    Object.assign(group, { plots: [], key: `group-${index}` });
    const tools = element("div", { class: "tools" });
    group.reset = element("button", { type: "button" }, "Show all");
    group.reset.hidden = true;
    group.reset.addEventListener("click", () => zoom(group, null));
    if (group.windows.length) {
      const label = element("label", {}, "Load point: ");
      group.choice = element("select");
      group.choice.append(element("option", { value: "-1" }, "all"));
      group.windows.forEach((one, i) => group.choice.append(element("option", { value: i }, one.label + (one.is_bad ? " (not valid)" : ""))));
      group.choice.addEventListener("change", () => {
        const one = group.windows[group.choice.value];
        if (one) zoom(group, one.low, one.high); else zoom(group, null);
      });
      label.append(group.choice);
      tools.append(label);
    }
    tools.append(element("span", { class: "muted hint" }, "Drag to zoom, double-click to show all; the names show and hide lines."), group.reset);
    holder.before(tools);
    holder.classList.add(`columns-${Math.min(group.columns, group.charts.length, 3)}`);
    for (const chart of group.charts) drawChart(chart, group, holder);
  });

  const paint = () => plots.forEach((u) => u.paint());
  darkScheme.addEventListener("change", paint);
  addEventListener("beforeprint", () => { isPrinting = true; plots.forEach((u) => u.resize()); paint(); });
  addEventListener("afterprint", () => { isPrinting = false; plots.forEach((u) => u.resize()); paint(); });
  document.documentElement.dataset.charts = String(plots.length);
})();
