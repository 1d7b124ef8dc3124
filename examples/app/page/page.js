// The page: shows the rows that the server sends, and calls the server for all actions.
import { connect, isConnectError } from '/trellis-client/index.js';

/** @typedef {{ id: string, fields: Record<string, unknown>, cursor: string }} Row */
/** @typedef {{ email: string | null, sheet: string | null, problem: string | null, columns: string[] }} Account */

/** The most rows that a table shows; the sheet itself shows all rows. */
const maxShown = 500;
/** @type {Map<string, Row>} */
const rows = new Map();
/** @type {Account | null} */
let account = null;
/** @type {Date | undefined} */
let changedAt;
/** Sent with every call, so that the server refuses it after a sign-in as another user in another tab. */
let forPerson = '';
/** The IDs of the rows that changed last. @type {Set<string>} */
const fresh = new Set();

/** @template {HTMLElement} T @param {string} id @returns {T} */
const at = (id) => /** @type {T} */ (document.getElementById(id));
/** @param {boolean} isShown @param {...string} ids */
const show = (isShown, ...ids) => {
  for (const id of ids) at(id).hidden = !isShown;
};

/**
 * Calls the server. Throws an error with a message for the user.
 * @param {string} call @param {object} [body]
 */
async function ask(call, body) {
  const [method = '', path = ''] = call.split(' ');
  const json = body && { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(path + forPerson, { method, ...json });
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.message);
  return told;
}

/**
 * Runs a button's action, one at a time, and shows its error.
 * @param {HTMLButtonElement} button @param {() => Promise<unknown>} act
 */
async function press(button, act) {
  button.disabled = true;
  notify('');
  try {
    await act();
  } catch (error) {
    // The user closed the window, so no message is needed.
    if (!isConnectError(error, 'window_closed')) notify(/** @type {Error} */ (error).message);
  } finally {
    button.disabled = false;
  }
}

/** @param {string} words */
function notify(words) {
  at('notice').textContent = words;
  show(words !== '', 'notice');
}

const { person, trellisUrl } = await ask('GET /me');
show(person === null, 'sign-in');
at('sign-in-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  press(/** @type {HTMLButtonElement} */ (form.querySelector('button')), async () => {
    await ask('POST /sign-in', { name: String(new FormData(form).get('name')).trim() });
    location.reload();
  });
});
if (person !== null) {
  forPerson = `?person=${encodeURIComponent(person)}`;
  at('person').textContent = person;
  show(true, 'who');
  // The browser reconnects automatically, and the server sends the whole state again.
  const live = new EventSource(`/live${forPerson}`);
  live.addEventListener('message', ({ data }) => take(JSON.parse(data)));
  // The browser does not reconnect if the user has signed out, or signed in as another user.
  live.addEventListener('error', () => live.readyState === EventSource.CLOSED && location.reload());
}

/**
 * A message of the server: first all rows and the account, then changes.
 * @param {{ account?: Account | null, rows?: Row[], changed?: Row[], deleted?: string[], notice?: string }} news
 */
function take(news) {
  if (news.account !== undefined) account = news.account;
  if (news.notice !== undefined) notify(news.notice);
  if (news.rows !== undefined) {
    rows.clear();
    for (const row of news.rows) rows.set(row.id, row);
  }
  fresh.clear();
  for (const row of news.changed ?? []) {
    rows.set(row.id, row);
    fresh.add(row.id);
  }
  for (const id of news.deleted ?? []) rows.delete(id);
  if (news.changed?.length || news.deleted?.length) changedAt = new Date();
  draw();
}

function summary() {
  if (account?.sheet === null && rows.size === 0) return 'No sheet is chosen yet.';
  if (rows.size === 0 && account?.problem) return 'No rows have been synced yet.';
  if (rows.size === 0) return 'No rows. Write a header and a first row in Google Sheets.';
  const words = [`${rows.size} ${rows.size === 1 ? 'row' : 'rows'}`];
  if (rows.size > maxShown) words.push(`the first ${maxShown} are shown`);
  if (changedAt !== undefined) words.push(`last change at ${changedAt.toLocaleTimeString()}`);
  return words.join(', ');
}

function draw() {
  show(account === null, 'start');
  show(account !== null, 'sheet');
  if (account === null) return;
  at('title').textContent = account.sheet ?? 'Connected';
  at('email').textContent = account.email ?? '';
  at('next-step').textContent = account.problem ?? '';
  show(account.problem !== null, 'problem');
  show(account.sheet === null && account.problem === null, 'choose');
  const found = new Set([...rows.values()].flatMap(({ fields }) => Object.keys(fields)));
  const names = [...new Set([...account.columns.filter((name) => found.has(name)), ...found])];
  at('status').textContent = summary();
  show(names.length > 0, 'scroller', 'add');
  drawTable(names);
  drawInputs(at('add'), names, {});
}

/** @param {string[]} names */
function drawTable(names) {
  const table = /** @type {HTMLTableElement} */ (document.querySelector('table'));
  const shownRows = [...rows.values()].slice(0, maxShown);
  const numeric = names.filter((name) => shownRows.some(({ fields }) => typeof fields[name] === 'number'));
  /** @param {string} name */
  const className = (name) => (numeric.includes(name) ? 'number' : '');
  const titles = names.map((name) => element('th', { scope: 'col', className: className(name) }, name));
  // Keyboard focus stays on the same button.
  const focused = document.activeElement?.closest('tr')?.id;
  table.tHead?.replaceChildren(element('tr', {}, ...titles, element('td', { className: 'edit' })));
  const body = shownRows.map((row) => {
    const cells = names.map((name) => element('td', { className: className(name) }, shown(row.fields[name])));
    const ariaLabel = `Edit ${shown(row.fields[names[0] ?? ''])}`;
    const button = element('button', { type: 'button', className: 'quiet', ariaLabel }, 'Edit');
    button.addEventListener('click', () => edit(row, names));
    const isFresh = fresh.has(row.id) ? 'fresh' : '';
    const last = element('td', { className: 'edit' }, button);
    return element('tr', { id: `row-${row.id}`, className: isFresh }, ...cells, last);
  });
  table.tBodies[0]?.replaceChildren(...body);
  if (focused) document.getElementById(focused)?.querySelector('button')?.focus();
}

/**
 * A field for each column; fields keep what the user is typing.
 * @param {HTMLElement} form @param {string[]} names @param {Record<string, unknown>} fields
 */
function drawInputs(form, names, fields) {
  const place = /** @type {HTMLElement} */ (form.querySelector('.inputs'));
  const there = [...place.querySelectorAll('input')].map(({ name }) => name);
  if (form.id === 'add' && there.join('\n') === names.join('\n')) return;
  place.replaceChildren(
    ...names.map((name) =>
      element('label', {}, name, element('input', { name, value: shown(fields[name]) })),
    ),
  );
}

/** @param {Row} row @param {string[]} names */
function edit(row, names) {
  const dialog = /** @type {HTMLDialogElement} */ (at('edit'));
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector('form'));
  drawInputs(form, names, row.fields);
  dialog.returnValue = '';
  dialog.onclose = () => {
    if (dialog.returnValue !== 'save') return;
    const typed = Object.entries(typedIn(form));
    const values = Object.fromEntries(typed.filter(([name, value]) => value !== shown(row.fields[name])));
    if (Object.keys(values).length === 0) return;
    press(at('read'), () => ask('PATCH /rows', { id: row.id, values }));
  };
  dialog.showModal();
}

at('add').addEventListener('submit', (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.currentTarget);
  press(/** @type {HTMLButtonElement} */ (form.querySelector('button')), async () => {
    await ask('POST /rows', { values: typedIn(form) });
    form.reset();
  });
});

// Browsers open a window only during the click, so the token is requested after that.
for (const id of ['connect', 'choose', 'reconnect']) {
  const button = /** @type {HTMLButtonElement} */ (at(id));
  const token = async () => (await ask('POST /session')).token;
  button.addEventListener('click', () => press(button, () => connect({ url: trellisUrl, token })));
}
for (const [id, call] of Object.entries({ read: 'POST /read', disconnect: 'DELETE /account' })) {
  const button = /** @type {HTMLButtonElement} */ (at(id));
  button.addEventListener('click', () => press(button, () => ask(call)));
}
const signOut = /** @type {HTMLButtonElement} */ (at('sign-out'));
signOut.addEventListener('click', () =>
  press(signOut, async () => {
    await ask('POST /sign-out');
    location.reload();
  }),
);

/** @param {HTMLFormElement} form @returns {Record<string, string>} */
function typedIn(form) {
  return Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value)]));
}

/** @param {unknown} value */
function shown(value) {
  if (value === null || value === undefined) return '';
  return typeof value === 'object'
    ? String(/** @type {{ error?: unknown }} */ (value).error ?? '')
    : String(value);
}

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name @param {object} properties @param {...(Node | string)} children
 */
function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
