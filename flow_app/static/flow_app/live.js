/* Keeps the page of an open run up to date: asks now and then for the part that changes, and puts it in place.
   Nothing is asked while the page is hidden; what was unfolded stays unfolded, what had the focus keeps it, and a
   screen reader hears the new headline alone. */
(function () {
  "use strict";
  const SOON = 2000, LATE = 15000;
  let pause = SOON, timer = null, asking = null;

  const part = () => document.querySelector("[data-flow-live]");

  function later() {
    clearTimeout(timer);
    timer = part() && !document.hidden ? setTimeout(ask, pause) : null;
  }

  async function ask() {
    const old = part();
    if (!old || document.hidden) return;
    const url = new URL(old.dataset.flowLive, location.href);
    url.searchParams.set("version", old.dataset.flowVersion);
    asking = new AbortController();
    try {
      const answer = await fetch(url, {
        credentials: "same-origin", headers: {"X-Requested-With": "XMLHttpRequest"}, redirect: "error", signal: asking.signal,
      });
      if (answer.status === 403 || answer.status === 404) return stop(old);
      if (answer.status === 200) {
        const text = await answer.text();
        put(old, text);
      }
      pause = answer.status === 200 ? SOON : Math.min(pause * 1.25, LATE);
    } catch (error) {
      pause = LATE;
    }
    later();
  }

  function stop(old) {
    delete old.dataset.flowLive;
  }

  function put(old, text) {
    const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("flow-live");
    if (!fresh || !old.isConnected) return;
    const focus = document.activeElement && old.contains(document.activeElement) ? nameOf(document.activeElement) : null;
    for (const details of old.querySelectorAll("details[id]")) {
      const twin = fresh.querySelector("#" + CSS.escape(details.id));
      if (twin) twin.open = details.open;
    }
    const before = headline(old);
    old.replaceWith(document.adoptNode(fresh));
    const said = document.getElementById("flow-said");
    if (said && headline(fresh) !== before) said.textContent = headline(fresh);
    if (focus) {
      for (const element of fresh.querySelectorAll("a, button, summary")) {
        if (nameOf(element) === focus) { element.focus({preventScroll: true}); break; }
      }
    }
    document.dispatchEvent(new CustomEvent("flow-app:refreshed"));
  }

  function headline(root) {
    const found = root.querySelector(".flow-headline");
    return found ? found.textContent : "";
  }

  function nameOf(element) {
    const frame = element.closest("details[id]");
    return [element.tagName, element.getAttribute("href"), element.form && element.form.getAttribute("action"),
      frame && frame.id, element.textContent.trim()].join("|");
  }

  /* A lane of the picture leads to what is said of it, which may be folded. */
  document.addEventListener("click", function (event) {
    const link = event.target.closest("a[href^='#flow-lane-']");
    const told = link && document.getElementById("flow-told");
    if (told) told.open = true;
  });

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      clearTimeout(timer);
      if (asking) asking.abort();
    } else {
      pause = SOON;
      ask();
    }
  });
  later();
})();
