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

// Replaces a part and keeps the focus on the element with the same id.
function replace(part, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  if (fresh.innerHTML === part.dataset.shown) return;
  part.dataset.shown = fresh.innerHTML;
  const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
  part.replaceChildren(fresh.content);
  if (focused) document.getElementById(focused)?.focus();
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
document.querySelectorAll("form[data-busy]").forEach((form) => {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) return event.preventDefault();
    form.dataset.sent = "1";
    form.querySelector(".busy").textContent = form.dataset.busy;
  });
});
document.getElementById("result")?.focus();
