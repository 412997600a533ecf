// The table of a job's newest epochs, and the subtasks of the one that was chosen.
import { age, ask, byId, bytes, count, make, milliseconds, renew, table } from "./page.js";

const PHASES = ["read", "transfer", "work", "commit", "publish"];

export class Epochs {
  #name;
  #chosen = null; // the epoch whose subtasks are shown

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
    return [
      button, age(epoch.committed_ms), milliseconds(epoch.duration_ms),
      ...PHASES.map((each) => (epoch.phases[each] === undefined ? "–" : milliseconds(epoch.phases[each]))),
      count(epoch.rows), count(epoch.rows_out), count(epoch.late_rows), `${count(epoch.state_rows)} rows, ${bytes(epoch.state_bytes)}`,
      String(epoch.parallelism), String(epoch.generation),
    ];
  }

  async #choose(epoch) {
    this.#chosen = epoch;
    const panel = byId("subtasks");
    panel.hidden = false;
    panel.replaceChildren(make("p", { class: "placeholder" }, "Loading…"));
    let parts;
    try {
      const answer = await ask(`api/subtasks?${new URLSearchParams({ name: this.#name, lineage: epoch.lineage, epoch: epoch.epoch })}`);
      parts = answer.operators.flatMap(ofOperator);
    } catch (error) {
      parts = [make("p", { class: "placeholder" }, error.message)];
    }
    // Another one was chosen meanwhile, or none any more.
    if (this.#chosen !== epoch) return;
    const close = make("button", { type: "button", class: "quiet" }, "Close");
    close.addEventListener("click", () => {
      this.#chosen = null;
      panel.hidden = true;
    });
    panel.replaceChildren(make("div", { class: "bar" }, make("h3", {}, `Subtasks of epoch ${epoch.epoch} of lineage ${epoch.lineage}`), close), ...parts);
    panel.scrollIntoView({ block: "nearest" });
  }
}

function ofOperator({ uid, subtasks }) {
  const longest = Math.max(1, ...subtasks.map((each) => each.took_ms));
  const rows = subtasks.map((each) => {
    const bar = make("span", { class: "share" });
    bar.style.inlineSize = `${(100 * each.took_ms) / longest}%`;
    return [
      String(each.subtask), count(each.rows), milliseconds(each.took_ms), each.read_ms === null ? "–" : milliseconds(each.read_ms), milliseconds(each.load_ms),
      milliseconds(each.process_ms), milliseconds(each.write_ms), `${count(each.cached_key_groups)} of ${count(each.key_groups)}`, make("td", { class: "bar-cell" }, bar),
    ];
  });
  return [
    make("h3", {}, uid),
    make("div", { class: "scroll listed", tabIndex: 0 }, ...table(["Subtask", "Rows", "Took", "Read", "Load", "Process", "Write", "Key groups in memory", "Share of the longest"], rows, "No subtasks.")),
  ];
}
