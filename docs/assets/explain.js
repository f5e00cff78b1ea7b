// From a pasted text to its causes, as dshpc_setup/pasted does it: the rules are its own, exported when the
// site is built. tests/integration/test_site.py compares both.
"use strict";

var dshpcExplain = function (rules, text) {
  var quotes = { "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "`": "'" };
  var compiled = {};

  function match(words, said) {
    compiled[words] = compiled[words] || new RegExp(words, "i");
    return compiled[words].exec(said);
  }

  function matches(words, said) {
    return Array.from(said.matchAll(new RegExp(words, "gi")));
  }

  function shorten(said) {
    var words = said.split(/\s+/).filter(Boolean).join(" ").replace(/^["' ]+|["' ]+$/g, "");
    return words.length <= rules.shown ? words : words.slice(0, rules.shown - 3) + "...";
  }

  function oneLine(raw) {
    return raw.replace(new RegExp(rules.again, "g"), " ").replace(/\\/g, "").split(/\s+/).filter(Boolean).join(" ");
  }

  function found(findings, said) {
    return { finding: findings[0], besides: findings.slice(1), words: shorten(said) };
  }

  function bySigns(signs, flat) {
    return signs.flatMap(function (sign) {
      var said = match(sign.words, flat);
      if (!said || !match(sign.also, flat)) return [];
      return [found(sign.findings, said[said.length - 1] || said[0])];
    });
  }

  function byLog(raw, flat) {
    var lines = raw.split("\n").filter(function (line) { return match(rules.about, line); });
    if (!lines.length) return [];
    var told = ofLines(lines);
    if (!told.length) told = ofLines([flat]);
    var all = told.map(function (each) { return each.finding; });
    function caused(each) {
      return each.because.some(function (cause) { return all.includes(cause); }) ? 1 : 0;
    }
    told.sort(function (one, other) { return caused(one) - caused(other); });
    return told.map(function (each) { return found([each.finding], each.line); });
  }

  function ofLines(lines) {
    var seen = {};
    rules.log.forEach(function (rule) {
      lines.forEach(function (line) {
        if (seen[rule.finding] || !match(rule.words, line)) return;
        if (rule.unless && match(rule.unless, line)) return;
        seen[rule.finding] = { finding: rule.finding, because: rule.because, line: line };
      });
    });
    return Object.values(seen);
  }

  function byRefusals(raw, flat) {
    var said = raw + "\n" + flat;
    var ofEngines = match(rules.ofEngines, raw);
    var hold = [], might = [];
    rules.refusals.forEach(function (rule) {
      if (rule.general && !ofEngines) return;
      var all = matches(rule.words, said);
      if (all.length && rule.holds) hold.push(found([rule.finding], all[0][0]));
      else if (all.length) might.push(rule.finding);
    });
    if (!hold.length) return [];
    hold[0].besides = hold.slice(1).map(function (each) { return each.finding; }).concat(might);
    return [hold[0]];
  }

  var raw = text.replace(new RegExp(rules.escapes, "g"), "").replace(/[\u2018\u2019\u201c\u201d`]/g, function (each) {
    return quotes[each];
  });
  var half = rules.most / 2;
  if (raw.length > rules.most) raw = raw.slice(0, half) + "\n" + raw.slice(-half);
  var flat = oneLine(raw);
  var all = bySigns(rules.first, flat).concat(
    byLog(raw, flat),
    bySigns(rules.next, flat),
    byRefusals(raw, flat),
    bySigns(rules.last, oneLine(raw.replace(new RegExp(rules.numbered, "gi"), "")))
  );
  if (!all.length) return null;
  var besides = all.flatMap(function (each) { return [each.finding].concat(each.besides); });
  besides = Array.from(new Set(besides)).filter(function (each) { return each !== all[0].finding; });
  return { finding: all[0].finding, besides: besides, words: all[0].words };
};

if (typeof document !== "undefined") {
  (function () {
    var box = document.getElementById("explain-text");
    var answer = document.getElementById("explain-answer");
    var titles = dshpcRules.titles;

    function paragraph(words) {
      var made = document.createElement("p");
      made.textContent = words;
      answer.appendChild(made);
      return made;
    }

    function link(finding) {
      var made = document.createElement("a");
      made.href = "findings/" + finding + ".html";
      made.textContent = titles[finding] + " (" + finding + ")";
      return made;
    }

    function listed(findings) {
      var list = document.createElement("ul");
      findings.forEach(function (each) {
        list.appendChild(document.createElement("li")).appendChild(link(each));
      });
      answer.appendChild(list);
    }

    box.addEventListener("input", function () {
      answer.replaceChildren();
      var said = box.value.trim();
      if (!said) return;
      var id = /^(?:dsh-)?([a-z]{2})-?0*(\d{1,3})$/i.exec(said);
      var full = id && "DSH-" + id[1].toUpperCase() + "-" + id[2].padStart(3, "0");
      if (full && titles[full]) return listed([full]);
      var told = dshpcExplain(dshpcRules, said);
      if (!told) {
        paragraph("No rule knows this text. On the machine, dshpc doctor says what is wrong; the search above looks in all pages.");
        return;
      }
      var first = paragraph("Likeliest: ");
      first.appendChild(link(told.finding));
      paragraph("Found by these words: " + told.words);
      if (told.besides.length) {
        paragraph("It can also be:");
        listed(told.besides);
      }
    });
  })();
}
