// A terminal: what the server's program prints, and what is typed.
"use strict";

(() => {
  const { nonce } = document.currentScript.dataset;
  const make = document.createElement.bind(document);
  // Styles that xterm.js makes are let in by this page's own secret
  document.createElement = (name, ...more) => {
    const made = make(name, ...more);
    if (name === "style") made.nonce = nonce;
    return made;
  };

  const screen = document.getElementById("screen");
  const said = document.getElementById("said");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark
    ? { background: "#14171b", foreground: "#e6e9ee", cursor: "#e6e9ee", selectionBackground: "#46505d" }
    : { background: "#ffffff", foreground: "#1a1d21", cursor: "#1a1d21", selectionBackground: "#b9d0ee" };
  const terminal = new Terminal({
    theme, fontSize: 14, scrollback: 5000, cursorBlink: false, screenReaderMode: true,
    minimumContrastRatio: 4.5,
  });
  const fit = new FitAddon.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(screen);
  fit.fit();

  const address = new URL(screen.dataset.socket, location.href);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  const words = { 1000: "It has ended.", 4001: "Another page shows it now.", 4004: "It is not there any more." };
  const bytes = new TextEncoder();
  let over = false;
  let again = 0;
  let socket;

  const send = (data) => {
    if (socket?.readyState === WebSocket.OPEN) socket.send(data);
  };
  const tell = () => send(JSON.stringify({ rows: terminal.rows, columns: terminal.cols }));

  const join = () => {
    socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      again = 0;
      said.textContent = "";
      terminal.reset();
      tell();
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") terminal.write(new Uint8Array(data));
      else {
        over = true;
        said.textContent = `It has ended, with ${JSON.parse(data).ended}.`;
      }
    };
    socket.onclose = ({ code }) => {
      if (over) return;
      if (code in words) {
        said.textContent = words[code];
        return;
      }
      again += 1;
      said.textContent = again < 10 ? "The connection is lost: trying again." : "The connection is lost.";
      if (again < 10) setTimeout(join, 1000);
    };
  };

  terminal.onData((text) => {
    const keys = bytes.encode(text);
    for (let at = 0; at < keys.length; at += 32768) send(keys.slice(at, at + 32768));
  });
  terminal.onBinary((text) => send(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  terminal.onResize(tell);
  addEventListener("resize", () => fit.fit());
  // A keyboard must get out again
  let escaped = 0;
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.type !== "keydown") return true;
    const soon = event.timeStamp - escaped < 600;
    escaped = event.key === "Escape" ? event.timeStamp : 0;
    if (event.key !== "Escape" || !soon) return true;
    document.querySelector("form.acts button").focus();
    return false;
  });
  join();
  terminal.focus();
})();
