import { MantineProvider } from '@mantine/core';
import { useEffect, useMemo, useState } from 'react';
import { ConnectPage } from './ConnectPage.tsx';
import { type Launch, spoken } from './launch.ts';
import type { Settings } from './queries.ts';
import { Shell } from './Shell.tsx';
import { useSession } from './session.ts';
import { type Language, SayContext, sayIn } from './texts.ts';
import { themeOf, variablesOf } from './theme.ts';

/** As a page looks before the environment's own settings are known. */
const plain: Settings = {
  app_name: null,
  logo: null,
  theme: 'system',
  colors: { light: { primary: '#2454d6' }, dark: { primary: '#8fb0ff' } },
  language: null,
};

/** Look and language of the page: what the link says, then the environment, then the browser. */
export function ConnectApp({ launch }: { launch: Launch }) {
  const view = useSession(launch);
  const settings = view.progress?.settings ?? plain;
  const [chosen, setChosen] = useState<Language>();
  const language =
    chosen ?? launch.language ?? settings.language ?? spoken(navigator.languages) ?? ('en' as const);
  const say = useMemo(() => sayIn(language, settings.app_name), [language, settings.app_name]);
  const { colors } = settings;
  const theme = useMemo(() => themeOf(colors), [colors]);
  const variables = useMemo(() => variablesOf(colors), [colors]);
  const scheme = launch.theme ?? settings.theme;

  useEffect(() => {
    document.documentElement.lang = language;
    document.documentElement.dataset.framed = String(launch.isFramed);
  }, [language, launch.isFramed]);

  return (
    <MantineProvider
      theme={theme}
      cssVariablesResolver={variables}
      defaultColorScheme="auto"
      {...(scheme !== 'system' && { forceColorScheme: scheme })}
      colorSchemeManager={noMemory}
      getStyleNonce={() => launch.nonce}
    >
      <SayContext.Provider value={say}>
        <Shell settings={settings} isFramed={launch.isFramed} language={language} onLanguage={setChosen}>
          <ConnectPage launch={launch} view={view} />
        </Shell>
      </SayContext.Provider>
    </MantineProvider>
  );
}

/** The dashboard of the same origin keeps its own. */
const noMemory = {
  get: <T,>(otherwise: T) => otherwise,
  set: () => {},
  subscribe: () => {},
  unsubscribe: () => {},
  clear: () => {},
};
