// Copying a new key or secret and the question before leaving its page, checks while typing, charts scrolled
// to their newest end. All pages work without this.
"use strict";

// -- a new key or secret, shown once ------------------------------------------------------------------------

const once = document.querySelector("[data-once]");
if (once) {
  const secret = once.querySelector("[data-secret]");
  const copied = once.querySelector("[data-copied]");
  const dialog = document.getElementById("leave");
  const kept = dialog.querySelector("[data-leave]");
  let isKept = false;

  // A reload goes to the key's own page instead of sending the form again.
  history.replaceState(null, "", once.dataset.home);

  const copy = once.querySelector("[data-copy]");
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    secret.select();
    try {
      await navigator.clipboard.writeText(secret.value);
      copied.textContent = "Copied.";
    } catch {
      // Without HTTPS, browsers may not give pages the clipboard.
      copied.textContent = document.execCommand("copy")
        ? "Copied."
        : "The browser does not let this page copy. The text is selected: copy it by hand.";
    }
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || link === kept || isKept) return;
    event.preventDefault();
    kept.href = link.href;
    dialog.showModal();
  });
  kept.addEventListener("click", () => { isKept = true; });
  dialog.querySelector("[data-stay]").addEventListener("click", () => {
    dialog.close();
    secret.focus();
  });
  // Signing out leaves the page too, and needs no question.
  document.addEventListener("submit", () => { isKept = true; });
  addEventListener("beforeunload", (event) => {
    if (!isKept) event.preventDefault();
  });
  // So that "back" does not show the key again.
  addEventListener("pagehide", () => { secret.value = ""; });
}

// -- charts that are wider than the screen show the newest steps first -----------------------------

for (const chart of document.querySelectorAll(".chart .scroll:has(svg)")) {
  chart.scrollLeft = chart.scrollWidth;
}

// -- ranges, checked as they are typed --------------------------------------------------------------

for (const field of document.querySelectorAll("[data-check]")) {
  const said = document.getElementById(`e-${field.name}`);
  let waiting = 0;
  let asked = 0;

  const check = async () => {
    const number = ++asked;
    const address = `${field.dataset.check}?text=${encodeURIComponent(field.value)}`;
    try {
      const answer = await fetch(address, { redirect: "error" });
      const { faults } = await answer.json();
      if (number !== asked) return; // more was typed meanwhile
      said.replaceChildren(...faults.map((text) => {
        const line = document.createElement("p");
        line.textContent = text;
        return line;
      }));
      if (faults.length) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    } catch {
      // The form itself is checked when it is sent.
    }
  };
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(check, 250);
  });
}

// -- a whole key must not be in a URL ---------------------------------------------------------------

for (const field of document.querySelectorAll("[data-no-secret]")) {
  field.form.addEventListener("submit", () => {
    field.value = field.value.replace(/gwk_[a-z0-9-]+_([0-9a-z]+)_\w*/gi, "$1");
  });
}
