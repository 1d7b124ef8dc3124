import { useSay } from './texts.ts';

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

/** Most refusals are shown on the provider's own page and never come back to us. */
export function Hints({ provider }: { provider: string }) {
  const say = useSay();
  const redirect = `${document.documentElement.dataset.baseUrl ?? location.origin}/oauth/callback`;
  return (
    <section className="hints" aria-labelledby="hints">
      <h2 id="hints">{say('hints', { provider })}</h2>
      <ul>
        {cases.map(([seen, meaning]) => (
          <li key={seen}>
            <strong>{say(seen)}</strong>
            <span className="soft">{say(meaning, { provider, redirect })}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
