import type { Choice } from './queries.ts';
import { useSay } from './texts.ts';

export function ChoiceLogo({ choice }: { choice: Choice }) {
  return <img className="logo" src={choice.logo} alt="" width={44} height={44} />;
}

export function TestBadge() {
  const say = useSay();
  return (
    <span className="badge" title={say('testHelp')}>
      {say('test')}
    </span>
  );
}
