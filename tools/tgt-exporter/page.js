// SPDX-License-Identifier: GPL-2.0-or-later
// Draws what /machine.json says, every second: rates are the difference of two answers. What the daemon or an
// initiator has named (paths, names) goes into the page as text alone, never as markup.
'use strict';
const PERIOD = 1000, KEPT = 120, SHOWN = 50, OCTAVE_FIRST = 12, OCTAVES = 23; // of latency: 4 us to 17 s
const $ = id => document.getElementById(id);
const history = { iops: [], rate: [], hit: [], dirty: [], sessions: [], cpu: [] };
const heat = { read: [], write: [] };
let before = null, sortBy = 'iops', rows = [];

function element(tag, text, className) {
	const e = document.createElement(tag);
	if (text !== undefined)
		e.textContent = text;
	if (className)
		e.className = className;
	return e;
}
const scaled = (v, units, step) => {
	let i = 0;
	while (v >= step && i < units.length - 1) {
		v /= step;
		i++;
	}
	return (v >= 100 || (i === 0 && Number.isInteger(v)) ? v.toFixed(0) : v.toFixed(1)) + ' ' + units[i];
};
const count = v => scaled(v, ['', 'k', 'M', 'G'], 1000).trim();
const bytes = v => scaled(v, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], 1024);
const time = ns => ns ? scaled(ns, ['ns', 'µs', 'ms', 's'], 1000) : '–';
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name);

// A table has its columns named once: rows become objects here.
const rowsOf = table => table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));

// ---- two answers -> rates --------------------------------------------------------------------------------

function percentile(now, was, bounds, part) {
	if (!now || !bounds)
		return 0;
	const counts = new Array(bounds.length).fill(0);
	let n = 0;
	for (const [sign, l] of [[1, now], [-1, was]])
		for (const pair of l && l.buckets ? l.buckets.split(' ') : []) {
			const [i, c] = pair.split(':').map(Number);
			counts[i] += sign * c;
			n += sign * c;
		}
	for (let i = 0, sum = 0; i < counts.length; i++) {
		sum += counts[i];
		if (n > 0 && sum >= n * part)
			return bounds[i];
	}
	return 0;
}

function luRates(now, was, seconds) {
	const old = new Map(was.lus.map(l => [l.tid + ':' + l.lun, l]));
	const names = new Map(now.targets.map(t => [t.tid, t.name]));
	return now.lus.map(l => {
		const o = old.get(l.tid + ':' + l.lun);
		const d = f => o && l[f] >= o[f] ? l[f] - o[f] : 0;
		const reads = d('rd_done_cmds'), writes = d('wr_done_cmds');
		const p = (op, part) => percentile(l.latency && l.latency[op], o && o.latency && o.latency[op],
			now.latency_bounds_ns, part);
		return {
			id: l.tid + ':' + l.lun, target: names.get(l.tid) || '', path: l.path || '', doubt: l.in_doubt,
			hangs: l.hanging_ns / 1e9 || 0,
			reads, writes, iops: (reads + writes) / seconds,
			readRate: d('rd_done_bytes') / seconds, writeRate: d('wr_done_bytes') / seconds,
			readTime: reads ? d('rd_ns') / reads : 0, writeTime: writes ? d('wr_ns') / writes : 0,
			readP99: p('read', 0.99), writeP99: p('write', 0.99),
			busy: Math.min(1, d('busy_ns') / seconds / 1e9), dirty: l.dirty_bytes, errs: l.errs,
			lu: l, old: o,
		};
	});
}

// Commands by the power of two of their time: from histograms where the daemon has them, otherwise each LU's
// commands at their mean.
function heatColumn(op, bounds) {
	const column = new Array(OCTAVES).fill(0);
	const add = (ns, n) => {
		const o = Math.min(OCTAVES - 1, Math.max(0, Math.floor(Math.log2(Math.max(ns, 1))) - OCTAVE_FIRST));
		column[o] += n;
	};
	for (const r of rows) {
		const l = r.lu.latency && r.lu.latency[op], o = r.old && r.old.latency && r.old.latency[op];
		if (!bounds) {
			if (op === 'read' ? r.reads : r.writes)
				add(op === 'read' ? r.readTime : r.writeTime, op === 'read' ? r.reads : r.writes);
			continue;
		}
		const old = new Map((o && o.buckets ? o.buckets.split(' ') : []).map(p => p.split(':').map(Number)));
		for (const pair of l && l.buckets ? l.buckets.split(' ') : []) {
			const [i, c] = pair.split(':').map(Number);
			const n = c - (old.get(i) || 0);
			if (n > 0)
				add(bounds[i], n);
		}
	}
	return column;
}

// ---- drawing ---------------------------------------------------------------------------------------------

function keep(list, v) {
	list.push(v);
	if (list.length > KEPT)
		list.shift();
}

function spark(list) {
	const ns = 'http://www.w3.org/2000/svg', svg = document.createElementNS(ns, 'svg');
	const line = document.createElementNS(ns, 'polyline'), top = Math.max(...list, 1e-9);
	svg.setAttribute('viewBox', `0 0 ${KEPT} 28`);
	svg.setAttribute('preserveAspectRatio', 'none');
	line.setAttribute('points', list.map((v, i) => `${i + KEPT - list.length},${27 - v / top * 25}`).join(' '));
	line.setAttribute('fill', 'none');
	line.setAttribute('stroke', colour('--clean'));
	line.setAttribute('stroke-width', '1.5');
	line.setAttribute('vector-effect', 'non-scaling-stroke');
	svg.append(line);
	return svg;
}

function drawTotals(items) {
	$('totals').replaceChildren(...items.map(([name, text, list]) => {
		const box = element('div', undefined, 'total');
		box.append(element('span', name, 'note'), element('b', text), spark(list));
		return box;
	}));
}

function drawPartitions(canvas, n) {
	const cols = Math.ceil(Math.sqrt(n.partition_blocks.length * 3)), cell = 20;
	const lines = Math.ceil(n.partition_blocks.length / Math.max(cols, 1));
	canvas.width = Math.max(cols, 1) * cell;
	canvas.height = Math.max(lines, 1) * cell;
	const c = canvas.getContext('2d');
	n.partition_blocks.forEach((blocks, i) => {
		const x = i % cols * cell, y = Math.floor(i / cols) * cell, size = cell - 2;
		const resident = blocks ? n.partition_resident[i] / blocks : 0, dirty = blocks ? n.partition_dirty[i] / blocks : 0;
		c.fillStyle = colour('--free');
		c.fillRect(x, y, size, size);
		c.fillStyle = colour('--clean');
		c.fillRect(x, y + size * (1 - resident), size, size * resident);
		c.fillStyle = colour('--dirty');
		c.fillRect(x, y + size * (1 - dirty), size, size * dirty);
	});
}

function drawNodes(m, was) {
	$('nodes').replaceChildren(...m.nodes.map((n, i) => {
		const box = element('div', undefined, 'node'), bar = element('div', undefined, 'bar');
		const o = was.nodes[i] || n, hits = n.hits - o.hits, misses = n.misses - o.misses;
		const resident = n.blocks - n.free, dirty = n.dirty + n.flushing;
		for (const [v, name] of [[resident - dirty, 'clean'], [dirty, 'dirty']]) {
			const part = element('i', undefined, name);
			part.style.width = 100 * v / Math.max(n.blocks, 1) + '%';
			bar.append(part);
		}
		const canvas = element('canvas');
		canvas.setAttribute('role', 'img');
		canvas.setAttribute('aria-label', `partitions of node ${n.node}`);
		drawPartitions(canvas, n);
		box.append(element('b', `Node ${n.node}`), element('span', ` ${bytes(resident * m.block_size)} of ` +
			`${bytes(n.blocks * m.block_size)} resident, ${bytes(dirty * m.block_size)} dirty, hits ` +
			(hits + misses > 0 ? (100 * hits / (hits + misses)).toFixed(1) + ' %' : '–') +
			`, waiting ${n.waiting}`, 'note'), bar, canvas);
		return box;
	}));
	if (!m.nodes.length)
		$('nodes').replaceChildren(element('p', 'The daemon runs without a cache.', 'note'));
}

function drawHeat(canvas, columns, hue) {
	const c = canvas.getContext('2d'), left = 48, bottom = 16;
	const w = (canvas.width - left) / KEPT, h = (canvas.height - bottom) / OCTAVES;
	c.clearRect(0, 0, canvas.width, canvas.height);
	c.font = '11px system-ui, sans-serif';
	c.fillStyle = colour('--dim');
	for (let o = 0; o < OCTAVES; o += 3)
		c.fillText(time(2 ** (o + OCTAVE_FIRST)), 0, canvas.height - bottom - o * h);
	c.fillText(`${KEPT} s ago`, left, canvas.height - 3);
	c.fillText('now', canvas.width - 24, canvas.height - 3);
	const top = Math.max(1, ...columns.map(x => Math.max(...x)));
	columns.forEach((column, i) => column.forEach((n, o) => {
		if (!n)
			return;
		c.fillStyle = `hsl(${hue} 85% 50% / ${0.15 + 0.85 * Math.log1p(n) / Math.log1p(top)})`;
		c.fillRect(left + (i + KEPT - columns.length) * w, canvas.height - bottom - (o + 1) * h, Math.ceil(w), Math.ceil(h));
	}));
	c.strokeStyle = colour('--line');
	c.strokeRect(left, 0, canvas.width - left, canvas.height - bottom);
}

// With what somebody should look after.
function storeText(r) {
	return (r.hangs ? `hangs for ${r.hangs.toFixed(0)} s: ` : r.doubt ? 'in doubt: ' : '') + r.path;
}

const COLUMNS = [
	['id', 'LU', r => r.id, 'text'], ['target', 'target', r => r.target, 'text'], ['path', 'store', storeText, 'text'],
	['iops', 'IOPS', r => count(r.iops)], ['readRate', 'read/s', r => bytes(r.readRate)],
	['writeRate', 'write/s', r => bytes(r.writeRate)], ['readTime', 'read mean', r => time(r.readTime)],
	['writeTime', 'write mean', r => time(r.writeTime)], ['readP99', 'read p99', r => time(r.readP99)],
	['writeP99', 'write p99', r => time(r.writeP99)], ['busy', 'busy', r => (100 * r.busy).toFixed(0) + ' %'],
	['dirty', 'dirty', r => bytes(r.dirty)], ['errs', 'errors', r => r.errs],
];

function drawLus() {
	const word = $('filter').value.toLowerCase(), table = $('lus'), head = element('tr');
	const found = rows.filter(r => [r.id, r.target, r.path].some(t => t.toLowerCase().includes(word)));
	found.sort((a, b) => typeof a[sortBy] === 'number' ? b[sortBy] - a[sortBy] :
		a[sortBy].localeCompare(b[sortBy], undefined, { numeric: true }));
	for (const [key, name, , className] of COLUMNS) {
		const th = element('th', name, className);
		if (key === sortBy)
			th.setAttribute('aria-sort', 'descending');
		th.addEventListener('click', () => {
			sortBy = key;
			drawLus();
		});
		head.append(th);
	}
	table.replaceChildren(head, ...found.slice(0, SHOWN).map(r => {
		const tr = element('tr', undefined, r.doubt || r.hangs ? 'bad' : '');
		tr.append(...COLUMNS.map(([, , text, className]) => {
			const td = element('td', text(r), className);
			td.title = td.textContent;
			return td;
		}));
		return tr;
	}));
	$('lus-note').textContent = found.length > SHOWN ? `${SHOWN} of ${found.length}` : String(found.length);
}

function drawSessions(m, was, seconds) {
	const old = new Map(was.sessions.map(s => [s.tid + ':' + s.sid, s])), head = element('tr');
	const rates = m.sessions.map(s => {
		const o = old.get(s.tid + ':' + s.sid);
		const d = f => o && s[f] >= o[f] ? (s[f] - o[f]) / seconds : 0;
		return { s, commands: d('commands'), rx: d('rx_bytes'), tx: d('tx_bytes') };
	}).sort((a, b) => b.commands - a.commands);
	for (const [name, className] of [['initiator', 'text'], ['address', 'text'], ['target', ''], ['thread', 'text'],
		['transport', ''], ['commands/s', ''], ['from it', ''], ['to it', '']])
		head.append(element('th', name, className));
	$('sessions').replaceChildren(head, ...rates.slice(0, SHOWN).map(r => {
		const tr = element('tr');
		tr.append(element('td', r.s.initiator, 'text'), element('td', r.s.address, 'text'), element('td', r.s.tid),
			element('td', r.s.thread || '', 'text'), element('td', r.s.transport), element('td', count(r.commands)),
			element('td', bytes(r.rx) + '/s'), element('td', bytes(r.tx) + '/s'));
		return tr;
	}));
	$('sessions-note').textContent = rates.length > SHOWN ? `${SHOWN} of ${rates.length}` : String(rates.length);
}

function drawThreads(m, was, seconds) {
	const old = new Map(was.threads.map(t => [t.name, t]));
	const busy = m.threads.map(t => {
		const o = old.get(t.name);
		return { t, share: o ? Math.max(0, Math.min(1, (t.cpu_ns - o.cpu_ns) / seconds / 1e9)) : 0 };
	}).sort((a, b) => b.share - a.share);
	$('threads').replaceChildren(...busy.slice(0, SHOWN).map(({ t, share }) => {
		const box = element('div', undefined, 'thread'), bar = element('div', undefined, 'bar'), part = element('i', undefined, 'clean');
		part.style.width = 100 * share + '%';
		bar.append(part);
		box.append(element('span', `${t.name} ${(100 * share).toFixed(0)} %` + (t.node >= 0 ? ` · node ${t.node}` : '')), bar);
		return box;
	}));
	$('threads-note').textContent = busy.length > SHOWN ? `${SHOWN} of ${busy.length}` : String(busy.length);
	return busy.reduce((sum, b) => sum + b.share, 0);
}

function draw(m, was) {
	const seconds = (m.monotonic_ns - was.monotonic_ns) / 1e9;
	const sum = (list, f) => list.reduce((s, x) => s + f(x), 0);
	rows = luRates(m, was, seconds);
	const hits = sum(m.nodes, n => n.hits) - sum(was.nodes, n => n.hits);
	const misses = sum(m.nodes, n => n.misses) - sum(was.nodes, n => n.misses);
	const dirty = sum(m.nodes, n => n.dirty + n.flushing) * (m.block_size || 0);
	const iops = sum(rows, r => r.iops), rate = sum(rows, r => r.readRate + r.writeRate);
	const cpu = drawThreads(m, was, seconds);
	keep(history.iops, iops);
	keep(history.rate, rate);
	keep(history.hit, hits + misses > 0 ? hits / (hits + misses) : 0);
	keep(history.dirty, dirty);
	keep(history.sessions, m.sessions.length);
	keep(history.cpu, cpu);
	drawTotals([
		['IOPS', count(iops), history.iops], ['bandwidth', bytes(rate) + '/s', history.rate],
		['hits', hits + misses > 0 ? (100 * hits / (hits + misses)).toFixed(1) + ' %' : '–', history.hit],
		['dirty', bytes(dirty), history.dirty], ['sessions', String(m.sessions.length), history.sessions],
		['processors', cpu.toFixed(2), history.cpu],
	]);
	drawNodes(m, was);
	keep(heat.read, heatColumn('read', m.latency_bounds_ns));
	keep(heat.write, heatColumn('write', m.latency_bounds_ns));
	drawHeat($('heat-read'), heat.read, 210);
	drawHeat($('heat-write'), heat.write, 20);
	$('heat-note').textContent = m.latency_bounds_ns ? 'A column is a second; the darker, the more commands.' :
		'A column is a second. This daemon has no histograms: the commands of each logical unit are drawn at their mean.';
	drawLus();
	drawSessions(m, was, seconds);
}

async function tick() {
	const status = $('status');
	try {
		const answer = await fetch('/machine.json', { cache: 'no-store', signal: AbortSignal.timeout(8000) });
		if (!answer.ok)
			throw new Error(await answer.text());
		const m = await answer.json();
		for (const name of ['threads', 'targets', 'lus', 'sessions'])
			m[name] = rowsOf(m[name]);
		$('version').textContent = m.version;
		status.className = m.state === 'ready' ? '' : 'bad';
		status.textContent = `${m.state}, ${m.targets.length} targets, ${m.lus.length} logical units, ` +
			`${m.sessions.length} sessions`;
		// another daemon counts anew
		if (before && before.pid === m.pid && m.monotonic_ns > before.monotonic_ns) {
			draw(m, before);
			document.body.dataset.drawn = Number(document.body.dataset.drawn || 0) + 1;
		}
		if (!before || before.pid !== m.pid || m.monotonic_ns > before.monotonic_ns)
			before = m;
	} catch (e) {
		status.className = 'bad';
		status.textContent = `no figures: ${e.message}`;
	}
	setTimeout(tick, PERIOD);
}

$('filter').addEventListener('input', drawLus);
tick();
