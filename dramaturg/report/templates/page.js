"use strict";
(() => {
const WAIT = 150, OPEN = 4, LONG = 4000, KEPT_BLOCKS = 60, MAX_DRAWN = 80, MAX_CHOICES = 40;
const FAILED = 1, DISAGREEMENT = 2;
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("index").textContent);
const packed = document.getElementsByClassName("block");
const parsed = new Promise((done) => { if (document.readyState === "loading") addEventListener("DOMContentLoaded", done); else done(); });
const text = (value) => String(value).replace(INVISIBLE, (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);

/* The name of a reason in words; the filters keep the name. */
const words = (name) => /^[A-Z][A-Z_]*$/.test(name) ? name.replaceAll("_", " ").toLowerCase() : name;

/* What the first screen does not need is done after it. */
const whenIdle = (work) => window.requestIdleCallback ? requestIdleCallback(work, { timeout: 1000 }) : setTimeout(work, 100);

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

/* The files of the tables are inflated when one of them is asked for. */
const FILES = [["csv", "CSV", "text/csv"], ["tex", "LaTeX", "application/x-tex"], ["svg", "SVG", "image/svg+xml"]];
let files = null;
for (const place of document.querySelectorAll(".files")) {
  const { table, caption, endings } = place.dataset;
  place.append("Download: ", ...FILES.filter(([ending]) => endings.split(" ").includes(ending)).flatMap(([ending, name, type], at) => {
    const button = make("button", { type: "button", class: "plain", "aria-label": text(`${name} of ${caption}`) }, name);
    button.addEventListener("click", async () => {
      files ||= inflate(byId("files").textContent).then(JSON.parse);
      const address = URL.createObjectURL(new Blob([(await files)[table][ending]], { type }));
      make("a", { href: address, download: `${table}.${ending}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 60000);
    });
    return at ? [", ", button] : [button];
  }));
  place.hidden = false;
}

/* Blocks of whole samples are inflated when one of them is needed. Those after the first follow this script: the last
   that is there may be a part. */
const inflated = new Map();
function lines(block) {
  let found = inflated.get(block);
  if (!found) {
    const there = block === 0 || packed[block + 1] ? Promise.resolve() : parsed;
    found = there.then(() => inflate(packed[block].textContent)).then((whole) => whole.split("\n"));
    inflated.set(block, found);
    if (inflated.size > KEPT_BLOCKS) inflated.delete(inflated.keys().next().value);
  }
  return found;
}
async function inflate(encoded) {
  const binary = atob(encoded), bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  const { writable, readable } = new DecompressionStream("deflate"), writer = writable.getWriter();
  const written = writer.write(bytes).then(() => writer.close());
  const [whole] = await Promise.all([new Response(readable).text(), written]);
  return whole;
}
async function whole(place) {
  const block = await lines(Math.floor(place / data.blockSize));
  return JSON.parse(block[place % data.blockSize]);
}

/* A sample of the index. It is read when it is asked for: most are never looked at. */
const known = [];
function sampleAt(place) {
  if (!known[place]) {
    const [index, title, id, flags, tags, models, kinds, signs] = data.samples[place];
    let end = 0;
    known[place] = { index, title, id, flags, tags: data.lists[tags], models: data.lists[models], subjects: data.lists[kinds].map((kind) => {
      const [author, shape, own] = data.kinds[kind], measures = data.lists[shape], start = end;
      end += measures.length;
      return { author, measures, outcomes: signs.slice(start, end), tags: data.lists[own] };
    }) };
  }
  return known[place];
}

/* The filters stand in the fragment: #model=a&measure=executable&outcome=fail&tag.topic=Food&q=soup&sample=3&candidate=1
   A sample and a candidate of it are opened; open=first opens the first that the filters find. */
const LABELS = { id: "sample", model: "model", measure: "measure", outcome: "outcome", reason: "abstained because", q: "search", differs: "with disagreement" };
const NOT_FILTERS = ["sample", "candidate", "open", "sort"];
let filters = new URLSearchParams(), matches = [], run = 0;
const isFilter = (hash) => hash.includes("=");
const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");
function goTo(changed, push) {
  const hash = `#${changed.toString() || "samples"}`;
  if (push) location.hash = hash; else location.replace(hash);
}
/* The fragment with some of its values changed; null removes one. */
function changed(values) {
  const made = new URLSearchParams(filters);
  for (const [name, value] of Object.entries(values)) { made.delete(name); if (value !== null) made.set(name, value); }
  return made;
}
const LIST = { sample: null, candidate: null, open: null };
function changeFilter(name, value, push = true) { goTo(changed({ ...LIST, [name]: value }), push); }
const position = (list, value) => list.indexOf(value);
const isFail = (sign) => sign === "f", isAbstention = (sign) => sign < "a";

/* Which judgement the filters select; null: they select none in particular. */
function judgementTester() {
  const has = (name) => filters.has(name), get = (name) => filters.get(name);
  const measure = has("measure") ? position(data.measures, get("measure")) : null;
  const reason = has("reason") ? String.fromCharCode(65 + position(data.reasons, get("reason") === "UNSPECIFIED" ? "" : get("reason"))) : null;
  const outcome = get("outcome") || "";
  const letter = { pass: (sign) => sign === "p", fail: isFail, abstain: isAbstention }[outcome];
  if (measure === null && reason === null && !letter) return null;
  return (named, sign) => (measure === null || named === measure) && (!letter || letter(sign)) && (reason === null || sign === reason);
}
/* Finds what the filters select of the sample at a place: null, or the places of its candidates and the number of judgements. */
function tester() {
  const has = (name) => filters.has(name), get = (name) => filters.get(name);
  if ([...filters.keys()].every((name) => name === "q" || NOT_FILTERS.includes(name))) return () => ({ chosen: [], judgements: 0 });
  const model = has("model") ? position(data.models, get("model")) : null, judged = judgementTester();
  const tags = [];
  for (const [name, value] of filters) {
    if (name.startsWith("tag.")) tags.push(data.tags.findIndex(([tag, held]) => tag === name.slice(4) && held === value));
  }
  return (place) => {
    const { title, id, flags, tags: own, models, subjects } = sampleAt(place);
    if (has("id") && (id || title) !== get("id")) return null;
    if (has("differs") && !(flags & DISAGREEMENT)) return null;
    if (get("outcome") === "failed" && !(flags & FAILED)) return null;
    if (!judged && model === null && tags.every((tag) => own.includes(tag))) {
      const tagged = subjects.flatMap((one, number) => tags.some((tag) => one.tags.includes(tag)) ? [number] : []);
      return { chosen: tagged, judgements: 0 };
    }
    const chosen = [];
    let judgements = 0;
    subjects.forEach(({ author, measures, outcomes, tags: ofSubject }, number) => {
      if (model !== null && author !== model && !models.includes(model)) return;
      if (!tags.every((tag) => own.includes(tag) || ofSubject.includes(tag))) return;
      let found = 0;
      if (judged) for (let at = 0; at < outcomes.length; at++) found += judged(measures[at], outcomes[at]);
      if (judged && !found) return;
      chosen.push(number);
      judgements += found;
    });
    return chosen.length ? { chosen, judgements } : null;
  };
}
/* The number of failures of the candidates that are looked at. */
function failures({ place, chosen }) {
  let found = 0;
  sampleAt(place).subjects.forEach(({ outcomes }, at) => { if (!chosen.length || chosen.includes(at)) for (const sign of outcomes) found += isFail(sign); });
  return found;
}
async function find() {
  const mine = ++run, fits = tester(), wanted = (filters.get("q") || "").toLowerCase();
  let found = [];
  for (let place = 0; place < data.samples.length; place++) { const match = fits(place); if (match) found.push({ place, ...match }); }
  if (wanted) {
    const needle = JSON.stringify(wanted).slice(1, -1), kept = [], started = performance.now();
    let block = -1, held = [];
    for (const match of found) {
      const at = Math.floor(match.place / data.blockSize);
      if (at !== block) {
        held = await lines(at); block = at;
        if (mine !== run) return;
        if (performance.now() - started > 300) byId("status").textContent = `Searching: ${count(kept.length)} samples so far`;
      }
      if (held[match.place % data.blockSize].toLowerCase().includes(needle)) kept.push(match);
    }
    found = kept;
  }
  if (filters.get("sort") === "failures") {
    const weights = new Map(found.map((match) => [match, failures(match)]));
    found.sort((one, other) => weights.get(other) - weights.get(one));
  }
  if (mine !== run) return;
  matches = found;
  if (filters.get("open") === "first" && matches.length) {
    const { place, chosen } = matches[0];
    filters = changed({ open: null, sample: sampleAt(place).index, candidate: chosen[0] ?? null });
    history.replaceState(null, "", `#${filters}`);
  }
  describe();
  const opened = filters.has("sample") ? data.samples.findIndex(([index]) => String(index) === filters.get("sample")) : -1;
  byId("list").hidden = opened >= 0; byId("one").hidden = opened < 0;
  if (opened >= 0) return showSample(opened);
  return matrix();
}
function describe() {
  const judgements = matches.reduce((sum, match) => sum + match.judgements, 0), all = data.samples.length;
  const samples = matches.length === all ? `${count(all)} samples` : `${count(matches.length)} of ${count(all)} samples`;
  byId("status").textContent = judgementTester() ? `${count(judgements)} judgements in ${samples}` : samples;
}

/* The matrix: a row a sample, a column a model, a square a judgement. Only the rows in sight exist. */
const PHONE = matchMedia("(max-width: 600px)"), NARROW = 150, NAME = 220, SPARE = 6;
const authors = [...new Set(data.kinds.map(([author]) => author))];
const authorName = (author) => data.models[author] || (authors.length > 1 ? "(unnamed)" : "judgements");
let grid = null;
function matrix() {
  const model = filters.has("model") ? position(data.models, filters.get("model")) : null;
  const columns = authors.includes(model) ? [model] : authors;
  const height = PHONE.matches ? 30 + 46 * columns.length : 60;
  const template = `minmax(${NAME}px, ${columns.length > 2 ? 1.4 : 1}fr) repeat(${columns.length}, minmax(${NARROW}px, 1fr))`;
  const wide = PHONE.matches ? "" : `${NAME + NARROW * columns.length}px`;
  const head = make("div", { class: "head", role: "row" }, make("span", { role: "columnheader" }, "sample"), columns.map((author) => make("span", { role: "columnheader", title: text(authorName(author)) }, authorName(author))));
  const rows = make("div", { class: "rows", role: "rowgroup" });
  const frame = make("div", { class: "matrix", role: "grid", "aria-label": "Samples by model", "aria-rowcount": matches.length + 1, tabindex: 0 }, make("div", { role: "rowgroup" }, head), rows);
  head.style.gridTemplateColumns = template; head.style.minWidth = wide; rows.style.minWidth = wide;
  rows.style.height = `${matches.length * height}px`;
  const last = grid && grid.last;
  grid = { frame, rows, columns, height, template, shown: new Map(), last: null };
  frame.addEventListener("scroll", draw);
  frame.addEventListener("keydown", move);
  byId("list").replaceChildren(outcomesKey(), frame);
  const at = last === null || last === undefined ? -1 : matches.findIndex(({ place }) => place === last);
  if (at >= 0) frame.scrollTop = at * height;
  requestAnimationFrame(cues);
  return draw();
}
function outcomesKey() {
  const shapes = [...new Set(data.kinds.map(([, shape]) => shape))], used = shapes.length === 1 ? data.lists[shapes[0]] : [];
  const order = used.length > 1 ? make("span", {}, `From left to right: ${used.map((one) => data.measures[one]).join(", ")}`) : null;
  const square = (sign, name) => make("span", {}, make("span", { class: "strip", "aria-hidden": "true" }, make("i", { class: sign })), name);
  return make("p", { class: "note outcomes" }, square("p", "pass"), square("f", "fail"), square("a", "abstained"), order);
}
function draw() {
  const { frame, rows, height, shown } = grid;
  const first = Math.max(0, Math.floor(frame.scrollTop / height) - SPARE), end = Math.min(matches.length, Math.ceil((frame.scrollTop + (frame.clientHeight || 760)) / height) + SPARE);
  for (const [at, row] of shown) if (at < first || at >= end) { row.remove(); shown.delete(at); }
  const waiting = [];
  for (let at = first; at < end; at++) if (!shown.has(at)) {
    const { row, filled } = line(at);
    shown.set(at, row);
    const after = [...shown.keys()].filter((other) => other > at), next = after.length ? shown.get(Math.min(...after)) : null;
    rows.insertBefore(row, next);
    waiting.push(filled);
  }
  return Promise.all(waiting);
}
function line(at) {
  const { columns, height, template } = grid, match = matches[at], judged = judgementTester();
  const { index, title, id, flags, subjects } = sampleAt(match.place);
  const failed = failures({ place: match.place, chosen: [] });
  const open = (candidate) => `#${changed({ ...LIST, sample: index, candidate })}`;
  const name = make("div", { class: "cell name", role: "rowheader" }, make("a", { href: open(null), tabindex: -1 }, make("span", { class: "soft" }, `${index + 1} `), make("bdi", {}, title || id || "(untitled)"),
    flags & FAILED ? make("span", { class: "fail" }, " no result") : null, failed ? make("span", { class: "fail" }, ` ${failed} fail`) : null, flags & DISAGREEMENT ? make("span", { class: "soft" }, " disagreement") : null));
  const links = [];
  const cells = columns.map((author) => {
    const own = subjects.map((one, place) => [place, one]).filter(([place, one]) => one.author === author && (!judged || match.chosen.includes(place)));
    const made = own.map(([place, { measures, outcomes }]) => {
      const signs = [...outcomes];
      const strip = make("span", { class: "strip" }, signs.map((sign, one) => make("i", { class: `${isAbstention(sign) ? "a" : sign}${judged && !judged(measures[one], sign) ? " other" : ""}`, title: text(data.measures[measures[one]]) })));
      const bad = signs.flatMap((sign, one) => isFail(sign) ? [data.measures[measures[one]]] : []);
      const told = `${authorName(author)}, sample ${index + 1}: ${bad.length ? `fails ${bad.join(", ")}; ` : ""}${signs.filter((sign) => sign === "p").length} pass, ${signs.filter(isAbstention).length} abstained`;
      const link = make("a", { href: open(place), tabindex: -1 }, make("span", { class: "hidden" }, told), make("span", { class: "strip", "aria-hidden": "true" }, make("span", { class: "of" }, authorName(author)), strip), make("span", { class: "words" }));
      links.push({ place, link, strip });
      return link;
    });
    return make("div", { class: "cell", role: "gridcell" }, made.length > 1 ? make("div", { class: "strips" }, made) : made);
  });
  const row = make("div", { class: "row", role: "row", "aria-rowindex": at + 2 }, name, cells);
  row.style.top = `${at * height}px`; row.style.height = `${height}px`; row.style.gridTemplateColumns = template;
  return { row, filled: whole(match.place).then((view) => links.forEach(({ place, link, strip }) => describeCell(view, view.subjects[place], link, strip, judged))) };
}
/* The first words of a candidate or of what it judges, or the fault that the filters ask for. */
function describeCell(view, one, link, strip, judged) {
  const items = one.judgements || [], wanted = judged ? items.filter((item) => judged(position(data.measures, item.measure), signOf(item))) : [];
  items.forEach((item, at) => { if (item.outcome === "number" && strip.children[at]) strip.children[at].textContent = text(item.label.split(" of ")[0].slice(0, 8)); });
  const reasons = wanted.map((item) => `${item.measure}: ${[...(item.findings || []), item.rationale, item.reason && words(item.reason), item.label].find(Boolean)}`);
  const own = one.text || (one.steps || []).map((step) => step.text).join(" / ") || (one.graph ? one.graph.events.map(([, label]) => label).join(" / ") : "") || (one.notes || [])[0] || textsOf(view, one) || one.title || "";
  const shown = link.querySelector(".words");
  shown.textContent = text((reasons.join("; ") || own).slice(0, 200));
  shown.classList.toggle("fault", reasons.length > 0 && wanted.every((item) => item.outcome === "fail"));
}
/* What a subject without a text of its own judges: the texts of its sample. */
function textsOf(view, one) {
  const texts = (view.blocks || []).filter((block) => block.open && block.text);
  return texts.length ? `${one.title}: ${texts.map((block) => block.text.slice(0, 100)).join(" / ")}` : "";
}
function signOf(item) {
  return { pass: "p", fail: "f", number: "n" }[item.outcome] || String.fromCharCode(65 + position(data.reasons, item.reason || ""));
}
/* Arrow keys go through the links of the matrix. */
function move(event) {
  const steps = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1], Home: [-Infinity, 0], End: [Infinity, 0] }[event.key];
  if (!steps || !matches.length || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const row = document.activeElement.closest(".matrix .row");
  const at = row ? Number(row.getAttribute("aria-rowindex")) - 2 : -1, column = row ? [...row.querySelectorAll("a")].indexOf(document.activeElement) : 0;
  const next = row ? Math.min(matches.length - 1, Math.max(0, at + steps[0])) : Math.floor(grid.frame.scrollTop / grid.height);
  const top = next * grid.height, room = grid.frame.clientHeight - grid.height - 40;
  if (top < grid.frame.scrollTop) grid.frame.scrollTop = top;
  else if (top > grid.frame.scrollTop + room) grid.frame.scrollTop = top - room;
  draw();
  const links = grid.shown.get(next).querySelectorAll("a");
  links[Math.min(links.length - 1, Math.max(0, column + steps[1]))].focus({ preventScroll: true });
}
PHONE.addEventListener("change", () => { if (grid && !byId("list").hidden) matrix(); });

/* One sample, with the samples before and after it among those that the filters find. */
async function showSample(place) {
  const mine = run, view = await whole(place);
  if (mine !== run) return;
  const at = matches.findIndex((match) => match.place === place), match = matches[at] || { chosen: [], judgements: 0 };
  if (grid) grid.last = place;
  const subjects = view.subjects || [], given = filters.has("candidate") ? Number(filters.get("candidate")) : -1;
  const first = given >= 0 && given < subjects.length ? [given] : match.chosen;
  const author = first.length ? sampleAt(place).subjects[first[0]].author : null;
  const target = (step) => {
    const other = at < 0 ? undefined : matches[at + step];
    if (!other) return null;
    const { index, subjects: others } = sampleAt(other.place);
    const ofModel = others.flatMap((one, number) => one.author === author && (!other.chosen.length || other.chosen.includes(number)) ? [number] : []);
    return `#${changed({ sample: index, candidate: author === null ? null : ofModel[0] ?? other.chosen[0] ?? null })}`;
  };
  const way = (name, key, to) => make("a", { href: to || undefined, "data-key": key, role: to ? undefined : "link", "aria-disabled": to ? undefined : "true" }, name, " ", make("kbd", {}, key));
  const own = new URLSearchParams({ sample: view.index, ...(given >= 0 ? { candidate: given } : {}) });
  const bar = make("div", { class: "sample-bar" }, make("a", { href: `#${changed(LIST).toString() || "samples"}` }, `← All ${count(matches.length)} samples`),
    make("span", { class: "where soft" }, at < 0 ? "" : `${count(at + 1)} of ${count(matches.length)}`), way("Previous", "k", target(-1)), way("Next", "j", target(1)), copyButton(view), make("a", { href: `#${own}` }, "Link to this sample"));
  const title = make("h3", { tabindex: -1 }, make("span", { class: "soft" }, `${view.index + 1} `), make("bdi", {}, view.title || view.sample_id || "(untitled)"));
  byId("one").replaceChildren(bar, title, ...sample(view, first));
  cues();
}
function copyButton(view) {
  const button = make("button", { type: "button" }, "Copy as JSON");
  button.addEventListener("click", async () => { button.textContent = await copied(JSON.stringify(view, null, 2)) ? "Copied" : "The browser refuses to copy"; });
  return button;
}
/* A page in a sandbox has no clipboard of its own: the older way selects the text in a field. */
async function copied(whole) {
  try { await navigator.clipboard.writeText(whole); return true; } catch { /* The older way follows. */ }
  const field = make("textarea", { "aria-label": "JSON", class: "hidden" });
  field.value = whole;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
function sample(view, first) {
  const facts = [...(view.sample_id ? [["id", view.sample_id]] : []), ...(view.facts || []), ...(view.tags || [])];
  const told = new Set();
  const news = ([name, value]) => { const key = JSON.stringify([name, value]), unseen = !told.has(key); told.add(key); return unseen; };
  if (view.disagreement) facts.push(["disagreement", view.disagreement]);
  const parts = [make("dl", { class: "facts flow" }, facts.filter(news).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))))];
  if (view.error) parts.push(make("p", { class: "fail" }, view.error));
  const context = (view.blocks || []).map(block);
  const subjects = view.subjects || [], judged = judgementTester();
  const order = [...first, ...subjects.keys()].filter((place, at, all) => all.indexOf(place) === at);
  const columns = make("div", { class: context.length && subjects.length ? "beside two" : "beside" });
  if (context.length) columns.append(make("div", { class: "context" }, context));
  columns.append(make("div", {}, order.map((place) => subject(subjects[place], first.length ? first.includes(place) : subjects.length <= OPEN || place === order[0], judged))));
  return [...parts, columns];
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
function subject(one, open, judged) {
  const counted = (outcome) => (one.judgements || []).filter((judgement) => judgement.outcome === outcome).length;
  const fails = counted("fail"), abstained = counted("abstain");
  const head = make("summary", {}, make("bdi", {}, [...new Set([one.model, one.title])].filter(Boolean).join(" · ") || "(unnamed)"),
    make("span", { class: "counts" }, fails ? make("span", { class: "fail" }, `${fails} fail `) : null, abstained ? make("span", { class: "abstain" }, `${abstained} abstained`) : null));
  return fill(make("details", { open }, head), () => [
    one.graph && graph(one.graph), one.steps && steps(one.steps), one.judgements && judgements(one.judgements, judged), one.text && (one.marks ? make("pre", { class: "text" }, marked(one.text, one.marks)) : long(one.text)),
    ...(one.notes || []).map((note) => make("p", { class: "note" }, note)),
    one.provenances && fill(make("details", {}, make("summary", {}, "Judges, prompts and raw answers")), () => one.provenances.flatMap(provenance)),
  ]);
}
/* The words that findings rest on, marked. Places count code points. */
function marked(text, places) {
  const points = Array.from(text), parts = [];
  let done = 0;
  for (const [start, end, why] of places) {
    parts.push(points.slice(done, start).join(""), make("mark", { title: why }, points.slice(start, end).join("")));
    done = end;
  }
  return [...parts, points.slice(done).join("")];
}
/* A fault of several steps is told in full at the first of them. */
function steps(items) {
  const told = new Map();
  return make("ol", { class: "steps" }, items.map((step, at) => {
    const faults = step.faults || [];
    const made = make("li", { class: faults.length ? "at-fault" : step.mark ? "marked" : undefined }, step.marks ? marked(step.text, step.marks) : step.text || "");
    for (const image of step.images || []) made.append(make("img", { src: image, alt: "image", width: 240 }));
    if (step.mark) made.append(make("span", { class: "mark" }, step.mark));
    const again = [...new Set(faults.filter((fault) => told.has(fault)).map((fault) => told.get(fault)))];
    const fresh = faults.filter((fault) => !told.has(fault));
    for (const fault of fresh) told.set(fault, at);
    if (faults.length) made.append(make("ul", {}, fresh.map((fault) => make("li", {}, fault)), again.map((first) => make("li", { class: "again" }, `the same as at step ${first + 1}`))));
    return made;
  }));
}
function judgements(items, judged) {
  const named = items.some((one) => one.judge), reasoned = items.some((one) => one.rationale || one.findings);
  const rows = items.map((one) => {
    const badge = make("span", { class: `badge ${one.outcome === "number" ? "numeric" : one.outcome}` }, one.label);
    const about = [badge];
    if (one.reason) about.push(make("div", { class: "abstain" }, words(one.reason)));
    if (one.confidence) about.push(make("div", { class: "soft" }, `confidence ${one.confidence}`));
    const found = one.findings ? make("ul", { class: "findings" }, one.findings.map((finding) => make("li", {}, finding))) : null;
    const wanted = judged && judged(position(data.measures, one.measure), signOf(one));
    return make("tr", { role: "row", class: wanted ? "wanted" : undefined }, make("th", { scope: "row", role: "rowheader" }, one.measure), make("td", { role: "cell" }, about), named && make("td", { role: "cell" }, one.judge || ""), reasoned && make("td", { role: "cell" }, one.rationale ? long(one.rationale, "div") : null, found));
  });
  const heads = ["measure", "outcome", named && "judge", reasoned && "reason"].filter(Boolean).map((name) => make("th", { scope: "col", role: "columnheader" }, name));
  return make("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Judgements" }, make("table", { class: "verdicts", role: "table" }, make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, heads)), make("tbody", { role: "rowgroup" }, rows)));
}
function provenance(one) {
  const parts = [make("h3", {}, one.judge || "(unnamed)")];
  for (const name of one.prompts || []) parts.push(prompt(name));
  if (one.parameters) parts.push(make("div", { class: "soft" }, one.parameters.map(([name, value]) => `${name} = ${value}`).join(", ")));
  for (const call of one.calls || []) {
    const cost = call.cached ? "from the ledger" : `tokens ${call.tokens}, cost ${call.cost}`;
    parts.push(make("div", { class: "soft" }, [call.model || "(unnamed model)", cost, call.latency].filter(Boolean).join(", ")), long(call.raw_text || ""));
  }
  return parts;
}
/* The texts of the prompts are inflated when one of them is asked for: the page has each once. */
let prompts;
function prompt(name) {
  return fill(make("details", {}, make("summary", {}, `prompt: ${name}`)), () => {
    const shown = make("pre", { class: "text" });
    prompts ||= parsed.then(() => { const kept = byId("prompts"); return kept ? inflate(kept.textContent).then(JSON.parse) : {}; });
    prompts.then((texts) => shown.append(text(texts[name.split(" ").pop()] || "The results do not have the text of this prompt.")));
    return [shown];
  });
}
/* A long text is folded; its rest is one press away. */
function long(value, name = "pre") {
  if (value.length <= LONG) return make(name, { class: "text" }, value);
  const made = make(name, { class: "text" }, value.slice(0, LONG));
  const more = make("button", { type: "button" }, `Show ${count(value.length - LONG)} more characters`);
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
  byId("sort").value = filters.get("sort") || "";
  byId("differs").checked = filters.has("differs");
  if (document.activeElement !== byId("q")) byId("q").value = filters.get("q") || "";
  const chips = [];
  for (const [name, value] of filters) {
    if (NOT_FILTERS.includes(name)) continue;
    const label = LABELS[name] || name.replace(/^tag\./, ""), shown = name === "differs" ? label : `${label}: ${(name === "reason" ? words(value) : value) || "(unnamed)"}`;
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
  if (isFilter(hash)) found.then(toSamples);
  return true;
}
/* The focus goes to what was opened; the fault of a candidate comes into sight. */
function toSamples() {
  if (byId("filters").contains(document.activeElement)) return;
  const opened = !byId("one").hidden, goal = opened ? byId("one").querySelector("h3") : byId("samples");
  if (!goal) return;
  (opened ? byId("one") : byId("samples")).scrollIntoView();
  goal.focus({ preventScroll: true });
  const fault = opened && byId("one").querySelector("details[open] .at-fault");
  if (fault && fault.getBoundingClientRect().bottom > innerHeight) fault.scrollIntoView({ block: "center" });
}
choices(byId("model"), data.models, "any");
choices(byId("measure"), data.measures, "any");
whenIdle(tagChoices);
for (const name of ["model", "measure"]) byId(name).addEventListener("change", (event) => changeFilter(name, event.target.value ? event.target.value.slice(1) : null));
for (const name of ["outcome", "sort"]) byId(name).addEventListener("change", (event) => changeFilter(name, event.target.value || null));
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
addEventListener("hashchange", read);

/* Folded tables are printed; samples are printed as they stand. */
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details.folded")) one.open = true; });

/* The failures of a model are offered where it has any. */
const offered = byId("failures");
if (offered) {
  const model = position(data.models, new URLSearchParams(offered.querySelector("a").hash.slice(1)).get("model"));
  offered.hidden = !data.samples.some((_, place) => sampleAt(place).subjects.some(({ author, outcomes }) => author === model && outcomes.includes("f")));
}

/* A link to one sample has its title where the page has the sample, rather than its id. */
const named = document.querySelectorAll('th a[href*="id="]');
const titles = new Map(named.length ? data.samples.map(([, title, id]) => [id || title, title]) : []);
for (const link of named) {
  const title = titles.get(new URLSearchParams(link.hash.slice(1)).get("id"));
  if (!title) continue;
  link.replaceChildren(make("bdi", {}, title));
  link.closest("th").classList.remove("short");
}

/* j and k go to the next and the previous sample, except while something is written. A key goes on from the sample of the
   key before it, once that is shown: of two quick presses none is lost. */
let turned = Promise.resolve();
addEventListener("keydown", (event) => {
  if (byId("one").hidden || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  turned = turned.then(() => turn(event.key));
});
function turn(key) {
  const one = byId("one"), link = one.querySelector(`a[href][data-key="${CSS.escape(key)}"]`);
  return link && new Promise((done) => {
    const watcher = new MutationObserver(() => { watcher.disconnect(); done(); });
    watcher.observe(one, { childList: true });
    setTimeout(done, 1000);
    link.click();
  });
}

/* A scroller whose content goes on to the right says so at its edge. All are measured before one is changed. */
const isDrawn = (one) => !one.checkVisibility || one.checkVisibility({ contentVisibilityAuto: true });
const isCut = (one) => one.scrollLeft + one.clientWidth < one.scrollWidth - 2;
function cues() {
  const all = [...document.querySelectorAll(".wide, .matrix")].filter(isDrawn), found = all.map(isCut);
  all.forEach((one, at) => {
    one.classList.toggle("cut", found[at]);
    if (one.dataset.cued) return;
    one.dataset.cued = "1";
    one.addEventListener("scroll", () => one.classList.toggle("cut", isCut(one)), { passive: true });
  });
}
addEventListener("resize", cues);
for (const one of document.querySelectorAll(".sections")) one.addEventListener("contentvisibilityautostatechange", cues);

/* The chosen theme is kept where the browser stores it. */
const theme = byId("theme"), STORED = "dramaturg-theme";
function stored(value) {
  try {
    if (value !== undefined) localStorage.setItem(STORED, value);
    return localStorage.getItem(STORED) || "";
  } catch { return new URLSearchParams(location.search).get("theme") || ""; }
}
function choose(value) {
  if (value) document.documentElement.dataset.theme = value; else delete document.documentElement.dataset.theme;
}
theme.closest("label").hidden = false;
const kept = stored();
if (["light", "dark"].includes(kept)) theme.value = kept;
choose(theme.value);
theme.addEventListener("change", () => { stored(theme.value); choose(theme.value); if (parent !== window) tell(); });

if (!read()) { mirror(); find(); }

/* A page that frames this one has its title, and keeps its place and its theme. */
function tell() { parent.postMessage({ place: location.hash, top: scrollY, theme: theme.value }, "*"); }
if (parent !== window) {
  document.querySelector("h1").classList.add("hidden");
  for (const name of ["hashchange", "scroll"]) addEventListener(name, tell, { passive: true });
}
})();
