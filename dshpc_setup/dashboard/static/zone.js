// Times in the zone of who looks: pages have them in that of the machine.
"use strict";

(() => {
  const two = (number) => String(number).padStart(2, "0");
  const shown = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

  const tell = (root) => {
    for (const each of root.querySelectorAll("time[datetime]")) {
      const at = new Date(each.dateTime);
      if (!Number.isNaN(at.getTime()) && each.textContent !== shown(at)) each.textContent = shown(at);
    }
  };

  tell(document);
  // Live parts are replaced as they are sent
  new MutationObserver((changes) => {
    for (const change of changes)
      for (const each of change.addedNodes) if (each instanceof Element) tell(each.parentElement ?? each);
  }).observe(document.body, { childList: true, subtree: true });
})();
