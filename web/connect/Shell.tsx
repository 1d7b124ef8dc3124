import { CloseButton } from '@mantine/core';
import type { ReactNode } from 'react';
import type { Settings } from './queries.ts';
import { type Language, languageNames, languages, useLanguage, useSay } from './texts.ts';

/** The card that everything is shown in: whose page it is, the way out of a frame, the language. */
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
  /** The application's page to which the user returns. */
  returnUrl: string | undefined;
  onLanguage: (language: Language) => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const say = useSay();
  const language = useLanguage();
  const { app_name: appName, logo } = settings;
  return (
    <div className="ground">
      <main className="card">
        {(appName !== null || logo !== null || isFramed) && (
          <header className={appName === null && logo === null ? 'brand bare' : 'brand'}>
            {logo !== null && <img src={logo} alt="" />}
            <span>{appName}</span>
            {isFramed && <CloseButton aria-label={say('close')} onClick={onClose} />}
          </header>
        )}
        {children}
        {returnUrl !== undefined && (
          <div className="links">
            <a className="link" href={returnUrl}>
              {say('backToApp')}
            </a>
          </div>
        )}
      </main>
      <footer className="foot">
        <label>
          <span>{say('language')}</span>{' '}
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
