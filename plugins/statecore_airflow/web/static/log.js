// The page of a driver log.
import { ask, byId, bytes, keepLoading, make, renew, setClock } from "./page.js";

const EVERY_MS = 3_000;
const asked = new URLSearchParams(location.search);
const name = asked.get("name") ?? "";

byId("back").textContent = `← ${name}`;
byId("back").href = `job?name=${encodeURIComponent(name)}`;
document.title = `${name}, driver log`;

function showGenerations(answer) {
  const select = byId("generation");
  renew(select, [answer.generations, answer.generation], () =>
    answer.generations.map((each) => make("option", { value: String(each), selected: each === answer.generation }, String(each))),
  );
}

async function load() {
  const query = new URLSearchParams({ name });
  if (asked.has("generation")) query.set("generation", asked.get("generation"));
  const answer = await ask(`api/log?${query}`);
  setClock(answer.now_ms);
  showGenerations(answer);
  const before = answer.missing_bytes ? ` without its first ${bytes(answer.missing_bytes)}` : "";
  byId("path").textContent = `${answer.path}${before}; the driver is ${answer.state}`;
  const text = byId("text");
  if (text.textContent !== answer.text) text.textContent = answer.text || "The log is empty.";
  if (byId("follow").checked) text.scrollTop = text.scrollHeight;
}

const reload = keepLoading(load, EVERY_MS);

byId("generation").addEventListener("change", (event) => {
  asked.set("generation", event.target.value);
  history.replaceState(null, "", `?${asked}`);
  reload();
});
