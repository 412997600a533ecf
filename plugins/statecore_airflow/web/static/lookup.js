// Looks up what a key has in state.
import { send } from "./dialog.js";
import { age, byId, make, table, utc } from "./page.js";

const LAST_MS = 8.64e15; // the last time that a Date can hold

/** Answer the form of a job. */
export function offerLookup(name) {
  byId("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    show(name, byId("lookup-key").value, byId("lookup-uid").value.trim());
  });
}

/** Close the form to who may not rescale the job: state may hold what is known of people. */
export function allowLookup({ triggerable }) {
  const button = byId("look-up");
  button.disabled = !triggerable.includes("rescale");
  button.title = button.disabled ? "You may not trigger the DAG rescale" : "";
}

let asked = 0;

async function show(name, key, uid) {
  const mine = ++asked;
  const found = byId("found");
  found.hidden = false;
  found.replaceChildren(make("p", { class: "placeholder" }, "Loading…"));
  let parts;
  try {
    parts = answered(await send(`api/state?${new URLSearchParams({ name })}`, { key, uid: uid || null }));
  } catch (error) {
    parts = [make("p", { class: "placeholder" }, error.message)];
  }
  // Another key was asked for meanwhile.
  if (mine === asked) found.replaceChildren(...parts);
}

function answered({ uid, key, lineage, epoch, committed_ms: committedMs, contents }) {
  const shown = Object.entries(key).map(([column, value]) => `${column} ${value}`).join(", ");
  const rows = contents.map((each) => [
    make("span", { title: each.type }, each.state),
    each.window_start_ms === null ? "–" : `${time(each.window_start_ms)} to ${time(each.window_end_ms)}`,
    make("td", { class: "path" }, each.value, each.left_out ? `, and ${each.left_out} more` : ""),
  ]);
  return [
    make("p", {}, `${uid}, ${shown}, as of epoch ${epoch} of lineage ${lineage}, committed `, age(committedMs)),
    ...table(["State", "Window", "Value"], rows, "This key has no state."),
  ];
}

const time = (atMs) => (Math.abs(atMs) <= LAST_MS ? utc(atMs) : `${atMs} ms`);
