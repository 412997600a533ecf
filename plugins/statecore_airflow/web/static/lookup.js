// Looks up what a key has in state.
import { age, ask, byId, make, table, utc } from "./page.js";

/** Answer the form of a job; of a query of Spark's own there is none, because only Spark reads its state. */
export function offerLookup(name) {
  byId("lookup").addEventListener("submit", (event) => {
    event.preventDefault();
    show(name, byId("lookup-key").value, byId("lookup-uid").value.trim());
  });
}

let asked = 0;

async function show(name, key, uid) {
  const mine = ++asked;
  const found = byId("found");
  found.hidden = false;
  found.replaceChildren(make("p", { class: "placeholder" }, "Loading…"));
  let parts;
  try {
    parts = answered(await ask(`api/state?${new URLSearchParams({ name, key, ...(uid && { uid }) })}`));
  } catch (error) {
    parts = [make("p", { class: "placeholder" }, error.message)];
  }
  // Another key was asked for meanwhile.
  if (mine === asked) found.replaceChildren(...parts);
}

function answered({ uid, key, lineage, epoch, committed_ms: committedMs, contents }) {
  const shown = Object.entries(key).map(([column, value]) => `${column} ${JSON.stringify(value)}`).join(", ");
  const rows = contents.map((each) => [
    make("span", { title: each.type }, each.state),
    each.window_start_ms === null ? "–" : `${utc(each.window_start_ms)} to ${utc(each.window_end_ms)}`,
    make("td", { class: "path" }, JSON.stringify(each.value)),
  ]);
  return [
    make("p", {}, `${uid}, ${shown}, as of epoch ${epoch} of lineage ${lineage}, committed `, age(committedMs)),
    ...table(["State", "Window", "Value"], rows, "This key has no state."),
  ];
}
