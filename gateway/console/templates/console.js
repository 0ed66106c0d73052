"use strict";
// Parts of a page with data-live are fetched again every two seconds, until the part says that it is final.
const INTERVAL = 2000;
const LONGEST = 30000;

function keepLive(part) {
  let wait = INTERVAL;
  const connection = document.getElementById("connection");
  const isFinal = () => part.querySelector("[data-final='1']") !== null;
  async function refresh() {
    if (document.hidden) return schedule();
    try {
      const response = await fetch(part.dataset.live, { headers: { "X-Console-Part": "1" } });
      if (response.status === 401) return location.reload();
      if (!response.ok) throw new Error(response.statusText);
      replace(part, await response.text());
      wait = INTERVAL;
      if (connection) connection.textContent = "";
    } catch {
      wait = Math.min(2 * wait, LONGEST);
      if (connection) connection.textContent = "The gateway does not answer. The page tries again.";
    }
    schedule();
  }
  function schedule() {
    if (!isFinal()) setTimeout(refresh, wait);
  }
  schedule();
}

// Replaces a part. Elements with the same id keep the focus, what is ticked, and whether they are open.
function replace(part, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  if (fresh.innerHTML === part.dataset.shown) return;
  part.dataset.shown = fresh.innerHTML;
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  const kept = [...part.querySelectorAll("input[type=checkbox][id], details[id]")].map((one) => [one.id, one.checked ?? one.open]);
  part.replaceChildren(fresh.content);
  for (const [id, on] of kept) {
    const same = document.getElementById(id);
    if (same) same[same.matches("details") ? "open" : "checked"] = on;
  }
  if (focused) document.getElementById(focused)?.focus();
  part.dispatchEvent(new Event("replaced", { bubbles: true }));
}

document.querySelectorAll("[data-live]").forEach(keepLive);
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});

// Keys of labelling: a key presses the button or follows the link that shows it, except while a text is written.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (target === null) return;
  event.preventDefault();
  target.click();
});

// A form that takes long says so, and is sent once.
document.querySelectorAll("form[data-busy]:not([data-check])").forEach((form) => {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    form.querySelector(".busy").textContent = form.dataset.busy;
  });
});

// A form with a file is checked at each change and sent without leaving the page, which would forget the file.
function keepChecked(form) {
  const part = document.getElementById("checked"), button = form.querySelector("button.primary"), busy = form.querySelector(".busy");
  const hasFile = () => form.elements.file.files.length > 0;
  let sent = null, typed = 0, isStarting = false;
  async function send(address, word) {
    clearTimeout(typed);
    sent?.abort();
    const mine = (sent = new AbortController());
    busy.textContent = word;
    button.disabled = isStarting = address === form.action;
    try {
      const response = await fetch(address, { method: "POST", body: new FormData(form), headers: { "X-Console-Part": "1" }, signal: mine.signal });
      if (response.status === 401) return location.reload();
      if (response.status === 201) return location.assign(response.headers.get("Location"));
      if (response.status === 413) throw new Error("The file is too large.");
      const html = await response.text();
      replace(part, html);
      if (part.querySelector("[name=judge]")) form.querySelectorAll("[data-first]").forEach((one) => one.remove());
      busy.textContent = "";
    } catch (error) {
      if (mine.signal.aborted) return;
      busy.textContent = error instanceof TypeError ? "The gateway does not answer." : error.message;
    }
    button.disabled = isStarting = false;
  }
  function check() {
    if (isStarting) return;
    button.disabled = !hasFile();
    if (hasFile()) send(form.dataset.check, "The file is read.");
  }
  form.addEventListener("change", check);
  form.addEventListener("input", (event) => {
    clearTimeout(typed);
    if (event.target.matches("input[type=text], input[type=number], textarea")) typed = setTimeout(check, 500);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (hasFile() && !button.disabled) send(form.action, form.dataset.busy);
  });
  check();
}
document.querySelectorAll("form[data-check]").forEach(keepChecked);

// Fields that only one value of another field needs.
document.querySelectorAll("[data-shown-if]").forEach((one) => {
  const [name, value] = one.dataset.shownIf.split("="), field = one.closest("form").elements[name];
  const show = () => { one.hidden = field.value !== value; };
  field.addEventListener("change", show);
  show();
});

// A rubric gets one more criterion.
document.querySelectorAll("[data-criteria]").forEach((one) => {
  const add = one.querySelector("button.add"), template = one.querySelector("template");
  add.hidden = false;
  add.addEventListener("click", () => {
    const fresh = template.content.cloneNode(true);
    const number = one.querySelectorAll("fieldset.criterion").length;
    fresh.querySelectorAll("[name]").forEach((field) => { field.name = field.name.replace("NUMBER", number); });
    template.before(fresh);
    one.querySelector(`[name="criterion.${number}.id"]`).focus();
  });
});

// Two runs are compared.
document.querySelectorAll("form[data-two]").forEach((form) => {
  const button = form.querySelector("button");
  const count = () => { if (button) button.disabled = form.querySelectorAll("input[type=checkbox]:checked").length !== 2; };
  form.addEventListener("change", count);
  form.addEventListener("replaced", count);
  count();
});

// A command is copied.
document.querySelectorAll("[data-copy]").forEach((one) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(one.textContent);
    button.textContent = "Copied";
  });
  one.after(" ", button);
});

// The theme that is chosen in a report is that of the console, and of its next reports.
const root = document.documentElement, THEMES = ["", "light", "dark"], STORED = "dramaturg-theme";
function dress(theme) {
  if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
}
try { dress(THEMES.find((one) => one === localStorage.getItem(STORED))); } catch { /* storage is refused */ }

// The report is framed. Its place is kept in the address of the page, and it is read again as the run goes on.
const AGAIN = 10000;
function keepReport(frame) {
  const address = frame.dataset.report + (frame.dataset.report.includes("?") ? "&" : "?");
  let shown = null, place = location.hash, top = 0, last = 0;
  function read() {
    const { final = "1", finished = "", state = "" } = document.getElementById("final")?.dataset || {};
    const now = finished + state, isFinal = final === "1";
    frame.hidden = !isFinal && finished === "0";
    // A reader who has scrolled keeps what is shown until the run has ended.
    const waits = shown !== null && !isFinal && (top > 0 || Date.now() - last < AGAIN);
    if (frame.hidden || now === shown || waits) return;
    shown = now;
    last = Date.now();
    frame.src = `${address}at=${encodeURIComponent(now)}&theme=${root.dataset.theme || ""}${place}`;
  }
  addEventListener("message", (event) => {
    const told = event.data?.place;
    if (event.source !== frame.contentWindow || typeof told !== "string" || !/^(#|$)/.test(told)) return;
    top = Number(event.data.top) || 0;
    const theme = event.data.theme;
    if (THEMES.includes(theme) && theme !== (root.dataset.theme || "")) {
      dress(theme);
      try { localStorage.setItem(STORED, theme); } catch { /* storage is refused */ }
    }
    if (told === place) return;
    place = told;
    history.replaceState(null, "", place || location.pathname + location.search);
  });
  addEventListener("replaced", read);
  setInterval(read, AGAIN);
  read();
}
document.querySelectorAll("iframe[data-report]").forEach(keepReport);
document.getElementById("result")?.focus();
