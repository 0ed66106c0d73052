"use strict";
const query = document.getElementById("query"), faulty = document.getElementById("faulty");
const samples = [...document.querySelectorAll("details.sample")], shown = document.getElementById("shown");
function filter() {
  const wanted = query.value.toLowerCase().trim();
  let count = 0;
  for (const sample of samples) {
    const fits = (!faulty.checked || sample.dataset.faulty === "1")
      && (!wanted || sample.textContent.toLowerCase().includes(wanted));
    sample.hidden = !fits;
    count += fits;
  }
  shown.textContent = `${count} of ${samples.length} shown`;
}
query.addEventListener("input", filter);
faulty.addEventListener("change", filter);
filter();
