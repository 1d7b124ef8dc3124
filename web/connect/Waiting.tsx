import { Button, Loader } from '@mantine/core';
import { Hints } from './Hints.tsx';
import { useSay } from './texts.ts';
import type { Trip } from './trip.ts';

/** While the person is at the provider. */
export function Waiting({
  trip: { is, isLong, url },
  provider,
  onAgain,
  onOpened,
  onBack,
}: {
  trip: Trip;
  provider: string;
  onAgain: () => void;
  onOpened: () => void;
  onBack: () => void;
}) {
  const say = useSay();
  return (
    <section className="notice">
      <div role="status" className="notice">
        {is === 'away' ? <Loader size={40} aria-hidden /> : <span className="mark warning">!</span>}
        <h1>{say(`${titles[is]}Title`)}</h1>
        <p className="soft">{say(`${titles[is]}Text`, { provider })}</p>
      </div>
      {is === 'blocked' ? (
        <Button component="a" href={url} target="_blank" rel="opener" size="md" fullWidth onClick={onOpened}>
          {say('open', { provider })}
        </Button>
      ) : (
        <Button
          variant={is === 'closed' ? 'filled' : 'default'}
          size={is === 'closed' ? 'md' : 'sm'}
          fullWidth={is === 'closed'}
          onClick={onAgain}
        >
          {is === 'closed' ? say('tryAgain') : say('showAgain')}
        </Button>
      )}
      <button type="button" className="link" onClick={onBack}>
        {say('back')}
      </button>
      {isLong && <Hints provider={provider} />}
    </section>
  );
}

const titles = { away: 'waiting', closed: 'closed', blocked: 'blocked' } as const;
