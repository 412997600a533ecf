// The charts of a job's page, drawn with Plotly in the page's colours. Times are UTC, as in logs.
import { DAY_MS, byId, bytes, count, milliseconds, since, utc } from "./page.js";

const CONFIG = { displayModeBar: false, responsive: true, showTips: false, doubleClick: false };
const PHASES = ["read", "transfer", "work", "commit", "publish"];
const BRIDGED_MS = 60_000; // a longer gap in the data breaks the line
const LABEL_PX = 58;

/** Return a colour of the page's theme; a property itself is only the text of both themes' colours. */
function colour(name) {
  document.head.style.color = `var(--${name})`;
  return getComputedStyle(document.head).color;
}

function axis() {
  return { gridcolor: colour("line"), linecolor: colour("line"), zeroline: false, fixedrange: true };
}

/** What an axis of few things has beside: no line between 0 and 1. */
function countAxis(values) {
  const most = Math.max(0, ...values.filter((value) => value !== null));
  return most < 5 ? { dtick: 1, range: [0, most + 0.3] } : {};
}

function layout(more) {
  return {
    height: 190,
    margin: { l: 56, r: 14, t: 18, b: 24 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("ink") } },
    hovermode: "x unified",
    showlegend: false,
    ...more,
  };
}

function overTime(series, title, id, more = {}) {
  const x0 = series.since_ms;
  const x1 = series.until_ms;
  const widthPx = Math.max(LABEL_PX, byId(id).clientWidth - 70);
  const labelMs = ((x1 - x0) * LABEL_PX) / widthPx;
  const marks = series.marks.filter((mark) => mark.at_ms >= x0 && mark.at_ms <= x1);
  return layout({
    dragmode: "zoom",
    xaxis: { ...axis(), fixedrange: false, showspikes: true, spikemode: "across", spikesnap: "cursor", spikethickness: 1, spikedash: "solid", spikecolor: colour("faint"), type: "date", range: [dated(x0), dated(x1)], tickformat: x1 - x0 > DAY_MS ? "%b %-d" : "%H:%M", tickangle: 0, nticks: Math.min(8, Math.floor(widthPx / LABEL_PX)), hoverformat: "%Y-%m-%d %H:%M:%S" },
    yaxis: { ...axis(), title: { text: title, font: { size: 11 } }, rangemode: "tozero", nticks: 6 },
    shapes: marks.map((mark) => ({
      type: "line", xref: "x", yref: "paper", x0: dated(mark.at_ms), x1: dated(mark.at_ms), y0: 0, y1: 1,
      line: { color: colour(markColour(mark)), width: 1.5, dash: mark.kind.startsWith("rescale") ? "solid" : "dot" },
    })),
    annotations: grouped(marks, labelMs).map((group) => label(group, x1 - labelMs / 2)),
    ...more,
  });
}

/** Return one label for a group of close marks: that of the newest rescale, or else of the newest decision. */
function label(group, edgeMs) {
  const shown = group.findLast((mark) => mark.kind.startsWith("rescale")) ?? group.at(-1);
  return {
    xref: "x", yref: "paper", x: dated(shown.at_ms), y: 1, yanchor: "bottom", showarrow: false,
    xanchor: shown.at_ms > edgeMs ? "right" : "center",
    text: escaped(shown.text + (group.length > 1 ? ` +${group.length - 1}` : "")),
    font: { size: 11, color: colour(markColour(shown)) },
    hovertext: group.map((mark) => escaped(`${mark.text}: ${mark.kind}, ${utc(mark.at_ms)}`)).join("<br>"),
  };
}

/** Group marks whose labels would overlap; each group has the oldest first. */
function grouped(marks, apartMs) {
  const groups = [];
  for (const mark of marks.toSorted((one, other) => other.at_ms - one.at_ms)) {
    const group = groups.at(-1);
    if (group && group.at(-1).at_ms - mark.at_ms < apartMs) group.unshift(mark);
    else groups.push([mark]);
  }
  return groups;
}

// Plotly renders some HTML in texts.
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

const markColour = (mark) => (mark.kind.endsWith("failed") ? "bad" : mark.kind.startsWith("rescale") ? "mark" : "faint");

/** Return the steps to draw: those with a value, and one empty step in each gap that breaks the line. */
function drawn(series, values) {
  const steps = [];
  let before = null;
  values.forEach((value, step) => {
    if (value === null) return;
    if (before !== null && (step - before) * series.step_ms > Math.max(BRIDGED_MS, 2 * series.step_ms)) steps.push(before + 1);
    steps.push(step);
    before = step;
  });
  return steps;
}

function line(series, values, name, more = {}) {
  const steps = drawn(series, values);
  return {
    x: steps.map((step) => dated(series.at_ms[step])), y: steps.map((step) => values[step]), name, type: "scatter",
    mode: "lines+markers", line: { color: colour("series-1"), width: 2 }, marker: { size: 3, color: colour("series-1") },
    ...more,
  };
}

/** Bars that reach back to the previous one: an epoch of several steps ran in all of them. */
function bars(series, values, name, shade) {
  const steps = drawn(series, values).filter((step) => values[step] !== null);
  const reach = steps.map((step, place) => {
    const gap = place ? step - steps[place - 1] : 1;
    return (gap * series.step_ms <= BRIDGED_MS ? gap : 1) * series.step_ms;
  });
  return {
    x: steps.map((step) => dated(series.at_ms[step])), y: steps.map((step) => values[step]), name, type: "bar", width: reach,
    offset: reach.map((ms) => series.step_ms - ms), marker: { color: colour(shade), line: { width: 0 } },
  };
}

/** Draw a chart, or a note that there is no data; `newest` goes beside its title. */
function show(id, traces, made, newest) {
  const chart = byId(id);
  byId(`${id}-newest`).textContent = newest ?? "–";
  if (newest === null) {
    const note = { xref: "paper", yref: "paper", x: 0.5, y: 0.5, showarrow: false, text: "no data in this time range" };
    const noData = { ...note, font: { size: 13, color: colour("faint") } };
    made = { ...made, annotations: [...made.annotations, noData], yaxis: { ...made.yaxis, range: [0, 1], showticklabels: false, title: {} } };
  }
  Plotly.react(chart, traces, made, CONFIG);
  if (!joined.has(chart)) join(chart);
}

const joined = new Set(); // the charts over time: one crosshair, one range
let zoomed = () => {};

/** Call `then(fromMs, untilMs)` when a range is dragged in a chart, and with nulls at a double click. */
export function onZoom(then) {
  zoomed = then;
}

function join(chart) {
  joined.add(chart);
  const others = () => [...joined].filter((each) => each !== chart);
  // Without an event of their own, which would come back here.
  chart.on("plotly_hover", ({ xvals: [at] }) => others().forEach((each) => Plotly.Fx.hover(each, { xval: atMs(at) }, "xy", true)));
  chart.on("plotly_unhover", () => others().forEach((each) => Plotly.Fx.unhover(each)));
  chart.on("plotly_relayout", (change) => {
    const range = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (range.every((each) => each !== undefined)) zoomed(...range.map(atMs));
  });
  chart.on("plotly_doubleclick", () => zoomed(null, null));
}

// Plotly takes numbers for local time. Texts without a zone are shown as they are.
const dated = (ms) => new Date(ms).toISOString().slice(0, -1);
const atMs = (date) => typeof date === "number" ? date : Date.parse(`${String(date).replace(" ", "T")}Z`);

const newestOf = (values) => values.findLast((value) => value !== null) ?? null;

function scaled(values, unitMs) {
  return values.map((value) => (value === null ? null : value / unitMs));
}

function timeUnit(values) {
  const longest = Math.max(0, ...values.filter((value) => value !== null));
  if (longest >= 3 * 3_600_000) return [3_600_000, "hours"];
  if (longest >= 3 * 60_000) return [60_000, "minutes"];
  return longest >= 1_000 ? [1_000, "seconds"] : [1, "ms"];
}

function backlogOf(series) {
  if (newestOf(series.backlog_records) !== null) return [series.backlog_records, "records", count];
  if (newestOf(series.backlog_files) !== null) return [series.backlog_files, "files", count];
  return [series.backlog_bytes, "bytes", bytes];
}

function worded(value, words) {
  return value === null ? null : words(value);
}

/** Draw or redraw all charts of a series. */
export function drawSeries(series) {
  const rates = series.rows_per_second;
  // Without input there are no epochs, but a living driver still measures the backlog.
  const hasRun = [series.parallelism, series.event_time_lag_ms, backlogOf(series)[0]].some((values) => newestOf(values) !== null);
  show("rate", [line(series, hasRun ? rates : [], "rows/s")], overTime(series, "rows/s", "rate"), hasRun ? worded(newestOf(rates), (n) => `${count(n)} rows/s`) : null);

  const [backlog, unit, words] = backlogOf(series);
  const inWords = (n) => (unit === "bytes" ? words(n) : `${words(n)} ${unit}`);
  const counted = overTime(series, unit, "backlog");
  show("backlog", [line(series, backlog, unit)], { ...counted, yaxis: { ...counted.yaxis, ...countAxis(backlog) } }, worded(newestOf(backlog), inWords));

  const [lagMs, lagUnit] = timeUnit(series.event_time_lag_ms);
  const lags = scaled(series.event_time_lag_ms, lagMs);
  show("lag", [line(series, lags, lagUnit)], overTime(series, lagUnit, "lag"), worded(newestOf(series.event_time_lag_ms), since));

  const [epochMs, epochUnit] = timeUnit(series.epoch_ms);
  const phases = PHASES.map((phase, place) => bars(series, scaled(series.phases[phase], epochMs), phase, `series-${place + 1}`));
  show("epochs", phases, overTime(series, epochUnit, "epochs", { barmode: "stack" }), worded(newestOf(series.epoch_ms), milliseconds));

  const stairs = { line: { color: colour("series-1"), width: 2, shape: "hv" } };
  const subtasks = { ...axis(), rangemode: "tozero", tickformat: "d", nticks: 5, title: { text: "subtasks", font: { size: 11 } }, ...countAxis(series.parallelism) };
  const steps = overTime(series, "subtasks", "parallelism", { yaxis: subtasks, height: 130 });
  show("parallelism", [line(series, series.parallelism, "subtasks", stairs)], steps, worded(newestOf(series.parallelism), (n) => `${n} subtasks`));
}

/** Draw an operator's key groups as a strip with the borders of its subtasks. */
export function drawSpread(element, spread) {
  const groups = spread.max_parallelism;
  const middles = spread.rows.map((_, bin) => bin * spread.groups_per_bin + (spread.groups_per_bin - 1) / 2);
  const names = spread.rows.map((_, bin) => {
    const first = bin * spread.groups_per_bin;
    const last = Math.min(groups, first + spread.groups_per_bin) - 1;
    return first === last ? `key group ${first}` : `key groups ${first} to ${last}`;
  });
  const edges = [0, ...spread.borders, groups];
  // "subtask 12" or "12", as space allows.
  const room = (element.clientWidth - 90) / spread.rows_of_subtasks.length;
  const named = (subtask) => (room > 70 ? `subtask ${subtask}` : String(subtask));
  const strip = {
    type: "heatmap", x: middles, y: [""], z: [spread.rows], text: [names], hovertemplate: "%{text}: %{z:,} rows<extra></extra>",
    zmin: 0, colorscale: [[0, colour("heat-0")], [1, colour("heat-1")]],
    colorbar: { thickness: 10, outlinewidth: 0, nticks: 4, title: { text: "rows", side: "right", font: { size: 11 } } },
  };
  const made = layout({
    height: 134,
    margin: { l: 12, r: 10, t: 22, b: 40 },
    hovermode: "closest",
    xaxis: { ...axis(), range: [-0.5, groups - 0.5], showgrid: false, title: { text: "key group", font: { size: 11 }, standoff: 4 } },
    yaxis: { visible: false, fixedrange: true },
    shapes: spread.borders.map((border) => ({
      type: "line", xref: "x", yref: "paper", x0: border - 0.5, x1: border - 0.5, y0: -0.05, y1: 1.12,
      line: { color: colour("ink"), width: 1.5 },
    })),
    annotations: room < 20 ? [] : spread.rows_of_subtasks.map((rows, subtask) => ({
      xref: "x", yref: "paper", x: (edges[subtask] + edges[subtask + 1] - 1) / 2, y: 1, yanchor: "bottom", showarrow: false,
      text: named(subtask), font: { size: 11 },
    })),
  });
  return Plotly.react(element, [strip], made, CONFIG);
}
