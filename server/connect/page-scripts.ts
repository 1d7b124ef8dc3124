/**
 * The script of the callback page, sent with a nonce. What it works on stands in a `data-` attribute of the body, so
 * that no value is ever put into script text.
 *
 * It tells whoever opened it how it went, over `window.opener` and, for browsers in which the
 * provider's pages have cut that tie, over a BroadcastChannel. The message holds no secret, so any origin may get it.
 * What goes over the channel names no trip, so a fault is not closed by it: whoever answers may have meant another.
 * A connect page that went to the provider in its own tab has left the search of its address in the tab's storage: it is
 * led back to, as its link had it, and finds there how it went. The token, the code and the state leave the address, so
 * that no history keeps them.
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
 * The script of the page that asks before a trip begins, sent with a nonce. The token leaves the address, and the page the
 * history of the tab: who comes back from the provider comes to where they were before. Without it the link works, too.
 *
 * A click while the first is on its way does nothing: a request that is cut off may have bound the session to a cookie
 * that this browser then never gets. Whoever stops the first may click again.
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
