import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { ConnectApp } from './ConnectApp.tsx';
import { readLaunch } from './launch.ts';
import '@mantine/core/styles/baseline.css';
import '@mantine/core/styles/default-css-variables.css';
import '@mantine/core/styles/global.css';
import '@mantine/core/styles/UnstyledButton.css';
import '@mantine/core/styles/ActionIcon.css';
import '@mantine/core/styles/CloseButton.css';
import '@mantine/core/styles/Button.css';
import '@mantine/core/styles/Loader.css';
import '@mantine/core/styles/Input.css';
import '@mantine/core/styles/PasswordInput.css';
import '@mantine/core/styles/Skeleton.css';
import './connect.css';

/** The connect page, on which an end user connects an account: by a link, in a frame or in a window. */
const launch = readLaunch();
// A page that is restored by the Back button is outdated, so it is loaded again.
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

// Only the styles that the page uses: the complete style sheet is eight times as large.
