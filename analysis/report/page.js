"use strict";
// The request explorer. Reads the page's own data blocks; asks no network, keeps no state.
(() => {
  const block = (id) => {
    const found = document.getElementById(id);
    return found ? JSON.parse(found.textContent) : null;
  };
  const data = block("requests-data");
  const app = document.getElementById("requests-app");
  if (!data || !app) return;
  const audio = block("audio-data") || {};
  const SVG = "http://www.w3.org/2000/svg";
  const PAGE = 50;
  const state = { sort: data.sort, down: data.sort_down, page: 0, rows: [], open: null };

  const el = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === false || value === null || value === undefined) continue;
      made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  };
  const svg = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const ms = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString());

  // -- table ----------------------------------------------------------------------------------

  const columns = data.columns;
  const isNumber = (column) => column.kind === "number" || column.kind === "latency";
  const cell = (row, column) => data.values[column.key][row];
  const shown = (row, column) => {
    const value = cell(row, column);
    if (column.kind === "label") return data.labels[column.key][value];
    if (column.kind === "text") return value;
    return ms(value);
  };
  const rank = (row, column) => {
    const value = cell(row, column);
    return column.kind === "label" ? data.labels[column.key][value] : value;
  };

  const textBox = app.querySelector("#filter-text");
  const pointBox = app.querySelector("#filter-point");
  const outcomeBox = app.querySelector("#filter-outcome");
  const audioBox = app.querySelector("#filter-audio");
  const head = app.querySelector("thead");
  const body = app.querySelector("tbody");
  const status = app.querySelector("#requests-status");
  const before = app.querySelector("#page-before");
  const after = app.querySelector("#page-after");

  const matches = (row) => {
    const values = data.values;
    if (pointBox.value !== "" && values.point[row] !== Number(pointBox.value)) return false;
    if (outcomeBox.value !== "" && values.outcome[row] !== Number(outcomeBox.value)) return false;
    if (audioBox && audioBox.checked && !(values.id[row] in audio)) return false;
    const wanted = textBox.value.trim().toLowerCase();
    if (wanted === "") return true;
    return (values.id[row] + " " + data.prompts[values.prompt[row]]).toLowerCase().includes(wanted);
  };

  const arrange = () => {
    const column = columns.find((each) => each.key === state.sort);
    const sign = state.down ? -1 : 1;
    state.rows = [...data.values.id.keys()].filter(matches).sort((a, b) => {
      const left = rank(a, column);
      const right = rank(b, column);
      if (left === right) return a - b;
      // A latency that was never reached is worse than any number; it leads when the worst come
      // first. Elsewhere a missing value does not apply, and comes last whichever way one sorts.
      if (left === null || right === null) {
        const missing = column.kind === "latency" ? sign : 1;
        return left === null ? missing : -missing;
      }
      return left < right ? -sign : sign;
    });
  };

  const draw = () => {
    const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const first = state.page * PAGE;
    const visible = state.rows.slice(first, first + PAGE);
    body.replaceChildren(...visible.flatMap((row) => {
      const line = tableRow(row);
      return row === state.open ? [line, detailRow(row)] : [line];
    }));
    status.textContent = state.rows.length === 0
      ? "No request matches."
      : `Requests ${first + 1} to ${first + visible.length} of ${state.rows.length}`;
    before.disabled = state.page === 0;
    after.disabled = state.page >= pages - 1;
    for (const header of head.querySelectorAll("th[data-key]")) {
      const isSorted = header.dataset.key === state.sort;
      header.setAttribute("aria-sort", isSorted ? (state.down ? "descending" : "ascending") : "none");
    }
  };

  const tableRow = (row) => {
    const id = data.values.id[row];
    const isOpen = row === state.open;
    const button = el("button", {
      type: "button", class: "open", "aria-expanded": String(isOpen), "data-row": String(row),
    }, id, id in audio ? " ♪" : "");
    button.addEventListener("click", () => {
      state.open = isOpen ? null : row;
      draw();
      showStall();
      const again = body.querySelector(`button[data-row="${row}"]`);
      if (again) again.focus();
    });
    const cells = columns.slice(1).map((column) =>
      el("td", { class: isNumber(column) ? "num" : "label" }, shown(row, column)));
    return el("tr", {}, el("td", {}, button), ...cells);
  };

  // On a narrow screen the picture is wider than its frame: bring the first stall into it.
  const showStall = () => {
    const frame = body.querySelector("tr.detail .pic");
    const stall = frame && frame.querySelector("rect.stall");
    if (!stall) return;
    const at = stall.x.baseVal.value / 1000 * frame.querySelector("svg").getBoundingClientRect().width;
    frame.scrollLeft = at - frame.clientWidth / 2;
  };

  // -- one request ----------------------------------------------------------------------------

  const detailRow = (row) => {
    const values = data.values;
    const panel = el("div", { class: "panel" });
    panel.append(el("p", { class: "text" }, el("strong", {}, "Text: "), data.prompts[values.prompt[row]]));
    const error = data.errors[values.id[row]];
    if (error) panel.append(el("p", { class: "text bad" }, error));
    // Scrolls by itself on a narrow screen, by keyboard, too.
    panel.append(el("div", { class: "pic", tabindex: "0", role: "region", "aria-label": "Waterfall" }, waterfall(row)));
    panel.append(el("p", { class: "facts" }, waterfallWords(row)));
    const diff = data.diffs[values.id[row]];
    if (diff) panel.append(difference(diff));
    const clip = audio[values.id[row]];
    if (clip) panel.append(player(row, clip));
    return el("tr", { class: "detail" }, el("td", { colspan: columns.length }, panel));
  };

  const difference = (diff) => {
    const words = el("p", { class: "diff" }, el("strong", {}, `Heard (WER ${diff.wer}): `));
    for (const [kind, reference, heard] of diff.edits) {
      if (kind === "equal") words.append(reference + " ");
      if (reference && kind !== "equal") words.append(el("del", {}, reference), " ");
      if (heard && kind !== "equal") words.append(el("ins", {}, heard), " ");
    }
    return words;
  };

  // Chunks are stored as [gap to the one before, media, slack or null] in tenths of a millisecond.
  const chunksOf = (row) => {
    let at = 0;
    return data.chunks[row].map(([gap, media, slack]) => {
      at += gap;
      return { at: at / 10, media: media / 10, slack: slack === null ? null : slack / 10 };
    });
  };

  const spansOf = (row, chunks) => {
    // When each chunk plays was found by the analysis: at its due time, or on arrival if late.
    const spans = [];
    for (const chunk of chunks) {
      if (chunk.media <= 0) continue;
      let start = data.values.play_start[row];
      if (start === null) return [];
      if (chunk.slack !== null) start = chunk.at + Math.max(0, chunk.slack);
      const last = spans[spans.length - 1];
      // Stored times are rounded to 0.1 ms; a gap below that is rounding.
      if (last && start - (last.start + last.length) < 0.25) last.length += chunk.media;
      else spans.push({ start, length: chunk.media });
    }
    return spans;
  };

  const waterfallWords = (row) => {
    const parts = data.phases.map((phase) => {
      const value = data.values[phase.key][row];
      return value === null ? null : `${phase.label} ${ms(value)} ms`;
    }).filter((part) => part !== null);
    const late = chunksOf(row).filter((chunk) => chunk.slack !== null && chunk.slack < 0).length;
    parts.push(`${data.chunks[row].length} chunks, ${late} after their due time`);
    return "From dispatch: " + parts.join(" · ");
  };

  const waterfall = (row) => {
    const chunks = chunksOf(row);
    const spans = spansOf(row, chunks);
    const values = data.values;
    const moments = data.phases.map((phase) => values[phase.key][row]).filter((value) => value !== null);
    const last = spans.length ? spans[spans.length - 1].start + spans[spans.length - 1].length : 0;
    const low = Math.min(0, ...moments);
    const high = Math.max(1, last, ...moments, ...chunks.map((chunk) => chunk.at));
    const width = 1000;
    const left = 90;
    const x = (value) => left + (value - low) / (high - low) * (width - left - 20);
    const picture = svg("svg", { viewBox: `0 0 ${width} 196`, role: "img", "aria-label": waterfallWords(row) });
    const text = (at, y, words, anchor) => picture.append(svg("text", { x: at, y, "text-anchor": anchor || "start", class: "tick" }, words));
    for (const tick of ticks(low, high)) {
      picture.append(svg("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 4, y2: 172 }));
      text(x(tick), 188, `${ms(tick)} ms`, "middle");
    }
    text(left - 8, 53, "request", "end");
    text(left - 8, 76, "chunks", "end");
    text(left - 8, 102, "due", "end");
    text(left - 8, 140, "played", "end");
    drawPhases(picture, row, x);
    for (const chunk of chunks) {
      const isLate = chunk.slack !== null && chunk.slack < 0;
      picture.append(svg("line", { class: isLate ? "late" : "ontime", x1: x(chunk.at), x2: x(chunk.at), y1: 63, y2: 81 }));
      if (chunk.slack !== null) {
        const due = chunk.at + chunk.slack;
        picture.append(svg("line", { class: "due", x1: x(due), x2: x(due), y1: 91, y2: 107 }));
        if (isLate) picture.append(svg("line", { class: "late", x1: x(due), x2: x(chunk.at), y1: 91, y2: 80 }));
      }
    }
    if (spans.length) picture.append(svg("rect", { class: "wait", x: x(0), y: 122, width: Math.max(0, x(spans[0].start) - x(0)), height: 34 }));
    spans.forEach((span, number) => {
      picture.append(svg("rect", { class: "play", x: x(span.start), y: 122, width: Math.max(1, x(span.start + span.length) - x(span.start)), height: 34, opacity: 0.35 }));
      if (number === 0) return;
      const gapStart = spans[number - 1].start + spans[number - 1].length;
      picture.append(svg("rect", { class: "stall", x: x(gapStart), y: 122, width: Math.max(1.5, x(span.start) - x(gapStart)), height: 34 }));
    });
    picture.append(svg("g", { class: "wave-layer" }));
    const audible = values.audible_ttfa[row];
    if (audible !== null && audible !== undefined) {
      picture.append(svg("line", { class: "onset", x1: x(audible), x2: x(audible), y1: 114, y2: 162 }));
      text(x(audible) + 4, 172, "first sound", "start");
    }
    picture.scaleX = x;
    picture.spans = spans;
    return picture;
  };

  const SEGMENTS = [["dispatched", "connected"], ["sent", "first_byte"], ["first_byte", "end"]];

  const drawPhases = (picture, row, x) => {
    const values = data.values;
    const momentOf = (key) => (key === "dispatched" ? 0 : values[key][row]);
    SEGMENTS.forEach(([from, to], number) => {
      const start = momentOf(from);
      const stop = momentOf(to);
      if (start === null || stop === null || stop < start) return;
      picture.append(svg("rect", { class: `seg${number}`, x: x(start), y: 46, width: Math.max(1, x(stop) - x(start)), height: 7 }));
    });
    let level = 0;
    let lastX = -1000;
    for (const phase of data.phases) {
      const moment = momentOf(phase.key);
      if (moment === null) continue;
      const at = x(moment);
      const isAtEdge = at > 900;
      // Labels that would lie on each other take the next line.
      level = at - lastX < 84 ? (level + 1) % 3 : 0;
      lastX = at;
      picture.append(svg("line", { class: "axis", x1: at, x2: at, y1: 6, y2: 54 }));
      picture.append(svg("text", { x: isAtEdge ? at - 4 : at + 4, y: 14 + 13 * level, class: "tick", "text-anchor": isAtEdge ? "end" : "start" }, phase.label));
    }
  };

  const ticks = (low, high) => {
    const raw = (high - low) / 8;
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((each) => each * size >= raw) * size;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(Math.round(at * 1000) / 1000);
    return found;
  };

  // -- sound ----------------------------------------------------------------------------------

  const player = (row, clip) => {
    const holder = el("div", { class: "clips" });
    const bytes = Uint8Array.from(atob(clip.flac), (letter) => letter.charCodeAt(0));
    const plain = el("audio", { controls: true, preload: "metadata", src: `data:audio/flac;base64,${clip.flac}`, "aria-label": "The clip as it was received" });
    const heard = el("audio", { controls: true, preload: "metadata", "aria-label": "The clip as heard, with the wait and the stalls" });
    holder.append(
      el("figure", {}, el("figcaption", {}, "The clip"), plain),
      el("figure", {}, el("figcaption", {}, "As heard from dispatch: a blip, the wait, then the reply with its stalls as silence"), heard));
    new OfflineAudioContext(1, 1, clip.rate).decodeAudioData(bytes.buffer).then((decoded) => {
      const samples = decoded.getChannelData(0);
      const picture = holder.parentElement && holder.parentElement.querySelector("svg");
      if (!picture) return;
      heard.src = URL.createObjectURL(new Blob([wav(asHeard(samples, clip.rate, picture.spans), clip.rate)], { type: "audio/wav" }));
      picture.querySelector(".wave-layer").replaceChildren(wave(samples, clip.rate, picture));
    }).catch(() => holder.append(el("p", { class: "warn" }, "This browser cannot decode the clip.")));
    return holder;
  };

  const asHeard = (samples, rate, spans) => {
    const last = spans[spans.length - 1];
    const total = last ? Math.ceil((last.start + last.length) / 1000 * rate) + 1 : samples.length;
    const out = new Float32Array(Math.max(total, 1));
    // 30 ms of a quiet tone says where the wait begins; the wait itself is silence.
    for (let i = 0; i < Math.min(out.length, 0.03 * rate); i += 1) out[i] = 0.08 * Math.sin(2 * Math.PI * 880 * i / rate);
    let from = 0;
    for (const span of spans) {
      const count = Math.round(span.length / 1000 * rate);
      const piece = samples.subarray(from, from + count);
      const at = Math.round(span.start / 1000 * rate);
      out.set(piece.subarray(0, Math.max(0, out.length - at)), at);
      from += count;
    }
    return out;
  };

  const wav = (samples, rate) => {
    const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
    const text = (at, letters) => [...letters].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
    text(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); text(8, "WAVEfmt ");
    view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
    view.setUint32(24, rate, true); view.setUint32(28, 2 * rate, true); view.setUint16(32, 2, true); view.setUint16(34, 16, true);
    text(36, "data"); view.setUint32(40, 2 * samples.length, true);
    samples.forEach((value, i) => view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, value)) * 32767, true));
    return view.buffer;
  };

  const wave = (samples, rate, picture) => {
    const parts = [];
    // Quiet clips are drawn up to half the lane, so that their shape is seen at all.
    const loudest = samples.reduce((most, value) => Math.max(most, Math.abs(value)), 0.2);
    let from = 0;
    for (const span of picture.spans) {
      const count = Math.round(span.length / 1000 * rate);
      const left = picture.scaleX(span.start);
      const width = picture.scaleX(span.start + span.length) - left;
      const steps = Math.max(1, Math.floor(width));
      for (let step = 0; step < steps; step += 1) {
        let peak = 0;
        const start = from + Math.floor(step * count / steps);
        const stop = Math.min(samples.length, from + Math.floor((step + 1) * count / steps));
        for (let i = start; i < stop; i += 1) peak = Math.max(peak, Math.abs(samples[i]));
        const half = Math.min(17, 0.5 + 16.5 * peak / loudest);
        parts.push(`M${(left + step).toFixed(1)} ${(139 - half).toFixed(1)}v${(2 * half).toFixed(1)}`);
      }
      from += count;
    }
    return svg("path", { class: "wave", d: parts.join("") });
  };

  // -- wiring ---------------------------------------------------------------------------------

  head.append(el("tr", {}, ...columns.map((column) => {
    const button = el("button", { type: "button" }, column.label);
    button.addEventListener("click", () => {
      state.down = state.sort === column.key ? !state.down : isNumber(column);
      state.sort = column.key;
      state.page = 0;
      arrange();
      draw();
    });
    return el("th", { scope: "col", "data-key": column.key, class: isNumber(column) ? "num" : false }, button);
  })));
  const refilter = () => { state.page = 0; state.open = null; arrange(); draw(); };
  textBox.addEventListener("input", refilter);
  for (const box of [pointBox, outcomeBox, audioBox]) if (box) box.addEventListener("change", refilter);
  before.addEventListener("click", () => { state.page -= 1; draw(); });
  after.addEventListener("click", () => { state.page += 1; draw(); });
  // Paper cannot unfold anything: what is folded is opened for it, and closed again afterwards.
  window.addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details:not([open])")) {
      each.open = true;
      each.dataset.forPrint = "";
    }
  });
  window.addEventListener("afterprint", () => {
    for (const each of document.querySelectorAll("details[data-for-print]")) {
      each.open = false;
      delete each.dataset.forPrint;
    }
  });
  // A link into something folded opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let each = target.closest("details"); each; each = each.parentElement.closest("details")) each.open = true;
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  arrange();
  draw();
  app.hidden = false;
  reveal();
})();
