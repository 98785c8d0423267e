'use strict';
// The page of a run. One gzip-packed block holds a JSON head and columns of numbers; tool/page.c writes it.
// Lanes hold spans that never overlap, sorted by start, so every question about a stretch of time is a
// binary search; spans narrower than a pixel are drawn as one column with their share of it.

const PARTS = ['compute', 'network', 'peer', 'input', 'other'];
const PART_WORDS = {compute: 'compute', network: 'network', peer: 'waiting for a peer', input: 'input', other: 'other'};
const PART_COLOURS = {compute: '#56b4e9', network: '#e69f00', peer: '#cc79a7', input: '#f0e442', other: '#b8b8c0'};
const COLOURS = {op: '#56b4e9', train: '#9aa0ad', sum: '#e69f00', send: '#d55e00', receive: '#f2b880', data: '#f0e442', reader: '#f0e442', ckpt: '#009e73', stream: '#d55e00', message: '#c9c1b0'};
const SPARE = ['#7fb685', '#a58ac9', '#d9a5a0', '#8fb8b5', '#c7b36b'];
const $ = id => document.getElementById(id);
let head, lanes = [], steps = [], groups = [], rows = [];

function time(ns) {
  const a = Math.abs(ns);
  return a >= 1e9 ? (ns / 1e9).toFixed(3) + ' s' : a >= 1e6 ? (ns / 1e6).toFixed(2) + ' ms' : a >= 1e3 ? (ns / 1e3).toFixed(1) + ' µs' : ns.toFixed(0) + ' ns';
}
function bytes(b) {
  const u = ['B', 'KiB', 'MiB', 'GiB'];
  let k = 0;
  while (b >= 1024 && k < 3) { b /= 1024; k++; }
  return (k ? b.toFixed(1) : b.toFixed(0)) + ' ' + u[k];
}
function element(tag, text, parent, attributes) {
  const e = document.createElement(tag);
  if (text !== undefined && text !== null) e.textContent = text;
  for (const k in attributes || {}) e.setAttribute(k, attributes[k]);
  if (parent) parent.appendChild(e);
  return e;
}
function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

async function unpack() {
  const text = $('data').textContent.trim();
  const packed = await (await fetch('data:application/octet-stream;base64,' + text)).arrayBuffer();
  $('data').textContent = '';
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}

// Columns follow the head in the order in which the head names them, each at a multiple of 8 bytes.
function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
  let at = 8 + Math.ceil(size / 8) * 8;
  const column = (type, n) => {
    const c = new type(buffer, at, n);
    at += Math.ceil(n * type.BYTES_PER_ELEMENT / 8) * 8;
    return c;
  };
  for (const l of head.lanes) {
    const gap = column(Uint32Array, l.n), dur = column(Uint32Array, l.n), name = column(Uint16Array, l.n);
    const lane = {rank: l.rank, trace: l.trace, label: l.label, depth: l.depth, async: l.async, n: l.n, name,
      start: new Float64Array(l.n), end: new Float64Array(l.n), sum: new Float64Array(l.n + 1),
      predicted: l.predicted ? column(Uint32Array, l.n) : null, plan: l.plan ? column(Uint32Array, l.n) : null,
      value: l.value ? column(Float32Array, l.n) : null, group: l.group ? column(Uint32Array, l.n) : null,
      step: l.group ? column(Uint32Array, l.n) : null, peer: l.group ? column(Uint16Array, l.n) : null,
      unit: l.unit, index: lanes.length};
    let t = l.at, total = 0;
    for (let i = 0; i < l.n; i++) {
      t += gap[i] * l.unit;
      lane.start[i] = t;
      lane.end[i] = t + dur[i] * l.unit;
      lane.sum[i] = total;
      total += dur[i] * l.unit;
    }
    lane.sum[l.n] = total;
    lanes.push(lane);
  }
  for (const s of head.steps) {
    steps.push({rank: s.rank, n: s.n, step: column(Uint32Array, s.n), start: column(Float64Array, s.n), dur: column(Float64Array, s.n),
      late: column(Int32Array, s.n), parts: PARTS.map(() => column(Float32Array, s.n))});
  }
  groups = new Array(head.groups + 1);
  for (const l of lanes) {
    for (let i = 0; l.group && i < l.n; i++) {
      if (l.group[i]) (groups[l.group[i]] ||= []).push([l, i]);
    }
  }
}

// Least i with a[i] > t, or >= t.
function after(a, t, from, n, orEqual) {
  let low = from, high = from, stride = 1;
  while (high < n && (orEqual ? a[high] < t : a[high] <= t)) { low = high + 1; high += stride; stride *= 2; }
  if (high > n) high = n;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (orEqual ? a[mid] < t : a[mid] <= t) low = mid + 1; else high = mid;
  }
  return low;
}
const isWait = (l, i) => (l.name[i] & 0x8000) !== 0;
const nameOf = (l, i) => head.names[l.name[i] & 0x7fff];
const palette = new Map();
function colour(category) {
  if (!palette.has(category)) palette.set(category, COLOURS[category] || SPARE[palette.size % SPARE.length]);
  return palette.get(category);
}

function words() {
  $('about').textContent = head.about;
  for (const w of head.words) element('li', w.text, $('words'), w.cause ? {class: 'cause'} : {});
  const box = $('split');
  for (const s of steps) {
    const total = PARTS.map((_, p) => s.parts[p].reduce((a, b) => a + b, 0)), all = total.reduce((a, b) => a + b, 0);
    if (!all) continue;
    const say = PARTS.map((p, k) => `${PART_WORDS[p]} ${(100 * total[k] / all).toFixed(1)} %`).join(', ');
    const bar = element('div', null, box, {class: 'bar', role: 'listitem', 'aria-label': `rank ${s.rank}: ${say}`});
    element('span', 'rank ' + s.rank, bar);
    const parts = element('div', null, bar, {class: 'parts', title: say});
    PARTS.forEach((p, k) => {
      const share = 100 * total[k] / all;
      const e = element('span', share >= 7 ? `${p} ${share.toFixed(0)} %` : '', parts);
      e.style.width = share + '%';
      e.style.background = PART_COLOURS[p];
      if (share < 1) e.style.padding = e.style.border = '0';
    });
    element('span', time(all / s.n) + ' a step', bar, {class: 'num'});
  }
  for (const p of PARTS) {
    element('i', null, $('split-legend')).style.background = PART_COLOURS[p];
    $('split-legend').append(PART_WORDS[p]);
  }
}

// ---- heat map ----
// One column for each step that any rank has; at[row][x]: its place in steps[row], -1: not there.
const heat = {x: 0, row: 0, at: [], n: 1};
function heatColumns() {
  const all = Float64Array.from(new Set(steps.flatMap(s => Array.from(s.step)))).sort(), x = new Map();
  all.forEach((step, k) => x.set(step, k));
  heat.n = Math.max(1, all.length);
  heat.at = steps.map(s => {
    const at = new Int32Array(heat.n).fill(-1);
    s.step.forEach((step, i) => { at[x.get(step)] = i; });
    return at;
  });
}
function heatShape() {
  const c = $('heat'), n = heat.n, w = c.clientWidth;
  return {c, n, w, left: 64, cell: 18, column: (w - 64) / n};
}
function drawHeat() {
  if (!steps.some(s => s.n)) { $('s-heat').hidden = true; return; }
  const {c, n, w, left, cell, column} = heatShape(), ratio = devicePixelRatio || 1, h = steps.length * cell + 4;
  c.style.height = h + 'px'; c.width = w * ratio; c.height = h * ratio;
  const g = c.getContext('2d');
  g.scale(ratio, ratio);
  const sorted = Float64Array.from(steps.flatMap(s => Array.from(s.dur))).sort();
  const low = sorted[0], high = sorted[Math.floor(0.99 * (sorted.length - 1))] || 1;
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  steps.forEach((s, row) => {
    g.fillStyle = css('--fg'); g.font = '12px system-ui'; g.fillText('rank ' + s.rank, 4, row * cell + 14);
    for (let x = 0; x < w - left; x++) {
      const from = Math.floor(x / column), to = Math.max(from + 1, Math.floor((x + 1) / column));
      let worst = -1;
      for (let k = from; k < to && k < n; k++) {
        const i = heat.at[row][k];
        if (i >= 0 && (worst < 0 || s.dur[i] > s.dur[worst])) worst = i;
      }
      if (worst < 0) continue;
      const share = Math.min(1, Math.max(0, (s.dur[worst] - low) / Math.max(1, high - low)));
      const light = dark ? 18 + 62 * share : 94 - 66 * share;
      g.fillStyle = `hsl(265 ${20 + 50 * share}% ${light}%)`;
      g.fillRect(left + x, row * cell + 2, 1, cell - 3);
    }
  });
  g.strokeStyle = css('--focus'); g.lineWidth = 2;
  g.strokeRect(left + heat.x * column - 1, heat.row * cell + 1, Math.max(3, column), cell - 1);
  const s = steps[heat.row], i = heat.at[heat.row][heat.x];
  if (i < 0) {
    $('heat-at').textContent = `Rank ${s.rank} has no such step.`;
  } else {
    const parts = PARTS.map((p, k) => [p, s.parts[k][i]]).filter(p => p[1] > 0).map(p => `${PART_WORDS[p[0]]} ${time(p[1])}`).join(', ');
    $('heat-at').textContent = `Rank ${s.rank}, step ${s.step[i]}: ${time(s.dur[i])}. ${parts}.` + (s.late[i] >= 0 ? ` It waited longest for rank ${head.ranks[s.late[i]].rank}.` : '');
  }
}
function heatEvents() {
  const c = $('heat');
  const show = () => {
    const s = steps[heat.row], i = heat.n > 0 && heat.at.length ? heat.at[heat.row][heat.x] : -1;
    if (i < 0) return;
    line.from = s.start[i] - 0.1 * s.dur[i]; line.to = s.start[i] + 1.1 * s.dur[i];
    clampView(); drawLine();
  };
  c.addEventListener('click', e => {
    const {n, left, cell, column} = heatShape(), r = c.getBoundingClientRect();
    heat.x = Math.min(n - 1, Math.max(0, Math.floor((e.clientX - r.left - left) / column)));
    heat.row = Math.min(steps.length - 1, Math.max(0, Math.floor((e.clientY - r.top) / cell)));
    drawHeat(); show();
  });
  c.addEventListener('keydown', e => {
    const {n} = heatShape(), move = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-n, 0], End: [n, 0]}[e.key];
    if (move) {
      heat.x = Math.min(n - 1, Math.max(0, heat.x + move[0]));
      heat.row = Math.min(steps.length - 1, Math.max(0, heat.row + move[1]));
      drawHeat(); e.preventDefault();
    } else if (e.key === 'Enter') { show(); e.preventDefault(); }
  });
}

// ---- timeline ----
const line = {from: 0, to: 1, left: 150, lane: null, i: -1, hits: null};
const HEAD = 22, ROW = 17;
function layout() {
  rows = [];
  let y = 20;
  head.ranks.forEach((r, trace) => { // two recordings of one rank are two traces
    rows.push({rank: r, y, height: HEAD});
    y += HEAD;
    for (const l of lanes.filter(l => l.trace === trace)) {
      const height = l.predicted ? ROW + 5 : ROW;
      rows.push({lane: l, y, height});
      y += height;
    }
  });
  line.height = y + 6;
  $('tall').style.height = line.height + 'px';
}
function stripes(g, colour) {
  const p = document.createElement('canvas');
  p.width = p.height = 6;
  const q = p.getContext('2d');
  q.globalAlpha = 0.35; q.fillStyle = colour; q.fillRect(0, 0, 6, 6);
  q.globalAlpha = 1; q.strokeStyle = colour; q.lineWidth = 1.5;
  q.beginPath(); q.moveTo(-1, 7); q.lineTo(7, -1); q.moveTo(-4, 4); q.lineTo(4, -4); q.moveTo(2, 10); q.lineTo(10, 2); q.stroke();
  return g.createPattern(p, 'repeat');
}
function drawRow(g, row, w, patterns) {
  const l = row.lane, scale = (w - line.left) / (line.to - line.from), y = row.y - line.scroll + 1, h = ROW - 2;
  g.textBaseline = 'middle';
  let i = after(l.end, line.from, 0, l.n, false);
  while (i < l.n && l.start[i] < line.to) {
    const x0 = line.left + (l.start[i] - line.from) * scale, x1 = line.left + (l.end[i] - line.from) * scale, c = colour(nameOf(l, i).c);
    if (x1 - x0 >= 1.5) {
      const a = Math.max(line.left, x0), b = Math.min(w, x1);
      if (isWait(l, i)) {
        if (!patterns.has(c)) patterns.set(c, stripes(g, c));
        g.fillStyle = patterns.get(c);
      } else g.fillStyle = c;
      const hit = line.hits && !line.hits.has(l.name[i] & 0x7fff);
      g.globalAlpha = hit ? 0.2 : 1;
      g.fillRect(a, y, Math.max(1, b - a - (x1 - x0 > 4 ? 0.5 : 0)), h);
      if (b - a > 34) {
        g.fillStyle = isWait(l, i) ? css('--fg') : '#111';
        const text = nameOf(l, i).n, room = Math.floor((b - a - 6) / 6.4);
        g.fillText(text.length > room ? text.slice(0, Math.max(1, room - 1)) + '…' : text, a + 3, y + h / 2 + 0.5);
      }
      if (l.predicted && l.predicted[i]) {
        g.strokeStyle = css('--fg'); g.lineWidth = 1;
        const p = Math.min(w - 1, x0 + l.predicted[i] * l.unit * scale);
        g.strokeRect(a + 0.5, y + h + 0.5, Math.max(1, p - a - 1), 4);
      }
      g.globalAlpha = 1;
      i++;
    } else { // all that begin in this pixel: one column with their share of it
      const edge = line.from + (Math.floor(x0 - line.left) + 1) / scale;
      let j = Math.max(i + 1, after(l.start, edge, i, l.n, true));
      if (j - 1 > i && (l.end[j - 1] - l.start[j - 1]) * scale >= 1.5) j--; // the last one alone may reach beyond it
      const share = Math.min(1, (l.sum[j] - l.sum[i]) * scale);
      g.globalAlpha = (0.3 + 0.7 * share) * (line.hits && !line.hits.has(l.name[i] & 0x7fff) ? 0.2 : 1);
      g.fillStyle = c;
      g.fillRect(Math.floor(x0), y, 1, h);
      g.globalAlpha = 1;
      i = j;
    }
  }
}
function rowOf(l) { return rows.find(r => r.lane === l); }
function joinEnds(g, w, l, i) {
  const all = l.group && l.group[i] ? groups[l.group[i]] : null, scale = (w - line.left) / (line.to - line.from);
  if (!all || all.length < 2) return;
  g.strokeStyle = css('--focus'); g.lineWidth = 1.5;
  const sorted = all.slice().sort((a, b) => a[0].start[a[1]] - b[0].start[b[1]]), first = sorted[0];
  for (const other of sorted.slice(1)) {
    const x0 = line.left + (first[0].start[first[1]] - line.from) * scale, x1 = line.left + (other[0].end[other[1]] - line.from) * scale;
    const y0 = rowOf(first[0]).y - line.scroll + ROW / 2, y1 = rowOf(other[0]).y - line.scroll + ROW / 2, bend = Math.max(20, Math.abs(x1 - x0) / 3);
    g.beginPath(); g.moveTo(x0, y0); g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1); g.stroke();
  }
}
function axis(g, w) {
  const span = line.to - line.from, raw = span / Math.max(2, (w - line.left) / 120), ten = 10 ** Math.floor(Math.log10(raw));
  const tick = [1, 2, 5, 10].map(k => k * ten).find(t => t >= raw), scale = (w - line.left) / span;
  g.font = '11px system-ui'; g.textBaseline = 'middle'; g.lineWidth = 1;
  g.fillStyle = css('--card'); g.fillRect(0, 0, w, 18);
  for (let t = Math.ceil(line.from / tick) * tick; t < line.to; t += tick) {
    const x = line.left + (t - line.from) * scale;
    g.strokeStyle = css('--line'); g.beginPath(); g.moveTo(x, 0); g.lineTo(x, line.shown); g.stroke();
    g.fillStyle = css('--soft'); g.fillText(tick >= 1e9 ? (t / 1e9).toFixed(0) + ' s' : tick >= 1e6 ? (t / 1e6).toFixed(0) + ' ms' : (t / 1e6).toFixed(tick >= 1e3 ? 3 : 6) + ' ms', x + 3, 9);
  }
}
let queued = false;
function drawLine() { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; paintLine(); }); } }
function paintLine() {
  const c = $('line'), view = $('view'), ratio = devicePixelRatio || 1, w = view.clientWidth;
  line.shown = Math.min(line.height, Math.round(innerHeight * 0.7));
  line.scroll = view.scrollTop;
  if (c.width !== Math.round(w * ratio) || c.height !== Math.round(line.shown * ratio)) {
    c.style.height = line.shown + 'px'; c.width = Math.round(w * ratio); c.height = Math.round(line.shown * ratio);
  }
  const g = c.getContext('2d'), patterns = new Map();
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, line.shown);
  axis(g, w);
  for (const row of rows) {
    const y = row.y - line.scroll;
    if (y + row.height < 18 || y > line.shown) continue;
    g.textBaseline = 'middle';
    if (row.rank) {
      g.font = '600 12px system-ui'; g.fillStyle = css('--fg');
      g.fillText(`rank ${row.rank.rank}${row.rank.note ? ', ' + row.rank.note : ''}`, 4, y + 13);
      g.fillStyle = css('--line'); g.fillRect(0, y + 1, w, 1);
    } else {
      g.font = '11px system-ui';
      drawRow(g, row, w, patterns);
      g.fillStyle = css('--card'); g.fillRect(0, y, line.left - 2, row.height);
      g.fillStyle = css('--soft'); g.fillText(row.lane.depth ? '' : row.lane.label.slice(0, 23), 10, y + ROW / 2);
    }
  }
  axis(g, w);
  if (line.lane && rowOf(line.lane)) {
    const l = line.lane, i = line.i, scale = (w - line.left) / (line.to - line.from), y = rowOf(l).y - line.scroll;
    const a = Math.max(line.left, line.left + (l.start[i] - line.from) * scale), b = Math.min(w, line.left + (l.end[i] - line.from) * scale);
    joinEnds(g, w, l, i);
    if (b >= line.left && a <= w) { g.strokeStyle = css('--focus'); g.lineWidth = 2; g.strokeRect(a - 1, y, Math.max(3, b - a + 2), ROW); }
  }
}
function describe() {
  const l = line.lane, i = line.i, n = nameOf(l, i), dur = l.end[i] - l.start[i];
  const say = [`${n.n} (${n.c}${isWait(l, i) ? ', a wait' : ''}), rank ${l.rank}, ${l.label}: ${time(dur)}, from ${time(l.start[i])} on.`];
  if (l.predicted && l.predicted[i]) { const p = l.predicted[i] * l.unit; say.push(`Predicted ${time(p)}, measured ${dur >= p ? '+' : ''}${(100 * (dur - p) / p).toFixed(0)} %.`); }
  if (l.value && l.value[i]) say.push(l.group ? bytes(l.value[i]) + (dur > 0 ? `, ${bytes(l.value[i] / dur * 1e9)}/s.` : '.') : `Value ${l.value[i]}.`);
  if (l.plan && l.plan[i] && n.c !== 'op') say.push(`Plan ${l.plan[i].toString(16).padStart(8, '0')}.`);
  if (l.group && l.peer[i] !== 0xffff) say.push(`Peer: rank ${head.ranks[l.peer[i]].rank}.`);
  if (l.group) say.push(`Step ${l.step[i]}.`);
  $('line-at').textContent = say.join(' ');
}
function select(l, i) { line.lane = l; line.i = i; describe(); drawLine(); }
function clampView() {
  const span = Math.max(100, Math.min(line.to - line.from, 1.2 * head.length)), mid = (line.from + line.to) / 2;
  line.from = Math.max(-0.1 * head.length, Math.min(1.1 * head.length - span, mid - span / 2));
  line.to = line.from + span;
}
function zoom(factor, at) {
  const t = at === undefined ? (line.from + line.to) / 2 : at;
  line.from = t - (t - line.from) * factor; line.to = t + (line.to - t) * factor;
  clampView(); drawLine();
}
function pan(share) { const d = share * (line.to - line.from); line.from += d; line.to += d; clampView(); drawLine(); }
function timeAt(e) { const r = $('line').getBoundingClientRect(); return line.from + (e.clientX - r.left - line.left) / (r.width - line.left) * (line.to - line.from); }
function spanAt(e) {
  const r = $('line').getBoundingClientRect(), y = e.clientY - r.top + line.scroll, row = rows.find(q => q.lane && y >= q.y && y < q.y + q.height);
  if (!row) return null;
  const t = timeAt(e), l = row.lane, near = 3 * (line.to - line.from) / (r.width - line.left), i = after(l.end, t - near, 0, l.n, false);
  return i < l.n && l.start[i] <= t + near ? [l, i] : null;
}
function step(dx, dy) {
  if (!line.lane) { const l = lanes.find(l => l.n); if (l) select(l, Math.min(l.n - 1, after(l.end, line.from, 0, l.n, false))); return; }
  let l = line.lane, i = Math.min(l.n - 1, Math.max(0, line.i + dx));
  if (dy) {
    const order = rows.filter(r => r.lane && r.lane.n).map(r => r.lane), k = order.indexOf(l) + dy;
    if (k < 0 || k >= order.length) return;
    const t = l.start[i];
    l = order[k]; i = Math.min(l.n - 1, after(l.end, t, 0, l.n, false));
    const y = rowOf(l).y;
    if (y - 24 < $('view').scrollTop || y + ROW > $('view').scrollTop + line.shown) $('view').scrollTop = y - line.shown / 2;
  }
  if (l.start[i] < line.from || l.end[i] > line.to) { const d = (l.start[i] + l.end[i]) / 2 - (line.from + line.to) / 2; line.from += d; line.to += d; clampView(); }
  select(l, i);
}
function lineEvents() {
  const c = $('line'), all = () => { line.from = -0.01 * head.length; line.to = 1.01 * head.length; drawLine(); };
  let drag = null;
  $('view').addEventListener('scroll', drawLine);
  c.addEventListener('wheel', e => { if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.004), timeAt(e)); } else if (e.deltaX) { pan(e.deltaX / 800); } }, {passive: false});
  c.addEventListener('pointerdown', e => { drag = {x: e.clientX, from: line.from, to: line.to, moved: false}; c.setPointerCapture(e.pointerId); });
  c.addEventListener('pointermove', e => {
    if (!drag) return;
    const d = (drag.x - e.clientX) / (c.clientWidth - line.left) * (drag.to - drag.from);
    drag.moved ||= Math.abs(e.clientX - drag.x) > 3;
    if (drag.moved) { line.from = drag.from + d; line.to = drag.to + d; clampView(); drawLine(); }
  });
  c.addEventListener('pointerup', e => { const s = drag && !drag.moved ? spanAt(e) : null; drag = null; if (s) select(...s); });
  c.addEventListener('dblclick', e => { const s = spanAt(e); if (s) focusSpan(...s); });
  c.addEventListener('keydown', e => {
    const keys = {a: () => pan(-0.2), d: () => pan(0.2), w: () => zoom(0.7), s: () => zoom(1 / 0.7), 0: all, ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0),
      ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1), Enter: () => line.lane && focusSpan(line.lane, line.i), Escape: () => { line.lane = null; $('line-at').textContent = 'Nothing is selected.'; drawLine(); }};
    const k = keys[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (k && !e.ctrlKey && !e.metaKey && !e.altKey) { k(); e.preventDefault(); }
  });
  $('b-in').onclick = () => zoom(0.6); $('b-out').onclick = () => zoom(1 / 0.6); $('b-left').onclick = () => pan(-0.3); $('b-right').onclick = () => pan(0.3); $('b-all').onclick = all;
  $('find').oninput = () => {
    const q = $('find').value.trim().toLowerCase();
    line.hits = q ? new Set(head.names.map((n, k) => n.n.toLowerCase().includes(q) ? k : -1).filter(k => k >= 0)) : null;
    let count = 0;
    if (line.hits) for (const l of lanes) for (let i = 0; i < l.n; i++) count += line.hits.has(l.name[i] & 0x7fff);
    $('found').textContent = q ? `${count} spans` : '';
    drawLine();
  };
}
function focusSpan(l, i) {
  const d = Math.max(1000, l.end[i] - l.start[i]);
  line.from = l.start[i] - 0.2 * d; line.to = l.end[i] + 0.2 * d;
  clampView(); select(l, i);
}

// ---- tables ----
const OPS = [['rank', 'rank', v => v], ['kind', 'c', v => v], ['name', 'n', v => v], ['count', 'count', v => v], ['self', 'self', time], ['total', 'total', time],
  ['median', 'median', time], ['90 %', 'p90', time], ['most', 'max', time], ['predicted', 'predicted', v => v ? time(v) : ''], ['error', 'error', v => v === null ? '' : (v > 0 ? '+' : '') + v.toFixed(0) + ' %']];
function table(by, down) {
  const body = $('ops').tBodies[0], list = head.ops.slice();
  list.sort((a, b) => (a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) * (down ? -1 : 1));
  body.textContent = '';
  for (const o of list) {
    const tr = element('tr', null, body);
    for (const [, key, show] of OPS) element('td', show(o[key]), tr);
  }
  Array.from($('ops').tHead.rows[0].cells).forEach((c, k) => c.setAttribute('aria-sort', OPS[k][1] === by ? (down ? 'descending' : 'ascending') : 'none'));
}
function tables() {
  const tr = element('tr', null, $('ops').tHead);
  let by = 'self', down = true;
  for (const [title, key] of OPS) {
    const b = element('button', title, element('th', null, tr, {scope: 'col'}));
    b.onclick = () => { down = by === key ? !down : true; by = key; table(by, down); };
  }
  table(by, down);
}

function memory() {
  const m = head.memory;
  if (!m || !m.buffers.length) return;
  $('s-mem').hidden = false;
  $('mem-hint').textContent = `${m.buffers.length} buffers share ${bytes(m.bytes)}; without sharing they would take ${bytes(m.buffers.reduce((a, b) => a + b[1], 0))}. Steps of the executable run from left to right.`;
  const c = $('mem'), w = c.clientWidth, h = 260, ratio = devicePixelRatio || 1;
  c.style.height = h + 'px'; c.width = w * ratio; c.height = h * ratio;
  const g = c.getContext('2d'), last = Math.max(...m.buffers.map(b => b[3])) + 1;
  g.scale(ratio, ratio);
  m.buffers.forEach((b, k) => {
    g.fillStyle = Object.values(PART_COLOURS)[k % 4]; g.strokeStyle = css('--bg');
    const x = b[2] / last * w, y = h - (b[0] + b[1]) / m.bytes * h;
    g.fillRect(x, y, (b[3] + 1 - b[2]) / last * w, b[1] / m.bytes * h);
    g.strokeRect(x, y, (b[3] + 1 - b[2]) / last * w, b[1] / m.bytes * h);
  });
}

async function main() {
  const begun = performance.now();
  decode(await unpack());
  line.from = -0.01 * head.length; line.to = 1.01 * head.length;
  words(); heatColumns(); layout(); tables(); heatEvents(); lineEvents();
  drawHeat(); paintLine(); memory();
  const again = () => { drawHeat(); drawLine(); memory(); };
  addEventListener('resize', again);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
  document.body.dataset.ready = Math.round(performance.now() - begun);
}
main().catch(e => { $('about').textContent = 'This page cannot be shown: ' + e.message + '. A browser of 2023 or later is needed.'; });
