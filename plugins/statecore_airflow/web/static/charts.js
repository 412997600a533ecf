// The charts of a job's page: Plotly's, in the page's colours. Times are UTC, as in logs.
import { byId, bytes, count, milliseconds, since, utc } from "./page.js";

const CONFIG = { displayModeBar: false, responsive: true };
const PHASES = { run: "run", commit: "commit", publish: "publish" };

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function axis() {
  return { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, fixedrange: true };
}

function layout(more) {
  return {
    height: 190,
    margin: { l: 56, r: 10, t: 18, b: 26 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
    hovermode: "x unified",
    showlegend: false,
    ...more,
  };
}

function overTime(series, title, more = {}) {
  const x0 = series.since_ms;
  const x1 = series.until_ms;
  const marks = series.marks.filter((mark) => mark.at_ms >= x0 && mark.at_ms <= x1);
  return layout({
    xaxis: { ...axis(), type: "date", range: [x0, x1], hoverformat: "%Y-%m-%d %H:%M:%S" },
    yaxis: { ...axis(), title: { text: title, font: { size: 11 } }, rangemode: "tozero" },
    shapes: marks.map((mark) => ({
      type: "line", xref: "x", yref: "paper", x0: mark.at_ms, x1: mark.at_ms, y0: 0, y1: 1,
      line: { color: colour(markColour(mark)), width: 1.5, dash: mark.kind.startsWith("rescale") ? "solid" : "dot" },
    })),
    annotations: marks.map((mark) => ({
      xref: "x", yref: "paper", x: mark.at_ms, y: 1, yanchor: "bottom", xanchor: "center", showarrow: false,
      text: escaped(mark.text), font: { size: 11, color: colour(markColour(mark)) },
      hovertext: escaped(`${mark.kind}, ${utc(mark.at_ms)}`),
    })),
    ...more,
  });
}

// Plotly takes a little HTML in texts.
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

const markColour = (mark) => (mark.kind.endsWith("failed") ? "bad" : mark.kind.startsWith("rescale") ? "mark" : "mark-2");

function line(series, values, name, more = {}) {
  return {
    x: series.at_ms, y: values, name, type: "scatter", mode: "lines+markers",
    line: { color: colour("series-1"), width: 2 }, marker: { size: 3, color: colour("series-1") },
    ...more,
  };
}

function show(id, traces, made, newest) {
  const chart = byId(id);
  let shown = chart.parentElement.querySelector(".newest");
  if (!shown) {
    shown = document.createElement("span");
    shown.className = "newest";
    chart.parentElement.querySelector("figcaption").append(shown);
  }
  shown.textContent = newest ?? "nothing known in this time";
  return Plotly.react(chart, traces, made, CONFIG);
}

const newestOf = (values) => values.findLast((value) => value !== null) ?? null;

function scaled(values, unitMs) {
  return values.map((value) => (value === null ? null : value / unitMs));
}

function timeUnit(values) {
  const longest = Math.max(0, ...values.filter((value) => value !== null));
  if (longest >= 3 * 3_600_000) return [3_600_000, "hours"];
  if (longest >= 3 * 60_000) return [60_000, "minutes"];
  return longest >= 3_000 ? [1_000, "seconds"] : [1, "ms"];
}

function backlogOf(series) {
  if (newestOf(series.backlog_records) !== null) return [series.backlog_records, "records", count];
  if (newestOf(series.backlog_files) !== null) return [series.backlog_files, "files", count];
  return [series.backlog_bytes, "bytes", bytes];
}

function worded(value, words) {
  return value === null ? null : words(value);
}

/** Draw all charts of a series; again with a newer one, what was zoomed or selected stays. */
export function drawSeries(series) {
  const rates = series.at_ms.length ? series.rows_per_second : [];
  show("rate", [line(series, rates, "rows/s")], overTime(series, "rows/s"), worded(newestOf(rates), (n) => `${count(n)} rows/s`));

  const [backlog, unit, words] = backlogOf(series);
  const inWords = (n) => (unit === "bytes" ? words(n) : `${words(n)} ${unit}`);
  show("backlog", [line(series, backlog, unit)], overTime(series, unit), worded(newestOf(backlog), inWords));

  const [lagMs, lagUnit] = timeUnit(series.event_time_lag_ms);
  const lags = scaled(series.event_time_lag_ms, lagMs);
  show("lag", [line(series, lags, lagUnit)], overTime(series, lagUnit), worded(newestOf(series.event_time_lag_ms), since));

  const [epochMs, epochUnit] = timeUnit(series.epoch_ms);
  const phases = Object.entries(PHASES).map(([phase, name], place) => ({
    x: series.at_ms, y: scaled(series.phases[phase], epochMs), name, type: "bar",
    width: series.step_ms, offset: 0, marker: { color: colour(`series-${place + 1}`), line: { width: 0 } },
  }));
  const stacked = {
    barmode: "stack", showlegend: true,
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1, yanchor: "top", bgcolor: colour("ground"), font: { size: 11 } },
  };
  show("epochs", phases, overTime(series, epochUnit, stacked), worded(newestOf(series.epoch_ms), milliseconds));

  const stairs = { line: { color: colour("series-1"), width: 2, shape: "hv" } };
  const whole = { ...axis(), rangemode: "tozero", tickformat: "d", title: { text: "subtasks", font: { size: 11 } } };
  const steps = overTime(series, "subtasks", { yaxis: whole });
  show("parallelism", [line(series, series.parallelism, "subtasks", stairs)], steps, worded(newestOf(series.parallelism), (n) => `${n} subtasks`));
}

/** Draw an operator's key groups as a strip, the borders of its subtasks in it. */
export function drawSpread(element, spread) {
  const groups = spread.max_parallelism;
  const middles = spread.rows.map((_, bin) => bin * spread.groups_per_bin + (spread.groups_per_bin - 1) / 2);
  const names = spread.rows.map((_, bin) => {
    const first = bin * spread.groups_per_bin;
    const last = Math.min(groups, first + spread.groups_per_bin) - 1;
    return first === last ? `key group ${first}` : `key groups ${first} to ${last}`;
  });
  const edges = [0, ...spread.borders, groups];
  const labelled = spread.rows_of_subtasks.length <= 32;
  const strip = {
    type: "heatmap", x: middles, y: [""], z: [spread.rows], text: [names], hovertemplate: "%{text}: %{z:,} rows<extra></extra>",
    zmin: 0, colorscale: [[0, colour("heat-0")], [1, colour("heat-1")]],
    colorbar: { thickness: 10, outlinewidth: 0, title: { text: "rows", side: "right", font: { size: 11 } } },
  };
  const made = layout({
    height: 120,
    margin: { l: 12, r: 10, t: 22, b: 26 },
    hovermode: "closest",
    xaxis: { ...axis(), range: [-0.5, groups - 0.5], showgrid: false, title: { text: "key group", font: { size: 11 }, standoff: 2 } },
    yaxis: { visible: false, fixedrange: true },
    shapes: spread.borders.map((border) => ({
      type: "line", xref: "x", yref: "paper", x0: border - 0.5, x1: border - 0.5, y0: -0.05, y1: 1.12,
      line: { color: colour("ink"), width: 1.5 },
    })),
    annotations: !labelled ? [] : spread.rows_of_subtasks.map((rows, subtask) => ({
      xref: "x", yref: "paper", x: (edges[subtask] + edges[subtask + 1] - 1) / 2, y: 1, yanchor: "bottom", showarrow: false,
      text: `subtask ${subtask}`, font: { size: 11 },
    })),
  });
  return Plotly.react(element, [strip], made, CONFIG);
}
