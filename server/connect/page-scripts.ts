/**
 * The scripts of the connect pages, sent with a nonce. What they work on stands in `data-` attributes of the body, so
 * that no value is ever put into script text.
 */

/**
 * The callback page: tells whoever opened it how it went, over `window.opener` and, for browsers in which the
 * provider's pages have cut that tie, over a BroadcastChannel. The message holds no secret, so any origin may get it.
 * What goes over the channel names no trip, so a fault is not closed by it: whoever answers may have meant another.
 */
export const callbackScript = `
const { channel, ack, message, closesItself } = JSON.parse(document.body.dataset.result);
const broadcast = new BroadcastChannel(channel);
const closeOnAck = (event) => { if (event.data && event.data.type === ack) window.close(); };
if (!message.payload) broadcast.addEventListener('message', closeOnAck);
window.addEventListener('message', closeOnAck);
const { opener } = window;
if (opener) opener.postMessage(message, '*');
broadcast.postMessage(message);
if (opener && closesItself) setTimeout(() => window.close(), 500);
`;

/**
 * The connect page: opens the provider in a window of its own where there is room and waits for its message, and
 * posts forms. A broadcast may be of another tab's trip, so it is only a reason to ask the service. Every result is shown by the server: on success the page is loaded again.
 */
export const connectScript = `
const { channel, success, failure, ack, sessionUrl, token } = JSON.parse(document.body.dataset.flow);
const show = (id, text) => {
  const element = document.getElementById(id);
  if (!element) return;
  if (text !== undefined) element.textContent = text;
  element.hidden = text === '';
};
let opened, timer, hintTimer;
const settle = () => { clearInterval(timer); clearTimeout(hintTimer); timer = undefined; location.reload(); };
window.addEventListener('message', ({ source, origin, data }) => {
  if (!source || source !== opened || origin !== location.origin || timer === undefined || !data) return;
  if (data.type === success || data.type === failure) source.postMessage({ type: ack }, origin);
  if (data.type === success) settle();
  if (data.type === failure) {
    clearTimeout(hintTimer);
    document.getElementById('waiting').hidden = true;
    show('fault', data.payload.message);
  }
});
// A browser may cut the tie to the window it opened: the session tells, too, by being used up.
const isUsedUp = async () => {
  const answer = await fetch(sessionUrl, { headers: { authorization: 'Bearer ' + token } }).catch(() => undefined);
  return timer !== undefined && answer !== undefined && answer.status === 401;
};
const ask = async () => { if (await isUsedUp()) settle(); };
const broadcast = new BroadcastChannel(channel);
broadcast.addEventListener('message', async ({ data }) => {
  if (timer === undefined || !data || data.type !== success || !(await isUsedUp())) return;
  broadcast.postMessage({ type: ack });
  settle();
});
const travel = (url) => {
  show('fault', '');
  opened = window.innerWidth < 640 ? null : window.open(url, '_blank', 'popup,width=520,height=680');
  if (!opened) { location.assign(url); return; }
  document.getElementById('waiting').hidden = false;
  timer ??= setInterval(ask, 3000);
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => { document.getElementById('hints').open = true; }, 15000);
};
const withParams = (address, form) => {
  const url = new URL(address, location.href);
  for (const input of form.querySelectorAll('input[name^="params["]')) {
    if (input.value !== '') url.searchParams.set(input.name, input.value);
  }
  return url;
};
const mark = (form, errors) => {
  const names = new Set((errors || []).map(({ path }) => path[path.length - 1]));
  for (const input of form.querySelectorAll('input')) input.setAttribute('aria-invalid', String(names.has(input.name)));
};
const post = async (form) => {
  const button = form.querySelector('button');
  const body = {};
  for (const input of form.querySelectorAll('input:not([name^="params["])')) body[input.name] = input.value;
  button.disabled = true;
  show('fault', '');
  try {
    const answer = await fetch(withParams(form.dataset.post, form), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (answer.ok) { location.reload(); return; }
    const { error } = await answer.json();
    mark(form, error.errors);
    show('fault', error.message);
  } catch {
    show('fault', form.dataset.unreachable);
  }
  button.disabled = false;
};
// Who comes back without an answer sees the page as it was left, unless it is asked for again.
window.addEventListener('pageshow', ({ persisted }) => { if (persisted) location.reload(); });
const link = document.getElementById('go');
if (link) link.addEventListener('click', (event) => { event.preventDefault(); travel(link.href); });
const form = document.querySelector('form');
if (form) form.addEventListener('submit', (event) => {
  event.preventDefault();
  if (form.dataset.go) travel(withParams(form.dataset.go, form).href);
  else post(form);
});
`;
