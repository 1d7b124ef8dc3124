import type { Choices } from './queries.ts';
import { useSay } from './texts.ts';

/** Whom it is for and who asks, before anything begins. */
export function Audience({ choices }: { choices: Choices }) {
  const say = useSay();
  const { end_user: user, environment } = choices;
  const email = user?.email && user.email !== user.name ? ` (${user.email})` : '';
  return (
    <dl className="facts">
      {user?.name && (
        <>
          <dt>{say('for')}</dt>
          <dd>
            {user.name}
            {email}
            {user.organization && `, ${user.organization}`}
          </dd>
        </>
      )}
      <dt>{say('at')}</dt>
      <dd>
        {new URL(document.documentElement.dataset.baseUrl ?? location.href).host}, {environment}
      </dd>
    </dl>
  );
}
