import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import './styles.ts';
import { ConnectApp } from './ConnectApp.tsx';
import { readLaunch } from './launch.ts';

/** The connect page: what an end user sees to connect an account, by a link, in a frame or in a window. */
const launch = readLaunch();
// Who comes back by the browser's button sees the page as it was left, unless it is asked for again.
window.addEventListener('pageshow', ({ persisted }) => {
  if (persisted) location.reload();
});
const root = document.getElementById('root');
if (root === null) throw new Error('index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <ConnectApp launch={launch} />
  </StrictMode>,
);
