import { Button, Loader } from '@mantine/core';
import type { AuthorizationFlow } from './authorization-flow.ts';
import { useTranslate } from './texts.ts';
import { useHeading } from './use-heading.ts';

/** Shown while the user is at the provider. If the session has expired meanwhile, no new flow can start. */
export function Waiting({
  flow: { is, isLong, url },
  provider,
  onAgain,
  onOpened,
  onBack,
}: {
  flow: Pick<AuthorizationFlow, 'is' | 'isLong'> & { url?: string };
  provider: string;
  /** Undefined, like `onBack`: the session has expired. */
  onAgain?: () => void;
  onOpened?: () => void;
  onBack?: () => void;
}) {
  const t = useTranslate();
  const heading = useHeading();
  return (
    <section className="notice">
      <div role="status" className="notice">
        {is === 'away' ? <Loader size={40} aria-hidden /> : <span className="mark warning">!</span>}
        <h1 ref={heading} tabIndex={-1}>
          {t(`${titles[is]}Title`)}
        </h1>
        <p className="soft">{onAgain ? t(`${titles[is]}Text`, { provider }) : t('lateText')}</p>
      </div>
      {is === 'blocked' ? (
        <Button component="a" href={url} target="_blank" rel="opener" size="md" fullWidth onClick={onOpened}>
          {t('open', { provider })}
        </Button>
      ) : onAgain === undefined ? null : (
        <Button
          variant={is === 'closed' ? 'filled' : 'default'}
          size={is === 'closed' ? 'md' : 'sm'}
          fullWidth={is === 'closed'}
          onClick={onAgain}
        >
          {is === 'closed' ? t('tryAgain') : t('showAgain')}
        </Button>
      )}
      {onBack && (
        <button type="button" className="link" onClick={onBack}>
          {t('back')}
        </button>
      )}
      {isLong && <Hints provider={provider} />}
    </section>
  );
}

const titles = { away: 'waiting', closed: 'closed', blocked: 'blocked' } as const;

const cases = [
  ['hintUnverified', 'hintUnverifiedText'],
  ['hintTesters', 'hintTestersText'],
  ['hintPolicy', 'hintPolicyText'],
  ['hintAccount', 'hintAccountText'],
  ['hintSetup', 'hintSetupText'],
  ['hintBrowser', 'hintBrowserText'],
  ['hintBusy', 'hintBusyText'],
  ['hintNothing', 'hintNothingText'],
] as const;

/** Providers show most errors on their own page and do not return them to the service. */
export function Hints({ provider }: { provider: string }) {
  const t = useTranslate();
  const redirect = `${document.documentElement.dataset.baseUrl ?? location.origin}/oauth/callback`;
  return (
    <details className="hints">
      <summary>{t('hints', { provider })}</summary>
      <ul>
        {cases.map(([error, meaning]) => (
          <li key={error}>
            <strong>{t(error)}</strong>
            <span className="soft">{t(meaning, { provider, redirect })}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
