const NARROW = innerWidth < 640, LEFT = NARROW ? 112 : 200, NAMES = NARROW ? 6 : 14;
const ROW = 22, AXIS = 26, NEAR = 4;
const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d"), tip = document.getElementById("tip");
const rows = D.tracks.map(() => []);
for (const e of D.events) rows[e[0]].push(e);
let from = D.from, to = Math.min(D.to, D.from + D.first), top_ = 0, mouse = null, held = null, ink = {};
let moment = null;  // the cycle whose barriers are shown

const wide = () => Math.max(1, canvas.clientWidth - LEFT - 8);
const x = cycles => LEFT + (cycles - from) / (to - from) * wide();
const cycle = at => from + (at - LEFT) / wide() * (to - from);
const fmt = n => n.toLocaleString("en", {maximumFractionDigits: 1});

function show(start, span) {
  span = Math.min(Math.max(span, 20), D.to - D.from);
  from = Math.min(Math.max(start, D.from), D.to - span);
  to = from + span;
  const hidden = rows.length * ROW + AXIS + 8 - canvas.clientHeight;
  top_ = Math.min(Math.max(top_, 0), Math.max(hidden, 0));
  document.getElementById("shown").textContent = range();
  requestAnimationFrame(draw);
}

function range() {  // who sees a part knows of how much
  const [first, last, all] = [from, to, D.to].map(cycles => Math.round(cycles).toLocaleString("en"));
  if (from <= D.from && to >= D.to) return `Cycles ${first} to ${all}, which are all.`;
  return `Cycles ${first} to ${last} of ${all}; a double click shows all.`;
}

function firstAfter(row, at) {  // the first event that ends after this cycle
  let low = 0, high = row.length;
  while (low < high) { const mid = low + high >> 1; if (row[mid][2] < at) low = mid + 1; else high = mid; }
  return low;
}

function drawRow(row, y) {
  for (let i = firstAfter(row, from); i < row.length && row[i][1] <= to; i++) {
    const e = row[i], a = Math.max(x(e[1]), LEFT), b = Math.min(x(e[2]), LEFT + wide());
    const w = b - a > 3 ? b - a - 1 : Math.max(b - a, e[1] === e[2] ? 2 : .7);
    pen.fillStyle = ink[D.kinds[e[3]]];
    pen.fillRect(a, y + 3, w, ROW - 6);
    const wait = D.kinds[e[3]] === "wait", name = D.words[e[4]];
    if (w > 46) text(wait ? name.replace("waits for ", "") : name, a + 5, y, w - 8, wait ? ink.text : ink.page);
  }
}

function drawBand(number, y) {
  pen.fillStyle = ink[number % 2 ? "page" : "band"];
  pen.fillRect(0, y, canvas.clientWidth, ROW);
  text(D.tracks[number], NAMES, y, LEFT - NAMES - 8, ink.text);
}

function text(words, at, y, room, colour) {
  pen.fillStyle = colour;
  const index = words.endsWith("]") ? words.slice(words.lastIndexOf("[")) : "";
  let head = words.slice(0, words.length - index.length), cut = "";
  while (head && pen.measureText(head + cut + index).width > room) [head, cut] = [head.slice(0, -1), "…"];
  if (head.length > 1) pen.fillText(head + cut + index, at, y + ROW / 2 + 1);
}

function drawAxis(lines) {
  pen.fillStyle = ink.page;
  if (!lines) pen.fillRect(0, 0, canvas.clientWidth, AXIS);
  let step = 1;
  for (let k = 0; (to - from) / step > Math.max(wide() / 110, 2); k++) step *= k % 3 === 1 ? 2.5 : 2;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    pen.fillStyle = ink.rule;
    pen.fillRect(x(at), AXIS - 6, 1, lines ? canvas.clientHeight : 6);
    pen.fillStyle = ink.faint;
    const fits = x(at) + 4 + pen.measureText(fmt(at)).width <= canvas.clientWidth;
    if (!lines && fits) pen.fillText(fmt(at), x(at) + 4, AXIS / 2);
  }
  if (!lines) text("cycles", NAMES, 2, LEFT, ink.faint);
}

function draw() {
  const ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  for (const name of [...D.kinds, "page", "band", "rule", "text", "faint"])
    ink[name] = style.getPropertyValue("--" + name);
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const placed = rows.map((row, n) => [row, n, AXIS + n * ROW - top_]);
  const seen = placed.filter(each => each[2] > -ROW && each[2] < canvas.clientHeight);
  for (const [, n, y] of seen) drawBand(n, y);
  drawAxis(true);
  for (const [row, , y] of seen) drawRow(row, y);
  drawAxis(false);
  drawRest(placed.filter(each => each[2] + ROW / 2 > canvas.clientHeight).length);
  if (mouse && mouse[0] > LEFT) line_at(mouse[0], ink.faint, 1);
  if (moment !== null && from <= moment && moment <= to) line_at(x(moment), ink.text, 2);
}

function drawRest(below) {  // a row that nobody sees is not looked for
  if (!below) return;
  const y = canvas.clientHeight - ROW;
  pen.fillStyle = ink.page;
  pen.fillRect(0, y, LEFT, ROW);
  text(`↓ ${below} more`, NAMES, y, LEFT - NAMES - 8, ink.faint);
}

function line_at(at, colour, width) {
  pen.fillStyle = colour;
  pen.fillRect(at - width / 2, AXIS, width, canvas.clientHeight);
}

function under(at) {
  const row = rows[Math.floor((at[1] - AXIS + top_) / ROW)];
  if (!row || at[0] < LEFT || at[1] < AXIS) return null;
  const slack = 2 * (to - from) / wide(), here = cycle(at[0]);
  let best = null;
  for (let i = firstAfter(row, here - slack); i < row.length && row[i][1] <= here + slack; i++)
    if (!best || row[i][1] <= here) best = row[i];
  return best;
}

function line(tag, words) {
  if (words) tip.appendChild(document.createElement(tag)).textContent = words;
}

function hint(event) {
  const e = held ? null : under(mouse);
  tip.style.display = e ? "block" : "none";
  if (!e) return;
  tip.replaceChildren();
  const took = e[2] - e[1], where = D.words[e[5]];
  line("b", D.words[e[4]]);
  line("span", D.tracks[e[0]]);
  const when = `cycles ${fmt(e[1])} to ${fmt(e[2])}: ${fmt(took)}, ${fmt(took / D.ghz)} ns`;
  line("span", took ? when : `cycle ${fmt(e[1])}`);
  line("span", D.words[e[6]]);
  line("code", where && `${where}  ${D.sources[where] || ""}`);
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
}

canvas.addEventListener("wheel", event => {
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    return show(from + (event.deltaX || event.deltaY) / wide() * (to - from), to - from);
  const factor = Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 250), at = cycle(Math.max(event.offsetX, LEFT));
  const span = Math.min(Math.max((to - from) * factor, 20), D.to - D.from);
  show(at - (at - from) * span / (to - from), span);
}, {passive: false});
canvas.addEventListener("pointerdown", event => {
  held = [event.clientX, event.clientY, from, top_];
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", event => {
  const still = held && Math.abs(event.clientX - held[0]) + Math.abs(event.clientY - held[1]) < NEAR;
  held = null;
  if (still && event.offsetX > LEFT && changes.length) go(cycle(event.offsetX));
});
canvas.addEventListener("pointercancel", () => { held = null; });
canvas.addEventListener("pointermove", event => {
  mouse = [event.offsetX, event.offsetY];
  if (held) {
    top_ = held[3] - (event.clientY - held[1]);
    show(held[2] - (event.clientX - held[0]) / wide() * (to - from), to - from);
  } else requestAnimationFrame(draw);
  hint(event);
});
canvas.addEventListener("pointerleave", () => {
  mouse = null;
  tip.style.display = "none";
  requestAnimationFrame(draw);
});
canvas.addEventListener("dblclick", () => show(D.from, D.to - D.from));
addEventListener("keydown", event => {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "n") step(1);
  if (event.key === "p") step(-1);
  const part = (to - from) / 5, up = {ArrowUp: -ROW, ArrowDown: ROW}[event.key];
  const moves = {ArrowLeft: [-part, 0], ArrowRight: [part, 0], "+": [part, -2 * part], "-": [-part, 2 * part]};
  const [by, longer] = moves[event.key] || [0, 0];
  top_ += up || 0;
  if (up || event.key in moves) show(from + by, to - from + longer);
});
// mbarriers: their states by name, and all changes in order

const states = new Map(), [NAME, CYCLE, PHASE, PENDING, EXPECTED, BYTES] = [0, 1, 2, 3, 4, 5];
for (const b of D.barriers) {
  const name = D.words[b[NAME]];
  if (!states.has(name)) states.set(name, []);
  states.get(name).push(b);
}
const names = [...states.keys()].sort((a, b) => D.tracks.indexOf(a) - D.tracks.indexOf(b));
const changes = [...new Set(D.barriers.map(b => b[CYCLE]))].sort((a, b) => a - b);
const select = document.querySelector("select"), told = document.querySelector("output");
const some = n => n.toLocaleString("en");

function lastUntil(list, at, of) {  // the number of the last that is not after this cycle, or -1
  let low = 0, high = list.length;
  while (low < high) { const mid = low + high >> 1; if (of(list[mid]) <= at) low = mid + 1; else high = mid; }
  return low - 1;
}

function waiting(name) {  // the warps of the same slot that stand at it
  const slot = /^(predicted: )?(slot \d+: )?/.exec(name)[0], wait = "waits for " + name.slice(slot.length), found = [];
  D.tracks.forEach((track, n) => {
    const e = track.startsWith(slot + "warp ") && rows[n][lastUntil(rows[n], moment, e => e[1])];
    if (e && e[2] > moment && D.words[e[4]] === wait) found.push([+track.slice(slot.length + 5), D.words[e[5]]]);
  });
  return found;
}

function delta(before, now) {
  if (!before || now[PHASE] < before[PHASE]) return "initialised";
  if (now[PHASE] > before[PHASE]) return `phase ${now[PHASE] - 1} is over`;
  const arrivals = before[PENDING] - now[PENDING], bytes = now[BYTES] - before[BYTES], parts = [];
  if (arrivals) parts.push(arrivals === 1 ? "an arrival" : `${arrivals} arrivals`);
  if (bytes) parts.push(bytes > 0 ? `${some(bytes)} bytes announced` : `${some(-bytes)} bytes came`);
  return parts.join(", ") || "no change";
}

function spell(numbers) {
  const parts = [];
  for (const n of numbers) {
    const last = parts[parts.length - 1];
    if (last && last[1] === n - 1) last[1] = n; else parts.push([n, n]);
  }
  return parts.map(([a, b]) => a === b ? a : `${a}-${b}`).join(", ");
}

function cell(row, words, small) {
  const made = row.appendChild(document.createElement("td"));
  made.textContent = words;
  if (small) made.appendChild(document.createElement("small")).textContent = small;
}

function panel() {
  document.querySelector("tbody").replaceChildren(...names.map(name => {
    const row = document.createElement("tr"), own = states.get(name), at = lastUntil(own, moment, b => b[CYCLE]);
    if (name === select.value) row.className = "chosen";
    cell(row, NARROW ? name.replace(/[._](?=.)/g, "$&\u200b") : name);
    if (at < 0) { for (let i = 0; i < 5; i++) cell(row, "–"); return row; }
    const b = own[at], who = waiting(name), lines = [...new Set(who.map(each => each[1]))];
    const warps = `warp${who.length > 1 ? "s" : ""} ${spell(who.map(each => each[0]))}`;
    cell(row, b[PHASE], `parity ${b[PHASE] & 1}`);
    cell(row, `${some(b[PENDING])} of ${some(b[EXPECTED])}`);
    cell(row, some(b[BYTES]));
    cell(row, who.length ? warps : "", lines.join(", "));
    cell(row, delta(own[at - 1], b), `cycle ${fmt(b[CYCLE])}`);
    if (at > 0 && b[CYCLE] === moment) row.classList.add("now");
    return row;
  }));
  (document.querySelector("tr.chosen") || document.querySelector("tr.now"))?.scrollIntoView({block: "nearest"});
  told.textContent = `cycle ${fmt(moment)}`;
}

function pick(at) {
  moment = Math.min(Math.max(at, D.from), D.to);
  if (moment < from || moment > to) show(moment - (to - from) / 2, to - from); else requestAnimationFrame(draw);
  panel();
}

function go(at) {  // and let the address say so
  pick(at);
  const asked = new URLSearchParams({at: +moment.toFixed(1), span: Math.round(to - from)});
  if (select.value) asked.set("of", select.value);
  history.replaceState(null, "", "#" + asked);
}

function step(by) {
  const list = select.value ? states.get(select.value).map(b => b[CYCLE]) : changes;
  const at = lastUntil(list, moment, c => c), next = by > 0 ? at + 1 : list[at] === moment ? at - 1 : at;
  if (list[next] !== undefined) go(list[next]);
}

for (const name of names) select.add(new Option(name));
select.add(new Option("any mbarrier", ""), 0);
select.value = "";
select.addEventListener("change", () => go(moment));
document.getElementById("next").addEventListener("click", () => step(1));
document.getElementById("previous").addEventListener("click", () => step(-1));
const zoom = factor => {
  const span = Math.min(Math.max((to - from) * factor, 20), D.to - D.from);
  const middle = moment !== null && from <= moment && moment <= to ? moment : (from + to) / 2;
  show(middle - (middle - from) * span / (to - from), span);
};
document.getElementById("in").addEventListener("click", () => zoom(.5));
document.getElementById("out").addEventListener("click", () => zoom(2));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", () => show(from, to - from));
show(from, to - from);
if (changes.length) {  // a link to a moment: #at=CYCLE, and if wanted &span=CYCLES&of=MBARRIER&step=TIMES
  const asked = new URLSearchParams(location.hash.slice(1)), at = parseFloat(asked.get("at"));
  const span = parseFloat(asked.get("span")), steps = parseInt(asked.get("step"));
  if (states.has(asked.get("of"))) select.value = asked.get("of");
  if (span > 0) show((at >= 0 ? at : from) - span / 2, span);
  pick(at >= 0 ? at : changes[0]);
  for (let i = 0; i < Math.min(Math.abs(steps) || 0, 1e4); i++) step(Math.sign(steps));
} else {
  for (const each of document.querySelectorAll("section, #next, #previous, select")) each.remove();
}
