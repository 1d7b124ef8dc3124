import { MantineProvider } from '@mantine/core';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { ConnectPage } from './ConnectPage.tsx';
import { tellHost } from './host.ts';
import { keepInAddress, type Launch, spoken } from './launch.ts';
import type { Made, Settings } from './queries.ts';
import { Shell } from './Shell.tsx';
import { useSession, useToken } from './session.ts';
import { type Language, LanguageContext, SayContext, sayIn } from './texts.ts';
import { themeOf, variablesOf } from './theme.ts';

/** As a page looks before the environment's own settings are known. */
const plain: Settings = {
  app_name: null,
  logo: null,
  theme: 'system',
  colors: { light: { primary: '#2454d6' }, dark: { primary: '#8fb0ff' } },
  language: null,
};

/** One session after the other, each from its beginning; the language that was chosen stays. */
export function ConnectApp({ launch }: { launch: Launch }) {
  const token = useToken(launch);
  const [chosen, setChosen] = useState<Language>();
  const choose = (language: Language) => {
    setChosen(language);
    keepInAddress('lang', language);
  };
  return <SessionApp key={token} launch={launch} token={token} chosen={chosen} onLanguage={choose} />;
}

/** Look and language of the page: what the link says, then the environment, then the browser. */
function SessionApp({
  launch,
  token,
  chosen,
  onLanguage,
}: {
  launch: Launch;
  token: string | undefined;
  chosen: Language | undefined;
  onLanguage: (language: Language) => void;
}) {
  const view = useSession(launch, token);
  const settings = view.settings ?? plain;
  const made = view.progress?.connection ?? undefined;
  const tellConnected = useTellConnected();
  const returnUrl = launch.isFramed ? undefined : (view.progress?.return_url ?? undefined);
  const finish = useCallback(
    (done: Made) => {
      tellConnected(done);
      if (returnUrl !== undefined) location.replace(returnUrl);
    },
    [tellConnected, returnUrl],
  );
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
      <LanguageContext.Provider value={language}>
        <SayContext.Provider value={say}>
          <Shell
            settings={settings}
            isFramed={launch.isFramed}
            returnUrl={returnUrl}
            onLanguage={onLanguage}
            onClose={() => {
              if (made !== undefined) tellConnected(made);
              tellHost({ type: 'close' });
            }}
          >
            <ConnectPage launch={launch} view={view} onConnected={finish} />
          </Shell>
        </SayContext.Provider>
      </LanguageContext.Provider>
    </MantineProvider>
  );
}

/** Tells the page around a frame of the session's connection, once: when nothing is left to decide, or before it closes. */
function useTellConnected(): (made: Made) => void {
  const isTold = useRef(false);
  return useCallback(({ provider_config_key, connection_id }) => {
    if (isTold.current) return;
    isTold.current = true;
    const payload = { providerConfigKey: provider_config_key, connectionId: connection_id };
    tellHost({ type: 'connect', payload });
  }, []);
}

/** The dashboard of the same origin keeps its own. */
const noMemory = {
  get: <T,>(otherwise: T) => otherwise,
  set: () => {},
  subscribe: () => {},
  unsubscribe: () => {},
  clear: () => {},
};
