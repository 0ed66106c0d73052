"use strict";
(() => {
const PAGE = 25, WAIT = 150, LONG = 4000, KEPT_BLOCKS = 60, MAX_DRAWN = 80, MAX_CHOICES = 40;
const FAILED = 1, DISAGREEMENT = 2;
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("index").textContent);
const packed = [...document.querySelectorAll("script.block")];
const text = (value) => String(value).replace(INVISIBLE, (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

/* The name of a reason in words; the filters keep the name. */
const words = (name) => /^[A-Z][A-Z_]*$/.test(name) ? name.replaceAll("_", " ").toLowerCase() : name;

/* Elements: texts are always text nodes. */
function make(name, attributes, ...children) {
  const svg = ["svg", "g", "rect", "path", "text", "tspan", "title", "line", "polygon"].includes(name);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "" && child !== false) made.append(child instanceof Node ? child : text(child));
  }
  return made;
}

/* Blocks of whole samples are inflated when one of them is needed. */
const inflated = new Map();
function lines(block) {
  let found = inflated.get(block);
  if (!found) {
    found = inflate(packed[block].textContent).then((whole) => whole.split("\n"));
    inflated.set(block, found);
    if (inflated.size > KEPT_BLOCKS) inflated.delete(inflated.keys().next().value);
  }
  return found;
}
async function inflate(encoded) {
  const binary = atob(encoded), bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
async function whole(place) {
  const block = await lines(Math.floor(place / data.blockSize));
  return JSON.parse(block[place % data.blockSize]);
}

/* The filters stand in the fragment: #model=a&measure=executable&outcome=fail&tag.topic=Food&q=soup&sample=3&page=2 */
const LABELS = { model: "model", measure: "measure", outcome: "outcome", reason: "abstained because", q: "search", differs: "with disagreement", sample: "sample" };
let filters = new URLSearchParams(), matches = [], run = 0;
const isFilter = (hash) => hash.includes("=");
function goTo(changed, push) {
  const hash = `#${changed.toString() || "samples"}`;
  if (push) location.hash = hash; else location.replace(hash);
}
function changeFilter(name, value, push = true) {
  const changed = new URLSearchParams(filters);
  changed.delete("page"); changed.delete("sample"); changed.delete(name);
  if (value !== null) changed.set(name, value);
  goTo(changed, push);
}
const position = (list, value) => list.indexOf(value);
function tester() {
  const has = (name) => filters.has(name), get = (name) => filters.get(name);
  const model = has("model") ? position(data.models, get("model")) : null;
  const measure = has("measure") ? position(data.measures, get("measure")) : null;
  const reason = has("reason") ? String.fromCharCode(65 + position(data.reasons, get("reason") === "UNSPECIFIED" ? "" : get("reason"))) : null;
  const outcome = get("outcome") || "";
  const tags = [];
  for (const [name, value] of filters) {
    if (name.startsWith("tag.")) tags.push(data.tags.findIndex(([tag, held]) => tag === name.slice(4) && held === value));
  }
  const letter = { pass: (sign) => sign === "p", fail: (sign) => sign === "f", abstain: (sign) => sign < "a" }[outcome] || (() => true);
  const judged = measure !== null || reason !== null || ["pass", "fail", "abstain"].includes(outcome);
  return (sample) => {
    const [index, , , flags, own, models, subjects] = sample;
    if (has("sample") && String(index) !== get("sample")) return false;
    if (has("differs") && !(flags & DISAGREEMENT)) return false;
    if (outcome === "failed" && !(flags & FAILED)) return false;
    if (!judged && model === null && tags.every((tag) => own.includes(tag))) return true;
    return subjects.some(([author, shape, outcomes, ofSubject]) => {
      if (model !== null && author !== model && !models.includes(model)) return false;
      if (!tags.every((tag) => own.includes(tag) || ofSubject.includes(tag))) return false;
      if (!judged) return true;
      const measures = data.shapes[shape];
      for (let at = 0; at < outcomes.length; at++) {
        if ((measure === null || measures[at] === measure) && letter(outcomes[at]) && (reason === null || outcomes[at] === reason)) return true;
      }
      return false;
    });
  };
}
async function find() {
  const mine = ++run, fits = tester(), wanted = (filters.get("q") || "").toLowerCase();
  let found = [];
  for (let place = 0; place < data.samples.length; place++) if (fits(data.samples[place])) found.push(place);
  if (wanted) {
    const needle = JSON.stringify(wanted).slice(1, -1), kept = [], started = performance.now();
    let block = -1, held = [];
    for (const place of found) {
      const at = Math.floor(place / data.blockSize);
      if (at !== block) {
        held = await lines(at); block = at;
        if (mine !== run) return;
        if (performance.now() - started > 300) byId("status").textContent = `Searching: ${kept.length.toLocaleString("en")} samples so far`;
      }
      if (held[place % data.blockSize].toLowerCase().includes(needle)) kept.push(place);
    }
    found = kept;
  }
  if (mine !== run) return;
  matches = found;
  await show();
}

/* The list, in pages. */
const filling = new WeakMap();
function show() {
  const pages = Math.max(1, Math.ceil(matches.length / PAGE));
  const page = Math.min(pages, Math.max(1, Number(filters.get("page")) || 1));
  const part = matches.slice((page - 1) * PAGE, page * PAGE);
  const count = (value) => value.toLocaleString("en");
  byId("status").textContent = matches.length === data.samples.length ? `${count(matches.length)} samples` : `${count(matches.length)} of ${count(data.samples.length)} samples`;
  byId("list").replaceChildren(...part.map(item));
  byId("pages").hidden = pages < 2;
  byId("page").textContent = `page ${count(page)} of ${count(pages)}`;
  byId("previous").disabled = page < 2; byId("next").disabled = page >= pages;
  byId("previous").onclick = () => turn(page - 1); byId("next").onclick = () => turn(page + 1);
  if (!filters.has("sample") || !part.length) return undefined;
  const opened = byId("list").querySelector("details");
  opened.open = true;
  return filling.get(opened)();
}
function turn(page) {
  const changed = new URLSearchParams(filters);
  changed.set("page", page);
  goTo(changed, true);
}
function item(place) {
  const [index, title, id, flags, , , subjects] = data.samples[place];
  const counted = { f: 0, a: 0 };
  for (const [, , outcomes] of subjects) for (const sign of outcomes) { if (sign === "f") counted.f++; else if (sign < "a") counted.a++; }
  const counts = make("span", { class: "counts" });
  if (flags & FAILED) counts.append(make("span", { class: "fail" }, "no result "));
  if (counted.f) counts.append(make("span", { class: "fail" }, `${counted.f} fail `));
  if (counted.a) counts.append(make("span", { class: "abstain" }, `${counted.a} abstained `));
  if (flags & DISAGREEMENT) counts.append(make("span", { class: "numeric" }, "disagreement"));
  const body = make("div", { class: "inside" });
  let filled = null;
  const load = () => filled ||= whole(place).then((view) => body.append(...sample(view)));
  const shown = make("details", { class: "sample" }, make("summary", {}, make("span", { class: "soft" }, `${index + 1} `), make("bdi", {}, title || id || "(untitled)"), counts), body);
  filling.set(shown, load);
  shown.addEventListener("toggle", () => { if (shown.open) load(); });
  return make("li", {}, shown);
}

/* One sample. */
function sample(view) {
  const facts = [...(view.sample_id ? [["id", view.sample_id]] : []), ...(view.facts || []), ...(view.tags || [])];
  const told = new Set();
  const news = ([name, value]) => { const key = JSON.stringify([name, value]), first = !told.has(key); told.add(key); return first; };
  if (view.disagreement) facts.push(["disagreement", view.disagreement]);
  const link = make("a", { href: `#sample=${view.index}` }, "Link to this sample");
  const parts = [make("dl", { class: "facts" }, facts.filter(news).map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])), make("p", { class: "note" }, link)];
  if (view.error) parts.push(make("p", { class: "fail" }, view.error));
  const context = (view.blocks || []).map(block);
  const subjects = view.subjects || [];
  const columns = make("div", { class: context.length && subjects.length ? "beside two" : "beside" });
  if (context.length) columns.append(make("div", { class: "context" }, context));
  columns.append(make("div", {}, subjects.map((one) => subject(one, subjects.length <= 4 || isWanted(one)))));
  return [...parts, columns];
}
/* Of many subjects those open that the filters select. */
function isWanted(one) {
  const tagged = (one.tags || []).some(([name, value]) => filters.get(`tag.${name}`) === value);
  return tagged || (filters.has("model") && filters.get("model") === (one.model || ""));
}
function block(one) {
  const made = make("details", { open: Boolean(one.open) }, make("summary", {}, one.title));
  return fill(made, () => [one.graph && graph(one.graph), one.steps && steps(one.steps), one.text && long(one.text)]);
}
/* Fills details when they are opened: raw answers are many and long. */
function fill(made, content) {
  const body = make("div", { class: "inside" });
  const once = () => { if (made.open && !body.childElementCount) body.append(...content().filter(Boolean)); };
  made.append(body);
  made.addEventListener("toggle", once);
  once();
  return made;
}
function subject(one, open) {
  const counted = (outcome) => (one.judgements || []).filter((judgement) => judgement.outcome === outcome).length;
  const fails = counted("fail"), abstained = counted("abstain");
  const head = make("summary", {}, make("bdi", {}, [...new Set([one.model, one.title])].filter(Boolean).join(" · ") || "(unnamed)"),
    make("span", { class: "counts" }, fails ? make("span", { class: "fail" }, `${fails} fail `) : null, abstained ? make("span", { class: "abstain" }, `${abstained} abstained`) : null));
  return fill(make("details", { open }, head), () => [
    one.graph && graph(one.graph), one.steps && steps(one.steps), one.text && long(one.text), one.judgements && judgements(one.judgements),
    ...(one.notes || []).map((note) => make("p", { class: "note" }, note)),
    one.provenances && fill(make("details", {}, make("summary", {}, "Judges, prompts and raw answers")), () => one.provenances.flatMap(provenance)),
  ]);
}
function steps(items) {
  return make("ol", { class: "steps" }, items.map((step) => {
    const faults = step.faults || [];
    const made = make("li", { class: faults.length ? "at-fault" : step.mark ? "marked" : undefined }, step.text || "");
    if (step.mark) made.append(make("span", { class: "mark" }, step.mark));
    if (faults.length) made.append(make("ul", {}, faults.map((fault) => make("li", {}, fault))));
    return made;
  }));
}
function judgements(items) {
  const judged = items.some((one) => one.judge), reasoned = items.some((one) => one.rationale || one.findings);
  const rows = items.map((one) => {
    const badge = make("span", { class: `badge ${one.outcome === "number" ? "numeric" : one.outcome}` }, one.label);
    const about = [badge];
    if (one.reason) about.push(make("div", { class: "abstain" }, words(one.reason)));
    if (one.confidence) about.push(make("div", { class: "soft" }, `confidence ${one.confidence}`));
    const found = one.findings ? make("ul", { class: "findings" }, one.findings.map((finding) => make("li", {}, finding))) : null;
    return make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, one.measure), make("td", { role: "cell" }, about), judged && make("td", { role: "cell" }, one.judge || ""), reasoned && make("td", { role: "cell" }, one.rationale ? long(one.rationale, "div") : null, found));
  });
  const heads = ["measure", "outcome", judged && "judge", reasoned && "reason"].filter(Boolean).map((name) => make("th", { scope: "col", role: "columnheader" }, name));
  return make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Judgements" }, make("table", { class: "verdicts", role: "table" }, make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads)), make("tbody", { role: "rowgroup" }, rows)));
}
function provenance(one) {
  const parts = [make("h3", {}, one.judge || "(unnamed)")];
  if (one.prompts) parts.push(make("div", { class: "soft" }, `prompts: ${one.prompts.join(", ")}`));
  if (one.parameters) parts.push(make("div", { class: "soft" }, one.parameters.map(([name, value]) => `${name} = ${value}`).join(", ")));
  for (const call of one.calls || []) {
    const cost = call.cached ? "from the ledger" : `tokens ${call.tokens}, cost ${call.cost}`;
    parts.push(make("div", { class: "soft" }, [call.model || "(unnamed model)", cost, call.latency].filter(Boolean).join(", ")), long(call.raw_text || ""));
  }
  return parts;
}
/* A long text is folded; its rest is one press away. */
function long(value, name = "pre") {
  if (value.length <= LONG) return make(name, { class: "text" }, value);
  const made = make(name, { class: "text" }, value.slice(0, LONG));
  const more = make("button", { type: "button" }, `Show ${(value.length - LONG).toLocaleString("en")} more characters`);
  more.addEventListener("click", () => { made.append(text(value.slice(LONG))); more.remove(); });
  return make("div", {}, made, more);
}

/* Graphs in layers: an event stands below all events before it. */
function graph(one) {
  const events = one.events || [], edges = one.edges || [];
  const described = edges.map((edge) => `${edge.source} before ${edge.target}${edge.state ? ` (${edge.state})` : ""}`).join(", ");
  const listed = make("ul", { class: "findings" }, events.map(([id, label]) => make("li", {}, `${id}: ${label}`)));
  if (!events.length || events.length > MAX_DRAWN) return make("div", {}, listed, make("p", { class: "note" }, described));
  const WIDTH = 170, HEIGHT = 46, GAP_X = 18, GAP_Y = 34;
  const layer = new Map(events.map(([id]) => [id, 0]));
  const drawn = edges.filter((edge) => edge.state !== "missing");
  for (let pass = 0; pass < events.length; pass++) {
    let moved = false;
    for (const { source, target } of drawn) {
      if (!layer.has(source) || !layer.has(target)) continue;
      if (layer.get(target) <= layer.get(source) && layer.get(source) + 1 < events.length) { layer.set(target, layer.get(source) + 1); moved = true; }
    }
    if (!moved) break;
  }
  const rows = [];
  for (const [id] of events) (rows[layer.get(id)] ||= []).push(id);
  const filled = rows.filter(Boolean), widest = Math.max(...filled.map((row) => row.length));
  const width = widest * (WIDTH + GAP_X) + GAP_X, height = filled.length * (HEIGHT + GAP_Y) - GAP_Y + 12, at = new Map();
  filled.forEach((row, down) => row.forEach((id, across) => at.set(id, [GAP_X + (widest - row.length) * (WIDTH + GAP_X) / 2 + across * (WIDTH + GAP_X), 6 + down * (HEIGHT + GAP_Y)])));
  /* An edge over several layers runs beside the events between; null: it needs no lane. */
  const freeLane = (x, from, to) => {
    const between = [...at.values()].filter(([, y]) => y > from && y < to);
    if (!between.length) return null;
    const half = WIDTH / 2 + GAP_X / 2, free = (lane) => between.every(([left]) => lane < left - 3 || lane > left + WIDTH + 3);
    return [x, x + half, x - half].find(free) ?? x;
  };
  const svg = make("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": text(`Graph of ${events.length} events. ${described}`) });
  for (const { source, target, state } of edges) {
    if (!at.has(source) || !at.has(target)) continue;
    const [sx, sy] = at.get(source), [tx, ty] = at.get(target), down = ty > sy, level = ty === sy;
    const label = make("title", {}, `${source} before ${target}${state ? `: ${state}` : ""}`);
    const x1 = sx + WIDTH / 2, x2 = tx + WIDTH / 2, y1 = level ? sy : down ? sy + HEIGHT : sy, y2 = level ? ty : down ? ty : ty + HEIGHT, bend = level ? -22 : 0;
    const sign = down ? 1 : level ? 1 : -1, side = state || "";
    const lane = down ? freeLane(x1, sy, ty) : null;
    const route = lane === null
      ? `M${x1} ${y1} C${x1} ${y1 + bend + sign * (level ? 0 : 18)} ${x2} ${y2 + bend - sign * (level ? 0 : 18)} ${x2} ${y2 - sign * 5}`
      : `M${x1} ${y1} C${x1} ${y1 + 18} ${lane} ${y1 + 12} ${lane} ${y1 + GAP_Y} L${lane} ${y2 - GAP_Y} C${lane} ${y2 - 12} ${x2} ${y2 - 20} ${x2} ${y2 - 5}`;
    svg.append(make("path", { class: `edge ${side}`, d: route }, label),
      make("polygon", { class: `head ${side}`, points: `${x2},${y2} ${x2 - 5},${y2 - sign * 9} ${x2 + 5},${y2 - sign * 9}` }));
  }
  for (const [id, label] of events) {
    const [x, y] = at.get(id), [first, second] = wrapped(`${id}: ${label}`);
    svg.append(make("g", {}, make("title", {}, `${id}: ${label}`), make("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
      make("text", { x: x + 8, y: y + (second ? 19 : 27) }, first), second ? make("text", { x: x + 8, y: y + 35 }, second) : null));
  }
  const legend = edges.some((edge) => edge.state) ? make("p", { class: "note" }, make("span", { class: "matched" }, "matched"), " · ", make("span", { class: "missing" }, "missing (dashed)"), " · ", make("span", { class: "extra" }, "extra (thick)")) : null;
  return make("div", {}, make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Graph" }, svg), legend);
}
function wrapped(label) {
  const clean = text(label), size = 25;
  if (clean.length <= size) return [clean, ""];
  const space = clean.lastIndexOf(" ", size), cut = space > 8 ? space : size, rest = clean.slice(cut).trim();
  return [clean.slice(0, cut), rest.length > size ? `${rest.slice(0, size - 1)}…` : rest];
}

/* The form and the chips mirror the fragment. */
function choices(select, values, empty) {
  select.replaceChildren(make("option", { value: "" }, empty), ...values.map((value) => make("option", { value: `=${value}` }, value || "(unnamed)")));
}
function tagChoices() {
  const named = new Map();
  for (const [name, value] of data.tags) { if (!named.has(name)) named.set(name, []); named.get(name).push(value); }
  const groups = [...named].filter(([, values]) => values.length > 1 && values.length <= MAX_CHOICES).map(([name, values]) =>
    make("optgroup", { label: text(name) }, values.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((value) => make("option", { value: JSON.stringify([name, value]) }, `${name}: ${value || "(none)"}`))));
  byId("tag").replaceChildren(make("option", { value: "" }, "any"), ...groups);
  byId("tag").closest("label").hidden = !groups.length;
}
function mirror() {
  for (const name of ["model", "measure"]) byId(name).value = filters.has(name) ? `=${filters.get(name)}` : "";
  byId("outcome").value = filters.get("outcome") || "";
  byId("differs").checked = filters.has("differs");
  if (document.activeElement !== byId("q")) byId("q").value = filters.get("q") || "";
  const chips = [];
  for (const [name, value] of filters) {
    if (name === "page") continue;
    const label = LABELS[name] || name.replace(/^tag\./, ""), shown = name === "differs" ? label : `${label}: ${(name === "sample" ? Number(value) + 1 : name === "reason" ? words(value) : value) || "(unnamed)"}`;
    const chip = make("button", { type: "button", "aria-label": text(`Remove the filter ${shown}`) }, `${shown} ×`);
    chip.addEventListener("click", () => { changeFilter(name, null); byId("samples").focus(); });
    chips.push(make("li", {}, chip));
  }
  if (chips.length > 1) {
    const all = make("button", { type: "button" }, "Remove all filters");
    all.addEventListener("click", () => { goTo(new URLSearchParams(), true); byId("samples").focus(); });
    chips.push(make("li", {}, all));
  }
  byId("chips").replaceChildren(...chips);
}
function read() {
  const hash = location.hash.slice(1);
  if (hash && hash !== "samples" && !isFilter(hash)) return false;
  filters = new URLSearchParams(isFilter(hash) ? hash : "");
  mirror();
  const found = find();
  return isFilter(hash) && found;
}
function toSamples() {
  const inForm = byId("filters").contains(document.activeElement) || byId("pages").contains(document.activeElement);
  if (inForm) return;
  byId("samples").scrollIntoView();
  byId("samples").focus({ preventScroll: true });
}
choices(byId("model"), data.models, "any");
choices(byId("measure"), data.measures, "any");
tagChoices();
for (const name of ["model", "measure"]) byId(name).addEventListener("change", (event) => changeFilter(name, event.target.value ? event.target.value.slice(1) : null));
byId("outcome").addEventListener("change", (event) => changeFilter("outcome", event.target.value || null));
byId("differs").addEventListener("change", (event) => changeFilter("differs", event.target.checked ? "1" : null));
byId("tag").addEventListener("change", (event) => {
  if (!event.target.value) return;
  const [name, value] = JSON.parse(event.target.value);
  event.target.value = "";
  changeFilter(`tag.${name}`, value);
});
let waiting = 0;
byId("q").addEventListener("input", (event) => {
  clearTimeout(waiting);
  waiting = setTimeout(() => changeFilter("q", event.target.value.trim() || null, false), WAIT);
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").hidden = false;
const follow = () => { const found = read(); if (found) found.then(toSamples); return found; };
addEventListener("hashchange", follow);

/* Folded tables are printed; samples are printed as they stand. */
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details.folded")) one.open = true; });

const theme = byId("theme");
theme.closest("label").hidden = false;
theme.addEventListener("change", () => { if (theme.value) document.documentElement.dataset.theme = theme.value; else delete document.documentElement.dataset.theme; });

if (!follow()) { mirror(); find(); }
})();
