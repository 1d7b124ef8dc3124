import {
  CloseButton,
  type CSSVariablesResolver,
  colorsTuple,
  createTheme,
  MantineProvider,
} from '@mantine/core';
import { useHotkeys } from '@mantine/hooks';
import { type ReactNode, useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { wordsOn } from '../ui/contrast.ts';
import { ConnectPage } from './ConnectPage.tsx';
import { notifyHost } from './host.ts';
import { keepInAddress, type Launch, spoken } from './launch.ts';
import type { Made, Settings } from './queries.ts';
import { useSession, useToken } from './session.ts';
import {
  directionOf,
  type Language,
  LanguageContext,
  languageNames,
  languages,
  TranslateContext,
  translatorFor,
  useLanguage,
  useTranslate,
} from './texts.ts';

/** The settings of the page until those of the environment are loaded. */
const plain: Settings = {
  app_name: null,
  logo: null,
  theme: 'system',
  colors: {
    light: { primary: '#2454d6', background: '#ffffff', text: '#16191d' },
    dark: { primary: '#8fb0ff', background: '#1a1b1e', text: '#eceff2' },
  },
  language: null,
  font: null,
  radius: 8,
  texts: {},
  return_schemes: [],
};

/** Each session starts from the beginning; the chosen language is kept. */
export function ConnectApp({ launch }: { launch: Launch }) {
  const token = useToken(launch);
  const [chosen, setChosen] = useState<Language>();
  const choose = (language: Language) => {
    setChosen(language);
    keepInAddress('lang', language);
  };
  return <SessionApp key={token} launch={launch} token={token} chosen={chosen} onLanguage={choose} />;
}

/** Theme and language come from the link, then the environment, then the browser. */
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
  const notifyConnected = useNotifyConnected();
  const returnUrl = launch.isFramed ? undefined : (view.progress?.return_url ?? undefined);
  const finish = useCallback(
    (done: Made) => {
      notifyConnected(done);
      if (returnUrl !== undefined) location.replace(returnUrl);
    },
    [notifyConnected, returnUrl],
  );
  const language =
    chosen ?? launch.language ?? settings.language ?? spoken(navigator.languages) ?? ('en' as const);
  const t = useMemo(
    () => translatorFor(language, { appName: settings.app_name, own: settings.texts[language] }),
    [language, settings],
  );
  const theme = useMemo(() => themeOf(settings), [settings]);
  const variables = useMemo(() => variablesOf(settings), [settings]);
  const scheme = launch.theme ?? settings.theme;
  const close = () => {
    if (made !== undefined) notifyConnected(made);
    notifyHost({ type: 'close' });
  };
  // Escape also ends the composition of a Japanese word, and closes the list of a field.
  useHotkeys(launch.isFramed ? [['Escape', ({ isComposing }) => isComposing || close()]] : [], ['SELECT']);

  useEffect(() => {
    document.documentElement.lang = language;
    document.documentElement.dir = directionOf(language);
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
        <TranslateContext.Provider value={t}>
          <Shell
            settings={settings}
            isFramed={launch.isFramed}
            returnUrl={returnUrl}
            onLanguage={onLanguage}
            onClose={close}
          >
            <ConnectPage launch={launch} view={view} onConnected={finish} />
          </Shell>
        </TranslateContext.Provider>
      </LanguageContext.Provider>
    </MantineProvider>
  );
}

/** Reports the connection of the session to the host page once: when no decision is left, or before the page closes. */
function useNotifyConnected(): (made: Made) => void {
  const isNotified = useRef(false);
  return useCallback(({ integration_id, connection_id }) => {
    if (isNotified.current) return;
    isNotified.current = true;
    const payload = { providerConfigKey: integration_id, connectionId: connection_id };
    notifyHost({ type: 'connect', payload });
  }, []);
}

/** The dashboard of the same origin stores its own color scheme. */
const noMemory = {
  get: <T,>(otherwise: T) => otherwise,
  set: () => {},
  subscribe: () => {},
  unsubscribe: () => {},
  clear: () => {},
};

/** The main color of the environment, for all buttons. */
const themeOf = ({ colors, font, radius }: Settings) =>
  createTheme({
    colors: { brand: colorsTuple(colors.light.primary) },
    primaryColor: 'brand',
    defaultRadius: radius,
    cursorType: 'pointer',
    respectReducedMotion: true,
    fontFamily: fontsOf(font),
  });

const systemFonts =
  'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans JP", "Noto Sans Arabic", Arial, sans-serif';
const genericFonts = ['serif', 'sans-serif', 'monospace', 'cursive', 'fantasy', 'ui-serif', 'ui-rounded'];

/** The service accepts letters, digits, spaces and hyphens in the name of a font. */
function fontsOf(font: string | null): string {
  if (font === null) return systemFonts;
  return `${genericFonts.includes(font) ? font : `"${font}"`}, ${systemFonts}`;
}

/** Mantine has one shade for each scheme, the environment one color. */
const variablesOf =
  ({ colors, radius }: Settings): CSSVariablesResolver =>
  () => ({
    variables: { '--card-radius': `${Math.min(24, 2 * radius)}px`, '--radius': `${radius}px` },
    light: {
      ...accent(colors.light.primary),
      '--mantine-color-dimmed': '#59616b',
      '--mantine-color-placeholder': '#6b737d',
      ...ground(colors.light, plain.colors.light),
      '--mantine-color-error': '#a61b1b',
    },
    dark: {
      ...accent(colors.dark.primary),
      '--mantine-color-dimmed': '#a9b1ba',
      '--mantine-color-placeholder': '#949ca6',
      ...ground(colors.dark, plain.colors.dark),
      '--mantine-color-error': '#ff9d94',
    },
  });

/** Quieter colors follow those of the environment; the colors of the page itself are in the style sheet. */
function ground(
  { background, text }: Settings['colors']['light'],
  usual: { background: string; text: string },
): Record<string, string> {
  const isUsual = background === usual.background && text === usual.text;
  return {
    '--mantine-color-body': background,
    '--mantine-color-text': text,
    ...(!isUsual && {
      '--ground': `color-mix(in srgb, ${background} 95%, ${text})`,
      '--line': `color-mix(in srgb, ${background} 82%, ${text})`,
      '--soft': `color-mix(in srgb, ${text} 80%, ${background})`,
      '--mantine-color-dimmed': `color-mix(in srgb, ${text} 80%, ${background})`,
      '--mantine-color-placeholder': `color-mix(in srgb, ${text} 72%, ${background})`,
      '--mantine-color-default': background,
      '--mantine-color-default-color': text,
    }),
  };
}

function accent(color: string): Record<string, string> {
  return {
    '--accent': color,
    '--on-accent': wordsOn(color),
    '--mantine-color-brand-filled': color,
    '--mantine-color-brand-filled-hover': `color-mix(in srgb, ${color} 88%, black)`,
    '--mantine-primary-color-filled': color,
    '--mantine-color-anchor': color,
  };
}

/** The card around each page: the application, the close button of a frame, the language. */
export function Shell({
  settings,
  isFramed,
  returnUrl,
  onLanguage,
  onClose,
  children,
}: {
  settings: Settings;
  isFramed: boolean;
  /** The page of the application to which the user returns. */
  returnUrl: string | undefined;
  onLanguage: (language: Language) => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const t = useTranslate();
  const language = useLanguage();
  const { app_name: appName, logo } = settings;
  return (
    <div className="ground">
      <main className="card">
        {(appName !== null || logo !== null || isFramed) && (
          <header className={appName === null && logo === null ? 'brand bare' : 'brand'}>
            {logo !== null && <img src={logo} alt="" />}
            <span>{appName}</span>
            {isFramed && <CloseButton aria-label={t('close')} onClick={onClose} />}
          </header>
        )}
        {children}
        {returnUrl !== undefined && (
          <div className="links">
            <a className="link" href={returnUrl}>
              {t('backToApp')}
            </a>
          </div>
        )}
      </main>
      <footer className="foot">
        <label>
          <span>{t('language')}</span>{' '}
          <select value={language} onChange={({ target }) => onLanguage(target.value as Language)}>
            {languages.map((one) => (
              <option key={one} value={one} lang={one}>
                {languageNames[one]}
              </option>
            ))}
          </select>
        </label>
      </footer>
    </div>
  );
}
