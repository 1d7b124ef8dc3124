import { Button, Loader } from '@mantine/core';
import { Hints } from './Hints.tsx';
import { useSay } from './texts.ts';
import type { Trip } from './trip.ts';

/** While the person is at the provider: the session may have expired meanwhile, so that nothing else can be begun. */
export function Waiting({
  trip: { is, isLong, url },
  provider,
  onAgain,
  onOpened,
  onBack,
}: {
  trip: Pick<Trip, 'is' | 'isLong'> & { url?: string };
  provider: string;
  /** Absent, as what leads back: the session has expired. */
  onAgain?: () => void;
  onOpened?: () => void;
  onBack?: () => void;
}) {
  const say = useSay();
  return (
    <section className="notice">
      <div role="status" className="notice">
        {is === 'away' ? <Loader size={40} aria-hidden /> : <span className="mark warning">!</span>}
        <h1>{say(`${titles[is]}Title`)}</h1>
        <p className="soft">{onAgain ? say(`${titles[is]}Text`, { provider }) : say('lateText')}</p>
      </div>
      {is === 'blocked' ? (
        <Button component="a" href={url} target="_blank" rel="opener" size="md" fullWidth onClick={onOpened}>
          {say('open', { provider })}
        </Button>
      ) : onAgain === undefined ? null : (
        <Button
          variant={is === 'closed' ? 'filled' : 'default'}
          size={is === 'closed' ? 'md' : 'sm'}
          fullWidth={is === 'closed'}
          onClick={onAgain}
        >
          {is === 'closed' ? say('tryAgain') : say('showAgain')}
        </Button>
      )}
      {onBack && (
        <button type="button" className="link" onClick={onBack}>
          {say('back')}
        </button>
      )}
      {isLong && <Hints provider={provider} />}
    </section>
  );
}

const titles = { away: 'waiting', closed: 'closed', blocked: 'blocked' } as const;
