// The table of a job's newest epochs, and the subtasks of the one that was chosen.
import { age, ask, byId, bytes, count, make, milliseconds, renew, table } from "./page.js";

const PHASES = ["read", "transfer", "work", "commit", "publish"];

export class Epochs {
  #name;
  #shown = null; // the answer about the chosen epoch

  constructor(name) {
    this.#name = name;
  }

  show(epochs) {
    renew(byId("epoch-list"), epochs, () =>
      table(["Epoch", "Committed", "Took", ...PHASES, "Rows in", "Rows out", "Late", "State", "Parallelism", "Generation"], epochs.map((each) => this.#row(each)), "No epoch yet."));
  }

  #row(epoch) {
    const button = make("button", { type: "button", class: "link", title: "Show its subtasks", "data-focus": `epoch ${epoch.lineage} ${epoch.epoch}` }, `#${epoch.epoch}`);
    button.addEventListener("click", () => this.#choose(epoch));
    const phases = phasesOf(epoch);
    return [
      button, age(epoch.committed_ms), milliseconds(epoch.duration_ms),
      ...PHASES.map((each) => (phases[each] === undefined ? "–" : milliseconds(phases[each]))),
      count(epoch.rows), count(epoch.rows_out), count(epoch.late_rows), `${count(epoch.state_rows)} rows, ${bytes(epoch.state_bytes)}`,
      String(epoch.parallelism), String(epoch.generation),
    ];
  }

  async #choose({ lineage, epoch }) {
    const panel = byId("subtasks");
    panel.hidden = false;
    panel.replaceChildren(make("p", { class: "placeholder" }, "Loading…"));
    let parts;
    try {
      this.#shown = await ask(`api/subtasks?${new URLSearchParams({ name: this.#name, lineage, epoch })}`);
      parts = this.#shown.operators.flatMap(ofOperator);
    } catch (error) {
      parts = [make("p", { class: "placeholder" }, error.message)];
    }
    const close = make("button", { type: "button", class: "quiet" }, "Close");
    close.addEventListener("click", () => {
      panel.hidden = true;
    });
    panel.replaceChildren(make("div", { class: "bar" }, make("h3", {}, `Subtasks of epoch ${epoch} of lineage ${lineage}`), close), ...parts);
    panel.scrollIntoView({ block: "nearest" });
  }
}

/** Return the phases that add up to an epoch, as in the chart. */
function phasesOf({ phases }) {
  if (phases.run === undefined) return {};
  const { read = 0, transfer = 0 } = phases;
  return { ...phases, read, transfer, work: Math.max(0, phases.run - read - transfer) };
}

function ofOperator({ uid, subtasks }) {
  const total = ({ load_ms: load, read_ms: read, process_ms: process, write_ms: write }) => load + (read ?? 0) + process + write;
  const longest = Math.max(1, ...subtasks.map(total));
  const rows = subtasks.map((each) => {
    const bar = make("span", { class: "share" });
    bar.style.inlineSize = `${(100 * total(each)) / longest}%`;
    return [
      String(each.subtask), count(each.rows), milliseconds(total(each)), each.read_ms === null ? "–" : milliseconds(each.read_ms), milliseconds(each.load_ms),
      milliseconds(each.process_ms), milliseconds(each.write_ms), `${count(each.cached_key_groups)} of ${count(each.key_groups)}`, make("td", { class: "bar-cell" }, bar),
    ];
  });
  return [
    make("h3", {}, uid),
    make("div", { class: "scroll listed", tabIndex: 0 }, ...table(["Subtask", "Rows", "Took", "Read", "Load", "Process", "Write", "Key groups in memory", "Share of the longest"], rows, "No subtasks.")),
  ];
}
