/**
 * The script of the callback page, sent with a nonce. Its input is in a `data-` attribute of the body, so that no value is
 * ever put into script text.
 *
 * The script reports the result to the window's opener, over `window.opener` and, for browsers in which the provider's
 * pages have cut that link, over a BroadcastChannel. The message holds no secret, so any origin may receive it. A message
 * on the channel names no attempt, so an acknowledgement on it does not close a page with a fault: it may be meant for
 * another page. A connect page that went to the provider in its own tab has stored the search of its address in the tab's
 * storage: the script returns to that page, which finds the result there. The token, the code and the state are removed
 * from the address, so that no history keeps them.
 */
export const callbackScript = `
const { channel, ack, message, closesItself, connectPath, returnKey } = JSON.parse(document.body.dataset.result);
const broadcast = new BroadcastChannel(channel);
const closeOnAck = (event) => { if (event.data && event.data.type === ack) window.close(); };
if (!message.payload) broadcast.addEventListener('message', closeOnAck);
window.addEventListener('message', closeOnAck);
const { opener } = window;
if (opener) opener.postMessage(message, '*');
broadcast.postMessage(message);
if (opener && closesItself) setTimeout(() => window.close(), 500);
history.replaceState(null, '', location.pathname);
const wayBack = () => {
  try {
    const { search } = JSON.parse(sessionStorage.getItem(returnKey));
    sessionStorage.setItem(returnKey, JSON.stringify({ search, told: message }));
    return connectPath + search;
  } catch {
    // Nobody waits in this tab, or it keeps nothing.
  }
};
const back = wayBack();
if (back) location.replace(back);
`;

/**
 * The script of the page that asks before an attempt begins, sent with a nonce. It removes the token from the address, and
 * the page from the tab's history: a user who goes back from the provider reaches the page before. Without the script the
 * link works, too.
 *
 * A second click while the first request is under way does nothing: an aborted request may have bound the session to a
 * cookie that this browser then never receives. A user who stops the first request can click again.
 */
export const askScript = `
const whole = location.href;
const link = document.querySelector('a.button');
link.href = whole;
history.replaceState(null, '', location.pathname);
let isOnTheWay = false;
link.addEventListener('click', (event) => {
  event.preventDefault();
  if (isOnTheWay) return;
  isOnTheWay = true;
  location.replace(whole);
});
window.navigation?.addEventListener('navigateerror', () => { isOnTheWay = false; });
`;
